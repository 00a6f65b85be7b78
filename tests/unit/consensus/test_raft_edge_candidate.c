/* test_raft_edge_candidate.c: candidates that are not elected, a defect of the raft library's core.
 * It is shown as those of test_raft_edge.c are: to the core alone, and through the edge. */
#include "../../lib/unit.h"

#include "core.h"

/* It has its pre-votes, and asks for the votes of term 2. */
static void ask_for_votes(struct core *c, enum mode mode)
{
    core_begin(c, mode);
    core_timeout(c, 2 * ELECTION_MS);
    assert_int_equal(raft_state(&c->raft), RAFT_CANDIDATE);
    assert_int_equal(core_vote_result(c, 3, 2, true, true), 0);
    assert_int_equal(raft_current_term(&c->raft), 2);
    assert_false(core_message(c, 2, RAFT_REQUEST_VOTE)->request_vote.pre_vote);
}

/* Nobody answers any more, ten times. */
static uint64_t term_when_cut_off(enum mode mode)
{
    struct core c;
    ask_for_votes(&c, mode);
    for (unsigned i = 0; i < 10; i++) {
        core_timeout(&c, 2 * ELECTION_MS);
        assert_int_equal(raft_state(&c.raft), RAFT_CANDIDATE);
        assert_int_equal(core_sent(&c, 2, RAFT_REQUEST_VOTE), 1);
    }
    uint64_t term = raft_current_term(&c.raft);
    if (mode == WITH_EDGE) {
        /* The vote that it gave itself stays given. */
        assert_int_equal(raft_voted_for(&c.raft), 1);
        /* A vote of the election that is over elects nobody. */
        assert_int_equal(core_vote_result(&c, 2, 2, true, false), 0);
        assert_int_equal(raft_state(&c.raft), RAFT_CANDIDATE);
        /* When the others are back, they elect it. */
        assert_int_equal(core_vote_result(&c, 2, 3, true, true), 0);
        assert_int_equal(raft_current_term(&c.raft), 3);
        assert_int_equal(core_vote_result(&c, 2, 3, true, false), 0);
        assert_int_equal(raft_state(&c.raft), RAFT_LEADER);
    }
    core_end(&c);
    return term;
}

TEST(who_was_not_elected_asks_beforehand)
{
    assert_int_equal(term_when_cut_off(CORE_ALONE), 12);
    assert_int_equal(term_when_cut_off(WITH_EDGE), 2);
}

/* Its leader hands over, and the votes are lost. Does it ask again to be preferred to a leader? */
static bool passes_over_a_leader_again(enum mode mode)
{
    struct core c;
    core_begin(&c, mode);
    assert_int_equal(core_append(&c, 2, 1, 1, "", 1), 0);
    struct raft_message m = {.type = RAFT_TIMEOUT_NOW};
    m.timeout_now =
        (struct raft_timeout_now){.term = 1, .last_log_index = 1, .last_log_term = c.terms[1]};
    assert_int_equal(core_receive(&c, 2, &m), 0);
    assert_int_equal(raft_current_term(&c.raft), 2);
    assert_true(core_message(&c, 3, RAFT_REQUEST_VOTE)->request_vote.disrupt_leader);
    core_timeout(&c, 2 * ELECTION_MS);
    const struct raft_message *asked = core_message(&c, 3, RAFT_REQUEST_VOTE);
    assert_int_equal(asked->request_vote.term, 3);
    assert_int_equal(asked->request_vote.pre_vote, mode == WITH_EDGE);
    bool again = asked->request_vote.disrupt_leader;
    core_end(&c);
    return again;
}

TEST(a_leader_is_passed_over_once)
{
    assert_true(passes_over_a_leader_again(CORE_ALONE));
    assert_false(passes_over_a_leader_again(WITH_EDGE));
}

/* The timer is asked before its time, while votes are on their way. */
TEST(an_early_timer_changes_no_election)
{
    struct core c;
    ask_for_votes(&c, WITH_EDGE);
    core_timeout(&c, ELECTION_MS / 2);
    assert_int_equal(core_vote_result(&c, 2, 2, true, false), 0);
    assert_int_equal(raft_state(&c.raft), RAFT_LEADER);
    core_end(&c);
}
