/* raft_edge.h: the filter between the raft library ("the core") and the messages of other nodes.
 *
 * The core (raft_step() of 0.22.1, packaged without its assertions) has defects that a message can
 * reach. Each is handled here, once, where the message passes. src/consensus/RAFT.md lists them;
 * tests/unit/consensus/test_raft_edge*.c has a test for each, with the smallest sequence that shows
 * it, which fails without the code here.
 *
 *   old entries     An APPEND that starts further back than the commit index may lower that index.
 *                   With the very first entry it is accepted although that is compacted, and its
 *                   entries are appended once more; behind any other compacted entry it is refused,
 *                   and a leader that knows no better repeats it for ever. So the core is shown
 *                   nothing that is committed.
 *   changes         A change of the configuration that is not the first new entry of its message is
 *                   noted at the index of that first one. A change that is committed only by the
 *                   message that brings the next change, or later, never counts as committed. So a
 *                   message is given to the core in pieces that each begin with a change, and the
 *                   entries in front of a change are told as committed, which they are.
 *   late votes      When the answer to a vote request arrives after this node's candidacy, the core
 *                   reads it with a field of another state's union.
 *   rejections      A rejection that later answers have overtaken sets a follower's next index
 *                   below what it has confirmed; the core then sends it nothing again.
 *   while a snapshot is sent, each rejection of a heartbeat makes the core send another one.
 *   heartbeats      Each time the leader's timer runs out, a follower that was not heard since the
 *                   time before counts as gone, and gets new entries with heartbeats only. Two
 *                   followers whose heartbeats are due at different times are gone each time, and
 *                   the first entry after a pause waits up to a heartbeat. So the timer waits until
 *                   all heartbeats are due.
 *   repetitions     A follower that was silent for a heartbeat, with a slow disk say, is sent all
 *                   entries that it has not confirmed, again at each heartbeat. So a repetition has
 *                   one entry; once that is confirmed, the others follow at once.
 *   newer snapshots When a snapshot was not sent and a newer one was taken meanwhile, heartbeats
 *                   follow the newer one. The core ignores a rejection of anything but the older
 *                   one, so that follower gets nothing more while this leader leads.
 *   old leaders     The answer to an old leader has an index that was never set, and rejects
 *                   nothing when its message began with the first entry. Who gets it may lead in
 *                   the term of the answer by then, and takes it for a confirmation of entries
 *                   that this follower lacks. So such an answer tells the term and nothing else.
 *   pre-votes       A pre-vote request refused for its old term is answered with the term it asked
 *                   for, so the candidate never learns the newer term. A candidate that cannot win
 *                   then asks for ever.
 *   candidates      A candidate that had its pre-votes once and was not elected never asks for them
 *                   again. When it is cut off, or removed, its term rises at each timeout, and it
 *                   raises that of everybody who still hears it. So it begins with pre-votes anew.
 *   patience        A follower refuses a pre-vote until its own timer has run out, although its
 *                   leader has been silent for an election time (dissertation, section 9.6).
 *   learners        A server that is a learner by its own log gives no vote, also when the change
 *                   that makes it a voter is committed and has not reached it. A majority may then
 *                   be up that elects nobody. So a learner votes: whoever asks for its vote counts
 *                   it as what it is (dissertation, section 4.2.2).
 *   impossible      An APPEND of another leader of our own term, or one that contradicts committed
 *                   entries, corrupts the core's state or makes it ask for a shutdown. So may a
 *                   vote request in another node's name, and a term that leaves no next one.
 *
 * Elections. The core has no function to begin one, but its timer can be made to run out, since its
 * time is told to it from here. It then asks for pre-votes, which every node that hears a leader
 * refuses. So nothing here can depose a leader that a majority hears.
 *
 * Pure: time comes in as an argument. The caller owns the memory. One thread. */
#ifndef CONSENSUS_RAFT_EDGE_H
#define CONSENSUS_RAFT_EDGE_H

#include <raft.h>

#include "base/base.h"
#include "peer/members.h"

/* A message may raise the term by at most this; a larger step counts as garbage. */
#define RAFT_EDGE_TERM_STEP_MAX (UINT64_C(1) << 32)

