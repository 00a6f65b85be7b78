/* read.c: reads snapshot files, unit by unit, and the state in them. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "snapshot/private.h"

struct snapshot_reader {
    struct log_device *device;
    struct log_file *file;
    char name[LOG_NAME_MAX + 1]; /* "": the device is the file */
    struct log_device backup;
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
                         r->name[0] == '\0' ? "" : "/", r->name, at, why);
}

static int read_at(struct snapshot_reader *r, void *data, size_t len, uint64_t offset,
                   size_t *ret_len, struct snapshot_error *e)
{
    int64_t n = r->device->ops->read(r->device, r->file, data, len, offset);
    *ret_len = n < 0 ? 0 : (size_t)n;
    return snapshot_io(e, r->device, "read", r->name, n < 0 ? (int)n : 0);
}

/* Whether the file ends where it says that it does. */
static int check_end(struct snapshot_reader *r, struct snapshot_error *e)
{
    uint8_t byte;
    size_t n;
    int rv = read_at(r, &byte, 1, r->stream.offset, &n, e);
    return rv == 0 && n > 0
               ? damage(r, FL_ECORRUPT, r->stream.offset, "there are bytes behind its end", e)
               : rv;
}

/* Reads the next unit into r->unit. */
static int read_unit(struct snapshot_reader *r, struct fli_slice *ret_data,
                     struct snapshot_error *e)
{
    const char *why = NULL;
    uint64_t at = r->stream.offset;
    size_t have = 0;
    size_t need;
    while ((need = snapshot_unit_len(&r->stream, r->unit, have, &why)) > have) {
        size_t n;
        int rv = read_at(r, r->unit + have, need - have, at + have, &n, e);
        if (rv != 0) {
            return rv;
        }
        have += n;
        if (have < need) {
            return damage(r, FL_ECORRUPT, at + have, "the file ends in the middle", e);
        }
    }
    why = need == 0 ? why : snapshot_take_unit(&r->stream, r->unit, need, &r->meta, ret_data);
    if (why != NULL) {
        bool is_backup = r->device == &r->backup;
        why = is_backup && why == snapshot_foreign ? "it is no backup of fencelock" : why;
        return damage(r, why == snapshot_other_version ? FL_EVERSION : FL_ECORRUPT, at, why, e);
    }
    r->unit_len = need;
    return r->stream.stage == SNAPSHOT_AT_END ? check_end(r, e) : 0;
}

static int open_found(struct snapshot_reader *r, uint64_t index, struct snapshot_found *ret,
                      struct snapshot_error *e)
{
    struct log_device *d = r->device;
    int rv = snapshot_find(d, index, ret, e);
    if (rv != 0) {
        return rv;
    }
    if (!ret->any) {
        return snapshot_fail(e, FL_ENOTFOUND, "%s has no such snapshot", d->where);
    }
    snapshot_name(ret->index, ret->term, false, r->name);
    return snapshot_io(e, d, "open", r->name, d->ops->open(d, r->name, LOG_OPEN_READ, &r->file));
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
    r->file = NULL;
    r->name[0] = '\0';
    r->stream = (struct snapshot_stream){0};
    r->unit_is_new = true;
    return r;
}

/* Reads the header, when opening the file went well so far. `is`: what it must be of; NULL: a
 * backup may be of any entry. Closes the reader on an error. */
static int begin(struct snapshot_reader *r, int rv, const struct snapshot_found *is,
                 struct snapshot_reader **ret, struct snapshot_error *e)
{
    struct fli_slice none;
    uint64_t size = 0;
    if (rv == 0 && is != NULL) {
        rv = r->device->ops->size(r->device, r->file, &size);
        rv = snapshot_io(e, r->device, "read", r->name, rv);
    }
    rv = rv != 0 ? rv : read_unit(r, &none, e);
    if (rv == 0 && is != NULL && (r->meta.index != is->index || r->meta.term != is->term)) {
        rv = damage(r, FL_ECORRUPT, 16, "it has an index or term of another one", e);
    }
    if (rv != 0) {
        snapshot_reader_close(r);
        return rv;
    }
    r->meta.file_size = size;
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
    return begin(r, rv, &found, ret, e);
}

