/* timers.c: which timers are due, and in which order they end.
 *
 * One heap for leases that are over, waits and delays, in the total order (deadline, kind, owner,
 * name), so that the sequence of those with the same deadline is the same on every replica and
 * explainable.
 *
 * A timer is due when its deadline is before the clock, not when the two are equal. The clock
 * counts whole milliseconds. What began at timestamp 1000 may have begun anywhere between 1000 and
 * 1001. So only at the timestamp after its deadline has the whole time certainly passed.
 *
 * When more is due than a batch has steps for, the next batch does the rest, see work.c.
 *
 * Leases. No clock of the log ends a lease, since a leader may have prolonged it in its memory
 * alone. Nothing does but an EXPIRE of the leader, with the deadline that it knew:
 *
 *   watched   a lease is in the heap `leases`, by the deadline as this node knows it
 *   leaving   this leader has put an EXPIRE of it into a batch; what would prolong it now needs an
 *             entry as well, which comes behind that
 *   over      the EXPIRE was applied: it is a timer like the others, and ends in their order
 *
 * An entry on its way may have prolonged the lease when its leader gave it up. So the EXPIRE does
 * nothing when the deadline by the log is later than the leader's was.
 *
 * A term mark lengthens every lease to at least now + ttl, and with that all that former leaders
 * have promised without an entry. Touching two million leases for it would stop the service at the
 * worst moment. So the mark only raises a floor: the deadline of a lease is the larger of the
 * stored one and floor + ttl. What is stored is a lower bound, which is corrected when the lease
 * comes to the top of the heap. */
#include "machine/state.h"

#define CORRECTIONS 500u /* of the bounds of leases, at a time */
/* A renewal that would move a lease further from what is stored needs an entry. Term marks may move
 * it as far again before the next one. */
#define LATER_MAX_MS ((uint64_t)INT32_MAX)

static bool is_lease(const struct timer *t)
{
    return t->kind == TIMER_LEASE_EXPLICIT || t->kind == TIMER_LEASE_IMPLICIT;
}

static struct wait *wait_of_timer(const struct timer *t)
{
    return (struct wait *)(void *)((uintptr_t)t - offsetof(struct wait, timer));
}

static struct contention *contention_of_delay(const struct timer *t)
{
    return (struct contention *)(void *)((uintptr_t)t - offsetof(struct contention, delay));
}

static struct session *session_of_lease(const struct timer *t)
{
    return (struct session *)(void *)((uintptr_t)t - offsetof(struct session, lease));
}

static struct fli_slice timer_owner(const struct timer *t)
{
    switch (t->kind) {
    case TIMER_LEASE_EXPLICIT:
    case TIMER_LEASE_IMPLICIT:
        return machine_session_owner(session_of_lease(t));
    case TIMER_WAIT_EXPLICIT:
    case TIMER_WAIT_IMPLICIT:
        return machine_session_owner(request_session(wait_of_timer(t)->request));
    default:
        FLI_ASSERT(t->kind == TIMER_DELAY);
        return (struct fli_slice){NULL, 0};
    }
}

struct fli_slice machine_timer_name(const struct timer *t)
{
    switch (t->kind) {
    case TIMER_DELAY:
        return lock_name(contention_of_delay(t)->lock);
    case TIMER_LEASE_IMPLICIT:
        return lock_name(session_request(session_of_lease(t))->lock);
    case TIMER_WAIT_EXPLICIT:
    case TIMER_WAIT_IMPLICIT:
        return lock_name(wait_of_timer(t)->request->lock);
    default:
        FLI_ASSERT(t->kind == TIMER_LEASE_EXPLICIT);
        return (struct fli_slice){NULL, 0};
    }
}

uint64_t machine_timer_id(const struct timer *t)
{
    switch (t->kind) {
    case TIMER_LEASE_EXPLICIT:
        return CONST_CONTAINER_OF(t, struct session_explicit, base.lease)->opened.key;
    case TIMER_LEASE_IMPLICIT:
        return request_token(session_request(session_of_lease(t)));
    case TIMER_WAIT_EXPLICIT:
    case TIMER_WAIT_IMPLICIT:
        return wait_id(wait_of_timer(t));
    default:
        FLI_ASSERT(t->kind == TIMER_DELAY);
        return 0;
    }
}

