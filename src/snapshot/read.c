/* read.c: reads snapshot files, unit by unit. */
#include "snapshot/private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FIND_AGAIN_MAX 10u

struct snapshot_reader {
    struct log_device *device;
    struct log_file *file;
    char name[LOG_NAME_MAX + 1]; /* "": the device is the file */
    uint64_t begin, file_size;
    struct snapshot_meta meta;
    struct snapshot_stream stream;
    size_t unit_len;
    bool unit_is_new; /* it was not returned yet: the header, which open has read */
    uint8_t unit[SNAPSHOT_UNIT_MAX];
};

static int damage(const struct snapshot_reader *r, int code, uint64_t at, const char *why,
                  struct snapshot_error *e)
{
    return snapshot_fail(e, code, "%s%s%s: at byte %" PRIu64 ": %s", r->device->where,
                         r->name[0] == '\0' ? "" : "/", r->name, r->begin + at, why);
}

int snapshot_reader_refuse(const struct snapshot_reader *r, int code, const char *why,
                           struct snapshot_error *e)
{
    return damage(r, code, r->stream.offset - r->unit_len, why, e);
}

/* Reads exactly len bytes at offset. */
static int read_exactly(struct snapshot_reader *r, void *data, size_t len, uint64_t offset,
                        struct snapshot_error *e)
{
    int64_t n = r->device->ops->read(r->device, r->file, data, len, r->begin + offset);
    if (n < 0) {
        return snapshot_io_fail(e, r->device, "read", r->name, (int)n);
    }
    return (size_t)n == len
               ? 0
               : damage(r, FL_ECORRUPT, offset + (uint64_t)n, "the file ends in the middle", e);
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
            return damage(r, FL_ECORRUPT, at, why, e);
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
    why = snapshot_take_unit(&r->stream, r->unit, have, &r->meta, ret_data);
    if (why != NULL) {
        return damage(r, why == snapshot_other_version ? FL_EVERSION : FL_ECORRUPT, at, why, e);
    }
    r->unit_len = have;
    return 0;
}

static int read_header(struct snapshot_reader *r, struct snapshot_error *e)
{
    struct fli_slice none;
    r->unit_is_new = true;
    return read_unit(r, &none, e);
}

/* The newest may be replaced and removed before it is open, and a list of names that change
 * meanwhile may lack both. Then there is a newer one. */
static int open_found(struct snapshot_reader *r, uint64_t index, struct snapshot_found *ret,
                      struct snapshot_error *e)
{
    struct log_device *d = r->device;
    for (unsigned again = 0;; again++) {
        bool last = index != 0 || again == FIND_AGAIN_MAX;
        int rv = snapshot_find(d, index, ret, e);
        if (rv != 0) {
            return rv;
        }
        if (!ret->any && !last) {
            continue;
        }
        if (!ret->any) {
            return snapshot_fail(e, FL_ENOTFOUND, "%s has no such snapshot", d->where);
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
    r->name[0] = '\0';
    r->begin = 0;
    r->stream = (struct snapshot_stream){0};
    return r;
}

/* Reads the header of the open file, which must be of this entry; closes the reader on an error. */
static int check_file(struct snapshot_reader *r, uint64_t index, uint64_t term,
                      struct snapshot_reader **ret, struct snapshot_error *e)
{
    int rv = r->device->ops->size(r->device, r->file, &r->file_size);
    rv = rv != 0 ? snapshot_io_fail(e, r->device, "read", r->name, rv) : read_header(r, e);
    if (rv == 0 && (r->meta.index != index || r->meta.term != term)) {
        rv = damage(r, FL_ECORRUPT, 16, "it has an index or term of another one", e);
    }
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
    struct snapshot_found found;
    struct snapshot_reader *r = make_reader(d, e);
    if (r == NULL) {
        return FL_ENOMEM;
    }
    int rv = open_found(r, index, &found, e);
    if (rv != 0) {
        free(r);
        return rv;
    }
    return check_file(r, found.index, found.term, ret, e);
}

int snapshot_part_read(const struct snapshot_part *p, struct snapshot_reader **ret,
                       struct snapshot_error *e)
{
    struct log_device *d = p->device;
    struct snapshot_reader *r = make_reader(d, e);
    if (r == NULL) {
        return FL_ENOMEM;
    }
    snapshot_name(p->index, p->term, true, r->name);
    int rv = d->ops->open(d, r->name, LOG_OPEN_READ, &r->file);
    if (rv != 0) {
        rv = snapshot_io_fail(e, d, "open", r->name, rv);
        free(r);
        return rv;
    }
    return check_file(r, p->index, p->term, ret, e);
}

int snapshot_reader_open_within(struct log_device *d, struct log_file *file, uint64_t begin,
                                uint64_t size, struct snapshot_reader **ret,
                                struct snapshot_error *e)
{
    struct snapshot_reader *r = make_reader(d, e);
    if (r == NULL) {
        d->ops->close(d, file);
        return FL_ENOMEM;
    }
    r->file = file;
    r->begin = begin;
    r->file_size = size;
    int rv = read_header(r, e);
    if (rv != 0) {
        snapshot_reader_close(r);
        return rv;
    }
    *ret = r;
    return 0;
}

const struct snapshot_meta *snapshot_reader_meta(const struct snapshot_reader *r)
{
    return &r->meta;
}

uint64_t snapshot_reader_file_size(const struct snapshot_reader *r)
{
    return r->file_size;
}

int snapshot_reader_next(struct snapshot_reader *r, struct fli_slice *whole, struct fli_slice *data,
                         struct snapshot_error *e)
{
    *whole = *data = (struct fli_slice){0};
    if (!r->unit_is_new && r->stream.stage == SNAPSHOT_AT_END) {
        return 0;
    }
    int rv = r->unit_is_new ? 0 : read_unit(r, data, e);
    if (rv != 0) {
        return rv;
    }
    r->unit_is_new = false;
    if (r->stream.stage == SNAPSHOT_AT_END && r->stream.offset != r->file_size) {
        return damage(r, FL_ECORRUPT, r->stream.offset, "there are bytes behind its end", e);
    }
    *whole = (struct fli_slice){r->unit, r->unit_len};
    return 0;
}

void snapshot_reader_close(struct snapshot_reader *r)
{
    r->device->ops->close(r->device, r->file);
    free(r);
}
