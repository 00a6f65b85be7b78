/* session.c: explicit sessions, and what both kinds have in common: an owner and a lease. */
#include "machine/state.h"

#include <stdlib.h>
#include <string.h>

struct fli_slice machine_session_owner(const struct session *s)
{
    const uint8_t *owner = NULL;
    if (session_is_explicit(s)) {
        owner = CONST_CONTAINER_OF(s, struct session_explicit, base)->owner;
    } else if (s->lease.is_multi) {
        const struct multi_lock *g = CONST_CONTAINER_OF(s, struct multi_lock, own);
        owner = (const uint8_t *)&g->parts[g->n];
    } else {
        owner = CONST_CONTAINER_OF(s, struct session_implicit, base)->bytes;
    }
    return (struct fli_slice){owner, s->lease.owner_len};
}

struct session_explicit *machine_session_find(struct machine *m, struct fli_slice owner)
{
    struct fli_map_node *n = fli_map_find(&m->sessions, owner.data, owner.len);
    return n == NULL ? NULL : FLI_CONTAINER_OF(n, struct session_explicit, by_key);
}

struct session_explicit *machine_session_find_ending(struct machine *m, uint64_t serial)
{
    uint8_t key[8];
    fli_put_u64(key, serial);
    struct fli_map_node *n = fli_map_find(&m->ending, key, sizeof key);
    return n == NULL ? NULL : FLI_CONTAINER_OF(n, struct session_explicit, by_key);
}

bool machine_session_is_over(const struct machine *m, struct session *s)
{
    if (session_is_explicit(s) && session_explicit_of(s)->ending != MACHINE_REASON_NONE) {
        return true;
    }
    return machine_timer_is_set(&s->lease) && s->lease.place == LEASE_OVER &&
           s->lease.at_ms < m->due_ms;
}

struct session_explicit *machine_session_live(struct machine *m, struct fli_slice owner)
{
    struct session_explicit *s = machine_session_find(m, owner);
    if (s != NULL && machine_session_is_over(m, &s->base)) {
        machine_session_end(m, s, MACHINE_REASON_DEADLINE);
        return NULL;
    }
    return s;
}

struct session_explicit *machine_session_create(struct machine *m, struct fli_slice owner,
                                                uint64_t serial, const struct origin *origin)
{
    FLI_ASSERT(owner.len >= 1 && owner.len <= FL_OWNER_MAX);
    struct session_explicit *s =
        fli_xcalloc(1, offsetof(struct session_explicit, owner) + owner.len);
    machine_timer_init(&s->base.lease, TIMER_LEASE_EXPLICIT);
    machine_work_init(&s->work, WORK_SESSION);
    s->base.lease.owner_len = (uint8_t)owner.len;
    s->origin = *origin;
    fli_list_init(&s->held);
    fli_list_init(&s->waits);
    memcpy(s->owner, owner.data, owner.len);
    uint64_t hash = fli_map_hash(&m->sessions, owner.data, owner.len);
    if (fli_map_insert(&m->sessions, &s->by_key, hash) != 0) {
        fli_fatal("out of memory for a session of the lock machine");
    }
    machine_order_push(&m->opened, &s->opened, serial);
    m->digest += machine_digest_session(s);
    return s;
}

void machine_session_describe(struct machine *m, struct session_explicit *s, uint32_t lockdelay_ms,
                              struct fli_slice label)
{
    FLI_ASSERT(label.len <= FL_LABEL_MAX && lockdelay_ms <= FL_LOCKDELAY_MAX_MS);
    m->digest -= machine_digest_session(s);
    s->lockdelay_ms = lockdelay_ms;
    free(s->label);
    s->label = NULL;
    s->label_len = (uint8_t)label.len;
    if (label.len > 0) {
        s->label = fli_xmalloc(label.len);
        memcpy(s->label, label.data, label.len);
    }
    m->digest += machine_digest_session(s);
}

