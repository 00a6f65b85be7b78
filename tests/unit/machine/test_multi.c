/* test_multi.c: several locks in one ACQUIRE: all or none, one token, one place in each queue.
 * Order, retries, mismatches, ends of each kind, delays, deadlocks, limits, what queries show,
 * forged snapshots. */
#include "machine/budget.h"
#include "fixture.h"

/* The command with these names, one letter each, instead of its own. Valid until the next call. */
static struct machine_command names(struct machine_command c, const char *letters)
{
    static uint8_t also[MACHINE_ALSO_SIZE];
    size_t len = 0;
    c.name = (struct fli_slice){(const uint8_t *)letters, 1};
    c.n_names = 1;
    for (const char *p = letters + 1; *p != '\0'; p++) {
        len = machine_also_add(also, len, (struct fli_slice){(const uint8_t *)p, 1});
        c.n_names++;
    }
    c.also = (struct fli_slice){also, len};
    return c;
}

static struct machine_command take(const char *letters, const char *owner)
{
    return names(cmd_acquire("x", owner, 5000), letters);
}

static struct machine_command wait_for(const char *letters, const char *owner)
{
    return names(cmd_wait("x", owner, 5000, 4000), letters);
}

static struct machine_command take_x(const char *letters, const char *owner)
{
    return names(cmd_acquire_x("x", owner), letters);
}

static struct machine_command wait_x(const char *letters, const char *owner)
{
    return names(cmd_wait_x("x", owner, 4000), letters);
}

static fl_token granted(struct fixture *k, struct machine_command c)
{
    struct machine_result r = fixture_run(k, c);
    assert_int_equal(r.code, MACHINE_GRANTED);
    return r.token;
}

static uint64_t queued(struct fixture *k, struct machine_command c, uint32_t place)
{
    struct machine_result r = fixture_run(k, c);
    assert_int_equal(r.code, MACHINE_QUEUED);
    assert_int_equal(r.number, place);
    return r.wait;
}

#define EXPECT(k, c, want) assert_int_equal(fixture_run(k, c).code, want)

static bool holds(struct fixture *k, const char *name, fl_token token)
{
    return fixture_query(k, cmd_held(MACHINE_OP_CHECK, name, token, 0)).code == MACHINE_DONE;
}

static struct machine_counts counts(const struct fixture *k)
{
    struct machine_counts c;
    machine_get_counts(k->m, &c);
    return c;
}

/* No lock, wait or implicit session is left. The last check of each test. */
static void assert_nothing_left(struct fixture *k)
{
    struct machine_counts c = counts(k);
    assert_int_equal(c.locks, 0);
    assert_int_equal(c.waits, 0);
    assert_int_equal(c.sessions, c.sessions_explicit);
    assert_int_equal(c.grants, c.releases + c.expiries + c.breaks);
}

/* An attempt is the same one with its names in another order, and another one with other names. */
TEST_WITH(test_a_late_copy_in_another_order, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command second = take("BA", "ann");
    second.flags |= MACHINE_ACQUIRE_ATTEMPT;
    second.number = 2;
    struct machine_result r = fixture_run(k, second);
    assert_int_equal(r.code, MACHINE_GRANTED);
    fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "A", r.token, 0));
    fixture_forget_events(k);
    r = fixture_run(k, take("AB", "ann"));
    assert_int_equal(r.code, MACHINE_LATE);
    assert_int_equal(r.token, 2);
    fixture_expect_events(k, "");
    assert_int_equal(fixture_query(k, cmd_name(MACHINE_OP_SHOW, "A")).code, MACHINE_NOTFOUND);
    assert_int_equal(fixture_run(k, take("BC", "ann")).code, MACHINE_GRANTED);
}

