/* sim.h: a whole system in one process, in virtual time, from one seed.
 *
 *   event_queue  time, randomness, the queue of everything that is going to happen
 *   loop      what the shipping node asks of libuv, and nodes as processes: start, crash, pause
 *   disk      the device of the log and of the snapshots, and the record of the node: what is not
 *             synced is lost in a crash
 *   snapshot  the process that writes a snapshot
 *   net       streams between nodes (transport.h, stream.h)
 *   server    a node's clients: from streams to the shipping dispatch, and back
 *   words     what they say, as bytes
 *   lane      one call of a client, as src/client/call_state orders it
 *   client    what clients have in common
 *   asker     clients that ask one node each, whatever it believes to be
 *   holder    clients that hold locks, several too, alone or with others, by themselves or in a
 *             session, and read, add and write back at the storage;  caller: that call all else
 *   reenter   clients and judge of locks that one owner takes several times, through the front door
 *   redlock   holders by Redlock over simulated Redis, with tokens from the cluster
 *   store     the storage that checks tokens
 *   sending   what became of each request, and what was said of it
 *   users     administrators, and the logins of clients;  rights: what users may, for the oracle
 *   cut       the power goes at a point of one's choosing
 *   faults    what goes wrong and when: a list made from the seed, from which items can be left out
 *   members   an operator who adds, removes, replaces and moves nodes
 *   scenario     runs that are told from beginning to end
 *   oracle    what must hold after every event;  order: of locks, queues and sessions, by events
 *   steps     what must hold after every step;  promises: what nodes promise to each other and
 *             count;  wire: what they send;  tables: whom they know;  readback: what their disks
 *             give back;  operations: operators' answers;  rest: what comes once all is well
 *   main      options, phases of a run;  tools: many seeds, sabotage, the shortening of a failure
 *
 * Shipping code: the machine; src/consensus to src/node but the process of snapshot/child.c and the
 * files of data_dir.c, with the raft library below it; the log and the snapshot files; outbound.c
 * and frame.c of src/peer; of src/server what is between sockets and node: dispatch, parked waits,
 * clean-up behind clients that left, answers in RESP; the wire; the client's requests, judgement of
 * answers, call state and lease; the rule of fencing; Redlock's attempt, quorum, keeping and its
 * judge of servers. Ours: the seams just named, so no files and no sockets.
 * Everything is decided by the seed: the same seed gives the same run, to the last event, with any
 * compiler. The language leaves open which argument or initialiser is evaluated first, so never do
 * two of them draw a number. Time is in milliseconds; `at` and `now` alone are the true time. */
#ifndef SIM_H
#define SIM_H

#include <stdio.h>

#include "base/base.h"
#include "client/attempts.h"
#include "client/call_state.h"
#include "client/lease.h"
#include "commands/clock.h"
#include "members/data_dir.h"
#include "node/node_private.h"
#include "machine/view.h"
#include "redlock/attempt.h"
#include "redlock/quorum.h"
#include "server/dispatch.h"
#include "marks.h"
#include "reenter.h"
#include "../lib/machine_check.h"
#include "sim_device.h"

#define SIM_NODES_MAX 5u
#define SIM_CLIENTS_MAX 20u
#define SIM_DATA_LOCKS 4u /* held alone, together or in shared mode; what they guard is written */
#define SIM_LOCKS 6u      /* held natively: those, and semaphores */
#define SIM_RED_LOCKS 2u  /* held by Redlock; numbered behind the others */
#define SIM_ALL_LOCKS (SIM_LOCKS + SIM_RED_LOCKS)
#define SIM_ALL_NAMES ((2u << SIM_ALL_LOCKS) - 1) /* their bits, and that of any other name */
#define SIM_REDIS_MAX 5u
#define SIM_PLACES (SIM_NODES_MAX + 1u) /* ends of links: nodes, and the storage */
#define SIM_STORE_PLACE SIM_NODES_MAX
#define SIM_NEVER UINT64_MAX
#define SIM_WHEEL 4096u /* milliseconds; a power of two */
#define SIM_TTL_MIN_MS 100u
#define SIM_DRAIN_MS 500u     /* that a node has to end in order */
#define SIM_SHARED UINT32_MAX /* as permits: any number of holders, in shared mode */
/* Locks are named by a letter and their number: "L0" to "L5", "R6", "R7" (sim_lock_name()). A set
 * is a mask. */

struct sim;
struct sim_node;
struct sim_client;
struct sim_event;

#include "account.h"
#include "late.h"
#include "scenario.h"

/* ---- time, randomness, events ---- */

struct sim_random {
    uint64_t state;
};

