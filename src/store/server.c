/* server.c: see server.h.
 *
 *   request ---> turn: store_do() ---> idle handle: store_commit() ---> answers
 *      |           ^
 *      '--> held --' strict mode: a verdict of the lock service has come
 *
 * The transaction begins with the first operation of a turn. An operation whose connection has gone
 * is still committed, since it may have been meant. When the database fails, nothing is answered
 * any more, and the owner is told to stop. */
#include "store/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "net/connection_commands.h"
#include "store/answer.h"
#include "store/info.h"
#include "store/rights.h"

#define REQUEST_MAX (STORE_VALUE_MAX + 4096u) /* bytes on the wire: value, key, lock and words */
#define ANSWERS_MAX (STORE_TURN_OUT_MAX + 2 * STORE_VALUE_MAX)
#define INFO_MAX 16384u

/* An operation of the turn, and its answer in `answers`. */
struct done {
    struct net_request *request; /* NULL: its connection has gone */
    size_t at, len;
};

/* An operation that waits for a verdict. Its connection is held. */
struct held {
    struct net_request *request;
    struct strict_question question;
    struct store_op op;
    uint8_t bytes[]; /* key, lock and value */
};

struct store_server {
    uv_loop_t *loop;
    struct store *store;
    struct store_server_config config;
    struct net_server *net;
    struct net_commands commands;
    struct strict *strict;    /* NULL: off */
    struct file_users *users; /* NULL: every client may do everything */
    struct done turn[STORE_TURN_OPS_MAX];
    size_t turn_len;
    struct fli_buf answers;
    bool is_open;       /* a transaction */
    bool broken;        /* the database has failed */
    uv_idle_t turn_end; /* active while a transaction is open: the loop must not sleep */
    size_t held_ops;
    uint64_t started_ms;
    void (*stop_cb)(void *ctx);
    void *stop_ctx;
    bool stopped;
};

/* The state of a request, in net's memory. At most one of these. */
struct slot {
    size_t done; /* its number in the turn, plus one */
    struct held *held;
    struct auth_login *login;
};

static struct slot *slot_of(struct net_request *r)
{
    return (struct slot *)(void *)r->user;
}

static void finish(struct net_request *r, bool whole)
{
    if (whole) {
        net_answer(r);
    } else {
        net_answer_failed(r);
    }
}

static void answer_error(struct net_request *r, const char *word, const char *text)
{
    finish(r, fli_resp_error(net_reply(r), word, "%s", text) == 0);
}

/* ---- the turn ---- */

static void fail(struct store_server *s, int rc)
{
    s->broken = true;
    s->config.fatal(s->config.ctx, rc);
}

/* Answers all operations of the turn: each as it was done, or as the transaction that was not. */
static void answer_all(struct store_server *s, int rc)
{
    size_t n = s->turn_len;
    s->turn_len = 0;
    for (size_t i = 0; i < n; i++) {
        struct net_request *r = s->turn[i].request;
        if (r == NULL) {
            continue;
        }
        const struct done *d = &s->turn[i];
        slot_of(r)->done = 0;
        finish(r, rc != 0 ? store_answer_undone(net_reply(r), rc)
                          : fli_buf_append(net_reply(r), s->answers.data + d->at, d->len) == 0);
    }
    fli_buf_clear(&s->answers);
}

static void close_turn(struct store_server *s, int rc)
{
    s->is_open = false;
    if (rc == 0 || rc == FL_ELIMIT || rc == FL_ENOMEM || rc == FL_EBUSY) { /* surely not done */
        answer_all(s, rc);
    } else {
        fail(s, rc);
    }
}

/* One sync for everything that the turn has done. */
static void end_turn(struct store_server *s)
{
    struct fli_turn *turn = net_server_turn(s->net);
    enum fli_turn_part part = fli_turn_enter(turn, FLI_TURN_APPLY);
    uint64_t before_ns = fli_clock_ns();
    int rc = store_commit(s->store);
    fli_turn_waited(turn, fli_clock_ns() - before_ns);
    (void)fli_turn_enter(turn, FLI_TURN_ANSWERS);
    close_turn(s, rc);
    fli_turn_leave(turn, part);
}

/* Sending may make net take what it had read already, and so begin the next turn. */
static void turn_end_cb(uv_idle_t *handle)
{
    struct store_server *s = FLI_CONTAINER_OF(handle, struct store_server, turn_end);
    (void)uv_idle_stop(handle);
    if (s->is_open) {
        end_turn(s);
    }
    if (!s->broken) {
        net_flush(s->net);
    }
    int rc = s->is_open || s->broken ? 0 : fli_db_checkpoint(&s->store->db);
    if (rc != 0) {
        fail(s, rc);
    }
}

