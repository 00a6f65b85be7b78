/* op.c: acquire, extend and release, each a series of attempts (attempt.h). See op_private.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "redlock/op_private.h"
#include "redlock/quorum.h"

#define NS_PER_MS UINT64_C(1000000)

/* ---- beginning and end ----------------------------------------------------------------------- */

static void deliver(struct fli_note *note)
{
    struct fli_redlock_op *op = FLI_CONTAINER_OF(note, struct fli_redlock_op, note);
    bool has_lock = op->attempt.kind == FLI_ATTEMPT_EXTEND ||
                    (op->attempt.kind == FLI_ATTEMPT_ACQUIRE && op->result == 0);
    if (op->done != NULL) {
        op->done(op->ctx, op->result, has_lock ? &op->lock : NULL, &op->report);
    }
    fli_op_unref(op);
}

/* Calls the caller back; the report is that of the last attempt. */
static void finish(struct fli_redlock_op *op, int result, enum fl_redlock_cause cause)
{
    FLI_ASSERT(op->state != OP_ENDED);
    op->state = OP_ENDED;
    op->result = result;
    fli_redlock_not_due(op->r, &op->due);
    op->r->in_flight--;
    struct fl_redlock_report *report = &op->report;
    report->cause = cause;
    report->servers = op->attempt.n;
    report->quorum = fli_quorum(op->attempt.n);
    report->yes = fli_attempt_yes(&op->attempt);
    report->elapsed_us = (fli_clock_ns() - op->began_ns) / 1000;
    for (uint32_t i = 0; i < op->attempt.n; i++) {
        report->server[i].status = op->attempt.status[i];
        report->server[i].is_node = op->r->servers[i].facts.is_node;
    }
    fli_note_add(op->r, &op->note);
}

/* ---- attempts -------------------------------------------------------------------------------- */

/* The status of a server that is not asked, and why. FL_REDLOCK_UNASKED: ask it now, or (*ret_wait)
 * when its connection is ready. */
static enum fl_redlock_status gate(const struct fli_redlock_op *op, const struct fli_server *s,
                                   uint64_t now_ns, bool *ret_wait, const char **ret_error)
{
    uint64_t budget_ms = op->r->budget_ms;
    *ret_wait = false;
    *ret_error = s->error;
    if (s->state == FLI_SERVER_OPENING && op->attempt.t0_ms < s->opened_ms + budget_ms) {
        *ret_wait = true;
        return FL_REDLOCK_UNASKED;
    }
    if (s->state != FLI_SERVER_READY) {
        return s->status == FL_REDLOCK_YES ? FL_REDLOCK_DOWN : s->status;
    }
    if (op->attempt.kind == FLI_ATTEMPT_RELEASE) {
        return FL_REDLOCK_UNASKED;
    }
    if (s->is_duplicate) {
        *ret_error = "the same server as an earlier one of the list";
        return FL_REDLOCK_TWICE;
    }
    if (op->attempt.kind == FLI_ATTEMPT_ACQUIRE && fli_server_silent_ms(s, now_ns) >= budget_ms) {
        *ret_error = "an earlier request has no answer yet";
        return FL_REDLOCK_SILENT;
    }
    return FL_REDLOCK_UNASKED;
}

static void ask(struct fli_redlock_op *op, uint32_t i, uint64_t now_ns)
{
    uint64_t now_ms = now_ns / NS_PER_MS;
    int rc = fli_op_ask(op, i, now_ns);
    if (rc == 0) {
        fli_attempt_asked(&op->attempt, i);
        return;
    }
    (void)snprintf(op->report.server[i].error, FL_REDLOCK_ERROR_MAX, "%s", fl_strerror(rc));
    fli_op_after(op, fli_attempt_answer(&op->attempt, i, FL_REDLOCK_SILENT, now_ms), now_ms);
}

static void refuse(struct fli_redlock_op *op, uint32_t i, enum fl_redlock_status status,
                   const char *error, uint64_t now_ms)
{
    fli_copy_text(op->report.server[i].error, FL_REDLOCK_ERROR_MAX, error, strlen(error));
    fli_op_after(op, fli_attempt_answer(&op->attempt, i, status, now_ms), now_ms);
}

void fli_value_make(char value[FL_REDLOCK_VALUE_LEN + 1])
{
    static const char hex[] = "0123456789abcdef";
    uint8_t bytes[FL_REDLOCK_VALUE_LEN / 2];
    fli_random(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        value[2 * i] = hex[bytes[i] >> 4];
        value[2 * i + 1] = hex[bytes[i] & 15];
    }
    value[FL_REDLOCK_VALUE_LEN] = '\0';
}

