/* raft_edge.h: what stands between the raft library's core and the messages of other nodes.
 *
 * The core (raft_step() of 0.22.1, packaged without its assertions) has defects that a message can
 * reach. Each is handled here, once, where the message passes; docs/RAFT.md tells each of them with
 * the smallest sequence that shows it, and tests/unit/consensus/test_raft_edge.c has a test for
 * each that fails without what stands here.
 *
 *   commit index    An APPEND from further back than what is committed takes the commit index back.
 *   beginning       An APPEND of the first entry of all is taken without a look at what is
 *                   compacted, and its entries are appended once more.
 *   changes         A change of the configuration that is not the first new entry of its message is
 *                   noted at the index of that first one; one that is committed by the message
 *                   which brings the next one, or later, is never taken for committed. A message is
 *                   therefore given to the core in pieces that each begin with a change, and what
 *                   is in front of a change is told as committed, which it is.
 *   late votes      An answer to a vote request that arrives when this node is no candidate any
 *                   more is judged by a field of another state's union.
 *   rejections      A rejection that later answers have overtaken takes a follower's next index
 *                   behind what it has confirmed; it is then never sent anything again.
 *   while a snapshot is sent, each rejection of a heartbeat makes the core send another one.
 *   heartbeats      Each time the leader's timer runs out, a follower that was not heard since the
 *                   time before counts as gone, and is sent new entries with heartbeats only. Two
 *                   whose heartbeats are due at different times are gone each time, and the first
 *                   entry behind a pause waits up to a heartbeat. The timer therefore waits until
 *                   all heartbeats are due.
 *   newer snapshots When one was not sent, and a newer one was taken meanwhile, heartbeats follow
 *                   the newer one, and the core ignores a rejection of anything but the older one:
 *                   that follower is sent nothing more while this leader leads.
 *   pre-votes       One that is refused for its old term is answered with the term it asked for, so
 *                   the newer term is never learnt; a candidate that cannot win then asks for ever.
 *   patience        A follower refuses a pre-vote until its own timer has run out, although its
 *                   leader has been silent for an election time (dissertation, section 9.6).
 *   impossible      An APPEND of another leader of our own term, or one that contradicts what is
 *                   committed, corrupts the core's state or asks it to shut down. So may a vote
 *                   request in somebody else's name, and a term that leaves no room for the next.
 *
 * Elections. The core has no function to begin one, but its timer can be made to run out: the time
 * that it is told is ours. It then asks for pre-votes, which whoever hears a leader refuses. So
 * nothing here can depose a leader that a majority hears.
 *
 * Pure: time comes in as an argument. The memory is the caller's. One thread. */
#ifndef CONSENSUS_RAFT_EDGE_H
#define CONSENSUS_RAFT_EDGE_H

#include <raft.h>

#include "base/base.h"
#include "peer/members.h"

/* A message may raise the term by so much; more is taken for garbage. */
#define RAFT_EDGE_TERM_STEP_MAX (UINT64_C(1) << 32)

struct raft_edge_stats {
    uint64_t commits_corrected;  /* messages that would have taken the commit index back */
    uint64_t beginnings_skipped; /* messages that began with the first entry of all */
    uint64_t messages_split;     /* since there was a change of the configuration in them */
    uint64_t votes_dropped;      /* answers that came too late */
    uint64_t rejections_dropped; /* overtaken */
    uint64_t rejections_corrected;
    uint64_t rejections_redirected; /* to the snapshot that was asked for */
    uint64_t rejections_expected;   /* of heartbeats, while a snapshot is on its way */
    uint64_t refusals_corrected; /* answers to pre-votes that kept the newer term to themselves */
    uint64_t impossible;         /* messages that no correct peer sends */
    uint64_t hurries;            /* election timers that were made to run out */
    uint64_t yields;             /* of these, for the sake of another candidate */
};

struct raft_edge {
    struct raft *raft;
    void *ctx;
    /* Gives one event to raft_step() and carries out what it asks for. Sets nothing but the time
     * beforehand. */
    void (*step)(void *ctx, struct raft_event *event);
    uint64_t (*term_of)(void *ctx, uint64_t index);      /* of the log; 0: not known */
    bool (*sends_snapshot)(void *ctx, uint64_t peer_id); /* one is on its way to this follower */
    /* Tells the core of the changes in front of this index that they are committed, as far as it
     * was not told. The index of the last one, or what was told last; 0: none. */
    uint64_t (*changes_committed)(void *ctx, uint64_t before);
    uint64_t id;
    unsigned election_ms, heartbeat_ms;
    /* Private from here on. */
    uint64_t now_ms;
    uint64_t skew_ms;      /* the core's clock is ahead of ours by so much */
    uint64_t change_index; /* entries up to this are committed, since a change follows */
    uint64_t heard_id;     /* the leader that was heard last, and when */
    uint64_t heard_ms;
    uint64_t gone_id; /* a peer that is known to be gone; 0: none */
    uint64_t sent_ms; /* an APPEND, to whom ever */
    bool paused;      /* the process has just stood still */
    bool muted;       /* vote requests are not sent */
    bool refused;     /* the last answer to a vote request */
    struct {
        uint64_t id, term, index;
    } asked[MEMBERS_MAX]; /* the last snapshot that the core wanted sent to each peer; id 0: none */
    struct raft_edge_stats stats;
};

/* Time for the core's events. */
raft_time raft_edge_time(const struct raft_edge *e);

/* Gives a message to the core, as far as it may have it. Entries may be changed: `batch` of each is
 * set to memory that the core frees, or that is found in its update. 0; FL_EPROTO: no correct peer
 * sends this, and its connection should be closed. */
int raft_edge_receive(struct raft_edge *e, uint64_t now_ms,
                      struct raft_message *message) FLI_MUST_USE;

/* A message on its way out, which may be changed. False: it is not sent. */
bool raft_edge_send(struct raft_edge *e, struct raft_message *message);

/* The core's timer: to be called when raft_edge_timeout_ms() has come. */
void raft_edge_timeout(struct raft_edge *e, uint64_t now_ms);
uint64_t raft_edge_timeout_ms(const struct raft_edge *e);

/* Tells whether the process has just been stopped, so that messages may still wait in its sockets.
 * Meanwhile no leader is given up. */
void raft_edge_set_paused(struct raft_edge *e, bool paused);

/* Names a peer whose process has surely ended; 0: none. Its followers need not wait for their
 * timers. */
void raft_edge_set_gone(struct raft_edge *e, uint64_t id);

/* How long ago this follower heard its leader; 0 when it has none or has not heard it. */
uint64_t raft_edge_silence_ms(const struct raft_edge *e, uint64_t now_ms);

/* Makes the election timer run out now, unless this node leads: a follower becomes a candidate, and
 * a candidate begins again. Whether it is a candidate then (a node that has no vote, or has entries
 * that are not on disk yet, stays what it is). Not from within a step. */
bool raft_edge_campaign(struct raft_edge *e, uint64_t now_ms);

#endif
