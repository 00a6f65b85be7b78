/* state.h (private to machine): the records of the state, and the functions that the files of this
 * folder share.
 *
 *   machine --locks--> lock --holder--> request --session--> session (explicit, or implicit)
 *                       |                  ^
 *                       +--contention--> queue of waits (each: one request that waits)
 *                                        shares (each: one request that holds, of several)
 *                                        delay, place among the idle locks
 *
 * `slots` says how many may hold a lock together: 1 (exclusive), SLOTS_SHARED (any number, in
 * shared mode) or the permits of a semaphore. All holders of a lock have the same slots. A lock
 * held exclusively has a holder and no share, which keeps the common lock small. A lock that
 * several may hold has a share for each holder; the oldest of them is `holder`.
 *
 * A request is what one session wants of one lock: first it waits, then it holds. A grant changes
 * its record and allocates nothing. The record of an implicit session contains its only request.
 * The requests of one ACQUIRE of several locks are the parts of a multi-lock, which also contains
 * their implicit session. The parts wait under one id, are granted under one token, and end
 * together; they are always exclusive. Each record is one allocation with its bytes (name, owner,
 * value) at its end. Only a session's label, which can be replaced, is allocated apart.
 *
 * There may be millions of locks and of requests. They come from slabs (base/slab.h) and are
 * packed. Bytes per held lock of an implicit session with a 32-byte name and owner: 56 (lock) + 96
 * (session and request) + 8 (heap slot) + 8 to 16 (bucket) = 168 to 176. */
#ifndef MACHINE_STATE_H
#define MACHINE_STATE_H

#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "base/slab.h"
#include "machine/budget.h"
#include "machine/machine.h"
#include "machine/order.h"
#include "machine/outcomes.h"
#include "machine/rights.h"

#define CONST_CONTAINER_OF(ptr, type, member)                                                      \
    ((const type *)(const void *)((const char *)(ptr)-offsetof(type, member)))

#define SLOTS_SHARED UINT32_MAX
_Static_assert(FL_PERMITS_MAX < SLOTS_SHARED, "permits are no mode");

/* Kinds of timers, in the order in which timers with the same deadline run. First come those that
 * free locks, then those that remove waiters. So a wait that ends in the very millisecond in which
 * its turn comes is granted. */
enum timer_kind {
    TIMER_DELAY, /* a lock's delay is over */
    TIMER_LEASE_EXPLICIT,
    TIMER_LEASE_IMPLICIT,
    TIMER_WAIT_EXPLICIT,
    TIMER_WAIT_IMPLICIT,
};

/* Which heap a lease is in, see timers.c. Only the last is state. */
enum lease_place { LEASE_WATCHED, LEASE_LEAVING, LEASE_OVER };

struct timer {
    struct fli_heap_node node; /* first: see timer_less */
    uint32_t ttl_ms : 30;      /* leases only, as is the next */
    uint32_t place : 2;        /* enum lease_place */
    uint64_t at_ms : 52;       /* the deadline; of a lease: by the log, a lower bound, see
                                  machine_timer_deadline() */
    uint64_t kind : 3;         /* enum timer_kind */
    uint64_t is_multi : 1;     /* stored here because there is room. Of a lease: its session is
                                  the implicit one of a multi-lock */
    uint64_t owner_len : 8;    /* stored here likewise: of that session */
};

#define TIMER_AT_MAX_MS ((UINT64_C(1) << 52) - 1)
_Static_assert(MACHINE_CLOCK_MAX_MS + UINT32_MAX <= TIMER_AT_MAX_MS, "every deadline fits");

/* Work that a batch began and had no steps left for, see work.c. */
enum work_kind {
    WORK_SESSION, /* lose its requests, then end */
    WORK_MULTI,   /* end, after its release */
    WORK_LOCK,    /* broken: lose its holders; else be granted to waiters */
    WORK_USERS    /* users were changed: check the waits; always the last on the list */
};

struct work {
    struct fli_list link;
    enum work_kind kind;
};

/* Where a session comes from: its user, and the address of the client that made it. */
struct origin {
    uint32_t uid;
    uint8_t address_len;
    uint8_t address[MACHINE_ADDRESS_MAX];
};
#define ORIGIN_SIZE_MAX (5u + MACHINE_ADDRESS_MAX)

/* A user; machine_user_of() makes one number of uid and login. A login is valid until the user
 * loses a password or is switched off, which changes the user's login number. */
struct user {
    uint32_t uid; /* 0: the default user */
    uint32_t login;
    struct acl_user acl;
};

