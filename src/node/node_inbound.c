/* node_inbound.c: streams that other nodes have opened; of their kinds, those on which they send
 * messages of Raft. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "node/node_private.h"

struct inbound {
    struct node *node;
    uint64_t from, incarnation;
    struct stream *stream;
};

static void inbound_close(struct inbound *in)
{
    stream_close(in->stream);
    free(in);
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
    if (type == MESSAGE_APPEND && from == replica_leader(n->replica)) {
        node_watch_heard(n, now_ms);
    }
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

static void inbound_open(struct node *n, const struct peer_identity *peer, struct stream *stream)
{
    struct inbound *in = calloc(1, sizeof *in);
    if (in == NULL) {
        stream_close(stream);
        return;
    }
    struct stream_callbacks cbs = {.ctx = in, .frame = inbound_frame, .lost = inbound_lost};
    *in = (struct inbound){n, peer->node_id, peer->incarnation, stream};
    (void)stream_start(stream, &cbs);
}

void node_accepted(void *ctx, enum stream_kind kind, const struct peer_identity *peer,
                   struct stream *stream)
{
    struct node *n = ctx;
    if (n->phase >= PHASE_CLOSE || n->failed) {
        stream_close(stream);
    } else if (kind == STREAM_RAFT) {
        inbound_open(n, peer, stream);
    } else if (kind == STREAM_RELAY) {
        relay_accept(&n->relay, peer, stream);
    } else {
        snapshot_install_accept(n->snapshots.install, peer->node_id, stream);
    }
}
