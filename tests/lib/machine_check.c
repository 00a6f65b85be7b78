/* machine_check.c: what is true of a machine between any two commands. machine_check() stops the
 * process when one is broken; tests call it after every step.
 *
 *  1. A lock is stored exactly when it is held, awaited or delayed, or has work left. A lock held
 *     exclusively has one holder and no share. A lock held with slots for several has a share for
 *     each holder, in the order of grants, found by its request and by its token, and at most as
 *     many as slots. Every other lock is among the idle ones, or has work left.
 *  2. Tokens of held locks are distinct, at least 1, at most the last token, and in the order of
 *     grants; no grant is from the future.
 *  3. No wait that the holders let in stays at the head of its queue, or of all its queues, unless
 *     tokens have run out, a lock is delayed, or its grant is work left for the next batch. All
 *     who hold or await a lock agree on its permits.
 *  4. Each wait belongs to one queue and is found by its id and by its request. Its session
 *     neither holds that lock nor waits for it twice.
 *  5. An implicit session has exactly one request, or those of its multi-lock, and a lease exactly
 *     while it holds. The parts of a multi-lock all wait, or all hold exclusively, under one id or
 *     token, in their order.
 *  6. An explicit session has a lease and is found by its owner; or it is ending, is found by its
 *     serial and is on the list of work. It lists exactly its own requests.
 *  7. What is due remains undone only for want of steps. The heaps have one timer for each lease,
 *     wait and delay and nothing else, and are heaps.
 *  8. No cycle of sessions wait for each other.
 *  9. The digest is the sum of the hashes of all records and timers.
 * 10. n_multi of each queue and the numbers of requests (of each session, of implicit sessions, of
 *     all maps) agree with the records. */
#include "machine_check.h"

#include "machine/state.h"
#include "machine/users.h"

/* Counted during the walk, to compare with the machine's own counts. */
struct tally {
    uint64_t implicit;
    uint64_t timers;
    uint64_t queued;
    uint64_t shares;
    uint64_t locks_held;
    uint64_t grants;
    uint64_t first_waits;
    uint64_t locks_between; /* neither held nor idle */
    uint64_t digest;
};

void machine_order_check(const struct order *o)
{
    uint64_t len = 0;
    uint64_t key = 0;
    const struct order_node *n = machine_order_first(o);
    for (uint32_t i = 0; i < o->parts_len; i++) {
        const struct order_part *part = &o->parts[i];
        FLI_ASSERT(part->first == n && part->len >= 1 && part->len <= o->part_max);
        FLI_ASSERT(part->key == n->key);
        for (uint32_t k = 0; k < part->len; k++) {
            FLI_ASSERT(n != NULL && (len == 0 || n->key > key));
            key = n->key;
            len++;
            n = machine_order_next(o, n);
        }
    }
    FLI_ASSERT(n == NULL && len == o->len);
}

static void check_timer(const struct machine *m, struct tally *t, const struct timer *timer)
{
    bool is_lease = timer->kind == TIMER_LEASE_EXPLICIT || timer->kind == TIMER_LEASE_IMPLICIT;
    const struct fli_heap *heap = !is_lease || timer->place == LEASE_OVER ? &m->timers
                                  : timer->place == LEASE_WATCHED         ? &m->leases
                                                                          : &m->leaving;
    FLI_ASSERT(timer->node.pos < heap->len);
    FLI_ASSERT(heap->slots[timer->node.pos] == &timer->node);
    FLI_ASSERT(heap != &m->timers || timer->at_ms >= m->due_ms || machine_is_late(m));
    FLI_ASSERT(machine_timer_deadline(m, timer) >= timer->at_ms);
    t->timers++;
    t->digest += machine_digest_timer(timer);
}

static void check_heap(const struct fli_heap *h)
{
    for (size_t i = 0; i < h->len; i++) {
        FLI_ASSERT(h->slots[i]->pos == i);
        FLI_ASSERT(i == 0 || !h->less(h->slots[i], h->slots[(i - 1) / 4]));
    }
}

