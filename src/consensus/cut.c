/* cut.c: see cut.h. The file: index 8, CRC-32C of these 4; little endian. */
#include "consensus/cut.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "consensus/durable.h"
#include "consensus/segments.h"
#include "consensus/snapshots.h"

#define FILE_SIZE 12
#define WORD 8
#define HEAD_MAX ((size_t)1 << 32) /* far above a segment */

struct cut {
    int dir;
    const char *path;
    uint64_t index;
    char *errmsg;
    size_t errmsg_size;
};

static int failed(const struct cut *c, const char *what, const char *name, int rv)
{
    snprintf(c->errmsg, c->errmsg_size, "cannot %s %s/%s: %s", what, c->path, name,
             rv == FL_ENOMEM ? "out of memory" : strerror(errno));
    return rv;
}

static int open_dir(struct cut *c, const char *path, uint64_t index, char *errmsg,
                    size_t errmsg_size)
{
    *c = (struct cut){-1, path, index, errmsg, errmsg_size};
    c->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return c->dir >= 0 ? 0 : failed(c, "open", "", FL_EIO);
}

int cut_begin(const char *path, uint64_t index, char *errmsg, size_t errmsg_size)
{
    FLI_ASSERT(index > 0);
    struct cut c = {-1, path, index, errmsg, errmsg_size};
    uint8_t data[FILE_SIZE];
    fli_put_u64(data, index);
    fli_put_u32(data + 8, fli_crc32c(0, data, 8));
    int rv = durable_replace(path, CUT_FILE, data, sizeof data);
    return rv != 0 ? failed(&c, "write", CUT_FILE, rv) : 0;
}

int cut_forget(const char *path, char *errmsg, size_t errmsg_size)
{
    struct cut c = {-1, path, 0, errmsg, errmsg_size};
    int rv = durable_remove(path, CUT_FILE);
    return rv != 0 ? failed(&c, "remove", CUT_FILE, rv) : 0;
}

/* ---- whether it was done ---- */

/* 1: something was written to it, 0: nothing, negative: an error. */
static int is_written(const struct cut *c, const char *name)
{
    uint8_t word[WORD];
    int fd = openat(c->dir, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return failed(c, "read", name, FL_EIO);
    }
    ssize_t n = pread(fd, word, sizeof word, 0);
    int rv = n < 0 ? failed(c, "read", name, FL_EIO) : n == WORD && fli_get_u64(word) != 0;
    close(fd);
    return rv;
}

static int left_over(const struct cut *c, const char *name)
{
    snprintf(c->errmsg, c->errmsg_size,
             "the log in %s should have ended before entry %" PRIu64 ", and %s is still there",
             c->path, c->index, name);
    return FL_ECORRUPT;
}

static int look(const struct cut *c, DIR *dir)
{
    const struct dirent *e;
    struct segment_file f;
    unsigned written = 0;
    while ((e = readdir(dir)) != NULL) {
        if (!segment_name_parse(e->d_name, &f)) {
            continue;
        }
        if (!f.open && f.last >= c->index) {
            return left_over(c, f.name);
        }
        int rv = f.open ? is_written(c, f.name) : 0;
        if (rv < 0) {
            return rv;
        }
        written += (unsigned)rv;
        if (written > 1) {
            return left_over(c, "an open segment too many");
        }
    }
    return 0;
}

int cut_look(const char *path, uint64_t index, char *errmsg, size_t errmsg_size)
{
    struct cut c;
    int rv = open_dir(&c, path, index, errmsg, errmsg_size);
    if (rv != 0) {
        return rv;
    }
    DIR *dir = fdopendir(c.dir);
    if (dir == NULL) {
        rv = failed(&c, "read", "", FL_EIO);
        close(c.dir);
        return rv;
    }
    rv = look(&c, dir);
    closedir(dir);
    return rv;
}

/* ---- doing it at start ---- */

/* Sets c->index: 0 when there is nothing to do. */
static int read_intention(struct cut *c)
{
    uint8_t data[FILE_SIZE + 1];
    int fd = openat(c->dir, CUT_FILE, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        c->index = 0;
        return errno == ENOENT ? 0 : failed(c, "read", CUT_FILE, FL_EIO);
    }
    ssize_t n = pread(fd, data, sizeof data, 0);
    int rv = n < 0 ? failed(c, "read", CUT_FILE, FL_EIO) : 0;
    close(fd);
    if (rv != 0) {
        return rv;
    }
    c->index = n == FILE_SIZE ? fli_get_u64(data) : 0;
    if (c->index == 0 || fli_get_u32(data + 8) != fli_crc32c(0, data, 8)) {
        snprintf(c->errmsg, c->errmsg_size, "%s/" CUT_FILE " is damaged; " SEGMENTS_REMEDY,
                 c->path);
        return FL_ECORRUPT;
    }
    return 0;
}

