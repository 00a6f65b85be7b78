/* test_raft_edge_compacted.c: messages that continue behind entries which are compacted. */
#include "../../lib/unit.h"

#include "core.h"

/* Entries 1 to 5 are committed and compacted. */
static void begin(struct core *c, enum mode mode)
{
    struct configuration conf = core_servers(3);
    struct raft_event event = {.type = RAFT_SNAPSHOT};
    core_begin(c, mode);
    assert_int_equal(core_append(c, 2, 1, 1, "cccc", 5), 0);
    core_persist(c);
    event.snapshot.metadata.index = 5;
    event.snapshot.metadata.term = 1;
    event.snapshot.metadata.configuration_index = 1;
    configuration_to_raft(&conf, &event.snapshot.metadata.configuration);
    core_step(c, &event);
}

static uint64_t rejected(const struct core *c)
{
    return core_message(c, 2, RAFT_APPEND_ENTRIES_RESULT)->append_entries_result.rejected;
}

static uint64_t confirmed(const struct core *c)
{
    return core_message(c, 2, RAFT_APPEND_ENTRIES_RESULT)->append_entries_result.last_log_index;
}

/* The leader knows of entry 3 only, since the answers were lost, and continues behind it. */
TEST(a_leader_that_knows_less_is_answered)
{
    struct core c;
    begin(&c, CORE_ALONE);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(core_append(&c, 2, 1, 3, "cccc", 5), 0);
        assert_int_equal(rejected(&c), 3);
        assert_int_equal(raft_last_index(&c.raft), 5);
    }
    core_end(&c);

    begin(&c, WITH_EDGE);
    assert_int_equal(core_append(&c, 2, 1, 3, "cc", 5), 0); /* no news */
    assert_int_equal(rejected(&c), 0);
    assert_int_equal(confirmed(&c), 5);
    assert_int_equal(core_append(&c, 2, 1, 3, "", 5), 0); /* a heartbeat */
    assert_int_equal(rejected(&c), 0);
    assert_int_equal(confirmed(&c), 5);
    assert_int_equal(core_append(&c, 2, 1, 3, "c4cc", 5), 0);
    assert_int_equal(raft_last_index(&c.raft), 7);
    core_persist(&c);
    assert_int_equal(rejected(&c), 0);
    assert_int_equal(confirmed(&c), 7);
    assert_int_equal(raft_commit_index(&c.raft), 5);
    core_end(&c);
}

/* Who leads no more gets the newer term in place of that. */
TEST(an_old_leader_is_not)
{
    struct core c;
    begin(&c, WITH_EDGE);
    assert_int_equal(core_append(&c, 3, 4, 5, "", 5), 0);
    assert_int_equal(raft_current_term(&c.raft), 4);
    assert_int_equal(core_append(&c, 2, 1, 3, "cccc", 5), 0);
    assert_int_equal(rejected(&c), 0);
    const struct raft_message *m = core_message(&c, 2, RAFT_APPEND_ENTRIES_RESULT);
    assert_int_equal(m->append_entries_result.term, 4);
    assert_int_equal(m->append_entries_result.last_log_index, 0);
    assert_int_equal(raft_last_index(&c.raft), 5);
    core_end(&c);
}

/* What lies behind the committed entries is judged as ever. */
TEST(a_gap_is_refused)
{
    struct core c;
    begin(&c, WITH_EDGE);
    assert_int_equal(core_append(&c, 2, 1, 7, "c", 5), 0);
    assert_int_equal(rejected(&c), 7);
    core_end(&c);
}