static void note_done(struct store_server *s, struct net_request *r, size_t at)
{
    s->turn[s->turn_len++] = (struct done){r, at, s->answers.len - at};
    slot_of(r)->done = s->turn_len;
    if (s->turn_len == STORE_TURN_OPS_MAX || s->answers.len >= STORE_TURN_OUT_MAX) {
        end_turn(s);
    }
}

/* Does it, as part of the turn's transaction, and keeps the answer until that is on disk. */
static void execute(struct store_server *s, struct net_request *r, struct store_op *op)
{
    size_t at = s->answers.len;
    int rc = 0;
    if (s->broken) {
        return; /* nothing is answered any more */
    }
    if (!s->is_open) {
        rc = store_begin(s->store);
        s->is_open = rc == 0;
        (void)uv_idle_start(&s->turn_end, turn_end_cb); /* the callback is not NULL */
    }
    rc = rc != 0 ? rc : store_do(s->store, op);
    if (rc != 0) {
        s->turn[s->turn_len++] = (struct done){.request = r};
        store_rollback(s->store);
        close_turn(s, rc);
        return;
    }
    bool may_know = rights_may_know(s->users, r->conn, op);
    if (op->result == 0 && !may_know) {
        file_users_deny(s->users, r, ACL_READ);
        return;
    }
    if (!store_answer(&s->answers, net_conn_proto(r->conn), s->store, op, may_know)) {
        net_answer_failed(r); /* out of memory: it will not know */
        return;
    }
    note_done(s, r, at);
}

/* ---- operations that are held ---- */

static uint8_t *copy_slice(struct fli_slice *slice, uint8_t *at)
{
    if (slice->len > 0) {
        memcpy(at, slice->data, slice->len);
    }
    slice->data = at;
    return at + slice->len;
}

static struct held *hold(struct store_server *s, struct net_request *r, const struct store_op *op)
{
    size_t size = sizeof(struct held) + op->key.len + op->lock.len + op->value.len;
    struct held *h = malloc(size);
    if (h == NULL) {
        answer_error(r, "LIMIT", "out of memory; nothing was done: try again later");
        return NULL;
    }
    *h = (struct held){.request = r, .op = *op};
    (void)copy_slice(&h->op.value, copy_slice(&h->op.lock, copy_slice(&h->op.key, h->bytes)));
    net_request_keeps(r, size);
    net_conn_hold(r->conn);
    slot_of(r)->held = h;
    s->held_ops++;
    return h;
}

/* Its connection goes on; the caller frees it. */
static struct net_request *let_go(struct store_server *s, struct held *h)
{
    struct net_request *r = h->request;
    slot_of(r)->held = NULL;
    net_conn_release(r->conn);
    s->held_ops--;
    return r;
}

static void verdict_cb(void *ctx, struct strict_question *question, enum strict_verdict verdict)
{
    struct store_server *s = ctx;
    struct held *h = FLI_CONTAINER_OF(question, struct held, question);
    struct net_request *r = let_go(s, h);
    if (verdict == STRICT_HELD) {
        execute(s, r, &h->op);
    } else {
        finish(r, store_answer_verdict(net_reply(r), &h->op, verdict == STRICT_NOTHELD,
                                       s->config.strict.timeout_ms));
    }
    free(h);
}

static void check(struct store_server *s, struct net_request *r, const struct store_op *op)
{
    struct held *h = hold(s, r, op);
    if (h != NULL) {
        h->question.lock = h->op.lock;
        h->question.token = h->op.token;
        strict_ask(s->strict, &h->question);
    }
}

/* ---- requests ---- */

static void run_op(struct store_server *s, struct net_request *r, const struct fli_request *q,
                   enum store_verb verb)
{
    struct store_op op = {.verb = verb,
                          .fenced = q->fenced || verb == STORE_CLAIM,
                          .token = q->token,
                          .key = q->name,
                          .lock = q->lock,
                          .value = q->value};
    if (!rights_allow(s->users, r, q, verb)) {
        return;
    }
    if (s->strict != NULL && op.fenced && verb != STORE_MARK) {
        check(s, r, &op);
    } else {
        execute(s, r, &op);
    }
}

