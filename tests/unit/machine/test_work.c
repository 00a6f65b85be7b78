/* test_work.c: one batch takes a bounded number of steps, what is left goes on in the next ones,
 * and commands that come in between are answered rightly. That the same happens in the end, in the
 * same order, is what the model test shows in runs that have steps for one thing a batch. */
#include "fixture.h"

#include "machine/budget.h"

#define DUE_MAX (MACHINE_BATCH_DUE_STEPS + MACHINE_STEPS_OVER_MAX)
#define SMALL ((struct budget){.due = 25, .commands = 25, .search_min = 50, .search_max = 1000})

static int setup(void **state)
{
    (void)fixture_setup(state);
    machine_set_budget(((struct fixture *)*state)->m, &SMALL);
    return 0;
}

/* With what ships. */
static int setup_full(void **state)
{
    (void)fixture_setup(state);
    struct fixture *k = *state;
    k->check = false;
    machine_set_event_cb(k->m, NULL, NULL);
    return 0;
}

static void reload(struct fixture *k)
{
    fixture_reload(k);
    machine_set_budget(k->m, &SMALL);
}

static const char *numbered(char out[16], const char *prefix, unsigned i)
{
    snprintf(out, 16, "%s%u", prefix, i);
    return out;
}

static enum machine_code check(struct fixture *k, const char *name, uint64_t token)
{
    return fixture_query(k, cmd_held(MACHINE_OP_CHECK, name, token, 0)).code;
}

static enum machine_code show(struct fixture *k, const char *name)
{
    return fixture_query(k, cmd_name(MACHINE_OP_SHOW, name)).code;
}

static uint64_t work_left(struct fixture *k)
{
    struct machine_counts c;
    machine_get_counts(k->m, &c);
    return c.work;
}

/* Eight leases that end in one millisecond, and steps for three. */
TEST_WITH(test_leases_that_are_over, setup, fixture_teardown)
{
    struct fixture *k = *state;
    char name[16];
    for (unsigned i = 0; i < 8; i++) {
        fixture_run(k, cmd_acquire(numbered(name, "n", i), numbered((char[16]){0}, "o", i), 100));
    }
    fixture_tick(k, 1101);
    assert_true(machine_has_work(k->m));
    struct machine_counts c;
    machine_get_counts(k->m, &c);
    assert_int_equal(c.expiries, 3);
    /* Not held any more, by whatever question; not free either. */
    assert_int_equal(check(k, "n7", 8), MACHINE_NO);
    assert_int_equal(show(k, "n7"), MACHINE_NOTFOUND);
    struct machine_command q = {.op = MACHINE_OP_LOCKS};
    fixture_query(k, q);
    assert_int_equal(fixture_page(k).count, 0);
    k->check = true;
    fixture_start(k);
    fixture_add(k, cmd_held(MACHINE_OP_RENEW, "n7", 8, 5000));
    fixture_add(k, cmd_held(MACHINE_OP_RELEASE, "n7", 8, 0));
    fixture_add(k, cmd_acquire("n7", "else", 5000));
    struct machine_result r[3];
    machine_set_budget(k->m, &(struct budget){.due = 1, .commands = 25});
    fixture_apply(k, r);
    assert_int_equal(r[0].code, MACHINE_NO);
    assert_int_equal(r[1].code, MACHINE_NO);
    assert_int_equal(r[2].code, MACHINE_HELD);
    /* An owner that acquires its lost lock again gets a new grant. */
    machine_set_budget(k->m, &(struct budget){.due = 1, .commands = 25});
    fixture_forget_events(k);
    struct machine_result again = fixture_run(k, cmd_acquire("n7", "o7", 5000));
    assert_int_equal(again.code, MACHINE_GRANTED);
    assert_int_equal(again.token, 9);
    assert_int_equal(check(k, "n7", 8), MACHINE_NO);
    assert_int_equal(check(k, "n7", 9), MACHINE_DONE);
    reload(k);
    fixture_drain(k);
    machine_get_counts(k->m, &c);
    assert_int_equal(c.expiries, 8);
    assert_int_equal(c.locks, 1);
}

