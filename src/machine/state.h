/* state.h (private to machine): the records of the state and what the files of this folder do for
 * each other.
 *
 *   machine --locks--> lock --holder--> request --session--> session (explicit, or implicit)
 *                       |                  ^
 *                       +--contention--> queue of waits (each: one request that waits)
 *                                        shares (each: one request that holds, of several)
 *                                        delay, place among the idle locks
 *
 * How many may hold a lock together is said by slots: 1 (exclusive), SLOTS_SHARED (any number, in
 * shared mode) or the permits of a semaphore. The holders of a lock all have the same slots. A lock
 * held exclusively has a holder and no share, so what most locks are costs nothing more; one that
 * several may hold has a share for each holder, the oldest of which is `holder`.
 *
 * A request is one session's claim to one lock, its place at one lock: first it waits, then it
 * holds; a grant changes a record and allocates nothing. The record of an implicit session carries
 * its only request. The requests of one ACQUIRE of several locks are the parts of a multi-lock,
 * which also carries their implicit session: they wait under one id, are granted under one token,
 * and end together, always exclusively. Each record is one allocation with its bytes (name, owner,
 * value) at its end; only a session's label, which can be replaced, stands apart.
 *
 * Of locks, and of requests at one lock, there may be millions; they come from slabs (base/slab.h)
 * and are packed. Bytes per held lock of an implicit session with a 32-byte name and owner: 56
 * (lock) + 96 (session and request) + 8 (heap slot) + 8 to 16 (bucket) = 168 to 176. */
#ifndef MACHINE_STATE_H
#define MACHINE_STATE_H

#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "base/slab.h"
#include "machine/budget.h"
#include "machine/machine.h"
#include "machine/order.h"
#include "machine/reentrant.h"

#define CONST_CONTAINER_OF(ptr, type, member)                                                      \
    ((const type *)(const void *)((const char *)(ptr)-offsetof(type, member)))

#define SLOTS_SHARED UINT32_MAX
_Static_assert(FL_PERMITS_MAX < SLOTS_SHARED, "permits are no mode");

/* What is due, in the order in which things of the same deadline happen: first what makes locks
 * free, then what takes waiters away, so that a wait that ends in the very millisecond in which its
 * turn comes is granted. */
enum timer_kind {
    TIMER_DELAY, /* a lock's delay is over */
    TIMER_LEASE_EXPLICIT,
    TIMER_LEASE_IMPLICIT,
    TIMER_WAIT_EXPLICIT,
    TIMER_WAIT_IMPLICIT,
};

struct timer {
    struct fli_heap_node node; /* first: see timer_less */
    uint32_t ttl_ms;           /* leases only */
    uint64_t at_ms : 52;       /* the deadline; of a lease: a lower bound, see
                                  machine_timer_deadline */
    uint64_t kind : 3;         /* enum timer_kind */
    uint64_t is_multi : 1;     /* here because there is room: of a lease, whether its session is
                                  the implicit one of a multi-lock */
    uint64_t owner_len : 8;    /* likewise: of that session */
};

#define TIMER_AT_MAX_MS ((UINT64_C(1) << 52) - 1)
_Static_assert(MACHINE_CLOCK_MAX_MS + UINT32_MAX <= TIMER_AT_MAX_MS, "every deadline fits");

/* What a batch began and has no steps left for, see work.c. */
enum work_kind {
    WORK_SESSION, /* to lose its requests and to end */
    WORK_MULTI,   /* released, to end */
    WORK_LOCK,    /* broken, to lose its holders; or to be granted to who waits */
    WORK_USERS    /* users were changed: waits are to be looked at */
};

struct work {
    struct fli_list link;
    enum work_kind kind;
};

/* Whose a session is. */
struct who {
    uint32_t uid;
    uint8_t address_len;
    uint8_t address[MACHINE_ADDRESS_MAX];
};
#define WHO_SIZE_MAX (5u + MACHINE_ADDRESS_MAX)

/* A user; uid and login are in what machine_user_of() makes. A login is good until the user loses a
 * password or is switched off, which gives it another number. */
struct user {
    uint32_t uid; /* 0: the default user */
    uint32_t login;
    struct acl_user acl;
};

