/* transport.h: connections between nodes: one peer port for all kinds of stream.
 *
 * Every stream opens with a handshake of each side (handshake.h). A stranger (other cluster, other
 * members, unknown id, another incarnation of a known id, wrong version) is refused. Each side
 * checks the other: the called node before it answers, the caller by the answer.
 *
 *   dialer                             acceptor
 *   connect, handshake (asks)  ---->   checks
 *   checks                     <----   handshake (welcome, or a refusal, then closes)
 *   hands the stream on                hands the stream on
 *
 * With security (security.h), all of this goes through TLS, after each side has proved who it is. A
 * peer that is no member is told nothing and cut off: before its handshake if it is no node of the
 * cluster, after it if it claims to be another node than it is.
 *
 * A refusal tells its verdict and the version numbers. A peer that is configured with the same
 * members, and has the same cluster id or none, also gets the reason. It never tells anything about
 * this node.
 *
 * Order. The bytes of one stream keep their order. Two streams between the same nodes have no
 * order, even if the second was opened because the first had ended: bytes in the sender's kernel
 * may come later. Users of streams must tolerate that.
 *
 * Ends. A connection whose bytes are not acknowledged for unacked_ms is given up. So none waits for
 * TCP's retries, which come ever more seldom, after a partition has healed. A silent one is probed.
 * Small packets are not delayed: two entries in flight would cost 40 ms each. Names are resolved at
 * each dial.
 *
 * Limits, so that a stranger cannot use up descriptors: TRANSPORT_PENDING_MAX connections without a
 * complete handshake, TRANSPORT_PENDING_ADDRESS_MAX of one address (IPv6: one network of 64 bits),
 * each for TRANSPORT_PENDING_MS. Beyond these, the oldest of that address (or of the address with
 * the most) is dropped, since a real peer sends its handshake at once. TRANSPORT_ACCEPTED_MAX
 * accepted streams of one member and kind: a newer one replaces the oldest, whose owner gets
 * `lost`. TRANSPORT_SHAKE_TURN_MS per turn of the loop for handshakes of TLS that others began.
 *
 * One thread, the loop's. */
#ifndef PEER_TRANSPORT_H
#define PEER_TRANSPORT_H

#include <uv.h>

#include "peer/handshake.h"
#include "peer/security.h"
#include "peer/stream.h"

struct transport;

#define TRANSPORT_PENDING_MAX 64u
#define TRANSPORT_PENDING_ADDRESS_MAX 16u
#define TRANSPORT_ACCEPTED_MAX 4u
#define TRANSPORT_PENDING_MS 2000u
#define TRANSPORT_ACCEPTS_TURN_MAX 32u /* connections that a turn of the loop accepts */
#define TRANSPORT_SHAKE_TURN_MS 5u     /* time in a turn for handshakes that other nodes began */

struct transport_config {
    const char *bind_address; /* HOST:PORT. Used during transport_create only. */
    struct members members;
    struct peer_identity self;
    /* The checksum of the configured members alone. self.members_crc differs from it in a node that
     * began with a restored state. */
    uint32_t members_crc;
    struct handshake_formats formats;
    /* Time limits for each address of a dial. When the packet that opens a
     * connection is lost, the next dial sends another one, sooner than TCP would. So a healed
     * partition may go unnoticed for connect_ms; that must be more than a round trip. */
    unsigned connect_ms; /* until the connection is open */
    unsigned answer_ms;  /* from then on, until the answer is complete */
    /* TCP counts from its first retry: in all it takes about 0.2 s more. */
    unsigned unacked_ms;
    struct security_config security;               /* empty: every peer that reaches the port is
                                                      trusted */
    struct stream_limits limits[STREAM_KINDS + 1]; /* by kind; [0] is not used */
};

