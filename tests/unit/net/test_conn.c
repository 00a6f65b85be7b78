/* test_conn.c: connections over real sockets: order and ceilings. How they end is of
 * test_ends.c. */
#include "harness.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/conn.h"

#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UNDER_ASAN 1
#endif
#endif
#ifndef UNDER_ASAN
#define UNDER_ASAN 0
#endif

static void raise_files(void)
{
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
}

/* --- order --- */

TEST(byte_by_byte)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd = client_open(&f);
    const char request[] = "*2\r\n$4\r\nECHO\r\n$5\r\nhello\r\nECHO inline\r\n";
    for (size_t i = 0; i < sizeof request - 1; i++) {
        client_send(&f, fd, request + i, 1);
        turn(&f);
        turn(&f);
    }
    client_hear(&f, fd, "$5\r\nhello\r\n$6\r\ninline\r\n");
    assert_int_equal(f.requests, 2);
    client_close(fd);
    fixture_end(&f);
}

TEST(pipeline_of_thousands)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd = client_open(&f);
    enum { N = 20000 };
    char *ask = malloc(N * 32 + 64);
    char *want = malloc(N * 32 + 64);
    size_t ask_len = 0;
    size_t want_len = 0;
    for (int i = 0; i < N; i++) {
        char word[16];
        int n = snprintf(word, sizeof word, "%d", i);
        ask_len +=
            (size_t)snprintf(ask + ask_len, 64, "*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", n, word);
        want_len += (size_t)snprintf(want + want_len, 64, "$%d\r\n%s\r\n", n, word);
    }
    client_send(&f, fd, ask, ask_len);
    client_expect(&f, fd, want, want_len);
    assert_int_equal(f.requests, N);
    free(ask);
    free(want);
    client_close(fd);
    fixture_end(&f);
}

TEST(answers_keep_the_order_of_requests)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd = client_open(&f);
    client_say(&f, fd, "LATER\r\nLATER\r\nECHO third\r\nLATER\r\n");
    turn_until(&f, f.kept_n == 3);
    answer_kept(&f, 2, "fourth");
    answer_kept(&f, 1, "second");
    for (int i = 0; i < 20; i++) {
        turn(&f);
    }
    char byte;
    assert_int_equal(client_try(fd, &byte, 1), -1); /* nothing may leave before the first */
    answer_kept(&f, 0, "first");
    client_hear(&f, fd, "$5\r\nfirst\r\n$6\r\nsecond\r\n$5\r\nthird\r\n$6\r\nfourth\r\n");
    client_close(fd);
    fixture_end(&f);
}

TEST(random_order_of_answers)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd = client_open(&f);
    enum { N = 500 };
    for (int i = 0; i < N; i++) {
        client_say(&f, fd, "LATER\r\n");
    }
    turn_until(&f, f.kept_n == N);
    unsigned order[N];
    for (unsigned i = 0; i < N; i++) {
        order[i] = i;
    }
    uint64_t seed = 12345; /* any order will do; always the same one */
    for (unsigned i = N - 1; i > 0; i--) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        unsigned j = (unsigned)((seed >> 33) % (i + 1));
        unsigned t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    for (unsigned i = 0; i < N; i++) {
        char text[16];
        (void)snprintf(text, sizeof text, "%03u", order[i]);
        answer_kept(&f, order[i], text);
        if (i % 37 == 0) {
            turn(&f);
        }
    }
    for (unsigned i = 0; i < N; i++) {
        char want[16];
        (void)snprintf(want, sizeof want, "$3\r\n%03u\r\n", i);
        client_hear(&f, fd, want);
    }
    client_close(fd);
    fixture_end(&f);
}

/* --- ceilings --- */

TEST(pipeline_limit_pauses_reading)
{
    struct net_limits limits = test_limits();
    limits.pipeline_max = 10;
    struct fixture f;
    fixture_start(&f, limits);
    int fd = client_open(&f);
    for (int i = 0; i < 10; i++) {
        client_say(&f, fd, "LATER\r\n");
    }
    turn_until(&f, f.kept_n == 10);
    for (int i = 0; i < 15; i++) {
        client_say(&f, fd, "LATER\r\n");
    }
    client_say(&f, fd, "ECHO end\r\n");
    for (int i = 0; i < 50; i++) {
        turn(&f);
    }
    assert_int_equal(f.kept_n, 10); /* the eleventh waits in the socket */
    for (unsigned i = 0; i < 25; i++) {
        turn_until(&f, f.kept_n > i);
        assert_true(f.kept_n <= i + 10);
        answer_kept(&f, i, "x");
    }
    for (int i = 0; i < 25; i++) {
        client_hear(&f, fd, "$1\r\nx\r\n");
    }
    client_hear(&f, fd, "$3\r\nend\r\n");
    struct net_stats stats;
    net_get_stats(f.server, &stats);
    assert_true(stats.paused > 0);
    client_close(fd);
    fixture_end(&f);
}

