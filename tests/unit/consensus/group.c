/* group.c: see group.h. */
#include "group.h"

#include "../../lib/unit.h"
#include "../../lib/snapshot_bytes.h"

#include "machine/machine.h"

struct group group;

#define MESSAGE_MS 1u

static struct group_server *server_of(struct group *g, uint64_t id)
{
    return id >= 1 && id <= g->n ? &g->servers[id - 1] : NULL;
}

/* ---- messages ---- */

void group_send(struct group *g, uint64_t from, uint64_t to, const struct message_body *body)
{
    size_t len = 0;
    for (unsigned i = 0; i < body->n; i++) {
        len += body->parts[i].len;
    }
    struct group_packet *p = fli_xmalloc(sizeof *p + len);
    *p = (struct group_packet){
        .from = from, .to = to, .due_ms = g->now_ms + MESSAGE_MS, .type = body->type, .len = len};
    fli_list_init(&p->link);
    size_t at = 0;
    for (unsigned i = 0; i < body->n; i++) {
        if (body->parts[i].len > 0) {
            memcpy(p->body + at, body->parts[i].data, body->parts[i].len);
        }
        at += body->parts[i].len;
    }
    fli_list_push(&g->packets, &p->link);
    g->packets_n++;
}

static void drop(struct group *g, struct group_packet *p)
{
    fli_list_remove(&p->link);
    g->packets_n--;
    free(p);
}

void group_drop(struct group *g)
{
    struct fli_list *pos;
    while ((pos = fli_list_first(&g->packets)) != NULL) {
        drop(g, FLI_CONTAINER_OF(pos, struct group_packet, link));
    }
}

struct group_packet *group_packet_to(struct group *g, uint64_t to, uint8_t type)
{
    FLI_LIST_FOREACH(pos, &g->packets)
    {
        struct group_packet *p = FLI_CONTAINER_OF(pos, struct group_packet, link);
        if (p->to == to && p->type == type) {
            return p;
        }
    }
    return NULL;
}

unsigned group_packets(struct group *g, uint64_t to, uint8_t type)
{
    unsigned n = 0;
    FLI_LIST_FOREACH(pos, &g->packets)
    {
        struct group_packet *p = FLI_CONTAINER_OF(pos, struct group_packet, link);
        n += p->to == to && p->type == type;
    }
    return n;
}

struct raft_message group_read(const struct group_packet *p, struct raft_entry *entries)
{
    struct raft_message m;
    struct fli_slice body = {p->body, p->len};
    assert_int_equal(message_decode(p->type, body, entries, &m), 0);
    return m;
}

static void deliver(struct group *g, struct group_packet *p)
{
    struct group_server *s = server_of(g, p->to);
    if (s != NULL && s->replica != NULL && !s->asleep) {
        /* In memory of its own, so that a look behind its end is seen. */
        uint8_t *copy = fli_xmalloc(p->len);
        memcpy(copy, p->body, p->len);
        int rv = replica_receive(s->replica, g->now_ms, p->from, p->type,
                                 (struct fli_slice){copy, p->len});
        free(copy);
        assert_int_equal(rv, 0);
    }
}

void group_deliver(struct group *g, struct group_packet *p)
{
    fli_list_remove(&p->link);
    if (!g->cut[p->from][p->to]) {
        deliver(g, p);
    }
    g->packets_n--;
    free(p);
}

static void deliver_due(struct group *g)
{
    struct fli_list due;
    struct fli_list *pos;
    fli_list_init(&due);
    FLI_LIST_FOREACH_SAFE(at, next, &g->packets)
    {
        struct group_packet *p = FLI_CONTAINER_OF(at, struct group_packet, link);
        if (p->due_ms <= g->now_ms && !g->held[p->to]) {
            fli_list_remove(&p->link);
            fli_list_push(&due, &p->link);
        }
    }
    while ((pos = fli_list_first(&due)) != NULL) {
        group_deliver(g, FLI_CONTAINER_OF(pos, struct group_packet, link));
    }
}

/* ---- what a replica calls back ---- */

/* A server that is in no configuration here has the number that it was given. */
static uint64_t number_of_cb(void *ctx, uint64_t incarnation)
{
    return incarnation == UINT64_MAX ? 0 : incarnation;
}

