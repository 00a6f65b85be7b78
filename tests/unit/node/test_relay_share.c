/* test_relay_share.c: the part of a relay's window that only renewals, releases and cancels may
 * use. All nodes share one loop, so when the follower takes its turn for the second time, the
 * leader has read the commands and cannot have answered any. */
#include "../../lib/unit.h"

#include "cluster.h"
#include "commands/commands.h"
#include "commands/relay_codec.h"
#include "machine/batch.h"

/* As relay.c has them. */
enum {
    BYTES_MAX = 4 << 20,
    BYTES_FOR_ALL = BYTES_MAX - COMMANDS_URGENT(BYTES_MAX),
    FOR_ALL = RELAY_WINDOW - COMMANDS_URGENT(RELAY_WINDOW),
    QUERIES_MAX = 256,
};

struct load {
    struct cluster *c;
    unsigned follower;
    uint64_t before; /* commands relayed before the load came */
    struct op *ops;
    unsigned n;
};

static uint64_t relayed(const struct load *w)
{
    struct node_status s;
    node_get_status(w->c->nodes[w->follower].node, &s);
    return s.relayed - w->before;
}

static void load_up(struct load *w, void **state, unsigned n)
{
    w->c = cluster_up(state, 3);
    w->follower = cluster_other_than(w->c, cluster_wait_leader(w->c));
    cluster_acquire(w->c, w->follower, "warm", "owner-1"); /* the stream is up */
    w->before = 0;
    w->before = relayed(w);
    w->n = n;
    w->ops = test_calloc(n, sizeof *w->ops);
}

static size_t encoded_size(const struct machine_command *cmd)
{
    struct fli_buf buf;
    fli_buf_init(&buf, MACHINE_COMMAND_MAX);
    assert_int_equal(machine_command_encode(cmd, &buf), 0);
    size_t size = buf.len;
    fli_buf_fini(&buf);
    return size;
}

/* Submits the command n times, from 100 clients, and lets every node take one turn. */
static void load_comes(struct load *w, const struct machine_command *cmd)
{
    for (unsigned i = 0; i < w->n; i++) {
        op_init(&w->ops[i]);
        w->ops[i].ticket.source = 1 + i % 100;
        assert_int_equal(op_submit(w->c, w->follower, cmd, &w->ops[i]), 0);
    }
    uv_run(&w->c->loop, UV_RUN_NOWAIT);
}

/* With the window full for everybody else: who renews is sent at once, who asks for more is not. */
static void only_urgent_ones_are_sent(struct load *w)
{
    struct op renewal, other;
    struct machine_command renew = {
        .op = MACHINE_OP_RENEW, .name = {(const uint8_t *)"warm", 4}, .token = 1};
    struct machine_command token = cmd_token("t");
    uint64_t sent = relayed(w);
    op_init(&renewal);
    op_init(&other);
    renewal.ticket.source = 1001;
    other.ticket.source = 1002;
    assert_int_equal(op_submit(w->c, w->follower, &token, &other), 0);
    assert_int_equal(op_submit(w->c, w->follower, &renew, &renewal), 0);
    uv_run(&w->c->loop, UV_RUN_NOWAIT);
    assert_int_equal(relayed(w), sent + 1);
    op_wait(w->c, &renewal);
    assert_int_equal(renewal.status, 0);
    assert_int_equal(renewal.result.code, MACHINE_DONE);
    op_wait(w->c, &other);
    assert_int_equal(other.result.code, MACHINE_DONE);
    for (unsigned i = 0; i < w->n; i++) {
        op_wait(w->c, &w->ops[i]);
        assert_int_equal(w->ops[i].status, 0);
    }
    test_free(w->ops);
}

TEST_WITH(a_part_of_the_commands, cluster_set_up, cluster_tear_down)
{
    struct load w;
    struct machine_command cmd = cmd_token("t");
    load_up(&w, state, RELAY_WINDOW + 100);
    load_comes(&w, &cmd);
    assert_int_equal(relayed(&w), FOR_ALL);
    only_urgent_ones_are_sent(&w);
}

TEST_WITH(a_part_of_the_bytes, cluster_set_up, cluster_tear_down)
{
    struct load w;
    char names[MACHINE_NAMES_MAX][FL_NAME_MAX + 1];
    uint8_t also[MACHINE_ALSO_SIZE];
    uint8_t value[FL_VALUE_MAX] = {0};
    size_t len = 0;
    for (unsigned i = 0; i < MACHINE_NAMES_MAX; i++) {
        (void)snprintf(names[i], sizeof names[i], "%0*u", (int)FL_NAME_MAX, i);
        if (i > 0) {
            struct fli_slice name = {(const uint8_t *)names[i], FL_NAME_MAX};
            len = machine_also_add(also, len, name);
        }
    }
    struct machine_command cmd = cmd_acquire(names[0], "owner-1", 600000, 0);
    cmd.n_names = MACHINE_NAMES_MAX;
    cmd.also = (struct fli_slice){also, len};
    cmd.value = (struct fli_slice){value, sizeof value};
    size_t each = encoded_size(&cmd);
    /* Bytes are the narrower bound, not commands. */
    assert_true(BYTES_FOR_ALL / each < FOR_ALL);
    load_up(&w, state, BYTES_MAX / (unsigned)each + 100);
    load_comes(&w, &cmd);
    assert_int_equal(relayed(&w), BYTES_FOR_ALL / each);
    only_urgent_ones_are_sent(&w);
}

/* As many queries as may be on their way keep nobody else's command. */
TEST_WITH(queries_hold_up_no_commands, cluster_set_up, cluster_tear_down)
{
    struct load w;
    struct op other;
    struct machine_command check = {.op = MACHINE_OP_CHECK, .name = {(const uint8_t *)"warm", 4}};
    struct machine_command token = cmd_token("t");
    load_up(&w, state, QUERIES_MAX + 200);
    load_comes(&w, &check);
    assert_int_equal(relayed(&w), QUERIES_MAX);
    op_init(&other);
    other.ticket.source = 1001;
    assert_int_equal(op_submit(w.c, w.follower, &token, &other), 0);
    uv_run(&w.c->loop, UV_RUN_NOWAIT);
    assert_int_equal(relayed(&w), QUERIES_MAX + 1);
    op_wait(w.c, &other);
    assert_int_equal(other.result.code, MACHINE_DONE);
    for (unsigned i = 0; i < w.n; i++) {
        op_wait(w.c, &w.ops[i]);
        assert_int_equal(w.ops[i].status, 0);
    }
    test_free(w.ops);
}
