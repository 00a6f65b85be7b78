/* test_modes.c: locks that several hold: shared mode and semaphores. Order, mismatches, ends of
 * each kind, delays, deadlocks, limits, what queries show, snapshots in between. */
#include "machine/budget.h"
#include "fixture.h"

static struct machine_command shared(struct machine_command c)
{
    c.mode = MACHINE_MODE_SHARED;
    return c;
}

static struct machine_command permits(struct machine_command c, uint32_t n)
{
    c.permits = n;
    return c;
}

static struct machine_command read_wait(const char *owner)
{
    return shared(cmd_wait("L", owner, 5000, 5000));
}

static fl_token granted(struct fixture *k, struct machine_command c)
{
    struct machine_result r = fixture_run(k, c);
    assert_int_equal(r.code, MACHINE_GRANTED);
    return r.token;
}

#define EXPECT(k, c, want) assert_int_equal(fixture_run(k, c).code, want)

static struct machine_command release(fl_token token)
{
    return cmd_held(MACHINE_OP_RELEASE, "L", token, 0);
}

TEST_WITH(test_readers_together, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fl_token ann = granted(k, shared(cmd_acquire("L", "ann", 5000)));
    fl_token bob = granted(k, shared(cmd_acquire("L", "bob", 5000)));
    assert_true(bob > ann);
    assert_int_equal(granted(k, shared(cmd_acquire("L", "ann", 5000))), ann);
    EXPECT(k, cmd_acquire("L", "cid", 5000), MACHINE_HELD);
    EXPECT(k, cmd_held(MACHINE_OP_RENEW, "L", bob, 0), MACHINE_DONE);
    EXPECT(k, cmd_held(MACHINE_OP_RENEW, "L", bob + 1, 0), MACHINE_NO);
    assert_int_equal(fixture_query(k, cmd_held(MACHINE_OP_CHECK, "L", ann, 0)).code, MACHINE_DONE);
    assert_int_equal(fixture_query(k, cmd_held(MACHINE_OP_CHECK, "L", bob, 0)).code, MACHINE_DONE);
    assert_int_equal(fixture_query(k, cmd_held(MACHINE_OP_CHECK, "L", 0, 0)).code, MACHINE_NO);
    EXPECT(k, release(ann), MACHINE_DONE);
    EXPECT(k, release(ann), MACHINE_NO);
    assert_int_equal(machine_min_live_token(k->m), bob);
    EXPECT(k, cmd_acquire("L", "cid", 5000), MACHINE_HELD);
    EXPECT(k, release(bob), MACHINE_DONE);
    assert_int_equal(granted(k, cmd_acquire("L", "cid", 5000)), bob + 1);
    EXPECT(k, shared(cmd_acquire("L", "ann", 5000)), MACHINE_HELD);
}

/* r1 holds; a writer waits; r2 and r3 come later and must not overtake; behind the writer they are
 * granted together, and the next writer after them. */
TEST_WITH(test_fifo_between_readers_and_writers, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fl_token r1 = granted(k, shared(cmd_acquire("L", "r1", 5000)));
    EXPECT(k, cmd_wait("L", "w1", 5000, 5000), MACHINE_QUEUED);
    EXPECT(k, shared(cmd_acquire("L", "r2", 5000)), MACHINE_HELD);
    EXPECT(k, read_wait("r2"), MACHINE_QUEUED);
    EXPECT(k, read_wait("r3"), MACHINE_QUEUED);
    EXPECT(k, cmd_wait("L", "w2", 5000, 5000), MACHINE_QUEUED);
    EXPECT(k, read_wait("r4"), MACHINE_QUEUED);
    fixture_forget_events(k);
    fixture_reload(k);
    EXPECT(k, release(r1), MACHINE_DONE);
    fixture_expect_events(k, "released:release L r1 token=1\n"
                             "granted L w1 token=2 wait=1 until=6000\n");
    fixture_reload(k);
    EXPECT(k, release(2), MACHINE_DONE);
    fixture_expect_events(k, "released:release L w1 token=2\n"
                             "granted L r2 token=3 wait=2 until=6000\n"
                             "granted L r3 token=4 wait=3 until=6000\n");
    EXPECT(k, release(4), MACHINE_DONE);
    fixture_expect_events(k, "released:release L r3 token=4\n");
    EXPECT(k, release(3), MACHINE_DONE);
    fixture_expect_events(k, "released:release L r2 token=3\n"
                             "granted L w2 token=5 wait=4 until=6000\n");
}

