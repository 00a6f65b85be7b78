/* test_users.c: users in the machine: who is refused what, whose a grant is, what becomes of waits
 * when a right is taken away, and that all of it is in snapshots. */
#include "as_user.h"

#include "machine/budget.h"

#define HASH(digit)                                                                                \
    "scrypt:14:8:1:" #digit "0112233445566778899aabbccddeeff:"                                     \
    "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static void refused(struct fixture *k, uint64_t user, struct machine_command c, unsigned right)
{
    uint64_t before = machine_last_token(k->m);
    struct machine_result r = run_by(k, user, c);
    assert_int_equal(r.code, MACHINE_NOPERM);
    assert_int_equal(r.number, right);
    assert_int_equal(machine_last_token(k->m), before);
}

static void done(struct fixture *k, uint64_t user, struct machine_command c, unsigned code)
{
    assert_int_equal(run_by(k, user, c).code, code);
}

static struct machine_command may(unsigned right)
{
    return (struct machine_command){.op = MACHINE_OP_MAY, .number = right};
}

TEST_WITH(everybody_may_everything_at_first, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    assert_true(machine_users_are_new(k->m) && machine_may(k->m, 0, ACL_ADMIN, NULL));
    done(k, 0, cmd_acquire("L", "ann", 5000), MACHINE_GRANTED);
    done(k, 0, cmd_user("ann", "on nopass +@admin"), MACHINE_DONE);
    assert_false(machine_users_are_new(k->m));
    done(k, 0, cmd_user("default", "-@admin"), MACHINE_DONE);
    refused(k, 0, cmd_user("default", "+@admin"), ACL_ADMIN);
    done(k, 0, cmd_acquire("M", "ann", 5000), MACHINE_GRANTED);
    set(k, "default", "resetpass");
    done(k, 0, cmd_acquire("N", "ann", 5000), MACHINE_NOAUTH);
    done(k, 0, cmd_name(MACHINE_OP_SHOW, "M"), MACHINE_NOAUTH);
    done(k, 0, may(0), MACHINE_NOAUTH);
    done(k, login(k, "default"), cmd_acquire("M", "ann", 5000), MACHINE_GRANTED);
}

TEST_WITH(each_right_is_asked_for, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command locks = {.op = MACHINE_OP_LOCKS};
    set(k, "no", "on nopass ~x");
    set(k, "acq", "on nopass ~L* +@acquire");
    set(k, "see", "on nopass ~L* +@see");
    set(k, "rest", "on nopass ~L* +@token +@break");
    set(k, "boss", "on nopass +@admin");
    uint64_t no = login(k, "no");
    uint64_t acq = login(k, "acq");
    uint64_t see = login(k, "see");
    uint64_t rest = login(k, "rest");
    uint64_t boss = login(k, "boss");
    refused(k, no, cmd_acquire("L", "ann", 5000), ACL_ACQUIRE);
    refused(k, see, cmd_acquire("L", "ann", 5000), ACL_ACQUIRE);
    refused(k, see, cmd_wait("L", "ann", 5000, 5000), ACL_ACQUIRE);
    refused(k, see, cmd_open("session-of-see-1", 5000, 0, ""), ACL_ACQUIRE);
    refused(k, acq, cmd_acquire("M", "ann", 5000), ACL_ACQUIRE);
    done(k, acq, cmd_acquire("L", "ann", 5000), MACHINE_GRANTED);
    refused(k, acq, cmd_name(MACHINE_OP_SHOW, "L"), ACL_SEE);
    refused(k, acq, cmd_name(MACHINE_OP_SHOW, "free"), ACL_SEE);
    refused(k, acq, locks, ACL_SEE);
    done(k, acq, cmd_held(MACHINE_OP_CHECK, "L", 1, 0), MACHINE_DONE);
    refused(k, acq, cmd_held(MACHINE_OP_CHECK, "L", 2, 0), ACL_SEE);
    refused(k, rest, cmd_held(MACHINE_OP_CHECK, "L", 1, 0), ACL_SEE);
    done(k, see, cmd_held(MACHINE_OP_CHECK, "L", 1, 0), MACHINE_DONE);
    done(k, see, cmd_name(MACHINE_OP_SHOW, "L"), MACHINE_DONE);
    refused(k, see, cmd_name(MACHINE_OP_SHOW, "M"), ACL_SEE);
    refused(k, acq, cmd_name(MACHINE_OP_TOKEN, "L"), ACL_TOKEN);
    refused(k, acq, cmd_name(MACHINE_OP_BREAK, "L"), ACL_BREAK);
    refused(k, rest, cmd_name(MACHINE_OP_BREAK, "M"), ACL_BREAK);
    refused(k, rest, cmd_name(MACHINE_OP_TOKEN, "M"), ACL_TOKEN);
    done(k, rest, cmd_name(MACHINE_OP_TOKEN, "L"), MACHINE_DONE);
    done(k, rest, cmd_name(MACHINE_OP_BREAK, "L"), MACHINE_DONE);
    refused(k, rest, cmd_user("no", "+@all"), ACL_ADMIN);
    refused(k, rest, cmd_owner(MACHINE_OP_USER_DELETE, "no"), ACL_ADMIN);
    refused(k, rest, (struct machine_command){.op = MACHINE_OP_USERS}, ACL_ADMIN);
    refused(k, rest, cmd_owner(MACHINE_OP_USER, "no"), ACL_ADMIN);
    refused(k, rest, may(ACL_ADMIN), ACL_ADMIN);
    done(k, boss, may(ACL_ADMIN), MACHINE_DONE);
    done(k, boss, cmd_user("no", "+@see"), MACHINE_DONE);
    refused(k, boss, cmd_acquire("L", "ann", 5000), ACL_ACQUIRE);
}

