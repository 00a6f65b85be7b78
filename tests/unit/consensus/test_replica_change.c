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
