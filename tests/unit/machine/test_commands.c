/* test_commands.c: each command and each of its results, with the events it causes. */
#include "machine/budget.h"
#include "fixture.h"

static void assert_limit(struct machine_result r, enum machine_limit limit)
{
    assert_int_equal(r.code, MACHINE_LIMIT);
    assert_int_equal(r.number, limit);
}

static struct machine_counts counts(struct fixture *k)
{
    struct machine_counts c;
    machine_get_counts(k->m, &c);
    return c;
}

TEST_WITH(test_acquire_free, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_result r = fixture_run(k, cmd_acquire("L", "ann", 500));
    assert_int_equal(r.code, MACHINE_GRANTED);
    assert_int_equal(r.token, 1);
    assert_int_equal(r.deadline_ms, 1500);
    assert_int_equal(r.wait, 0);
    fixture_expect_events(k, "granted L ann token=1 until=1500\n");
    assert_int_equal(machine_min_live_token(k->m), 1);
    assert_int_equal(fixture_run(k, cmd_acquire("M", "ann", 500)).token, 2);
    assert_int_equal(counts(k).sessions, 2); /* one owner, two implicit sessions */
}

TEST_WITH(test_acquire_again, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("L", "ann", 500));
    fixture_tick(k, 1100);
    fixture_forget_events(k);
    struct machine_result r = fixture_run(k, cmd_acquire("L", "ann", 300));
    assert_int_equal(r.code, MACHINE_GRANTED);
    assert_int_equal(r.token, 1);
    assert_int_equal(r.deadline_ms, 1500); /* never shortened */
    fixture_tick(k, 1300);
    r = fixture_run(k, cmd_wait("L", "ann", 300, 10));
    assert_int_equal(r.code, MACHINE_GRANTED);
    assert_int_equal(r.deadline_ms, 1600); /* the new ttl counts */
    fixture_expect_events(k, "");
    assert_int_equal(counts(k).grants, 1);
}

TEST_WITH(test_acquire_held, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("L", "ann", 500));
    fixture_forget_events(k);
    struct machine_result r = fixture_run(k, cmd_acquire("L", "bob", 500));
    assert_int_equal(r.code, MACHINE_HELD);
    assert_int_equal(r.token, 0);
    fixture_expect_events(k, "");
    assert_int_equal(counts(k).sessions, 1);
}

/* Kind is part of identity: explicit ann is not implicit ann. */
TEST_WITH(test_kinds_are_different, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("ann", 500, 0, ""));
    fixture_run(k, cmd_acquire("L", "ann", 500));
    assert_int_equal(fixture_run(k, cmd_acquire_x("L", "ann")).code, MACHINE_HELD);
    struct machine_result r = fixture_run(k, cmd_wait_x("L", "ann", 100));
    assert_int_equal(r.code, MACHINE_QUEUED);
    assert_int_equal(r.number, 1);
    assert_int_equal(fixture_run(k, cmd_acquire("L", "ann", 500)).code, MACHINE_GRANTED);
    fixture_run(k, cmd_acquire_x("M", "ann"));
    assert_int_equal(fixture_run(k, cmd_acquire("M", "ann", 500)).code, MACHINE_HELD);
}

TEST_WITH(test_acquire_without_session, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    assert_int_equal(fixture_run(k, cmd_acquire_x("L", "ann")).code, MACHINE_NOSESSION);
    assert_int_equal(fixture_run(k, cmd_wait_x("L", "ann", 5)).code, MACHINE_NOSESSION);
    assert_int_equal(counts(k).locks, 0);
    fixture_expect_events(k, "");
}

