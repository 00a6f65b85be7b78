/* file.c: snapshots as files: names, writing, the directory. format.c has the
 * bytes; read.c and receive.c do the rest. */
#include "snapshot/private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct snapshot_writer {
    struct snapshot_part part;
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

int snapshot_io_fail(struct snapshot_error *e, const struct log_device *d, const char *what,
                     const char *name, int error)
{
    int code = error == -ENOMEM ? FL_ENOMEM : FL_EIO;
    return snapshot_fail(e, code, "cannot %s %s/%s: %s", what, d->where, name, strerror(-error));
}

int snapshot_damage(struct snapshot_error *e, const struct log_device *d, const char *name,
                    uint64_t at, const char *why)
{
    int code = why == snapshot_other_version ? FL_EVERSION : FL_ECORRUPT;
    return snapshot_fail(e, code, "%s/%s: at byte %" PRIu64 ": %s", d->where, name, at, why);
}

/* --- a file that is being made --- */

static void part_name(const struct snapshot_part *p, char out[LOG_NAME_MAX + 1])
{
    snapshot_name(p->index, p->term, true, out);
}

int snapshot_part_open(struct snapshot_part *p, struct log_device *d, uint64_t index, uint64_t term,
                       struct snapshot_error *e)
{
    char name[LOG_NAME_MAX + 1];
    *p = (struct snapshot_part){.device = d, .index = index, .term = term};
    part_name(p, name);
    int rv = d->ops->remove(d, name);
    if (rv != 0 && rv != -ENOENT) {
        return snapshot_io_fail(e, d, "remove", name, rv);
    }
    rv = d->ops->open(d, name, LOG_OPEN_WRITE | LOG_OPEN_CREATE, &p->file);
    return rv == 0 ? 0 : snapshot_io_fail(e, d, "make", name, rv);
}

int snapshot_part_write(struct snapshot_part *p, const void *data, size_t len,
                        struct snapshot_error *e)
{
    int rv = p->device->ops->write(p->device, p->file, data, len, p->len);
    if (rv != 0) {
        char name[LOG_NAME_MAX + 1];
        part_name(p, name);
        return snapshot_io_fail(e, p->device, "write", name, rv);
    }
    p->len += len;
    return 0;
}

int snapshot_part_sync(struct snapshot_part *p, struct snapshot_error *e)
{
    int rv = p->device->ops->sync(p->device, p->file);
    if (rv != 0) {
        char name[LOG_NAME_MAX + 1];
        part_name(p, name);
        return snapshot_io_fail(e, p->device, "sync", name, rv);
    }
    return 0;
}

void snapshot_part_abort(struct snapshot_part *p)
{
    char name[LOG_NAME_MAX + 1];
    part_name(p, name);
    if (p->file != NULL) {
        p->device->ops->close(p->device, p->file);
        p->file = NULL;
    }
    (void)!p->device->ops->remove(p->device, name); /* if that fails, the next start removes it */
}

int snapshot_part_finish(struct snapshot_part *p, struct snapshot_error *e)
{
    char from[LOG_NAME_MAX + 1];
    char to[LOG_NAME_MAX + 1];
    struct log_device *d = p->device;
    int rv = snapshot_part_sync(p, e);
    if (rv != 0) {
        snapshot_part_abort(p);
        return rv;
    }
    d->ops->close(d, p->file);
    p->file = NULL;
    part_name(p, from);
    snapshot_name(p->index, p->term, false, to);
    rv = d->ops->rename(d, from, to, true); /* a damaged one may have the name */
    if (rv != 0) {
        snapshot_part_abort(p);
        return snapshot_io_fail(e, d, "rename", from, rv);
    }
    rv = d->ops->sync_dir(d);
    return rv == 0 ? 0 : snapshot_io_fail(e, d, "sync the directory of", to, rv);
}

/* --- writing --- */

