/* restore.c: a machine out of a snapshot (byte table in snapshot.c).
 *
 * The bytes may be anything: a disk that rotted, a file that was cut, a peer that lies. Nothing is
 * believed before it is checked, each record is checked as a whole before it is linked, and memory
 * grows only with records that are really there. What is returned satisfies every invariant of
 * invariants.c. */
#include "machine/snapshot.h"

#include <string.h>

#include "machine/state.h"

struct loader {
    struct machine *m;
    struct fli_reader r;
    unsigned format;
    uint64_t n_nodes;
    uint64_t n_sessions;
    uint64_t n_held;
    uint64_t n_idle;
    uint64_t n_waits;
};

/* The part that held locks and waits have in common. */
struct seat_record {
    unsigned n;
    struct fli_slice names[MACHINE_NAMES_MAX];
    struct lock *locks[MACHINE_NAMES_MAX]; /* as far as they were loaded before; else NULL */
    uint64_t hashes[MACHINE_NAMES_MAX];
    struct fli_slice owner;
    struct fli_slice value;
    struct session_explicit *session; /* NULL: implicit */
    uint64_t ttl_ms;
    uint64_t deadline_ms; /* implicit and held */
};

static struct fli_slice read_short(struct fli_reader *r)
{
    return fli_read_bytes(r, fli_read_u8(r));
}

/* Whether a duration that is running now, and was at most max_ms when it began, can end then. */
static bool deadline_ok(const struct machine *m, uint64_t deadline_ms, uint64_t max_ms)
{
    return deadline_ms >= m->clock_ms && deadline_ms - m->clock_ms <= max_ms;
}

static bool ttl_ok(uint64_t ttl_ms)
{
    return ttl_ms >= FL_TTL_MIN_MS && ttl_ms <= FL_TTL_MAX_MS;
}

/* The slots of a seat or the permits of a lock, which older formats do not have. */
static uint32_t read_slots(struct loader *l)
{
    return l->format == 1 ? 1 : fli_read_u32(&l->r);
}

static bool permits_ok(uint32_t permits)
{
    return permits >= 1 && permits <= FL_PERMITS_MAX;
}

static bool load_head(struct loader *l)
{
    struct machine *m = l->m;
    struct fli_reader *r = &l->r;
    m->clock_ms = fli_read_u64(r);
    m->last_token = fli_read_u64(r);
    m->serial = fli_read_u64(r);
    m->cluster_id = fli_read_u64(r);
    m->limits.locks_max = fli_read_u32(r);
    m->limits.sessions_max = fli_read_u32(r);
    m->limits.waits_max = fli_read_u32(r);
    m->limits.lock_waits_max = fli_read_u32(r);
    m->limits.session_locks_max = fli_read_u32(r);
    m->ever.grants = fli_read_u64(r);
    m->ever.releases = fli_read_u64(r);
    m->ever.expiries = fli_read_u64(r);
    m->ever.breaks = fli_read_u64(r);
    m->ever.tokens = fli_read_u64(r);
    m->ever.waits_ended = fli_read_u64(r);
    m->ever.deadlocks = fli_read_u64(r);
    m->ever.limits = fli_read_u64(r);
    l->n_nodes = fli_read_u64(r);
    l->n_sessions = fli_read_u64(r);
    l->n_held = fli_read_u64(r);
    l->n_idle = fli_read_u64(r);
    l->n_waits = fli_read_u64(r);
    const struct machine_limits *x = &m->limits;
    return !r->bad && m->clock_ms <= MACHINE_CLOCK_MAX_MS && m->last_token <= FL_TOKEN_MAX &&
           x->locks_max >= 1 && x->sessions_max >= 1 && x->waits_max >= 1 &&
           x->lock_waits_max >= 1 && x->session_locks_max >= 1 && l->n_nodes <= MACHINE_NODES_MAX;
}

