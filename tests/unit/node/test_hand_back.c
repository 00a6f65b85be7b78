/* test_hand_back.c: whole nodes, one of which gives back what waited at it. What comes meanwhile
 * does not overtake that. The tests say when the log takes nothing. */
#include "../../lib/unit.h"

#include "cluster.h"
#include "members/membership_private.h"
#include "node/node_private.h"

static const struct replica *full; /* the log of this one takes no entries */
static bool no_term_begins;        /* nor the first of a term, of any */

int __real_replica_submit(struct replica *r, uint64_t now_ms, const void *data, size_t len);
int __wrap_replica_submit(struct replica *r, uint64_t now_ms, const void *data, size_t len);

int __wrap_replica_submit(struct replica *r, uint64_t now_ms, const void *data, size_t len)
{
    return r == full ? FL_EBUSY : __real_replica_submit(r, now_ms, data, len);
}

int __real_replica_barrier(struct replica *r, uint64_t now_ms);
int __wrap_replica_barrier(struct replica *r, uint64_t now_ms);

int __wrap_replica_barrier(struct replica *r, uint64_t now_ms)
{
    return no_term_begins ? FL_EBUSY : __real_replica_barrier(r, now_ms);
}

/* With a value, so that its bytes tell it from what nodes submit themselves. */
static void submit(struct cluster *c, unsigned i, const char *name, struct op *op)
{
    static const uint8_t value[FL_VALUE_MAX];
    struct machine_command cmd = cmd_acquire(name, "owner-1", 600000, 0);
    cmd.value = (struct fli_slice){value, sizeof value};
    op_init(op);
    op->ticket.source = 1;
    assert_int_equal(op_submit(c, i, &cmd, op), 0);
}

static bool has_one(void *ctx)
{
    const struct node *n = ctx;
    return n->commands.bytes >= FL_VALUE_MAX;
}

/* How many commands of that client the node has without an answer, taken out or not. */
static unsigned count(const struct node *n, uint64_t source, bool out)
{
    unsigned found = 0;
    FLI_LIST_FOREACH(pos, &n->commands.own)
    {
        const struct command *c = FLI_CONTAINER_OF(pos, struct command, age);
        found += c->t->source == source && c->out == out;
    }
    return found;
}

static uint64_t sent; /* commands that the follower has sent before */

/* Both were sent, and one is back. */
static bool has_been_returned(void *ctx)
{
    const struct node *n = ctx;
    return n->relay.sent == sent + 2 && count(n, 1, false) == 1;
}

/* A later command of a client of another node comes back at once, and the leader still has an
 * earlier one: it is sent again when that has its answer. */
TEST_WITH(a_relayed_command_that_comes_back_first_overtakes_none, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned follower = cluster_other_than(c, leader);
    struct node *n = c->nodes[leader].node;
    struct op ops[2];
    cluster_acquire(c, follower, "a", "owner-1");
    sent = c->nodes[follower].node->relay.sent;
    full = n->replica;
    submit(c, follower, "b", &ops[0]);
    cluster_until(c, has_one, n, "the leader has the first command");
    n->commands.closed = true;
    submit(c, follower, "c", &ops[1]);
    cluster_until(c, has_been_returned, c->nodes[follower].node, "the second one is back");
    n->commands.closed = false;
    for (unsigned i = 0; i < 10; i++) {
        uv_run(&c->loop, UV_RUN_NOWAIT);
        assert_true(has_been_returned(c->nodes[follower].node));
    }
    full = NULL;
    for (unsigned i = 0; i < 2; i++) {
        op_wait(c, &ops[i]);
        assert_int_equal(ops[i].status, 0);
    }
    assert_true(ops[0].result.token < ops[1].result.token);
}

static bool has_followers(void *ctx)
{
    const struct node *n = ctx;
    unsigned connected = 0;
    for (unsigned i = 1; i <= 3; i++) {
        connected += relay_has_follower(&n->relay, i);
    }
    return connected == 2;
}

