/* fsm.c: see fsm.h.
 *
 * What raft expects of each function, read from its source (0.18 to 0.22):
 *   apply     a non-zero return stops the applying for ever; the index is not told
 *   snapshot  with snapshot_finalize present (version 2), the buffers stay ours until it is called,
 *             which happens once per successful snapshot(), whether it was written or not
 *   restore   0: the buffer is ours to free; else it stays raft's */
#include "consensus/fsm.h"

#include <stdlib.h>

#include "base/clock.h"

struct fsm {
    struct raft_fsm raft;
    struct fsm_config config;
    struct fsm_observer observer; /* batch_begin is NULL when there is none */
    struct machine *machine;
    struct fli_buf snapshot; /* bytes being written by raft; empty otherwise */
    struct raft_buffer snapshot_raft;
    bool imaging; /* the bytes are the imager's, there or still to come */
    uint64_t snapshot_start_ns;
    struct fsm_stats stats;
    bool broken; /* fatal was called: nothing is applied any more */
};

static void halt(struct fsm *f, int error, const char *message)
{
    FLI_ASSERT(!f->broken);
    f->broken = true;
    if (f->config.fatal != NULL) {
        f->config.fatal(f->config.ctx, error, message);
    }
}

static const char *apply_error(int error)
{
    if (error == FL_EVERSION) {
        return "a log entry was written by a newer version of fencelock: upgrade this node";
    }
    return "a log entry is corrupt: this node must not go on; restore it from its peers";
}

static void run_commands(struct fsm *f, struct machine_cursor *cur, bool ours)
{
    struct machine_result result;
    for (uint32_t i = 0; machine_next(f->machine, cur, &result); i++) {
        if (ours) {
            f->observer.command_done(f->observer.ctx, i, &result);
        }
    }
}

static int apply(struct raft_fsm *raft, const struct raft_buffer *buf, void **result)
{
    struct fsm *f = raft->data;
    *result = NULL;
    if (f->broken) {
        return RAFT_CORRUPT;
    }
    struct machine_batch_header header;
    struct machine_cursor cur;
    int rv = machine_batch_open(buf->base, buf->len, &header);
    if (rv == 0) {
        rv = machine_begin(f->machine, buf->base, buf->len, &cur);
    }
    if (rv != 0) {
        halt(f, rv, apply_error(rv));
        return RAFT_CORRUPT;
    }
    bool ours =
        f->observer.batch_begin != NULL && f->observer.batch_begin(f->observer.ctx, &header);
    run_commands(f, &cur, ours);
    if (ours) {
        f->observer.batch_end(f->observer.ctx);
    }
    f->stats.entries++;
    f->stats.bytes_since_snapshot += buf->len;
    return 0;
}

static void note_snapshot(struct fsm *f, const void *data, size_t len)
{
    /* Raft does not write to what it is given here. */
    f->snapshot_raft = (struct raft_buffer){(void *)(uintptr_t)data, len};
    f->stats.snapshot_last_bytes = len;
    f->stats.snapshot_last_ns = fli_clock_ns() - f->snapshot_start_ns;
}

static int snapshot(struct raft_fsm *raft, struct raft_buffer *bufs[], unsigned *n_bufs)
{
    struct fsm *f = raft->data;
    if (f->broken) {
        return RAFT_CORRUPT;
    }
    FLI_ASSERT(f->snapshot.data == NULL && !f->imaging);
    f->snapshot_start_ns = fli_clock_ns();
    *bufs = &f->snapshot_raft;
    *n_bufs = 1;
    const struct fsm_imager *imager = &f->config.imager;
    if (imager->begin != NULL && imager->begin(imager->ctx, f->machine)) {
        f->imaging = true;
        f->snapshot_raft = (struct raft_buffer){NULL, 0};
        f->stats.snapshots++;
        f->stats.bytes_since_snapshot = 0;
        return 0;
    }
    int rv = machine_snapshot_encode(f->machine, &f->snapshot);
    if (rv != 0) {
        /* Not fatal: the log just grows until memory is there for the next attempt. */
        fli_buf_fini(&f->snapshot);
        return RAFT_NOMEM;
    }
    note_snapshot(f, f->snapshot.data, f->snapshot.len);
    f->stats.snapshots++;
    f->stats.bytes_since_snapshot = 0;
    return 0;
}

static int snapshot_finalize(struct raft_fsm *raft, struct raft_buffer *bufs[], unsigned *n_bufs)
{
    struct fsm *f = raft->data;
    *bufs = NULL;
    *n_bufs = 0;
    fli_buf_fini(&f->snapshot);
    if (f->imaging) {
        f->imaging = false;
        f->config.imager.end(f->config.imager.ctx);
    }
    return 0;
}

void fsm_image_ready(struct fsm *f, struct fli_slice bytes)
{
    FLI_ASSERT(f->imaging && f->snapshot_raft.base == NULL);
    note_snapshot(f, bytes.data, bytes.len);
}

static int restore(struct raft_fsm *raft, struct raft_buffer *buf)
{
    struct fsm *f = raft->data;
    if (f->broken) {
        return RAFT_CORRUPT;
    }
    uint64_t seed[2];
    struct machine *fresh;
    fli_random(seed, sizeof seed);
    int rv = machine_snapshot_decode(buf->base, buf->len, seed, &fresh);
    if (rv != 0) {
        halt(f, rv,
             "a snapshot cannot be read: this node must not go on; restore it from its peers");
        return RAFT_CORRUPT;
    }
    machine_destroy(f->machine);
    f->machine = fresh;
    machine_set_event_cb(f->machine, f->config.event, f->config.event_ctx);
    raft_free(buf->base);
    buf->base = NULL;
    f->stats.restores++;
    f->stats.bytes_since_snapshot = 0;
    if (f->config.restored != NULL) {
        f->config.restored(f->config.ctx);
    }
    return 0;
}

int fsm_create(const struct fsm_config *config, struct fsm **ret)
{
    struct fsm *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return FL_ENOMEM;
    }
    uint64_t seed[2];
    fli_random(seed, sizeof seed);
    f->machine = machine_create(seed);
    f->config = *config;
    machine_set_event_cb(f->machine, config->event, config->event_ctx);
    fli_buf_init(&f->snapshot, SIZE_MAX / 4);
    f->raft.version = 2;
    f->raft.data = f;
    f->raft.apply = apply;
    f->raft.snapshot = snapshot;
    f->raft.restore = restore;
    f->raft.snapshot_finalize = snapshot_finalize;
    *ret = f;
    return 0;
}

void fsm_destroy(struct fsm *f)
{
    if (f == NULL) {
        return;
    }
    fli_buf_fini(&f->snapshot);
    machine_destroy(f->machine);
    free(f);
}

struct raft_fsm *fsm_raft(struct fsm *f)
{
    return &f->raft;
}

struct machine *fsm_machine(struct fsm *f)
{
    return f->machine;
}

void fsm_set_observer(struct fsm *f, const struct fsm_observer *o)
{
    if (o == NULL) {
        f->observer = (struct fsm_observer){0};
        return;
    }
    FLI_ASSERT(o->batch_begin != NULL && o->command_done != NULL && o->batch_end != NULL);
    f->observer = *o;
}

void fsm_get_stats(const struct fsm *f, struct fsm_stats *ret)
{
    *ret = f->stats;
}