static int drop(const struct cut *c, const struct segment_file *f)
{
    int rv = durable_remove(c->path, f->name);
    return rv != 0 ? failed(c, "remove", f->name, rv) : 0;
}

/* The entries of f that stay, of which `first` is the number of the oldest, become a closed segment
 * that ends just before the cut. A shorter one of that name may be there already, written or half
 * written by the library. */
static int keep_head(const struct cut *c, const struct segment_file *f, uint64_t first)
{
    struct fli_buf head;
    uint8_t *data = NULL;
    size_t len = 0;
    char name[SEGMENT_NAME_SIZE];
    FLI_ASSERT(first < c->index);
    int rv = segment_read(c->dir, f->name, &data, &len);
    if (rv != 0) {
        return failed(c, "read", f->name, rv);
    }
    fli_buf_init(&head, HEAD_MAX);
    rv = segment_head(data, len, c->index - first, &head);
    free(data);
    if (rv == FL_ECORRUPT) {
        snprintf(c->errmsg, c->errmsg_size, "the log is damaged: %s/%s; " SEGMENTS_REMEDY, c->path,
                 f->name);
    } else if (rv != 0) {
        rv = failed(c, "cut", f->name, FL_ENOMEM);
    } else {
        snprintf(name, sizeof name, "%016" PRIu64 "-%016" PRIu64, first, c->index - 1);
        rv = durable_replace(c->path, name, head.data, head.len);
        rv = rv != 0 ? failed(c, "write", name, rv) : drop(c, f);
    }
    fli_buf_fini(&head);
    return rv;
}

/* One segment whose entries are first to last. */
static int cut_one(const struct cut *c, const struct segment_file *f, uint64_t first, uint64_t last)
{
    if (last < c->index) {
        return 0;
    }
    return first >= c->index ? drop(c, f) : keep_head(c, f, first);
}

/* *next: the number behind the last entry that stays, and that the library would give to the first
 * one of an open segment. */
static int cut_files(const struct cut *c, const struct segment_file *files, size_t n,
                     uint64_t *next)
{
    int rv = 0;
    for (size_t i = 0; i < n && rv == 0; i++) {
        const struct segment_file *f = &files[i];
        if (f->open && f->report.entries == 0) {
            continue;
        }
        uint64_t first = f->open ? *next : f->first;
        uint64_t last = f->open ? first + f->report.entries - 1 : f->last;
        rv = cut_one(c, f, first, last);
        uint64_t end = last < c->index ? last + 1 : c->index;
        *next = first < c->index && end > *next ? end : *next;
    }
    return rv;
}

static int finish(const struct cut *c)
{
    struct segment_file *files = NULL;
    size_t n = 0;
    uint64_t next = 0;
    int rv = snapshots_newest_index(c->path, &next, c->errmsg, c->errmsg_size);
    next++;
    if (rv == 0) {
        rv = segments_list(c->path, &files, &n, c->errmsg, c->errmsg_size);
    }
    if (rv == 0) {
        rv = cut_files(c, files, n, &next);
    }
    free(files);
    if (rv == 0 && next < c->index) {
        snprintf(c->errmsg, c->errmsg_size,
                 "the log in %s was to be cut off at entry %" PRIu64 ", and ends at %" PRIu64
                 " already; " SEGMENTS_REMEDY,
                 c->path, c->index, next - 1);
        rv = FL_ECORRUPT;
    }
    return rv;
}

int cut_finish(const char *path, uint64_t *ret_index, char *errmsg, size_t errmsg_size)
{
    struct cut c;
    int rv = open_dir(&c, path, 0, errmsg, errmsg_size);
    if (rv != 0) {
        return rv;
    }
    rv = read_intention(&c);
    if (rv == 0 && c.index != 0) {
        rv = finish(&c);
        if (rv == 0 && durable_remove(c.path, CUT_FILE) != 0) {
            rv = failed(&c, "remove", CUT_FILE, FL_EIO);
        }
    }
    close(c.dir);
    if (rv == 0) {
        *ret_index = c.index;
    }
    return rv;
}