TEST(pipeline_of_one)
{
    struct net_limits limits = test_limits();
    limits.pipeline_max = 1;
    struct fixture f;
    fixture_start(&f, limits);
    int fd = client_open(&f);
    client_say(&f, fd, "LATER\r\nECHO a\r\nLATER\r\nECHO b\r\n");
    turn_until(&f, f.kept_n == 1);
    assert_int_equal(f.requests, 1);
    answer_kept(&f, 0, "1");
    turn_until(&f, f.kept_n == 2);
    answer_kept(&f, 1, "2");
    client_hear(&f, fd, "$1\r\n1\r\n$1\r\na\r\n$1\r\n2\r\n$1\r\nb\r\n");
    client_close(fd);
    fixture_end(&f);
}

/* Answers at once, and the client does not read: reading from it stops, and once it reads again it
 * gets everything. */
TEST(client_that_does_not_read_is_paused)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd = client_open(&f);
    client_set_window(fd, 64 * 1024);
    enum { N = 20000, SIZE = 1000 };
    const char ask[] = "*2\r\n$3\r\nBIG\r\n$4\r\n1000\r\n";
    size_t sent = 0;
    size_t total = N * (sizeof ask - 1);
    size_t peak = 0;
    for (int quiet = 0; quiet < 200;) {
        size_t at = sent % (sizeof ask - 1);
        ssize_t n =
            sent < total ? send(fd, ask + at, sizeof ask - 1 - at, MSG_NOSIGNAL) : (ssize_t)-1;
        if (n > 0) {
            sent += (size_t)n;
            quiet = 0;
        } else {
            quiet++;
        }
        turn(&f);
        size_t now = output_bytes(&f);
        peak = now > peak ? now : peak;
    }
    assert_in_range(f.requests, 100, N - 1);
    assert_true(peak <= f.limits.output_max);
    assert_int_equal(net_connections(f.server), 1);
    char *want = malloc(SIZE + 16);
    int head = snprintf(want, 16, "$%d\r\n", SIZE);
    memset(want + head, 'x', SIZE);
    memcpy(want + head + SIZE, "\r\n", 2);
    for (int i = 0; i < N; i++) {
        while (sent < total) {
            size_t at = sent % (sizeof ask - 1);
            ssize_t n = send(fd, ask + at, sizeof ask - 1 - at, MSG_NOSIGNAL);
            if (n < 0) {
                break;
            }
            sent += (size_t)n;
        }
        client_expect(&f, fd, want, (size_t)head + SIZE + 2);
    }
    assert_int_equal(sent, total);
    assert_int_equal(f.requests, N);
    free(want);
    client_close(fd);
    fixture_end(&f);
}

/* A client that does not read the answers to what it has already sent is cut off. */
TEST(slow_reader_is_cut_off)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd = client_open(&f);
    client_set_window(fd, 4096);
    int other = client_open(&f);
    for (int i = 0; i < 1024; i++) {
        client_say(&f, fd, "LATER\r\n");
    }
    turn_until(&f, f.kept_n == 1024);
    static char big[32 * 1024];
    memset(big, 'y', sizeof big - 1);
    struct net_stats stats;
    unsigned answered = 0;
    for (; answered < 1024; answered++) {
        net_get_stats(f.server, &stats);
        if (stats.cut_off > 0) {
            break;
        }
        answer_kept(&f, answered, big);
        turn(&f);
        assert_true(output_bytes(&f) <= f.limits.output_max);
    }
    assert_true(answered < 1024);
    turn_until(&f, net_connections(f.server) == 1);
    assert_int_equal(f.cancelled, 1024 - answered);
    client_expect_end(&f, fd);
    client_expect_served(&f, other);
    client_close(fd);
    client_close(other);
    fixture_end(&f);
}