static void begin_attempt(struct fli_redlock_op *op, uint64_t now_ms)
{
    struct fl_redlock *r = op->r;
    /* the attempt counts from now_ms, which is earlier by less than 1 ms */
    uint64_t now_ns = fli_clock_ns();
    op->state = OP_ATTEMPT;
    op->report.attempts++;
    memset(op->report.server, 0, r->n * sizeof op->report.server[0]);
    if (op->attempt.kind == FLI_ATTEMPT_ACQUIRE) {
        fli_value_make(op->lock.value);
    }
    fli_attempt_init(&op->attempt, op->attempt.kind, r->n, now_ms, op->ttl_ms, op->min_validity_ms);
    fli_redlock_due(r, &op->due, now_ms + fli_server_budget_ms(op->ttl_ms, r->budget_ms));

    /* Servers that cannot be asked are noted first: if too many are, no server is asked at all. */
    for (uint32_t i = 0; i < r->n; i++) {
        bool wait;
        const char *error;
        enum fl_redlock_status status = gate(op, &r->servers[i], now_ns, &wait, &error);
        if (status != FL_REDLOCK_UNASKED && op->state == OP_ATTEMPT) {
            refuse(op, i, status, error, now_ms);
        }
    }
    for (uint32_t i = 0; i < r->n && op->state == OP_ATTEMPT; i++) {
        if (op->attempt.status[i] == FL_REDLOCK_UNASKED &&
            r->servers[i].state == FLI_SERVER_READY) {
            ask(op, i, now_ns);
        }
    }
}

static void try_again_or_finish(struct fli_redlock_op *op, uint64_t now_ms)
{
    enum fl_redlock_cause cause = op->attempt.cause;
    uint64_t left_ms = fli_left_ms(op->until_ms, now_ms);
    if (op->attempt.kind != FLI_ATTEMPT_ACQUIRE || left_ms == 0) {
        finish(op, fli_cause_code(cause), cause);
        return;
    }
    uint64_t random;
    fli_random(&random, sizeof random);
    uint64_t pause_ms =
        fli_retry_ms(op->report.attempts, op->r->retry_ms, op->r->retry_cap_ms, random);
    op->state = OP_PAUSE;
    fli_redlock_due(op->r, &op->due, now_ms + (pause_ms < left_ms ? pause_ms : left_ms));
}

