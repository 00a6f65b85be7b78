/* The handle with its calls, over servers that say what the test wants, when it wants it. Stands in
 * for base/clock.c and for server.c; the loop is libuv's. */
#include "unit.h"

#include <uv.h>

#include "base/clock.h"
#include "redlock/quorum.h"
#include "redlock/redlock_private.h"

#define SERVERS 3u
#define TTL_MS UINT64_C(10000)
#define HUNG_MS UINT64_C(5000)
#define RELEASES_KEPT 1024u /* DEFERRED_MAX in request.c */

static uv_loop_t loop;
static fl_redlock *r;
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

void fli_server_init(struct fli_server *s, struct fli_server_owner *owner, uint32_t index)
{
    s->owner = owner;
    s->index = index;
    s->state = FLI_SERVER_DOWN;
    s->status = FL_REDLOCK_DOWN;
    s->retry_ms = UINT64_MAX;
    fli_list_init(&s->pending);
    fli_list_init(&s->deferred);
    fli_buf_init(&s->conn.out, FLI_SERVER_OUT_MAX);
}

int fli_server_locate(struct fli_server *s, const char *text, size_t len, char *errmsg,
                      size_t errmsg_size)
{
    memcpy(s->address, text, len);
    return 0;
}

static struct fli_redis_request *pop_pending(struct fli_server *s)
{
    struct fli_list *node = fli_list_pop(&s->pending);
    s->pending_len -= node != NULL;
    return node == NULL ? NULL : FLI_CONTAINER_OF(node, struct fli_redis_request, node);
}

static void answer_all(struct fli_server *s)
{
    struct fli_redis_request *q;
    while ((q = pop_pending(s)) != NULL) {
        q->answered(q, s, NULL);
    }
}

static void drop(struct fli_server *s, enum fl_redlock_status status)
{
    s->state = FLI_SERVER_DOWN;
    s->status = status;
    s->settled = true;
    answer_all(s);
    s->owner->down(s->owner, s);
}

void fli_server_close(struct fli_server *s)
{
    s->state = FLI_SERVER_CLOSED;
    answer_all(s);
    fli_buf_fini(&s->conn.out);
}

uint64_t fli_server_due_ms(const struct fli_server *s)
{
    return UINT64_MAX;
}

uint64_t fli_server_silent_ms(const struct fli_server *s, uint64_t now_ns)
{
    const struct fli_list *first = fli_list_first(&s->pending);
    return first == NULL
               ? 0
               : (now_ns - FLI_CONTAINER_OF(first, struct fli_redis_request, node)->sent_ns) /
                     1000000;
}

void fli_server_tick(struct fli_server *s, uint64_t at_ms)
{
    if (s->state == FLI_SERVER_READY && fli_server_silent_ms(s, at_ms * 1000000) > HUNG_MS) {
        drop(s, FL_REDLOCK_SILENT);
    }
}

struct fli_buf *fli_server_out(struct fli_server *s)
{
    return &s->conn.out;
}

void fli_server_put(struct fli_server *s, struct fli_redis_request *q, uint64_t now_ns)
{
    q->sent_ns = now_ns;
    fli_list_push(&s->pending, &q->node);
    s->pending_len++;
    (void)snprintf(last[s->index], sizeof last[0], "%.*s", (int)s->conn.out.len,
                   (const char *)s->conn.out.data);
    fli_buf_clear(&s->conn.out);
}

void fli_server_distrust(struct fli_server *s)
{
    fail_msg("the answer of server %u makes no sense to the handle", s->index);
}

void fli_server_read(struct fli_server *s)
{
}

void fli_server_own(struct fli_server *s)
{
}

void fli_server_flush(struct fli_server *s)
{
}

/* ---- what happens to the servers ------------------------------------------------------------- */

static void come_up(struct fli_server *s)
{
    fli_enter(r);
    s->state = FLI_SERVER_READY;
    s->status = FL_REDLOCK_YES;
    s->settled = true;
    s->owner->ready(s->owner, s);
    r->owner.links.leave(&r->owner.links);
}