/* No server has a stream to itself, though a forged configuration may give another its number. */
static void send_cb(void *ctx, uint64_t peer_id, const struct message_body *body)
{
    struct group_server *s = ctx;
    if (peer_id <= s->g->n && peer_id != s->id && !s->g->cut[s->id][peer_id]) {
        group_send(s->g, s->id, peer_id, body);
    }
}

static void wanted_cb(void *ctx, uint64_t peer_id)
{
    struct group_server *s = ctx;
    s->wanted[peer_id <= GROUP_MAX ? peer_id : 0]++;
}

static bool sends_cb(void *ctx, uint64_t peer_id)
{
    struct group_server *s = ctx;
    return peer_id <= GROUP_MAX && s->sends_snapshot[peer_id];
}

static void fatal_cb(void *ctx, int error, const char *message)
{
    struct group_server *s = ctx;
    s->fatals++;
    s->fatal_error = error;
    snprintf(s->fatal_text, sizeof s->fatal_text, "%s", message);
}

static void durable_cb(void *ctx)
{
    struct group_server *s = ctx;
    if (s->replica != NULL) {
        replica_durable(s->replica, s->g->now_ms);
    }
}

static void arrived_cb(void *ctx)
{
    struct group_server *s = ctx;
    if (s->replica != NULL) {
        replica_arrived(s->replica, s->g->now_ms);
    }
}

static void say_cb(void *ctx, enum log_level level, const char *message)
{
}

/* ---- up and down ---- */

void group_init(struct group *g, unsigned n)
{
    memset(g, 0, sizeof *g);
    g->n = n;
    g->seed = 1;
    g->now_ms = 1000;
    fli_list_init(&g->packets);
    for (unsigned i = 0; i < n; i++) {
        struct group_server *s = &g->servers[i];
        char address[16];
        snprintf(address, sizeof address, "s%u:1", i + 1);
        s->g = g;
        s->id = i + 1;
        s->sim = sim_device_create(i + 1);
        fli_buf_init(&s->state, (size_t)64 << 20);
        assert_int_equal(configuration_add(&g->conf, s->id, s->id, address, CONFIGURATION_VOTER),
                         0);
    }
}

static void closed_cb(void *ctx)
{
    *(bool *)ctx = true;
}

static void take_down(struct group_server *s, enum sim_crash how)
{
    bool closed = false;
    replica_destroy(s->replica);
    s->replica = NULL;
    if (s->log != NULL) {
        log_close(s->log, closed_cb, &closed);
        sim_device_crash(s->sim, how);
        assert_true(closed);
        log_destroy(s->log);
    }
    s->log = NULL;
    fsm_destroy(s->fsm);
    s->fsm = NULL;
}

void group_fini(struct group *g)
{
    group_drop(g);
    for (unsigned i = 0; i < g->n; i++) {
        take_down(&g->servers[i], SIM_CRASH_PROCESS);
        sim_device_destroy(g->servers[i].sim);
        fli_buf_fini(&g->servers[i].state);
    }
}

int group_stop(void **state)
{
    group_fini(&group);
    return 0;
}

void group_crash(struct group *g, unsigned i, enum sim_crash how)
{
    assert_non_null(g->servers[i].log);
    take_down(&g->servers[i], how);
}

static void begin_log(struct group *g, struct group_server *s)
{
    uint8_t bytes[CONFIGURATION_SIZE_MAX];
    struct log_hard_state hs = {.term = 1};
    struct log_entry entry = {.index = 1, .term = 1, .kind = RAFT_CHANGE, .data = bytes};
    entry.len = (uint32_t)configuration_encode(&g->conf, bytes);
    assert_int_not_equal(log_set_hard_state(s->log, &hs), 0);
    assert_int_not_equal(log_append(s->log, &entry), 0);
    group_write(g, (unsigned)s->id - 1);
}

static struct machine *decode(const struct fli_buf *state)
{
    static const uint64_t seed[2] = {1, 2};
    struct machine *m = NULL;
    assert_int_equal(machine_snapshot_decode(state->data, state->len, seed, &m), 0);
    return m;
}

