/* service.c: see service.h.
 *
 *   request ---> queue ---> group ---> worker: store_execute() ---> answers on the loop
 *                 ^   ^       | |
 *                 |   '-------' | what the group had no room for goes back to the front
 *                 'deferred <-' reads of a connection that is behind, and what follows them
 *
 * Addresses take turns in the queue, and when there is no room, whoever has the most gives up
 * (pending.h): what is given up is refused.
 *
 * In strict mode, operations with a token, and what follows them on their connections, first wait
 * in `unchecked` for the verdict of the lock service. Verdicts come in the order of that list, so
 * operations leave it in the order of arrival. A refusal is answered from there and never gets into
 * a group.
 *
 * The group is taken at the start of the turn after the one that filled the queue, so it has
 * everything that turn parsed. (An idle handle does that, which also keeps that turn from
 * blocking.) A write or claim whose connection has gone is still executed, since it may have been
 * meant. A read is dropped, since no client will see it.
 *
 * When the database fails, nothing is answered any more, and the owner is told to stop. */
#include "store/service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "net/connection_commands.h"
#include "store/answer.h"
#include "store/info.h"
#include "store/pending.h"
#include "store/spool.h"
#include "wire/request.h"
#include "wire/text.h"

#define REQUEST_MAX (STORE_VALUE_MAX + 4096u) /* bytes on the wire: value, key, lock and words */
#define INFO_MAX 16384u
#define MESSAGE_MAX 640u
#define DEFER_MS 10u /* between checks whether these connections have caught up */

struct service {
    uv_loop_t *loop;
    struct store *store;
    struct service_config config;
    struct net_server *net;
    struct net_commands commands;
    struct pending_lists pending;
    struct strict *strict; /* NULL: off */
    struct pending *group[SERVICE_GROUP_OPS_MAX];
    struct store_op *ops[SERVICE_GROUP_OPS_MAX];
    size_t group_len;
    size_t group_done;
    int group_result;
    uint64_t group_ns; /* duration of the worker's last group */
    struct metrics_histogram group_times;
    uv_work_t work;
    bool working;
    uv_idle_t idle;         /* active while a group is about to be taken */
    uv_timer_t defer_timer; /* active while operations are deferred */
    unsigned closing;       /* handles still to be closed by destroy */
    bool broken;            /* the database has failed */
    uint64_t started_ms;
    uint64_t busy;
    struct spool *spool;    /* backups */
    struct users *users;    /* NULL: every client may do everything */
    struct store_info info; /* the store's part is of the last group */
    void (*stop_cb)(void *ctx);
    void *stop_ctx;
    bool net_stopped;
    bool users_closed; /* or were never made */
};

/* The state of a request, in net's memory. */
struct slot {
    struct pending *pending;
    struct users_login *login;
};

static void idle_cb(uv_idle_t *handle);
static void finish_stop(struct service *s);

/* ---- answers ---- */

static void finish(struct net_request *r, bool whole)
{
    if (whole) {
        net_answer(r);
    } else {
        net_answer_failed(r);
    }
}

static void answer(struct service *s, const struct pending *p)
{
    struct net_request *r = p->request;
    const struct store_op *op = &p->op;
    bool unfenced_read = op->verb == STORE_GET && !op->fenced && op->result == 0;
    bool may_know = s->users == NULL || (!unfenced_read && op->result != FL_EWRONGLOCK) ||
                    users_may_know(s->users, r->conn, op);
    if (unfenced_read && !may_know) {
        users_deny(s->users, r, ACL_READ);
        return;
    }
    finish(r, store_answer(net_reply(r), p->proto, s->store, op, may_know));
}

/* A yes is good for the time allowed and no longer: the lease may have ended since. */
static bool is_too_old(const struct pending *p, uint64_t now_ms)
{
    return p->question.due_ms != 0 && now_ms >= p->question.due_ms;
}

static void answer_verdict(const struct service *s, struct pending *p, enum strict_verdict verdict)
{
    struct net_request *r = p->request;
    if (r != NULL) {
        memset(r->user, 0, sizeof(struct pending *));
        finish(r, store_answer_verdict(net_reply(r), &p->op, verdict == STRICT_NOTHELD,
                                       strict_timeout_ms(s->strict)));
    }
}

/* ---- groups ---- */

