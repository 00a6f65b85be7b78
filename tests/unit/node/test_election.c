/* A leader that is dead is replaced at once; one that lives is not, whatever its connections do.
 * The election time is set so long that nothing here waits for it. */
#include "../../lib/unit.h"

#include "../../lib/break_connections.h"
#include "base/clock.h"
#include "cluster.h"
#include "node/node_private.h"
#include "consensus/replica_private.h"

#define SUSPENDED_MS 86400000u

static _Atomic uint64_t suspended_ms = SUSPENDED_MS; /* a lane's thread reads it too */

uint64_t __real_fli_clock_ms(void);
uint64_t __wrap_fli_clock_ms(void);

/* As on a machine that was suspended for a day: the loop's clock stood still, and this one did
 * not. */
uint64_t __wrap_fli_clock_ms(void)
{
    return __real_fli_clock_ms() + suspended_ms;
}

static uint64_t campaigns(struct cluster *c)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < c->n; i++) {
        sum += c->nodes[i].node == NULL ? 0 : c->nodes[i].node->replica->edge.campaigns;
    }
    return sum;
}

static uint64_t term(struct cluster *c, unsigned i)
{
    struct node_status s;
    node_get_status(c->nodes[i].node, &s);
    return s.term;
}

static void replace_the_leader(void **state, unsigned n)
{
    struct cluster *c = cluster_up(state, n);
    unsigned leader = cluster_wait_leader(c);
    /* Followers have answered it, so that each has a stream that can break. */
    cluster_acquire(c, leader, "a", "owner-1");
    cluster_wait_caught_up(c);
    for (unsigned round = 0; round < 3; round++) {
        uint64_t term_before = term(c, leader);
        unsigned dead = leader;
        char name[2] = {(char)('b' + round), 0};
        cluster_stop(c, dead, 0);
        leader = cluster_wait_leader(c);
        assert_int_not_equal(leader, dead);
        assert_true(term(c, leader) > term_before);
        assert_true(campaigns(c) > 0); /* of those who are left */
        cluster_acquire(c, (dead + 1) % n, name, "owner-1");
        cluster_start(c, dead);
        cluster_wait_caught_up(c);
    }
    cluster_expect_same_hash(c);
}

TEST_WITH(test_a_dead_leader_is_replaced, cluster_set_up, cluster_tear_down)
{
    replace_the_leader(state, 3);
}

TEST_WITH(test_a_dead_leader_of_five, cluster_set_up, cluster_tear_down)
{
    replace_the_leader(state, 5);
}

/* Two of five die at once: when it is the dead follower's turn to call an election, nobody waits
 * for it. */
TEST_WITH(test_a_dead_leader_and_another, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 5);
    unsigned leader = cluster_wait_leader(c);
    cluster_acquire(c, leader, "a", "owner-1");
    cluster_wait_caught_up(c);
    unsigned other = leader == 0 ? 1 : 0;
    cluster_stop_begin(c, other, 0);
    cluster_stop(c, leader, 0);
    cluster_stop(c, other, 0);
    unsigned next = cluster_wait_leader(c);
    assert_true(next != leader && next != other);
    cluster_acquire(c, next, "b", "owner-1");
}

struct stream_to {
    struct node *n;
    uint64_t leader_id;
};

static bool has_stream(void *ctx)
{
    struct stream_to *s = ctx;
    return relay_has_leader(&s->n->relay, s->leader_id);
}

/* Every connection of every node breaks, again and again. */
TEST_WITH(test_broken_connections_depose_nobody, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    uint64_t campaigns_before = campaigns(c);
    uint64_t term_before = term(c, leader);
    for (unsigned round = 0; round < 5; round++) {
        unsigned broken = 0;
        char name[2] = {(char)('a' + round), 0};
        for (unsigned i = 0; i < 3; i++) {
            if (i != leader) {
                struct stream_to to = {c->nodes[i].node, leader + 1};
                cluster_until(c, has_stream, &to, "there is a stream to the leader");
            }
        }
        broken += break_connections(&c->loop);
        assert_true(broken >= 4);
        cluster_acquire(c, (leader + 1) % 3, name, "owner-1");
        cluster_wait_caught_up(c);
    }
    assert_int_equal(cluster_wait_leader(c), leader);
    assert_int_equal(term(c, leader), term_before);
    assert_int_equal(campaigns(c), campaigns_before);
}

