/* The peer port: who is let in, who is refused, and what strangers cost. Two transports and plain
 * sockets on one loop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "consensus/hello.h"
#include "consensus/transport.h"
#include "ports.h"

#define PATIENCE_MS 60000u

struct side {
    struct fixture *f;
    uint64_t id;
    struct transport *t;
    struct transport_identity self;
    bool refuse; /* the judge says no */
    unsigned accepted, linked, answered, closed;
    uint64_t accepted_id;
    char accepted_address[MEMBER_ADDRESS_MAX];
    uv_stream_t *stream; /* the last that was accepted or linked */
    enum transport_verdict verdict;
    char reason[TRANSPORT_REASON_MAX];
    struct transport_identity peer;
    unsigned absent, hung_up;
    uint64_t absent_id, hung_up_id;
};

struct fixture {
    uv_loop_t loop;
    struct members members;
    uint16_t ports[3];
    int reserved[3];
    struct side a, b; /* nodes 1 and 2; 3 is never up */
    struct raft_uv_connect req;
    unsigned connected;
    int status;
    uv_stream_t *stream; /* from a connect */
    char errmsg[512];
};

/* ---- helpers ---- */

static int plain_listener(uint16_t *ret_port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    *ret_port = ntohs(addr.sin_port);
    return fd;
}

static int plain_connect(uint16_t port)
{
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    return fd;
}

