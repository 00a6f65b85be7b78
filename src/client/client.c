/* client.c: the public functions about locks; see client.h. */
#include "fencelock/client.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/process.h"
#include "client/backup.h"
#include "client/caller.h"
#include "client/lists.h"
#include "client/owner.h"
#include "client/url.h"

#define SETTLE_TTL_MS UINT64_C(1000)

struct fl_client {
    struct fli_caller caller;
};

uint64_t fl_now_ms(void)
{
    return fli_clock_ms();
}

uint64_t fl_remaining_ms(const struct fl_grant *grant)
{
    uint64_t now_ms = fli_clock_ms();
    bool over = fli_grant_is_inherited(grant->process) || grant->deadline_ms <= now_ms;
    return over ? 0 : grant->deadline_ms - now_ms;
}

static bool is_between(uint64_t v, uint64_t least, uint64_t most)
{
    return v >= least && v <= most;
}

int fl_tls_check(const struct fl_tls_options *options, char *errmsg, size_t errmsg_size)
{
    struct fli_link_security with;
    (void)snprintf(errmsg, errmsg_size, "out of memory");
    int rc = fli_link_security_init(&with, options, errmsg, errmsg_size);
    fli_link_security_fini(&with);
    return rc;
}

static int create(const char *nodes, const struct fl_client_options *options, fl_client **ret)
{
    struct fl_client *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return FL_ENOMEM;
    }
    int rc = nodes == NULL ? FL_EINVAL : fli_caller_init(&c->caller, nodes);
    if (rc != 0) {
        free(c);
        return rc;
    }
    rc = fli_engine_options(&c->caller.engine, options);
    if (rc != 0) {
        fl_client_destroy(c);
        return rc;
    }
    *ret = c;
    return 0;
}

int fl_client_create(const char *nodes, const struct fl_client_options *options, fl_client **ret)
{
    struct fli_url room;
    struct fl_client_options own = {.timeout_ms = 0};
    own = options == NULL ? own : *options;
    int rc = fli_url_client(&nodes, &own, &room);
    rc = rc != 0 ? rc : create(nodes, &own, ret);
    fli_url_forget(&room);
    return rc;
}

void fl_client_destroy(fl_client *c)
{
    if (c != NULL) {
        fli_caller_fini(&c->caller);
        free(c);
    }
}

void fli_client_on_trouble(fl_client *c, fli_trouble_cb on_trouble, void *arg)
{
    c->caller.on_trouble = on_trouble;
    c->caller.trouble_arg = arg;
}

void fli_client_stop_at(fl_client *c, int fd)
{
    c->caller.stop_fd = fd;
}

void fli_client_resolve(fl_client *c)
{
    (void)!fli_engine_resolve(&c->caller.engine); /* a call says which names are not known */
}

uint64_t fli_client_last_attempt(const fl_client *c)
{
    return fli_attempts_last(&c->caller.engine.attempts, fli_clock_ms());
}

void fli_client_begin_above(fl_client *c, uint64_t last)
{
    fli_attempts_uncertain(&c->caller.engine.attempts, last, fli_clock_ms());
}

const char *fl_client_error(const fl_client *c)
{
    return c->caller.error;
}

struct fl_bytes fl_client_owner(const fl_client *c)
{
    fl_client *own = (fl_client *)(uintptr_t)c;
    /* without descriptors, no call begins that could use the parent's owner */
    (void)!fli_engine_own(&own->caller.engine);
    return fli_owner_bytes(&c->caller.engine.owner);
}

/* ---- checks before anything is sent ---------------------------------------------------------- */

static int check_name(struct fl_client *c, struct fl_bytes name, uint64_t timeout_ms)
{
    if (!is_between(name.len, 1, FL_NAME_MAX)) {
        return fli_caller_fail(&c->caller, FL_EINVAL, "a lock's name has 1 to %u bytes, not %zu",
                               FL_NAME_MAX, name.len);
    }
    return fli_caller_check_timeout(&c->caller, timeout_ms);
}