TEST_WITH(test_acquire_unsupported, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command c = cmd_acquire("L", "ann", 500);
    c.mode = MACHINE_MODE_SHARED;
    c.permits = 2;
    assert_int_equal(fixture_run(k, c).code, MACHINE_UNSUPPORTED);
    c.mode = MACHINE_MODE_EXCLUSIVE;
    c.permits = FL_PERMITS_MAX + 1;
    assert_int_equal(fixture_run(k, c).code, MACHINE_UNSUPPORTED);
    /* A multi-lock is exclusive. */
    uint8_t also[MACHINE_ALSO_SIZE];
    c = cmd_acquire("L", "ann", 500);
    c.also = (struct fli_slice){also, machine_also_add(also, 0, fixture_slice("M"))};
    c.n_names = 2;
    c.permits = 2;
    assert_int_equal(fixture_run(k, c).code, MACHINE_UNSUPPORTED);
    c.permits = 1;
    c.mode = MACHINE_MODE_SHARED;
    assert_int_equal(fixture_run(k, c).code, MACHINE_UNSUPPORTED);
    assert_int_equal(counts(k).locks, 0);
}

TEST_WITH(test_queue, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("L", "ann", 500));
    struct machine_result b = fixture_run(k, cmd_wait("L", "bob", 200, 5000));
    struct machine_result c = fixture_run(k, cmd_wait("L", "cid", 300, 5000));
    assert_int_equal(b.code, MACHINE_QUEUED);
    assert_int_equal(b.number, 1);
    assert_int_equal(b.token, 1);
    assert_int_equal(b.wait, 1);
    assert_int_equal(c.number, 2);
    assert_int_equal(c.wait, 2);
    fixture_expect_events(k, "granted L ann token=1 until=1500\n"
                             "queued L bob wait=1\n"
                             "queued L cid wait=2\n");
    /* The release lets the first waiter in; a new request does not overtake the other one. */
    fixture_tick(k, 1200);
    assert_int_equal(fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "L", 1, 0)).code, MACHINE_DONE);
    fixture_expect_events(k, "released:release L ann token=1\n"
                             "granted L bob token=2 wait=1 until=1400\n"); /* one, the first */
    assert_int_equal(fixture_run(k, cmd_acquire("L", "dan", 200)).code, MACHINE_HELD);
    fixture_tick(k, 1401);
    fixture_expect_events(k, "expired:deadline L bob token=2\n"
                             "granted L cid token=3 wait=2 until=1701\n");
    fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "L", 3, 0));
    assert_int_equal(counts(k).locks, 0); /* a free lock leaves no trace */
    assert_int_equal(counts(k).sessions, 0);
}

TEST_WITH(test_ask_again, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("L", "ann", 5000));
    fixture_run(k, cmd_wait("L", "bob", 200, 300));
    fixture_run(k, cmd_wait("L", "cid", 200, 300));
    fixture_forget_events(k);
    fixture_tick(k, 1100);
    struct machine_result r = fixture_run(k, cmd_wait("L", "cid", 700, 100));
    assert_int_equal(r.code, MACHINE_QUEUED);
    assert_int_equal(r.number, 2);
    assert_int_equal(r.wait, 2);
    assert_int_equal(r.token, 2);
    /* Without WAIT the answer is HELD, and the place stays. */
    assert_int_equal(fixture_run(k, cmd_acquire("L", "cid", 700)).code, MACHINE_HELD);
    assert_int_equal(counts(k).waits, 2);
    r = fixture_run(k, cmd_wait("L", "cid", 700, 900));
    assert_int_equal(r.token, 3);
    fixture_expect_events(k, "");
    fixture_tick(k, 1301);
    fixture_expect_events(k, "wait_ended:deadline L bob wait=1\n"); /* cid's was moved to 2000 */
    fixture_tick(k, 1999);
    fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "L", 1, 0));
    fixture_expect_events(k, "released:release L ann token=1\n"
                             "granted L cid token=2 wait=2 until=2699\n"); /* the last ttl given */
}

