/* harness.c: see harness.h. */
#include "harness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/conn.h"

static bool says(struct fli_slice s, const char *word)
{
    return s.len == strlen(word) && memcmp(s.data, word, s.len) == 0;
}

static void answer_text(struct net_request *r, const void *data, size_t len)
{
    if (fli_resp_bulk(net_reply(r), data, len) != 0) {
        net_answer_failed(r);
        return;
    }
    net_answer(r);
}

static void on_request(void *ctx, struct net_request *r, const struct fli_slice *argv,
                       unsigned argc)
{
    struct fixture *f = ctx;
    f->requests++;
    if (says(argv[0], "ECHO") && argc == 2) {
        f->echoes++;
        answer_text(r, argv[1].data, argv[1].len);
    } else if (says(argv[0], "BIG") && argc == 2) {
        uint64_t n = 0;
        assert_true(fli_parse_u64(argv[1].data, argv[1].len, 1 << 24, &n));
        char *data = malloc(n + 1);
        memset(data, 'x', n);
        answer_text(r, data, n);
        free(data);
    } else if (says(argv[0], "LATER")) {
        assert_in_range(f->kept_n, 0, KEPT_MAX - 1);
        memcpy(r->user, &f->kept_n, sizeof f->kept_n);
        f->kept[f->kept_n++] = r;
    } else if (says(argv[0], "SPIN")) {
        uint64_t until_ns = uv_hrtime() + 3000000;
        while (uv_hrtime() < until_ns) {
        }
        assert_int_equal(fli_resp_simple(net_reply(r), "OK"), 0);
        net_answer(r);
    } else if (says(argv[0], "FAIL")) {
        net_answer_failed(r);
    } else if (says(argv[0], "DROP")) {
        net_conn_close_after_answers(r->conn);
        answer_text(r, "bye", 3);
    } else {
        assert_int_equal(fli_resp_error(net_reply(r), "ERR", "what?"), 0);
        net_answer(r);
    }
}

static unsigned kept_index(struct fixture *f, struct net_request *r)
{
    unsigned i = 0;
    memcpy(&i, r->user, sizeof i);
    assert_in_range(i, 0, KEPT_MAX - 1);
    assert_ptr_equal(f->kept[i], r);
    return i;
}

static void on_cancel(void *ctx, struct net_request *r)
{
    struct fixture *f = ctx;
    f->kept[kept_index(f, r)] = NULL;
    f->cancelled++;
}

static void on_hangup(void *ctx, struct net_request *r)
{
    struct fixture *f = ctx;
    (void)kept_index(f, r);
    f->hangups++;
}

static void on_opened(void *ctx, struct net_conn *c)
{
    struct fixture *f = ctx;
    assert_null(net_conn_user(c));
    net_conn_set_user(c, f);
    f->opened++;
}

static void on_closed(void *ctx, struct net_conn *c)
{
    struct fixture *f = ctx;
    assert_ptr_equal(net_conn_user(c), f);
    f->closed++;
}

void fixture_start(struct fixture *f, struct net_limits limits)
{
    memset(f, 0, sizeof *f);
    f->limits = limits;
    assert_int_equal(uv_loop_init(&f->loop), 0);
    struct net_callbacks cbs = {.ctx = f,
                                .request = on_request,
                                .cancel = on_cancel,
                                .hangup = on_hangup,
                                .opened = on_opened,
                                .closed = on_closed};
    assert_int_equal(net_server_create(&f->loop, &limits, sizeof(unsigned), &cbs, &f->server), 0);
    char errmsg[256] = "";
    if (net_server_listen(f->server, "127.0.0.1:0", errmsg, sizeof errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    f->port = net_server_port(f->server);
    assert_int_not_equal(f->port, 0);
}

void fixture_limit_memory(struct fixture *f, size_t bytes)
{
    f->server->limits.memory_max = bytes;
}

static void on_stopped(void *ctx)
{
    struct fixture *f = ctx;
    assert_false(f->stopped);
    f->stopped = true;
}

void fixture_end(struct fixture *f)
{
    net_server_stop(f->server, 0, on_stopped, f);
    assert_false(f->stopped);
    turn_until(f, f->stopped);
    assert_int_equal(f->opened, f->closed);
    for (unsigned i = 0; i < f->kept_n; i++) {
        assert_null(f->kept[i]);
    }
    net_server_destroy(f->server);
    assert_int_equal(uv_loop_close(&f->loop), 0);
}

uint64_t deadline(void)
{
    return fli_clock_ms() + WAIT_MS;
}

void check_deadline(uint64_t at, const char *what, const char *file, int line)
{
    if (fli_clock_ms() > at) {
        print_error("waited in vain for: %s\n", what);
        _fail(file, line);
    }
}

/* A machine that is slow must not use up NET_SHAKE_MS. */
static void give_time_to_shake(struct fixture *f)
{
    FLI_LIST_FOREACH(link, &f->server->shaking)
    {
        FLI_CONTAINER_OF(link, struct net_conn, watch)->watch_ms = UINT64_MAX;
    }
}

void turn(struct fixture *f)
{
    static int idle;
    (void)uv_run(&f->loop, UV_RUN_NOWAIT);
    give_time_to_shake(f);
    if (++idle % 16 == 0) {
        (void)usleep(200); /* lets the kernel and the timers move while a test polls */
    }
}

void answer_kept(struct fixture *f, unsigned i, const char *text)
{
    struct net_request *r = f->kept[i];
    assert_non_null(r);
    f->kept[i] = NULL;
    answer_text(r, text, strlen(text));
}

static void count_output(void *ctx, struct net_conn *c)
{
    struct net_conn_info info;
    net_conn_info(c, &info);
    *(size_t *)ctx += info.output_bytes;
}

size_t output_bytes(struct fixture *f)
{
    size_t n = 0;
    net_each_conn(f->server, count_output, &n);
    return n;
}

int client_open(const struct fixture *f)
{
    return client_open_from(f, "127.0.0.1");
}

int client_open_from(const struct fixture *f, const char *address)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    struct sockaddr_in own = {.sin_family = AF_INET};
    assert_int_equal(inet_pton(AF_INET, address, &own.sin_addr), 1);
    assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof own), 0);
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(f->port),
                            .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    /* The kernel's backlog takes the connection: no test opens more of them before it runs the
     * loop. */
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