/* With no steps for it: an error that says so, and nothing done. */
TEST_WITH(test_no_steps_to_lose_it, setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("a", "ann", 100));
    fixture_run(k, cmd_acquire("b", "bob", 100));
    machine_set_budget(k->m, &(struct budget){.due = 1, .commands = 0});
    fixture_tick(k, 1101);
    fixture_start(k);
    fixture_add(k, cmd_acquire("c", "cid", 100));
    fixture_apply(k, NULL);
    fixture_run(k, cmd_acquire("d", "dan", 100));
    fixture_run(k, cmd_acquire("e", "eve", 100));
    fixture_tick(k, 1202); /* one of three */
    struct machine_result r = fixture_run(k, cmd_acquire("e", "eve", 100));
    assert_int_equal(r.code, MACHINE_LIMIT);
    assert_int_equal(r.number, MACHINE_LIMIT_WAITS);
    fixture_drain(k);
    assert_int_equal(fixture_run(k, cmd_acquire("e", "eve", 100)).code, MACHINE_GRANTED);
}

/* A term mark in between lengthens what was not over, and nothing that was. */
TEST_WITH(test_mark_in_between, setup, fixture_teardown)
{
    struct fixture *k = *state;
    char name[16];
    for (unsigned i = 0; i < 8; i++) {
        fixture_run(k, cmd_acquire(numbered(name, "n", i), "ann", 100));
    }
    fixture_run(k, cmd_acquire("later", "ann", 150));
    fixture_tick(k, 1101);
    assert_int_equal(check(k, "n7", 8), MACHINE_NO);
    fixture_mark(k, 1160); /* it would end "later" too */
    assert_true(machine_has_work(k->m));
    assert_int_equal(check(k, "n7", 8), MACHINE_NO);
    assert_int_equal(check(k, "later", 9), MACHINE_DONE);
    reload(k);
    assert_int_equal(check(k, "n7", 8), MACHINE_NO);
    fixture_drain(k);
    assert_int_equal(check(k, "n7", 8), MACHINE_NO);
    struct machine_result r = fixture_query(k, cmd_held(MACHINE_OP_CHECK, "later", 9, 0));
    assert_int_equal(r.code, MACHINE_DONE);
    assert_int_equal(r.deadline_ms, 1160 + 150);
}

TEST_WITH(test_large_session, setup, fixture_teardown)
{
    struct fixture *k = *state;
    char name[16];
    fixture_run(k, cmd_open("ann", 5000, 700, ""));
    fixture_run(k, cmd_open("bob", 5000, 0, ""));
    for (unsigned i = 0; i < 9; i++) {
        fixture_run(k, cmd_acquire_x(numbered(name, "n", i), "ann"));
    }
    fixture_run(k, cmd_acquire("b", "cid", 5000));
    assert_int_equal(fixture_run(k, cmd_wait_x("b", "ann", 5000)).code, MACHINE_QUEUED);
    assert_int_equal(fixture_run(k, cmd_wait_x("n8", "bob", 5000)).code, MACHINE_QUEUED);
    assert_int_equal(fixture_run(k, cmd_owner(MACHINE_OP_SESSION_CLOSE, "ann")).code, MACHINE_DONE);
    assert_int_equal(work_left(k), 1);
    /* The session is gone, with all it had. */
    machine_set_budget(k->m, &(struct budget){.due = 1, .commands = 25, .search_max = 50});
    assert_int_equal(fixture_run(k, cmd_owner(MACHINE_OP_SESSION_RENEW, "ann")).code,
                     MACHINE_NOSESSION);
    assert_int_equal(fixture_run(k, cmd_acquire_x("x", "ann")).code, MACHINE_NOSESSION);
    assert_int_equal(fixture_query(k, cmd_owner(MACHINE_OP_SESSION_SHOW, "ann")).code,
                     MACHINE_NOTFOUND);
    assert_int_equal(check(k, "n8", 9), MACHINE_NO);
    reload(k);
    /* A new one of the same name has nothing of the old one's. It waits behind who waited before;
     * the old wait for "b" is not its. */
    machine_set_budget(k->m, &(struct budget){.due = 1, .commands = 25, .search_max = 50});
    fixture_run(k, cmd_open("ann", 5000, 0, ""));
    struct machine_result r = fixture_run(k, cmd_acquire_x("n7", "ann"));
    assert_int_equal(r.code, MACHINE_GRANTED);
    assert_int_equal(r.token, 11);
    fixture_forget_events(k);
    assert_int_equal(fixture_run(k, cmd_wait_x("b", "ann", 5000)).code, MACHINE_QUEUED);
    assert_true(work_left(k) > 0);
    machine_set_budget(k->m, &SMALL);
    fixture_drain(k);
    assert_int_equal(check(k, "n7", 11), MACHINE_DONE);
    assert_int_equal(check(k, "n8", 12), MACHINE_DONE); /* bob's */
    assert_int_equal(show(k, "n6"), MACHINE_NOTFOUND);
    struct machine_counts c;
    machine_get_counts(k->m, &c);
    assert_int_equal(c.releases, 9);
    assert_int_equal(c.sessions_explicit, 2);
    assert_int_equal(c.waits, 1);
}