/* A leader whose log is full has `n` commands, each of another client, then an operator's change of
 * members; and leadership goes to another node. All is done by that one but for the change, which
 * was surely not done. */
static void change_behind(struct cluster *c, unsigned n)
{
    unsigned leader = cluster_wait_leader(c);
    struct node *node = c->nodes[leader].node;
    struct op *ops = test_calloc(n, sizeof *ops);
    struct machine_command cmd = cmd_token("t");
    const struct node_change add = {.kind = NODE_CHANGE_ADD, .id = 9, .address = "127.0.0.1:9"};
    struct cluster_count changed = {0, 1}, transferred = {0, 1};
    cluster_until(c, has_followers, node, "the others have streams to the leader");
    cluster_wait_caught_up(c);
    full = node->replica;
    for (unsigned i = 0; i < n; i++) {
        ops[i].ticket.source = 1 + i;
        assert_int_equal(op_submit(c, leader, &cmd, &ops[i]), 0);
    }
    assert_int_equal(node_change(node, &add, cluster_count_cb, &changed), 0);
    assert_int_equal(node_transfer(node, 0, cluster_count_cb, &transferred), 0);
    cluster_until(c, cluster_counted, &changed, "the operator is answered");
    full = NULL;
    assert_int_equal(changed.status, FL_ENOLEADER);
    for (unsigned i = 0; i < n; i++) {
        op_wait(c, &ops[i]);
        assert_int_equal(ops[i].status, 0);
    }
    cluster_until(c, cluster_counted, &transferred, "leadership was handed over");
    assert_int_equal(changed.calls, 1);
    assert_false(node->membership->operation.active);
    test_free(ops);
}

TEST_WITH(a_change_that_was_not_proposed, cluster_set_up, cluster_tear_down)
{
    change_behind(cluster_up(state, 3), 1);
}

/* Nor does the operator wait for what stands before his change. */
TEST_WITH(a_change_in_a_long_line, cluster_set_up, cluster_tear_down)
{
    change_behind(cluster_up(state, 3), 3 * COMMANDS_EXPIRED_MAX);
}

static bool has_bound(void *ctx)
{
    const struct node *n = ctx;
    return !fli_list_empty(&n->commands.bound);
}

static unsigned former; /* leader */

static bool another_leads(void *ctx)
{
    int leader = cluster_leader(ctx);
    return leader >= 0 && (unsigned)leader != former;
}

/* A new leader does not begin, and nobody else can lead. What a follower has passed on to it ends
 * when it has waited for as long as it may, and was surely not done. */
TEST_WITH(a_leader_that_does_not_begin_gives_back, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = *state;
    struct cluster_count transferred = {0, 1};
    struct op ops[3];
    cluster_init(c, 3);
    c->hold_ms = 500;
    cluster_form(c);
    former = cluster_wait_leader(c);
    struct node *n = c->nodes[former].node;
    cluster_until(c, has_followers, n, "the others have streams to the leader");
    cluster_wait_caught_up(c);
    no_term_begins = true;
    assert_int_equal(node_transfer(n, 0, cluster_count_cb, &transferred), 0);
    cluster_until(c, another_leads, c, "another node leads");
    n = c->nodes[cluster_leader(c)].node;
    for (unsigned i = 0; i < 3; i++) {
        char name[2] = {(char)('a' + i), '\0'};
        submit(c, former, name, &ops[i]);
    }
    cluster_until(c, has_bound, n, "the new leader has what was passed on");
    for (unsigned i = 0; i < 3; i++) {
        op_wait(c, &ops[i]);
        assert_int_equal(ops[i].status, FL_ENOLEADER);
    }
    assert_false(proposer_is_open(&n->proposer));
    no_term_begins = false;
    cluster_acquire(c, former, "a", "owner-2");
    cluster_until(c, cluster_counted, &transferred, "the transfer has ended");
}