static bool load_node(struct loader *l)
{
    struct machine *m = l->m;
    struct node n = {.id = fli_read_u64(&l->r)};
    n.incarnation = fli_read_u64(&l->r);
    uint64_t last_id = m->n_nodes == 0 ? 0 : m->nodes[m->n_nodes - 1].id;
    if (l->r.bad || n.id <= last_id || n.incarnation == 0) {
        return false;
    }
    m->nodes[m->n_nodes++] = n;
    return true;
}

/* Whether key may be appended to the order: larger than the last, above 0, at most max. */
static bool key_ok(const struct order *o, uint64_t key, uint64_t max)
{
    const struct order_node *last = machine_order_last(o);
    return key > (last == NULL ? 0 : last->key) && key <= max;
}

static bool load_session(struct loader *l)
{
    struct machine *m = l->m;
    uint64_t serial = fli_read_u64(&l->r);
    uint64_t deadline_ms = fli_read_u64(&l->r);
    uint32_t ttl_ms = fli_read_u32(&l->r);
    uint32_t lockdelay_ms = fli_read_u32(&l->r);
    struct fli_slice owner = read_short(&l->r);
    struct fli_slice label = read_short(&l->r);
    if (l->r.bad || !key_ok(&m->opened, serial, m->serial) || !ttl_ok(ttl_ms) ||
        !deadline_ok(m, deadline_ms, FL_TTL_MAX_MS) || deadline_ms < ttl_ms ||
        lockdelay_ms > FL_LOCKDELAY_MAX_MS || owner.len == 0 ||
        machine_session_find(m, owner) != NULL) {
        return false;
    }
    struct session_explicit *s = machine_session_create(m, owner, serial);
    s->base.lease.ttl_ms = ttl_ms;
    s->lockdelay_ms = lockdelay_ms;
    machine_session_set_label(s, label);
    machine_timer_set(m, &s->base.lease, deadline_ms);
    return true;
}

/* Whether the names are there and different. */
static bool load_names(struct loader *l, struct seat_record *s)
{
    s->n = l->format < 3 ? 1 : fli_read_u8(&l->r);
    if (l->r.bad || s->n < 1 || s->n > MACHINE_NAMES_MAX) {
        return false;
    }
    for (unsigned i = 0; i < s->n; i++) {
        s->names[i] = read_short(&l->r);
        if (l->r.bad || s->names[i].len == 0) {
            return false;
        }
        for (unsigned k = 0; k < i; k++) {
            if (slices_equal(s->names[i], s->names[k])) {
                return false;
            }
        }
        s->locks[i] = machine_lock_find(l->m, s->names[i], &s->hashes[i]);
    }
    return true;
}

static bool load_seat(struct loader *l, bool waits, struct seat_record *ret)
{
    struct seat_record s = {.session = NULL};
    if (!load_names(l, &s)) {
        return false;
    }
    unsigned is_explicit = fli_read_u8(&l->r);
    s.owner = read_short(&l->r);
    if (is_explicit == 0) {
        s.ttl_ms = fli_read_u32(&l->r);
        s.deadline_ms = waits ? 0 : fli_read_u64(&l->r);
    }
    s.value = fli_read_bytes(&l->r, fli_read_u16(&l->r));
    if (l->r.bad || is_explicit > 1 || s.owner.len == 0 || s.value.len > FL_VALUE_MAX) {
        return false;
    }
    if (is_explicit == 1) {
        s.session = machine_session_find(l->m, s.owner);
        *ret = s;
        return s.session != NULL;
    }
    *ret = s;
    return ttl_ok(s.ttl_ms) && (waits || (deadline_ok(l->m, s.deadline_ms, FL_TTL_MAX_MS) &&
                                          s.deadline_ms >= s.ttl_ms));
}