/* The lock was held, and yet the call fails: releases what was set. */
static void release_acquired(struct fli_redlock_op *op, enum fl_redlock_cause cause)
{
    op->attempt.verdict = FLI_VERDICT_FAILED;
    op->attempt.cause = cause;
    op->lock.token = FL_TOKEN_NONE;
    fli_op_release(op, op->attempt.asked);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

struct ticket {
    struct fli_redlock_op *op;
    uint32_t serial;
};

static void issued(void *ctx, int result, fl_token token)
{
    struct ticket *ticket = ctx;
    struct fli_redlock_op *op = ticket->op;
    uint32_t serial = ticket->serial;
    free(ticket);
    struct fl_redlock *r = op->r;
    if (r == NULL || op->state != OP_ISSUING || op->issue_serial != serial) {
        fli_op_unref(op); /* the attempt has ended meanwhile */
        return;
    }
    fli_enter(r);
    uint64_t now_ms = fli_clock_ms();
    if (result == 0 && (token == FL_TOKEN_NONE || token > FL_TOKEN_MAX)) {
        result = FL_EPROTO;
    }
    if (result != 0) {
        release_acquired(op, FL_REDLOCK_NOTOKEN);
        finish(op, result, FL_REDLOCK_NOTOKEN);
    } else if (!fli_is_valid(op->attempt.t0_ms, op->ttl_ms, op->min_validity_ms, now_ms)) {
        release_acquired(op, FL_REDLOCK_TOO_SLOW);
        try_again_or_finish(op, now_ms);
    } else {
        op->lock.token = token;
        finish(op, 0, FL_REDLOCK_NONE);
    }
    fli_op_unref(op);
    fli_leave_call(r);
}

static void issue(struct fli_redlock_op *op, uint64_t now_ms)
{
    struct ticket *ticket = calloc(1, sizeof *ticket);
    uint64_t left_ms = fli_left_ms(op->lock.deadline_ms, now_ms);
    uint64_t keep_ms = op->min_validity_ms;
    if (ticket == NULL) {
        release_acquired(op, FL_REDLOCK_NOTOKEN);
        finish(op, FL_ENOMEM, FL_REDLOCK_NOTOKEN);
        return;
    }
    op->state = OP_ISSUING;
    op->issue_serial = op->report.attempts;
    ticket->op = op;
    ticket->serial = op->issue_serial;
    op->refs++;
    uint64_t timeout_ms = left_ms > keep_ms ? left_ms - keep_ms : 1;
    fli_redlock_due(op->r, &op->due, now_ms + timeout_ms);
    struct fl_bytes name = {op->name, op->name_len};
    op->issue(op->issue_ctx, name, timeout_ms, issued, ticket);
}

/* ---- what follows an event ------------------------------------------------------------------- */

static void succeed(struct fli_redlock_op *op, uint64_t now_ms)
{
    if (op->attempt.kind != FLI_ATTEMPT_RELEASE) {
        op->lock.process = fli_process();
        op->lock.ttl_ms = op->ttl_ms;
        op->lock.deadline_ms = fli_deadline_ms(op->attempt.t0_ms, op->ttl_ms);
    }
    if (op->issue != NULL) {
        issue(op, now_ms);
    } else {
        finish(op, 0, FL_REDLOCK_NONE);
    }
}

/* A release ends when a quorum is free. The servers that it did not wait for are released as
 * well. */
static void release_the_rest(struct fli_redlock_op *op)
{
    for (uint32_t i = 0; i < op->attempt.n; i++) {
        if (((op->attempt.asked | op->deferred) >> i & 1) == 0) {
            fli_op_defer_release(op, i);
        }
    }
}

/* An extend that does not succeed may yet have reached servers, now or later. */
static void allow_for_shorter_ttl(struct fli_redlock_op *op)
{
    if (op->attempt.kind == FLI_ATTEMPT_EXTEND && op->attempt.asked != 0) {
        op->lock.deadline_ms =
            fli_extended_deadline_ms(op->lock.deadline_ms, op->attempt.t0_ms, op->ttl_ms, false);
    }
}

void fli_op_after(struct fli_redlock_op *op, enum fli_verdict verdict, uint64_t now_ms)
{
    if (verdict == FLI_VERDICT_NONE || op->state != OP_ATTEMPT) {
        return;
    }
    fli_redlock_not_due(op->r, &op->due);
    if (op->attempt.kind == FLI_ATTEMPT_RELEASE) {
        release_the_rest(op);
    }
    if (verdict == FLI_VERDICT_DONE) {
        succeed(op, now_ms);
        return;
    }
    allow_for_shorter_ttl(op);
    if (op->attempt.cause == FL_REDLOCK_LOST && op->attempt.kind == FLI_ATTEMPT_EXTEND) {
        op->lock.deadline_ms = 0;
    }
    fli_op_release(op, fli_attempt_to_release(&op->attempt));
    try_again_or_finish(op, now_ms);
}

static void on_due(struct fli_due *d, uint64_t now_ms)
{
    struct fli_redlock_op *op = FLI_CONTAINER_OF(d, struct fli_redlock_op, due);
    now_ms = fli_clock_ms(); /* callbacks of other ops may have taken time */
    switch (op->state) {
    case OP_ATTEMPT:
        fli_op_after(op, fli_attempt_timeout(&op->attempt, now_ms), now_ms);
        break;
    case OP_ISSUING:
        op->issue_serial = 0;
        release_acquired(op, FL_REDLOCK_TOO_SLOW);
        try_again_or_finish(op, now_ms);
        break;
    case OP_CONNECTING:
    case OP_PAUSE:
        begin_attempt(op, now_ms);
        break;
    case OP_ENDED:
        FLI_ASSERT(false);
        break;
    }
}

/* The op after this one; NULL: the first; returns NULL after the last. Whoever walks over the ops
 * has a reference to the one it is at: what happens to that may free any other, since a release to
 * be kept for a server that is down may take the place of an older one. */
static struct fli_redlock_op *next_op(struct fl_redlock *r, struct fli_redlock_op *op)
{
    struct fli_list *node = op == NULL ? r->ops.next : op->node.next;
    if (op != NULL) {
        fli_op_unref(op);
    }
    if (node == &r->ops) {
        return NULL;
    }
    struct fli_redlock_op *next = FLI_CONTAINER_OF(node, struct fli_redlock_op, node);
    next->refs++;
    return next;
}

void fli_ops_ready(struct fl_redlock *r, struct fli_server *s)
{
    uint64_t now_ns = fli_clock_ns();
    uint64_t now_ms = now_ns / NS_PER_MS;
    fli_op_send_deferred(s);
    bool may_begin = fli_may_begin(r);
    for (struct fli_redlock_op *op = NULL; (op = next_op(r, op)) != NULL;) {
        if (op->state == OP_CONNECTING && may_begin) {
            begin_attempt(op, now_ms);
        } else if (op->state == OP_ATTEMPT && op->attempt.status[s->index] == FL_REDLOCK_UNASKED) {
            bool wait;
            const char *error;
            enum fl_redlock_status status = gate(op, s, now_ns, &wait, &error);
            if (status == FL_REDLOCK_UNASKED) {
                ask(op, s->index, now_ns);
            } else {
                refuse(op, s->index, status, error, now_ms);
            }
        }
    }
}

void fli_ops_down(struct fl_redlock *r, struct fli_server *s)
{
    uint64_t now_ms = fli_clock_ms();
    bool may_begin = fli_may_begin(r);
    for (struct fli_redlock_op *op = NULL; (op = next_op(r, op)) != NULL;) {
        if (op->state == OP_CONNECTING && may_begin) {
            begin_attempt(op, now_ms);
        } else if (op->state == OP_ATTEMPT && op->attempt.status[s->index] == FL_REDLOCK_UNASKED) {
            refuse(op, s->index, s->status, s->error, now_ms);
        }
    }
}

static void cancel(struct fli_redlock_op *op)
{
    bool acquires = op->attempt.kind == FLI_ATTEMPT_ACQUIRE;
    if (acquires && (op->state == OP_ATTEMPT || op->state == OP_ISSUING)) {
        release_acquired(op, FL_REDLOCK_CANCELLED);
    } else {
        fli_attempt_cancel(&op->attempt);
        allow_for_shorter_ttl(op);
    }
    /* Of an extend or a release FL_ENOTHELD would say that the lock is surely lost. */
    finish(op, acquires ? FL_ENOTHELD : FL_EUNCERTAIN, FL_REDLOCK_CANCELLED);
}

void fli_ops_close(struct fl_redlock *r)
{
    for (struct fli_redlock_op *op = NULL; (op = next_op(r, op)) != NULL;) {
        if (op->state != OP_ENDED) {
            cancel(op);
        }
    }
}

void fli_ops_forget(struct fl_redlock *r)
{
    struct fli_list *node;
    while ((node = fli_list_pop(&r->ops)) != NULL) {
        FLI_CONTAINER_OF(node, struct fli_redlock_op, node)->r = NULL;
    }
}

/* ---- public ---------------------------------------------------------------------------------- */

static int create(struct fl_redlock *r, enum fli_attempt_kind kind, struct fl_bytes name,
                  fl_redlock_done *done, void *ctx, struct fli_redlock_op **ret)
{
    if (fli_check_name(name) != 0 || r->closing) {
        return FL_EINVAL;
    }
    int rc = fli_own(r); /* before the op is among those of the parent */
    if (rc != 0) {
        return rc;
    }
    if (r->in_flight >= FL_REDLOCK_OPS_MAX) {
        return FL_EBUSY;
    }
    struct fli_redlock_op *op = calloc(1, sizeof *op + r->n * sizeof op->own[0]);
    if (op == NULL) {
        return FL_ENOMEM;
    }
    op->r = r;
    op->refs = 1;
    op->id = ++r->last_id;
    op->attempt.kind = kind;
    op->attempt.n = r->n;
    op->began_ns = fli_clock_ns();
    op->done = done;
    op->ctx = ctx;
    op->note.deliver = deliver;
    op->due.fire = on_due;
    fli_heap_node_init(&op->due.node);
    op->name_len = name.len;
    memcpy(op->name, name.data, name.len);
    op->key_len = fli_make_key(r, name, op->key);
    fli_list_push(&r->ops, &op->node);
    r->in_flight++;
    *ret = op;
    return 0;
}

/* Before the very first attempt of a handle, waits for the connections: no TTL runs yet. */
static void begin(struct fli_redlock_op *op)
{
    struct fl_redlock *r = op->r;
    uint64_t now_ms = op->began_ns / NS_PER_MS;
    fli_enter(r);
    /* No other server is given up here: what it has answered while this process was stopped is read
     * first, by the next turn of the loop. Here it cannot be, since the call may come from inside
     * an answer. */
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->servers[i].state == FLI_SERVER_DOWN) {
            fli_server_tick(&r->servers[i], now_ms);
        }
    }
    if (op->state != OP_CONNECTING) {
        /* fli_server_tick() has settled the connections, and so begun or ended this op already. */
    } else if (fli_may_begin(r)) {
        begin_attempt(op, now_ms);
    } else {
        fli_redlock_due(r, &op->due, now_ms + r->owner.connect_ms);
    }
    fli_leave_call(r);
}

