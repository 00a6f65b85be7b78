/* timers.c: which timers are due, and in which order they end.
 *
 * One heap for leases, waits and delays, in the total order (deadline, kind, owner, name), so that
 * the sequence of those with the same deadline is the same on every replica and explainable.
 *
 * A timer is due when its deadline is before the clock, not when the two are equal. The clock
 * counts whole milliseconds. What began at timestamp 1000 may have begun anywhere between 1000 and
 * 1001. So only at the timestamp after its deadline has the whole time certainly passed.
 *
 * When more is due than a batch has steps for, the next batch does the rest, see work.c.
 *
 * A term mark lengthens every lease to at least now + ttl. Touching two million leases for that
 * would stop the service at the worst moment. So the mark only raises a floor: the effective
 * deadline of a lease is the larger of the stored one and floor + ttl. The stored deadline is a
 * lower bound, which is corrected when the lease comes to the top of the heap. No stored deadline
 * is later than the effective one. So a lease on top whose two deadlines agree is the first to
 * end. */
#include "machine/state.h"

#define STEPS_CORRECTION 5u

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

uint32_t machine_lease_renewals(const struct timer *t)
{
    return is_lease(t) ? *machine_session_renewals(session_of_lease(t)) : 0;
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

void machine_timers_init(struct machine *m)
{
    fli_heap_init(&m->timers, timer_less);
}

void machine_timer_init(struct timer *t, enum timer_kind kind)
{
    *t = (struct timer){.kind = kind & 7};
    fli_heap_node_init(&t->node);
}

/* The caller has taken the timer's old value out of the digest. */
static void lease_put(struct machine *m, struct timer *t, uint32_t ttl_ms, uint64_t deadline_ms,
                      bool was_set)
{
    timer_set_at(t, deadline_ms);
    t->ttl_ms = ttl_ms;
    m->digest += machine_digest_timer(t);
    if (was_set) {
        fli_heap_update(&m->timers, &t->node);
    } else if (fli_heap_insert(&m->timers, &t->node) != 0) {
        fli_fatal("out of memory for a timer of the lock machine");
    }
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
    uint32_t *renewals = machine_session_renewals(session_of_lease(t));
    m->digest -= machine_digest_timer(t);
    *renewals += *renewals < UINT32_MAX;
    lease_put(m, t, ttl_ms, deadline_ms, true);
}

void machine_timer_set(struct machine *m, struct timer *t, uint64_t deadline_ms)
{
    machine_lease_set(m, t, t->ttl_ms, deadline_ms);
}

void machine_timer_clear(struct machine *m, struct timer *t)
{
    if (machine_timer_is_set(t)) {
        m->digest -= machine_digest_timer(t);
        fli_heap_remove(&m->timers, &t->node);
    }
}

uint64_t machine_timer_deadline(const struct machine *m, const struct timer *t)
{
    FLI_ASSERT(machine_timer_is_set(t));
    uint64_t floor = is_lease(t) ? m->floor_ms + t->ttl_ms : 0;
    uint64_t at_ms = t->at_ms;
    return at_ms > floor ? at_ms : floor;
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

/* Ends everything with a deadline before due_ms. The loop terminates: each round corrects or
 * removes a timer, and new leases and delays have deadlines after the clock. */
static void expire_due(struct machine *m)
{
    while (m->steps > 0 && machine_is_late(m)) {
        struct timer *t = FLI_CONTAINER_OF(fli_heap_min(&m->timers), struct timer, node);
        uint64_t deadline_ms = machine_timer_deadline(m, t);
        if (deadline_ms == t->at_ms) {
            expire_one(m, t);
            machine_work(m);
        } else {
            machine_charge(m, STEPS_CORRECTION);
            machine_timer_set(m, t, deadline_ms);
        }
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
