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

/* An entry of as many bytes as server 1's log has room for but `spare`, from a leader. */
static void send_entry(struct group *g, uint64_t term, uint64_t index, uint64_t prev_term,
                       size_t spare)
{
    static uint8_t bytes[1 << 18];
    static struct message_body body;
    static uint8_t flat[sizeof bytes + 1024];
    size_t room = log_room(g->servers[0].log) - spare;
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES};
    size_t len = 0;
    m.append_entries.term = term;
    m.append_entries.prev_log_index = index - 1;
    m.append_entries.prev_log_term = prev_term;
    assert_int_equal(message_encode(&m, &body), 0);
    assert_true(
        message_add_entry(&body, term, RAFT_BARRIER,
                          (struct fli_slice){bytes, room < sizeof bytes ? room : sizeof bytes}));
    for (unsigned i = 0; i < body.n; i++) {
        memcpy(flat + len, body.parts[i].data, body.parts[i].len);
        len += body.parts[i].len;
    }
    assert_int_equal(replica_receive(group_replica(g, 0), g->now_ms, term, body.type,
                                     (struct fli_slice){flat, len}),
                     0);
}

/* A log that takes just one more entry: that of a new leader, in the place of another, brings a
 * term and a truncation with it. It is lost, as any that has no room. */
TEST_WITH(a_new_leader_meets_a_full_log, NULL, group_stop)
{
    struct group *g = &group;
    group_init(g, 3);
    group_up(g, 0);
    struct replica *r = group_replica(g, 0);
    send_entry(g, 2, 2, 1, 0);
    while (log_room(g->servers[0].log) > 1024) {
        uint64_t last = replica_last_index(r);
        send_entry(g, 2, last + 1, 2, 512);
        assert_int_equal(replica_last_index(r), last + 1);
    }
    uint64_t last = replica_last_index(r);
    send_entry(g, 3, last, 2, 64);
    assert_int_equal(replica_term(r), 3);
    assert_int_equal(replica_last_index(r), last);
    group_write(g, 0);
    send_entry(g, 3, last, 2, 64 + 2 * 64);
    assert_int_equal(log_term_of(g->servers[0].log, last), 3);
}

/* The only voter leads as soon as it starts, in a new term. Its learner hears nothing of that
 * before the term is on disk: after a crash, the same term could begin anew. */
TEST_WITH(the_only_voter_is_silent_until_its_term_is_on_disk, NULL, group_stop)
{
    struct group *g = &group;
    group_init(g, 2);
    configuration_find(&g->conf, 2)->role = CONFIGURATION_LEARNER;
    group_up_all(g);
    assert_int_equal(group_elect(g), 0);
    assert_int_equal(group_submit(g, 0), 0);
    group_run(g, 10);
    group_crash(g, 0, SIM_CRASH_PROCESS);
    group_drop(g);
    group_up(g, 0);
    g->servers[0].disk_stuck = true;
    for (unsigned i = 0; i < 5 * GROUP_HEARTBEAT_MS; i++) {
        assert_int_equal(group_submit(g, 0), 0);
        group_step(g);
        assert_int_equal(g->packets_n, 0);
    }
    g->servers[0].disk_stuck = false;
    group_expect_same(g);
    assert_int_equal(group_tokens(g, 1), 1 + 5 * GROUP_HEARTBEAT_MS);
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