TEST_WITH(test_cancel, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("L", "ann", 5000));
    uint64_t wait = fixture_run(k, cmd_wait("L", "bob", 200, 300)).wait;
    fixture_run(k, cmd_wait("L", "bob", 200, 300));
    fixture_forget_events(k);
    assert_int_equal(fixture_run(k, cmd_number(MACHINE_OP_CANCEL, wait, 1)).code, MACHINE_NO);
    assert_int_equal(fixture_run(k, cmd_number(MACHINE_OP_CANCEL, wait + 1, 2)).code, MACHINE_NO);
    struct machine_result r = fixture_run(k, cmd_number(MACHINE_OP_CANCEL, wait, 2));
    assert_int_equal(r.code, MACHINE_DONE);
    assert_int_equal(r.wait, wait);
    fixture_expect_events(k, "wait_ended:cancel L bob wait=1\n");
    assert_int_equal(fixture_run(k, cmd_number(MACHINE_OP_CANCEL, wait, 2)).code, MACHINE_NO);
    assert_int_equal(counts(k).sessions, 1);
}

TEST_WITH(test_renew, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("L", "ann", 500));
    fixture_tick(k, 1400);
    struct machine_result r = fixture_run(k, cmd_held(MACHINE_OP_RENEW, "L", 1, 0));
    assert_int_equal(r.code, MACHINE_DONE);
    assert_int_equal(r.token, 1);
    assert_int_equal(r.deadline_ms, 1900);
    r = fixture_run(k, cmd_held(MACHINE_OP_RENEW, "L", 1, 50));
    assert_int_equal(r.deadline_ms, 1900);
    fixture_tick(k, 1880);
    r = fixture_run(k, cmd_held(MACHINE_OP_RENEW, "L", 1, 0));
    assert_int_equal(r.deadline_ms, 1930);
    assert_int_equal(fixture_run(k, cmd_held(MACHINE_OP_RENEW, "L", 2, 0)).code, MACHINE_NO);
    assert_int_equal(fixture_run(k, cmd_held(MACHINE_OP_RENEW, "L", 0, 0)).code, MACHINE_NO);
    assert_int_equal(fixture_run(k, cmd_held(MACHINE_OP_RENEW, "M", 1, 0)).code, MACHINE_NO);
}

/* RENEW of a lock renews the session that holds it, with all its locks. */
TEST_WITH(test_renew_explicit, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("ann", 500, 0, ""));
    fixture_run(k, cmd_acquire_x("L", "ann"));
    fixture_run(k, cmd_acquire_x("M", "ann"));
    fixture_tick(k, 1400);
    assert_int_equal(fixture_run(k, cmd_held(MACHINE_OP_RENEW, "M", 2, 0)).deadline_ms, 1900);
    fixture_forget_events(k);
    fixture_tick(k, 1900);
    fixture_expect_events(k, "");
    fixture_tick(k, 1901);
    fixture_expect_events(k, "expired:deadline L ann* token=1\n"
                             "expired:deadline M ann* token=2\n"
                             "session_ended:deadline ann*\n");
}

TEST_WITH(test_release, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("L", "ann", 500));
    fixture_forget_events(k);
    assert_int_equal(fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "L", 2, 0)).code, MACHINE_NO);
    assert_int_equal(fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "M", 1, 0)).code, MACHINE_NO);
    struct machine_result r = fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "L", 1, 0));
    assert_int_equal(r.code, MACHINE_DONE);
    assert_int_equal(r.token, 1);
    fixture_expect_events(k, "released:release L ann token=1\n");
    assert_int_equal(fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "L", 1, 0)).code, MACHINE_NO);
    /* A stale token releases nothing of the next holder. */
    assert_int_equal(fixture_run(k, cmd_acquire("L", "ann", 500)).token, 2);
    assert_int_equal(fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "L", 1, 0)).code, MACHINE_NO);
    assert_int_equal(counts(k).releases, 1);
}

TEST_WITH(test_break, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    assert_int_equal(fixture_run(k, cmd_name(MACHINE_OP_BREAK, "L")).code, MACHINE_NO);
    fixture_run(k, cmd_acquire("L", "ann", 500));
    fixture_run(k, cmd_wait("L", "bob", 400, 500));
    fixture_forget_events(k);
    struct machine_result r = fixture_run(k, cmd_name(MACHINE_OP_BREAK, "L"));
    assert_int_equal(r.code, MACHINE_DONE);
    assert_int_equal(r.token, 2); /* burnt: larger than the broken one, smaller than the next */
    fixture_expect_events(k, "broken:break L ann token=1\n"
                             "granted L bob token=3 wait=1 until=1400\n");
    assert_int_equal(counts(k).breaks, 1);
    assert_int_equal(counts(k).sessions, 1);
}