/* Runs the loop until the condition holds. */
#define RUN_UNTIL(f, condition)                                                                    \
    do {                                                                                           \
        uv_timer_t limit_;                                                                         \
        bool late_ = false;                                                                        \
        limit_.data = &late_;                                                                      \
        uv_update_time(&(f)->loop);                                                                \
        uv_timer_init(&(f)->loop, &limit_);                                                        \
        uv_timer_start(&limit_, late_cb, PATIENCE_MS, 0);                                          \
        while (!(condition) && !late_) {                                                           \
            uv_run(&(f)->loop, UV_RUN_ONCE);                                                       \
        }                                                                                          \
        uv_close((uv_handle_t *)&limit_, NULL);                                                    \
        uv_run(&(f)->loop, UV_RUN_NOWAIT);                                                         \
        if (!(condition)) {                                                                        \
            fail_msg("never came: %s", #condition);                                                \
        }                                                                                          \
    } while (0)

static void late_cb(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
}

/* Bytes that have arrived so far; -1 end of stream, -2 reset. */
static ssize_t peek(int fd)
{
    char byte[2 * HELLO_SIZE];
    ssize_t n = recv(fd, byte, sizeof byte, MSG_DONTWAIT | MSG_PEEK);
    if (n == 0) {
        return -1;
    }
    return n > 0 ? n : errno == EAGAIN ? 0 : -2;
}

static void close_stream(uv_stream_t *stream)
{
    if (stream != NULL) {
        uv_close((uv_handle_t *)stream, (uv_close_cb)raft_free);
    }
}

/* ---- the transport's callbacks ---- */

static enum transport_verdict judge_cb(void *ctx, const struct transport_identity *peer,
                                       char reason[TRANSPORT_REASON_MAX])
{
    struct side *s = ctx;
    s->peer = *peer;
    if (s->refuse) {
        snprintf(reason, TRANSPORT_REASON_MAX, "no: %llu", (unsigned long long)peer->incarnation);
        return TRANSPORT_OTHER_LIFE;
    }
    return TRANSPORT_WELCOME;
}

static void link_cb(void *ctx, const struct transport_identity *peer, uv_stream_t *stream)
{
    struct side *s = ctx;
    s->linked++;
    s->peer = *peer;
    close_stream(s->stream);
    s->stream = stream;
}

static void answered_cb(void *ctx, uint64_t peer_id, enum transport_verdict verdict,
                        const char *reason)
{
    struct side *s = ctx;
    s->answered++;
    s->verdict = verdict;
    snprintf(s->reason, sizeof s->reason, "%s", reason);
}

static void absent_cb(void *ctx, uint64_t peer_id)
{
    struct side *s = ctx;
    s->absent++;
    s->absent_id = peer_id;
}

static void hung_up_cb(void *ctx, uint64_t peer_id)
{
    struct side *s = ctx;
    s->hung_up++;
    s->hung_up_id = peer_id;
}

static struct side *side_of(struct raft_uv_transport *raft)
{
    return raft->data;
}

static void accept_cb(struct raft_uv_transport *raft, raft_id id, const char *address,
                      struct uv_stream_s *stream)
{
    struct side *s = side_of(raft);
    s->accepted++;
    s->accepted_id = id;
    snprintf(s->accepted_address, sizeof s->accepted_address, "%s", address);
    close_stream(s->stream);
    s->stream = stream;
}

static void closed_cb(struct raft_uv_transport *raft)
{
    side_of(raft)->closed++;
}

static void connect_cb(struct raft_uv_connect *req, struct uv_stream_s *stream, int status)
{
    struct fixture *f = req->data;
    f->connected++;
    f->status = status;
    f->stream = stream;
}

static void linked_cb(void *ctx, int status, const struct transport_identity *peer,
                      uv_stream_t *stream)
{
    struct fixture *f = ctx;
    f->connected++;
    f->status = status;
    f->stream = stream;
    if (status == 0) {
        assert_int_equal(peer->node_id, 2);
    }
}

static void side_start(struct fixture *f, struct side *s, uint64_t id)
{
    struct transport_callbacks cbs = {.ctx = s,
                                      .judge = judge_cb,
                                      .link = link_cb,
                                      .answered = answered_cb,
                                      .absent = absent_cb,
                                      .hung_up = hung_up_cb};
    memset(s, 0, sizeof *s);
    s->f = f;
    s->id = id;
    s->self.node_id = id;
    s->self.incarnation = 1000 + id;
    s->self.cluster_id = 7;
    s->self.members_crc = 42;
    snprintf(s->self.client_address, sizeof s->self.client_address, "client-%d:1", (int)id);
    assert_int_equal(transport_create(&f->loop, f->members.list[id - 1].address, &f->members,
                                      &s->self, &cbs, &s->t, f->errmsg, sizeof f->errmsg),
                     0);
    assert_int_equal(transport_port(s->t), f->ports[id - 1]);
    struct raft_uv_transport *raft = transport_raft(s->t);
    assert_int_equal(raft->init(raft, id, f->members.list[id - 1].address), 0);
    raft->data = s;
    assert_int_equal(raft->listen(raft, accept_cb), 0);
}

static int set_up(void **state)
{
    struct fixture *f = test_calloc(1, sizeof *f);
    char text[256];
    uv_loop_init(&f->loop);
    for (unsigned i = 0; i < 3; i++) {
        f->reserved[i] = port_reserve(&f->ports[i]);
    }
    snprintf(text, sizeof text, "1=127.0.0.1:%u,2=127.0.0.1:%u,3=127.0.0.1:%u", f->ports[0],
             f->ports[1], f->ports[2]);
    assert_int_equal(members_parse(text, &f->members, f->errmsg, sizeof f->errmsg), 0);
    f->req.data = f;
    side_start(f, &f->a, 1);
    side_start(f, &f->b, 2);
    *state = f;
    return 0;
}

static void side_stop(struct fixture *f, struct side *s)
{
    if (s->t == NULL) {
        return;
    }
    struct raft_uv_transport *raft = transport_raft(s->t);
    raft->close(raft, closed_cb);
    RUN_UNTIL(f, s->closed == 1);
    transport_destroy(s->t);
    close_stream(s->stream);
    s->stream = NULL;
    s->t = NULL;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    side_stop(f, &f->a);
    side_stop(f, &f->b);
    close_stream(f->stream);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    for (unsigned i = 0; i < 3; i++) {
        close(f->reserved[i]);
    }
    test_free(f);
    return 0;
}

/* ---- strangers ---- */

/* A hello as node 1 would say it to node 2. */
static struct hello good(const struct fixture *f)
{
    struct hello h;
    memset(&h, 0, sizeof h);
    h.kind = HELLO_RAFT;
    h.target = 2;
    h.from = f->a.self;
    return h;
}

static void say(int fd, const struct hello *h)
{
    uint8_t bytes[HELLO_SIZE];
    hello_encode(h, bytes);
    assert_int_equal(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL), (int)sizeof bytes);
}