#include "users.h"

struct sim_event {
    uint64_t at, seq;
    void (*fire)(struct sim *s, struct sim_event *e);
    /* For one of a node or a client: what is done in its process. */
    void (*deliver)(struct sim_event *e);
    void (*drop)(struct sim_event *e); /* frees what `p` owns; NULL: nothing */
    struct sim_node *node;
    struct sim_client *client;
    uint64_t life; /* of the node; another one by now: dropped */
    uint64_t a, b, c;
    void *p;
    struct sim_event *next; /* in a list */
};

struct sim_inbox {
    struct sim_event *first, *last;
};

/* A monotonic clock that runs a little fast or slow and may jump ahead. */
struct sim_clock {
    uint64_t base, local_us;
    int64_t ppm;
};

/* ---- disk ---- */

#define SIM_PARTS_MAX 4u

struct sim_disk {
    struct sim_device *device; /* NULL: the directory is empty */
    struct sim_part {          /* a half-written snapshot that somebody has open */
        const struct log_file *file;
        char name[64];
    } parts[SIM_PARTS_MAX];
    char where[24];
    bool has_record;
    struct record record;
    uint64_t serial[LOG_LANES]; /* of the operation under way, by lane */
    uint64_t stalled_until;
    unsigned errors;          /* so many of the next writes fail */
    bool error_now, troubled; /* troubled: one call has failed, or will */
    bool frozen;              /* its process is no more */
    bool misplacing, unseen;  /* the next write lands elsewhere; one has, and none came behind it */
    bool unwritten;           /* a write that was begun when the power had gone */
};

/* ---- nodes ---- */

#define SIM_ENDED_MAX 256u
#define SIM_WAITS_SEEN_MAX 8u

enum sim_power { SIM_DOWN, SIM_UP, SIM_STOPPING };

#define SIM_TIMERS_MAX 3u
#define SIM_WORKS_MAX 6u

/* An older copy of a disk, see older.c. */
struct sim_older {
    enum sim_older_phase {
        SIM_OLDER_NONE,
        SIM_OLDER_COPIED,
        SIM_OLDER_BACK,
        SIM_OLDER_REFUSED
    } phase;
    struct sim_device *device;
    struct record record;
    uint64_t at;  /* not before that it comes back */
    bool insists; /* it is started once more after it was refused */
};

enum sim_lane_number { SIM_LANE_MAIN, SIM_LANE_RENEW, SIM_LANES };

struct sim_node {
    uv_loop_t loop; /* only its address is used */
    struct sim *sim;
    unsigned index;
    enum sim_power power;
    uint64_t life;
    bool cut;           /* its power has gone in this turn */
    bool paused, ghost; /* ghost: crashed, only its memory is being freed */
    struct sim_clock clock;
    uint64_t loop_ms;
    struct sim_inbox inbox, deferred;
    uint64_t turn_at;
    uint64_t spins, spins_at, spins_applied; /* turns at that time, since it applied that entry */
    struct node *node;
    const struct raft *raft; /* the core in it */
    struct transport *transport;
    struct sim_disk disk;
    /* handles of the loop */
    uv_timer_t *timers[SIM_TIMERS_MAX];
    uv_check_t *check;
    uv_prepare_t *prepare;
    uv_idle_t *idle;
    struct {
        uv_handle_t *handle;
        uv_close_cb cb;
    } closing[128];
    unsigned closing_n;
    /* work that is with a thread, or whose end was not told yet */
    struct {
        uv_work_t *req;
        bool done;
    } works[SIM_WORKS_MAX];
    bool by_thread; /* one of them is being done */
    /* the process that writes a snapshot */
    struct sim_child *child;
    uint64_t child_serial;
    bool kill_child, child_waits;
    uint64_t labelled, labelled_change; /* of the last snapshot that was begun in this life */
    struct {
        uint64_t life, failed_ms, index; /* 0: the last one was taken; the last that was */
        uint32_t crc;                    /* of its file */
    } snapshot_end;
    uint64_t failed; /* told to end itself: error, else 0 */
    char failed_why[200];
    uint64_t restart_at;
    bool wiped;    /* since its disk was lost it has not been a voter that is up to date */
    bool granted;  /* the change that was asked for last */
    uint64_t goes; /* the incarnation that its operator replaces */
    bool replacing;
    bool rotten; /* its disk is, and nobody has noticed yet */
    struct sim_older older;
    enum sim_change {
        SIM_CHANGE_NONE,
        SIM_CHANGE_REMOVE,
        SIM_CHANGE_REPLACE,
        SIM_CHANGE_MOVE,
        SIM_CHANGE_ADD
    } change;               /* what an operator is about; with `wiped` */
    bool asked, keeps_disk; /* asked: an answer is awaited */
    const struct sim_node *asked_of;
    uint64_t asked_life;  /* of that one */
    unsigned seen;        /* its state as a member, see members_look.c */
    bool joins;           /* its directory was begun to join */
    uint64_t knew_change; /* that its core took for committed when it started */
    uint64_t stopping_ms; /* since when it is to end in order, by its own clock */
    uint64_t works_begin; /* no thread begins with anything before */
    uint64_t reads_stalled_until;
    /* A snapshot that is being opened for that node, in which life, after how many failures. */
    struct {
        uint64_t life, index, failures;
    } opens[SIM_NODES_MAX];
    unsigned port, listens; /* that its operator has given it; at which it is to be reached */
    uint64_t late_until[SIM_LATE_KINDS];
    uint64_t dismiss_until; /* it is cut off, and an operator tries to have it forgotten */
    /* server */
    struct dispatch *dispatch;
    struct fli_list requests;   /* that dispatch has and has not answered */
    struct sim_request *asking; /* the one that it is being given; NULL: none */
    /* Requests up to this one are awaited by nobody; or come from who can send no more. */
    uint64_t hung_up[SIM_CLIENTS_MAX][SIM_LANES];
    uint64_t half_closed[SIM_CLIENTS_MAX][SIM_LANES];
    uint64_t ended[SIM_ENDED_MAX]; /* the last waits whose end it has heard of, in this life */
    unsigned ended_n;
    bool heard;             /* of an end, or of a beginning, since its last turn */
    uint64_t unheard_owner; /* grants to owners below this one may have been jumped over */
    /* oracle */
    uint64_t lost_ms; /* of pauses, that its cluster clock must not count */
    uint64_t paused_at, term_seen;
    raft_index applying; /* 0: none */
    bool first;          /* no node has applied it before */
    uint64_t event_digest;
    unsigned tickets;
};

