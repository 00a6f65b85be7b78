/* acquire.c: ACQUIRE. The checks in their order, and the answer that each can give:
 *
 *   a name that the user may not acquire (users.c)     NOPERM
 *   a form that this version does not execute          UNSUPPORTED
 *   an explicit session that does not exist, or is
 *     another user's                                   NOSESSION
 *   a later attempt has come already (outcomes.h)      LATE
 *   the session has lost the lock, and this batch has
 *     no steps left to take it away                    LIMIT
 *   nobody holds, awaits or delays the lock            LIMIT or GRANTED
 *   it is used with another number of permits, or this
 *     session holds it in another mode or with other
 *     locks                                            MISMATCH
 *   this session holds it, for another user            NOPERM
 *   this session holds it                              GRANTED, the same token, lease renewed
 *   nobody waits, and the holders' mode admits it      LIMIT or GRANTED
 *   no WAIT                                            HELD
 *   this session is in the queue, for another user     NOPERM
 *   this session is in the queue, in another mode or
 *     with other locks                                 MISMATCH
 *   this session is in the queue                       QUEUED, the same place, times_asked + 1
 *   else                                               LIMIT, DEADLOCK or QUEUED
 *
 * multi_lock.c has the ACQUIRE of several locks. A repeated request does not replace the value that
 * the grant or the wait was made with. */
#include "machine/state.h"

#include <string.h>

/* The session that sends the request; an implicit one may not exist yet. */
struct requester {
    struct session_explicit *explicit_session; /* NULL: implicit */
    const struct machine_command *c;
    uint32_t slots;
};

/* Checks the limits on what a grant and a wait both need: a session, or a place in one. */
static enum machine_limit request_limit(const struct machine *m, const struct requester *a)
{
    const struct session_explicit *s = a->explicit_session;
    if (s == NULL) {
        return machine_sessions_len(m) >= m->limits.sessions_max ? MACHINE_LIMIT_SESSIONS : 0;
    }
    return (uint64_t)s->n_held + s->n_waits >= m->limits.session_locks_max
               ? MACHINE_LIMIT_SESSION_LOCKS
               : 0;
}

static struct request *create_request(struct machine *m, struct lock *lock,
                                      const struct requester *a)
{
    struct origin origin = machine_sender_origin(m);
    return a->explicit_session != NULL
               ? machine_request_create_explicit(m, lock, a->explicit_session, a->c->value)
               : machine_request_create_implicit(m, lock, a->c->owner, a->c->ttl_ms, a->c->value,
                                                 &origin);
}

void machine_answer_granted(struct machine *m, const struct request *request,
                            struct machine_result *r)
{
    r->code = MACHINE_GRANTED;
    r->token = request_token(request);
    r->deadline_ms = machine_lease_until(m, request_session(request));
}

/* Checks the limits on one more grant of a lock: of one that is not stored, or of one held in
 * shared mode. */
static enum machine_limit grant_limit(const struct machine *m, const struct requester *a)
{
    enum machine_limit limit = request_limit(m, a);
    return limit == 0 && m->last_token == FL_TOKEN_MAX ? MACHINE_LIMIT_TOKENS : limit;
}

static void take(struct machine *m, const struct requester *a, struct lock *lock,
                 struct machine_result *r)
{
    struct request *request = create_request(m, lock, a);
    machine_lock_grant(m, request, a->slots, 0);
    machine_answer_granted(m, request, r);
}

static void take_free(struct machine *m, const struct requester *a, uint64_t hash,
                      struct machine_result *r)
{
    enum machine_limit limit =
        m->locks.len >= m->limits.locks_max ? MACHINE_LIMIT_LOCKS : grant_limit(m, a);
    if (limit != 0) {
        machine_answer_limit(m, r, limit);
        return;
    }
    struct lock *lock = machine_lock_create(m, a->c->name, hash);
    if (slots_permits(a->slots) > 1) {
        machine_lock_contend(lock)->permits = a->slots;
    }
    take(m, a, lock, r);
}

static void join_holders(struct machine *m, const struct requester *a, struct lock *lock,
                         struct machine_result *r)
{
    enum machine_limit limit = grant_limit(m, a);
    if (limit != 0) {
        machine_answer_limit(m, r, limit);
    } else {
        take(m, a, lock, r);
    }
}

