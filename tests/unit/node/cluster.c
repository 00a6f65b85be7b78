/* cluster.c: see cluster.h. */
#include "cluster.h"

#include "../../lib/unit.h"
#include "../../lib/machine_check.h"

#include <signal.h>
#include <unistd.h>

#include "base/clock.h"
#include "node/node_private.h"
#include "../../lib/ports.h"
#include "../../lib/scratch.h"

void cluster_init(struct cluster *c, unsigned n)
{
    uint16_t ports[CLUSTER_MAX];
    char text[512];
    char errmsg[256];
    size_t len = 0;
    memset(c, 0, sizeof *c);
    (void)signal(SIGPIPE, SIG_IGN); /* as the daemon does */
    c->n = n;
    c->limits = MACHINE_LIMITS_DEFAULT;
    c->verbose = getenv("FENCELOCK_TEST_VERBOSE") != NULL;
    assert_int_equal(uv_loop_init(&c->loop), 0);
    for (unsigned i = 0; i < n; i++) {
        c->reserved[i] = port_reserve(&ports[i]);
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%u=127.0.0.1:%u",
                                i == 0 ? "" : ",", i + 1, ports[i]);
        c->nodes[i].c = c;
        c->nodes[i].dir = scratch_make();
    }
    assert_int_equal(members_parse(text, &c->members, errmsg, sizeof errmsg), 0);
}

void cluster_fini(struct cluster *c)
{
    for (unsigned i = 0; i < c->n; i++) {
        if (c->nodes[i].node != NULL) {
            cluster_stop(c, i, 0);
        }
        scratch_remove(c->nodes[i].dir);
        close(c->reserved[i]);
    }
    uv_run(&c->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&c->loop), 0);
}

static void event_cb(void *ctx, const struct machine_event *e)
{
    struct cluster_node *cn = ctx;
    cn->grants += e->type == MACHINE_EVENT_GRANTED;
    if (e->wait != 0 && e->type != MACHINE_EVENT_QUEUED) {
        cn->log_wait = e->wait;
    }
}

static void push_cb(void *ctx, const struct machine_event *e)
{
    struct cluster_node *cn = ctx;
    cn->pushed++;
    cn->pushed_wait = e->wait;
    cn->pushed_type = e->type;
}

static void fatal_cb(void *ctx, int error, const char *message)
{
    struct cluster_node *cn = ctx;
    cn->fatal = error;
    snprintf(cn->fatal_text, sizeof cn->fatal_text, "%s", message);
    if (cn->c->verbose) {
        print_message("node %u FATAL %s\n", (unsigned)(cn - cn->c->nodes) + 1, message);
    }
}

static void leadership_cb(void *ctx)
{
    struct cluster_node *cn = ctx;
    cn->leaderships++;
}

static void log_cb(void *ctx, int level, const char *part, const char *message)
{
    struct cluster_node *cn = ctx;
    if (cn->c->verbose) {
        print_message("%8llu node %u [%d] %s: %s\n", (unsigned long long)uv_now(&cn->c->loop),
                      (unsigned)(cn - cn->c->nodes) + 1, level, part, message);
    }
}

int cluster_try_start(struct cluster *c, unsigned i, char *errmsg, size_t errmsg_size)
{
    struct cluster_node *cn = &c->nodes[i];
    char client[32];
    snprintf(client, sizeof client, "client-%u:1", i + 1);
    struct node_config config = {
        .id = i + 1,
        .data_dir = cn->dir,
        .peer_address = c->bind_address,
        .client_address = client,
        .members = &c->members,
        .limits = c->limits,
        .heartbeat_ms = 30,
        .election_ms = c->election_ms != 0 ? c->election_ms : CLUSTER_ELECTION_MS,
        .hold_ms = c->hold_ms != 0 ? c->hold_ms : CLUSTER_DEADLINE_MS,
        .snapshot_bytes = c->snapshot_bytes,
        .pending_max = c->pending_max,
        .log_segment_bytes = c->log_segment_bytes,
    };
    struct node_callbacks cbs = {.ctx = cn,
                                 .event = event_cb,
                                 .leadership = leadership_cb,
                                 .push = push_cb,
                                 .fatal = fatal_cb,
                                 .log = log_cb};
    assert_null(cn->node);
    cn->fatal = 0;
    return node_create(&c->loop, &config, &cbs, &cn->node, errmsg, errmsg_size);
}