/* Returns the first of them. */
static struct seat *create_seats(struct machine *m, struct seat_record *s)
{
    for (unsigned i = 0; i < s->n; i++) {
        if (s->locks[i] == NULL) {
            s->locks[i] = machine_lock_create(m, s->names[i], s->hashes[i]);
        }
    }
    if (s->n > 1) {
        return machine_group_create(m, s->locks, s->n, s->session, s->owner, s->ttl_ms, s->value);
    }
    struct lock *lock = s->locks[0];
    return s->session != NULL
               ? machine_seat_create_explicit(m, lock, s->session, s->value)
               : machine_seat_create_implicit(m, lock, s->owner, s->ttl_ms, s->value);
}

/* Whether one more holder may join those that were loaded before. */
static bool joins_ok(struct machine *m, uint32_t slots, const struct seat_record *s,
                     uint64_t until_ms)
{
    const struct lock *lock = s->locks[0];
    if (!permits_ok(slots_permits(slots))) {
        return false;
    }
    if (s->n > 1) {
        bool all_new = true;
        for (unsigned i = 0; i < s->n; i++) {
            all_new = all_new && s->locks[i] == NULL;
        }
        return all_new && slots == 1 && until_ms == 0;
    }
    if (lock == NULL) {
        return until_ms == 0 || (slots > 1 && deadline_ok(m, until_ms, FL_LOCKDELAY_MAX_MS));
    }
    return slots > 1 && until_ms == 0 && lock_slots(lock) == slots && lock_holders(lock) < slots &&
           machine_lock_held_by(m, lock, s->session != NULL, s->owner) == NULL;
}

static bool load_held(struct loader *l)
{
    struct machine *m = l->m;
    fl_token token = fli_read_u64(&l->r);
    uint64_t since_ms = fli_read_u64(&l->r);
    uint32_t slots = read_slots(l);
    uint64_t until_ms = l->format == 1 ? 0 : fli_read_u64(&l->r);
    const struct order_node *last = machine_order_last(&m->held);
    struct seat_record s;
    if (!load_seat(l, false, &s) || token > m->last_token ||
        token <= (last == NULL ? 0 : held_key_token(last->key)) || since_ms > m->clock_ms ||
        !joins_ok(m, slots, &s, until_ms)) {
        return false;
    }
    struct seat *seat = create_seats(m, &s);
    for (unsigned i = 0; i < s.n; i++) {
        machine_lock_hold(m, seat_mate(seat, i), slots, token, i, since_ms);
    }
    if (slots > 1) {
        crowd_of(seat->lock)->permits = slots_permits(slots);
    }
    if (until_ms != 0) {
        machine_lock_delay(m, seat->lock, until_ms);
    }
    if (s.session == NULL) {
        machine_timer_set(m, &seat_session(seat)->lease, s.deadline_ms);
    }
    return true;
}

static bool load_idle(struct loader *l)
{
    struct machine *m = l->m;
    uint64_t serial = fli_read_u64(&l->r);
    uint64_t until_ms = fli_read_u64(&l->r);
    uint32_t permits = read_slots(l);
    struct fli_slice name = read_short(&l->r);
    uint64_t hash;
    if (l->r.bad || name.len == 0 || !permits_ok(permits) || !key_ok(&m->idle, serial, m->serial) ||
        machine_lock_find(m, name, &hash) != NULL) {
        return false;
    }
    /* Without a delay only with those who wait, see whole_ok. */
    if (until_ms != 0 && !deadline_ok(m, until_ms, FL_LOCKDELAY_MAX_MS)) {
        return false;
    }
    struct lock *lock = machine_lock_create(m, name, hash);
    machine_lock_crowd(lock)->permits = permits;
    machine_lock_idle(m, lock, serial);
    if (until_ms != 0) {
        machine_lock_delay(m, lock, until_ms);
    }
    return true;
}

