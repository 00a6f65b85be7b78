/* segments.c: see segments.h. The format is that of uv_segment.c and uv_encoding.c of raft 0.22.1:
 * a word of 1, then batches, each of two checksums (of header and data), the header (the number of
 * entries, then 16 bytes an entry: term, type, three unused bytes, size) and the data. */
#include "consensus/segments.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"

#define WORD 8
#define FORMAT 1
#define POLYNOMIAL 0x04c11db7U
#define BATCH_ENTRIES_MAX (8U * 1024 * 1024 / 32) /* the library's own bound */

struct crc_table {
    uint32_t of[256];
};

static void crc_fill(struct crc_table *t)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i << 24;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc << 1 ^ ((crc & 0x80000000U) != 0 ? POLYNOMIAL : 0);
        }
        t->of[i] = crc;
    }
}

static uint32_t crc_more(const struct crc_table *t, uint32_t crc, const uint8_t *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        crc = crc << 8 ^ t->of[(crc >> 24 ^ data[i]) & 255];
    }
    return crc;
}

static uint32_t crc_of(const struct crc_table *t, const uint8_t *data, size_t len)
{
    return crc_more(t, 0, data, len);
}

uint32_t segment_crc(uint32_t crc, const uint8_t *data, size_t len)
{
    struct crc_table t;
    crc_fill(&t);
    return crc_more(&t, crc, data, len);
}

static uint64_t word_at(const uint8_t *data, unsigned bytes)
{
    uint64_t v = 0;
    for (unsigned i = bytes; i > 0; i--) {
        v = v << 8 | data[i - 1];
    }
    return v;
}

static bool zeros(const uint8_t *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (data[i] != 0) {
            return false;
        }
    }
    return true;
}

enum batch { BATCH_RIGHT, BATCH_WRONG, BATCH_CUT };

/* The batch at data. *spent grows by the bytes that were looked at. Sets size and entries of a
 * right one. */
static enum batch read_batch(const struct crc_table *t, const uint8_t *data, size_t len,
                             size_t *spent, size_t *ret_size, uint64_t *ret_entries)
{
    if (len < 2 * WORD) {
        return BATCH_CUT;
    }
    uint64_t n = word_at(data + WORD, WORD);
    if (n == 0 || n > BATCH_ENTRIES_MAX) {
        return BATCH_WRONG;
    }
    size_t header = WORD + 16 * (size_t)n;
    if (len - WORD < header) {
        return BATCH_CUT;
    }
    *spent += header;
    if (crc_of(t, data + WORD, header) != word_at(data, 4)) {
        return BATCH_WRONG;
    }
    uint64_t size = 0; /* no overflow: 2^18 sizes of 32 bits */
    for (uint64_t i = 0; i < n; i++) {
        size += word_at(data + 2 * WORD + 16 * i + 12, 4);
    }
    if (len - WORD - header < size) {
        return BATCH_CUT;
    }
    *spent += size;
    if (crc_of(t, data + WORD + header, size) != word_at(data + 4, 4)) {
        return BATCH_WRONG;
    }
    *ret_size = WORD + header + size;
    *ret_entries = n;
    return BATCH_RIGHT;
}

/* Whether the bytes could be those of a header: the checksum is only taken when they could. */
static bool plausible(const uint8_t *data, size_t len)
{
    if (len < 2 * WORD + 16) {
        return false;
    }
    uint64_t n = word_at(data + WORD, WORD);
    uint8_t type = data[2 * WORD + 8];
    return n != 0 && n <= BATCH_ENTRIES_MAX && type >= 1 && type <= 3 &&
           zeros(data + 2 * WORD + 9, 3) && word_at(data + 2 * WORD + 12, 4) % WORD == 0;
}

/* Whether what is wrong at `from` did arrive on the disk: no piece of it is missing, and a right
 * batch follows. The search ends at the first piece that is missing. */
static bool changed_later(const struct crc_table *t, const uint8_t *data, size_t len, size_t from)
{
    size_t spent = 0;
    size_t at = from;
    while (at < len) {
        size_t end = (at / SEGMENTS_PIECE + 1) * SEGMENTS_PIECE;
        end = end < len ? end : len;
        for (size_t i = at; i < end; i += WORD) {
            size_t size;
            uint64_t entries;
            if (i != from && plausible(data + i, len - i) &&
                read_batch(t, data + i, len - i, &spent, &size, &entries) == BATCH_RIGHT) {
                return true;
            }
            if (spent > SEGMENTS_SEARCH_MAX) {
                return false;
            }
        }
        if (zeros(data + at, end - at)) {
            return false;
        }
        at = end;
    }
    return false;
}

