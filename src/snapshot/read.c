/* read.c: reads snapshot files, piece by piece or unchanged. */
#include "snapshot/private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIND_AGAIN_MAX 10u

struct snapshot_reader {
    struct log_device *device;
    struct log_file *file;
    char name[LOG_NAME_MAX + 1];
    uint64_t file_size;
    struct snapshot_meta meta;
    struct snapshot_stream stream;
    uint64_t raw_read; /* bytes that snapshot_reader_raw() has returned */
    size_t raw_left;   /* bytes at the end of `unit` that were not returned yet */
    size_t unit_len;
    uint8_t unit[SNAPSHOT_UNIT_MAX];
};

/* Reads exactly len bytes at offset. */
static int read_exactly(struct snapshot_reader *r, void *data, size_t len, uint64_t offset,
                        struct snapshot_error *e)
{
    int64_t n = r->device->ops->read(r->device, r->file, data, len, offset);
    if (n < 0) {
        return snapshot_io_fail(e, r->device, "read", r->name, (int)n);
    }
    if ((size_t)n < len) {
        return snapshot_damage(e, r->device, r->name, offset + (uint64_t)n,
                               "the file ends in the middle");
    }
    return 0;
}

/* Reads the next unit into r->unit. */
static int read_unit(struct snapshot_reader *r, struct fli_slice *ret_data,
                     struct snapshot_error *e)
{
    const char *why = NULL;
    uint64_t at = r->stream.offset;
    size_t have = 0;
    for (;;) {
        size_t need = snapshot_unit_len(&r->stream, r->unit, have, &why);
        if (need == 0) {
            return snapshot_damage(e, r->device, r->name, at, why);
        }
        if (need == have) {
            break;
        }
        int rv = read_exactly(r, r->unit + have, need - have, at + have, e);
        if (rv != 0) {
            return rv;
        }
        have = need;
    }
    struct snapshot_meta meta;
    bool header = r->stream.stage == SNAPSHOT_AT_HEADER;
    why = snapshot_take_unit(&r->stream, r->unit, have, &meta, ret_data);
    if (why != NULL) {
        return snapshot_damage(e, r->device, r->name, at, why);
    }
    if (header) {
        r->meta = meta;
    }
    r->unit_len = have;
    return 0;
}

/* Checks header and trailer, and so whether the file has its full length. */
static int check_ends(struct snapshot_reader *r, uint64_t index, uint64_t term,
                      struct snapshot_error *e)
{
    struct fli_slice none;
    uint8_t trailer[SNAPSHOT_TRAILER];
    uint64_t pieces = 0;
    int rv = read_unit(r, &none, e);
    if (rv != 0) {
        return rv;
    }
    if (r->meta.index != index || r->meta.term != term) {
        return snapshot_damage(e, r->device, r->name, 16, "it has an index or term of another one");
    }
    if (r->file_size < r->stream.offset + SNAPSHOT_TRAILER) {
        return snapshot_damage(e, r->device, r->name, r->file_size, "the file ends in the middle");
    }
    uint64_t at = r->file_size - SNAPSHOT_TRAILER;
    rv = read_exactly(r, trailer, sizeof trailer, at, e);
    if (rv != 0) {
        return rv;
    }
    if (!snapshot_trailer_decode(trailer, &pieces, &r->meta.size) ||
        snapshot_file_len(r->meta.conf_len, r->meta.size) != r->file_size) {
        return snapshot_damage(e, r->device, r->name, at, "its end is missing or damaged");
    }
    return 0;
}

/* Finds the snapshot with this index, or the newest for 0. */
static int find(struct log_device *d, uint64_t index, struct snapshot_info *ret,
                struct snapshot_error *e)
{
    struct snapshot_info few[64];
    size_t n = 0;
    int rv = snapshot_list(d, few, sizeof few / sizeof few[0], &n, e);
    if (rv != 0) {
        return rv;
    }
    for (size_t i = 0; i < n && i < sizeof few / sizeof few[0]; i++) {
        if (index == 0 || few[i].index == index) {
            *ret = few[i];
            return 0;
        }
    }
    return snapshot_fail(e, FL_ENOTFOUND, "%s has no such snapshot", d->where);
}

/* The newest may be replaced and removed before it is open, and a list of names that change
 * meanwhile may lack both. Then there is a newer one. */
static int open_found(struct snapshot_reader *r, uint64_t index, struct snapshot_info *ret,
                      struct snapshot_error *e)
{
    struct log_device *d = r->device;
    for (unsigned again = 0;; again++) {
        bool last = index != 0 || again == FIND_AGAIN_MAX;
        int rv = find(d, index, ret, e);
        if (rv == FL_ENOTFOUND && !last) {
            continue;
        }
        if (rv != 0) {
            return rv;
        }
        snapshot_name(ret->index, ret->term, false, r->name);
        rv = d->ops->open(d, r->name, LOG_OPEN_READ, &r->file);
        if (rv != -ENOENT || last) {
            return rv == 0 ? 0 : snapshot_io_fail(e, d, "open", r->name, rv);
        }
    }
}

