/* raft_edge.h: the filter between the raft library ("the core") and the messages of other nodes.
 *
 * The core (raft_step() of 0.22.1, packaged without its assertions) has defects that a message can
 * reach. Each is handled here, once, where the message passes: old entries, changes of the
 * configuration, late votes, overtaken rejections, heartbeats, repetitions, newer snapshots, old
 * leaders, pre-votes, candidates, patience, learners, and messages that no correct server sends.
 * src/consensus/RAFT.md says of each what the core does, what is done here, and which test shows
 * it with the smallest sequence of messages, and fails without the code here.
 *
 * Elections. The core has no function to begin one, but its timer can be made to run out. It then
 * asks for pre-votes, which every node that hears a leader refuses. So nothing here can depose a
 * leader that a majority hears.
 *
 * Pure. The caller owns the memory. One thread. */
#ifndef CONSENSUS_RAFT_EDGE_H
#define CONSENSUS_RAFT_EDGE_H

#include <raft.h>

#include "consensus/configuration.h"

/* A message may raise the term by at most this; a larger step counts as garbage. */
#define RAFT_EDGE_TERM_STEP_MAX (UINT64_C(1) << 32)

/* Of a server that this one leads. All are forgotten when the term changes. */
struct raft_edge_peer {
    uint64_t id;    /* 0: this place is free */
    uint64_t asked; /* the last entry of the snapshot that the core wants sent to it; 0: none */
    uint64_t round; /* the last that it has answered: see replica_round.c */
    /* Entries that the core has sent to it. Those up to `sent` have left, unless it has rejected
     * one since; then come `left` that wait to leave: see replica_send.c. */
    uint64_t sent, sent_term, left;
    uint64_t sent_ms; /* when it was sent its last APPEND */
    bool waits;       /* for the disk */
};

struct raft_edge {
    struct raft *raft;
    void *ctx;
    /* Gives one event to raft_edge_step(), and carries out its result. */
    void (*step)(void *ctx, struct raft_event *event);
    uint64_t (*term_of)(void *ctx, uint64_t index); /* of the entry there; 0: unknown */
    uint64_t id;
    unsigned election_ms, heartbeat_ms;
    struct changes changes; /* of the log; the owner adds and removes them */
    uint64_t told;          /* changes up to this one were reported to the core as committed */
    /* The owner sets these before each call. */
    uint64_t now_ms;     /* never goes back */
    bool sends_snapshot; /* to the sender of the message at hand */
    bool leader_gone;    /* the leader's process has surely ended: its followers need not wait for
                            their timers */
    bool paused;         /* the process was stopped a moment ago, so that messages may still wait in
                            its sockets. Meanwhile no leader is given up. */
    /* Private from here on. */
    uint64_t heard_ms; /* the last word of the leader */
    uint64_t sent_ms;  /* the last APPEND to any peer */
    bool refused;      /* the last answer to a vote request */
    bool outdated;     /* the message at hand is of an old leader */
    struct raft_edge_peer peers[MEMBERS_MAX];
    uint64_t campaigns; /* election timers that were made to run out; for tests */
};

/* Gives a message to the core, as far as the core may see it: in pieces, so that at most the first
 * entry of an event is a change. 0; FL_EPROTO: no correct peer sends this, and its connection
 * should be closed. */
int raft_edge_receive(struct raft_edge *e, struct raft_message *message) FLI_MUST_USE;

/* Gives an event of the present time to raft_step(), whose error it returns. Checks the messages of
 * the update, and may change them. The entries of an APPEND are added to the peer's `left`. */
int raft_edge_step(struct raft_edge *e, struct raft_event *event, struct raft_update *ret);

/* Tells the core that the changes up to this index are committed. */
void raft_edge_tell_changes(struct raft_edge *e, uint64_t last);

/* Entries up to this one are surely committed: a change is as well when another one follows it. */
uint64_t raft_edge_committed(const struct raft_edge *e);

/* The place of a member; while this server leads it stays the same. */
struct raft_edge_peer *raft_edge_peer(struct raft_edge *e, uint64_t id);

/* Runs the core's timer; to be called at the time that raft_edge_timeout_ms() returns. */
void raft_edge_timeout(struct raft_edge *e);
uint64_t raft_edge_timeout_ms(const struct raft_edge *e);

/* A follower knows of no leader any more, and may vote. */
void raft_edge_forget_leader(struct raft_edge *e);

/* The time since this follower last heard its leader; 0 when it has none or has never heard it. */
uint64_t raft_edge_silence_ms(const struct raft_edge *e, uint64_t now_ms);

/* Makes the election timer run out now, unless this node leads: a follower becomes a candidate, and
 * a candidate begins again. Returns whether the node is a candidate then. A node that has no vote,
 * or has entries that are not on disk yet, stays what it is. Not from within a step. */
bool raft_edge_campaign(struct raft_edge *e);

#endif
