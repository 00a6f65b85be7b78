/* test_raft_edge.c: each defect of the raft library's core that src/consensus/RAFT.md lists.
 *
 * Each sequence is played twice to the real core: to the core alone, where the defect must show, so
 * that a library that mends it is noticed here; and through the edge, where it must not. */
#include "../../lib/unit.h"

#include "core.h"

/* ---- commit index ---- */

/* Entries 2 to 5 are committed; then the message that brought entry 3 comes again. */
static uint64_t commit_after_an_old_message(enum mode mode)
{
    struct core c;
    core_begin(&c, mode);
    assert_int_equal(core_append(&c, 2, 1, 1, "cccc", 5), 0);
    core_persist(&c);
    assert_int_equal(raft_commit_index(&c.raft), 5);
    assert_int_equal(core_append(&c, 2, 1, 2, "c", 6), 0);
    uint64_t commit = raft_commit_index(&c.raft);
    core_end(&c);
    return commit;
}

TEST(an_old_message_takes_no_commit_index_back)
{
    assert_int_equal(commit_after_an_old_message(CORE_ALONE), 3);
    assert_int_equal(commit_after_an_old_message(WITH_EDGE), 5);
}

/* ---- the beginning of the log ---- */

/* Entries 1 to 5 are committed and compacted. The message that brought the first ones comes again.
 * */
static uint64_t last_after_the_first_message(enum mode mode)
{
    struct core c;
    struct configuration conf = core_servers(3);
    struct raft_event event = {.type = RAFT_SNAPSHOT};
    core_begin(&c, mode);
    assert_int_equal(core_append(&c, 2, 1, 1, "cccc", 5), 0);
    core_persist(&c);
    event.snapshot.metadata.index = 5;
    event.snapshot.metadata.term = 1;
    event.snapshot.metadata.configuration_index = 1;
    configuration_to_raft(&conf, &event.snapshot.metadata.configuration);
    core_step(&c, &event);
    assert_int_equal(core_append(&c, 2, 1, 0, "3cc", 5), 0);
    assert_int_equal(raft_commit_index(&c.raft), 5);
    /* One with news behind what is committed brings these. */
    if (mode == WITH_EDGE) {
        assert_int_equal(raft_last_index(&c.raft), 5);
        /* It is answered: a leader whose follower had an empty log, and whose answers were lost,
         * sends the beginning until it hears that it is there. */
        assert_int_equal(core_sent(&c, 2, RAFT_APPEND_ENTRIES_RESULT), 1);
        assert_int_equal(core_append(&c, 2, 1, 0, "3cccccc", 5), 0);
    }
    uint64_t last = raft_last_index(&c.raft);
    core_end(&c);
    return last;
}

TEST(the_first_entries_are_not_appended_again)
{
    assert_int_equal(last_after_the_first_message(CORE_ALONE), 8);
    assert_int_equal(last_after_the_first_message(WITH_EDGE), 7);
}

/* ---- changes ---- */

/* A command and a change in one message. As a leader it wants to change it once more. */
static int next_change_after_one_behind_a_command(enum mode mode)
{
    struct core c;
    core_begin(&c, mode);
    assert_int_equal(core_append(&c, 2, 1, 1, "c4", 1), 0);
    core_persist(&c);
    assert_int_equal(core_append(&c, 2, 1, 3, "", 3), 0);
    assert_int_equal(raft_commit_index(&c.raft), 3);
    core_timeout(&c, 2 * ELECTION_MS);
    assert_int_equal(core_vote_result(&c, 2, 2, true, true), 0);
    assert_int_equal(core_vote_result(&c, 3, 2, true, true), 0);
    assert_int_equal(core_vote_result(&c, 2, 2, true, false), 0);
    assert_int_equal(core_vote_result(&c, 3, 2, true, false), 0);
    assert_int_equal(raft_state(&c.raft), RAFT_LEADER);
    int rv = core_submit_change(&c, 3);
    core_end(&c);
    return rv;
}