int fl_redlock_acquire_fenced_start(fl_redlock *r, struct fl_bytes name,
                                    const struct fl_redlock_acquire_options *options,
                                    fl_redlock_issue_start *issue_fn, void *issue_ctx,
                                    fl_redlock_done *done, void *ctx, uint64_t *ret_id)
{
    static const struct fl_redlock_acquire_options defaults;
    const struct fl_redlock_acquire_options *o = options != NULL ? options : &defaults;
    uint64_t ttl_ms = o->ttl_ms;
    if (ttl_ms == 0) {
        ttl_ms = FL_REDLOCK_TTL_DEFAULT_MS < r->owner.max_ttl_ms ? FL_REDLOCK_TTL_DEFAULT_MS
                                                                 : r->owner.max_ttl_ms;
    }
    if (ttl_ms < FL_TTL_MIN_MS || ttl_ms > r->owner.max_ttl_ms || o->min_validity_ms >= ttl_ms ||
        o->wait_ms > FL_REDLOCK_TIME_MAX_MS || done == NULL) {
        return FL_EINVAL;
    }
    struct fli_redlock_op *op;
    int rc = create(r, FLI_ATTEMPT_ACQUIRE, name, done, ctx, &op);
    if (rc != 0) {
        return rc;
    }
    op->ttl_ms = ttl_ms;
    op->min_validity_ms = o->min_validity_ms;
    op->until_ms = op->began_ns / NS_PER_MS + o->wait_ms;
    op->issue = issue_fn;
    op->issue_ctx = issue_ctx;
    if (ret_id != NULL) {
        *ret_id = op->id;
    }
    begin(op);
    return 0;
}

