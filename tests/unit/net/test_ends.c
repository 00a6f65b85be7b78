/* test_ends.c: how connections and the server end. */
#include "harness.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "net/conn.h"

TEST(half_closed_client_gets_its_answers)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd = client_open(&f);
    client_say(&f, fd, "ECHO one\r\nLATER\r\nECHO three\r\nhalf a requ");
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    turn_until(&f, f.hangups == 1);
    assert_true(net_conn_eof(f.kept[0]->conn));
    assert_int_equal(f.cancelled, 0);
    answer_kept(&f, 0, "two");
    client_hear(&f, fd, "$3\r\none\r\n$3\r\ntwo\r\n$5\r\nthree\r\n");
    client_expect_end(&f, fd);
    assert_int_equal(f.requests, 3);
    client_close(fd);
    fixture_end(&f);
}

TEST(half_closed_while_paused)
{
    struct net_limits limits = test_limits();
    limits.pipeline_max = 2;
    struct fixture f;
    fixture_start(&f, limits);
    int fd = client_open(&f);
    client_say(&f, fd, "LATER\r\nLATER\r\nLATER\r\nLATER\r\nECHO end\r\n");
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    for (unsigned i = 0; i < 4; i++) {
        turn_until(&f, f.kept_n > i);
        answer_kept(&f, i, "k");
    }
    client_hear(&f, fd, "$1\r\nk\r\n$1\r\nk\r\n$1\r\nk\r\n$1\r\nk\r\n$3\r\nend\r\n");
    client_expect_end(&f, fd);
    client_close(fd);
    fixture_end(&f);
}

TEST(dropped_client_cancels_what_is_unanswered)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd = client_open(&f);
    client_say(&f, fd, "LATER\r\nLATER\r\nLATER\r\n");
    turn_until(&f, f.kept_n == 3);
    answer_kept(&f, 1, "answered, and waits for its turn");
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
    client_close(fd);
    turn_until(&f, f.closed == 1);
    assert_int_equal(f.cancelled, 2);
    assert_null(f.kept[0]);
    assert_null(f.kept[2]);
    fixture_end(&f);
}

enum { EACH = 1000 }; /* requests of a client */

/* Clients, each with as many requests that are not answered. */
static void open_waiting(struct fixture *f, int *fds, unsigned n)
{
    enum { LINE = 7 };
    static char lines[EACH * LINE + 1];
    for (size_t i = 0; i < EACH; i++) {
        memcpy(lines + i * LINE, "LATER\r\n", LINE + 1);
    }
    for (unsigned i = 0; i < n; i++) {
        fds[i] = client_open(f);
        client_say(f, fds[i], lines);
    }
    turn_until(f, f->kept_n == n * EACH);
}

/* Many that end in one moment, with all they may have in flight, end in several turns. */
TEST(many_ends_take_several_turns)
{
    enum { N = 20 };
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    struct net_limits limits = test_limits();
    struct fixture f;
    int fds[N];
    limits.pipeline_max = EACH + 1; /* at the ceiling nothing is read, no end either */
    fixture_start(&f, limits);
    open_waiting(&f, fds, N);
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal(setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
        client_close(fds[i]);
    }
    unsigned turns = 0;
    while (f.closed < N) {
        unsigned before = f.cancelled;
        turn(&f);
        assert_true(f.cancelled - before < NET_REAPED_TURN + EACH);
        turns += f.cancelled > before;
    }
    assert_int_equal(f.cancelled, N * EACH);
    assert_true(turns > N * EACH / (NET_REAPED_TURN + EACH));
    fixture_end(&f);
}

static void set_true(void *ctx)
{
    *(bool *)ctx = true;
}

/* Connections with little in flight cost as much to end: here all are doomed in one moment. */
TEST(many_small_ends_take_several_turns)
{
    enum { N = 1500 };
    static int fds[N];
    struct fixture f;
    struct rlimit files;
    bool stopped = false;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max < 65536 ? files.rlim_max : 65536;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    fixture_start(&f, test_limits());
    for (unsigned i = 0; i < N; i++) {
        fds[i] = client_open(&f);
        client_say(&f, fds[i], "LATER\r\n");
        turn_until(&f, f.kept_n == i + 1);
    }
    net_server_stop(f.server, 1, set_true, &stopped);
    while (f.cancelled < N) {
        unsigned before = f.cancelled;
        turn(&f);
        assert_true(f.cancelled - before < N / 2);
    }
    turn_until(&f, stopped);
    for (unsigned i = 0; i < N; i++) {
        client_close(fds[i]);
    }
    net_server_destroy(f.server);
    assert_int_equal(uv_loop_close(&f.loop), 0);
}

/* Clients that hang up in one moment: the service hears of what they have in flight in several
 * turns, and of each once. */
