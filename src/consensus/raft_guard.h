/* raft_guard.h: a raft_io between the raft library and its backend, for what the library does not
 * guard against itself. Read from the source of 0.22.1, which is packaged without its assertions:
 *
 * - A snapshot from the leader that arrives while this node writes one of its own makes the library
 *   dereference a null pointer when the write is done; one that arrives while another is being
 *   installed is leaked. Both are dropped here until the write is done: to raft it is a lost
 *   message, and the leader sends again after raft_set_install_snapshot_timeout().
 * - The library sends heartbeats behind a snapshot that it still reads from the disk, takes the
 *   follower's refusal of one for news, and reads and sends the snapshot again, with each
 *   heartbeat: a leader with a million locks had 3 GB of snapshots under way. Refusals are not
 *   passed on while a snapshot is read, nor for three seconds after it was sent those of its index.
 * - A write of entries, snapshot, term or vote that fails is forgotten, and the node goes on in
 *   memory with what is not on disk. Here it is fatal: the callback is told once, and from then on
 *   raft hears and says nothing more, so that no promise leaves the node that its disk does not
 *   keep. The process must stop; Raft is made to survive that.
 *   In the event in which a term, a vote or a truncation fails, raft would free the entries that
 *   came with it twice. It is told that all is well, and what it writes then waits for the close.
 * - The libuv backend itself never reports a write of entries that failed: it wants to try again
 *   five seconds later, but starts the wrong timer for it (uv_append.c: prepare_retry in place of
 *   append_retry), and dies of a null pointer when that runs out. All that shows the failure is the
 *   backend's message while the write still waits, so each tick looks at it, and it is fatal here,
 *   in order. A disk that is merely full does not come here: room for a segment is reserved before
 *   it is written, and that is what waits. Nor does one that hangs, see append_waiting_ns.
 * - Cutting the log off may fail, and the library goes on writing behind what should be gone; see
 *   cut.h, which is asked before each cut, and after the first write behind it.
 * - A snapshot for a follower is announced with index and term of the newest one known, and then
 *   read from disk. When a newer one was written in between, the library corrects the index and not
 *   the term. The follower would record a wrong term for a committed entry, refuse its leader for
 *   ever, and might vote for a candidate that lacks committed entries. The term is corrected here.
 * - One that cannot be read back makes the library free memory it never set. That failure is fatal
 *   here and not told to raft (whose request is leaked, once).
 * - A message that cannot be sent at once is reported to raft in the middle of an event, which then
 *   frees entries twice, or tells the proposer that an entry it has appended has failed. Here it is
 *   a lost message. The same once the close has begun, when the transport is gone already.
 * - An answer to a vote request that comes when this node is no candidate any more is judged by a
 *   byte of some pointer (a field of another state's union), and now and then deposes a healthy
 *   leader. Nobody needs that answer: it is dropped.
 * - Entries or a heartbeat from further back in the log than what is committed here, which an
 *   overtaken message can be, make the library take its commit index back. If it then takes a
 *   snapshot, that is labelled with the smaller index and holds the state of the larger one: a
 *   replica restored from it applies entries twice. Such a message keeps its entries and loses its
 *   commit index here.
 * - The libuv backend seeds its random numbers with two clocks that run at the same pace, one
 *   exclusive-or the other, which is nearly a constant: two nodes of one host that start within the
 *   same second often draw the same numbers, and then time out at the same moment, every time, vote
 *   for themselves, and never elect anybody. Raft's seed comes from the kernel here.
 * - The library's tick may come before the sockets are read. After a pause of this process a leader
 *   would step down, and a follower would call an election, with the answers and heartbeats of the
 *   others waiting in its sockets. The first tick after a pause is left out.
 * - A follower refuses a pre-vote until its own election timer has run out, although its leader has
 *   been silent for longer than the shortest one: with three nodes, fail-over takes the longer of
 *   two random times. Here it takes the shorter one, which is what Raft says (section 9.6 of the
 *   dissertation): see raft_guard_set_patience().
 * - A change of the configuration that is not the first new entry of its message is noted by a
 *   follower with the index of that first one. It is then never seen to be committed: as a leader
 *   this node refuses every further change, and it might not roll one back that is cut off. The
 *   index is corrected here, and such a message loses its commit index.
 * - A change of the configuration that is committed by the message which brings the next one, or
 *   comes in the same message, is never taken for committed. A snapshot that is taken between the
 *   two then carries the configuration before both, and a next one that is cut off is rolled back
 *   to that. The first one is noted as committed here, which it is, since there is a next one.
 *   A snapshot that is taken while raft has applied a change and not yet noted that it is committed
 *   is given the configuration of that change.
 * - A pre-vote that is refused because its term is over is answered with the term it asked for, so
 *   whoever asked never learns of the newer one. When that is the only node which has the whole
 *   log, and one node more is up, neither can ever be elected. The answer has the newer term here.
 * - When the backend cannot read its directory at start it frees pointers it never set. The stack
 *   on which they lie is cleared before. Its record of term and vote has no checksum: ballot.h.
 * - A follower's rejection that later answers have overtaken, which happens when a stream is opened
 *   again, makes a leader that is still finding out where to begin go back behind what the follower
 *   has confirmed. The number of entries on their way is then computed as one below zero, and the
 *   leader sends this follower nothing more as long as it leads. Such a rejection is dropped here,
 *   or loses the part that is over.
 * What no guard can do: raft_set_snapshot_trailing() and the smallest value ever given to
 *   raft_set_snapshot_threshold() must both be above raft_set_max_inflight_entries(). A follower
 *   may be ahead of what the leader knows by the entries in flight. When it has taken a snapshot of
 *   those and keeps no entry from before them, the leader asks for one that is gone, goes further
 *   back at each refusal, sends a snapshot that the follower does not need, and begins again, until
 *   it happens to take a newer one itself.
 *
 * How it sits in between. Raft sees `outer`, whose functions are the guard's; the backend sees
 * `inner`. `impl` of each belongs to its implementation. `data` belongs to raft: the libuv backend
 * reads it from inner to reach raft, so it is copied there before anything else happens. capacity
 * is read by raft from outer right after it asked for the time, and is brought up to date then.
 *
 * Elections. Raft has no function to begin one, but its timer can be made to run out: the guard is
 * what raft asks for the time, and what ticks. Nothing else is done to it: it asks for pre-votes,
 * and whoever hears a leader refuses. So nothing here can depose a leader that a majority hears,
 * whatever the caller believes of it.
 *
 * Ownership: the caller's memory, which must stay until raft has closed. One thread. */
