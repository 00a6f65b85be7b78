/* node_inbound.c: streams on which other nodes send messages of Raft; and the callbacks that every
 * part of a node needs. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "consensus/message_codec.h"
#include "consensus/node_private.h"

static void idle_cb(uv_idle_t *idle)
{
    /* Nothing to do: the loop turns, and node_turn() works after the sockets are read. */
}

void node_wake(void *node)
{
    struct node *n = node;
    if (!n->woken && n->phase < PHASE_CLOSE) {
        n->woken = true;
        int rv = uv_idle_start(&n->idle, idle_cb);
        FLI_ASSERT(rv == 0);
    }
}

bool node_running(const struct node *n)
{
    return n->phase == PHASE_RUN && !n->failed;
}

static void inbound_close(struct inbound *in)
{
    stream_close(in->stream);
    free(in);
}

/* Measures how long the leader was silent. Called before its message goes to Raft, which ends the
 * silence. */
static void note_silence(struct node *n, uint64_t from, uint8_t type, uint64_t now_ms)
{
    if (type != MESSAGE_APPEND || from != replica_leader(n->replica)) {
        return;
    }
    uint64_t silence_ms = replica_silence_ms(n->replica, now_ms);
    n->silence_ms_max = silence_ms > n->silence_ms_max ? silence_ms : n->silence_ms_max;
    if (silence_ms > 2 * (uint64_t)n->heartbeat_ms) {
        n->heartbeats_missed += silence_ms / n->heartbeat_ms - 1;
    }
}

static void inbound_frame(void *ctx, uint8_t type, struct fli_slice body)
{
    struct inbound *in = ctx;
    struct node *n = in->node;
    if (n->phase >= PHASE_CLOSE || n->failed) {
        return;
    }
    enum fli_turn_part part = fli_turn_enter(n->host.turn, FLI_TURN_PEERS);
    uint64_t from = in->from;
    uint64_t now_ms = fli_clock_ms();
    note_silence(n, from, type, now_ms);
    int rv = type == NODE_REPORT_TYPE ? node_report_receive(n, from, body)
             : type == STARTS_MESSAGE_TYPE
                 ? membership_receive_starts(n->membership, from, body)
                 : replica_receive(n->replica, now_ms, in->incarnation, type, body);
    fli_turn_leave(n->host.turn, part);
    if (rv != 0) {
        host_log(&n->host, 1,
                 "node %" PRIu64
                 " has sent a message that no correct node sends: the connection is "
                 "closed",
                 from);
        inbound_close(in);
    }
}

static void inbound_lost(void *ctx, const char *why)
{
    inbound_close(ctx);
}

void node_inbound(struct node *n, const struct peer_identity *peer, struct stream *stream)
{
    struct inbound *in = n->phase >= PHASE_CLOSE ? NULL : calloc(1, sizeof *in);
    if (in == NULL) {
        stream_close(stream);
        return;
    }
    struct stream_callbacks cbs = {.ctx = in, .frame = inbound_frame, .lost = inbound_lost};
    in->node = n;
    in->from = peer->node_id;
    in->incarnation = peer->incarnation;
    in->stream = stream;
    (void)stream_start(stream, &cbs);
}