TEST(many_hangups_take_several_turns)
{
    enum { N = 20 };
    struct net_limits limits = test_limits();
    struct fixture f;
    int fds[N];
    unsigned turns = 0;
    limits.pipeline_max = EACH + 1; /* at the ceiling nothing is read, no end either */
    fixture_start(&f, limits);
    open_waiting(&f, fds, N);
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal(shutdown(fds[i], SHUT_WR), 0);
    }
    while (f.hangups < N * EACH) {
        unsigned before = f.hangups;
        turn(&f);
        assert_true(f.hangups - before < NET_HUNG_TURN + EACH);
        turns += f.hangups > before;
    }
    assert_true(turns > N * EACH / (NET_HUNG_TURN + EACH));
    assert_int_equal(f.closed, 0);
    for (unsigned i = 0; i < f.kept_n; i++) {
        answer_kept(&f, i, "x");
    }
    turn_until(&f, f.closed == N);
    assert_int_equal(f.hangups, N * EACH);
    assert_int_equal(f.cancelled, 0);
    for (unsigned i = 0; i < N; i++) {
        client_close(fds[i]);
    }
    fixture_end(&f);
}

/* It hangs up, and is gone before the service was told. */
TEST(gone_while_its_hangup_waits)
{
    enum { N = 5 };
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    struct net_limits limits = test_limits();
    struct fixture f;
    int fds[N];
    limits.pipeline_max = EACH + 1; /* at the ceiling nothing is read, no end either */
    limits.unread_ms = 0;
    fixture_start(&f, limits);
    open_waiting(&f, fds, N);
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal(shutdown(fds[i], SHUT_WR), 0);
    }
    turn_until(&f, f.hangups > 0);
    assert_true(f.hangups < N * EACH);
    unsigned failed = 0;
    for (unsigned i = 0; i < f.kept_n; i++) { /* the first of each has no room for its answer */
        struct net_request *r = f.kept[i];
        if (!r->conn->doomed) {
            f.kept[i] = NULL;
            net_answer_failed(r);
            failed++;
        }
    }
    assert_int_equal(failed, N);
    turn_until(&f, f.closed == N);
    assert_int_equal(f.cancelled, N * EACH - N);
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal(setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
        client_close(fds[i]);
    }
    fixture_end(&f);
}

TEST(answers_to_a_doomed_connection_go_nowhere)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd = client_open(&f);
    client_say(&f, fd, "LATER\r\nLATER\r\nLATER\r\n");
    turn_until(&f, f.kept_n == 3);
    struct net_request *r = f.kept[0];
    f.kept[0] = NULL;
    net_answer_failed(r);
    /* Doomed and not yet reaped: the others may still be answered. */
    answer_kept(&f, 2, "x");
    assert_int_equal(f.cancelled, 0);
    turn_until(&f, f.closed == 1);
    assert_int_equal(f.cancelled, 1);
    client_expect_end(&f, fd);
    client_close(fd);
    fixture_end(&f);
}

TEST(failed_answer_closes)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd = client_open(&f);
    client_say(&f, fd, "ECHO a\r\nFAIL\r\nECHO b\r\n");
    client_expect_end(&f, fd);
    turn_until(&f, f.closed == 1);
    client_close(fd);
    fixture_end(&f);
}

TEST(close_after_answers)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd = client_open(&f);
    client_say(&f, fd, "LATER\r\nDROP\r\nECHO never\r\n");
    turn_until(&f, f.kept_n == 1);
    for (int i = 0; i < 20; i++) {
        turn(&f);
    }
    answer_kept(&f, 0, "first");
    client_hear(&f, fd, "$5\r\nfirst\r\n$3\r\nbye\r\n");
    client_expect_end(&f, fd);
    assert_int_equal(f.requests, 2);
    client_close(fd);
    turn_until(&f, f.closed == 1);
    fixture_end(&f);
}

/* One that is told to go, and never closes. Whether it was looked at soon enough. */
static bool never_closes(struct fixture *f)
{
    unsigned before = f->closed;
    int fd = client_open(f);
    uint64_t began_ms = fli_clock_ms();
    client_say(f, fd, "DROP\r\n");
    client_hear(f, fd, "$3\r\nbye\r\n");
    client_expect_clean_end(f, fd);
    bool in_time = fli_clock_ms() - began_ms < NET_LINGER_MS / 2;
    if (in_time) {
        assert_int_equal(f->closed, before);
    }
    turn_until(f, f->closed == before + 1);
    client_close(fd);
    return in_time;
}

/* A client that never closes is waited for, but not for ever. */
TEST(lingering_ends)
{
    struct fixture f;
    uint64_t at = deadline();
    fixture_start(&f, test_limits());
    while (!never_closes(&f)) {
        check_deadline(at, "half a linger time without a pause", __FILE__, __LINE__);
    }
    fixture_end(&f);
}

/* A client that was heard before its time to speak was over: it is, when this process stands still
 * between two turns of the loop. */
static int open_and_be_heard(struct fixture *f)
{
    uint64_t at = deadline();
    for (;;) {
        char answer[7];
        long n;
        int fd = client_open(f);
        client_say(f, fd, "ECHO x\r\n");
        while ((n = client_try(fd, answer, sizeof answer)) < 0) {
            turn(f);
            check_deadline(at, "an answer, or an end", __FILE__, __LINE__);
        }
        if (n > 0) {
            assert_int_equal(n, sizeof answer);
            assert_memory_equal(answer, "$1\r\nx\r\n", sizeof answer);
            return fd;
        }
        client_close(fd);
    }
}

