/* test_deadlock.c: cycles of waiting sessions are refused, and nothing else is. The model test
 * compares with a naive search over random runs; here are the shapes that have names. */
#include "fixture.h"
#include "machine/budget.h"

static void open_sessions(struct fixture *k, const char *owners)
{
    for (; *owners != '\0'; owners++) {
        char owner[2] = {*owners, '\0'};
        fixture_run(k, cmd_open(owner, 100000, 0, ""));
    }
}

static enum machine_code waits(struct fixture *k, const char *name, const char *owner)
{
    return fixture_run(k, cmd_wait_x(name, owner, 50000)).code;
}

TEST_WITH(test_two, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    open_sessions(k, "ab");
    fixture_run(k, cmd_acquire_x("A", "a"));
    fixture_run(k, cmd_acquire_x("B", "b"));
    assert_int_equal(waits(k, "B", "a"), MACHINE_QUEUED);
    fixture_forget_events(k);
    assert_int_equal(waits(k, "A", "b"), MACHINE_DEADLOCK);
    fixture_expect_events(k, "");
    struct machine_counts c;
    machine_get_counts(k->m, &c);
    assert_int_equal(c.deadlocks, 1);
    assert_int_equal(c.waits, 1);
    assert_int_equal(fixture_run(k, cmd_acquire_x("A", "b")).code, MACHINE_HELD);
    /* The way out: b lets go, a gets on. */
    fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "B", 2, 0));
    assert_int_equal(waits(k, "A", "b"), MACHINE_QUEUED);
}

TEST_WITH(test_ring, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    open_sessions(k, "abcde");
    const char *locks[] = {"A", "B", "C", "D", "E"};
    const char *owners[] = {"a", "b", "c", "d", "e"};
    for (unsigned i = 0; i < 5; i++) {
        fixture_run(k, cmd_acquire_x(locks[i], owners[i]));
    }
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(waits(k, locks[i + 1], owners[i]), MACHINE_QUEUED);
    }
    assert_int_equal(waits(k, "A", "e"), MACHINE_DEADLOCK);
    assert_int_equal(waits(k, "C", "e"), MACHINE_DEADLOCK);
}

/* b is behind c in the queue of A, and c waits for what b holds. */
TEST_WITH(test_through_a_queue, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    open_sessions(k, "abc");
    fixture_run(k, cmd_acquire_x("A", "a"));
    fixture_run(k, cmd_acquire_x("B", "b"));
    assert_int_equal(waits(k, "A", "c"), MACHINE_QUEUED);
    assert_int_equal(waits(k, "B", "c"), MACHINE_QUEUED);
    assert_int_equal(waits(k, "A", "b"), MACHINE_DEADLOCK);
    /* In the other order, nobody is behind anybody who waits for him. */
    fixture_run(k, cmd_owner(MACHINE_OP_SESSION_CLOSE, "c"));
    open_sessions(k, "c");
    assert_int_equal(waits(k, "A", "b"), MACHINE_QUEUED);
    assert_int_equal(waits(k, "A", "c"), MACHINE_QUEUED);
    assert_int_equal(waits(k, "B", "c"), MACHINE_QUEUED);
}

/* The session that asks has one wait, and somebody behind it there: only with the new wait is it
 * one that waits in two places. */
TEST_WITH(test_behind_the_one_who_asks, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    open_sessions(k, "abc");
    fixture_run(k, cmd_acquire_x("A", "a"));
    assert_int_equal(waits(k, "A", "b"), MACHINE_QUEUED);
    fixture_run(k, cmd_acquire_x("C", "c"));
    assert_int_equal(waits(k, "A", "c"), MACHINE_QUEUED); /* c behind b */
    assert_int_equal(waits(k, "C", "b"), MACHINE_DEADLOCK);
}

TEST_WITH(test_implicit_sessions_are_no_link, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    open_sessions(k, "ab");
    fixture_run(k, cmd_acquire_x("A", "a"));
    fixture_run(k, cmd_acquire("B", "b", 100000)); /* implicit b */
    assert_int_equal(waits(k, "B", "a"), MACHINE_QUEUED);
    assert_int_equal(waits(k, "A", "b"), MACHINE_QUEUED); /* explicit b */
    assert_int_equal(fixture_run(k, cmd_wait("A", "b", 500, 50)).code, MACHINE_QUEUED);
}

/* A cycle that a release took apart is no cycle any more, and the other way round. */
TEST_WITH(test_after_a_grant, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    open_sessions(k, "abc");
    fixture_run(k, cmd_acquire_x("A", "a"));
    fixture_run(k, cmd_acquire_x("B", "b"));
    assert_int_equal(waits(k, "A", "c"), MACHINE_QUEUED);
    fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "A", 1, 0)); /* c has A */
    assert_int_equal(waits(k, "B", "c"), MACHINE_QUEUED);
    assert_int_equal(waits(k, "A", "b"), MACHINE_DEADLOCK);
    assert_int_equal(waits(k, "A", "a"), MACHINE_QUEUED);
}

static const char *numbered(char out[16], char kind, unsigned i)
{
    snprintf(out, 16, "%c%u", kind, i);
    return out;
}

