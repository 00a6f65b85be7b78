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

int fl_tls_check(const struct fl_tls_options *options, char *errmsg, size_t errmsg_size)
{
    struct fli_link_security with;
    (void)snprintf(errmsg, errmsg_size, "out of memory");
    int rc = fli_link_security_init(&with, options, errmsg, errmsg_size);
    fli_link_security_fini(&with);
    return rc;
}

/* ---- checks before anything is sent ---------------------------------------------------------- */

static bool is_between(uint64_t v, uint64_t least, uint64_t most)
{
    return v >= least && v <= most;
}

int fli_client_check_timeout(const fl_client *c, uint64_t timeout_ms)
{
    if (timeout_ms > FL_TIMEOUT_MAX_MS) {
        return fli_fail(c, FL_EINVAL, "a timeout is at most %llu ms",
                        (unsigned long long)FL_TIMEOUT_MAX_MS);
    }
    return 0;
}

int fli_client_check_name(const fl_client *c, struct fl_bytes name)
{
    if (!is_between(name.len, 1, FL_NAME_MAX)) {
        return fli_fail(c, FL_EINVAL, "a lock's name has 1 to %u bytes, not %zu", FL_NAME_MAX,
                        name.len);
    }
    return 0;
}

int fli_client_check_token(const fl_client *c, fl_token token)
{
    if (!is_between(token, 1, FL_TOKEN_MAX)) {
        return fli_fail(c, FL_EINVAL, "a token is a number from 1 to %llu",
                        (unsigned long long)FL_TOKEN_MAX);
    }
    return 0;
}