void store_server_get_info(struct store_server *s, struct store_info *ret)
{
    *ret = (struct store_info){.counts = s->store->committed,
                               .marks = s->store->db.committed.marks,
                               .db_bytes = fli_db_bytes(&s->store->db),
                               .db_file_bytes = fli_db_file_bytes(&s->store->db),
                               .db_bytes_max = s->store->db.pages_max * FLI_DB_PAGE,
                               .serving = !s->broken && s->stop_cb == NULL,
                               .fencing = s->store->fencing,
                               .strict = s->strict != NULL,
                               .port = net_server_port(s->net),
                               .uptime_ms = fli_clock_ms() - s->started_ms,
                               .held_ops = s->held_ops,
                               .connections = net_connections(s->net),
                               .turn = net_server_turn(s->net)->stats,
                               .tls_port = net_server_tls_port(s->net),
                               .has_users = s->users != NULL};
    net_get_stats(s->net, &ret->net);
    net_get_memory(s->net, &ret->memory);
    (void)net_server_tls_facts(s->net, &ret->tls);
    if (s->strict != NULL) {
        ret->strict_counts = strict_get_counts(s->strict);
    }
    file_users_get_counts(s->users, &ret->users);
}

static void answer_info(struct store_server *s, struct net_request *r, struct fli_slice section)
{
    struct fli_buf text;
    struct store_info i;
    store_server_get_info(s, &i);
    fli_buf_init(&text, INFO_MAX);
    bool whole = store_info_text(&text, &i, section) == 0 &&
                 fli_resp_bulk(net_reply(r), text.data, text.len) == 0;
    fli_buf_fini(&text);
    finish(r, whole);
}

static void request_cb(void *ctx, struct net_request *r, const struct fli_slice *argv,
                       unsigned argc)
{
    struct store_server *s = ctx;
    char errmsg[FLI_ERRMSG_SIZE];
    const struct fli_command *command;
    struct fli_request q;
    unsigned words;
    memset(r->user, 0, sizeof(struct slot));
    int rc =
        fli_command_lookup(FLI_SERVICE_STORE, argv, argc, &command, &words, errmsg, sizeof(errmsg));
    if (rc == 0 && !rights_gate(s->users, r, command->id)) {
        return;
    }
    if (rc == 0 && net_connection_command(&s->commands, r, command, argv + words, argc - words)) {
        return;
    }
    if (rc == 0) {
        rc = fli_request_parse(command, argv + words, argc - words, &q, errmsg, sizeof(errmsg));
    }
    if (rc != 0) {
        answer_error(r, fli_request_error_word(rc), errmsg);
    } else if (command->id == FLI_CMD_INFO) {
        answer_info(s, r, q.pattern);
    } else { /* what is left of the commands of a storage */
        run_op(s, r, &q, (enum store_verb)command->id);
    }
}

/* What is done is committed; what has not begun is dropped. */
static void cancel_cb(void *ctx, struct net_request *r)
{
    struct store_server *s = ctx;
    struct slot *slot = slot_of(r);
    if (slot->done != 0) {
        s->turn[slot->done - 1].request = NULL;
    }
    if (slot->held != NULL) {
        strict_cancel(s->strict, &slot->held->question);
        struct held *h = slot->held;
        (void)let_go(s, h);
        free(h);
    }
    file_users_cancel(s->users, r);
}

static void shaken_cb(void *ctx, struct net_conn *c)
{
    struct store_server *s = ctx;
    file_users_shaken(s->users, c);
}

/* For what the server is made of. */
static void log_cb(void *ctx, int level, const char *message)
{
    const struct store_server *s = ctx;
    s->config.log(s->config.ctx, level, message);
}

/* ---- start and end ---- */

static const struct net_limits limits = {
    .resp = {.arg_max = STORE_VALUE_MAX, .request_max = REQUEST_MAX},
    .connections_max = STORE_CONNECTIONS_MAX,
    .pipeline_max = STORE_PIPELINE_MAX,
    .output_max = STORE_OUTPUT_MAX,
    .memory_max = STORE_CLIENT_MEMORY,
    .address_connections_max = STORE_CONNECTIONS_MAX / 4 * 3,
    .address_memory_max = STORE_CLIENT_MEMORY / 4 * 3,
    .unread_ms = NET_UNREAD_MS,
    .fixed = true,
};

static void stopped_cb(void *ctx)
{
    struct store_server *s = ctx;
    void (*cb)(void *ctx) = s->stop_cb;
    s->stopped = true;
    if (cb != NULL) {
        cb(s->stop_ctx);
    }
}

/* The clients have gone; what they had done is committed. */
static void net_stopped_cb(void *ctx)
{
    struct store_server *s = ctx;
    if (s->is_open) {
        end_turn(s);
    }
    file_users_close(s->users, stopped_cb, s);
}

