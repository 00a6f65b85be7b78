/* peers.h: the nodes that this node knows, one place for each, with what its parts keep of it.
 *
 * Members have a place, and so has a caller while it is decided whether it is let in. All that is
 * under way with a node ends when it is a member no more, but for a worker that reads a snapshot
 * for it: until that has ended, its place is not free.
 *
 * Each field belongs to one file, which alone changes it. Others find the place by the node's
 * number; its address stays the same. */
#ifndef CONSENSUS_PEERS_H
#define CONSENSUS_PEERS_H

#include "consensus/report.h"
#include "peer/handshake.h"
#include "peer/members.h"
#include "peer/outbound.h"

/* Which end of a stream of commands this node has: to the other as a leader, or of a follower. */
enum relay_end { RELAY_TO_LEADER, RELAY_OF_FOLLOWER };

enum peer_seen { PEER_UNKNOWN, PEER_HERE, PEER_AWAY };

struct peer {
    uint64_t id; /* 0: this place is free */

    struct outbound outbound; /* peers.c; this node itself has none */

    /* membership*.c: what it has said of itself */
    struct peer_identity told; /* its last handshake that was let in; incarnation 0: none was since
                                  this node began, or it is not let in any more */
    uint64_t call_at_ms;       /* while the cluster is formed: when it is called anew */
    enum handshake_verdict verdict; /* its last answer to this node's identity; 0: none yet */

    bool gone;           /* election.c: its process has ended: nobody listens at its address */
    enum peer_seen seen; /* node_watch.c */

    /* node_report.c: its last report */
    bool differs; /* at the last entry whose hash this node had as well */
    struct node_report report;

    /* relay.c */
    struct relay_stream *relay[2]; /* by enum relay_end; NULL: none */
    struct relay *relay_dials;     /* NULL: no dial is under way */
    uint64_t redial_ms;

    struct snapshot_send *send; /* node_snapshot.c: a transfer to it; NULL: there was none */
};

struct peers {
    const struct host *host;
    struct transport *transport; /* NULL: nobody is dialed */
    uint64_t self_id;
    struct peer list[KNOWN_MEMBERS_MAX];
};

struct peer *peers_find(const struct peers *p, uint64_t id); /* NULL: it has no place */
struct peer *peers_place(struct peers *p, uint64_t id);      /* its own, or a free one; or NULL */
/* To be called when the transport and all other owners know the new members. */
void peers_set_members(struct peers *p, const struct members *members);

bool peers_is_up(const struct peers *p, uint64_t id); /* whether messages can be sent to it */
int peers_send(struct peers *p, uint64_t id, uint8_t type, const struct fli_slice *parts,
               unsigned n) FLI_MUST_USE; /* see outbound_send(); FL_EINVAL: it has no place */
/* As outbound_turn() and so on, for all. */
void peers_turn(struct peers *p);
uint64_t peers_next_ms(struct peers *p);
void peers_flush(struct peers *p);
void peers_close(struct peers *p);

#endif
