/* What calls of one engine have in common: the last place, which is the leader's when its address
 * is not in the list. The test plays the nodes, on real sockets, in the same thread. */
#include "../../lib/unit.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/engine.h"

#define CONNS 64 /* a slow machine sees more health probes */
#define LISTED 2 /* nodes 0 and 1; node 2 leads, and then node 3 does */
#define NODES 4
#define LATE_MS 100000u

struct conn {
    int fd;
    unsigned node;
    size_t len;
    char said[1024]; /* since it was last answered */
};

static int listeners[NODES];
static char addresses[NODES][32];
static struct conn conns[CONNS];
static unsigned n_conns;
static struct fli_engine engine;
static uint64_t until_ms;

static void listen_at(unsigned node)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    listeners[node] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listeners[node], (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listeners[node], CONNS), 0);
    assert_int_equal(getsockname(listeners[node], (struct sockaddr *)&address, &len), 0);
    snprintf(addresses[node], sizeof addresses[node], "127.0.0.1:%u", ntohs(address.sin_port));
}

static int set_up(void **state)
{
    char nodes[80];
    for (unsigned i = 0; i < NODES; i++) {
        listen_at(i);
    }
    n_conns = 0;
    snprintf(nodes, sizeof nodes, "%s,%s", addresses[0], addresses[1]);
    until_ms = fli_clock_ms() + LATE_MS;
    static const struct fl_client_options defaults;
    char why[FLI_WHY_SIZE];
    return fli_engine_init(&engine, nodes, FLI_OF_CLUSTER, false, &defaults, why);
}

static int tear_down(void **state)
{
    fli_engine_fini(&engine);
    for (unsigned i = 0; i < n_conns; i++) {
        close(conns[i].fd);
    }
    for (unsigned i = 0; i < NODES; i++) {
        close(listeners[i]);
    }
    return 0;
}

/* One turn of all of them. */
static void turn(void)
{
    struct pollfd p = {.fd = engine.epoll_fd, .events = POLLIN};
    assert_true(fli_clock_ms() < until_ms);
    (void)poll(&p, 1, 1);
    fli_engine_process(&engine);
    for (unsigned i = 0; i < NODES; i++) {
        int fd = accept4(listeners[i], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            assert_true(n_conns < CONNS);
            conns[n_conns++] = (struct conn){.fd = fd, .node = i};
        }
    }
    for (unsigned i = 0; i < n_conns; i++) {
        struct conn *c = &conns[i];
        ssize_t n = recv(c->fd, c->said + c->len, sizeof c->said - 1 - c->len, 0);
        c->len += n > 0 ? (size_t)n : 0;
        c->said[c->len] = '\0';
    }
}

/* A connection to one of the nodes first to last on which this was said, and no answer given. */
static struct conn *await(unsigned first, unsigned last, const char *what)
{
    for (;;) {
        for (unsigned i = 0; i < n_conns; i++) {
            const struct conn *c = &conns[i];
            if (c->node >= first && c->node <= last && strstr(c->said, what) != NULL) {
                return &conns[i];
            }
        }
        turn();
    }
}

