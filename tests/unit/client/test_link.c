/* A packet that asks for a connection and is lost is sent again soon. It is lost here because the
 * queue of a listening socket is full, which the kernel treats as a network that drops it. */
#include "../../lib/unit.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/nodes.h"
#include "../../lib/link_wait.h"

#define FILL 8 /* more than the queue takes */
#define LATE_MS 100000u

static int listener;
static struct sockaddr_in address;
static int queued[FILL];

static bool is_there(int fd, int wait_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, wait_ms) == 1;
}

/* Connections until one is not answered. */
static int fill(void **state)
{
    socklen_t len = sizeof address;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    memset(queued, -1, sizeof queued);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 0) != 0 || getsockname(listener, (struct sockaddr *)&address, &len) != 0) {
        return -1;
    }
    for (int i = 0; i < FILL; i++) {
        queued[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(queued[i], (struct sockaddr *)&address, sizeof address);
        if (!is_there(queued[i], 300)) {
            return 0;
        }
    }
    return -1;
}

/* Makes room: those that ask from now on are answered. */
static void drain(void)
{
    for (int i = 0; i < FILL; i++) {
        if (queued[i] >= 0) {
            close(queued[i]);
            queued[i] = -1;
        }
    }
    struct pollfd p = {.fd = listener, .events = POLLIN};
    while (poll(&p, 1, 0) == 1 && (p.revents & POLLIN) != 0) {
        close(accept(listener, NULL, NULL));
    }
}

static int empty(void **state)
{
    drain();
    close(listener);
    return 0;
}

static void asks_again_until(struct fli_link *l, unsigned times)
{
    uint64_t until_ms = fli_clock_ms() + LATE_MS;
    for (unsigned n = 0; n < times;) {
        uint64_t before_ms = l->again_ms;
        assert_int_equal(fli_link_finish(l), FL_EBUSY);
        n += l->again_ms != before_ms ? 1 : 0;
        assert_true(fli_clock_ms() < until_ms);
        (void)poll(NULL, 0, 1);
    }
}

TEST_WITH(in_steps, fill, empty)
{
    struct fli_link l;
    fli_link_init(&l);
    assert_int_equal(fli_link_begin(&l, NULL, "", (struct sockaddr *)&address, sizeof address), 0);
    int first = l.fd;
    asks_again_until(&l, 1);
    assert_int_equal(l.first_fd, first); /* its answer may only be slow */
    assert_int_not_equal(l.fd, first);
    asks_again_until(&l, 2);
    assert_int_equal(l.first_fd, first);
    drain();
    uint64_t began_ms = fli_clock_ms();
    int rc;
    while ((rc = fli_link_finish(&l)) == FL_EBUSY && fli_clock_ms() - began_ms < LATE_MS) {
        (void)poll(NULL, 0, 1);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(l.first_fd, -1);
    assert_true(l.again_ms == UINT64_MAX);
    printf("connected %u ms after there was room\n", (unsigned)(fli_clock_ms() - began_ms));
    fli_link_close(&l);
}

TEST_WITH(nobody_answers, fill, empty)
{
    struct fli_link l;
    struct fli_node node;
    char text[32];
    char errmsg[128];
    snprintf(text, sizeof text, "127.0.0.1:%u", ntohs(address.sin_port));
    assert_int_equal(fli_node_parse(text, strlen(text), &node, errmsg, sizeof errmsg), 0);
    fli_link_init(&l);
    assert_int_equal(link_open(&l, NULL, &node, fli_clock_ms() + 500), FL_ENOCONN);
    assert_int_equal(l.fd, -1);
    assert_int_equal(l.first_fd, -1);
    assert_string_equal(l.error, "cannot connect: no answer in time");
}

TEST_WITH(nobody_listens, fill, empty)
{
    struct fli_link l;
    drain();
    close(listener);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* for empty() */
    fli_link_init(&l);
    int rc = fli_link_begin(&l, NULL, "", (struct sockaddr *)&address, sizeof address);
    while (rc == 0 && (rc = fli_link_finish(&l)) == FL_EBUSY) {
        (void)poll(NULL, 0, 1);
        rc = 0;
    }
    assert_int_equal(rc, FL_ENOCONN);
    fli_link_close(&l);
}

/* A connection whose other end has sent, and goes on sending, a line that never ends. */
static int begin_endless(struct fli_link *l)
{
    static const char start[] = "+a";
    int both[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both), 0);
    l->fd = both[0];
    l->reader = redisReaderCreate();
    l->ready = true;
    assert_non_null(l->reader);
    assert_int_equal(write(both[1], start, sizeof start - 1), sizeof start - 1);
    return both[1];
}

/* As much as the kernel takes. */
static size_t send_more(int fd)
{
    static const char more[4096] = {[0 ... 4095] = 'a'};
    size_t sent = 0;
    for (ssize_t n; (n = write(fd, more, sizeof more)) > 0;) {
        sent += (size_t)n;
    }
    return sent;
}

