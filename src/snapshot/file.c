/* file.c: see file.h. format.c has the bytes. */
#include "snapshot/format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

struct snapshot_writer {
    struct snapshot_part part;
    struct snapshot_meta meta;
    struct snapshot_stream stream;
    size_t filled; /* bytes of data in the piece that is being filled */
    struct snapshot_error *error;
    uint8_t unit[SNAPSHOT_UNIT_MAX];
};

_Static_assert(SNAPSHOT_HEADER + SNAPSHOT_CONF_MAX <= SNAPSHOT_UNIT_MAX, "a header is a unit");

int snapshot_fail(struct snapshot_error *e, int code, const char *fmt, ...)
{
    va_list args;
    e->code = code;
    va_start(args, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, args);
    va_end(args);
    return code;
}

/* error: of a call of the device. 0; or FL_EIO: "cannot <what> <file>: <the system's words>". */
static int io(struct snapshot_error *e, const struct log_device *d, const char *what,
              const char *name, int error)
{
    int code = error == -ENOMEM ? FL_ENOMEM : FL_EIO;
    return error == 0 ? 0
                      : snapshot_fail(e, code, "cannot %s %s%s%s: %s", what, d->where,
                                      name[0] == '\0' ? "" : "/", name, strerror(-error));
}

/* --- a file that is being made --- */

int snapshot_part_open(struct snapshot_part *p, struct log_device *d, uint64_t index, uint64_t term,
                       struct snapshot_error *e)
{
    *p = (struct snapshot_part){.device = d, .index = index, .term = term};
    snapshot_name(index, term, true, p->name);
    int rv = d->ops->remove(d, p->name);
    if (rv != 0 && rv != -ENOENT) {
        return io(e, d, "remove", p->name, rv);
    }
    rv = d->ops->open(d, p->name, LOG_OPEN_WRITE | LOG_OPEN_CREATE, &p->file);
    return io(e, d, "make", p->name, rv);
}

int snapshot_part_write(struct snapshot_part *p, const void *data, size_t len,
                        struct snapshot_error *e)
{
    int rv = p->device->ops->write(p->device, p->file, data, len, p->len);
    p->len += rv == 0 ? len : 0;
    return io(e, p->device, "write", p->name, rv);
}

int snapshot_part_sync(struct snapshot_part *p, struct snapshot_error *e)
{
    return io(e, p->device, "sync", p->name, p->device->ops->sync(p->device, p->file));
}

static void close_part(struct snapshot_part *p)
{
    if (p->file != NULL) {
        p->device->ops->close(p->device, p->file);
        p->file = NULL;
    }
}

void snapshot_part_abort(struct snapshot_part *p)
{
    close_part(p);
    /* If that fails, the next start removes it. */
    (void)!p->device->ops->remove(p->device, p->name);
}

int snapshot_part_finish(struct snapshot_part *p, struct snapshot_error *e)
{
    char name[LOG_NAME_MAX + 1];
    struct log_device *d = p->device;
    snapshot_name(p->index, p->term, false, name);
    int rv = snapshot_part_sync(p, e);
    if (rv == 0) {
        close_part(p);
        rv = d->ops->rename(d, p->name, name, true); /* a damaged one may have the name */
        rv = io(e, d, "rename", p->name, rv);
    }
    if (rv != 0) {
        snapshot_part_abort(p);
        return rv;
    }
    return io(e, d, "sync the directory of", name, d->ops->sync_dir(d));
}

/* --- writing --- */

int snapshot_writer_open(struct log_device *d, const struct snapshot_meta *meta,
                         struct snapshot_writer **ret, struct snapshot_error *e)
{
    struct snapshot_writer *w = malloc(sizeof *w);
    if (w == NULL) {
        return snapshot_fail(e, FL_ENOMEM, "no memory for a snapshot file");
    }
    w->meta = *meta;
    w->stream = (struct snapshot_stream){0};
    w->filled = 0;
    w->error = e;
    int rv = snapshot_part_open(&w->part, d, meta->index, meta->term, e);
    if (rv == 0) {
        size_t len = snapshot_put_header(&w->stream, meta, w->unit);
        rv = snapshot_part_write(&w->part, w->unit, len, e);
    }
    if (rv != 0) {
        return snapshot_writer_end(w, rv);
    }
    *ret = w;
    return 0;
}