/* NULL: no memory. */
static struct snapshot_reader *make_reader(struct log_device *d, struct snapshot_error *e)
{
    struct snapshot_reader *r = malloc(sizeof *r);
    if (r == NULL) {
        (void)snapshot_fail(e, FL_ENOMEM, "no memory for a snapshot file");
        return NULL;
    }
    r->device = d;
    r->stream = (struct snapshot_stream){0};
    r->raw_read = 0;
    r->raw_left = 0;
    return r;
}

/* Checks the open file; closes the reader on an error. */
static int check_file(struct snapshot_reader *r, uint64_t index, uint64_t term,
                      struct snapshot_reader **ret, struct snapshot_error *e)
{
    int rv = r->device->ops->size(r->device, r->file, &r->file_size);
    rv = rv != 0 ? snapshot_io_fail(e, r->device, "read", r->name, rv)
                 : check_ends(r, index, term, e);
    if (rv != 0) {
        snapshot_reader_close(r);
        return rv;
    }
    *ret = r;
    return 0;
}

int snapshot_reader_open(struct log_device *d, uint64_t index, struct snapshot_reader **ret,
                         struct snapshot_error *e)
{
    struct snapshot_info info;
    struct snapshot_reader *r = make_reader(d, e);
    if (r == NULL) {
        return FL_ENOMEM;
    }
    int rv = open_found(r, index, &info, e);
    if (rv != 0) {
        free(r);
        return rv;
    }
    return check_file(r, info.index, info.term, ret, e);
}

int snapshot_reader_open_part(struct log_device *d, uint64_t index, uint64_t term,
                              struct snapshot_reader **ret, struct snapshot_error *e)
{
    struct snapshot_reader *r = make_reader(d, e);
    if (r == NULL) {
        return FL_ENOMEM;
    }
    snapshot_name(index, term, true, r->name);
    int rv = d->ops->open(d, r->name, LOG_OPEN_READ, &r->file);
    if (rv != 0) {
        rv = snapshot_io_fail(e, d, "open", r->name, rv);
        free(r);
        return rv;
    }
    return check_file(r, index, term, ret, e);
}

const struct snapshot_meta *snapshot_reader_meta(const struct snapshot_reader *r)
{
    return &r->meta;
}

int snapshot_reader_next(struct snapshot_reader *r, struct fli_slice *ret, struct snapshot_error *e)
{
    if (r->stream.stage == SNAPSHOT_AT_END) {
        *ret = (struct fli_slice){0};
        return 0;
    }
    struct fli_slice data;
    int rv = read_unit(r, &data, e);
    if (rv != 0) {
        return rv;
    }
    if (r->stream.stage == SNAPSHOT_AT_END && r->stream.offset != r->file_size) {
        return snapshot_damage(e, r->device, r->name, r->stream.offset,
                               "there are bytes behind its end");
    }
    *ret = data;
    return 0;
}

uint64_t snapshot_reader_file_size(const struct snapshot_reader *r)
{
    return r->file_size;
}

/* Reads the unit behind the last returned one; before the first unit, the header once more. */
static int read_raw_unit(struct snapshot_reader *r, struct snapshot_error *e)
{
    struct fli_slice none;
    uint64_t size = r->meta.size;
    if (r->raw_read == 0) {
        r->stream = (struct snapshot_stream){0};
    }
    int rv = read_unit(r, &none, e);
    if (rv == 0) {
        r->meta.size = size;
        r->raw_left = r->unit_len;
    }
    return rv;
}

int snapshot_reader_raw(struct snapshot_reader *r, uint64_t offset, void *data, size_t len,
                        size_t *ret_len, struct snapshot_error *e)
{
    uint8_t *to = data;
    size_t n = 0;
    if (offset != r->raw_read) {
        return snapshot_fail(e, FL_EINVAL, "%s/%s is at byte %llu, and was asked for byte %llu",
                             r->device->where, r->name, (unsigned long long)r->raw_read,
                             (unsigned long long)offset);
    }
    while (n < len && r->raw_read < r->file_size) {
        int rv = r->raw_left == 0 ? read_raw_unit(r, e) : 0;
        if (rv != 0) {
            return rv;
        }
        size_t part = r->raw_left < len - n ? r->raw_left : len - n;
        memcpy(to + n, r->unit + r->unit_len - r->raw_left, part);
        r->raw_left -= part;
        r->raw_read += part;
        n += part;
    }
    *ret_len = n;
    return 0;
}

void snapshot_reader_close(struct snapshot_reader *r)
{
    r->device->ops->close(r->device, r->file);
    free(r);
}