TEST(a_change_behind_a_command_is_noted_where_it_is)
{
    assert_int_equal(next_change_after_one_behind_a_command(CORE_ALONE), RAFT_CANTCHANGE);
    assert_int_equal(next_change_after_one_behind_a_command(WITH_EDGE), 0);
}

/* The message that brings the second change commits the first. Then another leader cuts the second
 * off, and the first must be in force. */
static unsigned servers_after_a_rollback(enum mode mode)
{
    struct core c;
    core_begin(&c, mode);
    assert_int_equal(core_append(&c, 2, 1, 1, "4", 1), 0);
    assert_int_equal(core_append(&c, 2, 1, 2, "5", 2), 0);
    core_persist(&c);
    assert_int_equal(raft_commit_index(&c.raft), 2);
    assert_int_equal(c.raft.configuration.n, 5);
    assert_int_equal(core_append(&c, 3, 2, 2, "c", 2), 0);
    unsigned n = c.raft.configuration.n;
    core_end(&c);
    return n;
}

/* The same when both are in one message. */
static unsigned servers_after_a_rollback_of_both(enum mode mode)
{
    struct core c;
    core_begin(&c, mode);
    assert_int_equal(core_append(&c, 2, 1, 1, "45", 2), 0);
    core_persist(&c);
    assert_int_equal(raft_commit_index(&c.raft), 2);
    assert_int_equal(core_append(&c, 3, 2, 2, "c", 2), 0);
    unsigned n = c.raft.configuration.n;
    core_end(&c);
    return n;
}

TEST(a_change_committed_with_the_next_one_is_kept)
{
    assert_int_equal(servers_after_a_rollback(CORE_ALONE), 3);
    assert_int_equal(servers_after_a_rollback(WITH_EDGE), 4);
    /* Both are noted at entry 2, so that nothing is left to be rolled back. */
    assert_int_equal(servers_after_a_rollback_of_both(CORE_ALONE), 5);
    assert_int_equal(servers_after_a_rollback_of_both(WITH_EDGE), 4);
}

/* A new leader sends both before it knows that the first is committed. */
static unsigned servers_after_a_rollback_of_a_new_leader(enum mode mode)
{
    struct core c;
    core_begin(&c, mode);
    assert_int_equal(core_append(&c, 2, 2, 1, "4", 1), 0);
    assert_int_equal(core_append(&c, 2, 2, 2, "5", 1), 0);
    core_persist(&c);
    assert_int_equal(raft_commit_index(&c.raft), 1);
    assert_int_equal(core_append(&c, 3, 3, 2, "c", 1), 0);
    unsigned n = c.raft.configuration.n;
    /* Nor can the first be cut off. */
    int rv = core_append(&c, 3, 3, 1, "c", 1);
    assert_int_equal(rv, mode == WITH_EDGE ? FL_EPROTO : 0);
    core_end(&c);
    return n;
}

TEST(a_change_is_committed_when_another_follows)
{
    assert_int_equal(servers_after_a_rollback_of_a_new_leader(CORE_ALONE), 3);
    assert_int_equal(servers_after_a_rollback_of_a_new_leader(WITH_EDGE), 4);
}

/* Pieces of a message: what is behind a piece that was refused is not given to the core. */
TEST(pieces_follow_each_other)
{
    struct core c;
    const struct raft_message *m;
    core_begin(&c, WITH_EDGE);
    assert_int_equal(core_append(&c, 2, 1, 9, "c4c", 1), 0); /* entries 2 to 9 are missing */
    assert_int_equal(c.last, 1);
    m = core_message(&c, 2, RAFT_APPEND_ENTRIES_RESULT);
    assert_int_equal(m->append_entries_result.rejected, 9);
    assert_int_equal(core_append(&c, 2, 1, 1, "4c5cc", 6), 0);
    assert_int_equal(c.last, 6);
    assert_int_equal(raft_commit_index(&c.raft), 6);
    assert_int_equal(c.raft.configuration_committed_index, 4);
    assert_int_equal(c.raft.configuration_uncommitted_index, 0);
    /* All of it again, and an end that is new. */
    core_persist(&c);
    assert_int_equal(core_append(&c, 2, 1, 1, "4c5ccc", 7), 0);
    assert_int_equal(c.last, 7);
    assert_int_equal(raft_commit_index(&c.raft), 7);
    core_end(&c);
}

