/* test_time.c: the cluster clock: expiry and its order, term marks, lock-delay. */
#include "fixture.h"

TEST_WITH(test_clock_never_goes_back, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_tick(k, 500);
    assert_int_equal(machine_clock(k->m), 1000);
    assert_int_equal(fixture_run(k, cmd_acquire("L", "ann", 100)).deadline_ms, 1100);
}

/* The clock counts whole milliseconds: a grant at stamp 1000 may have come just before 1001, so at
 * stamp 1100 up to a millisecond of 100 may be missing. */
TEST_WITH(test_lease_ends_after_its_deadline, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    assert_int_equal(fixture_next_deadline(k), UINT64_MAX);
    fixture_run(k, cmd_acquire("L", "ann", 100));
    fixture_forget_events(k);
    assert_int_equal(fixture_next_deadline(k), 1101);
    fixture_tick(k, 1100);
    fixture_expect_events(k, "");
    fixture_reload(k);
    assert_int_equal(fixture_query(k, cmd_held(MACHINE_OP_CHECK, "L", 1, 0)).code, MACHINE_DONE);
    fixture_tick(k, 1101);
    fixture_expect_events(k, "expired:deadline L ann token=1\n");
    assert_int_equal(fixture_next_deadline(k), UINT64_MAX);
    assert_int_equal(machine_min_live_token(k->m), 2);
}

/* What is due happens before the commands of the batch: a renewal that comes too late is
 * refused. */
TEST_WITH(test_expiry_before_commands, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("L", "ann", 100));
    k->clock_ms = 1101;
    assert_int_equal(fixture_run(k, cmd_held(MACHINE_OP_RENEW, "L", 1, 0)).code, MACHINE_NO);
    assert_int_equal(fixture_run(k, cmd_acquire("L", "ann", 100)).token, 2);
}

/* The wait that would have ended at 1100 is granted, because the lease ends first; its own lease
 * begins at the new clock, although it could have begun earlier. */
TEST_WITH(test_jump, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("L", "ann", 50));
    fixture_run(k, cmd_wait("L", "bob", 70, 100));
    fixture_run(k, cmd_wait("L", "cid", 70, 100));
    fixture_forget_events(k);
    fixture_tick(k, 9000);
    fixture_expect_events(k, "expired:deadline L ann token=1\n"
                             "granted L bob token=2 wait=1 until=9070\n"
                             "wait_ended:deadline L cid wait=2\n");
}

/* At one instant: delays, explicit leases, implicit leases, explicit waits, implicit waits; each by
 * owner, then name. */
TEST_WITH(test_order_at_one_instant, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("zoe", 100, 400, ""));
    fixture_run(k, cmd_acquire_x("D", "zoe"));
    fixture_tick(k, 1101); /* D is delayed until 1501 */
    fixture_run(k, cmd_open("keeper", 5000, 0, ""));
    fixture_run(k, cmd_acquire_x("H", "keeper"));
    fixture_run(k, cmd_open("waiter", 5000, 0, ""));
    fixture_run(k, cmd_wait("H", "a", 50, 400));
    fixture_run(k, cmd_wait_x("H", "waiter", 400));
    fixture_run(k, cmd_acquire("P", "b", 400));
    fixture_run(k, cmd_acquire("O", "b", 400));
    fixture_run(k, cmd_acquire("Q", "a", 400));
    fixture_run(k, cmd_open("y", 400, 0, ""));
    fixture_run(k, cmd_open("x", 400, 0, ""));
    fixture_run(k, cmd_wait("D", "late", 50, 400));
    fixture_forget_events(k);
    fixture_tick(k, 1502);
    fixture_expect_events(k, "granted D late token=6 wait=9 until=1552\n"
                             "session_ended:deadline x*\n"
                             "session_ended:deadline y*\n"
                             "expired:deadline Q a token=5\n"
                             "expired:deadline O b token=4\n"
                             "expired:deadline P b token=3\n"
                             "wait_ended:deadline H waiter* wait=6\n"
                             "wait_ended:deadline H a wait=5\n");
}

