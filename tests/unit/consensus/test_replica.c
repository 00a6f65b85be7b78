/* test_replica.c: one server of the group and its log: what is on disk before what is said, what is
 * cut off, applied, committed, handed over. */
#include "../../lib/unit.h"

#include <errno.h>

#include "group.h"

static struct group *start(unsigned n)
{
    group_init(&group, n);
    group_up_all(&group);
    return &group;
}

static struct group *start_with_learner(void)
{
    group_init(&group, 2);
    group.conf.servers[1].role = CONFIGURATION_LEARNER;
    group_up_all(&group);
    return &group;
}

/* A message that somebody who is not up says, at once. */
static int say(struct group *g, uint64_t from, unsigned to, const struct raft_message *m)
{
    static struct message_body body;
    uint8_t bytes[64];
    assert_int_equal(message_encode(m, &body), 0);
    assert_true(body.parts[0].len <= sizeof bytes);
    memcpy(bytes, body.parts[0].data, body.parts[0].len);
    return replica_receive(group_replica(g, to), g->now_ms, from, body.type,
                           (struct fli_slice){bytes, body.parts[0].len});
}

static int say_vote(struct group *g, uint64_t from, unsigned to, uint64_t term)
{
    struct raft_message m = {.type = RAFT_REQUEST_VOTE};
    m.request_vote = (struct raft_request_vote){
        .term = term, .candidate_id = from, .last_log_index = 100, .last_log_term = term - 1};
    return say(g, from, to, &m);
}

/* n barriers of this term behind `prev`. */
static int say_entries(struct group *g, uint64_t from, unsigned to, uint64_t term, uint64_t prev,
                       uint64_t prev_term, unsigned n, uint64_t commit)
{
    static struct message_body body;
    static const uint8_t nothing[8];
    uint8_t bytes[1024];
    size_t len = 0;
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES};
    m.append_entries = (struct raft_append_entries){
        .term = term, .prev_log_index = prev, .prev_log_term = prev_term, .leader_commit = commit};
    assert_int_equal(message_encode(&m, &body), 0);
    for (unsigned i = 0; i < n; i++) {
        assert_true(message_add_entry(&body, term, RAFT_BARRIER,
                                      (struct fli_slice){nothing, sizeof nothing}));
    }
    for (unsigned i = 0; i < body.n; i++) {
        assert_true(len + body.parts[i].len <= sizeof bytes);
        memcpy(bytes + len, body.parts[i].data, body.parts[i].len);
        len += body.parts[i].len;
    }
    return replica_receive(group_replica(g, to), g->now_ms, from, body.type,
                           (struct fli_slice){bytes, len});
}

static struct raft_message first_to(struct group *g, uint64_t to, uint8_t type)
{
    static struct raft_entry entries[MESSAGE_ENTRIES_MAX];
    struct group_packet *p = group_packet_to(g, to, type);
    if (p == NULL) {
        fail_msg("no message of type %u to server %llu", type, (unsigned long long)to);
        abort();
    }
    return group_read(p, entries);
}

/* ---- the order of disk and messages ---- */

TEST_WITH(a_vote_is_on_disk_before_it_is_told, NULL, group_stop)
{
    struct group *g = &group;
    group_init(g, 3);
    group_up(g, 0);
    assert_int_equal(say_vote(g, 2, 0, 5), 0);
    assert_int_equal(replica_term(group_replica(g, 0)), 5);
    assert_int_equal(group_packets(g, 2, MESSAGE_VOTE_RESULT), 0);
    log_flush(g->servers[0].log); /* on its way */
    assert_int_equal(group_packets(g, 2, MESSAGE_VOTE_RESULT), 0);
    group_write(g, 0);
    assert_true(first_to(g, 2, MESSAGE_VOTE_RESULT).request_vote_result.vote_granted);
    /* It is kept, whatever happens. */
    group_drop(g);
    group_crash(g, 0, SIM_CRASH_POWER);
    group_up(g, 0);
    assert_int_equal(replica_term(group_replica(g, 0)), 5);
    assert_int_equal(say_vote(g, 3, 0, 5), 0);
    group_write(g, 0);
    assert_false(first_to(g, 3, MESSAGE_VOTE_RESULT).request_vote_result.vote_granted);
}

/* A vote that was lost with the power was told to nobody, so it may be given again. */
TEST_WITH(a_vote_that_is_lost_was_not_told, NULL, group_stop)
{
    struct group *g = &group;
    group_init(g, 3);
    group_up(g, 0);
    assert_int_equal(say_vote(g, 2, 0, 5), 0);
    group_crash(g, 0, SIM_CRASH_POWER);
    assert_int_equal(g->packets_n, 0);
    group_up(g, 0);
    assert_int_equal(replica_term(group_replica(g, 0)), 1);
    assert_int_equal(say_vote(g, 3, 0, 5), 0);
    group_write(g, 0);
    assert_true(first_to(g, 3, MESSAGE_VOTE_RESULT).request_vote_result.vote_granted);
}