/* Twelve readers, broken; a writer waits. */
TEST_WITH(test_break_of_many, setup, fixture_teardown)
{
    struct fixture *k = *state;
    char owner[16];
    struct machine_command c = cmd_acquire("A", "", 5000);
    c.mode = MACHINE_MODE_SHARED;
    for (unsigned i = 0; i < 12; i++) {
        c.owner = fixture_slice(numbered(owner, "o", i));
        fixture_run(k, c);
    }
    fixture_run(k, cmd_wait("A", "writer", 5000, 5000));
    struct machine_result r = fixture_run(k, cmd_name(MACHINE_OP_BREAK, "A"));
    assert_int_equal(r.code, MACHINE_DONE);
    assert_int_equal(r.token, 13);
    assert_int_equal(work_left(k), 1);
    for (uint64_t token = 1; token <= 12; token++) {
        assert_int_equal(check(k, "A", token), MACHINE_NO);
    }
    assert_int_equal(fixture_run(k, cmd_name(MACHINE_OP_BREAK, "A")).code, MACHINE_NO);
    machine_set_budget(k->m, &(struct budget){.due = 1, .commands = 0});
    /* A new reader must not slip in among the broken ones. */
    c.owner = fixture_slice("new");
    assert_int_equal(fixture_run(k, c).code, MACHINE_HELD);
    reload(k);
    assert_int_equal(check(k, "A", 12), MACHINE_NO);
    fixture_drain(k);
    assert_int_equal(check(k, "A", 14), MACHINE_DONE); /* the writer's */
    struct machine_counts n;
    machine_get_counts(k->m, &n);
    assert_int_equal(n.breaks, 12);
}

/* A writer leaves, and many readers are let in, a few a batch, in their order. */
TEST_WITH(test_grants_that_follow, setup, fixture_teardown)
{
    struct fixture *k = *state;
    char owner[16];
    fixture_run(k, cmd_acquire("A", "writer", 5000));
    for (unsigned i = 0; i < 12; i++) {
        struct machine_command c = cmd_wait("A", numbered(owner, "o", i), 5000, 5000);
        c.mode = MACHINE_MODE_SHARED;
        assert_int_equal(fixture_run(k, c).code, MACHINE_QUEUED);
    }
    fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "A", 1, 0));
    assert_int_equal(work_left(k), 1);
    /* Nobody overtakes those that are next. */
    struct machine_command c = cmd_acquire("A", "new", 5000);
    c.mode = MACHINE_MODE_SHARED;
    machine_set_budget(k->m, &(struct budget){.due = 1, .commands = 0});
    assert_int_equal(fixture_run(k, c).code, MACHINE_HELD);
    assert_int_equal(show(k, "A"), MACHINE_DONE);
    reload(k);
    fixture_drain(k);
    for (uint64_t token = 2; token <= 13; token++) {
        assert_int_equal(check(k, "A", token), MACHINE_DONE);
    }
}

