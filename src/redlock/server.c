/* server.c: see server.h. */
#include "redlock/redlock_private.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "client/channel.h"
#include "redlock/quorum.h"

#define BACKOFF_MIN_MS UINT64_C(50)
#define BACKOFF_MAX_MS UINT64_C(2000)
#define STEADY_MS UINT64_C(1000) /* a connection that worked for so long is reopened at once */
#define LOGIN_MAX ((size_t)4096)

static void set_due(struct fli_server *s, uint64_t at_ms)
{
    struct fli_engine *e = s->r->engine;
    fli_due_set(&e->dues, &s->due, at_ms);
    fli_engine_wake_for(e, s->due.at_ms);
}

static struct fli_redis_request *oldest(const struct fli_server *s)
{
    struct fli_list *first = fli_list_first(&s->pending);
    return first == NULL ? NULL : FLI_CONTAINER_OF(first, struct fli_redis_request, node);
}

/* ---- ending a connection --------------------------------------------------------------------- */

static void answer_all(struct fli_server *s)
{
    struct fli_list gone;
    fli_list_init(&gone);
    fli_list_splice(&gone, &s->pending);
    struct fli_list *node;
    while ((node = fli_list_pop(&gone)) != NULL) {
        struct fli_redis_request *q = FLI_CONTAINER_OF(node, struct fli_redis_request, node);
        q->answered(q, s, NULL);
    }
}

/* When to connect again. */
static uint64_t retry_ms(struct fli_server *s, bool was_ready)
{
    uint64_t now_ms = fli_clock_ms();
    if (was_ready && now_ms - s->opened_ms >= STEADY_MS) {
        s->failures = 0;
        return now_ms;
    }
    uint64_t pause_ms = BACKOFF_MIN_MS << (s->failures < 10 ? s->failures : 10);
    pause_ms = pause_ms < BACKOFF_MAX_MS ? pause_ms : BACKOFF_MAX_MS;
    s->failures++;
    return now_ms + pause_ms / 2 + fli_engine_random(s->r->engine, pause_ms / 2 + 1);
}

/* Ends the connection, and says why. */
static void drop(struct fli_server *s, enum fl_redlock_status status, const char *error)
{
    struct fli_channel *ch = s->channel;
    bool was_ready = s->state == FLI_SERVER_READY;
    s->status = status;
    fli_copy_text(s->error, sizeof s->error, error, strlen(error));
    s->channel = NULL;
    s->state = FLI_SERVER_DOWN;
    s->settled = true;
    if (ch != NULL) {
        fli_channel_unlisten(ch);
    }
    set_due(s, retry_ms(s, was_ready));
    answer_all(s);
    fli_server_changed(s);
}

void fli_server_distrust(struct fli_server *s)
{
    drop(s, FL_REDLOCK_ERROR, "an answer of an unexpected type");
}

void fli_server_leave(struct fli_server *s)
{
    s->state = FLI_SERVER_CLOSED;
    s->channel = NULL;
    answer_all(s);
}

void fli_server_abandon(struct fli_server *s)
{
    s->channel = NULL;
    fli_list_init(&s->pending);
    fli_list_init(&s->deferred);
    s->deferred_len = 0;
    fli_heap_node_init(&s->due.node);
}

/* ---- logging in ------------------------------------------------------------------------------ */

/* The log-in is answered: takes what the server told, and decides whether it counts. */
static void logged_in(struct fli_server *s)
{
    uint64_t now_ms = fli_clock_ms();
    bool replica = s->facts.role[0] != '\0' && strcmp(s->facts.role, "master") != 0;
    uint64_t uptime_s = s->facts.uptime_s < 0 || s->was_replica ? 0 : (uint64_t)s->facts.uptime_s;
    s->was_replica = replica;
    s->counts_from_ms =
        s->r->restarts_are_safe ? 0 : fli_counts_from_ms(now_ms, uptime_s, s->r->max_ttl_ms);
    s->facts.heard = true;
    s->settled = true;
    if (replica) {
        /* Tried again after the pause, since the server may become a master. */
        drop(s, FL_REDLOCK_REPLICA, "it is a replica");
        return;
    }
    if (s->no_scripts[0] != '\0' && s->delete_how == FLI_DELETE_SCRIPT && !s->facts.is_node) {
        char text[FL_REDLOCK_ERROR_MAX];
        (void)snprintf(text, sizeof text, "no scripts, so no lock could be released (EVAL): %.100s",
                       s->no_scripts);
        drop(s, FL_REDLOCK_ERROR, text);
        return;
    }
    s->state = FLI_SERVER_READY;
    s->status = FL_REDLOCK_YES;
    s->error[0] = '\0';
    set_due(s, FLI_DUE_NEVER);
    fli_server_changed(s);
}

