/* snapshot.c: the state as bytes. The reader is restore.c.
 *
 *   magic 8 ("FLSNAP\r\n"), format 2, zero 2
 *   clock 8, floor 8 (clock of the last term mark), due 8 (what has a deadline before is over),
 *   term mark to come 1, last token 8, serial 8, cluster id 8
 *   limits: five numbers of 4, in the order of struct machine_limits
 *   settings: four numbers of 4, in the order of struct machine_settings
 *   counts for ever, 8 each: grants, releases, expiries, breaks, tokens, waits ended, deadlocks,
 *   limits
 *   users sealed 1, the last one's number 4
 *   numbers of nodes, users, sessions, grants, idle locks, work, waits and outcomes, 8 each
 *   version of the cluster 4
 *   nodes, by id:                 id 8, version 4, plan 1, learner 1
 *                                 and forced 2 in one byte, address (as a value)
 *   users, by number:             number 4, login 4, then as acl.h says
 *   explicit sessions, by serial: serial 8, deadline 8, ttl 4, lockdelay 4, end of the pause of
 *                                 its searches 8, renewals 4, ending 1 (enum machine_reason; 0:
 *                                 no), owner, label, origin; with deadline 0 when it is ending
 *   grants, by token:             token 8, since 8, slots 4, end of the delay 8 (0: none; only with
 *                                 the oldest of several holders), names, session; value
 *   idle locks, by serial:        serial 8, end of the delay 8 (0: none), permits 4, name
 *   work, first one first:        kind 1, and a session's serial 8, a token 8, of the users the
 *                                 next wait's id 8, or of a lock: broken 1, permits 4, name
 *   waits, by id:                 id 8, request count 8, deadline 8, slots 4, names, session; value
 *   outcomes of requests, by kind, the oldest first: number 8, until when it is known 8, user's
 *                                 number 4, kind 1 (enum outcome_kind), name, owner or label
 *   CRC-32C 4 of everything before
 *
 * slots: 1 exclusive, 2^32 - 1 shared, else the permits of a semaphore. names: how many 1, and then
 * each; more than one only with slots 1. session: kind 1, then 0: of an implicit one owner, ttl 4,
 * deadline 8 and renewals 4 of a grant, and origin; 1: of an explicit one owner; 2: of one that is
 * ending serial 8. origin: length 1, and unless that is 0 a user's number 4, address (length 1,
 * bytes). The value of a hold that is counted is the count 4, and its length has the top bit set.
 *
 * All little endian; name, owner and label = length 1, bytes; value = length 2, bytes. Canonical:
 * every section has one order, and deadlines are as they are stored (a term mark's floor is not
 * worked in, see timers.c), so replicas that applied the same log have the same bytes. */
#include "machine/snapshot.h"

#include <stddef.h>
#include <string.h>

#include "machine/state.h"

/* Bytes gathered before each call of the sink. On the stack, since the child of a fork writes. */
#define BLOCK_SIZE ((size_t)64 << 10)

struct writer {
    machine_sink sink;
    void *ctx;
    int error; /* the sink's first one */
    uint32_t crc;
    size_t used;
    uint8_t block[BLOCK_SIZE];
};

static void writer_init(struct writer *w, machine_sink sink, void *ctx)
{
    w->sink = sink;
    w->ctx = ctx;
    w->error = 0;
    w->crc = 0;
    w->used = 0;
}

static void flush(struct writer *w)
{
    if (w->error == 0 && w->used > 0) {
        w->crc = fli_crc32c(w->crc, w->block, w->used);
        w->error = w->sink(w->ctx, w->block, w->used);
    }
    w->used = 0;
}

static void put(struct writer *w, const void *data, size_t len)
{
    const uint8_t *p = data;
    while (len > 0) {
        size_t n = len < BLOCK_SIZE - w->used ? len : BLOCK_SIZE - w->used;
        memcpy(w->block + w->used, p, n);
        w->used += n;
        p += n;
        len -= n;
        if (w->used == BLOCK_SIZE) {
            flush(w);
        }
    }
}