/* A follower believes, wrongly, that the leader is dead. */
TEST_WITH(test_a_live_leader_stays, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned wrong = (leader + 1) % 3;
    uint64_t term_before = term(c, leader);
    election_peer_absent(&c->nodes[wrong].node->election, leader + 1);
    cluster_run_ms(c, 300);
    /* Not even when it does call an election. */
    (void)replica_campaign(c->nodes[wrong].node->replica, fli_clock_ms());
    cluster_acquire(c, wrong, "a", "owner-1");
    assert_int_equal(cluster_wait_leader(c), leader);
    assert_int_equal(term(c, leader), term_before);
}

#define SILENCE_MS 300u

/* Its process is there and its connections are open, but it does nothing. */
static void stand_still(struct node *n)
{
    uv_check_stop(&n->loop.check);
    uv_prepare_stop(&n->loop.prepare);
    uv_timer_stop(&n->loop.timer);
    uv_timer_stop(&n->loop.tick);
    uv_idle_stop(&n->loop.idle);
    n->loop.woken = false;
}

struct silence {
    struct cluster *cluster;
    unsigned leader;
};

static bool another_leads(void *ctx)
{
    const struct silence *s = ctx;
    for (unsigned i = 0; i < s->cluster->n; i++) {
        const struct node *n = s->cluster->nodes[i].node;
        if (i != s->leader && replica_role(n->replica) == REPLICA_LEADER) {
            return true;
        }
    }
    return false;
}

/* How long a leader may be silent. */
static void wait_for_leaders(struct cluster *c, unsigned ms)
{
    for (unsigned i = 0; i < c->n; i++) {
        c->nodes[i].node->election.election_ms = ms;
        c->nodes[i].node->replica->edge.election_ms = ms;
    }
}

/* The core's own timers are much longer, so only the turns of election.h can end the silence. */
TEST_WITH(test_a_silent_leader_is_replaced, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    cluster_acquire(c, leader, "a", "owner-1");
    cluster_wait_caught_up(c);
    uint64_t campaigns_before = campaigns(c);
    unsigned longest = c->nodes[leader].node->election.election_ms;
    wait_for_leaders(c, SILENCE_MS);
    stand_still(c->nodes[leader].node);
    struct silence s = {c, leader};
    cluster_until(c, another_leads, &s, "another node leads");
    assert_true(campaigns(c) > campaigns_before);
    wait_for_leaders(c, longest);
    node_loop_start(c->nodes[leader].node);
    cluster_wait_caught_up(c);
    assert_int_not_equal(cluster_wait_leader(c), leader);
    cluster_acquire(c, leader, "b", "owner-1");
    cluster_expect_same_hash(c);
}

static bool is_found_gone(void *ctx)
{
    const struct stream_to *s = ctx;
    return peers_find(&s->n->peers, s->leader_id)->gone;
}

/* Longer than one that is gone has to be; or it is given up. */
static bool is_silent(void *ctx)
{
    const struct node *n = ctx;
    return replica_leader(n->replica) == 0 ||
           replica_silence_ms(n->replica, fli_clock_ms()) >= 3 * n->election.heartbeat_ms;
}

/* A follower is gone, and the leader is silent for less than an election time. */
TEST_WITH(test_a_follower_that_is_gone_replaces_no_leader, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned gone = (leader + 1) % 3;
    struct node *left = c->nodes[(leader + 2) % 3].node;
    cluster_acquire(c, leader, "a", "owner-1");
    cluster_wait_caught_up(c);
    uint64_t campaigns_before = left->replica->edge.campaigns;
    cluster_stop(c, gone, 0);
    struct stream_to s = {left, gone + 1};
    cluster_until(c, is_found_gone, &s, "it is found that nobody listens there");
    stand_still(c->nodes[leader].node);
    cluster_until(c, is_silent, left, "the leader is silent");
    cluster_run_ms(c, 100); /* all turns of an election */
    uint64_t replaces = left->election.gone_id;
    bool impatient = left->replica->edge.leader_gone;
    node_loop_start(c->nodes[leader].node);
    assert_int_equal(replaces, 0);
    assert_false(impatient);
    assert_int_equal(left->replica->edge.campaigns, campaigns_before);
    assert_int_equal(cluster_wait_leader(c), leader);
}

static bool rounds_are_over(void *ctx)
{
    const struct silence *s = ctx;
    const struct node *n = s->cluster->nodes[s->leader].node;
    return campaigns(s->cluster) > 0 && n->election.gone_id == 0 && replica_leader(n->replica) == 0;
}

