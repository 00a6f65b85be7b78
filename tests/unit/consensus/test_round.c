/* test_round.c: rounds, in which a leader asks whether it is still followed. */
#include "../../lib/unit.h"

#include "group.h"

static struct group *start(unsigned n)
{
    group_init(&group, n);
    group_up_all(&group);
    return &group;
}

static int say(struct group *g, uint64_t from, unsigned to, enum message_type type, uint64_t term,
               uint64_t number)
{
    static struct message_body body;
    struct raft_message m = {.type = type == MESSAGE_ROUND ? RAFT_ROUND : RAFT_ROUND_RESULT};
    m.timeout_now.term = term;
    m.timeout_now.last_log_index = number;
    assert_int_equal(message_encode(&m, &body), 0);
    return replica_receive(group_replica(g, to), g->now_ms, from, body.type, body.parts[0]);
}

static uint64_t confirmed(struct group *g, unsigned i)
{
    return replica_round_confirmed(group_replica(g, i));
}

TEST_WITH(a_majority_confirms, NULL, group_stop)
{
    struct group *g = start(5);
    unsigned l = group_elect(g);
    uint64_t id = l + 1;
    uint64_t before = confirmed(g, l);
    uint64_t round = replica_round(group_replica(g, l), g->now_ms);
    uint64_t term = replica_term(group_replica(g, l));
    assert_int_equal(round, before + 1);
    assert_int_equal(confirmed(g, l), before);
    group_drop(g);
    unsigned answers = 0;
    for (uint64_t other = 1; other <= 5 && answers < 2; other++) {
        if (other != id) {
            assert_int_equal(confirmed(g, l), before);
            assert_int_equal(say(g, other, l, MESSAGE_ROUND_RESULT, term, round), 0);
            /* The same again counts once. */
            assert_int_equal(say(g, other, l, MESSAGE_ROUND_RESULT, term, round), 0);
            answers++;
        }
    }
    assert_int_equal(confirmed(g, l), round);
}

TEST_WITH(only_the_answer_to_this_round_counts, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned l = group_elect(g);
    uint64_t other = l == 0 ? 2 : 1;
    struct replica *r = group_replica(g, l);
    uint64_t term = replica_term(r);
    uint64_t first = replica_round(r, g->now_ms);
    GROUP_UNTIL(g, confirmed(g, l) == first);
    uint64_t round = replica_round(r, g->now_ms);
    group_drop(g);
    assert_int_equal(say(g, other, l, MESSAGE_ROUND_RESULT, term, first), 0);
    assert_int_equal(say(g, other, l, MESSAGE_ROUND_RESULT, term, round + 1), 0);
    assert_int_equal(say(g, other, l, MESSAGE_ROUND_RESULT, term - 1, round), 0);
    assert_int_equal(say(g, other, l, MESSAGE_ROUND_RESULT, term + 1, round), 0);
    for (uint64_t stranger = 10; stranger < 10 + 2 * MEMBERS_MAX; stranger++) {
        assert_int_equal(say(g, stranger, l, MESSAGE_ROUND_RESULT, term, round), 0);
    }
    assert_int_equal(say(g, l + 1, l, MESSAGE_ROUND_RESULT, term, round), 0); /* itself */
    assert_int_equal(confirmed(g, l), first);
    assert_int_equal(say(g, other, l, MESSAGE_ROUND_RESULT, term, round), 0);
    assert_int_equal(confirmed(g, l), round);
}

/* Who asks while a round is on its way shares the next one with all others. */
TEST_WITH(one_round_is_on_its_way_and_one_waits, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned l = group_elect(g);
    struct replica *r = group_replica(g, l);
    uint64_t first = replica_round(r, g->now_ms);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(replica_round(r, g->now_ms), first + 1);
    }
    assert_int_equal(group_packets(g, l == 0 ? 2 : 1, MESSAGE_ROUND), 1);
    GROUP_UNTIL(g, confirmed(g, l) >= first);
    assert_int_equal(confirmed(g, l), first);
    assert_int_equal(group_packets(g, l == 0 ? 2 : 1, MESSAGE_ROUND), 1);
    GROUP_UNTIL(g, confirmed(g, l) == first + 1);
    group_run(g, 200);
    assert_int_equal(confirmed(g, l), first + 1);
    assert_int_equal(replica_round(r, g->now_ms), first + 2);
}

TEST_WITH(what_is_lost_is_asked_again, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned l = group_elect(g);
    struct replica *r = group_replica(g, l);
    uint64_t round = replica_round(r, g->now_ms);
    group_drop(g);
    uint64_t asked_ms = g->now_ms;
    GROUP_UNTIL(g, group_packets(g, l == 0 ? 2 : 1, MESSAGE_ROUND) > 0);
    assert_int_equal(g->now_ms - asked_ms, GROUP_HEARTBEAT_MS);
    assert_true(replica_round_confirmed(r) < round);
    GROUP_UNTIL(g, confirmed(g, l) == round);
    group_run(g, 5 * GROUP_HEARTBEAT_MS);
    assert_int_equal(group_packets(g, l == 0 ? 2 : 1, MESSAGE_ROUND), 0);
}

