/* calls.c: the public calls about locks, sessions and nodes; see client.h. Each is a request
 * (handle.h) and what its answer means. Those that block wait for it; the others call back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "client/handle.h"
#include "client/lists.h"
#include "fencelock/redlock.h"

uint64_t fl_now_ms(void)
{
    return fli_clock_ms();
}

/* ---- checks before anything is sent ---------------------------------------------------------- */

int fli_check(const fl_client *c, enum fli_limit limit, uint64_t value)
{
    char why[128];
    return fli_limit_ok(limit, value, why, sizeof why) ? 0 : fli_fail(c, FL_EINVAL, "%s", why);
}

int fli_check_request(const fl_client *c, const struct fli_call_request *request)
{
    char why[128];
    return fli_call_ok(request, why, sizeof why) ? 0 : fli_fail(c, FL_EINVAL, "%s", why);
}

/* Of what this client's locks were granted under before this process was forked. */
static bool is_of_parent(const fl_client *c, fl_token token)
{
    const struct fli_engine *e = &c->engine;
    return token <= (fli_engine_is_inherited(e) ? e->newest : e->inherited);
}

int fli_not_ours(const fl_client *c, int code)
{
    return fli_fail(c, code, "it is held by the process that forked this one, and not by this one");
}

static int check(const fl_client *c, const struct fli_call_plan *q)
{
    const struct fli_call_request *request = &q->request;
    bool holds = request->command == FLI_CALL_RENEW || request->command == FLI_CALL_RELEASE;
    if (q->once && q->node >= c->engine.n_nodes) {
        return fli_fail(c, FL_EINVAL, "there is no node number %lu", (unsigned long)q->node);
    }
    int rc = fli_check(c, FLI_LIMIT_TIMEOUT, q->timeout_ms);
    rc = rc != 0 ? rc : fli_check_request(c, request);
    return rc == 0 && holds && is_of_parent(c, request->token) ? fli_not_ours(c, FL_ENOTHELD) : rc;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static int plan(const fl_client *c, const struct fl_ask *ask, struct fli_call_plan *ret)
{
    if ((unsigned)ask->what > FL_ASK_SESSIONS) {
        return fli_fail(c, FL_EINVAL, "this version of the library does not know that request");
    }
    *ret = (struct fli_call_plan){.request = {.command = (enum fli_call_command)ask->what,
                                              .name = ask->name,
                                              .token = ask->token,
                                              .ttl_ms = ask->ttl_ms,
                                              .cursor = ask->cursor,
                                              .count = ask->count},
                                  .timeout_ms = ask->timeout_ms};
    return 0;
}

struct fli_call_plan fli_at_node(enum fli_call_command command, size_t index, uint64_t timeout_ms)
{
    return (struct fli_call_plan){.request = {.command = command},
                                  .timeout_ms = timeout_ms,
                                  .once = true,
                                  .node = index < UINT32_MAX ? (uint32_t)index : UINT32_MAX};
}

/* ---- what an answer says --------------------------------------------------------------------- */

/* Puts what the answer says into the result. */
static int convert(struct fl_call *call)
{
    struct fl_result *ret = &call->result;
    redisReply *r = call->reply;
    ret->deadline_ms = call->call_state.lease_until_ms;
    switch (call->request.command) {
    case FLI_CALL_TOKEN:
        ret->token = call->token;
        return 0;
    case FLI_CALL_BREAK:
        /* A burnt token is larger than one that was granted, so 1 cannot be one: older nodes answer
         * 1 for "done". */
        ret->token = call->token > 1 ? call->token : FL_TOKEN_NONE;
        return 0;
    case FLI_CALL_SHOW:
        call->reply = NULL;
        return fli_list_read(FLI_LIST_ONE, r, &ret->locks);
    case FLI_CALL_LOCKS:
    case FLI_CALL_BUSIEST:
        call->reply = NULL;
        return fli_list_read(FLI_LIST_LOCKS, r, &ret->locks);
    case FLI_CALL_SESSIONS:
        call->reply = NULL;
        return fli_list_read(FLI_LIST_SESSIONS, r, &ret->sessions);
    default:
        return 0;
    }
}

/* ---- the life of a call ---------------------------------------------------------------------- */

static void free_result(struct fl_result *r)
{
    fl_lock_list_free(r->locks);
    fl_session_list_free(r->sessions);
    free(r->report);
    *r = (struct fl_result){.status = 0};
}

void fli_call_forget(struct fl_call *call)
{
    if (call->session != NULL) {
        call->session->takers--;
        call->session = NULL;
    }
    fli_lock_discard(call->lock);
    call->lock = NULL;
    call->done = NULL;
    fli_list_remove(&call->note.in);
    free_result(&call->result);
}

static void deliver(fl_client *c, struct fli_callback *n)
{
    struct fl_call *call = FLI_CONTAINER_OF(n, struct fl_call, note);
    struct fl_result result = call->result;
    fl_done done = call->done;
    call->result = (struct fl_result){.status = 0};
    call->done = NULL;
    (void)pthread_mutex_unlock(&c->mutex);
    done(call->arg, &result);
    free_result(&result);
    (void)pthread_mutex_lock(&c->mutex);
    n->under_way = false;
    fli_call_let_go(call);
}

void fli_call_complete(struct fl_call *call, int status, const char *error)
{
    struct fli_wait *w = call->wait;
    call->result.status = status;
    call->result.report = call->report;
    call->report = NULL;
    if (error != call->error) {
        snprintf(call->error, sizeof call->error, "%s", error);
    }
    call->result.error = call->result.report != NULL ? call->result.report->text : call->error;
    if (w != NULL) {
        *w->outcome =
            (struct fli_outcome){.result = call->result,
                                 .is_no = status != 0 && call->call_state.status == FL_ENOTHELD,
                                 .unknown = call->call_state.unknown,
                                 .lease_until_ms = call->call_state.lease_until_ms,
                                 .reply = call->reply};
        w->over = true;
        call->wait = NULL;
        call->reply = NULL;
        call->result = (struct fl_result){.status = 0};
    } else if (call->done != NULL) {
        fli_callback_add(call->client, &call->note);
    }
}

struct fl_call *fli_call_plan(fl_client *c, const struct fli_call_plan *q)
{
    struct fl_call *call = fli_call_make(&c->engine, &q->request, q->arg);
    if (call != NULL) {
        call->client = c;
        call->name = ++c->engine.last_name;
        call->times = fli_times_of(c, q);
        call->began_ms = fli_clock_ms();
        call->done = q->done;
        call->wait = q->wait;
        call->note.deliver = deliver;
    }
    return call;
}

void fli_call_ended(struct fl_call *call)
{
    int status = call->call_state.status;
    status = status == FL_ENOTHELD ? fli_call_no_code(call->request.command) : status;
    int rc = status == 0 ? convert(call) : status;
    fli_call_complete(call, rc, rc == status ? call->error : fl_strerror(rc));
}

static int begin(fl_client *c, struct fli_call_plan *q, struct fl_call **ret)
{
    struct fli_backend *backend = c->engine.backend;
    const char *why = backend != NULL ? backend->refuses(&c->engine, &q->request) : NULL;
    if (why != NULL) {
        return fli_fail(c, FL_EINVAL, "%s", why);
    }
    int rc = backend == NULL ? check(c, q) : 0;
    if (rc != 0) {
        return rc;
    }
    *ret = fli_call_plan(c, q);
    if (*ret == NULL) {
        return FL_ENOMEM;
    }
    fli_call_begin(*ret, &(*ret)->times, fli_call_ended);
    return 0;
}

static int begin_any(fl_client *c, struct fli_call_plan *q, struct fl_call **ret)
{
    return q->begin != NULL ? q->begin(c, q, ret) : begin(c, q, ret);
}

int fli_run(fl_client *c, struct fli_call_plan *q, struct fli_outcome *ret)
{
    struct fl_call *call;
    struct fli_wait w;
    *ret = (struct fli_outcome){.reply = NULL};
    int rc = fli_client_enter(c);
    if (rc != 0) {
        return rc;
    }
    fli_wait_init(&w, c);
    w.tells = q->wait_ms == 0 && !q->once;
    w.outcome = ret;
    q->wait = &w;
    rc = begin_any(c, q, &call);
    if (rc != 0) {
        (void)fli_failed(c, rc);
    } else if (fli_wait(c, &w)) {
        rc = ret->result.status;
        fli_wait_explain(&w, q);
    } else {
        fli_call_cancel(call);
        rc = FL_EUNCERTAIN;
    }
    fli_client_leave(c);
    return rc;
}

int fli_start(fl_client *c, struct fli_call_plan *q, fl_call *ret_name)
{
    struct fl_call *call;
    int rc = fli_client_enter(c);
    if (rc != 0) {
        return rc;
    }
    rc = begin_any(c, q, &call);
    if (rc == 0 && ret_name != NULL) {
        *ret_name = call->name;
    }
    fli_client_leave(c);
    return rc;
}

/* ---- calls that block ------------------------------------------------------------------------ */

int fl_ask(fl_client *c, const struct fl_ask *ask, struct fl_result *ret)
{
    struct fli_call_plan q;
    struct fli_outcome o = {.reply = NULL};
    int rc = plan(c, ask, &q);
    rc = rc == 0 ? fli_run(c, &q, &o) : rc;
    freeReplyObject(o.reply);
    *ret = o.result;
    ret->status = rc;
    ret->error = fl_client_error(c);
    return rc;
}

size_t fl_client_nodes(const fl_client *c)
{
    return c->engine.n_nodes;
}

const char *fl_client_node(const fl_client *c, size_t index)
{
    return index < c->engine.n_nodes ? c->engine.nodes[index].place.node.text : NULL;
}

int fl_node_ask(fl_client *c, size_t index, uint64_t timeout_ms, struct fl_node_status *ret,
                size_t size)
{
    struct fli_call_plan q = fli_at_node(FLI_CALL_INFO, index, timeout_ms);
    struct fli_outcome o;
    struct fl_node_status status;
    int rc = fli_run(c, &q, &o);
    if (rc == 0) {
        fli_status_of_info(o.reply->str, o.reply->len, &status, sizeof status);
        if (status.role[0] != '\0') {
            fli_status_of_info(o.reply->str, o.reply->len, ret, size);
        } else { /* a Redis answers INFO too */
            rc = fli_fail(c, FL_EPROTO,
                          "%s answers, but is not a fencelockd: its INFO has no node_role",
                          c->engine.nodes[index].place.node.text);
        }
    }
    freeReplyObject(o.reply);
    return rc;
}

int fl_ask_start(fl_client *c, const struct fl_ask *ask, fl_done done, void *arg, fl_call *ret_call)
{
    struct fli_call_plan q;
    int rc = plan(c, ask, &q);
    q.done = done;
    q.arg = arg;
    return rc == 0 ? fli_start(c, &q, ret_call) : rc;
}

/* ---- ending calls ---------------------------------------------------------------------------- */

struct fl_call *fli_call_find(fl_client *c, fl_call name)
{
    FLI_LIST_FOREACH(at, &c->engine.calls)
    {
        struct fl_call *call = FLI_CONTAINER_OF(at, struct fl_call, in);
        if (call->client != NULL && call->name == name) {
            return call;
        }
    }
    return NULL;
}

void fli_call_cancel(struct fl_call *call)
{
    bool settles = call->is_private &&
                   (call->gives_back || (call->active && fli_call_state_is_out(&call->call_state)));
    fli_list_remove(&call->note.in);
    if (call->result.lock != NULL) { /* granted, and nobody has heard of it */
        fli_lock_abandon(call->result.lock);
        call->result.lock = NULL;
    }
    struct fl_call *opening = call->session != NULL ? call->session->renewal : NULL;
    if (opening != NULL && opening->wait == call->wait) {
        opening->wait = NULL; /* which is on the stack of who has waited */
    }
    call->done = NULL;
    call->wait = NULL;
    if (!settles || !fli_call_settle(call)) {
        fli_engine_cancel(call);
    }
}

static bool is_called_elsewhere(const struct fl_call *call)
{
    return call->note.under_way && pthread_equal(call->note.thread, pthread_self()) == 0;
}

static bool cancel(fl_client *c, fl_call name, bool waits)
{
    struct fl_call *call;
    if (fli_client_enter(c) != 0) {
        return false;
    }
    while ((call = fli_call_find(c, name)) != NULL && waits && is_called_elsewhere(call)) {
        (void)pthread_cond_wait(&c->turned, &c->mutex);
    }
    bool has_user = call != NULL && call->done != NULL;
    if (has_user) {
        fli_call_cancel(call);
    }
    fli_client_leave(c);
    return has_user;
}

bool fli_call_forsake(fl_client *c, fl_call name)
{
    return cancel(c, name, false);
}

void fl_call_cancel(fl_client *c, fl_call name)
{
    (void)cancel(c, name, true);
}

void fli_calls_leave(fl_client *c, const struct fl_lock *session)
{
    if (!session->is_session) {
        return;
    }
    FLI_LIST_FOREACH(at, &c->engine.calls)
    {
        struct fl_call *call = FLI_CONTAINER_OF(at, struct fl_call, in);
        call->session = call->session == session ? NULL : call->session;
    }
}

bool fli_calls_are_left(const fl_client *c)
{
    FLI_LIST_FOREACH(at, &c->engine.calls)
    {
        const struct fl_call *call = FLI_CONTAINER_OF(at, struct fl_call, in);
        bool has_user =
            call->wait != NULL || (call->done != NULL && !fli_list_linked(&call->note.in));
        if (call->client != NULL && call->active && !has_user) {
            return true;
        }
    }
    return false;
}

void fli_calls_forget(fl_client *c)
{
    FLI_LIST_FOREACH(at, &c->engine.calls)
    {
        fli_call_forget(FLI_CONTAINER_OF(at, struct fl_call, in));
    }
}
