/* test_origin.c: what the clients of one address may have, at the ceiling and beyond it. */
#include "harness.h"

#include <signal.h>

#include "net/conn.h"

static struct net_memory memory(const struct fixture *f)
{
    struct net_memory m;
    net_get_memory(f->server, &m);
    return m;
}

static void must_serve(struct fixture *f, int fd)
{
    client_say(f, fd, "ECHO a\r\n");
    client_hear(f, fd, "$1\r\na\r\n");
}

/* The ceiling itself is served; one more is refused with its reason; another address is served
 * meanwhile; who makes room may come again. */
TEST(connections_have_a_ceiling)
{
    struct fixture f;
    struct net_limits limits = test_limits();
    limits.address_connections_max = 3;
    fixture_start(&f, limits);
    int fd[3];
    for (unsigned i = 0; i < 3; i++) {
        fd[i] = client_open(&f);
        must_serve(&f, fd[i]);
    }
    int more = client_open(&f);
    client_hear(&f, more, "-LIMIT your address has as many connections");
    client_expect_clean_end(&f, more);
    client_close(more);
    for (unsigned i = 0; i < 3; i++) {
        must_serve(&f, fd[i]);
    }
    int other = client_open_from(&f, "127.0.0.2");
    must_serve(&f, other);
    struct net_memory m = memory(&f);
    assert_int_equal(m.origin_refused, 1);
    assert_int_equal(m.origins, 2);
    assert_int_equal(m.origin_connections_max, 3);
    assert_int_equal(m.origin_connections_limit, 3);
    client_close(fd[1]);
    turn_until(&f, f.closed == 1);
    fd[1] = client_open(&f);
    must_serve(&f, fd[1]);
    client_close(other);
    for (unsigned i = 0; i < 3; i++) {
        client_close(fd[i]);
    }
    turn_until(&f, net_connections(f.server) == 0);
    assert_int_equal(memory(&f).origins, 0);
    assert_int_equal(memory(&f).clients, 0);
    fixture_end(&f);
}

TEST(an_address_has_a_number)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd[3] = {client_open(&f), client_open(&f), client_open_from(&f, "127.0.0.2")};
    for (unsigned i = 0; i < 3; i++) {
        client_say(&f, fd[i], "LATER\r\n");
        turn_until(&f, f.requests == i + 1);
    }
    uint64_t here = net_conn_origin(f.kept[0]->conn);
    assert_true(net_conn_origin(f.kept[1]->conn) == here); /* whatever the port */
    assert_true(net_conn_origin(f.kept[2]->conn) != here);
    for (unsigned i = 0; i < 3; i++) {
        answer_kept(&f, i, "a");
        client_close(fd[i]);
    }
    turn_until(&f, net_connections(f.server) == 0);
    fixture_end(&f);
}

/* Answers of 60000 bytes each, kept behind one that does not come. */
static int client_with(struct fixture *f, const char *address, unsigned answers)
{
    int fd = client_open_from(f, address);
    unsigned before = f->requests;
    client_say(f, fd, "LATER\r\n");
    for (unsigned i = 0; i < answers; i++) {
        client_say(f, fd, "BIG 60000\r\n");
    }
    turn_until(f, f->requests == before + 1 + answers);
    turn(f);
    return fd;
}

/* Counts the connection anew, with `bytes` more than it has. */
static void count_with(struct fixture *f, struct net_conn *c, size_t bytes)
{
    net_conn_set_subscribed(c, bytes);
    turn(f);
    turn(f);
}

/* At the ceiling nobody goes. One byte above it the largest of that address does: neither its
 * others, nor a larger one of another address. */
TEST(memory_has_a_ceiling)
{
    struct fixture f;
    struct net_limits limits = test_limits();
    limits.output_max = 1 << 20;
    fixture_start(&f, limits);
    (void)signal(SIGPIPE, SIG_IGN);
    int small = client_with(&f, "127.0.0.1", 3);
    int large = client_with(&f, "127.0.0.1", 4);
    size_t bytes = memory(&f).clients;
    int other = client_with(&f, "127.0.0.2", 6);
    assert_true(memory(&f).clients - bytes < bytes); /* so the other address is below it */
    f.server->limits.address_memory_max = bytes;
    count_with(&f, f.kept[0]->conn, 0);
    assert_int_equal(f.closed, 0);
    count_with(&f, f.kept[0]->conn, 1);
    turn_until(&f, f.closed == 1);
    client_expect_end(&f, large);
    client_close(large);
    assert_int_equal(memory(&f).origin_cut_off, 1);
    assert_int_equal(memory(&f).origin_max, bytes + 1);
    assert_int_equal(memory(&f).cut_off, 0);
    assert_int_equal(memory(&f).heavy, 2);
    answer_kept(&f, 0, "a");
    client_hear(&f, small, "$1\r\na\r\n$60000\r\n");
    answer_kept(&f, 2, "b");
    client_hear(&f, other, "$1\r\nb\r\n$60000\r\n");
    client_close(small);
    client_close(other);
    turn_until(&f, net_connections(f.server) == 0);
    assert_int_equal(memory(&f).clients, 0);
    assert_int_equal(memory(&f).origins, 0);
    fixture_end(&f);
}