/* etcd 21677: every name is looked at. */
TEST_WITH(all_names_of_several_are_asked_for, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    uint8_t also[MACHINE_ALSO_SIZE];
    set(k, "ann", "on nopass ~a* +@acquire");
    uint64_t ann = login(k, "ann");
    struct machine_command c = cmd_wait("a1", "ann", 5000, 5000);
    size_t len = machine_also_add(also, 0, slice("a2"));
    len = machine_also_add(also, len, slice("b"));
    c.also = (struct fli_slice){also, len};
    c.n_names = 3;
    refused(k, ann, c, ACL_ACQUIRE);
    set(k, "ann", "~b");
    done(k, ann, c, MACHINE_GRANTED);
}

TEST_WITH(what_is_anothers_cannot_be_used, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    set(k, "ann", "on nopass ~* +@acquire");
    set(k, "bob", "on nopass ~* +@acquire");
    set(k, "sue", "on nopass ~* +@acquire +@see");
    uint64_t ann = login(k, "ann");
    uint64_t bob = login(k, "bob");
    uint64_t sue = login(k, "sue");
    done(k, ann, cmd_acquire("L", "the-owner", 5000), MACHINE_GRANTED);
    /* bob is told what he would be told of a token that holds nothing; sue sees it anyway. */
    done(k, bob, cmd_held(MACHINE_OP_RENEW, "L", 1, 0), MACHINE_NO);
    done(k, bob, cmd_held(MACHINE_OP_RELEASE, "L", 1, 0), MACHINE_NO);
    refused(k, bob, cmd_held(MACHINE_OP_CHECK, "L", 1, 0), ACL_SEE);
    refused(k, sue, cmd_held(MACHINE_OP_RENEW, "L", 1, 0), 0);
    refused(k, sue, cmd_held(MACHINE_OP_RELEASE, "L", 1, 0), 0);
    refused(k, bob, cmd_acquire("L", "the-owner", 5000), 0);
    done(k, 0, cmd_acquire("L", "the-owner", 5000), MACHINE_NOPERM);
    done(k, bob, cmd_acquire("L", "another-owner", 5000), MACHINE_HELD);
    done(k, bob, cmd_wait("L", "another-owner", 5000, 9000), MACHINE_QUEUED);
    refused(k, sue, cmd_wait("L", "another-owner", 5000, 9000), 0);
    done(k, ann, cmd_held(MACHINE_OP_RELEASE, "L", 1, 0), MACHINE_DONE);
    done(k, ann, cmd_open("a-session-of-ann", 5000, 0, ""), MACHINE_DONE);
    refused(k, bob, cmd_open("a-session-of-ann", 5000, 0, ""), 0);
    done(k, bob, cmd_acquire_x("M", "a-session-of-ann"), MACHINE_NOSESSION);
    done(k, bob, cmd_owner(MACHINE_OP_SESSION_RENEW, "a-session-of-ann"), MACHINE_NOSESSION);
    done(k, bob, cmd_owner(MACHINE_OP_SESSION_CLOSE, "a-session-of-ann"), MACHINE_NOSESSION);
    done(k, bob, cmd_owner(MACHINE_OP_SESSION_SHOW, "a-session-of-ann"), MACHINE_NOTFOUND);
    done(k, ann, cmd_owner(MACHINE_OP_SESSION_SHOW, "a-session-of-ann"), MACHINE_DONE);
    done(k, sue, cmd_owner(MACHINE_OP_SESSION_SHOW, "a-session-of-ann"), MACHINE_DONE);
    done(k, ann, cmd_acquire_x("M", "a-session-of-ann"), MACHINE_GRANTED);
    done(k, ann, cmd_owner(MACHINE_OP_SESSION_CLOSE, "a-session-of-ann"), MACHINE_DONE);
    /* A node takes back what it did for a client that has gone. */
    done(k, MACHINE_USER_NODE, cmd_held(MACHINE_OP_RELEASE, "L", 2, 0), MACHINE_DONE);
}

/* A new user with the name of a deleted one is another user. */
TEST_WITH(a_login_ends_with_its_user, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    set(k, "ann", "on nopass ~* +@acquire");
    uint64_t ann = login(k, "ann");
    done(k, ann, cmd_acquire("L", "o", 5000), MACHINE_GRANTED);
    set(k, "ann", "off");
    done(k, ann, cmd_held(MACHINE_OP_RELEASE, "L", 1, 0), MACHINE_NOAUTH);
    assert_false(machine_may(k->m, ann, 0, NULL));
    set(k, "ann", "on");
    done(k, ann, cmd_held(MACHINE_OP_RELEASE, "L", 1, 0), MACHINE_NOAUTH); /* since then */
    done(k, login(k, "ann"), cmd_held(MACHINE_OP_RENEW, "L", 1, 0), MACHINE_DONE);
    done(k, MACHINE_USER_NODE, cmd_owner(MACHINE_OP_USER_DELETE, "ann"), MACHINE_DONE);
    done(k, MACHINE_USER_NODE, cmd_owner(MACHINE_OP_USER_DELETE, "ann"), MACHINE_NO);
    done(k, MACHINE_USER_NODE, cmd_owner(MACHINE_OP_USER_DELETE, "default"), MACHINE_WRONG);
    set(k, "ann", "on nopass ~* +@acquire");
    done(k, login(k, "ann"), cmd_held(MACHINE_OP_RENEW, "L", 1, 0), MACHINE_NO);
    fixture_forget_events(k);
    fixture_tick(k, k->clock_ms + 5001); /* an end of a lease asks for no right */
    fixture_expect_events(k, "expired:deadline L o token=1\n");
}

