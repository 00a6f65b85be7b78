/* test_rights.c: what it costs to compare names with the patterns of a user, and that answers which
 * took long are remembered without any effect on what happens. */
#include "as_user.h"

#include "machine/budget.h"
#include "machine/rights.h"

static void done(struct fixture *k, uint64_t user, struct machine_command c, unsigned code)
{
    assert_int_equal(run_by(k, user, c).code, code);
}

/* A name as long as may be, and words for a user whose patterns take long to compare with it. */
struct dear {
    char name[FL_NAME_MAX + 1];
    char words[2048];
};

static void make_dear(struct dear *d, const char *before, const char *behind)
{
    memset(d->name, 'a', FL_NAME_MAX);
    d->name[FL_NAME_MAX] = '\0';
    int len = snprintf(d->words, sizeof d->words, "%s", before);
    for (int last = 'b'; last < 'h'; last++) {
        len +=
            snprintf(d->words + len, sizeof d->words - (size_t)len, " ~*[%.240s]%c", d->name, last);
    }
    (void)snprintf(d->words + len, sizeof d->words - (size_t)len, "%s", behind);
}

/* In one batch: a lock goes to the first who waits, this changes his user, and the lock is released
 * once more. Returns how many grants there were. */
static uint64_t grants_around(struct fixture *k, struct machine_command change)
{
    struct machine_result r[3];
    struct machine_counts counts;
    struct dear d;
    make_dear(&d, "reset on nopass +@acquire", " ~a*");
    set(k, "ann", d.words);
    uint64_t ann = login(k, "ann");
    uint64_t first = fixture_run(k, cmd_acquire(d.name, "h", 50000)).token;
    done(k, ann, cmd_wait(d.name, "o1", 50000, 50000), MACHINE_QUEUED);
    done(k, ann, cmd_wait(d.name, "o2", 50000, 50000), MACHINE_QUEUED);
    fixture_start(k);
    fixture_add(k, cmd_held(MACHINE_OP_RELEASE, d.name, first, 0));
    fixture_add(k, by(change, MACHINE_USER_NODE));
    fixture_add(k, by(cmd_held(MACHINE_OP_RELEASE, d.name, first + 1, 0), MACHINE_USER_NODE));
    fixture_apply(k, r);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(r[i].code, MACHINE_DONE);
    }
    machine_get_counts(k->m, &counts);
    assert_int_equal(counts.waits, 0);
    uint64_t grants = machine_last_token(k->m) - first + 1;
    fixture_run(k, cmd_name(MACHINE_OP_BREAK, d.name));
    return grants;
}

/* Answers about rights are remembered within a batch; no change of users leaves one behind. */
TEST_WITH(no_right_outlives_its_change, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct dear d;
    uint8_t list[ACL_ENCODED_MAX];
    struct acl_user none;
    char errmsg[256];
    make_dear(&d, "resetkeys", " ~b*");
    acl_user_init(&none, slice("ann"));
    assert_int_equal(acl_apply(&none, slice("on nopass"), ACL_LOCK_RIGHTS, errmsg, sizeof errmsg),
                     0);
    struct fli_slice all = {list, acl_encode(&none, list)};
    assert_int_equal(grants_around(k, cmd_user("bob", "on")), 3);
    assert_int_equal(grants_around(k, cmd_user("ann", d.words)), 2);
    assert_int_equal(grants_around(k, cmd_user("ann", "-@acquire")), 2);
    assert_int_equal(grants_around(k, cmd_owner(MACHINE_OP_USER_DELETE, "ann")), 2);
    assert_int_equal(
        grants_around(k, (struct machine_command){.op = MACHINE_OP_USERS_LOAD, .value = all}), 2);
}

/* Nor does a refusal: who may not, and then may, and waits, is granted the lock. */
TEST_WITH(no_refusal_outlives_its_change, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct dear d;
    struct dear lost;
    struct machine_result r[4];
    make_dear(&d, "reset on nopass +@acquire", " ~a*");
    make_dear(&lost, "resetkeys", " ~b*");
    machine_set_budget(k->m, &(struct budget){.due = 6000, .commands = 90000, .search_max = 50});
    set(k, "ann", d.words);
    uint64_t ann = login(k, "ann");
    done(k, 0, cmd_acquire(d.name, "h", 50000), MACHINE_GRANTED);
    done(k, ann, cmd_wait(d.name, "o1", 50000, 50000), MACHINE_QUEUED);
    fixture_start(k);
    fixture_add(k, by(cmd_user("ann", lost.words), MACHINE_USER_NODE));
    fixture_add(k, by(cmd_user("ann", "resetkeys ~a*"), MACHINE_USER_NODE));
    fixture_add(k, by(cmd_wait(d.name, "o2", 50000, 50000), ann));
    fixture_add(k, cmd_held(MACHINE_OP_RELEASE, d.name, 1, 0));
    fixture_apply(k, r);
    assert_int_equal(r[2].code, MACHINE_QUEUED);
    assert_int_equal(r[3].code, MACHINE_DONE);
    done(k, 0, cmd_held(MACHINE_OP_CHECK, d.name, 2, 0), MACHINE_DONE);
    struct machine_counts counts;
    machine_get_counts(k->m, &counts);
    assert_int_equal(counts.waits_ended, 1);
}

#define NO_MATCH "~*aaaaaaaaaaaaaaaaaaaab ~*aaaaaaaaaaaaaaaaaaaac "

/* So many users wait for two locks, every other one may have the first lock only by the time that
 * both become free, in one batch. */
