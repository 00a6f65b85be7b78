/* lock.c: the life of a lock's record. The first grant creates it; it is freed as soon as nobody
 * holds, awaits or delays the lock.
 *
 *            grant                  last end, nobody waits
 *   (none) --------> held ------------------------------> (none)
 *                    ^  |  last end with a delay   delay over, nobody waits
 *                    |  +-----------------> idle ---------------------------> (none)
 *                    |  end, somebody waits    | delay over, somebody waits
 *                    +--(the head is granted)<-+
 *
 * The request at the head of the queue is granted the lock as soon as the holders let it in, then
 * the next; none overtakes. So neighbours in shared mode are granted together, and an exclusive
 * request behind them holds back later ones. A delay keeps every request out, even while other
 * sessions hold the lock together.
 *
 * A wait for several locks stands in the queue of each. It is granted all of them when it is at the
 * head of every queue and every lock lets it in. So no request overtakes it, and until then it
 * holds nothing.
 *
 * When no steps are left for a grant, the lock has work left for the next batch (work.c). Without a
 * holder, it is then neither held nor idle.
 *
 * A lock can be idle without a delay in two cases. Tokens have run out while a request waits: the
 * lock stays until the last wait ends. Or the head of its queue also needs other locks that are not
 * free or have other requests at their heads. */
#include "machine/state.h"

#include <stdlib.h>
#include <string.h>

#define QUEUE_PART_MAX 128u

struct lock *machine_lock_find(struct machine *m, struct fli_slice name, uint64_t *ret_hash)
{
    *ret_hash = fli_map_hash(&m->locks, name.data, name.len);
    struct fli_map_node *n = fli_map_find_hashed(&m->locks, *ret_hash, name.data, name.len);
    return n == NULL ? NULL : FLI_CONTAINER_OF(n, struct lock, by_name);
}

struct lock *machine_lock_create(struct machine *m, struct fli_slice name, uint64_t hash)
{
    FLI_ASSERT(name.len >= 1 && name.len <= FL_NAME_MAX);
    struct lock *lock = fli_slab_alloc(&m->slab, offsetof(struct lock, name) + name.len);
    lock->by_name.own[LOCK_NAME_LEN] = (uint8_t)name.len;
    lock->by_name.own[LOCK_CONTENDED] = 0;
    lock->has.holder = NULL;
    memcpy(lock->name, name.data, name.len);
    if (fli_map_insert(&m->locks, &lock->by_name, hash) != 0) {
        fli_fatal("out of memory for a lock of the lock machine");
    }
    return lock;
}

struct contention *machine_lock_contend(struct lock *lock)
{
    if (lock_contention(lock) == NULL) {
        struct contention *c = fli_xcalloc(1, sizeof *c);
        c->lock = lock;
        c->holder = lock->has.holder;
        c->slots = 1;
        c->permits = 1;
        fli_list_init(&c->shares);
        machine_order_init(&c->queue, QUEUE_PART_MAX);
        machine_timer_init(&c->delay, TIMER_DELAY);
        machine_work_init(&c->work, WORK_LOCK);
        lock->has.contention = c;
        lock->by_name.own[LOCK_CONTENDED] = 1;
    }
    return lock->has.contention;
}

static void free_contention(struct machine *m, struct lock *lock)
{
    struct contention *c = lock->has.contention;
    FLI_ASSERT(c->n_shares == 0);
    machine_work_forget(m, &c->work);
    lock->by_name.own[LOCK_CONTENDED] = 0;
    lock->has.holder = c->holder;
    machine_order_fini(&c->queue);
    free(c);
}

void machine_lock_free(struct machine *m, struct lock *lock)
{
    if (lock_contention(lock) != NULL) {
        free_contention(m, lock);
    }
    fli_map_remove(&m->locks, &lock->by_name);
    fli_slab_free(&m->slab, lock, offsetof(struct lock, name) + lock_name(lock).len);
}

bool machine_lock_admits(const struct lock *lock, uint32_t slots)
{
    const struct contention *c = lock_contention(lock);
    if (c == NULL) {
        return lock->has.holder == NULL;
    }
    if (c->is_delayed || c->is_broken) {
        return false;
    }
    return c->holder == NULL || (c->n_shares > 0 && c->slots == slots && c->n_shares < slots);
}

static struct share *find_share(struct machine *m, const struct lock *lock, bool is_explicit,
                                struct fli_slice owner)
{
    uint8_t key[REQUEST_KEY_MAX];
    size_t len = machine_request_key(key, lock, is_explicit, owner);
    struct fli_map_node *n = fli_map_find(&m->shares, key, len);
    return n == NULL ? NULL : FLI_CONTAINER_OF(n, struct share, by_request);
}