/* A grant of several locks is released when there are no steps left: gone at once, free later. */
TEST_WITH(test_release_of_several, setup, fixture_teardown)
{
    struct fixture *k = *state;
    uint8_t also[MACHINE_ALSO_SIZE];
    struct machine_command c = cmd_acquire("a", "ann", 5000);
    size_t len = machine_also_add(also, 0, fixture_slice("b"));
    c.also = (struct fli_slice){also, len};
    c.n_names = 2;
    assert_int_equal(fixture_run(k, c).code, MACHINE_GRANTED);
    fixture_run(k, cmd_wait("b", "bob", 5000, 5000));
    machine_set_budget(k->m, &(struct budget){.due = 1, .commands = 0});
    assert_int_equal(fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "b", 1, 0)).code, MACHINE_DONE);
    assert_int_equal(work_left(k), 1);
    assert_int_equal(check(k, "a", 1), MACHINE_NO);
    assert_int_equal(show(k, "a"), MACHINE_NOTFOUND);
    fixture_reload(k);
    assert_int_equal(fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "a", 1, 0)).code, MACHINE_NO);
    fixture_drain(k);
    assert_int_equal(check(k, "b", 2), MACHINE_DONE);
}

/* ---- ceilings, with the steps that ship ------------------------------------------------------ */

static void fill(struct fixture *k, unsigned n, struct machine_command (*make)(unsigned i))
{
    for (unsigned i = 0; i < n;) {
        fixture_start(k);
        for (unsigned end = i + 1000; i < n && i < end; i++) {
            fixture_add(k, make(i));
        }
        fixture_apply(k, NULL);
    }
    machine_check(k->m);
}

/* Empty batches until nothing is left. Returns how many; none may take more than it has. */
static unsigned drain_bounded(struct fixture *k)
{
    unsigned n = 0;
    do {
        fixture_tick(k, k->clock_ms);
        assert_in_range(machine_spent(k->m), 0, DUE_MAX);
        n++;
    } while (machine_has_work(k->m));
    machine_check(k->m);
    return n;
}

static char text[2][16];

static struct machine_command own_lock(unsigned i)
{
    return cmd_acquire(numbered(text[0], "n", i), numbered(text[1], "o", i), 100000);
}

static struct machine_command one_of_readers(unsigned i)
{
    struct machine_command c = cmd_acquire("A", numbered(text[1], "o", i), 1000000);
    c.mode = MACHINE_MODE_SHARED;
    return c;
}

static struct machine_command waiting_reader(unsigned i)
{
    struct machine_command c = cmd_wait("A", numbered(text[1], "w", i), 1000000, 1000000);
    c.mode = MACHINE_MODE_SHARED;
    return c;
}

static struct machine_command of_session(unsigned i)
{
    return cmd_acquire_x(numbered(text[0], "n", i), "ann");
}

#define FITS (MACHINE_BATCH_DUE_STEPS / MACHINE_STEPS_RECORD)

/* As many as one batch has steps for, and one more. */
TEST_WITH(test_leases_at_the_ceiling, setup_full, fixture_teardown)
{
    for (unsigned more = 0; more < 2; more++) {
        struct fixture *k = *state;
        fill(k, FITS + more, own_lock);
        k->clock_ms += 200000;
        fixture_tick(k, k->clock_ms);
        unsigned expires = FITS + more; /* which cost a step each */
        assert_in_range(machine_spent(k->m) - expires, FITS * MACHINE_STEPS_RECORD, DUE_MAX);
        assert_int_equal(machine_has_work(k->m), more == 1);
        fixture_drain(k);
        struct machine_counts c;
        machine_get_counts(k->m, &c);
        assert_int_equal(c.locks, 0);
    }
}

TEST_WITH(test_session_at_the_ceiling, setup_full, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("ann", 1000000, 0, ""));
    fill(k, 60000, of_session);
    fixture_run(k, cmd_owner(MACHINE_OP_SESSION_CLOSE, "ann"));
    assert_in_range(machine_spent(k->m), MACHINE_BATCH_COMMAND_STEPS,
                    MACHINE_BATCH_COMMAND_STEPS + MACHINE_STEPS_OVER_MAX);
    assert_in_range(drain_bounded(k), 60000 / FITS - 2, 60000 / FITS * 2);
}