TEST_WITH(test_one_grant, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fl_token t = granted(k, take("CAB", "ann"));
    fixture_expect_events(k, "granted C ann token=1 until=6000\n"
                             "granted A ann token=1 until=6000\n"
                             "granted B ann token=1 until=6000\n");
    assert_int_equal(t, 1);
    assert_int_equal(machine_last_token(k->m), 1);
    assert_int_equal(machine_min_live_token(k->m), 1);
    assert_true(holds(k, "A", t) && holds(k, "B", t) && holds(k, "C", t));
    assert_false(holds(k, "A", t + 1) || holds(k, "D", t));
    struct machine_counts c = counts(k);
    assert_int_equal(c.grants, 1);
    assert_int_equal(c.locks_held, 3);
    assert_int_equal(c.sessions, 1);
    fixture_reload(k);
    /* The same again, in any order; the lease is renewed. */
    k->clock_ms = 2000;
    struct machine_result r = fixture_run(k, take("BCA", "ann"));
    assert_int_equal(r.code, MACHINE_GRANTED);
    assert_int_equal(r.token, t);
    assert_int_equal(r.deadline_ms, 7000);
    k->clock_ms = 3000;
    r = fixture_run(k, cmd_held(MACHINE_OP_RENEW, "A", t, 9000)); /* any one renews all */
    assert_int_equal(r.code, MACHINE_DONE);
    assert_int_equal(r.deadline_ms, 12000);
    fixture_forget_events(k);
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "B", t + 1, 0), MACHINE_NO);
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "B", t, 0), MACHINE_DONE); /* and gives all back */
    fixture_expect_events(k, "released:release C ann token=1\n"
                             "released:release A ann token=1\n"
                             "released:release B ann token=1\n");
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "A", t, 0), MACHINE_NO);
    assert_nothing_left(k);
}

TEST_WITH(test_all_or_none, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fl_token bob = granted(k, cmd_acquire("B", "bob", 5000));
    EXPECT(k, take("AB", "ann"), MACHINE_HELD);
    fl_token eve = granted(k, cmd_acquire("A", "eve", 5000)); /* nothing was taken */
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "B", bob, 0), MACHINE_DONE);
    EXPECT(k, take("AB", "ann"), MACHINE_HELD);
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "A", eve, 0), MACHINE_DONE);
    fl_token ann = granted(k, take("AB", "ann"));
    EXPECT(k, cmd_acquire("A", "bob", 5000), MACHINE_HELD);
    EXPECT(k, cmd_acquire("B", "bob", 5000), MACHINE_HELD);
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "A", ann, 0), MACHINE_DONE);
    assert_nothing_left(k);
}

/* Two requests for the same locks in opposite orders, and a third: first come, first served. */
TEST_WITH(test_opposite_orders, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fl_token t = granted(k, take("AB", "ann"));
    uint64_t bob = queued(k, wait_for("BA", "bob"), 1);
    uint64_t cid = queued(k, wait_for("AB", "cid"), 2);
    assert_true(cid > bob);
    fixture_reload(k);
    fixture_forget_events(k);
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "A", t, 0), MACHINE_DONE);
    fixture_expect_events(k, "released:release A ann token=1\n"
                             "released:release B ann token=1\n"
                             "granted B bob token=2 wait=1 until=6000\n"
                             "granted A bob token=2 wait=1 until=6000\n");
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "A", 2, 0), MACHINE_DONE);
    assert_true(holds(k, "A", 3) && holds(k, "B", 3));
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "A", 3, 0), MACHINE_DONE);
    assert_nothing_left(k);
}

/* A waiter for A and B holds neither, and keeps its place in both. */
TEST_WITH(test_nobody_overtakes, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fl_token a = granted(k, cmd_acquire("A", "ann", 5000));
    queued(k, wait_for("AB", "bob"), 1);
    struct machine_counts c = counts(k);
    assert_int_equal(c.locks, 2);
    assert_int_equal(c.locks_held, 1);
    assert_int_equal(c.waits, 2);
    EXPECT(k, cmd_acquire("B", "cid", 5000), MACHINE_HELD); /* free, but bob is before */
    queued(k, cmd_wait("B", "cid", 5000, 4000), 2);
    queued(k, wait_for("BC", "dan"), 3);
    fixture_reload(k);
    fixture_forget_events(k);
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "A", a, 0), MACHINE_DONE);
    assert_true(holds(k, "A", 2) && holds(k, "B", 2)); /* bob */
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "B", 2, 0), MACHINE_DONE);
    assert_true(holds(k, "B", 3)); /* cid; dan still waits */
    EXPECT(k, cmd_acquire("C", "eve", 5000), MACHINE_HELD);
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "B", 3, 0), MACHINE_DONE);
    assert_true(holds(k, "B", 4) && holds(k, "C", 4));
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "B", 4, 0), MACHINE_DONE);
    assert_nothing_left(k);
}

