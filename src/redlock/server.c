/* server.c: see server.h. */
#include "redlock/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "redlock/quorum.h"

#define BACKOFF_MIN_MS UINT64_C(50)
#define BACKOFF_MAX_MS UINT64_C(2000)
#define STEADY_MS UINT64_C(1000) /* a connection that worked for so long is reopened at once */

static uint64_t random_below(uint64_t n)
{
    uint64_t r;
    fli_random(&r, sizeof r);
    return r % n;
}

/* ---- closing --------------------------------------------------------------------------------- */

static void answer_all(struct fli_server *s)
{
    struct fli_list gone;
    fli_list_init(&gone);
    fli_list_splice(&gone, &s->pending);
    s->pending_len = 0;
    struct fli_list *node;
    while ((node = fli_list_pop(&gone)) != NULL) {
        struct fli_redis_request *q = FLI_CONTAINER_OF(node, struct fli_redis_request, node);
        q->answered(q, s, NULL);
    }
}

/* Ends the connection. error: why, unless a better reason is known already. */
static void drop(struct fli_server *s, enum fl_redlock_status status, const char *error)
{
    bool was_ready = s->state == FLI_SERVER_READY;
    if (!s->doomed) {
        s->status = status;
        fli_copy_text(s->error, sizeof s->error, error, strlen(error));
    }
    s->doomed = false;
    s->state = FLI_SERVER_DOWN;
    s->settled = true;
    fli_link_uv_close(&s->conn);
    uint64_t now_ms = fli_clock_ms();
    if (was_ready && now_ms - s->opened_ms >= STEADY_MS) {
        s->failures = 0;
        s->retry_ms = now_ms;
    } else {
        uint64_t shift = s->failures < 10 ? s->failures : 10;
        uint64_t pause_ms = BACKOFF_MIN_MS << shift;
        pause_ms = pause_ms < BACKOFF_MAX_MS ? pause_ms : BACKOFF_MAX_MS;
        s->retry_ms = now_ms + pause_ms / 2 + random_below(pause_ms / 2 + 1);
        s->failures++;
    }
    answer_all(s);
    s->owner->down(s->owner, s);
}

/* Called inside an answer: marks the connection to be closed when the answers read so far are
 * handed out. */
static void doom(struct fli_server *s, enum fl_redlock_status status, const char *error, size_t len)
{
    if (!s->doomed) {
        s->doomed = true;
        s->status = status;
        fli_copy_text(s->error, sizeof s->error, error, len);
    }
}

void fli_server_distrust(struct fli_server *s)
{
    static const char text[] = "an answer of an unexpected type";
    doom(s, FL_REDLOCK_ERROR, text, sizeof text - 1);
}

static void on_opened(struct fli_link_uv *c);
static bool on_answered(struct fli_link_uv *c, const redisReply *reply);
static void on_broken(struct fli_link_uv *c, int rc);

void fli_server_init(struct fli_server *s, struct fli_server_owner *owner, uint32_t index)
{
    owner->links.opened = on_opened;
    owner->links.answered = on_answered;
    owner->links.broken = on_broken;
    s->owner = owner;
    s->index = index;
    s->state = FLI_SERVER_DOWN;
    s->status = FL_REDLOCK_DOWN;
    fli_list_init(&s->pending);
    fli_list_init(&s->deferred);
    fli_link_uv_init(&s->conn, &owner->links, FLI_SERVER_OUT_MAX);
    s->conn.link.bytes_max = FLI_SERVER_REPLY_MAX;
    s->conn.link.elements_max = FLI_SERVER_ARRAY_MAX;
    fli_facts_init(&s->facts);
}

void fli_server_close(struct fli_server *s)
{
    if (s->conn.watch != NULL) {
        drop(s, FL_REDLOCK_DOWN, "closed");
    }
    s->state = FLI_SERVER_CLOSED;
    free(s->username);
    free(s->password);
    s->username = NULL;
    s->password = NULL;
}

void fli_server_own(struct fli_server *s)
{
    if (s->conn.watch != NULL) {
        drop(s, FL_REDLOCK_DOWN, "it was the connection of the process that forked this one");
    }
    s->retry_ms = 0;
    s->failures = 0;
    s->settled = false;
}

/* ---- logging in ------------------------------------------------------------------------------ */

enum step {
    STEP_AUTH,
    STEP_SELECT,
    STEP_SERVER,
    STEP_REPLICATION,
    STEP_COMMANDS,
    STEP_SCRIPT,
    STEP_EVAL,
};

struct login_request {
    struct fli_redis_request base;
    enum step step;
};