struct users {
    struct user **list; /* by uid; the default user is the first */
    unsigned n, cap;
    uint32_t last_uid;
    uint32_t bytes; /* of all users' records */
    bool sealed;
    bool open;                 /* the default user may do everything; derived, not state */
    uint64_t digest;           /* sum of their hashes */
    struct wait *recheck;      /* the next wait to check; NULL: none */
    uint64_t recheck_id;       /* its id; 0: none */
    struct work work;          /* linked while there is a wait to check */
    struct known_rights known; /* not state */
};

/* The sender of the command, or the query, that is being processed. */
struct machine_sender {
    bool is_node;
    const struct user *user; /* NULL: a node, or nobody, for what is due */
    struct fli_slice address;
};

/* The common head of both kinds of session. lease.kind tells the kind, also without a lease. */
struct session {
    struct timer lease;
    /* Not state: by how much the leader's deadline is later than `at_ms`; and how often this node
     * has seen the lease renewed since it began, for people. 2^32 - 1 stands for that and more. */
    uint32_t later_ms, renewals;
};

struct session_explicit {
    struct session base;
    struct fli_map_node by_key; /* the owner; once it is ending, the serial */
    struct work work;           /* linked while it is ending */
    struct order_node opened;   /* key: serial of the opening */
    struct fli_list held;       /* linked_request.at_session, in the order of grants */
    struct fli_list waits;      /* linked_request.at_session, in the order of wait ids */
    uint32_t n_held;
    uint32_t n_waits;
    uint32_t lockdelay_ms;
    uint64_t search_pause_ms;         /* searches for cycles are short before then */
    uint32_t degree;                  /* for the search for cycles only */
    uint64_t visited;                 /* the last search for cycles that came here */
    struct session_explicit *pending; /* for the search for cycles only */
    uint8_t *label;                   /* NULL when label_len is 0 */
    uint8_t label_len;
    uint8_t ending; /* enum machine_reason: why the session ends, now or in later batches */
    struct origin origin;
    uint8_t owner[];
};

/* The kind of a request tells where its session is, see request_session(). */
struct request {
    struct lock *lock;
    union {
        struct order_node held; /* key: held_key() */
        struct wait *wait;      /* while `waiting` */
    } at;
    uint64_t
        since_ms : 48; /* cluster clock of the grant; while `waiting` of the beginning, or 0 after
                             * a restore, so that is for events only */
    uint64_t value_len : 11;
    uint64_t waiting : 1;
    uint64_t is_multi : 1;   /* it is a part of a multi-lock */
    uint64_t linked : 1;     /* it is in a linked_request, as parts of a multi-lock are */
    uint64_t counted : 1;    /* its value says how often it was taken, see keys.c */
    uint64_t has_origin : 1; /* packed behind its implicit session's value is a struct origin */
};

struct session_implicit {
    struct session base;
    struct request request;
    uint8_t bytes[]; /* owner, value, origin */
};

/* A request that is not stored inside its session. */
struct linked_request {
    struct request request;
    struct session *session;
    struct fli_list at_session; /* when the session is explicit */
};

struct request_explicit {
    struct linked_request linked;
    uint8_t value[];
};

struct multi_part {
    struct linked_request linked;
    struct multi_lock *multi;
};

struct multi_lock {
    struct session own; /* the implicit session; unused when an explicit one has the multi-lock */
    struct multi_lock *pending; /* for the search for cycles only, as are the next two */
    uint64_t visited;
    uint32_t degree;
    struct work work; /* linked: the multi-lock was released */
    uint8_t n;
    struct multi_part
        parts[]; /* in the order of the names; then owner (implicit only), value, origin */
};

/* A lock is stored only while it is held, or while its contention record is needed. */
struct lock {
    struct fli_map_node by_name; /* own[LOCK_NAME_LEN], own[LOCK_CONTENDED] */
    union {
        struct request *holder;        /* NULL while it is being made or freed */
        struct contention *contention; /* when own[LOCK_CONTENDED] is 1 */
    } has;
    uint8_t name[];
};
#define LOCK_NAME_LEN 0
#define LOCK_CONTENDED 1

/* The part that only a contended, an idle or a shared lock has. */
struct contention {
    struct lock *lock;
    struct request *holder; /* the oldest; NULL while idle */
    struct fli_list shares; /* share.at_lock, in the order of grants */
    uint32_t n_shares;
    uint32_t slots;         /* of the holders, while there are any */
    uint32_t permits;       /* of the lock, as long as it is stored; 1: no semaphore */
    struct order queue;     /* of wait.in_queue, keys: wait ids */
    struct timer delay;     /* set while delayed */
    struct order_node idle; /* in machine.idle while the lock has no holder; key: serial */
    struct work work;       /* linked: see WORK_LOCK */
    bool is_idle;
    bool is_broken;   /* its holders have lost it; nobody is granted it until their records are
                         gone */
    bool is_delayed;  /* nobody is granted it; other holders may go on holding it */
    uint32_t n_multi; /* waits in the queue whose session also waits elsewhere */
};

