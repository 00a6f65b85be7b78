/* test_leases.c: leases that their leader prolongs in its memory and gives up with an EXPIRE. */
#include "fixture.h"

static struct machine_result renew(struct fixture *k, struct machine_command c, uint64_t now_ms,
                                   bool done)
{
    struct machine_result r = {0};
    uint64_t hash = machine_hash(k->m);
    assert_int_equal(machine_renew(k->m, &c, now_ms, NULL), done);
    assert_int_equal(machine_renew(k->m, &c, now_ms, &r), done);
    assert_int_equal(hash, machine_hash(k->m)); /* nothing of it is state */
    machine_check(k->m);
    return r;
}

static struct machine_command expire(uint64_t number, uint8_t flags, uint64_t deadline_ms)
{
    return (struct machine_command){
        .op = MACHINE_OP_EXPIRE, .flags = flags, .number = number, .number2 = deadline_ms};
}

static unsigned check(struct fixture *k, uint64_t token)
{
    return fixture_query(k, cmd_held(MACHINE_OP_CHECK, "L", token, 0)).code;
}

TEST_WITH(a_lease_is_renewed_without_a_change, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("L", "ann", 100));
    for (uint64_t now_ms = 1050; now_ms < 9000; now_ms += 50) {
        struct machine_result r = renew(k, cmd_held(MACHINE_OP_RENEW, "L", 1, 0), now_ms, true);
        assert_int_equal(r.code, MACHINE_DONE);
        assert_int_equal(r.token, 1);
        assert_int_equal(r.clock_ms, now_ms);
        assert_int_equal(r.deadline_ms, now_ms + 100);
        assert_int_equal(fixture_next_deadline(k), now_ms + 101);
    }
    fixture_tick(k, 9050);
    assert_int_equal(check(k, 1), MACHINE_DONE);
    fixture_tick(k, 9051);
    assert_int_equal(check(k, 1), MACHINE_NO);
    struct machine_result r = renew(k, cmd_held(MACHINE_OP_RENEW, "L", 1, 0), 9051, true);
    assert_int_equal(r.code, MACHINE_NO);
}

TEST_WITH(a_session_is_renewed_without_a_change, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command c = cmd_owner(MACHINE_OP_SESSION_RENEW, "ann");
    assert_int_equal(renew(k, c, 1000, true).code, MACHINE_NOSESSION);
    fixture_run(k, cmd_open("ann", 1000, 0, ""));
    assert_int_equal(renew(k, c, 1900, true).deadline_ms, 2900);
    fixture_tick(k, 2900);
    assert_int_equal(renew(k, c, 2900, true).code, MACHINE_DONE);
    fixture_tick(k, 3901);
    assert_int_equal(renew(k, c, 3901, true).code, MACHINE_NOSESSION);
}

TEST_WITH(a_new_ttl_is_for_all_nodes, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("L", "ann", 100));
    (void)renew(k, cmd_held(MACHINE_OP_RENEW, "L", 1, 200), 1050, false);
    assert_int_equal(renew(k, cmd_held(MACHINE_OP_RENEW, "L", 1, 100), 1050, true).code,
                     MACHINE_DONE);
    assert_int_equal(fixture_run(k, cmd_held(MACHINE_OP_RENEW, "L", 1, 200)).deadline_ms, 1200);
    (void)renew(k, cmd_held(MACHINE_OP_RENEW, "L", 1, 100), 1050, false);
}

/* For so long a lease is renewed without an entry. */
#define LONGEST_MS ((uint64_t)INT32_MAX)

/* KEYS of "ann" on "K", and on "L" too if there are two. */
static struct machine_command keys(unsigned flags, unsigned n, uint64_t ttl_ms)
{
    static const uint8_t also[] = {1, 'L'};
    return (struct machine_command){.op = MACHINE_OP_KEYS,
                                    .flags = (uint8_t)flags,
                                    .permits = 1,
                                    .n_names = (uint8_t)n,
                                    .name = {(const uint8_t *)"K", 1},
                                    .also = {also, n == 2 ? sizeof also : 0},
                                    .owner = {(const uint8_t *)"ann", 3},
                                    .ttl_ms = ttl_ms};
}

#define EXTEND MACHINE_KEYS_EXTEND
#define EACH MACHINE_KEYS_EACH
#define GRANT MACHINE_KEYS_GRANT