static int put_piece(struct snapshot_writer *w)
{
    size_t len = snapshot_put_piece(&w->stream, w->filled, w->unit);
    w->filled = 0;
    return snapshot_part_write(&w->part, w->unit, len, w->error);
}

int snapshot_writer_write(void *writer, const void *data, size_t len)
{
    struct snapshot_writer *w = writer;
    const uint8_t *p = data;
    int rv = 0;
    while (rv == 0 && len > 0) {
        size_t room = SNAPSHOT_PIECE - w->filled;
        size_t n = len < room ? len : room;
        memcpy(w->unit + SNAPSHOT_UNIT_HEAD + w->filled, p, n);
        w->filled += n;
        p += n;
        len -= n;
        rv = w->filled == SNAPSHOT_PIECE ? put_piece(w) : 0;
    }
    return rv;
}

int snapshot_writer_sync(struct snapshot_writer *w)
{
    return snapshot_part_sync(&w->part, w->error);
}

static int finish(struct snapshot_writer *w)
{
    int rv = w->filled > 0 ? put_piece(w) : 0;
    if (rv == 0) {
        size_t len = snapshot_put_trailer(&w->stream, &w->meta, w->unit);
        rv = snapshot_part_write(&w->part, w->unit, len, w->error);
    }
    return rv;
}

int snapshot_writer_end(struct snapshot_writer *w, int error)
{
    int rv = error != 0 ? error : finish(w);
    if (rv == 0) {
        rv = snapshot_part_finish(&w->part, w->error);
    } else {
        snapshot_part_abort(&w->part);
    }
    free(w);
    return rv;
}

/* --- the directory --- */

/* A whole snapshot, by its name. */
struct found {
    bool any;
    uint64_t index, term;
};

struct search {
    uint64_t index; /* 0: of any */
    struct found found;
};

static bool is_older(const struct found *than, uint64_t index, uint64_t term)
{
    return index < than->index || (index == than->index && term < than->term);
}

static int on_name(void *ctx, const char *name)
{
    struct search *s = ctx;
    struct found f = {.any = true};
    bool part = false;
    if (!snapshot_name_parse(name, &f.index, &f.term, &part) || part ||
        (s->index != 0 && f.index != s->index)) {
        return 0;
    }
    if (!s->found.any || is_older(&f, s->found.index, s->found.term)) {
        s->found = f;
    }
    return 0;
}

/* Finds the one with this index, or the newest for 0. */
static int find(struct log_device *d, uint64_t index, struct found *ret, struct snapshot_error *e)
{
    struct search s = {.index = index};
    int rv = d->ops->list(d, on_name, &s);
    *ret = s.found;
    return io(e, d, "read", "", rv);
}

/* Whoever gave it its name may have failed to sync the directory, or have been killed before
 * that. */
static int make_durable(struct log_device *d, const struct found *newest, struct snapshot_error *e)
{
    char name[LOG_NAME_MAX + 1];
    struct log_file *f = NULL;
    snapshot_name(newest->index, newest->term, false, name);
    int rv = d->ops->open(d, name, LOG_OPEN_READ, &f);
    if (rv == 0) {
        rv = d->ops->sync(d, f);
        d->ops->close(d, f);
    }
    rv = rv != 0 ? rv : d->ops->sync_dir(d);
    return io(e, d, "sync", name, rv);
}

/* A newer one may come meanwhile, and stays. */
struct rubbish {
    struct found keep;
    uint64_t parts;
};

static bool is_rubbish(void *ctx, const char *name)
{
    const struct rubbish *r = ctx;
    uint64_t index;
    uint64_t term;
    bool part = false;
    return snapshot_name_parse(name, &index, &term, &part) &&
           (part ? index <= r->parts : is_older(&r->keep, index, term));
}

static int remove_rubbish(struct log_device *d, struct rubbish *r, struct snapshot_error *e)
{
    char name[LOG_NAME_MAX + 1];
    int rv = log_device_remove(d, is_rubbish, r, name);
    return io(e, d, name[0] == '\0' ? "read" : "remove", name, rv);
}

int snapshot_clean(struct log_device *d, uint64_t parts, struct snapshot_error *e)
{
    struct rubbish r = {.parts = parts};
    int rv = find(d, 0, &r.keep, e);
    rv = rv == 0 && r.keep.any ? make_durable(d, &r.keep, e) : rv;
    return rv != 0 ? rv : remove_rubbish(d, &r, e);
}

