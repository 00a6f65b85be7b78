/* request.c: the requests of ops, and what happens with their answers; releases that nobody waits
 * for any more. See op_private.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "redlock/op_private.h"
#include "redlock/quorum.h"

#define NS_PER_MS UINT64_C(1000000)
#define DEFERRED_MAX 1024u /* releases kept for a server that is down */

static struct fli_slice key_of(const struct fli_redlock_op *op)
{
    return (struct fli_slice){(const uint8_t *)op->key, op->key_len};
}

/* ---- start and end --------------------------------------------------------------------------- */

void fli_op_unref(struct fli_redlock_op *op)
{
    FLI_ASSERT(op->refs > 0);
    if (--op->refs == 0) {
        fli_list_remove(&op->node);
        free(op);
    }
}

static void free_request(struct fli_op_request *q)
{
    struct fli_redlock_op *op = q->op;
    if (q->is_own) {
        q->is_used = false;
    } else {
        free(q);
    }
    fli_op_unref(op);
}

/* ---- releases without a waiter --------------------------------------------------------------- */

static int write_request(struct fli_buf *b, const struct fli_op_request *q)
{
    struct fli_slice key = key_of(q->op);
    fli_buf_clear(b);
    switch (q->kind) {
    case REQUEST_SET:
        return fli_put_set(b, key, q->value, q->ttl_ms);
    case REQUEST_EXTEND:
        return fli_put_extend(b, key, q->value, q->ttl_ms, q->by_text);
    case REQUEST_RELEASE:
        return fli_put_release(b, key, q->value, q->how, q->by_text);
    }
    return FL_EINVAL;
}

/* Key, value and TTL are the same in all requests of one attempt. */
static bool is_same(const struct fli_op_text *t, const struct fli_op_request *q)
{
    return t->op_id == q->op->id && t->serial == q->serial && t->kind == (int)q->kind &&
           t->how == (int)q->how && t->by_text == q->by_text;
}

static int send_request(struct fli_server *s, struct fli_op_request *q, uint64_t now_ns)
{
    struct fli_op_text *t = &q->op->r->text;
    struct fli_buf *out = fli_server_out(s);
    int rc = out == NULL ? FL_EBUSY : 0;
    if (q->kind == REQUEST_RELEASE) {
        q->how = s->delete_how;
    }
    if (rc == 0 && !is_same(t, q)) {
        t->op_id = 0;
        rc = write_request(&t->bytes, q);
        FLI_ASSERT(rc != FL_ELIMIT);
    }
    if (rc == 0) {
        t->op_id = q->op->id;
        t->serial = q->serial;
        t->kind = (int)q->kind;
        t->how = (int)q->how;
        t->by_text = q->by_text;
        rc = fli_buf_append(out, t->bytes.data, t->bytes.len);
    }
    if (rc == 0) {
        fli_server_put(s, &q->base, now_ns);
        if (q->kind == REQUEST_EXTEND && q->by_text) {
            s->extend_by_text = false; /* EVAL loads it */
        }
    }
    return rc == FL_ELIMIT ? FL_EBUSY : rc;
}

/* A private loop does not run between calls, so nothing would react to a NOSCRIPT before the next
 * call. A release that is the last request of a call must not need a second one. */
static bool has_to_do_by_itself(const struct fli_op_request *q)
{
    return q->kind == REQUEST_RELEASE && q->op->r->is_private;
}

static bool begins_with_text(const struct fli_op_request *q)
{
    const struct fli_server *s = &q->op->r->servers[q->index];
    return (q->kind == REQUEST_EXTEND && s->extend_by_text) || has_to_do_by_itself(q);
}

static void defer_release(struct fli_server *s, struct fli_op_request *q)
{
    if (s->state == FLI_SERVER_CLOSED || fli_clock_ms() >= q->give_up_ms) {
        free_request(q);
        return;
    }
    q->counts = false;
    q->by_text = has_to_do_by_itself(q);
    struct fli_list *oldest = s->deferred_len >= DEFERRED_MAX ? fli_list_pop(&s->deferred) : NULL;
    if (oldest != NULL) {
        s->deferred_len--; /* the TTL ends that lock */
        free_request(FLI_CONTAINER_OF(oldest, struct fli_op_request, base.node));
    }
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
        struct fli_op_request *q = FLI_CONTAINER_OF(node, struct fli_op_request, base.node);
        if (now_ns / NS_PER_MS >= q->give_up_ms || send_request(s, q, now_ns) != 0) {
            free_request(q);
        }
    }
}

