/* machine.h: the replicated lock state machine.
 *
 * Deterministic and total: the same batches give the same state, results and events on every
 * replica; every command gets a result. Time is data: the cluster clock is the largest timestamp
 * applied. Nothing here reads a clock, does I/O, starts a thread, or iterates in hash order. Out of
 * memory while applying stops the process (crash-stop is safe, divergence is not). One thread at a
 * time per machine; two machines have nothing in common.
 *
 * Identity. A session is explicit (opened by SESSION OPEN, named by its owner, may hold many locks)
 * or implicit (made by ACQUIRE with a TTL, named by owner AND lock, holds that one lock and ends
 * with it). An implicit session that waits has no lease yet: it lives as long as its wait, and its
 * lease begins at the grant.
 *
 * Multi-locks. An ACQUIRE of several locks makes one wait, with one place in the queue of each, and
 * one grant of all of them, with one token; both end as a whole. An implicit session then holds
 * just these locks. The wait is granted when it is first in every queue and every lock is free.
 * Until then the requests behind it wait, even for a lock that is free.
 *
 * Order. When the clock advances, everything with an earlier deadline ends first, in the order of
 * (deadline, kind, owner, name). The kinds are ends of delays, leases of explicit sessions, leases
 * of implicit ones, waits of explicit ones, waits of implicit ones. A lease that is granted on the
 * way begins at the new clock.
 *
 * Bounded work. A batch takes a bounded number of steps; what does not fit goes on in the next one
 * (work.c). In between, an expired holder no longer holds its lock, and the lock is not yet
 * free. */
#ifndef MACHINE_MACHINE_H
#define MACHINE_MACHINE_H

#include <stdbool.h>

#include "base/buf.h"
#include "machine/acl.h"
#include "machine/batch.h"
#include "machine/limits.h"

struct machine;

enum machine_code {
    MACHINE_DONE = 1, /* done; `token` and the other fields as the op defines them */
    MACHINE_GRANTED,  /* ACQUIRE: token; also for a retry or re-entry by the same owner */
    MACHINE_QUEUED,   /* ACQUIRE with WAIT: in the queue as `wait`, at `number` (1 = next); `token`
                       * is its request count. The grant or the end comes as an event with the same
                       * `wait`. A repeated request keeps the place and raises the count. If it has
                       * an attempt's number, the wait takes over its deadline. */
    MACHINE_HELD,     /* ACQUIRE: another holds it, or it is delayed, or others wait; not waiting
                       * (a place that an earlier request took in the queue stays) */
    MACHINE_NO, /* RENEW, RELEASE, CHECK: nothing held under that name and token; BREAK: neither
                   held nor delayed; CANCEL: no such wait or request count */
    MACHINE_DEADLOCK,    /* ACQUIRE with WAIT: would close a cycle */
    MACHINE_LIMIT,       /* a replicated limit is reached; number = enum machine_limit. WAITS also
                           when telling whether there is a deadlock would take too long, HOLDERS
                           when telling who holds the lock would */
    MACHINE_NOSESSION,   /* no such explicit session */
    MACHINE_EXISTS,      /* INIT: initialised before */
    MACHINE_NOTFOUND,    /* SHOW, SESSION SHOW: not held, awaited or delayed / no such session */
    MACHINE_UNSUPPORTED, /* a well-formed command this version does not execute */
    MACHINE_MISMATCH,    /* ACQUIRE: the lock is in use with another number of permits, which is
                            `number`; or, when that is 0, this session holds or awaits it in another
                            mode, or together with other locks */
    MACHINE_NOPERM, /* the user may not: `number` is the right it lacks, or 0: it is another user's.
                       Only a user who may see the lock, or knows the owner, is told so */
    MACHINE_NOAUTH, /* nobody has logged in and the default user needs that; or the user was
                       deleted, switched off or has lost a password since it has logged in */
    MACHINE_WRONG,  /* USER_SET: words that are wrong for this user */
    MACHINE_LATE,   /* ACQUIRE: `token` is a larger number of an attempt that came before it */
    MACHINE_NOADMIN /* USER_SET, USER_DELETE, USERS_LOAD: afterwards nobody could change users */
};
#define MACHINE_CODE_MAX MACHINE_NOADMIN

