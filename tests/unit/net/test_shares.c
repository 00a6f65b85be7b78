/* test_shares.c: many clients with much to ask share the turns of the loop, and a client that asks
 * little waits for few of them. */
#include "harness.h"

#include <signal.h>
#include <sys/socket.h>

#include "net/conn.h"

/* Two clients whose requests keep the thread busy for long do not keep it from a third one, nor
 * from the rest of the loop. */
TEST(much_to_do_is_shared_out)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    enum { N = 60 };
    (void)signal(SIGPIPE, SIG_IGN); /* as the daemons do: one client leaves */
    int busy[2];
    int fd = client_open(&f);
    turn_until(&f, f.opened == 1);
    char ask[N * 32];
    char want[N * 32];
    size_t ask_len = 0;
    size_t want_len = 0;
    for (int i = 0; i < N; i++) {
        ask_len += (size_t)snprintf(ask + ask_len, sizeof ask - ask_len, "*1\r\n$4\r\nSPIN\r\n");
        want_len += (size_t)snprintf(want + want_len, sizeof want - want_len, "+OK\r\n");
    }
    for (int i = 0; i < 2; i++) {
        busy[i] = client_open(&f);
        client_say(&f, busy[i], ask);
    }
    turn(&f);
    assert_true(f.requests < N);
    const char little[] = "*2\r\n$4\r\nECHO\r\n$1\r\na\r\n";
    client_say(&f, fd, little);
    client_arrived(&f, fd, sizeof little - 1);
    turn_until(&f, f.echoes == 1);
    assert_true(f.requests < N);
    client_hear(&f, fd, "$1\r\na\r\n");
    client_close(busy[1]); /* one leaves while the rest of what it asked waits */
    client_hear(&f, busy[0], want);
    client_close(busy[0]);
    client_close(fd);
    fixture_end(&f);
}

/* However many clients send much: one that sends little is next, and waits no longer than for one
 * visit to each of the others. */
TEST(much_waits_behind_little)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    enum { N = 60 };
    int busy[N];
    (void)signal(SIGPIPE, SIG_IGN); /* as the daemons do */
    int fd = client_open(&f);
    turn_until(&f, f.opened == 1);
    for (int i = 0; i < N; i++) {
        busy[i] = client_open(&f);
        for (int k = 0; k < 20; k++) {
            client_say(&f, busy[i], "SPIN\r\n");
        }
    }
    turn_until(&f, f.requests >= 4 * N); /* by then each has been visited */
    client_say(&f, fd, "ECHO a\r\n");
    client_arrived(&f, fd, strlen("ECHO a\r\n"));
    unsigned before = f.requests;
    turn_until(&f, f.echoes == 1);
    assert_true(f.requests - before < N / 2);
    client_hear(&f, fd, "$1\r\na\r\n");
    for (int i = 0; i < N; i++) {
        client_close(busy[i]);
    }
    client_close(fd);
    fixture_end(&f);
}

/* A client that sends little is served in the turn in which its bytes come, although others have
 * used up the share of that turn. A busy machine may delay some rounds, so most must be in time. */
TEST(little_is_served_at_once)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    enum { N = 10, ROUNDS = 20 };
    int busy[N];
    unsigned at_once = 0;
    (void)signal(SIGPIPE, SIG_IGN); /* as the daemons do */
    int fd = client_open(&f);
    client_say(&f, fd, "ECHO a\r\n");
    client_hear(&f, fd, "$1\r\na\r\n");
    for (int i = 0; i < N; i++) {
        busy[i] = client_open(&f);
        for (int k = 0; k < ROUNDS; k++) {
            client_say(&f, busy[i], "SPIN\r\n");
        }
    }
    turn_until(&f, f.requests >= N);
    for (int i = 0; i < ROUNDS; i++) {
        unsigned before = f.echoes;
        client_say(&f, fd, "ECHO a\r\n");
        client_arrived(&f, fd, strlen("ECHO a\r\n"));
        turn(&f);
        at_once += f.echoes > before;
        turn_until(&f, f.echoes > before);
    }
    assert_true(at_once > ROUNDS / 2);
    assert_true(f.requests < N * ROUNDS);
    for (int i = 0; i < ROUNDS; i++) {
        client_hear(&f, fd, "$1\r\na\r\n");
    }
    for (int i = 0; i < N; i++) {
        client_close(busy[i]);
    }
    client_close(fd);
    fixture_end(&f);
}

/* What is read without a request coming of it is work as well. A connection is read once in a turn,
 * however much it sends. */
TEST(a_flood_is_read_once_a_turn)
{
    enum { FLOODS = 4, TURNS = 200 };
    static const char begin[] = "*1\r\n$500000000\r\n";
    static const char waste[NET_READ_SIZE];
    struct fixture f;
    struct net_stats before = {0};
    struct net_stats after = {0};
    int floods[FLOODS];
    fixture_start(&f, test_limits());
    int good = client_open(&f);
    for (unsigned i = 0; i < FLOODS; i++) {
        floods[i] = client_open(&f);
        client_say(&f, floods[i], begin);
    }
    turn_until(&f, f.opened == FLOODS + 1);
    for (unsigned k = 0; k < TURNS; k++) {
        for (unsigned i = 0; i < FLOODS; i++) {
            while (send(floods[i], waste, sizeof waste, MSG_NOSIGNAL) > 0) {
            }
        }
        net_get_stats(f.server, &before);
        turn(&f);
        net_get_stats(f.server, &after);
        assert_true(after.bytes_in - before.bytes_in <= FLOODS * NET_READ_SIZE);
    }
    assert_true(after.bytes_in > TURNS * NET_READ_SIZE / 2);
    client_say(&f, good, "ECHO x\r\n");
    client_hear(&f, good, "$1\r\nx\r\n");
    for (unsigned i = 0; i < FLOODS; i++) {
        client_close(floods[i]);
    }
    client_close(good);
    fixture_end(&f);
}