#ifndef CONSENSUS_RAFT_GUARD_H
#define CONSENSUS_RAFT_GUARD_H

#include <raft.h>

#include "base/base.h"
#include "base/list.h"
#include "consensus/ballot.h"

struct raft_guard_stats {
    uint64_t appends; /* writes of entries that are on disk */
    uint64_t entries; /* entries in them */
    uint64_t append_ns_sum, append_ns_max;
    uint64_t
        append_waiting_ns;  /* how long the oldest write in progress has been waiting; 0: none */
    uint64_t snapshots_put; /* own snapshots written */
    uint64_t snapshots_installed; /* snapshots of a leader written */
    uint64_t snapshots_dropped;   /* messages held off, see above */
    uint64_t refusals_dropped;    /* of what comes behind a snapshot, likewise */
    uint64_t snapshots_corrected; /* messages whose term was that of an older snapshot */
    uint64_t commits_corrected;   /* messages that would have taken the commit index back */
    uint64_t changes_corrected;   /* changes of the configuration noted with a wrong index */
    uint64_t changes_kept;        /* changes that raft would not have seen to be committed */
    uint64_t labels_corrected;    /* own snapshots, see above */
    uint64_t refusals_corrected;  /* answers to pre-votes that kept the newer term to themselves */
    uint64_t votes_dropped;       /* answers that came too late, see above */
    uint64_t rejections_dropped;  /* the same of entries */
    uint64_t rejections_corrected;
    uint64_t sends_failed;  /* messages lost before they left */
    uint64_t ticks_dropped; /* after a pause */
    uint64_t hurries;       /* election timers that were made to run out */
    uint64_t yields;        /* of these, for the sake of another candidate */
};