int fli_client_check_ttl(const fl_client *c, uint64_t ttl_ms)
{
    if (!is_between(ttl_ms, FL_TTL_MIN_MS, FL_TTL_MAX_MS)) {
        return fli_fail(c, FL_EINVAL, "a TTL is %llu to %llu ms, not %llu",
                        (unsigned long long)FL_TTL_MIN_MS, (unsigned long long)FL_TTL_MAX_MS,
                        (unsigned long long)ttl_ms);
    }
    return 0;
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

/* The parts of a request that are the same for all commands. */
static int check(const fl_client *c, const struct fli_call_plan *q)
{
    const struct fli_call_request *request = &q->request;
    int rc = fli_client_check_timeout(c, q->timeout_ms);
    switch (request->command) {
    case FLI_CALL_RENEW:
    case FLI_CALL_RELEASE:
    case FLI_CALL_CHECK:
        rc = rc != 0 ? rc : fli_client_check_name(c, request->name);
        rc = rc != 0 ? rc : fli_client_check_token(c, request->token);
        rc = rc != 0 || request->ttl_ms == 0 ? rc : fli_client_check_ttl(c, request->ttl_ms);
        if (rc == 0 && request->command != FLI_CALL_CHECK && is_of_parent(c, request->token)) {
            rc = fli_not_ours(c, FL_ENOTHELD);
        }
        break;
    case FLI_CALL_TOKEN:
    case FLI_CALL_BREAK:
    case FLI_CALL_SHOW:
        rc = rc != 0 ? rc : fli_client_check_name(c, request->name);
        break;
    case FLI_CALL_LOCKS:
        if (rc == 0 && request->name.len > FL_NAME_MAX) {
            rc = fli_fail(c, FL_EINVAL, "a pattern has at most %u bytes", FL_NAME_MAX);
        }
        break;
    default:
        break;
    }
    return rc;
}

/* ---- requests -------------------------------------------------------------------------------- */

const char fli_not_held[] = "the lock is not held under this token";

static struct fli_call_plan with_token(enum fli_call_command command, struct fl_bytes name,
                                       fl_token token, uint64_t timeout_ms)
{
    return (struct fli_call_plan){.request = {.command = command, .name = name, .token = token},
                                  .timeout_ms = timeout_ms,
                                  .no = fli_not_held};
}

static struct fli_call_plan about(enum fli_call_command command, struct fl_bytes name,
                                  uint64_t timeout_ms)
{
    return (struct fli_call_plan){.request = {.command = command, .name = name},
                                  .timeout_ms = timeout_ms,
                                  .no = command == FLI_CALL_BREAK  ? "nobody holds the lock"
                                        : command == FLI_CALL_SHOW ? "the lock is free"
                                                                   : ""};
}

static struct fli_call_plan list(enum fli_call_command command, struct fl_bytes match,
                                 struct fl_bytes cursor, uint64_t count, uint64_t timeout_ms)
{
    return (struct fli_call_plan){
        .request = {.command = command, .name = match, .cursor = cursor, .count = count},
        .timeout_ms = timeout_ms,
        .no = ""};
}

/* Puts what an answer says into the result. */
static int convert(enum fli_call_command command, redisReply **reply, struct fl_result *ret)
{
    redisReply *r = *reply;
    int rc = 0;
    switch (command) {
    case FLI_CALL_TOKEN:
        ret->token = (fl_token)r->integer;
        break;
    case FLI_CALL_BREAK:
        /* A burnt token is larger than one that was granted, so 1 cannot be one: older nodes answer
         * 1 for "done". */
        ret->token = r->integer > 1 ? (fl_token)r->integer : FL_TOKEN_NONE;
        break;
    case FLI_CALL_SHOW:
        rc = fli_list_of_one(r, &ret->locks);
        *reply = NULL;
        break;
    case FLI_CALL_LOCKS:
    case FLI_CALL_BUSIEST:
        rc = fli_list_of_page(r, &ret->locks);
        *reply = NULL;
        break;
    case FLI_CALL_SESSIONS:
        rc = fli_list_of_sessions(r, &ret->sessions);
        *reply = NULL;
        break;
    default:
        break;
    }
    return rc;
}

int fli_code_of(enum fli_call_command command, int status)
{
    if (status != FL_ENOTHELD) {
        return status;
    }
    return command == FLI_CALL_SHOW                                                 ? FL_ENOTFOUND
           : command == FLI_CALL_SESSION_RENEW || command == FLI_CALL_SESSION_CLOSE ? FL_ENOSESSION
                                                                                    : status;
}

/* ---- calls that block ------------------------------------------------------------------------ */

static int run(fl_client *c, const struct fli_call_plan *q, struct fl_result *ret)
{
    redisReply *reply = NULL;
    *ret = (struct fl_result){.status = 0};
    int rc = c == NULL ? fli_client_enter(c) : check(c, q);
    rc = rc == 0 ? fli_run(c, q, &reply, &ret->deadline_ms) : rc;
    if (rc == 0) {
        rc = convert(q->request.command, &reply, ret);
        rc = rc == 0 ? 0
                     : fli_fail(c, rc, "%s",
                                rc == FL_ENOMEM ? "out of memory"
                                                : "the answer is not a list of what was asked for");
    }
    freeReplyObject(reply);
    return fli_code_of(q->request.command, rc);
}

int fl_renew(fl_client *c, struct fl_bytes name, fl_token token, uint64_t ttl_ms,
             uint64_t timeout_ms, uint64_t *ret_deadline_ms)
{
    struct fl_result r;
    struct fli_call_plan q = with_token(FLI_CALL_RENEW, name, token, timeout_ms);
    q.request.ttl_ms = ttl_ms;
    int rc = run(c, &q, &r);
    if (rc == 0 && ret_deadline_ms != NULL) {
        *ret_deadline_ms = r.deadline_ms;
    }
    return rc;
}

int fl_release(fl_client *c, struct fl_bytes name, fl_token token, uint64_t timeout_ms)
{
    struct fl_result r;
    const struct fli_call_plan q = with_token(FLI_CALL_RELEASE, name, token, timeout_ms);
    return run(c, &q, &r);
}

int fl_check(fl_client *c, struct fl_bytes name, fl_token token, uint64_t timeout_ms)
{
    struct fl_result r;
    const struct fli_call_plan q = with_token(FLI_CALL_CHECK, name, token, timeout_ms);
    return run(c, &q, &r);
}

int fl_issue_token(fl_client *c, struct fl_bytes name, uint64_t timeout_ms, fl_token *ret)
{
    struct fl_result r;
    const struct fli_call_plan q = about(FLI_CALL_TOKEN, name, timeout_ms);
    int rc = run(c, &q, &r);
    if (rc == 0) {
        *ret = r.token;
    }
    return rc;
}

int fl_break(fl_client *c, struct fl_bytes name, uint64_t timeout_ms, fl_token *ret_burnt)
{
    struct fl_result r;
    const struct fli_call_plan q = about(FLI_CALL_BREAK, name, timeout_ms);
    int rc = run(c, &q, &r);
    if (rc == 0 && ret_burnt != NULL) {
        *ret_burnt = r.token;
    }
    return rc;
}

static int run_list(fl_client *c, const struct fli_call_plan *q, struct fl_lock_list **ret)
{
    struct fl_result r;
    int rc = run(c, q, &r);
    if (rc == 0) {
        *ret = r.locks;
    }
    return rc;
}

int fl_show(fl_client *c, struct fl_bytes name, uint64_t timeout_ms, struct fl_lock_list **ret)
{
    const struct fli_call_plan q = about(FLI_CALL_SHOW, name, timeout_ms);
    return run_list(c, &q, ret);
}

int fl_locks(fl_client *c, struct fl_bytes match, struct fl_bytes cursor, uint64_t count,
             uint64_t timeout_ms, struct fl_lock_list **ret)
{
    const struct fli_call_plan q = list(FLI_CALL_LOCKS, match, cursor, count, timeout_ms);
    return run_list(c, &q, ret);
}

int fl_busiest(fl_client *c, uint64_t count, uint64_t timeout_ms, struct fl_lock_list **ret)
{
    const struct fli_call_plan q =
        list(FLI_CALL_BUSIEST, fl_str(""), fl_str(""), count, timeout_ms);
    return run_list(c, &q, ret);
}

int fl_sessions(fl_client *c, struct fl_bytes cursor, uint64_t count, uint64_t timeout_ms,
                struct fl_session_list **ret)
{
    struct fl_result r;
    const struct fli_call_plan q = list(FLI_CALL_SESSIONS, fl_str(""), cursor, count, timeout_ms);
    int rc = run(c, &q, &r);
    if (rc == 0) {
        *ret = r.sessions;
    }
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

int fli_client_check_node(const fl_client *c, size_t node, uint64_t timeout_ms)
{
    if (node >= c->engine.n_nodes) {
        return fli_fail(c, FL_EINVAL, "there is no node number %zu", node);
    }
    return fli_client_check_timeout(c, timeout_ms);
}

/* 0, and the text of its INFO. */
static int read_info(fl_client *c, size_t index, uint64_t timeout_ms, redisReply **ret)
{
    const struct fli_call_plan q = {.request = {.command = FLI_CALL_INFO},
                                    .timeout_ms = timeout_ms,
                                    .once = true,
                                    .node = (uint32_t)index};
    *ret = NULL;
    int rc = c == NULL ? fli_client_enter(c) : fli_client_check_node(c, index, timeout_ms);
    return rc == 0 ? fli_run(c, &q, ret, NULL) : rc;
}

int fl_node_info(fl_client *c, size_t index, uint64_t timeout_ms, char **ret)
{
    redisReply *reply;
    int rc = read_info(c, index, timeout_ms, &reply);
    if (rc == 0) {
        *ret = strdup(reply->str);
        rc = *ret != NULL ? 0 : fli_fail(c, FL_ENOMEM, "out of memory");
    }
    freeReplyObject(reply);
    return rc;
}

int fl_node_ask(fl_client *c, size_t index, uint64_t timeout_ms, struct fl_node_status *ret,
                size_t size)
{
    struct fl_node_status status;
    redisReply *reply;
    int rc = read_info(c, index, timeout_ms, &reply);
    if (rc == 0) {
        fli_status_of_info(reply->str, reply->len, &status, sizeof status);
        if (status.role[0] != '\0') {
            fli_status_of_info(reply->str, reply->len, ret, size);
        } else { /* a Redis answers INFO too */
            rc = fli_fail(c, FL_EPROTO,
                          "%s answers, but is not a fencelockd: its INFO has no node_role",
                          c->engine.nodes[index].place.node.text);
        }
    }
    freeReplyObject(reply);
    return rc;
}

/* ---- calls that call back -------------------------------------------------------------------- */

void fli_call_delete(struct fl_call *call)
{
    fli_list_remove(&call->in);
    if (call->session != NULL) {
        call->session->takers--;
    }
    fli_lock_discard(call->lock);
    fl_lock_list_free(call->result.locks);
    fl_session_list_free(call->result.sessions);
    free(call->result.report);
    free(call);
}

static void deliver(fl_client *c, struct fli_callback *n)
{
    struct fl_call *call = FLI_CONTAINER_OF(n, struct fl_call, note);
    struct fl_result result = call->result;
    call->result = (struct fl_result){.status = 0};
    (void)pthread_mutex_unlock(&c->mutex);
    call->done(call->arg, &result);
    fl_lock_list_free(result.locks);
    fl_session_list_free(result.sessions);
    free(result.report);
    (void)pthread_mutex_lock(&c->mutex);
    n->under_way = false;
    if (!call->cancelled) {
        fli_call_delete(call);
    }
}

/* The call is over, with what is in its result. */
void fli_call_complete(struct fl_call *call, int status, const char *error)
{
    call->engine_call = NULL;
    call->result.status = status;
    snprintf(call->error, sizeof call->error, "%s", error);
    call->result.error = call->result.report != NULL ? call->result.report->text : call->error;
    if (call->wait != NULL) {
        call->wait->report = call->result.report;
        *call->ret = call->result;
        call->wait->over = true;
        call->result = (struct fl_result){.status = 0};
        fli_call_delete(call);
    } else if (call->done != NULL) {
        fli_callback_add(call->client, &call->note);
    } else {
        fli_call_delete(call);
    }
}

struct fl_call *fli_call_make(fl_client *c, const struct fli_call_plan *q, fl_done done, void *arg)
{
    struct fl_call *call = calloc(1, sizeof *call);
    if (call != NULL) {
        call->client = c;
        call->request = q->request;
        call->times = fli_times_of(c, q);
        call->began_ms = fli_clock_ms();
        call->done = done;
        call->arg = arg;
        call->note.deliver = deliver;
        fli_list_init(&call->note.in);
        fli_list_push(&c->calls, &call->in);
    }
    return call;
}

void fli_call_ended(void *arg, struct fli_ended *how)
{
    struct fl_call *call = arg;
    int status = fli_code_of(call->request.command, how->status);
    const char *error = how->error;
    call->result.report = how->report;
    how->report = NULL;
    if (status == 0) {
        status = convert(call->request.command, &how->reply, &call->result);
        error = status == 0 ? "" : fl_strerror(status);
        call->result.deadline_ms = how->lease_until_ms;
    }
    fli_call_complete(call, status, error);
}

static int start(fl_client *c, const struct fli_call_plan *q, fl_done done, void *arg,
                 fl_call **ret_call)
{
    int rc = fli_client_enter(c);
    if (rc != 0) {
        return rc;
    }
    rc = check(c, q);
    struct fl_call *call = rc == 0 ? fli_call_make(c, q, done, arg) : NULL;
    rc = rc == 0 && call == NULL ? FL_ENOMEM : rc;
    rc = rc == 0 ? fli_engine_start(&c->engine, &call->request, &call->times, fli_call_ended, call,
                                    &call->engine_call)
                 : rc;
    if (rc != 0 && call != NULL) {
        fli_call_delete(call);
    } else if (rc == 0 && ret_call != NULL) {
        *ret_call = call;
    }
    fli_client_leave(c);
    return rc;
}

int fl_renew_start(fl_client *c, struct fl_bytes name, fl_token token, uint64_t ttl_ms,
                   uint64_t timeout_ms, fl_done done, void *arg, fl_call **ret_call)
{
    struct fli_call_plan q = with_token(FLI_CALL_RENEW, name, token, timeout_ms);
    q.request.ttl_ms = ttl_ms;
    return start(c, &q, done, arg, ret_call);
}

int fl_release_start(fl_client *c, struct fl_bytes name, fl_token token, uint64_t timeout_ms,
                     fl_done done, void *arg, fl_call **ret_call)
{
    const struct fli_call_plan q = with_token(FLI_CALL_RELEASE, name, token, timeout_ms);
    return start(c, &q, done, arg, ret_call);
}

int fl_break_start(fl_client *c, struct fl_bytes name, uint64_t timeout_ms, fl_done done, void *arg,
                   fl_call **ret_call)
{
    const struct fli_call_plan q = about(FLI_CALL_BREAK, name, timeout_ms);
    return start(c, &q, done, arg, ret_call);
}

int fl_check_start(fl_client *c, struct fl_bytes name, fl_token token, uint64_t timeout_ms,
                   fl_done done, void *arg, fl_call **ret_call)
{
    const struct fli_call_plan q = with_token(FLI_CALL_CHECK, name, token, timeout_ms);
    return start(c, &q, done, arg, ret_call);
}

int fl_issue_token_start(fl_client *c, struct fl_bytes name, uint64_t timeout_ms, fl_done done,
                         void *arg, fl_call **ret_call)
{
    const struct fli_call_plan q = about(FLI_CALL_TOKEN, name, timeout_ms);
    return start(c, &q, done, arg, ret_call);
}

int fl_show_start(fl_client *c, struct fl_bytes name, uint64_t timeout_ms, fl_done done, void *arg,
                  fl_call **ret_call)
{
    const struct fli_call_plan q = about(FLI_CALL_SHOW, name, timeout_ms);
    return start(c, &q, done, arg, ret_call);
}

int fl_locks_start(fl_client *c, struct fl_bytes match, struct fl_bytes cursor, uint64_t count,
                   uint64_t timeout_ms, fl_done done, void *arg, fl_call **ret_call)
{
    const struct fli_call_plan q = list(FLI_CALL_LOCKS, match, cursor, count, timeout_ms);
    return start(c, &q, done, arg, ret_call);
}

int fl_sessions_start(fl_client *c, struct fl_bytes cursor, uint64_t count, uint64_t timeout_ms,
                      fl_done done, void *arg, fl_call **ret_call)
{
    const struct fli_call_plan q = list(FLI_CALL_SESSIONS, fl_str(""), cursor, count, timeout_ms);
    return start(c, &q, done, arg, ret_call);
}

/* ---- ending calls ---------------------------------------------------------------------------- */

void fli_call_cancel(struct fl_call *call)
{
    bool settle = false;
    if (call->engine_call != NULL) {
        settle =
            call->lock != NULL && call->lock->is_private && fli_engine_is_out(call->engine_call);
        fli_engine_cancel(call->engine_call);
        call->engine_call = NULL;
    }
    if (call->result.lock != NULL) { /* granted, and nobody has heard of it */
        fli_lock_abandon(call->result.lock);
    }
    if (settle) {
        call->done = NULL;
        call->wait = NULL;
        fli_call_settle(call);
    } else {
        fli_call_delete(call);
    }
}

void fl_call_cancel(fl_call *call)
{
    fl_client *c = call->client;
    if (fli_client_enter(c) != 0) {
        return;
    }
    call->cancelled =
        !call->note.under_way || pthread_equal(call->note.thread, pthread_self()) == 0;
    if (fli_callback_drop(c, &call->note)) {
        fli_call_cancel(call);
    }
    fli_client_leave(c);
}

bool fli_call_forsake(struct fl_call *call)
{
    fl_client *c = call->client;
    bool forsaken = fli_client_enter(c) == 0;
    if (forsaken) {
        forsaken = !call->note.under_way && fli_callback_drop(c, &call->note);
        if (forsaken) {
            fli_call_cancel(call);
        }
        fli_client_leave(c);
    }
    return forsaken;
}

void fli_calls_leave(fl_client *c, const struct fl_lock *session)
{
    FLI_LIST_FOREACH(at, &c->calls)
    {
        struct fl_call *call = FLI_CONTAINER_OF(at, struct fl_call, in);
        call->session = call->session == session ? NULL : call->session;
    }
}

bool fli_calls_are_left(const fl_client *c)
{
    FLI_LIST_FOREACH(at, &c->calls)
    {
        const struct fl_call *call = FLI_CONTAINER_OF(at, struct fl_call, in);
        if (call->engine_call != NULL && call->done == NULL && call->wait == NULL) {
            return true;
        }
    }
    return false;
}

void fli_calls_end(fl_client *c)
{
    struct fli_list *at;
    while ((at = fli_list_pop(&c->calls)) != NULL) {
        struct fl_call *call = FLI_CONTAINER_OF(at, struct fl_call, in);
        fli_list_remove(&call->note.in);
        fli_call_delete(call);
    }
}

void fli_calls_forget(fl_client *c)
{
    FLI_LIST_FOREACH(at, &c->calls)
    {
        struct fl_call *call = FLI_CONTAINER_OF(at, struct fl_call, in);
        call->engine_call = NULL;
        call->session = NULL;
        fli_list_remove(&call->note.in);
    }
}