/* ---- late votes ---- */

/* Memory whose address has zeros below its third byte: what the core takes for "in pre-vote" of a
 * follower is the second byte of its leader's address. */
static void *zero_malloc(void *data, size_t size)
{
    return aligned_alloc(65536, 65536);
}

static void zero_free(void *data, void *ptr)
{
    free(ptr);
}

/* It asks for pre-votes in term 2, then hears of a leader of term 1, then an answer comes. */
static uint64_t term_after_a_late_vote(enum mode mode)
{
    const struct raft_heap *usual = raft_heap_get();
    struct raft_heap zeros = *usual;
    struct core c;
    core_begin(&c, mode);
    core_timeout(&c, 2 * ELECTION_MS);
    assert_int_equal(raft_state(&c.raft), RAFT_CANDIDATE);
    zeros.malloc = zero_malloc;
    zeros.free = zero_free;
    raft_heap_set(&zeros);
    assert_int_equal(core_append(&c, 2, 1, 1, "", 1), 0);
    raft_heap_set((struct raft_heap *)(uintptr_t)usual);
    assert_int_equal(raft_state(&c.raft), RAFT_FOLLOWER);
    assert_int_equal(core_vote_result(&c, 3, 2, false, true), 0);
    uint64_t term = raft_current_term(&c.raft);
    core_end(&c);
    return term;
}

TEST(a_late_vote_changes_no_term)
{
    assert_int_equal(term_after_a_late_vote(CORE_ALONE), 2);
    assert_int_equal(term_after_a_late_vote(WITH_EDGE), 1);
}

/* ---- rejections ---- */

/* Server 3 confirms entry 3, is not heard for a while, and then a rejection from before arrives.
 * Can it be sent what comes next? */
static unsigned entries_after_an_overtaken_rejection(enum mode mode)
{
    struct core c;
    const struct raft_message *m;
    core_begin(&c, mode);
    core_lead(&c);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(core_submit(&c), 0);
    }
    core_persist(&c);
    assert_int_equal(core_result(&c, 3, 0, 3), 0);
    for (unsigned i = 0; i < 8; i++) {
        core_timeout(&c, HEARTBEAT_MS);
        assert_int_equal(core_result(&c, 2, 0, c.last), 0);
    }
    assert_int_equal(raft_state(&c.raft), RAFT_LEADER);
    assert_int_equal(core_result(&c, 3, 3, 1), 0);
    core_timeout(&c, HEARTBEAT_MS);
    m = core_message(&c, 3, RAFT_APPEND_ENTRIES);
    unsigned n = m->append_entries.n_entries;
    assert_true(mode == CORE_ALONE || m->append_entries.prev_log_index == 3);
    core_end(&c);
    return n;
}

TEST(an_overtaken_rejection_stops_nothing)
{
    assert_int_equal(entries_after_an_overtaken_rejection(CORE_ALONE), 0);
    assert_int_equal(entries_after_an_overtaken_rejection(WITH_EDGE), 1);
}

/* A rejection of something newer whose end is from before: only that part is over. */
TEST(half_of_a_rejection_may_be_overtaken)
{
    struct core c;
    const struct raft_message *m;
    core_begin(&c, WITH_EDGE);
    core_lead(&c);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(core_submit(&c), 0);
    }
    core_persist(&c);
    assert_int_equal(core_result(&c, 3, 0, 3), 0); /* match 3 */
    assert_int_equal(core_result(&c, 3, 5, 1), 0);
    m = core_message(&c, 3, RAFT_APPEND_ENTRIES);
    assert_int_equal(m->append_entries.prev_log_index, 3);
    assert_int_equal(m->append_entries.n_entries, 2);
    core_end(&c);
}

