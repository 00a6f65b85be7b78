/* digest.c: the hash of the state, kept while the state changes.
 *
 * Every record and every timer has a hash of its own. The digest is their sum (mod 2^64): a change
 * costs two hashes of what changed, and the order of changes does not matter. The few numbers of
 * the machine itself (clock, counters, limits, nodes) are added when the hash is asked for.
 * Replicas that applied the same log have the same digest. So does a machine restored from a
 * snapshot, which holds everything that is hashed.
 *
 * The digest finds replicas that differ by a bug or a memory fault. It is no defence against an
 * attacker who chooses names that make two states hash alike. A step multiplies two words and folds
 * the product, as in wyhash (Wang Yi 2019). */
#include <string.h>

#include "machine/fold.h"
#include "machine/state.h"

enum tag {
    TAG_SESSION = 1,
    TAG_GRANT,
    TAG_WAIT,
    TAG_TIMES_ASKED,
    TAG_IDLE,
    TAG_TIMER,
    TAG_WORK,
    TAG_USER,
    TAG_OUTCOME
};

static inline uint64_t mix(uint64_t h, uint64_t a, uint64_t b)
{
    return fold(a ^ UINT64_C(0x9e3779b97f4a7c15), b ^ h);
}

static uint64_t short_word(struct fli_slice s)
{
    uint64_t word = 0;
    for (size_t i = 0; i < s.len; i++) {
        word = word << 8 | s.data[i];
    }
    return word;
}

/* A short tail is read with some bytes a second time, which saves a loop; the length keeps such
 * inputs apart. */
static inline uint64_t mix_bytes(uint64_t h, struct fli_slice s)
{
    if (s.len < 8) {
        return mix(h, s.len, short_word(s));
    }
    size_t i = 0;
    for (; i + 16 <= s.len; i += 16) {
        h = mix(h, fli_get_u64(s.data + i), fli_get_u64(s.data + i + 8));
    }
    uint64_t next = i + 8 <= s.len ? fli_get_u64(s.data + i) : 0;
    return mix(h, next ^ (uint64_t)s.len << 56, fli_get_u64(s.data + s.len - 8));
}

static uint64_t mix_origin(uint64_t h, struct origin origin)
{
    uint8_t packed[ORIGIN_SIZE_MAX];
    return mix_bytes(h, (struct fli_slice){packed, machine_origin_pack(&origin, packed)});
}

static uint64_t mix_request(uint64_t h, struct request *request, uint32_t slots)
{
    const struct session *s = request_session(request);
    unsigned n = request_parts(request);
    h = mix(h, slots, (uint64_t)request->counted << 8 | n << 1 | session_is_explicit(s));
    for (unsigned i = 0; i < n; i++) {
        h = mix_bytes(h, lock_name(request_part(request, i)->lock));
    }
    h = mix_bytes(h, machine_session_owner(s));
    h = request->value_len == 0 ? h : mix_bytes(h, machine_request_value(request));
    return request->has_origin ? mix_origin(h, machine_session_origin(request_session(request)))
                               : h;
}

uint64_t machine_digest_session(const struct session_explicit *s)
{
    uint64_t h = mix(TAG_SESSION, s->opened.key, s->lockdelay_ms);
    h = mix(h, s->search_pause_ms, s->ending);
    h = mix_bytes(h, machine_session_owner(&s->base));
    h = mix_origin(h, s->origin);
    return mix_bytes(h, (struct fli_slice){s->label, s->label_len});
}

uint64_t machine_digest_grant(struct request *request)
{
    FLI_ASSERT(request_part(request, 0) == request);
    uint64_t h = mix(TAG_GRANT, request_token(request), request->since_ms);
    return mix_request(h, request, lock_slots(request->lock));
}

uint64_t machine_digest_wait(const struct wait *w)
{
    return mix_request(mix(TAG_WAIT, wait_id(w), w->slots), w->request, w->slots);
}

uint64_t machine_digest_times_asked(const struct wait *w)
{
    const struct session *s = request_session(w->request);
    uint64_t h = mix(TAG_TIMES_ASKED, wait_id(w), w->times_asked);
    return mix(h, 0, session_is_explicit(s) ? 0 : s->lease.ttl_ms);
}

uint64_t machine_digest_outcome(const struct outcome *o)
{
    return mix_bytes(mix(TAG_OUTCOME, o->number, o->until_ms),
                     (struct fli_slice){o->key, o->key_len});
}

uint64_t machine_digest_idle(const struct contention *c)
{
    return mix_bytes(mix(TAG_IDLE, c->idle.key, c->permits), lock_name(c->lock));
}

uint64_t machine_digest_timer(const struct timer *t)
{
    uint64_t h = mix(TAG_TIMER << 3 | t->kind, machine_timer_id(t), t->at_ms);
    if (t->kind == TIMER_DELAY) {
        return mix_bytes(h, machine_timer_name(t));
    }
    return mix(h, t->place == LEASE_OVER, t->ttl_ms);
}

uint64_t machine_digest_work(struct work *w)
{
    if (w->kind == WORK_SESSION) {
        return 0; /* whether a session is ending is in the session's own hash */
    }
    if (w->kind == WORK_MULTI) {
        return mix(TAG_WORK, request_token(multi_request(machine_work_multi(w), 0)), 0);
    }
    if (w->kind == WORK_USERS) {
        return mix(TAG_WORK, FLI_CONTAINER_OF(w, struct users, work)->recheck_id, 1);
    }
    const struct contention *c = machine_work_contention(w);
    return mix_bytes(mix(TAG_WORK, 0, 2 + (uint64_t)c->is_broken), lock_name(c->lock));
}

uint64_t machine_digest_user(struct fli_slice record)
{
    return mix_bytes(TAG_USER, record);
}

uint64_t machine_hash(const struct machine *m)
{
    const struct machine_limits *x = &m->limits;
    const struct machine_counts *totals = &m->totals;
    uint64_t h = mix(m->digest, m->clock_ms, m->floor_ms);
    h = mix(h, m->due_ms, m->mark_due);
    h = mix(mix(h, m->last_token, m->serial), m->cluster_id, x->session_locks_max);
    h = mix(h, (uint64_t)m->settings.election_ms << 32 | m->settings.heartbeat_ms,
            (uint64_t)m->settings.hold_ms << 32 | m->settings.log_level);
    h = mix(h, (uint64_t)x->locks_max << 32 | x->sessions_max,
            (uint64_t)x->waits_max << 32 | x->lock_waits_max);
    h = mix(mix(h, totals->grants, totals->releases), totals->expiries, totals->breaks);
    h = mix(mix(h, totals->tokens, totals->waits_ended), totals->deadlocks, totals->limits);
    h = mix(h, m->version, m->n_nodes);
    for (unsigned i = 0; i < m->n_nodes; i++) {
        const struct machine_node *n = &m->nodes[i];
        h = mix(h, n->id,
                (uint64_t)n->plan << 40 | (uint64_t)n->forced << 33 | (uint64_t)n->learner << 32 |
                    n->version);
        h = mix(h, strlen(n->address), fli_crc32c(0, n->address, strlen(n->address)));
    }
    return mix(h, m->users.digest, (uint64_t)m->users.sealed << 32 | m->users.last_uid);
}