/* A writer that gives up lets the readers behind it join those that hold. */
TEST_WITH(test_a_writer_that_leaves, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    granted(k, shared(cmd_acquire("L", "r1", 50000)));
    EXPECT(k, cmd_wait("L", "w1", 5000, 100), MACHINE_QUEUED);
    EXPECT(k, read_wait("r2"), MACHINE_QUEUED);
    struct machine_result w2 = fixture_run(k, cmd_wait("L", "w2", 5000, 5000));
    EXPECT(k, read_wait("r3"), MACHINE_QUEUED);
    fixture_forget_events(k);
    fixture_tick(k, 1101);
    fixture_expect_events(k, "wait_ended:deadline L w1 wait=1\n"
                             "granted L r2 token=2 wait=2 until=6101\n");
    EXPECT(k, cmd_number(MACHINE_OP_CANCEL, w2.wait, 1), MACHINE_DONE);
    fixture_expect_events(k, "wait_ended:cancel L w2 wait=3\n"
                             "granted L r3 token=3 wait=4 until=6101\n");
}

TEST_WITH(test_permits, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fl_token a = granted(k, permits(cmd_acquire("L", "ann", 5000), 2));
    granted(k, permits(cmd_acquire("L", "bob", 5000), 2));
    EXPECT(k, permits(cmd_acquire("L", "cid", 5000), 2), MACHINE_HELD);
    EXPECT(k, permits(cmd_wait("L", "cid", 5000, 5000), 2), MACHINE_QUEUED);
    EXPECT(k, permits(cmd_wait("L", "dot", 5000, 5000), 2), MACHINE_QUEUED);
    fixture_forget_events(k);
    fixture_reload(k);
    EXPECT(k, release(a), MACHINE_DONE);
    fixture_expect_events(k, "released:release L ann token=1\n"
                             "granted L cid token=3 wait=1 until=6000\n");
    EXPECT(k, permits(cmd_acquire("L", "eve", 5000), FL_PERMITS_MAX), MACHINE_MISMATCH);
    granted(k, permits(cmd_acquire("M", "eve", 5000), FL_PERMITS_MAX));
}

static void mismatch(struct fixture *k, struct machine_command c, uint32_t number)
{
    struct machine_result r = fixture_run(k, c);
    assert_int_equal(r.code, MACHINE_MISMATCH);
    assert_int_equal(r.number, number);
}

TEST_WITH(test_mismatches, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fl_token a = granted(k, permits(cmd_acquire("L", "ann", 5000), 3));
    mismatch(k, cmd_acquire("L", "bob", 5000), 3);
    mismatch(k, shared(cmd_acquire("L", "bob", 5000)), 3);
    mismatch(k, permits(cmd_wait("L", "bob", 5000, 5000), 2), 3);
    mismatch(k, cmd_acquire("L", "ann", 5000), 3);
    EXPECT(k, release(a), MACHINE_DONE);
    /* Nobody uses it any more: it may be anything again. */
    a = granted(k, cmd_acquire("L", "ann", 5000));
    mismatch(k, permits(cmd_acquire("L", "bob", 5000), 3), 1);
    mismatch(k, shared(cmd_acquire("L", "ann", 5000)), 0);
    EXPECT(k, read_wait("bob"), MACHINE_QUEUED);
    mismatch(k, cmd_wait("L", "bob", 5000, 5000), 0);
    EXPECT(k, cmd_acquire("L", "bob", 5000), MACHINE_HELD);
    EXPECT(k, release(a), MACHINE_DONE);
    mismatch(k, cmd_wait("L", "bob", 5000, 5000), 0); /* no way up from shared to exclusive */
}

