/* election.h: when a follower starts an election before its random timer would.
 *
 * A dead leader is replaced at once, not after an election time of silence.
 *
 * When a process ends, its kernel closes its connections. A closed connection alone proves little,
 * since connections break for other reasons too. So the follower dials the leader again. When every
 * address refuses the connection, no process listens there, and a live leader always listens. When
 * the leader has also missed a heartbeat, the follower starts an election.
 *
 * All followers notice at the same moment. If two asked for votes at once, neither might win. So
 * they take turns, in the order of their ids; a node that is asked for its vote before its own turn
 * yields (raft_edge.h). A later turn matters only when the earlier candidates failed. After a few
 * rounds, only the random timer of the Raft library is left to decide.
 *
 * A live leader is safe from this. A follower that cannot reach it asks for pre-votes, the others
 * refuse, and the follower goes on following with the next heartbeat. When the leader's process is
 * stopped, or its host is gone, no connection closes, so followers miss it only after an election
 * time of silence. The library would then wait up to that long again, at random, so that two do not
 * ask at once. Here the followers take turns at once, as above.
 *
 * A node that had a leader and has none also takes turns when another node connects again: all
 * nodes may have been cut off from each other for long, and their rounds are over by then. */
#ifndef CONSENSUS_ELECTION_H
#define CONSENSUS_ELECTION_H

#include "peer/host.h"
#include "consensus/peers.h"
#include "consensus/replica.h"

struct election {
    struct host host;
    struct replica *replica; /* set once it exists */
    struct peers *peers;
    const struct members *members; /* this node among them */
    uint64_t id;
    unsigned heartbeat_ms;
    unsigned election_ms;
    /* Private from here on. */
    uint64_t gone_id; /* the leader that is being replaced; 0: none */
    bool had_leader;  /* since this process began; or it led itself */
    uint64_t campaign_at_ms;
    uint64_t campaign_term;
    unsigned rounds_left;
};

/* `members` may be changed by the caller, who says where they are then. */
void election_init(struct election *e, const struct host *host, struct peers *peers,
                   const struct members *members, uint64_t id, unsigned heartbeat_ms,
                   unsigned election_ms);

void election_peer_absent(struct election *e, uint64_t id); /* nobody listens at its address */
void election_peer_back(struct election *e, uint64_t id);   /* it has connected */

void election_turn(struct election *e, bool running);
/* The time at which election_turn(), called with the same `running`, has something to do. */
uint64_t election_next_ms(const struct election *e, bool running);

#endif