void cluster_start(struct cluster *c, unsigned i)
{
    char errmsg[1024] = "";
    if (cluster_try_start(c, i, errmsg, sizeof errmsg) != 0) {
        fail_msg("node %u: %s", i + 1, errmsg);
    }
}

void cluster_start_all(struct cluster *c)
{
    for (unsigned i = 0; i < c->n; i++) {
        cluster_start(c, i);
    }
}

static void stopped_cb(void *ctx)
{
    struct cluster_node *cn = ctx;
    node_destroy(cn->node);
    cn->node = NULL;
    cn->stopping = false;
}

static bool is_down(void *ctx)
{
    struct cluster_node *cn = ctx;
    return cn->node == NULL;
}

void cluster_stop_begin(struct cluster *c, unsigned i, unsigned drain_ms)
{
    if (!c->nodes[i].stopping) {
        c->nodes[i].stopping = true;
        node_stop(c->nodes[i].node, drain_ms, stopped_cb, &c->nodes[i]);
    }
}

void cluster_stop(struct cluster *c, unsigned i, unsigned drain_ms)
{
    if (c->nodes[i].node == NULL) {
        return; /* it was told before, and is through */
    }
    cluster_stop_begin(c, i, drain_ms);
    cluster_until(c, is_down, &c->nodes[i], "a node has stopped");
}

static void late_cb(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
    uv_stop(timer->loop); /* uv_run() calls what is due before it waits, and would then wait on */
}

static bool never(void *ctx)
{
    return false;
}

static bool run_until(struct cluster *c, bool (*condition)(void *ctx), void *ctx, unsigned ms)
{
    uv_timer_t timer;
    bool late = false;
    uv_update_time(&c->loop);
    uv_timer_init(&c->loop, &timer);
    timer.data = &late;
    uv_timer_start(&timer, late_cb, ms, 0);
    bool met = condition(ctx);
    while (!met && !late) {
        uv_run(&c->loop, UV_RUN_ONCE);
        met = condition(ctx);
    }
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&c->loop, UV_RUN_NOWAIT);
    return met; /* it need not last */
}

void cluster_until(struct cluster *c, bool (*condition)(void *ctx), void *ctx, const char *what)
{
    if (!run_until(c, condition, ctx, CLUSTER_DEADLINE_MS)) {
        fail_msg("it never came that %s", what);
    }
}

void cluster_run_ms(struct cluster *c, unsigned ms)
{
    (void)run_until(c, never, NULL, ms);
}

/* Each node has the first entry on its disk, and a stream of messages to each other. */
static bool has_streams(void *ctx)
{
    struct cluster *c = ctx;
    for (unsigned i = 0; i < c->n; i++) {
        const struct replica *r = c->nodes[i].node->replica;
        if (replica_last_index(r) == 0 ||
            log_durable_index(c->nodes[i].node->log) < replica_last_index(r)) {
            return false;
        }
        for (unsigned j = 0; j < c->n; j++) {
            if (i != j && !peers_is_up(&c->nodes[i].node->peers, j + 1)) {
                return false;
            }
        }
    }
    return true;
}

void cluster_call_election(struct cluster *c, unsigned i)
{
    struct replica *r = c->nodes[i].node->replica;
    cluster_until(c, has_streams, c, "each node is connected to each other");
    assert_true(replica_role(r) == REPLICA_LEADER || replica_campaign(r, fli_clock_ms()));
}

int cluster_leader(struct cluster *c)
{
    int leader = -1;
    uint64_t term = 0;
    for (unsigned i = 0; i < c->n; i++) {
        struct node_status s;
        if (c->nodes[i].node == NULL || c->nodes[i].stopping) {
            continue;
        }
        node_get_status(c->nodes[i].node, &s);
        if (s.role == NODE_LEADER && s.term >= term) {
            leader = (int)i;
            term = s.term;
        }
    }
    return leader;
}