TEST_WITH(test_break_takes_it_from_all, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    granted(k, shared(cmd_acquire("L", "ann", 5000)));
    granted(k, shared(cmd_acquire("L", "bob", 5000)));
    EXPECT(k, cmd_wait("L", "cid", 5000, 5000), MACHINE_QUEUED);
    fixture_forget_events(k);
    struct machine_result r = fixture_run(k, cmd_name(MACHINE_OP_BREAK, "L"));
    assert_int_equal(r.token, 3);
    fixture_expect_events(k, "broken:break L ann token=1\n"
                             "broken:break L bob token=2\n"
                             "granted L cid token=4 wait=1 until=6000\n");
}

/* A session with a lock-delay dies while another holds the lock with it: the other goes on, nobody
 * else comes in, not even when the other has gone, until the delay is over. */
TEST_WITH(test_delay_beside_holders, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("sue", 100, 1000, ""));
    granted(k, shared(cmd_acquire_x("L", "sue")));
    fl_token bob = granted(k, shared(cmd_acquire("L", "bob", 50000)));
    fixture_tick(k, 1101);
    fixture_reload(k);
    EXPECT(k, shared(cmd_acquire("L", "cid", 5000)), MACHINE_HELD);
    EXPECT(k, read_wait("cid"), MACHINE_QUEUED);
    assert_int_equal(granted(k, shared(cmd_acquire("L", "bob", 50000))), bob);
    EXPECT(k, release(bob), MACHINE_DONE);
    EXPECT(k, shared(cmd_acquire("L", "dot", 5000)), MACHINE_HELD);
    fixture_reload(k);
    fixture_forget_events(k);
    fixture_tick(k, 2101);
    fixture_expect_events(k, "");
    fixture_tick(k, 2102);
    fixture_expect_events(k, "granted L cid token=3 wait=2 until=7102\n");
}

TEST_WITH(test_delay_ends_while_held, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("sue", 100, 1000, ""));
    fixture_run(k, cmd_open("tom", 200, 1500, ""));
    granted(k, permits(cmd_acquire_x("L", "sue"), 3));
    granted(k, permits(cmd_acquire_x("L", "tom"), 3));
    granted(k, permits(cmd_acquire("L", "bob", 50000), 3));
    fixture_tick(k, 1101);
    fixture_tick(k, 1201); /* the longer delay counts: until 2701 */
    EXPECT(k, permits(cmd_wait("L", "cid", 5000, 50000), 3), MACHINE_QUEUED);
    fixture_forget_events(k);
    fixture_tick(k, 2701);
    fixture_expect_events(k, "");
    fixture_reload(k);
    fixture_tick(k, 2702);
    fixture_expect_events(k, "granted L cid token=4 wait=3 until=7702\n");
    /* Broken while delayed: the delay goes as well. */
    fixture_run(k, cmd_open("sue", 100, 1000, ""));
    granted(k, permits(cmd_acquire_x("L", "sue"), 3));
    fixture_tick(k, 2803);
    EXPECT(k, cmd_name(MACHINE_OP_BREAK, "L"), MACHINE_DONE);
    granted(k, cmd_acquire("L", "eve", 5000));
}

TEST_WITH(test_deadlock_among_readers, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("ann", 5000, 0, ""));
    fixture_run(k, cmd_open("bob", 5000, 0, ""));
    fixture_run(k, cmd_open("cid", 5000, 0, ""));
    granted(k, shared(cmd_acquire_x("L", "cid")));
    granted(k, shared(cmd_acquire_x("L", "ann")));
    granted(k, cmd_acquire_x("M", "bob"));
    EXPECT(k, cmd_wait_x("L", "bob", 5000), MACHINE_QUEUED); /* for cid and ann */
    EXPECT(k, cmd_wait_x("M", "ann", 5000), MACHINE_DEADLOCK);
    EXPECT(k, cmd_wait_x("M", "cid", 5000), MACHINE_DEADLOCK);
    EXPECT(k, release(2), MACHINE_DONE);
    EXPECT(k, cmd_wait_x("M", "ann", 5000), MACHINE_QUEUED);
    /* Behind bob, who waits for cid, waits whoever comes later, in whatever mode. */
    EXPECT(k, cmd_wait_x("M", "cid", 5000), MACHINE_DEADLOCK);
}