struct transport_callbacks {
    void *ctx;
    /* Checks a peer's handshake, after the transport's own checks, and fills in `reason` unless the
     * verdict is HANDSHAKE_WELCOME. HANDSHAKE_UNDECIDED: the connection waits, as long as its
     * time allows, and is checked again by transport_check_again(), as `waited`. The peer may
     * not be a member yet; if it is welcomed, transport_set_members() has made it one meanwhile.
     * The reason is logged, and told to a peer that is configured alike: so it must not name a
     * cluster id or an incarnation. */
    enum handshake_verdict (*check)(void *ctx, const struct peer_identity *peer,
                                    char reason[HANDSHAKE_REASON_MAX]);
    /* Hands on a stream from another node: the owner calls stream_start() or stream_close(). */
    void (*accepted)(void *ctx, enum stream_kind kind, const struct peer_identity *peer,
                     struct stream *s);
    /* A peer answered a call of this node: it welcomed or refused it. The reason is the peer's, or
     * the meaning of the verdict. */
    void (*answered)(void *ctx, uint64_t peer_id, enum handshake_verdict verdict,
                     const char *reason);
    /* No process listens at a peer: each of its addresses was reached and refused. */
    void (*absent)(void *ctx, uint64_t peer_id);
    /* level 1 error, 2 warning, 3 notice, 4 debug. */
    void (*log)(void *ctx, int level, const char *message);
};

/* Binds and listens, so that no other process can. No connection is accepted before
 * transport_start(). 0, FL_EINVAL, FL_ESYSTEM, FL_ENOMEM; errmsg says what is wrong and what to
 * do. */
int transport_create(uv_loop_t *loop, const struct transport_config *config,
                     const struct transport_callbacks *cbs, struct transport **ret, char *errmsg,
                     size_t errmsg_size) FLI_MUST_USE;
/* Whether this node may be at that address: it has the port of bind_address, and no other number of
 * its host. */
bool transport_is_at(const struct transport *t, const char *address);

/* Accepts and dials from now on. 0 or FL_ESYSTEM, with a sentence in errmsg. */
int transport_start(struct transport *t, char *errmsg, size_t errmsg_size) FLI_MUST_USE;

/* What this node tells about itself in all later handshakes; its owner keeps it current. */
struct peer_identity *transport_self(struct transport *t);

/* Checks again the handshakes that wait for a decision. From the loop, not within a callback. */
void transport_check_again(struct transport *t);

/* Sets the members. Streams of nodes that are no longer members end,
 * and their owners get `lost`; so it must not be called within a stream's callback. Calls to them
 * end as well. */
void transport_set_members(struct transport *t, const struct members *members);

/* Ends the streams that another node has opened; their owners get `lost`. */
void transport_hang_up(struct transport *t, uint64_t peer_id, const char *why);

/* Opens a stream to another member. cb comes once, never inside: status 0 and a stream to own; or
 * FL_ENOCONN (also inside of transport_set_members() without that member, and of
 * transport_close()), FL_EDENIED (one of the two sides refused). Returns 0; FL_EINVAL: not another
 * member; FL_ENOCONN: not started, or closing; FL_ENOMEM, FL_ESYSTEM. On an error cb never
 * comes. */
typedef void (*transport_dial_cb)(void *ctx, int status, const struct peer_identity *peer,
                                  struct stream *s);
int transport_dial(struct transport *t, uint64_t peer_id, enum stream_kind kind,
                   transport_dial_cb cb, void *ctx) FLI_MUST_USE;

/* How other nodes are identified, for INFO. */
enum transport_trust {
    TRANSPORT_TRUSTS_ALL,
    TRANSPORT_TRUSTS_SECRET,
    TRANSPORT_TRUSTS_CERTIFICATES
};

struct transport_security {
    enum transport_trust trust;
    struct fli_tls_facts facts; /* with a secret: the counts only */
    uint64_t handshakes, failed, deferred;
};

/* Sets new times; unacked_ms applies to connections made from then on. */
void transport_set_times(struct transport *t, unsigned connect_ms, unsigned answer_ms,
                         unsigned unacked_ms);

void transport_get_security(const struct transport *t, struct transport_security *ret);

/* Reads security's files again; the log reports the result. Changed files are also read without
 * this call. */
void transport_reload(struct transport *t);

/* Stops listening, drops strangers, and ends dials and the streams of others. Calls cb, never
 * inside this call, when each stream that was handed on is closed too; their owners must call
 * stream_close(), before or after. Call it once, after transport_start(), even if that failed. */
void transport_close(struct transport *t, void (*cb)(void *ctx), void *ctx);

void transport_destroy(struct transport *t); /* when closed, or never started; NULL is fine */

/* A line of the log about connections between nodes, for this folder; leaves repeated ones out. */
void transport_log(struct transport *t, int level, const char *fmt, ...) FLI_PRINTF(3, 4);

#endif
