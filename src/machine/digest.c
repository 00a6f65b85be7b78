/* digest.c: the hash of the state, kept while the state changes.
 *
 * Every record and every timer has a hash of its own; the digest is their sum (mod 2^64), so a
 * change costs the hash of what changed, twice, and the order of changes does not matter. Numbers
 * of the machine itself (clock, counters, limits, nodes) are few, and are added when the hash is
 * asked for. Two replicas that applied the same log have the same; so has a machine restored from a
 * snapshot, which holds everything that is hashed.
 *
 * It is there to find replicas that differ by a fault of ours or of a memory. It is no defence
 * against who chooses names so that two states have the same hash. A step is a multiplication and a
 * shift, as in MurmurHash2 (Appleby 2008). */
#include "machine/state.h"

enum tag { TAG_SESSION = 1, TAG_GRANT, TAG_WAIT, TAG_ASKING, TAG_IDLE, TAG_TIMER };

static inline uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 29);
}

/* The last bytes are read a second time where that saves a loop; the length keeps them apart. */
static uint64_t mix_bytes(uint64_t h, struct fli_slice s)
{
    h = mix(h, s.len);
    size_t i = 0;
    for (; i + 8 <= s.len; i += 8) {
        h = mix(h, fli_get_u64(s.data + i));
    }
    if (i == s.len) {
        return h;
    }
    if (s.len >= 8) {
        return mix(h, fli_get_u64(s.data + s.len - 8));
    }
    uint64_t last = 0;
    for (; i < s.len; i++) {
        last = last << 8 | s.data[i];
    }
    return mix(h, last);
}

static uint64_t begin(enum tag tag, uint64_t id)
{
    return mix(mix(0, tag), id);
}

static uint64_t mix_seat(uint64_t h, struct seat *seat, uint32_t slots)
{
    const struct session *s = seat_session(seat);
    unsigned n = seat_mates(seat);
    h = mix(h, (uint64_t)slots << 8 | n << 1 | session_is_explicit(s));
    for (unsigned i = 0; i < n; i++) {
        h = mix_bytes(h, lock_name(seat_mate(seat, i)->lock));
    }
    h = mix_bytes(h, machine_session_owner(s));
    return mix_bytes(h, machine_seat_value(seat));
}

uint64_t machine_digest_session(const struct session_explicit *s)
{
    uint64_t h = begin(TAG_SESSION, s->opened.key);
    h = mix(h, s->lockdelay_ms);
    h = mix_bytes(h, machine_session_owner(&s->base));
    return mix_bytes(h, (struct fli_slice){s->label, s->label_len});
}

uint64_t machine_digest_grant(struct seat *seat)
{
    FLI_ASSERT(seat_mate(seat, 0) == seat);
    uint64_t h = mix(begin(TAG_GRANT, seat_token(seat)), seat->since_ms);
    return mix_seat(h, seat, lock_slots(seat->lock));
}

uint64_t machine_digest_wait(const struct wait *w)
{
    return mix_seat(begin(TAG_WAIT, wait_id(w)), w->seat, w->slots);
}

uint64_t machine_digest_asking(const struct wait *w)
{
    const struct session *s = seat_session(w->seat);
    uint64_t h = mix(begin(TAG_ASKING, wait_id(w)), w->asking);
    return mix(h, session_is_explicit(s) ? 0 : s->lease.ttl_ms);
}

uint64_t machine_digest_idle(const struct crowd *c)
{
    return mix_bytes(mix(begin(TAG_IDLE, c->idle.key), c->permits), lock_name(c->lock));
}

uint64_t machine_digest_timer(const struct timer *t)
{
    uint64_t h = begin(TAG_TIMER, machine_timer_id(t));
    h = mix(h, (uint64_t)t->at_ms << 3 | t->kind);
    return t->kind == TIMER_DELAY ? mix_bytes(h, machine_timer_name(t)) : mix(h, t->ttl_ms);
}

uint64_t machine_hash(const struct machine *m)
{
    uint64_t h = mix(m->digest, m->clock_ms);
    h = mix(mix(mix(mix(h, m->floor_ms), m->last_token), m->serial), m->cluster_id);
    const struct machine_limits *x = &m->limits;
    h = mix(h, (uint64_t)x->locks_max << 32 | x->sessions_max);
    h = mix(h, (uint64_t)x->waits_max << 32 | x->lock_waits_max);
    h = mix(h, x->session_locks_max);
    const struct machine_counts *ever = &m->ever;
    h = mix(mix(mix(mix(h, ever->grants), ever->releases), ever->expiries), ever->breaks);
    h = mix(mix(mix(mix(h, ever->tokens), ever->waits_ended), ever->deadlocks), ever->limits);
    for (unsigned i = 0; i < m->n_nodes; i++) {
        h = mix(mix(h, m->nodes[i].id), m->nodes[i].incarnation);
    }
    return h;
}
