/* op.c: acquire, extend and release, each a series of attempts (attempt.h); see
 * redlock_private.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/channel.h"
#include "client/handle.h"
#include "redlock/progress.h"
#include "redlock/quorum.h"
#include "redlock/redlock_private.h"

#define NS_PER_MS UINT64_C(1000000)

static struct fli_redlock *redlock_of(const struct fli_engine *e)
{
    return FLI_CONTAINER_OF(e->backend, struct fli_redlock, backend);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

struct fli_ticket {
    struct fli_list in;
    fl_call issuing;           /* of the issuer; 0: not yet */
    struct fli_redlock_op *op; /* NULL: its attempt is over */
    fl_client *client;         /* of the op */
};

/* A token that comes later is nobody's. */
static void forget_token(struct fli_redlock_op *op)
{
    if (op->ticket != NULL) {
        op->ticket->op = NULL;
        op->ticket = NULL;
    }
}

static void end(struct fli_redlock_op *op)
{
    op->state = OP_ENDED;
    forget_token(op);
    fli_op_forget_answers(op);
    free(op->report);
    op->report = NULL;
    fli_list_remove(&op->in);
}

static void put_servers(const struct fli_redlock_op *op, struct fl_redlock_report *ret)
{
    ret->servers = op->attempt.n;
    ret->quorum = fli_quorum(op->attempt.n);
    ret->yes = fli_attempt_yes(&op->attempt);
    for (uint32_t i = 0; i < op->attempt.n; i++) {
        ret->server[i].status = op->attempt.status[i];
        ret->server[i].is_node = op->r->servers[i].facts.is_node;
    }
}

bool fli_redlock_progress(fl_client *c, fl_call name, char text[FL_REDLOCK_TEXT_MAX])
{
    text[0] = '\0';
    (void)pthread_mutex_lock(&c->mutex);
    const struct fl_call *call = fli_call_find(c, name);
    const struct fli_redlock_op *op = call != NULL ? call->op : NULL;
    bool goes_on = op != NULL && op->state != OP_ENDED;
    bool ended = goes_on && op->state == OP_PAUSE && op->attempts > 0;
    int code = goes_on ? fli_attempt_blame(&op->attempt) : FL_ENOTHELD;
    if (code != FL_ENOTHELD) {
        struct fl_redlock_report report = *op->report;
        put_servers(op, &report);
        fli_redlock_explain(op->r, op->attempt.kind, code, NULL, &report);
        memcpy(text, report.text, FL_REDLOCK_TEXT_MAX);
    }
    (void)pthread_mutex_unlock(&c->mutex);
    return ended;
}

/* The report is that of the last attempt. */
static void finish(struct fli_redlock_op *op, int result, const char *token_error)
{
    struct fl_redlock_report *report = op->report;
    struct fl_call *call = op->call;
    FLI_ASSERT(op->state != OP_ENDED);
    put_servers(op, report);
    report->attempts = op->attempts;
    report->no_token = token_error != NULL;
    report->elapsed_us = (fli_clock_ns() - op->began_ns) / 1000;
    memcpy(report->value, op->value, sizeof report->value);
    if (result != 0) {
        fli_redlock_explain(op->r, op->attempt.kind, result, token_error, report);
    }
    call->report = report;
    op->report = NULL;
    fli_call_end(call, result, op->deadline_ms);
    end(op);
}

static void set_due(struct fli_redlock_op *op, uint64_t at_ms)
{
    fli_due_set(&op->r->engine->dues, &op->call->due, at_ms);
}

/* ---- attempts -------------------------------------------------------------------------------- */

/* The status of a server that is not asked, and why. FL_REDLOCK_UNASKED: ask it now, or when its
 * connection is ready. */
