/* test_memory.c: the memory of connections, and which one is closed when all use too much. */
#include "harness.h"

#include <signal.h>

/* All clients together have a ceiling. At the ceiling no connection is closed; beyond it the one
 * that uses most is, and no other. */
TEST(the_largest_goes_first)
{
    struct fixture f;
    struct net_limits limits = test_limits();
    limits.output_max = 1 << 20;
    fixture_start(&f, limits);
    (void)signal(SIGPIPE, SIG_IGN);
    int fd[3];
    struct net_memory m;
    for (unsigned i = 0; i < 3; i++) { /* answers that wait behind one that does not come */
        fd[i] = client_open(&f);
        client_say(&f, fd[i], "LATER\r\n");
        for (unsigned k = 0; k < 2 + 2 * i; k++) {
            client_say(&f, fd[i], "BIG 60000\r\n");
        }
    }
    turn_until(&f, f.requests == 3 + 2 + 4 + 6);
    turn(&f);
    net_get_memory(f.server, &m);
    assert_int_equal(m.heavy, 3);
    assert_in_range(m.largest, 6 * 60000, 6 * 65536 + 8192);
    assert_in_range(m.clients, 12 * 60000, 12 * 65536 + 3 * 8192);
    assert_int_equal(m.cut_off, 0);
    fixture_limit_memory(&f, m.clients);
    int idle = client_open(&f); /* a few hundred bytes too many */
    turn_until(&f, f.closed == 1);
    net_get_memory(f.server, &m);
    assert_int_equal(m.cut_off, 1);
    assert_int_equal(m.heavy, 2);
    client_expect_end(&f, fd[2]);      /* the one with six */
    for (unsigned i = 0; i < 2; i++) { /* the others are served */
        assert_non_null(f.kept[i]);
        answer_kept(&f, i, "a");
        client_hear(&f, fd[i], "$1\r\na\r\n$60000\r\n");
        client_close(fd[i]);
    }
    client_say(&f, idle, "ECHO b\r\n");
    client_hear(&f, idle, "$1\r\nb\r\n");
    client_close(idle);
    client_close(fd[2]);
    turn_until(&f, net_connections(f.server) == 0);
    net_get_memory(f.server, &m);
    assert_int_equal(m.clients, 0);
    assert_int_equal(m.heavy, 0);
    fixture_end(&f);
}

/* What the service keeps for a request counts until the request is answered. */
TEST(what_a_request_keeps_counts)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd = client_open(&f);
    struct net_memory before, m;
    client_say(&f, fd, "LATER\r\n");
    turn_until(&f, f.requests == 1);
    turn(&f);
    net_get_memory(f.server, &before);
    for (size_t bytes = 100000; bytes >= 50000; bytes -= 50000) { /* the last number counts */
        net_request_keeps(f.kept[0], bytes);
        turn(&f);
        net_get_memory(f.server, &m);
        assert_int_equal(m.clients, before.clients + bytes);
    }
    answer_kept(&f, 0, "a");
    client_hear(&f, fd, "$1\r\na\r\n");
    turn(&f);
    net_get_memory(f.server, &m);
    assert_true(m.clients <= before.clients);
    client_close(fd);
    turn_until(&f, net_connections(f.server) == 0);
    net_get_memory(f.server, &m);
    assert_int_equal(m.clients, 0);
    fixture_end(&f);
}

/* A client that is cut off, and has read what it was sent, is told why. */
TEST(who_goes_for_memory_is_told)
{
    struct net_limits limits = test_limits();
    limits.memory_max = 100000;
    expect_cut_off_with(limits, "-LIMIT this client keeps the most");
}
