/* The ends of waits that were relayed, told ahead of the log. */
#include "../../lib/unit.h"

#include "base/clock.h"
#include "cluster.h"
#include "../../lib/scratch.h"

static bool push_came(void *ctx)
{
    struct cluster_node *cn = ctx;
    return cn->pushed > 0;
}

static bool log_came(void *ctx)
{
    struct cluster_node *cn = ctx;
    return cn->log_wait != 0;
}

/* Lets somebody wait for the lock by way of this node. Returns the number of the wait. */
static uint64_t wait_at(struct cluster *c, unsigned node)
{
    struct op op;
    struct machine_command wait = cmd_acquire("a", "owner-2", 600000, 600000);
    op_run(c, node, &wait, &op);
    assert_int_equal(op.result.code, MACHINE_QUEUED);
    return op.result.wait;
}

TEST_WITH(test_push, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned follower = cluster_other_than(c, leader);
    struct op op;
    uint64_t token = cluster_acquire(c, leader, "a", "owner-1");
    struct machine_command release = cmd_release("a", token);
    uint64_t id = wait_at(c, follower);
    assert_int_equal(c->nodes[follower].pushed, 0);
    op_run(c, leader, &release, &op);
    assert_int_equal(op.result.code, MACHINE_DONE);
    cluster_until(c, push_came, &c->nodes[follower], "the follower is told ahead");
    assert_int_equal(c->nodes[follower].pushed_type, MACHINE_EVENT_GRANTED);
    assert_int_equal(c->nodes[follower].pushed_wait, id);
    cluster_until(c, log_came, &c->nodes[follower], "the log tells it as well");
    assert_int_equal(c->nodes[follower].log_wait, id);
    assert_int_equal(c->nodes[follower].pushed, 1);
    assert_int_equal(c->nodes[leader].pushed, 0);
}

/* The leader does not remember which stream a wait came over. */
TEST_WITH(test_push_over_the_next_stream, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned follower = cluster_other_than(c, leader);
    struct op op;
    uint64_t token = cluster_acquire(c, leader, "a", "owner-1");
    struct machine_command release = cmd_release("a", token);
    struct machine_command other = cmd_token("t");
    uint64_t id = wait_at(c, follower);
    cluster_stop(c, follower, 0);
    cluster_start(c, follower);
    op_run(c, follower, &other, &op);
    assert_int_equal(op.status, 0);
    op_run(c, leader, &release, &op);
    assert_int_equal(op.result.code, MACHINE_DONE);
    op_run(c, follower, &other, &op); /* its answer comes behind what is pushed */
    assert_int_equal(op.status, 0);
    assert_int_equal(c->nodes[follower].pushed, 1);
    assert_int_equal(c->nodes[follower].pushed_wait, id);
}

static bool all_push_came(void *ctx)
{
    struct cluster_node *cn = ctx;
    return cn->pushed == 2;
}

/* Waits that are older than the term of the leader. */
TEST_WITH(test_push_after_a_change_of_leader, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    struct op op;
    uint64_t token = cluster_acquire(c, leader, "a", "owner-1");
    for (unsigned i = 1; i < 3; i++) {
        struct machine_command wait =
            cmd_acquire("a", i == 1 ? "owner-2" : "owner-3", 600000, 600000);
        op_run(c, (leader + i) % 3, &wait, &op);
        assert_int_equal(op.result.code, MACHINE_QUEUED);
    }
    cluster_stop(c, leader, 0);
    unsigned next = cluster_wait_leader(c);
    unsigned follower = 3 - leader - next;
    assert_int_equal(c->nodes[follower].pushed, 0);
    for (unsigned i = 0; i < 2; i++) {
        struct machine_command release = cmd_release("a", token + i);
        op_run(c, next, &release, &op);
        assert_int_equal(op.result.code, MACHINE_DONE);
    }
    cluster_until(c, all_push_came, &c->nodes[follower], "the follower is told ahead");
    assert_int_equal(c->nodes[follower].pushed_type, MACHINE_EVENT_GRANTED);
    assert_int_equal(c->nodes[next].pushed, 0);
}

/* Fills the log until node i has a snapshot of what is committed now. */
static void snapshot_of_now(struct cluster *c, unsigned i)
{
    static const uint8_t value[FL_VALUE_MAX];
    struct node_status s;
    struct op op;
    unsigned leader = cluster_wait_leader(c);
    node_get_status(c->nodes[leader].node, &s);
    uint64_t now = s.commit_index;
    uint64_t until_ms = fli_clock_ms() + CLUSTER_DEADLINE_MS; /* it is written by another process */
    for (unsigned k = 0; s.snapshot_index < now; k++) {
        char name[16];
        (void)snprintf(name, sizeof name, "lock-%u", k % 50);
        struct machine_command cmd = cmd_acquire(name, "owner-1", 600000, 0);
        cmd.value = (struct fli_slice){value, sizeof value};
        op_run(c, leader, &cmd, &op);
        assert_int_equal(op.status, 0);
        node_get_status(c->nodes[i].node, &s);
        assert_true(fli_clock_ms() < until_ms);
    }
}

/* Likewise waits that the new leader has from its own snapshot: it has not seen them begin. */
TEST_WITH(test_push_of_a_wait_in_a_snapshot, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = *state;
    struct op op;
    struct cluster_count count = {0, 1};
    cluster_init(c, 3);
    c->snapshot_bytes = 64 << 10;
    cluster_form(c);
    unsigned leader = cluster_wait_leader(c);
    unsigned follower = (leader + 1) % 3;
    unsigned next = (leader + 2) % 3;
    uint64_t token = cluster_acquire(c, leader, "a", "owner-1");
    struct machine_command wait = cmd_acquire("a", "owner-2", 600000, 600000);
    op_run(c, follower, &wait, &op);
    assert_int_equal(op.result.code, MACHINE_QUEUED);
    uint64_t id = op.result.wait;
    snapshot_of_now(c, next);
    cluster_stop(c, next, 0);
    cluster_start(c, next);
    cluster_wait_caught_up(c);
    assert_int_equal(node_transfer(c->nodes[leader].node, next + 1, cluster_count_cb, &count), 0);
    cluster_until(c, cluster_counted, &count, "leadership was handed over");
    assert_int_equal(cluster_wait_leader(c), next);
    assert_int_equal(c->nodes[follower].pushed, 0);
    struct machine_command release = cmd_release("a", token);
    op_run(c, next, &release, &op);
    assert_int_equal(op.result.code, MACHINE_DONE);
    cluster_until(c, push_came, &c->nodes[follower], "the follower is told ahead");
    assert_int_equal(c->nodes[follower].pushed_type, MACHINE_EVENT_GRANTED);
    assert_int_equal(c->nodes[follower].pushed_wait, id);
}
