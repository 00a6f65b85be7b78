/* test_attempt.c: which sending of an ACQUIRE came last, and for how long that is known. */
#include "machine/limits.h"
#include "as_user.h"
#include "machine/state.h"

static struct machine_command attempt(struct machine_command c, uint64_t number)
{
    c.flags |= number > 1 ? MACHINE_ACQUIRE_ATTEMPT : 0;
    c.number = number > 1 ? number : 0;
    return c;
}

static struct machine_result take(struct fixture *k, const char *name, const char *owner,
                                  uint64_t n)
{
    return fixture_run(k, attempt(cmd_acquire(name, owner, 5000), n));
}

static void assert_late(struct machine_result r, uint64_t highest)
{
    assert_int_equal(r.code, MACHINE_LATE);
    assert_int_equal(r.token, highest);
}

/* The copy that sat in a stopped node: its client has had the lock and given it back. */
TEST_WITH(test_a_late_copy, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_result r = take(k, "L", "ann", 2);
    assert_int_equal(r.code, MACHINE_GRANTED);
    fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "L", r.token, 0));
    fixture_forget_events(k);
    assert_late(take(k, "L", "ann", 1), 2);
    fixture_expect_events(k, "");
    assert_int_equal(fixture_query(k, cmd_name(MACHINE_OP_SHOW, "L")).code, MACHINE_NOTFOUND);
    assert_int_equal(take(k, "L", "ann", 2).code, MACHINE_GRANTED); /* the newest itself */
    assert_late(take(k, "L", "ann", 1), 2);                         /* renews nothing either */
    assert_int_equal(take(k, "L", "ann", 3).code, MACHINE_GRANTED);
    assert_late(take(k, "L", "ann", 2), 3);
}

/* Another lock, another owner, another kind of owner: another request. */
TEST_WITH(test_of_what, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("ann", 5000, 0, ""));
    take(k, "L", "ann", 9);
    assert_int_equal(take(k, "M", "ann", 1).code, MACHINE_GRANTED);
    assert_int_equal(take(k, "L", "bob", 1).code, MACHINE_HELD);
    assert_int_equal(fixture_run(k, cmd_acquire_x("L", "ann")).code, MACHINE_HELD);
    assert_late(take(k, "L", "ann", 8), 9);
}

/* A later attempt is known for its whole time, also in the place of one that was known before. */
TEST_WITH(test_a_later_attempt_begins_anew, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    take(k, "L", "ann", 2);
    fixture_tick(k, k->clock_ms + MACHINE_ATTEMPT_KEEP_MS);
    take(k, "L", "ann", 3);
    fixture_tick(k, k->clock_ms + MACHINE_ATTEMPT_KEEP_MS);
    assert_late(take(k, "L", "ann", 2), 3);
    fixture_tick(k, k->clock_ms + 1);
    assert_int_equal(take(k, "L", "ann", 2).code, MACHINE_GRANTED);
}

/* A snapshot that a node would not write: an outcome twice, kinds in another order. */
TEST_WITH(test_outcomes_of_a_wrong_snapshot, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    uint8_t attempt[] = {0, 0, 0, 0, OUTCOME_ATTEMPT, 1, 'L', 'a'};
    uint8_t leave[] = {0, 0, 0, 0, OUTCOME_LEAVE, 1, 'L', 'a'};
    struct fli_slice first = {attempt, sizeof attempt};
    struct fli_slice second = {leave, sizeof leave};
    assert_true(machine_outcome_load(k->m, first, 2, k->clock_ms));
    assert_false(machine_outcome_load(k->m, first, 2, k->clock_ms));
    assert_true(machine_outcome_load(k->m, second, 1, k->clock_ms));
    attempt[7] = 'b';
    assert_false(machine_outcome_load(k->m, first, 2, k->clock_ms));
    machine_check(k->m);
}

/* What was refused counts as well: it came. */
TEST_WITH(test_refused, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    uint64_t token = take(k, "L", "bob", 1).token;
    assert_int_equal(take(k, "L", "ann", 2).code, MACHINE_HELD);
    fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "L", token, 0));
    assert_late(take(k, "L", "ann", 1), 2);
}

/* A second, shorter wait ends when it says; the first one's cancel ends nothing of it. */
TEST_WITH(test_waits, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    take(k, "L", "bob", 1);
    struct machine_result first = fixture_run(k, cmd_wait("L", "ann", 500, 4000));
    assert_int_equal(first.code, MACHINE_QUEUED);
    struct machine_result second = fixture_run(k, attempt(cmd_wait("L", "ann", 500, 200), 2));
    assert_int_equal(second.code, MACHINE_QUEUED);
    assert_int_equal(second.wait, first.wait);
    struct machine_command cancel = cmd_number(MACHINE_OP_CANCEL, first.wait, first.token);
    assert_int_equal(fixture_run(k, cancel).code, MACHINE_NO);
    assert_late(fixture_run(k, cmd_wait("L", "ann", 500, 4000)), 2);
    fixture_forget_events(k);
    fixture_tick(k, 1201);
    assert_false(machine_is_waiting(k->m, first.wait));
}