/* ---- lanes and clients ---- */

/* What has come for a lane; on its way to it, without event and code. */
struct sim_answer {
    bool there;
    unsigned lane;
    uint64_t request;
    uint8_t op;
    uint64_t owner;   /* that the node made; 0: none */
    uint64_t sending; /* its number, see sending.c; 0: the node was given no command */
    enum fli_call_event event;
    int code;
    struct machine_result result;
    bool has_result;
    uint64_t late;   /* a later attempt than the one that is answered; 0: none */
    unsigned listed; /* by LOCKS: a mask */
};

/* One call at a time. */
struct sim_lane {
    struct sim_client *client;
    uint64_t record; /* number of the call, for the oracle */
    unsigned number;
    bool active;
    struct fli_call_state call_state;
    struct machine_command command;
    char name[8], owner[24];
    uint8_t also[SIM_LOCKS * 3];
    uint64_t owner_number;
    unsigned lock, mask; /* all the locks it is about; `lock` is the first that is named */
    uint64_t attempt;    /* number of the ACQUIRE that was sent last */
    uint64_t wait_ms;    /* as it was sent last */
    bool robbed;         /* of its place, by a try that it had given up */
    struct {
        uint64_t wait, times_asked, request;
    } waits_seen[SIM_WAITS_SEEN_MAX]; /* the last ones that put it into a queue */
    unsigned waits_seen_n;
    bool half_close;  /* it closes its side as soon as it has asked */
    bool half_closed; /* it has, on this connection */
    uint64_t token;   /* the call is about; or of the grant, once there is one */
    uint64_t call;    /* counts calls */
    uint64_t order;   /* counts orders: a late timer of an earlier one is ignored */
    uint64_t request; /* counts requests */
    uint64_t conn;    /* counts connections; 0 none */
    uint64_t login;   /* on it */
    bool conn_open;
    uint32_t conn_node;
    uint64_t conn_life;
    uint64_t health_probe; /* the one that stands; 0 none */
    uint32_t asked_node;
    uint64_t asked_life; /* 0: it has not been reached yet */
    struct sim_answer answer;
    struct machine_result result; /* of the last answer with one */
    uint64_t start_seq;           /* when the last request left */
    uint64_t start_at;
    uint64_t start_timestamp; /* the cluster clock then */
    uint64_t first_at;
    uint64_t token_floor;
    void (*done)(struct sim_client *c, struct sim_lane *l, int status);
};

enum sim_role { SIM_WRITER, SIM_CALLER, SIM_REDLOCKER, SIM_ASKER };

