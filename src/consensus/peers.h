/* peers.h: the nodes that this node knows, one place for each, with what its parts keep of it.
 *
 * Members have a place, and so has a caller while it is decided whether it is let in. Of a node
 * that is no member any more only what is under way is kept. When that has ended, its place is
 * free.
 *
 * Each field belongs to one file, which alone changes it. Others find the place by the node's
 * number; its address stays the same. */
#ifndef CONSENSUS_PEERS_H
#define CONSENSUS_PEERS_H

#include "consensus/node.h"
#include "peer/handshake.h"
#include "peer/members.h"

enum peer_seen { PEER_UNKNOWN, PEER_HERE, PEER_AWAY };

struct peer {
    uint64_t id; /* 0: this place is free */

    /* membership*.c: what it has said of itself */
    uint64_t incarnation; /* that was let in; 0: none since start, or not any more */
    uint64_t cluster_id;  /* as told in that handshake */
    uint64_t told_index;  /* of the newest configuration in which it is a member, as it told */
    uint64_t told_term;   /* the term that it then was in */
    uint16_t version;     /* the highest that it knows, likewise; 0: not told */
    struct start start;   /* likewise */
    bool has_answered;    /* since this node was started; or nobody listens at its address */
    bool calling;         /* a dial is under way */
    uint64_t call_at_ms;
    enum handshake_verdict verdict;   /* its last answer to this node's identity */
    char address[MEMBER_ADDRESS_MAX]; /* as told; counts while it knows as much as this node */
    char client_address[MEMBER_ADDRESS_MAX]; /* "": unknown */

    bool gone;           /* election.c: its process has ended */
    enum peer_seen seen; /* node_watch.c */

    /* node_report.c: its last report */
    uint64_t reported_ms; /* 0: never */
    bool differs;         /* at the last entry whose hash this node had as well */
    struct node_report report;

    /* relay_client.c: as a leader */
    struct relay_stream *relay;       /* NULL: none */
    struct relay_client *relay_dials; /* NULL: no dial is under way */
    bool relay_left;                  /* since that began it has left: its stream is closed */
    uint64_t redial_ms;

    struct snapshot_send *send; /* node_snapshot.c: a transfer to it; NULL: there was none */
};

struct peers {
    struct peer list[KNOWN_MEMBERS_MAX];
};

struct peer *peers_find(const struct peers *p, uint64_t id); /* NULL: it has no place */
struct peer *peers_place(struct peers *p, uint64_t id);      /* its own, or a free one; or NULL */
void peers_set_members(struct peers *p, const struct members *members);

#endif
