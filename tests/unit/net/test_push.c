/* test_push.c: what is sent without having been asked for, among answers that are owed, and the
 * last word to who does not take it. */
#include "harness.h"

#include "base/clock.h"
#include "net/conn.h"

static void push(struct net_conn *c, const char *text)
{
    assert_true(net_push(c, text, strlen(text)));
}

/* Opens a client and finds its connection, by a request that stays kept. */
static struct net_conn *open_kept(struct fixture *f, int *ret_fd)
{
    unsigned before = f->kept_n;
    *ret_fd = client_open(f);
    client_say(f, *ret_fd, "LATER\r\n");
    turn_until(f, f->kept_n == before + 1);
    return f->kept[before]->conn;
}

TEST(version_3_does_not_wait_for_answers)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd;
    struct net_conn *c = open_kept(&f, &fd);
    net_conn_set_proto(c, 3);
    push(c, "+one\r\n");
    push(c, "+two\r\n");
    net_flush(f.server);
    client_hear(&f, fd, "+one\r\n+two\r\n");
    answer_kept(&f, 0, "k");
    push(c, "+three\r\n");
    net_flush(f.server);
    client_hear(&f, fd, "$1\r\nk\r\n+three\r\n");
    client_close(fd);
    fixture_end(&f);
}

static void count_unsent(void *ctx, struct net_conn *c)
{
    unsigned *ret = ctx;
    *ret += net_conn_output_bytes(c) > 0;
}

/* An event for everybody has a share of the turn, and answers go before it. */
TEST(pushes_to_many_take_several_turns)
{
    enum { N = 20 };
    int fds[N];
    struct net_conn *conns[N];
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd;
    struct net_conn *other = open_kept(&f, &fd);
    for (unsigned i = 0; i < N; i++) {
        conns[i] = open_kept(&f, &fds[i]);
        net_conn_set_proto(conns[i], 3);
    }
    for (unsigned i = 0; i < N; i++) {
        push(conns[i], "+event\r\n");
    }
    answer_kept(&f, 0, "last");
    f.server->push_ns = (uint64_t)FLI_TURN_PUSHES_US * 1000; /* it is all but used up */
    net_flush(f.server);
    unsigned unsent = 0;
    net_each_conn(f.server, count_unsent, &unsent);
    assert_int_equal(unsent, N - 1);
    assert_int_equal(net_conn_output_bytes(other), 0);
    answer_kept(&f, N, "mine"); /* who is answered does not wait for the share */
    net_flush(f.server);
    assert_int_equal(net_conn_output_bytes(conns[N - 1]), 0);
    assert_true(net_conn_output_bytes(conns[N - 2]) > 0);
    for (unsigned i = 0; i < N; i++) {
        client_hear(&f, fds[i], "+event\r\n");
        client_close(fds[i]);
    }
    client_hear(&f, fd, "$4\r\nlast\r\n");
    client_close(fd);
    fixture_end(&f);
}

/* Connections end, or are cut off, while their pushes wait for a turn. */
TEST(ends_while_pushes_wait)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fds[3];
    struct net_conn *conns[3];
    for (unsigned i = 0; i < 3; i++) {
        conns[i] = open_kept(&f, &fds[i]);
        net_conn_set_proto(conns[i], 3);
        push(conns[i], "+event\r\n");
    }
    f.server->push_ns = (uint64_t)FLI_TURN_PUSHES_US * 1000 + 1;
    net_flush(f.server);
    net_conn_cut_off(conns[0], "a test", "-LIMIT over\r\n", 13);
    net_conn_doom(conns[1]);
    net_flush(f.server);
    assert_true(net_conn_output_bytes(conns[2]) > 0);
    client_hear(&f, fds[0], "+event\r\n");
    client_expect_end(&f, fds[1]);
    client_hear(&f, fds[2], "+event\r\n");
    for (unsigned i = 0; i < 3; i++) {
        client_close(fds[i]);
    }
    fixture_end(&f);
}

TEST(version_2_keeps_the_order)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd;
    struct net_conn *c = open_kept(&f, &fd);
    push(c, "+one\r\n");
    push(c, "+two\r\n");
    client_say(&f, fd, "ECHO a\r\nLATER\r\n");
    turn_until(&f, f.kept_n == 2);
    push(c, "+three\r\n");
    assert_int_equal(net_conn_output_bytes(c), 6 + 6 + 8 + 7);
    struct net_conn_info info;
    net_conn_info(c, &info);
    assert_int_equal(info.in_flight, 5);
    net_flush(f.server);
    char byte;
    assert_int_equal(client_try(fd, &byte, 1), -1);
    answer_kept(&f, 0, "x");
    net_flush(f.server);
    client_hear(&f, fd, "$1\r\nx\r\n+one\r\n+two\r\n$1\r\na\r\n");
    answer_kept(&f, 1, "y");
    push(c, "+four\r\n");
    net_flush(f.server);
    client_hear(&f, fd, "$1\r\ny\r\n+three\r\n+four\r\n");
    assert_int_equal(net_conn_output_bytes(c), 0);
    client_close(fd);
    fixture_end(&f);
}