struct sim_client {
    struct sim *sim;
    unsigned index;
    enum sim_role role;
    void (*act)(struct sim_client *c);
    uint32_t place; /* of an asker: its node */
    unsigned user;
    struct sim_random random;
    struct sim_clock clock;
    bool paused;
    struct sim_inbox deferred;
    uint64_t alarm_at; /* true time of the one alarm that counts */
    struct sim_lane lanes[SIM_LANES];
    struct fli_attempts sendings;
    uint64_t next_at; /* local: do the next thing */
    /* what it believes to hold */
    bool holding;
    struct fli_lease lease;
    unsigned lock, mask; /* `lock` is the one it works with */
    unsigned mask_left;  /* that it has not done with */
    uint32_t slots;      /* 1: alone */
    uint64_t token;
    uint64_t ttl_ms;
    bool keeping; /* a session, which the lease is then about; `holding` is of a lock in it */
    unsigned locks_left; /* to take in this session */
    struct {
        unsigned together, shared, permits, session; /* percent of what a holder takes */
    } taste;
    /* at the storage */
    bool asking;
    uint64_t store_op; /* counts; answers of others are ignored */
    uint64_t store_until;
    bool read;
    uint64_t value;
    unsigned writes_left;
    bool spoilt;                        /* a write has no answer: this token writes no more */
    uint64_t unanswered[SIM_ALL_LOCKS]; /* by lock: the last token of which a write has none */
    /* a session of its own */
    uint64_t session;
    uint64_t last_token;
    unsigned last_lock;
    /* Redlock */
    struct fli_attempt attempt;
    bool judged_fit, attempting, issuing, extending;
    bool extends; /* the one that it holds, by `lease` */
    uint64_t extend_until;
    uint64_t attempt_serial, red_value;
    uint32_t attempts;
    uint64_t deadline_ms;
    uint64_t redis_up_seen[SIM_REDIS_MAX];
};

struct sim_redis {
    struct sim_clock clock; /* wall: may jump back too */
    int64_t wall_offset;
    uint64_t up_since;
    uint64_t down_until;
    struct {
        uint64_t value, expires_at;
    } keys[SIM_RED_LOCKS];
};

enum sim_redis_setup { SIM_REDIS_FIT, SIM_REDIS_EVICT, SIM_REDIS_REPLICA, SIM_REDIS_TWICE };

/* ---- storage ---- */

struct sim_store_lock {
    uint64_t mark;
    uint64_t value;         /* number of the write that made it; 0: none */
    struct sim_event *held; /* a write on its way that waits for the worst moment */
};

struct sim_store {
    uint64_t life;
    bool up, paused;
    uint64_t restart_at;
    struct sim_inbox deferred;
    struct sim_store_lock locks[SIM_ALL_LOCKS];
    uint64_t writes; /* numbers given */
};

/* ---- faults ---- */

enum sim_fault_kind {
    SIM_FAULT_CUT,
    SIM_FAULT_LOSSY,
    SIM_FAULT_SLOW_LINK,
    SIM_FAULT_JOIN,
    SIM_FAULT_BREAK,
    SIM_FAULT_CRASH,
    SIM_FAULT_STOP,
    SIM_FAULT_POWER,
    SIM_FAULT_PAUSE,
    SIM_FAULT_STALL,
    SIM_FAULT_DISK_ERROR,
    SIM_FAULT_WIPE,
    SIM_FAULT_TRANSFER,
    SIM_FAULT_JUMP,
    SIM_FAULT_CLIENT_PAUSE,
    SIM_FAULT_STORE_CRASH,
    SIM_FAULT_STORE_PAUSE,
    SIM_FAULT_REDIS_RESTART,
    SIM_FAULT_REDIS_JUMP,
    SIM_FAULT_DISMISS,
    SIM_FAULT_FULL,
    SIM_FAULT_SNAPSHOT,
    SIM_FAULT_ROT,
    SIM_FAULT_VOTE,
    SIM_FAULT_MEMBER, /* k: removed and added, replaced, moved; both: with its disk */
    SIM_FAULT_OLDER,  /* ms: until its copy comes back; both: of a disk after a crash */
    SIM_FAULT_PIPELINE,
    SIM_FAULT_LATE, /* k: which of enum sim_late, for ms */
    SIM_FAULT_KINDS
};

struct sim_fault {
    enum sim_fault_kind kind;
    uint64_t at, ms;
    unsigned i, j, k;
    bool both;
};
#define SIM_FAULTS_MAX 600u