struct request *machine_lock_held_by(struct machine *m, const struct lock *lock, bool is_explicit,
                                     struct fli_slice owner)
{
    if (lock_holder(lock) == NULL) {
        return NULL;
    }
    if (lock_contention(lock) != NULL && contention_of(lock)->n_shares > 0) {
        struct share *share = find_share(m, lock, is_explicit, owner);
        return share == NULL ? NULL : share->request;
    }
    const struct session *s = request_session(lock_holder(lock));
    bool same = session_is_explicit(s) == is_explicit;
    return same && slices_equal(machine_session_owner(s), owner) ? lock_holder(lock) : NULL;
}

struct request *machine_lock_held_under(struct machine *m, const struct lock *lock, fl_token token)
{
    if (lock_holder(lock) == NULL || token == 0) {
        return NULL;
    }
    if (request_token(lock_holder(lock)) == token) {
        return lock_holder(lock);
    }
    if (lock_contention(lock) == NULL || contention_of(lock)->n_shares == 0) {
        return NULL;
    }
    uint8_t key[8];
    fli_put_u64(key, token);
    struct fli_map_node *n = fli_map_find(&m->shares_by_token, key, sizeof key);
    struct request *request =
        n == NULL ? NULL : FLI_CONTAINER_OF(n, struct share, by_token)->request;
    return request != NULL && request->lock == lock ? request : NULL;
}

bool machine_request_is_over(const struct machine *m, struct request *request)
{
    FLI_ASSERT(!request->waiting);
    if (!machine_is_behind(m)) {
        return false;
    }
    return (lock_contention(request->lock) != NULL && contention_of(request->lock)->is_broken) ||
           (request->is_multi && fli_list_linked(&request_multi(request)->work.link)) ||
           machine_session_is_over(m, request_session(request));
}

void machine_request_finish(struct machine *m, struct request *request)
{
    request = request_part(request, 0);
    struct session *s = request_session(request);
    if (lock_contention(request->lock) != NULL && contention_of(request->lock)->is_broken) {
        machine_lock_end(m, request, MACHINE_EVENT_BROKEN, MACHINE_REASON_BREAK, 0);
        return;
    }
    if (request->is_multi && fli_list_linked(&request_multi(request)->work.link)) {
        machine_lock_end(m, request, MACHINE_EVENT_RELEASED, MACHINE_REASON_RELEASE, 0);
        return;
    }
    if (session_is_explicit(s) && session_explicit_of(s)->ending == MACHINE_REASON_CLOSE) {
        machine_lock_end(m, request, MACHINE_EVENT_RELEASED, MACHINE_REASON_CLOSE, 0);
        return;
    }
    machine_lock_end(m, request, MACHINE_EVENT_EXPIRED, MACHINE_REASON_DEADLINE,
                     session_is_explicit(s) ? session_explicit_of(s)->lockdelay_ms : 0);
}

static void add_share(struct machine *m, struct request *request, uint32_t slots, fl_token token)
{
    struct contention *c = machine_lock_contend(request->lock);
    struct share *share = fli_xcalloc(1, sizeof *share);
    uint8_t key[REQUEST_KEY_MAX];
    size_t len =
        machine_request_key(key, request->lock, session_is_explicit(request_session(request)),
                            machine_session_owner(request_session(request)));
    FLI_ASSERT(c->n_shares < slots && (c->n_shares == 0 || c->slots == slots));
    share->request = request;
    int rc = fli_map_insert(&m->shares, &share->by_request, fli_map_hash(&m->shares, key, len));
    fli_put_u64(key, token);
    uint64_t hash = fli_map_hash(&m->shares_by_token, key, 8);
    if (rc != 0 || fli_map_insert(&m->shares_by_token, &share->by_token, hash) != 0) {
        fli_fatal("out of memory for a share of the lock machine");
    }
    fli_list_push(&c->shares, &share->at_lock);
    c->n_shares++;
    c->slots = slots;
}

/* Removes the request's share; the next oldest holder becomes the lock's `holder`. */
static void remove_share(struct machine *m, const struct request *request)
{
    struct lock *lock = request->lock;
    struct share *share = find_share(m, lock, session_is_explicit(request_session(request)),
                                     machine_session_owner(request_session(request)));
    FLI_ASSERT(share != NULL && share->request == request);
    fli_map_remove(&m->shares, &share->by_request);
    fli_map_remove(&m->shares_by_token, &share->by_token);
    fli_list_remove(&share->at_lock);
    free(share);
    contention_of(lock)->n_shares--;
    struct fli_list *first = fli_list_first(&contention_of(lock)->shares);
    lock_set_holder(lock, first == NULL ? NULL : share_of_link(first)->request);
}