/* A candidate's own vote is a promise like any other. A pre-vote promises nothing. */
TEST_WITH(a_candidate_writes_before_it_asks, NULL, group_stop)
{
    struct group *g = &group;
    struct raft_message yes = {.type = RAFT_REQUEST_VOTE_RESULT};
    group_init(g, 3);
    group_up(g, 0);
    assert_true(replica_campaign(group_replica(g, 0), g->now_ms));
    assert_true(first_to(g, 2, MESSAGE_VOTE).request_vote.pre_vote);
    group_drop(g);
    yes.request_vote_result.term = 2;
    yes.request_vote_result.vote_granted = true;
    yes.request_vote_result.pre_vote = true;
    assert_int_equal(say(g, 2, 0, &yes), 0);
    assert_int_equal(replica_term(group_replica(g, 0)), 2);
    assert_int_equal(g->packets_n, 0);
    group_write(g, 0);
    assert_false(first_to(g, 2, MESSAGE_VOTE).request_vote.pre_vote);
    assert_false(first_to(g, 3, MESSAGE_VOTE).request_vote.pre_vote);
}

/* What waits for one term is not said in the next. */
TEST_WITH(what_waits_is_lost_with_its_term, NULL, group_stop)
{
    struct group *g = &group;
    group_init(g, 3);
    group_up(g, 0);
    assert_int_equal(say_vote(g, 2, 0, 5), 0);
    assert_int_equal(say_vote(g, 3, 0, 6), 0);
    group_write(g, 0);
    assert_int_equal(group_packets(g, 2, MESSAGE_VOTE_RESULT), 0);
    struct raft_message m = first_to(g, 3, MESSAGE_VOTE_RESULT);
    assert_int_equal(m.request_vote_result.term, 6);
    assert_true(m.request_vote_result.vote_granted);
}

TEST_WITH(entries_are_on_disk_before_they_are_confirmed, NULL, group_stop)
{
    struct group *g = &group;
    group_init(g, 3);
    group_up(g, 0);
    assert_int_equal(say_entries(g, 2, 0, 2, 1, 1, 3, 1), 0);
    assert_int_equal(replica_last_index(group_replica(g, 0)), 4);
    assert_int_equal(group_packets(g, 2, MESSAGE_APPEND_RESULT), 0);
    /* A heartbeat behind them is answered with what is on disk. */
    log_flush(g->servers[0].log);
    assert_int_equal(say_entries(g, 2, 0, 2, 4, 2, 0, 1), 0);
    assert_int_equal(group_packets(g, 2, MESSAGE_APPEND_RESULT), 0); /* its term is not */
    group_write(g, 0);
    bool confirmed = false;
    FLI_LIST_FOREACH(pos, &g->packets)
    {
        struct raft_entry none[MESSAGE_ENTRIES_MAX];
        struct raft_message m = group_read(FLI_CONTAINER_OF(pos, struct group_packet, link), none);
        assert_int_equal(m.type, RAFT_APPEND_ENTRIES_RESULT);
        assert_int_equal(m.append_entries_result.rejected, 0);
        confirmed = confirmed || m.append_entries_result.last_log_index == 4;
    }
    assert_true(confirmed);
    group_crash(g, 0, SIM_CRASH_POWER);
    group_up(g, 0);
    assert_int_equal(replica_last_index(group_replica(g, 0)), 4);
}

/* Entries are being written when a new leader cuts them off. */
TEST_WITH(entries_are_cut_off_while_they_are_written, NULL, group_stop)
{
    for (unsigned crash = 0; crash < 2; crash++) {
        struct group *g = &group;
        group_init(g, 3);
        group_up(g, 0);
        assert_int_equal(say_entries(g, 2, 0, 2, 1, 1, 3, 1), 0);
        log_flush(g->servers[0].log);
        assert_true(sim_device_busy(g->servers[0].sim, LOG_LANE_WRITE));
        assert_int_equal(say_entries(g, 3, 0, 3, 1, 1, 1, 1), 0);
        assert_int_equal(replica_last_index(group_replica(g, 0)), 2);
        /* The first write ends, and says nothing of entries 3 and 4, nor of another entry 2. */
        sim_device_finish(g->servers[0].sim, LOG_LANE_WRITE);
        assert_null(group_packet_to(g, 2, MESSAGE_APPEND_RESULT));
        assert_null(group_packet_to(g, 3, MESSAGE_APPEND_RESULT));
        group_write(g, 0);
        struct raft_message m = first_to(g, 3, MESSAGE_APPEND_RESULT);
        assert_int_equal(m.append_entries_result.last_log_index, 2);
        assert_int_equal(m.append_entries_result.rejected, 0);
        if (crash == 1) {
            group_crash(g, 0, SIM_CRASH_POWER);
            group_up(g, 0);
        }
        assert_int_equal(replica_last_index(group_replica(g, 0)), 2);
        assert_int_equal(log_term_of(g->servers[0].log, 2), 3);
        group_fini(g);
    }
    group_init(&group, 1); /* for the tear-down */
}