static bool timer_less(const struct fli_heap_node *a, const struct fli_heap_node *b)
{
    const struct timer *x = CONST_CONTAINER_OF(a, struct timer, node);
    const struct timer *y = CONST_CONTAINER_OF(b, struct timer, node);
    if (x->at_ms != y->at_ms) {
        return x->at_ms < y->at_ms;
    }
    if (x->kind != y->kind) {
        return x->kind < y->kind;
    }
    struct fli_slice p = timer_owner(x);
    struct fli_slice q = timer_owner(y);
    int c = fli_bytes_cmp(p.data, p.len, q.data, q.len);
    if (c != 0) {
        return c < 0;
    }
    p = machine_timer_name(x);
    q = machine_timer_name(y);
    return fli_bytes_cmp(p.data, p.len, q.data, q.len) < 0;
}

static const struct session *session_of(const struct timer *t)
{
    return CONST_CONTAINER_OF(t, struct session, lease);
}

/* The lower bound of the deadline that the leader watches. */
static uint64_t watched_until(const struct timer *t)
{
    return t->at_ms + session_of(t)->later_ms;
}

/* Any order will do among those with one deadline: EXPIRE puts them into that of the timers. */
static bool lease_less(const struct fli_heap_node *a, const struct fli_heap_node *b)
{
    const struct timer *x = CONST_CONTAINER_OF(a, struct timer, node);
    const struct timer *y = CONST_CONTAINER_OF(b, struct timer, node);
    return watched_until(x) < watched_until(y);
}

void machine_timers_init(struct machine *m)
{
    fli_heap_init(&m->timers, timer_less);
    fli_heap_init(&m->leases, lease_less);
    fli_heap_init(&m->leaving, lease_less);
}

static struct fli_heap *heap_of(struct machine *m, const struct timer *t)
{
    if (!is_lease(t) || t->place == LEASE_OVER) {
        return &m->timers;
    }
    return t->place == LEASE_WATCHED ? &m->leases : &m->leaving;
}

static void insert(struct machine *m, struct timer *t)
{
    if (fli_heap_insert(heap_of(m, t), &t->node) != 0) {
        fli_fatal("out of memory for a timer of the lock machine");
    }
}

void machine_timer_init(struct timer *t, enum timer_kind kind)
{
    *t = (struct timer){.kind = kind & 7};
    fli_heap_node_init(&t->node);
}

/* The caller has taken the timer's old value out of the digest. */
static void put(struct machine *m, struct timer *t, uint64_t deadline_ms, bool was_set)
{
    timer_set_at(t, deadline_ms);
    m->digest += machine_digest_timer(t);
    if (was_set) {
        fli_heap_update(heap_of(m, t), &t->node);
    } else {
        insert(m, t);
    }
}

/* Moves the lease to another heap. What it adds to the digest is the caller's. */
static void move(struct machine *m, struct timer *t, enum lease_place place)
{
    fli_heap_remove(heap_of(m, t), &t->node);
    t->place = place & 3;
    insert(m, t);
}

/* The leader goes on watching it for as long as it does. */
static void lease_put(struct machine *m, struct timer *t, uint32_t ttl_ms, uint64_t deadline_ms,
                      bool was_set)
{
    struct session *s = session_of_lease(t);
    uint64_t until_ms = was_set && t->place != LEASE_OVER ? watched_until(t) : 0;
    timer_set_ttl(t, ttl_ms);
    s->later_ms = until_ms > deadline_ms ? (uint32_t)(until_ms - deadline_ms) : 0;
    if (was_set && t->place == LEASE_OVER) {
        move(m, t, LEASE_WATCHED); /* not over yet, or nobody could renew it */
    }
    put(m, t, deadline_ms, was_set);
}

void machine_lease_set(struct machine *m, struct timer *t, uint32_t ttl_ms, uint64_t deadline_ms)
{
    bool was_set = machine_timer_is_set(t);
    m->digest -= was_set ? machine_digest_timer(t) : 0;
    lease_put(m, t, ttl_ms, deadline_ms, was_set);
}

void machine_lease_renew(struct machine *m, struct timer *t, uint32_t ttl_ms, uint64_t deadline_ms)
{
    FLI_ASSERT(is_lease(t) && machine_timer_is_set(t));
    struct session *s = session_of_lease(t);
    s->renewals += s->renewals < UINT32_MAX;
    machine_lease_set(m, t, ttl_ms, deadline_ms);
}

