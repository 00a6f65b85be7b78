/* lock.c: the life of a lock's record: made by the first grant, freed as soon as nobody holds,
 * awaits or delays it.
 *
 *            grant                  end, nobody waits
 *   (none) --------> held ------------------------------> (none)
 *                    ^  |  end with a delay        delay over, nobody waits
 *                    |  +-----------------> idle ---------------------------> (none)
 *                    |  end, somebody waits    | delay over, somebody waits
 *                    +--(the head is granted)<-+
 *
 * A lock is idle without a delay only when tokens have run out while somebody waits; then it stays
 * until the last wait ends. */
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
    struct lock *lock = fli_xmalloc(offsetof(struct lock, name) + name.len);
    lock->holder = NULL;
    lock->crowd = NULL;
    lock->name_len = (uint8_t)name.len;
    memcpy(lock->name, name.data, name.len);
    if (fli_map_insert(&m->locks, &lock->by_name, hash) != 0) {
        fli_fatal("out of memory for a lock of the lock machine");
    }
    return lock;
}

struct crowd *machine_lock_crowd(struct lock *lock)
{
    if (lock->crowd == NULL) {
        struct crowd *c = fli_xcalloc(1, sizeof *c);
        c->lock = lock;
        machine_order_init(&c->queue, QUEUE_PART_MAX);
        machine_timer_init(&c->delay, TIMER_DELAY);
        lock->crowd = c;
    }
    return lock->crowd;
}

void machine_lock_free(struct machine *m, struct lock *lock)
{
    if (lock->crowd != NULL) {
        machine_order_fini(&lock->crowd->queue);
        free(lock->crowd);
    }
    fli_map_remove(&m->locks, &lock->by_name);
    free(lock);
}

void machine_lock_hold(struct machine *m, struct seat *seat, fl_token token, uint64_t since_ms)
{
    struct lock *lock = seat->lock;
    FLI_ASSERT(lock->holder == NULL && !seat->waiting);
    FLI_ASSERT(token >= 1 && token <= m->last_token);
    lock->holder = seat;
    seat->since_ms = since_ms & MACHINE_CLOCK_MAX_MS;
    machine_order_push(&m->held, &seat->at.held, token);
    if (session_is_explicit(seat->session)) {
        struct session_explicit *s = session_explicit_of(seat->session);
        fli_list_push(&s->held, &seat_explicit_of(seat)->at_session);
        s->n_held++;
    }
}

void machine_lock_unhold(struct machine *m, struct seat *seat)
{
    FLI_ASSERT(seat->lock->holder == seat);
    seat->lock->holder = NULL;
    machine_order_remove(&m->held, &seat->at.held);
    if (session_is_explicit(seat->session)) {
        struct session_explicit *s = session_explicit_of(seat->session);
        FLI_ASSERT(s->n_held > 0);
        fli_list_remove(&seat_explicit_of(seat)->at_session);
        s->n_held--;
    }
}

void machine_lock_grant(struct machine *m, struct seat *seat, uint64_t wait)
{
    FLI_ASSERT(m->last_token < FL_TOKEN_MAX);
    m->last_token++;
    m->ever.grants++;
    machine_lock_hold(m, seat, m->last_token, m->clock_ms);
    /* The lease of an implicit session begins with its grant; an explicit one has its own life. */
    bool is_explicit = session_is_explicit(seat->session);
    uint64_t deadline_ms = is_explicit ? machine_timer_deadline(m, &seat->session->lease)
                                       : machine_session_renew(m, seat->session, 0);
    machine_emit(m, &(struct machine_event){.type = MACHINE_EVENT_GRANTED,
                                            .session_explicit = is_explicit,
                                            .name = lock_name(seat->lock),
                                            .owner = machine_session_owner(seat->session),
                                            .token = m->last_token,
                                            .wait = wait,
                                            .deadline_ms = deadline_ms});
}

void machine_lock_idle(struct machine *m, struct lock *lock, uint64_t serial, uint64_t until_ms)
{
    FLI_ASSERT(lock->holder == NULL);
    struct crowd *c = machine_lock_crowd(lock);
    FLI_ASSERT(!c->is_idle && !c->is_delayed);
    c->is_idle = true;
    machine_order_push(&m->idle, &c->idle, serial);
    if (until_ms != 0) {
        c->is_delayed = true;
        machine_timer_set(m, &c->delay, until_ms);
    }
}

/* Gives a free lock to the first in the queue, if there is one: a release wakes one waiter. */
static void pass_on(struct machine *m, struct lock *lock)
{
    struct order_node *first =
        lock->crowd == NULL ? NULL : machine_order_first(&lock->crowd->queue);
    if (first == NULL) {
        machine_lock_relax(m, lock);
        return;
    }
    if (m->last_token == FL_TOKEN_MAX) {
        machine_lock_idle(m, lock, ++m->serial, 0);
        return;
    }
    struct wait *w = wait_of_queue(first);
    uint64_t id = wait_id(w);
    machine_lock_grant(m, machine_wait_detach(m, w), id);
    machine_lock_relax(m, lock);
}

static void count_end(struct machine *m, enum machine_event_type type)
{
    switch (type) {
    case MACHINE_EVENT_RELEASED:
        m->ever.releases++;
        break;
    case MACHINE_EVENT_EXPIRED:
        m->ever.expiries++;
        break;
    default:
        FLI_ASSERT(type == MACHINE_EVENT_BROKEN);
        m->ever.breaks++;
        break;
    }
}

void machine_lock_end(struct machine *m, struct seat *seat, enum machine_event_type type,
                      enum machine_reason reason, uint64_t delay_ms)
{
    struct lock *lock = seat->lock;
    FLI_ASSERT(lock->holder == seat);
    FLI_ASSERT(delay_ms <= FL_LOCKDELAY_MAX_MS);
    count_end(m, type);
    machine_emit(m, &(struct machine_event){.type = (uint8_t)type,
                                            .reason = (uint8_t)reason,
                                            .session_explicit = session_is_explicit(seat->session),
                                            .name = lock_name(lock),
                                            .owner = machine_session_owner(seat->session),
                                            .token = seat_token(seat)});
    machine_lock_unhold(m, seat);
    machine_seat_free(m, seat);
    if (delay_ms > 0) {
        machine_lock_idle(m, lock, ++m->serial, m->clock_ms + delay_ms);
    } else {
        pass_on(m, lock);
    }
}

static void leave_idle(struct machine *m, struct crowd *c)
{
    FLI_ASSERT(c->is_idle);
    machine_timer_clear(m, &c->delay);
    machine_order_remove(&m->idle, &c->idle);
    c->is_idle = false;
    c->is_delayed = false;
}

void machine_lock_end_delay(struct machine *m, struct lock *lock)
{
    FLI_ASSERT(lock->holder == NULL && lock->crowd != NULL && lock->crowd->is_delayed);
    leave_idle(m, lock->crowd);
    pass_on(m, lock);
}

void machine_lock_relax(struct machine *m, struct lock *lock)
{
    struct crowd *c = lock->crowd;
    bool awaited = c != NULL && c->queue.len > 0;
    if (c != NULL && c->is_idle && !c->is_delayed && !awaited) {
        leave_idle(m, c);
    }
    if (awaited || (c != NULL && c->is_delayed)) {
        return;
    }
    if (lock->holder == NULL) {
        machine_lock_free(m, lock);
    } else if (c != NULL) {
        machine_order_fini(&c->queue);
        free(c);
        lock->crowd = NULL;
    }
}
