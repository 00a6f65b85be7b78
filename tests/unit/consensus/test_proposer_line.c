/* test_proposer_line.c: what waits at a leader that is deposed goes back, in parts and in order. */
#include "../../lib/unit.h"

#include "consensus/held.h"
#include "machine/limits.h"
#include "rig.h"

#define OWNER "owner-of-16-bytes-a"

/* ACQUIRE for which a batch has room beside renewals. */
enum {
    FILLS = (MACHINE_BATCH_COST_MAX - MACHINE_BATCH_COST_MAX / 10) / (2 * MACHINE_STEPS_RECORD)
};

static struct rig rig;

static int start_three(void **state)
{
    rig_start(&rig, 3, NULL);
    *state = &rig;
    return 0;
}

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

/* Calls of which FILLS go into the open batch of a leader that nobody hears, and `line` into line;
 * the leader is deposed before its proposer turns. */
static struct rig_call *long_line(struct rig *r, unsigned l, unsigned line)
{
    struct rig_call *kind = rig_acquire(r, "lock", OWNER, 60000);
    struct rig_call *calls = test_calloc(FILLS + line, sizeof *calls);
    group_isolate(&r->g, l, true);
    r->nodes[l].asleep = true;
    for (unsigned i = 0; i < FILLS + line; i++) {
        calls[i] = *kind;
        calls[i].ticket.source = 1 + i % 3;
        assert_int_equal(rig_add(r, l, &calls[i]), 0);
    }
    while (replica_role(r->nodes[l].server->replica) == REPLICA_LEADER) {
        rig_step(r);
    }
    rig_step(r);
    return calls;
}

/* Each of the first n came back once, behind those that its source had sent before. */
static void expect_returned(const struct rig_call *calls, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(calls[i].answers, 0);
        assert_int_equal(calls[i].returns, 1);
        assert_true(i < 3 || calls[i].order > calls[i - 3].order);
    }
}

static void expect_pending(struct rig *r, unsigned l, unsigned n, size_t each)
{
    struct proposer_stats stats;
    proposer_get_stats(r->nodes[l].proposer, &stats);
    assert_int_equal(stats.pending_commands, n);
    assert_int_equal(stats.pending_bytes, n * each);
}

TEST_WITH(a_turn_gives_a_part_of_the_line_back, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    struct proposer *p = r->nodes[l].proposer;
    rig_run(r, 200);
    struct rig_call *calls = long_line(r, l, HELD_MOVED_MAX);
    rig_turn(r, l);
    expect_returned(calls, FILLS + HELD_MOVED_MAX);
    expect_pending(r, l, 0, 1);
    assert_false(proposer_hands_back(p));
    assert_true(proposer_next_turn_ms(p, r->g.now_ms) == UINT64_MAX);
    assert_int_equal(rig_add(r, l, &calls[0]), FL_ENOLEADER);
    test_free(calls);
}

/* One command is left for the next turn, which comes at once. Nothing is taken meanwhile. */
TEST_WITH(the_rest_of_the_line_goes_back_in_the_next_turn, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    struct proposer *p = r->nodes[l].proposer;
    rig_run(r, 200);
    struct rig_call *calls = long_line(r, l, HELD_MOVED_MAX + 1);
    struct rig_call late = calls[0];
    rig_turn(r, l);
    expect_pending(r, l, 1, late.bytes.len);
    assert_true(proposer_hands_back(p));
    assert_false(proposer_is_open(p));
    assert_int_equal(proposer_next_turn_ms(p, r->g.now_ms), 0);
    assert_int_equal(rig_add(r, l, &late), FL_ENOLEADER);
    rig_turn(r, l);
    expect_returned(calls, FILLS + HELD_MOVED_MAX + 1);
    expect_pending(r, l, 0, 1);
    assert_false(proposer_hands_back(p));
    test_free(calls);
}

/* A node that leads again gives back what it had before, and then begins the term. */
TEST_WITH(a_line_is_given_back_before_the_next_term, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    rig_run(r, 200);
    struct rig_call *calls = long_line(r, l, 2 * HELD_MOVED_MAX + 1);
    rig_turn(r, l);
    group_isolate(&r->g, l, false);
    unsigned k = rig_leader(r);
    rig_run(r, 500);
    assert_int_equal(replica_transfer(r->g.servers[k].replica, r->g.now_ms, l + 1), 0);
    while (replica_role(r->nodes[l].server->replica) != REPLICA_LEADER) {
        rig_step(r);
    }
    rig_turn(r, l);
    expect_pending(r, l, 1, calls[0].bytes.len);
    r->nodes[l].asleep = false;
    assert_int_equal(rig_leader(r), l);
    expect_returned(calls, FILLS + 2 * HELD_MOVED_MAX + 1);
    struct rig_call *c = rig_acquire(r, "lock", OWNER, 60000);
    assert_int_equal(rig_add(r, l, c), 0);
    rig_await(r, c);
    assert_int_equal(c->result.code, MACHINE_GRANTED);
    test_free(calls);
}

/* Stopping waits for no turn. */
TEST_WITH(closing_gives_the_whole_line_back, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    rig_run(r, 200);
    struct rig_call *calls = long_line(r, l, 2 * HELD_MOVED_MAX);
    rig_turn(r, l);
    proposer_close(r->nodes[l].proposer);
    expect_returned(calls, FILLS + 2 * HELD_MOVED_MAX);
    expect_pending(r, l, 0, 1);
    test_free(calls);
}