TEST_WITH(passwords_end_logins, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    set(k, "ann", "on #" HASH(1) " ~* +@acquire");
    uint64_t first = login(k, "ann");
    set(k, "ann", "#" HASH(2) " +@see -@token");
    assert_true(login(k, "ann") == first); /* nobody is put out by that */
    set(k, "ann", "!" HASH(1));
    assert_true(login(k, "ann") != first);
    done(k, first, cmd_acquire("L", "o", 5000), MACHINE_NOAUTH);
    first = login(k, "ann");
    set(k, "ann", "nopass");
    assert_true(login(k, "ann") != first);
    first = login(k, "ann");
    set(k, "ann", "resetpass");
    done(k, first, cmd_acquire("L", "o", 5000), MACHINE_NOAUTH);
    done(k, login(k, "ann"), cmd_acquire("L", "o", 5000), MACHINE_GRANTED);
}

static struct machine_command cmd_key(unsigned op, const char *name, const char *owner,
                                      uint64_t ttl_ms)
{
    return (struct machine_command){.op = (uint8_t)op,
                                    .n_names = 1,
                                    .permits = 1,
                                    .name = slice(name),
                                    .owner = slice(owner),
                                    .ttl_ms = ttl_ms};
}

#define ENTER (MACHINE_KEYS_COUNT | MACHINE_KEYS_GRANT | MACHINE_KEYS_EXTEND)
#define LEAVE (MACHINE_KEYS_COUNT | MACHINE_KEYS_RELEASE)
static struct machine_command as_key(unsigned flags, const char *name, const char *owner,
                                     uint64_t ttl_ms)
{
    struct machine_command c = cmd_key(MACHINE_OP_KEYS, name, owner, ttl_ms);
    c.flags = (uint8_t)flags;
    return c;
}

/* Whoever has lost the right may still give back, and prolongs nothing, by whatever command. */
TEST_WITH(a_lost_right_prolongs_nothing, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command extend = as_key(MACHINE_KEYS_EXTEND, "L", "a", 9000);
    set(k, "ann", "on nopass ~* +@acquire");
    uint64_t ann = login(k, "ann");
    done(k, ann, as_key(ENTER, "L", "a", 5000), MACHINE_GRANTED);
    done(k, ann, as_key(ENTER, "L", "a", 5000), MACHINE_DONE);
    done(k, ann, as_key(ENTER, "M", "a", 5000), MACHINE_GRANTED);
    uint64_t until_ms = k->clock_ms + 5000;
    set(k, "ann", "resetkeys ~other");
    refused(k, ann, cmd_held(MACHINE_OP_RENEW, "L", 1, 9000), ACL_ACQUIRE);
    refused(k, ann, extend, ACL_ACQUIRE);
    refused(k, ann, as_key(ENTER, "L", "a", 9000), ACL_ACQUIRE);
    refused(k, ann, as_key(MACHINE_KEYS_EACH | MACHINE_KEYS_EXTEND, "L", "", 9000), ACL_ACQUIRE);
    refused(k, ann, as_key(MACHINE_KEYS_EACH | MACHINE_KEYS_EXTEND, "free", "", 9000), ACL_BREAK);
    struct machine_result r = run_by(k, ann, as_key(LEAVE, "L", "a", 9000));
    assert_int_equal(r.code, MACHINE_DONE);
    assert_int_equal(r.deadline_ms, until_ms);
    done(k, ann, as_key(MACHINE_KEYS_EACH | MACHINE_KEYS_RELEASE, "M", "", 0), MACHINE_DONE);
    fixture_forget_events(k);
    fixture_tick(k, until_ms + 1);
    fixture_expect_events(k, "expired:deadline L a token=1\n");
}

/* Who knows the owner of another user's key, and may not see it, is told no token, time or
 * count. */