/* What a seed chooses besides. */
struct sim_options {
    unsigned nodes, writers, callers, redlockers, askers, redis;
    uint64_t work_ms;
    unsigned weight[SIM_FAULT_KINDS]; /* 0: not in this seed */
    uint64_t fault_every_ms;
    unsigned loss_permille, twice_permille, delay_ms, delay_spread_ms, spike_permille;
    unsigned disk_ms, disk_spread_ms, cpu_ms;
    unsigned heartbeat_ms, election_ms, hold_ms;
    int64_t ppm_max;
    uint64_t ttl_max_ms;
    unsigned think_ms, hold_back_percent;
    unsigned loyal_percent; /* of calls of a client that knows one node only, and dials it again */
    size_t pending_max;
    uint64_t snapshot_bytes;
    unsigned snapshot_entries, log_kept_entries; /* 0: as the node wants */
    uint64_t segment_bytes;
    size_t cache_bytes;
    struct machine_limits limits;
    uint64_t slack_ms; /* of dispatch, as calls_max */
    size_t calls_max;
    bool jumps;      /* clocks of nodes or clients jump: leases may be short then */
    bool redis_lies; /* restarted Redis count at once, though they have forgotten */
    bool machine_hashes;
    unsigned child_ms; /* at most, for each step of a process that writes a snapshot */
    bool starts_fail;  /* some writes of starts do, for now */
};

struct sim_link {
    uint64_t cut_until;
    unsigned lossy_permille;
    uint64_t lossy_until;
    unsigned slow_ms;
    uint64_t slow_until;
    uint64_t rounds_at; /* not 0: answers to rounds come then, whatever else is cut */
};

struct sim {
    struct sim_steps *steps; /* see steps.c */
    struct sim_promises *promises;
    struct sim_orders orders;
    struct sim_options options;
    struct sim_random random;      /* network, disks */
    struct sim_random node_random; /* what nodes get from fli_random() */
    bool stopping;
    uint64_t now, seq;
    struct sim_inbox wheel[SIM_WHEEL]; /* what happens in the next milliseconds */
    uint64_t wheel_bits[SIM_WHEEL / 64];
    size_t wheel_n;
    struct sim_event **far; /* and later */
    size_t far_n, far_cap;
    struct sim_event *spare;
    struct sim_node *current; /* whose code runs */
    struct sim_node nodes[SIM_NODES_MAX];
    unsigned n;
    struct members members;
    struct sim_users users;
    struct sim_link links[SIM_PLACES][SIM_PLACES];
    struct sim_conn *conns; /* some of them over; see net_dial.c */
    struct sim_dial *dials;
    size_t conns_n, conns_max, dials_n, dials_max, undecided_n;
    struct sim_client clients[SIM_CLIENTS_MAX];
    unsigned clients_n;
    struct sim_redis redis[SIM_REDIS_MAX];
    enum sim_redis_setup redis_setup;
    bool redis_durable; /* a restart forgets nothing */
    bool redis_eviction_allowed, redis_has_evicted;
    struct sim_store store;
    struct sim_reenter *reenter; /* NULL: not in this seed */
    struct sim_oracle oracle;
    uint64_t pipeline_asked, pipeline_answers, pipeline_shown;
    struct sim_fault faults[SIM_FAULTS_MAX];
    unsigned faults_n;
    unsigned faults_left_out;
    uint64_t vote_until; /* the next vote for another is one that its disk is too late for */
    uint64_t points, scene_until; /* see cut.c */
    bool scene_began;             /* clients have begun to work */
    bool healed;                  /* no faults any more, and clients begin nothing new */
    uint64_t digest;
    struct sim_marks *marks;
    char *trace;
    size_t trace_len;
};

/* event_queue.c */
extern struct sim *sim_running; /* the one that runs */
_Noreturn void sim_fail(struct sim *s, const char *fmt, ...) FLI_PRINTF(2, 3);
void sim_trace(struct sim *s, const char *fmt, ...) FLI_PRINTF(2, 3);
#define SIM_TRACE(s, ...)                                                                          \
    do {                                                                                           \
        if ((s)->orders.trace) {                                                                   \
            sim_trace(s, __VA_ARGS__);                                                             \
        }                                                                                          \
    } while (0)
uint64_t sim_draw(struct sim_random *r);
uint64_t sim_draw_below(struct sim_random *r, uint64_t n); /* n > 0 */
bool sim_draw_chance(struct sim_random *r, unsigned percent);
uint64_t sim_below(struct sim *s, uint64_t n);
bool sim_permille(struct sim *s, unsigned permille);
void sim_lock_name(unsigned lock, char name[3]);
unsigned sim_lock_number(struct fli_slice name);                /* SIM_ALL_LOCKS: none of ours */
void *sim_grow(void *p, size_t *cap, size_t need, size_t size); /* new room is zero */
struct sim_event *sim_after(struct sim *s, uint64_t ms,
                            void (*fire)(struct sim *s, struct sim_event *e));