/* ---- while a snapshot is sent ---- */

/* Server 3 lacks what is compacted, and rejects each heartbeat until it has the snapshot. */
static unsigned snapshots_that_are_asked_for(enum mode mode)
{
    struct core c;
    struct configuration conf = core_servers(3);
    struct raft_event event = {.type = RAFT_SNAPSHOT};
    unsigned asked = 0;
    core_begin(&c, mode);
    core_lead(&c);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(core_submit(&c), 0);
    }
    core_persist(&c);
    assert_int_equal(core_result(&c, 2, 0, 5), 0);
    assert_int_equal(raft_commit_index(&c.raft), 5);
    event.snapshot.metadata.index = 5;
    event.snapshot.metadata.term = c.terms[5];
    event.snapshot.metadata.configuration_index = 1;
    configuration_to_raft(&conf, &event.snapshot.metadata.configuration);
    core_step(&c, &event);
    assert_int_equal(core_result(&c, 3, 1, 0), 0); /* an empty log */
    asked += core_sent(&c, 3, RAFT_INSTALL_SNAPSHOT);
    assert_int_equal(asked, 1);
    c.edge.sends_snapshot = true;
    for (unsigned i = 0; i < 5; i++) {
        core_timeout(&c, HEARTBEAT_MS);
        assert_int_equal(core_sent(&c, 3, RAFT_APPEND_ENTRIES), 1);
        asked += core_sent(&c, 3, RAFT_INSTALL_SNAPSHOT);
        assert_int_equal(core_result(&c, 2, 0, 5), 0);
        assert_int_equal(core_result(&c, 3, 5, 0), 0);
        asked += core_sent(&c, 3, RAFT_INSTALL_SNAPSHOT);
    }
    /* It counts as heard all the time, and goes on from the snapshot. */
    c.edge.sends_snapshot = false;
    assert_int_equal(core_result(&c, 3, 0, 5), 0);
    raft_index match = 0;
    assert_int_equal(raft_match_index(&c.raft, 3, &match), 0);
    assert_int_equal(match, 5);
    core_end(&c);
    return asked;
}

TEST(a_snapshot_is_sent_once)
{
    assert_int_equal(snapshots_that_are_asked_for(CORE_ALONE), 6);
    assert_int_equal(snapshots_that_are_asked_for(WITH_EDGE), 1);
}

/* ---- heartbeats ---- */

/* Answers what was sent in the last event a millisecond later. */
static void answer(struct core *c)
{
    unsigned to_2 = core_sent(c, 2, RAFT_APPEND_ENTRIES);
    unsigned to_3 = core_sent(c, 3, RAFT_APPEND_ENTRIES);
    c->now_ms++;
    if (to_2 > 0) {
        assert_int_equal(core_result(c, 2, 0, c->last), 0);
    }
    if (to_3 > 0) {
        assert_int_equal(core_result(c, 3, 0, c->last), 0);
    }
}

static bool is_due(struct core *c)
{
    return c->now_ms >=
           (c->mode == WITH_EDGE ? raft_edge_timeout_ms(&c->edge) : raft_timeout(&c->raft));
}

/* Server 3 is sent something between two heartbeats; both answer always. How many of the two are
 * sent the first entry after a pause at once? */
static unsigned sent_after_a_pause(enum mode mode)
{
    struct core c;
    core_begin(&c, mode);
    core_lead(&c);
    assert_int_equal(core_submit(&c), 0);
    core_persist(&c);
    assert_int_equal(core_result(&c, 2, 0, c.last), 0);
    assert_int_equal(core_result(&c, 3, 0, c.last), 0);
    c.now_ms += 10;
    assert_int_equal(core_result(&c, 3, c.last + 1, c.last), 0); /* it has lost a message */
    answer(&c);
    for (unsigned i = 0; i < 300; i++) {
        c.now_ms++;
        if (is_due(&c)) {
            core_timeout(&c, 0);
            answer(&c);
        }
        if (i == 3) {
            assert_int_equal(core_submit(&c), 0);
            answer(&c);
            core_persist(&c);
        }
    }
    assert_int_equal(core_submit(&c), 0);
    unsigned n = core_sent(&c, 2, RAFT_APPEND_ENTRIES) + core_sent(&c, 3, RAFT_APPEND_ENTRIES);
    core_end(&c);
    return n;
}