int snapshot_clean_parts(struct log_device *d, uint64_t parts, struct snapshot_error *e)
{
    struct rubbish r = {.parts = parts};
    return remove_rubbish(d, &r, e);
}

/* --- reading --- */

struct snapshot_reader {
    struct log_device *device;
    struct log_file *file;
    char name[LOG_NAME_MAX + 1]; /* "": the device is the file */
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
    return io(e, r->device, "read", r->name, n < 0 ? (int)n : 0);
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
        why = r->name[0] == '\0' && why == snapshot_foreign ? "it is no backup of fencelock" : why;
        return damage(r, why == snapshot_other_version ? FL_EVERSION : FL_ECORRUPT, at, why, e);
    }
    r->unit_len = need;
    return r->stream.stage == SNAPSHOT_AT_END ? check_end(r, e) : 0;
}

static int check_index(struct snapshot_reader *r, const struct found *is, struct snapshot_error *e)
{
    bool differs = r->meta.index != is->index || r->meta.term != is->term;
    return differs ? damage(r, FL_ECORRUPT, 16, "it has an index or term of another one", e) : 0;
}

/* Opens a file and reads its header. `is`: what it must be of; NULL: a backup may be of any
 * entry. */
static int open_file(struct log_device *d, const char *name, const struct found *is,
                     struct snapshot_reader **ret, struct snapshot_error *e)
{
    struct fli_slice none;
    uint64_t size = 0;
    struct snapshot_reader *r = malloc(sizeof *r);
    if (r == NULL) {
        return snapshot_fail(e, FL_ENOMEM, "no memory for a snapshot file");
    }
    r->device = d;
    r->file = NULL;
    (void)snprintf(r->name, sizeof r->name, "%s", name);
    r->stream = (struct snapshot_stream){0};
    r->unit_is_new = true;
    int rv = io(e, d, "open", name, d->ops->open(d, name, LOG_OPEN_READ, &r->file));
    if (rv == 0 && is != NULL) {
        rv = io(e, d, "read", name, d->ops->size(d, r->file, &size));
    }
    rv = rv != 0 ? rv : read_unit(r, &none, e);
    rv = rv != 0 || is == NULL ? rv : check_index(r, is, e);
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
    char name[LOG_NAME_MAX + 1];
    struct found found;
    int rv = find(d, index, &found, e);
    if (rv == 0 && !found.any) {
        rv = snapshot_fail(e, FL_ENOTFOUND, "%s has no such snapshot", d->where);
    }
    snapshot_name(found.index, found.term, false, name);
    return rv != 0 ? rv : open_file(d, name, &found, ret, e);
}

int snapshot_part_read(const struct snapshot_part *p, struct snapshot_reader **ret,
                       struct snapshot_error *e)
{
    const struct found is = {.index = p->index, .term = p->term};
    return open_file(p->device, p->name, &is, ret, e);
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

int snapshot_load(struct log_device *d, struct snapshot_meta *ret_meta, struct machine **ret,
                  struct snapshot_error *e)
{
    struct snapshot_reader *r;
    uint64_t seed[2];
    fli_random(seed, sizeof seed);
    int rv = snapshot_reader_open(d, 0, &r, e);
    return rv != 0 ? rv : snapshot_decode(r, seed, ret_meta, ret, e);
}

/* --- backups --- */

static int backup_open(struct log_device *d, const char *name, unsigned flags,
                       struct log_file **ret)
{
    *ret = (void *)fopen(d->where, "rbe");
    return *ret == NULL ? -errno : 0;
}

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
static const struct log_device_ops backup_ops = {
    .open = backup_open, .read = backup_read, .close = backup_close};

int snapshot_read_backup(const char *path, struct snapshot_meta *ret_meta, struct machine **ret,
                         struct snapshot_error *e)
{
    struct log_device d = {.ops = &backup_ops, .where = path};
    struct snapshot_reader *r;
    uint64_t seed[2];
    fli_random(seed, sizeof seed);
    int rv = open_file(&d, "", NULL, &r, e);
    return rv != 0 ? rv : snapshot_decode(r, seed, ret_meta, ret, e);
}