TEST_WITH(test_limits, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_limits l = MACHINE_LIMITS_DEFAULT;
    l.sessions_max = 2;
    l.locks_max = 1;
    fixture_run(k, cmd_limits(MACHINE_OP_LIMITS, 0, l));
    granted(k, shared(cmd_acquire("L", "ann", 5000)));
    granted(k, shared(cmd_acquire("L", "bob", 5000))); /* no further lock */
    struct machine_result r = fixture_run(k, shared(cmd_acquire("L", "cid", 5000)));
    assert_int_equal(r.code, MACHINE_LIMIT);
    assert_int_equal(r.number, MACHINE_LIMIT_SESSIONS);
    l.sessions_max = 10;
    fixture_run(k, cmd_limits(MACHINE_OP_LIMITS, 0, l));
    machine_set_last_token(k->m, FL_TOKEN_MAX);
    r = fixture_run(k, shared(cmd_acquire("L", "cid", 5000)));
    assert_int_equal(r.code, MACHINE_LIMIT);
    assert_int_equal(r.number, MACHINE_LIMIT_TOKENS);
    /* Waiting for others is still possible; the grant never comes. */
    EXPECT(k, cmd_wait("L", "dot", 5000, 5000), MACHINE_QUEUED);
    EXPECT(k, release(1), MACHINE_DONE);
    EXPECT(k, release(2), MACHINE_DONE);
    fixture_reload(k);
    fixture_tick(k, 1000 + 5000 + 1);
    struct machine_counts c;
    machine_get_counts(k->m, &c);
    assert_int_equal(c.locks, 0);
}

TEST_WITH(test_show_names_all_holders, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    const char *owners[] = {"ann", "bob", "cid"};
    for (unsigned i = 0; i < 3; i++) {
        granted(k, permits(cmd_acquire("L", owners[i], 5000), 3));
    }
    EXPECT(k, permits(cmd_wait("L", "dot", 5000, 5000), 3), MACHINE_QUEUED);
    assert_int_equal(fixture_query(k, cmd_name(MACHINE_OP_SHOW, "L")).code, MACHINE_DONE);
    struct machine_page page = fixture_page(k);
    struct machine_lock_view v;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(machine_page_next_lock(&page, &v), 1);
        assert_int_equal(v.token, i + 1);
        assert_memory_equal(v.owner.data, owners[i], 3);
        assert_int_equal(v.holders, 3);
        assert_int_equal(v.permits, 3);
        assert_int_equal(v.waiters, 1);
        assert_int_equal(v.mode, MACHINE_LOCK_PERMITS);
    }
    struct machine_session_view s;
    assert_int_equal(machine_page_next_session(&page, &s), 1);
    assert_memory_equal(s.owner.data, "dot", 3);
    assert_int_equal(machine_page_next_session(&page, &s), 0);
}

/* A lock of thousands: every one is found, and each end is cheap. */
TEST_WITH(test_many_readers, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    k->check = false;
    char owner[16];
    for (unsigned i = 0; i < 5000; i++) {
        (void)snprintf(owner, sizeof owner, "r%u", i);
        assert_int_equal(granted(k, shared(cmd_acquire("L", owner, 50000))), i + 1);
        fixture_forget_events(k);
    }
    for (unsigned i = 0; i < 5000; i += 7) {
        (void)snprintf(owner, sizeof owner, "r%u", i);
        assert_int_equal(granted(k, shared(cmd_acquire("L", owner, 50000))), i + 1);
    }
    assert_int_equal(fixture_query(k, cmd_name(MACHINE_OP_SHOW, "L")).code, MACHINE_DONE);
    assert_true(fixture_page(k).more);
    fixture_reload(k);
    machine_check(k->m);
    for (unsigned i = 5000; i > 0; i--) {
        EXPECT(k, release(i), MACHINE_DONE);
        fixture_forget_events(k);
    }
    machine_check(k->m);
    struct machine_counts c;
    machine_get_counts(k->m, &c);
    assert_int_equal(c.locks, 0);
}