TEST_WITH(test_own_cancel, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    take(k, "L", "bob", 1);
    fixture_run(k, cmd_wait("L", "ann", 500, 200));
    struct machine_result r = fixture_run(k, attempt(cmd_wait("L", "ann", 500, 4000), 2));
    fixture_tick(k, 1201);
    assert_true(machine_is_waiting(k->m, r.wait));
    assert_int_equal(fixture_run(k, cmd_number(MACHINE_OP_CANCEL, r.wait, r.token)).code,
                     MACHINE_DONE);
    assert_false(machine_is_waiting(k->m, r.wait));
}

TEST_WITH(test_limits, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    take(k, "L", "ann", MACHINE_ATTEMPT_MAX);
    assert_late(take(k, "L", "ann", MACHINE_ATTEMPT_MAX - 1), MACHINE_ATTEMPT_MAX);
    struct machine_command c = attempt(cmd_acquire("L", "ann", 500), MACHINE_ATTEMPT_MAX + 1);
    assert_int_equal(machine_command_check(&c), FL_EINVAL);
    c.number = 1; /* which is what is said by saying nothing */
    assert_int_equal(machine_command_check(&c), FL_EINVAL);
}

/* The oldest is forgotten when there is one too many, and a snapshot knows which that is. */
TEST_WITH(test_so_many, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    char owner[24];
    k->check = false;
    for (unsigned i = 0; i < MACHINE_OUTCOMES_MAX; i++) {
        snprintf(owner, sizeof owner, "owner-%u", i);
        take(k, "L", owner, 2);
    }
    take(k, "L", "owner-0", 3); /* not the oldest any more */
    fixture_reload(k);
    assert_late(take(k, "L", "owner-1", 1), 2);
    take(k, "L", "owner-1", 2);
    take(k, "L", "one-more", 2);
    assert_late(take(k, "L", "owner-0", 1), 3);
    assert_late(take(k, "L", "owner-1", 1), 2);
    assert_int_not_equal(take(k, "L", "owner-2", 1).code, MACHINE_LATE);
    assert_late(take(k, "L", "owner-4", 1), 2);
    machine_check(k->m);
}

TEST_WITH(test_for_so_long, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    take(k, "L", "ann", 2);
    fixture_tick(k, 1000 + MACHINE_ATTEMPT_KEEP_MS);
    take(k, "M", "bob", 2);
    assert_late(take(k, "L", "ann", 1), 2);
    fixture_tick(k, 1001 + MACHINE_ATTEMPT_KEEP_MS);
    take(k, "N", "cat", 2);
    assert_int_equal(take(k, "L", "ann", 1).code, MACHINE_GRANTED);
    assert_late(take(k, "M", "bob", 1), 2);
    machine_check(k->m);
}

/* A user who floods the table pushes out requests of its own, also across a snapshot. */
TEST_WITH(test_a_flood_pushes_out_its_own, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    char owner[24];
    set(k, "evil", "on nopass ~* +@acquire");
    uint64_t evil = login(k, "evil");
    take(k, "L", "ann", 2);
    k->check = false;
    for (unsigned i = 0; i < 2 * MACHINE_OUTCOMES_MAX; i++) {
        snprintf(owner, sizeof owner, "owner-%u", i);
        run_by(k, evil, attempt(cmd_acquire("M", owner, 5000), 2));
        if (i == MACHINE_OUTCOMES_MAX + 10) {
            fixture_reload(k);
        }
    }
    machine_check(k->m);
    assert_late(take(k, "L", "ann", 1), 2);
    uint64_t first = MACHINE_OUTCOMES_MAX + 1; /* of those that are left of the flood */
    snprintf(owner, sizeof owner, "owner-%u", (unsigned)first);
    assert_late(run_by(k, evil, cmd_acquire("M", owner, 5000)), 2);
    snprintf(owner, sizeof owner, "owner-%u", (unsigned)first - 1);
    assert_int_not_equal(run_by(k, evil, cmd_acquire("M", owner, 5000)).code, MACHINE_LATE);
}

/* A user who gives back one lock again and again keeps its attempts. */
TEST_WITH(test_releases_push_out_no_attempts, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    char label[16];
    struct machine_command enter = cmd_acquire("M", "eve", 60000);
    struct machine_command leave = enter;
    enter.op = leave.op = MACHINE_OP_KEYS;
    enter.flags = MACHINE_KEYS_COUNT | MACHINE_KEYS_GRANT | MACHINE_KEYS_EXTEND;
    leave.flags = MACHINE_KEYS_COUNT | MACHINE_KEYS_RELEASE;
    leave.number = MACHINE_LEAVE_KEEP_MS;
    take(k, "L", "ann", 2);
    k->check = false;
    for (unsigned i = 0; i <= MACHINE_OUTCOMES_MAX; i++) {
        (void)snprintf(label, sizeof label, "%u", i);
        leave.label = fixture_slice(label);
        fixture_start(k);
        fixture_add(k, enter);
        fixture_add(k, leave);
        fixture_apply(k, NULL);
    }
    assert_int_equal(machine_last_token(k->m), 2 + MACHINE_OUTCOMES_MAX);
    machine_check(k->m);
    assert_late(take(k, "L", "ann", 1), 2);
}