TEST_WITH(test_break_at_the_ceiling, setup_full, fixture_teardown)
{
    struct fixture *k = *state;
    fill(k, 60000, one_of_readers);
    assert_int_equal(fixture_run(k, cmd_name(MACHINE_OP_BREAK, "A")).code, MACHINE_DONE);
    assert_in_range(machine_spent(k->m), MACHINE_BATCH_COMMAND_STEPS,
                    MACHINE_BATCH_COMMAND_STEPS + MACHINE_STEPS_OVER_MAX);
    drain_bounded(k);
    struct machine_counts c;
    machine_get_counts(k->m, &c);
    assert_int_equal(c.breaks, 60000);
    assert_int_equal(c.locks, 0);
}

TEST_WITH(test_grants_at_the_ceiling, setup_full, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("A", "writer", 1000000));
    fill(k, 20000, waiting_reader);
    fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "A", 1, 0));
    assert_in_range(machine_spent(k->m), MACHINE_BATCH_COMMAND_STEPS,
                    MACHINE_BATCH_COMMAND_STEPS + MACHINE_STEPS_OVER_MAX);
    drain_bounded(k);
    struct machine_counts c;
    machine_get_counts(k->m, &c);
    assert_int_equal(c.locks_held, 20000);
}

/* Lock A with `over` readers whose leases have ended, and then `live` ones that hold it still. The
 * leases of others ended before, and a batch has steps for one of those: so A waits for its turn
 * over the next hundred batches. */
static void let_readers_end(struct fixture *k, unsigned over, unsigned live)
{
    char name[16];
    for (unsigned i = 0; i < 100; i++) {
        fixture_run(k, cmd_acquire(numbered(name, "before", i), "owner", 100));
    }
    for (unsigned i = 0; i < over + live;) {
        fixture_start(k);
        for (unsigned end = i + 1000; i < over + live && i < end; i++) {
            struct machine_command c = one_of_readers(i);
            c.ttl_ms = i < over ? 200 : c.ttl_ms;
            fixture_add(k, c);
        }
        fixture_apply(k, NULL);
    }
    machine_set_budget(k->m, &(struct budget){.due = 1, .commands = 6000, .search_max = 50});
    fixture_tick(k, k->clock_ms + 300);
    assert_true(machine_has_work(k->m));
}

static struct machine_command as_key(unsigned op, const char *label)
{
    return (struct machine_command){.op = (uint8_t)op,
                                    .n_names = 1,
                                    .permits = 1,
                                    .name = fixture_slice("A"),
                                    .label = fixture_slice(label)};
}

/* Whoever asks for the lock as a key hears that it is taken until the last of its holders is gone,
 * as ACQUIRE does. Who holds it is not told, however many stand in front. */
static void is_taken(struct fixture *k)
{
    struct machine_result r = fixture_query(k, as_key(MACHINE_OP_KEY, ""));
    assert_int_equal(r.code, MACHINE_DONE);
    assert_int_equal(r.number, 1);
    assert_int_equal(r.token, 0);
    assert_int_equal(r.deadline_ms, 0);
    assert_int_equal(k->payload.len, 0);
    assert_int_equal(fixture_query(k, as_key(MACHINE_OP_KEY, "o0")).code, MACHINE_HELD);
    struct machine_command c = as_key(MACHINE_OP_KEY, "o0");
    c.flags = MACHINE_KEYS_COUNT;
    assert_int_equal(fixture_query(k, c).code, MACHINE_HELD);
    c = as_key(MACHINE_OP_KEYS, "");
    c.flags = MACHINE_KEYS_EACH | MACHINE_KEYS_RELEASE;
    assert_int_equal(fixture_run(k, c).code, MACHINE_HELD);
    c.flags = MACHINE_KEYS_EACH | MACHINE_KEYS_EXTEND;
    c.ttl_ms = 5000;
    assert_int_equal(fixture_run(k, c).code, MACHINE_HELD);
    c.flags = MACHINE_KEYS_COUNT | MACHINE_KEYS_GRANT | MACHINE_KEYS_EXTEND;
    c.owner = fixture_slice("another");
    r = fixture_run(k, c);
    assert_int_equal(r.code, MACHINE_HELD);
    assert_int_equal(r.deadline_ms, k->clock_ms + FL_TTL_MIN_MS);
    assert_int_equal(fixture_run(k, cmd_acquire("A", "another", 5000)).code, MACHINE_HELD);
}