static bool load_wait(struct loader *l)
{
    struct machine *m = l->m;
    uint64_t id = fli_read_u64(&l->r);
    uint64_t asking = fli_read_u64(&l->r);
    uint64_t deadline_ms = fli_read_u64(&l->r);
    uint32_t slots = read_slots(l);
    uint64_t last_id = fli_list_empty(&m->waits) ? 0 : wait_id(wait_of_all(m->waits.prev));
    struct seat_record s;
    if (!load_seat(l, true, &s) || id <= last_id || id > m->serial || asking == 0 ||
        !deadline_ok(m, deadline_ms, FL_WAIT_MAX_MS)) {
        return false;
    }
    if (!permits_ok(slots_permits(slots)) || (s.n > 1 && slots != 1)) {
        return false;
    }
    for (unsigned i = 0; i < s.n; i++) {
        const struct lock *lock = s.locks[i];
        if (lock == NULL || lock_permits(lock) != slots_permits(slots) ||
            machine_lock_held_by(m, lock, s.session != NULL, s.owner) != NULL ||
            machine_wait_find(m, lock, s.session != NULL, s.owner) != NULL) {
            return false;
        }
    }
    machine_wait_join(m, create_seats(m, &s), slots, id, asking, deadline_ms);
    return true;
}

/* One section: `count` records, which must fit the bytes that are left. */
static bool load_section(struct loader *l, uint64_t count, size_t record_min,
                         bool (*load)(struct loader *l))
{
    if (count > fli_reader_left(&l->r) / record_min) {
        return false;
    }
    for (uint64_t i = 0; i < count; i++) {
        if (!load(l)) {
            return false;
        }
    }
    return true;
}

/* What only shows when everything is there. */
static bool whole_ok(const struct loader *l)
{
    struct machine *m = l->m;
    for (struct order_node *n = machine_order_first(&m->idle); n != NULL;
         n = machine_order_next(&m->idle, n)) {
        const struct crowd *c = crowd_of_idle(n);
        if (!c->is_delayed && c->queue.len == 0) {
            return false;
        }
    }
    FLI_LIST_FOREACH(link, &m->waits)
    {
        const struct lock *lock = wait_of_all(link)->seat->lock;
        if (m->last_token < FL_TOKEN_MAX && machine_lock_is_ready(lock)) {
            return false;
        }
    }
    return fli_reader_left(&l->r) == 0 && machine_deadlock_free(m);
}

static bool load_machine(struct loader *l)
{
    return load_head(l) && load_section(l, l->n_nodes, 16, load_node) &&
           load_section(l, l->n_sessions, SNAPSHOT_SESSION_MIN, load_session) &&
           load_section(l, l->n_held, SNAPSHOT_HELD_MIN, load_held) &&
           load_section(l, l->n_idle, SNAPSHOT_IDLE_MIN, load_idle) &&
           load_section(l, l->n_waits, SNAPSHOT_WAIT_MIN, load_wait) && whole_ok(l);
}

int machine_snapshot_decode(const void *data, size_t len, const uint64_t hash_seed[2],
                            struct machine **ret)
{
    const uint8_t *p = data;
    if (len < SNAPSHOT_HEADER_SIZE + SNAPSHOT_TRAILER_SIZE ||
        memcmp(p, SNAPSHOT_MAGIC, SNAPSHOT_MAGIC_SIZE) != 0) {
        return FL_ECORRUPT;
    }
    size_t body = len - SNAPSHOT_TRAILER_SIZE;
    if (fli_get_u32(p + body) != fli_crc32c(0, p, body)) {
        return FL_ECORRUPT;
    }
    unsigned format = fli_get_u16(p + 8);
    if (format < SNAPSHOT_FORMAT_OLDEST || format > SNAPSHOT_FORMAT || fli_get_u16(p + 10) != 0) {
        return FL_EVERSION;
    }
    struct loader l = {.m = machine_create(hash_seed), .format = format};
    fli_reader_init(&l.r, p + SNAPSHOT_HEADER_SIZE, body - SNAPSHOT_HEADER_SIZE);
    if (!load_machine(&l)) {
        machine_destroy(l.m);
        return FL_ECORRUPT;
    }
    *ret = l.m;
    return 0;
}