static void log_message(const struct service *s, int level, const char *part, const char *message)
{
    if (s->config.log != NULL) {
        s->config.log(s->config.ctx, level, part, message);
    }
}

static void wake(struct service *s)
{
    if (!s->working && !s->broken && s->pending.queued > 0) {
        (void)uv_idle_start(&s->idle, idle_cb); /* cannot fail: the callback is not NULL */
    }
}

static void copy_counts(struct service *s)
{
    store_get_counts(s->store, &s->info.counts);
    s->info.db_bytes = store_bytes(s->store);
    s->info.db_file_bytes = store_file_bytes(s->store);
}

/* ---- deferring ---- */

static void resume_cb(uv_timer_t *timer);

static void start_defer_timer(struct service *s)
{
    if (s->pending.deferred_n > 0 && !uv_is_active((uv_handle_t *)&s->defer_timer)) {
        (void)uv_timer_start(&s->defer_timer, resume_cb, DEFER_MS,
                             0); /* the callback is not NULL */
    }
}

static void resume_cb(uv_timer_t *timer)
{
    struct service *s = FLI_CONTAINER_OF(timer, struct service, defer_timer);
    pending_resume(&s->pending);
    start_defer_timer(s);
    wake(s);
}

static void answer_busy(struct service *s, struct net_request *r)
{
    s->busy++;
    finish(r,
           fli_resp_error(net_reply(r), "BUSY",
                          "too much is waiting to be written; nothing was done: try again") == 0);
}

/* A write that is given up and whose client has gone is as good as one that never came. */
static void refuse_busy(struct service *s, struct pending *p)
{
    struct net_request *r = p->request;
    if (r != NULL) {
        memset(r->user, 0, sizeof(struct pending *));
        answer_busy(s, r);
    }
    pending_free(&s->pending, p);
}

static bool make_room_to_defer(struct service *s, const struct pending *p)
{
    while (!pending_may_defer(&s->pending, p)) {
        struct pending *other = pending_give_up_deferred(&s->pending, p);
        if (other == NULL) {
            return false;
        }
        refuse_busy(s, other);
    }
    return true;
}

/* Holds the operation back. */
static void defer(struct service *s, struct pending *p)
{
    FLI_ASSERT(p->request != NULL); /* nothing waits for a client that has gone */
    if (!make_room_to_defer(s, p) || pending_defer(&s->pending, p) != 0) {
        refuse_busy(s, p);
        return;
    }
    pending_set_conn_state(p, pending_conn_state(p) | CONN_DEFERRED);
    start_defer_timer(s);
}

static void work_cb(uv_work_t *work)
{
    struct service *s = FLI_CONTAINER_OF(work, struct service, work);
    uint64_t began_ns = fli_clock_ns();
    s->group_result = store_execute(s->store, s->ops, s->group_len, &s->group_done);
    s->group_ns = fli_clock_ns() - began_ns;
}

/* Operations that the group had no room for go back to where they came from, in their order. The
 * deferred ones of the same connection came later. */
static void put_back(struct service *s)
{
    for (size_t i = s->group_len; i > s->group_done; i--) {
        struct pending *p = s->group[i - 1];
        bool deferred = pending_is_deferred(p) && !s->broken;
        if (!deferred) {
            pending_queue_front(&s->pending, p);
        } else if (!make_room_to_defer(s, p) || pending_defer_front(&s->pending, p) != 0) {
            refuse_busy(s, p);
        }
    }
}

static void fail(struct service *s)
{
    char message[MESSAGE_MAX];
    (void)snprintf(message, sizeof(message),
                   "the database failed (%s); what is on disk is not known, so nothing more is "
                   "answered",
                   fl_strerror(s->group_result));
    s->broken = true;
    s->group_done = 0;
    put_back(s);
    s->config.fatal(s->config.ctx, s->group_result, message);
}

static void after_work_cb(uv_work_t *work, int status)
{
    struct service *s = FLI_CONTAINER_OF(work, struct service, work);
    FLI_ASSERT(status == 0); /* it is never cancelled */
    s->working = false;
    metrics_observe_ns(&s->group_times, s->group_ns);
    if (s->group_result != 0) {
        fail(s);
        return;
    }
    put_back(s);
    copy_counts(s);
    enum fli_turn_part part = fli_turn_enter(net_server_turn(s->net), FLI_TURN_ANSWERS);
    for (size_t i = 0; i < s->group_done; i++) {
        struct pending *p = s->group[i];
        struct net_request *r = p->request;
        if (r != NULL) {
            memset(r->user, 0, sizeof(struct pending *));
            answer(s, p);
        }
        pending_free(&s->pending, p);
    }
    fli_turn_leave(net_server_turn(s->net), part);
    s->group_len = 0;
    wake(s);
    finish_stop(s);
}

