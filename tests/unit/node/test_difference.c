/* What nodes report of themselves, and nodes whose states differ although they have applied the
 * same log. */
#include "../../lib/unit.h"

#include "cluster.h"
#include "node/node_private.h"
#include "consensus/peers.h"
#include "consensus/replica_private.h"
#include "damage.h"
#include "../../lib/scratch.h"

TEST(reports_are_read_with_care)
{
    uint8_t b[NODE_REPORT_SIZE + 1];
    struct node_report r = {.role = NODE_STOPPED,
                            .log_waits = true,
                            .own_election = true,
                            .term = 1,
                            .commit_index = 2,
                            .applied_index = UINT64_MAX,
                            .disk_bytes = 4,
                            .disk_free_bytes = 5,
                            .hash_version = 6,
                            .hash_index = 7,
                            .hash = 8};
    struct node_report back;
    memset(b, 0, sizeof b);
    node_report_encode(&r, b);
    assert_int_equal(node_report_decode((struct fli_slice){b, NODE_REPORT_SIZE}, &back), 0);
    assert_true(back.role == NODE_STOPPED && back.log_waits && back.term == 1);
    assert_true(back.own_election && !back.disk_hangs);
    assert_true(back.hash_version == 6 && back.hash_index == 7 && back.hash == 8);
    assert_true(back.commit_index == 2 && back.applied_index == UINT64_MAX);
    assert_true(back.disk_bytes == 4 && back.disk_free_bytes == 5);
    assert_int_equal(node_report_decode((struct fli_slice){b, NODE_REPORT_SIZE + 1}, &back),
                     FL_EPROTO);
    for (size_t len = 0; len < NODE_REPORT_SIZE; len++) {
        assert_int_equal(node_report_decode((struct fli_slice){b, len}, &back), FL_EPROTO);
    }
    const uint8_t bad[][2] = {{0, NODE_STOPPED + 1}, {1, 2}, {3, 8}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        node_report_encode(&r, b);
        b[bad[i][0]] = bad[i][1];
        assert_int_equal(node_report_decode((struct fli_slice){b, NODE_REPORT_SIZE}, &back),
                         FL_EPROTO);
    }
}

static bool has_told(void *ctx)
{
    struct cluster *c = ctx;
    return node_report_of(c->nodes[0].node, 2) != NULL;
}

TEST_WITH(who_could_not_serve_is_not_chosen_to_lead, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    struct node *n = c->nodes[0].node;
    cluster_until(c, has_told, c, "a report of node 2");
    struct node_report r = *node_report_of(n, 2);
    struct node_report *kept = NULL;
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        kept = n->peers.list[i].id == 2 ? &n->peers.list[i].report : kept;
    }
    assert_non_null(kept);
    r.lag = NODE_REPORT_NEAR;
    *kept = r;
    assert_true(node_report_can_lead(&n->peers, 2));
    kept->lag = NODE_REPORT_NEAR + 1;
    assert_false(node_report_can_lead(&n->peers, 2));
    kept->lag = 0;
    kept->disk_hangs = true;
    assert_false(node_report_can_lead(&n->peers, 2));
    assert_true(node_report_can_lead(&n->peers, 99)); /* it has told nothing */
}

static void apply_many(struct cluster *c, unsigned i)
{
    for (unsigned k = 0; k < 4 * REPLICA_HASH_STEP; k++) {
        struct machine_command cmd = cmd_token("a");
        struct op op;
        op_run_at_last(c, i, &cmd, &op);
    }
}

static bool has_ended(void *ctx)
{
    const struct cluster_node *cn = ctx;
    return cn->fatal != 0;
}

struct until_ended {
    struct cluster_node *node;
    struct op op;
};

static bool is_answered_or_has_ended(void *ctx)
{
    const struct until_ended *u = ctx;
    return u->op.answers > 0 || has_ended(u->node);
}

/* Commands at node i, until the other node has ended. It may do so with one of them unanswered,
 * which then waits until its connections end. */