void sim_again(struct sim *s, struct sim_event *e, uint64_t ms); /* the one that just fires */
void sim_drop(struct sim *s, struct sim_event *e);
bool sim_step(struct sim *s);                 /* the next event */
uint64_t sim_next_at(const struct sim *s);    /* when that is; NEVER: there is none */
void sim_move_on(struct sim *s, uint64_t at); /* to a time before the next event */
void sim_event_queue_init(struct sim *s);
void sim_event_queue_fini(struct sim *s);
void sim_inbox_push(struct sim_inbox *b, struct sim_event *e);
struct sim_event *sim_inbox_pop(struct sim_inbox *b);
uint64_t sim_clock_read(const struct sim *s, const struct sim_clock *c);
uint64_t sim_clock_when(const struct sim *s, const struct sim_clock *c, uint64_t local_ms);
void sim_clock_set(struct sim *s, struct sim_clock *c, uint64_t local_ms, int64_t ppm);
#define SIM_CHECK(s, cond, ...)                                                                    \
    do {                                                                                           \
        if (FLI_UNLIKELY(!(cond))) {                                                               \
            sim_fail(s, __VA_ARGS__);                                                              \
        }                                                                                          \
    } while (0)

/* loop.c */
struct sim_event *sim_to_node(struct sim_node *n, uint64_t ms, void (*deliver)(struct sim_event *));
void sim_node_fire(struct sim *s, struct sim_event *e); /* `fire` of events for nodes */
void sim_nodes_init(struct sim *s);
void sim_nodes_fini(struct sim *s);
void sim_node_start(struct sim_node *n);
void sim_node_crash(struct sim_node *n, bool power); /* power: of the machine, not the process */
void sim_node_stop(struct sim_node *n);
void sim_exchange_disk(struct sim_node *n); /* for an empty one */ /* gracefully */
void sim_node_pause(struct sim_node *n);
void sim_node_resume(struct sim_node *n);
bool sim_node_runs(const struct sim_node *n); /* up, paused or not */
struct sim_node *sim_leader(struct sim *s);   /* that can propose; NULL: none */
bool sim_converged(struct sim *s);
void sim_nodes_describe(struct sim *s, FILE *out);

/* disk.c */
void sim_disk_crash(struct sim_node *n, bool power);
void sim_disk_wipe(struct sim_node *n);
/* The device becomes the disk of a node that does not run. */
void sim_disk_adopt(struct sim_node *n, struct sim_device *device, const struct record *record);
bool sim_disk_has_snapshot(const struct sim_node *n);
void sim_disk_fill(struct sim_node *n, uint64_t ms);
void sim_disk_trouble(struct sim_node *n, unsigned how); /* to calls */
void sim_disk_trouble_over(struct sim_node *n);          /* the start is over */
void sim_disk_rot(struct sim_node *n, unsigned how);
void sim_disk_heal(struct sim_node *n);

/* net.c */
void sim_net_reset(struct sim_node *n); /* it has ended: its streams break */
void sim_net_break(struct sim *s, unsigned i, unsigned j);
bool sim_net_blocked(struct sim *s, unsigned from, unsigned to);
uint64_t sim_net_delay(struct sim *s, unsigned from, unsigned to);
void sim_net_fini(struct sim *s);

/* server.c */
void sim_server_request(struct sim_lane *l, uint32_t node, uint64_t life, uint64_t number,
                        uint64_t login, const struct machine_command *m);
/* The client has no connection any more; the node hears so after this time. */
void sim_server_hangup(struct sim_lane *l, uint64_t ms);
void sim_server_half_close(struct sim_lane *l); /* it will send no more, and listens */
bool sim_server_leaderless(struct sim_node *n); /* as LEADER answers */
/* A request from outside of all lanes. `told` is called with its answer, and with what the machine
 * said (NULL: nothing), unless the node ends before. */
void sim_server_ask(struct sim_node *n, const uint8_t *data, size_t len, uint64_t serial,
                    void (*told)(struct sim *s, uint64_t serial, const struct machine_result *r,
                                 const void *data, size_t len));
void sim_server_event(struct sim_node *n, const struct machine_event *e);
void sim_server_restored(struct sim_node *n);
void sim_server_start(struct sim_node *n);
void sim_server_turn(struct sim_node *n);
uint64_t sim_server_next_ms(const struct sim_node *n); /* on the clock of the node's loop */
void sim_server_stopping(struct sim_node *n);
void sim_server_ended(struct sim_node *n);
void sim_server_destroy(struct sim_node *n);

