/* The service of the storage with clients that do not read what they ask for. */
#include "service_harness.h"

#include "store/pending.h"

#define MANY 63u
#define DEFERRED_OPS_MAX (SERVICE_DEFERRED_MAX / SERVICE_DEFERRED_LEAST)
#define ELSEWHERE "127.0.0.9" /* another address */

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
        assert_true(info(x).deferred_ops <= DEFERRED_OPS_MAX);
    }
    assert_int_equal(info(x).deferred_ops, DEFERRED_OPS_MAX);
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
    struct pending p = {.size = 1};
    struct pending_lists l = {.deferred_bytes.taken =
                                  SERVICE_DEFERRED_MAX - SERVICE_DEFERRED_LEAST};
    assert_true(pending_may_defer(&l, &p));
    l.deferred_bytes.taken++;
    assert_false(pending_may_defer(&l, &p));
    p.size = SERVICE_DEFERRED_MAX - 1000;
    l.deferred_bytes.taken = 1000;
    assert_true(pending_may_defer(&l, &p));
    l.deferred_bytes.taken++;
    assert_false(pending_may_defer(&l, &p));
    l.bytes.taken = SERVICE_PENDING_MAX - 500;
    assert_true(pending_has_room(&l, 500));
    assert_false(pending_has_room(&l, 501));
}

/* Reads of 1 MiB that one address has asked for, hundreds of them, stand before another address'
 * write for one group, and not for all. */
TEST_WITH(addresses_take_turns, fixture_setup, fixture_teardown)
{
    enum { CLIENTS = 10, EACH = 100 };
    struct fixture *x = *state;
    struct client many[CLIENTS];
    struct client other = client_open_from(x, ELSEWHERE);
    client_set(x, &other, "big", STORE_VALUE_MAX, 1);
    assert_string_equal(client_hear(x, &other).line, "+OK");
    block_worker(x);
    for (unsigned i = 0; i < CLIENTS; i++) {
        many[i] = client_open(x);
        for (unsigned k = 0; k < EACH; k++) {
            client_text(x, &many[i], "GET big\r\n");
        }
    }
    turn_until(x, info(x).pending_ops == CLIENTS * EACH);
    client_text(x, &other, "CLAIM b 9\r\n");
    turn_until(x, info(x).pending_ops == CLIENTS * EACH + 1);
    uint64_t before = info(x).counts.ops;
    free_worker(x);
    assert_string_equal(client_hear(x, &other).line, "+OK");
    assert_true(info(x).counts.ops - before <= 3 * STORE_OUT_MAX / STORE_VALUE_MAX);
    for (unsigned i = 0; i < CLIENTS; i++) {
        client_close(&many[i], true);
    }
    client_close(&other, false);
}

/* When what waits has reached its ceiling, the address that has the most gives up its last. */
TEST_WITH(who_has_the_most_gives_up, fixture_setup, fixture_teardown)
{
    struct fixture *x = *state;
    struct client much = client_open(x);
    struct client other = client_open_from(x, ELSEWHERE);
    block_worker(x);
    client_text(x, &much, "CLAIM b 9\r\n");
    turn_until(x, info(x).pending_ops == 1);
    for (unsigned i = 0; i < MANY + 2; i++) {
        client_set(x, &much, "x", STORE_VALUE_MAX, 2);
    }
    turn_until(x, info(x).net.requests == 1 + MANY + 2);
    uint64_t refused = info(x).busy;
    assert_true(refused > 0);
    client_set(x, &other, "y", STORE_VALUE_MAX, 2);
    turn_until(x, info(x).net.requests == 1 + MANY + 2 + 1);
    assert_int_equal(info(x).busy, refused + 1);
    assert_true(info(x).pending_bytes <= SERVICE_PENDING_MAX);
    free_worker(x);
    assert_string_equal(client_hear(x, &other).line, "+OK"); /* it had its turn early */
    assert_string_equal(client_hear(x, &much).line, "+OK");
    for (unsigned i = 0; i < MANY + 2; i++) {
        bool last = i + info(x).busy >= MANY + 2;
        assert_int_equal(strncmp(client_hear(x, &much).line, "-BUSY ", 6) == 0, last);
    }
    client_close(&much, false);
    client_close(&other, false);
}

