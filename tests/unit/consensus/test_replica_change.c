/* test_replica_change.c: what a leader must not do to the configuration yet, where the raft
 * library's core would let it; and the core alone, which does. */
#include "../../lib/unit.h"

#include "core.h"
#include "group.h"

static void lead(struct group *g, unsigned i)
{
    GROUP_UNTIL(g, (g->now_ms % 10 == 0 && replica_campaign(group_replica(g, i), g->now_ms)) ||
                       replica_role(group_replica(g, i)) == REPLICA_LEADER);
    GROUP_UNTIL(g, replica_role(group_replica(g, i)) == REPLICA_LEADER);
}

/* ---- another change may be under way ---- */

static void cut(struct group *g, unsigned i, unsigned j, bool is_cut)
{
    g->cut[i + 1][j + 1] = is_cut;
    g->cut[j + 1][i + 1] = is_cut;
}

/* Servers 1 and 5 on one side, 2 and 3 on the other. */
static void divide(struct group *g)
{
    for (unsigned i = 1; i < 4; i++) {
        cut(g, 0, i, true);
        cut(g, 4, i, true);
    }
}

static struct group *start_four_of_five(struct configuration *five)
{
    struct group *g = &group;
    group_init(g, 5);
    *five = g->conf;
    assert_int_equal(configuration_remove(&g->conf, 5), 0);
    group_up_all(g);
    return g;
}

/* Server 1 of four adds a fifth, and nobody else hears of it. Server 2 is elected by the other
 * three, and wants to remove server 1. With server 3 that would be two of three; server 1 with 4
 * and 5 is three of five, and these two majorities have nobody in common: both changes would be
 * committed, and each of two leaders would go on. */
TEST_WITH(a_change_waits_for_an_entry_of_the_term, NULL, group_stop)
{
    struct configuration five;
    struct group *g = start_four_of_five(&five);
    struct configuration three = g->conf;
    assert_int_equal(configuration_remove(&three, 1), 0);
    lead(g, 0);
    group_begin_term(g, 0);
    group_run(g, 50);
    divide(g);
    assert_int_equal(replica_change(group_replica(g, 0), g->now_ms, &five), 0);
    GROUP_UNTIL(g, replica_role(group_replica(g, 0)) != REPLICA_LEADER);
    assert_int_equal(replica_last_index(group_replica(g, 4)),
                     replica_last_index(group_replica(g, 0)));
    GROUP_UNTIL(g, replica_leader(group_replica(g, 1)) == 0 &&
                       replica_leader(group_replica(g, 2)) == 0 &&
                       replica_leader(group_replica(g, 3)) == 0);
    lead(g, 1);
    assert_true(replica_configuration_committed(group_replica(g, 1)));
    assert_int_equal(replica_change(group_replica(g, 1), g->now_ms, &three), FL_EBUSY);
    group_begin_term(g, 1);
    assert_int_equal(replica_change(group_replica(g, 1), g->now_ms, &three), 0);
    /* It is committed without server 4, which has the entry before it, and so elects nobody who
     * lacks that one. */
    cut(g, 3, 1, true);
    cut(g, 3, 2, true);
    GROUP_UNTIL(g, replica_configuration_committed(group_replica(g, 1)));
    cut(g, 3, 0, false);
    cut(g, 3, 4, false);
    group_run(g, 20 * GROUP_ELECTION_MS);
    assert_int_equal(group_leader(g), 1);
    assert_false(replica_configuration_committed(group_replica(g, 0)));
    assert_false(replica_configuration_committed(group_replica(g, 4)));
}

/* The core alone: its barrier, entry 3, is committed nowhere. */
TEST(the_core_changes_before_an_entry_of_the_term)
{
    struct core c;
    core_begin(&c, CORE_ALONE);
    assert_int_equal(core_append(&c, 2, 1, 1, "c", 1), 0);
    core_persist(&c);
    core_lead(&c);
    assert_int_equal(raft_commit_index(&c.raft), 1);
    assert_int_equal(core_submit_change(&c, 4), 0);
    core_end(&c);
}