enum machine_limit {
    MACHINE_LIMIT_LOCKS = 1,
    MACHINE_LIMIT_SESSIONS,
    MACHINE_LIMIT_WAITS,
    MACHINE_LIMIT_LOCK_WAITS,
    MACHINE_LIMIT_SESSION_LOCKS,
    MACHINE_LIMIT_TOKENS,
    MACHINE_LIMIT_NODES,
    MACHINE_LIMIT_USERS,
    MACHINE_LIMIT_HOLDERS, /* SHOW: more holders are over and not yet taken away than it looks at */
};

/* The `number` of SETTING_SET, in the order of struct machine_settings. */
enum machine_setting {
    MACHINE_SETTING_ELECTION = 1,
    MACHINE_SETTING_HEARTBEAT,
    MACHINE_SETTING_HOLD,
    MACHINE_SETTING_LOG_LEVEL,
};

/* The answer to a command. Fixed size; queries add a payload (machine_query()). */
struct machine_result {
    uint8_t code; /* enum machine_code */
    uint8_t reserved[3];
    uint32_t number;      /* queue position, or enum machine_limit */
    uint64_t token;       /* of the grant; TOKEN, RAISE: the new last one; BREAK: the one burnt,
                             with which the broken holder can be fenced at a storage */
    uint64_t wait;        /* QUEUED, CANCEL: id of the wait, unique for ever */
    uint64_t deadline_ms; /* GRANTED, RENEW, SESSION OPEN/RENEW: lease end on the cluster clock */
    uint64_t clock_ms;    /* the cluster clock when it was applied */
    uint64_t each[2];     /* KEYS: a bit for each of its keys that was the owner's */
};

enum machine_event_type {
    MACHINE_EVENT_GRANTED = 1, /* token: the new one */
    MACHINE_EVENT_QUEUED,
    MACHINE_EVENT_RELEASED,   /* token: that of the grant */
    MACHINE_EVENT_EXPIRED,    /* token: the one lost, by session expiry */
    MACHINE_EVENT_BROKEN,     /* token: the one broken */
    MACHINE_EVENT_WAIT_ENDED, /* left the queue without a grant: deadline, cancel, or its session
                                 ended; why in `reason` */
    MACHINE_EVENT_SESSION_OPENED,
    MACHINE_EVENT_SESSION_ENDED, /* reason says how */
    MACHINE_EVENT_USER_CHANGED,  /* owner: the user's name; reason CLOSE: it was deleted */
};
#define MACHINE_EVENT_TYPE_MAX MACHINE_EVENT_USER_CHANGED

enum machine_reason {
    MACHINE_REASON_NONE = 0,
    MACHINE_REASON_DEADLINE, /* wait deadline or session lease */
    MACHINE_REASON_CANCEL,
    MACHINE_REASON_CLOSE,
    MACHINE_REASON_SESSION, /* the waiting session ended */
    MACHINE_REASON_BREAK,
    MACHINE_REASON_RELEASE,
    MACHINE_REASON_DENIED, /* the waiting user has lost the right to acquire it */
};
#define MACHINE_REASON_MAX MACHINE_REASON_DENIED

/* Events come in the order of their effects, during the command (or machine_begin()) that causes
 * them. The callback must not touch the machine. A session that ends first loses its locks, in the
 * order of their grants, each passed on at once; then its waits; then it ends itself. Events of
 * sessions exist for explicit ones only; an implicit session begins and ends with its lock's
 * events. The reason of RELEASED is RELEASE or CLOSE, of EXPIRED DEADLINE, of BROKEN BREAK.
 * Breaking a mere delay has no event.
 *
 * Each lock of a multi-lock has its own event, one right after the other, in the order of the
 * request.
 *
 * Slices are valid during the callback only. */