/* Fills the group from the queue. What is dropped, deferred or refused on the way has a share of
 * the turn: the next turn goes on with the rest. */
static void take_group(struct service *s)
{
    size_t bytes = 0;
    unsigned visits = 0;
    struct pending *p = NULL;
    uint64_t now_ms = fli_clock_ms();
    s->group_len = 0;
    while (s->group_len < SERVICE_GROUP_OPS_MAX && bytes < SERVICE_GROUP_BYTES_MAX &&
           visits++ < SERVICE_VISITS_MAX && (p = pending_next(&s->pending)) != NULL) {
        if (p->request == NULL && (p->op.verb == STORE_GET || p->op.verb == STORE_MARK)) {
            pending_free(&s->pending, p);
            continue;
        }
        if (is_too_old(p, now_ms)) {
            answer_verdict(s, p, STRICT_UNKNOWN);
            pending_free(&s->pending, p);
            continue;
        }
        if (pending_must_defer(p)) {
            defer(s, p);
            continue;
        }
        s->ops[s->group_len] = &p->op;
        s->group[s->group_len++] = p;
        bytes += p->size;
    }
}

static void idle_cb(uv_idle_t *handle)
{
    struct service *s = FLI_CONTAINER_OF(handle, struct service, idle);
    (void)uv_idle_stop(&s->idle);
    FLI_ASSERT(!s->working);
    take_group(s);
    if (s->group_len == 0) {
        wake(s);
        finish_stop(s);
        return;
    }
    s->working = true;
    int rc = uv_queue_work(s->loop, &s->work, work_cb, after_work_cb);
    FLI_ASSERT(rc == 0); /* fails only without a callback */
}

/* ---- strict mode ---- */

/* Queues the operations at the head of the list that need no verdict any more. */
static void queue_checked(struct service *s)
{
    struct pending *p;
    while ((p = pending_first_unchecked(&s->pending)) != NULL && !p->open) {
        pending_remove(&s->pending, p);
        pending_queue(&s->pending, p);
    }
    wake(s);
}

static void verdict_cb(void *ctx, struct strict_question *question, enum strict_verdict verdict)
{
    struct service *s = ctx;
    struct pending *p = FLI_CONTAINER_OF(question, struct pending, question);
    FLI_ASSERT(p->open);
    p->open = false;
    if (verdict != STRICT_HELD) {
        pending_remove(&s->pending, p);
        answer_verdict(s, p, verdict);
        pending_free(&s->pending, p);
    }
    queue_checked(s);
}

static void push(struct service *s, struct pending *p)
{
    bool needs_verdict = s->strict != NULL && p->op.fenced && p->op.verb != STORE_MARK;
    if (!needs_verdict && pending_conn_state(p) < CONN_UNCHECKED) {
        pending_queue(&s->pending, p);
        wake(s);
        return;
    }
    pending_check(&s->pending, p);
    if (needs_verdict) {
        p->open = true;
        p->question.lock = p->op.lock;
        p->question.token = p->op.token;
        strict_ask(s->strict, &p->question);
    }
}

/* ---- requests ---- */

static uint8_t *copy_slice(struct fli_slice *to, struct fli_slice from, uint8_t *at)
{
    if (from.len > 0) {
        memcpy(at, from.data, from.len);
    }
    *to = (struct fli_slice){at, from.len};
    return at + from.len;
}

static void answer_error(struct net_request *r, const char *word, const char *text)
{
    finish(r, fli_resp_error(net_reply(r), word, "%s", text) == 0);
}

static bool make_room(struct service *s, size_t size, uint64_t address)
{
    while (!pending_has_room(&s->pending, size)) {
        struct pending *other = pending_give_up(&s->pending, address);
        if (other == NULL) {
            return false;
        }
        if (other->open) {
            strict_cancel(s->strict, &other->question);
        }
        refuse_busy(s, other);
        queue_checked(s); /* what stood behind it, if it needs no verdict */
    }
    return true;
}