/* One of the holders of a lock that several may hold. */
struct share {
    struct fli_map_node by_request; /* key: kind, lock, owner */
    struct fli_map_node by_token;
    struct fli_list at_lock;
    struct request *request;
};

/* A place in a queue. The parts of a multi-lock have one id; the first part's timer, by_id and
 * times_asked are for all. */
struct wait {
    struct timer timer;
    struct fli_map_node by_request; /* key: kind, lock, owner */
    struct fli_map_node by_id;
    struct order_node in_queue; /* key: the id */
    struct fli_list all;        /* in machine.waits, in the order of ids */
    struct request *request;
    uint64_t times_asked; /* how often it was requested: 1, and 1 more with each repetition */
    uint64_t visited;     /* the last search for cycles that came here */
    uint32_t degree;      /* for the search for cycles only */
    uint32_t slots;
    struct wait *pending;
};

struct machine {
    struct fli_map locks;            /* by name */
    struct fli_map sessions;         /* explicit ones, by owner */
    struct fli_map ending;           /* explicit ones that are ending, by serial */
    struct fli_map waits_by_request; /* by kind, lock and owner */
    struct fli_map waits_by_id;
    struct fli_map shares; /* by kind, lock and owner */
    struct fli_map shares_by_token;
    struct order held;        /* requests that hold, by token and, within a multi-lock, in order */
    struct order idle;        /* contention of locks without a holder, by serial */
    struct order opened;      /* explicit sessions, by serial */
    struct outcomes outcomes; /* of requests that may come again */
    struct fli_list waits;    /* all waits, by id */
    struct fli_list work;     /* work left for the next batch, the first piece first */
    uint64_t n_work;
    struct fli_heap timers;  /* what ends by the clock of the log, see timers.c */
    struct fli_heap leases;  /* that the leader watches; not state */
    struct fli_heap leaving; /* that it has proposed to end; not state */
    struct fli_slab slab;    /* locks, implicit sessions, requests of explicit ones */
    uint64_t clock_ms;
    uint64_t
        due_ms;    /* what has an earlier deadline is over; the clock, unless some of it is left */
    bool mark_due; /* a term mark that waits until nothing due is left */
    uint64_t floor_ms; /* clock of the last term mark: no lease ends before floor + its ttl */
    fl_token last_token;
    uint64_t serial; /* last number given to a wait, an explicit session or an idle lock */
    uint64_t cluster_id;
    uint64_t n_implicit; /* implicit sessions, waiting or holding */
    uint64_t n_grants;   /* tokens that hold a lock */
    struct users users;
    struct machine_limits limits;
    struct machine_settings settings;
    struct machine_node nodes[MACHINE_NODES_MAX]; /* sorted by id */
    unsigned n_nodes;
    uint32_t version;             /* of the cluster: what all its nodes know */
    struct machine_counts totals; /* only the fields that never decrease */
    uint64_t digest;              /* of all records and timers, see digest.c */
    uint64_t search;              /* number of the last search for cycles; not state */
    struct budget budget;         /* not state, but the same on all replicas */
    uint32_t steps;               /* left for work in this batch; not state */
    uint64_t spent;               /* in this batch; not state */
    uint64_t query_ms;            /* the time of the query at hand; not state */
    bool renewal_counts;          /* the renewal at hand is answered now; not state */
    struct machine_sender sender; /* not state */
    bool expiring;             /* timers that are due run, in the order of deadlines; not state */
    machine_event_cb event_cb; /* not state */
    void *event_ctx;
};

/* Small accessors. */

