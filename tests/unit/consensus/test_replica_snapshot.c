/* test_replica_snapshot.c: snapshots that are taken, wanted, installed, and found at a start; the
 * files are src/log's, and here they are memory. */
#include "../../lib/unit.h"

#include "group.h"
#include "log/log_private.h"

static void submit_many(struct group *g, unsigned i, unsigned n)
{
    for (unsigned k = 0; k < n; k++) {
        assert_int_equal(group_submit(g, i), 0);
        group_step(g);
    }
    GROUP_UNTIL(g, replica_applied_index(group_replica(g, i)) ==
                       replica_last_index(group_replica(g, i)));
}

static struct group *start(unsigned n)
{
    group_init(&group, n);
    group_up_all(&group);
    return &group;
}

TEST_WITH(one_is_taken_of_what_is_on_disk, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned leader = group_elect(g);
    struct replica *r = group_replica(g, leader);
    struct snapshot_meta meta;
    submit_many(g, leader, 10);
    group_run(g, 10);
    assert_int_equal(replica_snapshot_index(r), 0);
    group_snapshot(g, leader, 5);
    assert_int_equal(replica_snapshot_index(r), replica_applied_index(r));
    assert_int_equal(g->servers[leader].meta.conf_index, 1);
    assert_int_equal(replica_snapshot_meta(r, false, &meta), FL_EBUSY); /* nothing is new */
    /* The same again, for a file that is damaged. */
    const struct snapshot_meta *first = &g->servers[leader].meta;
    assert_int_equal(replica_snapshot_meta(r, true, &meta), 0);
    assert_int_equal(meta.index, first->index);
    assert_int_equal(meta.term, first->term);
    assert_int_equal(meta.conf_index, first->conf_index);
    assert_int_equal(meta.conf_len, first->conf_len);
    assert_memory_equal(meta.conf, first->conf, meta.conf_len);
    /* Applied, and not on this disk: the others committed it. */
    g->servers[leader].disk_stuck = true;
    uint64_t applied = replica_applied_index(r);
    assert_int_equal(group_submit(g, leader), 0);
    GROUP_UNTIL(g, replica_applied_index(r) == applied + 1);
    assert_int_equal(replica_snapshot_meta(r, false, &meta), FL_EBUSY);
    assert_int_equal(replica_snapshot_meta(r, true, &meta), FL_EBUSY);
    g->servers[leader].disk_stuck = false;
    GROUP_UNTIL(g, replica_snapshot_meta(r, false, &meta) == 0);
    assert_int_equal(meta.index, applied + 1);
    assert_int_equal(meta.term, replica_term(r));
}

/* It starts from the snapshot and what is behind it, and gets no entry twice. */
TEST_WITH(a_start_continues_one, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned leader = group_elect(g);
    submit_many(g, leader, 30);
    group_run(g, 10);
    for (unsigned i = 0; i < 3; i++) {
        group_snapshot(g, i, replica_applied_index(group_replica(g, i)) - i * 10);
    }
    submit_many(g, leader, 7);
    group_run(g, 50);
    for (unsigned i = 0; i < 3; i++) {
        group_crash(g, i, SIM_CRASH_POWER);
    }
    group_drop(g);
    group_up_all(g);
    leader = group_elect(g);
    group_expect_same(g);
    assert_int_equal(group_tokens(g, leader), 37);
    submit_many(g, leader, 1);
    assert_int_equal(group_tokens(g, leader), 38);
}

/* A follower reads back what it is to apply, and its disk gives nothing back. A snapshot brings it
 * behind that entry, and what follows is in memory. */
TEST_WITH(what_is_installed_waits_for_no_read, NULL, group_stop)
{
    struct group *g = &group;
    group_init(g, 3);
    g->cache_bytes = 4096;
    group_up_all(g);
    unsigned leader = group_elect(g);
    unsigned away = (leader + 1) % 3;
    submit_many(g, leader, 200);
    group_run(g, 20);
    group_crash(g, away, SIM_CRASH_PROCESS);
    g->servers[away].reads_stuck = true;
    group_up(g, away);
    struct replica *r = group_replica(g, away);
    log_trim(g->servers[away].log, NULL); /* what its start has read */
    GROUP_UNTIL(g, replica_commit_index(r) > replica_applied_index(r));
    group_run(g, 20);
    assert_true(replica_commit_index(r) > replica_applied_index(r));
    group_isolate(g, away, true);
    submit_many(g, leader, 200);
    group_snapshot(g, leader, replica_applied_index(group_replica(g, leader)) - 1);
    submit_many(g, leader, 5);
    group_isolate(g, away, false);
    GROUP_UNTIL(g, g->servers[leader].wanted[away + 1] > 0);
    assert_int_equal(group_install(g, leader, away), 0);
    GROUP_UNTIL(g, replica_applied_index(r) == replica_last_index(group_replica(g, leader)));
}