static void check_timers(const struct machine *m, const struct tally *t)
{
    FLI_ASSERT(m->timers.len + m->leases.len + m->leaving.len == t->timers);
    check_heap(&m->timers);
    check_heap(&m->leases);
    check_heap(&m->leaving);
    for (size_t i = 0; i < m->timers.len; i++) {
        uint64_t at_ms = CONST_CONTAINER_OF(m->timers.slots[i], struct timer, node)->at_ms;
        FLI_ASSERT(machine_has_work(m) || at_ms + 1 >= machine_next_deadline(m));
    }
}

static void check_implicit(const struct machine *m, struct tally *t, const struct request *request)
{
    const struct session *s = request_session(request);
    FLI_ASSERT(machine_timer_is_set(&s->lease) == !request->waiting);
    FLI_ASSERT(s->lease.ttl_ms >= FL_TTL_MIN_MS && s->lease.ttl_ms <= FL_TTL_MAX_MS);
    FLI_ASSERT(s->lease.is_multi == request->is_multi);
    if (session_request(request_session(request)) != request) {
        FLI_ASSERT(request->is_multi);
        return;
    }
    t->implicit++;
    if (!request->waiting) {
        check_timer(m, t, &s->lease);
    }
}

static void check_parts(const struct machine *m, struct request *request)
{
    struct multi_lock *g = request_multi(request);
    unsigned index = 0;
    while (multi_request(g, index) != request) {
        index++;
    }
    FLI_ASSERT(g->n >= 2 && g->n <= MACHINE_NAMES_MAX);
    const struct request *first = multi_request(g, 0);
    FLI_ASSERT(request->waiting == first->waiting &&
               request_session(request) == request_session(first));
    if (request->waiting) {
        FLI_ASSERT(wait_id(request->at.wait) == wait_id(first->at.wait));
        FLI_ASSERT(request->at.wait->slots == 1);
        FLI_ASSERT(machine_timer_is_set(&request->at.wait->timer) == (index == 0));
    } else {
        FLI_ASSERT(request->at.held.key == held_key(request_token(first), index));
        FLI_ASSERT(lock_slots(request->lock) == 1 && lock_holder(request->lock) == request);
        FLI_ASSERT(index + 1 < g->n || machine_order_next(&m->held, &request->at.held) == NULL ||
                   held_key_index(machine_order_next(&m->held, &request->at.held)->key) == 0);
    }
}

static void check_request(struct machine *m, struct tally *t, struct request *request)
{
    FLI_ASSERT(request->since_ms <= m->clock_ms);
    FLI_ASSERT(machine_request_value(request).len <= FL_VALUE_MAX);
    FLI_ASSERT(!request->counted ||
               (!request->waiting && !request->is_multi && !request->linked &&
                machine_request_value(request).len == HOLD_COUNT_SIZE &&
                machine_request_count(request) >= 1 && lock_slots(request->lock) == 1));
    if (request->is_multi) {
        check_parts(m, request);
    }
    if (session_is_explicit(request_session(request))) {
        FLI_ASSERT(fli_list_linked(&linked_request_of(request)->at_session));
    } else {
        check_implicit(m, t, request);
    }
}

static void check_queue(struct machine *m, struct tally *t, struct lock *lock)
{
    struct contention *c = contention_of(lock);
    FLI_ASSERT(c->lock == lock);
    machine_order_check(&c->queue);
    uint32_t n_multi = 0;
    for (struct order_node *n = machine_order_first(&c->queue); n != NULL;
         n = machine_order_next(&c->queue, n)) {
        struct wait *w = wait_of_queue(n);
        struct request *request = w->request;
        struct session *s = request_session(request);
        FLI_ASSERT(request->waiting && request->at.wait == w && request->lock == lock);
        FLI_ASSERT(machine_lock_held_by(m, lock, session_is_explicit(s),
                                        machine_session_owner(s)) == NULL);
        FLI_ASSERT(slots_permits(w->slots) == c->permits);
        FLI_ASSERT(machine_wait_find_id(m, wait_id(w)) == request_part(request, 0)->at.wait);
        FLI_ASSERT(machine_wait_find(m, lock, session_is_explicit(s), machine_session_owner(s)) ==
                   w);
        FLI_ASSERT(wait_id(w) <= m->serial && w->times_asked >= 1);
        check_request(m, t, request);
        if (request_part(request, 0) == request) {
            check_timer(m, t, &w->timer);
            t->first_waits++;
            t->digest += machine_digest_wait(w) + machine_digest_times_asked(w);
        }
        n_multi += session_is_explicit(s) ? session_explicit_of(s)->n_waits > 1 : request->is_multi;
        t->queued++;
    }
    FLI_ASSERT(n_multi == c->n_multi);
    FLI_ASSERT(m->last_token == FL_TOKEN_MAX || !machine_lock_is_ready(lock) ||
               machine_lock_is_pending(lock));
}

