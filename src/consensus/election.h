/* election.h: when a follower's election timer runs out, other than by chance.
 *
 * A dead leader is replaced at once, not after an election time of silence.
 *
 * When a process ends, its kernel closes its connections. A closed connection alone proves little,
 * since connections break for other reasons too. So the follower dials the leader again. When every
 * address refuses, nobody listens there; a leader listens as long as it lives. When the leader has
 * also missed a heartbeat, the follower makes its own election timer run out.
 *
 * All followers notice at the same moment. If two asked for votes at once, neither might win, so
 * they take turns, in the order of their ids; a node that is asked for its vote before its own turn
 * yields (raft_edge.h). A later turn matters when the earlier candidates got nowhere. After a few
 * rounds the random timer of the core is left to decide.
 *
 * A leader that is alive is safe from this: a follower that cannot reach it asks for pre-votes, the
 * others refuse, and the follower goes on following with the next heartbeat. A leader that is
 * stopped, or whose host is gone, closes no connection, so it is missed only after an election time
 * of silence. The core would then wait up to that long again, at random, so that two do not ask at
 * once; here the followers take turns at once, as above.
 *
 * A node that had a leader and has none takes turns as well when another is heard again: all of
 * them may have been cut off from each other for long, and their rounds are over by then. */
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
    bool had_leader;              /* in this life, or was it */
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