TEST_WITH(an_owner_is_no_login, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command key = cmd_key(MACHINE_OP_KEY, "L", "", 0);
    struct machine_command holds = key;
    holds.flags = MACHINE_KEYS_COUNT;
    set(k, "ann", "on nopass ~* +@acquire");
    set(k, "bob", "on nopass ~* +@acquire");
    set(k, "sue", "on nopass ~* +@acquire +@see");
    uint64_t ann = login(k, "ann");
    uint64_t bob = login(k, "bob");
    uint64_t sue = login(k, "sue");
    key.label = holds.label = slice("a");
    done(k, bob, key, MACHINE_NOTFOUND);
    done(k, bob, holds, MACHINE_NOTFOUND);
    done(k, ann, as_key(ENTER, "L", "a", 5000), MACHINE_GRANTED);
    refused(k, bob, key, ACL_SEE);
    refused(k, bob, holds, ACL_SEE);
    done(k, ann, key, MACHINE_DONE);
    done(k, ann, holds, MACHINE_DONE);
    assert_int_equal(run_by(k, sue, key).token, 1);
    done(k, sue, holds, MACHINE_DONE);
    /* That another owner has it is known to whoever may acquire it. */
    key.label = holds.label = slice("b");
    done(k, bob, key, MACHINE_HELD);
    done(k, bob, holds, MACHINE_HELD);
    /* Of several keys, one is enough. */
    uint8_t also[MACHINE_ALSO_SIZE];
    key.label = slice("a");
    key.name = slice("free");
    key.also = (struct fli_slice){also, machine_also_add(also, 0, slice("L"))};
    key.n_names = 2;
    refused(k, bob, key, ACL_SEE);
    assert_int_equal(run_by(k, ann, key).code, MACHINE_HELD);
}

TEST_WITH(waits_end_when_a_right_is_taken, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    set(k, "ann", "on nopass ~* +@acquire");
    set(k, "bob", "on nopass ~* +@acquire");
    uint64_t ann = login(k, "ann");
    uint64_t bob = login(k, "bob");
    done(k, 0, cmd_acquire("L", "h", 5000), MACHINE_GRANTED);
    done(k, ann, cmd_wait("L", "a", 5000, 9000), MACHINE_QUEUED);
    done(k, bob, cmd_wait("L", "b", 5000, 9000), MACHINE_QUEUED);
    done(k, ann, cmd_wait("L", "c", 5000, 9000), MACHINE_QUEUED);
    fixture_forget_events(k);
    set(k, "ann", "resetkeys ~L"); /* still may */
    fixture_expect_events(k, "user_changed ann\n");
    assert_int_equal(fixture_drain(k), 0);
    set(k, "ann", "-@acquire");
    fixture_expect_events(k, "user_changed ann\nwait_ended:denied L a wait=1\n"
                             "wait_ended:denied L c wait=3\n");
    set(k, "bob", "off");
    fixture_expect_events(k, "user_changed bob\nwait_ended:denied L b wait=2\n");
    set(k, "bob", "on");
    done(k, login(k, "bob"), cmd_wait("L", "b", 5000, 9000), MACHINE_QUEUED);
    fixture_forget_events(k);
    done(k, 0, cmd_owner(MACHINE_OP_USER_DELETE, "bob"), MACHINE_DONE);
    fixture_expect_events(k, "user_changed:close bob\nwait_ended:denied L b wait=4\n");
}

/* More waits than one batch has steps for; a lock that becomes free meanwhile is not granted to who
 * has lost the right, though his wait has not been come to. */
TEST_WITH(many_waits_end_in_batches_to_come, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    char owner[16];
    machine_set_budget(
        k->m, &(struct budget){.due = 25, .commands = 25, .search_min = 50, .search_max = 1000});
    set(k, "ann", "on nopass ~* +@acquire");
    uint64_t ann = login(k, "ann");
    done(k, 0, cmd_acquire("A", "h", 50000), MACHINE_GRANTED);
    done(k, 0, cmd_acquire("B", "h", 50000), MACHINE_GRANTED);
    for (unsigned i = 0; i < 20; i++) {
        (void)snprintf(owner, sizeof owner, "o%u", i);
        done(k, ann, cmd_wait("A", owner, 5000, 9000), MACHINE_QUEUED);
    }
    done(k, ann, cmd_wait("B", "last", 5000, 9000), MACHINE_QUEUED);
    done(k, 0, cmd_wait("B", "other", 5000, 9000), MACHINE_QUEUED);
    fixture_forget_events(k);
    set(k, "ann", "-@all");
    assert_true(machine_has_work(k->m));
    uint64_t hash = machine_hash(k->m);
    fixture_reload(k); /* where it goes on is in the snapshot */
    machine_set_budget(
        k->m, &(struct budget){.due = 25, .commands = 25, .search_min = 50, .search_max = 1000});
    assert_true(machine_hash(k->m) == hash && machine_has_work(k->m));
    fixture_forget_events(k);
    done(k, 0, cmd_held(MACHINE_OP_RELEASE, "B", 2, 0), MACHINE_DONE);
    fixture_drain(k);
    struct machine_counts counts;
    machine_get_counts(k->m, &counts);
    assert_int_equal(counts.waits, 0);
    assert_int_equal(counts.waits_ended, 21);
    assert_int_equal(counts.grants, 3); /* `other` */
    done(k, 0, cmd_held(MACHINE_OP_CHECK, "B", 3, 0), MACHINE_DONE);
}

/* Steps for two waits a batch. */
#define FEW ((struct budget){.due = 25, .commands = 25, .search_min = 50, .search_max = 1000})

/* So many waits of ann for A, which somebody holds. */
static void queue_up(struct fixture *k, unsigned n)
{
    char owner[16];
    set(k, "ann", "on nopass ~* +@acquire");
    uint64_t ann = login(k, "ann");
    done(k, 0, cmd_acquire("A", "h", 50000), MACHINE_GRANTED);
    for (unsigned i = 0; i < n; i++) {
        (void)snprintf(owner, sizeof owner, "o%u", i);
        done(k, ann, cmd_wait("A", owner, 5000, 90000), MACHINE_QUEUED);
    }
}