static void share_two_locks(struct fixture *k, unsigned n)
{
    char names[2][FL_NAME_MAX + 1];
    char user[16];
    struct machine_counts before;
    struct machine_counts after;
    uint64_t tokens[2];
    machine_set_budget(k->m, &(struct budget){.due = 9000, .commands = 9000, .search_max = 50});
    machine_get_counts(k->m, &before);
    for (unsigned i = 0; i < 2; i++) {
        memset(names[i], 'a', FL_NAME_MAX);
        names[i][FL_NAME_MAX - 1] = (char)('x' + i);
        names[i][FL_NAME_MAX] = '\0';
        tokens[i] = fixture_run(k, cmd_acquire(names[i], "h", 50000)).token;
    }
    for (unsigned i = 0; i < n; i++) {
        (void)snprintf(user, sizeof user, "user%u", i);
        set(k, user, "reset on nopass +@acquire " NO_MATCH "~*a?");
        for (unsigned of = 0; of < 2; of++) {
            struct machine_command c = cmd_wait(names[of], user, 50000, 50000);
            c.mode = MACHINE_MODE_SHARED;
            done(k, login(k, user), c, MACHINE_QUEUED);
        }
    }
    machine_set_budget(k->m, &(struct budget){.due = 9000, .commands = 1, .search_max = 50});
    for (unsigned i = 0; i < n; i += 2) {
        (void)snprintf(user, sizeof user, "user%u", i);
        set(k, user, "resetkeys " NO_MATCH "~*ax");
    }
    fixture_start(k);
    fixture_add(k, cmd_held(MACHINE_OP_RELEASE, names[0], tokens[0], 0));
    fixture_add(k, cmd_held(MACHINE_OP_RELEASE, names[1], tokens[1], 0));
    fixture_apply(k, NULL);
    fixture_drain(k);
    machine_check(k->m);
    machine_get_counts(k->m, &after);
    assert_int_equal(after.waits, 0);
    assert_int_equal(after.waits_ended - before.waits_ended, (n + 1) / 2);
    assert_int_equal(after.grants - before.grants, 2 + 2 * n - (n + 1) / 2);
    fixture_run(k, cmd_name(MACHINE_OP_BREAK, names[0]));
    fixture_run(k, cmd_name(MACHINE_OP_BREAK, names[1]));
    fixture_drain(k);
}

/* Answers are remembered by user and lock: as many as there are places for, and one more. */
TEST_WITH(rights_are_told_apart, fixture_setup, fixture_teardown)
{
    static const unsigned users[] = {RIGHTS_KNOWN_MAX / 2, RIGHTS_KNOWN_MAX / 2 + 1,
                                     RIGHTS_KNOWN_MAX, RIGHTS_KNOWN_MAX + 1};
    struct fixture *k = *state;
    k->check = false;
    for (unsigned i = 0; i < sizeof users / sizeof users[0]; i++) {
        share_two_locks(k, users[i]);
    }
}

/* What the check of waits after a change of users compares counts: an entry checks the waits for
 * some dear names, and the next entry those for the next. */
TEST_WITH(a_check_of_waits_has_a_cost, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct dear d;
    const unsigned names = 100;
    make_dear(&d, "reset on nopass +@acquire", " ~a*");
    set(k, "ann", d.words);
    uint64_t ann = login(k, "ann");
    for (unsigned i = 0; i < names; i++) {
        d.name[FL_NAME_MAX - i] = '\0';
        done(k, 0, cmd_acquire(d.name, "h", 50000), MACHINE_GRANTED);
        done(k, ann, cmd_wait(d.name, "o1", 50000, 50000), MACHINE_QUEUED);
        done(k, ann, cmd_wait(d.name, "o2", 50000, 50000), MACHINE_QUEUED);
    }
    set(k, "ann", "+@see");
    assert_in_range(machine_spent(k->m), MACHINE_BATCH_COMMAND_STEPS,
                    MACHINE_BATCH_COMMAND_STEPS + MACHINE_STEPS_OVER_MAX);
    unsigned entries = 1;
    while (machine_has_work(k->m)) {
        fixture_tick(k, k->clock_ms);
        assert_in_range(machine_spent(k->m), MACHINE_STEPS_RECORD,
                        MACHINE_BATCH_DUE_STEPS + MACHINE_STEPS_OVER_MAX);
        entries++;
    }
    assert_in_range(entries, 3, 6);
    set(k, "ann", "resetkeys ~a*");
    assert_false(machine_has_work(k->m)); /* what is cheap is checked at once */
    struct machine_counts counts;
    machine_get_counts(k->m, &counts);
    assert_int_equal(counts.waits, 2 * names);
}

/* What it takes to match names with patterns counts for the leader's batches. */
TEST_WITH(matching_has_a_cost, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct dear d;
    make_dear(&d, "on nopass +@acquire", "");
    set(k, "ann", "on nopass ~a* +@acquire");
    set(k, "bob", d.words);
    struct machine_command c = cmd_acquire(d.name, "h", 5000);
    uint32_t plain = machine_command_cost(&c);
    c = by(c, login(k, "ann"));
    assert_in_range(machine_command_cost_now(k->m, &c), plain, plain + 2 * MACHINE_STEPS_RECORD);
    c = by(c, login(k, "bob"));
    assert_in_range(machine_command_cost_now(k->m, &c), plain + 20 * MACHINE_STEPS_RECORD,
                    MACHINE_BATCH_COST_MAX / 2);
    set(k, "default", "~* +@acquire");
    c = by(c, 0);
    assert_int_equal(machine_command_cost_now(k->m, &c), plain);
}
