/* A leader that is dead is replaced at once; one that lives is not, whatever its connections do.
 * The election time is set so long that nothing here waits for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "../../lib/break_connections.h"
#include "base/clock.h"
#include "cluster.h"
#include "consensus/node_private.h"
#include "consensus/replica_private.h"

#define ELECTION_MS 60000u

static int set_up(void **state)
{
    *state = test_calloc(1, sizeof(struct cluster));
    return 0;
}

static int tear_down(void **state)
{
    cluster_fini(*state);
    test_free(*state);
    return 0;
}

static unsigned start_formed(struct cluster *c, unsigned n)
{
    cluster_init(c, n);
    c->election_ms = ELECTION_MS;
    cluster_start_all(c);
    cluster_call_election(c, n - 1);
    cluster_wait_formed(c);
    return cluster_wait_leader(c);
}

static void acquire(struct cluster *c, unsigned i, const char *name)
{
    struct op op;
    struct machine_command cmd = cmd_acquire(name, "owner-1", 600000, 0);
    op_run(c, i, &cmd, &op);
    assert_int_equal(op.status, 0);
    assert_int_equal(op.result.code, MACHINE_GRANTED);
}

static uint64_t campaigns(struct cluster *c)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < c->n; i++) {
        struct raft_edge_stats s;
        if (c->nodes[i].node != NULL) {
            replica_get_edge_stats(c->nodes[i].node->replica, &s);
            sum += s.campaigns;
        }
    }
    return sum;
}

static uint64_t term(struct cluster *c, unsigned i)
{
    struct node_status s;
    node_get_status(c->nodes[i].node, &s);
    return s.term;
}

static void replace_the_leader(struct cluster *c, unsigned n)
{
    unsigned leader = start_formed(c, n);
    /* Followers have answered it, so that each has a stream that can break. */
    acquire(c, leader, "a");
    cluster_wait_level(c);
    for (unsigned round = 0; round < 3; round++) {
        uint64_t term_before = term(c, leader);
        unsigned dead = leader;
        char name[2] = {(char)('b' + round), 0};
        cluster_stop(c, dead, 0);
        leader = cluster_wait_leader(c);
        assert_int_not_equal(leader, dead);
        assert_true(term(c, leader) > term_before);
        assert_true(campaigns(c) > 0); /* of those who are left */
        acquire(c, (dead + 1) % n, name);
        cluster_start(c, dead);
        cluster_wait_level(c);
    }
    cluster_expect_same_hash(c);
}

static void test_a_dead_leader_is_replaced(void **state)
{
    replace_the_leader(*state, 3);
}

static void test_a_dead_leader_of_five(void **state)
{
    replace_the_leader(*state, 5);
}

/* Two of five die at once: when it is the dead follower's turn to call an election, nobody waits
 * for it. */
static void test_a_dead_leader_and_another(void **state)
{
    struct cluster *c = *state;
    unsigned leader = start_formed(c, 5);
    acquire(c, leader, "a");
    cluster_wait_level(c);
    unsigned other = leader == 0 ? 1 : 0;
    cluster_stop_begin(c, other, 0);
    cluster_stop(c, leader, 0);
    cluster_stop(c, other, 0);
    unsigned next = cluster_wait_leader(c);
    assert_true(next != leader && next != other);
    acquire(c, next, "b");
}

struct stream_to {
    struct node *n;
    uint64_t leader_id;
};

static bool has_stream(void *ctx)
{
    struct stream_to *s = ctx;
    return relay_client_connected(s->n->relay, s->leader_id);
}

/* Every connection of every node breaks, again and again. */
static void test_broken_connections_depose_nobody(void **state)
{
    struct cluster *c = *state;
    unsigned leader = start_formed(c, 3);
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
        acquire(c, (leader + 1) % 3, name);
        cluster_wait_level(c);
    }
    assert_int_equal(cluster_wait_leader(c), leader);
    assert_int_equal(term(c, leader), term_before);
    assert_int_equal(campaigns(c), campaigns_before);
}

/* A follower believes, wrongly, that the leader is dead. */
static void test_a_live_leader_stays(void **state)
{
    struct cluster *c = *state;
    unsigned leader = start_formed(c, 3);
    unsigned wrong = (leader + 1) % 3;
    uint64_t term_before = term(c, leader);
    election_peer_absent(&c->nodes[wrong].node->election, leader + 1);
    cluster_run_ms(c, 300);
    /* Not even when it does call an election. */
    (void)replica_campaign(c->nodes[wrong].node->replica, fli_clock_ms());
    acquire(c, wrong, "a");
    assert_int_equal(cluster_wait_leader(c), leader);
    assert_int_equal(term(c, leader), term_before);
}

#define SILENCE_MS 300u

/* Its process is there and its connections are open, but it does nothing. */
static void stand_still(struct node *n)
{
    uv_check_stop(&n->check);
    uv_prepare_stop(&n->prepare);
    uv_timer_stop(&n->timer);
    uv_timer_stop(&n->tick);
    uv_idle_stop(&n->idle);
    n->woken = false;
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

/* The core's own timers are much longer, so only the turns of election.h can end the silence. */
static void test_a_silent_leader_is_replaced(void **state)
{
    struct cluster *c = *state;
    unsigned leader = start_formed(c, 3);
    acquire(c, leader, "a");
    cluster_wait_level(c);
    uint64_t campaigns_before = campaigns(c);
    for (unsigned i = 0; i < c->n; i++) {
        c->nodes[i].node->election.election_ms = SILENCE_MS;
        c->nodes[i].node->replica->edge.election_ms = SILENCE_MS;
    }
    stand_still(c->nodes[leader].node);
    struct silence s = {c, leader};
    cluster_until(c, another_leads, &s, "another node leads");
    assert_true(campaigns(c) > campaigns_before);
    node_turn_start(c->nodes[leader].node);
    cluster_wait_level(c);
    assert_int_not_equal(cluster_wait_leader(c), leader);
    acquire(c, leader, "b");
    cluster_expect_same_hash(c);
}

static bool rounds_are_over(void *ctx)
{
    const struct silence *s = ctx;
    const struct node *n = s->cluster->nodes[s->leader].node;
    return campaigns(s->cluster) > 0 && n->election.gone_id == 0 && replica_leader(n->replica) == 0;
}

/* A node that found no majority in all its rounds asks again as soon as it hears another node. */
static void test_rounds_in_vain(void **state)
{
    struct cluster *c = *state;
    unsigned leader = start_formed(c, 3);
    unsigned left = (leader + 1) % 3;
    unsigned other = (leader + 2) % 3;
    acquire(c, leader, "a");
    cluster_wait_level(c);
    cluster_stop(c, other, 0);
    cluster_stop(c, leader, 0);
    struct silence s = {c, left};
    cluster_until(c, rounds_are_over, &s, "the rounds are over");
    uint64_t campaigns_before = campaigns(c);
    cluster_start(c, other);
    assert_int_equal(cluster_wait_leader(c), left);
    assert_true(campaigns(c) > campaigns_before);
    acquire(c, other, "b");
}

#undef TEST
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_dead_leader_is_replaced),
        TEST(test_a_dead_leader_of_five),
        TEST(test_a_dead_leader_and_another),
        TEST(test_broken_connections_depose_nobody),
        TEST(test_a_live_leader_stays),
        TEST(test_a_silent_leader_is_replaced),
        TEST(test_rounds_in_vain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