/* Whoever changes users in a loop holds up nothing that ends by time, though the check of waits
 * begins again each time and does not come to its end. */
TEST_WITH(changes_of_users_do_not_stop_time, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    machine_set_budget(k->m, &FEW);
    queue_up(k, 20);
    done(k, 0, cmd_open("session", 1000, 0, ""), MACHINE_DONE);
    done(k, 0, cmd_acquire("B", "b", 1000), MACHINE_GRANTED);
    done(k, 0, cmd_acquire("C", "c", 50000), MACHINE_GRANTED);
    done(k, 0, cmd_wait("B", "next", 50000, 9000), MACHINE_QUEUED);
    done(k, 0, cmd_wait("C", "gives up", 5000, 1000), MACHINE_QUEUED);
    uint64_t began_ms = k->clock_ms;
    for (unsigned i = 0; i < 10; i++) {
        k->clock_ms += 150;
        set(k, "ann", i % 2 == 0 ? "+@see" : "-@see");
        assert_true(machine_has_work(k->m));
    }
    struct machine_counts counts;
    machine_get_counts(k->m, &counts);
    assert_int_equal(counts.expiries, 1);
    assert_int_equal(counts.waits_ended, 1);
    assert_int_equal(counts.sessions_explicit, 0);
    assert_int_equal(counts.waits, 20);
    assert_true(machine_clock(k->m) >= began_ms + 1500);
    done(k, 0, cmd_held(MACHINE_OP_CHECK, "B", 4, 0), MACHINE_DONE); /* of `next` */
    set(k, "ann", "-@acquire");
    fixture_drain(k); /* as soon as it is left alone, it ends */
    machine_get_counts(k->m, &counts);
    assert_int_equal(counts.waits, 0);
}

/* A batch that ends as many leases as it has steps for checks no wait, and the next one does. */
TEST_WITH(what_is_due_goes_before_the_check_of_waits, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    machine_set_budget(k->m, &FEW);
    queue_up(k, 4);
    done(k, 0, cmd_acquire("B", "b", 1000), MACHINE_GRANTED);
    done(k, 0, cmd_acquire("C", "c", 1000), MACHINE_GRANTED);
    done(k, 0, cmd_acquire("D", "d", 1000), MACHINE_GRANTED);
    set(k, "ann", "-@acquire"); /* two waits end at once, and the third as the last piece */
    fixture_forget_events(k);
    fixture_tick(k, k->clock_ms + 1001);
    fixture_expect_events(k, "expired:deadline B b token=2\n"
                             "expired:deadline C c token=3\n"
                             "expired:deadline D d token=4\n");
    fixture_reload(k);
    machine_set_budget(k->m, &FEW);
    fixture_tick(k, k->clock_ms);
    fixture_expect_events(k, "wait_ended:denied A o3 wait=4\n");
    assert_false(machine_has_work(k->m));
}

/* Waits are checked when one may end: not for who is new, nor when only a password changes. */
TEST_WITH(what_ends_no_wait_checks_none, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    machine_set_budget(k->m, &FEW);
    queue_up(k, 4);
    set(k, "bob", "on nopass ~* +@acquire");
    set(k, "ann", "on nopass ~* +@acquire");
    set(k, "ann", "#" HASH(1));
    set(k, "default", "resetpass");
    assert_false(machine_has_work(k->m));
    set(k, "ann", "-@acquire");
    assert_true(machine_has_work(k->m));
    set(k, "bob", "off"); /* it begins again, and ends all the same */
    set(k, "ann", "#" HASH(2));
    fixture_drain(k);
    struct machine_counts counts;
    machine_get_counts(k->m, &counts);
    assert_int_equal(counts.waits, 0);
}

TEST_WITH(lists_are_filtered, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_lock_view v;
    struct machine_session_view s;
    set(k, "ann", "on nopass ~a* +@see +@acquire");
    uint64_t ann = login(k, "ann");
    done(k, 0, cmd_acquire("a1", "o", 5000), MACHINE_GRANTED);
    done(k, 0, cmd_acquire("b1", "o", 5000), MACHINE_GRANTED);
    done(k, ann, cmd_acquire("a2", "o", 5000), MACHINE_GRANTED);
    done(k, 0, cmd_open("session-of-others", 5000, 0, ""), MACHINE_DONE);
    done(k, ann, cmd_open("session-of-ann-x", 5000, 0, ""), MACHINE_DONE);
    done(k, ann, (struct machine_command){.op = MACHINE_OP_LOCKS}, MACHINE_DONE);
    struct machine_page page = fixture_page(k);
    assert_int_equal(page.count, 2);
    assert_int_equal(machine_page_next_lock(&page, &v), 1);
    assert_memory_equal(v.name.data, "a1", 2);
    assert_int_equal(v.user.len, 0);
    assert_int_equal(machine_page_next_lock(&page, &v), 1);
    assert_memory_equal(v.name.data, "a2", 2);
    assert_int_equal(v.user.len, 3);
    assert_memory_equal(v.user.data, "ann", 3);
    done(k, ann, (struct machine_command){.op = MACHINE_OP_SESSION_LIST}, MACHINE_DONE);
    page = fixture_page(k);
    assert_int_equal(page.count, 1);
    assert_int_equal(machine_page_next_session(&page, &s), 1);
    assert_memory_equal(s.owner.data, "session-of-ann-x", 16);
    set(k, "ann", "~*");
    done(k, ann, (struct machine_command){.op = MACHINE_OP_SESSION_LIST}, MACHINE_DONE);
    assert_int_equal(fixture_page(k).count, 2);
}