void machine_lock_hold(struct machine *m, struct request *request, uint32_t slots, fl_token token,
                       unsigned index, uint64_t since_ms)
{
    FLI_ASSERT(slots == 1 || !request->is_multi);
    struct lock *lock = request->lock;
    FLI_ASSERT((lock_holder(lock) == NULL || slots > 1) && !request->waiting);
    FLI_ASSERT(token >= 1 && token <= m->last_token);
    if (slots > 1) {
        add_share(m, request, slots, token);
    }
    if (lock_holder(lock) == NULL) {
        lock_set_holder(lock, request);
    }
    request->since_ms = since_ms & MACHINE_CLOCK_MAX_MS;
    machine_order_push(&m->held, &request->at.held, held_key(token, index));
    if (index == 0) {
        m->n_grants++;
        m->digest += machine_digest_grant(request);
    }
    if (session_is_explicit(request_session(request))) {
        struct session_explicit *s = session_explicit_of(request_session(request));
        fli_list_push(&s->held, &linked_request_of(request)->at_session);
        s->n_held++;
    }
}

void machine_lock_unhold(struct machine *m, struct request *request)
{
    struct lock *lock = request->lock;
    if (held_key_index(request->at.held.key) == 0) {
        m->n_grants--;
        m->digest -= machine_digest_grant(request);
    }
    if (lock_contention(lock) != NULL && contention_of(lock)->n_shares > 0) {
        remove_share(m, request);
    } else {
        FLI_ASSERT(lock_holder(lock) == request);
        lock_set_holder(lock, NULL);
    }
    machine_order_remove(&m->held, &request->at.held);
    if (session_is_explicit(request_session(request))) {
        struct session_explicit *s = session_explicit_of(request_session(request));
        FLI_ASSERT(s->n_held > 0);
        fli_list_remove(&linked_request_of(request)->at_session);
        s->n_held--;
    }
}

static void leave_idle(struct machine *m, struct contention *c)
{
    FLI_ASSERT(c->is_idle);
    m->digest -= machine_digest_idle(c);
    machine_order_remove(&m->idle, &c->idle);
    c->is_idle = false;
}

void machine_lock_grant(struct machine *m, struct request *request, uint32_t slots, uint64_t wait)
{
    FLI_ASSERT(m->last_token < FL_TOKEN_MAX && request_part(request, 0) == request);
    m->last_token++;
    m->totals.grants++;
    unsigned n = request_parts(request);
    uint64_t waited_since_ms = wait == 0 ? 0 : request->since_ms;
    for (unsigned i = 0; i < n; i++) {
        struct contention *c = lock_contention(request_part(request, i)->lock);
        if (c != NULL && c->is_idle) {
            leave_idle(m, c);
        }
        machine_lock_hold(m, request_part(request, i), slots, m->last_token, i, m->clock_ms);
    }
    /* An implicit session's lease begins with the grant; an explicit session has a lease
     * already. */
    bool is_explicit = session_is_explicit(request_session(request));
    uint64_t deadline_ms = is_explicit ? machine_timer_deadline(m, &request_session(request)->lease)
                                       : machine_session_renew(m, request_session(request), 0);
    for (unsigned i = 0; i < n; i++) {
        machine_emit_of(m, request_session(request),
                        &(struct machine_event){.type = MACHINE_EVENT_GRANTED,
                                                .index = (uint8_t)i,
                                                .name = lock_name(request_part(request, i)->lock),
                                                .token = m->last_token,
                                                .wait = wait,
                                                .deadline_ms = deadline_ms,
                                                .since_ms = waited_since_ms});
    }
}

void machine_lock_idle(struct machine *m, struct lock *lock, uint64_t serial)
{
    FLI_ASSERT(lock_holder(lock) == NULL);
    struct contention *c = machine_lock_contend(lock);
    FLI_ASSERT(!c->is_idle);
    c->is_idle = true;
    machine_order_push(&m->idle, &c->idle, serial);
    m->digest += machine_digest_idle(c);
}

void machine_lock_delay(struct machine *m, struct lock *lock, uint64_t until_ms)
{
    struct contention *c = machine_lock_contend(lock);
    if (!c->is_delayed || until_ms > c->delay.at_ms) {
        machine_timer_set(m, &c->delay, until_ms);
    }
    c->is_delayed = true;
}