/* It is deposed and does not know it. Its round is never confirmed, also when it leads again. */
TEST_WITH(a_deposed_leader_confirms_nothing, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned l = group_elect(g);
    struct replica *r = group_replica(g, l);
    uint64_t before = replica_round_confirmed(r);
    group_isolate(g, l, true);
    uint64_t round = replica_round(r, g->now_ms);
    GROUP_UNTIL(g, group_leader(g) >= 0 && group_leader(g) != (int)l);
    group_run(g, 20);
    uint64_t old_term = replica_term(r);
    group_isolate(g, l, false);
    /* Those that follow the new leader answer it not. */
    for (unsigned i = 0; i < 3; i++) {
        if (i != l) {
            unsigned sent = group_packets(g, l + 1, MESSAGE_ROUND_RESULT);
            assert_true(replica_term(group_replica(g, i)) > old_term);
            assert_int_equal(say(g, l + 1, i, MESSAGE_ROUND, old_term, round), 0);
            assert_int_equal(group_packets(g, l + 1, MESSAGE_ROUND_RESULT), sent);
        }
    }
    GROUP_UNTIL(g, replica_term(r) > old_term);
    group_run(g, 500);
    assert_int_equal(replica_round_confirmed(r), before);
    if (replica_role(r) != REPLICA_LEADER) {
        assert_int_equal(replica_round(r, g->now_ms), UINT64_MAX);
    }
}

TEST_WITH(a_term_has_one_leader, NULL, group_stop)
{
    struct group *g = start(3);
    unsigned l = group_elect(g);
    uint64_t term = replica_term(group_replica(g, l));
    uint64_t other = l == 0 ? 2 : 1;
    assert_int_equal(say(g, other, l, MESSAGE_ROUND, term, 1), FL_EPROTO);
    assert_int_equal(say(g, other, l, MESSAGE_ROUND, term + 1, 1), 0);
    for (size_t len = 0; len <= 17; len++) {
        const uint8_t bytes[17] = {0};
        assert_int_equal(replica_receive(group_replica(g, l), g->now_ms, other,
                                         MESSAGE_ROUND_RESULT, (struct fli_slice){bytes, len}),
                         len == 16 ? 0 : FL_EPROTO);
    }
}

TEST_WITH(the_only_voter_confirms_itself, NULL, group_stop)
{
    group_init(&group, 2);
    group.conf.servers[1].role = CONFIGURATION_LEARNER;
    group_up_all(&group);
    unsigned l = group_elect(&group);
    assert_int_equal(l, 0);
    uint64_t round = replica_round(group_replica(&group, 0), group.now_ms);
    assert_int_equal(confirmed(&group, 0), round);
    assert_int_equal(group_packets(&group, 2, MESSAGE_ROUND), 0);
}

/* What a learner says counts for nothing. */
TEST_WITH(learners_do_not_count, NULL, group_stop)
{
    group_init(&group, 3);
    group.conf.servers[2].role = CONFIGURATION_LEARNER;
    group_up_all(&group);
    unsigned l = group_elect(&group);
    struct replica *r = group_replica(&group, l);
    uint64_t before = replica_round_confirmed(r);
    uint64_t round = replica_round(r, group.now_ms);
    group_drop(&group);
    assert_int_equal(say(&group, 3, l, MESSAGE_ROUND_RESULT, replica_term(r), round), 0);
    assert_int_equal(confirmed(&group, l), before);
    GROUP_UNTIL(&group, confirmed(&group, l) == round);
}

/* The configuration changes while a round is on its way: those that have answered are a majority of
 * the new one, and nobody else will answer. */
TEST_WITH(who_is_left_is_a_majority, NULL, group_stop)
{
    struct group *g = start(2);
    unsigned l = group_elect(g);
    struct replica *r = group_replica(g, l);
    struct configuration alone = g->conf;
    alone.n = 1;
    alone.servers[0] = g->conf.servers[l];
    group_begin_term(g, l);
    uint64_t round = replica_round(r, g->now_ms);
    assert_int_equal(replica_change(r, g->now_ms, &alone), 0);
    GROUP_UNTIL(g, confirmed(g, l) == round);
    round = replica_round(r, g->now_ms);
    assert_int_equal(confirmed(g, l), round);
}

/* Likewise with four members, of which two say nothing, and one of these goes. */
TEST_WITH(a_majority_of_the_rest_confirms, NULL, group_stop)
{
    struct group *g = start(4);
    unsigned l = group_elect(g);
    unsigned silent = l == 3 ? 2 : 3;
    unsigned gone = l < 2 ? 2 : 1;
    struct replica *r = group_replica(g, l);
    struct configuration three = g->conf;
    three.n = 0;
    for (unsigned i = 0; i < 4; i++) {
        if (i != gone) {
            three.servers[three.n++] = g->conf.servers[i];
        }
    }
    group_begin_term(g, l);
    group_isolate(g, silent, true);
    group_isolate(g, gone, true);
    uint64_t round = replica_round(r, g->now_ms);
    group_run(g, 10);
    assert_true(confirmed(g, l) < round);
    assert_int_equal(replica_change(r, g->now_ms, &three), 0);
    GROUP_UNTIL(g, confirmed(g, l) == round);
}
