/* test_raft_edge_repetition.c: entries that are sent again and again, a defect of the raft
 * library's core. It is shown as those of test_raft_edge.c are: to the core alone, and through the
 * edge. */
#include "../../lib/unit.h"

#include "core.h"

/* Server 3 lacks entries 2 to 11, and answers nothing; server 2 has what it is sent. */
static void begin(struct core *c, enum mode mode)
{
    core_begin(c, mode);
    core_lead(c);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(core_submit(c), 0);
        assert_int_equal(core_result(c, 2, 0, c->last), 0);
    }
    core_persist(c);
    assert_int_equal(c->last, 11);
}

static unsigned sent_at_a_heartbeat(struct core *c, uint64_t prev)
{
    core_timeout(c, HEARTBEAT_MS);
    const struct raft_append_entries *m = &core_message(c, 3, RAFT_APPEND_ENTRIES)->append_entries;
    unsigned n = m->n_entries;
    assert_int_equal(m->prev_log_index, prev);
    assert_int_equal(core_result(c, 2, 0, c->last), 0);
    return n;
}

static unsigned sent_in_ten_heartbeats(enum mode mode)
{
    struct core c;
    unsigned n = 0;
    begin(&c, mode);
    for (unsigned i = 0; i < 10; i++) {
        n += sent_at_a_heartbeat(&c, 1);
    }
    core_end(&c);
    return n;
}

TEST(what_is_not_confirmed_is_not_sent_again_whole)
{
    assert_int_equal(sent_in_ten_heartbeats(CORE_ALONE), 100);
    assert_int_equal(sent_in_ten_heartbeats(WITH_EDGE), 10 + 9);
}

/* The first of them is confirmed: the others follow at once. Then all that was sent is lost, which
 * a rejection tells: what is not confirmed comes again, from another place on. */
TEST(what_was_lost_comes_again)
{
    struct core c;
    begin(&c, WITH_EDGE);
    assert_int_equal(sent_at_a_heartbeat(&c, 1), 10);
    assert_int_equal(sent_at_a_heartbeat(&c, 1), 1);
    assert_int_equal(core_result(&c, 3, 0, 2), 0);
    const struct raft_message *m = core_message(&c, 3, RAFT_APPEND_ENTRIES);
    assert_int_equal(m->append_entries.prev_log_index, 2);
    assert_int_equal(m->append_entries.n_entries, 9);
    assert_int_equal(core_submit(&c), 0);
    assert_int_equal(core_message(&c, 3, RAFT_APPEND_ENTRIES)->append_entries.n_entries, 1);
    assert_int_equal(core_result(&c, 3, 0, 3), 0);
    assert_int_equal(core_result(&c, 3, 11, 3), 0);
    m = core_message(&c, 3, RAFT_APPEND_ENTRIES);
    assert_int_equal(m->append_entries.prev_log_index, 3);
    assert_int_equal(m->append_entries.n_entries, 9);
    core_end(&c);
}

/* Another term begins from the same place: that is no repetition. */
TEST(a_new_term_repeats_nothing)
{
    struct core c;
    begin(&c, WITH_EDGE);
    assert_int_equal(sent_at_a_heartbeat(&c, 1), 10);
    core_timeout(&c, 2 * ELECTION_MS);
    core_timeout(&c, 2 * ELECTION_MS);
    assert_int_equal(raft_state(&c.raft), RAFT_FOLLOWER);
    core_lead(&c);
    assert_int_equal(core_result(&c, 3, c.last, 1), 0);
    const struct raft_message *m = core_message(&c, 3, RAFT_APPEND_ENTRIES);
    assert_int_equal(m->append_entries.prev_log_index, 1);
    assert_int_equal(m->append_entries.n_entries, 10);
    core_end(&c);
}

/* Entries that waited to leave when leadership was lost may be others by now. If they ended just
 * where the next term begins, they would be sent in front of it, behind an entry of an old term. */
TEST(what_waited_to_leave_in_a_former_term_is_forgotten)
{
    struct core c;
    begin(&c, WITH_EDGE);
    core_timeout(&c, 2 * ELECTION_MS);
    struct raft_edge_peer *p = raft_edge_peer(&c.edge, 3);
    p->sent = 6;
    p->sent_term = 77;
    p->left = c.last - p->sent;
    core_timeout(&c, 2 * ELECTION_MS);
    assert_int_equal(raft_state(&c.raft), RAFT_FOLLOWER);
    core_lead(&c);
    p = raft_edge_peer(&c.edge, 3);
    assert_int_equal(p->sent, c.last);
    assert_int_equal(p->sent_term, c.terms[c.last]);
    core_end(&c);
}

/* Who rejects has lost what it was sent, and gets all of it again. */
TEST(what_is_rejected_is_no_repetition)
{
    struct core c;
    begin(&c, WITH_EDGE);
    assert_int_equal(core_result(&c, 3, 0, 1), 0);
    assert_int_equal(core_message(&c, 3, RAFT_APPEND_ENTRIES)->append_entries.n_entries, 10);
    assert_int_equal(core_result(&c, 3, 11, 1), 0);
    const struct raft_message *m = core_message(&c, 3, RAFT_APPEND_ENTRIES);
    assert_int_equal(m->append_entries.prev_log_index, 1);
    assert_int_equal(m->append_entries.n_entries, 10);
    assert_int_equal(sent_at_a_heartbeat(&c, 1), 1);
    core_end(&c);
}