/* A client that is cut off is told which ceiling was reached. */
TEST(who_goes_is_told)
{
    struct net_limits limits = test_limits();
    limits.address_memory_max = 100000;
    expect_cut_off_with(limits,
                        "-LIMIT this client keeps the most of the memory that all clients of one "
                        "address may take (address-memory)");
}

static void refuse_with(struct net_limits limits, const char *want)
{
    struct fixture f;
    limits.fixed = true;
    fixture_start(&f, limits);
    int first = client_open(&f);
    must_serve(&f, first);
    int more = client_open(&f);
    client_hear(&f, more, want);
    client_expect_clean_end(&f, more);
    client_close(more);
    client_close(first);
    turn_until(&f, net_connections(f.server) == 0);
    fixture_end(&f);
}

/* Of a server without options for its limits, none is named. */
TEST(who_is_refused_is_told_of_no_option)
{
    struct net_limits limits = test_limits();
    limits.address_connections_max = 1;
    refuse_with(limits, "-LIMIT your address has as many connections or as much memory as one may "
                        "(1 connection): close some\r\n");
    limits = test_limits();
    limits.connections_max = 1;
    refuse_with(limits, "-LIMIT too many connections (this server takes 1): close some\r\n");
}

TEST(who_goes_is_told_of_a_fixed_limit)
{
    struct net_limits limits = test_limits();
    limits.fixed = true;
    limits.address_memory_max = 100000;
    expect_cut_off_with(limits,
                        "-LIMIT this client keeps the most of the memory that all clients of one "
                        "address may take (a fixed limit)");
}

/* Clients that keep little are not cut off, but their address gets no further ones. */
TEST(an_address_without_room_gets_no_more)
{
    struct fixture f;
    struct net_limits limits = test_limits();
    fixture_start(&f, limits);
    int first = client_open(&f);
    must_serve(&f, first);
    turn_until(&f, memory(&f).clients > 0);
    f.server->limits.address_memory_max = memory(&f).clients;
    int more = client_open(&f);
    client_hear(&f, more, "-LIMIT your address has as many connections or as much memory");
    client_expect_clean_end(&f, more);
    client_close(more);
    must_serve(&f, first);
    int other = client_open_from(&f, "127.0.0.2");
    must_serve(&f, other);
    assert_int_equal(memory(&f).origin_cut_off, 0);
    assert_int_equal(memory(&f).origin_refused, 1);
    client_close(first);
    client_close(other);
    fixture_end(&f);
}

/* Every machine has a network of version 6 to choose addresses from; of version 4, one address. The
 * port is no part of either. */
TEST(what_counts_as_one_address)
{
    struct fixture f;
    struct net_limits limits = test_limits();
    limits.address_connections_max = 1;
    fixture_start(&f, limits);
    struct net_conn first = {.server = f.server, .address_len = 18, .address = {0x20, 1, 7}};
    assert_true(net_origin_join(&first));
    struct net_conn same_network = first;
    same_network.address[8] = 1;
    same_network.address[17] = 9;
    assert_false(net_origin_join(&same_network));
    struct net_conn next_network = first;
    next_network.address[7] = 1;
    assert_true(net_origin_join(&next_network));
    struct net_conn v4 = {.server = f.server, .address_len = 6, .address = {10, 0, 0, 1, 0, 80}};
    assert_true(net_origin_join(&v4));
    struct net_conn other_port = v4;
    other_port.address[5] = 81;
    assert_false(net_origin_join(&other_port));
    struct net_conn other_v4 = v4;
    other_v4.address[3] = 2;
    assert_true(net_origin_join(&other_v4));
    assert_int_equal(memory(&f).origins, 4);
    net_origin_leave(&v4);
    assert_true(net_origin_join(&other_port));
    net_origin_leave(&other_port);
    net_origin_leave(&other_v4);
    net_origin_leave(&next_network);
    net_origin_leave(&first);
    assert_int_equal(memory(&f).origins, 0);
    fixture_end(&f);
}
