/* transport.h: connections between nodes: one peer port for two kinds of stream, raft's and the
 * relay's.
 *
 * Every stream opens with a hello of each side (fixed size, checksummed, see hello.h): protocol
 * version, kind, cluster id (0: not known yet), sender's node id and incarnation, a checksum of the
 * configured members, and the address its clients use. A stranger (other cluster, unknown id,
 * another incarnation of a known id, wrong version) is refused with a reason both sides log. Each
 * side judges the other: the one that was called before it answers, the caller by the answer.
 *
 *   dialer                         acceptor
 *   connect, hello (asks)  ---->   judges
 *   judges                 <----   hello (welcome, or the reason for refusing, then closes)
 *   hands the stream on            hands the stream on
 *
 * Order. Bytes of one stream keep theirs; two streams between the same nodes keep none, also when
 * the second was opened because the first had ended: what its sender's kernel still had may come
 * later. Whoever uses them must bear that (raft_guard.h does for raft).
 *
 * Neither side reads past the other's hello, so the stream that is handed on is at its first byte.
 * TCP_NODELAY and keep-alive at both ends: the library's own transport sets neither, and two
 * entries in flight then cost 40 ms each. Names are resolved at each connect. TLS between nodes
 * will go here.
 *
 * Limits: TRANSPORT_PENDING_MAX strangers that have not said hello; beyond, the oldest is dropped.
 * Each has TRANSPORT_HELLO_MS. Streams are made with raft_malloc and must be freed with raft_free
 * after uv_close. Implements raft_uv_transport (raft/uv.h), so raft's I/O runs over it unchanged.
 * One thread, the loop's. */
#ifndef CONSENSUS_TRANSPORT_H
#define CONSENSUS_TRANSPORT_H

#include <raft/uv.h>

#include "consensus/members.h"

struct transport;

#define TRANSPORT_PENDING_MAX 64u
#define TRANSPORT_HELLO_MS 2000u   /* from accept to a whole hello */
#define TRANSPORT_CONNECT_MS 2000u /* per address, from connect to the whole answer */
#define TRANSPORT_REASON_MAX 184u  /* bytes of a reason, NUL included */

/* What a node says of itself in a hello. */
struct transport_identity {
    uint64_t node_id, incarnation, cluster_id;
    uint32_t members_crc; /* of the canonical text; nodes that disagree must not meet */
    /* The state at this index, which the node has applied, has its incarnation; 0: none it knows */
    uint64_t admitted_index;
    char client_address[MEMBER_ADDRESS_MAX];
};

/* Values travel in hellos and must not change. */
enum transport_verdict {
    TRANSPORT_WELCOME = 1,
    TRANSPORT_STRANGER = 2, /* not a member, or not yet again, or not the one that was called */
    TRANSPORT_OTHER_CLUSTER = 3, /* another cluster id */
    TRANSPORT_OTHER_MEMBERS = 4, /* configured with other members */
    TRANSPORT_OTHER_LIFE = 5,    /* another incarnation than the one that joined */
    TRANSPORT_OTHER_VERSION = 6  /* of the protocol */
};

struct transport_callbacks {
    void *ctx;
    /* Judges a peer's hello, after the transport's own checks: fills `reason` unless it is
     * TRANSPORT_WELCOME. */
    enum transport_verdict (*judge)(void *ctx, const struct transport_identity *peer,
                                    char reason[TRANSPORT_REASON_MAX]);
    /* A relay stream from another node; ownership of the handle passes. */
    void (*link)(void *ctx, const struct transport_identity *peer, uv_stream_t *stream);
    /* A peer has answered a call of this node: it is welcome, or refused with the peer's reason. */
    void (*answered)(void *ctx, uint64_t peer_id, enum transport_verdict verdict,
                     const char *reason);
    /* Nobody listens at a peer: each of its addresses was reached, and refused. May be NULL. */
    void (*absent)(void *ctx, uint64_t peer_id);
    /* A peer has ended a stream that was opened to it for raft, and whatever is written to it from
     * now on fails at once. Raft only ever writes to it: without this, it would lose a message or
     * two, often its votes, before it opened another. May be NULL: then nobody looks. */
    void (*hung_up)(void *ctx, uint64_t peer_id);
    void (*log)(void *ctx, int level, const char *message);
};

/* Binds bind_address (its port may be 0). 0, FL_EINVAL, FL_ESYSTEM; errmsg says what is wrong. */
int transport_create(uv_loop_t *loop, const char *bind_address, const struct members *members,
                     const struct transport_identity *self, const struct transport_callbacks *cbs,
                     struct transport **ret, char *errmsg, size_t errmsg_size) FLI_MUST_USE;
struct raft_uv_transport *transport_raft(struct transport *t);
uint16_t transport_port(const struct transport *t); /* that was bound */

/* The cluster id, once it is known, and the node's place in it; said in hellos from now on. */
void transport_set_cluster(struct transport *t, uint64_t cluster_id, uint64_t admitted_index);

/* Opens a relay stream to a member. cb once, never inside: status 0 and a stream to own, or
 * FL_ENOCONN (also when the transport closes). */
typedef void (*transport_link_cb)(void *ctx, int status, const struct transport_identity *peer,
                                  uv_stream_t *stream);
int transport_link(struct transport *t, uint64_t peer_id, transport_link_cb cb,
                   void *ctx) FLI_MUST_USE;

/* Strangers that have connected and not been judged yet. */
unsigned transport_pending(const struct transport *t);

void transport_destroy(struct transport *t); /* after raft closed it, or never had it */

#endif