static void go_down(struct fli_server *s)
{
    fli_enter(r);
    drop(s, FL_REDLOCK_DOWN);
    r->owner.links.leave(&r->owner.links);
}

/* The server answers its oldest request. */
static void answer(uint32_t index, const char *text)
{
    struct fli_server *s = &r->servers[index];
    struct fli_redis_request *q = pop_pending(s);
    void *reply = NULL;
    redisReader *reader = redisReaderCreate();
    FLI_ASSERT(q != NULL);
    assert_int_equal(redisReaderFeed(reader, text, strlen(text)), REDIS_OK);
    assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
    assert_non_null(reply);
    fli_enter(r);
    q->answered(q, s, reply);
    r->owner.links.leave(&r->owner.links);
    freeReplyObject(reply);
    redisReaderFree(reader);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static int set_up(void **state)
{
    const struct fl_redlock_options o = {.servers = "1,2,3", .hung_ms = HUNG_MS};
    now_ms = UINT64_C(1000000000000); /* its alarm, of the true clock, never rings for that */
    return uv_loop_init(&loop) == 0 && fl_redlock_create(&loop, &o, &r, NULL, 0) == 0 ? 0 : -1;
}

static int set_up_ready(void **state)
{
    int rc = set_up(state);
    for (uint32_t i = 0; i < SERVERS && rc == 0; i++) {
        come_up(&r->servers[i]);
    }
    return rc;
}

static void close_handle(void)
{
    fl_redlock_close(r, NULL, NULL);
    r = NULL;
    (void)uv_run(&loop, UV_RUN_DEFAULT);
}

static int tear_down(void **state)
{
    if (r != NULL) {
        close_handle();
    }
    return uv_loop_close(&loop);
}

struct outcome {
    bool over;
    int result;
    enum fl_redlock_cause cause;
    struct fl_redlock_lock lock;
};

static void done(void *ctx, int result, const struct fl_redlock_lock *lock,
                 const struct fl_redlock_report *report)
{
    struct outcome *o = ctx;
    o->over = true;
    o->result = result;
    o->cause = report->cause;
    if (lock != NULL) {
        o->lock = *lock;
    }
}

/* A lock that is believed to be held. */
static struct fl_redlock_lock held(void)
{
    struct fl_redlock_lock lock = {.ttl_ms = TTL_MS,
                                   .deadline_ms = fli_deadline_ms(now_ms, TTL_MS)};
    memset(lock.value, 'a', FL_REDLOCK_VALUE_LEN);
    return lock;
}

/* ---- tests ----------------------------------------------------------------------------------- */

struct issuer {
    fl_redlock_issued *issued;
    void *ctx;
};

/* The token comes when the test says so. */
static void issue_later(void *ctx, struct fl_bytes name, uint64_t timeout_ms,
                        fl_redlock_issued *issued, void *issued_ctx)
{
    struct issuer *issuer = ctx;
    issuer->issued = issued;
    issuer->ctx = issued_ctx;
}

/* What is ended first needs a place among the releases kept for a server that is down, and the
 * oldest release there is all that is left of the call after it. */
TEST_WITH(test_a_close_while_a_server_has_as_many_releases_as_are_kept, set_up_ready, tear_down)
{
    const struct fl_redlock_lock lock = held();
    struct outcome o = {0};
    struct issuer issuer = {0};
    assert_int_equal(
        fl_redlock_acquire_fenced_start(r, fl_str("a"), NULL, issue_later, &issuer, done, &o, NULL),
        0);
    answer(0, "+OK\r\n");
    answer(1, "+OK\r\n");
    go_down(&r->servers[2]);
    for (unsigned i = 0; i < RELEASES_KEPT; i++) {
        assert_int_equal(fl_redlock_release_start(r, fl_str("b"), &lock, NULL, NULL), 0);
        answer(0, ":1\r\n");
        answer(1, ":1\r\n");
    }
    assert_int_equal(r->servers[2].deferred_len, RELEASES_KEPT);
    assert_false(o.over);
    close_handle();
    assert_true(o.over);
    assert_int_equal(o.result, FL_ENOTHELD);
    assert_int_equal(o.cause, FL_REDLOCK_CANCELLED);
    issuer.issued(issuer.ctx, FL_ETIMEOUT, FL_TOKEN_NONE);
}

/* Time passes, and what is due then is done. */
static void wait_ms(uint64_t ms)
{
    now_ms += ms;
    r->alarm.ring(&r->alarm);
}

/* Where the next try of a call is when the token of the one before comes. */
enum next_try { IN_PAUSE, ASKING, ISSUING, HELD, CANCELLED, CLOSED, NEXT_TRIES };

static void reach(enum next_try next, uint64_t id, struct issuer *issuer)
{
    if (next == CLOSED) {
        close_handle();
        return;
    }
    if (next == CANCELLED) {
        fl_redlock_cancel(r, id);
        r->alarm.ring(&r->alarm);
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
        issuer->issued(issuer->ctx, 0, 9);
        r->alarm.ring(&r->alarm);
    }
}

/* A token that comes late, of a try that was given up, is nobody's: whoever had it would be fenced
 * by one that was issued meanwhile. */
static void a_late_token_meets(enum next_try next, int late_result)
{
    const struct fl_redlock_acquire_options options = {.ttl_ms = TTL_MS, .wait_ms = 10 * TTL_MS};
    static struct outcome o; /* its call may end with the handle only */
    struct issuer issuer = {0};
    uint64_t id;
    memset(&o, 0, sizeof o);
    assert_int_equal(fl_redlock_acquire_fenced_start(r, fl_str("a"), &options, issue_later, &issuer,
                                                     done, &o, &id),
                     0);
    answer(0, "+OK\r\n");
    answer(1, "+OK\r\n");
    answer(2, "+OK\r\n");
    assert_non_null(issuer.issued);
    const struct issuer late = issuer;
    wait_ms(TTL_MS); /* the token took too long, so the lock is given back */
    for (uint32_t i = 0; i < SERVERS; i++) {
        answer(i, ":1\r\n");
    }
    assert_false(o.over);
    reach(next, id, &issuer);
    late.issued(late.ctx, late_result, late_result == 0 ? 5 : FL_TOKEN_NONE);
    if (r != NULL) {
        r->alarm.ring(&r->alarm);
    }
    if (next == ISSUING) {
        assert_false(o.over);
        issuer.issued(issuer.ctx, 0, 9);
        r->alarm.ring(&r->alarm);
    }
    assert_int_equal(o.over, next >= ISSUING);
    assert_true(o.lock.token == (next == ISSUING || next == HELD ? 9 : FL_TOKEN_NONE));
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
        const struct fl_redlock_lock lock = held();
        struct outcome o = {0};
        for (uint32_t i = 0; i < SERVERS; i++) {
            r->servers[i].counts_from_ms = i < young ? now_ms + 1 : now_ms;
        }
        assert_int_equal(fl_redlock_extend_start(r, fl_str("a"), &lock, TTL_MS, done, &o), 0);
        for (uint32_t i = 0; i < SERVERS; i++) {
            answer(i, ":1\r\n");
        }
        assert_true(o.over);
        assert_int_equal(o.result == 0, SERVERS - young >= fli_quorum(SERVERS));
    }
}