/* ---- commit ---- */

/* How far behind the last entry that it has confirmed a follower has been sent others. */
static uint64_t in_flight_to(struct group *g, unsigned leader, unsigned to)
{
    static struct raft_entry entries[MESSAGE_ENTRIES_MAX];
    uint64_t last = 0;
    FLI_LIST_FOREACH(pos, &g->packets)
    {
        const struct group_packet *p = FLI_CONTAINER_OF(pos, struct group_packet, link);
        if (p->to != to + 1 || p->type != MESSAGE_APPEND) {
            continue;
        }
        struct raft_message m = group_read(p, entries);
        uint64_t end = m.append_entries.prev_log_index + m.append_entries.n_entries;
        last = end > last ? end : last;
    }
    uint64_t match = replica_match_index(group_replica(g, leader), to + 1);
    return last > match ? last - match : 0;
}

TEST_WITH(a_follower_is_sent_no_more_than_may_be_in_flight, NULL, group_stop)
{
    static const unsigned ROWS[][2] = {{0, REPLICA_IN_FLIGHT_DEFAULT}, {1, 1}, {5, 5}};
    struct group *g = &group;
    for (unsigned i = 0; i < 3; i++) {
        group_init(g, 3);
        g->in_flight = ROWS[i][0];
        group_up_all(g);
        unsigned leader = group_elect(g);
        unsigned late = (leader + 1) % 3;
        GROUP_UNTIL(g, replica_match_index(group_replica(g, leader), late + 1) ==
                           replica_last_index(group_replica(g, leader)));
        g->held[late + 1] = true;
        for (unsigned k = 0; k < ROWS[i][1] + 20; k++) {
            assert_int_equal(group_submit(g, leader), 0);
            group_step(g);
            assert_true(in_flight_to(g, leader, late) <= ROWS[i][1]);
        }
        assert_int_equal(in_flight_to(g, leader, late), ROWS[i][1]);
        g->held[late + 1] = false;
        group_expect_same(g);
        if (i < 2) {
            group_fini(g);
        }
    }
}

TEST_WITH(all_apply_the_same, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned leader = group_elect(g);
    for (unsigned i = 0; i < 200; i++) {
        assert_int_equal(group_submit(g, leader), 0);
        if (i % 7 == 0) {
            group_step(g);
        }
    }
    group_expect_same(g);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(group_tokens(g, i), 200);
    }
}

/* After one was away its heartbeats are due at other times than the other's. */
TEST_WITH(the_first_entry_after_a_pause_is_sent_at_once, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned leader = group_elect(g);
    unsigned away = (leader + 1) % 3;
    for (unsigned round = 0; round < 10; round++) {
        group_isolate(g, away, true);
        assert_int_equal(group_submit(g, leader), 0);
        group_run(g, GROUP_HEARTBEAT_MS + 10 + round);
        group_isolate(g, away, false);
        group_run(g, 300 + 3 * round);
        assert_int_equal(group_submit(g, leader), 0);
        uint64_t last = replica_last_index(group_replica(g, leader));
        group_run(g, 3); /* there, written, and back */
        assert_int_equal(replica_commit_index(group_replica(g, leader)), last);
        assert_int_equal(log_durable_index(g->servers[away].log), last);
    }
}

/* A majority of disks: two followers without the leader are one, the leader alone is none. */
TEST_WITH(a_majority_of_disks_commits, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned leader = group_elect(g);
    uint64_t commit = replica_commit_index(group_replica(g, leader));
    g->servers[leader].disk_stuck = true;
    assert_int_equal(group_submit(g, leader), 0);
    GROUP_UNTIL(g, replica_commit_index(group_replica(g, leader)) == commit + 1);
    assert_true(log_durable_index(g->servers[leader].log) <= commit);
    g->servers[leader].disk_stuck = false;
    group_run(g, 5);
    g->servers[(leader + 1) % 3].disk_stuck = true;
    g->servers[(leader + 2) % 3].disk_stuck = true;
    assert_int_equal(group_submit(g, leader), 0);
    group_run(g, 300);
    assert_int_equal(replica_commit_index(group_replica(g, leader)), commit + 1);
    assert_int_equal(group_leader(g), leader);
    g->servers[(leader + 2) % 3].disk_stuck = false;
    GROUP_UNTIL(g, replica_commit_index(group_replica(g, leader)) == commit + 2);
}

