/* Strict mode's questions: when the lock service says nothing, and when some are cancelled. */
#include "../../lib/unit.h"

#include "base/clock.h"
#include "store/strict.h"

#define QUESTIONS (2u * STRICT_LATE_MAX + 1u)

static unsigned decided;

static void verdict(void *ctx, struct strict_question *question, enum strict_verdict got)
{
    assert_int_equal(got, STRICT_UNKNOWN);
    assert_ptr_equal(question, (struct strict_question *)ctx + decided); /* in their order */
    decided++;
}

/* All at once, they would keep the loop from everything else. */
TEST(late_questions_are_decided_in_several_turns)
{
    static struct strict_question questions[QUESTIONS];
    struct strict_config config = {.nodes = "127.0.0.1:1", /* nobody listens there */
                                   .timeout_ms = STRICT_TIMEOUT_MIN_MS,
                                   .ctx = questions,
                                   .verdict = verdict};
    struct strict *s = NULL;
    char errmsg[256];
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(strict_create(&loop, &config, &s, errmsg, sizeof errmsg), 0);
    for (unsigned i = 0; i < QUESTIONS; i++) {
        questions[i].lock = (struct fli_slice){(const uint8_t *)"a", 1};
        questions[i].token = 1;
        strict_ask(s, &questions[i]);
    }
    while (fli_clock_ms() < questions[QUESTIONS - 1].due_ms) {
    }
    unsigned turns = 0;
    while (decided < QUESTIONS) {
        unsigned before = decided;
        (void)uv_run(&loop, UV_RUN_ONCE);
        assert_true(decided - before <= STRICT_LATE_MAX);
        turns += decided > before ? 1 : 0;
    }
    assert_int_equal(turns, 3);
    strict_stop(s);
    strict_destroy(s);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* A node of the lock service on the same loop, which answers when the test says so. */
struct node {
    uv_tcp_t listener, conn;
    unsigned accepted, checks, verdicts;
    char text[65536];
    size_t len;
    struct strict_question *last;
    enum strict_verdict got;
};

static void alloc_cb(uv_handle_t *handle, size_t size, uv_buf_t *buf)
{
    struct node *n = handle->data;
    *buf = uv_buf_init(n->text + n->len, (unsigned)(sizeof n->text - n->len));
}

/* Counts the questions, and keeps what comes after them. */
static void read_cb(uv_stream_t *stream, ssize_t len, const uv_buf_t *buf)
{
    static const char check[] = "*3\r\n$5\r\nCHECK\r\n$1\r\na\r\n$1\r\n1\r\n";
    struct node *n = stream->data;
    size_t at = 0;
    if (len < 0) {
        return;
    }
    for (n->len += (size_t)len; n->len - at >= strlen(check); at += strlen(check)) {
        assert_memory_equal(n->text + at, check, strlen(check));
        n->checks++;
    }
    memmove(n->text, n->text + at, n->len - at);
    n->len -= at;
}

static void accept_cb(uv_stream_t *listener, int status)
{
    struct node *n = listener->data;
    assert_int_equal(status, 0);
    assert_int_equal(uv_tcp_init(listener->loop, &n->conn), 0);
    n->conn.data = n;
    assert_int_equal(uv_accept(listener, (uv_stream_t *)&n->conn), 0);
    assert_int_equal(uv_read_start((uv_stream_t *)&n->conn, alloc_cb, read_cb), 0);
    n->accepted++;
}

static void note(void *ctx, struct strict_question *question, enum strict_verdict got)
{
    struct node *n = ctx;
    n->verdicts++;
    n->last = question;
    n->got = got;
}

static void ask(struct strict *s, struct strict_question *q)
{
    q->lock = (struct fli_slice){(const uint8_t *)"a", 1};
    q->token = 1;
    strict_ask(s, q);
}

static void answer(struct node *n, const char *text)
{
    uv_buf_t buf = uv_buf_init((char *)(uintptr_t)text, (unsigned)strlen(text));
    assert_int_equal(uv_try_write((uv_stream_t *)&n->conn, &buf, 1), strlen(text));
}

static void run_until(uv_loop_t *loop, const unsigned *count, unsigned want)
{
    while (*count < want) {
        (void)uv_run(loop, UV_RUN_ONCE);
    }
    assert_int_equal(*count, want);
}

static void assert_verdict(const struct node *n, const struct strict_question *q,
                           enum strict_verdict want)
{
    assert_ptr_equal(n->last, q);
    assert_int_equal(n->got, want);
}

static struct strict *connect_to(struct node *n, uv_loop_t *loop)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    int len = sizeof at;
    char address[64];
    char errmsg[256];
    struct strict *s = NULL;
    n->listener.data = n;
    assert_int_equal(uv_loop_init(loop), 0);
    assert_int_equal(uv_ip4_addr("127.0.0.1", 0, &at), 0);
    assert_int_equal(uv_tcp_init(loop, &n->listener), 0);
    assert_int_equal(uv_tcp_bind(&n->listener, (struct sockaddr *)&at, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&n->listener, 16, accept_cb), 0);
    assert_int_equal(uv_tcp_getsockname(&n->listener, (struct sockaddr *)&at, &len), 0);
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
    struct strict_config config = {
        .nodes = address, .timeout_ms = STRICT_TIMEOUT_MAX_MS, .ctx = n, .verdict = note};
    assert_int_equal(strict_create(loop, &config, &s, errmsg, sizeof errmsg), 0);
    return s;
}

