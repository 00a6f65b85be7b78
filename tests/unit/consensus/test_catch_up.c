/* test_catch_up.c: a leader has entries on its disk that a follower lacks, and a server has some
 * that are to be applied. Nobody waits for the disk. */
#include "../../lib/unit.h"

#include "group.h"

#define COMMANDS 5000u /* in an entry: 30 KiB */
#define ENTRIES 150u

static uint64_t waited(struct group *g, unsigned i)
{
    return sim_device_calls(g->servers[i].sim, SIM_READ);
}

static uint64_t reads(struct group *g, unsigned i)
{
    return sim_device_calls(g->servers[i].sim, SIM_READ_IO);
}

static void write_entries(struct group *g, unsigned leader, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(group_submit_many(g, leader, COMMANDS), 0);
        uint64_t last = replica_last_index(group_replica(g, leader));
        GROUP_UNTIL(g, replica_applied_index(group_replica(g, leader)) == last);
    }
}

/* A leader that keeps half of its entries in memory, and followers that were away. */
static unsigned begin(struct group *g, unsigned servers, unsigned away)
{
    group_init(g, servers);
    g->cache_bytes = (size_t)2 << 20;
    group_up_all(g);
    unsigned leader = group_elect(g);
    group_run(g, 50);
    for (unsigned i = 1; i <= away; i++) {
        group_crash(g, (leader + i) % servers, SIM_CRASH_PROCESS);
    }
    write_entries(g, leader, ENTRIES);
    return leader;
}

/* The bytes that were sent to anybody a moment ago. */
static size_t sent_now(struct group *g)
{
    size_t bytes = 0;
    FLI_LIST_FOREACH(pos, &g->packets)
    {
        const struct group_packet *p = FLI_CONTAINER_OF(pos, struct group_packet, link);
        bytes += p->due_ms == g->now_ms + 1 ? p->len : 0;
    }
    return bytes;
}

static unsigned rejections_to(struct group *g, unsigned i)
{
    unsigned n = 0;
    FLI_LIST_FOREACH(pos, &g->packets)
    {
        struct raft_entry entries[MESSAGE_ENTRIES_MAX];
        const struct group_packet *p = FLI_CONTAINER_OF(pos, struct group_packet, link);
        if (p->to == i + 1 && p->type == MESSAGE_APPEND_RESULT && p->due_ms == g->now_ms + 1) {
            n += group_read(p, entries).append_entries_result.rejected != 0;
        }
    }
    return n;
}

static bool all_have_all(struct group *g, unsigned leader)
{
    bool all = true;
    for (unsigned i = 0; i < g->n; i++) {
        all = all && replica_applied_index(group_replica(g, i)) ==
                         replica_last_index(group_replica(g, leader));
    }
    return all;
}

/* Two followers come back. The leader's loop reads nothing from its disk, and a turn sends a
 * bounded number of bytes to both of them together. What is sent once is not sent again. */
TEST_WITH(a_turn_reads_nothing_and_sends_no_more_than_its_share, NULL, group_stop)
{
    struct group *g = &group;
    unsigned leader = begin(g, 5, 2);
    uint64_t term = replica_term(group_replica(g, leader));
    uint64_t before = waited(g, leader);
    size_t most = 0;
    size_t all = 0;
    unsigned rejections = 0;
    group_up(g, (leader + 1) % 5);
    group_up(g, (leader + 2) % 5);
    uint64_t end_ms = g->now_ms + 60000;
    while (!all_have_all(g, leader)) {
        group_step(g);
        assert_true(g->now_ms < end_ms);
        size_t sent = sent_now(g);
        most = most < sent ? sent : most;
        all += sent;
        rejections += rejections_to(g, leader);
    }
    print_message("at most %zu bytes in a turn, %zu bytes in %llu reads, %u rejections\n", most,
                  all, (unsigned long long)reads(g, leader), rejections);
    assert_true(all > ENTRIES * 30000 * 2);
    assert_true(all < ENTRIES * 30000 * 4);
    assert_true(most < ((size_t)5 << 19)); /* a share of 1 MiB, and the message that goes beyond */
    assert_int_equal(waited(g, leader), before);
    assert_true(reads(g, leader) > 0 && reads(g, leader) < 200);
    assert_true(rejections < 10);
    assert_int_equal(replica_term(group_replica(g, leader)), term);
    group_expect_same(g);
}