/* An explicit session survives the break of one of its locks; there is no delay. */
TEST_WITH(test_break_explicit, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("ann", 500, 1000, ""));
    fixture_run(k, cmd_acquire_x("L", "ann"));
    fixture_run(k, cmd_acquire_x("M", "ann"));
    fixture_run(k, cmd_name(MACHINE_OP_BREAK, "L"));
    assert_int_equal(counts(k).locks, 1);
    assert_int_equal(counts(k).sessions_explicit, 1);
    assert_int_equal(fixture_run(k, cmd_acquire("L", "bob", 500)).token, 4);
}

TEST_WITH(test_break_delayed, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("ann", 500, 1000, ""));
    fixture_run(k, cmd_acquire_x("L", "ann"));
    fixture_tick(k, 1501);
    assert_int_equal(fixture_run(k, cmd_wait("L", "bob", 400, 5000)).code, MACHINE_QUEUED);
    fixture_forget_events(k);
    struct machine_result r = fixture_run(k, cmd_name(MACHINE_OP_BREAK, "L"));
    assert_int_equal(r.code, MACHINE_DONE);
    assert_int_equal(r.token, 2);
    fixture_expect_events(k, "granted L bob token=3 wait=3 until=1901\n");
    fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "L", 3, 0));
    assert_int_equal(counts(k).locks, 0);
}

TEST_WITH(test_token_and_raise, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_result r = fixture_run(k, cmd_name(MACHINE_OP_TOKEN, "L"));
    assert_int_equal(r.code, MACHINE_DONE);
    assert_int_equal(r.token, 1);
    r = fixture_run(k, cmd_number(MACHINE_OP_RAISE, 100, 0));
    assert_int_equal(r.code, MACHINE_DONE);
    assert_int_equal(r.token, 101);
    assert_int_equal(fixture_run(k, cmd_acquire("L", "ann", 50)).token, 102);
    assert_int_equal(counts(k).tokens, 1);
}

/* Whatever the sequence of RAISEs, tokens for a hundred years are left. */
TEST_WITH(test_raise_has_a_ceiling, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    assert_true((FL_TOKEN_MAX - MACHINE_RAISE_TO_MAX) / (UINT64_C(36525) * 864) >= 1000000);
    struct machine_result r =
        fixture_run(k, cmd_number(MACHINE_OP_RAISE, MACHINE_RAISE_STEP_MAX, 0));
    assert_int_equal(r.token, MACHINE_RAISE_STEP_MAX);
    machine_set_last_token(k->m, MACHINE_RAISE_TO_MAX - 2);
    assert_limit(fixture_run(k, cmd_number(MACHINE_OP_RAISE, 3, 0)), MACHINE_LIMIT_TOKENS);
    assert_int_equal(fixture_run(k, cmd_number(MACHINE_OP_RAISE, 2, 0)).token,
                     MACHINE_RAISE_TO_MAX);
    assert_limit(fixture_run(k, cmd_number(MACHINE_OP_RAISE, 1, 0)), MACHINE_LIMIT_TOKENS);
    /* Grants go on beyond it. */
    assert_int_equal(fixture_run(k, cmd_acquire("L", "ann", 50)).token, MACHINE_RAISE_TO_MAX + 1);
    assert_limit(fixture_run(k, cmd_number(MACHINE_OP_RAISE, 1, 0)), MACHINE_LIMIT_TOKENS);
}

