/* file.c: snapshots as files: names, writing, the directory. format.c has the
 * bytes; read.c reads them. */
#include "snapshot/private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct snapshot_writer {
    struct snapshot_part part;
    struct snapshot_meta meta;
    struct snapshot_stream stream;
    size_t filled; /* bytes of data in the piece that is being filled */
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

int snapshot_io(struct snapshot_error *e, const struct log_device *d, const char *what,
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
        return snapshot_io(e, d, "remove", p->name, rv);
    }
    rv = d->ops->open(d, p->name, LOG_OPEN_WRITE | LOG_OPEN_CREATE, &p->file);
    return snapshot_io(e, d, "make", p->name, rv);
}

int snapshot_part_write(struct snapshot_part *p, const void *data, size_t len,
                        struct snapshot_error *e)
{
    int rv = p->device->ops->write(p->device, p->file, data, len, p->len);
    p->len += rv == 0 ? len : 0;
    return snapshot_io(e, p->device, "write", p->name, rv);
}

int snapshot_part_sync(struct snapshot_part *p, struct snapshot_error *e)
{
    return snapshot_io(e, p->device, "sync", p->name, p->device->ops->sync(p->device, p->file));
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
        rv = snapshot_io(e, d, "rename", p->name, rv);
    }
    if (rv != 0) {
        snapshot_part_abort(p);
        return rv;
    }
    return snapshot_io(e, d, "sync the directory of", name, d->ops->sync_dir(d));
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
    int rv = snapshot_part_open(&w->part, d, meta->index, meta->term, e);
    if (rv == 0) {
        size_t len = snapshot_put_header(&w->stream, meta, w->unit);
        rv = snapshot_part_write(&w->part, w->unit, len, e);
    }
    if (rv != 0) {
        snapshot_writer_abort(w);
        return rv;
    }
    *ret = w;
    return 0;
}

static int put_piece(struct snapshot_writer *w, struct snapshot_error *e)
{
    size_t len = snapshot_put_piece(&w->stream, w->filled, w->unit);
    w->filled = 0;
    return snapshot_part_write(&w->part, w->unit, len, e);
}

int snapshot_writer_write(struct snapshot_writer *w, const void *data, size_t len,
                          struct snapshot_error *e)
{
    const uint8_t *p = data;
    while (len > 0) {
        size_t room = SNAPSHOT_PIECE - w->filled;
        size_t n = len < room ? len : room;
        memcpy(w->unit + SNAPSHOT_UNIT_HEAD + w->filled, p, n);
        w->filled += n;
        p += n;
        len -= n;
        if (w->filled == SNAPSHOT_PIECE) {
            int rv = put_piece(w, e);
            if (rv != 0) {
                return rv;
            }
        }
    }
    return 0;
}

int snapshot_writer_sync(struct snapshot_writer *w, struct snapshot_error *e)
{
    return snapshot_part_sync(&w->part, e);
}

int snapshot_writer_finish(struct snapshot_writer *w, struct snapshot_error *e)
{
    int rv = w->filled > 0 ? put_piece(w, e) : 0;
    if (rv == 0) {
        size_t len = snapshot_put_trailer(&w->stream, &w->meta, w->unit);
        rv = snapshot_part_write(&w->part, w->unit, len, e);
    }
    if (rv != 0) {
        snapshot_writer_abort(w);
        return rv;
    }
    rv = snapshot_part_finish(&w->part, e);
    free(w);
    return rv;
}

void snapshot_writer_abort(struct snapshot_writer *w)
{
    snapshot_part_abort(&w->part);
    free(w);
}

/* --- the directory --- */

struct search {
    uint64_t index; /* 0: of any */
    struct snapshot_found found;
};

static bool is_older(const struct snapshot_found *than, uint64_t index, uint64_t term)
{
    return index < than->index || (index == than->index && term < than->term);
}

static int on_name(void *ctx, const char *name)
{
    struct search *s = ctx;
    struct snapshot_found f = {.any = true};
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

int snapshot_find(struct log_device *d, uint64_t index, struct snapshot_found *ret,
                  struct snapshot_error *e)
{
    struct search s = {.index = index};
    int rv = d->ops->list(d, on_name, &s);
    *ret = s.found;
    return snapshot_io(e, d, "read", "", rv);
}

/* Whoever gave it its name may have failed to sync the directory, or have been killed before
 * that. */
static int make_durable(struct log_device *d, const struct snapshot_found *newest,
                        struct snapshot_error *e)
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
    return snapshot_io(e, d, "sync", name, rv);
}

/* A newer one may come meanwhile, and stays. */
struct rubbish {
    struct snapshot_found keep;
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
    return snapshot_io(e, d, name[0] == '\0' ? "read" : "remove", name, rv);
}

int snapshot_clean(struct log_device *d, uint64_t parts, struct snapshot_error *e)
{
    struct rubbish r = {.parts = parts};
    int rv = snapshot_find(d, 0, &r.keep, e);
    rv = rv == 0 && r.keep.any ? make_durable(d, &r.keep, e) : rv;
    return rv != 0 ? rv : remove_rubbish(d, &r, e);
}

int snapshot_clean_parts(struct log_device *d, uint64_t parts, struct snapshot_error *e)
{
    struct rubbish r = {.parts = parts};
    return remove_rubbish(d, &r, e);
}
