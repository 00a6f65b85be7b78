/* election.h: when a follower's election timer runs out, other than by chance.
 *
 * A dead leader is replaced at once, not after an election time of silence.
 *
 * A process that ends has its connections closed by its kernel. That alone says little, since
 * connections break for other reasons. So the stream of messages to it is dialed again; when every
 * address refuses, nobody listens there, and a leader listens as long as it lives. When it has also
 * missed a heartbeat, this node's election timer is made to run out.
 *
 * The others notice at the same moment. If two ask for votes at once, neither gets them, so each
 * waits for its turn, by the order of ids; a node that is asked before its turn yields
 * (raft_edge.h). Later turns are for when the first ones got nowhere. After a few of them the
 * core's own random timer is left to decide.
 *
 * A leader that is alive loses nothing by all this: a follower that cannot reach it but is heard by
 * others asks for pre-votes, is refused, and follows again with the next heartbeat. One that is
 * stopped, or whose host is gone, closes no connection: that takes the election time. The core
 * would add up to as much again by chance, so that two do not ask at once; here they take turns, as
 * above, as soon as the leader was silent for an election time. */
#ifndef CONSENSUS_ELECTION_H
#define CONSENSUS_ELECTION_H

#include "consensus/host.h"
#include "consensus/replica.h"
#include "peer/members.h"

struct election {
    struct host host;
    struct replica *replica; /* set when it is there */
    struct members members;  /* this node among them */
    uint64_t id;
    unsigned heartbeat_ms;
    unsigned election_ms;
    /* Private from here on. */
    bool gone[KNOWN_MEMBERS_MAX]; /* of each member: nobody listens there, its process has ended */
    uint64_t gone_id;             /* the leader that is being replaced; 0: none */
    bool silent;                  /* for its silence: its process may be there */
    uint64_t campaign_at_ms;
    uint64_t campaign_term;
    unsigned hurries_left;
};

void election_init(struct election *e, const struct host *host, const struct members *members,
                   uint64_t id, unsigned heartbeat_ms, unsigned election_ms);

void election_set_members(struct election *e, const struct members *members);

void election_peer_absent(struct election *e, uint64_t id); /* nobody listens at it */
void election_peer_back(struct election *e, uint64_t id);   /* it was heard */

void election_turn(struct election *e, bool running);
/* Until election_turn, called like that, has something to do. */
uint64_t election_next_ms(const struct election *e, bool running);

#endif
