/* request.c: the requests of calls, and what becomes of their answers; releases that nobody waits
 * for any more. See op_private.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "redlock/op_private.h"
#include "redlock/quorum.h"

#define OWED_MAX 1024u /* releases kept for a server that is down */

static struct fli_slice key_of(const struct fli_op *op)
{
    return (struct fli_slice){(const uint8_t *)op->key, op->key_len};
}

/* ---- life ------------------------------------------------------------------------------------ */

void fli_op_unref(struct fli_op *op)
{
    FLI_ASSERT(op->refs > 0);
    if (--op->refs == 0) {
        fli_list_remove(&op->node);
        free(op);
    }
}

static void free_request(struct fli_op_request *q)
{
    fli_op_unref(q->op);
    free(q);
}

/* ---- releases without a waiter --------------------------------------------------------------- */

static int send_request(struct fli_server *s, struct fli_op_request *q)
{
    struct fli_slice key = key_of(q->op);
    struct fli_buf *out = fli_server_out(s);
    int rc = out == NULL ? FL_EBUSY : 0;
    if (rc != 0) {
        return rc;
    }
    switch (q->kind) {
    case REQUEST_SET:
        rc = fli_put_set(out, key, q->value, q->ttl_ms);
        break;
    case REQUEST_EXTEND:
        rc = fli_put_extend(out, key, q->value, q->ttl_ms, q->by_text);
        break;
    case REQUEST_RELEASE:
        q->how = s->delete_how;
        rc = fli_put_release(out, key, q->value, q->how, q->by_text);
        break;
    }
    if (rc == 0) {
        fli_server_put(s, &q->base);
    }
    return rc == FL_ELIMIT ? FL_EBUSY : rc;
}

static void owe(struct fli_server *s, struct fli_op_request *q)
{
    if (s->state == FLI_SERVER_CLOSED || fli_clock_ms() >= q->give_up_ms) {
        free_request(q);
        return;
    }
    q->counts = false;
    q->by_text = false;
    struct fli_list *oldest = s->owed_len >= OWED_MAX ? fli_list_pop(&s->owed) : NULL;
    if (oldest != NULL) {
        s->owed_len--; /* The TTL will do it. */
        free_request(FLI_CONTAINER_OF(oldest, struct fli_op_request, base.node));
    }
    fli_list_push(&s->owed, &q->base.node);
    s->owed_len++;
}

void fli_op_pay(struct fli_server *s)
{
    uint64_t now_ms = fli_clock_ms();
    struct fli_list owed;
    fli_list_init(&owed);
    fli_list_splice(&owed, &s->owed);
    s->owed_len = 0;
    struct fli_list *node;
    while ((node = fli_list_pop(&owed)) != NULL) {
        struct fli_op_request *q = FLI_CONTAINER_OF(node, struct fli_op_request, base.node);
        if (now_ms >= q->give_up_ms || send_request(s, q) != 0) {
            free_request(q);
        }
    }
}

void fli_owed_drop(struct fli_server *s)
{
    struct fli_list *node;
    while ((node = fli_list_pop(&s->owed)) != NULL) {
        free_request(FLI_CONTAINER_OF(node, struct fli_op_request, base.node));
    }
    s->owed_len = 0;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* A server may not know our script (restarted, flushed), or may not permit the newer command. */
static bool try_otherwise(struct fli_op_request *q, struct fli_server *s, const redisReply *reply)
{
    if (q->kind == REQUEST_SET || reply->type != REDIS_REPLY_ERROR) {
        return false;
    }
    bool not_permitted = fli_is_error(reply, "ERR") || fli_is_error(reply, "NOPERM");
    if (q->kind == REQUEST_RELEASE && q->how != FLI_DELETE_SCRIPT && not_permitted) {
        s->delete_how = FLI_DELETE_SCRIPT;
        return send_request(s, q) == 0;
    }
    if (fli_is_error(reply, "NOSCRIPT") && !q->by_text) {
        q->by_text = true;
        return send_request(s, q) == 0;
    }
    return false;
}

static enum fl_redlock_status judge(const struct fli_op_request *q, const struct fli_server *s,
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
    struct fli_op *op = q->op;
    if (!q->counts || q->serial != op->report.attempts) {
        return;
    }
    uint64_t now_ms = fli_clock_ms();
    struct fl_redlock_server_report *report = &op->report.server[q->index];
    enum fl_redlock_status status = FL_REDLOCK_DOWN;
    if (reply != NULL) {
        status = judge(q, s, reply, report->error);
        report->rtt_us = (fli_clock_ns() - q->base.sent_ns) / 1000;
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

/* Answers carry no names: one of the wrong type belongs to another request, and so may all that
 * follow, among them a yes. */
static bool is_out_of_step(const struct fli_op_request *q, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_ERROR) {
        return false;
    }
    return q->kind == REQUEST_SET
               ? reply->type != REDIS_REPLY_STATUS && reply->type != REDIS_REPLY_NIL
               : reply->type != REDIS_REPLY_INTEGER;
}

static void on_answer(struct fli_request *base, struct fli_server *s, const redisReply *reply)
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
        owe(s, q);
    } else {
        free_request(q);
    }
}

/* ---- asking ---------------------------------------------------------------------------------- */

static struct fli_op_request *create_request(struct fli_op *op, enum fli_op_request_kind kind,
                                             uint32_t index)
{
    struct fli_op_request *q = calloc(1, sizeof *q);
    if (q == NULL) {
        return NULL;
    }
    q->base.answered = on_answer;
    q->op = op;
    q->kind = kind;
    q->index = index;
    q->serial = op->report.attempts;
    q->ttl_ms = op->ttl_ms;
    /* A delayed SET may take effect later than it was sent, so its TTL may end later too; how much
     * later nobody knows, and after this it is left to the TTL. */
    q->give_up_ms = fli_clock_ms() + op->ttl_ms + fli_drift_ms(op->ttl_ms);
    memcpy(q->value, op->lock.value, sizeof q->value);
    op->refs++;
    return q;
}

int fli_op_ask(struct fli_op *op, uint32_t i)
{
    static const enum fli_op_request_kind kinds[] = {
        [FLI_ATTEMPT_ACQUIRE] = REQUEST_SET,
        [FLI_ATTEMPT_EXTEND] = REQUEST_EXTEND,
        [FLI_ATTEMPT_RELEASE] = REQUEST_RELEASE,
    };
    struct fli_op_request *q = create_request(op, kinds[op->attempt.kind], i);
    if (q == NULL) {
        return FL_ENOMEM;
    }
    q->counts = true;
    int rc = send_request(&op->r->servers[i], q);
    if (rc != 0) {
        free_request(q);
    }
    return rc;
}

void fli_op_release(struct fli_op *op, uint32_t servers)
{
    for (uint32_t i = 0; i < op->attempt.n; i++) {
        struct fli_server *s = &op->r->servers[i];
        if ((servers >> i & 1) == 0) {
            continue;
        }
        struct fli_op_request *q = create_request(op, REQUEST_RELEASE, i);
        if (q == NULL) {
            continue; /* The TTL will do it. */
        }
        if (s->state != FLI_SERVER_READY) {
            owe(s, q);
        } else if (send_request(s, q) != 0) {
            free_request(q);
        }
    }
}

void fli_op_owe(struct fli_op *op, uint32_t i)
{
    struct fli_op_request *q = create_request(op, REQUEST_RELEASE, i);
    op->owed |= UINT32_C(1) << i;
    if (q != NULL) {
        owe(&op->r->servers[i], q);
    }
}