TEST_WITH(test_tokens_run_out, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("ann", 5000, 0, ""));
    fixture_run(k, cmd_acquire_x("L", "ann"));
    fixture_run(k, cmd_wait("L", "bob", 50, 100));
    fixture_run(k, cmd_wait("L", "cid", 50, 200));
    machine_set_last_token(k->m, FL_TOKEN_MAX);
    assert_limit(fixture_run(k, cmd_number(MACHINE_OP_RAISE, 1, 0)), MACHINE_LIMIT_TOKENS);
    assert_limit(fixture_run(k, cmd_name(MACHINE_OP_TOKEN, "L")), MACHINE_LIMIT_TOKENS);
    assert_limit(fixture_run(k, cmd_acquire("M", "bob", 50)), MACHINE_LIMIT_TOKENS);
    assert_limit(fixture_run(k, cmd_name(MACHINE_OP_BREAK, "L")), MACHINE_LIMIT_TOKENS);
    /* A held lock can still be acquired again and released; waiters wait until their deadlines. */
    fixture_forget_events(k);
    assert_int_equal(fixture_run(k, cmd_acquire_x("L", "ann")).token, 1);
    assert_int_equal(fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "L", 1, 0)).code, MACHINE_DONE);
    fixture_expect_events(k, "released:release L ann* token=1\n");
    assert_int_equal(fixture_run(k, cmd_acquire_x("L", "ann")).code, MACHINE_HELD);
    assert_int_equal(fixture_run(k, cmd_name(MACHINE_OP_BREAK, "L")).code, MACHINE_NO);
    fixture_reload(k);
    fixture_tick(k, 1201);
    fixture_expect_events(k, "wait_ended:deadline L bob wait=2\n"
                             "wait_ended:deadline L cid wait=3\n");
    assert_int_equal(counts(k).locks, 0);
}

TEST_WITH(test_session_open, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_result r = fixture_run(k, cmd_open("ann", 500, 10, "one"));
    assert_int_equal(r.code, MACHINE_DONE);
    assert_int_equal(r.deadline_ms, 1500);
    fixture_expect_events(k, "session_opened ann*\n");
    /* Again: the same session, renewed, with new settings. */
    fixture_tick(k, 1400);
    r = fixture_run(k, cmd_open("ann", 50, 20, "a longer label"));
    assert_int_equal(r.code, MACHINE_DONE);
    assert_int_equal(r.deadline_ms, 1500);
    r = fixture_run(k, cmd_open("ann", 300, 20, ""));
    assert_int_equal(r.deadline_ms, 1700);
    fixture_expect_events(k, "");
    assert_int_equal(counts(k).sessions, 1);
}

TEST_WITH(test_session_renew, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command renew = cmd_owner(MACHINE_OP_SESSION_RENEW, "ann");
    assert_int_equal(fixture_run(k, renew).code, MACHINE_NOSESSION);
    fixture_run(k, cmd_open("ann", 500, 0, ""));
    fixture_tick(k, 1100);
    struct machine_result r = fixture_run(k, renew);
    assert_int_equal(r.code, MACHINE_DONE);
    assert_int_equal(r.deadline_ms, 1600);
    fixture_tick(k, 1601);
    assert_int_equal(fixture_run(k, renew).code, MACHINE_NOSESSION);
}

TEST_WITH(test_session_close, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command close = cmd_owner(MACHINE_OP_SESSION_CLOSE, "ann");
    assert_int_equal(fixture_run(k, close).code, MACHINE_NOSESSION);
    fixture_run(k, cmd_acquire("Z", "eve", 5000));
    fixture_run(k, cmd_open("ann", 500, 1000, "")); /* the delay is not for clean ends */
    fixture_run(k, cmd_acquire_x("M", "ann"));
    fixture_run(k, cmd_acquire_x("L", "ann"));
    fixture_run(k, cmd_wait("L", "bob", 300, 5000));
    fixture_run(k, cmd_wait_x("Z", "ann", 5000));
    fixture_forget_events(k);
    assert_int_equal(fixture_run(k, close).code, MACHINE_DONE);
    fixture_expect_events(k, "released:close M ann* token=2\n"
                             "released:close L ann* token=3\n"
                             "granted L bob token=4 wait=2 until=1300\n"
                             "wait_ended:session Z ann* wait=3\n"
                             "session_ended:close ann*\n");
    assert_int_equal(counts(k).locks, 2);
    /* The grant that ann would have had goes to nobody. */
    fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "Z", 1, 0));
    fixture_expect_events(k, "released:release Z eve token=1\n");
}

