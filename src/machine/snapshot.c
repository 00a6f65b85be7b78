/* snapshot.c: the state as bytes, and its hash, which is a hash of these bytes. The reader is
 * restore.c.
 *
 *   magic 8 ("FLSNAP\r\n"), format 2, zero 2
 *   clock 8, last token 8, serial 8, cluster id 8
 *   limits: five numbers of 4, in the order of struct machine_limits
 *   counts for ever, 8 each: grants, releases, expiries, breaks, tokens, waits ended, deadlocks,
 *   limits
 *   numbers of nodes, sessions, grants, idle locks and waits, 8 each
 *   nodes, by id:                 id 8, incarnation 8
 *   explicit sessions, by serial: serial 8, deadline 8, ttl 4, lockdelay 4, owner, label
 *   grants, by token:             token 8, since 8, slots 4, end of the delay 8 (0: none; only with
 *                                 the oldest of several holders), names, explicit 1, owner,
 *                                 implicit only: ttl 4, deadline 8; value
 *   idle locks, by serial:        serial 8, end of the delay 8 (0: none), permits 4, name
 *   waits, by id:                 id 8, asking 8, deadline 8, slots 4, names, explicit 1, owner,
 *                                 implicit only: ttl 4; value
 *   CRC-32C 4 of everything before
 *
 * slots: 1 exclusive, 2^32 - 1 shared, else the permits of a semaphore. names: how many 1, and then
 * each; more than one only with slots 1. Older formats are read as well: format 2 has one name and
 * no count in place of names; format 1 besides has neither slots nor permits, which are 1, nor ends
 * of delays of held locks.
 *
 * All little endian; name, owner and label = length 1, bytes; value = length 2, bytes. Canonical:
 * every section has one order and every deadline is the one that counts (a term mark's floor is
 * worked in), so equal states have equal bytes however they came about. */
#include "machine/snapshot.h"

#include <string.h>

#include "machine/state.h"

#define BLOCK_SIZE 4096u

/* Where the bytes go: to a buffer, with a checksum, or into a hash. */
struct sink {
    struct fli_buf *out; /* NULL: hash only */
    int error;
    uint32_t crc;
    uint64_t hash;
    size_t used;
    uint8_t block[BLOCK_SIZE];
};

static void flush(struct sink *s)
{
    if (s->out == NULL) {
        const uint64_t seed[2] = {s->hash, s->used};
        s->hash = fli_siphash(seed, s->block, s->used);
    } else if (s->error == 0) {
        s->crc = fli_crc32c(s->crc, s->block, s->used);
        s->error = fli_buf_append(s->out, s->block, s->used);
    }
    s->used = 0;
}

static void put(struct sink *s, const void *data, size_t len)
{
    const uint8_t *p = data;
    while (len > 0) {
        size_t n = len < BLOCK_SIZE - s->used ? len : BLOCK_SIZE - s->used;
        memcpy(s->block + s->used, p, n);
        s->used += n;
        p += n;
        len -= n;
        if (s->used == BLOCK_SIZE) {
            flush(s);
        }
    }
}

static void put_u8(struct sink *s, uint8_t v)
{
    put(s, &v, 1);
}

static void put_u32(struct sink *s, uint32_t v)
{
    uint8_t b[4];
    fli_put_u32(b, v);
    put(s, b, sizeof b);
}

static void put_u64(struct sink *s, uint64_t v)
{
    uint8_t b[8];
    fli_put_u64(b, v);
    put(s, b, sizeof b);
}

static void put_short(struct sink *s, struct fli_slice v)
{
    FLI_ASSERT(v.len <= UINT8_MAX);
    put_u8(s, (uint8_t)v.len);
    put(s, v.data, v.len);
}

static void put_value(struct sink *s, struct fli_slice v)
{
    uint8_t b[2];
    FLI_ASSERT(v.len <= FL_VALUE_MAX);
    fli_put_u16(b, (uint16_t)v.len);
    put(s, b, sizeof b);
    put(s, v.data, v.len);
}

static void put_head(struct sink *s, const struct machine *m)
{
    static const uint8_t format[4] = {SNAPSHOT_FORMAT, 0, 0, 0};
    put(s, SNAPSHOT_MAGIC, SNAPSHOT_MAGIC_SIZE);
    put(s, format, sizeof format);
    put_u64(s, m->clock_ms);
    put_u64(s, m->last_token);
    put_u64(s, m->serial);
    put_u64(s, m->cluster_id);
    put_u32(s, m->limits.locks_max);
    put_u32(s, m->limits.sessions_max);
    put_u32(s, m->limits.waits_max);
    put_u32(s, m->limits.lock_waits_max);
    put_u32(s, m->limits.session_locks_max);
    put_u64(s, m->ever.grants);
    put_u64(s, m->ever.releases);
    put_u64(s, m->ever.expiries);
    put_u64(s, m->ever.breaks);
    put_u64(s, m->ever.tokens);
    put_u64(s, m->ever.waits_ended);
    put_u64(s, m->ever.deadlocks);
    put_u64(s, m->ever.limits);
    put_u64(s, m->n_nodes);
    put_u64(s, m->opened.len);
    put_u64(s, m->n_grants);
    put_u64(s, m->idle.len);
    put_u64(s, m->waits_by_id.len);
}