struct users {
    struct user **list; /* by uid; the default user is the first */
    unsigned n, cap;
    uint32_t last_uid;
    uint32_t bytes; /* of all records */
    bool sealed;
    bool open;            /* the default user may do everything; not state of its own */
    uint64_t digest;      /* sum of their hashes */
    struct wait *recheck; /* the next wait to look at; NULL: none */
    uint64_t recheck_id;  /* its id; 0: none */
    struct work work;     /* linked while there is one */
};

/* Who sends the command, or the query, at hand. */
struct machine_asker {
    bool is_node;
    const struct user *user; /* NULL: a node, or nobody: things that are due */
    struct fli_slice address;
};

/* The common head of both kinds; lease.kind says which it is, also while it has no lease. */
struct session {
    struct timer lease;
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
    uint64_t tired_ms;                /* before then its searches for cycles are short */
    uint32_t renewals;                /* see machine_session_renewals */
    uint32_t degree;                  /* scratch of the search for cycles */
    uint64_t mark;                    /* scratch of the search for cycles */
    struct session_explicit *pending; /* scratch of the search for cycles */
    uint8_t *label;                   /* NULL when label_len is 0 */
    uint8_t label_len;
    uint8_t ending; /* enum machine_reason: why it loses everything, now or in batches to come */
    struct who who;
    uint8_t owner[];
};

/* Its session is found by what kind of request it is, see request_session(). */
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
    uint64_t is_multi : 1; /* it is a part of a multi-lock */
    uint64_t linked : 1;   /* it is in a linked_request, as parts of a multi-lock are */
    uint64_t counted : 1;  /* its value says how often it was taken, see reentrant.c */
    uint64_t has_who : 1;  /* a struct who, packed, is behind its implicit session's value */
};

struct session_implicit {
    struct session base;
    struct request request;
    uint32_t renewals; /* see machine_session_renewals */
    uint8_t bytes[];   /* owner, value, who */
};

/* A request that is not inside its session. */
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
    struct multi_lock *pending; /* scratch of the search for cycles, as are the next two */
    uint64_t mark;
    uint32_t degree;
    struct work work;  /* linked: it was released */
    uint32_t renewals; /* see machine_session_renewals */
    uint8_t n;
    struct multi_part
        parts[]; /* in the order of the names; then owner (implicit only), value, who */
};

/* A lock is stored only while it is held, or has something in its contention record. */
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

/* What only a contended, an idle or a shared lock needs. */
struct contention {
    struct lock *lock;
    struct request *holder; /* the oldest; NULL while idle */
    struct fli_list shares; /* share.at_lock, in the order of grants */
    uint32_t n_shares;
    uint32_t slots;         /* of the holders, while there are any */
    uint32_t permits;       /* of the lock, as long as it is stored; 1: it is no semaphore */
    struct order queue;     /* of wait.in_queue, keys: wait ids */
    struct timer delay;     /* set while delayed */
    struct order_node idle; /* in machine.idle while the lock has no holder; key: serial */
    struct work work;       /* linked: see WORK_LOCK */
    bool is_idle;
    bool is_broken;   /* its holders have lost it, and nobody is granted it before they are gone */
    bool is_delayed;  /* nobody is granted it; who holds it with others may go on holding it */
    uint32_t n_multi; /* waits in the queue whose session waits elsewhere too */
};

/* One of the holders of a lock that several may hold. */
struct share {
    struct fli_map_node by_request; /* key: kind, lock, owner */
    struct fli_map_node by_token;
    struct fli_list at_lock;
    struct request *request;
};

/* A place in a queue. The parts of a multi-lock have one id; the timer, by_id and asking of the
 * first of them are for all. */
struct wait {
    struct timer timer;
    struct fli_map_node by_request; /* key: kind, lock, owner */
    struct fli_map_node by_id;
    struct order_node in_queue; /* key: the id */
    struct fli_list all;        /* in machine.waits, in the order of ids */
    struct request *request;
    uint64_t times_asked; /* 1, and 1 more each time it is asked for again */
    uint64_t mark;        /* scratch of the search for cycles */
    uint32_t degree;      /* scratch of the search for cycles */
    uint32_t slots;
    struct wait *pending;
};

/* A request that was sent more than once: the highest number of an attempt. */
struct attempt {
    struct fli_map_node node;
    struct fli_list link; /* in machine.attempts_list */
    uint64_t highest;
    uint64_t at_ms; /* the cluster clock when it came */
    size_t key_len;
    uint8_t key[]; /* uid 4, kind 1, name (length 1, bytes), owner */
};
#define ATTEMPT_KEY_MAX (4 + 1 + 1 + FL_NAME_MAX + FL_OWNER_MAX)