static int start_strict(struct store_server *s, char *errmsg, size_t errmsg_size)
{
    if (s->config.strict.nodes == NULL) {
        return 0;
    }
    s->config.strict.ctx = s;
    s->config.strict.verdict = verdict_cb;
    s->config.strict.log = log_cb;
    return strict_create(s->loop, &s->config.strict, &s->strict, errmsg, errmsg_size);
}

static struct auth_login **login_slot(struct net_request *r)
{
    return &slot_of(r)->login;
}

static int start_users(struct store_server *s, char *errmsg, size_t errmsg_size)
{
    s->commands.server = s->net;
    if (s->config.aclfile == NULL) {
        return 0;
    }
    struct file_users_config config = {.loop = s->loop,
                                       .path = s->config.aclfile,
                                       .rights = ACL_STORE_RIGHTS,
                                       .cert_users = s->config.cert_users,
                                       .commands = &s->commands,
                                       .slot = login_slot,
                                       .ctx = s,
                                       .log = log_cb};
    char why[512];
    int rc = file_users_create(&config, &s->users, why, sizeof why);
    if (rc != 0) {
        (void)snprintf(errmsg, errmsg_size, "--aclfile: %s", why);
    }
    return rc;
}

static int listen_all(struct store_server *s, char *errmsg, size_t errmsg_size)
{
    const struct store_server_config *c = &s->config;
    char why[512];
    int rc = c->listen == NULL ? 0 : net_server_listen(s->net, c->listen, why, sizeof why);
    if (rc != 0) {
        (void)snprintf(errmsg, errmsg_size, "--listen: %s", why);
    }
    if (rc == 0 && c->tls_listen != NULL) {
        rc = net_server_listen_tls(s->net, c->tls_listen, c->tls, errmsg, errmsg_size);
    }
    return rc;
}

static int start(struct store_server *s, char *errmsg, size_t errmsg_size)
{
    struct net_callbacks cbs = {
        .ctx = s, .request = request_cb, .cancel = cancel_cb, .shaken = shaken_cb, .log = log_cb};
    int rc = net_server_create(s->loop, &limits, sizeof(struct slot), &cbs, &s->net);
    if (rc != 0) {
        (void)snprintf(errmsg, errmsg_size, "cannot start the network: %s", fl_strerror(rc));
        return rc;
    }
    rc = start_users(s, errmsg, errmsg_size);
    rc = rc != 0 ? rc : start_strict(s, errmsg, errmsg_size);
    return rc != 0 ? rc : listen_all(s, errmsg, errmsg_size);
}

/* Gives up a server that could not listen. The network's handles close only in the loop. */
static void abandon(struct store_server *s)
{
    if (s->net != NULL) {
        net_server_stop(s->net, 0, net_stopped_cb, s);
        while (!s->stopped) {
            (void)uv_run(s->loop, UV_RUN_ONCE);
        }
    }
    store_server_destroy(s);
}

int store_server_create(uv_loop_t *loop, struct store *store,
                        const struct store_server_config *config, struct store_server **ret,
                        char *errmsg, size_t errmsg_size)
{
    struct store_server *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        (void)snprintf(errmsg, errmsg_size, "out of memory");
        return FL_ENOMEM;
    }
    s->loop = loop;
    s->store = store;
    s->config = *config;
    s->started_ms = fli_clock_ms();
    s->commands = (struct net_commands){
        .service = FLI_SERVICE_STORE, .server_name = "fencelock-store", .ctx = s};
    fli_buf_init(&s->answers, ANSWERS_MAX);
    (void)uv_idle_init(loop, &s->turn_end); /* cannot fail */
    s->turn_end.data = s;
    int rc = start(s, errmsg, errmsg_size);
    if (rc != 0) {
        abandon(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void store_server_reload(struct store_server *s)
{
    net_server_tls_reload(s->net);
    file_users_reload(s->users);
}

void store_server_stop(struct store_server *s, void (*cb)(void *ctx), void *ctx)
{
    s->stop_cb = cb;
    s->stop_ctx = ctx;
    net_server_stop(s->net, STORE_DRAIN_MS, net_stopped_cb, s);
}

static void closed_cb(uv_handle_t *handle)
{
    struct store_server *s = handle->data;
    fli_buf_fini(&s->answers);
    free(s);
}

void store_server_destroy(struct store_server *s)
{
    if (s == NULL) {
        return;
    }
    FLI_ASSERT(s->held_ops == 0);
    strict_destroy(s->strict);
    net_server_destroy(s->net);
    file_users_destroy(s->users);
    uv_close((uv_handle_t *)&s->turn_end, closed_cb);
}
