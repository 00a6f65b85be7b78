/* test_raft_edge_old_leader.c: answers to a leader whose term is over, a defect of the raft
 * library's core. It is shown as those of test_raft_edge.c are: to the core alone, and through the
 * edge. */
#include "../../lib/unit.h"

#include "core.h"

/* What the core leaves unset then shows as an index that nobody has. */
__attribute__((noinline)) static void fill_the_stack(void)
{
    volatile uint8_t garbage[32768];
    for (size_t i = 0; i < sizeof garbage; i++) {
        garbage[i] = 0x5a;
    }
}

/* It is in term 2, which somebody else began, when a message of the leader of term 1 arrives. */
static struct raft_append_entries_result answer_to_an_old_leader(enum mode mode, uint64_t prev)
{
    struct core c;
    core_begin(&c, mode);
    assert_int_equal(core_append(&c, 2, 1, 1, "cc", 1), 0);
    core_persist(&c);
    core_timeout(&c, 2 * ELECTION_MS);
    assert_int_equal(core_vote(&c, 3, 3, 2, false), 0);
    assert_int_equal(raft_current_term(&c.raft), 2);
    fill_the_stack();
    assert_int_equal(core_append(&c, 2, 1, prev, prev == 0 ? "3c" : "c", 1), 0);
    const struct raft_message *m = core_message(&c, 2, RAFT_APPEND_ENTRIES_RESULT);
    struct raft_append_entries_result result = m->append_entries_result;
    assert_int_equal(result.term, 2);
    assert_int_equal(raft_last_index(&c.raft), 3);
    core_end(&c);
    return result;
}

/* The core alone sets no last index, so nothing looks at it. */
TEST(an_answer_to_an_old_leader_confirms_nothing)
{
    struct raft_append_entries_result result = answer_to_an_old_leader(CORE_ALONE, 0);
    assert_int_equal(result.rejected, 0);
    result = answer_to_an_old_leader(CORE_ALONE, 3);
    assert_int_equal(result.rejected, 3);
    for (uint64_t prev = 0; prev <= 3; prev++) {
        result = answer_to_an_old_leader(WITH_EDGE, prev);
        assert_int_equal(result.rejected, 0);
        assert_int_equal(result.last_log_index, 0);
    }
}

/* The sender leads again, in the term of the answer. With the vote of server 2, which has none of
 * the entries yet, it counts server 3, which said nothing of them. */
static uint64_t committed_by_an_answer(uint64_t last)
{
    struct core c;
    core_begin(&c, WITH_EDGE);
    core_lead(&c);
    assert_int_equal(core_submit(&c), 0);
    assert_int_equal(core_submit(&c), 0);
    core_persist(&c);
    assert_int_equal(core_result(&c, 3, 0, last), 0);
    uint64_t commit = raft_commit_index(&c.raft);
    core_end(&c);
    return commit;
}

TEST(what_an_old_answer_may_commit)
{
    assert_int_equal(committed_by_an_answer(UINT64_C(0x5a5a5a5a5a5a5a5a)), 3);
    assert_int_equal(committed_by_an_answer(0), 1);
}

/* One of our own leader is answered as ever. */
TEST(an_answer_to_the_leader_is_not_changed)
{
    struct core c;
    core_begin(&c, WITH_EDGE);
    assert_int_equal(core_append(&c, 2, 1, 1, "cc", 1), 0);
    core_persist(&c);
    const struct raft_message *m = core_message(&c, 2, RAFT_APPEND_ENTRIES_RESULT);
    assert_int_equal(m->append_entries_result.last_log_index, 3);
    assert_int_equal(core_append(&c, 2, 1, 9, "", 1), 0);
    m = core_message(&c, 2, RAFT_APPEND_ENTRIES_RESULT);
    assert_int_equal(m->append_entries_result.rejected, 9);
    assert_int_equal(m->append_entries_result.last_log_index, 3);
    core_end(&c);
}

/* Its leader's term is over, and nobody has the new one yet: what the old leader goes on to send
 * does not count as heard. */
TEST(an_old_leader_is_not_heard)
{
    struct core c;
    core_begin(&c, WITH_EDGE);
    assert_int_equal(core_append(&c, 2, 1, 1, "c", 1), 0);
    struct raft_message m = {.type = RAFT_REQUEST_VOTE};
    m.request_vote = (struct raft_request_vote){
        .version = 2, .term = 2, .candidate_id = 3, .disrupt_leader = true};
    assert_int_equal(core_receive(&c, 3, &m), 0);
    assert_int_equal(raft_current_term(&c.raft), 2);
    c.now_ms += 50;
    assert_int_equal(core_append(&c, 2, 1, 2, "", 1), 0);
    assert_int_equal(raft_edge_silence_ms(&c.edge, c.now_ms), 50);
    core_end(&c);
}