static bool has_leader(void *ctx)
{
    struct cluster *c = ctx;
    int leader = cluster_leader(c);
    if (leader < 0) {
        return false;
    }
    for (unsigned i = 0; i < c->n; i++) {
        struct node_status s;
        if (c->nodes[i].node == NULL || c->nodes[i].stopping) {
            continue;
        }
        node_get_status(c->nodes[i].node, &s);
        if (s.leader_id != (uint64_t)leader + 1) {
            return false;
        }
    }
    return true;
}

unsigned cluster_wait_leader(struct cluster *c)
{
    cluster_until(c, has_leader, c, "all nodes agree on a leader");
    return (unsigned)cluster_leader(c);
}

/* In the machines, and in the files, which follow. */
static bool is_formed(void *ctx)
{
    struct cluster *c = ctx;
    for (unsigned i = 0; i < c->n; i++) {
        struct node *n = c->nodes[i].node;
        if (n != NULL && (machine_cluster_id(node_machine(n)) == 0 ||
                          n->record.own.now.identity.cluster_id == 0)) {
            return false;
        }
    }
    return true;
}

void cluster_wait_formed(struct cluster *c)
{
    cluster_until(c, is_formed, c, "the cluster is formed");
}

static bool is_level(void *ctx)
{
    struct cluster *c = ctx;
    int leader = cluster_leader(c);
    struct node_status first;
    if (leader < 0) {
        return false;
    }
    node_get_status(c->nodes[leader].node, &first);
    for (unsigned i = 0; i < c->n; i++) {
        struct node_status s;
        if (c->nodes[i].node == NULL) {
            continue;
        }
        node_get_status(c->nodes[i].node, &s);
        if (s.applied_index != first.last_index) {
            return false;
        }
    }
    return true;
}

void cluster_wait_caught_up(struct cluster *c)
{
    cluster_until(c, is_level, c, "all nodes have applied the same");
}

void cluster_expect_same_hash(struct cluster *c)
{
    uint64_t hash = 0;
    bool any = false;
    cluster_wait_caught_up(c);
    for (unsigned i = 0; i < c->n; i++) {
        if (c->nodes[i].node == NULL) {
            continue;
        }
        uint64_t one = machine_hash(node_machine(c->nodes[i].node));
        machine_check(node_machine(c->nodes[i].node));
        assert_true(!any || one == hash);
        hash = one;
        any = true;
    }
    assert_true(any);
}

/* ---- commands ---- */

void op_init(struct op *op)
{
    memset(op, 0, sizeof *op);
}

static void answered_cb(struct node_ticket *t, int status, const struct machine_result *result,
                        struct fli_slice payload)
{
    struct op *op = FLI_CONTAINER_OF(t, struct op, ticket);
    op->answers++;
    op->status = status;
    if (status == 0) {
        op->result = *result;
        op->payload_len = payload.len;
        if (payload.len > 0) {
            memcpy(op->payload, payload.data,
                   payload.len < sizeof op->payload ? payload.len : sizeof op->payload);
        }
    }
    if (op->outstanding != NULL) {
        (*op->outstanding)--;
    }
}

int op_submit(struct cluster *c, unsigned i, const struct machine_command *cmd, struct op *op)
{
    struct fli_buf buf;
    fli_buf_init(&buf, MACHINE_COMMAND_MAX);
    assert_int_equal(machine_command_check(cmd), 0);
    assert_int_equal(machine_command_encode(cmd, &buf), 0);
    op->answers = 0;
    int rv = node_submit(c->nodes[i].node, &op->ticket, buf.data, buf.len, answered_cb);
    assert_int_equal(op->answers, 0);
    fli_buf_fini(&buf);
    return rv;
}

static bool is_answered(void *ctx)
{
    struct op *op = ctx;
    return op->answers > 0;
}

void op_wait(struct cluster *c, struct op *op)
{
    cluster_until(c, is_answered, op, "a command is answered");
    assert_int_equal(op->answers, 1);
}

void op_run(struct cluster *c, unsigned i, const struct machine_command *cmd, struct op *op)
{
    op_init(op);
    assert_int_equal(op_submit(c, i, cmd, op), 0);
    op_wait(c, op);
}

static struct fli_slice text(const char *s)
{
    return (struct fli_slice){(const uint8_t *)s, strlen(s)};
}