/* sending.c */
void sim_oracle_call(struct sim_lane *l); /* one begins */
void sim_oracle_called(struct sim_lane *l, int status);
/* What it was granted has ended before it heard of it: it asks anew. */
void sim_oracle_lost_again(struct sim_lane *l);
/* A node is given a command of this call, or of nobody's (0): the number of the sending. */
uint64_t sim_oracle_sends(struct sim *s, const struct machine_command *m, uint64_t call);
void sim_oracle_mark(uint64_t sending, struct machine_command *m, uint8_t room[8]);
void sim_oracle_result(struct sim *s, uint64_t sending, int status, const struct machine_result *r);
void sim_oracle_told(struct sim_lane *l, const struct sim_answer *a);

/* words.c */
void sim_words_write(const struct machine_command *m, struct fli_buf *out);
/* What the answer to such a command means, as its result if it has one. */
void sim_words_read(struct sim *s, uint8_t op, const void *data, size_t len, struct sim_answer *a);
bool sim_words_leaderless(struct sim *s, const void *data, size_t len);
bool sim_words_no_is_uncertain(uint8_t op);

/* lane.c */
void sim_lane_start(struct sim_lane *l, const struct fli_call_config *config);
/* Sends it these bytes, and with them what the machine had said, for the oracle. */
void sim_lane_say(struct sim_client *c, struct sim_node *from, const struct sim_answer *a,
                  const void *data, size_t len);
/* Somebody ends the call by hand. */
void sim_lane_leave(struct sim_lane *l);
void sim_lanes_reset(struct sim_node *n); /* the node has ended: connections to it break */
struct sim_event *sim_to_client(struct sim_client *c, uint64_t ms,
                                void (*deliver)(struct sim_event *));
uint64_t sim_client_now(const struct sim_client *c);

/* client.c */
void sim_clients_start(struct sim *s);
bool sim_clients_done(struct sim *s);  /* nobody has anything outstanding */
void sim_clients_awake(struct sim *s); /* nobody has gone to sleep for ever */
void sim_clients_describe(struct sim *s, FILE *out);
void sim_client_pause(struct sim_client *c, uint64_t ms);
void sim_client_resume(struct sim_client *c);
void sim_client_alarm(struct sim_client *c, uint64_t local_ms);
void sim_client_act(struct sim_client *c); /* looks at the time and does what is due */
void sim_client_rest(struct sim_client *c);
uint64_t sim_client_below(struct sim_client *c, uint64_t n); /* n > 0 */
bool sim_client_chance(struct sim_client *c, unsigned percent);
/* Makes the lane ready for a command about a lock and an owner; the caller adds the rest. */
struct sim_lane *sim_client_prepare(struct sim_client *c, unsigned lane, uint8_t op, unsigned lock,
                                    uint64_t owner);
/* What an ACQUIRE asks for. In a session it may become what the session asked for before. */
void sim_client_ask_for(struct sim_lane *l, unsigned mask, uint32_t slots);
/* To open a new session, which is then the client's. */
struct sim_lane *sim_client_prepare_session(struct sim_client *c, uint64_t ttl_ms);
uint32_t sim_client_permits(struct sim_client *c,
                            unsigned lock); /* as usual, now and then others */
unsigned sim_client_some_of(struct sim_client *c, unsigned mask); /* one of these locks */
struct fli_call_config sim_client_plan(struct sim_client *c, enum fli_call_repeat repeat,
                                       uint64_t within_ms);

/* holder.c */
void sim_holder_act(struct sim_client *c);
void sim_client_stored(struct sim_client *c, bool write, int status, uint64_t value);
void sim_client_work(struct sim_client *c); /* reads, writes; done: writes_left is 0 */

/* caller.c, asker.c */
void sim_caller_act(struct sim_client *c);
void sim_asker_act(struct sim_client *c);

/* users.c */
void sim_users_choose(struct sim *s);
void sim_users_start(struct sim *s);
uint64_t sim_users_login(const struct sim_client *c);
const char *sim_user_name(unsigned user);

/* rights.c */
void sim_rights_init(struct sim *s);
void sim_rights_fini(struct sim *s);
/* Around each command of an entry that is applied for the first time. */
void sim_rights_begin(struct sim *s, const struct machine_command *c, uint64_t sending);
void sim_rights_end(struct sim *s, const struct machine_command *c, const struct machine_result *r);
void sim_rights_granted(struct sim *s, uint32_t uid, unsigned mask, uint64_t token);
void sim_rights_waits(struct sim *s, const struct sim_wait *w);
bool sim_rights_answer(struct sim_lane *l, const struct machine_result *r); /* it is a refusal */
void sim_rights_listed(struct sim_lane *l, unsigned mask);
void sim_rights_compare(struct sim *s, const struct machine *m); /* with a node's, in the end */