/* Pushes that wait behind an answer go with the connection, and are no request to be cancelled. */
TEST(dropped_with_pushes_waiting)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd;
    struct net_conn *c = open_kept(&f, &fd);
    push(c, "+one\r\n");
    client_close(fd);
    turn_until(&f, f.hangups == 1);
    answer_kept(&f, 0, "k");
    turn_until(&f, f.closed == 1);
    assert_int_equal(f.cancelled, 0);
    c = open_kept(&f, &fd);
    push(c, "+one\r\n");
    net_answer_failed(f.kept[1]);
    f.kept[1] = NULL;
    assert_false(net_push(c, "+x\r\n", 4));
    turn_until(&f, f.closed == 2);
    assert_int_equal(f.cancelled, 0);
    client_close(fd);
    fixture_end(&f);
}

TEST(nothing_is_pushed_behind_the_end)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd;
    struct net_conn *c = open_kept(&f, &fd);
    client_say(&f, fd, "DROP\r\n");
    turn_until(&f, f.requests == 2);
    assert_false(net_push(c, "+x\r\n", 4));
    answer_kept(&f, 0, "k");
    client_hear(&f, fd, "$1\r\nk\r\n");
    client_expect_clean_end(&f, fd);
    client_close(fd);
    fixture_end(&f);
}

/* Pushes without end to a client that does not read, until `at` bytes wait here. */
static size_t push_until(struct fixture *f, struct net_conn *c, size_t at)
{
    static char block[1024];
    memset(block, 'x', sizeof block);
    size_t pushed = 0;
    while (net_conn_output_bytes(c) < at) {
        assert_true(net_push(c, block, sizeof block));
        pushed += sizeof block;
        net_flush(f->server);
    }
    return pushed;
}

#define LAST_WORD "-LIMIT the last word\r\n"

/* Reads on until the end; returns how many bytes there were, of which the first ones are kept. */
static size_t read_to_the_end(struct fixture *f, int fd, char *data, size_t size)
{
    char more[4096];
    size_t len = 0;
    uint64_t at = deadline();
    for (;;) {
        long n =
            client_try(fd, len < size ? data + len : more, len < size ? size - len : sizeof more);
        if (n == 0) {
            return len;
        }
        len += n > 0 ? (size_t)n : 0;
        turn(f);
        check_deadline(at, "the end of the connection", __FILE__, __LINE__);
    }
}

/* One that is cut off and reads from then on. Whether it had the time for that which it gets. */
static bool is_cut_off_and_reads(struct fixture *f)
{
    int fd;
    unsigned closed = f->closed;
    struct net_conn *c = open_kept(f, &fd);
    answer_kept(f, f->kept_n - 1, "k");
    client_hear(f, fd, "$1\r\nk\r\n");
    uint64_t began_ms = fli_clock_ms();
    turn(f);
    size_t pushed = push_until(f, c, 100000);
    net_conn_cut_off(c, "the test says so", LAST_WORD, strlen(LAST_WORD));
    net_conn_cut_off(c, "once is enough", LAST_WORD, strlen(LAST_WORD));
    assert_false(net_push(c, "+x\r\n", 4));
    client_say(f, fd, "ECHO not-taken\r\n"); /* unread input must not cost the last word */
    size_t size = pushed + strlen(LAST_WORD);
    char *want = malloc(size);
    char *got = malloc(size);
    memset(want, 'x', pushed);
    memcpy(want + pushed, LAST_WORD, strlen(LAST_WORD));
    size_t len = read_to_the_end(f, fd, got, size);
    bool in_time = fli_clock_ms() - began_ms < NET_LAST_WORD_MS / 2;
    if (in_time) {
        assert_int_equal(len, size);
        assert_memory_equal(got, want, size);
    }
    free(want);
    free(got);
    client_close(fd);
    turn_until(f, f->closed == closed + 1);
    return in_time;
}

TEST(the_last_word_is_heard)
{
    struct fixture f;
    struct net_stats stats;
    unsigned times = 1;
    fixture_start(&f, test_limits());
    for (uint64_t at = deadline(); !is_cut_off_and_reads(&f); times++) {
        check_deadline(at, "a client that is fast enough", __FILE__, __LINE__);
    }
    net_get_stats(f.server, &stats);
    assert_int_equal(stats.cut_off, times);
    assert_int_equal(f.requests, times);
    fixture_end(&f);
}

/* Who never reads is gone after a while, whatever still waits for it. */
TEST(the_last_word_is_not_for_ever)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int silent;
    int owed;
    struct net_conn *c = open_kept(&f, &silent);
    answer_kept(&f, 0, "k");
    (void)push_until(&f, c, 100000);
    net_conn_cut_off(c, "the test says so", LAST_WORD, strlen(LAST_WORD));
    c = open_kept(&f, &owed); /* still waits for an answer */
    push(c, "+one\r\n");
    net_conn_cut_off(c, "the test says so", LAST_WORD, strlen(LAST_WORD));
    turn_until(&f, f.closed == 2);
    assert_int_equal(f.cancelled, 1);
    client_expect_end(&f, silent);
    client_close(silent);
    client_close(owed);
    fixture_end(&f);
}

TEST(no_room_for_the_last_word)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd;
    struct net_conn *c = open_kept(&f, &fd);
    char *big = malloc(f.limits.output_max);
    memset(big, 'x', f.limits.output_max);
    assert_true(net_push(c, big, f.limits.output_max));
    assert_false(net_push(c, big, 1));
    free(big);
    net_conn_cut_off(c, "the test says so", LAST_WORD, strlen(LAST_WORD));
    turn_until(&f, f.closed == 1);
    assert_int_equal(f.cancelled, 1);
    client_expect_end(&f, fd);
    client_close(fd);
    struct net_stats stats;
    net_get_stats(f.server, &stats);
    assert_int_equal(stats.cut_off, 1);
    fixture_end(&f);
}