static inline bool session_is_explicit(const struct session *s)
{
    return s->lease.kind == TIMER_LEASE_EXPLICIT;
}
static inline struct session_explicit *session_explicit_of(struct session *s)
{
    FLI_ASSERT(session_is_explicit(s));
    return (struct session_explicit *)(void *)s;
}
static inline struct session_implicit *session_implicit_of(struct session *s)
{
    FLI_ASSERT(!session_is_explicit(s) && !s->lease.is_multi);
    return (struct session_implicit *)(void *)s;
}
static inline struct multi_lock *session_multi_of(struct session *s)
{
    FLI_ASSERT(!session_is_explicit(s) && s->lease.is_multi);
    return (struct multi_lock *)(void *)s;
}
static inline struct linked_request *linked_request_of(const struct request *request)
{
    FLI_ASSERT(request->linked);
    return FLI_CONTAINER_OF(request, struct linked_request, request);
}
static inline struct session *request_session(const struct request *request)
{
    return request->linked ? linked_request_of(request)->session
                           : &FLI_CONTAINER_OF(request, struct session_implicit, request)->base;
}
static inline struct request *multi_request(struct multi_lock *g, unsigned i)
{
    FLI_ASSERT(i < g->n);
    return &g->parts[i].linked.request;
}
/* The multi-lock of this request; NULL when the request was made alone. */
static inline struct multi_lock *request_multi(struct request *request)
{
    return request->is_multi ? FLI_CONTAINER_OF(request, struct multi_part, linked.request)->multi
                             : NULL;
}
/* The number of parts of the request's multi-lock, itself included; 1 for a request made alone. */
static inline unsigned request_parts(struct request *request)
{
    return request->is_multi ? request_multi(request)->n : 1;
}
static inline struct request *request_part(struct request *request, unsigned i)
{
    FLI_ASSERT(request->is_multi || i == 0);
    return request->is_multi ? multi_request(request_multi(request), i) : request;
}
/* The first request of an implicit session. */
static inline struct request *session_request(struct session *s)
{
    return s->lease.is_multi ? multi_request(session_multi_of(s), 0)
                             : &session_implicit_of(s)->request;
}
/* Tokens are below 2^53 and a multi-lock has at most 16 parts. */
static inline uint64_t held_key(fl_token token, unsigned index)
{
    return token << 4 | index;
}
static inline fl_token held_key_token(uint64_t key)
{
    return key >> 4;
}
static inline unsigned held_key_index(uint64_t key)
{
    return key & 15;
}
static inline struct request *request_of_held(struct order_node *n)
{
    return FLI_CONTAINER_OF(n, struct request, at.held);
}
static inline struct request *request_of_link(struct fli_list *at_session)
{
    return &FLI_CONTAINER_OF(at_session, struct linked_request, at_session)->request;
}
static inline struct contention *contention_of_idle(struct order_node *n)
{
    return FLI_CONTAINER_OF(n, struct contention, idle);
}
static inline struct wait *wait_of_queue(struct order_node *n)
{
    return FLI_CONTAINER_OF(n, struct wait, in_queue);
}
static inline struct share *share_of_link(struct fli_list *at_lock)
{
    return FLI_CONTAINER_OF(at_lock, struct share, at_lock);
}
static inline struct wait *wait_of_all(struct fli_list *n)
{
    return FLI_CONTAINER_OF(n, struct wait, all);
}
static inline struct session_explicit *session_of_opened(struct order_node *n)
{
    return FLI_CONTAINER_OF(n, struct session_explicit, opened);
}
static inline struct fli_slice lock_name(const struct lock *lock)
{
    return (struct fli_slice){lock->name, lock->by_name.own[LOCK_NAME_LEN]};
}
/* NULL unless the lock is awaited, idle, delayed, or held in shared mode or with permits. */
static inline struct contention *lock_contention(const struct lock *lock)
{
    return lock->by_name.own[LOCK_CONTENDED] != 0 ? lock->has.contention : NULL;
}
/* For a lock that has a contention record. */
static inline struct contention *contention_of(const struct lock *lock)
{
    FLI_ASSERT(lock->by_name.own[LOCK_CONTENDED] != 0);
    return lock->has.contention;
}
/* The oldest holder; NULL while the lock is idle. */
static inline struct request *lock_holder(const struct lock *lock)
{
    return lock->by_name.own[LOCK_CONTENDED] != 0 ? lock->has.contention->holder : lock->has.holder;
}
static inline void lock_set_holder(struct lock *lock, struct request *request)
{
    if (lock->by_name.own[LOCK_CONTENDED] != 0) {
        lock->has.contention->holder = request;
    } else {
        lock->has.holder = request;
    }
}
static inline void timer_set_ttl(struct timer *t, uint64_t ttl_ms)
{
    FLI_ASSERT(ttl_ms <= FL_TTL_MAX_MS);
    t->ttl_ms = ttl_ms & 0x3fffffff;
}
static inline void timer_set_at(struct timer *t, uint64_t at_ms)
{
    FLI_ASSERT(at_ms <= TIMER_AT_MAX_MS);
    t->at_ms = at_ms & TIMER_AT_MAX_MS;
}
static inline fl_token request_token(const struct request *request)
{
    FLI_ASSERT(!request->waiting);
    return held_key_token(request->at.held.key);
}
/* The number of permits of a lock that is requested, or held, with these slots. */
static inline uint32_t slots_permits(uint32_t slots)
{
    return slots == SLOTS_SHARED ? 1 : slots;
}
static inline uint32_t lock_permits(const struct lock *lock)
{
    const struct contention *c = lock_contention(lock);
    return c == NULL ? 1 : c->permits;
}
/* The slots of the holders of a held lock. */
static inline uint32_t lock_slots(const struct lock *lock)
{
    const struct contention *c = lock_contention(lock);
    FLI_ASSERT(lock_holder(lock) != NULL);
    return c == NULL || c->n_shares == 0 ? 1 : c->slots;
}
static inline uint32_t lock_holders(const struct lock *lock)
{
    const struct contention *c = lock_contention(lock);
    uint32_t shares = c == NULL ? 0 : c->n_shares;
    return shares > 0 ? shares : lock_holder(lock) != NULL;
}
static inline uint64_t wait_id(const struct wait *w)
{
    return w->in_queue.key;
}
static inline bool slices_equal(struct fli_slice a, struct fli_slice b)
{
    return fli_bytes_cmp(a.data, a.len, b.data, b.len) == 0;
}

