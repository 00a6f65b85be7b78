/* A client that was stopped, on a clock of the test's own: what it is answered meanwhile, it reads
 * when the lease of its lock or session is over. The test plays the node, on a real socket. */
#include "../../lib/unit.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/handle.h"

#define TTL_MS UINT64_C(600000)
#define PATIENCE_MS UINT64_C(3600000)

static uint64_t skipped_ms; /* for so long the client was stopped, in all */
static int listener;
static int node; /* its connection */
static char said[4096];
static size_t said_len;
static fl_client *c;

/* ---- in place of base/clock.c ---------------------------------------------------------------- */

uint64_t fli_clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec +
           skipped_ms * UINT64_C(1000000);
}

uint64_t fli_clock_ms(void)
{
    return fli_clock_ns() / UINT64_C(1000000);
}

uint64_t fli_clock_wall_ms(void)
{
    return fli_clock_ms();
}

void fli_random(void *data, size_t len)
{
    assert_int_equal(getrandom(data, len, 0), (ssize_t)len);
}

/* ---- the node -------------------------------------------------------------------------------- */

static int set_up(void **state)
{
    char nodes[32];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    const struct fl_client_options options = {
        .timeout_ms = PATIENCE_MS, .attempt_ms = PATIENCE_MS, .own_loop = true};
    node = -1;
    said_len = 0;
    skipped_ms = 0;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    snprintf(nodes, sizeof nodes, "127.0.0.1:%u", ntohs(at.sin_port));
    return fl_open(nodes, &options, &c);
}

static int tear_down(void **state)
{
    fl_close(c);
    close(node);
    close(listener);
    return 0;
}

static void client_turn(void)
{
    struct pollfd p = {.fd = fl_fd(c), .events = POLLIN};
    (void)poll(&p, 1, 1);
    fl_process(c);
}

static void node_turn(void)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        close(node);
        node = fd;
        said_len = 0;
    }
    ssize_t n = node < 0 ? -1 : recv(node, said + said_len, sizeof said - 1 - said_len, 0);
    said_len += n > 0 ? (size_t)n : 0;
    said[said_len] = '\0';
}

/* Until the client has said this. */
static void await(const char *what)
{
    while (node < 0 || strstr(said, what) == NULL) {
        client_turn();
        node_turn();
    }
}