static void put_session(struct sink *s, const struct machine *m, const struct session_explicit *e)
{
    put_u64(s, e->opened.key);
    put_u64(s, machine_timer_deadline(m, &e->base.lease));
    put_u32(s, e->base.lease.ttl_ms);
    put_u32(s, e->lockdelay_ms);
    put_short(s, machine_session_owner(&e->base));
    put_short(s, (struct fli_slice){e->label, e->label_len});
}

static void put_names(struct sink *s, struct seat *seat)
{
    unsigned n = seat_mates(seat);
    put_u8(s, (uint8_t)n);
    for (unsigned i = 0; i < n; i++) {
        put_short(s, lock_name(seat_mate(seat, i)->lock));
    }
}

static void put_held(struct sink *s, const struct machine *m, struct seat *seat)
{
    const struct session *session = seat_session(seat);
    put_u64(s, seat_token(seat));
    put_u64(s, seat->since_ms);
    put_u32(s, lock_slots(seat->lock));
    const struct crowd *c = lock_crowd(seat->lock);
    bool delayed = c != NULL && c->is_delayed && lock_holder(seat->lock) == seat;
    put_u64(s, delayed ? c->delay.at_ms : 0);
    put_names(s, seat);
    put_u8(s, session_is_explicit(session));
    put_short(s, machine_session_owner(session));
    if (!session_is_explicit(session)) {
        put_u32(s, session->lease.ttl_ms);
        put_u64(s, machine_timer_deadline(m, &session->lease));
    }
    put_value(s, machine_seat_value(seat));
}

static void put_idle(struct sink *s, const struct crowd *c)
{
    put_u64(s, c->idle.key);
    put_u64(s, c->is_delayed ? c->delay.at_ms : 0);
    put_u32(s, c->permits);
    put_short(s, lock_name(c->lock));
}

static void put_wait(struct sink *s, const struct wait *w)
{
    const struct session *session = seat_session(w->seat);
    put_u64(s, wait_id(w));
    put_u64(s, w->asking);
    put_u64(s, w->timer.at_ms);
    put_u32(s, w->slots);
    put_names(s, w->seat);
    put_u8(s, session_is_explicit(session));
    put_short(s, machine_session_owner(session));
    if (!session_is_explicit(session)) {
        put_u32(s, session->lease.ttl_ms);
    }
    put_value(s, machine_seat_value(w->seat));
}

static void put_machine(struct sink *s, const struct machine *m)
{
    put_head(s, m);
    for (unsigned i = 0; i < m->n_nodes; i++) {
        put_u64(s, m->nodes[i].id);
        put_u64(s, m->nodes[i].incarnation);
    }
    struct order_node *n;
    for (n = machine_order_first(&m->opened); n != NULL; n = machine_order_next(&m->opened, n)) {
        put_session(s, m, session_of_opened(n));
    }
    for (n = machine_order_first(&m->held); n != NULL; n = machine_order_next(&m->held, n)) {
        if (held_key_index(n->key) == 0) {
            put_held(s, m, seat_of_held(n));
        }
    }
    for (n = machine_order_first(&m->idle); n != NULL; n = machine_order_next(&m->idle, n)) {
        put_idle(s, crowd_of_idle(n));
    }
    FLI_LIST_FOREACH(link, &m->waits)
    {
        const struct wait *w = wait_of_all(link);
        if (seat_mate(w->seat, 0) == w->seat) {
            put_wait(s, w);
        }
    }
    flush(s);
}

int machine_snapshot_encode(const struct machine *m, struct fli_buf *out)
{
    size_t start = out->len;
    struct sink s;
    s.out = out;
    s.error = 0;
    s.crc = 0;
    s.hash = 0;
    s.used = 0;
    put_machine(&s, m);
    uint8_t trailer[SNAPSHOT_TRAILER_SIZE];
    fli_put_u32(trailer, s.crc);
    if (s.error == 0) {
        s.error = fli_buf_append(out, trailer, sizeof trailer);
    }
    if (s.error != 0) {
        out->len = start;
    }
    return s.error;
}

uint64_t machine_hash(const struct machine *m)
{
    struct sink s;
    s.out = NULL;
    s.error = 0;
    s.crc = 0;
    s.hash = 0;
    s.used = 0;
    put_machine(&s, m);
    return s.hash;
}