/* session.c */
struct fli_slice machine_session_owner(const struct session *s);
/* NULL when there is no such session, or it is ending. */
struct session_explicit *machine_session_find(struct machine *m, struct fli_slice owner);
/* As above, but a session whose lease is over begins to end, and the result is NULL. */
struct session_explicit *machine_session_live(struct machine *m, struct fli_slice owner);
struct session_explicit *machine_session_find_ending(struct machine *m, uint64_t serial);
/* Whether the session's lease is over, or it is ending. */
bool machine_session_is_over(const struct machine *m, struct session *s);
/* Until then, the session's searches for cycles are short. */
void machine_session_pause_search(struct machine *m, struct session_explicit *s, uint64_t until_ms);
/* Moves the session from the map by owner to the map of ending ones. */
void machine_session_set_ending(struct machine *m, struct session_explicit *s,
                                enum machine_reason reason);
/* Creates a session without a lease; the caller sets the lease and describes the session. `serial`
 * is larger than that of any other. */
struct session_explicit *machine_session_create(struct machine *m, struct fli_slice owner,
                                                uint64_t serial, const struct origin *origin);
void machine_session_describe(struct machine *m, struct session_explicit *s, uint32_t lockdelay_ms,
                              struct fli_slice label);
/* Moves the end of the lease to at least now + ttl; a ttl of 0 keeps the session's. Returns the
 * end. */
uint64_t machine_session_renew(struct machine *m, struct session *s, uint64_t ttl_ms);
/* Releases or expires all its locks, removes its waits and frees it; now, or in later batches. */
void machine_session_end(struct machine *m, struct session_explicit *s, enum machine_reason reason);
/* Unlinks and frees an explicit session that holds and awaits nothing. */
void machine_session_free(struct machine *m, struct session_explicit *s);
uint64_t machine_sessions_len(const struct machine *m);

/* lock_request.c */
/* Creates an implicit session and its request at the lock, which neither waits nor holds yet. */
struct request *machine_request_create_implicit(struct machine *m, struct lock *lock,
                                                struct fli_slice owner, uint64_t ttl_ms,
                                                struct fli_slice value,
                                                const struct origin *origin);
struct request *machine_request_create_explicit(struct machine *m, struct lock *lock,
                                                struct session_explicit *s, struct fli_slice value);
/* Creates the requests of a multi-lock at these locks. They belong to session s or, when that is
 * NULL, to a new implicit one with this owner and ttl. Returns the first request. */
struct request *machine_multi_create(struct machine *m, struct lock *const *locks, unsigned n,
                                     struct session_explicit *s, struct fli_slice owner,
                                     uint64_t ttl_ms, struct fli_slice value,
                                     const struct origin *origin);
/* The user and address of a session. When an implicit one has none recorded, the default user. */
struct origin machine_session_origin(struct session *s);
uint32_t machine_session_uid(struct session *s);             /* its user alone */
struct fli_slice machine_session_address(struct session *s); /* points into its record */
/* Packed: uid 4, address (length 1, bytes). Zero bytes for the default user without an address. */
size_t machine_origin_pack(const struct origin *origin, uint8_t out[ORIGIN_SIZE_MAX]);
bool machine_origin_unpack(struct fli_slice packed, struct origin *ret);
/* Frees a request that neither waits nor holds, together with the other parts of its multi-lock and
 * its implicit session. */
void machine_request_free(struct machine *m, struct request *request);
struct fli_slice machine_request_value(const struct request *request);