/* Who never stops sending is read piece by piece, so that whoever reads sees its deadline. */
TEST(one_read_after_the_deadline)
{
    struct fli_link l;
    redisReply *reply = NULL;
    fli_link_init(&l);
    int other = begin_endless(&l);
    size_t sent = 2 + send_more(other);
    assert_true(sent > 65536);
    assert_int_equal(fli_link_read(&l), 1);
    assert_in_range(l.fed, 1, 16384); /* and not all that is there */
    assert_int_equal(fli_link_next(&l, &reply), 0);
    assert_int_equal(fli_link_read(&l), 1);
    assert_in_range(l.fed, 2, 2 * 16384);
    assert_null(reply);
    fli_link_close(&l);
    close(other);
}

/* ---- answers of a server that means harm ---- */

/* A connection, and the descriptor of its other end. */
static int reach(struct fli_link *l)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    struct fli_node node = {.host = "127.0.0.1"};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    snprintf(node.port, sizeof node.port, "%u", ntohs(at.sin_port));
    fli_link_init(l);
    assert_int_equal(link_open(l, NULL, &node, fli_clock_ms() + LATE_MS), 0);
    int other = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_true(other >= 0);
    close(fd);
    return other;
}

/* What becomes of an answer that comes as fast as it is read: 0; FL_EPROTO; FL_ETIMEOUT: more is
 * waited for. */
static int outcome(struct fli_link *l, int other, const char *bytes, size_t len)
{
    redisReply *reply = NULL;
    int rc = 0;
    bool more = true;
    for (size_t at = 0; rc == 0 && (at < len || more);) {
        ssize_t n = send(other, bytes + at, len - at, MSG_NOSIGNAL);
        at += n > 0 ? (size_t)n : 0;
        size_t fed = l->fed;
        rc = fli_link_read(l);
        rc = rc < 0 ? rc : fli_link_next(l, &reply);
        more = l->fed != fed;
    }
    freeReplyObject(reply);
    return rc == 1 ? 0 : rc == 0 ? FL_ETIMEOUT : rc;
}

static void put(struct fli_buf *b, const char *text, size_t times)
{
    for (size_t i = 0; i < times; i++) {
        assert_int_equal(fli_buf_append(b, text, strlen(text)), 0);
    }
}

/* Arrays of 65536 numbers, one behind the other in an array. */
static int outcome_of_arrays(struct fli_link *l, int other, unsigned n)
{
    struct fli_buf b;
    char head[16];
    fli_buf_init(&b, 4 << 20);
    snprintf(head, sizeof head, "*%u\r\n", n);
    put(&b, head, 1);
    for (unsigned i = 0; i < n; i++) {
        put(&b, "*65536\r\n", 1);
        put(&b, ":1\r\n", 65536);
    }
    int rc = outcome(l, other, (const char *)b.data, b.len);
    fli_buf_fini(&b);
    return rc;
}

TEST(the_elements_of_all_arrays_are_counted)
{
    struct fli_link l;
    int other = reach(&l);
    assert_int_equal(outcome_of_arrays(&l, other, 3), 0);
    assert_int_equal(outcome_of_arrays(&l, other, 3), 0); /* each answer has its own count */
    assert_int_equal(outcome_of_arrays(&l, other, 4), FL_EPROTO);
    fli_link_close(&l);
    close(other);
}

/* Since 1.0, hiredis itself has no limit, and frees such an answer by recursion. */
TEST(arrays_in_one_another)
{
    for (unsigned deeper = 0; deeper < 2; deeper++) {
        struct fli_link l;
        struct fli_buf b;
        int other = reach(&l);
        fli_buf_init(&b, 4 << 20);
        put(&b, "*1\r\n", FLI_REPLY_DEPTH_MAX + deeper);
        put(&b, ":1\r\n", 1);
        assert_int_equal(outcome(&l, other, (const char *)b.data, b.len),
                         deeper == 0 ? 0 : FL_EPROTO);
        fli_buf_fini(&b);
        fli_link_close(&l);
        close(other);
    }
}

TEST(a_line_that_does_not_end)
{
    struct fli_link l;
    struct fli_buf b;
    int other = reach(&l);
    fli_buf_init(&b, 4 << 20);
    put(&b, "+", 1);
    put(&b, "a", FLI_REPLY_LINE_MAX - 2);
    put(&b, "\r\n", 1);
    assert_int_equal(outcome(&l, other, (const char *)b.data, b.len), 0);
    fli_buf_clear(&b);
    put(&b, "$1000000\r\n", 1); /* no line */
    put(&b, "a", 1000000);
    put(&b, "\r\n", 1);
    assert_int_equal(outcome(&l, other, (const char *)b.data, b.len), 0);
    fli_buf_clear(&b);
    put(&b, "+", 1);
    put(&b, "a", 4 * FLI_REPLY_LINE_MAX);
    assert_int_equal(outcome(&l, other, (const char *)b.data, b.len), FL_EPROTO);
    fli_buf_fini(&b);
    fli_link_close(&l);
    close(other);
}