/* What a server is behind is applied over several turns: it reads its sockets in between. */
TEST_WITH(a_turn_applies_a_part, NULL, group_stop)
{
    enum { ENTRIES = 20, EACH = MACHINE_BATCH_COST_MAX / MACHINE_STEPS_RECORD };
    struct group *g = start(1);
    (void)group_elect(g);
    group_run(g, 50);
    uint64_t last = group_tokens(g, 0);
    uint64_t end = last + (uint64_t)ENTRIES * EACH;
    for (unsigned i = 0; i < ENTRIES; i++) {
        assert_int_equal(group_submit_many(g, 0, EACH), 0);
    }
    unsigned turns = 0;
    group_write(g, 0);
    while (last < end) {
        if (turns > 0) {
            group_turn(g, 0);
        }
        uint64_t now = group_tokens(g, 0);
        uint64_t steps = (now - last) * MACHINE_STEPS_RECORD;
        assert_true(steps > 0 && steps <= 3 * (uint64_t)MACHINE_APPLY_STEPS_MAX);
        last = now;
        turns++;
        assert_true(last == end || replica_next_ms(group_replica(g, 0), g->now_ms) == 0);
    }
    assert_true(turns >= ENTRIES * MACHINE_BATCH_COST_MAX / (3 * MACHINE_APPLY_STEPS_MAX));
}

/* An entry that a leader has sent and not written is lost when the leader crashes. The next leader
 * must have another term; otherwise a follower would take the lost entry for the new one at that
 * index. Here the only voter is the next leader again. */
TEST_WITH(the_only_voter_leads_in_another_term_after_a_restart, NULL, group_stop)
{
    static const uint8_t nothing[64];
    struct group *g = start_with_learner();
    (void)group_elect(g);
    group_run(g, 50);
    for (unsigned round = 0; round < 5; round++) {
        uint64_t term = replica_term(group_replica(g, 0));
        uint64_t last = replica_last_index(group_replica(g, 0));
        g->servers[0].disk_stuck = true;
        assert_int_equal(group_submit(g, 0), 0);
        GROUP_UNTIL(g, log_durable_index(g->servers[1].log) == last + 1);
        assert_true(log_durable_index(g->servers[0].log) <= last);
        sim_device_tear(g->servers[0].sim, nothing);
        group_crash(g, 0, SIM_CRASH_POWER);
        g->servers[0].disk_stuck = false;
        group_drop(g);
        group_run(g, 7); /* so that the next entry is another one */
        group_up(g, 0);
        assert_int_equal(group_elect(g), 0);
        assert_int_equal(replica_last_index(group_replica(g, 0)), last);
        assert_int_equal(group_submit(g, 0), 0);
        GROUP_UNTIL(g, group_tokens(g, 0) == round + 1 && group_tokens(g, 1) == round + 1);
        group_expect_same(g);
        assert_true(replica_term(group_replica(g, 0)) > term);
    }
}

/* Committed, applied, and the power goes everywhere, again and again. */
TEST_WITH(what_is_committed_survives, NULL, group_stop)
{
    struct group *g = start(3);
    uint64_t committed = 0;
    for (unsigned round = 0; round < 20; round++) {
        unsigned leader = group_elect(g);
        for (unsigned i = 0; i < 10; i++) {
            assert_int_equal(group_submit(g, leader), 0);
        }
        group_run(g, round % 5);
        for (unsigned i = 0; i < 3; i++) {
            uint64_t tokens = group_tokens(g, i);
            committed = tokens > committed ? tokens : committed;
        }
        for (unsigned i = 0; i < 3; i++) {
            group_crash(g, i, round % 2 == 0 ? SIM_CRASH_POWER : SIM_CRASH_PROCESS);
        }
        group_drop(g);
        g->seed++;
        group_up_all(g);
        (void)group_elect(g);
        group_expect_same(g);
        assert_true(group_tokens(g, 0) >= committed);
    }
    assert_true(committed > 20);
}

TEST_WITH(a_barrier_is_told_when_it_is_applied, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned leader = group_elect(g);
    group_run(g, 50);
    struct group_server *s = &g->servers[leader];
    assert_true(replica_barrier_term(s->replica) < replica_term(s->replica));
    assert_int_equal(replica_barrier(s->replica, g->now_ms), 0);
    assert_true(replica_barrier_term(s->replica) < replica_term(s->replica));
    GROUP_UNTIL(g, replica_barrier_term(s->replica) == replica_term(s->replica));
    assert_int_equal(replica_barrier(group_replica(g, (leader + 1) % 3), g->now_ms), FL_ENOLEADER);
    assert_int_equal(group_submit(g, (leader + 1) % 3), FL_ENOLEADER);
}

