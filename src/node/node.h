/* node.h: one member of the cluster: raft, the machine that it replicates, and one function that
 * takes commands.
 *
 * node_submit() takes a command on any node, and the leader executes it: directly when this node
 * leads, over the link to the leader when it follows, and after a bounded time of holding when no
 * node leads. Each accepted ticket gets exactly one callback, never inside node_submit():
 *
 *   status 0       `result` (and `payload` of a query) is what the machine answered; committed
 *   FL_ENOLEADER   refused: no node led for hold_ms, or the node is stopping; surely not done
 *   FL_EBUSY       refused: the leader has more pending than it accepts; surely not done
 *   FL_EUNCERTAIN  it was proposed, and leadership or the link was lost before the outcome was
 *                  known
 *
 * Queries are linearizable: they are answered behind an entry that was proposed after they arrived,
 * or once a majority has confirmed since then that this leader leads.
 * A query is never uncertain: it is held and asked again.
 *
 * When a new cluster starts, all its members must be up. It is formed, and answers its first
 * command, when every member knows the incarnation of every other, on disk. From then on a majority
 * is enough. A member that comes back with an empty disk is recognised by any other member (see
 * membership.h).
 *
 * Everything runs on the caller's uv loop, in its thread. The process must ignore SIGPIPE. */
#ifndef NODE_NODE_H
#define NODE_NODE_H

#include <uv.h>

#include "base/turn.h"
#include "members/node_change.h"
#include "consensus/peers.h"
#include "commands/ticket.h"
#include "log/log.h"
#include "machine/machine.h"
#include "metrics/histogram.h"
#include "peer/transport.h"

struct node;

/* Defaults. A follower starts an election after one to two election times without its leader. It
 * gets votes from nodes that have missed the leader for one election time. With three nodes, the
 * first of two followers starts after about one and a third. A busy machine must not make a live
 * leader look dead: ten heartbeats fit into one election time. A leader whose process has ended is
 * replaced sooner (election.h). */
#define NODE_ELECTION_MS 400u
#define NODE_HEARTBEAT_MS 40u
#define NODE_HOLD_MS 3000u

struct node_config {
    uint64_t id;                     /* 1.. */
    const char *data_dir;            /* made if absent; locked against a second process */
    const char *peer_address;        /* HOST:PORT to listen on for other nodes; NULL: as in
                                        members */
    const char *client_address;      /* HOST:PORT told to clients and other nodes */
    struct security_config security; /* how the nodes prove who they are; empty: they do not */
    /* How to begin with an empty directory: the configured cluster; or, when the node joins an
     * existing one, some of its nodes and this node. Later the log says who is a member. */
    const struct members *members;
    bool joins;                   /* an existing cluster */
    const char *witness;          /* a file on another disk, see starts.h; NULL: none. Must stay
                            valid */
    bool witness_reset;           /* the witness file is made anew */
    struct machine_limits limits; /* proposed by the first leader of a new cluster */
    struct fli_turn *turn;        /* of the loop; the caller begins and ends it; may be NULL */
    unsigned heartbeat_ms;        /* 0: default */
    unsigned election_ms;         /* 0: default */
    unsigned hold_ms;             /* how long a command waits for a leader; 0: default */
    size_t pending_max;           /* bytes of commands that may wait; 0: default */
    uint64_t snapshot_bytes;      /* log bytes between snapshots; 0: default */
    /* For tests with small states and short logs. 0: default. */
    uint64_t snapshot_entries;  /* entries between snapshots, whatever their bytes */
    unsigned log_kept_entries;  /* entries kept behind a snapshot for late followers, at least
                                   2 */
    uint64_t log_segment_bytes; /* as in struct log_config, as is the next one */
    size_t log_cache_bytes;
};

/* Backups of this process. */
struct backup_counts {
    uint64_t made;   /* read to their end */
    uint64_t failed; /* could not be made, or were not read to their end */
    uint64_t age_ms; /* since the newest one was read to its end; 0: there is none */
};