/* The log-in is answered: takes what the server told, and decides whether it counts. */
static void logged_in(struct fli_server *s)
{
    uint64_t now_ms = fli_clock_ms();
    bool replica = s->facts.role[0] != '\0' && strcmp(s->facts.role, "master") != 0;
    uint64_t uptime_s = s->facts.uptime_s < 0 || s->was_replica ? 0 : (uint64_t)s->facts.uptime_s;
    s->was_replica = replica;
    s->counts_from_ms = s->owner->restarts_are_safe
                            ? 0
                            : fli_counts_from_ms(now_ms, uptime_s, s->owner->max_ttl_ms);
    s->facts.heard = true;
    s->settled = true;
    if (replica) {
        /* Tried again after the pause, since the server may become a master. */
        doom(s, FL_REDLOCK_REPLICA, "it is a replica", 15);
        return;
    }
    if (s->no_scripts[0] != '\0' && s->delete_how == FLI_DELETE_SCRIPT && !s->facts.is_node) {
        char text[FL_REDLOCK_ERROR_MAX];
        int len =
            snprintf(text, sizeof text, "no scripts, so no lock could be released (EVAL): %.100s",
                     s->no_scripts);
        doom(s, FL_REDLOCK_ERROR, text, (size_t)len);
        return;
    }
    s->state = FLI_SERVER_READY;
    s->status = FL_REDLOCK_YES;
    s->error[0] = '\0';
    s->owner->ready(s->owner, s);
}

static void take_login(struct fli_server *s, enum step step, const redisReply *reply)
{
    bool failed = reply->type == REDIS_REPLY_ERROR;
    switch (step) {
    case STEP_AUTH:
    case STEP_SELECT:
        if (failed) {
            doom(s, FL_REDLOCK_ERROR, reply->str, reply->len);
        }
        break;
    case STEP_SERVER:
    case STEP_REPLICATION:
        if (reply->type == REDIS_REPLY_STRING) {
            fli_facts_take_info(&s->facts, reply->str, reply->len);
        } else if (fli_is_error(reply, "NOAUTH")) {
            doom(s, FL_REDLOCK_ERROR, reply->str, reply->len);
        }
        break;
    case STEP_COMMANDS:
        s->delete_how = fli_delete_how(reply);
        break;
    case STEP_EVAL:
        if (fli_is_error(reply, "ERR") || fli_is_error(reply, "NOPERM")) {
            fli_copy_text(s->no_scripts, sizeof s->no_scripts, reply->str, reply->len);
        }
        break;
    case STEP_SCRIPT:
        break; /* if that is not permitted, each request carries the text */
    }
}

static void on_login_answer(struct fli_redis_request *q, struct fli_server *s,
                            const redisReply *reply)
{
    struct login_request *login = FLI_CONTAINER_OF(q, struct login_request, base);
    enum step step = login->step;
    free(login);
    if (reply == NULL || s->doomed) {
        return;
    }
    take_login(s, step, reply);
    FLI_ASSERT(s->login_left > 0);
    s->login_left--;
    if (s->login_left == 0 && !s->doomed) {
        logged_in(s);
    }
}

static void enqueue(struct fli_server *s, struct fli_redis_request *q, uint64_t now_ns)
{
    q->sent_ns = now_ns;
    fli_list_push(&s->pending, &q->node);
    s->pending_len++;
}

static int ask(struct fli_server *s, enum step step, size_t argc, const char *const *argv)
{
    struct login_request *login = calloc(1, sizeof *login);
    if (login == NULL) {
        return FL_ENOMEM;
    }
    int rc = fli_put_words(&s->conn.out, argc, argv);
    if (rc != 0) {
        free(login);
        return rc;
    }
    login->base.answered = on_login_answer;
    login->step = step;
    s->login_left++;
    enqueue(s, &login->base, fli_clock_ns());
    return 0;
}

static int ask_auth(struct fli_server *s)
{
    const char *const named[] = {"AUTH", s->username, s->password};
    const char *const plain[] = {"AUTH", s->password};
    if (s->password == NULL) {
        return 0;
    }
    return s->username != NULL ? ask(s, STEP_AUTH, 3, named) : ask(s, STEP_AUTH, 2, plain);
}

static int ask_select(struct fli_server *s)
{
    char number[12];
    (void)snprintf(number, sizeof number, "%u", s->database);
    const char *const select[] = {"SELECT", number};
    return s->database == 0 ? 0 : ask(s, STEP_SELECT, 2, select);
}