int group_try_up(struct group *g, unsigned i)
{
    struct group_server *s = &g->servers[i];
    struct log_config lc = {.device = sim_device_base(s->sim),
                            .segment_bytes = 1 << 20,
                            .cache_bytes = g->cache_bytes,
                            .ctx = s,
                            .durable = durable_cb,
                            .arrived = arrived_cb,
                            .failed = fatal_cb,
                            .log = say_cb};
    struct fsm_config fc = {.host = {.ctx = s, .fail = fatal_cb}};
    assert_null(s->log);
    assert_int_equal(log_open(&lc, &s->log, s->errmsg, sizeof s->errmsg), 0);
    if (log_last_index(s->log) == 0 && !g->founds) {
        begin_log(g, s);
    }
    struct machine *m = s->meta.index == 0 ? NULL : decode(&s->state);
    assert_int_equal(fsm_create(&fc, m, &s->fsm), 0);
    struct replica_config rc = {.id = s->id,
                                .incarnation = s->id,
                                .log = s->log,
                                .fsm = s->fsm,
                                .snapshot = s->meta.index == 0 ? NULL : &s->meta,
                                .election_ms = GROUP_ELECTION_MS,
                                .heartbeat_ms = GROUP_HEARTBEAT_MS,
                                .in_flight = g->in_flight,
                                .seed = (unsigned)(g->seed * 1000 + s->id),
                                .ctx = s,
                                .number_of = number_of_cb,
                                .send = send_cb,
                                .snapshot_wanted = wanted_cb,
                                .sends_snapshot = sends_cb,
                                .fatal = fatal_cb};
    int rv = replica_create(&rc, g->now_ms, &s->replica, s->errmsg, sizeof s->errmsg);
    if (rv != 0) {
        s->replica = NULL;
        take_down(s, SIM_CRASH_PROCESS);
    }
    return rv;
}

void group_up(struct group *g, unsigned i)
{
    int rv = group_try_up(g, i);
    if (rv != 0) {
        fail_msg("server %u: %s", i + 1, g->servers[i].errmsg);
    }
}

void group_up_all(struct group *g)
{
    for (unsigned i = 0; i < g->n; i++) {
        group_up(g, i);
    }
}

/* ---- time ---- */

void group_write(struct group *g, unsigned i)
{
    struct group_server *s = &g->servers[i];
    log_flush(s->log);
    sim_device_drain(s->sim);
}

void group_turn(struct group *g, unsigned i)
{
    struct group_server *s = &g->servers[i];
    if (s->replica != NULL && !s->asleep) {
        replica_turn(s->replica, g->now_ms, false);
    }
}

/* Ends the operations of the disk that are under way, and those that they begin. */
static void work(struct group_server *s)
{
    bool any = true;
    if (!s->reads_stuck) {
        sim_device_drain(s->sim);
        return;
    }
    for (unsigned i = 0; i < 100 && any; i++) {
        any = false;
        for (unsigned lane = 0; lane < LOG_LANES; lane++) {
            if (lane != LOG_LANE_READ && sim_device_busy(s->sim, (enum log_lane)lane)) {
                sim_device_finish(s->sim, (enum log_lane)lane);
                any = true;
            }
        }
    }
}

static void flush(struct group_server *s)
{
    if (s->log != NULL) {
        log_flush(s->log);
    }
}

void group_step(struct group *g)
{
    g->now_ms++;
    for (unsigned i = 0; i < g->n; i++) {
        struct group_server *s = &g->servers[i];
        if (s->log != NULL && !s->disk_stuck && !s->asleep) {
            work(s);
        }
    }
    deliver_due(g);
    for (unsigned i = 0; i < g->n; i++) {
        group_turn(g, i);
        flush(&g->servers[i]);
    }
}

void group_run(struct group *g, unsigned ms)
{
    for (unsigned i = 0; i < ms; i++) {
        group_step(g);
    }
}

void group_isolate(struct group *g, unsigned i, bool isolated)
{
    for (unsigned j = 1; j <= g->n; j++) {
        g->cut[i + 1][j] = isolated;
        g->cut[j][i + 1] = isolated;
    }
}

/* ---- leaders ---- */

struct replica *group_replica(struct group *g, unsigned i)
{
    return g->servers[i].replica;
}