TEST_WITH(keys_are_renewed_without_a_change, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    static const uint8_t pair[] = "\x01L\x03"
                                  "bob";
    fixture_run(k, keys(GRANT, 1, 100));
    for (uint64_t now_ms = 1050; now_ms < 9000; now_ms += 50) {
        unsigned flags = EXTEND | (now_ms % 100 == 0 ? EACH : now_ms % 250 == 0 ? GRANT : 0);
        struct machine_result r = renew(k, keys(flags, 1, 100), now_ms, true);
        assert_int_equal(r.code, MACHINE_DONE);
        assert_int_equal(r.number, 1);
        assert_int_equal(r.each[0], 1);
        assert_int_equal(r.token, 1);
        assert_int_equal(r.deadline_ms, now_ms + 100);
        assert_int_equal(fixture_next_deadline(k), now_ms + 101);
    }
    struct machine_command any = keys(EXTEND | EACH, 1, 100);
    any.owner.len = 0;
    assert_int_equal(renew(k, any, 9000, true).deadline_ms, 9100);
    fixture_run(k, cmd_acquire("L", "bob", 100));
    struct machine_command each = keys(EXTEND | EACH, 1, 100);
    each.value = (struct fli_slice){pair, sizeof pair - 1};
    struct machine_result r = renew(k, each, 9100, true);
    assert_int_equal(r.number, 2);
    assert_int_equal(r.each[0], 3);
    fixture_tick(k, 9200);
    assert_int_equal(check(k, 2), MACHINE_DONE);
    fixture_tick(k, 9201);
    assert_int_equal(check(k, 2), MACHINE_NO);
}

/* All that changes more, or may do so, is for all nodes. */
TEST_WITH(keys_that_need_an_entry, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command end;
    (void)renew(k, keys(EXTEND, 1, 100), 1000, false); /* it is free */
    (void)renew(k, keys(EXTEND | GRANT, 1, 100), 1000, false);
    fixture_run(k, keys(GRANT, 1, 100));
    (void)renew(k, keys(EXTEND, 1, 200), 1000, false); /* another ttl */
    (void)renew(k, keys(EXTEND, 1, 0), 1000, false);
    (void)renew(k, keys(EXTEND | EACH, 2, 100), 1000, false); /* one is free, */
    fixture_run(k, cmd_acquire("L", "bob", 100));
    (void)renew(k, keys(EXTEND | EACH, 2, 100), 1000, false); /* or another's */
    (void)renew(k, keys(EXTEND, 2, 100), 1000, false);
    struct machine_command other = keys(EXTEND, 1, 100);
    other.owner.len = 2;
    (void)renew(k, other, 1000, false);
    /* The lease has been renewed without an entry for longer than the record can tell. */
    uint64_t end_ms = 1100 + LONGEST_MS;
    assert_int_equal(renew(k, keys(EXTEND, 1, 100), end_ms - 100, true).deadline_ms, end_ms);
    (void)renew(k, keys(EXTEND, 1, 100), end_ms - 99, false);
    assert_true(machine_lease_give_up(k->m, end_ms + 1, &end)); /* it, or the other's */
    assert_true(machine_lease_give_up(k->m, end_ms + 1, &end));
    (void)renew(k, keys(EXTEND, 1, 100), end_ms + 1, false);
}

/* An entry that shortens the ttl does not shorten what the leader has promised meanwhile. */
TEST_WITH(what_was_promised_stays, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("L", "ann", 5000));
    assert_int_equal(renew(k, cmd_held(MACHINE_OP_RENEW, "L", 1, 0), 5000, true).deadline_ms,
                     10000);
    k->clock_ms = 6000;
    fixture_run(k, cmd_held(MACHINE_OP_RENEW, "L", 1, 100));
    fixture_tick(k, 10000);
    assert_int_equal(check(k, 1), MACHINE_DONE);
    fixture_tick(k, 10001);
    assert_int_equal(check(k, 1), MACHINE_NO);
}