/* The leader's disk gives nothing back for twenty election times. Everybody hears the leader, it
 * commits what comes, and the follower goes on when the disk does. */
TEST_WITH(a_disk_that_reads_nothing_deposes_nobody, NULL, group_stop)
{
    struct group *g = &group;
    unsigned leader = begin(g, 3, 1);
    unsigned back = (leader + 1) % 3;
    uint64_t term = replica_term(group_replica(g, leader));
    g->servers[leader].reads_stuck = true;
    unsigned turns = 0;
    group_up(g, back);
    for (unsigned i = 0; i < 20 * GROUP_ELECTION_MS; i++) {
        group_step(g);
        if (i % 20 == 0) {
            assert_int_equal(group_submit(g, leader), 0);
        }
        assert_true(i < GROUP_ELECTION_MS ||
                    replica_silence_ms(group_replica(g, back), g->now_ms) < GROUP_ELECTION_MS);
        turns += replica_next_ms(group_replica(g, leader), g->now_ms) == 0;
    }
    assert_true(sim_device_busy(g->servers[leader].sim, LOG_LANE_READ));
    assert_true(turns < 20); /* the loop does not turn in vain */
    assert_true(replica_applied_index(group_replica(g, leader)) + 2 >=
                replica_last_index(group_replica(g, leader)));
    assert_int_equal(replica_role(group_replica(g, leader)), REPLICA_LEADER);
    g->servers[leader].reads_stuck = false;
    group_expect_same(g);
    assert_int_equal(replica_term(group_replica(g, leader)), term);
}

/* All start anew, and must read what they apply. One whose disk gives nothing back votes and hears
 * its leader meanwhile. */
TEST_WITH(what_is_applied_is_waited_for_by_nobody, NULL, group_stop)
{
    struct group *g = &group;
    unsigned slow = (begin(g, 3, 0) + 1) % 3;
    for (unsigned i = 0; i < 3; i++) {
        group_crash(g, i, SIM_CRASH_PROCESS);
    }
    group_up_all(g);
    uint64_t before[] = {waited(g, 0), waited(g, 1), waited(g, 2)};
    g->servers[slow].reads_stuck = true;
    GROUP_UNTIL(g, group_leader(g) >= 0);
    unsigned leader = (unsigned)group_leader(g);
    uint64_t term = replica_term(group_replica(g, leader));
    group_begin_term(g, leader);
    group_run(g, 10 * GROUP_ELECTION_MS);
    assert_int_equal(replica_term(group_replica(g, leader)), term);
    assert_true(replica_commit_index(group_replica(g, slow)) > ENTRIES);
    assert_true(replica_applied_index(group_replica(g, slow)) < ENTRIES);
    g->servers[slow].reads_stuck = false;
    group_expect_same(g);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(waited(g, i), before[i]);
    }
}

static unsigned appends_of(struct group *g, unsigned i)
{
    unsigned n = 0;
    FLI_LIST_FOREACH(pos, &g->packets)
    {
        const struct group_packet *p = FLI_CONTAINER_OF(pos, struct group_packet, link);
        n += p->from == i + 1 && p->type == MESSAGE_APPEND;
    }
    return n;
}

/* The number of a leader that waits for entries from its disk. */
static unsigned begin_stuck(struct group *g)
{
    unsigned leader = begin(g, 3, 1);
    g->servers[leader].reads_stuck = true;
    group_up(g, (leader + 1) % 3);
    group_run(g, 2 * GROUP_HEARTBEAT_MS);
    assert_true(sim_device_busy(g->servers[leader].sim, LOG_LANE_READ));
    return leader;
}