static void test_garbage(void **state)
{
    struct fixture *f = *state;
    uint8_t bytes[4096];
    int fd = plain_connect(f->ports[1]);
    memset(bytes, 0xa5, sizeof bytes);
    assert_int_equal(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL), (int)sizeof bytes);
    RUN_UNTIL(f, peek(fd) < 0);
    assert_int_equal(f->b.accepted + f->b.linked, 0);
    assert_int_equal(transport_pending(f->b.t), 0);
    close(fd);
}

static void test_hangs_up_half_way(void **state)
{
    struct fixture *f = *state;
    int fd = plain_connect(f->ports[1]);
    assert_int_equal(send(fd, "fencelok", 8, MSG_NOSIGNAL), 8);
    RUN_UNTIL(f, transport_pending(f->b.t) == 1);
    close(fd);
    RUN_UNTIL(f, transport_pending(f->b.t) == 0);
}

static void test_silent(void **state)
{
    struct fixture *f = *state;
    int fd = plain_connect(f->ports[1]);
    RUN_UNTIL(f, transport_pending(f->b.t) == 1);
    RUN_UNTIL(f, peek(fd) == -1);
    assert_int_equal(transport_pending(f->b.t), 0);
    close(fd);
}

/* One more than the most: the oldest goes, and a real peer is still heard. */
static void test_many_silent(void **state)
{
    struct fixture *f = *state;
    int fds[TRANSPORT_PENDING_MAX + 1];
    struct hello h = good(f);
    for (unsigned i = 0; i < TRANSPORT_PENDING_MAX; i++) {
        fds[i] = plain_connect(f->ports[1]);
        RUN_UNTIL(f, transport_pending(f->b.t) == i + 1);
    }
    assert_int_equal(peek(fds[0]), 0);
    fds[TRANSPORT_PENDING_MAX] = plain_connect(f->ports[1]);
    RUN_UNTIL(f, peek(fds[0]) == -1);
    assert_int_equal(transport_pending(f->b.t), TRANSPORT_PENDING_MAX);
    assert_int_equal(peek(fds[1]), 0);
    int fd = plain_connect(f->ports[1]);
    say(fd, &h);
    RUN_UNTIL(f, f->b.accepted == 1);
    close(fd);
    for (unsigned i = 0; i <= TRANSPORT_PENDING_MAX; i++) {
        close(fds[i]);
    }
}

/* ---- hellos ---- */

static void alloc_cb(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    *buf = uv_buf_init(handle->data, 8);
}

static void read_cb(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    char *data = stream->data;
    if (nread > 0) {
        data[8] = (char)nread;
        uv_read_stop(stream);
    }
}

/* What comes right behind the hello belongs to whoever gets the stream. */
static void test_nothing_is_read_past_the_hello(void **state)
{
    struct fixture *f = *state;
    struct hello h = good(f);
    uint8_t bytes[HELLO_SIZE + 3];
    char data[9] = {0};
    int fd = plain_connect(f->ports[1]);
    hello_encode(&h, bytes);
    memcpy(bytes + HELLO_SIZE, "abc", 3);
    assert_int_equal(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL), (int)sizeof bytes);
    RUN_UNTIL(f, f->b.accepted == 1);
    assert_int_equal(f->b.accepted_id, 1);
    assert_string_equal(f->b.accepted_address, f->members.list[0].address);
    assert_string_equal(f->b.peer.client_address, "client-1:1");
    f->b.stream->data = data;
    assert_int_equal(uv_read_start(f->b.stream, alloc_cb, read_cb), 0);
    RUN_UNTIL(f, data[8] != 0);
    assert_int_equal(data[8], 3);
    assert_memory_equal(data, "abc", 3);
    close(fd);
}

