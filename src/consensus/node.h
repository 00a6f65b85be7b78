/* node.h: one member of the cluster: raft, the machine it replicates, and one way in for commands.
 *
 * A command handed to node_submit() on any node is executed on the leader: directly when this node
 * leads, over the link to the leader when it follows, and after a bounded time of holding when
 * nobody leads. Exactly one callback comes for each accepted ticket, never inside node_submit():
 *
 *   status 0       `result` (and `payload` of a query) is what the machine answered; committed
 *   FL_ENOLEADER   refused: nobody led for hold_ms, or the node is stopping; surely not done
 *   FL_EBUSY       refused: the leader has more pending than it accepts; surely not done
 *   FL_EUNCERTAIN  it was proposed, and leadership or the link was lost before the outcome was
 *                  known
 *
 * Queries are linearizable: they are answered behind an entry that was proposed after they arrived.
 * A query is never uncertain: it is held, and then asked again.
 *
 * The first time ever, all members must be up: a cluster is formed, and answers its first command,
 * when every member knows the incarnation of every other, on disk. From then on a majority is
 * enough, and a member that comes back with an empty disk is recognised by any one of the others
 * (see identity.h and node_forget).
 *
 * Everything runs on the caller's uv loop, in its thread. SIGPIPE must be ignored by the process;
 * node_create does so if it still has its default action. */
#ifndef CONSENSUS_NODE_H
#define CONSENSUS_NODE_H

#include <uv.h>

#include "base/turn.h"
#include "consensus/node_change.h"
#include "consensus/ticket.h"
#include "machine/machine.h"
#include "metrics/histogram.h"
#include "peer/transport.h"

struct node;

#define NODE_HOLD_MS 3000u       /* the default of hold_ms */
#define NODE_REPORT_OLD_MS 5000u /* what a node told is not believed for longer */

struct node_config {
    uint64_t id;                     /* 1.. */
    const char *data_dir;            /* exists or can be made; locked against a second process */
    const char *peer_address;        /* HOST:PORT to bind for other nodes; NULL: as in members */
    const char *client_address;      /* HOST:PORT told to clients and other nodes */
    struct security_config security; /* by which the nodes know each other; nothing: by nothing */
    /* How to begin, with an empty directory: the cluster as configured; or, when it joins one that
     * is there, some of its nodes, and this node. Later the log says who is a member. */
    const struct members *members;
    bool joins;
    const char *witness; /* a file on another disk, see starts_witness.h; NULL: none. Must stay */
    bool witness_reset;  /* it is made anew */
    struct machine_limits limits; /* proposed by the first leader of a new cluster */
    struct fli_turn *turn;        /* of the loop, which others begin and end; may be NULL */
    unsigned heartbeat_ms;        /* 0: default */
    unsigned election_ms;         /* 0: default */
    unsigned hold_ms;             /* how long a command waits for a leader; 0: default */
    size_t pending_max;           /* bytes of commands that may wait; 0: default */
    uint64_t snapshot_bytes;      /* log bytes between snapshots; 0: default */
    /* For tests, which have small states and short logs. 0: default. */
    uint64_t snapshot_entries;  /* between snapshots, however few bytes they have */
    unsigned log_kept_entries;  /* behind a snapshot, at least 2: what late followers need */
    uint64_t log_segment_bytes; /* as in struct log_config, like the next one */
    size_t log_cache_bytes;
};

enum node_role { NODE_FOLLOWER, NODE_CANDIDATE, NODE_LEADER, NODE_STOPPED };

/* Backups of this process. */
struct backup_counts {
    uint64_t made;   /* read to their end */
    uint64_t failed; /* could not be made, or nobody read them to their end */
    uint64_t age_ms; /* of the newest one, since it was read to its end; 0 when there is none */
};