/* Answers held back behind an unanswered request count as unsent. */
TEST(held_answers_are_bounded)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd = client_open(&f);
    client_say(&f, fd, "LATER\r\n");
    char ask[64];
    /* 5 bytes of head and 2 of tail make 65536: four fill the limit, a fifth is too much. */
    (void)snprintf(ask, sizeof ask, "BIG %d\r\n", 65536 - 10);
    for (int i = 0; i < 4; i++) {
        client_say(&f, fd, ask);
    }
    turn_until(&f, f.requests >= 3);
    for (int i = 0; i < 50; i++) {
        turn(&f);
    }
    /* Reading paused when half of the limit was reached. */
    assert_true(f.requests < 5);
    assert_true(output_bytes(&f) <= f.limits.output_max);
    answer_kept(&f, 0, "go");
    turn_until(&f, f.requests == 5);
    client_hear(&f, fd, "$2\r\ngo\r\n");
    client_close(fd);
    fixture_end(&f);
}

TEST(too_many_held_answers_cut_off)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd = client_open(&f);
    for (int i = 0; i < 100; i++) {
        client_say(&f, fd, "LATER\r\n");
    }
    turn_until(&f, f.kept_n == 100);
    static char big[32 * 1024 - 9]; /* with head, tail and without its NUL: 32 KiB */
    memset(big, 'y', sizeof big - 1);
    struct net_stats stats;
    for (unsigned i = 1; i <= 8; i++) { /* exactly the limit */
        answer_kept(&f, i, big);
    }
    net_get_stats(f.server, &stats);
    assert_int_equal(stats.cut_off, 0);
    assert_int_equal(output_bytes(&f), f.limits.output_max);
    answer_kept(&f, 9, "");
    net_get_stats(f.server, &stats);
    assert_int_equal(stats.cut_off, 1);
    turn_until(&f, f.closed == 1);
    assert_int_equal(f.cancelled, 91);
    client_expect_end(&f, fd);
    client_close(fd);
    fixture_end(&f);
}

TEST(answer_at_the_output_limit)
{
    struct net_limits limits = test_limits();
    struct fixture f;
    fixture_start(&f, limits);
    int fd = client_open(&f);
    char ask[64];
    size_t body = limits.output_max - 11; /* "$262133\r\n" and the closing CR LF */
    (void)snprintf(ask, sizeof ask, "BIG %zu\r\n", body);
    client_say(&f, fd, ask);
    char *want = malloc(limits.output_max + 1);
    int head = snprintf(want, 16, "$%zu\r\n", body);
    memset(want + head, 'x', body);
    memcpy(want + head + body, "\r\n", 2);
    assert_int_equal((size_t)head + body + 2, limits.output_max);
    client_expect(&f, fd, want, limits.output_max);
    free(want);
    (void)snprintf(ask, sizeof ask, "BIG %zu\r\n", body + 1);
    client_say(&f, fd, ask);
    client_expect_end(&f, fd);
    client_close(fd);
    fixture_end(&f);
}

TEST(oversized_request_then_the_next_works)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd = client_open(&f);
    char *huge = malloc(3 * 1000 * 1000 + 64);
    int head = snprintf(huge, 64, "*2\r\n$4\r\nECHO\r\n$%d\r\n", 3 * 1000 * 1000);
    memset(huge + head, 'z', 3 * 1000 * 1000);
    memcpy(huge + head + 3 * 1000 * 1000, "\r\n", 2);
    client_send(&f, fd, huge, (size_t)head + 3 * 1000 * 1000 + 2);
    free(huge);
    client_say(&f, fd, "ECHO next\r\n");
    client_hear(&f, fd, "-ERR ");
    char c = 0;
    while (c != '\n') {
        client_expect(&f, fd, "", 0);
        if (client_try(fd, &c, 1) < 0) {
            turn(&f);
        }
    }
    client_hear(&f, fd, "$4\r\nnext\r\n");
    assert_int_equal(f.requests, 1);
    client_close(fd);
    fixture_end(&f);
}

TEST(lost_framing_is_told_and_ends_the_connection)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd = client_open(&f);
    client_say(&f, fd, "LATER\r\n*1\r\nnonsense\r\nECHO never\r\n");
    turn_until(&f, f.kept_n == 1);
    answer_kept(&f, 0, "first"); /* what came before is still answered */
    client_hear(&f, fd, "$5\r\nfirst\r\n-ERR Protocol error");
    client_expect_end(&f, fd);
    assert_int_equal(f.requests, 1);
    client_close(fd);
    turn_until(&f, net_connections(f.server) == 0);
    fixture_end(&f);
}