void client_send(struct fixture *f, int fd, const char *data, size_t len)
{
    uint64_t at = deadline();
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n > 0) {
            data += n;
            len -= (size_t)n;
            continue;
        }
        assert_int_equal(errno, EAGAIN);
        turn(f);
        check_deadline(at, "room to send", __FILE__, __LINE__);
    }
}

void client_say(struct fixture *f, int fd, const char *text)
{
    client_send(f, fd, text, strlen(text));
}

struct arrival {
    struct sockaddr_in from; /* the client: clients of two addresses may have one port */
    int unread;
};

static void note_unread(void *ctx, struct net_conn *c)
{
    struct arrival *a = ctx;
    struct fli_slice address = net_conn_address(c);
    uv_os_fd_t fd;
    if (address.len == sizeof a->from.sin_addr + sizeof a->from.sin_port &&
        memcmp(address.data, &a->from.sin_addr, sizeof a->from.sin_addr) == 0 &&
        memcmp(address.data + sizeof a->from.sin_addr, &a->from.sin_port,
               sizeof a->from.sin_port) == 0) {
        assert_int_equal(uv_fileno((uv_handle_t *)&c->tcp, &fd), 0);
        assert_int_equal(ioctl(fd, FIONREAD, &a->unread), 0);
    }
}

void client_arrived(struct fixture *f, int fd, size_t len)
{
    struct sockaddr_in own;
    socklen_t own_len = sizeof own;
    uint64_t at = deadline();
    assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &own_len), 0);
    for (;;) {
        struct arrival a = {.from = own};
        net_each_conn(f->server, note_unread, &a);
        if ((size_t)a.unread >= len) {
            return;
        }
        (void)usleep(200);
        check_deadline(at, "bytes at the server", __FILE__, __LINE__);
    }
}

long client_try(int fd, char *data, size_t size)
{
    ssize_t n = recv(fd, data, size, 0);
    if (n < 0 && errno != EAGAIN) {
        assert_int_equal(errno, ECONNRESET);
        return 0;
    }
    return n;
}

void client_expect(struct fixture *f, int fd, const char *data, size_t len)
{
    char *got = malloc(len + 1);
    size_t have = 0;
    uint64_t at = deadline();
    while (have < len) {
        long n = client_try(fd, got + have, len - have);
        if (n == 0) {
            fail_msg("the server closed after %zu of %zu bytes", have, len);
        }
        if (n > 0) {
            have += (size_t)n;
            continue;
        }
        turn(f);
        check_deadline(at, data, __FILE__, __LINE__);
    }
    assert_memory_equal(got, data, len);
    free(got);
}

void client_hear(struct fixture *f, int fd, const char *text)
{
    client_expect(f, fd, text, strlen(text));
}

void client_expect_end(struct fixture *f, int fd)
{
    char data[4096];
    uint64_t at = deadline();
    while (client_try(fd, data, sizeof data) != 0) {
        turn(f);
        check_deadline(at, "the end of the connection", __FILE__, __LINE__);
    }
}

void client_expect_clean_end(struct fixture *f, int fd)
{
    char data[4096];
    uint64_t at = deadline();
    for (;;) {
        ssize_t n = recv(fd, data, sizeof data, 0);
        if (n == 0) {
            return;
        }
        assert_true(n > 0 || errno == EAGAIN);
        turn(f);
        check_deadline(at, "the end of the connection", __FILE__, __LINE__);
    }
}

void client_set_window(int fd, int bytes)
{
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes), 0);
}

void client_expect_served(struct fixture *f, int fd)
{
    client_say(f, fd, "ECHO alive\r\n");
    client_hear(f, fd, "$5\r\nalive\r\n");
}

void client_close(int fd)
{
    assert_int_equal(close(fd), 0);
}

void expect_cut_off_with(struct net_limits limits, const char *text)
{
    struct fixture f;
    fixture_start(&f, limits);
    (void)signal(SIGPIPE, SIG_IGN);
    int fd = client_open(&f);
    client_say(&f, fd, "LATER\r\nBIG 60000\r\nBIG 60000\r\n");
    turn_until(&f, f.closed == 1);
    client_hear(&f, fd, text);
    client_close(fd);
    fixture_end(&f);
}