/* The position of a multi-lock's wait is the one in the queue where it stands furthest back. */
void machine_answer_queued(const struct wait *w, struct machine_result *r)
{
    uint64_t position = 0;
    for (unsigned i = 0; i < request_parts(w->request); i++) {
        const struct request *request = request_part(w->request, i);
        uint64_t rank =
            machine_order_rank(&contention_of(request->lock)->queue, &request->at.wait->in_queue);
        position = rank > position ? rank : position;
    }
    FLI_ASSERT(position >= 1 && position <= UINT32_MAX);
    r->code = MACHINE_QUEUED;
    r->number = (uint32_t)position;
    r->token = w->times_asked;
    r->wait = wait_id(w);
}

void machine_wait_repeat(struct machine *m, struct wait *w, const struct machine_command *c,
                         struct machine_result *r)
{
    FLI_ASSERT(request_part(w->request, 0) == w->request);
    m->digest -= machine_digest_times_asked(w);
    w->times_asked++;
    uint64_t deadline_ms = m->clock_ms + c->wait_ms;
    bool newest = (c->flags & MACHINE_ACQUIRE_ATTEMPT) != 0;
    if (newest || deadline_ms > w->timer.at_ms) {
        machine_timer_set(m, &w->timer, deadline_ms);
    }
    if (!session_is_explicit(request_session(w->request))) {
        timer_set_ttl(&request_session(w->request)->lease, c->ttl_ms);
    }
    m->digest += machine_digest_times_asked(w);
    machine_answer_queued(w, r);
}

static enum machine_limit queue_limit(const struct machine *m, const struct lock *lock,
                                      const struct requester *a)
{
    if (lock_contention(lock) != NULL &&
        contention_of(lock)->queue.len >= m->limits.lock_waits_max) {
        return MACHINE_LIMIT_LOCK_WAITS;
    }
    if (m->waits_by_request.len >= m->limits.waits_max) {
        return MACHINE_LIMIT_WAITS;
    }
    return request_limit(m, a);
}

bool machine_refuse_cycle(struct machine *m, struct session_explicit *s, struct lock *const *locks,
                          unsigned n, struct machine_result *r)
{
    switch (machine_deadlock_search(m, s, locks, n)) {
    case DEADLOCK_NONE:
        return false;
    case DEADLOCK_CYCLE:
        m->totals.deadlocks++;
        r->code = MACHINE_DEADLOCK;
        break;
    case DEADLOCK_UNKNOWN:
        /* The search ran out of steps, so there may be no deadlock: the answer is a limit, not
         * DEADLOCK. */
        machine_answer_limit(m, r, MACHINE_LIMIT_WAITS);
        break;
    }
    return true;
}

/* True when the session must not join the queue; r then holds the reason. */
static bool refuse_wait(struct machine *m, struct lock *lock, const struct requester *a,
                        struct machine_result *r)
{
    enum machine_limit limit = queue_limit(m, lock, a);
    if (limit != 0) {
        machine_answer_limit(m, r, limit);
        return true;
    }
    return a->explicit_session != NULL && machine_refuse_cycle(m, a->explicit_session, &lock, 1, r);
}

static void join_queue(struct machine *m, struct lock *lock, const struct requester *a,
                       struct machine_result *r)
{
    if (refuse_wait(m, lock, a, r)) {
        return;
    }
    struct request *request = create_request(m, lock, a);
    struct wait *w =
        machine_wait_join(m, request, a->slots, ++m->serial, 1, m->clock_ms + a->c->wait_ms);
    request->since_ms = m->clock_ms & MACHINE_CLOCK_MAX_MS;
    machine_emit_of(m, request_session(request),
                    &(struct machine_event){
                        .type = MACHINE_EVENT_QUEUED, .name = lock_name(lock), .wait = wait_id(w)});
    machine_answer_queued(w, r);
}

/* False when this version does not execute such a request. */
static bool find_slots(const struct machine_command *c, uint32_t *ret)
{
    bool shared = c->mode == MACHINE_MODE_SHARED;
    *ret = shared ? SLOTS_SHARED : c->permits;
    return c->permits <= FL_PERMITS_MAX && (!shared || c->permits == 1) &&
           (c->n_names == 1 || *ret == 1);
}

static void answer_mismatch(const struct lock *lock, const struct requester *a,
                            struct machine_result *r)
{
    uint32_t permits = lock_permits(lock);
    r->code = MACHINE_MISMATCH;
    r->number = permits == slots_permits(a->slots) ? 0 : permits;
}

