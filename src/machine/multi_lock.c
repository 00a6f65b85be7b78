/* multi_lock.c: ACQUIRE of several locks, all or none. The checks are those of acquire.c, made for
 * all the locks at once:
 *
 *   one of them is in use as a semaphore               MISMATCH
 *   this session holds some: just these, together      GRANTED, the same token, lease renewed
 *     anything else                                    MISMATCH
 *   nobody holds, awaits or delays any of them         LIMIT or GRANTED
 *   no WAIT                                            HELD
 *   this session awaits some: just these, together     QUEUED, the same place, asked once more
 *     anything else                                    MISMATCH
 *   else                                               LIMIT, DEADLOCK or QUEUED
 *
 * A repeated request may name the locks in another order. When the request waits, it also creates
 * the locks that nobody uses yet, as idle ones: requests that come later must find its place in
 * their queues. */
#include "machine/state.h"

struct ask {
    const struct machine_command *c;
    struct session_explicit *session; /* NULL: implicit */
    unsigned n;
    struct fli_slice names[MACHINE_NAMES_MAX];
    struct lock *locks[MACHINE_NAMES_MAX]; /* NULL: not stored */
    uint64_t hashes[MACHINE_NAMES_MAX];
};

/* What this session has at the locks already, as their holder or in their queues. */
enum own { OWN_NONE, OWN_SAME, OWN_OTHER };

static struct request *request_at(struct machine *m, const struct ask *a, unsigned i, bool waits)
{
    const struct lock *lock = a->locks[i];
    if (lock == NULL) {
        return NULL;
    }
    if (!waits) {
        return machine_lock_held_by(m, lock, a->session != NULL, a->c->owner);
    }
    struct wait *w = machine_wait_find(m, lock, a->session != NULL, a->c->owner);
    return w == NULL ? NULL : w->request;
}

static enum own find_own(struct machine *m, const struct ask *a, bool waits,
                         struct multi_lock **ret)
{
    struct multi_lock *g = NULL;
    unsigned found = 0;
    for (unsigned i = 0; i < a->n; i++) {
        struct request *request = request_at(m, a, i, waits);
        if (request == NULL) {
            continue;
        }
        if (!request->is_multi || (g != NULL && request_multi(request) != g)) {
            return OWN_OTHER;
        }
        g = request_multi(request);
        found++;
    }
    if (found == 0) {
        return OWN_NONE;
    }
    *ret = g;
    return found == a->n && g->n == a->n ? OWN_SAME : OWN_OTHER;
}

/* Whether this owner holds or awaits one of the locks for another user. */
static bool is_foreign(struct machine *m, const struct ask *a)
{
    for (unsigned i = 0; i < a->n; i++) {
        struct request *held = request_at(m, a, i, false);
        struct request *waits = request_at(m, a, i, true);
        if ((held != NULL && !machine_sender_owns(m, request_session(held))) ||
            (waits != NULL && !machine_sender_owns(m, request_session(waits)))) {
            return true;
        }
    }
    return false;
}

static bool all_free(const struct ask *a)
{
    for (unsigned i = 0; i < a->n; i++) {
        const struct lock *lock = a->locks[i];
        if (lock != NULL &&
            ((lock_contention(lock) != NULL && contention_of(lock)->queue.len > 0) ||
             !machine_lock_admits(lock, 1))) {
            return false;
        }
    }
    return true;
}

/* Checks the limits that apply to a grant and to a wait alike: those on locks and on the
 * session. */
static enum machine_limit common_limit(const struct machine *m, const struct ask *a)
{
    uint64_t created = 0;
    for (unsigned i = 0; i < a->n; i++) {
        created += a->locks[i] == NULL;
    }
    if (created > 0 && m->locks.len + created > m->limits.locks_max) {
        return MACHINE_LIMIT_LOCKS;
    }
    const struct session_explicit *s = a->session;
    if (s == NULL) {
        return machine_sessions_len(m) >= m->limits.sessions_max ? MACHINE_LIMIT_SESSIONS : 0;
    }
    return (uint64_t)s->n_held + s->n_waits + a->n > m->limits.session_locks_max
               ? MACHINE_LIMIT_SESSION_LOCKS
               : 0;
}

static enum machine_limit queue_limit(const struct machine *m, const struct ask *a)
{
    for (unsigned i = 0; i < a->n; i++) {
        const struct contention *c = a->locks[i] == NULL ? NULL : lock_contention(a->locks[i]);
        if (c != NULL && c->queue.len >= m->limits.lock_waits_max) {
            return MACHINE_LIMIT_LOCK_WAITS;
        }
    }
    return m->waits_by_request.len + a->n > m->limits.waits_max ? MACHINE_LIMIT_WAITS : 0;
}