/* The first piece has the word of the format, so it is there with it or not at all. */
static enum segment_finding judge_format(const uint8_t *data, size_t len)
{
    size_t piece = len < SEGMENTS_PIECE ? len : SEGMENTS_PIECE;
    if (!zeros(data, piece)) {
        return SEGMENT_DAMAGED;
    }
    return zeros(data, len) ? SEGMENT_WHOLE : SEGMENT_TORN;
}

void segment_scan(const uint8_t *data, size_t len, struct segment_report *ret)
{
    struct crc_table t;
    *ret = (struct segment_report){.finding = SEGMENT_WHOLE};
    if (len < WORD) {
        ret->finding = len == 0 ? SEGMENT_WHOLE : SEGMENT_CUT;
        return;
    }
    if (word_at(data, WORD) != FORMAT) {
        ret->finding = judge_format(data, len);
        return;
    }
    crc_fill(&t);
    size_t at = WORD;
    enum batch found = BATCH_RIGHT;
    while (at < len && found == BATCH_RIGHT) {
        size_t spent = 0;
        size_t size = 0;
        uint64_t entries = 0;
        found = read_batch(&t, data + at, len - at, &spent, &size, &entries);
        at += size;
        ret->entries += entries;
    }
    ret->offset = at;
    ret->exact = found == BATCH_RIGHT;
    if (ret->exact || (found == BATCH_WRONG && zeros(data + at, len - at))) {
        return;
    }
    if (changed_later(&t, data, len, at)) {
        ret->finding = SEGMENT_DAMAGED;
    } else {
        ret->finding = found == BATCH_CUT ? SEGMENT_CUT : SEGMENT_TORN;
    }
}

/* ---- the head of a segment ---- */

/* A batch of the first n entries of the right one at data. */
static int append_part(const struct crc_table *t, const uint8_t *data, uint64_t n,
                       struct fli_buf *out)
{
    uint64_t all = word_at(data + WORD, WORD);
    const uint8_t *heads = data + 2 * WORD;
    const uint8_t *body = heads + 16 * all;
    size_t header = WORD + 16 * (size_t)n;
    size_t size = 0;
    for (uint64_t i = 0; i < n; i++) {
        size += word_at(heads + 16 * i + 12, 4);
    }
    int rv = fli_buf_reserve(out, WORD + header + size);
    if (rv != 0) {
        return rv;
    }
    uint8_t *to = out->data + out->len;
    fli_put_u64(to + WORD, n);
    memcpy(to + 2 * WORD, heads, 16 * (size_t)n);
    memcpy(to + WORD + header, body, size);
    fli_put_u32(to, crc_of(t, to + WORD, header));
    fli_put_u32(to + 4, crc_of(t, to + WORD + header, size));
    out->len += WORD + header + size;
    return 0;
}

int segment_head(const uint8_t *data, size_t len, uint64_t n, struct fli_buf *out)
{
    struct crc_table t;
    if (len < WORD || word_at(data, WORD) != FORMAT) {
        return FL_ECORRUPT;
    }
    crc_fill(&t);
    int rv = fli_buf_append(out, data, WORD);
    for (size_t at = WORD; rv == 0 && n > 0;) {
        size_t spent = 0;
        size_t size = 0;
        uint64_t entries = 0;
        enum batch found = read_batch(&t, data + at, len - at, &spent, &size, &entries);
        if (found != BATCH_RIGHT) {
            return FL_ECORRUPT;
        }
        uint64_t taken = entries < n ? entries : n;
        rv = taken == entries ? fli_buf_append(out, data + at, size)
                              : append_part(&t, data + at, taken, out);
        n -= taken;
        at += size;
    }
    return rv;
}

/* ---- files ---- */

bool segment_name_parse(const char *name, struct segment_file *f)
{
    unsigned long long first, last;
    int used = 0;
    size_t len = strlen(name);
    if (len >= SEGMENT_NAME_SIZE) {
        return false;
    }
    memset(f, 0, sizeof *f);
    memcpy(f->name, name, len + 1);
    if (sscanf(name, "open-%llu%n", &first, &used) == 1 && (size_t)used == len) {
        f->open = true;
        f->first = f->last = first;
        return true;
    }
    if (sscanf(name, "%16llu-%16llu%n", &first, &last, &used) == 2 && (size_t)used == len) {
        f->first = first;
        f->last = last;
        return true;
    }
    return false;
}

static int read_all(int fd, size_t size, uint8_t **ret)
{
    uint8_t *data = malloc(size + 1);
    size_t len = 0;
    if (data == NULL) {
        return FL_ENOMEM;
    }
    while (len < size) {
        ssize_t n = read(fd, data + len, size - len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            free(data);
            return FL_EIO;
        }
        len += (size_t)n;
    }
    *ret = data;
    return 0;
}