static void end_delay(struct machine *m, struct contention *c)
{
    machine_timer_clear(m, &c->delay);
    c->is_delayed = false;
}

bool machine_lock_is_ready(const struct lock *lock)
{
    struct order_node *first =
        lock_contention(lock) == NULL ? NULL : machine_order_first(&contention_of(lock)->queue);
    if (first == NULL) {
        return false;
    }
    const struct wait *w = wait_of_queue(first);
    for (unsigned i = 0; i < request_parts(w->request); i++) {
        const struct request *request = request_part(w->request, i);
        if (machine_order_first(&contention_of(request->lock)->queue) !=
                &request->at.wait->in_queue ||
            !machine_lock_admits(request->lock, w->slots)) {
            return false;
        }
    }
    return true;
}

bool machine_lock_is_pending(const struct lock *lock)
{
    const struct contention *c = contention_of(lock);
    struct request *request = wait_of_queue(machine_order_first(&c->queue))->request;
    for (unsigned i = 0; i < request_parts(request); i++) {
        if (fli_list_linked(&contention_of(request_part(request, i)->lock)->work.link)) {
            return true;
        }
    }
    return false;
}

/* Frees what a lock no longer needs: an empty contention, and the lock when nothing is left. */
static void free_unused(struct machine *m, struct lock *lock)
{
    struct contention *c = lock_contention(lock);
    bool awaited = c != NULL && c->queue.len > 0;
    if (c != NULL && c->is_idle && !c->is_delayed && !awaited) {
        leave_idle(m, c);
    }
    if (awaited || (c != NULL && (c->is_delayed || c->n_shares > 0))) {
        return;
    }
    if (lock_holder(lock) == NULL) {
        machine_lock_free(m, lock);
    } else if (c != NULL) {
        free_contention(m, lock);
    }
}

/* Whether the waiting session has ended, so that it must not be granted anything. While expiries
 * run in the order of their deadlines, the deadline of its lease has not been reached yet. */
static bool waits_in_vain(const struct machine *m, const struct wait *w)
{
    struct session *s = request_session(w->request);
    return session_is_explicit(s) &&
           (m->expiring ? session_explicit_of(s)->ending != 0 : machine_session_is_over(m, s));
}

/* Removes the first wait from its queues. `lock` itself keeps its contention record. The other
 * locks are settled later, even those that nobody needs any more, since settling one lock must not
 * free another. */
static void drop_first(struct machine *m, struct lock *lock, enum machine_reason reason)
{
    struct wait *w = wait_of_queue(machine_order_first(&contention_of(lock)->queue));
    struct lock *locks[MACHINE_NAMES_MAX];
    unsigned n = machine_wait_remove(m, w, reason, locks);
    machine_charge(m, MACHINE_STEPS_RECORD * n);
    for (unsigned i = 0; i < n; i++) {
        if (locks[i] != lock) {
            machine_work_later(m, &contention_of(locks[i])->work);
        }
    }
}

/* Grants the first wait its lock, or all its locks. `lock` itself keeps its contention record. */
static void grant_first(struct machine *m, struct lock *lock)
{
    struct wait *w = wait_of_queue(machine_order_first(&contention_of(lock)->queue));
    if (waits_in_vain(m, w)) {
        drop_first(m, lock, MACHINE_REASON_SESSION);
        return;
    }
    if (!machine_wait_may(m, w)) {
        drop_first(m, lock, MACHINE_REASON_DENIED);
        return;
    }
    uint64_t id = wait_id(w);
    uint32_t slots = w->slots;
    struct request *request = machine_wait_detach(m, w);
    machine_charge(m, MACHINE_STEPS_RECORD * request_parts(request));
    machine_lock_grant(m, request, slots, id);
    for (unsigned i = 0; i < request_parts(request); i++) {
        struct lock *other = request_part(request, i)->lock;
        if (other != lock) {
            free_unused(m, other);
        }
    }
}

static void end_break(struct machine *m, struct contention *c)
{
    m->digest -= machine_digest_work(&c->work);
    c->is_broken = false;
    m->digest += machine_digest_work(&c->work);
    end_delay(m, c);
}

/* Whether the first in the queue must be granted the lock now. */
static bool is_owed(const struct machine *m, const struct lock *lock)
{
    return m->last_token < FL_TOKEN_MAX && machine_lock_is_ready(lock);
}

