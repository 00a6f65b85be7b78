/* The server of the storage: turns and their transactions, clients that do not read what they ask
 * for, and a database that fails under it. */
#include "server_harness.h"

#define ELSEWHERE "127.0.0.9" /* another address */

/* A client that is behind, and asks for more, keeps nobody else waiting, and little memory. */
TEST_WITH(one_that_does_not_read_keeps_nobody_else_out, fixture_setup, fixture_teardown)
{
    enum { READS = 64 };
    struct fixture *x = *state;
    struct client slow = client_open(x);
    struct client other = client_open(x);
    fall_behind(x, &slow, READS);
    client_set(x, &slow, "x", STORE_VALUE_MAX, 1);
    assert_true(info(x).memory.clients < STORE_OUTPUT_MAX + STORE_TURN_OUT_MAX);
    client_set(x, &other, "y", STORE_VALUE_MAX, 2);
    assert_string_equal(client_hear(x, &other).line, "+OK");
    assert_string_equal(client_ask(x, &other, "MARK a\r\n").line, ":2");
    for (unsigned i = 0; i < READS; i++) {
        assert_string_equal(client_hear(x, &slow).line, "$1048576");
    }
    /* Its order stayed, and it is judged by the mark of now. */
    assert_int_equal(strncmp(client_hear(x, &slow).line, "-STALE ", 7), 0);
    assert_int_equal(info(x).net.cut_off, 0);
    client_close(&slow, false);
    client_close(&other, false);
}

TEST_WITH(one_that_is_behind_and_dies_leaves_nothing, fixture_setup, fixture_teardown)
{
    struct fixture *x = *state;
    struct client other = client_open(x);
    for (unsigned i = 0; i < 5; i++) {
        struct client dying = client_open(x);
        fall_behind(x, &dying, 24);
        client_set(x, &dying, "k", 3, 1);
        client_close(&dying, true);
        turn_until(x, info(x).connections == 1);
        /* What had not begun is not done. */
        assert_string_equal(client_ask(x, &other, "GET k\r\n").line, "$-1");
    }
    client_close(&other, false);
}

/* More operations than a transaction takes: they are in several, and all are answered in order. */
TEST_WITH(a_transaction_has_a_ceiling, fixture_setup, fixture_teardown)
{
    enum { CLIENTS = 8, EACH = 1000 };
    struct fixture *x = *state;
    struct client c[CLIENTS];
    char text[64];
    for (unsigned i = 0; i < CLIENTS; i++) {
        c[i] = client_open(x);
        for (unsigned k = 1; k <= EACH; k++) {
            (void)snprintf(text, sizeof text, "CLAIM l%u %u\r\nMARK l%u\r\n", i, k, i);
            client_text(x, &c[i], text);
        }
    }
    for (unsigned k = 1; k <= EACH; k++) {
        for (unsigned i = 0; i < CLIENTS; i++) {
            (void)snprintf(text, sizeof text, ":%u", k);
            assert_string_equal(client_hear(x, &c[i]).line, "+OK");
            assert_string_equal(client_hear(x, &c[i]).line, text);
        }
    }
    struct store_counts counts = info(x).counts;
    assert_int_equal(counts.ops, 2 * CLIENTS * EACH);
    assert_true(counts.commits >= 2 * CLIENTS * EACH / STORE_TURN_OPS_MAX);
    assert_true(counts.commits < CLIENTS * EACH);
    for (unsigned i = 0; i < CLIENTS; i++) {
        client_close(&c[i], false);
    }
}

/* The lock service says nothing: what is asked about waits, what follows it waits behind it, and
 * nobody else does. */
TEST_WITH(a_connection_waits_for_its_verdict, fixture_setup_strict, fixture_teardown)
{
    enum { CLIENTS = 100 };
    struct fixture *x = *state;
    struct client c[CLIENTS];
    struct client other = client_open_from(x, ELSEWHERE);
    for (unsigned i = 0; i < CLIENTS; i++) {
        c[i] = client_open(x);
        client_set(x, &c[i], "x", 100, 2);
        client_text(x, &c[i], "MARK a\r\n");
    }
    assert_string_equal(client_ask(x, &other, "MARK a\r\n").line, ":0");
    assert_true(info(x).held_ops <= CLIENTS);
    for (unsigned i = 0; i < CLIENTS; i++) {
        assert_int_equal(strncmp(client_hear(x, &c[i]).line, "-UNCHECKED ", 11), 0);
        assert_string_equal(client_hear(x, &c[i]).line, ":0");
        client_close(&c[i], false);
    }
    assert_int_equal(info(x).strict_counts.checks, CLIENTS);
    assert_int_equal(info(x).strict_counts.unreachable, CLIENTS);
    assert_int_equal(info(x).held_ops, 0);
    client_close(&other, false);
}

static sqlite3 *open_other(struct fixture *x, const char *sql)
{
    char path[400];
    sqlite3 *other = NULL;
    (void)snprintf(path, sizeof path, "%s/%s", x->scratch.data, FLI_DB_FILE);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, sql, NULL, NULL, NULL), SQLITE_OK);
    return other;
}

/* A program that keeps the file: clients are told that nothing was done, and may try again. */
TEST_WITH(another_program_keeps_the_file, fixture_setup, fixture_teardown)
{
    struct fixture *x = *state;
    struct client c = client_open(x);
    sqlite3 *other = open_other(x, "BEGIN IMMEDIATE");
    assert_int_equal(strncmp(client_ask(x, &c, "CLAIM a 5\r\n").line, "-BUSY ", 6), 0);
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_string_equal(client_ask(x, &c, "MARK a\r\n").line, ":0");
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    client_close(&c, false);
}

/* One that writes to it: what is there is not what was accepted, and nothing more is answered. */
TEST_WITH(another_program_writes_to_the_file, fixture_setup, fixture_teardown)
{
    struct fixture *x = *state;
    struct client c = client_open(x);
    assert_string_equal(client_ask(x, &c, "CLAIM a 5\r\n").line, "+OK");
    x->may_fail = true;
    assert_int_equal(sqlite3_close(open_other(x, "UPDATE fence_mark SET mark = 6")), SQLITE_OK);
    client_text(x, &c, "CLAIM a 5\r\n");
    turn_until(x, x->failures == 1);
    assert_false(info(x).serving);
    client_text(x, &c, "CLAIM a 7\r\n");
    turn_until(x, info(x).net.requests == 3);
    assert_int_equal(x->failures, 1);
    client_close(&c, true);
    turn_until(x, info(x).connections == 0);
}

/* One address leaves a quarter of the connections to the others. */
TEST_WITH(an_address_has_a_share_of_the_connections, fixture_setup, fixture_teardown)
{
    struct fixture *x = *state;
    struct store_info i = info(x);
    assert_int_equal(i.memory.origin_connections_limit, STORE_CONNECTIONS_MAX / 4 * 3);
    assert_int_equal(i.memory.origin_limit, STORE_CLIENT_MEMORY / 4 * 3);
}
