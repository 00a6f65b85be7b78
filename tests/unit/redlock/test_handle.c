/* A client with its calls, over servers that say what the test wants, when it wants it. Stands in
 * for base/clock.c and for server.c. */
#include "unit.h"

#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/handle.h"
#include "redlock/quorum.h"
#include "redlock/redlock_private.h"

#define SERVERS 3u
#define TTL_MS UINT64_C(10000)
#define RELEASES_KEPT 1024u /* DEFERRED_MAX in request.c */

static fl_client *r;
static uint64_t now_ms;
static char last[SERVERS][4096]; /* what each server was asked last */

/* ---- in place of base/clock.c ---------------------------------------------------------------- */

uint64_t fli_clock_ns(void)
{
    return now_ms * 1000000;
}

uint64_t fli_clock_ms(void)
{
    return now_ms;
}

uint64_t fli_clock_wall_ms(void)
{
    return now_ms;
}

void fli_random(void *data, size_t len)
{
    static uint8_t next;
    memset(data, ++next, len);
}

/* ---- in place of server.c -------------------------------------------------------------------- */

int fli_server_init(struct fli_server *s, struct fli_redlock *redlock, uint32_t index)
{
    s->r = redlock;
    s->index = index;
    s->state = FLI_SERVER_DOWN;
    s->status = FL_REDLOCK_DOWN;
    fli_list_init(&s->pending);
    fli_list_init(&s->deferred);
    return 0;
}

static struct fli_redis_request *pop_pending(struct fli_server *s)
{
    struct fli_list *node = fli_list_pop(&s->pending);
    return node == NULL ? NULL : FLI_CONTAINER_OF(node, struct fli_redis_request, node);
}

static void answer_all(struct fli_server *s)
{
    struct fli_redis_request *q;
    while ((q = pop_pending(s)) != NULL) {
        q->answered(q, s, NULL);
    }
}

void fli_server_leave(struct fli_server *s)
{
    s->state = FLI_SERVER_CLOSED;
    answer_all(s);
}

int fli_server_begin(struct fli_server *s)
{
    return 0;
}

void fli_server_abandon(struct fli_server *s)
{
}

uint64_t fli_server_silent_ms(const struct fli_server *s, uint64_t now_ns)
{
    const struct fli_list *first = fli_list_first(&s->pending);
    return first == NULL
               ? 0
               : (now_ns - FLI_CONTAINER_OF(first, struct fli_redis_request, node)->sent_ns) /
                     1000000;
}

int fli_server_put(struct fli_server *s, struct fli_redis_request *q, const struct fli_buf *bytes,
                   uint64_t now_ns)
{
    q->sent_ns = now_ns;
    fli_list_init(&q->node);
    fli_list_push(&s->pending, &q->node);
    (void)snprintf(last[s->index], sizeof last[0], "%.*s", (int)bytes->len,
                   (const char *)bytes->data);
    return 0;
}

void fli_server_distrust(struct fli_server *s)
{
    s->state = FLI_SERVER_DOWN;
    s->status = FL_REDLOCK_DOWN;
    answer_all(s);
    fli_server_changed(s);
}

/* ---- what happens to the servers ------------------------------------------------------------- */

static struct fli_server *server(uint32_t index)
{
    return &fli_redlock_of(r)->servers[index];
}

static void come_up(struct fli_server *s)
{
    s->state = FLI_SERVER_READY;
    s->status = FL_REDLOCK_YES;
    s->settled = true;
    fli_server_changed(s);
    fl_process(r);
}

static void go_down(struct fli_server *s)
{
    fli_server_distrust(s);
    fl_process(r);
}