/* Server `away` misses entries that are compacted by the time it is back. */
static unsigned leave_behind(struct group *g, unsigned leader)
{
    unsigned away = (leader + 1) % 3;
    group_run(g, 20);
    group_isolate(g, away, true);
    submit_many(g, leader, 200);
    group_snapshot(g, leader, replica_applied_index(group_replica(g, leader)) - 1);
    submit_many(g, leader, 5);
    return away;
}

TEST_WITH(a_follower_that_is_behind_wants_one, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned leader = group_elect(g);
    unsigned away = leave_behind(g, leader);
    struct group_server *l = &g->servers[leader];
    assert_int_equal(l->wanted[away + 1], 0);
    group_isolate(g, away, false);
    GROUP_UNTIL(g, l->wanted[away + 1] > 0);
    /* While it is sent it is not asked for again, however long it takes, and the follower votes. */
    l->sends_snapshot[away + 1] = true;
    unsigned wanted = l->wanted[away + 1];
    group_run(g, 2000);
    assert_int_equal(l->wanted[away + 1], wanted);
    assert_int_equal(group_leader(g), leader);
    assert_int_equal(group_install(g, leader, away), 0);
    assert_int_equal(replica_applied_index(group_replica(g, away)), l->meta.index);
    assert_int_equal(group_tokens(g, away), 200);
    l->sends_snapshot[away + 1] = false;
    group_expect_same(g);
    assert_int_equal(group_tokens(g, away), 205);
    /* It was on disk, log and snapshot. */
    group_crash(g, away, SIM_CRASH_POWER);
    group_up(g, away);
    group_expect_same(g);
}

/* One that was sent and got lost is asked for again. */
TEST_WITH(one_that_is_lost_is_wanted_again, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned leader = group_elect(g);
    unsigned away = leave_behind(g, leader);
    struct group_server *l = &g->servers[leader];
    group_isolate(g, away, false);
    GROUP_UNTIL(g, l->wanted[away + 1] > 0);
    l->sends_snapshot[away + 1] = true;
    group_run(g, 100);
    unsigned wanted = l->wanted[away + 1];
    l->sends_snapshot[away + 1] = false;
    GROUP_UNTIL(g, l->wanted[away + 1] > wanted);
}

TEST_WITH(what_is_of_no_use_is_refused, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned leader = group_elect(g);
    unsigned away = leave_behind(g, leader);
    struct snapshot_meta good = g->servers[leader].meta;
    /* It knows no leader: later. */
    GROUP_UNTIL(g, replica_leader(group_replica(g, away)) == 0);
    assert_int_equal(group_install(g, leader, away), FL_EBUSY);
    group_isolate(g, away, false);
    GROUP_UNTIL(g, replica_leader(group_replica(g, away)) == leader + 1);
    /* Of a term that nobody has heard of; of no term; with no configuration. */
    g->servers[leader].meta.term = replica_term(group_replica(g, away)) + 1;
    assert_int_equal(group_install(g, leader, away), FL_EBUSY);
    g->servers[leader].meta.term = 0;
    assert_int_equal(group_install(g, leader, away), FL_EINVAL);
    g->servers[leader].meta = good;
    g->servers[leader].meta.conf_len--;
    assert_int_equal(group_install(g, leader, away), FL_EINVAL);
    /* A configuration from behind the snapshot, or from nowhere. */
    g->servers[leader].meta = good;
    g->servers[leader].meta.conf_index = good.index + 1;
    assert_int_equal(group_install(g, leader, away), FL_EINVAL);
    g->servers[leader].meta.conf_index = 0;
    assert_int_equal(group_install(g, leader, away), FL_EINVAL);
    g->servers[leader].meta = good;
    assert_int_equal(group_install(g, leader, away), 0);
    /* The same once more, before and after its log is on disk. */
    assert_int_equal(group_install(g, leader, away), FL_EINVAL);
    group_run(g, 50);
    assert_int_equal(group_install(g, leader, away), FL_EINVAL);
    assert_int_equal(group_install(g, leader, (leader + 2) % 3), FL_EINVAL); /* it has all of it */
    group_expect_same(g);
}