TEST_WITH(test_mark_lengthens_leases, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("L", "ann", 100));
    fixture_run(k, cmd_acquire("M", "bob", 5000));
    fixture_run(k, cmd_wait("L", "cid", 100, 150));
    fixture_forget_events(k);
    /* The new leader's first batch comes long after; it saves the lease, not the wait. */
    fixture_mark(k, 2000);
    fixture_expect_events(k, "wait_ended:deadline L cid wait=1\n");
    assert_int_equal(fixture_query(k, cmd_held(MACHINE_OP_CHECK, "L", 1, 0)).deadline_ms, 2100);
    assert_int_equal(fixture_query(k, cmd_held(MACHINE_OP_CHECK, "M", 2, 0)).deadline_ms, 7000);
    /* What is told about the next deadline may be early, never late. */
    assert_true(fixture_next_deadline(k) <= 2101);
    fixture_reload(k);
    assert_int_equal(fixture_next_deadline(k), 2101);
    fixture_tick(k, 2100);
    fixture_expect_events(k, "");
    fixture_tick(k, 2101);
    fixture_expect_events(k, "expired:deadline L ann token=1\n");
}

/* The floor of a mark is worked in with the ttl of then, also when the ttl changes later. */
TEST_WITH(test_mark_then_other_ttl, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("L", "ann", 1000));
    fixture_mark(k, 1900); /* until 2900 */
    assert_int_equal(fixture_run(k, cmd_held(MACHINE_OP_RENEW, "L", 1, 20)).deadline_ms, 2900);
    fixture_reload(k);
    fixture_forget_events(k);
    fixture_tick(k, 2900);
    fixture_expect_events(k, "");
    fixture_tick(k, 2901);
    fixture_expect_events(k, "expired:deadline L ann token=1\n");
}

/* Leases that a mark moved are due in the order of their new deadlines. */
TEST_WITH(test_mark_and_order, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("A", "a", 500)); /* 1500, then 1700 */
    fixture_run(k, cmd_acquire("B", "b", 600)); /* 1600, then 1800 */
    fixture_tick(k, 1190);
    fixture_run(k, cmd_acquire("C", "c", 505)); /* 1695, then 1705 */
    fixture_mark(k, 1200);
    fixture_run(k, cmd_acquire("D", "d", 502)); /* 1702 */
    fixture_forget_events(k);
    fixture_tick(k, 3000);
    fixture_expect_events(k, "expired:deadline A a token=1\n"
                             "expired:deadline D d token=4\n"
                             "expired:deadline C c token=3\n"
                             "expired:deadline B b token=2\n");
}

TEST_WITH(test_explicit_lease_runs_while_waiting, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("ann", 100, 0, ""));
    fixture_run(k, cmd_acquire("L", "bob", 5000));
    fixture_run(k, cmd_wait_x("L", "ann", 5000));
    fixture_forget_events(k);
    fixture_tick(k, 1101);
    fixture_expect_events(k, "wait_ended:session L ann* wait=2\n"
                             "session_ended:deadline ann*\n");
    fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "L", 1, 0));
    fixture_expect_events(k, "released:release L bob token=1\n");
}

TEST_WITH(test_lock_delay, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("ann", 100, 300, ""));
    fixture_run(k, cmd_acquire_x("L", "ann"));
    fixture_run(k, cmd_acquire_x("M", "ann"));
    fixture_run(k, cmd_wait("L", "bob", 70, 5000));
    fixture_forget_events(k);
    fixture_tick(k, 1101);
    fixture_expect_events(k, "expired:deadline L ann* token=1\n"
                             "expired:deadline M ann* token=2\n"
                             "session_ended:deadline ann*\n");
    assert_int_equal(fixture_run(k, cmd_acquire("M", "cid", 70)).code, MACHINE_HELD);
    assert_int_equal(fixture_run(k, cmd_wait("L", "cid", 70, 5000)).number, 2);
    assert_int_equal(fixture_next_deadline(k), 1402);
    fixture_forget_events(k);
    fixture_reload(k);
    fixture_tick(k, 1401);
    fixture_expect_events(k, "");
    fixture_tick(k, 1402);
    fixture_expect_events(k, "granted L bob token=3 wait=2 until=1472\n");
    assert_int_equal(fixture_run(k, cmd_acquire("M", "cid", 70)).token, 4);
}