static void put_u8(struct writer *w, uint8_t v)
{
    put(w, &v, 1);
}

static void put_u32(struct writer *w, uint32_t v)
{
    uint8_t b[4];
    fli_put_u32(b, v);
    put(w, b, sizeof b);
}

static void put_u64(struct writer *w, uint64_t v)
{
    uint8_t b[8];
    fli_put_u64(b, v);
    put(w, b, sizeof b);
}

static void put_short(struct writer *w, struct fli_slice v)
{
    FLI_ASSERT(v.len <= UINT8_MAX);
    put_u8(w, (uint8_t)v.len);
    put(w, v.data, v.len);
}

static void put_value(struct writer *w, struct fli_slice v)
{
    uint8_t b[2];
    FLI_ASSERT(v.len <= FL_VALUE_MAX);
    fli_put_u16(b, (uint16_t)v.len);
    put(w, b, sizeof b);
    put(w, v.data, v.len);
}

#define HEAD(kind, field)                                                                          \
    {                                                                                              \
        FLI_##kind, offsetof(struct machine, field)                                                \
    }
const struct fli_field snapshot_head[SNAPSHOT_HEAD_FIELDS] = {
    HEAD(U64, clock_ms),
    HEAD(U64, floor_ms),
    HEAD(U64, due_ms),
    HEAD(BOOL, mark_due),
    HEAD(U64, last_token),
    HEAD(U64, serial),
    HEAD(U64, cluster_id),
    HEAD(U32, limits.locks_max),
    HEAD(U32, limits.sessions_max),
    HEAD(U32, limits.waits_max),
    HEAD(U32, limits.lock_waits_max),
    HEAD(U32, limits.session_locks_max),
    HEAD(U32, settings.election_ms),
    HEAD(U32, settings.heartbeat_ms),
    HEAD(U32, settings.hold_ms),
    HEAD(U32, settings.log_level),
    HEAD(U64, totals.grants),
    HEAD(U64, totals.releases),
    HEAD(U64, totals.expiries),
    HEAD(U64, totals.breaks),
    HEAD(U64, totals.tokens),
    HEAD(U64, totals.waits_ended),
    HEAD(U64, totals.deadlocks),
    HEAD(U64, totals.limits),
    HEAD(BOOL, users.sealed),
    HEAD(U32, users.last_uid),
};
const struct fli_field snapshot_version = HEAD(U32, version);

static void put_head(struct writer *w, const struct machine *m, const uint64_t records[PART_END])
{
    const uint8_t format[4] = {(uint8_t)(SNAPSHOT_FORMAT + m->version - 1), 0, 0, 0};
    uint8_t head[SNAPSHOT_HEAD_SIZE];
    uint8_t *p = fli_put_fields(head, snapshot_head, SNAPSHOT_HEAD_FIELDS, m);
    for (unsigned i = PART_NODES; i < PART_END; i++, p += 8) {
        fli_put_u64(p, records[i]);
    }
    p = fli_put_fields(p, &snapshot_version, 1, m);
    FLI_ASSERT(p == head + sizeof head);
    put(w, SNAPSHOT_MAGIC, SNAPSHOT_MAGIC_SIZE);
    put(w, format, sizeof format);
    put(w, head, sizeof head);
}

static void put_origin(struct writer *w, const struct origin *origin)
{
    uint8_t packed[ORIGIN_SIZE_MAX];
    put_short(w, (struct fli_slice){packed, machine_origin_pack(origin, packed)});
}

static void put_user(struct writer *w, const struct user *u)
{
    uint8_t record[USER_RECORD_MAX];
    put(w, record, machine_user_encode(u, record));
}