/* After a start it leads in a new term, and the newest entry it knows is a snapshot's. */
TEST_WITH(a_change_waits_behind_a_snapshot, NULL, group_stop)
{
    struct group *g = &group;
    group_init(g, 2);
    g->conf.servers[1].role = CONFIGURATION_LEARNER;
    group_up(g, 0);
    group_begin_term(g, 0);
    group_snapshot(g, 0, replica_applied_index(group_replica(g, 0)));
    struct configuration alone = g->conf;
    assert_int_equal(configuration_remove(&alone, 2), 0);
    group_crash(g, 0, SIM_CRASH_PROCESS);
    group_up(g, 0);
    assert_int_equal(replica_role(group_replica(g, 0)), REPLICA_LEADER);
    assert_int_equal(replica_change(group_replica(g, 0), g->now_ms, &alone), FL_EBUSY);
    group_begin_term(g, 0);
    assert_int_equal(replica_change(group_replica(g, 0), g->now_ms, &alone), 0);
    GROUP_UNTIL(g, replica_configuration_committed(group_replica(g, 0)));
}

/* ---- two that catch up ---- */

/* Two learners of four are cut off and lack an entry. The second is not watched while the first
 * is; both are given up, one after the other, and then the configuration can be changed. */
TEST_WITH(one_catches_up_at_a_time, NULL, group_stop)
{
    struct group *g = &group;
    group_init(g, 4);
    g->conf.servers[2].role = CONFIGURATION_LEARNER;
    g->conf.servers[3].role = CONFIGURATION_LEARNER;
    group_up_all(g);
    unsigned leader = group_elect(g);
    struct replica *r = group_replica(g, leader);
    group_begin_term(g, leader);
    group_isolate(g, 2, true);
    group_isolate(g, 3, true);
    group_begin_term(g, leader);
    assert_int_equal(group_submit(g, leader), 0);
    assert_int_equal(replica_catch_up(r, g->now_ms, 3), 0);
    assert_int_equal(replica_catch_up(r, g->now_ms, 4), FL_EBUSY);
    GROUP_UNTIL(g, replica_catch_up_status(r, 3) == CATCH_UP_ABORTED);
    assert_int_equal(replica_catch_up(r, g->now_ms, 4), 0);
    GROUP_UNTIL(g, replica_catch_up_status(r, 4) == CATCH_UP_ABORTED);
    struct configuration c = g->conf;
    assert_int_equal(configuration_remove(&c, 3), 0);
    assert_int_equal(replica_change(r, g->now_ms, &c), 0);
    GROUP_UNTIL(g, replica_configuration_committed(r));
}

/* The core alone: what has begun is never over, although it has everything. */
TEST(the_core_forgets_who_caught_up_first)
{
    struct core c;
    int status = 0;
    core_begin(&c, CORE_ALONE);
    core_lead(&c);
    assert_int_equal(core_submit(&c), 0);
    core_persist(&c);
    for (uint64_t id = 2; id <= 3; id++) {
        struct raft_event event = {.type = RAFT_CATCH_UP};
        event.catch_up.server_id = id;
        core_step(&c, &event);
    }
    for (uint64_t id = 2; id <= 3; id++) {
        assert_int_equal(core_result(&c, id, 0, c.last), 0);
    }
    for (unsigned i = 0; i < 1000; i++) {
        core_timeout(&c, HEARTBEAT_MS);
        assert_int_equal(core_result(&c, 2, 0, c.last), 0);
    }
    assert_int_equal(raft_catch_up(&c.raft, 2, &status), 0);
    assert_int_equal(status, RAFT_CATCH_UP_RUNNING);
    assert_int_equal(raft_catch_up(&c.raft, 3, &status), 0);
    assert_int_equal(status, RAFT_CATCH_UP_FINISHED);
    core_end(&c);
}