struct node_status {
    uint64_t id, leader_id, term;
    enum node_role role;
    bool founds; /* the nodes that form the cluster have not all met yet, and nobody leads */
    const char *leader_client_address; /* NULL when unknown; valid until the loop runs again */
    uint64_t commit_index, applied_index, last_index, snapshot_index;
    uint64_t batches, commands, queries, bytes_proposed; /* by this node as leader, since start */
    uint64_t relayed, held, uncertain, leader_changes;
    uint64_t heartbeats_missed; /* of leaders, while each led; those that came within two heartbeats
                                   do not count */
    uint64_t silence_ms_max;    /* the longest between two messages of one leader's */
    uint64_t pending_bytes, pending_commands;                  /* commands without an answer */
    uint64_t in_flight;                                        /* entries */
    uint64_t snapshots, snapshot_last_ms, snapshot_last_bytes; /* taken by this node */
    struct backup_counts backups;
    uint64_t clock_ms;          /* the cluster clock; on a follower as of the last entry */
    uint64_t snapshot_age_ms;   /* since this process made or received one, else since its start */
    uint64_t snapshot_failures; /* not made, sent or received; each is tried again */
    uint64_t restores;          /* snapshots loaded at the start or received from a leader */
    struct log_stats log;
    uint64_t pending_limit; /* limit on the bytes of commands without an answer */
    uint64_t starts;        /* starts of the data directory, including this one */
    bool has_witness;
    uint64_t witness_index;                      /* the index that it has; 0: it is being written */
    unsigned election_ms, heartbeat_ms, hold_ms; /* the values in force */
};

/* Durations since start. */
struct node_times {
    struct metrics_histogram log_write; /* until the write was on disk */
    struct metrics_histogram commit;    /* an entry of this leader's, from proposal to applying */
    struct metrics_histogram apply;     /* one entry */
    struct metrics_histogram relay;     /* a command to the leader, and its answer back */
};

struct node_callbacks {
    void *ctx;
    machine_event_cb event; /* every event of the applied log, in order, on every node */
    /* From the applied log: ACQUIRE of a held lock, RENEW or RELEASE with a stale token. May be
     * NULL. */
    void (*refused)(void *ctx, const struct machine_command *c, const struct machine_result *r);
    void (*restored)(void *ctx);   /* a snapshot replaced the state: events were skipped. Comes
                                    * between the events before and behind; may be NULL */
    void (*leadership)(void *ctx); /* role or leader changed; ask node_status() */
    machine_event_cb push; /* GRANTED and WAIT_ENDED of a wait that this node relayed, told by the
                             * leader ahead of the local log, which brings the same event again */
    void (*fatal)(void *ctx, int error,
                  const char *message); /* the node cannot go on; stop the process */
    /* level: 1 error, 2 warning, 3 info, 4 debug. part: one word for the part of the node. message:
     * a sentence, and behind it key=value pairs for programs. May be NULL. */
    void (*log)(void *ctx, int level, const char *part, const char *message);
    /* CLUSTER CONFIG has changed the settings of all nodes. Also called after a start, unless there
     * are no such settings. May be NULL. */
    void (*settings)(void *ctx, const struct machine_settings *settings);
};

/* Opens (and locks) the data directory, checks that it belongs to this id and cluster, recovers the
 * log and listens for peers. 0 or a code, and *errmsg (errmsg_size bytes) says what to do. When it
 * fails late, it runs the loop until everything is closed, so it must not be called from a callback
 * of the loop. */
int node_create(uv_loop_t *loop, const struct node_config *config, const struct node_callbacks *cbs,
                struct node **ret, char *errmsg, size_t errmsg_size) FLI_MUST_USE;

/* Copies the encoded command (from machine_command_encode()). 0; FL_EBUSY, FL_ENOLEADER (stopping):
 * then no callback comes. */
int node_submit(struct node *n, struct node_ticket *t, const void *command, size_t len,
                node_ticket_cb cb) FLI_MUST_USE;

void node_get_status(struct node *n, struct node_status *ret);
void node_get_times(const struct node *n, struct node_times *ret);
bool node_serves(const struct node *n); /* it leads, and takes commands */
/* Valid during `event`: the time (fli_clock_ns()) at which the first command of the entry came; 0
 * when another node proposed it. */
uint64_t node_applying_since_ns(const struct node *n);
struct machine *node_machine(struct node *n); /* the local replica: may lag; for INFO and tests */