TEST_WITH(test_init, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_limits limits = {1, 2, 3, 4, 5};
    assert_int_equal(machine_cluster_id(k->m), 0);
    assert_int_equal(fixture_run(k, cmd_limits(MACHINE_OP_INIT, 77, limits)).code, MACHINE_DONE);
    assert_int_equal(machine_cluster_id(k->m), 77);
    assert_memory_equal(machine_get_limits(k->m), &limits, sizeof limits);
    assert_int_equal(fixture_run(k, cmd_limits(MACHINE_OP_INIT, 78, MACHINE_LIMITS_DEFAULT)).code,
                     MACHINE_EXISTS);
    assert_int_equal(machine_cluster_id(k->m), 77);
    assert_memory_equal(machine_get_limits(k->m), &limits, sizeof limits);
    limits.locks_max = 9;
    assert_int_equal(fixture_run(k, cmd_limits(MACHINE_OP_LIMITS, 0, limits)).code, MACHINE_DONE);
    assert_memory_equal(machine_get_limits(k->m), &limits, sizeof limits);
}

/* A limit may go down to what is in use, and no further. */
TEST_WITH(test_limit_set, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command c = {.op = MACHINE_OP_LIMIT_SET, .number = MACHINE_LIMIT_LOCKS};
    fixture_run(k, cmd_acquire("a", "owner-a", 1000));
    fixture_run(k, cmd_acquire("b", "owner-b", 1000));
    c.number2 = 1;
    struct machine_result r = fixture_run(k, c);
    assert_int_equal(r.code, MACHINE_LIMIT);
    assert_int_equal(r.number, MACHINE_LIMIT_LOCKS);
    assert_int_equal(r.token, 2);
    assert_int_equal(machine_get_limits(k->m)->locks_max, MACHINE_LIMITS_DEFAULT.locks_max);
    c.number2 = 2;
    assert_int_equal(fixture_run(k, c).code, MACHINE_DONE);
    assert_int_equal(fixture_run(k, cmd_acquire("c", "owner-c", 1000)).code, MACHINE_LIMIT);
    c.number2 = UINT32_MAX;
    assert_int_equal(fixture_run(k, c).code, MACHINE_DONE);
    assert_int_equal(fixture_run(k, cmd_acquire("c", "owner-c", 1000)).code, MACHINE_GRANTED);
    c.number = MACHINE_LIMITS_SETTABLE;
    assert_int_equal(machine_command_check(&c), 0);
    c.number = MACHINE_LIMITS_SETTABLE + 1;
    assert_int_equal(machine_command_check(&c), FL_EINVAL);
}

static struct machine_result set(struct fixture *k, unsigned setting, unsigned value)
{
    return fixture_run(k, cmd_number(MACHINE_OP_SETTING_SET, setting, value));
}

TEST_WITH(test_settings_have_bounds, fixture_setup, fixture_teardown)
{
    static const struct {
        unsigned setting, bad[2];
    } rows[] = {{MACHINE_SETTING_ELECTION, {19, 60001}},
                {MACHINE_SETTING_HEARTBEAT, {4, 30001}},
                {MACHINE_SETTING_HOLD, {600001, UINT32_MAX}},
                {MACHINE_SETTING_LOG_LEVEL, {5, UINT32_MAX}}};
    for (unsigned i = 0; i < 8; i++) {
        struct machine_command c =
            cmd_number(MACHINE_OP_SETTING_SET, rows[i / 2].setting, rows[i / 2].bad[i % 2]);
        assert_int_equal(machine_command_check(&c), FL_EINVAL);
        c.number2 = 0;
        assert_int_equal(machine_command_check(&c), 0);
    }
}