/* This step, or the next one that is sent. */
static enum fli_login_step step_from(const struct fli_redlock *r, unsigned step)
{
    step += step == FLI_LOGIN_AUTH && r->password == NULL;
    step += step == FLI_LOGIN_SELECT && r->database == 0;
    return (enum fli_login_step)step;
}

static void take_login(struct fli_server *s, const redisReply *reply)
{
    enum fli_login_step step = s->step;
    bool failed = reply->type == REDIS_REPLY_ERROR;
    if ((failed && step < FLI_LOGIN_INFO) ||
        (step == FLI_LOGIN_INFO && fli_is_error(reply, "NOAUTH"))) {
        drop(s, FL_REDLOCK_ERROR, reply->str);
        return;
    }
    s->step = step_from(s->r, step + 1);
    if (step == FLI_LOGIN_INFO && reply->type == REDIS_REPLY_STRING) {
        fli_facts_take_info(&s->facts, reply->str, reply->len);
    } else if (step == FLI_LOGIN_COMMANDS) {
        s->delete_how = fli_delete_how(reply);
    } else if (step == FLI_LOGIN_EVAL) { /* the last one */
        if (fli_is_error(reply, "ERR") || fli_is_error(reply, "NOPERM")) {
            fli_copy_text(s->no_scripts, sizeof s->no_scripts, reply->str, reply->len);
        }
        logged_in(s);
    }
}

/* All requests of the log-in are sent at once, so that it costs one round trip. */
static int start_login(struct fli_server *s)
{
    const struct fli_redlock *r = s->r;
    char number[12];
    const struct {
        size_t argc;
        const char *argv[4];
    } steps[FLI_LOGIN_STEPS] = {
        [FLI_LOGIN_AUTH] = {r->user == NULL ? 2 : 3,
                            {"AUTH", r->user == NULL ? r->password : r->user, r->password}},
        [FLI_LOGIN_SELECT] = {2, {"SELECT", number}},
        [FLI_LOGIN_INFO] = {1, {"INFO"}},
        [FLI_LOGIN_COMMANDS] = {4, {"COMMAND", "INFO", "delex", "delifeq"}},
        [FLI_LOGIN_EVAL] = {3, {"EVAL", "return 1", "0"}},
    };
    struct fli_buf bytes;
    unsigned n = 0;
    int rc = 0;
    s->delete_how = FLI_DELETE_SCRIPT;
    s->no_scripts[0] = '\0';
    fli_facts_init(&s->facts);
    fli_buf_init(&bytes, LOGIN_MAX);
    (void)snprintf(number, sizeof number, "%u", r->database);
    s->step = step_from(r, FLI_LOGIN_AUTH);
    for (unsigned i = s->step; i < FLI_LOGIN_STEPS && rc == 0; i = step_from(r, i + 1)) {
        rc = fli_put_words(&bytes, steps[i].argc, steps[i].argv);
        n++;
    }
    rc = rc == 0 ? fli_channel_put_bytes(s->channel, &bytes, n) : rc;
    fli_buf_fini(&bytes);
    return rc;
}

/* ---- the connection -------------------------------------------------------------------------- */

static struct fli_server *server_of(struct fli_listener *l)
{
    return FLI_CONTAINER_OF(l, struct fli_server, listener);
}

static void on_opened(struct fli_listener *l, struct fli_channel *ch)
{
    struct fli_server *s = server_of(l);
    s->channel = ch;
    if (start_login(s) != 0) {
        set_due(s, fli_clock_ms()); /* it has no answer */
    }
}