/* redlock.c */
void sim_redis_init(struct sim *s);
void sim_redlock_act(struct sim_client *c);
void sim_redlock_issued(struct sim_client *c, struct sim_lane *l, int status);
bool sim_redlock_is_sound(const struct sim *s); /* it cannot be held twice */
void sim_redis_restart(struct sim *s, unsigned i, uint64_t ms);
void sim_redis_jump(struct sim *s, unsigned i, int64_t ms);

/* store.c */
void sim_store_init(struct sim *s);
void sim_store_ask(struct sim_client *c, bool write, uint64_t token, uint64_t base, uint64_t value);
void sim_store_crash(struct sim *s, uint64_t ms);
void sim_store_pause(struct sim *s, uint64_t ms);

/* faults.c */
void sim_options_choose(struct sim *s);
void sim_options_print(const struct sim *s, FILE *out);
void sim_faults_plan(struct sim *s);
void sim_faults_start(struct sim *s, uint64_t from);
void sim_older_begin(struct sim_node *n, const struct sim_fault *f);
void sim_older_tend(struct sim_node *n);
void sim_older_refused(struct sim_node *n);
bool sim_older_is_back(const struct sim_node *n); /* until it has an empty disk again */
void sim_older_forget(struct sim_node *n);
void sim_tend(struct sim *s); /* from here on somebody starts again what has ended */
void sim_fault_text(const struct sim_fault *f, char *out, size_t size);
bool sim_knows_all(const struct sim_node *n, const struct replica *leader);
void sim_heal(struct sim *s);

/* members.c */
void sim_member_begin(struct sim_node *n, const struct sim_fault *f);
void sim_member_tend(struct sim_node *n);

/* oracle.c */
void sim_oracle_init(struct sim *s);
void sim_oracle_fini(struct sim *s);
void sim_oracle_watch(struct sim_node *n); /* a node that has just started */
void sim_oracle_event(struct sim_node *n, const struct machine_event *e);
void sim_oracle_sealed(struct sim_node *n, const void *data, size_t len);
uint64_t sim_oracle_new_owner(struct sim *s);
struct sim_owner *sim_oracle_owner(struct sim *s, uint64_t owner);
/* An owner that the node has made for the one that asks without a name. */
uint64_t sim_oracle_made_owner(struct sim_node *n, uint64_t of, struct fli_slice text);
/* Its request is answered, or was cancelled; known: whoever asked may know what it has. */
void sim_oracle_over(struct sim_node *n, uint64_t owner, bool known);
/* All is well again for a while: what nobody knows of must have been given back. */
void sim_oracle_undone(struct sim *s, uint64_t since);
struct sim_token *sim_oracle_token(struct sim *s, uint64_t token);
struct sim_token *sim_oracle_issue(struct sim *s, uint64_t token, uint64_t floor);
uint64_t sim_oracle_fastest(const struct sim *s, uint64_t ms); /* any clock after so much time */
void sim_oracle_answer(struct sim_lane *l, const struct machine_result *r);
void sim_oracle_stored(struct sim *s, unsigned lock, uint64_t token);
void sim_oracle_written(struct sim *s, const struct sim_client *c, uint64_t current, uint64_t base);
void sim_oracle_holds(const struct sim_client *c); /* it has just begun to believe so */
void sim_oracle_node(struct sim_node *n);          /* after each turn of a node */
void sim_oracle_end(struct sim *s);                /* after the cluster has come to rest */

/* order.c */
void sim_order_event(struct sim *s, const struct machine_event *e);
void sim_order_begin(struct sim *s, const void *batch, size_t len); /* is going to be applied */
/* The end of a lease is not before the time that was promised, on any clock. */
void sim_order_expires(struct sim *s, const struct machine_event *e, uint64_t base_at,
                       uint64_t ttl_ms, uint64_t promised_ms);
void sim_order_end(struct sim *s); /* has been */
void sim_order_rest(struct sim *s);
void sim_order_fini(struct sim *s);
#define SIM_FILLER_LEN 240u
bool sim_is_filler(struct fli_slice name); /* a lock that only makes the state large: scenario.c */
uint64_t sim_order_owner(struct sim *s, struct fli_slice owner); /* its number */
bool sim_order_was_busy(const struct sim_lane *l); /* a lock it is about, since it was sent */

/* run.c */
uint64_t sim_run(const struct sim_orders *orders, struct sim_marks *marks, unsigned *ret_faults);

#endif