struct machine_event {
    uint8_t type;
    uint8_t reason;
    uint8_t index; /* which lock of a multi-lock, from 0; else 0 */
    bool session_explicit;
    struct fli_slice name; /* empty for SESSION_* */
    struct fli_slice owner;
    uint64_t token;
    uint64_t wait; /* QUEUED, WAIT_ENDED, and GRANTED out of a queue: id of the wait; else 0 */
    uint64_t deadline_ms; /* GRANTED: lease end */
    uint64_t since_ms;    /* GRANTED out of a queue, WAIT_ENDED: when the wait began, 0 when this
                           * replica does not know (a snapshot does not tell); RELEASED, EXPIRED,
                           * BROKEN: when it was granted; else 0 */
    uint64_t clock_ms;
    /* `user`, `address`: the session's user, and where its request came from. `by`, `by_address`:
     * the same of the sender of the command that causes the event. Empty: the default user on
     * loopback, or (by) nobody. */
    struct fli_slice user, address;
    struct fli_slice by, by_address;
};

typedef void (*machine_event_cb)(void *ctx, const struct machine_event *event);

/* Empty machine. hash_seed: 16 random bytes; it must not influence anything visible. */
struct machine *machine_create(const uint64_t hash_seed[2]);
/* Takes time in proportion to the state; on any thread, as long as no other uses the machine. NULL
 * is fine. */
void machine_destroy(struct machine *m);

/* Sets the receiver of events; NULL for none. */
void machine_set_event_cb(struct machine *m, machine_event_cb cb, void *ctx);

/* Applying a batch step by step, so that the leader can answer queries between two commands:
 *
 *     machine_begin()        verifies the whole batch (header, checksum, every command), moves the
 *                            clock and expires what is due
 *     machine_next() x count applies one command each
 *
 * machine_begin fails with FL_ECORRUPT or FL_EVERSION before anything was changed. */
struct machine_cursor {
    struct machine_batch_header header;
    const uint8_t *p;
    const uint8_t *end;
    uint32_t left;
};
int machine_begin(struct machine *m, const void *batch, size_t len,
                  struct machine_cursor *ret) FLI_MUST_USE;
/* False when no command is left. */
bool machine_next(struct machine *m, struct machine_cursor *cur, struct machine_result *ret);

/* Applies the whole batch at once. `results` may be NULL, else has room for `count` of them. */
int machine_apply(struct machine *m, const void *batch, size_t len,
                  struct machine_result *results) FLI_MUST_USE;

/* Answers a query (MACHINE_OP_CHECK and up) from the current state. SHOW, LOCKS, SESSION SHOW/LIST
 * append a payload, which machine/view.h reads. It is bounded by 64 KiB and by a bounded number of
 * elements looked at (limits.h). LOCKS lists the held locks in the order of grants (a lock with
 * several holders once for each), then the others; SESSION LIST the explicit sessions in the order
 * of opening. Neither lists an element twice. Both list each one that exists all the time, whatever
 * happens between the pages. now_ms: the cluster clock of the moment, by which times left are told;
 * the machine's own clock when that is later, as with 0. Returns 0, FL_ENOMEM, FL_ELIMIT (the
 * buffer's ceiling), FL_EINVAL (not a query, or machine_command_check() refuses it); on failure
 * nothing is appended. */
int machine_query(struct machine *m, const struct machine_command *query, uint64_t now_ms,
                  struct machine_result *ret, struct fli_buf *payload) FLI_MUST_USE;

/* Leases, as the leader watches them (timers.c). No clock of the log ends one. The leader gives up
 * those that nobody has renewed, and proposes an EXPIRE of each.
 *
 * machine_renew(): a renewal (MACHINE_IS_RENEWAL) that needs no entry, since nothing changes but
 * the end of the lease. False: it needs one. Else *ret is the answer, and holds once a majority has
 * confirmed that this node leads, since a new leader gives each lease its full ttl. `ret` NULL: it
 * waits for that, and the lease for the renewal. now_ms as for machine_query().
 *
 * machine_next_lease(): the first timestamp at which a lease is due; UINT64_MAX: none. It may be
 * too early, never too late, and is after clock_ms unless one is due then.
 * machine_lease_give_up(): true with the EXPIRE of a lease that is due at this timestamp, which is
 * to be in the next batch. Both only while no term mark waits: until then, deadlines are too early.
 * machine_leases_take_back(): this node leads no more. What it has given up may live on, and what
 * it has prolonged has its full ttl from the next leader. */
bool machine_renew(struct machine *m, const struct machine_command *c, uint64_t now_ms,
                   struct machine_result *ret) FLI_MUST_USE;