/* The disk takes nothing more: refused, surely not appended, and later taken again. */
TEST_WITH(a_disk_that_is_behind_refuses, NULL, group_stop)
{
    struct group *g = start(1);
    struct group_server *s = &g->servers[0];
    static uint8_t bytes[64 << 10];
    (void)group_elect(g);
    s->disk_stuck = true;
    uint64_t before = replica_last_index(s->replica);
    unsigned taken = 0;
    while (replica_submit(s->replica, g->now_ms, bytes, sizeof bytes) == 0) {
        taken++;
        assert_true(taken < 1000);
    }
    assert_true(taken > 0);
    assert_int_equal(replica_submit(s->replica, g->now_ms, bytes, sizeof bytes), FL_EBUSY);
    assert_int_equal(replica_last_index(s->replica), before + taken);
    assert_int_equal(s->fatals, 0);
    /* They are no batches: the node halts at the first, rather than pass over it. */
    s->disk_stuck = false;
    GROUP_UNTIL(g, s->fatals == 1);
    assert_int_equal(s->fatal_error, FL_ECORRUPT);
    assert_int_equal(replica_applied_index(s->replica), before);
    group_run(g, 50);
    assert_int_equal(s->fatals, 1);
    assert_int_equal(group_submit(g, 0), FL_ENOLEADER);
}

TEST_WITH(a_write_that_fails_is_fatal, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned leader = group_elect(g);
    unsigned follower = (leader + 1) % 3;
    sim_device_fail(g->servers[follower].sim, SIM_LOG_WRITE, 1, 1, -EIO);
    assert_int_equal(group_submit(g, leader), 0);
    GROUP_UNTIL(g, g->servers[follower].fatals > 0);
    assert_int_equal(g->servers[follower].fatal_error, FL_EIO);
    /* Nothing of it is confirmed by this one from then on. */
    uint64_t match = replica_match_index(group_replica(g, leader), follower + 1);
    group_run(g, 100);
    assert_int_equal(replica_match_index(group_replica(g, leader), follower + 1), match);
}

/* The process stood still: what others have sent waits in its sockets, and is read before a leader
 * is given up. */
TEST_WITH(no_timer_runs_out_right_after_a_pause, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned leader = group_elect(g);
    struct replica *r = group_replica(g, (leader + 1) % 3);
    group_run(g, 50);
    assert_true(replica_leader(r) == leader + 1);
    g->now_ms += 10 * GROUP_ELECTION_MS;
    replica_turn(r, g->now_ms, true);
    assert_true(replica_role(r) == REPLICA_FOLLOWER);
    assert_true(replica_leader(r) == leader + 1);
    replica_turn(r, g->now_ms, false);
    assert_true(replica_role(r) == REPLICA_CANDIDATE);
}

/* Entries of a leader that is over, or that do not follow ours: what they say of the configuration
 * is not noted either. */
TEST_WITH(a_change_that_was_refused_is_not_noted, NULL, group_stop)
{
    static struct message_body body;
    struct group *g = &group;
    struct configuration c;
    uint8_t conf[CONFIGURATION_SIZE_MAX];
    uint8_t bytes[2048];
    group_init(g, 3);
    group_up(g, 0);
    assert_int_equal(say_vote(g, 2, 0, 5), 0);
    c = g->conf;
    assert_int_equal(configuration_remove(&c, 3), 0);
    size_t conf_len = configuration_encode(&c, conf);
    static const struct {
        uint64_t term, prev;
    } ROWS[] = {{4, 1}, {5, 2}};
    for (unsigned i = 0; i < 2; i++) {
        struct raft_message m = {.type = RAFT_APPEND_ENTRIES};
        size_t len = 0;
        m.append_entries.term = ROWS[i].term;
        m.append_entries.prev_log_index = ROWS[i].prev;
        m.append_entries.prev_log_term = 1;
        assert_int_equal(message_encode(&m, &body), 0);
        assert_true(message_add_entry(&body, ROWS[i].term, RAFT_CHANGE,
                                      (struct fli_slice){conf, conf_len}));
        for (unsigned k = 0; k < body.n; k++) {
            assert_true(len + body.parts[k].len <= sizeof bytes);
            memcpy(bytes + len, body.parts[k].data, body.parts[k].len);
            len += body.parts[k].len;
        }
        assert_int_equal(replica_receive(group_replica(g, 0), g->now_ms, 2, body.type,
                                         (struct fli_slice){bytes, len}),
                         0);
        assert_int_equal(replica_configuration(group_replica(g, 0))->n, 3);
        assert_int_equal(replica_configuration_index(group_replica(g, 0)), 1);
        assert_int_equal(replica_last_index(group_replica(g, 0)), 1);
    }
}