static void enqueue(struct service *s, struct net_request *r, const struct fli_request *q,
                    enum store_verb verb)
{
    size_t size = sizeof(struct pending) + q->name.len + q->lock.len + q->value.len;
    uint64_t address = net_conn_origin(r->conn);
    if (!make_room(s, size, address)) {
        answer_busy(s, r);
        return;
    }
    struct pending *p = pending_new(&s->pending, size, address);
    if (p == NULL) {
        answer_error(r, "LIMIT", "out of memory; nothing was done: try again later");
        return;
    }
    p->request = r;
    p->proto = net_conn_proto(r->conn);
    p->op.verb = verb;
    p->op.fenced = q->fenced || verb == STORE_CLAIM;
    p->op.token = q->token;
    uint8_t *at = copy_slice(&p->op.key, q->name, p->bytes);
    at = copy_slice(&p->op.lock, q->lock, at);
    (void)copy_slice(&p->op.value, q->value, at);
    memcpy(r->user, &p, sizeof(struct pending *));
    push(s, p);
}

void service_get_info(struct service *s, struct store_info *ret)
{
    struct store_info *i = &s->info;
    i->uptime_ms = fli_clock_ms() - s->started_ms;
    i->pending_ops = s->pending.unchecked_n + s->pending.queued + s->pending.deferred_n +
                     (s->working ? s->group_len : 0);
    i->pending_bytes = s->pending.bytes.taken;
    i->deferred_ops = s->pending.deferred_n;
    i->busy = s->busy;
    if (s->strict != NULL) {
        i->strict_counts = strict_get_counts(s->strict);
    }
    i->connections = net_connections(s->net);
    net_get_stats(s->net, &i->net);
    net_get_memory(s->net, &i->memory);
    i->turn = net_server_turn(s->net)->stats;
    i->tls_port = net_server_tls_port(s->net);
    (void)net_server_tls_facts(s->net, &i->tls);
    i->has_users = s->users != NULL;
    spool_get_counts(s->spool, &i->backups);
    if (s->users != NULL) {
        users_get_counts(s->users, &i->users);
    }
    *ret = *i;
}

static void answer_info(struct service *s, struct net_request *r, struct fli_slice section)
{
    struct fli_buf text;
    struct store_info i;
    service_get_info(s, &i);
    fli_buf_init(&text, INFO_MAX);
    bool whole = store_info_text(&text, &i, section) == 0 &&
                 fli_resp_bulk(net_reply(r), text.data, text.len) == 0;
    fli_buf_fini(&text);
    finish(r, whole);
}

static void request_cb(void *ctx, struct net_request *r, const struct fli_slice *argv,
                       unsigned argc)
{
    struct service *s = ctx;
    char errmsg[FLI_ERRMSG_SIZE];
    const struct fli_command *command;
    struct fli_request q;
    enum store_verb verb;
    unsigned words;
    memset(r->user, 0, sizeof(struct slot));
    int rc =
        fli_command_lookup(FLI_SERVICE_STORE, argv, argc, &command, &words, errmsg, sizeof(errmsg));
    if (rc == 0 && s->users != NULL && !users_gate(s->users, r, command->id)) {
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
    } else if (command->id == FLI_CMD_BACKUP) {
        finish(r, spool_answer(s->spool, net_reply(r), &q, s->info.db_bytes));
    } else if (store_verb_of(command->id, &verb)) {
        if (s->users == NULL || users_allow(s->users, r, &q, verb)) {
            enqueue(s, r, &q, verb);
        }
    } else {
        answer_error(r, "ERR", "this command is not served here");
    }
}

/* Its connection has gone, so nothing holds it back any more, and nothing says any more what has to
 * go before it. Requests of a connection are cancelled in their order: those that are still to be
 * executed go to the end of the queue, one after the other. */
static void leave(struct service *s, struct pending *p)
{
    if (pending_is_deferred(p) && (p->place == PENDING_DEFERRED || p->place == PENDING_QUEUED)) {
        pending_remove(&s->pending, p);
        pending_queue(&s->pending, p);
        wake(s);
    }
    p->request = NULL;
}

static void cancel_cb(void *ctx, struct net_request *r)
{
    struct service *s = ctx;
    struct slot slot;
    memcpy(&slot, r->user, sizeof slot);
    if (slot.pending != NULL) {
        leave(s, slot.pending);
    }
    if (slot.login != NULL) {
        users_cancel(s->users, slot.login);
    }
}