/* The leader is replaced while it waits for entries; they arrive, and it sends them to nobody. */
TEST_WITH(leadership_is_lost_meanwhile, NULL, group_stop)
{
    struct group *g = &group;
    unsigned leader = begin_stuck(g);
    g->held[leader + 1] = true; /* it hears nothing */
    assert_int_equal(group_submit(g, leader), 0);
    GROUP_UNTIL(g, replica_role(group_replica(g, leader)) != REPLICA_LEADER);
    GROUP_UNTIL(g, group_leader(g) >= 0);
    group_run(g, 5);
    g->servers[leader].reads_stuck = false;
    uint64_t before = reads(g, leader);
    for (unsigned i = 0; i < 50; i++) {
        group_step(g);
        assert_int_equal(appends_of(g, leader), 0);
    }
    assert_true(reads(g, leader) > before);
    g->held[leader + 1] = false;
    group_expect_same(g);
}

/* A new leader finds out what the follower has, and must read what it lacks. What has not left is
 * no repetition, of which one entry would do: all of it follows, and nothing is rejected. */
TEST_WITH(a_new_leader_reads_while_it_probes, NULL, group_stop)
{
    struct group *g = &group;
    unsigned former = begin(g, 3, 1);
    unsigned back = (former + 1) % 3;
    unsigned leader = (former + 2) % 3;
    unsigned rejections = 0;
    g->servers[leader].reads_stuck = true;
    group_crash(g, former, SIM_CRASH_PROCESS);
    group_up(g, back);
    GROUP_UNTIL(g, group_leader(g) == (int)leader);
    GROUP_UNTIL(g, replica_match_index(group_replica(g, leader), back + 1) ==
                       replica_last_index(group_replica(g, back)));
    uint64_t free_ms = g->now_ms + 10 * (uint64_t)GROUP_HEARTBEAT_MS;
    while (replica_last_index(group_replica(g, back)) <
           replica_last_index(group_replica(g, leader))) {
        g->servers[leader].reads_stuck = g->now_ms < free_ms;
        group_step(g);
        assert_true(g->now_ms < free_ms + 60000);
        rejections += rejections_to(g, leader);
    }
    assert_true(reads(g, leader) > 0);
    assert_int_equal(rejections, 0);
    group_expect_same(g);
}

/* The log is compacted while the follower's entries are read: it needs a snapshot, and gets one. */
TEST_WITH(compacted_meanwhile, NULL, group_stop)
{
    struct group *g = &group;
    unsigned leader = begin(g, 3, 1);
    unsigned back = (leader + 1) % 3;
    g->servers[leader].reads_stuck = true;
    group_up(g, back);
    group_run(g, 2 * GROUP_HEARTBEAT_MS);
    assert_true(sim_device_busy(g->servers[leader].sim, LOG_LANE_READ));
    group_snapshot(g, leader, replica_applied_index(group_replica(g, leader)));
    write_entries(g, leader, 100); /* segments are used again */
    g->servers[leader].reads_stuck = false;
    GROUP_UNTIL(g, g->servers[leader].wanted[back + 1] > 0);
    assert_int_equal(g->servers[leader].fatals, 0);
    assert_int_equal(group_install(g, leader, back), 0);
    group_expect_same(g);
}

/* What is found to be damaged ends the server, as it did. */
TEST_WITH(a_damaged_entry, NULL, group_stop)
{
    struct group *g = &group;
    unsigned leader = begin(g, 3, 1);
    struct group_server *s = &g->servers[leader];
    size_t len = 0;
    uint8_t *data = sim_device_data(s->sim, "segment-0000000002", &len);
    for (size_t at = len / 4; at < len / 2; at += 1000) {
        data[at] ^= 1;
    }
    group_up(g, (leader + 1) % 3);
    GROUP_UNTIL(g, s->fatals > 0);
    assert_int_equal(s->fatal_error, FL_ECORRUPT);
    assert_non_null(strstr(s->fatal_text, "of the log cannot be read"));
}

/* It ends while a read is under way. */
TEST_WITH(ends_meanwhile, NULL, group_stop)
{
    struct group *g = &group;
    unsigned leader = begin_stuck(g);
    group_crash(g, leader, SIM_CRASH_POWER);
    g->servers[leader].reads_stuck = false;
    group_up(g, leader);
    group_elect(g);
    group_expect_same(g);
}