TEST_WITH(test_a_holder_behind_many, setup_full, fixture_teardown)
{
    struct fixture *k = *state;
    let_readers_end(k, MACHINE_PAGE_SCAN_MAX + 1, 1);
    is_taken(k);
    machine_set_budget(k->m, &(struct budget){.due = 6000, .commands = 6000});
    fixture_drain(k);
    struct machine_result r = fixture_query(k, as_key(MACHINE_OP_KEY, ""));
    assert_int_equal(r.code, MACHINE_DONE);
    assert_int_equal(r.token, 100 + MACHINE_PAGE_SCAN_MAX + 2);
    assert_int_equal(k->payload.len, strlen("o10001"));
}

/* All are over: taken until the last of them is gone, then free. One alone is known to be over. */
TEST_WITH(test_holders_that_are_all_over, setup_full, fixture_teardown)
{
    struct fixture *k = *state;
    let_readers_end(k, 2, 0);
    is_taken(k);
    struct machine_counts c;
    for (machine_get_counts(k->m, &c); c.locks_held > 1; machine_get_counts(k->m, &c)) {
        assert_int_equal(fixture_query(k, as_key(MACHINE_OP_KEY, "")).code, MACHINE_DONE);
        fixture_tick(k, k->clock_ms);
    }
    assert_true(machine_has_work(k->m));
    assert_int_equal(fixture_query(k, as_key(MACHINE_OP_KEY, "")).code, MACHINE_NOTFOUND);
    fixture_drain(k);
    assert_int_equal(fixture_query(k, as_key(MACHINE_OP_KEY, "")).code, MACHINE_NOTFOUND);
    struct machine_command any = as_key(MACHINE_OP_KEYS, "");
    any.flags = MACHINE_KEYS_EACH | MACHINE_KEYS_RELEASE;
    assert_int_equal(fixture_run(k, any).code, MACHINE_NO);
}

/* SHOW looks at a bounded number of holders. When all of these are over, it says so, and not that
 * nobody holds the lock. */
TEST_WITH(test_show_behind_many, setup_full, fixture_teardown)
{
    struct fixture *k = *state;
    let_readers_end(k, MACHINE_SHOW_SCAN_MAX - 1, 1);
    assert_int_equal(show(k, "A"), MACHINE_DONE);
    struct machine_page page = fixture_page(k);
    struct machine_lock_view v;
    assert_int_equal(page.count, 1);
    assert_false(page.more);
    assert_int_equal(machine_page_next_lock(&page, &v), 1);
    assert_int_equal(v.token, 100 + MACHINE_SHOW_SCAN_MAX);
}

TEST_WITH(test_show_behind_too_many, setup_full, fixture_teardown)
{
    struct fixture *k = *state;
    let_readers_end(k, MACHINE_SHOW_SCAN_MAX, 1);
    struct machine_result r = fixture_query(k, cmd_name(MACHINE_OP_SHOW, "A"));
    assert_int_equal(r.code, MACHINE_LIMIT);
    assert_int_equal(r.number, MACHINE_LIMIT_HOLDERS);
    assert_int_equal(k->payload.len, 0);
    machine_set_budget(k->m, &(struct budget){.due = 6000, .commands = 6000});
    fixture_drain(k);
    assert_int_equal(show(k, "A"), MACHINE_DONE);
}

TEST_WITH(test_show_of_nobody, setup_full, fixture_teardown)
{
    struct fixture *k = *state;
    let_readers_end(k, MACHINE_SHOW_SCAN_MAX, 0);
    assert_int_equal(show(k, "A"), MACHINE_NOTFOUND); /* all were looked at */
}

/* What it does show is marked as not the whole, when it could not look at all. */
TEST_WITH(test_show_of_some, setup_full, fixture_teardown)
{
    struct fixture *k = *state;
    let_readers_end(k, MACHINE_SHOW_SCAN_MAX - 2, 2);
    assert_int_equal(show(k, "A"), MACHINE_DONE);
    assert_int_equal(fixture_page(k).count, 2);
    assert_false(fixture_page(k).more);
    fixture_run(k, one_of_readers(90000));
    assert_int_equal(show(k, "A"), MACHINE_DONE);
    assert_int_equal(fixture_page(k).count, 2);
    assert_true(fixture_page(k).more);
}