struct node {
    uint64_t id;
    uint64_t incarnation; /* 0: it has not joined yet */
    uint64_t former;      /* the incarnation that it replaces, and that may not join; 0: none */
    uint32_t version;     /* that it knows; 0: not told */
    uint8_t plan;         /* enum machine_plan */
    uint8_t learner;      /* what it is to become, of one that is to be added or replaced */
    uint16_t address_len;
    char address[MACHINE_NODE_ADDRESS_MAX + 1];
};

struct machine {
    struct fli_map locks;            /* by name */
    struct fli_map sessions;         /* explicit ones, by owner */
    struct fli_map ending;           /* explicit ones that are ending, by serial */
    struct fli_map waits_by_request; /* by kind, lock and owner */
    struct fli_map waits_by_id;
    struct fli_map shares; /* by kind, lock and owner */
    struct fli_map shares_by_token;
    struct order held;       /* requests that hold, by token and, within a multi-lock, in order */
    struct order idle;       /* contention of locks without a holder, by serial */
    struct order opened;     /* explicit sessions, by serial */
    struct fli_map attempts; /* by user, kind, lock and owner */
    struct fli_list attempts_list; /* the one that came last is the last */
    struct leaves leaves;
    struct fli_list waits; /* all waits, by id */
    struct fli_list work;  /* what goes on in the next batch, first thing first */
    uint64_t n_work;
    struct fli_heap timers;
    struct fli_slab slab; /* locks, implicit sessions, requests of explicit ones */
    uint64_t clock_ms;
    uint64_t
        due_ms; /* what has a deadline before it is over; the clock, unless some of that is left */
    bool mark_due;     /* a term mark that waits until nothing of that is left */
    uint64_t floor_ms; /* clock of the last term mark: no lease ends before floor + its ttl */
    fl_token last_token;
    uint64_t serial; /* last number given to a wait, an explicit session or an idle lock */
    uint64_t cluster_id;
    uint64_t n_implicit; /* implicit sessions, waiting or holding */
    uint64_t n_grants;   /* tokens that are held */
    struct users users;
    struct machine_limits limits;
    struct machine_settings settings;
    struct node nodes[MACHINE_NODES_MAX]; /* by id */
    unsigned n_nodes;
    uint32_t version;           /* of the cluster: what all its nodes know */
    struct machine_counts ever; /* only the fields that count for ever */
    uint64_t digest;            /* of all records and timers, see digest.c */
    uint64_t search;            /* number of the last search for cycles; not state */
    struct budget budget;       /* not state, but the same on all replicas */
    uint32_t steps;             /* left for work in this batch; not state */
    uint64_t spent;             /* in this batch; not state */
    struct machine_asker asker; /* not state */
    bool expiring;              /* things happen in the order of their deadlines; not state */
    struct released *released;  /* keys_any.c; NULL until it is needed; not state */
    machine_event_cb event_cb;  /* not state */
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
/* NULL when the request was asked for alone. */
static inline struct multi_lock *request_multi(struct request *request)
{
    return request->is_multi ? FLI_CONTAINER_OF(request, struct multi_part, linked.request)->multi
                             : NULL;
}
/* The parts of the multi-lock that this request is of, itself included; i counts from 0. */
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
/* Tokens are below 2^53 and parts of a multi-lock at most 16. */
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
/* NULL unless awaited, idle, delayed or held with others. */
static inline struct contention *lock_contention(const struct lock *lock)
{
    return lock->by_name.own[LOCK_CONTENDED] != 0 ? lock->has.contention : NULL;
}
/* Of a lock that has one. */
static inline struct contention *contention_of(const struct lock *lock)
{
    FLI_ASSERT(lock->by_name.own[LOCK_CONTENDED] != 0);
    return lock->has.contention;
}
/* The oldest; NULL while idle. */
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
/* The permits of a lock that is asked for, or held, with these slots. */
static inline uint32_t slots_permits(uint32_t slots)
{
    return slots == SLOTS_SHARED ? 1 : slots;
}
static inline uint32_t lock_permits(const struct lock *lock)
{
    const struct contention *c = lock_contention(lock);
    return c == NULL ? 1 : c->permits;
}
/* The slots of the holders of a lock that is held. */
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
/* NULL when there is none, or it is ending. */
struct session_explicit *machine_session_find(struct machine *m, struct fli_slice owner);
/* NULL as well when its lease is over, and then it begins to end. */
struct session_explicit *machine_session_live(struct machine *m, struct fli_slice owner);
struct session_explicit *machine_session_find_ending(struct machine *m, uint64_t serial);
/* Whether its lease is over, or it is ending. */
bool machine_session_is_over(const struct machine *m, struct session *s);
/* Its searches for cycles are short before then. */
void machine_session_set_tired(struct machine *m, struct session_explicit *s, uint64_t until_ms);
/* Takes it out of the sessions that are found by their owners. */
void machine_session_set_ending(struct machine *m, struct session_explicit *s,
                                enum machine_reason reason);
/* A session without a lease, which the caller sets, as he describes the session. serial is larger
 * than that of any other. */
struct session_explicit *machine_session_create(struct machine *m, struct fli_slice owner,
                                                uint64_t serial, const struct who *who);
void machine_session_describe(struct machine *m, struct session_explicit *s, uint32_t lockdelay_ms,
                              struct fli_slice label);
/* Moves the lease to at least now + ttl; a ttl of 0 keeps the session's. Returns its end. */
uint64_t machine_session_renew(struct machine *m, struct session *s, uint64_t ttl_ms);
/* How often the lease was renewed since it began, by whatever command; 2^32 - 1 stands for that and
 * more. A record of the state, for people: nothing is decided by it. */
uint32_t *machine_session_renewals(struct session *s);
/* Releases or loses all its locks, removes its waits, frees it; now, or in batches to come. */
void machine_session_end(struct machine *m, struct session_explicit *s, enum machine_reason reason);
/* Takes an explicit session that holds and awaits nothing out of everything and frees it. */
void machine_session_free(struct machine *m, struct session_explicit *s);
uint64_t machine_sessions_len(const struct machine *m);

/* lock_request.c */
/* A new implicit session, with its request at the lock; it neither waits nor holds yet. */
struct request *machine_request_create_implicit(struct machine *m, struct lock *lock,
                                                struct fli_slice owner, uint64_t ttl_ms,
                                                struct fli_slice value, const struct who *who);
struct request *machine_request_create_explicit(struct machine *m, struct lock *lock,
                                                struct session_explicit *s, struct fli_slice value);
/* The requests of a multi-lock at these locks, of this session or (NULL) of a new implicit one with
 * this owner and ttl. Returns the first. */
struct request *machine_multi_create(struct machine *m, struct lock *const *locks, unsigned n,
                                     struct session_explicit *s, struct fli_slice owner,
                                     uint64_t ttl_ms, struct fli_slice value,
                                     const struct who *who);
/* Whose session it is; of an implicit one that was not written down, the default user's. */
struct who machine_session_who(struct session *s);
uint32_t machine_session_uid(struct session *s);             /* of that */
struct fli_slice machine_session_address(struct session *s); /* as part of its record */
/* Packed: uid 4, address (length 1, bytes). Nothing for the default user without an address. */
size_t machine_who_pack(const struct who *who, uint8_t out[WHO_SIZE_MAX]);
bool machine_who_unpack(struct fli_slice packed, struct who *ret);
/* Frees a request that neither waits nor holds, with the other parts of its multi-lock and its
 * implicit session. */
void machine_request_free(struct machine *m, struct request *request);
struct fli_slice machine_request_value(const struct request *request);

/* users.c */
void machine_users_init(struct machine *m);
void machine_users_fini(struct machine *m);
/* Finds out who asks, and whether he may as far as the command alone tells. False: r says why not.
 * Ends with machine_asker_leave(). */
bool machine_asker_enter(struct machine *m, const struct machine_command *c,
                         struct machine_result *r);
void machine_asker_leave(struct machine *m);
bool machine_asker_may(const struct machine *m, unsigned right, struct fli_slice name,
                       uint64_t *steps);
bool machine_asker_may_all(const struct machine *m, unsigned right);
bool machine_asker_owns(const struct machine *m, struct session *s);
struct who machine_asker_who(const struct machine *m);
/* r says that it lacks a right. */
void machine_refuse(struct machine_result *r, unsigned right);
/* Whether the user of a wait may have what it waits for. */
bool machine_wait_may(const struct machine *m, const struct wait *w);
void machine_user_set(struct machine *m, const struct machine_command *c, struct machine_result *r);
void machine_user_delete(struct machine *m, const struct machine_command *c,
                         struct machine_result *r);
void machine_users_seal(struct machine *m);
void machine_users_work(struct machine *m); /* looks at one wait */
/* This wait goes: the next one is looked at instead. */
void machine_users_skip(struct machine *m, struct wait *w);
/* The name of the user; empty for the default one, and for one that was deleted. */
struct fli_slice machine_uid_name(const struct machine *m, uint32_t uid);
int machine_users_query(struct machine *m, const struct machine_command *q,
                        struct machine_result *r, struct fli_buf *payload);
#define USER_RECORD_MAX (8 + ACL_ENCODED_MAX)
size_t machine_user_encode(const struct user *u, uint8_t out[USER_RECORD_MAX]);
/* Adds a user of a snapshot, in the order of uids. */
bool machine_users_load(struct machine *m, struct fli_reader *r);
void machine_users_check(const struct machine *m);

/* attempt.c */
void machine_attempts_init(struct machine *m, const uint64_t hash_seed[2]);
void machine_attempts_fini(struct machine *m);
/* What a request that is sent again is known by: who asks, which kind of request (0 and 1: ACQUIRE,
 * 1 under a session that was opened), and the names. Returns its length. */
size_t machine_retry_key(const struct machine *m, uint8_t kind, struct fli_slice name,
                         struct fli_slice owner, uint8_t key[ATTEMPT_KEY_MAX]);
/* Whether a later attempt of this ACQUIRE has come, and its number; else this one is noted. */
bool machine_attempt_is_late(struct machine *m, const struct machine_command *c,
                             uint64_t *ret_highest);
/* One of a snapshot, in their order. False: it cannot be. */
bool machine_attempt_load(struct machine *m, struct fli_slice key, uint64_t highest,
                          uint64_t at_ms);
static inline const struct attempt *attempt_of(const struct fli_list *link)
{
    return FLI_CONTAINER_OF(link, struct attempt, link);
}

/* lock.c */
struct lock *machine_lock_find(struct machine *m, struct fli_slice name, uint64_t *ret_hash);
struct lock *machine_lock_create(struct machine *m, struct fli_slice name, uint64_t hash);
struct contention *machine_lock_contend(struct lock *lock); /* makes one when there is none */
/* Whether one more may hold it with these slots, leaving the queue out of account. */
bool machine_lock_admits(const struct lock *lock, uint32_t slots);
/* The request with which this session holds the lock; NULL when it does not. */
struct request *machine_lock_held_by(struct machine *m, const struct lock *lock, bool is_explicit,
                                     struct fli_slice owner);
/* The request that holds the lock under this token; NULL when none does. */
struct request *machine_lock_held_under(struct machine *m, const struct lock *lock, fl_token token);
/* Links a request that neither waits nor holds, or the index-th part of a multi-lock, as a holder,
 * without counting or telling anybody. */
void machine_lock_hold(struct machine *m, struct request *request, uint32_t slots, fl_token token,
                       unsigned index, uint64_t since_ms);
/* The reverse; lock and request stay. */
void machine_lock_unhold(struct machine *m, struct request *request);
/* Grants the request, or all parts of its multi-lock, locks that admit them; wait: the wait they
 * had, or 0. Counts and tells. request is the first part. */
void machine_lock_grant(struct machine *m, struct request *request, uint32_t slots, uint64_t wait);
/* Ends a grant, with all parts of a multi-lock: tells (RELEASED, EXPIRED or BROKEN, with the
 * reason), frees the requests and passes the locks on, now or after delay_ms. */
void machine_lock_end(struct machine *m, struct request *request, enum machine_event_type type,
                      enum machine_reason reason, uint64_t delay_ms);
/* Whether a request that holds has lost its lock, though the record is still there. */
bool machine_request_is_over(const struct machine *m, struct request *request);
/* Ends the grant of such a request ahead of its turn. */
void machine_request_finish(struct machine *m, struct request *request);
/* Ends all its grants and its delay, and passes it on; now, or in batches to come. */
void machine_lock_break(struct machine *m, struct lock *lock);
/* Makes a lock without holder idle. */
void machine_lock_idle(struct machine *m, struct lock *lock, uint64_t serial);
/* Nobody is granted the lock before then. */
void machine_lock_delay(struct machine *m, struct lock *lock, uint64_t until_ms);
/* Whether the first in the lock's queue could be granted now; of a multi-lock, whether all parts
 * are first and let in. */
bool machine_lock_is_ready(const struct lock *lock);
/* Whether that is work to come, at this lock or at one that the first waits for as well. */
bool machine_lock_is_pending(const struct lock *lock);
/* Grants to whom the queue and the holders let in, now or in batches to come, and frees what is no
 * longer needed. */
void machine_lock_settle(struct machine *m, struct lock *lock);
/* Those that one grant, or one wait, was of, in this order. */
void machine_lock_settle_all(struct machine *m, struct lock *const *locks, unsigned n);
/* Ends the delay and passes the lock on. */
void machine_lock_end_delay(struct machine *m, struct lock *lock);
/* Frees what a lock no longer needs: an empty contention, and the lock when nothing is left. */
void machine_lock_relax(struct machine *m, struct lock *lock);
/* Frees lock and contention, which nothing refers to any more. */
void machine_lock_free(struct machine *m, struct lock *lock);

/* wait.c */
struct wait *machine_wait_find(struct machine *m, const struct lock *lock, bool is_explicit,
                               struct fli_slice owner);
struct wait *machine_wait_find_id(struct machine *m, uint64_t id);
/* Puts a request, or all parts of its multi-lock, at the end of their locks' queues, without
 * telling anybody. Returns the wait of the request, which is the first part. */
struct wait *machine_wait_join(struct machine *m, struct request *request, uint32_t slots,
                               uint64_t id, uint64_t times_asked, uint64_t deadline_ms);
/* What a request is found by: kind, lock and owner, as one run of bytes. Returns its length. */
#define REQUEST_KEY_MAX (2 + FL_NAME_MAX + FL_OWNER_MAX)
size_t machine_request_key(uint8_t key[REQUEST_KEY_MAX], const struct lock *lock, bool is_explicit,
                           struct fli_slice owner);
/* Takes it and those of the other parts of its multi-lock out of everything and frees them; returns
 * the first request, which then neither waits nor holds. */
struct request *machine_wait_detach(struct machine *m, struct wait *w);
/* Tells, detaches and frees the requests (an implicit session ends). Returns how many locks it
 * waited for; those behind it may be let in now. */
unsigned machine_wait_remove(struct machine *m, struct wait *w, enum machine_reason reason,
                             struct lock *locks[MACHINE_NAMES_MAX]);
/* The same, and settles the locks. */
void machine_wait_end(struct machine *m, struct wait *w, enum machine_reason reason);

/* work.c */
void machine_charge(struct machine *m, uint32_t steps);
/* Puts it before all other work. It may be there already. */
void machine_work_later(struct machine *m, struct work *w);
void machine_work_load(struct machine *m, struct work *w);   /* behind all other work */
void machine_work_forget(struct machine *m, struct work *w); /* fine when it is not there */
void machine_work_init(struct work *w, enum work_kind kind);
/* Does what was left, as far as the steps go. */
void machine_work(struct machine *m);
struct session_explicit *machine_work_session(struct work *w);
struct multi_lock *machine_work_multi(struct work *w);
struct contention *machine_work_contention(struct work *w);
/* One piece of a lock's work: a holder less, or one granted. */
void machine_lock_work(struct machine *m, struct contention *c);
/* One piece of a session's end. */
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
/* The deadline that counts: for a lease not before the last term mark + ttl. */
uint64_t machine_timer_deadline(const struct machine *m, const struct timer *t);
/* Makes happen what is due at the machine's clock, as far as the steps go. */
void machine_expire(struct machine *m);
/* Whether something is left that is due. */
bool machine_is_late(const struct machine *m);
static inline bool machine_is_behind(const struct machine *m)
{
    return m->n_work > 0 || machine_is_late(m);
}

/* The lease of a session, with a new ttl. */
void machine_lease_set(struct machine *m, struct timer *t, uint32_t ttl_ms, uint64_t deadline_ms);
/* Likewise, of a lease that is set: counted as a renewal. */
void machine_lease_renew(struct machine *m, struct timer *t, uint32_t ttl_ms, uint64_t deadline_ms);
/* A number that no other timer of this kind has; 0 for a delay, which has a name instead. */
uint64_t machine_timer_id(const struct timer *t);
uint32_t machine_lease_renewals(const struct timer *t); /* 0 for what is no lease */
struct fli_slice machine_timer_name(const struct timer *t);

/* digest.c: what each record and each timer adds to the digest. Whoever changes one takes its part
 * out before and puts it in after. Of a multi-lock the first part stands for all. */
uint64_t machine_digest_session(const struct session_explicit *s);
uint64_t machine_digest_grant(struct request *request);
uint64_t machine_digest_wait(const struct wait *w);
uint64_t machine_digest_times_asked(const struct wait *w);
uint64_t machine_digest_attempt(const struct attempt *a);
uint64_t machine_digest_idle(const struct contention *c);
uint64_t machine_digest_timer(const struct timer *t);

uint64_t machine_digest_work(struct work *w); /* of a multi-lock, a lock or the users */
uint64_t machine_digest_user(struct fli_slice record);

/* limit.c */
void machine_config_apply(struct machine *m, const struct machine_command *c,
                          struct machine_result *r);
/* Whether they go together: of those that are set. */
bool machine_settings_ok(const struct machine_settings *s);

/* nodes.c: JOIN, FORGET, NODE_ADD and its siblings, VERSION_RAISE */
void machine_nodes_apply(struct machine *m, const struct machine_command *c,
                         struct machine_result *r);

/* deadlock.c */
enum deadlock { DEADLOCK_NONE, DEADLOCK_CYCLE, DEADLOCK_UNKNOWN };
/* What would come of session s waiting at the end of the queues of n locks, NULL among them.
 * UNKNOWN: more steps would be needed to tell than there are. */
enum deadlock machine_deadlock_search(struct machine *m, struct session_explicit *s,
                                      struct lock *const *locks, unsigned n);
/* Whether no cycle exists in the whole machine. O(sessions + waits). */
bool machine_deadlock_free(struct machine *m);

/* acquire.c */
void machine_acquire(struct machine *m, const struct machine_command *c, struct machine_result *r);
void machine_answer_granted(struct machine *m, const struct request *request,
                            struct machine_result *r);
/* Asked for again: one more asking, a deadline that is not earlier. */
void machine_ask_again(struct machine *m, struct wait *w, const struct machine_command *c,
                       struct machine_result *r);
void machine_answer_queued(const struct wait *w, struct machine_result *r);
/* Asks whether the wait would close a cycle. True when it must not be; r says why. */
bool machine_refuse_cycle(struct machine *m, struct session_explicit *s, struct lock *const *locks,
                          unsigned n, struct machine_result *r);

/* What this owner has at the locks of the command, and has lost already, goes first. False when
 * there are no steps left for that. */
bool machine_clear_own(struct machine *m, const struct machine_command *c);

/* The request with which this owner holds the lock in the way of a key; NULL when it does not. */
struct request *machine_key_request(struct machine *m, const struct lock *lock,
                                    struct fli_slice owner);

/* keys_any.c: ANY_KEYS, and what was given back a moment ago. */
void machine_any_keys(struct machine *m, const struct machine_command *c, struct machine_result *r);
void machine_released_note(struct machine *m, struct fli_slice name, struct fli_slice owner);
bool machine_released_find(const struct machine *m, struct fli_slice name, struct fli_slice owner);

/* query.c: the first of those that still hold the lock; NULL when none does. Looks at a bounded
 * number. */
struct request *machine_lock_first_holder(const struct machine *m, const struct lock *lock);

/* multi_lock.c: ACQUIRE of several locks; s is NULL for an implicit session. */
void machine_acquire_multi(struct machine *m, const struct machine_command *c,
                           struct session_explicit *s, struct machine_result *r);

/* machine.c */
void machine_emit(struct machine *m, const struct machine_event *e); /* clock_ms is filled in */
/* The same of a session, which is filled in too. */
void machine_emit_of(struct machine *m, struct session *s, const struct machine_event *e);
static inline void machine_answer_limit(struct machine *m, struct machine_result *r,
                                        enum machine_limit limit)
{
    m->ever.limits++;
    r->code = MACHINE_LIMIT;
    r->number = limit;
}

#endif