static void apply_until_ended(struct cluster *c, unsigned i, struct until_ended *u)
{
    struct machine_command cmd = cmd_token("a");
    for (unsigned k = 0; k < 4 * REPLICA_HASH_STEP && !has_ended(u->node); k++) {
        op_init(&u->op);
        assert_int_equal(op_submit(c, i, &cmd, &u->op), 0);
        cluster_until(c, is_answered_or_has_ended, u, "a command is answered");
    }
    cluster_until(c, has_ended, u->node, "the end of the node that differs");
}

static void end_the_one_that_differs(struct cluster *c, unsigned damaged)
{
    struct until_ended u = {.node = &c->nodes[damaged]};
    damage_state(node_machine(c->nodes[damaged].node));
    apply_until_ended(c, (damaged + 1) % 3, &u);
    assert_int_equal(c->nodes[damaged].fatal, FL_ECORRUPT);
    assert_non_null(
        strstr(c->nodes[damaged].fatal_text, "differs from the state of 2 of 3 voters"));
    assert_non_null(strstr(c->nodes[damaged].fatal_text, "fencelock cluster replace"));
    cluster_stop(c, damaged, 0);
    op_wait(c, &u.op);
    cluster_acquire(c, (damaged + 1) % 3, "b", "owner-1");
    cluster_wait_caught_up(c);
    cluster_expect_same_hash(c);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(i == damaged || c->nodes[i].fatal == 0);
    }
}

TEST_WITH(a_follower_whose_state_differs_ends, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up_electing(state, 3);
    end_the_one_that_differs(c, cluster_other_than(c, cluster_wait_leader(c)));
}

TEST_WITH(a_leader_whose_state_differs_ends, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up_electing(state, 3);
    end_the_one_that_differs(c, cluster_wait_leader(c));
}

static bool both_differ(void *ctx)
{
    struct cluster *c = ctx;
    unsigned n = 0;
    if (c->nodes[0].fatal != 0 || c->nodes[1].fatal != 0) {
        return true; /* the caller sees that it ended */
    }
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned k = 0; k < KNOWN_MEMBERS_MAX; k++) {
            n += c->nodes[i].node->peers.list[k].differs;
        }
    }
    return n == 2;
}

/* Of two nobody knows which one is damaged: both say so, and neither ends. */
TEST_WITH(two_that_differ_go_on, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 2);
    damage_state(node_machine(c->nodes[1].node));
    apply_many(c, 0);
    cluster_until(c, both_differ, c, "two nodes that know that they differ");
    apply_many(c, 0);
    assert_int_equal(c->nodes[0].fatal, 0);
    assert_int_equal(c->nodes[1].fatal, 0);
}

/* A voter alone is the majority of one. The learner beside it has the only other copy. */
TEST_WITH(a_learner_beside_one_voter_goes_on, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up_electing(state, 2);
    unsigned leader = cluster_wait_leader(c);
    struct node *learner = c->nodes[1 - leader].node;
    const struct configuration *seen = replica_configuration(learner->replica);
    for (unsigned i = 0; i < seen->n; i++) { /* as it will see it */
        if (seen->servers[i].id == learner->config.id) {
            ((struct configuration *)(uintptr_t)seen)->servers[i].role = CONFIGURATION_LEARNER;
        }
    }
    damage_state(node_machine(c->nodes[leader].node));
    apply_many(c, leader);
    cluster_until(c, both_differ, c, "two nodes that know that they differ");
    assert_int_equal(c->nodes[1 - leader].fatal, 0);
    apply_many(c, leader);
    assert_int_equal(c->nodes[1 - leader].fatal, 0);
}

struct doubt {
    struct cluster *c;
    unsigned leader, other, learner;
};

static const struct configuration_server *learner_of(const struct doubt *d)
{
    const struct replica *r = d->c->nodes[d->leader].node->replica;
    return configuration_find(replica_configuration(r), d->learner + 1);
}

