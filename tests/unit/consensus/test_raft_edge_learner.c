/* test_raft_edge_learner.c: votes of learners, a defect of the raft library's core. It is shown as
 * those of test_raft_edge.c are: to the core alone, and through the edge. */
#include "../../lib/unit.h"

#include "core.h"

static void begin_as_learner(struct core *c, enum mode mode)
{
    struct configuration conf = {0};
    assert_int_equal(configuration_add(&conf, 1, 1, "s1:1", CONFIGURATION_LEARNER), 0);
    assert_int_equal(configuration_add(&conf, 2, 2, "s2:1", CONFIGURATION_VOTER), 0);
    assert_int_equal(configuration_add(&conf, 3, 3, "s3:1", CONFIGURATION_VOTER), 0);
    core_begin_in(c, mode, &conf);
}

static bool is_granted(struct core *c, uint64_t term, bool pre_vote)
{
    assert_int_equal(core_vote(c, 3, 3, term, pre_vote), 0);
    return core_message(c, 3, RAFT_REQUEST_VOTE_RESULT)->request_vote_result.vote_granted;
}

/* Servers 2 and 3 have the change that makes it a voter. Server 2 is lost, and 3 needs its vote. */
static bool is_elected_by_a_learner(enum mode mode)
{
    struct core c;
    begin_as_learner(&c, mode);
    bool granted = is_granted(&c, 2, true) && is_granted(&c, 2, false);
    if (granted) {
        assert_int_equal(raft_current_term(&c.raft), 2);
        assert_int_equal(raft_voted_for(&c.raft), 3);
        assert_int_equal(core_vote(&c, 2, 2, 2, false), 0); /* it has one in each term */
        assert_false(
            core_message(&c, 2, RAFT_REQUEST_VOTE_RESULT)->request_vote_result.vote_granted);
    }
    /* It stays a learner, and asks for no votes. */
    assert_int_equal(c.raft.configuration.servers[0].role, RAFT_STANDBY);
    core_timeout(&c, 3 * ELECTION_MS);
    assert_int_equal(raft_state(&c.raft), RAFT_FOLLOWER);
    core_end(&c);
    return granted;
}

TEST(a_learner_votes)
{
    assert_false(is_elected_by_a_learner(CORE_ALONE));
    assert_true(is_elected_by_a_learner(WITH_EDGE));
}

/* It has heard a leader. The core never forgets that one, since a learner's timer does nothing. */
static bool is_elected_over_a_leader(enum mode mode, uint64_t ms)
{
    struct core c;
    begin_as_learner(&c, mode);
    assert_int_equal(core_append(&c, 2, 1, 1, "", 1), 0);
    core_timeout(&c, ms);
    bool granted = is_granted(&c, 2, true) && is_granted(&c, 2, false);
    if (granted) {
        /* The new leader is taken for it. */
        assert_int_equal(core_append(&c, 3, 2, 1, "c", 1), 0);
        assert_int_equal(c.last, 2);
    }
    core_end(&c);
    return granted;
}

TEST(a_learner_gives_up_a_silent_leader)
{
    assert_false(is_elected_over_a_leader(CORE_ALONE, 10 * ELECTION_MS));
    assert_true(is_elected_over_a_leader(WITH_EDGE, ELECTION_MS));
    assert_false(is_elected_over_a_leader(WITH_EDGE, ELECTION_MS - 1));
}

/* Its log has more than that of the one who asks. */
TEST(a_learner_elects_nobody_who_lacks_entries)
{
    struct core c;
    begin_as_learner(&c, WITH_EDGE);
    assert_int_equal(core_append(&c, 2, 1, 1, "cc", 1), 0);
    core_persist(&c);
    core_timeout(&c, ELECTION_MS);
    c.last--;
    assert_false(is_granted(&c, 2, true));
    assert_false(is_granted(&c, 2, false));
    assert_int_equal(raft_voted_for(&c.raft), 0);
    core_end(&c);
}

/* The leader has made it a voter, and has stopped before the learner heard that. Then it needs the
 * learner's vote, who knows no other leader. */
TEST(a_learner_elects_its_leader_again)
{
    struct core c;
    begin_as_learner(&c, WITH_EDGE);
    assert_int_equal(core_append(&c, 2, 1, 1, "", 1), 0);
    core_timeout(&c, ELECTION_MS);
    for (unsigned pre_vote = 2; pre_vote-- > 0;) {
        assert_int_equal(core_vote(&c, 2, 2, 2, pre_vote), 0);
        assert_true(
            core_message(&c, 2, RAFT_REQUEST_VOTE_RESULT)->request_vote_result.vote_granted);
    }
    core_end(&c);
}