static void check_shares(struct machine *m, struct tally *t, const struct lock *lock)
{
    const struct contention *c = contention_of(lock);
    uint32_t n = 0;
    fl_token last = 0;
    FLI_LIST_FOREACH(link, &c->shares)
    {
        const struct request *request = share_of_link(link)->request;
        FLI_ASSERT(request->lock == lock && request_token(request) > last &&
                   (n > 0 || lock_holder(lock) == request));
        FLI_ASSERT(machine_lock_held_by(m, lock, session_is_explicit(request_session(request)),
                                        machine_session_owner(request_session(request))) ==
                   request);
        FLI_ASSERT(machine_lock_held_under(m, lock, request_token(request)) == request);
        last = request_token(request);
        n++;
    }
    FLI_ASSERT(n == c->n_shares && (n == 0 || (c->slots > 1 && n <= c->slots)));
    FLI_ASSERT(n == 0 || slots_permits(c->slots) == c->permits);
    FLI_ASSERT(n > 0 || lock_holder(lock) == NULL || c->permits == 1);
    t->shares += n;
}

static void check_lock(struct machine *m, struct tally *t, struct lock *lock)
{
    uint64_t hash;
    FLI_ASSERT(machine_lock_find(m, lock_name(lock), &hash) == lock);
    if (lock_contention(lock) != NULL) {
        check_queue(m, t, lock);
        check_shares(m, t, lock);
    }
}

static void check_held(struct machine *m, struct tally *t)
{
    machine_order_check(&m->held);
    for (struct order_node *n = machine_order_first(&m->held); n != NULL;
         n = machine_order_next(&m->held, n)) {
        struct request *request = request_of_held(n);
        struct lock *lock = request->lock;
        const struct contention *c = lock_contention(lock);
        FLI_ASSERT(!request->waiting &&
                   machine_lock_held_under(m, lock, request_token(request)) == request);
        FLI_ASSERT(request_token(request) >= 1 && request_token(request) <= m->last_token);
        if (held_key_index(n->key) == 0) {
            t->grants++;
            t->digest += machine_digest_grant(request);
        }
        FLI_ASSERT(c == NULL || c->queue.len > 0 || c->is_delayed || c->n_shares > 0 ||
                   fli_list_linked(&c->work.link));
        FLI_ASSERT(c == NULL || !c->is_broken ||
                   (c->n_shares > 0 && fli_list_linked(&c->work.link)));
        FLI_ASSERT(c == NULL || (!c->is_idle && c->is_delayed == machine_timer_is_set(&c->delay)));
        check_request(m, t, request);
        if (lock_holder(lock) != request) {
            continue;
        }
        if (c != NULL && c->is_delayed) {
            check_timer(m, t, &c->delay);
        }
        t->locks_held++;
        check_lock(m, t, lock);
    }
}