static bool leader_doubts(void *ctx)
{
    const struct doubt *d = ctx;
    return node_report_differs(&d->c->nodes[d->leader].node->peers) == d->other + 1;
}

static bool learner_is_near(void *ctx)
{
    const struct doubt *d = ctx;
    struct replica *r = d->c->nodes[d->leader].node->replica;
    const struct configuration_server *s = learner_of(d);
    return s != NULL && (s->role == CONFIGURATION_VOTER ||
                         replica_has_caught_up(r, fli_clock_ms(), d->learner + 1));
}

static bool learner_votes(void *ctx)
{
    const struct configuration_server *s = learner_of(ctx);
    return s != NULL && s->role == CONFIGURATION_VOTER;
}

/* Of two that differ, a leader that is damaged would make a third that is as damaged: the one that
 * is right would then end by a majority. */
TEST_WITH(nobody_gets_a_vote_while_two_differ, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    struct doubt d = {.c = c, .leader = cluster_wait_leader(c)};
    struct cluster_count count = {0, 1};
    d.learner = cluster_other_than(c, d.leader);
    d.other = 3 - d.leader - d.learner;
    struct node_change replace = {.kind = NODE_CHANGE_REPLACE, .id = d.learner + 1};
    cluster_stop(c, d.learner, 0);
    cluster_until(c, cluster_misses_one, c, "the leader misses one");
    assert_int_equal(node_change(c->nodes[d.leader].node, &replace, cluster_count_cb, &count), 0);
    cluster_until(c, cluster_counted, &count, "the node is replaced");
    assert_int_equal(count.status, 0);
    damage_state(node_machine(c->nodes[d.leader].node));
    apply_many(c, d.leader);
    cluster_until(c, leader_doubts, &d, "the leader knows that they differ");
    scratch_wipe(c->nodes[d.learner].dir);
    cluster_start(c, d.learner);
    cluster_until(c, learner_is_near, &d, "the learner has caught up");
    cluster_run_ms(c, 300);
    assert_int_equal(learner_of(&d)->role, CONFIGURATION_LEARNER);
    /* The learner may have told of its state by now, which is another one too. */
    assert_int_not_equal(node_report_differs(&c->nodes[d.leader].node->peers), 0);
    repair_state(node_machine(c->nodes[d.leader].node));
    apply_many(c, d.leader);
    cluster_until(c, learner_votes, &d, "the node has its vote");
}

static bool sends_it(void *ctx)
{
    const struct doubt *d = ctx;
    return node_sends_snapshot(d->c->nodes[d->leader].node, d->learner + 1);
}

/* Nor does a voter that was away get the state of a leader that may be damaged, as long as the
 * others decide without it. */
TEST_WITH(a_voter_gets_no_snapshot_while_two_differ, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = *state;
    cluster_init(c, 3);
    c->snapshot_bytes = 2000;
    cluster_form(c);
    struct doubt d = {.c = c, .leader = cluster_wait_leader(c)};
    d.learner = cluster_other_than(c, d.leader);
    d.other = 3 - d.leader - d.learner;
    struct node *leader = c->nodes[d.leader].node;
    cluster_wait_caught_up(c);
    uint64_t has = replica_applied_index(c->nodes[d.learner].node->replica);
    cluster_stop(c, d.learner, 0);
    damage_state(node_machine(leader));
    apply_many(c, d.leader);
    cluster_until(c, leader_doubts, &d, "the leader knows that they differ");
    while (log_first_index(leader->log) <= has + 1) {
        apply_many(c, d.leader);
    }
    cluster_start(c, d.learner);
    for (unsigned i = 0; i < 20; i++) {
        cluster_run_ms(c, 50);
        assert_false(sends_it(&d));
    }
    assert_int_equal(c->nodes[d.other].fatal, 0);
    repair_state(node_machine(leader));
    apply_many(c, d.leader);
    cluster_wait_caught_up(c);
    cluster_expect_same_hash(c);
}