TEST(silent_connection_is_closed)
{
    struct net_limits limits = test_limits();
    limits.idle_first_ms = 150;
    struct fixture f;
    fixture_start(&f, limits);
    int spoke = open_and_be_heard(&f);
    int silent = client_open(&f);
    client_say(&f, silent, "*1\r\n$4\r\nPI");
    client_expect_end(&f, silent);
    client_say(&f, spoke, "ECHO y\r\n");
    client_hear(&f, spoke, "$1\r\ny\r\n");
    client_close(silent);
    client_close(spoke);
    fixture_end(&f);
}

TEST(stop_gives_the_answers_owed)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int owed = client_open(&f);
    int idle = client_open(&f);
    client_say(&f, owed, "LATER\r\n");
    client_say(&f, idle, "ECHO x\r\n");
    client_hear(&f, idle, "$1\r\nx\r\n");
    turn_until(&f, f.kept_n == 1);
    bool stopped = false;
    net_server_stop(f.server, 60000, set_true, &stopped);
    client_expect_end(&f, idle);
    assert_false(stopped);
    client_say(&f, owed, "ECHO too late\r\n");
    answer_kept(&f, 0, "in time");
    client_hear(&f, owed, "$7\r\nin time\r\n");
    client_expect_end(&f, owed);
    client_close(owed);
    client_close(idle);
    turn_until(&f, stopped);
    assert_int_equal(f.requests, 2);
    net_server_destroy(f.server);
    assert_int_equal(uv_loop_close(&f.loop), 0);
}

TEST(stop_does_not_wait_for_ever)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    int fd = client_open(&f);
    client_say(&f, fd, "LATER\r\n");
    turn_until(&f, f.kept_n == 1);
    bool stopped = false;
    net_server_stop(f.server, 200, set_true, &stopped);
    turn_until(&f, stopped);
    assert_int_equal(f.cancelled, 1);
    client_expect_end(&f, fd);
    client_close(fd);
    net_server_destroy(f.server);
    assert_int_equal(uv_loop_close(&f.loop), 0);
}

TEST(listening_says_what_is_wrong)
{
    struct fixture f;
    fixture_start(&f, test_limits());
    char errmsg[256];
    char taken[64];
    (void)snprintf(taken, sizeof taken, "127.0.0.1:%u", (unsigned)f.port);
    assert_int_equal(net_server_listen(f.server, taken, errmsg, sizeof errmsg), FL_ESYSTEM);
    assert_non_null(strstr(errmsg, "address already in use"));
    assert_non_null(strstr(errmsg, taken));
    assert_int_equal(net_server_listen(f.server, "nonsense", errmsg, sizeof errmsg), FL_EINVAL);
    assert_non_null(strstr(errmsg, "HOST:PORT"));
    assert_int_equal(net_server_listen(f.server, "127.0.0.1:65536", errmsg, sizeof errmsg),
                     FL_EINVAL);
    assert_int_equal(net_server_listen(f.server, "localhost:0", errmsg, sizeof errmsg), 0);
    assert_int_equal(net_server_port(f.server), f.port);
    fixture_end(&f);
}

TEST(limits_of_nothing_are_refused)
{
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    struct net_limits limits = test_limits();
    limits.pipeline_max = 0;
    struct net_callbacks cbs = {0};
    struct net_server *server = NULL;
    assert_int_equal(net_server_create(&loop, &limits, 0, &cbs, &server), FL_EINVAL);
    assert_null(server);
    net_server_destroy(NULL);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* Its answers are few enough, yet it takes no byte of them for longer than it may. One that reads
 * stays. */
TEST(client_that_takes_nothing_is_cut_off_in_time)
{
    struct fixture f;
    struct net_limits limits = test_limits();
    limits.unread_ms = 300;
    fixture_start(&f, limits);
    int other = client_open(&f);
    int fd = client_open(&f);
    client_set_window(fd, 4096);
    struct net_stats stats = {0};
    turn_until(&f, f.opened == 2);
    uint64_t began_ms = fli_clock_ms();
    for (uint64_t at = deadline(); net_connections(f.server) == 2;) {
        while (output_bytes(&f) < f.limits.output_max / 4 && net_connections(f.server) == 2) {
            client_say(&f, fd, "BIG 32768\r\n"); /* as much as the kernel takes, and some */
            turn(&f);
        }
        client_say(&f, other, "ECHO read\r\n");
        client_hear(&f, other, "$4\r\nread\r\n");
        turn(&f);
        check_deadline(at, "its end", __FILE__, __LINE__);
    }
    assert_true(fli_clock_ms() - began_ms >= limits.unread_ms);
    net_get_stats(f.server, &stats);
    assert_int_equal(stats.cut_off, 1);
    client_expect_end(&f, fd);
    client_expect_served(&f, other);
    client_close(fd);
    client_close(other);
    fixture_end(&f);
}