static void put_session(struct writer *w, const struct session_explicit *e)
{
    put_u64(w, e->opened.key);
    put_u64(w, e->ending != 0 ? 0 : e->base.lease.at_ms);
    put_u32(w, e->base.lease.ttl_ms);
    put_u32(w, e->lockdelay_ms);
    put_u64(w, e->search_pause_ms);
    put_u8(w, e->ending == 0 && e->base.lease.place == LEASE_OVER);
    put_u8(w, e->ending);
    put_short(w, machine_session_owner(&e->base));
    put_short(w, (struct fli_slice){e->label, e->label_len});
    put_origin(w, &e->origin);
}

static void put_names(struct writer *w, struct request *request)
{
    unsigned n = request_parts(request);
    put_u8(w, (uint8_t)n);
    for (unsigned i = 0; i < n; i++) {
        put_short(w, lock_name(request_part(request, i)->lock));
    }
}

static void put_owner(struct writer *w, const struct request *request)
{
    struct session *s = request_session(request);
    bool is_ending = session_is_explicit(s) && session_explicit_of(s)->ending != 0;
    put_u8(w, is_ending ? SNAPSHOT_ENDING : session_is_explicit(s));
    if (is_ending) {
        put_u64(w, session_explicit_of(s)->opened.key);
        return;
    }
    put_short(w, machine_session_owner(s));
    if (!session_is_explicit(s)) {
        put_u32(w, s->lease.ttl_ms);
        if (!request->waiting) {
            put_u64(w, s->lease.at_ms);
            put_u8(w, s->lease.place == LEASE_OVER);
        }
        struct origin origin = machine_session_origin(s);
        put_origin(w, &origin);
    }
}

static void put_held(struct writer *w, struct request *request)
{
    put_u64(w, request_token(request));
    put_u64(w, request->since_ms);
    put_u32(w, lock_slots(request->lock));
    const struct contention *c = lock_contention(request->lock);
    bool delayed = c != NULL && c->is_delayed && lock_holder(request->lock) == request;
    put_u64(w, delayed ? c->delay.at_ms : 0);
    put_names(w, request);
    put_owner(w, request);
    struct fli_slice value = machine_request_value(request);
    if (!request->counted) {
        put_value(w, value);
        return;
    }
    uint8_t len[2];
    fli_put_u16(len, (uint16_t)(SNAPSHOT_COUNTED | value.len));
    put(w, len, sizeof len);
    put(w, value.data, value.len);
}

static void put_idle(struct writer *w, const struct contention *c)
{
    put_u64(w, c->idle.key);
    put_u64(w, c->is_delayed ? c->delay.at_ms : 0);
    put_u32(w, c->permits);
    put_short(w, lock_name(c->lock));
}

static void put_work(struct writer *w, struct work *work)
{
    put_u8(w, (uint8_t)work->kind);
    if (work->kind == WORK_SESSION) {
        put_u64(w, machine_work_session(work)->opened.key);
    } else if (work->kind == WORK_USERS) {
        put_u64(w, FLI_CONTAINER_OF(work, struct users, work)->recheck_id);
    } else if (work->kind == WORK_MULTI) {
        put_u64(w, request_token(multi_request(machine_work_multi(work), 0)));
    } else {
        const struct contention *c = machine_work_contention(work);
        put_u8(w, c->is_broken);
        put_u32(w, c->permits);
        put_short(w, lock_name(c->lock));
    }
}

static void put_wait(struct writer *w, const struct wait *wait)
{
    put_u64(w, wait_id(wait));
    put_u64(w, wait->times_asked);
    put_u64(w, wait->timer.at_ms);
    put_u32(w, wait->slots);
    put_names(w, wait->request);
    put_owner(w, wait->request);
    put_value(w, machine_request_value(wait->request));
}

