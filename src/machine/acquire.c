/* acquire.c: ACQUIRE. Every way it can end, in the order of the questions asked:
 *
 *   a shape this version does not execute        UNSUPPORTED
 *   an explicit session that does not exist      NOSESSION
 *   nobody holds, awaits or delays the lock      LIMIT or GRANTED
 *   this session holds it                        GRANTED, the same token, lease renewed
 *   this session is in the queue, WAIT           QUEUED, the same place, asked once more
 *   no WAIT                                      HELD
 *   WAIT                                         LIMIT, DEADLOCK or QUEUED
 *
 * Asked again, grant and wait keep the value they were made with. */
#include "machine/state.h"

#include <string.h>

/* The session that asks; an implicit one may not exist yet. */
struct asker {
    struct session_explicit *explicit_session; /* NULL: implicit */
    const struct machine_command *c;
};

static bool holds(const struct lock *lock, const struct asker *a)
{
    if (lock->holder == NULL) {
        return false;
    }
    const struct session *s = lock->holder->session;
    if (a->explicit_session != NULL) {
        return s == &a->explicit_session->base;
    }
    return !session_is_explicit(s) && slices_equal(machine_session_owner(s), a->c->owner);
}

/* The limits on what both a grant and a wait need: a session, or a place in one. */
static enum machine_limit seat_limit(const struct machine *m, const struct asker *a)
{
    const struct session_explicit *s = a->explicit_session;
    if (s == NULL) {
        return machine_sessions_len(m) >= m->limits.sessions_max ? MACHINE_LIMIT_SESSIONS : 0;
    }
    return (uint64_t)s->n_held + s->n_waits >= m->limits.session_locks_max
               ? MACHINE_LIMIT_SESSION_LOCKS
               : 0;
}

static struct seat *create_seat(struct machine *m, struct lock *lock, const struct asker *a)
{
    return a->explicit_session != NULL
               ? machine_seat_create_explicit(lock, a->explicit_session, a->c->value)
               : machine_seat_create_implicit(m, lock, a->c->owner, a->c->ttl_ms, a->c->value);
}

static void answer_granted(struct machine *m, const struct seat *seat, struct machine_result *r)
{
    r->code = MACHINE_GRANTED;
    r->token = seat_token(seat);
    r->deadline_ms = machine_timer_deadline(m, &seat->session->lease);
}

static void take_free(struct machine *m, const struct asker *a, uint64_t hash,
                      struct machine_result *r)
{
    enum machine_limit limit = seat_limit(m, a);
    if (m->locks.len >= m->limits.locks_max) {
        limit = MACHINE_LIMIT_LOCKS;
    } else if (limit == 0 && m->last_token == FL_TOKEN_MAX) {
        limit = MACHINE_LIMIT_TOKENS;
    }
    if (limit != 0) {
        machine_answer_limit(m, r, limit);
        return;
    }
    struct lock *lock = machine_lock_create(m, a->c->name, hash);
    struct seat *seat = create_seat(m, lock, a);
    machine_lock_grant(m, seat, 0);
    answer_granted(m, seat, r);
}

static void answer_queued(const struct wait *w, uint64_t position, struct machine_result *r)
{
    FLI_ASSERT(position >= 1 && position <= UINT32_MAX);
    r->code = MACHINE_QUEUED;
    r->number = (uint32_t)position;
    r->token = w->asking;
    r->wait = wait_id(w);
}

static void ask_again(struct machine *m, struct wait *w, const struct machine_command *c,
                      struct machine_result *r)
{
    w->asking++;
    uint64_t deadline_ms = m->clock_ms + c->wait_ms;
    if (deadline_ms > w->timer.deadline_ms) {
        machine_timer_set(m, &w->timer, deadline_ms);
    }
    if (!session_is_explicit(w->seat->session)) {
        w->seat->session->lease.ttl_ms = (uint32_t)c->ttl_ms;
    }
    answer_queued(w, machine_order_rank(&w->seat->lock->crowd->queue, &w->in_queue), r);
}

static enum machine_limit queue_limit(const struct machine *m, const struct lock *lock,
                                      const struct asker *a)
{
    if (lock->crowd != NULL && lock->crowd->queue.len >= m->limits.lock_waits_max) {
        return MACHINE_LIMIT_LOCK_WAITS;
    }
    if (m->waits_by_id.len >= m->limits.waits_max) {
        return MACHINE_LIMIT_WAITS;
    }
    return seat_limit(m, a);
}

/* True when the queue must not be joined; r says why. */
static bool refuse_wait(struct machine *m, struct lock *lock, const struct asker *a,
                        struct machine_result *r)
{
    enum machine_limit limit = queue_limit(m, lock, a);
    if (limit == 0 && a->explicit_session != NULL) {
        switch (machine_deadlock_search(m, a->explicit_session, lock)) {
        case DEADLOCK_NONE:
            return false;
        case DEADLOCK_CYCLE:
            m->ever.deadlocks++;
            r->code = MACHINE_DEADLOCK;
            return true;
        case DEADLOCK_UNKNOWN:
            /* Not said to be a deadlock, because it may be none. */
            limit = MACHINE_LIMIT_WAITS;
            break;
        }
    }
    if (limit != 0) {
        machine_answer_limit(m, r, limit);
    }
    return limit != 0;
}

static void join_queue(struct machine *m, struct lock *lock, const struct asker *a,
                       struct machine_result *r)
{
    if (refuse_wait(m, lock, a, r)) {
        return;
    }
    struct seat *seat = create_seat(m, lock, a);
    struct wait *w = machine_wait_join(m, seat, ++m->serial, 1, m->clock_ms + a->c->wait_ms);
    machine_emit(m, &(struct machine_event){.type = MACHINE_EVENT_QUEUED,
                                            .session_explicit = a->explicit_session != NULL,
                                            .name = lock_name(lock),
                                            .owner = machine_session_owner(seat->session),
                                            .wait = wait_id(w)});
    answer_queued(w, lock->crowd->queue.len, r);
}

void machine_acquire(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    if (c->n_names != 1 || c->mode != MACHINE_MODE_EXCLUSIVE || c->permits != 1) {
        r->code = MACHINE_UNSUPPORTED;
        return;
    }
    struct asker a = {.c = c};
    bool is_explicit = (c->flags & MACHINE_ACQUIRE_EXPLICIT) != 0;
    if (is_explicit) {
        a.explicit_session = machine_session_find(m, c->owner);
        if (a.explicit_session == NULL) {
            r->code = MACHINE_NOSESSION;
            return;
        }
    }
    uint64_t hash = 0;
    struct lock *lock = machine_lock_find(m, c->name, &hash);
    if (lock == NULL) {
        take_free(m, &a, hash, r);
        return;
    }
    if (holds(lock, &a)) {
        machine_session_renew(m, lock->holder->session, c->ttl_ms);
        answer_granted(m, lock->holder, r);
        return;
    }
    if ((c->flags & MACHINE_ACQUIRE_WAIT) == 0) {
        r->code = MACHINE_HELD;
        return;
    }
    struct wait *w = machine_wait_find(m, lock, is_explicit, c->owner);
    if (w != NULL) {
        ask_again(m, w, c, r);
    } else {
        join_queue(m, lock, &a, r);
    }
}
