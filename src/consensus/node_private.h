/* node_private.h: struct node and what node*.c share; no other file includes it. Each part owns its
 * state and knows nothing of the node but its struct host.
 *
 *   node.c           the turn of the loop, submitting commands, status
 *   node_backup.c    a backup that a client reads
 *   node_inbound.c   streams of Raft's messages from other nodes
 *   node_members.c   the members as a node reports them
 *   node_open.c      making a node
 *   node_report.c    what nodes tell each other about themselves, for people
 *   node_settings.c  the settings that an operator made for all nodes
 *   node_snapshot.c  taking, sending and installing snapshots
 *   node_stop.c      the graceful end
 *   node_watch.c     lines of the program's log about leaders, members and the disk
 *
 * A command stands in one queue until it is answered (commands.h). The proposer takes it out while
 * this node leads, the relay while another node does. */
#ifndef CONSENSUS_NODE_PRIVATE_H
#define CONSENSUS_NODE_PRIVATE_H

#include "consensus/election.h"
#include "consensus/membership.h"
#include "consensus/node.h"
#include "consensus/node_backup.h"
#include "consensus/node_record.h"
#include "consensus/relay.h"
#include "snapshot/child.h"
#include "snapshot/install.h"

#define NODE_PENDING_MAX ((size_t)64 << 20)
#define NODE_SNAPSHOT_BYTES (UINT64_C(32) << 20)
#define NODE_SNAPSHOT_ENTRIES UINT64_C(65536)
#define NODE_LOG_KEPT_ENTRIES 256u /* twice the most that may be in flight to a follower */

#define NODE_TICK_MS 100u       /* for everything that is not urgent */
#define NODE_REPORT_MS 1000u    /* between two reports to the others */
#define NODE_DISK_SLOW_MS 2000u /* a longer read or write is reported in the log */

enum node_phase { PHASE_RUN, PHASE_DRAIN, PHASE_CLOSE, PHASE_CLOSED };

/* A statfs of the data directory, by a worker. */
struct node_disk {
    struct host_work work;
    const char *path;
    uint64_t bytes, free_bytes; /* 0: not known */
};

/* Old snapshots are removed by a worker. */
struct node_cleaning {
    struct host_work work;
    struct log_device *device;
    struct snapshot_error error;
    uint64_t parts; /* for snapshot_clean() */
    bool wanted;
    uint64_t not_before_ms; /* after a failure */
};

/* A stream on which another node sends messages of Raft. */
struct inbound {
    struct node *node;
    uint64_t from, incarnation;
    struct stream *stream;
};

enum node_backup_phase {
    BACKUP_NONE,
    BACKUP_WANTED,  /* a snapshot is to be taken for the backup */
    BACKUP_WRITTEN, /* the snapshot is being written */
    BACKUP_READ,
    BACKUP_FAILED
};

struct node_backup {
    enum node_backup_phase phase;
    uint64_t id, offset, used_ms;   /* offset: of the next byte; used_ms: of the last read */
    uint64_t index;                 /* of its snapshot */
    struct snapshot_source *source; /* of the file, in phase BACKUP_READ */
    char why[512];
    struct backup_counts counts; /* node_backup_counts() fills in its age */
    uint64_t read_at_ms;         /* when the last backup was read to its end */
};

struct node {
    uv_loop_t *loop;
    struct node_callbacks cbs;
    struct host host;
    enum node_phase phase;
    bool failed; /* fatal() was called */

    /* Its pointers are valid while the node is made, but for the witness. */
    struct node_config config;
    uint64_t id;
    unsigned heartbeat_ms, election_ms, hold_ms; /* the values in force */
    struct machine_settings settings;            /* the cluster's, as last read */
    bool own_election; /* the cluster's election time was too short to find a leader */
    uint64_t led_ms;   /* when a leader was known last, or the settings changed */
    struct data_dir dir;
    struct node_record record;
    uint64_t hash_seed[2];

    /* parts, in the order in which they are made */
    struct transport *transport;
    struct log_device *device;
    struct log *log;
    struct fsm *fsm;
    struct proposer *proposer;
    struct commands commands;
    struct relay *relay;
    struct membership *membership;
    struct election election;
    struct snapshot_install *install;
    const struct members *members; /* the membership's, see membership_peers.c */
    struct peers peers;
    struct replica *replica;

    /* loop */
    uv_check_t check;
    uv_prepare_t prepare;
    uv_timer_t timer;
    uv_timer_t tick;
    uv_idle_t idle;                 /* active after a wake: the poll phase does not wait */
    uv_poll_t disk[LOG_DEVICE_FDS]; /* the log's completions */
    unsigned disk_handles;
    bool woken;                   /* node_wake() was called in this turn */
    unsigned open;                /* things that must close before the node's end */
    uint64_t turned_ms;           /* when the last turn of the loop was */
    bool paused;                  /* the last turn came late: timers waited for this one */
    uint64_t unverified_until_ms; /* after a pause: until then it is unverified whether this node
                                     still leads; 0: it is not */

