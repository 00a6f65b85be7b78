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

#include "peer/handshake.h"
#include "peer/members.h"
#include "peer/outbound.h"
#include "snapshot/send.h"

/* Each node reports its state to all others once a second, so an operator who looks at
 * one node sees them all. The report also says whether the node could take over, and by which
 * election time it goes: service depends on that, and no promise. And it says which state the node
 * has: a node whose state differs from a majority's ends
 * (docs/adr/0070-nodes-compare-their-states.md).
 *
 * A frame on the stream of Raft's messages, little endian:
 *   1 role (enum node_role), 1 the log waits for room, 1 the disk hangs, 1 it goes by its own
 *   election time, 1 version of the hash, 8 term, 8 commit index, 8 applied index, 8 size of the
 *   disk, 8 free on it (both 0: not known), 8 entry (0: none), 8 hash of the state behind it */
#define NODE_REPORT_TYPE 32u /* beside the types of message_codec.h */
#define NODE_REPORT_SIZE 61u
#define NODE_REPORT_OLD_MS 5000u /* reports of nodes older than this are ignored */

/* A node that lacks more entries is still replaying its log, or is catching up: no leader chooses
 * it by itself to take over. */
#define NODE_REPORT_NEAR 4096u

enum node_role { NODE_FOLLOWER, NODE_CANDIDATE, NODE_LEADER, NODE_STOPPED };

struct node_report {
    uint8_t role; /* enum node_role */
    bool log_waits;
    bool disk_hangs;   /* a read or a write of the log takes so long that it should not lead */
    bool own_election; /* it goes by its own election time, not by that of CLUSTER CONFIG */
    uint64_t term, commit_index, applied_index;
    uint64_t disk_bytes, disk_free_bytes; /* of the data directory; 0: unknown */
    uint8_t hash_version;
    uint64_t hash_index, hash; /* of the state behind that entry; index 0: none */
    /* Not sent. The entries that it lacked then, computed by the receiver; and when it was made, or
     * came; 0: never. */
    uint64_t lag, at_ms;
};

/* Which end of a stream of commands this node has: to the other as a leader, or of a follower. */
enum relay_end { RELAY_TO_LEADER, RELAY_OF_FOLLOWER };

enum peer_seen { PEER_UNKNOWN, PEER_HERE, PEER_AWAY };

struct peer {
    uint64_t id; /* 0: this place is free */

    struct outbound outbound; /* peers.c, membership*.c; this node itself has none */

    /* membership*.c: what it has said of itself */
    struct peer_identity told; /* its last handshake that was let in; incarnation 0: none was since
                                  this node began, or it is not let in any more */
    uint64_t call_at_ms;       /* while the cluster is formed: when it is called anew */
    enum handshake_verdict verdict; /* its last answer to this node's identity; 0: none yet */

    bool gone;           /* election.c: its process has ended: nobody listens at its address */
    enum peer_seen seen; /* node_watch.c */

    /* node_watch.c: its last report */
    bool differs; /* at the last entry whose hash this node had as well */
    struct node_report report;

    /* relay.c */
    struct relay_stream *relay[2]; /* by enum relay_end; NULL: none */
    struct relay *relay_dials;     /* NULL: no dial is under way */
    uint64_t redial_ms;

    struct snapshot_send send; /* node_snapshot.c: transfers to it */
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

void node_report_encode(const struct node_report *r, uint8_t out[NODE_REPORT_SIZE]);
int node_report_decode(struct fli_slice body, struct node_report *ret) FLI_MUST_USE; /* FL_EPROTO */

/* What another node has told last; NULL: nothing, or too long ago. */
const struct node_report *node_report_of_peer(const struct peers *p, uint64_t id);
/* Whether another node could take over, as far as it has told of itself. */
bool node_report_can_lead(const struct peers *p, uint64_t id);
/* A node whose state is another than this one's; 0: none is. */
uint64_t node_report_differs(const struct peers *p);

#endif
