/* node_private.h: the node's parts, shared by node*.c and relay.c; nobody else includes it.
 *
 *   node.c          create, submit, the turn of the loop, status
 *   node_hold.c     commands that wait for a leader
 *   node_election.c a dead leader is replaced at once
 *   node_roster.c   members: incarnations, forming the cluster, forget, transfer
 *   node_stop.c     the graceful end
 *   relay.c         outlets (our stream to the leader) and inlets (followers' streams to us)
 *
 * Where a command is: in the proposer (this node leads), on `held` or `returned`, or in a slot of
 * an outlet. It moves between these until it is answered; each move keeps its bytes. */
#ifndef CONSENSUS_NODE_PRIVATE_H
#define CONSENSUS_NODE_PRIVATE_H

#include <raft.h>
#include <raft/uv.h>

#include "base/map.h"
#include "consensus/fsm.h"
#include "consensus/identity.h"
#include "consensus/image.h"
#include "consensus/link.h"
#include "consensus/node.h"
#include "consensus/proposer.h"
#include "consensus/raft_guard.h"
#include "consensus/transport.h"

/* Defaults. A follower calls an election after one to two election times without its leader, and
 * is heard by those who have missed it for one. With three nodes that is whoever of two is first,
 * about one and a third. A busy machine must not make a live leader look dead: ten heartbeats fit
 * in one. A leader whose process has ended is replaced sooner (node_election.c). */
#define NODE_ELECTION_MS 400u
#define NODE_HEARTBEAT_MS 40u
#define NODE_HOLD_MS 3000u
#define NODE_PENDING_MAX ((size_t)64 << 20)
#define NODE_SNAPSHOT_BYTES (UINT64_C(32) << 20)
#define NODE_IMAGE_RECORDS UINT64_C(50000) /* encoded in some milliseconds */

#define NODE_BEAT_MS 100u            /* everything that is not urgent */
#define NODE_PING_MS 500u            /* on each outlet */
#define NODE_INLET_SILENCE_MS 10000u /* a follower pings; one that does not is gone */
#define NODE_REFUSED_MS 3000u        /* refused by peers and welcome nowhere for this long: stop */
#define NODE_KNOCK_MS 500u           /* between calls to a member that was forgotten */
#define NODE_DISK_SLOW_MS 2000u      /* a write that takes longer is worth a line in the log */

#define NODE_PROBE_MS 5u  /* between attempts on a leader that is not ready */

#define OUTLET_WINDOW 16384u           /* commands sent and not answered */
#define OUTLET_QUERIES 256u            /* of these, queries: each answer may have 64 KiB */
#define OUTLET_BYTES ((size_t)8 << 20) /* bytes of these commands */

/* A command whose bytes the node keeps. */
struct held {
    struct fli_list link;
    struct node_ticket *t;
    uint64_t start; /* in an outlet: where its frame begins */
    uint32_t len;
    bool query;
    uint8_t data[];
};

struct peer;

/* Our stream to a node that leads, or led: it stays until everything on it is answered. */
struct outlet {
    struct node *node;
    struct peer *peer;
    struct link *link;
    uint64_t first; /* sequence of the oldest that may be unanswered */
    uint64_t next;  /* sequence of the next to send */
    uint32_t count; /* unanswered */
    uint32_t queries;
    size_t bytes;
    uint64_t pinged_ms;
    uint64_t probe_ms; /* not 0: the leader gave a command back; until it answers one again, it is
                        * asked with one at a time, not before this */
    bool ready_said;
    struct held *slots[OUTLET_WINDOW];
};

/* A follower's stream to us. It goes when its link is closed and no ticket of its is out. */
struct inlet {
    struct fli_list node_link;
    struct node *node;
    struct peer *peer;
    struct link *link; /* NULL once closed */
    uint64_t incarnation;
    uint32_t count; /* tickets in the proposer */
    bool ready;
    struct fli_list waits; /* of struct early */
};