/* One message may bring more changes than the list of them has room for. The core has the sender's
 * address until the last is taken in, and that lay in the list: a sanitizer sees it. */
TEST_WITH(many_changes_in_one_message, NULL, group_stop)
{
    enum { CHANGES = 24 };
    static struct message_body body;
    static uint8_t confs[CHANGES][CONFIGURATION_SIZE_MAX];
    static uint8_t bytes[CHANGES * (CONFIGURATION_SIZE_MAX + MESSAGE_ENTRY_HEAD) + 64];
    struct group *g = &group;
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES};
    size_t len = 0;
    group_init(g, 3);
    group_up(g, 0);
    struct configuration c = g->conf;
    m.append_entries.term = 2;
    m.append_entries.prev_log_index = 1;
    m.append_entries.prev_log_term = 1;
    assert_int_equal(message_encode(&m, &body), 0);
    for (unsigned i = 0; i < CHANGES; i++) { /* each differs by one server from the one before */
        assert_int_equal(i % 2 == 0 ? configuration_remove(&c, 3)
                                    : configuration_add(&c, 3, 3, "s3:1", CONFIGURATION_VOTER),
                         0);
        struct fli_slice conf = {confs[i], configuration_encode(&c, confs[i])};
        assert_true(message_add_entry(&body, 2, RAFT_CHANGE, conf));
    }
    for (unsigned k = 0; k < body.n; k++) {
        assert_true(len + body.parts[k].len <= sizeof bytes);
        memcpy(bytes + len, body.parts[k].data, body.parts[k].len);
        len += body.parts[k].len;
    }
    assert_int_equal(replica_receive(group_replica(g, 0), g->now_ms, 2, body.type,
                                     (struct fli_slice){bytes, len}),
                     0);
    assert_int_equal(replica_leader(group_replica(g, 0)), 2);
    assert_int_equal(replica_last_index(group_replica(g, 0)), 1 + CHANGES);
    assert_int_equal(replica_configuration_index(group_replica(g, 0)), 1 + CHANGES);
    group_write(g, 0);
    assert_int_equal(first_to(g, 2, MESSAGE_APPEND_RESULT).append_entries_result.rejected, 0);
}

/* ---- changes of the configuration ---- */

static void change_to(struct group *g, unsigned leader, const struct configuration *c)
{
    assert_int_equal(replica_change(group_replica(g, leader), g->now_ms, c), 0);
    GROUP_UNTIL(g, replica_configuration_committed(group_replica(g, leader)));
}

TEST_WITH(a_server_leaves_and_comes_back, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned leader = group_elect(g);
    unsigned away = (leader + 1) % 3;
    struct configuration c = g->conf;
    assert_int_equal(configuration_remove(&c, away + 1), 0);
    group_begin_term(g, leader);
    group_isolate(g, away, true);
    assert_int_equal(replica_change(group_replica(g, leader), g->now_ms, &c), 0);
    assert_int_equal(replica_change(group_replica(g, leader), g->now_ms, &c), FL_EBUSY);
    assert_int_equal(replica_configuration(group_replica(g, leader))->n, 2); /* in force at once */
    GROUP_UNTIL(g, replica_configuration_committed(group_replica(g, leader)));
    assert_false(replica_has_caught_up(group_replica(g, leader), g->now_ms, away + 1));
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(group_submit(g, leader), 0);
    }
    char address[16];
    snprintf(address, sizeof address, "s%u:1", away + 1);
    assert_int_equal(configuration_add(&c, away + 1, away + 1, address, CONFIGURATION_LEARNER), 0);
    change_to(g, leader, &c);
    /* Nobody has heard from it yet. */
    assert_false(replica_has_caught_up(group_replica(g, leader), g->now_ms, away + 1));
    group_isolate(g, away, false);
    GROUP_UNTIL(g, replica_has_caught_up(group_replica(g, leader), g->now_ms, away + 1));
    assert_int_equal(group_leader(g), leader);
    configuration_find(&c, away + 1)->role = CONFIGURATION_VOTER;
    change_to(g, leader, &c);
    group_expect_same(g);
    assert_int_equal(configuration_voters(replica_configuration(group_replica(g, away))), 3);
}