/* Creates the locks that are not stored, and a request at each lock. Returns the first request. */
static struct request *create_requests(struct machine *m, struct ask *a)
{
    for (unsigned i = 0; i < a->n; i++) {
        if (a->locks[i] == NULL) {
            a->locks[i] = machine_lock_create(m, a->names[i], a->hashes[i]);
        }
    }
    struct origin origin = machine_sender_origin(m);
    return machine_multi_create(m, a->locks, a->n, a->session, a->c->owner, a->c->ttl_ms,
                                a->c->value, &origin);
}

static void take(struct machine *m, struct ask *a, struct machine_result *r)
{
    enum machine_limit limit = common_limit(m, a);
    if (limit == 0 && m->last_token == FL_TOKEN_MAX) {
        limit = MACHINE_LIMIT_TOKENS;
    }
    if (limit != 0) {
        machine_answer_limit(m, r, limit);
        return;
    }
    struct request *request = create_requests(m, a);
    machine_lock_grant(m, request, 1, 0);
    machine_answer_granted(m, request, r);
}

static void emit_queued(struct machine *m, const struct ask *a, struct wait *w)
{
    for (unsigned i = 0; i < a->n; i++) {
        machine_emit_of(m, request_session(w->request),
                        &(struct machine_event){.type = MACHINE_EVENT_QUEUED,
                                                .index = (uint8_t)i,
                                                .name = lock_name(a->locks[i]),
                                                .wait = wait_id(w)});
    }
}

static void join_queues(struct machine *m, struct ask *a, struct machine_result *r)
{
    enum machine_limit limit = queue_limit(m, a);
    limit = limit != 0 ? limit : common_limit(m, a);
    if (limit != 0) {
        machine_answer_limit(m, r, limit);
        return;
    }
    if (a->session != NULL && machine_refuse_cycle(m, a->session, a->locks, a->n, r)) {
        return;
    }
    struct request *request = create_requests(m, a);
    struct wait *w = machine_wait_join(m, request, 1, ++m->serial, 1, m->clock_ms + a->c->wait_ms);
    request->since_ms = m->clock_ms & MACHINE_CLOCK_MAX_MS;
    for (unsigned i = 0; i < a->n; i++) {
        const struct contention *c = contention_of(a->locks[i]);
        if (c->holder == NULL && !c->is_idle && !fli_list_linked(&c->work.link)) {
            machine_lock_idle(m, a->locks[i], ++m->serial);
        }
    }
    emit_queued(m, a, w);
    machine_answer_queued(w, r);
}

/* False when one of the locks is in use as a semaphore; the answer in r then says so. */
static bool find_locks(struct machine *m, struct ask *a, struct machine_result *r)
{
    a->n = machine_command_names(a->c, a->names);
    for (unsigned i = 0; i < a->n; i++) {
        a->locks[i] = machine_lock_find(m, a->names[i], &a->hashes[i]);
        if (a->locks[i] != NULL && lock_permits(a->locks[i]) != 1) {
            r->code = MACHINE_MISMATCH;
            r->number = lock_permits(a->locks[i]);
            return false;
        }
    }
    return true;
}

void machine_acquire_multi(struct machine *m, const struct machine_command *c,
                           struct session_explicit *s, struct machine_result *r)
{
    struct ask a = {.c = c, .session = s};
    struct multi_lock *g = NULL;
    if (!find_locks(m, &a, r)) {
        return;
    }
    enum own own = find_own(m, &a, false, &g);
    if (own != OWN_NONE && is_foreign(m, &a)) {
        machine_refuse(r, 0);
        return;
    }
    if (own == OWN_SAME) {
        const struct request *request = multi_request(g, 0);
        machine_session_renew(m, request_session(request), c->ttl_ms);
        machine_answer_granted(m, request, r);
        return;
    }
    if (own == OWN_NONE && all_free(&a)) {
        take(m, &a, r);
        return;
    }
    if (own == OWN_NONE && (c->flags & MACHINE_ACQUIRE_WAIT) == 0) {
        r->code = MACHINE_HELD;
        return;
    }
    if (own == OWN_NONE) {
        own = find_own(m, &a, true, &g);
    }
    if (own != OWN_NONE && is_foreign(m, &a)) {
        machine_refuse(r, 0);
        return;
    }
    switch (own) {
    case OWN_NONE:
        join_queues(m, &a, r);
        break;
    case OWN_SAME:
        machine_wait_repeat(m, multi_request(g, 0)->at.wait, c, r);
        break;
    case OWN_OTHER:
        r->code = MACHINE_MISMATCH;
        break;
    }
}