/* A wait for several locks leaves all its queues at once, and waits behind it are granted. */
TEST_WITH(test_wait_ends, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fl_token a = granted(k, cmd_acquire("A", "ann", 50000));
    queued(k, names(cmd_wait("x", "bob", 5000, 100), "CAB"), 1);
    queued(k, cmd_wait("B", "cid", 5000, 4000), 2);
    queued(k, wait_for("CD", "dan"), 2);
    fixture_forget_events(k);
    fixture_tick(k, 1101);
    fixture_expect_events(k, "wait_ended:deadline C bob wait=1\n"
                             "wait_ended:deadline A bob wait=1\n"
                             "wait_ended:deadline B bob wait=1\n"
                             "granted C dan token=2 wait=5 until=6101\n"
                             "granted D dan token=2 wait=5 until=6101\n"
                             "granted B cid token=3 wait=4 until=6101\n");
    /* A cancel must name the newest request count. */
    uint64_t eve = queued(k, wait_for("AB", "eve"), 1);
    assert_int_equal(fixture_run(k, wait_for("BA", "eve")).token, 2);
    EXPECT(k, cmd_number(MACHINE_OP_CANCEL, eve, 1), MACHINE_NO);
    assert_true(machine_is_waiting(k->m, eve));
    EXPECT(k, cmd_number(MACHINE_OP_CANCEL, eve, 2), MACHINE_DONE);
    assert_false(machine_is_waiting(k->m, eve));
    assert_int_equal(counts(k).waits, 0);
    assert_int_equal(counts(k).waits_ended, 2);
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "A", a, 0), MACHINE_DONE);
    fixture_tick(k, 20000);
    assert_nothing_left(k);
}

TEST_WITH(test_mismatch, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("sue", 100000, 0, ""));
    fl_token t = granted(k, take_x("AB", "sue"));
    EXPECT(k, cmd_acquire_x("A", "sue"), MACHINE_MISMATCH); /* one of them */
    EXPECT(k, take_x("ABC", "sue"), MACHINE_MISMATCH);      /* more */
    EXPECT(k, take_x("AC", "sue"), MACHINE_MISMATCH);       /* others */
    assert_int_equal(granted(k, take_x("BA", "sue")), t);   /* just these */
    fl_token c = granted(k, cmd_acquire_x("C", "sue"));     /* another one beside */
    EXPECT(k, take_x("CD", "sue"), MACHINE_MISMATCH);       /* which it holds alone */
    EXPECT(k, take("AB", "sue"), MACHINE_HELD);             /* an implicit one is another */
    queued(k, wait_for("AE", "bob"), 1);
    EXPECT(k, cmd_wait("A", "bob", 5000, 4000), MACHINE_MISMATCH);
    EXPECT(k, wait_for("AF", "bob"), MACHINE_MISMATCH);
    EXPECT(k, wait_for("AEF", "bob"), MACHINE_MISMATCH);
    EXPECT(k, take("AF", "bob"), MACHINE_HELD);
    granted(k, take("XYZ", "cid"));
    EXPECT(k, take("ZX", "cid"), MACHINE_MISMATCH); /* fewer */
    queued(k, wait_for("EA", "bob"), 1);
    struct machine_command sem = cmd_acquire("P", "pat", 5000);
    sem.permits = 3;
    granted(k, sem);
    struct machine_result r = fixture_run(k, wait_for("QP", "eve"));
    assert_int_equal(r.code, MACHINE_MISMATCH);
    assert_int_equal(r.number, 3);
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "A", t, 0), MACHINE_DONE);
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "C", c, 0), MACHINE_DONE);
    fixture_tick(k, 20000);
    assert_nothing_left(k);
}