/* A lock of many that was broken has no holder, which is known at once. */
TEST_WITH(test_a_broken_lock_is_no_key, setup, fixture_teardown)
{
    struct fixture *k = *state;
    fill(k, 12, one_of_readers);
    assert_int_equal(fixture_run(k, cmd_name(MACHINE_OP_BREAK, "A")).code, MACHINE_DONE);
    assert_true(machine_has_work(k->m));
    assert_int_equal(fixture_query(k, as_key(MACHINE_OP_KEY, "")).code, MACHINE_NOTFOUND);
    assert_int_equal(show(k, "A"), MACHINE_NOTFOUND);
}

/* Each holder is found by its token. */
TEST_WITH(test_any_holder, setup_full, fixture_teardown)
{
    struct fixture *k = *state;
    fill(k, 5000, one_of_readers);
    for (uint64_t token = 1; token <= 5000; token += 7) {
        assert_int_equal(check(k, "A", token), MACHINE_DONE);
        assert_int_equal(check(k, "B", token), MACHINE_NO);
        fixture_run(k, cmd_held(MACHINE_OP_RELEASE, "A", token, 0));
        assert_int_equal(check(k, "A", token), MACHINE_NO);
    }
}

TEST_WITH(test_costs, setup_full, fixture_teardown)
{
    struct machine_command c = cmd_wait_x("a", "ann", 5);
    c.n_names = MACHINE_NAMES_MAX;
    assert_int_equal(machine_command_cost(&c), MACHINE_COMMAND_COST_MAX);
    for (uint8_t op = MACHINE_OP_INIT; !MACHINE_OP_IS_QUERY(op) && op < 64; op++) {
        c.op = op;
        bool of_users = op == MACHINE_OP_USERS_LOAD || op == MACHINE_OP_USER_SET ||
                        op == MACHINE_OP_USER_DELETE;
        assert_in_range(machine_command_cost(&c),
                        op == MACHINE_OP_EXPIRE ? 1 : MACHINE_STEPS_RECORD,
                        of_users ? MACHINE_LIST_COST : MACHINE_COMMAND_COST_MAX);
    }
    c.op = MACHINE_OP_KEY; /* it looks at each of its names */
    assert_int_equal(machine_command_cost(&c), MACHINE_NAMES_MAX * MACHINE_STEPS_RECORD);
    c.n_names = 1;
    assert_int_equal(machine_command_cost(&c), MACHINE_STEPS_RECORD);
}

/* A change of a user looks for it among them all, and compares each pattern among its words with
 * those that the user has. */
TEST(test_costs_of_changes_of_users)
{
    static const uint8_t longest[ACL_TEXT_MAX];
    struct machine_command c = {.op = MACHINE_OP_USER_DELETE};
    assert_int_equal(machine_command_cost(&c), MACHINE_SHOW_COST);
    c.op = MACHINE_OP_USER_SET;
    assert_int_equal(machine_command_cost(&c), MACHINE_SHOW_COST);
    c.words = (struct fli_slice){longest, sizeof longest};
    assert_true(machine_command_cost(&c) > MACHINE_BATCH_COST_MAX / 2);
    assert_true(machine_command_cost(&c) <= MACHINE_BATCH_COST_MAX);
}

/* A list of all users is as long an answer as any list, and one user's record is looked for among
 * them all. */
TEST(test_costs_of_queries)
{
    static const uint8_t lists[] = {MACHINE_OP_LOCKS, MACHINE_OP_SESSION_LIST, MACHINE_OP_USERS};
    static const uint8_t records[] = {MACHINE_OP_SHOW, MACHINE_OP_SESSION_SHOW, MACHINE_OP_USER};
    for (unsigned i = 0; i < sizeof lists; i++) {
        assert_int_equal(machine_command_cost(&(struct machine_command){.op = lists[i]}),
                         MACHINE_LIST_COST);
        assert_int_equal(machine_command_cost(&(struct machine_command){.op = records[i]}),
                         MACHINE_SHOW_COST);
    }
}
