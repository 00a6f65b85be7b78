/* restore.c: restores a machine from a snapshot that comes in pieces (byte table in snapshot.c).
 *
 * The bytes may be anything: a disk that rotted, a file that was cut, a peer that lies. Nothing is
 * believed before it is checked, each record is checked as a whole before it is linked, and memory
 * grows only with records that are really there. What is returned satisfies every invariant of
 * tests/lib/machine_check.c. */
#include "machine/snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "machine/state.h"

struct loader {
    struct machine *m;
    struct fli_reader r;     /* over what there is of one record, and what follows it */
    uint64_t left[PART_END]; /* records still to be read, by part */
    bool users_begun;
};

/* The fields that held locks and waits have in common. */
struct request_record {
    unsigned n;
    struct fli_slice names[MACHINE_NAMES_MAX];
    struct lock *locks[MACHINE_NAMES_MAX]; /* those that were loaded before; else NULL */
    uint64_t hashes[MACHINE_NAMES_MAX];
    struct fli_slice owner;
    struct fli_slice value;
    bool counted;
    struct session_explicit *session; /* NULL: implicit */
    uint64_t ttl_ms;
    uint64_t deadline_ms; /* implicit and held */
    unsigned is_over;     /* likewise */
    struct origin origin; /* implicit */
};

static struct fli_slice read_short(struct fli_reader *r)
{
    return fli_read_bytes(r, fli_read_u8(r));
}

/* Whether a duration of at most max_ms can have this deadline. The deadline may have passed
 * already, with its expiry left for the next batch. */
static bool deadline_ok(const struct machine *m, uint64_t deadline_ms, uint64_t max_ms)
{
    return deadline_ms <= m->clock_ms + max_ms;
}

static bool ttl_ok(uint64_t ttl_ms)
{
    return ttl_ms >= FL_TTL_MIN_MS && ttl_ms <= FL_TTL_MAX_MS;
}

static bool permits_ok(uint32_t permits)
{
    return permits >= 1 && permits <= FL_PERMITS_MAX;
}

/* Whether the value is a valid count, in a record that may have one. */
static bool count_ok(struct fli_slice value, bool may_be)
{
    return may_be && value.len == HOLD_COUNT_SIZE && fli_get_u32(value.data) >= 1 &&
           fli_get_u32(value.data) <= MACHINE_HOLD_COUNT_MAX;
}

static bool load_head(struct loader *l)
{
    struct machine *m = l->m;
    struct fli_reader *r = &l->r;
    if (fli_reader_left(r) < SNAPSHOT_HEAD_SIZE) {
        r->bad = true;
        return false;
    }
    fli_read_fields(r, snapshot_head, SNAPSHOT_HEAD_FIELDS, m);
    for (unsigned i = PART_NODES; i < PART_END; i++) {
        l->left[i] = fli_read_u64(r);
    }
    fli_read_fields(r, &snapshot_version, 1, m);
    bool good = !r->bad; /* all of it has come, so that is about its booleans */
    r->bad = false;
    return good && m->clock_ms <= MACHINE_CLOCK_MAX_MS && m->floor_ms <= m->clock_ms &&
           m->due_ms <= m->clock_ms && m->last_token <= FL_TOKEN_MAX &&
           m->serial <= MACHINE_NUMBER_MAX && machine_limits_ok(&m->limits) &&
           machine_settings_ok(&m->settings) && l->left[PART_NODES] <= MACHINE_NODES_MAX &&
           l->left[PART_USERS] >= 1 && m->version >= 1 && m->version <= machine_version_max();
}

/* What is forced is a plan to remove a node or to replace one. */
static bool plan_ok(const struct machine_node *n)
{
    return n->plan <= MACHINE_PLAN_REPLACE && (machine_node_leaves(n) || !n->forced);
}