int group_leader(const struct group *g)
{
    int leader = -1;
    uint64_t term = 0;
    for (unsigned i = 0; i < g->n; i++) {
        struct replica *r = g->servers[i].replica;
        if (r != NULL && replica_role(r) == REPLICA_LEADER && replica_term(r) > term) {
            leader = (int)i;
            term = replica_term(r);
        }
    }
    return leader;
}

static bool is_settled(struct group *g)
{
    int leader = group_leader(g);
    if (leader < 0) {
        return false;
    }
    struct replica *r = g->servers[leader].replica;
    return replica_commit_index(r) == replica_last_index(r);
}

unsigned group_elect(struct group *g)
{
    GROUP_UNTIL(g, is_settled(g));
    return (unsigned)group_leader(g);
}

void group_begin_term(struct group *g, unsigned i)
{
    struct group_server *s = &g->servers[i];
    uint64_t index = replica_last_index(s->replica) + 1;
    assert_int_equal(replica_barrier(s->replica, g->now_ms), 0);
    GROUP_UNTIL(g, replica_commit_index(s->replica) >= index);
    assert_int_equal(replica_role(s->replica), REPLICA_LEADER);
}

/* ---- commands ---- */

int group_submit(struct group *g, unsigned i)
{
    return group_submit_many(g, i, 1);
}

int group_submit_many(struct group *g, unsigned i, unsigned n)
{
    struct fli_buf b;
    uint8_t header[MACHINE_BATCH_HEADER_SIZE] = {0};
    struct machine_command c = {.op = MACHINE_OP_TOKEN, .name = {(const uint8_t *)"t", 1}};
    fli_buf_init(&b, 65536);
    assert_int_equal(fli_buf_append(&b, header, sizeof header), 0);
    for (unsigned k = 0; k < n; k++) {
        assert_int_equal(machine_command_encode(&c, &b), 0);
    }
    assert_int_equal(fli_buf_reserve(&b, 8), 0);
    struct machine_batch_header h = {.count = n,
                                     .timestamp_ms = g->now_ms,
                                     .term = replica_term(g->servers[i].replica),
                                     .sequence = 1,
                                     .length = (uint32_t)b.len};
    size_t size = machine_batch_seal(b.data, &h);
    int rv = replica_submit(g->servers[i].replica, g->now_ms, b.data, size);
    fli_buf_fini(&b);
    return rv;
}

uint64_t group_tokens(struct group *g, unsigned i)
{
    return machine_last_token(fsm_machine(g->servers[i].fsm));
}

/* ---- snapshots ---- */

void group_snapshot(struct group *g, unsigned i, uint64_t keep_index)
{
    struct group_server *s = &g->servers[i];
    assert_int_equal(replica_snapshot_meta(s->replica, false, &s->meta), 0);
    fli_buf_clear(&s->state);
    assert_int_equal(machine_snapshot_encode(fsm_machine(s->fsm), &s->state), 0);
    replica_snapshot_taken(s->replica, g->now_ms, &s->meta, keep_index);
}

int group_install(struct group *g, unsigned from, unsigned to)
{
    struct group_server *a = &g->servers[from];
    struct group_server *b = &g->servers[to];
    struct machine *fresh = decode(&a->state);
    struct machine *garbage = fresh;
    int rv = replica_install(b->replica, g->now_ms, &a->meta, fresh, &garbage);
    machine_destroy(garbage);
    if (rv == 0) {
        b->meta = a->meta;
        fli_buf_clear(&b->state);
        assert_int_equal(fli_buf_append(&b->state, a->state.data, a->state.len), 0);
    }
    return rv;
}

void group_expect_same(struct group *g)
{
    int leader = group_leader(g);
    assert_true(leader >= 0);
    struct group_server *l = &g->servers[leader];
    for (unsigned i = 0; i < g->n; i++) {
        struct group_server *s = &g->servers[i];
        if (s->replica == NULL) {
            continue;
        }
        GROUP_UNTIL(g, replica_applied_index(s->replica) == replica_last_index(l->replica) &&
                           replica_applied_index(l->replica) == replica_last_index(l->replica));
        assert_true(machine_hash(fsm_machine(s->fsm)) == machine_hash(fsm_machine(l->fsm)));
        assert_int_equal(s->fatals, 0);
    }
}
