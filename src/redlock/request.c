/* request.c: the requests of ops, and what happens with their answers; releases that nobody waits
 * for any more. See redlock_private.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "redlock/quorum.h"
#include "redlock/redlock_private.h"

#define NS_PER_MS UINT64_C(1000000)
#define DEFERRED_MAX 1024u /* releases kept for a server that is down */

struct request {
    struct fli_redis_request base;
    struct fli_list in_op;     /* in none: no attempt waits for the answer */
    struct fli_redlock_op *op; /* of which it is then */
    enum fli_attempt_kind kind;
    enum fli_delete_how how; /* how a release deletes the key */
    uint32_t index;
    uint64_t ttl_ms;
    uint64_t give_up_ms; /* a release is not sent after that: the TTL has ended */
    char value[FL_REDLOCK_VALUE_LEN + 1];
    size_t key_len;
    char key[FLI_REDIS_KEY_MAX];
};

static void free_request(struct request *q)
{
    fli_list_remove(&q->in_op);
    free(q);
}

void fli_op_forget_answers(struct fli_redlock_op *op)
{
    while (fli_list_pop(&op->requests) != NULL) {
        /* they are their servers' */
    }
}

static int write_request(struct fli_buf *b, const struct request *q)
{
    struct fli_slice key = {(const uint8_t *)q->key, q->key_len};
    fli_buf_clear(b);
    switch (q->kind) {
    case FLI_ATTEMPT_ACQUIRE:
        return fli_put_set(b, key, q->value, q->ttl_ms);
    case FLI_ATTEMPT_EXTEND:
        return fli_put_extend(b, key, q->value, q->ttl_ms);
    case FLI_ATTEMPT_RELEASE:
        return fli_put_release(b, key, q->value, q->how);
    }
    return FL_EINVAL;
}

static int send_request(struct fli_server *s, struct request *q, uint64_t now_ns)
{
    struct fli_buf *text = &s->r->text;
    q->how = s->delete_how;
    int rc = write_request(text, q);
    FLI_ASSERT(rc != FL_ELIMIT);
    return rc == 0 ? fli_server_put(s, &q->base, text, now_ns) : rc;
}

/* ---- releases without a waiter --------------------------------------------------------------- */

static void defer_release(struct fli_server *s, struct request *q)
{
    if (s->state == FLI_SERVER_CLOSED || fli_clock_ms() >= q->give_up_ms) {
        free_request(q);
        return;
    }
    fli_list_remove(&q->in_op);
    struct fli_list *oldest = s->deferred_len >= DEFERRED_MAX ? fli_list_pop(&s->deferred) : NULL;
    if (oldest != NULL) {
        s->deferred_len--; /* the TTL ends that lock */
        free_request(FLI_CONTAINER_OF(oldest, struct request, base.node));
    }
    fli_list_init(&q->base.node);
    fli_list_push(&s->deferred, &q->base.node);
    s->deferred_len++;
}

void fli_op_send_deferred(struct fli_server *s)
{
    uint64_t now_ns = fli_clock_ns();
    struct fli_list deferred;
    fli_list_init(&deferred);
    fli_list_splice(&deferred, &s->deferred);
    s->deferred_len = 0;
    struct fli_list *node;
    while ((node = fli_list_pop(&deferred)) != NULL) {
        struct request *q = FLI_CONTAINER_OF(node, struct request, base.node);
        if (now_ns / NS_PER_MS >= q->give_up_ms || send_request(s, q, now_ns) != 0) {
            defer_release(s, q);
        }
    }
}