static enum fl_redlock_status gate(const struct fli_redlock_op *op, const struct fli_server *s,
                                   uint64_t now_ns, const char **ret_error)
{
    uint64_t budget_ms = op->r->budget_ms;
    *ret_error = s->error;
    if (s->state == FLI_SERVER_OPENING && op->attempt.t0_ms < s->opened_ms + budget_ms) {
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

static void refuse(struct fli_redlock_op *op, uint32_t i, enum fl_redlock_status status,
                   const char *error, uint64_t now_ms)
{
    fli_copy_text(op->report->server[i].error, FL_REDLOCK_ERROR_MAX, error, strlen(error));
    fli_op_after(op, fli_attempt_answer(&op->attempt, i, status, now_ms), now_ms);
}

static void ask(struct fli_redlock_op *op, uint32_t i, uint64_t now_ns)
{
    int rc = fli_op_ask(op, i, now_ns);
    if (rc == 0) {
        fli_attempt_asked(&op->attempt, i);
    } else {
        refuse(op, i, FL_REDLOCK_SILENT, fl_strerror(rc), now_ns / NS_PER_MS);
    }
}

/* Refuses a server that was not asked yet and cannot be asked; asks: and asks it otherwise, once
 * its connection is ready. */
static void consider(struct fli_redlock_op *op, uint32_t i, bool asks, uint64_t now_ns)
{
    const struct fli_server *s = &op->r->servers[i];
    const char *error;
    if (op->state != OP_ATTEMPT || op->attempt.status[i] != FL_REDLOCK_UNASKED) {
        return;
    }
    enum fl_redlock_status status = gate(op, s, now_ns, &error);
    if (status != FL_REDLOCK_UNASKED) {
        refuse(op, i, status, error, now_ns / NS_PER_MS);
    } else if (asks && s->state == FLI_SERVER_READY) {
        ask(op, i, now_ns);
    }
}

/* Ends the op, perhaps. */
static void begin_attempt(struct fli_redlock_op *op, uint64_t now_ms)
{
    struct fli_redlock *r = op->r;
    /* the attempt counts from now_ms, which is earlier by less than 1 ms */
    uint64_t now_ns = fli_clock_ns();
    fli_op_forget_answers(op);
    op->state = OP_ATTEMPT;
    op->attempts++;
    memset(op->report->server, 0, r->n * sizeof op->report->server[0]);
    if (op->attempt.kind == FLI_ATTEMPT_ACQUIRE) {
        fli_random_hex(op->value, FL_REDLOCK_VALUE_LEN / 2); /* no other lock has it */
    }
    fli_attempt_init(&op->attempt, op->attempt.kind, r->n, now_ms, op->ttl_ms, op->min_validity_ms);
    set_due(op, now_ms + fli_server_budget_ms(op->ttl_ms, r->budget_ms));

    /* Servers that cannot be asked are noted first: if too many are, no server is asked at all. */
    for (uint32_t i = 0; i < r->n; i++) {
        consider(op, i, false, now_ns);
    }
    for (uint32_t i = 0; i < r->n; i++) {
        consider(op, i, true, now_ns);
    }
}

/* token_error: why the attempt had no token; NULL: the servers are to blame. */
static void try_again_or_finish(struct fli_redlock_op *op, uint64_t now_ms, const char *token_error)
{
    uint64_t left_ms = fli_left_ms(op->until_ms, now_ms);
    if (op->attempt.kind != FLI_ATTEMPT_ACQUIRE || left_ms == 0) {
        finish(op, op->attempt.code, token_error);
        return;
    }
    uint64_t random;
    fli_random(&random, sizeof random);
    uint64_t pause_ms = fli_retry_ms(op->attempts, op->r->retry_ms, op->r->retry_cap_ms, random);
    op->state = OP_PAUSE;
    set_due(op, now_ms + (pause_ms < left_ms ? pause_ms : left_ms));
}

/* The lock was held, and yet the call fails: releases what was set. */
static void release_acquired(struct fli_redlock_op *op, int code)
{
    op->attempt.verdict = FLI_VERDICT_FAILED;
    op->attempt.code = code;
    fli_op_release(op, op->attempt.asked);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static void no_token(struct fli_redlock_op *op, int code, const char *error)
{
    release_acquired(op, code);
    finish(op, code, error);
}

static void no_token_in_time(struct fli_redlock_op *op, uint64_t now_ms)
{
    forget_token(op);
    release_acquired(op, FL_ETIMEOUT);
    try_again_or_finish(op, now_ms, fl_strerror(FL_ETIMEOUT));
}

static void use_token(struct fli_redlock_op *op, uint64_t now_ms)
{
    if (op->issued != 0) {
        no_token(op, op->issued, op->report->text);
    } else if (!fli_is_valid(op->attempt.t0_ms, op->ttl_ms, op->min_validity_ms, now_ms)) {
        no_token_in_time(op, now_ms);
    } else {
        op->call->token = op->token;
        finish(op, 0, NULL);
    }
}

static void note_token(struct fli_redlock_op *op, const struct fl_result *result)
{
    bool is_wrong = result->token == FL_TOKEN_NONE || result->token > FL_TOKEN_MAX;
    op->state = OP_ISSUED;
    op->token = result->token;
    op->issued = result->status == 0 && is_wrong ? FL_EPROTO : result->status;
    if (op->issued != 0) {
        (void)snprintf(op->report->text, sizeof op->report->text, "%s",
                       result->status != 0 ? result->error : fl_strerror(op->issued));
    }
}

static void free_ticket(struct fli_ticket *ticket)
{
    if (ticket->op != NULL) {
        ticket->op->ticket = NULL;
    }
    fli_list_remove(&ticket->in);
    free(ticket);
}

/* On a thread of the issuer's, without its mutex. The call ends in the engine's turn, as all do:
 * whoever gives it up before that finds an op that has servers to release. */
static void issued(void *arg, const struct fl_result *result)
{
    struct fli_ticket *ticket = arg;
    fl_client *c = ticket->client;
    (void)pthread_mutex_lock(&c->mutex);
    if (ticket->op != NULL) {
        note_token(ticket->op, result);
        set_due(ticket->op, fli_clock_ms());
        fli_engine_wake(&c->engine);
    }
    free_ticket(ticket);
    fli_client_unref(c);
}

/* The issuer may be closed next, and then it calls nobody back. */
static void forsake_tokens(struct fli_redlock *r)
{
    FLI_LIST_FOREACH_SAFE(at, next, &r->tickets)
    {
        struct fli_ticket *ticket = FLI_CONTAINER_OF(at, struct fli_ticket, in);
        if (ticket->issuing != 0 && fli_call_forsake(r->tokens, ticket->issuing)) {
            ticket->client->refs--; /* who closes it has one */
            free_ticket(ticket);
        }
    }
}

static void issue(struct fli_redlock_op *op, uint64_t now_ms)
{
    struct fli_redlock *r = op->r;
    struct fli_ticket *ticket = calloc(1, sizeof *ticket);
    uint64_t left_ms = fli_left_ms(op->deadline_ms, now_ms);
    if (ticket == NULL) {
        no_token(op, FL_ENOMEM, fl_strerror(FL_ENOMEM));
        return;
    }
    op->state = OP_ISSUING;
    op->ticket = ticket;
    ticket->op = op;
    ticket->client = FLI_CONTAINER_OF(r->engine, struct fl_client, engine);
    ticket->client->refs++;
    fli_list_init(&ticket->in);
    fli_list_push(&r->tickets, &ticket->in);
    uint64_t timeout_ms = left_ms > op->min_validity_ms ? left_ms - op->min_validity_ms : 1;
    set_due(op, now_ms + timeout_ms);
    int rc = r->issue(r, op->call->request.name, timeout_ms, issued, ticket, &ticket->issuing);
    if (rc != 0) {
        ticket->client->refs--;
        free_ticket(ticket);
        no_token(op, rc, fl_strerror(rc));
    }
}

/* ---- what follows an event ------------------------------------------------------------------- */

static void succeed(struct fli_redlock_op *op, uint64_t now_ms)
{
    if (op->attempt.kind != FLI_ATTEMPT_RELEASE) {
        op->deadline_ms = fli_deadline_ms(op->attempt.t0_ms, op->ttl_ms);
    }
    if (op->attempt.kind == FLI_ATTEMPT_ACQUIRE && op->r->issue != NULL) {
        issue(op, now_ms);
    } else {
        finish(op, 0, NULL);
    }
}

void fli_op_after(struct fli_redlock_op *op, enum fli_verdict verdict, uint64_t now_ms)
{
    if (verdict == FLI_VERDICT_NONE || op->state != OP_ATTEMPT) {
        return;
    }
    set_due(op, FLI_DUE_NEVER);
    if (op->attempt.kind == FLI_ATTEMPT_RELEASE) {
        fli_op_release(op, ~op->attempt.asked); /* a quorum was enough for it */
    }
    if (verdict == FLI_VERDICT_DONE) {
        succeed(op, now_ms);
        return;
    }
    /* An extend that does not succeed may yet have reached servers, now or later. */
    if (op->attempt.kind == FLI_ATTEMPT_EXTEND && op->attempt.asked != 0) {
        op->deadline_ms = fli_deadline_ms(op->attempt.t0_ms, op->ttl_ms);
    }
    fli_op_release(op, fli_attempt_to_release(&op->attempt));
    try_again_or_finish(op, now_ms, NULL);
}

static void on_due(struct fli_due *d, uint64_t now_ms)
{
    struct fli_redlock_op *op = FLI_CONTAINER_OF(d, struct fl_call, due)->op;
    now_ms = fli_clock_ms(); /* other ops may have taken time */
    switch (op->state) {
    case OP_ATTEMPT:
        fli_op_after(op, fli_attempt_timeout(&op->attempt, now_ms), now_ms);
        break;
    case OP_ISSUING:
        no_token_in_time(op, now_ms);
        break;
    case OP_ISSUED:
        use_token(op, now_ms);
        break;
    case OP_PAUSE:
        begin_attempt(op, now_ms);
        break;
    case OP_ENDED:
        FLI_ASSERT(false);
        break;
    }
}

/* Whether the first attempt may begin: every connection has been made or has failed, or enough
 * servers are ready. */
static bool may_begin(const struct fli_redlock *r)
{
    bool settled = true;
    uint32_t ready = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        settled = settled && r->servers[i].settled;
        ready += r->servers[i].state == FLI_SERVER_READY;
    }
    return settled || ready >= fli_quorum(r->n);
}

void fli_ops_server_changed(struct fli_server *s)
{
    struct fli_redlock *r = s->r;
    uint64_t now_ns = fli_clock_ns();
    bool may = may_begin(r);
    if (s->state == FLI_SERVER_READY) {
        fli_op_send_deferred(s);
    }
    FLI_LIST_FOREACH_SAFE(at, next, &r->ops)
    {
        struct fli_redlock_op *op = FLI_CONTAINER_OF(at, struct fli_redlock_op, in);
        if (op->state == OP_PAUSE && op->attempts == 0 && may) {
            begin_attempt(op, now_ns / NS_PER_MS);
        } else {
            consider(op, s->index, true, now_ns);
        }
    }
}

/* ---- the engine's calls ---------------------------------------------------------------------- */

static enum fli_attempt_kind kind_of(enum fli_call_command command)
{
    return command == FLI_CALL_ACQUIRE ? FLI_ATTEMPT_ACQUIRE
           : command == FLI_CALL_RENEW ? FLI_ATTEMPT_EXTEND
                                       : FLI_ATTEMPT_RELEASE;
}

static const char *refuses(const struct fli_engine *e, const struct fli_call_request *q)
{
    const struct fli_redlock *r = redlock_of(e);
    bool acquires = q->command == FLI_CALL_ACQUIRE;
    bool on_value = (q->command == FLI_CALL_RENEW || q->command == FLI_CALL_RELEASE) &&
                    q->owner.len == FL_REDLOCK_VALUE_LEN;
    if ((!acquires && !on_value) || q->name.len < 1 || q->name.len > FL_NAME_MAX) {
        return "that cannot be asked of Redis servers";
    }
    if (q->command != FLI_CALL_RELEASE &&
        (q->ttl_ms < FL_TTL_MIN_MS || q->ttl_ms > r->max_ttl_ms)) {
        return "the TTL is below 10 ms, or above max_ttl_ms of the client";
    }
    if (acquires && q->min_validity_ms > fli_deadline_ms(0, q->ttl_ms)) {
        return "min_validity_ms is above the TTL less a hundredth and 2 ms";
    }
    return acquires && (q->shared || q->permits != 0 || q->also_len != 0 || q->value.len != 0)
               ? "on Redis servers a lock has one name, one holder and no value"
               : NULL;
}

/* Before the very first attempt, waits for the connections: no TTL runs yet. */
static void begin(struct fl_call *c)
{
    struct fli_redlock *r = redlock_of(c->engine);
    struct fli_redlock_op *op = calloc(1, sizeof *op);
    struct fl_redlock_report *report = calloc(1, sizeof *report);
    if (op == NULL || report == NULL) {
        free(op);
        free(report);
        fli_call_end(c, FL_ENOMEM, 0);
        return;
    }
    const struct fli_call_request *q = &c->request;
    uint64_t ttl_ms = q->ttl_ms != 0 ? q->ttl_ms : r->max_ttl_ms;
    *op = (struct fli_redlock_op){.r = r,
                                  .call = c,
                                  .state = OP_PAUSE,
                                  .attempt = {.kind = kind_of(q->command), .n = r->n},
                                  .began_ns = fli_clock_ns(),
                                  .until_ms =
                                      c->call_state.config.now_ms + c->call_state.config.wait_ms,
                                  .ttl_ms = ttl_ms,
                                  .min_validity_ms = q->min_validity_ms,
                                  .report = report};
    if (op->attempt.kind != FLI_ATTEMPT_ACQUIRE) {
        memcpy(op->value, q->owner.data, FL_REDLOCK_VALUE_LEN);
    }
    fli_list_init(&op->requests);
    fli_list_init(&op->in);
    fli_list_push(&r->ops, &op->in);
    c->op = op;
    c->due.fire = on_due;
    if (may_begin(r)) {
        begin_attempt(op, op->began_ns / NS_PER_MS);
    } else {
        set_due(op, op->began_ns / NS_PER_MS + r->connect_ms);
    }
}

static void give_back(struct fli_redlock_op *op)
{
    bool has_asked = op->state == OP_ATTEMPT || op->state == OP_ISSUING || op->state == OP_ISSUED;
    if (op->attempt.kind == FLI_ATTEMPT_ACQUIRE && has_asked) {
        release_acquired(op, FL_EUNCERTAIN);
    }
    end(op);
}

static void cancel(struct fl_call *c)
{
    if (c->op->state != OP_ENDED) {
        give_back(c->op);
        fli_channels_flush(c->engine);
        fli_engine_wake(c->engine);
    }
}

static void drop(struct fli_engine *e)
{
    struct fli_redlock *r = redlock_of(e);
    struct fli_list *at;
    while ((at = fli_list_first(&r->ops)) != NULL) {
        struct fli_redlock_op *op = FLI_CONTAINER_OF(at, struct fli_redlock_op, in);
        if (fli_engine_is_inherited(e)) {
            end(op);
        } else {
            give_back(op);
        }
    }
    if (!fli_engine_is_inherited(e)) {
        fli_channels_flush(e);
        forsake_tokens(r);
    }
    while (fli_list_pop(&r->tickets) != NULL) {
        /* the others are their callbacks', or the parent's */
    }
    fli_checks_forget(r);
    for (uint32_t i = 0; i < r->n; i++) {
        fli_server_leave(&r->servers[i]);
        fli_deferred_drop(&r->servers[i]);
    }
}

static void abandon(struct fli_engine *e)
{
    struct fli_redlock *r = redlock_of(e);
    fli_list_init(&r->ops);
    fli_list_init(&r->checks);
    fli_list_init(&r->tickets);
    for (uint32_t i = 0; i < r->n; i++) {
        fli_server_abandon(&r->servers[i]);
    }
}

static int own(struct fli_engine *e)
{
    struct fli_redlock *r = redlock_of(e);
    int rc = 0;
    for (uint32_t i = 0; i < r->n && rc == 0; i++) {
        rc = fli_server_begin(&r->servers[i]);
    }
    return rc;
}

/* A release ends with the quorum. If the program ends then (`fencelock redlock release`), the
 * servers that are still being connected to would keep the lock. */
static bool is_busy(const struct fli_engine *e)
{
    const struct fli_redlock *r = redlock_of(e);
    bool busy = !fli_list_empty(&e->dirty);
    for (uint32_t i = 0; i < r->n; i++) {
        const struct fli_server *s = &r->servers[i];
        busy = busy || (s->deferred_len > 0 && (s->state == FLI_SERVER_OPENING || !s->settled));
    }
    return busy;
}

const struct fli_backend fli_op_backend = {.refuses = refuses,
                                           .begin = begin,
                                           .cancel = cancel,
                                           .drop = drop,
                                           .abandon = abandon,
                                           .own = own,
                                           .is_busy = is_busy};
