/* wait.c: places in queues. The queue of a lock is first come, first served, and part of the
 * replicated state, so a fail-over keeps it. */
#include "machine/state.h"

#include <stdlib.h>
#include <string.h>

size_t machine_seat_key(uint8_t key[SEAT_KEY_MAX], const struct lock *lock, bool is_explicit,
                        struct fli_slice owner)
{
    FLI_ASSERT(owner.len >= 1 && owner.len <= FL_OWNER_MAX);
    key[0] = is_explicit;
    struct fli_slice name = lock_name(lock);
    key[1] = (uint8_t)name.len;
    memcpy(key + 2, name.data, name.len);
    memcpy(key + 2 + name.len, owner.data, owner.len);
    return 2 + name.len + owner.len;
}

struct wait *machine_wait_find(struct machine *m, const struct lock *lock, bool is_explicit,
                               struct fli_slice owner)
{
    if (lock_crowd(lock) == NULL || crowd_of(lock)->queue.len == 0) {
        return NULL;
    }
    uint8_t key[SEAT_KEY_MAX];
    size_t len = machine_seat_key(key, lock, is_explicit, owner);
    struct fli_map_node *n = fli_map_find(&m->waits_by_seat, key, len);
    return n == NULL ? NULL : FLI_CONTAINER_OF(n, struct wait, by_seat);
}

struct wait *machine_wait_find_id(struct machine *m, uint64_t id)
{
    uint8_t key[8];
    fli_put_u64(key, id);
    struct fli_map_node *n = fli_map_find(&m->waits_by_id, key, sizeof key);
    return n == NULL ? NULL : FLI_CONTAINER_OF(n, struct wait, by_id);
}

static void add_to_maps(struct machine *m, struct wait *w)
{
    uint8_t key[SEAT_KEY_MAX];
    struct session *s = seat_session(w->seat);
    size_t len =
        machine_seat_key(key, w->seat->lock, session_is_explicit(s), machine_session_owner(s));
    int rc =
        fli_map_insert(&m->waits_by_seat, &w->by_seat, fli_map_hash(&m->waits_by_seat, key, len));
    fli_put_u64(key, wait_id(w));
    if (rc == 0 && seat_mate(w->seat, 0) == w->seat) {
        rc = fli_map_insert(&m->waits_by_id, &w->by_id, fli_map_hash(&m->waits_by_id, key, 8));
    }
    if (rc != 0) {
        fli_fatal("out of memory for a wait of the lock machine");
    }
}

/* The crowd's n_multi counts waits whose session waits elsewhere too. When the number of a
 * session's waits changes between one and two, the other one's crowd has to know as well. */
static void count_multi(struct session_explicit *s, const struct seat *seat, uint32_t n, bool join)
{
    if (n < 2) {
        return;
    }
    uint32_t step = join ? 1 : UINT32_MAX; /* adding the latter takes one away */
    crowd_of(seat->lock)->n_multi += step;
    if (n == 2) {
        const struct seat *first = seat_of_link(s->waits.next);
        const struct seat *last = seat_of_link(s->waits.prev);
        FLI_ASSERT(first != last && (first == seat || last == seat));
        const struct seat *other = first == seat ? last : first;
        FLI_ASSERT(other->lock != seat->lock);
        crowd_of(other->lock)->n_multi += step;
    }
}

static void join_one(struct machine *m, struct seat *seat, uint32_t slots, uint64_t id,
                     uint64_t asking)
{
    FLI_ASSERT(!seat->waiting && lock_holder(seat->lock) != seat);
    bool is_explicit = session_is_explicit(seat_session(seat));
    struct wait *w = fli_xcalloc(1, sizeof *w);
    machine_timer_init(&w->timer, is_explicit ? TIMER_WAIT_EXPLICIT : TIMER_WAIT_IMPLICIT);
    w->seat = seat;
    w->asking = asking;
    w->slots = slots;
    seat->waiting = 1;
    seat->at.wait = w;
    machine_order_push(&machine_lock_crowd(seat->lock)->queue, &w->in_queue, id);
    fli_list_push(&m->waits, &w->all);
    add_to_maps(m, w);
    if (is_explicit) {
        struct session_explicit *s = session_explicit_of(seat_session(seat));
        fli_list_push(&s->waits, &linked_seat_of(seat)->at_session);
        s->n_waits++;
        count_multi(s, seat, s->n_waits, true);
    } else {
        crowd_of(seat->lock)->n_multi += seat->grouped;
    }
}

struct wait *machine_wait_join(struct machine *m, struct seat *seat, uint32_t slots, uint64_t id,
                               uint64_t asking, uint64_t deadline_ms)
{
    FLI_ASSERT(seat_mate(seat, 0) == seat && (slots == 1 || !seat->grouped));
    for (unsigned i = 0; i < seat_mates(seat); i++) {
        join_one(m, seat_mate(seat, i), slots, id, asking);
    }
    struct wait *w = seat->at.wait;
    m->digest += machine_digest_wait(w) + machine_digest_asking(w);
    machine_timer_set(m, &w->timer, deadline_ms);
    return w;
}

static void detach_one(struct machine *m, struct seat *seat)
{
    struct wait *w = seat->at.wait;
    FLI_ASSERT(seat->waiting && seat->at.wait == w);
    machine_users_skip(m, w);
    if (session_is_explicit(seat_session(seat))) {
        struct session_explicit *s = session_explicit_of(seat_session(seat));
        count_multi(s, seat, s->n_waits, false);
        fli_list_remove(&linked_seat_of(seat)->at_session);
        s->n_waits--;
    } else {
        crowd_of(seat->lock)->n_multi -= seat->grouped;
    }
    machine_timer_clear(m, &w->timer);
    fli_map_remove(&m->waits_by_seat, &w->by_seat);
    if (seat_mate(seat, 0) == seat) {
        fli_map_remove(&m->waits_by_id, &w->by_id);
    }
    fli_list_remove(&w->all);
    machine_order_remove(&crowd_of(seat->lock)->queue, &w->in_queue);
    seat->waiting = 0;
    seat->at.wait = NULL;
    free(w);
}

struct seat *machine_wait_detach(struct machine *m, struct wait *w)
{
    struct seat *seat = seat_mate(w->seat, 0);
    m->digest -= machine_digest_wait(seat->at.wait) + machine_digest_asking(seat->at.wait);
    for (unsigned i = 0; i < seat_mates(seat); i++) {
        detach_one(m, seat_mate(seat, i));
    }
    return seat;
}

unsigned machine_wait_remove(struct machine *m, struct wait *w, enum machine_reason reason,
                             struct lock *locks[MACHINE_NAMES_MAX])
{
    struct seat *seat = seat_mate(w->seat, 0);
    unsigned n = seat_mates(seat);
    m->ever.waits_ended++;
    for (unsigned i = 0; i < n; i++) {
        locks[i] = seat_mate(seat, i)->lock;
        machine_emit_of(m, seat_session(seat),
                        &(struct machine_event){.type = MACHINE_EVENT_WAIT_ENDED,
                                                .reason = (uint8_t)reason,
                                                .index = (uint8_t)i,
                                                .name = lock_name(locks[i]),
                                                .wait = wait_id(w)});
    }
    machine_seat_free(m, machine_wait_detach(m, w));
    return n;
}

void machine_wait_end(struct machine *m, struct wait *w, enum machine_reason reason)
{
    struct lock *locks[MACHINE_NAMES_MAX];
    unsigned n = machine_wait_remove(m, w, reason, locks);
    machine_lock_settle_all(m, locks, n);
}