TEST(no_entry_waits_for_a_heartbeat)
{
    assert_int_equal(sent_after_a_pause(CORE_ALONE), 0);
    assert_int_equal(sent_after_a_pause(WITH_EDGE), 2);
}

static void take_snapshot(struct core *c, uint64_t index)
{
    struct configuration conf = core_servers(3);
    struct raft_event event = {.type = RAFT_SNAPSHOT};
    event.snapshot.metadata.index = index;
    event.snapshot.metadata.term = c->terms[index];
    event.snapshot.metadata.configuration_index = 1;
    configuration_to_raft(&conf, &event.snapshot.metadata.configuration);
    core_step(c, &event);
    assert_int_equal(c->error, 0);
}

/* One cannot be sent, and meanwhile the leader takes another. */
static unsigned snapshots_after_one_that_failed(enum mode mode)
{
    struct core c;
    unsigned asked = 0;
    core_begin(&c, mode);
    core_lead(&c);
    assert_int_equal(core_submit(&c), 0);
    assert_int_equal(core_submit(&c), 0);
    core_persist(&c);
    assert_int_equal(core_result(&c, 2, 0, 3), 0);
    take_snapshot(&c, 3);
    assert_int_equal(core_result(&c, 3, 1, 0), 0); /* an empty log */
    asked += core_sent(&c, 3, RAFT_INSTALL_SNAPSHOT);
    assert_int_equal(asked, 1);
    assert_int_equal(core_submit(&c), 0);
    assert_int_equal(core_submit(&c), 0);
    core_persist(&c);
    assert_int_equal(core_result(&c, 2, 0, 5), 0);
    take_snapshot(&c, 5);
    for (unsigned i = 0; i < 5; i++) {
        core_timeout(&c, HEARTBEAT_MS);
        assert_int_equal(core_message(&c, 3, RAFT_APPEND_ENTRIES)->append_entries.prev_log_index,
                         5);
        assert_int_equal(core_result(&c, 2, 0, 5), 0);
        assert_int_equal(core_result(&c, 3, 5, 0), 0);
        asked += core_sent(&c, 3, RAFT_INSTALL_SNAPSHOT);
    }
    core_end(&c);
    return asked;
}

TEST(a_snapshot_that_was_not_sent_is_tried_again)
{
    assert_int_equal(snapshots_after_one_that_failed(CORE_ALONE), 1);
    assert_int_equal(snapshots_after_one_that_failed(WITH_EDGE), 6);
}

/* ---- pre-votes ---- */

/* Its term is 5, and it is asked for a pre-vote of term 3. */
static uint64_t term_of_a_refusal(enum mode mode)
{
    struct core c;
    const struct raft_message *m;
    core_begin(&c, mode);
    assert_int_equal(core_vote(&c, 2, 2, 5, false), 0);
    assert_int_equal(core_vote(&c, 3, 3, 3, true), 0);
    m = core_message(&c, 3, RAFT_REQUEST_VOTE_RESULT);
    assert_false(m->request_vote_result.vote_granted);
    assert_true(m->request_vote_result.pre_vote);
    uint64_t term = m->request_vote_result.term;
    core_end(&c);
    return term;
}

TEST(a_refused_pre_vote_tells_the_term)
{
    assert_int_equal(term_of_a_refusal(CORE_ALONE), 3);
    assert_int_equal(term_of_a_refusal(WITH_EDGE), 5);
}