void fli_deferred_drop(struct fli_server *s)
{
    struct fli_list *node;
    while ((node = fli_list_pop(&s->deferred)) != NULL) {
        free_request(FLI_CONTAINER_OF(node, struct fli_op_request, base.node));
    }
    s->deferred_len = 0;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* A server may not have our script (restarted, flushed), or may not permit the newer command. */
static bool try_otherwise(struct fli_op_request *q, struct fli_server *s, const redisReply *reply)
{
    if (q->kind == REQUEST_SET || reply->type != REDIS_REPLY_ERROR) {
        return false;
    }
    bool not_permitted = fli_is_error(reply, "ERR") || fli_is_error(reply, "NOPERM");
    if (q->kind == REQUEST_RELEASE && q->how != FLI_DELETE_SCRIPT && not_permitted) {
        s->delete_how = FLI_DELETE_SCRIPT;
        return send_request(s, q, fli_clock_ns()) == 0;
    }
    if (fli_is_error(reply, "NOSCRIPT") && !q->by_text) {
        if (q->kind == REQUEST_EXTEND && q->op->attempt.verdict != FLI_VERDICT_NONE) {
            /* It would overtake a newer extend, and perhaps shorten its TTL. */
            s->extend_by_text = true;
            return false;
        }
        q->by_text = true;
        return send_request(s, q, fli_clock_ns()) == 0;
    }
    return false;
}

static enum fl_redlock_status classify(const struct fli_op_request *q, const struct fli_server *s,
                                       const redisReply *reply, char *error)
{
    if (q->kind != REQUEST_SET) {
        enum fl_redlock_status status = fli_script_status(reply, error, FL_REDLOCK_ERROR_MAX);
        bool young = q->kind == REQUEST_EXTEND && q->op->attempt.t0_ms < s->counts_from_ms;
        return status == FL_REDLOCK_YES && young ? FL_REDLOCK_YOUNG : status;
    }
    enum fl_redlock_status status = fli_set_status(reply, error, FL_REDLOCK_ERROR_MAX);
    if (status == FL_REDLOCK_YES && q->op->attempt.t0_ms < s->counts_from_ms) {
        (void)snprintf(error, FL_REDLOCK_ERROR_MAX,
                       "restarted recently, or its uptime is unknown: it counts in %llu ms",
                       (unsigned long long)(s->counts_from_ms - q->op->attempt.t0_ms));
        return FL_REDLOCK_YOUNG;
    }
    return status;
}

static void take_answer(struct fli_op_request *q, struct fli_server *s, const redisReply *reply)
{
    struct fli_redlock_op *op = q->op;
    if (!q->counts || q->serial != op->report.attempts || op->state == OP_ENDED) {
        return;
    }
    uint64_t now_ns = fli_clock_ns();
    uint64_t now_ms = now_ns / NS_PER_MS;
    struct fl_redlock_server_report *report = &op->report.server[q->index];
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
static bool is_out_of_step(const struct fli_op_request *q, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_ERROR) {
        return false;
    }
    return q->kind == REQUEST_SET
               ? reply->type != REDIS_REPLY_STATUS && reply->type != REDIS_REPLY_NIL
               : reply->type != REDIS_REPLY_INTEGER;
}

static void on_answer(struct fli_redis_request *base, struct fli_server *s, const redisReply *reply)
{
    struct fli_op_request *q = FLI_CONTAINER_OF(base, struct fli_op_request, base);
    if (reply != NULL && try_otherwise(q, s, reply)) {
        return;
    }
    if (reply != NULL && is_out_of_step(q, reply)) {
        fli_server_distrust(s);
    }
    take_answer(q, s, reply);
    if (reply == NULL && q->kind == REQUEST_RELEASE) {
        defer_release(s, q);
    } else {
        free_request(q);
    }
}

/* ---- asking ---------------------------------------------------------------------------------- */

static struct fli_op_request *create_request(struct fli_redlock_op *op,
                                             enum fli_op_request_kind kind, uint32_t index,
                                             uint64_t now_ns)
{
    struct fli_op_request *q = &op->own[index];
    if (!q->is_used) {
        memset(q, 0, sizeof *q);
        q->is_own = true;
    } else if ((q = calloc(1, sizeof *q)) == NULL) {
        return NULL;
    }
    q->is_used = true;
    q->base.answered = on_answer;
    q->op = op;
    q->kind = kind;
    q->index = index;
    q->by_text = begins_with_text(q);
    q->serial = op->report.attempts;
    q->ttl_ms = op->ttl_ms;
    /* A delayed SET may take effect long after it was sent, and its TTL ends as much later. Nobody
     * knows how much; after this time the TTL has to do. */
    q->give_up_ms = now_ns / NS_PER_MS + op->ttl_ms + fli_drift_ms(op->ttl_ms);
    memcpy(q->value, op->lock.value, sizeof q->value);
    op->refs++;
    return q;
}

int fli_op_ask(struct fli_redlock_op *op, uint32_t i, uint64_t now_ns)
{
    static const enum fli_op_request_kind kinds[] = {
        [FLI_ATTEMPT_ACQUIRE] = REQUEST_SET,
        [FLI_ATTEMPT_EXTEND] = REQUEST_EXTEND,
        [FLI_ATTEMPT_RELEASE] = REQUEST_RELEASE,
    };
    struct fli_op_request *q = create_request(op, kinds[op->attempt.kind], i, now_ns);
    if (q == NULL) {
        return FL_ENOMEM;
    }
    q->counts = true;
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
        struct fli_op_request *q = create_request(op, REQUEST_RELEASE, i, now_ns);
        if (q == NULL) {
            continue; /* the TTL ends that lock */
        }
        if (s->state != FLI_SERVER_READY) {
            defer_release(s, q);
        } else if (send_request(s, q, now_ns) != 0) {
            free_request(q);
        }
    }
}

void fli_op_defer_release(struct fli_redlock_op *op, uint32_t i)
{
    struct fli_op_request *q = create_request(op, REQUEST_RELEASE, i, fli_clock_ns());
    op->deferred |= UINT32_C(1) << i;
    if (q != NULL) {
        defer_release(&op->r->servers[i], q);
    }
}