/* Nothing is applied, confirmed or submitted between the snapshot and the log behind it. */
TEST_WITH(the_log_follows_the_snapshot, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned leader = group_elect(g);
    unsigned away = leave_behind(g, leader);
    struct group_server *b = &g->servers[away];
    group_isolate(g, away, false);
    GROUP_UNTIL(g, replica_leader(group_replica(g, away)) == leader + 1);
    b->disk_stuck = true;
    assert_int_equal(group_install(g, leader, away), 0);
    uint64_t index = g->servers[leader].meta.index;
    uint64_t match = replica_match_index(group_replica(g, leader), away + 1);
    group_run(g, 500);
    assert_int_equal(replica_applied_index(b->replica), index);
    assert_int_equal(replica_match_index(group_replica(g, leader), away + 1), match);
    struct snapshot_meta meta;
    assert_int_equal(replica_snapshot_meta(b->replica, false, &meta), FL_EBUSY);
    b->disk_stuck = false;
    group_expect_same(g);
}

/* The process ends when the snapshot is on disk and the log is not yet begun anew behind it: what
 * node_open.c puts right before it makes a replica. Without that it is refused. */
TEST_WITH(a_log_that_does_not_continue_is_refused, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned leader = group_elect(g);
    unsigned away = leave_behind(g, leader);
    struct group_server *b = &g->servers[away];
    group_isolate(g, away, false);
    GROUP_UNTIL(g, replica_leader(group_replica(g, away)) == leader + 1);
    b->disk_stuck = true;
    assert_int_equal(group_install(g, leader, away), 0);
    group_crash(g, away, SIM_CRASH_POWER);
    b->disk_stuck = false;
    assert_int_equal(group_try_up(g, away), FL_ECORRUPT);
    assert_non_null(strstr(b->errmsg, "does not continue the snapshot"));
}

TEST_WITH(the_configuration_is_in_it, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned leader = group_elect(g);
    unsigned away = (leader + 1) % 3;
    struct configuration c = g->conf;
    group_begin_term(g, leader);
    group_run(g, 20);
    group_isolate(g, away, true);
    /* Twice changed, and the second change is not committed when the snapshot is taken. */
    configuration_find(&c, away + 1)->role = CONFIGURATION_LEARNER;
    assert_int_equal(replica_change(group_replica(g, leader), g->now_ms, &c), 0);
    GROUP_UNTIL(g, replica_configuration_committed(group_replica(g, leader)));
    uint64_t index = replica_configuration_index(group_replica(g, leader));
    submit_many(g, leader, 50);
    group_isolate(g, leader, true);
    configuration_find(&c, away + 1)->role = CONFIGURATION_VOTER;
    assert_int_equal(replica_change(group_replica(g, leader), g->now_ms, &c), 0);
    group_step(g);
    group_step(g);
    group_snapshot(g, leader, replica_applied_index(group_replica(g, leader)) - 1);
    assert_int_equal(g->servers[leader].meta.conf_index, index);
    struct configuration in;
    const struct snapshot_meta *meta = &g->servers[leader].meta;
    assert_int_equal(configuration_decode(meta->conf, meta->conf_len, &in), 0);
    assert_int_equal(in.n, 3);
    assert_int_equal(configuration_find(&in, away + 1)->role, CONFIGURATION_LEARNER);
    for (unsigned i = 0; i < 3; i++) {
        group_isolate(g, i, false);
    }
    leader = group_elect(g);
    if (g->servers[leader].meta.index == 0) {
        group_snapshot(g, leader, replica_applied_index(group_replica(g, leader)) - 1);
    }
    g->servers[leader].sends_snapshot[away + 1] = true;
    if (replica_applied_index(group_replica(g, away)) < g->servers[leader].meta.index) {
        GROUP_UNTIL(g, replica_leader(group_replica(g, away)) == leader + 1);
        assert_int_equal(group_install(g, leader, away), 0);
        assert_int_equal(replica_configuration_index(group_replica(g, away)),
                         g->servers[leader].meta.conf_index);
    }
    g->servers[leader].sends_snapshot[away + 1] = false;
    group_expect_same(g);
    assert_int_equal(replica_configuration(group_replica(g, away))->n,
                     replica_configuration(group_replica(g, leader))->n);
}

/* Its own is finished after it has installed a leader's: it is passed over. */
TEST_WITH(an_older_one_that_is_late_changes_nothing, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned leader = group_elect(g);
    unsigned away = (leader + 1) % 3;
    struct snapshot_meta late;
    submit_many(g, leader, 5);
    group_run(g, 10);
    assert_int_equal(replica_snapshot_meta(group_replica(g, away), false, &late), 0);
    away = leave_behind(g, leader);
    group_isolate(g, away, false);
    GROUP_UNTIL(g, replica_leader(group_replica(g, away)) == leader + 1);
    assert_int_equal(group_install(g, leader, away), 0);
    replica_snapshot_taken(group_replica(g, away), g->now_ms, &late, late.index);
    assert_int_equal(replica_snapshot_index(group_replica(g, away)), g->servers[leader].meta.index);
    group_expect_same(g);
}