/* Handles a lock that is stored: held, awaited or delayed. */
static void acquire_stored(struct machine *m, const struct requester *a, struct lock *lock,
                           struct machine_result *r)
{
    const struct machine_command *c = a->c;
    bool is_explicit = a->explicit_session != NULL;
    struct request *request = machine_lock_held_by(m, lock, is_explicit, c->owner);
    if (lock_permits(lock) != slots_permits(a->slots) ||
        (request != NULL && (request->is_multi || lock_slots(lock) != a->slots))) {
        answer_mismatch(lock, a, r);
        return;
    }
    if (request != NULL && !machine_sender_owns(m, request_session(request))) {
        machine_refuse(r, 0);
        return;
    }
    if (request != NULL) {
        machine_session_renew(m, request_session(request), c->ttl_ms);
        machine_answer_granted(m, request, r);
        return;
    }
    if ((lock_contention(lock) == NULL || contention_of(lock)->queue.len == 0) &&
        machine_lock_admits(lock, a->slots)) {
        join_holders(m, a, lock, r);
        return;
    }
    if ((c->flags & MACHINE_ACQUIRE_WAIT) == 0) {
        r->code = MACHINE_HELD;
        return;
    }
    struct wait *w = machine_wait_find(m, lock, is_explicit, c->owner);
    if (w == NULL) {
        join_queue(m, lock, a, r);
    } else if (!machine_sender_owns(m, request_session(w->request))) {
        machine_refuse(r, 0);
    } else if (w->request->is_multi || w->slots != a->slots) {
        answer_mismatch(lock, a, r);
    } else {
        machine_wait_repeat(m, w, c, r);
    }
}

/* The session may have lost this lock while its record is still there. Then the record is removed
 * first. False when no steps are left for that. */
static bool clear_own_at(struct machine *m, const struct machine_command *c, struct fli_slice name)
{
    bool is_explicit = c->op == MACHINE_OP_ACQUIRE && (c->flags & MACHINE_ACQUIRE_EXPLICIT) != 0;
    uint64_t hash;
    struct lock *lock = machine_lock_find(m, name, &hash);
    struct request *request =
        lock == NULL ? NULL : machine_lock_held_by(m, lock, is_explicit, c->owner);
    if (request != NULL && machine_request_is_over(m, request)) {
        if (m->steps == 0) {
            return false;
        }
        machine_charge(m, MACHINE_STEPS_RECORD * request_parts(request));
        machine_request_finish(m, request);
        lock = machine_lock_find(m, name, &hash);
    }
    struct wait *w = lock == NULL ? NULL : machine_wait_find(m, lock, is_explicit, c->owner);
    if (w != NULL && machine_session_is_over(m, request_session(w->request))) {
        if (m->steps == 0) {
            return false;
        }
        machine_charge(m, MACHINE_STEPS_RECORD * request_parts(w->request));
        machine_wait_end(m, w, MACHINE_REASON_SESSION);
    }
    return true;
}

bool machine_clear_own(struct machine *m, const struct machine_command *c)
{
    struct fli_slice names[MACHINE_NAMES_MAX];
    unsigned n = machine_is_behind(m) ? machine_command_names(c, names) : 0;
    for (unsigned i = 0; i < n; i++) {
        if (!clear_own_at(m, c, names[i])) {
            return false;
        }
    }
    return true;
}

void machine_acquire(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    struct requester a = {.c = c};
    if (!find_slots(c, &a.slots)) {
        r->code = MACHINE_UNSUPPORTED;
        return;
    }
    if ((c->flags & MACHINE_ACQUIRE_EXPLICIT) != 0) {
        a.explicit_session = machine_session_live(m, c->owner);
        if (a.explicit_session == NULL || !machine_sender_owns(m, &a.explicit_session->base)) {
            r->code = MACHINE_NOSESSION;
            return;
        }
    }
    if (machine_attempt_is_late(m, c, &r->token)) {
        r->code = MACHINE_LATE;
        return;
    }
    if (!machine_clear_own(m, c)) {
        machine_answer_limit(m, r, MACHINE_LIMIT_WAITS);
        return;
    }
    if (c->n_names > 1) {
        machine_acquire_multi(m, c, a.explicit_session, r);
        return;
    }
    uint64_t hash = 0;
    struct lock *lock = machine_lock_find(m, c->name, &hash);
    if (lock == NULL) {
        take_free(m, &a, hash, r);
    } else {
        acquire_stored(m, &a, lock, r);
    }
}