/* In pieces of one byte. */
static void test_slow_hello(void **state)
{
    struct fixture *f = *state;
    struct hello h = good(f);
    uint8_t bytes[HELLO_SIZE];
    int fd = plain_connect(f->ports[1]);
    hello_encode(&h, bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        assert_int_equal(f->b.accepted, 0);
        assert_int_equal(send(fd, bytes + i, 1, MSG_NOSIGNAL), 1);
        uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    RUN_UNTIL(f, f->b.accepted == 1);
    close(fd);
}

static void read_answer(struct fixture *f, int fd, struct hello *ret)
{
    uint8_t bytes[HELLO_SIZE];
    RUN_UNTIL(f, peek(fd) == (ssize_t)HELLO_SIZE || peek(fd) < 0);
    assert_int_equal(recv(fd, bytes, sizeof bytes, MSG_DONTWAIT), (int)sizeof bytes);
    assert_int_equal(hello_decode(bytes, ret), 0);
}

static void test_welcome_answer(void **state)
{
    struct fixture *f = *state;
    struct hello h = good(f);
    struct hello answer;
    int fd = plain_connect(f->ports[1]);
    h.kind = HELLO_LINK;
    say(fd, &h);
    read_answer(f, fd, &answer);
    assert_int_equal(answer.verdict, TRANSPORT_WELCOME);
    assert_int_equal(answer.kind, HELLO_LINK);
    assert_int_equal(answer.target, 1);
    assert_memory_equal(&answer.from, &f->b.self, sizeof answer.from);
    assert_int_equal(f->b.linked, 1);
    assert_int_equal(f->b.accepted, 0);
    close(fd);
}

static void expect_refusal(struct fixture *f, const struct hello *h, enum transport_verdict verdict,
                           const char *reason)
{
    struct hello answer;
    int fd = plain_connect(f->ports[1]);
    say(fd, h);
    read_answer(f, fd, &answer);
    assert_int_equal(answer.verdict, verdict);
    if (strstr(answer.reason, reason) == NULL) {
        fail_msg("'%s' is not in '%s'", reason, answer.reason);
    }
    RUN_UNTIL(f, peek(fd) == -1);
    assert_int_equal(f->b.accepted + f->b.linked, 0);
    close(fd);
}

static void test_refusals(void **state)
{
    struct fixture *f = *state;
    struct hello h = good(f);
    h.from.cluster_id = 8;
    expect_refusal(f, &h, TRANSPORT_OTHER_CLUSTER, "belongs to cluster 0000000000000007");
    h = good(f);
    h.from.members_crc = 43;
    expect_refusal(f, &h, TRANSPORT_OTHER_MEMBERS, "different members");
    h = good(f);
    h.target = 3;
    expect_refusal(f, &h, TRANSPORT_STRANGER, "node 3 was called, but this is node 2");
    h = good(f);
    h.from.node_id = 4;
    expect_refusal(f, &h, TRANSPORT_STRANGER, "node 4 is not another member");
    h = good(f);
    h.from.node_id = 2;
    expect_refusal(f, &h, TRANSPORT_STRANGER, "node 2 is not another member");
    h = good(f);
    f->b.refuse = true;
    expect_refusal(f, &h, TRANSPORT_OTHER_LIFE, "no: 1001");
}

/* A node that has not learned its cluster yet is no stranger. */
static void test_cluster_not_known(void **state)
{
    struct fixture *f = *state;
    struct hello h = good(f);
    int fd = plain_connect(f->ports[1]);
    h.from.cluster_id = 0;
    say(fd, &h);
    RUN_UNTIL(f, f->b.accepted == 1);
    close(fd);
}

static void test_other_version(void **state)
{
    struct fixture *f = *state;
    struct hello h = good(f);
    struct hello answer;
    uint8_t bytes[HELLO_SIZE];
    int fd = plain_connect(f->ports[1]);
    hello_encode(&h, bytes);
    bytes[12] = 2;
    fli_put_u32(bytes + 8, fli_crc32c(0, bytes + 12, HELLO_SIZE - 12));
    assert_int_equal(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL), (int)sizeof bytes);
    read_answer(f, fd, &answer);
    assert_int_equal(answer.verdict, TRANSPORT_OTHER_VERSION);
    close(fd);
}