void machine_timer_set(struct machine *m, struct timer *t, uint64_t deadline_ms)
{
    FLI_ASSERT(!is_lease(t));
    bool was_set = machine_timer_is_set(t);
    m->digest -= was_set ? machine_digest_timer(t) : 0;
    put(m, t, deadline_ms, was_set);
}

void machine_timer_clear(struct machine *m, struct timer *t)
{
    if (machine_timer_is_set(t)) {
        m->digest -= machine_digest_timer(t);
        fli_heap_remove(heap_of(m, t), &t->node);
    }
}

uint64_t machine_timer_deadline(const struct machine *m, const struct timer *t)
{
    FLI_ASSERT(machine_timer_is_set(t));
    uint64_t floor = is_lease(t) && t->place != LEASE_OVER ? m->floor_ms + t->ttl_ms : 0;
    uint64_t at_ms = t->at_ms;
    return at_ms > floor ? at_ms : floor;
}

uint64_t machine_lease_until(const struct machine *m, const struct session *s)
{
    uint64_t by_log_ms = machine_timer_deadline(m, &s->lease);
    uint64_t watched_ms = s->lease.place == LEASE_OVER ? 0 : watched_until(&s->lease);
    return watched_ms > by_log_ms ? watched_ms : by_log_ms;
}

static struct request *timer_request(const struct timer *t)
{
    return t->kind == TIMER_LEASE_IMPLICIT ? session_request(session_of_lease(t))
                                           : wait_of_timer(t)->request;
}

static void expire_one(struct machine *m, struct timer *t)
{
    switch (t->kind) {
    case TIMER_DELAY:
        machine_charge(m, MACHINE_STEPS_RECORD);
        machine_lock_end_delay(m, contention_of_delay(t)->lock);
        break;
    case TIMER_LEASE_EXPLICIT:
        machine_charge(m, 1);
        machine_session_end(m, session_explicit_of(session_of_lease(t)), MACHINE_REASON_DEADLINE);
        break;
    case TIMER_LEASE_IMPLICIT:
        machine_charge(m, MACHINE_STEPS_RECORD * request_parts(timer_request(t)));
        machine_lock_end(m, timer_request(t), MACHINE_EVENT_EXPIRED, MACHINE_REASON_DEADLINE, 0);
        break;
    default:
        FLI_ASSERT(t->kind == TIMER_WAIT_EXPLICIT || t->kind == TIMER_WAIT_IMPLICIT);
        machine_charge(m, MACHINE_STEPS_RECORD * request_parts(timer_request(t)));
        machine_wait_end(m, wait_of_timer(t), MACHINE_REASON_DEADLINE);
        break;
    }
}

bool machine_is_late(const struct machine *m)
{
    const struct fli_heap_node *n = fli_heap_min(&m->timers);
    return n != NULL && CONST_CONTAINER_OF(n, struct timer, node)->at_ms < m->due_ms;
}

/* Ends everything with a deadline before due_ms. The loop terminates: each round removes a timer,
 * and new delays have deadlines after the clock. */
static void expire_due(struct machine *m)
{
    while (m->steps > 0 && machine_is_late(m)) {
        expire_one(m, FLI_CONTAINER_OF(fli_heap_min(&m->timers), struct timer, node));
        machine_work(m);
    }
}

/* The check of waits after a change of users has what is left of the steps, so that it holds up
 * nothing that ends by time.
 *
 * A term mark is applied before newly due leases are ended: its purpose is to save leases that
 * nobody could renew. */
void machine_expire(struct machine *m)
{
    m->expiring = true;
    machine_work(m);
    expire_due(m);
    if (!machine_is_late(m)) {
        m->floor_ms = m->mark_due ? m->clock_ms : m->floor_ms;
        m->mark_due = false;
        m->due_ms = m->clock_ms;
        expire_due(m);
    }
    machine_users_work(m);
    m->expiring = false;
}

void machine_lease_restore(struct machine *m, struct timer *t, bool is_over)
{
    if (is_over) {
        m->digest -= machine_digest_timer(t);
        move(m, t, LEASE_OVER);
        m->digest += machine_digest_timer(t);
    }
}

/* ---- leases, as the leader sees them --------------------------------------------------------- */