TEST_WITH(where_a_client_is_is_written_down, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    static const uint8_t at[6] = {10, 0, 0, 7, 0x1c, 0xe9};
    struct machine_lock_view v;
    set(k, "ann", "on nopass ~* +@see +@acquire");
    struct machine_command c = by(cmd_acquire("L", "o", 5000), login(k, "ann"));
    c.address = (struct fli_slice){at, sizeof at};
    done(k, c.user, c, MACHINE_GRANTED);
    fixture_reload(k);
    done(k, 0, cmd_name(MACHINE_OP_SHOW, "L"), MACHINE_DONE);
    struct machine_page page = fixture_page(k);
    assert_int_equal(machine_page_next_lock(&page, &v), 1);
    assert_int_equal(v.address.len, sizeof at);
    assert_memory_equal(v.address.data, at, sizeof at);
    assert_memory_equal(v.user.data, "ann", 3);
    c.address.len = 5;
    assert_int_equal(machine_command_check(&c), FL_EINVAL);
    c.address.len = 0;
    c.flags = 0;
    assert_int_equal(machine_command_check(&c), FL_EINVAL);
}

TEST_WITH(users_are_in_snapshots, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    set(k, "ann", "on #" HASH(1) " ~a* +@acquire (~b* +@see)");
    set(k, "bob", "on nopass ~* +@acquire");
    done(k, MACHINE_USER_NODE, cmd_owner(MACHINE_OP_USER_DELETE, "bob"), MACHINE_DONE);
    set(k, "default", "-@all");
    uint64_t ann = login(k, "ann");
    uint64_t hash = machine_hash(k->m);
    fixture_reload(k);
    assert_true(machine_hash(k->m) == hash);
    assert_true(login(k, "ann") == ann && !machine_users_are_new(k->m));
    refused(k, 0, cmd_acquire("a1", "o", 5000), ACL_ACQUIRE);
    done(k, ann, cmd_acquire("a1", "o", 5000), MACHINE_GRANTED);
    set(k, "bob", "on nopass");
    assert_int_equal((uint32_t)login(k, "bob"), 3); /* numbers are not used again */
}

TEST_WITH(first_users_are_only_for_the_first_time, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command c = by(cmd_user("ann", "reset on nopass"), MACHINE_USER_NODE);
    c.flags |= MACHINE_USER_INITIAL;
    assert_int_equal(fixture_run(k, c).code, MACHINE_DONE);
    assert_int_equal(fixture_run(k, c).code, MACHINE_DONE);
    assert_true(machine_users_are_new(k->m));
    done(k, MACHINE_USER_NODE, (struct machine_command){.op = MACHINE_OP_USERS_SEAL}, MACHINE_DONE);
    assert_false(machine_users_are_new(k->m));
    assert_int_equal(fixture_run(k, c).code, MACHINE_EXISTS);
}

TEST_WITH(users_have_a_limit, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    char name[16];
    unsigned n = 0;
    unsigned code = MACHINE_DONE;
    k->check = false;
    while (code == MACHINE_DONE) {
        (void)snprintf(name, sizeof name, "user%05u", n++);
        code = fixture_run(
                   k, by(cmd_user(name, "on nopass ~some:pattern:* +@acquire"), MACHINE_USER_NODE))
                   .code;
    }
    assert_int_equal(code, MACHINE_LIMIT);
    assert_true(n > 500);
    set(k, "default", "-@token"); /* no larger than before */
    done(k, MACHINE_USER_NODE, cmd_owner(MACHINE_OP_USER_DELETE, "user00000"), MACHINE_DONE);
    set(k, name, "on nopass ~some:pattern:* +@acquire");
    assert_int_equal(
        fixture_query(k, by((struct machine_command){.op = MACHINE_OP_USERS}, MACHINE_USER_NODE))
            .code,
        MACHINE_DONE);
    assert_true(k->payload.len <= MACHINE_USERS_BYTES_MAX &&
                k->payload.len + 60 > MACHINE_USERS_BYTES_MAX);
    machine_check(k->m);
    done(k, MACHINE_USER_NODE, cmd_user("x", "foo"), MACHINE_WRONG);
}

/* ---- all at once ---- */

struct user_list {
    uint8_t bytes[MACHINE_USERS_BYTES_MAX + ACL_ENCODED_MAX];
    size_t len;
};

/* Behind those that are there; names have to grow. */
static void enroll(struct user_list *l, const char *name, const char *words)
{
    struct acl_user u;
    char errmsg[256];
    acl_user_init(&u, slice(name));
    assert_int_equal(acl_apply(&u, slice(words), ACL_LOCK_RIGHTS, errmsg, sizeof errmsg), 0);
    l->len += acl_encode(&u, l->bytes + l->len);
}