    /* leadership as last reported */
    enum node_role role;
    uint64_t leader_id, leader_seen, leader_changes;
    uint64_t heartbeats_missed, silence_ms_max;
    bool opened; /* this node leads, and has applied the barrier of its term */

    /* state of the lines for the log: see node_watch.c */
    uint64_t term_led, transferee_seen;
    uint64_t started_ms, leaderless_ms; /* leaderless_ms: 0 while there is a leader */
    bool settled;                       /* a while has passed since the start */
    bool missing_logged;                /* missing members were reported since the leader was
                                           lost */
    uint64_t slow_write_ns;             /* the longest write that was reported */

    /* reports, see report.h */
    struct node_report own_report; /* kept apart: this node may be no member */
    struct node_disk report_disk;

    /* snapshots */
    struct snapshot_child *child;    /* while one is written */
    struct snapshot_meta child_meta; /* of the last one; index 0: there was none */
    uint64_t child_began_ns;
    uint64_t bytes_at_snapshot, entries_at_snapshot; /* applied at the last snapshot */
    uint64_t child_bytes, child_entries;             /* applied when the child began */
    uint64_t log_bytes;                              /* on disk, as of the last tick */
    uint64_t snapshots, snapshot_failures, snapshot_last_ns, snapshot_last_bytes;
    uint64_t snapshot_not_before_ms, snapshot_pause_ms;
    bool snapshot_damaged;   /* the newest snapshot is damaged: another one is due */
    uint64_t snapshot_at_ms; /* when the last one was complete; at first, when the node was
                                made */
    uint64_t disk_logged_ms;
    bool disk_hangs; /* a read or a write of the log takes too long */
    struct node_cleaning cleaning;

    struct node_backup backup;

    /* stopping */
    uint64_t drain_until_ms;
    bool transfer_tried; /* of leadership, before the end */
    void (*stop_cb)(void *ctx);
    void *stop_ctx;
};

/* node_inbound.c */
void node_wake(void *node); /* makes the loop turn without waiting */
bool node_running(const struct node *n);
void node_inbound(struct node *n, const struct peer_identity *peer, struct stream *stream);

/* node.c */
bool node_can_propose(const struct node *n);
void node_turn_start(struct node *n); /* from here on the handles run */
void node_durable(void *ctx);         /* for log_config */
void node_arrived(void *ctx);

/* node_backup.c */
bool node_backup_is_wanted(const struct node *n);
void node_backup_began(struct node *n, uint64_t index);
void node_backup_ended(struct node *n, int error, const char *why);
void node_backup_tick(struct node *n); /* from time to time */
void node_backup_stop(struct node *n);

/* node_snapshot.c */
int node_snapshot_make(struct node *n) FLI_MUST_USE; /* 0 or FL_ENOMEM */
void node_snapshot_turn(struct node *n);
void node_snapshot_tick(struct node *n);
void node_snapshot_wanted(void *ctx, uint64_t peer_id);
void node_snapshot_log(void *ctx, int level, const char *message);
bool node_sends_snapshot(void *ctx, uint64_t peer_id);
void node_snapshot_deposed(struct node *n);
void node_snapshot_stop(struct node *n);
/* The list of members has changed, or this node has heard of a state that differs. */
void node_snapshot_review(struct node *n);
uint64_t node_snapshot_failures(const struct node *n);

/* node_watch.c */
/* New ones; opened: the node leads, and takes commands. */
void node_watch_leadership(struct node *n, enum node_role role, uint64_t leader, bool opened);
void node_watch_turn(struct node *n);
void node_watch_tick(struct node *n);

/* node_settings.c. No connection between nodes is given up for silence within two elections. */
#define NODE_UNACKED_MS(election_ms) (2 * (election_ms) + (election_ms) / 2)
void node_settings_turn(struct node *n);

/* node_report.c */
void node_report_tick(struct node *n);
int node_report_receive(struct node *n, uint64_t from, struct fli_slice body) FLI_MUST_USE;
const struct node_report *node_report_of(const struct node *n,
                                         uint64_t id); /* NULL: none, or too old */
void node_report_installed(struct node *n);            /* this node's state is a leader's now */

/* node_members.c */
int node_check_members(const struct node *n, char *errmsg, size_t errmsg_size) FLI_MUST_USE;

/* node_stop.c */
void node_stop_turn(struct node *n);
void node_close(struct node *n);      /* from any phase: closes all that is open */
void node_hold(void *ctx);            /* one more of what must close before the end */
void node_closed_one(void *ctx);      /* one of that is closed */
void node_free_parts(struct node *n); /* of a node whose loop handles are closed, or were never
                                         opened */

#endif