/* The server answers its oldest request. */
static void answer(uint32_t index, const char *text)
{
    struct fli_server *s = server(index);
    struct fli_redis_request *q = pop_pending(s);
    void *reply = NULL;
    redisReader *reader = redisReaderCreate();
    FLI_ASSERT(q != NULL);
    assert_int_equal(redisReaderFeed(reader, text, strlen(text)), REDIS_OK);
    assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
    assert_non_null(reply);
    q->answered(q, s, reply);
    fl_process(r);
    freeReplyObject(reply);
    redisReaderFree(reader);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static int set_up(void **state)
{
    const struct fl_redlock_options o = {.servers = "/1,/2,/3", .own_loop = true};
    now_ms = UINT64_C(1000000000000); /* its timer, of the true clock, never fires for that */
    return fl_redlock_open(&o, &r);
}

static int set_up_ready(void **state)
{
    int rc = set_up(state);
    for (uint32_t i = 0; i < SERVERS && rc == 0; i++) {
        come_up(server(i));
    }
    return rc;
}

static void close_client(void)
{
    fl_close(r);
    r = NULL;
}

static int tear_down(void **state)
{
    close_client();
    return 0;
}

struct outcome {
    bool over;
    int result;
    fl_token token;
    bool no_token;
    uint64_t deadline_ms;
};

static void done(void *arg, const struct fl_result *result)
{
    struct outcome *o = arg;
    *o = (struct outcome){.over = true, .result = result->status, .token = result->token};
    o->no_token = result->report != NULL && result->report->no_token;
    fl_lock_free(result->lock);
}

static fl_call take(const struct fl_take *options, struct outcome *o)
{
    fl_call call;
    *o = (struct outcome){.over = false};
    assert_int_equal(fl_lock_take_start(r, "a", options, done, o, &call), 0);
    fl_process(r);
    return call;
}

static void on_ended(struct fl_call *call)
{
    struct outcome *o = call->arg;
    *o = (struct outcome){.over = true,
                          .result = call->call_state.status,
                          .deadline_ms = call->call_state.lease_until_ms};
}

/* Extends or releases a lock that is believed to be held. */
static void start(enum fli_call_command command, struct outcome *o)
{
    char value[FL_REDLOCK_VALUE_LEN + 1] = "";
    memset(value, 'a', FL_REDLOCK_VALUE_LEN);
    const struct fli_call_request request = {
        .command = command, .name = fl_str("a"), .owner = fl_str(value), .ttl_ms = TTL_MS};
    const struct fli_call_times times = {.deadline_ms = now_ms};
    *o = (struct outcome){.over = false};
    assert_non_null(fli_engine_start(&r->engine, &request, &times, on_ended, o));
    fl_process(r);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static struct issuer {
    fl_done done;
    void *arg;
} issuer;

/* The token comes when the test says so. */
static int issue_later(struct fli_redlock *redlock, struct fl_bytes name, uint64_t timeout_ms,
                       fl_done issued, void *arg, fl_call *ret_call)
{
    issuer = (struct issuer){issued, arg};
    return 0;
}

static void issue(const struct issuer *to, int result, fl_token token)
{
    const struct fl_result said = {.status = result, .token = token, .error = "so it is"};
    to->done(to->arg, &said);
    if (r != NULL) {
        fl_process(r);
    }
}

/* What is ended first needs a place among the releases kept for a server that is down, and the
 * oldest release there is all that is left of the call after it. */
TEST_WITH(test_a_close_while_a_server_has_as_many_releases_as_are_kept, set_up_ready, NULL)
{
    struct outcome o;
    static struct outcome releases[RELEASES_KEPT];
    fli_redlock_of(r)->issue = issue_later;
    (void)take(NULL, &o);
    answer(0, "+OK\r\n");
    answer(1, "+OK\r\n");
    go_down(server(2));
    for (unsigned i = 0; i < RELEASES_KEPT; i++) {
        start(FLI_CALL_RELEASE, &releases[i]);
        answer(0, ":1\r\n");
        answer(1, ":1\r\n");
        assert_true(releases[i].over);
    }
    assert_int_equal(server(2)->deferred_len, RELEASES_KEPT);
    close_client();
    assert_false(o.over); /* as every call of a client that is closed */
    assert_non_null(strstr(last[0], "DEL"));
    issue(&issuer, FL_ETIMEOUT, FL_TOKEN_NONE);
}

/* Time passes, and what is due then is done. */
static void wait_ms(uint64_t ms)
{
    now_ms += ms;
    fl_process(r);
}

/* Where the next try of a call is when the token of the one before comes. */
enum next_try { IN_PAUSE, ASKING, ISSUING, HELD, CANCELLED, CLOSED, NEXT_TRIES };

static void reach(enum next_try next, fl_call call)
{
    if (next == CLOSED) {
        close_client();
        return;
    }
    if (next == CANCELLED) {
        fl_call_cancel(r, call);
        return;
    }
    if (next == IN_PAUSE) {
        return;
    }
    wait_ms(FL_REDLOCK_RETRY_CAP_DEFAULT_MS);
    if (next >= ISSUING) {
        answer(0, "+OK\r\n");
        answer(1, "+OK\r\n");
    }
    if (next == HELD) {
        issue(&issuer, 0, 9);
    }
}

/* A token that comes late, of a try that was given up, is nobody's: whoever had it would be fenced
 * by one that was issued meanwhile. */
static void a_late_token_meets(enum next_try next, int late_result)
{
    const struct fl_take options = {.ttl_ms = TTL_MS, .wait_ms = 10 * TTL_MS, .unrenewed = true};
    struct outcome o;
    fli_redlock_of(r)->issue = issue_later;
    fl_call call = take(&options, &o);
    answer(0, "+OK\r\n");
    answer(1, "+OK\r\n");
    answer(2, "+OK\r\n");
    const struct issuer late = issuer;
    wait_ms(TTL_MS); /* the token took too long, so the lock is given back */
    for (uint32_t i = 0; i < SERVERS; i++) {
        answer(i, ":1\r\n");
    }
    assert_false(o.over);
    reach(next, call);
    issue(&late, late_result, late_result == 0 ? 5 : FL_TOKEN_NONE);
    if (next == ISSUING) {
        assert_false(o.over);
        issue(&issuer, 0, 9);
    }
    bool has = next == ISSUING || next == HELD;
    assert_int_equal(o.over, has);
    assert_true(o.token == (has ? 9 : FL_TOKEN_NONE));
}

TEST(test_a_late_token_meets_each_state_of_the_next_try)
{
    for (int next = 0; next < NEXT_TRIES; next++) {
        for (int fails = 0; fails < 2; fails++) {
            assert_int_equal(set_up_ready(NULL), 0);
            a_late_token_meets((enum next_try)next, fails ? FL_ETIMEOUT : 0);
            assert_int_equal(tear_down(NULL), 0);
        }
    }
}

/* They may have forgotten the lock, and given it to another since. */
TEST_WITH(test_servers_that_just_restarted_do_not_count_in_an_extend, set_up_ready, tear_down)
{
    for (uint32_t young = 0; young <= SERVERS; young++) {
        struct outcome o;
        for (uint32_t i = 0; i < SERVERS; i++) {
            server(i)->counts_from_ms = i < young ? now_ms + 1 : now_ms;
        }
        start(FLI_CALL_RENEW, &o);
        for (uint32_t i = 0; i < SERVERS; i++) {
            answer(i, ":1\r\n");
        }
        assert_true(o.over);
        assert_int_equal(o.result == 0, SERVERS - young >= fli_quorum(SERVERS));
    }
}

/* Calls of a client that is closed end without their callbacks. */
static void close_during(enum fli_call_command command)
{
    struct outcome o;
    start(command, &o);
    answer(0, ":1\r\n");
    close_client();
    assert_false(o.over);
}

TEST_WITH(test_a_close_during_an_extend, set_up_ready, NULL)
{
    close_during(FLI_CALL_RENEW);
}

TEST_WITH(test_a_close_during_a_release, set_up_ready, NULL)
{
    close_during(FLI_CALL_RELEASE);
}

TEST_WITH(test_a_close_before_an_extend, set_up, NULL)
{
    struct outcome o;
    start(FLI_CALL_RENEW, &o);
    close_client();
    assert_false(o.over);
}

/* The server may have executed a newer one already, with a longer TTL, which counts. */
static void late_extend(const char *what_the_others_say, int result)
{
    struct outcome o;
    start(FLI_CALL_RENEW, &o);
    assert_non_null(strstr(last[0], "\r\nEVAL\r\n")); /* which needs no script there */
    answer(1, what_the_others_say);
    answer(2, what_the_others_say);
    assert_true(o.over);
    assert_int_equal(o.result, result);
    answer(0, "-NOSCRIPT No matching script.\r\n");
    assert_true(fli_list_empty(&server(0)->pending));
}

TEST_WITH(test_an_extend_that_has_failed_is_not_sent_again, set_up_ready, tear_down)
{
    late_extend("-ERR no\r\n", FL_EDENIED);
}

TEST_WITH(test_an_extend_that_has_succeeded_is_not_sent_again, set_up_ready, tear_down)
{
    late_extend(":1\r\n", 0);
}

/* What arrives while the process is stopped is read after that, and not when a call begins. */
TEST_WITH(test_a_call_gives_up_no_server_whose_answers_are_not_read_yet, set_up_ready, tear_down)
{
    struct outcome o;
    struct outcome other;
    start(FLI_CALL_RENEW, &o);
    start(FLI_CALL_RENEW, &other);
    for (uint32_t i = 0; i < SERVERS; i++) {
        assert_int_equal(server(i)->state, FLI_SERVER_READY);
        answer(i, ":1\r\n");
        answer(i, ":1\r\n");
    }
    assert_true(o.over && other.over);
    assert_int_equal(o.result, 0);
    assert_int_equal(other.result, 0);
}

/* Servers may have taken the TTL, however the call ends. */
TEST_WITH(test_an_extend_without_an_answer_says_what_it_may_have_done, set_up_ready, tear_down)
{
    struct outcome o;
    uint64_t sent_ms = now_ms;
    start(FLI_CALL_RENEW, &o);
    answer(0, ":1\r\n");
    wait_ms(TTL_MS);
    assert_true(o.over);
    assert_int_equal(o.result, FL_ETIMEOUT);
    assert_int_equal(o.deadline_ms, fli_deadline_ms(sent_ms, TTL_MS));
}

/* What an acquire that is given up may have set is released, by a cancel and by a close. */
TEST_WITH(test_an_acquire_that_is_given_up_is_released, set_up_ready, NULL)
{
    struct outcome o;
    fl_call_cancel(r, take(NULL, &o));
    assert_non_null(strstr(last[0], "DEL"));
    (void)take(NULL, &o);
    assert_non_null(strstr(last[0], "SET"));
    close_client();
    assert_non_null(strstr(last[0], "DEL"));
    assert_false(o.over);
}

/* The answer ends the attempt, and the connection is to be closed when it is handed out: the
 * release waits for the next one. */
TEST_WITH(test_a_release_waits_where_an_answer_was_out_of_step, set_up_ready, tear_down)
{
    struct outcome o;
    (void)take(NULL, &o);
    answer(0, "-ERR no\r\n");
    answer(1, ":1\r\n");
    assert_true(o.over);
    assert_int_equal(server(1)->state, FLI_SERVER_DOWN);
    assert_non_null(strstr(last[1], "SET"));
    come_up(server(1));
    assert_non_null(strstr(last[1], "DEL"));
}

/* Servers may have taken the shorter TTL: the holder believes no longer than that. */
static void interrupt_extend(uint64_t left_ms, uint64_t ttl_ms, uint64_t believes_ms)
{
    char value[FL_REDLOCK_VALUE_LEN + 1] = "";
    uint64_t deadline_ms = now_ms + left_ms;
    int stop[2];
    memset(value, 'a', FL_REDLOCK_VALUE_LEN);
    assert_int_equal(pipe(stop), 0);
    assert_int_equal(close(stop[1]), 0); /* so the other end is readable */
    fli_client_stop_at(r, stop[0]);
    assert_int_equal(fl_redlock_extend(r, fl_str("a"), value, ttl_ms, &deadline_ms), FL_EUNCERTAIN);
    assert_int_equal(deadline_ms, now_ms + believes_ms);
    fli_client_stop_at(r, -1);
    assert_int_equal(close(stop[0]), 0);
}

TEST_WITH(test_an_extend_that_is_interrupted_may_have_shortened_the_lock, set_up_ready, tear_down)
{
    interrupt_extend(TTL_MS, 2000, fli_deadline_ms(0, 2000));
    interrupt_extend(1000, 2000, 1000);
}

static void refuse_all(struct fli_due *d, uint64_t at_ms)
{
    redisReply no = {.type = REDIS_REPLY_ERROR, .str = (char[]){"ERR no"}, .len = 6};
    struct fli_redis_request *q;
    for (uint32_t i = 0; i < SERVERS; i++) {
        while ((q = pop_pending(server(i))) != NULL) {
            q->answered(q, server(i), &no);
        }
    }
    fli_due_set(&r->engine.dues, d, at_ms + 1);
    now_ms++;
}

/* Likewise when they have said no: that may be all that is known of them. */
TEST_WITH(test_an_extend_that_has_failed_may_have_shortened_the_lock, set_up_ready, tear_down)
{
    char value[FL_REDLOCK_VALUE_LEN + 1] = "";
    uint64_t before_ms = now_ms;
    uint64_t deadline_ms = now_ms + TTL_MS;
    struct fli_due due;
    struct epoll_event always = {.events = EPOLLIN}; /* in place of the timer */
    int readable[2];
    memset(value, 'a', FL_REDLOCK_VALUE_LEN);
    assert_int_equal(pipe(readable), 0);
    assert_int_equal(close(readable[1]), 0);
    assert_int_equal(epoll_ctl(fl_fd(r), EPOLL_CTL_ADD, readable[0], &always), 0);
    assert_int_equal(fli_due_add(&r->engine.dues, &due, refuse_all), 0);
    fli_due_set(&r->engine.dues, &due, now_ms);
    assert_int_equal(fl_redlock_extend(r, fl_str("a"), value, 2000, &deadline_ms), FL_EDENIED);
    fli_due_remove(&r->engine.dues, &due);
    assert_int_equal(close(readable[0]), 0);
    assert_in_range(deadline_ms, before_ms, now_ms + 2000);
}

/* More than is left after the allowance for drift cannot be had. */
TEST_WITH(test_a_validity_that_no_lock_can_have_is_refused, set_up_ready, tear_down)
{
    struct outcome o;
    fl_call call;
    struct fl_take options = {.ttl_ms = TTL_MS, .min_validity_ms = fli_deadline_ms(0, TTL_MS)};
    (void)take(&options, &o);
    answer(0, "+OK\r\n");
    answer(1, "+OK\r\n");
    assert_true(o.over);
    assert_int_equal(o.result, 0);
    options.min_validity_ms++;
    assert_int_equal(fl_lock_take_start(r, "b", &options, done, &o, &call), FL_EINVAL);
}

/* Its token has come, and the call has not ended yet: nobody has the lock. */
static void give_up_with_a_token(bool closes)
{
    struct outcome o;
    const struct fl_result said = {.token = 5};
    fli_redlock_of(r)->issue = issue_later;
    fl_call call = take(NULL, &o);
    answer(0, "+OK\r\n");
    answer(1, "+OK\r\n");
    issuer.done(issuer.arg, &said);
    if (closes) {
        close_client();
    } else {
        fl_call_cancel(r, call);
    }
    assert_false(o.over);
    for (uint32_t i = 0; i < SERVERS; i++) {
        assert_non_null(strstr(last[i], "DEL"));
    }
}

TEST_WITH(test_a_cancel_after_the_token_came, set_up_ready, tear_down)
{
    give_up_with_a_token(false);
}

TEST_WITH(test_a_close_after_the_token_came, set_up_ready, NULL)
{
    give_up_with_a_token(true);
}

/* All servers have answered in time: not they are to blame. */
TEST_WITH(test_a_token_that_is_late_or_never_comes_is_no_token, set_up_ready, tear_down)
{
    fli_redlock_of(r)->issue = issue_later;
    for (int comes = 0; comes < 2; comes++) {
        const struct fl_take options = {.ttl_ms = TTL_MS};
        struct outcome o;
        (void)take(&options, &o);
        for (uint32_t i = 0; i < SERVERS; i++) {
            answer(i, "+OK\r\n");
        }
        now_ms += TTL_MS;
        if (comes != 0) {
            issue(&issuer, 0, 5);
        }
        fl_process(r);
        assert_true(o.over && o.no_token);
        assert_int_equal(o.result, FL_ETIMEOUT);
        if (comes == 0) {
            issue(&issuer, 0, 5);
        }
        for (uint32_t i = 0; i < SERVERS; i++) {
            answer(i, ":1\r\n");
        }
    }
}

/* Whoever closes both has nothing left, although the issuer calls nobody back then. */
TEST(test_a_close_leaves_no_call_to_the_issuer)
{
    struct outcome o;
    struct fl_redlock_options options = {.servers = "/1,/2,/3", .own_loop = true};
    const struct fl_client_options with_loop = {.own_loop = true};
    now_ms = UINT64_C(1000000000000);
    assert_int_equal(fl_open("127.0.0.1:1", &with_loop, &options.tokens), 0);
    assert_int_equal(fl_redlock_open(&options, &r), 0);
    for (uint32_t i = 0; i < SERVERS; i++) {
        come_up(server(i));
    }
    (void)take(NULL, &o);
    answer(0, "+OK\r\n");
    answer(1, "+OK\r\n");
    assert_false(fli_list_empty(&options.tokens->engine.calls));
    close_client();
    assert_true(fli_list_empty(&options.tokens->engine.calls));
    fl_close(options.tokens);
}