/* Sends to a connection that the server has ended, and which it reads on for NET_LINGER_MS. When
 * that is over, what is sent is answered with a reset, which comes behind the end: EPIPE. */
static void send_behind_the_end(struct fixture *f, int fd, const char *data, size_t len)
{
    uint64_t at = deadline();
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EPIPE) {
            return;
        }
        assert_true(n > 0 || errno == EAGAIN);
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
        turn(f);
        check_deadline(at, "room to send", __FILE__, __LINE__);
    }
}

/* Closing with input unread resets the connection, and a reset can overtake the error. */
TEST(the_last_word_is_heard)
{
    struct net_limits limits = test_limits();
    limits.connections_max = 1;
    struct fixture f;
    fixture_start(&f, limits);
    static char more[200 * 1000];
    memset(more, 'm', sizeof more);
    int fd = client_open(&f);
    client_say(&f, fd, "*1\r\nnonsense\r\n");
    send_behind_the_end(&f, fd, more, sizeof more);
    turn_until(&f, f.opened == 1);
    int refused = client_open(&f);
    client_send(&f, refused, more, 1000);
    client_hear(&f, fd, "-ERR ");
    send_behind_the_end(&f, fd, more, sizeof more);
    client_expect_clean_end(&f, fd);
    client_hear(&f, refused, "-LIMIT ");
    send_behind_the_end(&f, refused, more, 1000);
    client_expect_clean_end(&f, refused);
    client_close(refused); /* the server sees the end and closes its side */
    client_close(fd);
    turn_until(&f, f.closed == 1);
    fixture_end(&f);
}

TEST(connection_limit)
{
    struct net_limits limits = test_limits();
    limits.connections_max = 3;
    struct fixture f;
    fixture_start(&f, limits);
    int fds[3];
    for (int i = 0; i < 3; i++) {
        fds[i] = client_open(&f);
        client_say(&f, fds[i], "ECHO in\r\n");
        client_hear(&f, fds[i], "$2\r\nin\r\n");
    }
    int extra = client_open(&f);
    client_say(&f, extra, "ECHO sent before it knows\r\n");
    client_hear(&f, extra, "-LIMIT too many connections (this server takes 3)");
    client_expect_end(&f, extra);
    assert_int_equal(net_connections(f.server), 3);
    assert_int_equal(f.opened, 3);
    client_close(extra);
    client_close(fds[0]);
    turn_until(&f, net_connections(f.server) == 2);
    fds[0] = client_open(&f);
    client_say(&f, fds[0], "ECHO again\r\n");
    client_hear(&f, fds[0], "$5\r\nagain\r\n");
    for (int i = 0; i < 3; i++) {
        client_close(fds[i]);
    }
    fixture_end(&f);
}

/* Many that come in one moment are accepted in several turns: the loop must leave them before the
 * last, or it would never leave while others come as fast. */
TEST(accepting_has_a_share)
{
    enum { N = 400 };
    static struct fixture f;
    static int fds[N];
    fixture_start(&f, test_limits());
    for (unsigned i = 0; i < N; i++) {
        fds[i] = client_open(&f);
    }
    unsigned most = 0;
    while (f.opened < N) {
        unsigned before = f.opened;
        turn(&f);
        most = f.opened - before > most ? f.opened - before : most;
    }
    printf("%d connections, at most %u of them in a turn\n", N, most);
    assert_true(most <= NET_ACCEPTS_TURN_MAX);
    client_say(&f, fds[N - 1], "ECHO one\r\n");
    client_hear(&f, fds[N - 1], "$3\r\none\r\n");
    for (unsigned i = 0; i < N; i++) {
        client_close(fds[i]);
    }
    fixture_end(&f);
}

TEST(many_refused_connections)
{
    raise_files();
    struct net_limits limits = test_limits();
    limits.connections_max = 1;
    struct fixture f;
    fixture_start(&f, limits);
    int fds[300];
    for (int i = 0; i < 300; i++) {
        fds[i] = client_open(&f);
    }
    struct net_stats stats;
    do {
        turn(&f);
        net_get_stats(f.server, &stats);
    } while (stats.accepted < 300);
    assert_int_equal(stats.refused, 299);
    client_say(&f, fds[0], "ECHO in\r\n");
    client_hear(&f, fds[0], "$2\r\nin\r\n");
    for (int i = 0; i < 300; i++) {
        client_close(fds[i]);
    }
    fixture_end(&f);
}

