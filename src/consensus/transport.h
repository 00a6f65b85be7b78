/* transport.h: connections between nodes: one peer port for two kinds of stream, raft's and the
 * relay's.
 *
 * Every stream opens with a hello of each side (fixed size, checksummed): protocol version, kind,
 * cluster id (0: not known yet), sender's node id and incarnation, and the address its clients use.
 * A stranger (other cluster, unknown id, another incarnation of a known id, wrong version) is
 * refused with a reason both sides log. TCP_NODELAY and keep-alive at both ends: the library's own
 * transport sets neither, and two entries in flight then cost 40 ms each. Names are resolved at
 * each connect. TLS between nodes will go here.
 *
 * Implements raft_uv_transport (raft/uv.h), so raft's I/O runs over it unchanged. */
#ifndef CONSENSUS_TRANSPORT_H
#define CONSENSUS_TRANSPORT_H

#include <raft/uv.h>

#include "consensus/members.h"

struct transport;

/* What this node says of itself in a hello. */
struct transport_identity {
    uint64_t node_id, incarnation, cluster_id;
    char client_address[MEMBER_ADDRESS_MAX];
};

struct transport_callbacks {
    void *ctx;
    /* Judges a peer's hello: NULL to accept, else the reason. */
    const char *(*judge)(void *ctx, const struct transport_identity *peer);
    /* A relay stream from another node; ownership of the handle passes. */
    void (*link)(void *ctx, const struct transport_identity *peer, uv_stream_t *stream);
    /* This node was refused by a peer, with the peer's reason. */
    void (*refused)(void *ctx, uint64_t peer_id, const char *reason);
    void (*log)(void *ctx, int level, const char *message);
};

int transport_create(uv_loop_t *loop, const char *bind_address,
                     const struct transport_callbacks *cbs, struct transport **ret) FLI_MUST_USE;
struct raft_uv_transport *transport_raft(struct transport *t);
void transport_set_identity(struct transport *t, const struct transport_identity *id);

/* Opens a relay stream to a peer. cb once: status 0 and a stream to own, or a code. Not cancelled
 * by anything but transport's close. */
typedef void (*transport_link_cb)(void *ctx, int status, const struct transport_identity *peer,
                                  uv_stream_t *stream);
int transport_link(struct transport *t, uint64_t peer_id, const char *address, transport_link_cb cb,
                   void *ctx) FLI_MUST_USE;

void transport_destroy(struct transport *t); /* after raft closed it */

#endif