/* The same for what waits for strict mode's verdict, while the lock service says nothing: the
 * address that has the most gives up, not one that has nothing yet. */
TEST_WITH(who_has_the_most_unchecked_gives_up, fixture_setup_strict, fixture_teardown)
{
    struct fixture *x = *state;
    struct client much = client_open(x);
    struct client other = client_open_from(x, ELSEWHERE);
    for (unsigned i = 0; i < MANY; i++) {
        client_set(x, &much, "x", STORE_VALUE_MAX, 2);
    }
    turn_until(x, info(x).net.requests == MANY);
    assert_int_equal(info(x).busy, 0);
    assert_int_equal(info(x).pending_ops, MANY);
    assert_int_equal(info(x).strict_counts.checks, MANY);
    client_set(x, &much, "x", STORE_VALUE_MAX, 2);
    client_set(x, &much, "x", STORE_VALUE_MAX, 2);
    turn_until(x, info(x).net.requests == MANY + 2);
    uint64_t refused = info(x).busy;
    assert_true(refused > 0);
    for (unsigned i = 0; i < MANY / 2; i++) { /* until both have as much */
        client_set(x, &other, "y", STORE_VALUE_MAX, 2);
        turn_until(x, info(x).net.requests == MANY + 2 + i + 1);
        assert_int_equal(info(x).busy, refused + i + 1);
        assert_int_equal(info(x).strict_counts.checks, MANY + i + 1); /* it was let in */
        assert_true(info(x).pending_bytes <= SERVICE_PENDING_MAX);
    }
    uint64_t before = info(x).pending_ops;
    client_close(&much, true);
    turn_until(x, info(x).connections == 1);
    assert_int_equal(info(x).pending_ops, before); /* their verdicts may still come */
    client_close(&other, true);
}

static struct pending *unchecked(struct pending_lists *l, size_t size, uint64_t address)
{
    struct pending *p = pending_new(l, size, address);
    assert_non_null(p);
    pending_check(l, p);
    return p;
}

/* One after the other: what is unchecked, then what is queued, the last one first. */
TEST(what_an_address_gives_up)
{
    enum { HALF = SERVICE_PENDING_MAX / 2 };
    struct pending_lists l;
    pending_init(&l);
    struct pending *queued = pending_new(&l, HALF - 2000, 1);
    assert_non_null(queued);
    pending_queue(&l, queued);
    struct pending *first = unchecked(&l, HALF, 1);
    struct pending *other = unchecked(&l, 1000, 2);
    struct pending *last = unchecked(&l, 1000, 1);
    assert_true(pending_has_room(&l, 0) && !pending_has_room(&l, 1));
    assert_null(pending_give_up(&l, 1)); /* it has the most itself */
    struct pending *order[] = {last, first, queued};
    for (unsigned i = 0; i < 3; i++) {
        assert_ptr_equal(pending_give_up(&l, 2), order[i]);
        pending_free(&l, order[i]);
    }
    assert_ptr_equal(pending_first_unchecked(&l), other);
    assert_int_equal(l.unchecked_n, 1);
    assert_ptr_equal(pending_any(&l), other);
    pending_remove(&l, other);
    pending_free(&l, other);
    pending_fini(&l);
}

/* One address leaves a quarter of the connections to the others. */
TEST_WITH(an_address_has_a_share_of_the_connections, fixture_setup, fixture_teardown)
{
    struct fixture *x = *state;
    struct store_info i = info(x);
    assert_int_equal(i.memory.origin_connections_limit, SERVICE_CONNECTIONS_MAX / 4 * 3);
    assert_int_equal(i.memory.origin_limit, SERVICE_CLIENT_MEMORY / 4 * 3);
}