/* users.c */
void machine_users_init(struct machine *m);
void machine_users_fini(struct machine *m);
/* Identifies the sender, and checks what can be checked by the command alone. False: r holds the
 * answer. machine_sender_leave() ends it. */
bool machine_sender_enter(struct machine *m, const struct machine_command *c,
                          struct machine_result *r);
void machine_sender_leave(struct machine *m);
bool machine_sender_may(const struct machine *m, unsigned right, struct fli_slice name,
                        uint64_t *steps);
bool machine_sender_may_all(const struct machine *m, unsigned right);
bool machine_sender_owns(const struct machine *m, struct session *s);
struct origin machine_sender_origin(const struct machine *m);
/* Answers that the sender lacks this right. */
void machine_refuse(struct machine_result *r, unsigned right);
/* Whether the user of a wait may still acquire it; this compares only while the check goes on. */
bool machine_wait_may(struct machine *m, const struct wait *w);
void machine_user_set(struct machine *m, const struct machine_command *c, struct machine_result *r);
void machine_user_delete(struct machine *m, const struct machine_command *c,
                         struct machine_result *r);
void machine_users_seal(struct machine *m);
/* Continues the check of waits after a change of users, behind all other work. */
void machine_users_work(struct machine *m);
/* This wait is about to be removed: the check goes on at the next one. */
void machine_users_skip(struct machine *m, struct wait *w);
/* The user's name; empty for the default user, and for one that was deleted. */
struct fli_slice machine_uid_name(const struct machine *m, uint32_t uid);
int machine_users_query(struct machine *m, const struct machine_command *q,
                        struct machine_result *r, struct fli_buf *payload);
#define USER_RECORD_MAX (8 + ACL_ENCODED_MAX)
size_t machine_user_encode(const struct user *u, uint8_t out[USER_RECORD_MAX]);
/* Loads a user from a snapshot, in the order of uids. The first must be the default user. */
bool machine_users_load(struct machine *m, struct fli_reader *r, bool first);

/* lock.c */
struct lock *machine_lock_find(struct machine *m, struct fli_slice name, uint64_t *ret_hash);
struct lock *machine_lock_create(struct machine *m, struct fli_slice name, uint64_t hash);
struct contention *machine_lock_contend(struct lock *lock); /* makes one if there is none */
/* Whether the holders admit one more with these slots; the queue is not considered. */
bool machine_lock_admits(const struct lock *lock, uint32_t slots);
/* The request with which this session holds the lock; NULL when it does not. */
struct request *machine_lock_held_by(struct machine *m, const struct lock *lock, bool is_explicit,
                                     struct fli_slice owner);
/* The request that holds the lock under this token; NULL when none does. */
struct request *machine_lock_held_under(struct machine *m, const struct lock *lock, fl_token token);
/* Links a request that neither waits nor holds (of a multi-lock, its index-th part) as a holder.
 * Counts nothing and emits no event. */
void machine_lock_hold(struct machine *m, struct request *request, uint32_t slots, fl_token token,
                       unsigned index, uint64_t since_ms);
/* The reverse; the lock and the request remain. */
void machine_lock_unhold(struct machine *m, struct request *request);
/* Grants the request its lock; of a multi-lock, whose first part `request` is, all parts. The locks
 * must admit them. wait: the id of the wait before, or 0. Counts the grant and emits its events. */
void machine_lock_grant(struct machine *m, struct request *request, uint32_t slots, uint64_t wait);
/* Ends a grant, with all parts of a multi-lock. Emits the events (RELEASED, EXPIRED or BROKEN, with
 * the reason), frees the requests and passes the locks on, now or after delay_ms. */
void machine_lock_end(struct machine *m, struct request *request, enum machine_event_type type,
                      enum machine_reason reason, uint64_t delay_ms);
/* Whether a request that holds has lost its lock while its record still exists. */
bool machine_request_is_over(const struct machine *m, struct request *request);
/* Ends the grant of such a request at once. */
void machine_request_finish(struct machine *m, struct request *request);
/* Ends all grants and the delay of the lock, and passes it on; now, or in later batches. */
void machine_lock_break(struct machine *m, struct lock *lock);
/* Makes a lock without a holder idle. */
void machine_lock_idle(struct machine *m, struct lock *lock, uint64_t serial);
/* Until then, nobody is granted the lock. */
void machine_lock_delay(struct machine *m, struct lock *lock, uint64_t until_ms);
/* Whether the first wait in the lock's queue could be granted now. For a multi-lock: whether all
 * its parts are first in their queues and the holders let them in. */
bool machine_lock_is_ready(const struct lock *lock);
/* Whether a grant to the first wait is scheduled as work, at this lock or at another one it
 * needs. */