/* The answer to the request, and before it that to LEADER if that was asked. */
static void answer(const char *text)
{
    const char *leader = strstr(said, "LEADER") != NULL ? "*2\r\n:0\r\n$0\r\n\r\n" : "";
    said_len = 0;
    said[0] = '\0';
    assert_int_equal(send(node, leader, strlen(leader), MSG_NOSIGNAL), (ssize_t)strlen(leader));
    assert_int_equal(send(node, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* ---- the client ------------------------------------------------------------------------------ */

struct outcome {
    bool over;
    int status;
    fl_lock *lock;
    fl_token token;
};

static void on_done(void *arg, const struct fl_result *r)
{
    struct outcome *o = arg;
    *o = (struct outcome){.over = true, .status = r->status, .lock = r->lock, .token = r->token};
}

static void finish(const struct outcome *o)
{
    while (!o->over) {
        client_turn();
    }
}

static fl_lock *open_session(void)
{
    const struct fl_take options = {.ttl_ms = TTL_MS};
    struct outcome o = {.over = false};
    assert_int_equal(fl_session_open_start(c, &options, on_done, &o, NULL), 0);
    await("SESSION");
    answer("+OK\r\n");
    finish(&o);
    assert_int_equal(o.status, 0);
    return o.lock;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* The grant came while the session was held, and is read when it is not: others may have the lock
 * by then. Also when the session has been freed. */
TEST_WITH(a_grant_under_a_session_that_is_over, set_up, tear_down)
{
    enum { HELD, STOPPED, FREED, KINDS };
    for (int kind = 0; kind < KINDS; kind++) {
        struct outcome o = {.over = false};
        fl_lock *session = open_session();
        const struct fl_take under = {.session = session};
        assert_int_equal(fl_lock_take_start(c, "mine", &under, on_done, &o, NULL), 0);
        await("mine");
        answer(":7\r\n");
        skipped_ms += kind == STOPPED ? TTL_MS : 0;
        if (kind == FREED) {
            fl_lock_free(session);
        }
        finish(&o);
        assert_int_equal(o.status, kind == HELD ? 0 : FL_ENOSESSION);
        assert_true(o.token == (kind == HELD ? 7 : FL_TOKEN_NONE));
        fl_lock_free(o.lock);
        if (kind != FREED) {
            assert_int_equal(fl_lock_state(session), kind == HELD ? FL_HOLD_SAFE : FL_HOLD_LOST);
            fl_lock_free(session);
        }
    }
}

/* A program may close the session first, and give back its locks after that. */
TEST_WITH(a_lock_outlives_its_session, set_up, tear_down)
{
    struct outcome o = {.over = false};
    struct outcome closed = {.over = false};
    struct outcome released = {.over = false};
    char owner[FL_OWNER_MAX];
    fl_lock *session = open_session();
    const struct fl_take under = {.session = session};
    assert_int_equal(fl_lock_take_start(c, "mine", &under, on_done, &o, NULL), 0);
    await("mine");
    answer(":7\r\n");
    finish(&o);
    assert_int_equal(o.status, 0);
    const struct fl_bytes mine = o.lock->request.owner;
    const struct fl_bytes its = fl_lock_name(session);
    assert_int_equal(mine.len, its.len);
    assert_ptr_not_equal(mine.data, its.data);
    memcpy(owner, its.data, its.len);
    assert_int_equal(fl_lock_release_start(session, PATIENCE_MS, on_done, &closed), 0);
    await("CLOSE");
    answer(":1\r\n");
    finish(&closed);
    assert_memory_equal(mine.data, owner, mine.len);
    assert_int_equal(fl_lock_release_start(o.lock, PATIENCE_MS, on_done, &released), 0);
    await("RELEASE");
    answer(":0\r\n");
    finish(&released);
    assert_int_equal(released.status, FL_ENOTHELD);
}

/* A grant that is read too late is not believed in: it is renewed first, and when the service says
 * that it is over, asked for again. */
TEST_WITH(a_grant_that_is_read_late, set_up, tear_down)
{
    const struct fl_take options = {.ttl_ms = TTL_MS};
    struct outcome o = {.over = false};
    fl_token token;
    assert_int_equal(fl_lock_take_start(c, "mine", &options, on_done, &o, NULL), 0);
    await("mine");
    answer(":7\r\n");
    skipped_ms += TTL_MS;
    await("RENEW");
    assert_false(o.over);
    answer(":0\r\n");
    await("ACQUIRE");
    answer(":8\r\n");
    finish(&o);
    assert_int_equal(o.status, 0);
    assert_int_equal(fl_lock_token(o.lock, &token), 0);
    assert_true(token == 8);
    fl_lock_free(o.lock);
}

/* The renewal was answered in time, and is read when the lease is over: lost is for ever. */
TEST_WITH(a_renewal_that_is_read_late, set_up, tear_down)
{
    struct outcome o = {.over = false};
    fl_lock *session = open_session();
    skipped_ms += TTL_MS * 2 / 5;
    await("RENEW");
    answer(":1\r\n");
    skipped_ms += TTL_MS;
    client_turn();
    client_turn();
    assert_int_equal(fl_lock_state(session), FL_HOLD_LOST);
    const struct fl_take under = {.session = session};
    assert_int_equal(fl_lock_take_start(c, "mine", &under, on_done, &o, NULL), FL_ENOSESSION);
    fl_lock_free(session);
}

static fl_call ending;

static void cancel_itself(void *arg, const struct fl_result *r)
{
    fl_call_cancel(c, ending);
    on_done(arg, r);
}

/* Whoever gives a call up may do so while its callback is on its way: it is named by a number, so
 * one that has ended is not touched. */
TEST_WITH(a_call_that_has_ended_is_cancelled, set_up, tear_down)
{
    struct outcome o = {.over = false};
    struct outcome other = {.over = false};
    const struct fl_ask mine = {.what = FL_ASK_CHECK, .name = fl_str("mine"), .token = 7};
    const struct fl_ask other_one = {.what = FL_ASK_CHECK, .name = fl_str("other"), .token = 7};
    fl_call next;
    assert_int_equal(fl_ask_start(c, &mine, cancel_itself, &o, &ending), 0);
    await("mine");
    answer(":1\r\n");
    finish(&o);
    assert_int_equal(o.status, 0);
    assert_int_equal(fl_ask_start(c, &other_one, on_done, &other, &next), 0);
    assert_true(next != ending);
    fl_call_cancel(c, ending);
    fl_call_cancel(c, next + 1);
    await("other");
    answer(":1\r\n");
    finish(&other);
    assert_int_equal(other.status, 0);
}

struct read_twice {
    struct outcome outcome;
    char first[256], again[256];
};

/* The node grants the attempt that settles the call, and hears its release. */
static void settles_meanwhile(void *arg, const struct fl_result *r)
{
    struct read_twice *read = arg;
    snprintf(read->first, sizeof read->first, "%s", r->error);
    await("ACQUIRE");
    answer(":9\r\n");
    await("RELEASE");
    answer(":1\r\n");
    snprintf(read->again, sizeof read->again, "%s", r->error);
    on_done(&read->outcome, r);
}

/* What a callback reads stays as it is, while that call gives back what it may have got. */
TEST_WITH(an_error_is_read_while_its_call_settles, set_up, tear_down)
{
    const struct fl_take options = {.ttl_ms = TTL_MS, .timeout_ms = 1000};
    struct read_twice read = {.outcome = {.over = false}};
    assert_int_equal(fl_lock_take_start(c, "mine", &options, settles_meanwhile, &read, NULL), 0);
    await("ACQUIRE");
    said_len = 0;
    said[0] = '\0';
    skipped_ms += 1000;
    finish(&read.outcome);
    assert_int_equal(read.outcome.status, FL_EUNCERTAIN);
    assert_true(read.first[0] != '\0');
    assert_string_equal(read.again, read.first);
}