bool machine_lease_watch(struct machine *m, struct session *s, uint64_t deadline_ms)
{
    uint64_t until_ms = machine_lease_until(m, s);
    until_ms = until_ms > deadline_ms ? until_ms : deadline_ms;
    if (s->lease.place != LEASE_WATCHED || until_ms - s->lease.at_ms > LATER_MAX_MS) {
        return false;
    }
    s->later_ms = (uint32_t)(until_ms - s->lease.at_ms);
    s->renewals += m->renewal_counts && s->renewals < UINT32_MAX;
    fli_heap_update(&m->leases, &s->lease.node);
    return true;
}

/* The lease that seems to end first. Bounds that are over at this timestamp are corrected, but only
 * so many at a time: after a term mark there may be a million. NULL: there is none, or it would
 * take more to tell. */
static struct timer *first_lease(struct machine *m, uint64_t clock_ms)
{
    for (unsigned i = 0; i < CORRECTIONS && m->leases.len > 0; i++) {
        struct timer *t = FLI_CONTAINER_OF(fli_heap_min(&m->leases), struct timer, node);
        uint64_t until_ms = machine_lease_until(m, session_of(t));
        if (watched_until(t) >= clock_ms || until_ms == watched_until(t)) {
            return t;
        }
        session_of_lease(t)->later_ms = (uint32_t)(until_ms - t->at_ms);
        fli_heap_update(&m->leases, &t->node);
    }
    return NULL;
}

uint64_t machine_next_lease(struct machine *m, uint64_t clock_ms)
{
    const struct timer *t = first_lease(m, clock_ms);
    if (t == NULL) {
        return m->leases.len == 0 ? UINT64_MAX : clock_ms + 1;
    }
    return watched_until(t) + 1;
}

bool machine_lease_give_up(struct machine *m, uint64_t clock_ms, struct machine_command *ret)
{
    struct timer *t = first_lease(m, clock_ms);
    if (t == NULL || watched_until(t) >= clock_ms) {
        return false;
    }
    bool is_explicit = t->kind == TIMER_LEASE_EXPLICIT;
    *ret = (struct machine_command){.op = MACHINE_OP_EXPIRE,
                                    .flags = is_explicit ? MACHINE_EXPIRE_EXPLICIT : 0,
                                    .number = machine_timer_id(t),
                                    .number2 = watched_until(t)};
    move(m, t, LEASE_LEAVING);
    return true;
}

/* Bounds in memory may be far ahead of the next term's clock, which goes on from the log. Each that
 * sinks moves towards the root only, so those in front of it are the ones that have sunk. */
void machine_leases_take_back(struct machine *m)
{
    struct fli_heap_node *n;
    while ((n = fli_heap_min(&m->leaving)) != NULL) {
        move(m, FLI_CONTAINER_OF(n, struct timer, node), LEASE_WATCHED);
    }
    for (size_t i = 0; i < m->leases.len; i++) {
        struct timer *t = FLI_CONTAINER_OF(m->leases.slots[i], struct timer, node);
        session_of_lease(t)->later_ms = 0;
        fli_heap_update(&m->leases, &t->node);
    }
}

/* The session whose lease has this number; NULL when it has ended. */
static struct session *session_with(struct machine *m, const struct machine_command *c)
{
    if ((c->flags & MACHINE_EXPIRE_EXPLICIT) != 0) {
        struct order_node *n = machine_order_seek(&m->opened, c->number - 1);
        return n != NULL && n->key == c->number ? &session_of_opened(n)->base : NULL;
    }
    struct order_node *n = machine_order_seek(&m->held, held_key(c->number, 0) - 1);
    struct request *request = n == NULL ? NULL : request_of_held(n);
    bool fits = request != NULL && n->key == held_key(c->number, 0) &&
                !session_is_explicit(request_session(request));
    return fits ? request_session(request) : NULL;
}

void machine_lease_expire(struct machine *m, const struct machine_command *c)
{
    struct session *s = session_with(m, c);
    if (s == NULL || !machine_timer_is_set(&s->lease) || s->lease.place == LEASE_OVER) {
        return;
    }
    struct timer *t = &s->lease;
    if (machine_timer_deadline(m, t) > c->number2) {
        if (t->place == LEASE_LEAVING) {
            move(m, t, LEASE_WATCHED);
        }
        return;
    }
    m->digest -= machine_digest_timer(t);
    timer_set_at(t, c->number2);
    s->later_ms = 0;
    move(m, t, LEASE_OVER);
    m->digest += machine_digest_timer(t);
}