bool machine_lock_is_pending(const struct lock *lock);
/* Grants each of these locks to as many waits as queue and holders allow, now or in later batches,
 * and frees what is no longer needed. The locks are of one grant, or of one wait; in this order. */
void machine_lock_settle_all(struct machine *m, struct lock *const *locks, unsigned n);
/* Ends the delay and passes the lock on. */
void machine_lock_end_delay(struct machine *m, struct lock *lock);
/* Frees lock and contention, which nothing refers to any more. */
void machine_lock_free(struct machine *m, struct lock *lock);

/* wait.c */
struct wait *machine_wait_find(struct machine *m, const struct lock *lock, bool is_explicit,
                               struct fli_slice owner);
struct wait *machine_wait_find_id(struct machine *m, uint64_t id);
/* Puts a request (of a multi-lock, all parts) at the end of the queues. Emits no event. Returns the
 * wait of the request, which is the first part. */
struct wait *machine_wait_join(struct machine *m, struct request *request, uint32_t slots,
                               uint64_t id, uint64_t times_asked, uint64_t deadline_ms);
/* Builds the key of a request: kind, lock and owner, as one run of bytes. Returns its length. */
#define REQUEST_KEY_MAX (2 + FL_NAME_MAX + FL_OWNER_MAX)
size_t machine_request_key(uint8_t key[REQUEST_KEY_MAX], const struct lock *lock, bool is_explicit,
                           struct fli_slice owner);
/* Unlinks and frees the wait, with those of the other parts of its multi-lock. Returns the first
 * request, which then neither waits nor holds. */
struct request *machine_wait_detach(struct machine *m, struct wait *w);
/* Emits the event, detaches the wait and frees the requests (an implicit session ends). Returns the
 * number of locks that it waited for; waits behind it may be grantable now. */
unsigned machine_wait_remove(struct machine *m, struct wait *w, enum machine_reason reason,
                             struct lock *locks[MACHINE_NAMES_MAX]);
/* Does the same, and settles the locks. */
void machine_wait_end(struct machine *m, struct wait *w, enum machine_reason reason);

/* work.c */
void machine_charge(struct machine *m, uint32_t steps);
/* Puts a piece of work before all others. It may be on the list already. */
void machine_work_later(struct machine *m, struct work *w);
/* Puts it behind all others, but not behind the check of waits after a change of users. */
void machine_work_last(struct machine *m, struct work *w);
void machine_work_forget(struct machine *m, struct work *w); /* fine when it is not on the list */
void machine_work_init(struct work *w, enum work_kind kind);
/* Does the work that was left, but for that check, as far as the steps go. */
void machine_work(struct machine *m);
struct session_explicit *machine_work_session(struct work *w);
struct multi_lock *machine_work_multi(struct work *w);
struct contention *machine_work_contention(struct work *w);
/* Does one piece of a lock's work: removes one holder, or grants one wait. */
void machine_lock_work(struct machine *m, struct contention *c);
/* Does one piece of a session's end. */
void machine_session_work(struct machine *m, struct session_explicit *s);

/* timers.c */
void machine_timers_init(struct machine *m);
void machine_timer_init(struct timer *t, enum timer_kind kind);
void machine_timer_set(struct machine *m, struct timer *t, uint64_t deadline_ms);
void machine_timer_clear(struct machine *m, struct timer *t); /* one that is not set is fine */
static inline bool machine_timer_is_set(const struct timer *t)
{
    return t->node.pos != FLI_HEAP_NONE;
}
/* The deadline by the log: that of a lease is not before the last term mark + ttl. */
uint64_t machine_timer_deadline(const struct machine *m, const struct timer *t);
/* Until when the leader watches the lease, which is at least as long; for answers only, since
 * replicas differ in it. */
uint64_t machine_lease_until(const struct machine *m, const struct session *s);
/* Expires everything that is due at the machine's clock, as far as the steps go. */
void machine_expire(struct machine *m);
/* Whether anything that is due is left. */
bool machine_is_late(const struct machine *m);
static inline bool machine_is_behind(const struct machine *m)
{
    return m->n_work > 0 || machine_is_late(m);
}