/* An election time below three heartbeats is refused; settings are in the snapshot and the hash. */
TEST_WITH(test_setting_set, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    uint64_t hash = machine_hash(k->m);
    assert_int_equal(set(k, MACHINE_SETTING_HEARTBEAT, 100).code, MACHINE_DONE);
    assert_int_not_equal(machine_hash(k->m), hash);
    struct machine_result r = set(k, MACHINE_SETTING_ELECTION, 299);
    assert_int_equal(r.code, MACHINE_MISMATCH);
    assert_int_equal(r.number, MACHINE_SETTING_ELECTION);
    assert_int_equal(r.token, 100);
    assert_int_equal(set(k, MACHINE_SETTING_ELECTION, 300).code, MACHINE_DONE);
    r = set(k, MACHINE_SETTING_HEARTBEAT, 101);
    assert_int_equal(r.code, MACHINE_MISMATCH);
    assert_int_equal(r.token, 300);
    assert_int_equal(set(k, MACHINE_SETTING_ELECTION, 0).code, MACHINE_DONE);
    assert_int_equal(set(k, MACHINE_SETTING_HEARTBEAT, 101).code, MACHINE_DONE);
    assert_int_equal(set(k, MACHINE_SETTING_HOLD, 77).code, MACHINE_DONE);
    assert_int_equal(set(k, MACHINE_SETTING_LOG_LEVEL, 4).code, MACHINE_DONE);
    fixture_reload(k);
    const struct machine_settings *s = machine_get_settings(k->m);
    assert_int_equal(s->election_ms, 0);
    assert_int_equal(s->heartbeat_ms, 101);
    assert_int_equal(s->hold_ms, 77);
    assert_int_equal(s->log_level, 4);
}

/* Each limit: exactly at it works, one more does not, and nothing is left behind. */
TEST_WITH(test_limit_locks, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_limits limits = MACHINE_LIMITS_DEFAULT;
    limits.locks_max = 2;
    fixture_run(k, cmd_limits(MACHINE_OP_LIMITS, 0, limits));
    assert_int_equal(fixture_run(k, cmd_acquire("A", "ann", 500)).code, MACHINE_GRANTED);
    assert_int_equal(fixture_run(k, cmd_acquire("B", "ann", 500)).code, MACHINE_GRANTED);
    assert_limit(fixture_run(k, cmd_acquire("C", "ann", 500)), MACHINE_LIMIT_LOCKS);
    assert_int_equal(fixture_run(k, cmd_acquire("A", "ann", 500)).code, MACHINE_GRANTED);
    assert_int_equal(fixture_run(k, cmd_wait("A", "bob", 500, 5)).code, MACHINE_QUEUED);
    fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "B", 2, 0));
    assert_int_equal(fixture_run(k, cmd_acquire("C", "ann", 500)).code, MACHINE_GRANTED);
    assert_int_equal(counts(k).limits, 1);
}

TEST_WITH(test_limit_sessions, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_limits limits = MACHINE_LIMITS_DEFAULT;
    limits.sessions_max = 3;
    fixture_run(k, cmd_limits(MACHINE_OP_LIMITS, 0, limits));
    assert_int_equal(fixture_run(k, cmd_open("ann", 500, 0, "")).code, MACHINE_DONE);
    assert_int_equal(fixture_run(k, cmd_acquire("A", "bob", 500)).code, MACHINE_GRANTED);
    assert_int_equal(fixture_run(k, cmd_wait("A", "cid", 500, 50)).code, MACHINE_QUEUED);
    assert_limit(fixture_run(k, cmd_open("dan", 500, 0, "")), MACHINE_LIMIT_SESSIONS);
    assert_limit(fixture_run(k, cmd_acquire("B", "bob", 500)), MACHINE_LIMIT_SESSIONS);
    assert_limit(fixture_run(k, cmd_wait("A", "dan", 500, 50)), MACHINE_LIMIT_SESSIONS);
    assert_int_equal(fixture_run(k, cmd_open("ann", 500, 0, "")).code, MACHINE_DONE);
    assert_int_equal(fixture_run(k, cmd_acquire_x("B", "ann")).code, MACHINE_GRANTED);
    fixture_run(k, cmd_owner(MACHINE_OP_SESSION_CLOSE, "ann"));
    assert_int_equal(fixture_run(k, cmd_wait("A", "dan", 500, 50)).code, MACHINE_QUEUED);
    assert_int_equal(counts(k).sessions, 3);
}