/* The leader did not know of an entry that was on its way. */
TEST_WITH(an_entry_that_renewed_it_goes_before_its_end, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("L", "ann", 100));
    struct machine_command end;
    assert_false(machine_lease_give_up(k->m, 1100, &end));
    assert_true(machine_lease_give_up(k->m, 1101, &end));
    assert_int_equal(end.number, 1);
    assert_int_equal(end.number2, 1100);
    (void)renew(k, cmd_held(MACHINE_OP_RENEW, "L", 1, 0), 1101, false);
    assert_int_equal(fixture_run(k, cmd_held(MACHINE_OP_RENEW, "L", 1, 5000)).code, MACHINE_DONE);
    k->clock_ms = 1200;
    fixture_run(k, end);
    assert_int_equal(check(k, 1), MACHINE_DONE);
    assert_int_equal(renew(k, cmd_held(MACHINE_OP_RENEW, "L", 1, 0), 1200, true).code,
                     MACHINE_DONE);
    fixture_tick(k, 6200);
    assert_int_equal(check(k, 1), MACHINE_DONE);
    fixture_tick(k, 6201);
    assert_int_equal(check(k, 1), MACHINE_NO);
}

/* It was given up, and does not end yet, since work is left. The leader watches it again. */
TEST_WITH(a_lease_that_has_not_ended_is_renewed, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    const struct machine_command c = cmd_held(MACHINE_OP_RENEW, "L", 1, 0);
    fixture_run(k, cmd_acquire("L", "ann", 100));
    fixture_run(k, expire(1, 0, 9000));
    (void)renew(k, c, 1050, false);
    assert_int_equal(fixture_run(k, c).deadline_ms, 9000);
    assert_int_equal(renew(k, c, 8950, true).deadline_ms, 9050);
}

/* A leader that leads no more watches what it has given up: it may lead again. */
TEST_WITH(what_was_given_up_is_taken_back, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("L", "ann", 100));
    fixture_run(k, cmd_open("bob", 100, 0, ""));
    struct machine_command end;
    assert_true(machine_lease_give_up(k->m, 2000, &end));
    assert_true(machine_lease_give_up(k->m, 2000, &end));
    assert_false(machine_lease_give_up(k->m, 2000, &end));
    machine_check(k->m);
    machine_leases_take_back(k->m);
    machine_check(k->m);
    fixture_mark(k, 3000);
    assert_int_equal(fixture_next_deadline(k), 3101);
    assert_int_equal(renew(k, cmd_held(MACHINE_OP_RENEW, "L", 1, 0), 3050, true).code,
                     MACHINE_DONE);
    fixture_tick(k, 3150);
    assert_int_equal(check(k, 1), MACHINE_DONE);
    assert_int_equal(fixture_query(k, cmd_owner(MACHINE_OP_SESSION_SHOW, "bob")).code,
                     MACHINE_NOTFOUND);
}

/* What this leader has given up is no state before the log has it. */
TEST_WITH(what_was_given_up_is_not_over_in_a_snapshot, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command end;
    fixture_run(k, cmd_acquire("L", "ann", 100));
    fixture_run(k, cmd_open("bob", 100, 0, ""));
    uint64_t hash = machine_hash(k->m);
    assert_true(machine_lease_give_up(k->m, 2000, &end));
    assert_true(machine_lease_give_up(k->m, 2000, &end));
    assert_int_equal(machine_hash(k->m), hash);
    fixture_reload(k); /* another node, which leads next */
    assert_int_equal(machine_hash(k->m), hash);
    fixture_mark(k, 3000);
    fixture_tick(k, 3100);
    assert_int_equal(check(k, 1), MACHINE_DONE);
    assert_int_equal(fixture_run(k, cmd_owner(MACHINE_OP_SESSION_RENEW, "bob")).code, MACHINE_DONE);
}

/* Each has its own bound, and none is left of them. */
TEST_WITH(what_was_prolonged_is_forgotten, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    struct machine_command end;
    char name[16];
    for (uint32_t i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof name, "n%u", i);
        fixture_run(k, cmd_acquire(name, "ann", 1000));
    }
    for (uint32_t i = 0; i < 300; i++) {
        uint32_t token = 1 + i * 37 % 101;
        (void)snprintf(name, sizeof name, "n%u", token - 1);
        (void)renew(k, cmd_held(MACHINE_OP_RENEW, name, token, 0), 2000 + i * 7919 % 5003, true);
    }
    assert_true(machine_lease_give_up(k->m, 5000, &end));
    assert_true(end.number2 >= 3000); /* it says until when the leader has prolonged it */
    machine_leases_take_back(k->m);
    machine_check(k->m);
    for (unsigned i = 0; i < 100; i++) {
        assert_true(machine_lease_give_up(k->m, 2001, &end));
        assert_int_equal(end.number2, 2000);
    }
}