/* A delay with nobody waiting leaves nothing behind when it ends. */
TEST_WITH(test_delay_leaves_nothing, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_counts c;
    fixture_run(k, cmd_open("ann", 100, 300, ""));
    fixture_run(k, cmd_acquire_x("L", "ann"));
    fixture_tick(k, 1200);
    fixture_run(k, cmd_wait("L", "bob", 70, 50));
    fixture_tick(k, 1251);
    machine_get_counts(k->m, &c);
    assert_int_equal(c.locks, 1);
    assert_int_equal(c.locks_held, 0);
    fixture_tick(k, 1501);
    machine_get_counts(k->m, &c);
    assert_int_equal(c.locks, 0);
    assert_int_equal(c.sessions, 0);
}

TEST_WITH(test_clean_release_skips_the_delay, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("ann", 100, 300, ""));
    fixture_run(k, cmd_acquire_x("L", "ann"));
    fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "L", 1, 0));
    assert_int_equal(fixture_run(k, cmd_acquire("L", "bob", 70)).code, MACHINE_GRANTED);
}

/* Durations at the end of time do not overflow. */
TEST_WITH(test_end_of_time, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_tick(k, MACHINE_CLOCK_MAX_MS);
    fixture_run(k, cmd_open("ann", FL_TTL_MAX_MS, FL_LOCKDELAY_MAX_MS, ""));
    fixture_run(k, cmd_acquire_x("L", "ann"));
    assert_int_equal(fixture_run(k, cmd_wait("L", "bob", FL_TTL_MAX_MS, FL_WAIT_MAX_MS)).code,
                     MACHINE_QUEUED);
    fixture_mark(k, MACHINE_CLOCK_MAX_MS);
    fixture_reload(k);
    assert_int_equal(fixture_query(k, cmd_held(MACHINE_OP_CHECK, "L", 1, 0)).deadline_ms,
                     MACHINE_CLOCK_MAX_MS + FL_TTL_MAX_MS);
}

/* Fifty thousand leases at once, each with somebody waiting. */
TEST_WITH(test_mass_expiry, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    enum { N = 50000 };
    machine_set_event_cb(k->m, NULL, NULL);
    fixture_start(k);
    for (uint32_t i = 0; i < N; i++) {
        uint8_t name[4];
        fli_put_u32(name, i * 2654435761u);
        struct machine_command c = cmd_acquire("", "ann", 100 + i % 7);
        c.name = (struct fli_slice){name, sizeof name};
        fixture_add(k, c);
        if (i % 2 == 0) {
            struct machine_command w = cmd_wait("", "bob", 100, 5000);
            w.name = c.name;
            fixture_add(k, w);
        }
        if (k->count > 60000) {
            fixture_apply(k, NULL);
            fixture_start(k);
        }
    }
    fixture_apply(k, NULL);
    struct machine_counts c;
    machine_get_counts(k->m, &c);
    assert_int_equal(c.locks_held, N);
    assert_int_equal(c.waits, N / 2);
    k->check = false;
    fixture_tick(k, 3000);
    machine_get_counts(k->m, &c);
    assert_in_range(c.expiries, 1, N / 2);
    assert_true(fixture_drain(k) > 0);
    machine_check(k->m);
    machine_get_counts(k->m, &c);
    assert_int_equal(c.expiries, N);
    assert_int_equal(c.locks_held, N / 2);
    fixture_tick(k, 4000);
    fixture_drain(k);
    machine_get_counts(k->m, &c);
    assert_int_equal(c.locks, 0);
}