uint64_t machine_next_lease(struct machine *m, uint64_t clock_ms);
bool machine_lease_give_up(struct machine *m, uint64_t clock_ms,
                           struct machine_command *ret) FLI_MUST_USE;
void machine_leases_take_back(struct machine *m);
bool machine_mark_waits(const struct machine *m);

/* Puts what only the leader knows into a command that it is about to propose. Whether it did. */
bool machine_fill_in(struct machine *m, struct machine_command *c, uint64_t now_ms) FLI_MUST_USE;

/* The first timestamp at which something is due, one behind its deadline; UINT64_MAX when nothing
 * is; the clock itself while work is left. After a fail-over it may be too early, never too
 * late. */
uint64_t machine_next_deadline(const struct machine *m);

/* Steps that the last batch took, including those of its commands (limits.h). */
uint64_t machine_spent(const struct machine *m);

/* Whether the last batch had too few steps for all that was due or caused (limits.h). The rest goes
 * on in the next batch, which the leader proposes at once, empty if need be. */
bool machine_has_work(const struct machine *m);

/* The most that this command costs itself, in steps (limits.h); work that it causes has a budget of
 * its own. The leader puts at most MACHINE_BATCH_COST_MAX into a batch, or one command; so no apply
 * takes more than MACHINE_APPLY_STEPS_MAX. A batch that costs more is applied as well. */
uint32_t machine_command_cost(const struct machine_command *c);

/* The same, and what it may cost to match its names with the patterns of its user, as the user is
 * now. A leader fills its batches by this: the log says nothing of it. */
uint32_t machine_command_cost_now(const struct machine *m, const struct machine_command *c);

/* Users (acl.h). The default user always exists; a client without a login counts as that user. The
 * sender's rights are checked when a command is applied or a query is answered, so at its place in
 * the log: nodes need no copy of the rights, and none can be stale. A wait that its user may no
 * longer have ends with reason DENIED, in this batch or a later one. Expiry needs no right.
 *
 * machine_may(): whether this user has this right now. A node filters events with it, by the state
 * that its own log has reached, and answers some requests by itself. `right` 0: whether the user
 * exists. `name` NULL: for at least one name. machine_may_see() adds to `steps` what comparing the
 * name with the user's patterns took. */
bool machine_may_see(const struct machine *m, uint64_t user, struct fli_slice name,
                     uint64_t *steps);
bool machine_may(const struct machine *m, uint64_t user, unsigned right,
                 const struct fli_slice *name);
/* Whether no user was ever changed, and none was set up initially. */
bool machine_users_are_new(const struct machine *m);
uint64_t machine_users_digest(const struct machine *m); /* another one when a user has changed */
/* The name of the user with this login; empty when there is none any more. */
struct fli_slice machine_user_name(const struct machine *m, uint64_t user);

/* Reads the payloads of USERS and USER. 1: a user was read; 0: end; FL_ECORRUPT. */
int machine_users_next(struct fli_slice *payload, uint64_t *ret_user,
                       struct acl_user *ret) FLI_MUST_USE;

uint64_t machine_clock(const struct machine *m);
fl_token machine_last_token(const struct machine *m);
fl_token machine_min_live_token(
    const struct machine *m); /* smallest token still held; last_token + 1 when none */
bool machine_is_waiting(struct machine *m, uint64_t wait); /* whether this wait goes on */
uint64_t machine_cluster_id(const struct machine *m);      /* 0 before INIT */

/* The plan for a node, which the leader carries out (nodes.c). */
enum machine_plan {
    MACHINE_PLAN_NONE = 0,
    MACHINE_PLAN_ADD, /* the leader waits for it, and then adds it */
    MACHINE_PLAN_REMOVE,
    MACHINE_PLAN_REPLACE, /* removed, then added again, with an empty directory */
};