/* One that is granted keeps the term it was asked for. */
TEST(a_granted_pre_vote_keeps_the_term)
{
    struct core c;
    const struct raft_message *m;
    core_begin(&c, WITH_EDGE);
    assert_int_equal(core_vote(&c, 3, 3, 2, true), 0);
    m = core_message(&c, 3, RAFT_REQUEST_VOTE_RESULT);
    assert_true(m->request_vote_result.vote_granted);
    assert_int_equal(m->request_vote_result.term, 2);
    assert_int_equal(raft_current_term(&c.raft), 1);
    core_end(&c);
}

/* ---- patience ---- */

/* Whether a pre-vote is granted so long after the last word of the leader. */
static bool is_granted_after(enum mode mode, uint64_t ms, bool gone, bool paused)
{
    struct core c;
    const struct raft_message *m;
    core_begin(&c, mode);
    assert_int_equal(core_append(&c, 2, 1, 1, "", 1), 0);
    /* The core's own timer is set anew, and has not run out. */
    assert_true(raft_timeout(&c.raft) > c.now_ms + ELECTION_MS);
    c.now_ms += ms;
    if (mode == WITH_EDGE) {
        c.edge.leader_gone = gone;
        c.edge.paused = paused;
        assert_int_equal(raft_edge_silence_ms(&c.edge, c.now_ms), ms);
    }
    assert_int_equal(core_vote(&c, 3, 3, 2, true), 0);
    m = core_message(&c, 3, RAFT_REQUEST_VOTE_RESULT);
    /* It asked nobody itself, and its term is what it was. */
    assert_int_equal(core_sent(&c, 2, RAFT_REQUEST_VOTE), 0);
    assert_int_equal(raft_current_term(&c.raft), 1);
    bool granted = m->request_vote_result.vote_granted;
    core_end(&c);
    return granted;
}

TEST(a_silent_leader_is_given_up_for_another)
{
    assert_false(is_granted_after(CORE_ALONE, ELECTION_MS, false, false));
    assert_true(is_granted_after(WITH_EDGE, ELECTION_MS, false, false));
    assert_false(is_granted_after(WITH_EDGE, ELECTION_MS - 1, false, false));
    /* Less is enough when its process is known to be gone; nothing is, before the sockets are
     * read. */
    assert_true(is_granted_after(WITH_EDGE, HEARTBEAT_MS * 3 / 2, true, false));
    assert_false(is_granted_after(WITH_EDGE, HEARTBEAT_MS * 3 / 2 - 1, true, false));
    assert_false(is_granted_after(WITH_EDGE, HEARTBEAT_MS * 3 / 2, false, false));
    assert_false(is_granted_after(WITH_EDGE, ELECTION_MS, false, true));
}

/* It has more of the log than the one that asks, so it refuses, and asks itself. */
TEST(who_has_more_asks_itself)
{
    struct core c;
    core_begin(&c, WITH_EDGE);
    assert_int_equal(core_append(&c, 2, 1, 1, "c", 1), 0);
    core_persist(&c);
    c.now_ms += ELECTION_MS;
    struct raft_message m = {.type = RAFT_REQUEST_VOTE};
    m.request_vote = (struct raft_request_vote){.version = 2,
                                                .term = 2,
                                                .candidate_id = 3,
                                                .last_log_index = 1,
                                                .last_log_term = 1,
                                                .pre_vote = true};
    assert_int_equal(core_receive(&c, 3, &m), 0);
    assert_int_equal(core_sent(&c, 3, RAFT_REQUEST_VOTE), 1);
    assert_int_equal(core_sent(&c, 2, RAFT_REQUEST_VOTE), 1);
    core_end(&c);
}

/* ---- impossible messages ---- */