/* True when the steps did not suffice; the caller then schedules the rest for the next batch. */
static bool settle(struct machine *m, struct lock *lock)
{
    struct contention *c = lock_contention(lock);
    if (c != NULL && c->is_broken) {
        if (c->holder != NULL) {
            return false;
        }
        end_break(m, c);
    }
    while (is_owed(m, lock)) {
        if (m->steps == 0) {
            return true;
        }
        grant_first(m, lock);
    }
    if (c != NULL) {
        machine_work_forget(m, &c->work);
    }
    if (lock_holder(lock) == NULL && c != NULL && !c->is_idle &&
        (c->is_delayed || c->queue.len > 0)) {
        machine_lock_idle(m, lock, ++m->serial);
    }
    free_unused(m, lock);
    return false;
}

/* Settling one lock can grant others, and never frees one. Locks without steps left go in front of
 * all other work, the first lock last, so that they keep their order. */
void machine_lock_settle_all(struct machine *m, struct lock *const *locks, unsigned n)
{
    struct lock *left[MACHINE_NAMES_MAX];
    unsigned n_left = 0;
    for (unsigned i = 0; i < n; i++) {
        if (settle(m, locks[i])) {
            left[n_left++] = locks[i];
        }
    }
    while (n_left > 0) {
        machine_work_later(m, &contention_of(left[--n_left])->work);
    }
}

static void count_end(struct machine *m, enum machine_event_type type)
{
    switch (type) {
    case MACHINE_EVENT_RELEASED:
        m->totals.releases++;
        break;
    case MACHINE_EVENT_EXPIRED:
        m->totals.expiries++;
        break;
    default:
        FLI_ASSERT(type == MACHINE_EVENT_BROKEN);
        m->totals.breaks++;
        break;
    }
}

/* Ends a grant without settling its locks. Returns how many locks it had. */
static unsigned end_grant(struct machine *m, struct request *request, enum machine_event_type type,
                          enum machine_reason reason, struct lock *locks[MACHINE_NAMES_MAX])
{
    unsigned n = request_parts(request);
    count_end(m, type);
    for (unsigned i = 0; i < n; i++) {
        struct request *part = request_part(request, i);
        locks[i] = part->lock;
        machine_emit_of(m, request_session(part),
                        &(struct machine_event){.type = (uint8_t)type,
                                                .reason = (uint8_t)reason,
                                                .index = (uint8_t)i,
                                                .name = lock_name(part->lock),
                                                .token = request_token(part),
                                                .since_ms = part->since_ms});
        machine_lock_unhold(m, part);
    }
    machine_request_free(m, request);
    return n;
}

void machine_lock_end(struct machine *m, struct request *request, enum machine_event_type type,
                      enum machine_reason reason, uint64_t delay_ms)
{
    struct lock *locks[MACHINE_NAMES_MAX];
    FLI_ASSERT(delay_ms <= FL_LOCKDELAY_MAX_MS);
    unsigned n = end_grant(m, request, type, reason, locks);
    for (unsigned i = 0; i < n && delay_ms > 0; i++) {
        machine_lock_delay(m, locks[i], m->clock_ms + delay_ms);
    }
    machine_lock_settle_all(m, locks, n);
}

void machine_lock_break(struct machine *m, struct lock *lock)
{
    FLI_ASSERT(lock_holder(lock) != NULL);
    struct contention *c = lock_contention(lock);
    if (c != NULL && c->n_shares > 0) {
        machine_work_forget(m, &c->work);
        c->is_broken = true;
        machine_work_later(m, &c->work);
        machine_work(m);
        return;
    }
    struct lock *locks[MACHINE_NAMES_MAX];
    unsigned n = end_grant(m, lock_holder(lock), MACHINE_EVENT_BROKEN, MACHINE_REASON_BREAK, locks);
    if (lock_contention(lock) != NULL) {
        end_delay(m, lock_contention(lock));
    }
    machine_lock_settle_all(m, locks, n);
}

static void settle_one(struct machine *m, struct lock *lock)
{
    machine_lock_settle_all(m, &lock, 1);
}

void machine_lock_work(struct machine *m, struct contention *c)
{
    struct lock *lock = c->lock;
    if (c->is_broken) {
        struct lock *locks[MACHINE_NAMES_MAX];
        machine_charge(m, MACHINE_STEPS_RECORD);
        unsigned n = end_grant(m, c->holder, MACHINE_EVENT_BROKEN, MACHINE_REASON_BREAK, locks);
        FLI_ASSERT(n == 1);
    }
    settle_one(m, lock);
}

void machine_lock_end_delay(struct machine *m, struct lock *lock)
{
    struct contention *c = lock_contention(lock);
    FLI_ASSERT(c != NULL && c->is_delayed && c->is_idle == (lock_holder(lock) == NULL));
    end_delay(m, c);
    settle_one(m, lock);
}