/* ---- calling ---- */

static void call(struct fixture *f, uint64_t id, const char *address)
{
    struct raft_uv_transport *raft = transport_raft(f->a.t);
    f->connected = 0;
    assert_int_equal(raft->connect(raft, &f->req, id, address, connect_cb), 0);
    assert_int_equal(f->connected, 0);
}

static void expect_no_delay(uv_stream_t *stream)
{
    int on = 0;
    socklen_t len = sizeof on;
    uv_os_fd_t fd;
    assert_int_equal(uv_fileno((uv_handle_t *)stream, &fd), 0);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &len), 0);
    assert_true(on);
    on = 0;
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, &len), 0);
    assert_true(on);
}

static void test_call(void **state)
{
    struct fixture *f = *state;
    call(f, 2, f->members.list[1].address);
    RUN_UNTIL(f, f->connected == 1 && f->b.accepted == 1);
    assert_int_equal(f->status, 0);
    assert_int_equal(f->b.accepted_id, 1);
    assert_int_equal(f->a.verdict, TRANSPORT_WELCOME);
    assert_int_equal(f->a.peer.incarnation, 1002);
    expect_no_delay(f->stream);
    expect_no_delay(f->b.stream);
}

/* The name has more than one address here and there; the one that answers is found. */
static void test_call_by_name(void **state)
{
    struct fixture *f = *state;
    char address[64];
    snprintf(address, sizeof address, "localhost:%u", f->ports[1]);
    call(f, 2, address);
    RUN_UNTIL(f, f->connected == 1);
    assert_int_equal(f->status, 0);
    RUN_UNTIL(f, f->b.accepted == 1);
}

static void test_call_link(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(transport_link(f->a.t, 2, linked_cb, f), 0);
    assert_int_equal(f->connected, 0);
    RUN_UNTIL(f, f->connected == 1 && f->b.linked == 1);
    assert_int_equal(f->status, 0);
    assert_int_equal(transport_link(f->a.t, 1, linked_cb, f), FL_EINVAL);
    assert_int_equal(transport_link(f->a.t, 4, linked_cb, f), FL_EINVAL);
}

static void test_call_nobody(void **state)
{
    struct fixture *f = *state;
    call(f, 3, f->members.list[2].address);
    RUN_UNTIL(f, f->connected == 1);
    assert_int_equal(f->status, RAFT_NOCONNECTION);
    assert_null(f->stream);
    assert_int_equal(f->a.absent, 1);
    assert_int_equal(f->a.absent_id, 3);
    assert_int_equal(transport_link(f->a.t, 3, linked_cb, f), 0);
    RUN_UNTIL(f, f->connected == 2);
    assert_int_equal(f->status, FL_ENOCONN);
    assert_int_equal(f->a.absent, 2);
}

static void written_cb(uv_write_t *write, int status)
{
    *(int *)write->data = status;
}

/* Raft never reads what it writes to. The end of such a stream is told, and a write fails at once
 * instead of being lost; but in its callback, since raft opens no other when it is refused. The
 * peer closes with bytes unread, which resets the connection. */