/* A connection that was full goes on when at most half of its limit is in flight. One that only
 * waits for the next turn of the loop was not full, so it goes on although more is in flight. */
TEST(waiting_for_a_turn_is_no_pause)
{
    struct fixture f;
    struct net_limits limits = test_limits();
    limits.pipeline_max = 16;
    fixture_start(&f, limits);
    int fd = client_open(&f);
    for (int i = 0; i < 9; i++) {
        client_say(&f, fd, "LATER\r\n");
    }
    turn_until(&f, f.kept_n == 9);
    client_say(&f, fd, "SPIN\r\nSPIN\r\nSPIN\r\nSPIN\r\nLATER\r\n");
    turn_until(&f, f.kept_n == 10);
    struct net_stats stats;
    net_get_stats(f.server, &stats);
    assert_int_equal(stats.paused, 0);
    for (unsigned i = 0; i < 10; i++) {
        answer_kept(&f, i, "a");
    }
    client_close(fd);
    fixture_end(&f);
}

/* ---- addresses take turns -------------------------------------------------------------------- */

/* Who comes while hundreds of connections of another address wait is visited before them, also when
 * the turn in which it comes is used up by yet another of that address. */
TEST(no_address_waits_for_many_of_another)
{
    enum { MANY = 300, ROUNDS = 20, FEW = 12 };
    struct fixture f;
    int many[MANY];
    int late[ROUNDS];
    (void)signal(SIGPIPE, SIG_IGN); /* as the daemons do */
    fixture_start(&f, test_limits());
    int good = client_open_from(&f, "127.0.0.3");
    for (unsigned i = 0; i < MANY; i++) {
        many[i] = client_open_from(&f, "127.0.0.2");
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        late[i] = client_open_from(&f, "127.0.0.2");
    }
    turn_until(&f, f.opened == MANY + ROUNDS + 1);
    for (unsigned i = 0; i < MANY; i++) {
        client_say(&f, many[i], "SPIN\r\n");
        client_arrived(&f, many[i], strlen("SPIN\r\n"));
    }
    turn(&f);
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned before = f.requests;
        client_say(&f, late[i], "SPIN\r\n");
        client_arrived(&f, late[i], strlen("SPIN\r\n"));
        client_say(&f, good, "ECHO a\r\n");
        client_arrived(&f, good, strlen("ECHO a\r\n"));
        turn_until(&f, f.echoes == i + 1);
        assert_true(f.requests - before < FEW);
    }
    assert_true(f.requests < MANY); /* they waited all the time */
    turn_until(&f, f.requests == MANY + 2 * ROUNDS);
    for (unsigned i = 0; i < MANY; i++) {
        client_close(many[i]);
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        client_close(late[i]);
        client_hear(&f, good, "$1\r\na\r\n");
    }
    client_close(good);
    fixture_end(&f);
}

/* And the many of one address go on, although addresses that have nobody else in line never end. */
TEST(many_of_an_address_wait_for_few_others)
{
    enum { MANY = 10, ADDRESSES = 60, FEW = FLI_LINE_FRESH + 4 };
    struct fixture f;
    char address[32];
    char heard[256];
    int many[MANY];
    int alone[ADDRESSES];
    unsigned done = 0;
    (void)signal(SIGPIPE, SIG_IGN); /* as the daemons do */
    fixture_start(&f, test_limits());
    for (unsigned i = 0; i < ADDRESSES; i++) {
        (void)snprintf(address, sizeof address, "127.0.1.%u", i + 1);
        alone[i] = client_open_from(&f, address);
        client_say(&f, alone[i], "SPIN\r\n");
    }
    for (unsigned i = 0; i < MANY; i++) {
        many[i] = client_open_from(&f, "127.0.0.2");
        client_say(&f, many[i], "ECHO a\r\n");
    }
    unsigned long turns = 0;
    turn_until(&f, f.opened == ADDRESSES + MANY);
    while (f.echoes < MANY) {
        turn(&f);
        turns++;
        for (unsigned i = 0; i < ADDRESSES; i++) {
            if (client_try(alone[i], heard, sizeof heard) > 0) {
                client_say(&f, alone[i], "SPIN\r\n");
                done++;
            }
        }
        assert_true(turns <= (unsigned long)MANY * FEW);
    }
    assert_true(done > 0);
    for (unsigned i = 0; i < MANY; i++) {
        client_hear(&f, many[i], "$1\r\na\r\n");
        client_close(many[i]);
    }
    for (unsigned i = 0; i < ADDRESSES; i++) {
        client_close(alone[i]);
    }
    fixture_end(&f);
}
