/* outbound.h: one RAFT stream to each other member, kept up.
 *
 *   dialing --> up --> pause --> dialing ...
 *      `-------------->'
 *
 * Dials each member from outbound_start() on. After a stream ends or a dial fails, the next dial
 * comes OUTBOUND_PAUSE_MIN_MS later at the earliest. Two dials begin at least one pause apart; that
 * pause grows to OUTBOUND_PAUSE_MAX_MS, and is OUTBOUND_REFUSED_MS after a refusal. So a dial that
 * lasted longer than the pause, because the network drops everything, is followed at once.
 *
 * Messages may be lost. While a stream is down they are dropped; so is a message that would make
 * more bytes wait for one peer than the limits of its stream allow. The sender must tolerate that,
 * as Raft does.
 *
 * The peer never sends on such a stream: if it does, the stream ends. One thread, the loop's. */
#ifndef PEER_OUTBOUND_H
#define PEER_OUTBOUND_H

#include "peer/transport.h"

#define OUTBOUND_PAUSE_MIN_MS 10u
#define OUTBOUND_PAUSE_MAX_MS 100u
#define OUTBOUND_REFUSED_MS 250u

struct outbound;

struct outbound_peer_stats {
    bool up;
    size_t unsent;    /* bytes that the kernel has not taken */
    uint64_t sent;    /* messages appended */
    uint64_t dropped; /* messages dropped, for want of a stream or of room */
    uint64_t times_up;
};

/* The transport must exist and outlive it. 0 or FL_ENOMEM. */
int outbound_create(uv_loop_t *loop, struct transport *t, const struct members *members,
                    uint64_t self_id, struct outbound **ret) FLI_MUST_USE;

/* Sets the members. Streams to nodes that are no longer members end. */
void outbound_set_members(struct outbound *o, const struct members *members);

void outbound_start(struct outbound *o); /* once, when the transport was started */

/* Appends one message. 0; FL_ENOCONN: no stream now; FL_ELIMIT: too much waits; FL_ENOMEM. In these
 * three cases the message is dropped and counted. FL_EINVAL: larger than a frame may be, or not
 * another member. Never calls back. */
int outbound_send(struct outbound *o, uint64_t peer_id, uint8_t type, const struct fli_slice *parts,
                  unsigned n) FLI_MUST_USE;

void outbound_flush(struct outbound *o); /* once a turn */

bool outbound_is_up(const struct outbound *o, uint64_t peer_id);
void outbound_peer_stats(const struct outbound *o, uint64_t peer_id,
                         struct outbound_peer_stats *ret); /* all 0 for a node that is no
                                                              member */

/* Dials at once instead of after the pause: the peer has shown that it is running. */
void outbound_redial(struct outbound *o, uint64_t peer_id);

/* Ends all streams. Calls cb, never inside this call, when nothing of it is left in
 * the loop; then outbound_destroy() may follow. Only after outbound_start(). A dial under way ends
 * at its deadline or with the transport. */
void outbound_close(struct outbound *o, void (*cb)(void *ctx), void *ctx);
void outbound_destroy(struct outbound *o); /* when closed, or never started; NULL is fine */

#endif
