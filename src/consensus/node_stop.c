/* node_stop.c: the graceful end.
 *
 *   run --node_stop()--> drain --(quiet, or drain_ms over)--> close --> closed, cb
 *
 * While draining: new commands are refused, held ones are answered ENOLEADER, followers' commands
 * are given back to them; what was proposed is answered; then leadership is handed over, so that
 * the others need no election; then what was relayed is answered. Closing answers the rest,
 * UNCERTAIN where it must be, and lets raft and all handles go. The beat timer's handle is closed
 * last, so that the end comes from its callback and not from within one of raft's. */
#include <stdlib.h>

#include "consensus/node_private.h"

static void finished(uv_handle_t *handle)
{
    struct node *n = handle->data;
    void (*cb)(void *ctx) = n->stop_cb;
    void *ctx = n->stop_ctx;
    raft_uv_close(&n->io);
    proposer_destroy(n->proposer);
    fsm_destroy(n->fsm);
    transport_destroy(n->transport);
    relay_fini(n);
    ballot_close(&n->ballot);
    data_dir_close(&n->dir);
    n->proposer = NULL;
    n->fsm = NULL;
    n->transport = NULL;
    n->phase = PHASE_CLOSED;
    if (cb != NULL) {
        cb(ctx);
    }
}

/* One of the things counted in handles is gone; the last one but the beat ends it all. */
void node_handle_gone(void *ctx)
{
    struct node *n = ctx;
    FLI_ASSERT(n->handles > 0);
    n->handles--;
    if (n->phase == PHASE_CLOSE && n->handles == 1) {
        n->handles = 0;
        uv_close((uv_handle_t *)&n->beat, finished);
    }
}

static void handle_closed(uv_handle_t *handle)
{
    node_handle_gone(handle->data);
}

static void raft_closed(struct raft *raft)
{
    node_handle_gone(FLI_CONTAINER_OF(raft, struct node, raft));
}

void stop_close(struct node *n)
{
    FLI_ASSERT(n->phase < PHASE_CLOSE && n->raft_live);
    n->phase = PHASE_CLOSE;
    roster_close(n);
    proposer_close(n->proposer); /* first, so that followers hear of their commands */
    relay_close(n);
    hold_refuse_all(n, FL_ENOLEADER);
    uv_timer_stop(&n->beat);
    uv_close((uv_handle_t *)&n->check, handle_closed);
    uv_close((uv_handle_t *)&n->prepare, handle_closed);
    uv_close((uv_handle_t *)&n->timer, handle_closed);
    uv_close((uv_handle_t *)&n->idle, handle_closed);
    n->handles++; /* raft */
    n->raft_live = false;
    raft_close(&n->raft, raft_closed);
}

/* True when leadership need not, or cannot, be handed over, or it was tried. */
static bool handed_over(struct node *n)
{
    struct proposer_stats s;
    if (n->failed || n->role != NODE_LEADER) {
        return !n->transfer_busy;
    }
    if (n->handed_over) {
        return !n->transfer_busy;
    }
    proposer_get_stats(n->proposer, &s);
    if (s.in_flight > 0 || s.pending_commands > 0) {
        return false;
    }
    n->handed_over = true;
    return roster_transfer(n, 0, NULL, NULL) != 0;
}

void stop_turn(struct node *n)
{
    bool late = uv_now(n->loop) >= n->drain_until_ms;
    hold_refuse_all(n, FL_ENOLEADER);
    relay_flush(n);
    if (late || n->failed || (handed_over(n) && relay_quiet(n))) {
        stop_close(n);
    }
}

void node_stop(struct node *n, unsigned drain_ms, void (*cb)(void *ctx), void *ctx)
{
    FLI_ASSERT(n->phase == PHASE_RUN);
    n->stop_cb = cb;
    n->stop_ctx = ctx;
    n->drain_until_ms = uv_now(n->loop) + drain_ms;
    n->phase = PHASE_DRAIN;
    node_wake(n);
}

void node_destroy(struct node *n)
{
    if (n == NULL) {
        return;
    }
    FLI_ASSERT(n->phase == PHASE_CLOSED);
    free(n);
}