int snapshot_part_read(const struct snapshot_part *p, struct snapshot_reader **ret,
                       struct snapshot_error *e)
{
    const struct snapshot_found is = {.index = p->index, .term = p->term};
    struct log_device *d = p->device;
    struct snapshot_reader *r = make_reader(d, e);
    if (r == NULL) {
        return FL_ENOMEM;
    }
    memcpy(r->name, p->name, sizeof r->name);
    int rv = snapshot_io(e, d, "open", r->name, d->ops->open(d, r->name, LOG_OPEN_READ, &r->file));
    return begin(r, rv, &is, ret, e);
}

const struct snapshot_meta *snapshot_reader_meta(const struct snapshot_reader *r)
{
    return &r->meta;
}

int snapshot_reader_next(struct snapshot_reader *r, struct fli_slice *whole, struct fli_slice *data,
                         struct snapshot_error *e)
{
    *whole = *data = (struct fli_slice){0};
    if (!r->unit_is_new && r->stream.stage == SNAPSHOT_AT_END) {
        return 0;
    }
    int rv = r->unit_is_new ? 0 : read_unit(r, data, e);
    if (rv == 0) {
        r->unit_is_new = false;
        *whole = (struct fli_slice){r->unit, r->unit_len};
    }
    return rv;
}

void snapshot_reader_close(struct snapshot_reader *r)
{
    if (r->file != NULL) {
        r->device->ops->close(r->device, r->file);
    }
    free(r);
}

/* --- the state --- */

/* The last unit that was read makes no sense, or there is no memory for it. */
static int refuse(const struct snapshot_reader *r, int code, struct snapshot_error *e)
{
    const char *why = code == FL_EVERSION   ? "the state is of another version of fencelock"
                      : code == FL_ECORRUPT ? "the state makes no sense"
                                            : fl_strerror(code);
    return damage(r, code, r->stream.offset - r->unit_len, why, e);
}

static int decode(struct snapshot_reader *r, const uint64_t hash_seed[2], struct machine **ret,
                  struct snapshot_error *e)
{
    struct machine_restore *restore;
    struct fli_slice whole;
    struct fli_slice data;
    int rv = machine_restore_begin(hash_seed, &restore);
    if (rv != 0) {
        return refuse(r, rv, e);
    }
    do {
        rv = snapshot_reader_next(r, &whole, &data, e);
        if (rv == 0 && machine_restore_feed(restore, data.data, data.len) != 0) {
            rv = refuse(r, FL_ECORRUPT, e);
        }
    } while (rv == 0 && whole.len > 0);
    if (rv != 0) {
        machine_restore_abort(restore);
        return rv;
    }
    rv = machine_restore_finish(restore, ret);
    return rv == 0 ? 0 : refuse(r, rv, e);
}

int snapshot_decode(struct snapshot_reader *r, const uint64_t hash_seed[2],
                    struct snapshot_meta *ret_meta, struct machine **ret, struct snapshot_error *e)
{
    int rv = decode(r, hash_seed, ret, e);
    if (rv == 0) {
        *ret_meta = r->meta;
    }
    snapshot_reader_close(r);
    return rv;
}

/* --- backups --- */

static int64_t backup_read(struct log_device *d, struct log_file *file, void *data, size_t len,
                           uint64_t offset)
{
    FILE *f = (void *)file;
    size_t n = fread(data, 1, len, f);
    return ferror(f) != 0 ? -errno : (int64_t)n;
}

static void backup_close(struct log_device *d, struct log_file *file)
{
    FILE *f = (void *)file;
    (void)fclose(f);
}

/* A device that is one file, read from its beginning to its end. */
static const struct log_device_ops backup_ops = {.read = backup_read, .close = backup_close};

int snapshot_read_backup(const char *path, struct snapshot_meta *ret_meta, struct machine **ret,
                         struct snapshot_error *e)
{
    uint64_t seed[2];
    struct snapshot_reader *r = make_reader(NULL, e);
    if (r == NULL) {
        return FL_ENOMEM;
    }
    r->backup = (struct log_device){.ops = &backup_ops, .where = path};
    r->device = &r->backup;
    r->file = (void *)fopen(path, "rbe");
    int rv = snapshot_io(e, r->device, "open", "", r->file == NULL ? -errno : 0);
    rv = begin(r, rv, NULL, &r, e);
    fli_random(seed, sizeof seed);
    return rv != 0 ? rv : snapshot_decode(r, seed, ret_meta, ret, e);
}