static struct machine_command cmd_load(const struct user_list *l, bool initial)
{
    return (struct machine_command){.op = MACHINE_OP_USERS_LOAD,
                                    .flags = initial ? MACHINE_USER_INITIAL : 0,
                                    .value = {l->bytes, l->len}};
}

static unsigned users_there(struct fixture *k, const char *name)
{
    struct machine_command q = {.op = MACHINE_OP_USER, .owner = slice(name)};
    return fixture_query(k, by(q, MACHINE_USER_NODE)).code == MACHINE_DONE;
}

TEST_WITH(a_list_takes_the_place_of_all, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct user_list l = {.len = 0};
    set(k, "boss", "on nopass +@admin");
    set(k, "gone", "on nopass ~* +@acquire");
    set(k, "kept", "on nopass ~* +@acquire");
    set(k, "shut", "on #" HASH(1) " ~* +@acquire");
    set(k, "waits", "on nopass ~* +@acquire");
    uint64_t boss = login(k, "boss");
    uint64_t gone = login(k, "gone");
    uint64_t kept = login(k, "kept");
    uint64_t shut = login(k, "shut");
    done(k, gone, cmd_acquire("L", "ann", 5000), MACHINE_GRANTED);
    done(k, kept, cmd_acquire("M", "bob", 5000), MACHINE_GRANTED);
    done(k, login(k, "waits"), cmd_wait("M", "cid", 5000, 5000), MACHINE_QUEUED);
    enroll(&l, "kept", "on nopass ~* +@acquire");
    enroll(&l, "new", "on nopass ~* +@acquire");
    enroll(&l, "shut", "on #" HASH(2) " ~* +@acquire");
    enroll(&l, "waits", "on nopass ~* +@see");
    refused(k, kept, cmd_load(&l, false), ACL_ADMIN);
    assert_true(users_there(k, "gone"));
    done(k, boss, cmd_load(&l, false), MACHINE_DONE);
    assert_false(users_there(k, "gone") || users_there(k, "boss"));
    assert_true(users_there(k, "new") && users_there(k, "default"));
    done(k, boss, may(0), MACHINE_NOAUTH);
    done(k, gone, cmd_held(MACHINE_OP_RENEW, "L", 1, 0), MACHINE_NOAUTH);
    done(k, shut, may(0), MACHINE_NOAUTH);
    done(k, login(k, "shut"), may(0), MACHINE_DONE);
    done(k, kept, cmd_held(MACHINE_OP_RENEW, "M", 2, 0), MACHINE_DONE); /* its login stays */
    done(k, login(k, "new"), cmd_held(MACHINE_OP_RENEW, "L", 1, 0), MACHINE_NO); /* not its own */
    fixture_tick(k, 20000); /* nobody may renew it, and its lease ends all the same */
    struct machine_counts c;
    machine_get_counts(k->m, &c);
    assert_int_equal(c.locks_held, 0);
    assert_int_equal(c.waits, 0);
    assert_int_equal(c.grants, 2); /* who lost the right while he waited got nothing */
}