static bool load_node(struct loader *l)
{
    struct machine *m = l->m;
    struct machine_node n = {.id = fli_read_u64(&l->r)};
    n.version = fli_read_u32(&l->r);
    n.plan = (enum machine_plan)fli_read_u8(&l->r);
    uint8_t flags = fli_read_u8(&l->r);
    n.learner = flags & 1;
    n.forced = flags >> 1;
    struct fli_slice address = fli_read_bytes(&l->r, fli_read_u16(&l->r));
    uint64_t last_id = m->n_nodes == 0 ? 0 : m->nodes[m->n_nodes - 1].id;
    if (l->r.bad || n.id <= last_id || flags > 3 || !plan_ok(&n) ||
        address.len > MACHINE_NODE_ADDRESS_MAX ||
        (address.len > 0 && memchr(address.data, 0, address.len) != NULL)) {
        return false;
    }
    if (address.len > 0) {
        memcpy(n.address, address.data, address.len);
    }
    m->nodes[m->n_nodes++] = n;
    return true;
}

static bool load_user(struct loader *l)
{
    bool first = !l->users_begun;
    l->users_begun = true;
    return machine_users_load(l->m, &l->r, first);
}

static bool load_origin(struct loader *l, struct origin *ret)
{
    struct fli_slice packed = read_short(&l->r);
    return !l->r.bad && machine_origin_unpack(packed, ret) && ret->uid <= l->m->users.last_uid;
}

/* Whether `key` may be appended to the order: above 0 and the last key, at most max. */
static bool key_ok(const struct order *o, uint64_t key, uint64_t max)
{
    const struct order_node *last = machine_order_last(o);
    return key > (last == NULL ? 0 : last->key) && key <= max;
}

/* Whether the session ends at a valid deadline, or is ending already. */
static bool session_ends_ok(const struct machine *m, unsigned ending, uint64_t deadline_ms,
                            uint32_t ttl_ms)
{
    if (ending == 0) {
        return deadline_ok(m, deadline_ms, FL_TTL_MAX_MS) && deadline_ms >= ttl_ms;
    }
    return deadline_ms == 0 &&
           (ending == MACHINE_REASON_CLOSE || ending == MACHINE_REASON_DEADLINE);
}

static bool load_session(struct loader *l)
{
    struct machine *m = l->m;
    uint64_t serial = fli_read_u64(&l->r);
    uint64_t deadline_ms = fli_read_u64(&l->r);
    uint32_t ttl_ms = fli_read_u32(&l->r);
    uint32_t lockdelay_ms = fli_read_u32(&l->r);
    uint64_t search_pause_ms = fli_read_u64(&l->r);
    unsigned is_over = fli_read_u8(&l->r);
    unsigned ending = fli_read_u8(&l->r);
    struct fli_slice owner = read_short(&l->r);
    struct fli_slice label = read_short(&l->r);
    struct origin origin;
    if (!load_origin(l, &origin) || l->r.bad || !key_ok(&m->opened, serial, m->serial) ||
        is_over > (ending == 0) || !ttl_ok(ttl_ms) ||
        !session_ends_ok(m, ending, deadline_ms, ttl_ms) ||
        search_pause_ms > m->clock_ms + MACHINE_SEARCH_PAUSE_MS ||
        lockdelay_ms > FL_LOCKDELAY_MAX_MS || owner.len == 0 ||
        machine_session_find(m, owner) != NULL) {
        return false;
    }
    struct session_explicit *s = machine_session_create(m, owner, serial, &origin);
    machine_session_describe(m, s, lockdelay_ms, label);
    machine_session_pause_search(m, s, search_pause_ms);
    if (ending != 0) {
        timer_set_ttl(&s->base.lease, ttl_ms);
        machine_session_set_ending(m, s, (enum machine_reason)ending);
    } else {
        machine_lease_set(m, &s->base.lease, ttl_ms, deadline_ms);
        machine_lease_restore(m, &s->base.lease, is_over == 1);
    }
    return true;
}