/* A node that found no majority in all its rounds asks again as soon as it hears another node. */
TEST_WITH(test_rounds_in_vain, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned left = (leader + 1) % 3;
    unsigned other = (leader + 2) % 3;
    cluster_acquire(c, leader, "a", "owner-1");
    cluster_wait_caught_up(c);
    cluster_stop(c, other, 0);
    cluster_stop(c, leader, 0);
    struct silence s = {c, left};
    cluster_until(c, rounds_are_over, &s, "the rounds are over");
    uint64_t campaigns_before = campaigns(c);
    cluster_start(c, other);
    assert_int_equal(cluster_wait_leader(c), left);
    assert_true(campaigns(c) > campaigns_before);
    cluster_acquire(c, other, "b", "owner-1");
}

static bool goes_by_the_setting(void *ctx)
{
    const struct cluster *c = ctx;
    for (unsigned i = 0; i < c->n; i++) {
        if (c->nodes[i].node->election.election_ms != CLUSTER_ELECTION_MS / 2) {
            return false;
        }
    }
    return true;
}

/* Whoever has stood still for long was not without a leader for so long: the cluster's election
 * time is not why. A node that leads would never go back to it. */
static void stand_still_for_long(void **state, unsigned n, bool forget)
{
    struct cluster *c = cluster_up_electing(state, n);
    struct machine_command set = {.op = MACHINE_OP_SETTING_SET,
                                  .number = MACHINE_SETTING_ELECTION,
                                  .number2 = CLUSTER_ELECTION_MS / 2};
    struct op op;
    op_run_at_last(c, 0, &set, &op);
    cluster_until(c, goes_by_the_setting, c, "the election time is set");
    suspended_ms += 100 * CLUSTER_ELECTION_MS;
    for (unsigned i = 0; i < n && forget; i++) {
        raft_edge_forget_leader(&c->nodes[i].node->replica->edge);
    }
    for (unsigned ms = 0; ms < CLUSTER_ELECTION_MS; ms++) {
        cluster_run_ms(c, 1);
        for (unsigned i = 0; i < n; i++) {
            assert_false(c->nodes[i].node->watch.own.own_election);
        }
    }
}

TEST_WITH(test_the_setting_survives_a_pause_alone, cluster_set_up, cluster_tear_down)
{
    stand_still_for_long(state, 1, false);
}

TEST_WITH(test_the_setting_survives_a_pause_of_all, cluster_set_up, cluster_tear_down)
{
    stand_still_for_long(state, 3, false);
}

/* What waited in its sockets deposes the leader before the first turn. */
TEST_WITH(test_the_setting_survives_a_pause_and_its_leader, cluster_set_up, cluster_tear_down)
{
    stand_still_for_long(state, 3, true);
}

/* ---- a disk that does not answer ---- */

static struct log_device_ops ops;
static const struct log_device_ops *real;
static struct log_io *held; /* a write that the disk does not finish */

static void start_or_hold(struct log_device *d, enum log_lane lane, struct log_io *io)
{
    if (lane == LOG_LANE_WRITE && held == NULL) {
        held = io;
    } else {
        real->start(d, lane, io);
    }
}

static uint64_t now_ns(struct log_device *d)
{
    return real->now_ns(d) + suspended_ms * 1000000;
}

static bool is_held(void *ctx)
{
    return held != NULL;
}

static bool hangs(void *ctx)
{
    const struct node *n = ctx;
    return n->watch.own.disk_hangs;
}

/* What it has done while the machine was suspended is read after the first tick. */
TEST_WITH(a_suspend_is_no_disk_that_hangs, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 1);
    struct node *n = c->nodes[0].node;
    struct machine_command cmd = cmd_token("a");
    struct op op;
    real = n->loop.device->ops;
    ops = *real;
    ops.start = start_or_hold;
    ops.now_ns = now_ns;
    n->loop.device->ops = &ops;
    op_init(&op);
    assert_int_equal(op_submit(c, 0, &cmd, &op), 0);
    cluster_until(c, is_held, NULL, "a write has begun");
    suspended_ms += 5000;
    node_watch_tick(n);
    assert_false(hangs(n));
    cluster_until(c, hangs, n, "the disk still does not answer");
    real->start(n->loop.device, LOG_LANE_WRITE, held);
    op_wait(c, &op);
}

/* A tick may come before what waits in the sockets: then silence means nothing. */
TEST_WITH(a_suspend_is_no_silence_of_the_leader, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up_electing(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned i = cluster_other_than(c, leader);
    struct node *n = c->nodes[i].node;
    (void)cluster_acquire(c, i, "a", "owner-1");
    assert_true(relay_has_leader(&n->relay, leader + 1));
    suspended_ms += 10 * CLUSTER_ELECTION_MS;
    n->loop.tick.timer_cb(&n->loop.tick);
    assert_true(relay_has_leader(&n->relay, leader + 1));
}
