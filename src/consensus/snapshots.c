/* snapshots.c: see snapshots.h. The record beside a snapshot has the format of uv_snapshot.c of
 * raft 0.22.1: words of 8, little endian: 1, checksum of all that follows, index of the
 * configuration, its length; then the configuration. */
#include "consensus/snapshots.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "consensus/segments.h"

#define NAME_MAX_LEN 80
#define RECORD_HEADER 32
#define RECORD_CHECKED 16 /* from here on */
#define CONFIGURATION_MAX ((uint64_t)1024 * 1024)
#define FORMAT 1
#define CHUNK 65536
#define TRAILER 4 /* of the machine's bytes: CRC-32C of those before */

struct newest {
    bool found;
    uint64_t term, index, stamp;
    char name[NAME_MAX_LEN]; /* without ".meta" */
};

static bool parse_name(const char *name, struct newest *ret)
{
    int used = 0;
    size_t len = strlen(name);
    if (len >= NAME_MAX_LEN ||
        sscanf(name, "snapshot-%" SCNu64 "-%" SCNu64 "-%" SCNu64 ".meta%n", &ret->term, &ret->index,
               &ret->stamp, &used) != 3 ||
        used == 0 || (size_t)used != len) {
        return false;
    }
    memcpy(ret->name, name, len - strlen(".meta"));
    ret->name[len - strlen(".meta")] = '\0';
    ret->found = true;
    return true;
}

static bool is_newer(const struct newest *a, const struct newest *b)
{
    if (a->term != b->term) {
        return a->term > b->term;
    }
    return a->index != b->index ? a->index > b->index : a->stamp > b->stamp;
}

static void find_newest(DIR *dir, struct newest *ret)
{
    const struct dirent *e;
    memset(ret, 0, sizeof *ret);
    while ((e = readdir(dir)) != NULL) {
        struct newest s;
        struct stat st;
        if (parse_name(e->d_name, &s) && fstatat(dirfd(dir), s.name, &st, 0) == 0 &&
            st.st_size > 0 && (!ret->found || is_newer(&s, ret))) {
            *ret = s;
        }
    }
}

/* As much as there is, up to size. -1: an error. */
static ssize_t read_some(int fd, uint8_t *to, size_t size)
{
    size_t len = 0;
    while (len < size) {
        ssize_t n = read(fd, to + len, size - len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -1;
        }
        if (n == 0) {
            break;
        }
        len += (size_t)n;
    }
    return (ssize_t)len;
}

/* NULL: right. Else what is wrong; "" when it could not be read (see errno). */
static const char *look_at_record(int fd)
{
    uint8_t chunk[4096];
    ssize_t n = read_some(fd, chunk, RECORD_HEADER);
    if (n < 0) {
        return "";
    }
    if (n < RECORD_HEADER || fli_get_u64(chunk) != FORMAT) {
        return "the record of a snapshot is not of a known format";
    }
    uint32_t expected = fli_get_u32(chunk + 8);
    uint64_t left = fli_get_u64(chunk + 24);
    if (left == 0 || left > CONFIGURATION_MAX) {
        return "the record of a snapshot is not as it was written";
    }
    uint32_t crc = segment_crc(0, chunk + RECORD_CHECKED, RECORD_HEADER - RECORD_CHECKED);
    while (left > 0) {
        n = read_some(fd, chunk, left < sizeof chunk ? (size_t)left : sizeof chunk);
        if (n < 0) {
            return "";
        }
        if (n == 0) {
            return "the record of a snapshot is cut off";
        }
        crc = segment_crc(crc, chunk, (size_t)n);
        left -= (uint64_t)n;
    }
    return crc == expected ? NULL : "the record of a snapshot is not as it was written";
}

/* The checksum of the machine's own bytes. The reader behind it looks at the rest. */
static const char *look_at_state(int fd)
{
    uint8_t chunk[CHUNK + TRAILER];
    uint32_t crc = 0;
    ssize_t kept = read_some(fd, chunk, TRAILER); /* bytes that may be the trailer */
    for (;;) {
        ssize_t n = kept < TRAILER ? kept : read_some(fd, chunk + TRAILER, CHUNK);
        if (n < 0) {
            return "";
        }
        if (kept < TRAILER || n == 0) {
            break;
        }
        crc = fli_crc32c(crc, chunk, (size_t)n);
        memmove(chunk, chunk + n, TRAILER);
    }
    return kept == TRAILER && fli_get_u32(chunk) == crc ? NULL
                                                        : "a snapshot is not as it was written";
}

static int look(int dir, const char *path, const char *name, const char *(*judge)(int fd),
                char *errmsg, size_t errmsg_size)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    const char *wrong = fd < 0 ? "" : judge(fd);
    int saved = errno;
    if (fd >= 0) {
        close(fd);
    }
    if (wrong == NULL) {
        return 0;
    }
    if (wrong[0] == '\0') {
        snprintf(errmsg, errmsg_size, "cannot read %s/%s: %s", path, name, strerror(saved));
        return FL_EIO;
    }
    snprintf(errmsg, errmsg_size, "a snapshot is damaged: %s/%s: %s; " SEGMENTS_REMEDY, path, name,
             wrong);
    return FL_ECORRUPT;
}

int snapshots_newest_index(const char *path, uint64_t *ret, char *errmsg, size_t errmsg_size)
{
    struct newest s;
    DIR *dir = opendir(path);
    if (dir == NULL) {
        snprintf(errmsg, errmsg_size, "cannot read %s: %s", path, strerror(errno));
        return FL_EIO;
    }
    find_newest(dir, &s);
    closedir(dir);
    *ret = s.found ? s.index : 0;
    return 0;
}

int snapshots_check(const char *path, char *errmsg, size_t errmsg_size)
{
    struct newest s;
    char record[NAME_MAX_LEN + 8];
    DIR *dir = opendir(path);
    if (dir == NULL) {
        snprintf(errmsg, errmsg_size, "cannot read %s: %s", path, strerror(errno));
        return FL_EIO;
    }
    int rv = 0;
    find_newest(dir, &s);
    if (s.found) {
        snprintf(record, sizeof record, "%s.meta", s.name);
        rv = look(dirfd(dir), path, record, look_at_record, errmsg, errmsg_size);
        if (rv == 0) {
            rv = look(dirfd(dir), path, s.name, look_at_state, errmsg, errmsg_size);
        }
    }
    closedir(dir);
    return rv;
}