/* Another leader of our own term: its id lands in the union of the leader's state. */
TEST(no_second_leader_of_a_term)
{
    struct core c;
    core_begin(&c, CORE_ALONE);
    core_lead(&c);
    assert_int_equal(c.raft.leader_state.promotee_id, 0);
    (void)core_append(&c, 2, 2, 1, "", 1);
    assert_int_equal(raft_state(&c.raft), RAFT_LEADER);
    /* The leader's address, taken for the id of a server that is brought up to date. */
    void *address = (void *)(uintptr_t)c.raft.leader_state.promotee_id;
    assert_non_null(address);
    raft_free(address);
    core_end(&c);

    core_begin(&c, WITH_EDGE);
    core_lead(&c);
    assert_int_equal(core_append(&c, 2, 2, 1, "", 1), FL_EPROTO);
    assert_int_equal(core_append(&c, 2, 2, 1, "c", 1), FL_EPROTO);
    assert_int_equal(c.raft.leader_state.promotee_id, 0);
    assert_int_equal(raft_state(&c.raft), RAFT_LEADER);
    assert_int_equal(core_append(&c, 2, 3, 1, "", 1), 0); /* of a newer term it is right */
    assert_int_equal(raft_state(&c.raft), RAFT_FOLLOWER);
    core_end(&c);
}

/* Entry 2 is committed with term 1, and a message says term 2 of it, or of what is before. */
static int contradiction(enum mode mode, uint64_t prev, uint64_t prev_term, const char *what)
{
    struct core c;
    core_begin(&c, mode);
    assert_int_equal(core_append(&c, 2, 1, 1, "cc", 3), 0);
    core_persist(&c);
    uint64_t before = c.terms[prev];
    c.terms[prev] = prev_term;
    struct raft_entry e = {.term = 2, .type = RAFT_COMMAND};
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES};
    m.append_entries = (struct raft_append_entries){.term = 2,
                                                    .prev_log_index = prev,
                                                    .prev_log_term = prev_term,
                                                    .entries = &e,
                                                    .n_entries = (unsigned)strlen(what)};
    c.terms[prev] = before;
    int rv = core_receive(&c, 3, &m);
    assert_int_equal(c.last, 3);
    assert_true(mode == CORE_ALONE || raft_current_term(&c.raft) == 1);
    core_end(&c);
    return rv;
}

TEST(nothing_contradicts_what_is_committed)
{
    assert_int_equal(contradiction(CORE_ALONE, 1, 1, "c"), RAFT_SHUTDOWN);
    assert_int_equal(contradiction(WITH_EDGE, 1, 1, "c"), FL_EPROTO);
    assert_int_equal(contradiction(CORE_ALONE, 3, 2, ""), RAFT_SHUTDOWN);
    assert_int_equal(contradiction(WITH_EDGE, 3, 2, ""), FL_EPROTO);
}

/* An old leader that was cut off may say so in good faith, in its old term. */
TEST(an_old_leader_is_refused_for_its_term)
{
    struct core c;
    const struct raft_message *m;
    core_begin(&c, WITH_EDGE);
    assert_int_equal(core_append(&c, 2, 3, 1, "cc", 3), 0);
    core_persist(&c);
    assert_int_equal(core_append(&c, 3, 2, 1, "c", 1), 0);
    m = core_message(&c, 3, RAFT_APPEND_ENTRIES_RESULT);
    assert_int_equal(m->append_entries_result.term, 3);
    core_end(&c);
}

TEST(no_vote_for_somebody_else)
{
    struct core c;
    core_begin(&c, CORE_ALONE);
    assert_int_equal(core_vote(&c, 2, 3, 2, false), 0);
    assert_int_equal(raft_voted_for(&c.raft), 3);
    core_end(&c);
    core_begin(&c, WITH_EDGE);
    assert_int_equal(core_vote(&c, 2, 3, 2, false), FL_EPROTO);
    assert_int_equal(raft_voted_for(&c.raft), 0);
    assert_int_equal(raft_current_term(&c.raft), 1);
    assert_int_equal(core_vote(&c, 2, 2, 2, false), 0);
    assert_int_equal(raft_voted_for(&c.raft), 2);
    core_end(&c);
}