static void on_answered(struct fli_listener *l, const redisReply *reply)
{
    struct fli_server *s = server_of(l);
    struct fli_redis_request *q = oldest(s);
    if (s->state == FLI_SERVER_OPENING) {
        take_login(s, reply);
        return;
    }
    FLI_ASSERT(q != NULL);
    fli_list_remove(&q->node);
    q->answered(q, s, reply);
}

static void on_ended(struct fli_listener *l, int code, const char *why)
{
    struct fli_server *s = server_of(l);
    bool is_wrong = code == FL_EPROTO || code == FL_EDENIED || strncmp(why, "TLS: ", 5) == 0;
    s->channel = NULL;
    drop(s, is_wrong ? FL_REDLOCK_ERROR : FL_REDLOCK_DOWN, why);
}

int fli_server_put(struct fli_server *s, struct fli_redis_request *q, const struct fli_buf *bytes,
                   uint64_t now_ns)
{
    FLI_ASSERT(s->state == FLI_SERVER_READY);
    const struct fli_channel *ch = s->channel;
    if (ch->asked - ch->answered >= FLI_SERVER_PENDING_MAX ||
        ch->out.len - ch->out_at + bytes->len > FLI_SERVER_OUT_MAX) {
        return FL_EBUSY;
    }
    int rc = fli_channel_put_bytes(s->channel, bytes, 1);
    if (rc != 0) {
        return rc;
    }
    q->sent_ns = now_ns;
    fli_list_init(&q->node);
    fli_list_push(&s->pending, &q->node);
    if (s->due.at_ms == FLI_DUE_NEVER) {
        set_due(s, now_ns / UINT64_C(1000000) + s->r->hung_ms + 1);
    }
    return 0;
}

/* ---- time ------------------------------------------------------------------------------------ */

uint64_t fli_server_silent_ms(const struct fli_server *s, uint64_t now_ns)
{
    const struct fli_redis_request *q = oldest(s);
    return q != NULL && now_ns > q->sent_ns ? (now_ns - q->sent_ns) / UINT64_C(1000000) : 0;
}

static void begin_connection(struct fli_server *s)
{
    int code;
    s->state = FLI_SERVER_OPENING;
    s->opened_ms = fli_clock_ms();
    uint64_t until_ms = s->opened_ms + s->r->connect_ms;
    set_due(s, until_ms);
    struct fli_channel *ch =
        fli_channel_open(s->r->engine, s->index, until_ms, &s->listener, &code);
    s->channel = ch;
    if (ch == NULL) {
        drop(s, FL_REDLOCK_DOWN, s->r->engine->nodes[s->index].error);
    }
}

static void on_due(struct fli_due *d, uint64_t now_ms)
{
    struct fli_server *s = FLI_CONTAINER_OF(d, struct fli_server, due);
    if (s->state == FLI_SERVER_DOWN) {
        begin_connection(s);
    } else if (s->state == FLI_SERVER_OPENING) {
        bool ready = s->channel != NULL && s->channel->link.ready;
        drop(s, FL_REDLOCK_DOWN, ready ? "no answer to the log-in" : "no connection in time");
    } else if (oldest(s) != NULL) {
        uint64_t hung_ms = oldest(s)->sent_ns / UINT64_C(1000000) + s->r->hung_ms + 1;
        if (now_ms >= hung_ms) {
            drop(s, FL_REDLOCK_SILENT, "no answer for too long");
        } else {
            set_due(s, hung_ms);
        }
    }
}

int fli_server_begin(struct fli_server *s)
{
    struct fli_dues *dues = &s->r->engine->dues;
    if (s->due.node.pos == FLI_HEAP_NONE && fli_due_add(dues, &s->due, on_due) != 0) {
        return FL_ENOMEM;
    }
    s->state = FLI_SERVER_DOWN;
    s->status = FL_REDLOCK_DOWN;
    s->failures = 0;
    s->settled = false;
    set_due(s, fli_clock_ms());
    return 0;
}

int fli_server_init(struct fli_server *s, struct fli_redlock *r, uint32_t index)
{
    s->r = r;
    s->index = index;
    s->listener =
        (struct fli_listener){.opened = on_opened, .answered = on_answered, .ended = on_ended};
    fli_list_init(&s->pending);
    fli_list_init(&s->deferred);
    fli_heap_node_init(&s->due.node);
    fli_facts_init(&s->facts);
    return fli_server_begin(s);
}