/* Servers may have taken the shorter TTL. */
TEST_WITH(test_a_close_during_an_extend, set_up_ready, tear_down)
{
    const struct fl_redlock_lock lock = held();
    struct outcome o = {0};
    assert_int_equal(fl_redlock_extend_start(r, fl_str("a"), &lock, TTL_MS / 2, done, &o), 0);
    answer(0, ":1\r\n");
    close_handle();
    assert_true(o.over);
    assert_int_equal(o.cause, FL_REDLOCK_CANCELLED);
    assert_int_equal(o.result, FL_EUNCERTAIN);
    assert_int_equal(o.lock.deadline_ms, fli_deadline_ms(now_ms, TTL_MS / 2));
}

/* Nothing was sent: the lock is what it was. */
TEST_WITH(test_a_close_before_an_extend, set_up, tear_down)
{
    const struct fl_redlock_lock lock = held();
    struct outcome o = {0};
    assert_int_equal(fl_redlock_extend_start(r, fl_str("a"), &lock, TTL_MS / 2, done, &o), 0);
    close_handle();
    assert_true(o.over);
    assert_int_equal(o.cause, FL_REDLOCK_CANCELLED);
    assert_int_equal(o.result, FL_EUNCERTAIN);
    assert_int_equal(o.lock.deadline_ms, lock.deadline_ms);
}