void fli_deferred_drop(struct fli_server *s)
{
    struct fli_list *node;
    while ((node = fli_list_pop(&s->deferred)) != NULL) {
        free_request(FLI_CONTAINER_OF(node, struct request, base.node));
    }
    s->deferred_len = 0;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* A server may not permit the newer command. */
static bool try_otherwise(struct request *q, struct fli_server *s, const redisReply *reply)
{
    bool not_permitted = fli_is_error(reply, "ERR") || fli_is_error(reply, "NOPERM");
    if (q->kind != FLI_ATTEMPT_RELEASE || q->how == FLI_DELETE_SCRIPT || !not_permitted) {
        return false;
    }
    s->delete_how = FLI_DELETE_SCRIPT;
    return send_request(s, q, fli_clock_ns()) == 0;
}

static enum fl_redlock_status classify(const struct request *q, const struct fli_server *s,
                                       const redisReply *reply, char *error)
{
    bool young = q->op->attempt.t0_ms < s->counts_from_ms;
    if (q->kind != FLI_ATTEMPT_ACQUIRE) {
        enum fl_redlock_status status = fli_script_status(reply, error, FL_REDLOCK_ERROR_MAX);
        young = young && q->kind == FLI_ATTEMPT_EXTEND;
        return status == FL_REDLOCK_YES && young ? FL_REDLOCK_YOUNG : status;
    }
    enum fl_redlock_status status = fli_set_status(reply, error, FL_REDLOCK_ERROR_MAX);
    if (status == FL_REDLOCK_YES && young) {
        (void)snprintf(error, FL_REDLOCK_ERROR_MAX,
                       "restarted recently, or its uptime is unknown: it counts in %llu ms",
                       (unsigned long long)(s->counts_from_ms - q->op->attempt.t0_ms));
        return FL_REDLOCK_YOUNG;
    }
    return status;
}

static void take_answer(struct request *q, struct fli_server *s, const redisReply *reply)
{
    struct fli_redlock_op *op = q->op;
    if (!fli_list_linked(&q->in_op)) {
        return; /* late, or of a release that nobody waits for */
    }
    uint64_t now_ns = fli_clock_ns();
    uint64_t now_ms = now_ns / NS_PER_MS;
    struct fl_redlock_server_report *report = &op->report->server[q->index];
    enum fl_redlock_status status = FL_REDLOCK_DOWN;
    if (reply != NULL) {
        status = classify(q, s, reply, report->error);
        report->rtt_us = (now_ns - q->base.sent_ns) / 1000;
    } else {
        status =
            s->status == FL_REDLOCK_ERROR || s->status == FL_REDLOCK_SILENT ? s->status : status;
        memcpy(report->error, s->error, sizeof report->error);
    }
    bool was_open = op->state == OP_ATTEMPT;
    enum fli_verdict verdict = fli_attempt_answer(&op->attempt, q->index, status, now_ms);
    if (was_open) {
        fli_op_after(op, verdict, now_ms);
    }
}

/* RESP has no request ids. An answer of the wrong type belongs to another request, and so may all
 * that follow, also a yes. */
static bool is_out_of_step(const struct request *q, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_ERROR) {
        return false;
    }
    return q->kind == FLI_ATTEMPT_ACQUIRE
               ? reply->type != REDIS_REPLY_STATUS && reply->type != REDIS_REPLY_NIL
               : reply->type != REDIS_REPLY_INTEGER;
}

static void on_answer(struct fli_redis_request *base, struct fli_server *s, const redisReply *reply)
{
    struct request *q = FLI_CONTAINER_OF(base, struct request, base);
    if (reply != NULL && try_otherwise(q, s, reply)) {
        return;
    }
    if (reply != NULL && is_out_of_step(q, reply)) {
        fli_server_distrust(s);
    }
    take_answer(q, s, reply);
    if (reply == NULL && q->kind == FLI_ATTEMPT_RELEASE) {
        defer_release(s, q);
    } else {
        free_request(q);
    }
}

/* ---- asking ---------------------------------------------------------------------------------- */

static struct request *create_request(struct fli_redlock_op *op, enum fli_attempt_kind kind,
                                      uint32_t index, uint64_t now_ns)
{
    struct request *q = calloc(1, sizeof *q);
    if (q == NULL) {
        return NULL;
    }
    q->base.answered = on_answer;
    fli_list_init(&q->in_op);
    q->op = op;
    q->kind = kind;
    q->index = index;
    q->ttl_ms = op->ttl_ms;
    /* A delayed SET may take effect long after it was sent, and its TTL ends as much later. Nobody
     * knows how much; after this time the TTL has to do. */
    q->give_up_ms = now_ns / NS_PER_MS + op->ttl_ms + fli_drift_ms(op->ttl_ms);
    memcpy(q->value, op->value, sizeof q->value);
    q->key_len = fli_make_key(op->r, op->call->request.name, q->key);
    return q;
}

int fli_op_ask(struct fli_redlock_op *op, uint32_t i, uint64_t now_ns)
{
    struct request *q = create_request(op, op->attempt.kind, i, now_ns);
    if (q == NULL) {
        return FL_ENOMEM;
    }
    fli_list_push(&op->requests, &q->in_op);
    int rc = send_request(&op->r->servers[i], q, now_ns);
    if (rc != 0) {
        free_request(q);
    }
    return rc;
}

void fli_op_release(struct fli_redlock_op *op, uint32_t servers)
{
    uint64_t now_ns = fli_clock_ns();
    for (uint32_t i = 0; i < op->attempt.n; i++) {
        struct fli_server *s = &op->r->servers[i];
        if ((servers >> i & 1) == 0) {
            continue;
        }
        struct request *q = create_request(op, FLI_ATTEMPT_RELEASE, i, now_ns);
        if (q == NULL) {
            continue; /* the TTL ends that lock */
        }
        /* A connection that is about to be closed, or is full, takes nothing. */
        if (s->state != FLI_SERVER_READY || send_request(s, q, now_ns) != 0) {
            defer_release(s, q);
        }
    }
}
