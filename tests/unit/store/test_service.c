/* The service of the storage with clients that do not read what they ask for. */
#include "service_harness.h"

#include "store/pending.h"

#define MANY 63u

/* A client that is behind, and asks for more, keeps room from nobody else. */
TEST_WITH(one_that_does_not_read_keeps_nobody_else_out, fixture_setup, fixture_teardown)
{
    struct fixture *x = *state;
    struct client slow = client_open(x);
    struct client other = client_open(x);
    fall_behind(x, &slow, 64);
    for (unsigned i = 0; i < MANY; i++) {
        client_set(x, &slow, "x", STORE_VALUE_MAX, 1);
    }
    turn_until(x, info(x).net.requests == 1 + 64 + MANY);
    turn_until(x, info(x).deferred_ops == info(x).pending_ops);
    assert_true(info(x).pending_bytes <= SERVICE_DEFERRED_MAX);
    assert_true(info(x).busy > 0);
    client_set(x, &other, "y", STORE_VALUE_MAX, 2);
    assert_string_equal(client_hear(x, &other).line, "+OK");
    assert_string_equal(client_ask(x, &other, "MARK a\r\n").line, ":2");

    /* What was taken is judged by the mark of now, in order; each of the others is refused. */
    unsigned refused = 0;
    for (unsigned i = 0; i < 64; i++) {
        assert_string_equal(client_hear(x, &slow).line, "$1048576");
    }
    for (unsigned i = 0; i < MANY; i++) {
        struct reply r = client_hear(x, &slow);
        bool busy = strncmp(r.line, "-BUSY ", 6) == 0;
        refused += busy ? 1 : 0;
        assert_true(busy || strncmp(r.line, "-STALE ", 7) == 0);
    }
    assert_int_equal(refused, info(x).busy);
    assert_true(refused >= MANY - SERVICE_DEFERRED_MAX / STORE_VALUE_MAX);
    assert_true(refused < MANY);
    client_close(&slow, false);
    client_close(&other, false);
}

/* Many small operations of clients that are behind: their number has a ceiling as well. */
TEST_WITH(the_number_of_deferred_operations_has_a_ceiling, fixture_setup, fixture_teardown)
{
    enum { CLIENTS = 10, EACH = 1000 };
    struct fixture *x = *state;
    struct client slow[CLIENTS];
    struct client other = client_open(x);
    for (unsigned i = 0; i < CLIENTS; i++) {
        slow[i] = client_open(x);
        client_set(x, &slow[i], "big", STORE_VALUE_MAX, 1);
        assert_string_equal(client_hear(x, &slow[i]).line, "+OK");
        for (unsigned k = 0; k < EACH; k++) {
            client_text(x, &slow[i], k < 24 ? "GET big\r\n" : "GET k\r\n");
        }
        turn_until(x, info(x).net.requests == (1 + EACH) * (i + 1));
        turn_until(x, info(x).deferred_ops > 0 && info(x).deferred_ops == info(x).pending_ops);
        assert_true(info(x).deferred_ops <= SERVICE_DEFERRED_OPS_MAX);
    }
    assert_int_equal(info(x).deferred_ops, SERVICE_DEFERRED_OPS_MAX);
    assert_true(info(x).busy > 0);
    assert_string_equal(client_ask(x, &other, "CLAIM a 9\r\n").line, "+OK");
    for (unsigned i = 0; i < CLIENTS; i++) {
        client_close(&slow[i], true);
    }
    turn_until(x, info(x).connections == 1 && info(x).pending_ops == 0);
    client_close(&other, false);
}

/* What is dropped on the way to a group has a share of each turn. */
TEST_WITH(many_that_are_dropped_take_several_turns, fixture_setup, fixture_teardown)
{
    enum { CLIENTS = 20, EACH = 1000 };
    struct fixture *x = *state;
    struct client gone[CLIENTS];
    struct client other = client_open(x);
    block_worker(x);
    client_text(x, &other, "CLAIM a 9\r\n");
    turn_until(x, info(x).pending_ops == 1);
    for (unsigned i = 0; i < CLIENTS; i++) {
        gone[i] = client_open(x);
        for (unsigned k = 0; k < EACH; k++) {
            client_text(x, &gone[i], "GET k\r\n");
        }
        turn_until(x, info(x).pending_ops == 1 + (uint64_t)EACH * (i + 1));
        client_close(&gone[i], true);
    }
    turn_until(x, info(x).connections == 1);
    free_worker(x);
    uint64_t most = 0;
    uint64_t until = deadline();
    for (uint64_t left = info(x).pending_ops; left > 0;) {
        uint64_t before = left;
        turn(x);
        left = info(x).pending_ops;
        most = before - left > most ? before - left : most;
        check_deadline(until, "an empty queue", __LINE__);
    }
    assert_int_equal(most, SERVICE_VISITS_MAX);
    assert_string_equal(client_hear(x, &other).line, "+OK");
    client_close(&other, false);
}

/* What a connection asked for is done in its order, also when it dies and a part was deferred. */
TEST_WITH(a_connection_that_dies_keeps_its_order, fixture_setup, fixture_teardown)
{
    enum { ROUNDS = 5 };
    struct fixture *x = *state;
    struct client other = client_open(x);
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct client dying = client_open(x);
        fall_behind(x, &dying, 24);
        uint64_t before = info(x).deferred_ops;
        client_set(x, &dying, "k", 3, 1);
        turn_until(x, info(x).deferred_ops == before + 1);
        block_worker(x); /* a group is being executed when the rest arrives */
        client_text(x, &other, "CLAIM b 9\r\n");
        turn_until(x, info(x).pending_ops == before + 2);
        turn(x);
        client_set(x, &dying, "k", 5, 1);
        turn_until(x, info(x).pending_ops == before + 3);
        client_close(&dying, true);
        turn_until(x, info(x).connections == 1);
        free_worker(x);
        assert_string_equal(client_hear(x, &other).line, "+OK");
        turn_until(x, info(x).pending_ops == 0);
        assert_string_equal(client_ask(x, &other, "GET k\r\n").line, "$5");
    }
    client_close(&other, false);
}

TEST(room_for_deferred_operations)
{
    struct pending_list l = {.n = SERVICE_DEFERRED_OPS_MAX - 1};
    assert_true(pending_may_defer(&l, SERVICE_DEFERRED_MAX));
    assert_false(pending_may_defer(&l, SERVICE_DEFERRED_MAX + 1));
    l.bytes = SERVICE_DEFERRED_MAX - 500;
    assert_true(pending_may_defer(&l, 500));
    assert_false(pending_may_defer(&l, 501));
    l.n++;
    assert_false(pending_may_defer(&l, 500));
}