TEST_WITH(test_a_close_during_a_release, set_up_ready, tear_down)
{
    const struct fl_redlock_lock lock = held();
    struct outcome o = {0};
    assert_int_equal(fl_redlock_release_start(r, fl_str("a"), &lock, done, &o), 0);
    answer(0, ":1\r\n");
    close_handle();
    assert_true(o.over);
    assert_int_equal(o.cause, FL_REDLOCK_CANCELLED);
    assert_int_equal(o.result, FL_EUNCERTAIN);
}

static const char no_script[] = "-NOSCRIPT No matching script.\r\n";

static bool has_text(uint32_t index)
{
    return strstr(last[index], "\r\nEVAL\r\n") != NULL;
}

TEST_WITH(test_an_extend_goes_with_its_text_to_a_server_without_scripts, set_up_ready, tear_down)
{
    const struct fl_redlock_lock lock = held();
    struct outcome o = {0};
    assert_int_equal(fl_redlock_extend_start(r, fl_str("a"), &lock, 0, done, &o), 0);
    assert_false(has_text(0));
    answer(0, no_script);
    assert_int_equal(r->servers[0].pending_len, 1);
    assert_true(has_text(0));
    answer(0, ":1\r\n");
    answer(1, ":1\r\n");
    assert_true(o.over);
    assert_int_equal(o.result, 0);
}

/* The server may have executed a newer one already, with a longer TTL, which counts. */
static void late_extend(const char *what_the_others_say, int result)
{
    const struct fl_redlock_lock lock = held();
    struct outcome o = {0};
    struct outcome newer = {0};
    assert_int_equal(fl_redlock_extend_start(r, fl_str("a"), &lock, TTL_MS / 2, done, &o), 0);
    answer(1, what_the_others_say);
    answer(2, what_the_others_say);
    assert_true(o.over);
    assert_int_equal(o.result, result);
    assert_int_equal(fl_redlock_extend_start(r, fl_str("a"), &lock, TTL_MS, done, &newer), 0);
    answer(0, no_script);
    assert_int_equal(r->servers[0].pending_len, 1); /* the newer one */
    answer(0, ":1\r\n");
    answer(1, ":1\r\n");
    assert_true(newer.over);
    assert_int_equal(newer.result, 0);

    /* A server that is always the last to answer gets its script with the next one. */
    assert_int_equal(fl_redlock_extend_start(r, fl_str("a"), &lock, TTL_MS, done, &newer), 0);
    assert_true(has_text(0));
    assert_false(has_text(1));
    close_handle(); /* while `newer` is there */
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
    const struct fl_redlock_lock lock = held();
    struct outcome o = {0};
    struct outcome other = {0};
    assert_int_equal(fl_redlock_extend_start(r, fl_str("a"), &lock, 0, done, &o), 0);
    now_ms += HUNG_MS + 1;
    assert_int_equal(fl_redlock_extend_start(r, fl_str("b"), &lock, 0, done, &other), 0);
    for (uint32_t i = 0; i < SERVERS; i++) {
        assert_int_equal(r->servers[i].state, FLI_SERVER_READY);
        answer(i, ":1\r\n");
        answer(i, ":1\r\n");
    }
    assert_true(o.over && other.over);
    assert_int_equal(o.result, 0);
    assert_int_equal(other.result, 0);
}
