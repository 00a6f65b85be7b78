/* node_private.h: struct node and what node*.c share; no other file includes it. Each part knows
 * nothing of the node but its struct host. Each struct here belongs to one file, which alone
 * changes it.
 *
 *   node.c           the turn of the loop, streams that others open, submitting commands, the end
 *   node_backup.c    a backup that a client reads
 *   node_open.c      making a node
 *   node_snapshot.c  taking, sending and installing snapshots
 *   node_watch.c     who leads, members, the disk; reports; the times in force; status
 *
 * A command stands in one queue until it is answered (commands.h). The proposer takes it out while
 * this node leads, the relay while another node does. */
#ifndef NODE_NODE_PRIVATE_H
#define NODE_NODE_PRIVATE_H

#include <sys/statvfs.h>

#include "consensus/election.h"
#include "members/membership.h"
#include "node/node.h"
#include "members/node_record.h"
#include "commands/relay.h"
#include "snapshot/child.h"
#include "snapshot/install.h"

#define NODE_PENDING_MAX ((size_t)64 << 20)
#define NODE_SNAPSHOT_BYTES (UINT64_C(32) << 20)
#define NODE_SNAPSHOT_ENTRIES UINT64_C(65536)
#define NODE_LOG_KEPT_ENTRIES 256u /* twice the most that may be in flight to a follower */

#define NODE_TICK_MS 100u       /* for everything that is not urgent */
#define NODE_REPORT_MS 1000u    /* between two reports to the others */
#define NODE_DISK_SLOW_MS 2000u /* a longer read or write is reported in the log */
/* No connection between nodes is given up for silence within two elections. */
#define NODE_UNACKED_MS(election_ms) (2 * (election_ms) + (election_ms) / 2)

enum node_phase { PHASE_RUN, PHASE_DRAIN, PHASE_CLOSE, PHASE_CLOSED };

/* ---- node.c ---- */

struct node_loop {
    struct log_device *device; /* the log's, whose completions come through `disk` */
    uv_poll_t disk[LOG_DEVICE_FDS];
    unsigned disk_handles;
    uv_check_t check;
    uv_prepare_t prepare;
    uv_timer_t timer;
    uv_timer_t tick;
    uv_idle_t idle;               /* active after a wake: the poll phase does not wait */
    bool woken;                   /* node_wake() was called in this turn */
    uint64_t turned_ms;           /* when the last turn of the loop was */
    bool paused;                  /* the last turn came late: timers waited for this one */
    uint64_t unverified_until_ms; /* after a pause: until then it is unverified whether this node
                                     still leads; 0: it is not */
    /* The end. */
    unsigned open; /* things that must close before the tick's handle */
    uint64_t drain_until_ms;
    bool transfer_tried; /* of leadership, before the end */
    void (*stopped)(void *ctx);
    void *stopped_ctx;
};

void node_loop_init(struct node *n);
void node_loop_start(struct node *n); /* from here on the handles run */
void node_wake(void *node);           /* makes the loop turn without waiting */
bool node_running(const struct node *n);
bool node_can_propose(const struct node *n);
void node_accepted(void *ctx, enum stream_kind kind, const struct peer_identity *peer,
                   struct stream *stream); /* for transport_callbacks */
void node_hold(void *ctx);                 /* for struct host, as is the next one */
void node_release(void *ctx);
void node_close(struct node *n); /* from any phase: closes all that is open */
void node_free(struct node *n);  /* one whose loop handles are closed, or were never opened */
void node_durable(void *ctx);    /* for log_config */
void node_arrived(void *ctx);

/* ---- node_watch.c ---- */

struct node_watch {
    /* as last reported */
    enum node_role role;
    uint64_t leader_id, leader_seen, leader_changes;
    bool opened; /* this node leads, and has applied the barrier of its term */