struct peer {
    unsigned index; /* in members */
    uint64_t id;
    uint64_t incarnation; /* of the last hello that was accepted; 0: none since start or FORGET */
    bool client_known;
    char client_address[MEMBER_ADDRESS_MAX];
    struct outlet *outlet;
    struct inlet *inlet;     /* the newest */
    uint64_t admitted_index; /* as it said in that hello */
    bool other_life;         /* who called last is not the incarnation that is known */
    bool gone;               /* nobody listens there: its process has ended */
    bool dialing;            /* a transport_link is under way */
    uint64_t redial_ms;
    enum transport_verdict verdict; /* of its last answer that was WELCOME or OTHER_LIFE; else 0 */
};

enum node_phase { PHASE_RUN, PHASE_DRAIN, PHASE_CLOSE, PHASE_CLOSED };

struct node {
    uv_loop_t *loop;
    struct node_callbacks cbs;
    enum node_phase phase;
    bool failed; /* fatal was told */

    /* configuration */
    uint64_t id;
    unsigned heartbeat_ms, election_ms, hold_ms;
    size_t pending_max;
    uint64_t snapshot_bytes;
    uint64_t image_records;
    struct machine_limits limits;
    struct data_dir dir;
    struct identity identity;

    /* parts */
    struct transport *transport;
    struct raft_io io;
    struct raft_guard guard;
    struct ballot ballot;
    struct raft raft;
    struct fsm *fsm;
    struct proposer *proposer;
    bool raft_live; /* raft_init done and raft_close not begun */

    /* loop */
    uv_check_t check;
    uv_prepare_t prepare;
    uv_timer_t timer;
    uv_timer_t beat;
    uv_idle_t idle; /* active while woken: the poll phase does not wait */
    bool woken;
    unsigned handles; /* of ours, links and dials included */
    uint64_t turned_ms;
    uint64_t doubt_until_ms; /* after a pause: whether we still lead shows soon */

    /* commands */
    struct fli_list returned; /* sent or proposed before, surely not done; before held in order */
    struct fli_list held;
    size_t held_bytes; /* of returned, held and outlets */
    uint64_t held_count;
    uint64_t relayed, held_ever, uncertain;
    struct relay_ticket *spare_tickets;
    unsigned spare_count;
    struct fli_map earlies; /* wait id -> inlet */
    uint64_t wait_seen;     /* id of the youngest wait in the log; UINT64_MAX: not known */
    uint64_t wait_before;   /* id of the youngest that was queued under an earlier leader */
    struct fli_list inlets;

    /* roster */
    struct peer peers[MEMBERS_MAX];
    bool known_complete; /* on disk: every member's incarnation */
    bool admin_busy;     /* admin is in the proposer */
    uint8_t admin_op;
    struct node_ticket admin;
    bool change_busy; /* change is raft's */
    struct raft_change change;
    char said[256];            /* last line of forming */
    uint64_t refused_since_ms; /* refused by some and welcome nowhere; 0: not so */
    char refused_why[TRANSPORT_REASON_MAX];

    uint64_t forget_id; /* being forgotten; 0: none */
    void (*forget_cb)(void *ctx, int status);
    void *forget_ctx;

    bool transfer_busy;
    uint64_t transfer_id;
    struct raft_transfer transfer;
    void (*transfer_cb)(void *ctx, int status); /* NULL: for stopping */
    void *transfer_ctx;

    /* what was told last */
    enum node_role role;
    uint64_t leader_id;
    uint64_t leader_seen; /* the last one that was not 0 */
    uint64_t leader_changes;
    bool open;

    /* a leader that is gone */
    uint64_t gone_id; /* 0: none, or it has been replaced */
    uint64_t hurry_at_ms, hurry_term;
    unsigned hurries_left;

    /* snapshots */
    uint64_t snapshots_seen, restores_seen, entries_at_snapshot;
    uint64_t snapshot_index;
    struct image *image; /* a snapshot that is being encoded, or written */
    uint64_t disk_said_ms;