/* A wait for several locks behind readers, and readers behind that wait. */
TEST_WITH(test_with_readers, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command reader = cmd_wait("A", "r1", 5000, 4000);
    reader.mode = MACHINE_MODE_SHARED;
    fl_token r1 = granted(k, reader);
    queued(k, wait_for("AB", "bob"), 1);
    reader.owner = fixture_slice("r2");
    queued(k, reader, 2);
    reader.owner = fixture_slice("r3");
    queued(k, reader, 3);
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "A", r1, 0), MACHINE_DONE);
    assert_true(holds(k, "A", 2) && holds(k, "B", 2));
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "B", 2, 0), MACHINE_DONE);
    assert_true(holds(k, "A", 3) && holds(k, "A", 4)); /* both readers */
    fixture_tick(k, 20000);
    assert_nothing_left(k);
}

TEST_WITH(test_break_and_expiry, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    granted(k, take("AB", "ann"));
    queued(k, cmd_wait("A", "bob", 5000, 4000), 1);
    queued(k, cmd_wait("B", "cid", 5000, 4000), 1);
    fixture_forget_events(k);
    struct machine_result r = fixture_run(k, cmd_name(MACHINE_OP_BREAK, "B"));
    assert_int_equal(r.token, 2); /* burnt */
    fixture_expect_events(k, "broken:break A ann token=1\n"
                             "broken:break B ann token=1\n"
                             "granted A bob token=3 wait=1 until=6000\n"
                             "granted B cid token=4 wait=2 until=6000\n");
    queued(k, names(cmd_wait("x", "dan", 100, 9000), "AB"), 1);
    fixture_reload(k);
    fixture_forget_events(k);
    fixture_tick(k, 6001);
    fixture_expect_events(k, "expired:deadline A bob token=3\n"
                             "expired:deadline B cid token=4\n"
                             "granted A dan token=5 wait=3 until=6101\n"
                             "granted B dan token=5 wait=3 until=6101\n");
    fixture_tick(k, 6102);
    fixture_expect_events(k, "expired:deadline A dan token=5\n"
                             "expired:deadline B dan token=5\n");
    assert_nothing_left(k);
}

/* A waiter is not in the way of a break, and a lock that only waits for others is not broken. */
TEST_WITH(test_break_of_a_waited_lock, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    granted(k, cmd_acquire("A", "ann", 5000));
    queued(k, wait_for("AB", "bob"), 1);
    EXPECT(k, cmd_name(MACHINE_OP_BREAK, "B"), MACHINE_NO);
    EXPECT(k, cmd_name(MACHINE_OP_BREAK, "A"), MACHINE_DONE);
    assert_true(holds(k, "A", 3) && holds(k, "B", 3));
    fixture_tick(k, 20000);
    assert_nothing_left(k);
}

TEST_WITH(test_session_ends, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("sue", 1000, 300, ""));
    granted(k, take_x("AB", "sue"));
    queued(k, wait_for("BC", "bob"), 1);
    fixture_forget_events(k);
    fixture_tick(k, 2001); /* unclean: both are delayed */
    fixture_expect_events(k, "expired:deadline A sue* token=1\n"
                             "expired:deadline B sue* token=1\n"
                             "session_ended:deadline sue*\n");
    EXPECT(k, cmd_acquire("A", "eve", 5000), MACHINE_HELD);
    fixture_reload(k);
    fixture_tick(k, 2302);
    fixture_expect_events(k, "granted B bob token=2 wait=2 until=7302\n"
                             "granted C bob token=2 wait=2 until=7302\n");
    granted(k, cmd_acquire("A", "eve", 5000));
    fixture_run(k, cmd_open("tim", 1000, 300, ""));
    queued(k, wait_x("AB", "tim"), 1);
    fixture_forget_events(k);
    EXPECT(k, cmd_owner(MACHINE_OP_SESSION_CLOSE, "tim"), MACHINE_DONE);
    fixture_expect_events(k, "wait_ended:session A tim* wait=7\n"
                             "wait_ended:session B tim* wait=7\n"
                             "session_ended:close tim*\n");
    fixture_run(k, cmd_open("una", 1000, 300, ""));
    granted(k, take_x("XY", "una"));
    EXPECT(k, cmd_owner(MACHINE_OP_SESSION_CLOSE, "una"), MACHINE_DONE);
    granted(k, take("YX", "eve")); /* clean: no delay */
    fixture_tick(k, 20000);
    assert_nothing_left(k);
}

