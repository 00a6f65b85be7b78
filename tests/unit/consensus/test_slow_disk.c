/* test_slow_disk.c: a follower whose disk is slow, and what it and its leader make of that. */
#include "../../lib/unit.h"

#include "group.h"

/* A follower's disk takes nothing for ten election times, and more comes than may wait for it: it
 * hears its leader all the same, and goes on when the disk is back. */
TEST_WITH(a_follower_whose_disk_is_behind_hears_its_leader, NULL, group_stop)
{
    struct group *g = &group;
    group_init(g, 3);
    g->in_flight = 4000;
    group_up_all(g);
    unsigned leader = group_elect(g);
    unsigned slow = (leader + 1) % 3;
    struct replica *r = group_replica(g, slow);
    group_run(g, 50);
    g->servers[slow].disk_stuck = true;
    while (replica_last_index(r) + 100 > replica_last_index(group_replica(g, leader))) {
        assert_int_equal(group_submit_many(g, leader, 1000), 0);
        group_step(g);
    }
    for (unsigned i = 0; i < 10 * GROUP_ELECTION_MS; i++) {
        group_step(g);
        assert_true(replica_silence_ms(r, g->now_ms) < GROUP_ELECTION_MS);
    }
    g->servers[slow].disk_stuck = false;
    for (unsigned i = 0; i < GROUP_ELECTION_MS; i++) {
        group_step(g);
        assert_int_equal(replica_role(r), REPLICA_FOLLOWER);
    }
    group_expect_same(g);
}

/* The bytes that were sent to this server a moment ago. */
static size_t bytes_to(struct group *g, unsigned i)
{
    size_t bytes = 0;
    FLI_LIST_FOREACH(pos, &g->packets)
    {
        const struct group_packet *p = FLI_CONTAINER_OF(pos, struct group_packet, link);
        bytes += p->to == i + 1 && p->due_ms == g->now_ms + 1 ? p->len : 0;
    }
    return bytes;
}

/* It confirms nothing for fifty heartbeats, while an entry is written now and then, and later none.
 * It gets little more than the other follower, and what it lacks at once when its disk is back. */
TEST_WITH(a_slow_disk_is_not_sent_everything_again, NULL, group_stop)
{
    struct group *g = &group;
    group_init(g, 3);
    group_up_all(g);
    unsigned leader = group_elect(g);
    unsigned slow = (leader + 1) % 3;
    unsigned other = (leader + 2) % 3;
    size_t to_slow = 0;
    size_t to_other = 0;
    group_run(g, 50);
    g->servers[slow].disk_stuck = true;
    for (unsigned i = 0; i < 50 * GROUP_HEARTBEAT_MS; i++) {
        if (i % 10 == 0 && i < 30 * GROUP_HEARTBEAT_MS) {
            assert_int_equal(group_submit_many(g, leader, 1000), 0);
        }
        to_slow += bytes_to(g, slow);
        to_other += bytes_to(g, other);
        group_step(g);
    }
    print_message("%zu bytes to the slow one, %zu to the other\n", to_slow, to_other);
    assert_true(to_slow < 2 * to_other);
    g->servers[slow].disk_stuck = false;
    group_expect_same(g);
    assert_int_equal(group_leader(g), (int)leader);
}