    /* stopping */
    uint64_t drain_until_ms;
    bool handed_over;
    void (*stop_cb)(void *ctx);
    void *stop_ctx;
};

void node_log(struct node *n, int level, const char *fmt, ...) FLI_PRINTF(3, 4);
void node_fail(struct node *n, int error, const char *fmt, ...) FLI_PRINTF(3, 4);
void node_wake(struct node *n); /* makes the loop turn without waiting */
bool node_can_propose(struct node *n);
struct peer *node_peer(struct node *n, uint64_t id); /* NULL for unknown and for this node */

/* node_hold.c */
struct held *held_create(struct node *n, struct node_ticket *t, const void *command,
                         size_t len) FLI_MUST_USE; /* NULL: too much is held, or no memory */
void held_destroy(struct node *n, struct held *h);
void held_answer(struct node *n, struct held *h, int status); /* destroys h, then calls back */
void hold_route(struct node *n);
uint64_t hold_next_ms(struct node *n); /* until hold_route has something to try again */
void hold_expire(struct node *n);
void hold_refuse_all(struct node *n, int status);
void hold_give_back(struct node *n, struct node_ticket *t, const void *command, size_t len);

/* relay.c */
struct relay_ticket;
void relay_init(struct node *n, const uint64_t seed[2]);
bool relay_owns(const struct node_ticket *t);
void relay_return(struct node *n, struct node_ticket *t); /* it was surely not proposed */
bool outlet_has_room(const struct outlet *o, const struct held *h);
bool outlet_send(struct outlet *o, struct held *h) FLI_MUST_USE;
void outlet_close(struct outlet *o, const char *why); /* gives everything on it up or back */
void relay_inlet(struct node *n, const struct transport_identity *peer, uv_stream_t *stream);
void relay_connect(struct node *n); /* sees to it that there is an outlet to the leader */
void relay_beat(struct node *n);
/* Another node leads, or none does: what the old one owes is not waited for if it says nothing. */
void relay_replaced(struct node *n);
void relay_say_ready(struct node *n); /* known_complete has become true */
void relay_flush(struct node *n);
void relay_event(struct node *n, const struct machine_event *e);
void relay_opened(struct node *n);   /* this node leads from now on */
void relay_restored(struct node *n); /* a snapshot came in place of events */
void relay_forget_waits(struct node *n);
bool relay_quiet(struct node *n); /* nothing is out, nothing waits to be sent */
void relay_close(struct node *n);
void relay_fini(struct node *n);

/* node_snapshot.c */
struct fsm_imager snapshot_imager(struct node *n);

/* node_roster.c */
void roster_init(struct node *n);
void roster_beat(struct node *n);
void roster_sync(struct node *n);             /* what the machine says of members goes to disk */
bool roster_stranger(void *ctx, raft_id id); /* raft must not talk to it */
enum transport_verdict roster_judge(void *ctx, const struct transport_identity *peer,
                                    char reason[TRANSPORT_REASON_MAX]);
void roster_answered(void *ctx, uint64_t peer_id, enum transport_verdict verdict,
                     const char *reason);
bool roster_formed(struct node *n);
/* Of the state that says who this node is, as far as it knows; 0: none does. */
uint64_t roster_admitted_index(const struct identity *id);
void roster_admin_returned(struct node *n);
void roster_deposed(struct node *n); /* this node led and does not any more */
int roster_transfer(struct node *n, uint64_t id, void (*cb)(void *ctx, int status),
                    void *ctx) FLI_MUST_USE;
void roster_close(struct node *n);

/* node_election.c */
void election_peer_absent(void *ctx, uint64_t peer_id);
void election_peer_hung_up(void *ctx, uint64_t peer_id);
void election_peer_back(struct node *n, struct peer *p);
void election_turn(struct node *n);
uint64_t election_next_ms(struct node *n); /* until election_turn has something to do */

/* node_stop.c */
void stop_turn(struct node *n);
void stop_close(struct node *n); /* from any phase: closes everything that is open */
void node_handle_gone(void *ctx);

#endif