static void answer(struct conn *c, const char *text)
{
    c->len = 0;
    c->said[0] = '\0';
    assert_int_equal(send(c->fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* To LEADER: it is this node. */
static const char *leads(unsigned node)
{
    static char text[80];
    snprintf(text, sizeof text, "*2\r\n:9\r\n$%zu\r\n%s\r\n", strlen(addresses[node]),
             addresses[node]);
    return text;
}

static void on_end(struct fl_call *ended)
{
    assert_int_equal(ended->call_state.status, 0);
    *(bool *)ended->arg = true;
}

static void begin(const char *name, bool *over)
{
    const struct fli_call_request request = {
        .command = FLI_CALL_CHECK, .name = fl_str(name), .token = 1};
    const struct fli_call_times times = {.deadline_ms = until_ms, .attempt_ms = LATE_MS};
    struct fl_call *call;
    *over = false;
    call = fli_engine_start(&engine, &request, &times, on_end, over);
    assert_non_null(call);
}

static void never_ends(struct fl_call *ended)
{
    fail();
}

static struct fl_call *acquire(const char *name)
{
    const struct fli_call_request request = {.command = FLI_CALL_ACQUIRE,
                                             .name = fl_str(name),
                                             .owner = fl_str("0123456789abcdef"),
                                             .ttl_ms = LATE_MS};
    const struct fli_call_times times = {.deadline_ms = until_ms, .attempt_ms = LATE_MS};
    struct fl_call *call;
    call = fli_engine_start(&engine, &request, &times, never_ends, NULL);
    assert_non_null(call);
    return call;
}

/* A node that stands still may execute a cancelled ACQUIRE much later. It knows the attempts that
 * came after by their larger numbers alone. */
TEST_WITH(the_attempt_of_a_cancelled_call_counts, set_up, tear_down)
{
    struct fl_call *call = acquire("never-sent");
    fli_engine_cancel(call);
    call = acquire("mine");
    await(0, LISTED - 1, "mine")->len = 0;
    assert_int_equal(engine.attempts.above, 0);
    fli_engine_cancel(call);
    assert_int_equal(engine.attempts.above, 1);
    call = acquire("again");
    assert_non_null(strstr(await(0, LISTED - 1, "again")->said, "ATTEMPT\r\n$1\r\n2\r\n"));
    fli_engine_cancel(call);
    assert_int_equal(engine.attempts.above, 2);
}

static struct fl_call *acquire_waiting(const char *name, uint64_t wait_ms)
{
    const struct fli_call_request request = {.command = FLI_CALL_ACQUIRE,
                                             .name = fl_str(name),
                                             .owner = fl_str("0123456789abcdef"),
                                             .ttl_ms = LATE_MS};
    const struct fli_call_times times = {
        .deadline_ms = until_ms, .wait_ms = wait_ms, .attempt_ms = LATE_MS};
    struct fl_call *call;
    call = fli_engine_start(&engine, &request, &times, never_ends, NULL);
    assert_non_null(call);
    return call;
}

/* Whatever the call is doing when it is given up, once its request has been sent: it waits for the
 * answer, it asks another node whether that one serves, it asks the same node whether it lives, or
 * it has heard that the outcome is not known. */
TEST_WITH(a_call_that_is_cancelled_counts_in_each_of_its_states, set_up, tear_down)
{
    enum { ANSWER, ASKS_OTHER, PROBES, UNCERTAIN, STATES };
    for (unsigned kind = 0; kind < STATES; kind++) {
        char first[16], again[16], number[32];
        snprintf(first, sizeof first, "first-%u", kind);
        snprintf(again, sizeof again, "again-%u", kind);
        assert_int_equal(tear_down(state), 0); /* no answer is owed to the call before */
        assert_int_equal(set_up(state), 0);
        struct fl_call *call = acquire_waiting(first, kind == PROBES ? LATE_MS : 0);
        struct conn *c = await(0, LISTED - 1, first);
        if (kind == ASKS_OTHER) {
            c->len = 0;
            c->said[0] = '\0';
            await(1 - c->node, 1 - c->node, "LEADER");
        } else if (kind == PROBES) {
            c->len = 0;
            c->said[0] = '\0';
            await(c->node, c->node, "LEADER");
        } else if (kind == UNCERTAIN) {
            uint64_t above = engine.attempts.above;
            answer(c, strstr(c->said, "LEADER") != NULL ? "*2\r\n:0\r\n$0\r\n\r\n-UNCERTAIN x\r\n"
                                                        : "-UNCERTAIN x\r\n");
            snprintf(number, sizeof number, "\r\n%llu\r\n", (unsigned long long)above + 2);
            await(0, LISTED - 1, number); /* the same call, again */
        }
        uint64_t before = engine.attempts.above;
        fli_engine_cancel(call);
        assert_true(engine.attempts.above > before);
        snprintf(number, sizeof number, "\r\n%llu\r\n",
                 (unsigned long long)engine.attempts.above + 1);
        call = acquire(again);
        c = await(0, LISTED - 1, again);
        assert_non_null(strstr(strstr(c->said, "ATTEMPT"), number));
        c->said[0] = '\0';
        fli_engine_cancel(call);
    }
}

/* One call asks the leader, which is not in the list, whether it serves, and hears of a new leader.
 * If that took the leader's place, the call would take its channel for one to the new leader. */
TEST_WITH(a_probe_keeps_the_last_place, set_up, tear_down)
{
    bool over;
    begin("mine", &over);
    answer(await(0, LISTED - 1, "mine"), leads(2)); /* to its LEADER, and nothing to the request */
    struct conn *asked = await(2, 2, "LEADER");
    answer(asked, leads(3));
    await(2, 2, "")->len = 0;
    assert_string_equal(engine.nodes[LISTED].place.node.text, addresses[2]);
    answer(asked, ":1\r\n"); /* it serves, so the call goes there */
    answer(await(2, 2, "mine"), ":1\r\n");
    while (!over) {
        turn();
    }
    assert_string_equal(engine.nodes[LISTED].place.node.text, addresses[2]);
}

static void on_late(struct fl_call *ended)
{
    assert_int_equal(ended->call_state.status, FL_ENOCONN);
    *(bool *)ended->arg = true;
}

/* A renewal may be begun when its lease is over: a machine that stands still makes it so. */
TEST_WITH(a_call_whose_time_is_over_at_once, set_up, tear_down)
{
    const struct fli_call_request request = {
        .command = FLI_CALL_CHECK, .name = fl_str("x"), .token = 1};
    const struct fli_call_times times = {.deadline_ms = fli_clock_ms()};
    struct fl_call *call;
    bool over = false;
    call = fli_engine_start(&engine, &request, &times, on_late, &over);
    assert_non_null(call);
    while (!over) {
        turn();
    }
}

/* What comes unasked, and be it a part, must not become the answer to the next request. */
TEST_WITH(a_part_of_an_answer_that_nobody_asked_for, set_up, tear_down)
{
    bool over;
    char byte;
    begin("first", &over);
    struct conn *c = await(0, LISTED - 1, "first");
    answer(c, "*-1\r\n:1\r\n"); /* to LEADER, too */
    while (!over) {
        turn();
    }
    answer(c, ":1");
    while (recv(c->fd, &byte, 1, MSG_PEEK) != 0) { /* until it is closed */
        turn();
    }
    begin("second", &over);
    struct conn *next = await(0, LISTED - 1, "second");
    assert_ptr_not_equal(next, c);
    answer(next, "*-1\r\n:1\r\n");
    while (!over) {
        turn();
    }
}

/* Nor that to a request which was put in the same turn, and has not left. */
TEST_WITH(an_answer_that_comes_before_its_request_has_left, set_up, tear_down)
{
    const struct fli_call_request other = {
        .command = FLI_CALL_CHECK, .name = fl_str("other"), .token = 1};
    bool over;
    bool other_over = false;
    begin("mine", &over);
    struct conn *lost = await(0, LISTED - 1, "mine");
    const struct fli_call_times there = {
        .deadline_ms = until_ms, .once = true, .node = 1 - lost->node};
    assert_non_null(fli_engine_start(&engine, &other, &there, on_end, &other_over));
    struct conn *idle = await(there.node, there.node, "other");
    answer(idle, "*-1\r\n:1\r\n"); /* to LEADER, too */
    while (!other_over) {
        turn();
    }
    turn();          /* nothing has come there: what comes next comes in this order */
    close(lost->fd); /* its call goes to the other node */
    *lost = (struct conn){.fd = -1};
    answer(idle, ":1\r\n");
    turn();
    assert_false(over);
    answer(await(0, LISTED - 1, "mine"), "*-1\r\n:1\r\n");
    while (!over) {
        turn();
    }
}

/* ---- many calls ------------------------------------------------------------------------------ */

#define MANY 3000
#define WORD 5 /* letters of EADER and of CHECK */

static unsigned ended_well;

static void count_end(struct fl_call *ended)
{
    assert_int_equal(ended->call_state.status, 0);
    ended_well++;
}

static void begin_many(unsigned n)
{
    const struct fli_call_request request = {
        .command = FLI_CALL_CHECK, .name = fl_str("x"), .token = 1};
    const struct fli_call_times times = {.deadline_ms = until_ms, .attempt_ms = LATE_MS};
    struct fl_call *call;
    for (unsigned i = 0; i < n; i++) {
        call = fli_engine_start(&engine, &request, &times, count_end, NULL);
        assert_non_null(call);
    }
}

static unsigned occurrences(const char *text, size_t len, const char *word)
{
    unsigned n = 0;
    for (const char *p = text; (p = memmem(p, len - (size_t)(p - text), word, strlen(word))); p++) {
        n++;
    }
    return n;
}

/* Answers what has come on all connections, LEADER and CHECK alike, until all calls have ended.
 * Returns the number of connections that were made. */
static unsigned serve_many(unsigned lose_first)
{
    static char text[1 << 20];
    char kept[CONNS][WORD - 1]; /* of each connection: a word may come in two parts */
    size_t kept_len[CONNS] = {0};
    while (ended_well < MANY) {
        turn();
        for (unsigned i = 0; i < n_conns; i++) {
            size_t len = kept_len[i] + conns[i].len;
            memcpy(text, kept[i], kept_len[i]);
            memcpy(text + kept_len[i], conns[i].said, conns[i].len);
            ssize_t n = conns[i].len == 0 ? 0 : recv(conns[i].fd, text + len, sizeof text - len, 0);
            len += n > 0 ? (size_t)n : 0;
            conns[i].len = 0;
            kept_len[i] = len < WORD - 1 ? len : WORD - 1;
            memcpy(kept[i], text + len - kept_len[i], kept_len[i]);
            if (len > 0 && i < lose_first) {
                (void)shutdown(conns[i].fd, SHUT_RDWR);
                continue;
            }
            for (unsigned k = occurrences(text, len, "EADER"); k > 0; k--) {
                answer(&conns[i], "*-1\r\n");
            }
            for (unsigned k = occurrences(text, len, "CHECK"); k > 0; k--) {
                answer(&conns[i], ":1\r\n");
            }
        }
    }
    return n_conns;
}

/* A connection for each of them would be too many for a process, and for a node. */
TEST_WITH(thousands_of_calls_share_a_connection, set_up, tear_down)
{
    ended_well = 0;
    begin_many(MANY);
    assert_in_range(serve_many(0), 1, LISTED + 1);
}

/* A connection is lost with thousands of requests on it: they go on together, on a new one. */
TEST_WITH(thousands_of_calls_begin_anew_together, set_up, tear_down)
{
    ended_well = 0;
    begin_many(MANY);
    assert_in_range(serve_many(1), 2, 16);
}