TEST_WITH(test_deadlocks, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("s", 100000, 0, ""));
    fixture_run(k, cmd_open("t", 100000, 0, ""));
    granted(k, cmd_acquire("A", "x", 50000));
    granted(k, cmd_acquire_x("B", "s"));
    /* An implicit request for both waits for s; behind it s would wait for itself. */
    queued(k, wait_for("AB", "bob"), 1);
    EXPECT(k, cmd_wait_x("A", "s", 4000), MACHINE_DEADLOCK);
    EXPECT(k, wait_x("CA", "s"), MACHINE_DEADLOCK);
    /* A session that waits for both locks, while another session waits for that session. */
    granted(k, cmd_acquire_x("D", "t"));
    queued(k, wait_x("ED", "s"), 1);
    EXPECT(k, cmd_wait_x("B", "t", 4000), MACHINE_DEADLOCK);
    EXPECT(k, cmd_wait_x("E", "t", 4000), MACHINE_DEADLOCK); /* behind s, which waits for D */
    EXPECT(k, wait_x("FE", "t"), MACHINE_DEADLOCK);
    assert_int_equal(counts(k).deadlocks, 5);
    granted(k, cmd_acquire_x("F", "t"));
    /* Two sessions that hold nothing wait for the same two locks: no deadlock in any order. */
    fixture_run(k, cmd_open("u", 100000, 0, ""));
    fixture_run(k, cmd_open("v", 100000, 0, ""));
    queued(k, wait_x("AF", "u"), 2);
    queued(k, wait_x("FA", "v"), 3);
    EXPECT(k, cmd_owner(MACHINE_OP_SESSION_CLOSE, "t"), MACHINE_DONE);
    EXPECT(k, cmd_owner(MACHINE_OP_SESSION_CLOSE, "s"), MACHINE_DONE);
    fixture_tick(k, 60000);
    EXPECT(k, cmd_owner(MACHINE_OP_SESSION_CLOSE, "u"), MACHINE_DONE);
    EXPECT(k, cmd_owner(MACHINE_OP_SESSION_CLOSE, "v"), MACHINE_DONE);
    assert_nothing_left(k);
}

static void limited(struct fixture *k, struct machine_command c, enum machine_limit limit)
{
    struct machine_counts before = counts(k);
    struct machine_result r = fixture_run(k, c);
    assert_int_equal(r.code, MACHINE_LIMIT);
    assert_int_equal(r.number, limit);
    struct machine_counts after = counts(k);
    assert_int_equal(after.locks, before.locks); /* nothing is left half done */
    assert_int_equal(after.waits, before.waits);
    assert_int_equal(after.sessions, before.sessions);
}

static void set_limits(struct fixture *k, struct machine_limits limits)
{
    EXPECT(k, cmd_limits(MACHINE_OP_LIMITS, 0, limits), MACHINE_DONE);
}

