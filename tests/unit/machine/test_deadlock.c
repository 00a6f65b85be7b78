/* test_deadlock.c: cycles of waiting sessions are refused, and nothing else is. The model test
 * compares with a naive search over random worlds; here are the shapes that have names. */
#include "kit.h"

#include <stdio.h>
#include <stdlib.h>

static int setup(void **state)
{
    struct kit *k = malloc(sizeof *k);
    kit_init(k);
    *state = k;
    return 0;
}

static int teardown(void **state)
{
    kit_fini(*state);
    free(*state);
    return 0;
}

static void open_sessions(struct kit *k, const char *owners)
{
    for (; *owners != '\0'; owners++) {
        char owner[2] = {*owners, '\0'};
        kit_run(k, cmd_open(owner, 100000, 0, ""));
    }
}

static enum machine_code waits(struct kit *k, const char *name, const char *owner)
{
    return kit_run(k, cmd_wait_x(name, owner, 50000)).code;
}

static void test_two(void **state)
{
    struct kit *k = *state;
    open_sessions(k, "ab");
    kit_run(k, cmd_acquire_x("A", "a"));
    kit_run(k, cmd_acquire_x("B", "b"));
    assert_int_equal(waits(k, "B", "a"), MACHINE_QUEUED);
    kit_forget_events(k);
    assert_int_equal(waits(k, "A", "b"), MACHINE_DEADLOCK);
    kit_expect_events(k, "");
    struct machine_counts c;
    machine_get_counts(k->m, &c);
    assert_int_equal(c.deadlocks, 1);
    assert_int_equal(c.waits, 1);
    assert_int_equal(kit_run(k, cmd_acquire_x("A", "b")).code, MACHINE_HELD);
    /* The way out: b lets go, a gets on. */
    kit_run(k, cmd_held(MACHINE_OP_RELEASE, "B", 2, 0));
    assert_int_equal(waits(k, "A", "b"), MACHINE_QUEUED);
}

static void test_ring(void **state)
{
    struct kit *k = *state;
    open_sessions(k, "abcde");
    const char *locks[] = {"A", "B", "C", "D", "E"};
    const char *owners[] = {"a", "b", "c", "d", "e"};
    for (unsigned i = 0; i < 5; i++) {
        kit_run(k, cmd_acquire_x(locks[i], owners[i]));
    }
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(waits(k, locks[i + 1], owners[i]), MACHINE_QUEUED);
    }
    assert_int_equal(waits(k, "A", "e"), MACHINE_DEADLOCK);
    assert_int_equal(waits(k, "C", "e"), MACHINE_DEADLOCK);
}

/* b is behind c in the queue of A, and c waits for what b holds. */
static void test_through_a_queue(void **state)
{
    struct kit *k = *state;
    open_sessions(k, "abc");
    kit_run(k, cmd_acquire_x("A", "a"));
    kit_run(k, cmd_acquire_x("B", "b"));
    assert_int_equal(waits(k, "A", "c"), MACHINE_QUEUED);
    assert_int_equal(waits(k, "B", "c"), MACHINE_QUEUED);
    assert_int_equal(waits(k, "A", "b"), MACHINE_DEADLOCK);
    /* In the other order, nobody is behind anybody who waits for him. */
    kit_run(k, cmd_owner(MACHINE_OP_SESSION_CLOSE, "c"));
    open_sessions(k, "c");
    assert_int_equal(waits(k, "A", "b"), MACHINE_QUEUED);
    assert_int_equal(waits(k, "A", "c"), MACHINE_QUEUED);
    assert_int_equal(waits(k, "B", "c"), MACHINE_QUEUED);
}

/* The session that asks has one wait, and somebody behind it there: only with the new wait is it
 * one that waits in two places. */
static void test_behind_the_one_who_asks(void **state)
{
    struct kit *k = *state;
    open_sessions(k, "abc");
    kit_run(k, cmd_acquire_x("A", "a"));
    assert_int_equal(waits(k, "A", "b"), MACHINE_QUEUED);
    kit_run(k, cmd_acquire_x("C", "c"));
    assert_int_equal(waits(k, "A", "c"), MACHINE_QUEUED); /* c behind b */
    assert_int_equal(waits(k, "C", "b"), MACHINE_DEADLOCK);
}

static void test_implicit_sessions_are_no_link(void **state)
{
    struct kit *k = *state;
    open_sessions(k, "ab");
    kit_run(k, cmd_acquire_x("A", "a"));
    kit_run(k, cmd_acquire("B", "b", 100000)); /* implicit b */
    assert_int_equal(waits(k, "B", "a"), MACHINE_QUEUED);
    assert_int_equal(waits(k, "A", "b"), MACHINE_QUEUED); /* explicit b */
    assert_int_equal(kit_run(k, cmd_wait("A", "b", 500, 50)).code, MACHINE_QUEUED);
}

/* A cycle that a release took apart is no cycle any more, and the other way round. */
static void test_after_a_grant(void **state)
{
    struct kit *k = *state;
    open_sessions(k, "abc");
    kit_run(k, cmd_acquire_x("A", "a"));
    kit_run(k, cmd_acquire_x("B", "b"));
    assert_int_equal(waits(k, "A", "c"), MACHINE_QUEUED);
    kit_run(k, cmd_held(MACHINE_OP_RELEASE, "A", 1, 0)); /* c has A */
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
static enum machine_code long_chain(struct kit *k, unsigned n)
{
    char lock[16];
    char owner[16];
    k->check = false;
    for (unsigned i = 0; i < n; i++) {
        kit_start(k);
        kit_add(k, cmd_open(numbered(owner, 's', i), 1000000, 0, ""));
        kit_add(k, cmd_acquire_x(numbered(lock, 'l', i), owner));
        kit_apply(k, NULL);
    }
    /* From the start, so that each search is short. */
    for (unsigned i = 0; i + 1 < n; i++) {
        kit_start(k);
        kit_add(k, cmd_wait_x(numbered(lock, 'l', i + 1), numbered(owner, 's', i), 1000000));
        kit_apply(k, NULL);
    }
    struct machine_counts c;
    machine_get_counts(k->m, &c);
    assert_int_equal(c.waits, n - 1);
    struct machine_result r =
        kit_run(k, cmd_wait_x(numbered(lock, 'l', 0), numbered(owner, 's', n - 1), 1000));
    if (r.code == MACHINE_LIMIT) {
        assert_int_equal(r.number, MACHINE_LIMIT_WAITS);
    }
    machine_check(k->m);
    return r.code;
}

/* Each session of the chain but the one that asks is one step of the search. */
static void test_visits_at_the_limit(void **state)
{
    assert_int_equal(long_chain(*state, MACHINE_DEADLOCK_VISITS_MAX + 1), MACHINE_DEADLOCK);
}

static void test_visits_beyond_the_limit(void **state)
{
    assert_int_equal(long_chain(*state, MACHINE_DEADLOCK_VISITS_MAX + 2), MACHINE_LIMIT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_two),
        TEST(test_ring),
        TEST(test_through_a_queue),
        TEST(test_behind_the_one_who_asks),
        TEST(test_implicit_sessions_are_no_link),
        TEST(test_after_a_grant),
        TEST(test_visits_at_the_limit),
        TEST(test_visits_beyond_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