TEST(idle_connections_cost_little)
{
    raise_files();
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    unsigned n = files.rlim_cur > 9000 ? 4000 : (unsigned)files.rlim_cur / 2 - 50;
    struct fixture f;
    fixture_start(&f, test_limits());
    int *fds = calloc(n, sizeof *fds);
    int first = client_open(&f); /* after it, the pools have allocated */
    client_say(&f, first, "ECHO x\r\n");
    client_hear(&f, first, "$1\r\nx\r\n");
    size_t before = mallinfo2().uordblks;
    for (unsigned i = 0; i < n; i++) {
        fds[i] = client_open(&f);
        client_say(&f, fds[i], "ECHO x\r\n");
        client_hear(&f, fds[i], "$1\r\nx\r\n");
    }
    assert_int_equal(net_connections(f.server), n + 1);
    size_t each = (mallinfo2().uordblks - before) / n;
    if (!UNDER_ASAN) {
        print_message("%u idle connections, %zu bytes each\n", n, each);
        assert_in_range(each, 1, 700); /* so none keeps a buffer */
    }
    for (unsigned i = 0; i < n; i++) {
        client_close(fds[i]);
    }
    turn_until(&f, net_connections(f.server) == 1);
    free(fds);
    client_close(first);
    fixture_end(&f);
}

/* A request that stays incomplete costs its bytes and a parser, and gives both back. */
TEST(partial_input_is_given_back)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fds[100];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 100; i++) {
            fds[i] = client_open(&f);
            client_say(&f, fds[i], "*2\r\n$4\r\nECHO\r\n$4\r\nab");
        }
        for (int i = 0; i < 100; i++) {
            turn(&f);
        }
        for (int i = 0; i < 100; i++) {
            if (i % 2 == 0) {
                client_say(&f, fds[i], "cd\r\n");
                client_hear(&f, fds[i], "$4\r\nabcd\r\n");
            }
            client_close(fds[i]);
        }
        turn_until(&f, net_connections(f.server) == 0);
    }
    assert_int_equal(f.requests, 150);
    fixture_end(&f);
}

/* Starts with one client that is served. Returns it. */
static int one_client(struct fixture *f)
{
    fixture_start(f, test_limits());
    int fd = client_open(f);
    client_say(f, fd, "ECHO x\r\n");
    client_hear(f, fd, "$1\r\nx\r\n");
    return fd;
}

/* Files are to be had again: another client is served. Ends the fixture. */
static void another_client(struct fixture *f, int first)
{
    int later = client_open(f);
    client_say(f, later, "ECHO z\r\n");
    client_hear(f, later, "$1\r\nz\r\n");
    client_close(later);
    client_close(first);
    fixture_end(f);
}

/* libuv's spare descriptor is of no help then: the listener is closed, and opened again. */
TEST(no_file_is_left_at_all)
{
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    struct fixture f;
    int keep = one_client(&f);
    int lost = client_open(&f);
    struct rlimit low = {.rlim_cur = 3, .rlim_max = old.rlim_max}; /* below the spare one, too */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    turn_until(&f, f.server->listeners[0]->retry);
    client_say(&f, keep, "ECHO y\r\n");
    client_hear(&f, keep, "$1\r\ny\r\n");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    turn_until(&f, f.server->listeners[0]->open);
    client_close(lost);
    another_client(&f, keep);
}

TEST(too_many_files)
{
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    struct fixture f;
    int keep = one_client(&f);
    int fds[4];
    for (int i = 0; i < 4; i++) {
        fds[i] = client_open(&f); /* they sit in the backlog: the loop has not turned */
    }
    int probe = dup(keep);
    struct rlimit low = {.rlim_cur = (rlim_t)probe, .rlim_max = old.rlim_max};
    client_close(probe);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    for (int i = 0; i < 50; i++) {
        turn(&f); /* a loop that tries again for ever would hang here */
    }
    client_say(&f, keep, "ECHO y\r\n");
    client_hear(&f, keep, "$1\r\ny\r\n");
    assert_int_equal(net_connections(f.server), 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    for (int i = 0; i < 4; i++) {
        client_close(fds[i]);
    }
    another_client(&f, keep);
}