/* A chain of n sessions, each waiting for the next one's lock; then the last asks for the first. */
static enum machine_code long_chain(struct fixture *k, unsigned n)
{
    char lock[16];
    char owner[16];
    k->check = false;
    for (unsigned i = 0; i < n; i++) {
        fixture_start(k);
        fixture_add(k, cmd_open(numbered(owner, 's', i), 1000000, 0, ""));
        fixture_add(k, cmd_acquire_x(numbered(lock, 'l', i), owner));
        fixture_apply(k, NULL);
    }
    /* From the start, so that each search is short. */
    for (unsigned i = 0; i + 1 < n; i++) {
        fixture_start(k);
        fixture_add(k, cmd_wait_x(numbered(lock, 'l', i + 1), numbered(owner, 's', i), 1000000));
        fixture_apply(k, NULL);
    }
    struct machine_counts c;
    machine_get_counts(k->m, &c);
    assert_int_equal(c.waits, n - 1);
    struct machine_result r =
        fixture_run(k, cmd_wait_x(numbered(lock, 'l', 0), numbered(owner, 's', n - 1), 1000));
    if (r.code == MACHINE_LIMIT) {
        assert_int_equal(r.number, MACHINE_LIMIT_WAITS);
    }
    machine_check(k->m);
    return r.code;
}

/* Each session of the chain but the one that asks is one step of the search. */
TEST_WITH(test_steps_at_the_limit, fixture_setup, fixture_teardown)
{
    assert_int_equal(long_chain(*state, MACHINE_SEARCH_STEPS_MAX + 1), MACHINE_DEADLOCK);
}

TEST_WITH(test_steps_beyond_the_limit, fixture_setup, fixture_teardown)
{
    assert_int_equal(long_chain(*state, MACHINE_SEARCH_STEPS_MAX + 2), MACHINE_LIMIT);
}

/* Who took the most has little for a while: enough for a short chain, not for the long one. */
TEST_WITH(test_short_searches_after_a_long_one, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    char owner[16];
    unsigned n = MACHINE_SEARCH_STEPS_MAX + 2;
    assert_int_equal(long_chain(k, n), MACHINE_LIMIT);
    numbered(owner, 's', n - 1);
    fixture_run(k, cmd_open("other", 1000000, 0, ""));
    fixture_run(k, cmd_acquire_x("free", "other"));
    char at[2][16];
    numbered(at[0], 'l', n - 1 - MACHINE_SEARCH_STEPS_MIN); /* its chain ends with who asks */
    numbered(at[1], 'l', n - 2 - MACHINE_SEARCH_STEPS_MIN);
    assert_int_equal(fixture_run(k, cmd_wait_x(at[1], owner, 1000)).code, MACHINE_LIMIT);
    assert_int_equal(machine_spent(k->m),
                     machine_command_cost(&(struct machine_command){
                         .op = MACHINE_OP_ACQUIRE,
                         .n_names = 1,
                         .flags = MACHINE_ACQUIRE_EXPLICIT | MACHINE_ACQUIRE_WAIT}));
    assert_int_equal(fixture_run(k, cmd_wait_x(at[0], owner, 1000)).code, MACHINE_DEADLOCK);
    assert_int_equal(fixture_run(k, cmd_wait_x("free", owner, 1)).code, MACHINE_QUEUED);
    fixture_reload(k);
    fixture_tick(k, k->clock_ms + MACHINE_SEARCH_PAUSE_MS - 1);
    assert_int_equal(fixture_run(k, cmd_wait_x(at[1], owner, 1000)).code, MACHINE_LIMIT);
    fixture_tick(k, k->clock_ms + 1);
    assert_int_equal(fixture_run(k, cmd_wait_x(at[1], owner, 1000)).code, MACHINE_DEADLOCK);
}

/* The searches of one batch share its steps; each has a few of its own. */
TEST_WITH(test_searches_of_one_batch, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    enum { EACH = MACHINE_SEARCH_STEPS_MAX - MACHINE_SEARCH_STEPS_MIN };
    enum { FULL = MACHINE_BATCH_COMMAND_STEPS / EACH, N = FULL + 20 };
    char lock[16];
    char owner[16];
    assert_int_equal(long_chain(k, MACHINE_SEARCH_STEPS_MAX + 2), MACHINE_LIMIT);
    fixture_start(k);
    for (unsigned i = 0; i < N; i++) {
        fixture_add(k, cmd_open(numbered(owner, 'x', i), 1000000, 0, ""));
        fixture_add(k, cmd_acquire_x(numbered(lock, 'x', i), owner));
    }
    fixture_apply(k, NULL);
    struct machine_result r[N];
    fixture_start(k);
    for (unsigned i = 0; i < N; i++) {
        fixture_add(k, cmd_wait_x("l0", numbered(owner, 'x', i), 1000));
    }
    fixture_apply(k, r);
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal(r[i].code, MACHINE_LIMIT);
    }
    /* Their own 50 each, and all that the batch has. */
    assert_int_equal(machine_spent(k->m),
                     N * (2 * MACHINE_STEPS_RECORD + MACHINE_SEARCH_STEPS_MIN) +
                         MACHINE_BATCH_COMMAND_STEPS);
    machine_check(k->m);
}