static void shaken_cb(void *ctx, struct net_conn *c)
{
    struct service *s = ctx;
    if (s->users != NULL) {
        users_after_handshake(s->users, c);
    }
}

static void net_log_cb(void *ctx, int level, const char *message)
{
    log_message(ctx, level, "clients", message);
}

static void spool_log_cb(void *ctx, int level, const char *message)
{
    log_message(ctx, level, "backup", message);
}

static unsigned hello_cb(void *ctx, struct net_hello_field *fields)
{
    const struct service *s = ctx;
    fields[0] =
        (struct net_hello_field){.key = "fencing", .text = store_fencing(s->store) ? "on" : "off"};
    return 1;
}

/* ---- start and end ---- */

static const struct net_limits limits = {
    .resp = {.arg_max = STORE_VALUE_MAX, .request_max = REQUEST_MAX},
    .connections_max = SERVICE_CONNECTIONS_MAX,
    .pipeline_max = SERVICE_PIPELINE_MAX,
    .output_max = SERVICE_OUTPUT_MAX,
    .request_memory = 0, /* waiting requests are counted in pending_bytes */
    .memory_max = SERVICE_CLIENT_MEMORY,
    .address_connections_max = SERVICE_CONNECTIONS_MAX / 4 * 3,
    .address_memory_max = SERVICE_CLIENT_MEMORY / 4 * 3,
    .idle_first_ms = 0,
    .unread_ms = NET_UNREAD_MS,
    .fixed = true,
};

/* The last group may have lost its connections and still be running. */
static void finish_stop(struct service *s)
{
    bool idle = s->pending.unchecked_n == 0 && s->pending.queued == 0 && s->pending.deferred_n == 0;
    if (s->users_closed && !s->working && (idle || s->broken) && s->stop_cb != NULL) {
        void (*cb)(void *ctx) = s->stop_cb;
        s->stop_cb = NULL;
        cb(s->stop_ctx);
    }
}

static void users_closed_cb(void *ctx)
{
    struct service *s = ctx;
    s->users_closed = true;
    finish_stop(s);
}

static void net_stopped_cb(void *ctx)
{
    struct service *s = ctx;
    if (s->strict != NULL) {
        strict_stop(s->strict); /* the clients have gone, and unchecked operations are not
                                   executed */
    }
    s->net_stopped = true;
    if (s->users != NULL) {
        users_close(s->users, users_closed_cb, s);
    } else {
        users_closed_cb(s);
    }
}

static void init(struct service *s, uv_loop_t *loop, struct store *store,
                 const struct service_config *config)
{
    s->loop = loop;
    s->store = store;
    s->config = *config;
    s->started_ms = fli_clock_ms();
    metrics_histogram_init(&s->group_times, METRICS_RANGE_FAST);
    pending_init(&s->pending);
    (void)uv_idle_init(loop, &s->idle); /* neither can fail */
    (void)uv_timer_init(loop, &s->defer_timer);
    copy_counts(s);
    s->info.db_bytes_max = store_size_max(store);
    s->info.fencing = store_fencing(store);
}

static void closed_cb(uv_handle_t *handle)
{
    struct service *s = handle->data;
    if (--s->closing == 0) {
        free(s);
    }
}

/* Gives up a service that could not listen. The network's handles close only in the loop. */
static void abandon(struct service *s)
{
    if (s->net != NULL) {
        net_server_stop(s->net, 0, net_stopped_cb, s);
        while (!s->users_closed) {
            (void)uv_run(s->loop, UV_RUN_ONCE);
        }
    }
    service_destroy(s);
}

static void strict_log_cb(void *ctx, int level, const char *message)
{
    log_message(ctx, level, "strict", message);
}

static int start_strict(struct service *s, char *errmsg, size_t errmsg_size)
{
    if (s->config.strict == NULL) {
        return 0;
    }
    struct strict_config config = {.nodes = s->config.strict,
                                   .tls = s->config.strict_tls,
                                   .timeout_ms = s->config.strict_timeout_ms,
                                   .user = s->config.strict_user,
                                   .password = s->config.strict_password,
                                   .ctx = s,
                                   .verdict = verdict_cb,
                                   .log = strict_log_cb};
    s->info.strict = true;
    return strict_create(s->loop, &config, &s->strict, errmsg, errmsg_size);
}