/* It is close when it has confirmed, within an election time, what was there at first. */
TEST_WITH(a_learner_that_is_close_has_caught_up, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned leader = group_elect(g);
    unsigned learner = (leader + 1) % 3;
    struct replica *r = group_replica(g, leader);
    struct configuration c = g->conf;
    configuration_find(&c, learner + 1)->role = CONFIGURATION_LEARNER;
    group_begin_term(g, leader);
    change_to(g, leader, &c);
    group_expect_same(g);
    group_run(g, 100);
    group_isolate(g, learner, true);
    assert_true(replica_has_caught_up(r, g->now_ms, learner + 1)); /* it lacks nothing */
    group_run(g, REPLICA_CAUGHT_UP_MS);
    assert_int_equal(group_submit(g, leader), 0);
    assert_false(replica_has_caught_up(r, g->now_ms, learner + 1));
    group_isolate(g, learner, false);
    GROUP_UNTIL(g, replica_match_index(r, learner + 1) == replica_last_index(r));
    assert_int_equal(group_submit(g, leader), 0); /* one more does not matter */
    assert_true(replica_has_caught_up(r, g->now_ms, learner + 1));
    group_run(g, REPLICA_CAUGHT_UP_MS - 1);
    group_isolate(g, learner, true);
    group_run(g, 1);
    assert_int_equal(group_submit(g, leader), 0);
    assert_false(replica_has_caught_up(r, g->now_ms, learner + 1)); /* it begins anew */
    group_isolate(g, learner, false);
    GROUP_UNTIL(g, replica_has_caught_up(r, g->now_ms, learner + 1));
    /* It leads nobody. */
    assert_false(replica_has_caught_up(group_replica(g, learner), g->now_ms, leader + 1));
    configuration_find(&c, learner + 1)->role = CONFIGURATION_VOTER;
    change_to(g, leader, &c);
}

/* The owner asks less often than an election time takes, and entries never cease. */
TEST_WITH(a_learner_catches_up_under_load, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned leader = group_elect(g);
    unsigned learner = (leader + 1) % 3;
    struct replica *r = group_replica(g, leader);
    struct configuration c = g->conf;
    configuration_find(&c, learner + 1)->role = CONFIGURATION_LEARNER;
    group_begin_term(g, leader);
    change_to(g, leader, &c);
    bool close = false;
    for (unsigned i = 0; i < 10 * GROUP_ELECTION_MS && !close; i++) {
        group_step(g);
        assert_int_equal(group_submit(g, leader), 0);
        close = i % GROUP_ELECTION_MS == 0 && replica_has_caught_up(r, g->now_ms, learner + 1);
    }
    assert_true(close);
}

/* The only voter makes a learner the second one, and stops before that one has heard of it. */
TEST_WITH(a_leader_is_elected_by_a_learner_of_before, NULL, group_stop)
{
    struct group *g = &group;
    group_init(g, 2);
    configuration_find(&g->conf, 2)->role = CONFIGURATION_LEARNER;
    group_up_all(g);
    assert_int_equal(group_elect(g), 0);
    group_begin_term(g, 0);
    group_expect_same(g);
    struct configuration c = g->conf;
    configuration_find(&c, 2)->role = CONFIGURATION_VOTER;
    group_isolate(g, 0, true);
    assert_int_equal(replica_change(group_replica(g, 0), g->now_ms, &c), 0);
    group_write(g, 0);
    group_crash(g, 0, SIM_CRASH_PROCESS);
    group_up(g, 0);
    group_isolate(g, 0, false);
    GROUP_UNTIL(g, group_leader(g) == 0);
    GROUP_UNTIL(g, replica_configuration_committed(group_replica(g, 0)));
}

/* A leader that is cut off changes the configuration; the next leader's log has no such entry. */
TEST_WITH(a_change_that_is_cut_off_is_taken_back, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned old = group_elect(g);
    struct configuration c = g->conf;
    uint64_t index = replica_configuration_index(group_replica(g, old));
    group_begin_term(g, old);
    group_run(g, 50);
    group_isolate(g, old, true);
    assert_int_equal(configuration_remove(&c, (old + 1) % 3 + 1), 0);
    assert_int_equal(replica_change(group_replica(g, old), g->now_ms, &c), 0);
    assert_int_equal(replica_configuration(group_replica(g, old))->n, 2);
    assert_false(replica_configuration_committed(group_replica(g, old)));
    GROUP_UNTIL(g, group_leader(g) != (int)old && group_leader(g) >= 0);
    unsigned leader = group_elect(g);
    assert_int_equal(group_submit(g, leader), 0);
    GROUP_UNTIL(g, replica_commit_index(group_replica(g, leader)) ==
                       replica_last_index(group_replica(g, leader)));
    group_isolate(g, old, false);
    group_expect_same(g);
    assert_int_equal(replica_configuration(group_replica(g, old))->n, 3);
    assert_int_equal(replica_configuration_index(group_replica(g, old)), index);
    assert_true(replica_configuration_committed(group_replica(g, old)));
    /* And it can lead, and change it. */
    assert_int_equal(replica_transfer(group_replica(g, leader), g->now_ms, old + 1), 0);
    GROUP_UNTIL(g, group_leader(g) == (int)old);
    assert_int_equal(group_elect(g), old);
    group_begin_term(g, old);
    change_to(g, old, &c);
}