static int check_token(struct fl_client *c, fl_token token)
{
    if (!is_between(token, 1, FL_TOKEN_MAX)) {
        return fli_caller_fail(&c->caller, FL_EINVAL, "a token is a number from 1 to %llu",
                               (unsigned long long)FL_TOKEN_MAX);
    }
    return 0;
}

static int check_ttl(struct fl_client *c, uint64_t ttl_ms)
{
    if (!is_between(ttl_ms, FL_TTL_MIN_MS, FL_TTL_MAX_MS)) {
        return fli_caller_fail(&c->caller, FL_EINVAL, "a TTL is %llu to %llu ms, not %llu",
                               (unsigned long long)FL_TTL_MIN_MS, (unsigned long long)FL_TTL_MAX_MS,
                               (unsigned long long)ttl_ms);
    }
    return 0;
}

static int check_acquire(struct fl_client *c, const struct fli_call *call)
{
    const struct fli_ask *ask = &call->ask;
    int rc = check_name(c, ask->name, call->timeout_ms);
    if (rc == 0) {
        rc = check_ttl(c, ask->ttl_ms);
    }
    if (rc != 0) {
        return rc;
    }
    if (call->wait_ms > FL_WAIT_MAX_MS) {
        return fli_caller_fail(&c->caller, FL_EINVAL, "a wait is at most %llu ms",
                               (unsigned long long)FL_WAIT_MAX_MS);
    }
    if (!is_between(ask->owner.len, FL_OWNER_MIN, FL_OWNER_MAX)) {
        return fli_caller_fail(&c->caller, FL_EINVAL,
                               "an owner has %u to %u bytes, not %zu: choose one that nobody else "
                               "uses",
                               FL_OWNER_MIN, FL_OWNER_MAX, ask->owner.len);
    }
    if (ask->value.len > FL_VALUE_MAX) {
        return fli_caller_fail(&c->caller, FL_EINVAL, "a value has at most %u bytes, not %zu",
                               FL_VALUE_MAX, ask->value.len);
    }
    return 0;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int not_ours(struct fl_client *c, int code)
{
    return fli_caller_fail(&c->caller, code,
                           "it is held by the process that forked this one, and not by this one");
}

/* Of what this client's locks were granted under before this process was forked. */
static bool is_of_parent(const struct fl_client *c, fl_token token)
{
    const struct fli_engine *e = &c->caller.engine;
    return token <= (fli_engine_is_inherited(e) ? e->newest : e->inherited);
}

/* A lock that a session holds is granted for as long as the session lasts, and the grant does not
 * renew the session. So when little of the session's lease is left after a wait, renew it now. */
static int grant_of_session(fl_client *c, struct fl_session *session, fl_token token,
                            uint64_t timeout_ms, struct fl_grant *ret)
{
    uint64_t now_ms = fli_clock_ms();
    bool fresh = session->deadline_ms >= now_ms + session->ttl_ms / 2;
    if (!fresh) {
        int rc = fl_session_renew(c, session, timeout_ms);
        /* A renewal that fails before the deadline does not end the session. */
        if (rc == FL_ENOSESSION || session->deadline_ms <= fli_clock_ms()) {
            return rc == FL_ENOSESSION ? rc : FL_EUNCERTAIN;
        }
    }
    *ret = (struct fl_grant){.token = token,
                             .ttl_ms = session->ttl_ms,
                             .deadline_ms = session->deadline_ms,
                             .process = fli_process()};
    return 0;
}

int fl_acquire(fl_client *c, struct fl_bytes name, const struct fl_acquire_options *options,
               struct fl_grant *ret)
{
    static const struct fl_acquire_options defaults;
    const struct fl_acquire_options *o = options != NULL ? options : &defaults;
    if (o->session != NULL && fli_grant_is_inherited(o->session->process)) {
        return not_ours(c, FL_ENOSESSION);
    }
    struct fli_call call = {
        .ask = {.op = FLI_ASK_ACQUIRE,
                .name = name,
                .owner = o->owner.len != 0 ? o->owner : fl_client_owner(c),
                .value = o->value,
                .ttl_ms = o->ttl_ms != 0 ? o->ttl_ms : FL_TTL_DEFAULT_MS,
                .also = o->also,
                .also_len = o->also_len,
                .permits = o->permits,
                .shared = o->mode == FL_MODE_SHARED},
        .wait_ms = o->wait_ms,
        .timeout_ms = o->timeout_ms,
        .no = o->wait_ms == 0 ? "another owner holds the lock"
                              : "another owner kept the lock as long as we waited",
    };
    if (o->session != NULL && (o->ttl_ms != 0 || o->owner.len != 0)) {
        return fli_caller_fail(&c->caller, FL_EINVAL,
                               "a lock under a session has the session's TTL and owner");
    }
    if (o->session != NULL) {
        call.ask.owner = (struct fl_bytes){o->session->owner, o->session->owner_len};
        call.ask.under_session = true;
    }
    int rc = check_acquire(c, &call);
    if (rc != 0) {
        return rc;
    }
    if (!fli_acquire_mode_ok(o)) {
        return fli_caller_fail(&c->caller, FL_EINVAL,
                               "a lock is taken alone, in shared mode, with 1 to %u permits, or "
                               "together with up to %u others",
                               FL_PERMITS_MAX, FL_NAMES_MAX - 1);
    }
    call.ask.ttl_ms = call.ask.under_session ? 0 : call.ask.ttl_ms;
    redisReply *reply = NULL;
    uint64_t deadline_ms;
    rc = fli_caller_run(&c->caller, &call, &reply, &deadline_ms);
    fl_token token = rc == 0 ? (fl_token)reply->integer : FL_TOKEN_NONE;
    freeReplyObject(reply);
    c->caller.engine.newest = token > c->caller.engine.newest ? token : c->caller.engine.newest;
    if (rc == 0 && o->session != NULL) {
        return grant_of_session(c, o->session, token, o->timeout_ms, ret);
    }
    if (rc == 0) {
        *ret = (struct fl_grant){.token = token,
                                 .ttl_ms = call.ask.ttl_ms,
                                 .deadline_ms = deadline_ms,
                                 .process = fli_process()};
    }
    return rc;
}

/* The attempt that settles is the newest, so that all before it have no effect any more. Its TTL is
 * short, in case that its own grant is not heard of. */
int fl_settle(fl_client *c, struct fl_bytes name, const struct fl_acquire_options *options,
              uint64_t timeout_ms)
{
    struct fl_acquire_options o = {.wait_ms = 0};
    struct fl_grant grant;
    o = options != NULL ? *options : o;
    uint64_t ttl_ms = o.ttl_ms != 0 && o.ttl_ms < SETTLE_TTL_MS ? o.ttl_ms : SETTLE_TTL_MS;
    o.ttl_ms = o.session != NULL ? 0 : ttl_ms;
    o.wait_ms = 1; /* gives up the place in the queue, too */
    o.timeout_ms = timeout_ms;
    int rc = fl_acquire(c, name, &o, &grant);
    rc = rc == 0 ? fl_release(c, name, grant.token, timeout_ms) : rc;
    return rc == FL_ENOTHELD ? 0 : rc;
}

static const char not_held[] = "the lock is not held under this token";

int fl_renew(fl_client *c, struct fl_bytes name, struct fl_grant *grant, uint64_t timeout_ms)
{
    const struct fli_call call = {
        .ask = {.op = FLI_ASK_RENEW, .name = name, .token = grant->token, .ttl_ms = grant->ttl_ms},
        .timeout_ms = timeout_ms,
        .no = not_held};
    int rc = check_name(c, name, timeout_ms);
    if (rc == 0) {
        rc = check_token(c, grant->token);
    }
    if (rc == 0 && grant->ttl_ms != 0) {
        rc = check_ttl(c, grant->ttl_ms);
    }
    if (rc != 0) {
        return rc;
    }
    if (fli_grant_is_inherited(grant->process)) {
        grant->deadline_ms = 0;
        return not_ours(c, FL_ENOTHELD);
    }
    uint64_t deadline_ms;
    rc = fli_caller_run(&c->caller, &call, NULL, &deadline_ms);
    if (rc == 0) {
        grant->deadline_ms = deadline_ms;
    } else if (rc == FL_ENOTHELD) {
        grant->deadline_ms = 0;
    }
    return rc;
}

static int call_with_token(fl_client *c, enum fli_ask_op op, struct fl_bytes name, fl_token token,
                           uint64_t timeout_ms)
{
    const struct fli_call call = {
        .ask = {.op = op, .name = name, .token = token}, .timeout_ms = timeout_ms, .no = not_held};
    int rc = check_name(c, name, timeout_ms);
    if (rc == 0) {
        rc = check_token(c, token);
    }
    return rc == 0 ? fli_caller_run(&c->caller, &call, NULL, NULL) : rc;
}

int fl_release(fl_client *c, struct fl_bytes name, fl_token token, uint64_t timeout_ms)
{
    if (token != FL_TOKEN_NONE && is_of_parent(c, token)) {
        return not_ours(c, FL_ENOTHELD);
    }
    return call_with_token(c, FLI_ASK_RELEASE, name, token, timeout_ms);
}

int fl_check(fl_client *c, struct fl_bytes name, fl_token token, uint64_t timeout_ms)
{
    return call_with_token(c, FLI_ASK_CHECK, name, token, timeout_ms);
}

int fl_issue_token(fl_client *c, struct fl_bytes name, uint64_t timeout_ms, fl_token *ret)
{
    const struct fli_call call = {
        .ask = {.op = FLI_ASK_TOKEN, .name = name}, .timeout_ms = timeout_ms, .no = ""};
    int rc = check_name(c, name, timeout_ms);
    if (rc != 0) {
        return rc;
    }
    redisReply *reply = NULL;
    rc = fli_caller_run(&c->caller, &call, &reply, NULL);
    if (rc == 0) {
        *ret = (fl_token)reply->integer;
    }
    freeReplyObject(reply);
    return rc;
}

int fl_issue_token_from(void *ctx, struct fl_bytes name, uint64_t timeout_ms, fl_token *ret)
{
    return fl_issue_token(ctx, name, timeout_ms, ret);
}

int fl_break(fl_client *c, struct fl_bytes name, uint64_t timeout_ms, fl_token *ret_burnt)
{
    const struct fli_call call = {.ask = {.op = FLI_ASK_BREAK, .name = name},
                                  .timeout_ms = timeout_ms,
                                  .no = "nobody holds the lock"};
    int rc = check_name(c, name, timeout_ms);
    redisReply *reply = NULL;
    rc = rc == 0 ? fli_caller_run(&c->caller, &call, &reply, NULL) : rc;
    if (rc == 0 && ret_burnt != NULL) {
        /* A burnt token is larger than one that was granted, so 1 cannot be one: older nodes answer
         * 1 for "done". */
        *ret_burnt = reply->integer > 1 ? (fl_token)reply->integer : FL_TOKEN_NONE;
    }
    freeReplyObject(reply);
    return rc;
}

/* ---- sessions -------------------------------------------------------------------------------- */

static int check_session(struct fl_client *c, const struct fli_ask *ask)
{
    if (!is_between(ask->owner.len, FL_OWNER_MIN, FL_OWNER_MAX)) {
        return fli_caller_fail(&c->caller, FL_EINVAL, "an owner has %u to %u bytes, not %zu",
                               FL_OWNER_MIN, FL_OWNER_MAX, ask->owner.len);
    }
    if (ask->value.len > FL_LABEL_MAX) {
        return fli_caller_fail(&c->caller, FL_EINVAL, "a label has at most %u bytes, not %zu",
                               FL_LABEL_MAX, ask->value.len);
    }
    if (ask->lockdelay_ms > FL_LOCKDELAY_MAX_MS) {
        return fli_caller_fail(&c->caller, FL_EINVAL, "a lock-delay is at most %llu ms",
                               (unsigned long long)FL_LOCKDELAY_MAX_MS);
    }
    return check_ttl(c, ask->ttl_ms);
}

int fl_session_open(fl_client *c, const struct fl_session_options *options, struct fl_session *ret)
{
    static const struct fl_session_options defaults;
    const struct fl_session_options *o = options != NULL ? options : &defaults;
    struct fli_owner made;
    struct fl_bytes owner = o->owner;
    if (owner.len == 0) {
        fli_owner_make(&made);
        owner = fli_owner_bytes(&made);
    }
    const struct fli_call call = {
        .ask = {.op = FLI_ASK_SESSION_OPEN,
                .owner = owner,
                .value = o->label,
                .ttl_ms = o->ttl_ms != 0 ? o->ttl_ms : FL_TTL_DEFAULT_MS,
                .lockdelay_ms = o->lockdelay_ms},
        .timeout_ms = o->timeout_ms,
        .no = "",
    };
    int rc = check_session(c, &call.ask);
    if (rc == 0) {
        rc = fli_caller_check_timeout(&c->caller, o->timeout_ms);
    }
    uint64_t deadline_ms;
    if (rc == 0) {
        rc = fli_caller_run(&c->caller, &call, NULL, &deadline_ms);
    }
    if (rc == 0) {
        memcpy(ret->owner, owner.data, owner.len);
        ret->owner_len = owner.len;
        ret->ttl_ms = call.ask.ttl_ms;
        ret->deadline_ms = deadline_ms;
        ret->process = fli_process();
    }
    return rc;
}

static int call_of_session(fl_client *c, enum fli_ask_op op, const struct fl_session *session,
                           uint64_t timeout_ms, uint64_t *ret_deadline_ms)
{
    const struct fli_call call = {
        .ask = {.op = op, .owner = {session->owner, session->owner_len}, .ttl_ms = session->ttl_ms},
        .timeout_ms = timeout_ms,
        .no = "the session has ended"};
    int rc = check_session(c, &call.ask);
    if (rc == 0) {
        rc = fli_caller_check_timeout(&c->caller, timeout_ms);
    }
    if (rc == 0 && fli_grant_is_inherited(session->process)) {
        return not_ours(c, FL_ENOSESSION);
    }
    if (rc == 0) {
        rc = fli_caller_run(&c->caller, &call, NULL, ret_deadline_ms);
    }
    return rc == FL_ENOTHELD ? FL_ENOSESSION : rc;
}

int fl_session_renew(fl_client *c, struct fl_session *session, uint64_t timeout_ms)
{
    uint64_t deadline_ms;
    int rc = call_of_session(c, FLI_ASK_SESSION_RENEW, session, timeout_ms, &deadline_ms);
    if (rc == 0) {
        session->deadline_ms = deadline_ms;
    } else if (rc == FL_ENOSESSION) {
        session->deadline_ms = 0;
    }
    return rc;
}

int fl_session_close(fl_client *c, struct fl_session *session, uint64_t timeout_ms)
{
    uint64_t unused_ms;
    session->deadline_ms = 0;
    return call_of_session(c, FLI_ASK_SESSION_CLOSE, session, timeout_ms, &unused_ms);
}

int fl_sessions(fl_client *c, struct fl_bytes cursor, uint64_t count, uint64_t timeout_ms,
                struct fl_session_list **ret)
{
    const struct fli_call call = {.ask = {.op = FLI_ASK_SESSIONS, .cursor = cursor, .count = count},
                                  .timeout_ms = timeout_ms,
                                  .no = ""};
    int rc = fli_caller_check_timeout(&c->caller, timeout_ms);
    if (rc != 0) {
        return rc;
    }
    redisReply *reply = NULL;
    rc = fli_caller_run(&c->caller, &call, &reply, NULL);
    if (rc != 0) {
        freeReplyObject(reply);
        return rc;
    }
    rc = fli_list_of_sessions(reply, ret);
    return rc == 0 ? 0
                   : fli_caller_fail(&c->caller, rc, "%s",
                                     rc == FL_ENOMEM ? "out of memory"
                                                     : "the answer is no list of sessions");
}

/* ---- queries --------------------------------------------------------------------------------- */

static int fetch_list(fl_client *c, const struct fli_call *call, struct fl_lock_list **ret)
{
    redisReply *reply = NULL;
    int rc = fli_caller_check_timeout(&c->caller, call->timeout_ms);
    rc = rc == 0 ? fli_caller_run(&c->caller, call, &reply, NULL) : rc;
    if (rc != 0) {
        freeReplyObject(reply);
        return rc == FL_ENOTHELD ? FL_ENOTFOUND : rc;
    }
    rc = call->ask.op == FLI_ASK_SHOW ? fli_list_of_one(reply, ret) : fli_list_of_page(reply, ret);
    return rc == 0 ? 0
                   : fli_caller_fail(&c->caller, rc, "%s",
                                     rc == FL_ENOMEM ? "out of memory"
                                                     : "the answer is not a description of locks");
}

int fl_show(fl_client *c, struct fl_bytes name, uint64_t timeout_ms, struct fl_lock_list **ret)
{
    const struct fli_call call = {.ask = {.op = FLI_ASK_SHOW, .name = name},
                                  .timeout_ms = timeout_ms,
                                  .no = "the lock is free"};
    int rc = check_name(c, name, timeout_ms);
    return rc == 0 ? fetch_list(c, &call, ret) : rc;
}

int fl_locks(fl_client *c, struct fl_bytes match, struct fl_bytes cursor, uint64_t count,
             uint64_t timeout_ms, struct fl_lock_list **ret)
{
    const struct fli_call call = {
        .ask = {.op = FLI_ASK_LOCKS, .name = match, .cursor = cursor, .count = count},
        .timeout_ms = timeout_ms,
        .no = ""};
    if (match.len > FL_NAME_MAX) {
        return fli_caller_fail(&c->caller, FL_EINVAL, "a pattern has at most %u bytes",
                               FL_NAME_MAX);
    }
    return fetch_list(c, &call, ret);
}

int fl_busiest(fl_client *c, uint64_t count, uint64_t timeout_ms, struct fl_lock_list **ret)
{
    const struct fli_call call = {
        .ask = {.op = FLI_ASK_BUSIEST, .count = count}, .timeout_ms = timeout_ms, .no = ""};
    return fetch_list(c, &call, ret);
}

size_t fl_client_nodes(const fl_client *c)
{
    return c->caller.engine.n_nodes;
}

const char *fl_client_node(const fl_client *c, size_t index)
{
    return index < c->caller.engine.n_nodes ? c->caller.engine.nodes[index].place.node.text : NULL;
}

int fl_backup(fl_client *c, size_t node, uint64_t timeout_ms,
              int (*sink)(void *arg, const void *data, size_t len), void *arg)
{
    if (node >= c->caller.engine.n_nodes) {
        return fli_caller_fail(&c->caller, FL_EINVAL, "there is no node number %zu", node);
    }
    int rc = fli_caller_check_timeout(&c->caller, timeout_ms);
    return rc == 0 ? fli_backup(&c->caller, FLI_ASK_BACKUP, (uint32_t)node, timeout_ms, sink, arg)
                   : rc;
}

int fl_node_ask(fl_client *c, size_t index, uint64_t timeout_ms, struct fl_node_status *ret)
{
    if (index >= c->caller.engine.n_nodes) {
        return fli_caller_fail(&c->caller, FL_EINVAL, "there is no node number %zu", index);
    }
    const struct fli_ask info = {.op = FLI_ASK_INFO};
    redisReply *reply = NULL;
    int rc = fli_caller_check_timeout(&c->caller, timeout_ms);
    rc = rc == 0 ? fli_caller_once(&c->caller, (uint32_t)index, &info, timeout_ms, &reply) : rc;
    if (rc != 0) {
        return rc;
    }
    fli_status_of_info(reply->str, reply->len, ret);
    freeReplyObject(reply);
    if (ret->role[0] == '\0') { /* a Redis answers INFO too */
        return fli_caller_fail(&c->caller, FL_EPROTO,
                               "%s answers, but is not a fencelockd: its INFO has no node_role",
                               c->caller.engine.nodes[index].place.node.text);
    }
    return 0;
}