/* Whatever its numbers: it ends what they name, or nothing. */
TEST_WITH(an_end_of_nothing_does_nothing, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_open("ann", 5000, 0, ""));
    fixture_run(k, cmd_acquire_x("X", "ann"));
    fixture_run(k, cmd_acquire("L", "bob", 5000));
    for (uint64_t number = 1; number < 6; number++) {
        for (uint8_t flags = 0; flags < 2; flags++) {
            fixture_run(k, expire(number, flags, 5999)); /* before the deadline by the log */
        }
    }
    fixture_run(k, expire(FL_TOKEN_MAX, 0, MACHINE_CLOCK_MAX_MS));
    fixture_run(k, expire(FL_TOKEN_MAX, 1, MACHINE_CLOCK_MAX_MS));
    fixture_run(k, expire(1, 0, 9000)); /* token 1 is of a session, which this flag does not name */
    assert_int_equal(check(k, 2), MACHINE_DONE);
    assert_int_equal(fixture_query(k, cmd_held(MACHINE_OP_CHECK, "X", 1, 0)).code, MACHINE_DONE);
    k->clock_ms = 9001;
    k->flags = MACHINE_BATCH_TERM_MARK; /* so that the fixture adds no EXPIRE of its own */
    fixture_run(k, expire(1, MACHINE_EXPIRE_EXPLICIT, 6000));
    assert_int_equal(fixture_query(k, cmd_held(MACHINE_OP_CHECK, "X", 1, 0)).code, MACHINE_NO);
    assert_int_equal(check(k, 2), MACHINE_DONE);
}

/* A lease that the leader watches for longer than a snapshot, or a copy of the log, can know. */
TEST_WITH(a_term_mark_covers_what_was_promised, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    fixture_run(k, cmd_acquire("L", "ann", 1000));
    assert_int_equal(renew(k, cmd_held(MACHINE_OP_RENEW, "L", 1, 0), 8000, true).deadline_ms, 9000);
    fixture_reload(k); /* another node, which gets the state and leads next */
    fixture_mark(k, 1500);
    assert_true(fixture_next_deadline(k) <= 2501); /* it may be told too early */
    fixture_tick(k, 2500);
    assert_int_equal(check(k, 1), MACHINE_DONE);
}

/* There is room in the record for what a term mark adds. */
TEST_WITH(a_term_mark_lengthens_the_longest_lease, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    uint64_t end_ms = 1100 + LONGEST_MS;
    fixture_run(k, cmd_acquire("L", "ann", 100));
    (void)renew(k, cmd_held(MACHINE_OP_RENEW, "L", 1, 0), end_ms - 100, true);
    fixture_mark(k, end_ms - 50);
    fixture_tick(k, end_ms + 50);
    assert_int_equal(check(k, 1), MACHINE_DONE);
    fixture_tick(k, end_ms + 51);
    assert_int_equal(check(k, 1), MACHINE_NO);
}

/* A term mark makes all bounds too early. They are corrected a few at a time, and none ends too
 * soon. */
TEST_WITH(many_bounds_are_corrected_in_pieces, fixture_setup, fixture_teardown)
{
    struct fixture *k = *state;
    enum { N = 2000 };
    machine_set_event_cb(k->m, NULL, NULL);
    fixture_start(k);
    for (uint32_t i = 0; i < N; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "n%u", i);
        fixture_add(k, cmd_acquire(name, "ann", 1000));
    }
    fixture_apply(k, NULL);
    fixture_mark(k, 50000);
    struct machine_command end;
    unsigned calls = 0;
    uint64_t next_ms;
    while ((next_ms = fixture_next_deadline(k)) != 51001) {
        assert_int_equal(next_ms, 50001);
        assert_false(machine_lease_give_up(k->m, 50000, &end));
        assert_true(++calls < 10);
    }
    assert_true(calls > 0);
    struct machine_counts c;
    fixture_tick(k, 51000);
    machine_get_counts(k->m, &c);
    assert_int_equal(c.locks_held, N);
    fixture_tick(k, 51001);
    fixture_drain(k);
    machine_get_counts(k->m, &c);
    assert_int_equal(c.locks_held, 0);
}
