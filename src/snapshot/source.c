/* source.c: see source.h.
 *
 * The worker has one piece of work at a time: to open the file and read its header, to read the
 * next unit, or to close it. Meanwhile it owns `reader`, `next` and `error`. */
#include "snapshot/source.h"

#include "snapshot/format.h"

#include <stdlib.h>
#include <string.h>

struct ahead {
    size_t len, taken;
    uint8_t bytes[SNAPSHOT_UNIT_MAX];
};

struct snapshot_source {
    struct snapshot_source_config config;
    uv_work_t work;
    bool working, closing;
    bool last;       /* the work under way closes the file */
    bool waited_for; /* the owner was told FL_EBUSY, or nothing yet */
    bool over;       /* the worker has read the end, or has failed */
    struct snapshot_reader *reader;
    struct snapshot_meta meta;
    uint64_t size; /* 0: not open */
    struct snapshot_error error;
    struct ahead *now, *next;
    struct ahead pieces[2];
};

/* ---- the worker ------------------------------------------------------------------------------ */

static void read_unit(struct snapshot_source *s)
{
    struct ahead *a = s->next;
    struct fli_slice whole = {0};
    struct fli_slice data;
    int rv = s->reader != NULL
                 ? 0
                 : snapshot_reader_open(s->config.device, s->config.index, &s->reader, &s->error);
    rv = rv != 0 ? rv : snapshot_reader_next(s->reader, &whole, &data, &s->error);
    s->error.code = rv;
    a->taken = 0;
    a->len = rv == 0 ? whole.len : 0;
    if (a->len > 0) {
        memcpy(a->bytes, whole.data, a->len);
    }
}

static void work_cb(uv_work_t *work)
{
    struct snapshot_source *s = FLI_CONTAINER_OF(work, struct snapshot_source, work);
    if (s->last) {
        snapshot_reader_close(s->reader);
        s->reader = NULL;
    } else {
        read_unit(s);
    }
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void worked_cb(uv_work_t *work, int status);

static void start_work(struct snapshot_source *s)
{
    int rv = uv_queue_work(s->config.loop, &s->work, work_cb, worked_cb);
    FLI_ASSERT(rv == 0);
    s->working = true;
}

/* A newer snapshot may have replaced the file. Then closing it frees its blocks, which takes a file
 * system milliseconds, so a worker does it. */
static void finish(struct snapshot_source *s)
{
    void (*closed)(void *ctx) = s->config.closed;
    void *ctx = s->config.ctx;
    if (s->reader != NULL) {
        s->last = true;
        start_work(s);
        return;
    }
    free(s);
    closed(ctx);
}

static void worked_cb(uv_work_t *work, int status)
{
    struct snapshot_source *s = FLI_CONTAINER_OF(work, struct snapshot_source, work);
    bool tell = s->waited_for;
    s->working = false;
    if (s->closing) {
        finish(s);
        return;
    }
    if (s->reader != NULL && s->size == 0) {
        s->meta = *snapshot_reader_meta(s->reader);
        s->size = snapshot_reader_file_size(s->reader);
    }
    s->over = s->error.code != 0 || s->next->len == 0;
    s->waited_for = false;
    if (tell) {
        s->config.ready(s->config.ctx);
    }
}

static void read_ahead(struct snapshot_source *s)
{
    if (s->working || s->over || s->next->taken < s->next->len) {
        return;
    }
    start_work(s);
}

/* What was read becomes what is taken, and the next is read. */
static void turn_over(struct snapshot_source *s)
{
    struct ahead *empty = s->now;
    s->now = s->next;
    s->next = empty;
    read_ahead(s);
}

int snapshot_source_open(const struct snapshot_source_config *config, struct snapshot_source **ret)
{
    struct snapshot_source *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return FL_ENOMEM;
    }
    s->config = *config;
    s->now = &s->pieces[0];
    s->next = &s->pieces[1];
    s->waited_for = true;
    read_ahead(s);
    *ret = s;
    return 0;
}

const struct snapshot_meta *snapshot_source_meta(const struct snapshot_source *s)
{
    return s->size == 0 ? NULL : &s->meta;
}

uint64_t snapshot_source_size(const struct snapshot_source *s)
{
    return s->size;
}

int snapshot_source_next(struct snapshot_source *s, size_t most, struct fli_slice *ret,
                         struct snapshot_error *e)
{
    if (s->now->taken == s->now->len && s->working) {
        s->waited_for = true;
        return FL_EBUSY;
    }
    if (s->now->taken == s->now->len) {
        if (s->error.code != 0) {
            *e = s->error;
            return s->error.code;
        }
        turn_over(s);
    }
    const struct ahead *a = s->now;
    size_t left = a->len - a->taken;
    *ret = (struct fli_slice){a->bytes + a->taken, left < most ? left : most};
    return 0;
}

void snapshot_source_take(struct snapshot_source *s, size_t len)
{
    s->now->taken += len;
}

void snapshot_source_close(struct snapshot_source *s)
{
    if (s == NULL || s->closing) {
        return;
    }
    s->closing = true;
    if (!s->working) {
        finish(s);
    }
}