    uint64_t term_led, started_ms;
    uint64_t led_ms; /* when a leader was known last; at first, when the node was made */
    uint64_t heartbeats_missed, silence_ms_max;
    bool missing_logged;    /* missing members were reported since the leader was lost */
    uint64_t log_bytes;     /* on disk, as of the last tick */
    uint64_t slow_write_ns; /* the longest write that was reported */
    uint64_t disk_logged_ms;
    struct node_report own;      /* what this node tells the others; it may be no member */
    struct host_work space_work; /* asks for `space` */
    struct statvfs space;
    struct machine_settings cluster; /* the operator's, as last read */
};

void node_watch_turn(struct node *n);
void node_watch_tick(struct node *n);
/* A message of a leader has come, and is about to go to Raft. */
void node_watch_heard(struct node *n, uint64_t now_ms);
int node_report_receive(struct node *n, uint64_t from, struct fli_slice body) FLI_MUST_USE;
const struct node_report *node_report_of(const struct node *n,
                                         uint64_t id); /* NULL: none, or too old */
void node_report_installed(struct node *n);            /* this node's state is a leader's now */
void node_settings_turn(struct node *n);

/* ---- node_snapshot.c ---- */

/* What was applied since the start. */
struct node_applied {
    uint64_t bytes, entries;
};

struct node_snapshots {
    struct host host; /* the node's, but for its log: snapshots are told of as such */
    struct snapshot_send_config sending;
    struct snapshot_install install;
    struct snapshot_child child;  /* while one is written */
    struct snapshot_meta meta;    /* of the last that a child began; index 0: there was none */
    struct node_applied at_child; /* when the child began */
    struct node_applied at_last;  /* at the last snapshot that is complete */
    uint64_t at_ms; /* when the last one was complete; at first, when the node was made */
    uint64_t made, failures, last_ns, last_bytes;
    uint64_t not_before_ms, pause_ms; /* after a failure */
    bool damaged;                     /* the newest is damaged: another one is due */
};

/* meta: of the one that was loaded. */
void node_snapshot_make(struct node *n, const struct snapshot_meta *meta);
void node_snapshot_turn(struct node *n);
void node_snapshot_wanted(void *ctx, uint64_t peer_id);
bool node_sends_snapshot(void *ctx, uint64_t peer_id);
void node_snapshot_stop(struct node *n);
void node_snapshot_status(const struct node *n, struct node_status *ret);

/* ---- node_backup.c ---- */

struct node_backup {
    uint64_t id;                    /* 0: there is none */
    bool wanted;                    /* a snapshot is to be taken for it */
    struct snapshot_source *source; /* its file, when that is written */
    char why[512];                  /* not "": it has failed, and its client was not told yet */
    uint64_t offset, used_ms;       /* offset: of the next byte; used_ms: of the last read */
    struct backup_counts counts;    /* node_backup_counts() fills in its age */
    uint64_t read_at_ms;            /* when the last backup was read to its end */
};

struct backup_counts node_backup_counts(const struct node *n);
bool node_backup_is_wanted(const struct node *n);
void node_backup_began(struct node *n); /* a child writes its snapshot */
void node_backup_ended(struct node *n, int error, const char *why); /* a child has ended */
void node_backup_tick(struct node *n);                              /* from time to time */
void node_backup_stop(struct node *n);

/* ---- node_open.c ---- */

void node_log_snapshot(void *ctx, int level, const char *message); /* for struct host */

struct node {
    /* Its pointers are valid while the node is made, but for the witness. */
    struct node_config config;
    struct node_callbacks cbs;
    struct host host;
    enum node_phase phase;
    bool failed; /* fatal() was called */

    /* parts, in the order in which they are made */
    struct node_record record;
    struct log *log;
    struct fsm *fsm;
    struct peers peers;
    struct commands commands;
    struct proposer proposer;
    struct relay relay;
    struct membership *membership;
    struct election election; /* has the times in force, and the members */
    struct replica *replica;

    struct node_loop loop;
    struct node_watch watch;
    struct node_snapshots snapshots;
    struct node_backup backup;
};

#endif