TEST_WITH(test_limit_waits, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_limits limits = MACHINE_LIMITS_DEFAULT;
    limits.waits_max = 3;
    limits.lock_waits_max = 2;
    fixture_run(k, cmd_limits(MACHINE_OP_LIMITS, 0, limits));
    fixture_run(k, cmd_acquire("A", "ann", 500));
    fixture_run(k, cmd_acquire("B", "ann", 500));
    assert_int_equal(fixture_run(k, cmd_wait("A", "bob", 500, 50)).code, MACHINE_QUEUED);
    assert_int_equal(fixture_run(k, cmd_wait("A", "cid", 500, 50)).code, MACHINE_QUEUED);
    assert_limit(fixture_run(k, cmd_wait("A", "dan", 500, 50)), MACHINE_LIMIT_LOCK_WAITS);
    assert_int_equal(fixture_run(k, cmd_wait("A", "bob", 500, 50)).number, 1); /* has its place */
    assert_int_equal(fixture_run(k, cmd_wait("B", "bob", 500, 50)).code, MACHINE_QUEUED);
    assert_limit(fixture_run(k, cmd_wait("B", "cid", 500, 50)), MACHINE_LIMIT_WAITS);
    assert_int_equal(counts(k).sessions, 5);
}

TEST_WITH(test_limit_session_locks, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_limits limits = MACHINE_LIMITS_DEFAULT;
    limits.session_locks_max = 2;
    fixture_run(k, cmd_limits(MACHINE_OP_LIMITS, 0, limits));
    fixture_run(k, cmd_open("ann", 5000, 0, ""));
    fixture_run(k, cmd_acquire("B", "bob", 500));
    assert_int_equal(fixture_run(k, cmd_acquire_x("A", "ann")).code, MACHINE_GRANTED);
    assert_int_equal(fixture_run(k, cmd_wait_x("B", "ann", 50)).code, MACHINE_QUEUED);
    assert_limit(fixture_run(k, cmd_acquire_x("C", "ann")), MACHINE_LIMIT_SESSION_LOCKS);
    fixture_run(k, cmd_acquire("C", "bob", 500));
    assert_limit(fixture_run(k, cmd_wait_x("C", "ann", 50)), MACHINE_LIMIT_SESSION_LOCKS);
    fixture_tick(k, 1051);
    assert_int_equal(fixture_run(k, cmd_wait_x("C", "ann", 50)).code, MACHINE_QUEUED);
}

/* Names and owners are bytes, of up to 255. */
TEST_WITH(test_any_bytes, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    static uint8_t name[FL_NAME_MAX];
    static uint8_t owner[FL_OWNER_MAX];
    static uint8_t value[FL_VALUE_MAX];
    for (unsigned i = 0; i < sizeof name; i++) {
        name[i] = (uint8_t)(i * 7);
        owner[i] = (uint8_t)(255 - i);
    }
    struct machine_command c = cmd_acquire("x", "y", 500);
    c.name = (struct fli_slice){name, sizeof name};
    c.owner = (struct fli_slice){owner, sizeof owner};
    c.value = (struct fli_slice){value, sizeof value};
    machine_set_event_cb(k->m, NULL, NULL);
    assert_int_equal(fixture_run(k, c).token, 1);
    fixture_reload(k);
    machine_set_event_cb(k->m, NULL, NULL);
    assert_int_equal(fixture_run(k, c).token, 1);
    c.name.len--;
    assert_int_equal(fixture_run(k, c).token, 2);
    c.flags = MACHINE_ACQUIRE_WAIT;
    c.wait_ms = 1;
    c.owner.len = 1;
    assert_int_equal(fixture_run(k, c).code, MACHINE_QUEUED);
}
