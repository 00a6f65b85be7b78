/* node_stop.c: the graceful end.
 *
 *   run --node_stop()--> drain --(quiet, or drain_ms over)--> close --> closed, cb
 *
 * While draining, new commands are refused, and followers' new commands are returned to them. A
 * leader does what waits; a node that cannot answers it ENOLEADER. Then leadership is handed over,
 * so that the others need no election. Then what was relayed is answered. Closing answers the rest,
 * with UNCERTAIN where the outcome is unknown, and closes the log, the streams and all handles. The
 * tick timer's handle is closed last, so that the end comes from its callback and not from within
 * another. */
#include <stdlib.h>

#include "base/clock.h"
#include "node/node_private.h"

void node_free(struct node *n)
{
    replica_destroy(n->replica);
    node_snapshot_free(n);
    membership_destroy(n->membership);
    proposer_fini(&n->proposer);
    fsm_destroy(n->fsm);
    if (n->log != NULL) {
        log_destroy(n->log);
    }
    if (n->loop.device != NULL) {
        log_files_destroy(n->loop.device);
    }
    transport_destroy(n->peers.transport);
    node_record_close(&n->record);
}

static void finished(uv_handle_t *handle)
{
    struct node *n = handle->data;
    node_free(n);
    n->phase = PHASE_CLOSED;
    if (n->stop.cb != NULL) {
        n->stop.cb(n->stop.ctx); /* it may free the node */
    }
}

void node_hold(void *ctx)
{
    struct node *n = ctx;
    n->stop.open++;
}

/* When all parts but the tick timer have closed, the timer's handle is closed, which ends the
 * node. */
void node_closed_one(void *ctx)
{
    struct node *n = ctx;
    FLI_ASSERT(n->stop.open > 0);
    n->stop.open--;
    if (n->phase == PHASE_CLOSE && n->stop.open == 1) {
        n->stop.open = 0;
        uv_close((uv_handle_t *)&n->loop.tick, finished);
    }
}

void node_close(struct node *n)
{
    FLI_ASSERT(n->phase < PHASE_CLOSE);
    n->phase = PHASE_CLOSE;
    n->commands.closed = true;
    if (!n->failed) {
        node_record_end(&n->record);
    }
    proposer_close(&n->proposer); /* first, so that followers get answers to their commands */
    commands_end_bound(&n->commands);
    membership_close(n->membership);
    relay_close(&n->relay, "this node stops");
    commands_end_waiting(&n->commands);
    node_loop_close(n);
    node_snapshot_stop(n);
    peers_close(&n->peers);
    node_hold(n);
    transport_close(n->peers.transport, node_closed_one, n);
    node_hold(n);
    log_close(n->log, node_loop_log_closed, n);
}

/* True when leadership was handed over, or when that is not needed, not possible, or was tried. */
static bool handed_over(struct node *n)
{
    if (n->failed || replica_role(n->replica) != REPLICA_LEADER || n->stop.transfer_tried) {
        return !membership_transferring(n->membership);
    }
    if (proposer_in_flight(&n->proposer) > 0 || n->commands.count > 0) {
        return false;
    }
    n->stop.transfer_tried = true;
    return membership_transfer(n->membership, 0, NULL, NULL) != 0;
}

void node_stop_turn(struct node *n)
{
    bool late = fli_clock_ms() >= n->stop.drain_until_ms;
    if (!node_can_propose(n) &&
        proposer_in_flight(&n->proposer) == 0) { /* else some may overtake what is given back */
        commands_end_waiting(&n->commands);
    }
    relay_flush(&n->relay);
    bool quiet = handed_over(n) && relay_quiet(&n->relay);
    if (late || n->failed || quiet) {
        node_close(n);
    }
}

void node_stop(struct node *n, unsigned drain_ms, void (*cb)(void *ctx), void *ctx)
{
    FLI_ASSERT(n->phase == PHASE_RUN);
    n->stop.cb = cb;
    n->stop.ctx = ctx;
    n->stop.drain_until_ms = fli_clock_ms() + drain_ms;
    n->phase = PHASE_DRAIN;
    n->commands.closed = true;
    node_wake(n);
}

void node_destroy(struct node *n)
{
    if (n == NULL) {
        return;
    }
    FLI_ASSERT(n->phase == PHASE_CLOSED);
    commands_fini(&n->commands);
    free(n);
}
