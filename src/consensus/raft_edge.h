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

#include "base/base.h"
#include "peer/members.h"

/* A message may raise the term by at most this; a larger step counts as garbage. */
#define RAFT_EDGE_TERM_STEP_MAX (UINT64_C(1) << 32)

/* Of a server that this one leads; only members are sent anything. */
struct raft_edge_peer {
    uint64_t id;                      /* 0: this place is free */
    uint64_t asked_term, asked_index; /* the last snapshot that the core wanted sent to it */
    uint64_t sent_term, sent_prev;    /* the last entries that it was sent */
    uint64_t round;                   /* the last that it has answered: see replica_round.c */
    /* Entries that the core has sent to it and that have not left: see replica_send.c. */
    struct {
        uint64_t term;
        uint64_t prev_index, prev_term; /* of the entry in front of them */
        uint64_t left;                  /* entries; 0: there is no rest */
        uint64_t sent_ms;               /* when it was sent its last APPEND */
        bool waits;                     /* for the disk */
    } rest;
};

struct raft_edge {
    struct raft *raft;
    void *ctx;
    /* Gives one event of the present time to raft_step(), and carries out its result. */
    void (*step)(void *ctx, struct raft_event *event);
    uint64_t (*term_of)(void *ctx, uint64_t index);      /* of the entry there; 0: unknown */
    bool (*sends_snapshot)(void *ctx, uint64_t peer_id); /* a snapshot is being sent to this
                                                            follower */
    uint64_t (*committed)(void *ctx); /* entries up to this one are surely committed */
    /* A change stands at `before`. A leader makes one only once the change before it is committed,
     * even if a new leader that sends both does not know it yet. So the core is told that. */
    void (*changes_committed)(void *ctx, uint64_t before);
    uint64_t id;
    unsigned election_ms, heartbeat_ms;
    uint64_t now_ms;  /* never goes back; the owner sets it before each call */
    uint64_t gone_id; /* a peer whose process has surely ended; 0: none. Its followers need not wait
                         for their timers. */
    bool paused;      /* the process was stopped a moment ago, so that messages may still wait in
                         its sockets. Meanwhile no leader is given up. */
    /* Private from here on. */
    uint64_t heard_id; /* the leader that was heard last, and when */
    uint64_t heard_ms;
    uint64_t sent_ms; /* the last APPEND to any peer */
    bool refused;     /* the last answer to a vote request */
    bool outdated;    /* the message at hand is of an old leader */
    struct raft_edge_peer peers[MEMBERS_MAX];
    uint64_t campaigns; /* election timers that were made to run out; for tests */
};

/* Gives a message to the core, as far as the core may see it. Entries may be changed: the `batch`
 * of each is set to memory that the core frees, or that is found in its update. 0; FL_EPROTO: no
 * correct peer sends this, and its connection should be closed. */
int raft_edge_receive(struct raft_edge *e, struct raft_message *message) FLI_MUST_USE;

/* Checks a message on its way out, and may change it. */
void raft_edge_send(struct raft_edge *e, struct raft_message *message);

/* The place of a member; while this server leads it stays the same. */
struct raft_edge_peer *raft_edge_peer(struct raft_edge *e, uint64_t id);

/* None of the entries of the last message to it has left: the next is no repetition. */
void raft_edge_unsent(struct raft_edge_peer *p);

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
