/* outbound.h: the RAFT stream to another member, kept up.
 *
 *   dialing --> up --> pause --> dialing ...
 *      `-------------->'
 *
 * Each place in the table of peers (consensus/peers.h) has one. From outbound_open() on the member
 * is dialed. After the stream ends or a dial fails, the next dial comes OUTBOUND_PAUSE_MIN_MS later
 * at the earliest. Two dials begin at least one pause apart; that pause grows to
 * OUTBOUND_PAUSE_MAX_MS, and is OUTBOUND_REFUSED_MS after a refusal. So a dial that lasted longer
 * than the pause, because the network drops everything, is followed at once.
 *
 * Messages may be lost. While the stream is down they are dropped; so is a message that would make
 * more bytes wait than the limits of the stream allow. The sender must tolerate that, as Raft does.
 *
 * The peer never sends on such a stream: if it does, the stream ends. One thread, the loop's. */
#ifndef PEER_OUTBOUND_H
#define PEER_OUTBOUND_H

#include "peer/host.h"
#include "peer/transport.h"

#define OUTBOUND_PAUSE_MIN_MS 10u
#define OUTBOUND_PAUSE_MAX_MS 100u
#define OUTBOUND_REFUSED_MS 250u

/* All zeros: not open. */
struct outbound {
    const struct host *host; /* NULL: it is not open */
    struct transport *transport;
    uint64_t id;
    struct stream *stream; /* NULL: it is not up */
    bool dialing;
    bool flooded; /* that messages are dropped was logged; reset when nothing waits */
    unsigned pause_ms;
    uint64_t dial_at_ms; /* while neither up nor dialing */
    uint64_t dialed_ms;  /* when the last dial began */
};

/* outbound_turn() must follow. The host, of which only `wake` is used, and the transport outlive
 * it. */
void outbound_open(struct outbound *o, const struct host *host, struct transport *t, uint64_t id);
void outbound_close(struct outbound *o); /* no dial is under way, or the transport closes next */

void outbound_turn(struct outbound *o);              /* dials when it is time */
uint64_t outbound_next_ms(const struct outbound *o); /* until then; UINT64_MAX: an event is first */

/* Appends one message. 0; FL_ENOCONN: no stream now; FL_ELIMIT: too much waits; FL_ENOMEM. In these
 * three cases the message is dropped. FL_EINVAL: larger than a frame may be. Never calls back. */
int outbound_send(struct outbound *o, uint8_t type, const struct fli_slice *parts,
                  unsigned n) FLI_MUST_USE;
void outbound_flush(struct outbound *o); /* once a turn */

static inline bool outbound_is_up(const struct outbound *o)
{
    return o->stream != NULL;
}

/* Dials at once instead of after the pause: the peer has shown that it is running. */
void outbound_redial(struct outbound *o);

#endif