static void put_outcomes(struct writer *w, const struct fli_list *list)
{
    FLI_LIST_FOREACH(link, list)
    {
        const struct outcome *o = outcome_of(link);
        size_t before_owner = 6 + (size_t)o->key[5];
        if (w->error != 0) {
            return;
        }
        put_u64(w, o->number);
        put_u64(w, o->until_ms);
        put(w, o->key, before_owner);
        put_short(w, (struct fli_slice){o->key + before_owner, o->key_len - before_owner});
    }
}

static void put_nodes(struct writer *w, const struct machine *m)
{
    for (unsigned i = 0; i < m->n_nodes; i++) {
        const struct machine_node *n = &m->nodes[i];
        put_u64(w, n->id);
        put_u32(w, n->version);
        put_u8(w, (uint8_t)n->plan);
        put_u8(w, (uint8_t)(n->learner | n->forced << 1));
        put_value(w, (struct fli_slice){(const uint8_t *)n->address, strlen(n->address)});
    }
}

static void put_machine(struct writer *w, const struct machine *m)
{
    const uint64_t records[PART_END] = {
        [PART_NODES] = m->n_nodes,         [PART_USERS] = m->users.n,
        [PART_SESSIONS] = m->opened.len,   [PART_HELD] = m->n_grants,
        [PART_IDLE] = m->idle.len,         [PART_WORK] = m->n_work,
        [PART_WAITS] = m->waits_by_id.len, [PART_OUTCOMES] = m->outcomes.by_key.len};
    put_head(w, m, records);
    put_nodes(w, m);
    for (unsigned i = 0; i < m->users.n; i++) {
        put_user(w, m->users.list[i]);
    }
    struct order_node *n;
    for (n = machine_order_first(&m->opened); n != NULL && w->error == 0;
         n = machine_order_next(&m->opened, n)) {
        put_session(w, session_of_opened(n));
    }
    for (n = machine_order_first(&m->held); n != NULL && w->error == 0;
         n = machine_order_next(&m->held, n)) {
        if (held_key_index(n->key) == 0) {
            put_held(w, request_of_held(n));
        }
    }
    for (n = machine_order_first(&m->idle); n != NULL && w->error == 0;
         n = machine_order_next(&m->idle, n)) {
        put_idle(w, contention_of_idle(n));
    }
    FLI_LIST_FOREACH(link, &m->work)
    {
        put_work(w, FLI_CONTAINER_OF(link, struct work, link));
    }
    FLI_LIST_FOREACH(link, &m->waits)
    {
        const struct wait *wait = wait_of_all(link);
        if (request_part(wait->request, 0) == wait->request && w->error == 0) {
            put_wait(w, wait);
        }
    }
    for (unsigned kind = 0; kind < OUTCOME_KINDS; kind++) {
        put_outcomes(w, &m->outcomes.by_kind[kind]);
    }
    flush(w);
}

static int put_trailer(struct writer *w)
{
    uint8_t trailer[SNAPSHOT_TRAILER_SIZE];
    flush(w);
    fli_put_u32(trailer, w->crc);
    return w->error != 0 ? w->error : w->sink(w->ctx, trailer, sizeof trailer);
}

int machine_snapshot_write(const struct machine *m, machine_sink sink, void *ctx)
{
    struct writer w;
    writer_init(&w, sink, ctx);
    put_machine(&w, m);
    return put_trailer(&w);
}

int machine_snapshot_write_heir(const struct machine *m, fl_token last_token, machine_sink sink,
                                void *ctx)
{
    const uint64_t records[PART_END] = {[PART_USERS] = m->users.n};
    struct machine heir = *m; /* for the head */
    struct writer w;
    FLI_ASSERT(last_token >= m->last_token && last_token <= FL_TOKEN_MAX);
    heir.last_token = last_token;
    heir.cluster_id = 0;
    writer_init(&w, sink, ctx);
    put_head(&w, &heir, records);
    for (unsigned i = 0; i < m->users.n; i++) {
        put_user(&w, m->users.list[i]);
    }
    return put_trailer(&w);
}