struct node_status {
    uint64_t id, leader_id, term;
    enum node_role role;
    const char *leader_client_address; /* NULL when unknown; valid until the loop runs again */
    uint64_t commit_index, applied_index, last_index, snapshot_index;
    uint64_t batches, commands, queries, bytes_proposed; /* by this node as leader, since start */
    uint64_t relayed, held, uncertain, leader_changes;
    uint64_t heartbeats_missed; /* of leaders, while each led; those that came within two beats do
                                 * not count */
    uint64_t silence_ms_max;    /* the longest between two messages of one leader's */
    uint64_t pending_bytes, pending_commands, in_flight;
    uint64_t snapshots, snapshot_last_ms, snapshot_last_bytes; /* taken by this node */
    struct backup_counts backups;
    uint64_t snapshot_age_ms; /* since this process has taken or got one; since start before that */
    uint64_t snapshot_failures; /* not taken, not sent, not received: tried again each time */
    uint64_t restores;          /* snapshots it started from or got from a leader */
    const char *log_engine;     /* how the log is written: "io_uring", or "thread: " and why */
    uint64_t log_writes, log_write_ns_sum, log_write_ns_max, log_segments, log_bytes;
    uint64_t held_bytes, held_limit; /* commands that wait for a leader, or are with it */
    uint64_t pending_limit;          /* of those that wait to be proposed */
    uint64_t log_memory;             /* entries kept, and those not durable yet */
    uint64_t log_recycled;           /* segments that were used again */
    uint64_t starts; /* how often the data directory was started, this one counted */
    bool has_witness;
    uint64_t witness_index; /* that it has; 0: it is being written */
    bool log_waits;         /* no segment is ready: the disk is full, or slow */
    unsigned election_ms, heartbeat_ms, hold_ms; /* that count now */
};

/* How long things took, since start. */
struct node_times {
    struct metrics_histogram log_write; /* until it was on disk */
    struct metrics_histogram commit;    /* an entry of this leader's, from proposal to applying */
    struct metrics_histogram apply;     /* each entry */
    struct metrics_histogram relay;     /* a command to the leader and its answer back */
};

struct node_callbacks {
    void *ctx;
    machine_event_cb event; /* every event of the applied log, in order, on every node */
    /* Of the applied log: ACQUIRE of what is held, RENEW or RELEASE with a stale token; or NULL. */
    void (*refused)(void *ctx, const struct machine_command *c, const struct machine_result *r);
    void (*restored)(void *ctx);   /* a snapshot replaced the state: events were skipped. Comes
                                    * between the events before and behind; may be NULL */
    void (*leadership)(void *ctx); /* role or leader changed; ask node_status() */
    machine_event_cb push; /* GRANTED and WAIT_ENDED of a wait that this node relayed, told by the
                             * leader ahead of the local log, which brings the same event again */
    void (*fatal)(void *ctx, int error,
                  const char *message); /* the node cannot go on; stop the process */
    /* level: 1 error, 2 warning, 3 info, 4 debug. part: a word, which part of the node says it.
     * message: words, and behind them what programs may want as key=value. May be NULL. */
    void (*log)(void *ctx, int level, const char *part, const char *message);
    /* CLUSTER CONFIG has changed what is said for all nodes; comes after a start as well, unless
     * nothing is said. May be NULL. */
    void (*settings)(void *ctx, const struct machine_settings *settings);
};

/* Opens (and locks) the data directory, checks that it belongs to this id and cluster, recovers the
 * log and listens for peers. 0 or a code, and *errmsg (errmsg_size bytes) says what to do. When it
 * fails late it runs the loop until everything has closed, so it must not be called from a callback
 * of the loop. */
int node_create(uv_loop_t *loop, const struct node_config *config, const struct node_callbacks *cbs,
                struct node **ret, char *errmsg, size_t errmsg_size) FLI_MUST_USE;

/* Copies the encoded command (as machine_command_encode makes it). 0; FL_EBUSY, FL_ENOLEADER
 * (stopping): then no callback comes. */
int node_submit(struct node *n, struct node_ticket *t, const void *command, size_t len,
                node_ticket_cb cb) FLI_MUST_USE;

void node_get_status(struct node *n, struct node_status *ret);
void node_get_times(const struct node *n, struct node_times *ret);
bool node_serves(const struct node *n); /* it leads, and takes commands */
/* Within `event`: when the first command of the entry came, as fli_clock_ns() has it; 0 when
 * another node proposed it. */