/* Sets the lease of a session, with a new ttl. */
void machine_lease_set(struct machine *m, struct timer *t, uint32_t ttl_ms, uint64_t deadline_ms);
/* Does the same for a lease that is set, and counts a renewal. */
void machine_lease_renew(struct machine *m, struct timer *t, uint32_t ttl_ms, uint64_t deadline_ms);
/* Renews a lease that is watched for its leader alone. False: that needs an entry. */
bool machine_lease_watch(struct machine *m, struct session *s, uint64_t deadline_ms);
/* A lease that was just set by a snapshot is over, or not. */
void machine_lease_restore(struct machine *m, struct timer *t, bool is_over);
/* EXPIRE: the lease is over at its deadline, unless an entry has renewed it for longer. */
void machine_lease_expire(struct machine *m, const struct machine_command *c);
/* A number that no other timer of this kind has; 0 for a delay, which is told apart by its name. */
uint64_t machine_timer_id(const struct timer *t);
struct fli_slice machine_timer_name(const struct timer *t);

/* digest.c: the hash that each record and each timer adds to the digest. Code that changes a record
 * subtracts its hash before and adds it after. The first part of a multi-lock stands for all. */
uint64_t machine_digest_session(const struct session_explicit *s);
uint64_t machine_digest_grant(struct request *request);
uint64_t machine_digest_wait(const struct wait *w);
uint64_t machine_digest_times_asked(const struct wait *w);
uint64_t machine_digest_idle(const struct contention *c);
uint64_t machine_digest_timer(const struct timer *t);

uint64_t machine_digest_work(struct work *w); /* of a multi-lock, a lock or the users */
uint64_t machine_digest_user(struct fli_slice record);

/* limit.c */
void machine_config_apply(struct machine *m, const struct machine_command *c,
                          struct machine_result *r);
/* Whether those settings that are set fit together. */
bool machine_settings_ok(const struct machine_settings *s);

/* nodes.c: NODE_ADD and its siblings, VERSION_RAISE */
void machine_nodes_apply(struct machine *m, const struct machine_command *c,
                         struct machine_result *r);

/* deadlock.c */
enum deadlock { DEADLOCK_NONE, DEADLOCK_CYCLE, DEADLOCK_UNKNOWN };
/* Would a cycle close if session s waited at the end of the queues of these n locks (some may be
 * NULL)? UNKNOWN: to tell would take more steps than there are. */
enum deadlock machine_deadlock_search(struct machine *m, struct session_explicit *s,
                                      struct lock *const *locks, unsigned n);
/* Whether no cycle exists in the whole machine. O(sessions + waits). */
bool machine_has_no_deadlock(struct machine *m);

/* acquire.c */
void machine_acquire(struct machine *m, const struct machine_command *c, struct machine_result *r);
void machine_answer_granted(struct machine *m, const struct request *request,
                            struct machine_result *r);
/* Repeats a request that waits: its count rises, and its deadline does not become earlier. */
void machine_wait_repeat(struct machine *m, struct wait *w, const struct machine_command *c,
                         struct machine_result *r);
void machine_answer_queued(const struct wait *w, struct machine_result *r);
/* Searches for a cycle that the wait would close. True when it must not be made; r says why. */
bool machine_refuse_cycle(struct machine *m, struct session_explicit *s, struct lock *const *locks,
                          unsigned n, struct machine_result *r);

/* Removes what this owner has at the command's locks and has already lost. False when there are no
 * steps left for that. */
bool machine_clear_own(struct machine *m, const struct machine_command *c);

/* keys.c: KEYS and the query KEY; lock_request.c: how often a counted request was taken, else 0. */
#define HOLD_COUNT_SIZE 4u /* bytes of a count, in the place of the request's value */
void machine_keys(struct machine *m, const struct machine_command *c, struct machine_result *r);
bool machine_keys_watch(struct machine *m, const struct machine_command *c,
                        struct machine_result *r);
int machine_key(struct machine *m, const struct machine_command *q, struct machine_result *r,
                struct fli_buf *payload);
uint32_t machine_request_count(const struct request *request);
void machine_request_set_count(struct request *request, uint32_t n);

/* query.c: the oldest holder, if it still holds the lock; else NULL. *ret_more: it does not, and
 * others have shares. Looking through them takes too long, so whether one holds it stays open. */
struct request *machine_lock_oldest(const struct machine *m, const struct lock *lock,
                                    bool *ret_more);

/* multi_lock.c: ACQUIRE of several locks; s is NULL for an implicit session. */
void machine_acquire_multi(struct machine *m, const struct machine_command *c,
                           struct session_explicit *s, struct machine_result *r);

/* machine.c */
void machine_emit(struct machine *m, struct machine_event *e); /* clock_ms is filled in */
/* Does the same for a session's event, and fills in the session's fields. */
void machine_emit_of(struct machine *m, struct session *s, struct machine_event *e);
static inline void machine_answer_limit(struct machine *m, struct machine_result *r,
                                        enum machine_limit limit)
{
    m->totals.limits++;
    r->code = MACHINE_LIMIT;
    r->number = limit;
}

#endif