struct machine_command cmd_acquire(const char *name, const char *owner, uint64_t ttl_ms,
                                   uint64_t wait_ms)
{
    return (struct machine_command){.op = MACHINE_OP_ACQUIRE,
                                    .flags = wait_ms != 0 ? MACHINE_ACQUIRE_WAIT : 0,
                                    .n_names = 1,
                                    .permits = 1,
                                    .name = text(name),
                                    .owner = text(owner),
                                    .ttl_ms = ttl_ms,
                                    .wait_ms = wait_ms};
}

struct machine_command cmd_release(const char *name, uint64_t token)
{
    return (struct machine_command){.op = MACHINE_OP_RELEASE, .name = text(name), .token = token};
}

struct machine_command cmd_check(const char *name, uint64_t token)
{
    return (struct machine_command){.op = MACHINE_OP_CHECK, .name = text(name), .token = token};
}

struct machine_command cmd_show(const char *name)
{
    return (struct machine_command){.op = MACHINE_OP_SHOW, .name = text(name)};
}

struct machine_command cmd_token(const char *name)
{
    return (struct machine_command){.op = MACHINE_OP_TOKEN, .name = text(name)};
}

int cluster_set_up(void **state)
{
    *state = test_calloc(1, sizeof(struct cluster));
    return 0;
}

int cluster_tear_down(void **state)
{
    cluster_fini(*state);
    test_free(*state);
    return 0;
}

static void form(struct cluster *c, unsigned election_ms)
{
    c->election_ms = election_ms;
    cluster_start_all(c);
    if (c->n > 1) {
        cluster_call_election(c, c->n - 1);
    }
    cluster_wait_formed(c);
    cluster_wait_leader(c);
}

void cluster_form(struct cluster *c)
{
    form(c, CLUSTER_ELECTION_LONG_MS);
}

struct cluster *cluster_up(void **state, unsigned n)
{
    cluster_init(*state, n);
    cluster_form(*state);
    return *state;
}

struct cluster *cluster_up_electing(void **state, unsigned n)
{
    cluster_init(*state, n);
    form(*state, CLUSTER_ELECTION_MS);
    return *state;
}

void op_run_at_last(struct cluster *c, unsigned i, const struct machine_command *cmd, struct op *op)
{
    uint64_t until_ms = fli_clock_ms() + CLUSTER_DEADLINE_MS;
    do {
        assert_true(fli_clock_ms() < until_ms);
        op_run(c, i, cmd, op);
    } while (op->status == FL_ENOLEADER || op->status == FL_EUNCERTAIN);
}

uint64_t cluster_acquire(struct cluster *c, unsigned i, const char *name, const char *owner)
{
    struct op op;
    struct machine_command cmd = cmd_acquire(name, owner, 600000, 0);
    uint64_t until_ms = fli_clock_ms() + CLUSTER_DEADLINE_MS;
    do {
        assert_true(fli_clock_ms() < until_ms);
        op_run(c, i, &cmd, &op);
    } while (op.status == FL_EUNCERTAIN && c->election_ms != CLUSTER_ELECTION_LONG_MS);
    assert_int_equal(op.status, 0);
    assert_int_equal(op.result.code, MACHINE_GRANTED);
    return op.result.token;
}

void cluster_check(struct cluster *c, unsigned i, const char *name, uint64_t token,
                   enum machine_code code)
{
    struct op op;
    struct machine_command cmd = cmd_check(name, token);
    op_run(c, i, &cmd, &op);
    assert_int_equal(op.status, 0);
    assert_int_equal(op.result.code, code);
}

unsigned cluster_other_than(const struct cluster *c, unsigned i)
{
    return (i + 1) % c->n;
}

void cluster_count_cb(void *ctx, int status)
{
    struct cluster_count *count = ctx;
    count->calls++;
    count->status = status;
}

bool cluster_counted(void *ctx)
{
    struct cluster_count *count = ctx;
    return count->calls > 0;
}

bool cluster_misses_one(void *ctx)
{
    struct cluster *c = ctx;
    struct node_member m[MEMBERS_MAX];
    size_t n = node_members(c->nodes[cluster_leader(c)].node, m, MEMBERS_MAX);
    unsigned connected = 0;
    for (size_t i = 0; i < n; i++) {
        connected += m[i].connected;
    }
    return connected == 2;
}