uint64_t node_applying_since_ns(const struct node *n);
struct machine *node_machine(struct node *n); /* the local replica: may lag; for INFO and tests */

/* What a node tells the others of itself, once a second. */
struct node_report {
    enum node_role role;
    bool log_waits;
    uint64_t term, commit_index, applied_index;
    uint64_t disk_bytes, disk_free_bytes; /* of the data directory; 0: not known */
    uint64_t lag; /* entries it lacked when it was heard, as this node reckons; not told */
};

/* Members and what is known of them, for CLUSTER and INFO. */
struct node_member {
    uint64_t id;
    const char *peer_address;
    const char *client_address; /* NULL when never heard */
    bool voter, leader, self;
    bool member;      /* else it is waited for */
    uint32_t version; /* that it knows; 0: it has not said */
    enum node_member_plan { NODE_STAYS, NODE_COMES, NODE_GOES, NODE_IS_REPLACED } plan;
    bool connected; /* as far as this node knows: to itself, from the leader to its followers and
                     * from a follower to its leader */
    uint64_t match_index; /* leader only, else 0 */
    /* As this node knows it; 0: not. The newest start of that one, and the entry up to which it has
     * told that its disk has all that is committed. */
    uint64_t starts, kept_index;
    /* The last that it told, NODE_REPORT_OLD_MS ago at most; else NULL. Valid until the loop runs
     * again. */
    const struct node_report *report;
};
size_t node_members(struct node *n, struct node_member *ret, size_t max);

/* How the nodes know each other. */
void node_get_security(const struct node *n, struct transport_security *ret);
void node_reload(struct node *n); /* reads the files of that again; the log says what came of it */

/* Members that come, go, move and are replaced: see node_change.h and membership.h. ADD, REMOVE and
 * REPLACE are answered when the log has what is to become of the node; whoever leads then sees to
 * it. FORGET is for a node whose data directory is lost, and that is down: it is refused by its
 * peers when it comes back empty, because it has forgotten what it voted for and acknowledged.
 * FORGET takes it out of the configuration, which makes a majority of the others hold everything
 * that was ever acknowledged, and then forgets its incarnation, and is answered. When the node
 * connects again, with whatever incarnation, it is added, brought up to date, and made a voter.
 *
 * 0, then cb comes once; or at once FL_ENOLEADER (this node does not lead, or is not ready),
 * FL_ENOTFOUND (not a member), FL_EINVAL (not an address; FORGET: this node itself), FL_EMISMATCH
 * (another node has that id or address), FL_ELIMIT (MEMBERS_MAX), FL_EBUSY (another change is in
 * progress; FORGET: the node is connected), FL_EDENIED (what would be left has no majority). cb: 0,
 * or as above; FL_EUNCERTAIN: leadership was lost; to ask the next leader again does no
 * harm. */
int node_change(struct node *n, const struct node_change *wanted, void (*cb)(void *ctx, int status),
                void *ctx) FLI_MUST_USE;

/* FORGET, as above. */
int node_forget(struct node *n, uint64_t id, void (*cb)(void *ctx, int status),
                void *ctx) FLI_MUST_USE;

/* Hands leadership to id (0: the best follower). 0, then cb comes once, with 0 or FL_ETIMEOUT (it
 * was not taken in time; this node may still lead); or at once FL_ENOLEADER (this node does not
 * lead), FL_ENOTFOUND (no such voter, or nobody to hand it to), FL_EBUSY (it is being handed over).
 */
int node_transfer(struct node *n, uint64_t id, void (*cb)(void *ctx, int status),
                  void *ctx) FLI_MUST_USE;

/* Graceful end: refuses new commands, hands leadership over when it leads and can, waits (bounded
 * by drain_ms) for what is pending, answers the rest, closes the log and the directory, then calls
 * cb, once, from the loop. Memory may be freed by node_destroy in cb or later. */
void node_stop(struct node *n, unsigned drain_ms, void (*cb)(void *ctx), void *ctx);
void node_destroy(struct node *n);

#endif