/* ---- handing over ---- */

static struct group *start_with_leader(unsigned *leader, unsigned *next)
{
    struct group *g = start(3);
    *leader = group_elect(g);
    *next = (*leader + 1) % 3;
    group_run(g, 50);
    return g;
}

TEST_WITH(leadership_is_handed_over, NULL, group_stop)
{
    unsigned leader, next;
    struct group *g = start_with_leader(&leader, &next);
    struct replica *r = group_replica(g, leader);
    uint64_t term = replica_term(r);
    assert_int_equal(replica_transfer(r, g->now_ms, leader + 1), FL_ENOTFOUND);
    assert_int_equal(replica_transfer(r, g->now_ms, 99), FL_ENOTFOUND);
    assert_int_equal(replica_transfer(group_replica(g, next), g->now_ms, leader + 1), FL_ENOLEADER);
    assert_int_equal(replica_transfer(r, g->now_ms, next + 1), 0);
    assert_int_equal(replica_transferee(r), next + 1);
    assert_int_equal(replica_transfer(r, g->now_ms, next + 1), FL_EBUSY);
    assert_int_equal(group_submit(g, leader), FL_ENOLEADER);
    GROUP_UNTIL(g, replica_role(group_replica(g, next)) == REPLICA_LEADER);
    assert_int_equal(replica_term(group_replica(g, next)), term + 1);
    group_expect_same(g);
}

/* To one that lacks two entries, and confirms the first by itself: it may lead once it has both,
 * and is told no earlier, since it would take no notice. */
TEST_WITH(leadership_waits_for_the_last_entry, NULL, group_stop)
{
    unsigned leader, next;
    struct group *g = start_with_leader(&leader, &next);
    struct replica *r = group_replica(g, leader);
    uint64_t term = replica_term(r);
    g->servers[next].disk_stuck = true;
    assert_int_equal(group_submit(g, leader), 0);
    group_run(g, 5);
    g->held[next + 1] = true;
    assert_int_equal(group_submit(g, leader), 0);
    assert_int_equal(replica_transfer(r, g->now_ms, next + 1), 0);
    g->servers[next].disk_stuck = false;
    group_run(g, 5); /* the first is confirmed */
    assert_int_equal(replica_transferee(r), next + 1);
    assert_int_equal(replica_transfer(r, g->now_ms, next + 1), FL_EBUSY);
    assert_int_equal(group_submit(g, leader), FL_ENOLEADER);
    g->held[next + 1] = false;
    GROUP_UNTIL(g, replica_role(group_replica(g, next)) == REPLICA_LEADER);
    assert_int_equal(replica_term(group_replica(g, next)), term + 1);
    assert_int_equal(replica_transferee(r), 0);
    group_expect_same(g);
}

/* As above; but it never gets them, and after an election time this one leads on. */
TEST_WITH(a_transfer_to_one_that_stays_behind_ends, NULL, group_stop)
{
    unsigned leader, next;
    struct group *g = start_with_leader(&leader, &next);
    struct replica *r = group_replica(g, leader);
    g->held[next + 1] = true;
    assert_int_equal(group_submit(g, leader), 0);
    assert_int_equal(replica_transfer(r, g->now_ms, next + 1), 0);
    uint64_t began_ms = g->now_ms;
    GROUP_UNTIL(g, replica_transferee(r) == 0);
    assert_true(g->now_ms - began_ms >= GROUP_ELECTION_MS);
    assert_int_equal(group_leader(g), leader);
    assert_int_equal(group_submit(g, leader), 0);
    g->held[next + 1] = false;
    group_expect_same(g);
}

/* To one that does not answer: after an election time this one leads on. */
TEST_WITH(a_transfer_to_nobody_ends, NULL, group_stop)
{
    unsigned leader, next;
    struct group *g = start_with_leader(&leader, &next);
    struct replica *r = group_replica(g, leader);
    group_crash(g, next, SIM_CRASH_PROCESS);
    assert_int_equal(replica_transfer(r, g->now_ms, next + 1), 0);
    GROUP_UNTIL(g, replica_transferee(r) == 0);
    assert_int_equal(group_leader(g), leader);
    assert_int_equal(group_submit(g, leader), 0);
}
