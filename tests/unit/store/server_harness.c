/* server_harness.c: see server_harness.h. */
#include "server_harness.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "store/strict.h"

#define WAIT_MS 240000u
#define INPUT_MAX ((size_t)4 << 20)
#define RECEIVE_BYTES 4096

static void tick_cb(uv_timer_t *timer)
{
}

/* The timer is due again and again: uv_run() calls what is due before it waits, and would then wait
 * for ever. */
void turn(struct fixture *x)
{
    (void)uv_timer_start(&x->tick, tick_cb, 1, 1);
    (void)uv_run(&x->loop, UV_RUN_ONCE);
}

uint64_t deadline(void)
{
    return fli_clock_ms() + WAIT_MS;
}

void check_deadline(uint64_t at, const char *what, int line)
{
    if (fli_clock_ms() > at) {
        fail_msg("line %d: still not: %s", line, what);
    }
}

struct store_info info(struct fixture *x)
{
    struct store_info i;
    store_server_get_info(x->server, &i);
    return i;
}

static void fatal(void *ctx, int error)
{
    struct fixture *x = ctx;
    x->failures++;
    if (!x->may_fail) {
        fail_msg("%d %s", error, fl_strerror(error));
    }
}

static void log_cb(void *ctx, int level, const char *message)
{
}

static int set_up(void **state, const char *strict)
{
    struct fixture *x = calloc(1, sizeof(*x));
    char errmsg[512] = "";
    (void)signal(SIGPIPE, SIG_IGN);
    scratch_init(&x->scratch);
    assert_int_equal(uv_loop_init(&x->loop), 0);
    assert_int_equal(uv_timer_init(&x->loop, &x->tick), 0);
    int rc =
        store_open(x->scratch.data, STORE_SIZE_DEFAULT, true, &x->store, errmsg, sizeof errmsg);
    struct store_server_config config = {.listen = "127.0.0.1:0",
                                         .ctx = x,
                                         .fatal = fatal,
                                         .log = log_cb,
                                         .strict = {.nodes = strict, .timeout_ms = 200}};
    rc = rc != 0
             ? rc
             : store_server_create(&x->loop, x->store, &config, &x->server, errmsg, sizeof errmsg);
    if (rc != 0) {
        fail_msg("%d %s", rc, errmsg);
    }
    *state = x;
    return 0;
}

int fixture_setup(void **state)
{
    return set_up(state, NULL);
}

int fixture_setup_strict(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    char address[64];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
    int rc = set_up(state, address);
    ((struct fixture *)*state)->silent = fd;
    return rc;
}

static void stopped_cb(void *ctx)
{
    struct fixture *x = ctx;
    x->stopped = true;
}

int fixture_teardown(void **state)
{
    struct fixture *x = *state;
    store_server_stop(x->server, stopped_cb, x);
    turn_until(x, x->stopped);
    store_server_destroy(x->server);
    uv_close((uv_handle_t *)&x->tick, NULL);
    (void)uv_run(&x->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&x->loop), 0);
    store_close(x->store);
    scratch_fini(&x->scratch);
    if (x->silent > 0) {
        (void)close(x->silent);
    }
    free(x);
    return 0;
}

struct client client_open(struct fixture *x)
{
    return client_open_from(x, "127.0.0.1");
}

struct client client_open_from(struct fixture *x, const char *address)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(address)};
    struct client c = {.fd = socket(AF_INET, SOCK_STREAM, 0), .in = malloc(INPUT_MAX)};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(info(x).port)};
    int small = RECEIVE_BYTES;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(c.fd >= 0);
    assert_non_null(c.in);
    assert_int_equal(setsockopt(c.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    assert_int_equal(bind(c.fd, (struct sockaddr *)&from, sizeof from), 0);
    assert_int_equal(connect(c.fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(fcntl(c.fd, F_SETFL, O_NONBLOCK), 0);
    return c;
}

void client_close(struct client *c, bool reset)
{
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    if (reset) {
        assert_int_equal(setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    }
    (void)close(c->fd);
    free(c->in);
}

void client_say(struct fixture *x, struct client *c, const void *data, size_t len)
{
    const uint8_t *at = data;
    uint64_t until = deadline();
    while (len > 0) {
        ssize_t n = send(c->fd, at, len, 0);
        if (n < 0) {
            assert_true(errno == EAGAIN);
            turn(x);
            check_deadline(until, "sent", __LINE__);
            continue;
        }
        at += n;
        len -= (size_t)n;
    }
}

void client_text(struct fixture *x, struct client *c, const char *text)
{
    client_say(x, c, text, strlen(text));
}

void client_set(struct fixture *x, struct client *c, const char *key, size_t len, fl_token token)
{
    char head[256];
    char tail[64];
    char *value = malloc(len + 1);
    assert_non_null(value);
    memset(value, 'v', len);
    (void)snprintf(head, sizeof head, "*6\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$%zu\r\n", strlen(key), key,
                   len);
    (void)snprintf(tail, sizeof tail, "\r\n$5\r\nFENCE\r\n$1\r\na\r\n$1\r\n%u\r\n",
                   (unsigned)token % 10);
    client_text(x, c, head);
    client_say(x, c, value, len);
    client_text(x, c, tail);
    free(value);
}

/* Makes sure that there are some bytes, or at least one more than before. */
static void read_more(struct fixture *x, struct client *c)
{
    uint64_t until = deadline();
    memmove(c->in, c->in + c->at, c->len - c->at);
    c->len -= c->at;
    c->at = 0;
    assert_true(c->len < INPUT_MAX);
    for (;;) {
        ssize_t n = recv(c->fd, c->in + c->len, INPUT_MAX - c->len, 0);
        if (n > 0) {
            c->len += (size_t)n;
            return;
        }
        assert_true(n < 0 && errno == EAGAIN);
        turn(x);
        check_deadline(until, "heard", __LINE__);
    }
}

struct reply client_hear(struct fixture *x, struct client *c)
{
    struct reply r = {.line = ""};
    size_t n = 0;
    while (n < 2 || memcmp(r.line + n - 2, "\r\n", 2) != 0) {
        if (c->at == c->len) {
            read_more(x, c);
        }
        assert_true(n + 1 < sizeof r.line);
        r.line[n++] = (char)c->in[c->at++];
    }
    r.line[n - 2] = '\0';
    uint64_t skip = 0;
    if (r.line[0] == '$' && r.line[1] != '-') {
        assert_true(fli_parse_u64(r.line + 1, strlen(r.line + 1), STORE_VALUE_MAX, &skip));
        skip += 2;
    }
    while (skip > 0) {
        if (c->at == c->len) {
            read_more(x, c);
        }
        size_t step = skip < c->len - c->at ? (size_t)skip : c->len - c->at;
        c->at += step;
        skip -= step;
    }
    return r;
}

struct reply client_ask(struct fixture *x, struct client *c, const char *text)
{
    client_text(x, c, text);
    return client_hear(x, c);
}

void fall_behind(struct fixture *x, struct client *c, unsigned n)
{
    client_set(x, c, "big", STORE_VALUE_MAX, 1);
    assert_string_equal(client_hear(x, c).line, "+OK");
    uint64_t before = info(x).net.paused;
    for (unsigned i = 0; i < n; i++) {
        client_text(x, c, "GET big\r\n");
    }
    turn_until(x, info(x).net.paused > before);
}
