/* wait.c: places in queues. A lock's queue is first come, first served. It is replicated state, so
 * it survives a fail-over. */
#include "machine/state.h"

#include <stdlib.h>
#include <string.h>

size_t machine_request_key(uint8_t key[REQUEST_KEY_MAX], const struct lock *lock, bool is_explicit,
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
    if (lock_contention(lock) == NULL || contention_of(lock)->queue.len == 0) {
        return NULL;
    }
    uint8_t key[REQUEST_KEY_MAX];
    size_t len = machine_request_key(key, lock, is_explicit, owner);
    struct fli_map_node *n = fli_map_find(&m->waits_by_request, key, len);
    return n == NULL ? NULL : FLI_CONTAINER_OF(n, struct wait, by_request);
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
    uint8_t key[REQUEST_KEY_MAX];
    struct session *s = request_session(w->request);
    size_t len = machine_request_key(key, w->request->lock, session_is_explicit(s),
                                     machine_session_owner(s));
    int rc = fli_map_insert(&m->waits_by_request, &w->by_request,
                            fli_map_hash(&m->waits_by_request, key, len));
    fli_put_u64(key, wait_id(w));
    if (rc == 0 && request_part(w->request, 0) == w->request) {
        rc = fli_map_insert(&m->waits_by_id, &w->by_id, fli_map_hash(&m->waits_by_id, key, 8));
    }
    if (rc != 0) {
        fli_fatal("out of memory for a wait of the lock machine");
    }
}

/* n_multi of a contention record counts the waits whose session also waits elsewhere. When a
 * session's waits go from one to two, or back, the record of the other lock changes too. */
static void count_multi(struct session_explicit *s, const struct request *request, uint32_t n,
                        bool join)
{
    if (n < 2) {
        return;
    }
    uint32_t step = join ? 1 : UINT32_MAX; /* adding the latter takes one away */
    contention_of(request->lock)->n_multi += step;
    if (n == 2) {
        const struct request *first = request_of_link(s->waits.next);
        const struct request *last = request_of_link(s->waits.prev);
        FLI_ASSERT(first != last && (first == request || last == request));
        const struct request *other = first == request ? last : first;
        FLI_ASSERT(other->lock != request->lock);
        contention_of(other->lock)->n_multi += step;
    }
}

static void join_one(struct machine *m, struct request *request, uint32_t slots, uint64_t id,
                     uint64_t times_asked)
{
    FLI_ASSERT(!request->waiting && lock_holder(request->lock) != request);
    bool is_explicit = session_is_explicit(request_session(request));
    struct wait *w = fli_xcalloc(1, sizeof *w);
    machine_timer_init(&w->timer, is_explicit ? TIMER_WAIT_EXPLICIT : TIMER_WAIT_IMPLICIT);
    w->request = request;
    w->times_asked = times_asked;
    w->slots = slots;
    request->waiting = 1;
    request->at.wait = w;
    machine_order_push(&machine_lock_contend(request->lock)->queue, &w->in_queue, id);
    fli_list_push(&m->waits, &w->all);
    add_to_maps(m, w);
    if (is_explicit) {
        struct session_explicit *s = session_explicit_of(request_session(request));
        fli_list_push(&s->waits, &linked_request_of(request)->at_session);
        s->n_waits++;
        count_multi(s, request, s->n_waits, true);
    } else {
        contention_of(request->lock)->n_multi += request->is_multi;
    }
}

struct wait *machine_wait_join(struct machine *m, struct request *request, uint32_t slots,
                               uint64_t id, uint64_t times_asked, uint64_t deadline_ms)
{
    FLI_ASSERT(request_part(request, 0) == request && (slots == 1 || !request->is_multi));
    for (unsigned i = 0; i < request_parts(request); i++) {
        join_one(m, request_part(request, i), slots, id, times_asked);
    }
    struct wait *w = request->at.wait;
    m->digest += machine_digest_wait(w) + machine_digest_times_asked(w);
    machine_timer_set(m, &w->timer, deadline_ms);
    return w;
}

static void detach_one(struct machine *m, struct request *request)
{
    struct wait *w = request->at.wait;
    FLI_ASSERT(request->waiting && request->at.wait == w);
    machine_users_skip(m, w);
    if (session_is_explicit(request_session(request))) {
        struct session_explicit *s = session_explicit_of(request_session(request));
        count_multi(s, request, s->n_waits, false);
        fli_list_remove(&linked_request_of(request)->at_session);
        s->n_waits--;
    } else {
        contention_of(request->lock)->n_multi -= request->is_multi;
    }
    machine_timer_clear(m, &w->timer);
    fli_map_remove(&m->waits_by_request, &w->by_request);
    if (request_part(request, 0) == request) {
        fli_map_remove(&m->waits_by_id, &w->by_id);
    }
    fli_list_remove(&w->all);
    machine_order_remove(&contention_of(request->lock)->queue, &w->in_queue);
    request->waiting = 0;
    request->at.wait = NULL;
    free(w);
}

struct request *machine_wait_detach(struct machine *m, struct wait *w)
{
    struct request *request = request_part(w->request, 0);
    m->digest -=
        machine_digest_wait(request->at.wait) + machine_digest_times_asked(request->at.wait);
    for (unsigned i = 0; i < request_parts(request); i++) {
        detach_one(m, request_part(request, i));
    }
    return request;
}

unsigned machine_wait_remove(struct machine *m, struct wait *w, enum machine_reason reason,
                             struct lock *locks[MACHINE_NAMES_MAX])
{
    struct request *request = request_part(w->request, 0);
    unsigned n = request_parts(request);
    m->totals.waits_ended++;
    for (unsigned i = 0; i < n; i++) {
        locks[i] = request_part(request, i)->lock;
        machine_emit_of(m, request_session(request),
                        &(struct machine_event){.type = MACHINE_EVENT_WAIT_ENDED,
                                                .reason = (uint8_t)reason,
                                                .index = (uint8_t)i,
                                                .name = lock_name(locks[i]),
                                                .wait = wait_id(w),
                                                .since_ms = request->since_ms});
    }
    machine_request_free(m, machine_wait_detach(m, w));
    return n;
}

void machine_wait_end(struct machine *m, struct wait *w, enum machine_reason reason)
{
    struct lock *locks[MACHINE_NAMES_MAX];
    unsigned n = machine_wait_remove(m, w, reason, locks);
    machine_lock_settle_all(m, locks, n);
}