struct raft_guard {
    struct raft_io outer; /* for raft_init */
    struct raft_io *inner;
    void (*fatal)(void *ctx, int error, const char *message); /* at most once */
    void *ctx;
    const char *path;      /* of the log; NULL: not in files */
    struct ballot *ballot; /* set by the caller, written before the backend's record; or NULL */
    bool (*stranger)(void *ctx, raft_id id);
    /* Private from here on. */
    raft_io_tick_cb tick;
    raft_io_recv_cb recv;
    raft_io_close_cb closed;
    unsigned gets;         /* snapshots that are read for followers */
    raft_index sent_index; /* of the snapshot last sent to one, and when; 0: none */
    raft_time sent_ms;
    unsigned puts;               /* snapshot writes in progress */
    bool put_held;               /* the next write of an own snapshot waits */
    struct guarded_put *waiting; /* it does; NULL: none */
    raft_index loaded_index;     /* of the snapshot being handed to raft; 0: none */
    raft_term loaded_term;
    bool closing;
    bool failed;
    struct fli_list appending;
    struct fli_list held;    /* writes of entries after a failure: they wait for the close */
    struct fli_list delayed; /* writes of entries that wait, see raft_guard_delay_appends() */
    raft_index next_index;   /* of the next entry that is written */
    raft_index cut_at;       /* no entry was written since the log was cut here; 0: not so */
    bool delays;
    struct raft_guard_stats stats;
    unsigned election_ms, heartbeat_ms; /* 0: no patience was set */
    raft_time ticked_at;
    bool tick_dropped; /* the last one */
    raft_time skew_ms; /* raft's clock is ahead of the backend's by so much */
    raft_id heard_id;  /* the leader that was heard last */
    raft_time heard_at;
    raft_id gone_id; /* a peer that is known to be gone; 0: none */
    bool muted;      /* vote requests are not sent */
    bool refused;    /* the last answer to a vote request */
};

/* inner: initialised (raft_uv_init), not yet given to raft. fatal may be NULL. */
void raft_guard_init(struct raft_guard *g, struct raft_io *inner,
                     void (*fatal)(void *ctx, int error, const char *message), void *ctx);

/* Puts the guard between a raft that was initialised with `inner` already and its backend; before
 * raft_start. */
void raft_guard_attach(struct raft_guard *g, struct raft *r);

/* As raft was told: from now on ticks after a pause are left out, and a follower that is asked for
 * a pre-vote gives its leader up when it has not heard it for election_ms; or for one and a half
 * heartbeats, when it is the one of raft_guard_set_gone(). Not for raft with a clock that is
 * played. */
void raft_guard_set_patience(struct raft_guard *g, unsigned election_ms, unsigned heartbeat_ms);

/* The directory of the log, which messages name and cut.h looks at; the caller's, which must
 * outlive the guard. */
void raft_guard_set_path(struct raft_guard *g, const char *path);

/* Whether raft must not hear a peer, nor be heard by it; ctx as of raft_guard_init. */
void raft_guard_set_stranger(struct raft_guard *g, bool (*stranger)(void *ctx, raft_id id));

/* A peer whose process is surely gone; 0 for none. */
void raft_guard_set_gone(struct raft_guard *g, raft_id id);

/* How long ago this follower heard its leader; 0 when it has none or has not heard it. */
raft_time raft_guard_silence_ms(const struct raft_guard *g);

/* Makes raft's election timer run out now, unless it leads: a follower becomes a candidate, and a
 * candidate begins again. Whether it is a candidate now (a node that has no vote, or has entries
 * that are not on disk yet, stays what it is). Not from within a callback of raft. */
bool raft_guard_hurry(struct raft_guard *g);

/* Sends a message that means nothing to anybody, so that a broken connection is opened again. */
void raft_guard_nudge(struct raft_guard *g, raft_id id, const char *address);

/* The bytes of the snapshot that raft is about to write are not there yet: its write, which comes
 * next, waits for raft_guard_put_ready(), or until raft closes. Raft's buffers may be filled in
 * until then. Snapshots of a leader are held off meanwhile, as during the write itself. */
void raft_guard_hold_put(struct raft_guard *g);
void raft_guard_put_ready(struct raft_guard *g);

/* Around what makes a leader append entries: raft gives them to its disk first and then to the
 * others, and giving them to the disk takes this thread as long as sending them. Between these two
 * calls a write waits until the first of the others has been sent what it wants to write, whose way
 * is longer. A leader may send what it has not written (section 10.2.1 of the dissertation): raft
 * counts its own copy only when it is on disk. What must come after a write lets the waiting ones
 * go before. */
void raft_guard_delay_appends(struct raft_guard *g);
void raft_guard_append_now(struct raft_guard *g);

void raft_guard_get_stats(const struct raft_guard *g, struct raft_guard_stats *ret);

#endif