/* All requests of the log-in are sent at once, so that it costs one round trip. */
static int start_login(struct fli_server *s)
{
    static const char *const server[] = {"INFO", "server"};
    static const char *const replication[] = {"INFO", "replication"};
    static const char *const commands[] = {"COMMAND", "INFO", "delex", "delifeq"};
    static const char *const release[] = {"SCRIPT", "LOAD", fli_release_script};
    static const char *const extend[] = {"SCRIPT", "LOAD", fli_extend_script};
    static const char *const eval[] = {"EVAL", "return 1", "0"};
    s->login_left = 0;
    s->delete_how = FLI_DELETE_SCRIPT;
    s->no_scripts[0] = '\0';
    fli_facts_init(&s->facts);
    int rc = ask_auth(s);
    rc = rc != 0 ? rc : ask_select(s);
    rc = rc != 0 ? rc : ask(s, STEP_SERVER, 2, server);
    rc = rc != 0 ? rc : ask(s, STEP_REPLICATION, 2, replication);
    rc = rc != 0 ? rc : ask(s, STEP_COMMANDS, 4, commands);
    rc = rc != 0 ? rc : ask(s, STEP_SCRIPT, 3, release);
    rc = rc != 0 ? rc : ask(s, STEP_SCRIPT, 3, extend);
    return rc != 0 ? rc : ask(s, STEP_EVAL, 3, eval);
}

/* ---- the connection -------------------------------------------------------------------------- */

static struct fli_server *server_of(struct fli_link_uv *c)
{
    return FLI_CONTAINER_OF(c, struct fli_server, conn);
}

static void on_opened(struct fli_link_uv *c)
{
    if (start_login(server_of(c)) != 0) {
        drop(server_of(c), FL_REDLOCK_DOWN, "out of memory");
    }
}

static bool on_answered(struct fli_link_uv *c, const redisReply *reply)
{
    struct fli_server *s = server_of(c);
    struct fli_list *node = fli_list_pop(&s->pending);
    if (node == NULL) {
        static const char odd[] = "it says something unasked";
        bool is_text = reply->type == REDIS_REPLY_ERROR;
        doom(s, FL_REDLOCK_ERROR, is_text ? reply->str : odd,
             is_text ? reply->len : sizeof odd - 1);
    } else {
        s->pending_len--;
        struct fli_redis_request *q = FLI_CONTAINER_OF(node, struct fli_redis_request, node);
        q->answered(q, s, reply);
    }
    return !s->doomed;
}

static void on_broken(struct fli_link_uv *c, int rc)
{
    bool is_wrong = rc == FL_EPROTO || c->link.tls_failed;
    drop(server_of(c), is_wrong ? FL_REDLOCK_ERROR : FL_REDLOCK_DOWN, c->link.error);
}

void fli_server_read(struct fli_server *s)
{
    fli_link_uv_read(&s->conn);
}

void fli_server_flush(struct fli_server *s)
{
    fli_link_uv_flush(&s->conn);
}

struct fli_buf *fli_server_out(struct fli_server *s)
{
    FLI_ASSERT(s->state == FLI_SERVER_READY);
    return s->doomed || s->pending_len >= FLI_SERVER_PENDING_MAX ? NULL : &s->conn.out;
}

void fli_server_put(struct fli_server *s, struct fli_redis_request *q, uint64_t now_ns)
{
    enqueue(s, q, now_ns);
}

static void start(struct fli_server *s, uint64_t now_ms)
{
    struct fli_link_security *security = s->host[0] != '\0' ? &s->owner->tls : NULL;
    s->state = FLI_SERVER_OPENING;
    s->opened_ms = now_ms;
    if (fli_link_uv_begin(&s->conn, security, s->host, (const struct sockaddr *)&s->where,
                          s->where_len) != 0) {
        drop(s, FL_REDLOCK_DOWN, s->conn.link.error);
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

uint64_t fli_server_silent_ms(const struct fli_server *s, uint64_t now_ns)
{
    const struct fli_list *first = fli_list_first(&s->pending);
    if (first == NULL) {
        return 0;
    }
    uint64_t sent_ns = FLI_CONTAINER_OF(first, struct fli_redis_request, node)->sent_ns;
    return now_ns > sent_ns ? (now_ns - sent_ns) / UINT64_C(1000000) : 0;
}

uint64_t fli_server_due_ms(const struct fli_server *s)
{
    const struct fli_list *first = fli_list_first(&s->pending);
    switch (s->state) {
    case FLI_SERVER_DOWN:
        return s->retry_ms;
    case FLI_SERVER_OPENING:
        return s->opened_ms + s->owner->connect_ms;
    case FLI_SERVER_READY:
        if (first != NULL) {
            uint64_t ns = FLI_CONTAINER_OF(first, struct fli_redis_request, node)->sent_ns;
            return ns / UINT64_C(1000000) + s->owner->hung_ms + 1;
        }
        break;
    case FLI_SERVER_CLOSED:
        break;
    }
    return UINT64_MAX;
}

void fli_server_tick(struct fli_server *s, uint64_t now_ms)
{
    if (now_ms < fli_server_due_ms(s)) {
        return;
    }
    if (s->state == FLI_SERVER_DOWN) {
        start(s, now_ms);
    } else if (s->state == FLI_SERVER_OPENING) {
        drop(s, FL_REDLOCK_DOWN,
             s->conn.link.ready ? "no answer to the log-in" : "no connection in time");
    } else {
        drop(s, FL_REDLOCK_SILENT, "no answer for too long");
    }
}
