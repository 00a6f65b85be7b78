/* strict.c: see strict.h. */
#include "store/strict.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

struct strict {
    struct strict_config config;
    struct fli_engine engine;
    uv_poll_t poll;
    uv_idle_t turn;          /* active while a question may have its turn */
    unsigned closing;        /* handles */
    struct fli_list waiting; /* questions that have no turn yet */
    unsigned under_way;
    struct strict_counts counts;
    bool failure_logged; /* that no node answers */
};

/* Once when it fails, and once when it answers again. */
static void note_health(struct strict *s, bool answers, const char *why)
{
    char text[512];
    bool changed = answers == s->failure_logged;
    s->failure_logged = !answers;
    if (!changed) {
        return;
    }
    if (answers) {
        (void)snprintf(text, sizeof(text), "strict mode: the lock service answers again");
    } else {
        (void)snprintf(text, sizeof(text), "strict mode: the lock service does not answer: %.400s",
                       why);
    }
    s->config.log(s->config.ctx, 3, text);
}

static void decide(struct strict *s, struct strict_question *q, enum strict_verdict verdict)
{
    s->counts.refused += verdict == STRICT_NOTHELD;
    s->counts.unreachable += verdict == STRICT_UNKNOWN;
    s->config.verdict(s->config.ctx, q, verdict);
}

static void start_next(struct strict *s);

static void ended(struct fl_call *call)
{
    struct strict_question *q = call->arg;
    struct strict *s = q->strict;
    int status = call->call_state.status;
    bool answered = status == 0 || status == FL_ENOTHELD;
    /* This process may have been stopped for long while the answer waited in the socket. */
    bool in_time = fli_clock_ms() < q->due_ms;
    q->call = NULL;
    s->under_way--;
    note_health(s, answered, call->error);
    decide(s, q,
           !answered || !in_time ? STRICT_UNKNOWN
           : status == 0         ? STRICT_HELD
                                 : STRICT_NOTHELD);
    start_next(s);
}

static void start(struct strict *s, struct strict_question *q)
{
    const struct fli_call_request request = {.command = FLI_CALL_CHECK,
                                             .name = {(const char *)q->lock.data, q->lock.len},
                                             .token = q->token};
    const struct fli_call_times times = {.deadline_ms = q->due_ms};
    q->call = fli_engine_start(&s->engine, &request, &times, ended, q);
    if (q->call == NULL) {
        decide(s, q, STRICT_UNKNOWN);
        return;
    }
    s->under_way++;
}

static void start_next(struct strict *s)
{
    struct fli_list *link = NULL;
    while (s->under_way < STRICT_WINDOW && (link = fli_list_pop(&s->waiting)) != NULL) {
        struct strict_question *q = FLI_CONTAINER_OF(link, struct strict_question, link);
        if (fli_clock_ms() < q->due_ms) {
            start(s, q);
        } else {
            decide(s, q, STRICT_UNKNOWN);
        }
    }
}

static void turn_cb(uv_idle_t *turn)
{
    (void)uv_idle_stop(turn);
    start_next(FLI_CONTAINER_OF(turn, struct strict, turn));
}

static void poll_cb(uv_poll_t *poll, int status, int events)
{
    fli_engine_process(&FLI_CONTAINER_OF(poll, struct strict, poll)->engine);
}

void strict_ask(struct strict *s, struct strict_question *q)
{
    s->counts.checks++;
    q->strict = s;
    q->due_ms = fli_clock_ms() + s->config.timeout_ms;
    fli_list_push(&s->waiting, &q->link);
    (void)uv_idle_start(&s->turn, turn_cb); /* the callback is not NULL */
}

void strict_cancel(struct strict *s, struct strict_question *q)
{
    if (q->call == NULL) {
        fli_list_remove(&q->link);
        return;
    }
    fli_engine_cancel(q->call);
    q->call = NULL;
    s->under_way--;
    (void)uv_idle_start(&s->turn, turn_cb); /* for the next */
}

static int start_engine(struct strict *s, char *errmsg, size_t errmsg_size)
{
    const struct strict_config *c = &s->config;
    const struct fl_client_options options = {.timeout_ms = c->timeout_ms,
                                              .attempt_ms = c->timeout_ms / 2,
                                              .tls = c->tls,
                                              .user = c->user,
                                              .password = c->user == NULL ? NULL : c->password};
    char why[FLI_WHY_SIZE];
    int rc = fli_engine_init(&s->engine, c->nodes, FLI_OF_CLUSTER, false, &options, why);
    if (rc != 0) {
        (void)snprintf(errmsg, errmsg_size, "--strict %.200s: %s", c->nodes, why);
    }
    return rc;
}

int strict_create(uv_loop_t *loop, const struct strict_config *config, struct strict **ret,
                  char *errmsg, size_t errmsg_size)
{
    struct strict *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        (void)snprintf(errmsg, errmsg_size, "out of memory");
        return FL_ENOMEM;
    }
    s->config = *config;
    fli_list_init(&s->waiting);
    int rc = start_engine(s, errmsg, errmsg_size);
    if (rc == 0 && uv_poll_init(loop, &s->poll, s->engine.epoll_fd) != 0) {
        (void)snprintf(errmsg, errmsg_size, "--strict: cannot be watched by the event loop");
        fli_engine_fini(&s->engine);
        rc = FL_ESYSTEM;
    }
    if (rc != 0) {
        free(s);
        return rc;
    }
    s->config.nodes = s->config.user = s->config.password = NULL; /* the caller's */
    s->config.tls = NULL;
    (void)uv_idle_init(loop, &s->turn); /* cannot fail */
    s->poll.data = s->turn.data = s;
    (void)uv_poll_start(&s->poll, UV_READABLE, poll_cb); /* cannot fail for a fresh one */
    *ret = s;
    return 0;
}

static void closed_cb(uv_handle_t *handle)
{
    struct strict *s = handle->data;
    if (--s->closing == 0) {
        fli_engine_fini(&s->engine);
        free(s);
    }
}

void strict_destroy(struct strict *s)
{
    if (s == NULL) {
        return;
    }
    FLI_ASSERT(fli_list_empty(&s->waiting) && s->under_way == 0);
    s->closing = 2;
    uv_close((uv_handle_t *)&s->poll, closed_cb);
    uv_close((uv_handle_t *)&s->turn, closed_cb);
}

struct strict_counts strict_get_counts(const struct strict *s)
{
    return s->counts;
}