static void disconnect(struct node *n, uv_loop_t *loop, struct strict *s)
{
    strict_stop(s);
    strict_destroy(s);
    uv_close((uv_handle_t *)&n->listener, NULL);
    uv_close((uv_handle_t *)&n->conn, NULL);
    (void)uv_run(loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(loop), 0);
}

/* The answer to a cancelled question is taken for no other one's. */
TEST(some_are_cancelled)
{
    static struct node n;
    struct strict_question q[8];
    uv_loop_t loop;
    struct strict *s = connect_to(&n, &loop);
    for (unsigned i = 0; i < 4; i++) {
        ask(s, &q[i]);
    }
    run_until(&loop, &n.checks, 4);
    strict_cancel(s, &q[0]);
    strict_cancel(s, &q[2]);
    answer(&n, ":0\r\n:1\r\n:0\r\n");
    run_until(&loop, &n.verdicts, 1);
    assert_verdict(&n, &q[1], STRICT_HELD);
    answer(&n, ":1\r\n");
    run_until(&loop, &n.verdicts, 2);
    assert_verdict(&n, &q[3], STRICT_HELD);

    ask(s, &q[4]);
    strict_cancel(s, &q[4]); /* before it was sent */
    ask(s, &q[5]);
    run_until(&loop, &n.checks, 5);
    answer(&n, ":0\r\n");
    run_until(&loop, &n.verdicts, 3);
    assert_verdict(&n, &q[5], STRICT_NOTHELD);

    ask(s, &q[6]);
    ask(s, &q[7]);
    run_until(&loop, &n.checks, 7);
    strict_cancel(s, &q[6]);
    uv_close((uv_handle_t *)&n.conn, NULL); /* the next connection asks for one only */
    run_until(&loop, &n.accepted, 2);
    run_until(&loop, &n.checks, 8);
    answer(&n, ":1\r\n");
    run_until(&loop, &n.verdicts, 4);
    assert_verdict(&n, &q[7], STRICT_HELD);
    assert_int_equal(strict_get_counts(s).unreachable, 0);
    disconnect(&n, &loop, s);
}

/* As many as may be on the wire, all cancelled: the next one is sent when their answers come. */
TEST(a_whole_window_is_cancelled)
{
    static struct node n;
    static struct strict_question q[STRICT_WINDOW + 1];
    uv_loop_t loop;
    struct strict *s = connect_to(&n, &loop);
    for (unsigned round = 0; round < 3; round++) {
        unsigned before = n.checks;
        for (unsigned i = 0; i <= STRICT_WINDOW; i++) {
            ask(s, &q[i]);
        }
        run_until(&loop, &n.checks, before + STRICT_WINDOW);
        for (unsigned i = 0; i < STRICT_WINDOW; i++) {
            strict_cancel(s, &q[i]);
        }
        for (unsigned i = 0; i < STRICT_WINDOW; i++) {
            answer(&n, ":0\r\n");
        }
        run_until(&loop, &n.checks, before + STRICT_WINDOW + 1);
        answer(&n, ":1\r\n");
        run_until(&loop, &n.verdicts, round + 1);
        assert_verdict(&n, &q[STRICT_WINDOW], STRICT_HELD);
    }
    disconnect(&n, &loop, s);
}