/* Each limit at its value and one beyond. */
TEST_WITH(test_limits, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_limits l = MACHINE_LIMITS_DEFAULT;
    l.locks_max = 3;
    set_limits(k, l);
    fl_token t = granted(k, cmd_acquire("A", "ann", 5000));
    limited(k, take("BCD", "bob"), MACHINE_LIMIT_LOCKS);
    limited(k, wait_for("ABCD", "bob"), MACHINE_LIMIT_LOCKS);
    queued(k, wait_for("ABC", "bob"), 1);
    queued(k, wait_for("CBA", "cid"), 2); /* no further lock */
    l = MACHINE_LIMITS_DEFAULT;
    l.waits_max = 9;
    set_limits(k, l);
    limited(k, wait_for("ABCD", "dan"), MACHINE_LIMIT_WAITS);
    queued(k, wait_for("ABC", "dan"), 3);
    limited(k, cmd_wait("A", "eve", 5000, 4000), MACHINE_LIMIT_WAITS);
    l.waits_max = 100;
    l.lock_waits_max = 3;
    set_limits(k, l);
    limited(k, wait_for("DA", "eve"), MACHINE_LIMIT_LOCK_WAITS);
    l = MACHINE_LIMITS_DEFAULT;
    l.sessions_max = 4;
    set_limits(k, l);
    limited(k, take("XY", "eve"), MACHINE_LIMIT_SESSIONS);
    limited(k, wait_for("AY", "eve"), MACHINE_LIMIT_SESSIONS);
    l.sessions_max = 5;
    l.session_locks_max = 4;
    set_limits(k, l);
    fixture_run(k, cmd_open("sue", 50000, 0, ""));
    granted(k, take_x("XY", "sue"));
    limited(k, take_x("UVW", "sue"), MACHINE_LIMIT_SESSION_LOCKS);
    limited(k, wait_x("AVW", "sue"), MACHINE_LIMIT_SESSION_LOCKS);
    queued(k, wait_x("AV", "sue"), 4);
    limited(k, cmd_acquire_x("W", "sue"), MACHINE_LIMIT_SESSION_LOCKS);
    EXPECT(k, cmd_owner(MACHINE_OP_SESSION_CLOSE, "sue"), MACHINE_DONE);
    /* The last token; then nobody is granted, and the others go when their waits end. */
    machine_set_last_token(k->m, FL_TOKEN_MAX - 1);
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "A", t, 0), MACHINE_DONE);
    assert_true(holds(k, "C", FL_TOKEN_MAX));
    limited(k, take("XY", "eve"), MACHINE_LIMIT_TOKENS);
    fixture_reload(k);
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "B", FL_TOKEN_MAX, 0), MACHINE_DONE);
    assert_int_equal(counts(k).waits, 6);
    fixture_reload(k);
    fixture_tick(k, 20000);
    assert_nothing_left(k);
}

TEST_WITH(test_most_names, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fl_token t = granted(k, cmd_acquire("P", "x", 5000));
    queued(k, wait_for("ABCDEFGHIJKLMNOP", "ann"), 1);
    queued(k, wait_for("PONMLKJIHGFEDCBA", "bob"), 2);
    fixture_reload(k);
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "P", t, 0), MACHINE_DONE);
    fixture_reload(k);
    char name[2] = "A";
    for (; name[0] <= 'P'; name[0]++) {
        assert_true(holds(k, name, t + 1));
    }
    assert_int_equal(counts(k).locks_held, MACHINE_NAMES_MAX);
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "H", t + 1, 0), MACHINE_DONE);
    assert_true(holds(k, "A", t + 2) && holds(k, "P", t + 2));
    fixture_mark(k, 7000);
    fixture_tick(k, 20000);
    assert_nothing_left(k);
}