struct raft_edge_stats {
    uint64_t committed_skipped;  /* messages that began with committed entries, or behind one */
    uint64_t messages_split;     /* because they contained changes of the configuration */
    uint64_t votes_dropped;      /* answers that came too late */
    uint64_t rejections_dropped; /* overtaken */
    uint64_t rejections_corrected;
    uint64_t rejections_expected;   /* of heartbeats, while a snapshot is on its way */
    uint64_t refusals_emptied;      /* answers to old leaders */
    uint64_t repetitions_shortened; /* messages with entries that were sent before */
    uint64_t pre_votes_again;       /* by candidates that were not elected */
    uint64_t impossible;            /* messages that no correct peer sends */
    uint64_t campaigns;             /* election timers that were made to run out */
    uint64_t yields;                /* of these, in favour of another candidate */
};

struct raft_edge {
    struct raft *raft;
    void *ctx;
    /* Gives one event to raft_step() and carries out its result. It sets only the time
     * beforehand. */
    void (*step)(void *ctx, struct raft_event *event);
    uint64_t (*term_of)(void *ctx, uint64_t index);      /* of the entry there; 0: unknown */
    bool (*sends_snapshot)(void *ctx, uint64_t peer_id); /* a snapshot is being sent to this
                                                            follower */
    /* Tells the core that the changes in front of this index are committed, unless it was told
     * before. Returns the index of the last change that it was told of; 0: none. */
    uint64_t (*changes_committed)(void *ctx, uint64_t before);
    uint64_t id;
    unsigned election_ms, heartbeat_ms;
    /* Private from here on. */
    uint64_t now_ms;
    uint64_t skew_ms;      /* the core's clock is ahead of real time by this much */
    uint64_t change_index; /* entries up to this one are committed, since a change follows them */
    uint64_t heard_id;     /* the leader that was heard last, and when */
    uint64_t heard_ms;
    uint64_t gone_id; /* a peer that has surely ended; 0: none */
    uint64_t sent_ms; /* the last APPEND to any peer */
    bool paused;      /* the process was stopped a moment ago */
    bool muted;       /* vote requests are not sent */
    bool refused;     /* the last answer to a vote request */
    bool outdated;    /* the message at hand is of an old leader */
    struct {
        uint64_t id;                      /* 0: free */
        uint64_t asked_term, asked_index; /* the last snapshot that the core wanted sent to it */
        uint64_t sent_term, sent_prev;    /* the last entries that it was sent */
    } peers[MEMBERS_MAX];
    struct raft_edge_stats stats;
};

/* The present time for the core's events. */
raft_time raft_edge_time(const struct raft_edge *e);

/* Gives a message to the core, as far as the core may see it. Entries may be changed: the `batch`
 * of each is set to memory that the core frees, or that is found in its update. 0; FL_EPROTO: no
 * correct peer sends this, and its connection should be closed. */
int raft_edge_receive(struct raft_edge *e, uint64_t now_ms,
                      struct raft_message *message) FLI_MUST_USE;

/* Checks a message on its way out, and may change it. False: it is not sent. */
bool raft_edge_send(struct raft_edge *e, struct raft_message *message);

/* None of the entries of the last message to this peer has left: the next is no repetition. */
void raft_edge_unsent(struct raft_edge *e, uint64_t to);

/* Runs the core's timer; to be called at the time that raft_edge_timeout_ms() returns. */
void raft_edge_timeout(struct raft_edge *e, uint64_t now_ms);
uint64_t raft_edge_timeout_ms(const struct raft_edge *e);

/* A follower knows of no leader any more, and may vote. */
void raft_edge_forget_leader(struct raft_edge *e);

/* Tells whether the process was stopped a moment ago, so that messages may still wait in its
 * sockets. Meanwhile no leader is given up. */
void raft_edge_set_paused(struct raft_edge *e, bool paused);

/* Names a peer whose process has surely ended; 0: none. Its followers need not wait for their
 * timers. */
void raft_edge_set_gone(struct raft_edge *e, uint64_t id);

/* The time since this follower last heard its leader; 0 when it has none or has never heard it. */
uint64_t raft_edge_silence_ms(const struct raft_edge *e, uint64_t now_ms);

/* Makes the election timer run out now, unless this node leads: a follower becomes a candidate, and
 * a candidate begins again. Returns whether the node is a candidate then. A node that has no vote,
 * or has entries that are not on disk yet, stays what it is. Not from within a step. */
bool raft_edge_campaign(struct raft_edge *e, uint64_t now_ms);

#endif