int segment_read(int dir, const char *name, uint8_t **ret, size_t *ret_len)
{
    struct stat st;
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return FL_EIO;
    }
    int rv = fstat(fd, &st) != 0 ? FL_EIO : read_all(fd, (size_t)st.st_size, ret);
    int saved = errno;
    close(fd);
    errno = saved;
    if (rv == 0) {
        *ret_len = (size_t)st.st_size;
    }
    return rv;
}

static int scan_file(int dir, struct segment_file *f)
{
    uint8_t *data = NULL;
    size_t len = 0;
    int rv = segment_read(dir, f->name, &data, &len);
    if (rv == 0) {
        segment_scan(data, len, &f->report);
        free(data);
    }
    return rv;
}

static int damaged(const char *path, const struct segment_file *f, const char *why, char *errmsg,
                   size_t errmsg_size)
{
    snprintf(errmsg, errmsg_size, "the log is damaged: %s/%s at byte %zu: %s; " SEGMENTS_REMEDY,
             path, f->name, f->report.offset, why);
    return FL_ECORRUPT;
}

static int judge(const char *path, const struct segment_file *f, uint64_t last_written,
                 char *errmsg, size_t errmsg_size)
{
    const struct segment_report *r = &f->report;
    if (!f->open) {
        if (r->finding != SEGMENT_WHOLE || !r->exact) {
            return damaged(path, f, "entries of a closed segment are not as they were written",
                           errmsg, errmsg_size);
        }
        if (r->entries != f->last - f->first + 1) {
            return damaged(path, f, "not as many entries as its name says", errmsg, errmsg_size);
        }
        return 0;
    }
    if (r->finding == SEGMENT_DAMAGED) {
        return damaged(path, f, "entries are not as they were written, and more follow", errmsg,
                       errmsg_size);
    }
    if (r->finding != SEGMENT_WHOLE && f->first < last_written) {
        return damaged(path, f, "entries are not as they were written, and a later segment follows",
                       errmsg, errmsg_size);
    }
    if (r->finding == SEGMENT_CUT) {
        return damaged(path, f, "the file ends within entries, which the raft library cannot load",
                       errmsg, errmsg_size);
    }
    return 0;
}

/* Reads every segment once and keeps what was found. */
static int scan_dir(DIR *dir, const char *path, struct segment_file **files, size_t *n,
                    char *errmsg, size_t errmsg_size)
{
    const struct dirent *e;
    size_t room = 0;
    while ((e = readdir(dir)) != NULL) {
        struct segment_file f;
        if (!segment_name_parse(e->d_name, &f)) {
            continue;
        }
        int rv = scan_file(dirfd(dir), &f);
        if (rv != 0) {
            snprintf(errmsg, errmsg_size, "cannot read %s/%s: %s", path, f.name,
                     rv == FL_ENOMEM ? "out of memory" : strerror(errno));
            return rv;
        }
        if (*n == room) {
            room = room == 0 ? 16 : 2 * room;
            struct segment_file *more = realloc(*files, room * sizeof *more);
            if (more == NULL) {
                snprintf(errmsg, errmsg_size, "out of memory");
                return FL_ENOMEM;
            }
            *files = more;
        }
        (*files)[(*n)++] = f;
    }
    return 0;
}

static int in_order(const void *a, const void *b)
{
    const struct segment_file *x = a;
    const struct segment_file *y = b;
    if (x->open != y->open) {
        return x->open ? 1 : -1;
    }
    if (x->first != y->first) {
        return x->first < y->first ? -1 : 1;
    }
    return x->last < y->last ? -1 : x->last > y->last;
}

int segments_list(const char *path, struct segment_file **ret, size_t *ret_n, char *errmsg,
                  size_t errmsg_size)
{
    *ret = NULL;
    *ret_n = 0;
    DIR *dir = opendir(path);
    if (dir == NULL) {
        snprintf(errmsg, errmsg_size, "cannot read %s: %s", path, strerror(errno));
        return FL_EIO;
    }
    int rv = scan_dir(dir, path, ret, ret_n, errmsg, errmsg_size);
    closedir(dir);
    if (*ret_n > 0) {
        qsort(*ret, *ret_n, sizeof **ret, in_order);
    }
    return rv;
}

int segments_check(const char *path, char *errmsg, size_t errmsg_size)
{
    struct segment_file *files;
    size_t n;
    int rv = segments_list(path, &files, &n, errmsg, errmsg_size);
    uint64_t last_written = 0;
    for (size_t i = 0; i < n; i++) {
        if (files[i].open && files[i].report.entries > 0 && files[i].first > last_written) {
            last_written = files[i].first;
        }
    }
    for (size_t i = 0; i < n && rv == 0; i++) {
        rv = judge(path, &files[i], last_written, errmsg, errmsg_size);
    }
    free(files);
    return rv;
}