int snapshot_writer_open(struct log_device *d, const struct snapshot_meta *meta,
                         struct snapshot_writer **ret, struct snapshot_error *e)
{
    struct snapshot_writer *w = malloc(sizeof *w);
    if (w == NULL) {
        return snapshot_fail(e, FL_ENOMEM, "no memory for a snapshot file");
    }
    w->stream = (struct snapshot_stream){0};
    w->filled = 0;
    int rv = snapshot_part_open(&w->part, d, meta->index, meta->term, e);
    if (rv != 0) {
        free(w);
        return rv;
    }
    size_t len = snapshot_put_header(&w->stream, meta, w->unit);
    rv = snapshot_part_write(&w->part, w->unit, len, e);
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
        memcpy(w->unit + SNAPSHOT_PIECE_HEADER + w->filled, p, n);
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
        size_t len = snapshot_put_trailer(&w->stream, w->unit);
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

struct listing {
    struct snapshot_info *infos;
    size_t len, cap;
    bool no_memory; /* the list is incomplete */
    bool parts;     /* of unfinished snapshots, instead of whole ones */
};

static void on_name(void *ctx, const char *name, uint64_t size)
{
    struct listing *g = ctx;
    struct snapshot_info info = {.file_size = size};
    bool part = false;
    if (g->no_memory || !snapshot_name_parse(name, &info.index, &info.term, &part) ||
        part != g->parts) {
        return;
    }
    if (g->len == g->cap) {
        size_t cap = g->cap == 0 ? 8 : g->cap * 2;
        struct snapshot_info *fresh = realloc(g->infos, cap * sizeof *fresh);
        if (fresh == NULL) {
            g->no_memory = true;
            return;
        }
        g->infos = fresh;
        g->cap = cap;
    }
    g->infos[g->len++] = info;
}

static int newest_first(const void *a, const void *b)
{
    const struct snapshot_info *x = a;
    const struct snapshot_info *y = b;
    if (x->index != y->index) {
        return x->index > y->index ? -1 : 1;
    }
    return x->term > y->term ? -1 : x->term < y->term;
}

/* The caller frees infos, also after an error. */
static int list_files(struct log_device *d, bool parts, struct listing *g, struct snapshot_error *e)
{
    *g = (struct listing){.parts = parts};
    int rv = d->ops->list(d, on_name, g);
    if (rv != 0) {
        return snapshot_io_fail(e, d, "read", "", rv);
    }
    if (g->no_memory) {
        return snapshot_fail(e, FL_ENOMEM, "no memory for a list of files");
    }
    if (g->len > 1) {
        qsort(g->infos, g->len, sizeof *g->infos, newest_first);
    }
    return 0;
}

int snapshot_list(struct log_device *d, struct snapshot_info *ret, size_t n, size_t *ret_n,
                  struct snapshot_error *e)
{
    struct listing g;
    int rv = list_files(d, false, &g, e);
    if (rv == 0) {
        size_t copied = g.len < n ? g.len : n;
        if (copied > 0) {
            memcpy(ret, g.infos, copied * sizeof *ret);
        }
        *ret_n = g.len;
    }
    free(g.infos);
    return rv;
}

/* Removes the files from number `keep` on. */
static int clean(struct log_device *d, size_t keep, bool parts, struct snapshot_error *e)
{
    struct listing g;
    int rv = list_files(d, parts, &g, e);
    for (size_t i = keep; rv == 0 && i < g.len; i++) {
        char name[LOG_NAME_MAX + 1];
        snapshot_name(g.infos[i].index, g.infos[i].term, parts, name);
        int error = d->ops->remove(d, name);
        if (error != 0 && error != -ENOENT) {
            rv = snapshot_io_fail(e, d, "remove", name, error);
        }
    }
    free(g.infos);
    return rv;
}

/* Whoever gave the newest one its name may have failed to sync the directory, or have been killed
 * before that. */
static int make_newest_durable(struct log_device *d, struct snapshot_error *e)
{
    struct listing g;
    char name[LOG_NAME_MAX + 1] = "";
    struct log_file *f = NULL;
    int rv = list_files(d, false, &g, e);
    size_t len = g.len;
    if (len > 0) {
        snapshot_name(g.infos[0].index, g.infos[0].term, false, name);
    }
    free(g.infos);
    if (rv != 0 || len == 0) {
        return rv;
    }
    rv = d->ops->open(d, name, LOG_OPEN_READ, &f);
    if (rv == 0) {
        rv = d->ops->sync(d, f);
        d->ops->close(d, f);
    }
    rv = rv != 0 ? rv : d->ops->sync_dir(d);
    return rv == 0 ? 0 : snapshot_io_fail(e, d, "sync", name, rv);
}

int snapshot_clean(struct log_device *d, size_t keep, bool parts, struct snapshot_error *e)
{
    FLI_ASSERT(keep > 0);
    int rv = parts ? clean(d, 0, true, e) : 0;
    rv = rv != 0 ? rv : make_newest_durable(d, e);
    return rv != 0 ? rv : clean(d, keep, false, e);
}