uint64_t machine_session_renew(struct machine *m, struct session *s, uint64_t ttl_ms)
{
    FLI_ASSERT(ttl_ms == 0 || (ttl_ms >= FL_TTL_MIN_MS && ttl_ms <= FL_TTL_MAX_MS));
    struct timer *t = &s->lease;
    /* A term mark may have lengthened the lease. Its deadline is read before the ttl changes. */
    uint64_t deadline_ms = machine_timer_is_set(t) ? machine_timer_deadline(m, t) : 0;
    uint32_t new_ttl_ms = ttl_ms != 0 ? (uint32_t)ttl_ms : t->ttl_ms;
    uint64_t renewed_ms = m->clock_ms + new_ttl_ms;
    if (renewed_ms > deadline_ms) {
        deadline_ms = renewed_ms;
    }
    if (machine_timer_is_set(t)) {
        machine_lease_renew(m, t, new_ttl_ms, deadline_ms);
    } else {
        machine_lease_set(m, t, new_ttl_ms, deadline_ms);
    }
    return deadline_ms;
}

void machine_session_pause_search(struct machine *m, struct session_explicit *s, uint64_t until_ms)
{
    m->digest -= machine_digest_session(s);
    s->search_pause_ms = until_ms;
    m->digest += machine_digest_session(s);
}

void machine_session_set_ending(struct machine *m, struct session_explicit *s,
                                enum machine_reason reason)
{
    uint8_t key[8];
    FLI_ASSERT(s->ending == MACHINE_REASON_NONE);
    FLI_ASSERT(reason == MACHINE_REASON_CLOSE || reason == MACHINE_REASON_DEADLINE);
    machine_timer_clear(m, &s->base.lease);
    m->digest -= machine_digest_session(s);
    s->ending = (uint8_t)reason;
    m->digest += machine_digest_session(s);
    fli_map_remove(&m->sessions, &s->by_key);
    fli_put_u64(key, s->opened.key);
    if (fli_map_insert(&m->ending, &s->by_key, fli_map_hash(&m->ending, key, sizeof key)) != 0) {
        fli_fatal("out of memory for a session of the lock machine");
    }
}

void machine_session_end(struct machine *m, struct session_explicit *s, enum machine_reason reason)
{
    machine_session_set_ending(m, s, reason);
    machine_work_later(m, &s->work);
    machine_work(m);
}

void machine_session_work(struct machine *m, struct session_explicit *s)
{
    bool clean = s->ending == MACHINE_REASON_CLOSE;
    if (!fli_list_empty(&s->held)) {
        struct request *request = request_of_link(s->held.next);
        machine_charge(m, MACHINE_STEPS_RECORD * request_parts(request));
        machine_lock_end(m, request, clean ? MACHINE_EVENT_RELEASED : MACHINE_EVENT_EXPIRED,
                         (enum machine_reason)s->ending, clean ? 0 : s->lockdelay_ms);
        return;
    }
    if (!fli_list_empty(&s->waits)) {
        struct request *request = request_of_link(s->waits.next);
        machine_charge(m, MACHINE_STEPS_RECORD * request_parts(request));
        machine_wait_end(m, request->at.wait, MACHINE_REASON_SESSION);
        return;
    }
    machine_charge(m, MACHINE_STEPS_RECORD);
    machine_emit_of(
        m, &s->base,
        &(struct machine_event){.type = MACHINE_EVENT_SESSION_ENDED, .reason = s->ending});
    machine_session_free(m, s);
}

void machine_session_free(struct machine *m, struct session_explicit *s)
{
    FLI_ASSERT(fli_list_empty(&s->held) && s->n_held == 0);
    FLI_ASSERT(fli_list_empty(&s->waits) && s->n_waits == 0);
    machine_work_forget(m, &s->work);
    machine_timer_clear(m, &s->base.lease);
    m->digest -= machine_digest_session(s);
    machine_order_remove(&m->opened, &s->opened);
    fli_map_remove(s->ending != MACHINE_REASON_NONE ? &m->ending : &m->sessions, &s->by_key);
    free(s->label);
    free(s);
}

uint64_t machine_sessions_len(const struct machine *m)
{
    return m->opened.len + m->n_implicit;
}