TEST_WITH(test_what_is_shown, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_lock_view v;
    struct machine_session_view s;
    granted(k, take("AB", "ann"));
    queued(k, wait_for("BC", "bob"), 1);
    queued(k, cmd_wait("B", "cid", 5000, 4000), 2);
    assert_int_equal(fixture_query(k, cmd_name(MACHINE_OP_SHOW, "B")).code, MACHINE_DONE);
    struct machine_page page = fixture_page(k);
    assert_int_equal(machine_page_next_lock(&page, &v), 1);
    assert_int_equal(v.together, 2);
    assert_int_equal(v.waiters, 2);
    assert_int_equal(machine_page_next_session(&page, &s), 1);
    assert_int_equal(s.together, 2);
    assert_int_equal(s.waits, 2);
    assert_int_equal(machine_page_next_session(&page, &s), 1);
    assert_int_equal(s.together, 1);
    /* C is free, but kept for bob. */
    assert_int_equal(fixture_query(k, cmd_name(MACHINE_OP_SHOW, "C")).code, MACHINE_DONE);
    page = fixture_page(k);
    assert_int_equal(machine_page_next_lock(&page, &v), 1);
    assert_int_equal(v.state, MACHINE_LOCK_QUEUED);
    assert_int_equal(v.together, 1);
    /* One page a lock: none twice, none missing. */
    struct machine_command q = {.op = MACHINE_OP_LOCKS, .number = 1};
    char cursor[32] = "";
    char seen[4] = "";
    for (size_t i = 0; i < 3; i++) {
        q.name = fixture_slice(cursor);
        assert_int_equal(fixture_query(k, q).code, MACHINE_DONE);
        page = fixture_page(k);
        assert_int_equal(machine_page_next_lock(&page, &v), 1);
        seen[i] = (char)v.name.data[0];
        snprintf(cursor, sizeof cursor, "%.*s", (int)page.cursor.len,
                 (const char *)page.cursor.data);
    }
    assert_string_equal(seen, "ABC");
}

/* Finds `from` in the snapshot, puts `to` (as long) in its place, and expects a refusal. */
static void refuse_with(struct fixture *k, const char *from, const char *to, size_t len)
{
    struct fli_buf a;
    fli_buf_init(&a, SIZE_MAX);
    assert_int_equal(machine_snapshot_encode(k->m, &a), 0);
    uint8_t *at = memmem(a.data, a.len, from, len);
    assert_non_null(at);
    memcpy(at, to, len);
    fli_put_u32(a.data + a.len - 4, fli_crc32c(0, a.data, a.len - 4));
    struct machine *m = NULL;
    assert_int_equal(machine_snapshot_decode(a.data, a.len, FIXTURE_SEED, &m), FL_ECORRUPT);
    fli_buf_fini(&a);
}

TEST_WITH(test_forged_snapshots, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    granted(k, take("AB", "ann"));
    queued(k, wait_for("BC", "bob"), 1);
    queued(k, cmd_wait("C", "cid", 5000, 4000), 2);
    refuse_with(k, "\002\001A\001B", "\002\001A\001A", 5); /* a lock twice in a grant */
    refuse_with(k, "\002\001B\001C", "\002\001C\001C", 5); /* in a wait */
    refuse_with(k, "\002\001B\001C", "\002\001B\001D", 5); /* a lock that is not there */
    refuse_with(k, "\002\001A\001B", "\000\001A\001B", 5); /* none */
    refuse_with(k, "\002\001A\001B", "\021\001A\001B", 5); /* more than there may be */
    /* Slots of several in a grant and in a wait. */
    refuse_with(k, "\001\0\0\0\0\0\0\0\0\0\0\0\002\001A", "\002\0\0\0\0\0\0\0\0\0\0\0\002\001A",
                15);
    refuse_with(k, "\001\0\0\0\002\001B", "\002\0\0\0\002\001B", 7);
    refuse_with(k, "\001\0\0\0\002\001B", "\377\377\377\377\002\001B", 7);
    /* A wait for what the same owner holds, and one that is ready and not granted. */
    refuse_with(k, "\001C\000\003bob", "\001C\000\003ann", 7);
    EXPECT(k, cmd_held(MACHINE_OP_RELEASE, "A", 1, 0), MACHINE_DONE);
    granted(k, cmd_acquire("E", "eve", 5000));
    queued(k, wait_for("EF", "dan"), 1);
    queued(k, cmd_wait("F", "fay", 5000, 4000), 2);
    granted(k, cmd_acquire("G", "gus", 5000));
    refuse_with(k, "\001\001E\000\003eve", "\001\001H\000\003eve", 8); /* E is free: no such lock */
}