static struct users_login **login_slot(struct net_request *r)
{
    return &((struct slot *)(void *)r->user)->login;
}

static void users_log_cb(void *ctx, int level, const char *message)
{
    log_message(ctx, level, "users", message);
}

static int start_users(struct service *s, char *errmsg, size_t errmsg_size)
{
    s->commands.server = s->net;
    if (s->config.aclfile == NULL) {
        return 0;
    }
    struct users_config config = {.loop = s->loop,
                                  .path = s->config.aclfile,
                                  .cert_users = s->config.cert_users,
                                  .commands = &s->commands,
                                  .slot = login_slot,
                                  .ctx = s,
                                  .log = users_log_cb};
    char why[512];
    int rc = users_create(&config, &s->users, why, sizeof why);
    if (rc != 0) {
        (void)snprintf(errmsg, errmsg_size, "--aclfile: %s", why);
        return rc;
    }
    s->commands.users_ctx = s->users;
    s->commands.user_name = users_name;
    s->commands.is_known = users_is_known;
    s->commands.auth = users_auth;
    return 0;
}

static int listen_all(struct service *s, char *errmsg, size_t errmsg_size)
{
    const struct service_config *c = &s->config;
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

int service_create(uv_loop_t *loop, struct store *store, const struct service_config *config,
                   struct service **ret, char *errmsg, size_t errmsg_size)
{
    struct service *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        (void)snprintf(errmsg, errmsg_size, "out of memory");
        return FL_ENOMEM;
    }
    init(s, loop, store, config);
    s->commands = (struct net_commands){.service = FLI_SERVICE_STORE,
                                        .server_name = "fencelock-store",
                                        .ctx = s,
                                        .hello = hello_cb};
    struct net_callbacks cbs = {.ctx = s,
                                .request = request_cb,
                                .cancel = cancel_cb,
                                .shaken = shaken_cb,
                                .log = net_log_cb};
    int rc = net_server_create(loop, &limits, sizeof(struct slot), &cbs, &s->net);
    if (rc != 0) {
        (void)snprintf(errmsg, errmsg_size, "cannot start the network: %s", fl_strerror(rc));
    } else {
        rc = spool_create(loop, store, spool_log_cb, s, &s->spool);
        rc = rc != 0 ? rc : start_users(s, errmsg, errmsg_size);
        rc = rc != 0 ? rc : start_strict(s, errmsg, errmsg_size);
        rc = rc != 0 ? rc : listen_all(s, errmsg, errmsg_size);
    }
    if (rc != 0) {
        abandon(s);
        return rc;
    }
    s->info.port = net_server_port(s->net);
    *ret = s;
    return 0;
}

uint16_t service_port(const struct service *s)
{
    return s->info.port;
}

const struct metrics_histogram *service_group_times(const struct service *s)
{
    return &s->group_times;
}

bool service_is_serving(const struct service *s)
{
    return !s->broken && s->stop_cb == NULL;
}

uint16_t service_tls_port(const struct service *s)
{
    return net_server_tls_port(s->net);
}

void service_reload(struct service *s)
{
    net_server_tls_reload(s->net);
    if (s->users != NULL) {
        users_reload(s->users);
    }
}

void service_stop(struct service *s, void (*cb)(void *ctx), void *ctx)
{
    s->stop_cb = cb;
    s->stop_ctx = ctx;
    net_server_stop(s->net, SERVICE_DRAIN_MS, net_stopped_cb, s);
}

void service_destroy(struct service *s)
{
    if (s == NULL) {
        return;
    }
    FLI_ASSERT(!s->working);
    FLI_ASSERT(s->pending.unchecked_n == 0);
    struct pending *p;
    while ((p = pending_any(&s->pending)) != NULL) {
        pending_remove(&s->pending, p);
        pending_free(&s->pending, p);
    }
    pending_fini(&s->pending);
    strict_destroy(s->strict);
    spool_close(s->spool);
    net_server_destroy(s->net);
    users_destroy(s->users);
    s->idle.data = s;
    s->defer_timer.data = s;
    s->closing = 2;
    uv_close((uv_handle_t *)&s->idle, closed_cb); /* the last one frees */
    uv_close((uv_handle_t *)&s->defer_timer, closed_cb);
}