struct machine_node {
    uint64_t id;
    uint32_t version; /* the highest that it knows; 0: not yet told */
    enum machine_plan plan;
    bool learner; /* of a plan to add or replace: whether it is to be a learner */
    bool forced;  /* of a plan to remove or replace: see MACHINE_NODE_FORCED */
    char address[MACHINE_NODE_ADDRESS_MAX + 1]; /* of a plan to add or replace; else "" */
};
/* Whether it is to leave, for good or for another one in its place. */
static inline bool machine_node_leaves(const struct machine_node *n)
{
    return n->plan == MACHINE_PLAN_REMOVE || n->plan == MACHINE_PLAN_REPLACE;
}
/* The nodes by id. Valid until the next apply, as is the next one. */
const struct machine_node *machine_nodes(const struct machine *m, unsigned *ret_n);
/* Never NULL; id 0: nothing is known of it. */
const struct machine_node *machine_node_find(const struct machine *m, uint64_t id);
uint32_t machine_version(const struct machine *m); /* of the cluster: what all its nodes know */
uint32_t machine_version_max(void);                /* what this build knows */

const struct machine_limits *machine_get_limits(const struct machine *m);
const struct machine_settings *machine_get_settings(const struct machine *m);
/* Whether the setting may have this value; 0 is allowed for each. */
bool machine_setting_ok(uint64_t setting, uint64_t value);
void machine_setting_bounds(enum machine_setting setting, uint32_t *ret_min, uint32_t *ret_max);

struct machine_counts {
    /* Now. A lock with several holders counts in locks_held once for each, a wait for several
     * locks counts in waits once for each. */
    uint64_t locks_held, locks, sessions, sessions_explicit, waits;
    uint64_t work; /* sessions to end, locks to pass on and the like, in later batches */
    /* Ever; part of the state. A grant or a wait of several locks counts once. releases, expiries
     * and breaks count grants by how they ended, tokens those from TOKEN, limits the answers
     * LIMIT. */
    uint64_t grants, releases, expiries, breaks, tokens, waits_ended, deadlocks, limits;
};
void machine_get_counts(const struct machine *m, struct machine_counts *ret);

/* Snapshot: versioned, checksummed, canonical (equal states give equal bytes), of any size. The top
 * of snapshot.c describes the format.
 *
 * A sink takes its bytes and returns 0, or an error, which ends the writing. */
typedef int (*machine_sink)(void *ctx, const void *bytes, size_t len);

/* Writes the snapshot to a sink in pieces of at most 64 KiB. It changes and allocates nothing, so
 * it may run in the child of a fork. Returns 0, or the sink's first error, after which the sink is
 * not called again. */
int machine_snapshot_write(const struct machine *m, machine_sink sink, void *ctx) FLI_MUST_USE;

/* Offline, before the following: the users are those of a new cluster. Numbers of users are not
 * used again, so nobody comes back as another one. */
void machine_reset_users(struct machine *m);

/* Writes the snapshot with which a new cluster begins that inherits from this one: its users,
 * limits, counts and clock, with last_token (not below this one's), and without cluster id, nodes,
 * sessions, grants, delays or waits. Otherwise as machine_snapshot_write(). */
int machine_snapshot_write_heir(const struct machine *m, fl_token last_token, machine_sink sink,
                                void *ctx) FLI_MUST_USE;

/* Restores a snapshot that comes in pieces of any length. The bytes may be anything: each record is
 * checked before it is linked, and memory grows only with records that have come. Out of memory for
 * a record stops the process, as in apply. The new machine shares nothing with others. So all of
 * this may run on another thread, as may machine_destroy(), and a finished machine may move to
 * another thread.
 *
 * begin: 0 or FL_ENOMEM. feed: 0 or FL_ECORRUPT, which every later call repeats. finish checks the
 * whole and returns the machine: 0, FL_ECORRUPT, FL_EVERSION (whole, of a format that this version
 * does not read). finish and abort free the restore; NULL is fine for abort. */
struct machine_restore;
int machine_restore_begin(const uint64_t hash_seed[2], struct machine_restore **ret) FLI_MUST_USE;
int machine_restore_feed(struct machine_restore *r, const void *bytes, size_t len) FLI_MUST_USE;
int machine_restore_finish(struct machine_restore *r, struct machine **ret) FLI_MUST_USE;
void machine_restore_abort(struct machine_restore *r);

/* A 64-bit hash of the state, equal on replicas that applied the same log. It is updated with each
 * change (digest.c), so reading it costs next to nothing. Nodes compare theirs, also while they are
 * upgraded one by one: the version is raised when equal states get another hash. */
#define MACHINE_HASH_VERSION 2u
uint64_t machine_hash(const struct machine *m);

#endif