/* A member and what is known of it, for CLUSTER and INFO. */
struct node_member {
    uint64_t id;
    const char *peer_address;
    const char *client_address; /* NULL: never told */
    bool voter, leader, self;
    bool member;      /* else the node is to be added */
    uint32_t version; /* the highest that it knows; 0: not told */
    enum machine_plan plan;
    bool connected; /* as far as this node knows: to itself, from the leader to its followers and
                       from a follower to its leader */
    uint64_t match_index; /* leader only, else 0 */
    /* As far as this node knows; 0: unknown. The newest start of that node, and the entry up to
     * which it has told that its disk has everything committed. */
    uint64_t starts, kept_index;
    uint64_t incarnation; /* 0: it has not joined yet */
    /* Its last report, at most NODE_REPORT_OLD_MS old; else NULL. Valid until the loop runs
     * again. */
    const struct node_report *report;
};
size_t node_members(struct node *n, struct node_member *ret, size_t max);

/* How the nodes prove who they are. */
void node_get_security(const struct node *n, struct transport_security *ret);
void node_reload(struct node *n); /* reads its files again; the log reports the result */

/* Adds, removes, replaces or moves a member: see membership.h. ADD, REMOVE and REPLACE are answered
 * when the log has the plan for the node; the leader then carries it out.
 *
 * 0, then cb comes once; or at once FL_ENOLEADER (this node does not lead, or is not ready),
 * FL_ENOTFOUND (not a member), FL_EEXISTS (MOVE: it has not joined yet; OF: another incarnation),
 * FL_EINVAL (not an address that others can call), FL_EMISMATCH (another node has that id
 * or address), FL_ELIMIT (MEMBERS_MAX), FL_EBUSY (another change is in progress, or this node leads
 * for too short a time to know who is up; REPLACE: the node is connected, at the address of its
 * successor), FL_EDENIED (the remaining members would have no majority; MOVE: they could not decide
 * until the node is started again). cb: 0, or as above; FL_EUNCERTAIN: leadership was lost; asking
 * the next leader again does no harm. */
int node_change(struct node *n, const struct node_change *wanted, void (*cb)(void *ctx, int status),
                void *ctx) FLI_MUST_USE;

/* Hands leadership to id (0: the best follower). 0, then cb comes once, with 0 (inside the call
 * when id leads already) or FL_ETIMEOUT (the other node did not take it in time; this node may
 * still lead); or at once FL_ENOLEADER (this node does not lead), FL_ENOTFOUND (no such voter, or
 * none to hand it to), FL_EBUSY (a transfer is under way). */
int node_transfer(struct node *n, uint64_t id, void (*cb)(void *ctx, int status),
                  void *ctx) FLI_MUST_USE;

/* A backup of this node's state for a client, one at a time. A snapshot child takes a snapshot for
 * it (snapshot/child.h), and a worker reads its file (snapshot/source.h), so the loop does not
 * wait. Each piece is verified. The file stays readable when a newer one replaces it. A backup that
 * no client reads for BACKUP_IDLE_MS is given up. */
#define BACKUP_IDLE_MS UINT64_C(30000)

/* Begins a backup. 0 and its number; FL_EBUSY: another one is being made; FL_ENOLEADER: this node
 * hears no leader, so it may be behind, or the cluster is not formed yet. */
int node_backup_begin(struct node *n, uint64_t *ret_id) FLI_MUST_USE;

/* Reads at most len bytes; `offset` must be the number of bytes read so far. *ret_len 0: the end,
 * and the backup is over. FL_EBUSY: they are not ready, ask again; FL_ENOTFOUND: there is no such
 * backup any more; FL_EINVAL: a wrong offset; FL_EIO, FL_ECORRUPT, FL_ENOMEM: the backup failed and
 * is over; *ret_why says why, until the next call. */
int node_backup_read(struct node *n, uint64_t id, uint64_t offset, void *data, size_t len,
                     size_t *ret_len, const char **ret_why) FLI_MUST_USE;

/* Ends gracefully: refuses new commands, hands leadership over when it leads and can, waits
 * (bounded by drain_ms) for what is pending, answers the rest, closes the log and the directory.
 * Then it calls cb, once, from the loop. node_destroy() may free the memory in cb or later. */
void node_stop(struct node *n, unsigned drain_ms, void (*cb)(void *ctx), void *ctx);
void node_destroy(struct node *n);

#endif