static void check_idle(struct machine *m, struct tally *t)
{
    machine_order_check(&m->idle);
    for (struct order_node *n = machine_order_first(&m->idle); n != NULL;
         n = machine_order_next(&m->idle, n)) {
        struct contention *c = contention_of_idle(n);
        FLI_ASSERT(c->is_idle && lock_contention(c->lock) == c && lock_holder(c->lock) == NULL);
        FLI_ASSERT(n->key <= m->serial);
        t->digest += machine_digest_idle(c);
        FLI_ASSERT(c->is_delayed == machine_timer_is_set(&c->delay));
        if (c->is_delayed) {
            check_timer(m, t, &c->delay);
        } else {
            FLI_ASSERT(c->queue.len > 0 || fli_list_linked(&c->work.link));
        }
        check_lock(m, t, c->lock);
    }
}

static void check_session(struct machine *m, struct tally *t, struct session_explicit *s)
{
    FLI_ASSERT(session_is_explicit(&s->base) && s->opened.key <= m->serial);
    if (s->ending == MACHINE_REASON_NONE) {
        FLI_ASSERT(machine_session_find(m, machine_session_owner(&s->base)) == s);
        check_timer(m, t, &s->base.lease);
    } else {
        FLI_ASSERT(machine_session_find_ending(m, s->opened.key) == s);
        FLI_ASSERT(fli_list_linked(&s->work.link) && !machine_timer_is_set(&s->base.lease));
    }
    FLI_ASSERT(s->lockdelay_ms <= FL_LOCKDELAY_MAX_MS);
    FLI_ASSERT((s->label == NULL) == (s->label_len == 0));
    t->digest += machine_digest_session(s);
    uint32_t n_held = 0;
    uint64_t last = 0;
    FLI_LIST_FOREACH(link, &s->held)
    {
        const struct request *request = request_of_link(link);
        FLI_ASSERT(request_session(request) == &s->base && !request->waiting &&
                   request->at.held.key > last);
        last = request->at.held.key;
        n_held++;
    }
    uint32_t n_waits = 0;
    last = 0;
    FLI_LIST_FOREACH(link, &s->waits)
    {
        struct request *request = request_of_link(link);
        FLI_ASSERT(request_session(request) == &s->base && request->waiting);
        FLI_ASSERT(wait_id(request->at.wait) > last ||
                   (wait_id(request->at.wait) == last && request_part(request, 0) != request));
        last = wait_id(request->at.wait);
        n_waits++;
    }
    FLI_ASSERT(n_held == s->n_held && n_waits == s->n_waits);
}

static void check_work(struct machine *m, struct tally *t)
{
    uint64_t n = 0;
    FLI_LIST_FOREACH(link, &m->work)
    {
        struct work *w = FLI_CONTAINER_OF(link, struct work, link);
        t->digest += machine_digest_work(w);
        n++;
        if (w->kind == WORK_LOCK) {
            struct contention *c = machine_work_contention(w);
            FLI_ASSERT(lock_contention(c->lock) == c);
            if (c->holder == NULL && !c->is_idle) {
                FLI_ASSERT(!c->is_delayed && !c->is_broken);
                check_lock(m, t, c->lock);
                t->locks_between++;
            }
        } else if (w->kind == WORK_USERS) {
            FLI_ASSERT(w == &m->users.work);
        } else if (w->kind == WORK_MULTI) {
            FLI_ASSERT(!multi_request(machine_work_multi(w), 0)->waiting);
        }
    }
    FLI_ASSERT(n == m->n_work);
}

static void check_waits(struct machine *m, const struct tally *t)
{
    uint64_t len = 0;
    uint64_t last = 0;
    FLI_LIST_FOREACH(link, &m->waits)
    {
        const struct wait *w = wait_of_all(link);
        FLI_ASSERT(wait_id(w) > last ||
                   (wait_id(w) == last && request_part(w->request, 0) != w->request));
        last = wait_id(w);
        len++;
    }
    FLI_ASSERT(len == t->queued && t->first_waits == m->waits_by_id.len &&
               len == m->waits_by_request.len);
}