static void test_a_stream_of_raft_ends(void **state)
{
    struct fixture *f = *state;
    char bytes[] = "abc";
    uv_buf_t buf = uv_buf_init(bytes, 3);
    call(f, 2, f->members.list[1].address);
    RUN_UNTIL(f, f->connected == 1 && f->b.accepted == 1);
    assert_int_equal(uv_try_write(f->stream, &buf, 1), 3);
    close_stream(f->b.stream);
    f->b.stream = NULL;
    RUN_UNTIL(f, f->a.hung_up == 1);
    assert_int_equal(f->a.hung_up_id, 2);
    uv_write_t write;
    int status = 1;
    write.data = &status;
    assert_int_equal(uv_write(&write, f->stream, &buf, 1, written_cb), 0);
    RUN_UNTIL(f, status != 1);
    assert_int_equal(status, UV_EPIPE);
    assert_int_equal(f->a.absent + f->b.hung_up, 0);
}

static void test_call_bad_name(void **state)
{
    struct fixture *f = *state;
    struct raft_uv_transport *raft = transport_raft(f->a.t);
    assert_int_not_equal(raft->connect(raft, &f->req, 3, "nonsense", connect_cb), 0);
    /* A label of 64 bytes is no name, which the resolver knows without asking anybody. */
    call(f, 3, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx:1");
    RUN_UNTIL(f, f->connected == 1);
    assert_int_equal(f->status, RAFT_NOCONNECTION);
    assert_int_equal(f->a.absent, 0); /* nobody said so */
}

static void test_call_silent(void **state)
{
    struct fixture *f = *state;
    uint16_t port;
    char address[64];
    int fd = plain_listener(&port);
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    call(f, 3, address);
    RUN_UNTIL(f, f->connected == 1);
    assert_int_equal(f->status, RAFT_NOCONNECTION);
    close(fd);
    assert_int_equal(f->a.absent, 0); /* nobody said so */
}

static void test_call_refused(void **state)
{
    struct fixture *f = *state;
    f->b.refuse = true;
    call(f, 2, f->members.list[1].address);
    RUN_UNTIL(f, f->connected == 1);
    assert_int_equal(f->status, RAFT_NOCONNECTION);
    assert_int_equal(f->a.verdict, TRANSPORT_OTHER_LIFE);
    assert_string_equal(f->a.reason, "no: 1001");
    assert_int_equal(f->b.accepted, 0);
}

/* The caller judges as well. */
static void test_call_refuses(void **state)
{
    struct fixture *f = *state;
    f->a.refuse = true;
    call(f, 2, f->members.list[1].address);
    RUN_UNTIL(f, f->connected == 1);
    assert_int_equal(f->status, RAFT_NOCONNECTION);
    assert_int_equal(f->a.answered, 0);
}

/* The address of node 3 leads to node 2. */
static void test_call_wrong_number(void **state)
{
    struct fixture *f = *state;
    call(f, 3, f->members.list[1].address);
    RUN_UNTIL(f, f->connected == 1);
    assert_int_equal(f->status, RAFT_NOCONNECTION);
    assert_int_equal(f->a.verdict, TRANSPORT_STRANGER);
}

/* An answer that is not a hello, is for another node, or is cut short. */
static void test_call_bad_answers(void **state)
{
    struct fixture *f = *state;
    uint16_t port;
    char address[64];
    int listener = plain_listener(&port);
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    for (unsigned i = 0; i < 5; i++) {
        struct hello h = good(f);
        uint8_t bytes[HELLO_SIZE];
        h.from = f->b.self;
        h.target = i == 1 ? 3 : 1;
        h.verdict = i == 2 ? 0 : TRANSPORT_WELCOME;
        hello_encode(&h, bytes);
        bytes[13] ^= i == 4; /* of another version */
        fli_put_u32(bytes + 8, fli_crc32c(0, bytes + 12, HELLO_SIZE - 12));
        if (i == 0) {
            bytes[100] ^= 1;
        }
        call(f, 2, address);
        int fd = accept(listener, NULL, NULL);
        RUN_UNTIL(f, peek(fd) == (ssize_t)HELLO_SIZE);
        size_t len = i == 3 ? HELLO_SIZE - 1 : HELLO_SIZE;
        assert_int_equal(send(fd, bytes, len, MSG_NOSIGNAL), (int)len);
        close(fd);
        RUN_UNTIL(f, f->connected == 1);
        assert_int_equal(f->status, RAFT_NOCONNECTION);
    }
    close(listener);
}

/* ---- closing ---- */

/* With everything under way: strangers, a call that waits for its answer, one for the resolver, one
 * for a relay. */
static void test_close_in_the_middle(void **state)
{
    struct fixture *f = *state;
    struct raft_uv_transport *raft = transport_raft(f->a.t);
    struct raft_uv_connect second = {.data = f};
    uint16_t port;
    char address[64];
    char named[64];
    int listener = plain_listener(&port);
    int stranger = plain_connect(f->ports[0]);
    RUN_UNTIL(f, transport_pending(f->a.t) == 1);
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    snprintf(named, sizeof named, "localhost:%u", port);
    call(f, 3, address);
    int fd = accept(listener, NULL, NULL);
    RUN_UNTIL(f, peek(fd) == (ssize_t)HELLO_SIZE);
    assert_int_equal(raft->connect(raft, &second, 3, named, connect_cb), 0);
    assert_int_equal(transport_link(f->a.t, 2, linked_cb, f), 0);
    raft->close(raft, closed_cb);
    assert_int_equal(f->connected, 0);
    RUN_UNTIL(f, f->a.closed == 1);
    assert_int_equal(f->connected, 3);
    assert_null(f->stream);
    transport_destroy(f->a.t);
    f->a.t = NULL;
    close(fd);
    close(listener);
    close(stranger);
}

static void test_bind_errors(void **state)
{
    struct fixture *f = *state;
    struct transport_callbacks cbs = {
        .ctx = &f->a, .judge = judge_cb, .link = link_cb, .answered = answered_cb};
    struct transport *t;
    static const char *const BAD[] = {"", "host", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        assert_int_equal(transport_create(&f->loop, BAD[i], &f->members, &f->a.self, &cbs, &t,
                                          f->errmsg, sizeof f->errmsg),
                         FL_EINVAL);
    }
    assert_int_equal(transport_create(&f->loop, f->members.list[0].address, &f->members, &f->a.self,
                                      &cbs, &t, f->errmsg, sizeof f->errmsg),
                     FL_ESYSTEM);
    assert_non_null(strstr(f->errmsg, strerror(EADDRINUSE)));
    assert_non_null(strstr(f->errmsg, f->members.list[0].address));
    /* Destroyed without raft ever having had it. */
    assert_int_equal(transport_create(&f->loop, "127.0.0.1:0", &f->members, &f->a.self, &cbs, &t,
                                      f->errmsg, sizeof f->errmsg),
                     0);
    assert_int_not_equal(transport_port(t), 0);
    transport_destroy(t);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN); /* as node_create does */
    const struct CMUnitTest tests[] = {
        TEST(test_garbage),
        TEST(test_hangs_up_half_way),
        TEST(test_silent),
        TEST(test_many_silent),
        TEST(test_nothing_is_read_past_the_hello),
        TEST(test_slow_hello),
        TEST(test_welcome_answer),
        TEST(test_refusals),
        TEST(test_cluster_not_known),
        TEST(test_other_version),
        TEST(test_call),
        TEST(test_call_by_name),
        TEST(test_call_link),
        TEST(test_call_nobody),
        TEST(test_a_stream_of_raft_ends),
        TEST(test_call_bad_name),
        TEST(test_call_silent),
        TEST(test_call_refused),
        TEST(test_call_refuses),
        TEST(test_call_wrong_number),
        TEST(test_call_bad_answers),
        TEST(test_close_in_the_middle),
        TEST(test_bind_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