TEST_WITH(a_list_is_taken_as_a_whole_or_not_at_all, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct user_list l = {.len = 0};
    char name[16];
    set(k, "old", "on nopass ~* +@acquire");
    set(k, "default", "resetkeys ~aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    for (unsigned i = 0; l.len + (i + 1) * 8 + 40 < MACHINE_USERS_BYTES_MAX; i++) {
        snprintf(name, sizeof name, "user-%04u", i);
        enroll(&l, name,
               "on nopass resetkeys ~aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    }
    struct machine_result r = run_by(k, MACHINE_USER_NODE, cmd_load(&l, false));
    assert_int_equal(r.code, MACHINE_LIMIT);
    assert_int_equal(r.number, MACHINE_LIMIT_USERS);
    assert_true(users_there(k, "old") && !users_there(k, "user-0000"));
    l.len = 0; /* what is no list does not even become a command */
    enroll(&l, "b", "on");
    enroll(&l, "a", "on");
    assert_int_equal(machine_command_check(&(struct machine_command){.op = MACHINE_OP_USERS_LOAD,
                                                                     .value = {l.bytes, l.len}}),
                     FL_EINVAL);
    l.len = 0;
    enroll(&l, "a", "on");
    enroll(&l, "a", "on");
    assert_false(machine_users_ok((struct fli_slice){l.bytes, l.len}));
    assert_false(machine_users_ok((struct fli_slice){l.bytes, l.len - 1}));
    l.len /= 2;
    assert_true(machine_users_ok((struct fli_slice){l.bytes, l.len}));
    for (size_t cut = 1; cut < l.len; cut++) {
        assert_false(machine_users_ok((struct fli_slice){l.bytes, cut}));
    }
}

/* ---- the last administrator ---- */

static void is_refused_whole(struct fixture *k, uint64_t user, struct machine_command c)
{
    uint64_t before = machine_users_digest(k->m);
    done(k, user, c, MACHINE_NOADMIN);
    assert_int_equal(machine_users_digest(k->m), before);
}

TEST_WITH(whoever_changes_users_leaves_somebody_who_can, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct user_list l = {.len = 0};
    static const char *const words[] = {"off", "-@admin", "resetpass", "nocommands", "reset"};
    done(k, 0, cmd_user("ann", "on ~* +@all"), MACHINE_DONE); /* without a password: who is it? */
    for (unsigned i = 0; i < 5; i++) {
        is_refused_whole(k, 0, cmd_user("default", words[i]));
    }
    enroll(&l, "default", "off");
    is_refused_whole(k, 0, cmd_load(&l, false));
    done(k, 0, cmd_user("boss", "on #" HASH(1) " ~* +@all"), MACHINE_DONE);
    uint64_t boss = login(k, "boss");
    done(k, 0, cmd_user("default", "off"), MACHINE_DONE);
    for (unsigned i = 0; i < 5; i++) {
        is_refused_whole(k, boss, cmd_user("boss", words[i]));
    }
    is_refused_whole(k, boss, cmd_owner(MACHINE_OP_USER_DELETE, "boss"));
    is_refused_whole(k, boss, cmd_load(&l, false));
    enroll(&l, "else", "on #" HASH(1) " ~* +@acquire");
    is_refused_whole(k, boss, cmd_load(&l, false));
    done(k, boss, cmd_user("boss", "#" HASH(2) " !" HASH(1)), MACHINE_DONE);
    boss = login(k, "boss");
    enroll(&l, "next", "on nopass +@admin");
    done(k, boss, cmd_load(&l, false), MACHINE_DONE);
    assert_false(users_there(k, "boss"));
    l.len = 0; /* an empty list leaves the default user, which is off */
    is_refused_whole(k, login(k, "next"), cmd_load(&l, false));
    /* of a node alone no such thing is asked: a cluster that begins has its users from it */
    done(k, MACHINE_USER_NODE, cmd_user("next", "off"), MACHINE_DONE);
}

/* Whoever logs in with a certificate needs no password, and the machine sees only that it is
 * logged in. */
TEST_WITH(an_administrator_with_a_certificate_is_one, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct user_list l = {.len = 0};
    done(k, 0, cmd_user("ann", "on ~* +@all"), MACHINE_DONE);
    uint64_t ann = login(k, "ann");
    is_refused_whole(k, 0, cmd_user("default", "off"));
    done(k, ann, cmd_user("default", "off"), MACHINE_DONE);
    is_refused_whole(k, ann, cmd_user("ann", "-@admin"));
    is_refused_whole(k, ann, cmd_owner(MACHINE_OP_USER_DELETE, "ann"));
    enroll(&l, "bob", "on ~* +@all");
    is_refused_whole(k, ann, cmd_load(&l, false));
    l.len = 0;
    enroll(&l, "ann", "on ~* +@all");
    enroll(&l, "bob", "on ~* +@all");
    done(k, ann, cmd_load(&l, false), MACHINE_DONE);
    done(k, ann, may(0), MACHINE_DONE);
}

/* Each would leave the other, when it was asked. */
TEST_WITH(two_administrators_do_not_take_it_from_each_other, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    done(k, 0, cmd_user("ann", "on #" HASH(1) " +@admin"), MACHINE_DONE);
    done(k, 0, cmd_user("bob", "on #" HASH(2) " +@admin"), MACHINE_DONE);
    uint64_t ann = login(k, "ann");
    uint64_t bob = login(k, "bob");
    done(k, ann, cmd_user("default", "off"), MACHINE_DONE);
    done(k, ann, cmd_user("ann", "-@admin"), MACHINE_DONE);
    is_refused_whole(k, bob, cmd_user("bob", "-@admin"));
    done(k, bob, cmd_user("ann", "+@admin"), MACHINE_DONE);
    done(k, ann, cmd_owner(MACHINE_OP_USER_DELETE, "bob"), MACHINE_DONE);
    done(k, bob, cmd_owner(MACHINE_OP_USER_DELETE, "ann"), MACHINE_NOAUTH);
}

TEST_WITH(a_reset_leaves_the_users_of_a_new_cluster, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    set(k, "boss", "on #" HASH(1) " ~* +@all");
    set(k, "default", "off");
    uint64_t boss = login(k, "boss");
    machine_reset_users(k->m);
    assert_true(machine_users_are_new(k->m) && machine_may(k->m, 0, ACL_ADMIN, NULL));
    assert_false(users_there(k, "boss") || machine_may(k->m, boss, 0, NULL));
    set(k, "boss", "on #" HASH(1) " ~* +@all");
    assert_int_not_equal(login(k, "boss"), boss); /* another one */
}

TEST_WITH(a_list_to_begin_with, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct user_list l = {.len = 0};
    enroll(&l, "ann", "on nopass ~* +@all");
    enroll(&l, "default", "off");
    done(k, MACHINE_USER_NODE, cmd_load(&l, true), MACHINE_DONE);
    done(k, 0, may(0), MACHINE_NOAUTH);
    l.len = 0;
    enroll(&l, "bob", "on nopass ~* +@acquire");
    done(k, MACHINE_USER_NODE, cmd_load(&l, true), MACHINE_EXISTS);
    assert_true(users_there(k, "ann") && !users_there(k, "bob"));
    done(k, MACHINE_USER_NODE, cmd_load(&l, false), MACHINE_DONE);
    assert_true(users_there(k, "bob") && !users_there(k, "ann"));
    fixture_reload(k); /* through a snapshot */
    assert_true(users_there(k, "bob") && !users_there(k, "ann"));
    machine_check(k->m);
}