/* A term behind which there is no other. */
TEST(terms_have_room_for_the_next)
{
    struct core c;
    core_begin(&c, CORE_ALONE);
    assert_int_equal(core_vote(&c, 2, 2, UINT64_MAX, false), 0);
    assert_true(raft_current_term(&c.raft) == UINT64_MAX);
    core_timeout(&c, 3 * ELECTION_MS);
    assert_int_equal(raft_state(&c.raft), RAFT_CANDIDATE);
    const struct raft_message *m;
    m = core_message(&c, 2, RAFT_REQUEST_VOTE);
    assert_int_equal(m->request_vote.term, 0);
    core_end(&c);

    core_begin(&c, WITH_EDGE);
    assert_int_equal(core_vote(&c, 2, 2, 1 + RAFT_EDGE_TERM_STEP_MAX + 1, false), FL_EPROTO);
    assert_int_equal(core_append(&c, 2, UINT64_MAX, 1, "", 1), FL_EPROTO);
    assert_int_equal(core_vote(&c, 2, 2, 0, false), FL_EPROTO);
    assert_int_equal(raft_current_term(&c.raft), 1);
    assert_int_equal(core_vote(&c, 2, 2, 1 + RAFT_EDGE_TERM_STEP_MAX, false), 0);
    assert_true(raft_current_term(&c.raft) == 1 + RAFT_EDGE_TERM_STEP_MAX);
    core_end(&c);
}

TEST(nobody_speaks_for_us)
{
    struct core c;
    core_begin(&c, WITH_EDGE);
    assert_int_equal(core_append(&c, 1, 1, 1, "", 1), FL_EPROTO);
    assert_int_equal(core_append(&c, 0, 1, 1, "", 1), FL_EPROTO);
    core_end(&c);
}

/* ---- elections out of turn ---- */

TEST(the_timer_can_be_made_to_run_out)
{
    struct core c;
    core_begin(&c, WITH_EDGE);
    assert_int_equal(core_append(&c, 2, 1, 1, "", 1), 0);
    assert_true(raft_edge_timeout_ms(&c.edge) > c.now_ms);
    assert_true(raft_edge_campaign(&c.edge));
    assert_int_equal(raft_state(&c.raft), RAFT_CANDIDATE);
    assert_int_equal(raft_current_term(&c.raft), 1); /* only asks */
    uint64_t at_ms = raft_edge_timeout_ms(&c.edge);
    assert_true(at_ms >= c.now_ms + ELECTION_MS && at_ms <= c.now_ms + 2 * ELECTION_MS);
    assert_true(raft_edge_campaign(&c.edge)); /* begins again */
    assert_int_equal(core_vote_result(&c, 2, 2, true, true), 0);
    assert_int_equal(core_vote_result(&c, 2, 2, true, false), 0);
    assert_int_equal(raft_state(&c.raft), RAFT_LEADER);
    assert_false(raft_edge_campaign(&c.edge));
    assert_int_equal(raft_state(&c.raft), RAFT_LEADER);
    core_end(&c);
}

/* Entries that are not on disk yet: it stays what it is, and goes on hearing its leader. */
TEST(a_disk_that_is_behind_calls_no_election)
{
    struct core c;
    core_begin(&c, WITH_EDGE);
    assert_int_equal(core_append(&c, 2, 1, 1, "c", 1), 0);
    assert_false(raft_edge_campaign(&c.edge));
    assert_int_equal(raft_state(&c.raft), RAFT_FOLLOWER);
    core_persist(&c);
    assert_true(raft_edge_campaign(&c.edge));
    core_end(&c);
}

/* Who hears a leader refuses: a campaign deposes nobody. */
TEST(a_leader_that_is_heard_stays)
{
    struct core c;
    const struct raft_message *m;
    core_begin(&c, WITH_EDGE);
    core_lead(&c);
    assert_int_equal(core_vote(&c, 3, 3, 3, true), 0);
    m = core_message(&c, 3, RAFT_REQUEST_VOTE_RESULT);
    assert_false(m->request_vote_result.vote_granted);
    assert_int_equal(raft_state(&c.raft), RAFT_LEADER);
    assert_int_equal(raft_current_term(&c.raft), 2);
    core_end(&c);
}