int fl_redlock_acquire_start(fl_redlock *r, struct fl_bytes name,
                             const struct fl_redlock_acquire_options *options,
                             fl_redlock_done *done, void *ctx, uint64_t *ret_id)
{
    return fl_redlock_acquire_fenced_start(r, name, options, NULL, NULL, done, ctx, ret_id);
}

void fl_redlock_cancel(fl_redlock *r, uint64_t id)
{
    (void)!fli_own(r); /* it ends what there is in any case */
    FLI_LIST_FOREACH(node, &r->ops)
    {
        struct fli_redlock_op *op = FLI_CONTAINER_OF(node, struct fli_redlock_op, node);
        if (op->id != id) {
            continue;
        }
        if (op->state != OP_ENDED && op->attempt.kind == FLI_ATTEMPT_ACQUIRE) {
            fli_enter(r);
            cancel(op);
            fli_leave_call(r);
        }
        return;
    }
}

static bool is_value(const char *value)
{
    return memchr(value, '\0', FL_REDLOCK_VALUE_LEN) == NULL && value[FL_REDLOCK_VALUE_LEN] == '\0';
}

static int start_on_lock(struct fl_redlock *r, enum fli_attempt_kind kind, struct fl_bytes name,
                         const struct fl_redlock_lock *lock, uint64_t ttl_ms, fl_redlock_done *done,
                         void *ctx)
{
    if (!is_value(lock->value) || ttl_ms < FL_TTL_MIN_MS || ttl_ms > r->owner.max_ttl_ms) {
        return FL_EINVAL;
    }
    if (fli_grant_is_inherited(lock->process)) {
        return FL_ENOTHELD;
    }
    struct fli_redlock_op *op;
    int rc = create(r, kind, name, done, ctx, &op);
    if (rc != 0) {
        return rc;
    }
    op->lock = *lock;
    op->ttl_ms = ttl_ms;
    begin(op);
    return 0;
}

int fl_redlock_extend_start(fl_redlock *r, struct fl_bytes name, const struct fl_redlock_lock *lock,
                            uint64_t ttl_ms, fl_redlock_done *done, void *ctx)
{
    if (done == NULL) {
        return FL_EINVAL;
    }
    return start_on_lock(r, FLI_ATTEMPT_EXTEND, name, lock, ttl_ms != 0 ? ttl_ms : lock->ttl_ms,
                         done, ctx);
}

int fl_redlock_release_start(fl_redlock *r, struct fl_bytes name,
                             const struct fl_redlock_lock *lock, fl_redlock_done *done, void *ctx)
{
    return start_on_lock(r, FLI_ATTEMPT_RELEASE, name, lock, lock->ttl_ms, done, ctx);
}