/* Reads the names, and checks that they are present and differ. */
static bool load_names(struct loader *l, struct request_record *s)
{
    s->n = fli_read_u8(&l->r);
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

static bool load_request(struct loader *l, bool waits, struct request_record *ret)
{
    struct request_record s = {.session = NULL};
    if (!load_names(l, &s)) {
        return false;
    }
    unsigned kind = fli_read_u8(&l->r);
    uint64_t serial = kind == SNAPSHOT_ENDING ? fli_read_u64(&l->r) : 0;
    s.owner = kind == SNAPSHOT_ENDING ? s.owner : read_short(&l->r);
    if (kind == 0) {
        s.ttl_ms = fli_read_u32(&l->r);
        s.deadline_ms = waits ? 0 : fli_read_u64(&l->r);
        s.is_over = waits ? 0 : fli_read_u8(&l->r);
        if (!load_origin(l, &s.origin)) {
            return false;
        }
    }
    unsigned value_len = fli_read_u16(&l->r);
    s.counted = (value_len & SNAPSHOT_COUNTED) != 0;
    s.value = fli_read_bytes(&l->r, value_len & ~SNAPSHOT_COUNTED);
    if (l->r.bad || kind > SNAPSHOT_ENDING || s.value.len > FL_VALUE_MAX ||
        (s.counted && !count_ok(s.value, !waits && kind == 0 && s.n == 1))) {
        return false;
    }
    if (kind == 0) {
        *ret = s;
        return s.owner.len > 0 && ttl_ok(s.ttl_ms) && s.is_over <= 1 &&
               (waits ||
                (deadline_ok(l->m, s.deadline_ms, FL_TTL_MAX_MS) && s.deadline_ms >= s.ttl_ms));
    }
    s.session = kind == SNAPSHOT_ENDING ? machine_session_find_ending(l->m, serial)
                                        : machine_session_find(l->m, s.owner);
    if (s.session == NULL) {
        return false;
    }
    s.owner = machine_session_owner(&s.session->base);
    *ret = s;
    return true;
}

/* Returns the first request. */
static struct request *create_requests(struct machine *m, struct request_record *s)
{
    for (unsigned i = 0; i < s->n; i++) {
        if (s->locks[i] == NULL) {
            s->locks[i] = machine_lock_create(m, s->names[i], s->hashes[i]);
        }
    }
    if (s->n > 1) {
        return machine_multi_create(m, s->locks, s->n, s->session, s->owner, s->ttl_ms, s->value,
                                    &s->origin);
    }
    struct lock *lock = s->locks[0];
    return s->session != NULL ? machine_request_create_explicit(m, lock, s->session, s->value)
                              : machine_request_create_implicit(m, lock, s->owner, s->ttl_ms,
                                                                s->value, &s->origin);
}

/* Whether one more holder fits beside those that were loaded before. */
static bool joins_ok(struct machine *m, uint32_t slots, const struct request_record *s,
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
    uint32_t slots = fli_read_u32(&l->r);
    uint64_t until_ms = fli_read_u64(&l->r);
    const struct order_node *last = machine_order_last(&m->held);
    struct request_record s;
    if (!load_request(l, false, &s) || token > m->last_token ||
        token <= (last == NULL ? 0 : held_key_token(last->key)) || since_ms > m->clock_ms ||
        (s.counted && slots != 1) || !joins_ok(m, slots, &s, until_ms)) {
        return false;
    }
    struct request *request = create_requests(m, &s);
    request->counted = s.counted;
    for (unsigned i = 0; i < s.n; i++) {
        machine_lock_hold(m, request_part(request, i), slots, token, i, since_ms);
    }
    if (slots > 1) {
        contention_of(request->lock)->permits = slots_permits(slots);
    }
    if (until_ms != 0) {
        machine_lock_delay(m, request->lock, until_ms);
    }
    if (s.session == NULL) {
        struct timer *lease = &request_session(request)->lease;
        machine_lease_set(m, lease, (uint32_t)s.ttl_ms, s.deadline_ms);
        machine_lease_restore(m, lease, s.is_over == 1);
    }
    return true;
}

static bool load_idle(struct loader *l)
{
    struct machine *m = l->m;
    uint64_t serial = fli_read_u64(&l->r);
    uint64_t until_ms = fli_read_u64(&l->r);
    uint32_t permits = fli_read_u32(&l->r);
    struct fli_slice name = read_short(&l->r);
    uint64_t hash;
    if (l->r.bad || name.len == 0 || !permits_ok(permits) || !key_ok(&m->idle, serial, m->serial) ||
        machine_lock_find(m, name, &hash) != NULL) {
        return false;
    }
    /* An idle lock without a delay must have waiters, see whole_ok(). */
    if (until_ms != 0 && !deadline_ok(m, until_ms, FL_LOCKDELAY_MAX_MS)) {
        return false;
    }
    struct lock *lock = machine_lock_create(m, name, hash);
    machine_lock_contend(lock)->permits = permits;
    machine_lock_idle(m, lock, serial);
    if (until_ms != 0) {
        machine_lock_delay(m, lock, until_ms);
    }
    return true;
}

static bool load_lock_work(struct loader *l)
{
    struct machine *m = l->m;
    unsigned broken = fli_read_u8(&l->r);
    uint32_t permits = fli_read_u32(&l->r);
    struct fli_slice name = read_short(&l->r);
    if (l->r.bad || name.len == 0 || broken > 1 || !permits_ok(permits)) {
        return false;
    }
    uint64_t hash;
    struct lock *lock = machine_lock_find(m, name, &hash);
    bool is_new = lock == NULL;
    if (is_new) {
        lock = machine_lock_create(m, name, hash);
        machine_lock_contend(lock)->permits = permits;
    }
    struct contention *c = machine_lock_contend(lock);
    c->is_broken = broken == 1;
    bool linked = fli_list_linked(&c->work.link);
    machine_work_last(m, &c->work);
    return !linked && c->permits == permits && (broken == 0 || c->n_shares > 0);
}

static bool load_work(struct loader *l)
{
    struct machine *m = l->m;
    unsigned kind = fli_read_u8(&l->r);
    if (kind == WORK_LOCK) {
        return load_lock_work(l);
    }
    uint64_t number = fli_read_u64(&l->r);
    struct work *w = NULL;
    if (l->r.bad || kind > WORK_USERS) {
        return false;
    }
    if (kind == WORK_USERS) {
        m->users.recheck_id = number;
        w = &m->users.work;
    } else if (kind == WORK_SESSION) {
        struct session_explicit *s = machine_session_find_ending(m, number);
        w = s == NULL ? NULL : &s->work;
    } else if (number >= 1 && number <= m->last_token) {
        struct order_node *n = machine_order_seek(&m->held, held_key(number, 0) - 1);
        bool found = n != NULL && n->key == held_key(number, 0) && request_of_held(n)->is_multi;
        w = found ? &request_multi(request_of_held(n))->work : NULL;
    }
    if (w == NULL || fli_list_linked(&w->link)) {
        return false;
    }
    machine_work_last(m, w);
    return true;
}

static bool load_wait(struct loader *l)
{
    struct machine *m = l->m;
    uint64_t id = fli_read_u64(&l->r);
    uint64_t times_asked = fli_read_u64(&l->r);
    uint64_t deadline_ms = fli_read_u64(&l->r);
    uint32_t slots = fli_read_u32(&l->r);
    uint64_t last_id = fli_list_empty(&m->waits) ? 0 : wait_id(wait_of_all(m->waits.prev));
    struct request_record s;
    if (!load_request(l, true, &s) || id <= last_id || id > m->serial || times_asked == 0 ||
        times_asked > MACHINE_NUMBER_MAX || !deadline_ok(m, deadline_ms, FL_WAIT_MAX_MS)) {
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
    machine_wait_join(m, create_requests(m, &s), slots, id, times_asked, deadline_ms);
    return true;
}

static bool load_outcome(struct loader *l)
{
    struct fli_reader *r = &l->r;
    uint8_t key[OUTCOME_KEY_MAX];
    uint64_t number = fli_read_u64(r);
    uint64_t until_ms = fli_read_u64(r);
    fli_put_u32(key, fli_read_u32(r));
    key[4] = fli_read_u8(r);
    key[5] = fli_read_u8(r);
    struct fli_slice name = fli_read_bytes(r, key[5]);
    struct fli_slice what = fli_read_bytes(r, fli_read_u8(r));
    if (r->bad || name.len == 0 || what.len == 0) {
        return false;
    }
    memcpy(key + 6, name.data, name.len);
    memcpy(key + 6 + name.len, what.data, what.len);
    struct fli_slice whole = {key, 6 + name.len + what.len};
    return machine_outcome_load(l->m, whole, number, until_ms);
}

/* Whether the list of work contains every session that is ending. */
static bool work_ok(const struct machine *m)
{
    uint64_t sessions = 0;
    FLI_LIST_FOREACH(link, &m->work)
    {
        sessions += FLI_CONTAINER_OF(link, struct work, link)->kind == WORK_SESSION;
    }
    return sessions == m->ending.len;
}

/* Finds the wait that users.c is to check next: it was loaded after the work that names it. */
static bool find_recheck(struct machine *m)
{
    if (m->users.recheck_id == 0) {
        return !fli_list_linked(&m->users.work.link);
    }
    m->users.recheck = machine_wait_find_id(m, m->users.recheck_id);
    return m->users.recheck != NULL;
}

/* The checks that need the whole state. */
static bool whole_ok(const struct loader *l)
{
    struct machine *m = l->m;
    for (struct order_node *n = machine_order_first(&m->idle); n != NULL;
         n = machine_order_next(&m->idle, n)) {
        const struct contention *c = contention_of_idle(n);
        if (!c->is_delayed && c->queue.len == 0 && !fli_list_linked(&c->work.link)) {
            return false;
        }
    }
    FLI_LIST_FOREACH(link, &m->waits)
    {
        const struct lock *lock = wait_of_all(link)->request->lock;
        if (m->last_token < FL_TOKEN_MAX && machine_lock_is_ready(lock) &&
            !machine_lock_is_pending(lock)) {
            return false;
        }
    }
    return find_recheck(m) && work_ok(m) && machine_has_no_deadlock(m);
}

/* ---- bytes in pieces ------------------------------------------------------------------------- */

/* Bytes are gathered in a window with room for several of the largest records. Records are loaded
 * from it when it is full, and at the end, so it does not matter how the input was cut. A loader
 * that meets the end of the window has read a part of a record. It has changed nothing, and is
 * called again when more bytes have come. */
#define WINDOW_SIZE ((size_t)64 << 10)
_Static_assert(WINDOW_SIZE >= 4 * SNAPSHOT_RECORD_MAX, "a full window has a whole record");

enum phase {
    PHASE_HEADER,  /* magic and format have not come yet */
    PHASE_RECORDS, /* of a known format */
    PHASE_OTHER    /* of another format: only the checksum is verified */
};

struct machine_restore {
    struct loader loader;
    enum phase phase;
    enum snapshot_section part;
    int error; /* the first one; after it, nothing is read any more */
    uint32_t crc;
    size_t used;
    uint8_t window[WINDOW_SIZE];
};

static bool (*const loaders[PART_END])(struct loader *l) = {
    [PART_HEAD] = load_head,        [PART_NODES] = load_node, [PART_USERS] = load_user,
    [PART_SESSIONS] = load_session, [PART_HELD] = load_held,  [PART_IDLE] = load_idle,
    [PART_WORK] = load_work,        [PART_WAITS] = load_wait, [PART_OUTCOMES] = load_outcome,
};

/* Loads the whole records among these bytes. Returns their length in bytes. */
static size_t load_records(struct machine_restore *r, const uint8_t *bytes, size_t len)
{
    struct loader *l = &r->loader;
    size_t done = 0;
    while (true) {
        while (r->part < PART_END && l->left[r->part] == 0) {
            r->part++;
        }
        if (r->part == PART_END) {
            return done;
        }
        fli_reader_init(&l->r, bytes + done, len - done);
        if (!loaders[r->part](l)) {
            r->error = l->r.bad ? 0 : FL_ECORRUPT;
            return done;
        }
        l->left[r->part]--;
        done = len - fli_reader_left(&l->r);
    }
}

static size_t load_header(struct machine_restore *r)
{
    if (r->used < SNAPSHOT_HEADER_SIZE) {
        return 0;
    }
    if (memcmp(r->window, SNAPSHOT_MAGIC, SNAPSHOT_MAGIC_SIZE) != 0) {
        r->error = FL_ECORRUPT;
        return 0;
    }
    unsigned format = fli_get_u16(r->window + 8);
    bool known = format >= SNAPSHOT_FORMAT && format < SNAPSHOT_FORMAT + machine_version_max() &&
                 fli_get_u16(r->window + 10) == 0;
    r->phase = known ? PHASE_RECORDS : PHASE_OTHER;
    return SNAPSHOT_HEADER_SIZE;
}

/* Loads what is complete in the window, and moves the rest to its front. The last bytes, which may
 * be the trailer, stay. */
static void drain(struct machine_restore *r)
{
    size_t done = r->phase == PHASE_HEADER ? load_header(r) : 0;
    if (r->error == 0 && r->phase == PHASE_RECORDS) {
        done += load_records(r, r->window + done, r->used - done);
    } else if (r->error == 0 && r->phase == PHASE_OTHER && r->used - done > SNAPSHOT_TRAILER_SIZE) {
        done = r->used - SNAPSHOT_TRAILER_SIZE;
    }
    r->crc = fli_crc32c(r->crc, r->window, done);
    r->used -= done;
    memmove(r->window, r->window + done, r->used);
}

int machine_restore_begin(const uint64_t hash_seed[2], struct machine_restore **ret)
{
    struct machine_restore *r = malloc(sizeof *r);
    if (r == NULL) {
        return FL_ENOMEM;
    }
    r->loader = (struct loader){.m = machine_create(hash_seed), .left = {[PART_HEAD] = 1}};
    r->phase = PHASE_HEADER;
    r->part = PART_HEAD;
    r->error = 0;
    r->crc = 0;
    r->used = 0;
    *ret = r;
    return 0;
}

int machine_restore_feed(struct machine_restore *r, const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    while (len > 0 && r->error == 0) {
        size_t n = len < WINDOW_SIZE - r->used ? len : WINDOW_SIZE - r->used;
        memcpy(r->window + r->used, p, n);
        r->used += n;
        p += n;
        len -= n;
        if (r->used == WINDOW_SIZE) {
            drain(r);
            /* A full window is left over: more bytes than the state has, or a record longer than
             * any can be. */
            r->error = r->error == 0 && r->used == WINDOW_SIZE ? FL_ECORRUPT : r->error;
        }
    }
    return r->error;
}

static int finish(struct machine_restore *r)
{
    if (r->error == 0) {
        drain(r);
    }
    if (r->error != 0) {
        return r->error;
    }
    bool whole = r->phase != PHASE_HEADER && r->used == SNAPSHOT_TRAILER_SIZE &&
                 fli_get_u32(r->window) == r->crc;
    if (whole && r->phase == PHASE_OTHER) {
        return FL_EVERSION;
    }
    return whole && r->part == PART_END && whole_ok(&r->loader) ? 0 : FL_ECORRUPT;
}

int machine_restore_finish(struct machine_restore *r, struct machine **ret)
{
    int rc = finish(r);
    if (rc == 0) {
        *ret = r->loader.m;
        r->loader.m = NULL;
    }
    machine_restore_abort(r);
    return rc;
}

void machine_restore_abort(struct machine_restore *r)
{
    if (r != NULL) {
        machine_destroy(r->loader.m);
        free(r);
    }
}