static void check_scalars(const struct machine *m)
{
    FLI_ASSERT(m->clock_ms <= MACHINE_CLOCK_MAX_MS && m->floor_ms <= m->clock_ms);
    FLI_ASSERT(m->due_ms <= m->clock_ms);
    FLI_ASSERT(m->last_token <= FL_TOKEN_MAX);
    FLI_ASSERT(m->n_nodes <= MACHINE_NODES_MAX);
    for (unsigned i = 0; i < m->n_nodes; i++) {
        FLI_ASSERT(m->nodes[i].plan <= MACHINE_PLAN_REPLACE);
        FLI_ASSERT(!m->nodes[i].forced || m->nodes[i].plan == MACHINE_PLAN_REMOVE ||
                   m->nodes[i].plan == MACHINE_PLAN_REPLACE);
        FLI_ASSERT(m->nodes[i].id > (i == 0 ? 0 : m->nodes[i - 1].id));
    }
}

static void check_outcomes(const struct machine *m, struct tally *tally)
{
    const struct outcomes *t = &m->outcomes;
    size_t len = 0;
    for (unsigned kind = 0; kind < OUTCOME_KINDS; kind++) {
        FLI_LIST_FOREACH(link, &t->by_kind[kind])
        {
            const struct outcome *o = outcome_of(link);
            FLI_ASSERT(o->key[4] == kind && machine_outcome_fits(m, kind, o->number, o->until_ms));
            FLI_ASSERT(o->share->share.id == ((uint64_t)kind << 32 | fli_get_u32(o->key)));
            FLI_ASSERT(o->share->share.has > 0);
            tally->digest += machine_digest_outcome(o);
            len++;
        }
    }
    FLI_ASSERT(len == t->by_key.len && len == t->shares.taken && len <= MACHINE_OUTCOMES_MAX);
    FLI_ASSERT(t->by_share.len == t->shares.by_most.len);
}

static void check_users(const struct machine *m)
{
    const struct users *us = &m->users;
    uint64_t digest = 0;
    uint64_t bytes = 0;
    FLI_ASSERT(us->n >= 1 && us->list[0]->uid == 0);
    FLI_ASSERT(us->open == acl_is_open(&us->list[0]->acl));
    for (unsigned i = 0; i < us->n; i++) {
        uint8_t record[USER_RECORD_MAX];
        size_t len = machine_user_encode(us->list[i], record);
        digest += machine_digest_user((struct fli_slice){record, len});
        bytes += len;
        FLI_ASSERT(i == 0 || us->list[i]->uid > us->list[i - 1]->uid);
        FLI_ASSERT(us->list[i]->uid <= us->last_uid && us->list[i]->login > 0);
    }
    FLI_ASSERT(digest == us->digest && bytes == us->bytes && bytes <= MACHINE_USERS_BYTES_MAX);
    FLI_ASSERT((us->recheck != NULL) == fli_list_linked(&us->work.link));
    FLI_ASSERT(us->recheck_id == (us->recheck == NULL ? 0 : wait_id(us->recheck)));
    FLI_ASSERT(us->recheck == NULL ||
               request_part(us->recheck->request, 0) == us->recheck->request);
    FLI_ASSERT(us->recheck == NULL || us->work.link.next == &m->work);
}

void machine_check(struct machine *m)
{
    struct tally t = {.implicit = 0};
    check_scalars(m);
    check_outcomes(m, &t);
    check_held(m, &t);
    check_idle(m, &t);
    check_work(m, &t);
    check_users(m);
    machine_order_check(&m->opened);
    uint64_t sessions = 0;
    for (struct order_node *n = machine_order_first(&m->opened); n != NULL;
         n = machine_order_next(&m->opened, n)) {
        check_session(m, &t, session_of_opened(n));
        sessions++;
    }
    check_waits(m, &t);
    check_timers(m, &t);
    FLI_ASSERT(sessions == m->sessions.len + m->ending.len);
    FLI_ASSERT(t.implicit == m->n_implicit);
    FLI_ASSERT(m->locks.len == t.locks_held + m->idle.len + t.locks_between);
    FLI_ASSERT(t.shares == m->shares.len && t.shares == m->shares_by_token.len &&
               t.grants == m->n_grants);
    FLI_ASSERT(t.digest == m->digest);
    FLI_ASSERT(machine_has_no_deadlock(m));
}
