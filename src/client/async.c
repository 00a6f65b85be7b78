/* async.c: calls and held locks on the caller's event loop; see hold.h. */
#include "client/async.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "client/caller.h"
#include "client/lists.h"
#include "client/owner.h"
#include "client/url.h"

/* One call of the user's. */
struct fl_call {
    struct fli_list in;
    struct fl_async *async;
    struct fli_engine_call *op; /* NULL: the call was the parent's */
    struct fl_lock *lock;       /* ACQUIRE, SESSION OPEN: the lock that a yes makes held */
    struct fl_lock *session;    /* ACQUIRE under a session; NULL when that was freed */
    union {
        fl_acquire_cb acquire;
        fl_token_cb token;
        fl_done_cb done;
        fl_show_cb show;
    } callback;
    void *arg;
};

static int init_mutex(pthread_mutex_t *m)
{
    pthread_mutexattr_t attr;
    if (pthread_mutexattr_init(&attr) != 0) {
        return FL_ESYSTEM;
    }
    (void)pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    int rc = pthread_mutex_init(m, &attr);
    (void)pthread_mutexattr_destroy(&attr);
    return rc == 0 ? 0 : FL_ESYSTEM;
}

static int create(const char *nodes, const struct fl_client_options *options, fl_async **ret)
{
    struct fl_async *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return FL_ENOMEM;
    }
    fli_list_init(&a->locks);
    fli_list_init(&a->calls);
    int rc = nodes == NULL ? FL_EINVAL : fli_engine_init(&a->engine, nodes, false);
    if (rc != 0) {
        free(a);
        return rc;
    }
    a->refs = 1;
    a->process = fli_process();
    rc = fli_engine_options(&a->engine, options);
    if (rc == 0) {
        rc = init_mutex(&a->mutex);
    }
    if (rc != 0) {
        fli_engine_fini(&a->engine);
        free(a);
        return rc;
    }
    *ret = a;
    return 0;
}

int fl_async_create(const char *nodes, const struct fl_client_options *options, fl_async **ret)
{
    struct fli_url room;
    struct fl_client_options own = {.timeout_ms = 0};
    own = options == NULL ? own : *options;
    int rc = fli_url_client(&nodes, &own, &room);
    rc = rc != 0 ? rc : create(nodes, &own, ret);
    fli_url_forget(&room);
    return rc;
}

static void call_delete(struct fl_call *call)
{
    fli_list_remove(&call->in);
    fli_lock_discard(call->lock);
    free(call);
}

static void end_locks(struct fl_async *a)
{
    struct fli_list *at;
    while ((at = fli_list_pop(&a->locks)) != NULL) {
        struct fl_lock *lock = FLI_CONTAINER_OF(at, struct fl_lock, in);
        fli_due_remove(&a->engine.dues, &lock->due);
        fli_lease_end(&lock->lease, FL_LOST_RELEASED);
        lock->reported = FL_HOLD_LOST;
        lock->renewal = NULL;
    }
}

/* In a child: lets go of the parent's locks and calls. If the library's thread was at work when the
 * process forked, the lists are left as they were, since they may be half changed; a little memory
 * and a descriptor or two stay with the child then. */
static void forget(struct fl_async *a)
{
    bool whole = !a->has_thread || pthread_mutex_trylock(&a->mutex) == 0;
    if (init_mutex(&a->mutex) != 0) {
        fli_fatal("a mutex cannot be made");
    }
    if (!whole) {
        fli_list_init(&a->calls);
        fli_list_init(&a->locks);
        fli_engine_abandon(&a->engine);
    }
    FLI_LIST_FOREACH(at, &a->calls)
    {
        FLI_CONTAINER_OF(at, struct fl_call, in)->op = NULL;
    }
    end_locks(a);
    a->jeopardies = a->lost = 0;
}

int fli_async_own(struct fl_async *a)
{
    if (a->closed || a->process == fli_process()) {
        return 0;
    }
    forget(a);
    int rc = fli_engine_own(&a->engine);
    a->process = rc == 0 ? fli_process() : a->process;
    return rc;
}

bool fli_async_unref(struct fl_async *a)
{
    FLI_ASSERT(a->refs > 0);
    return --a->refs == 0;
}

void fli_async_free(struct fl_async *a)
{
    (void)pthread_mutex_destroy(&a->mutex);
    free(a);
}

void fl_async_destroy(fl_async *a)
{
    if (a == NULL) {
        return;
    }
    if (a->process != fli_process()) {
        forget(a);
    }
    struct fli_list *at;
    (void)pthread_mutex_lock(&a->mutex);
    while ((at = fli_list_first(&a->calls)) != NULL) {
        call_delete(FLI_CONTAINER_OF(at, struct fl_call, in));
    }
    end_locks(a);
    fli_engine_fini(&a->engine);
    a->closed = true;
    bool last = fli_async_unref(a);
    (void)pthread_mutex_unlock(&a->mutex);
    if (last) {
        fli_async_free(a);
    }
}

/* A handle whose descriptors cannot be had makes no call; see start_call(). */
static void own_if_possible(const fl_async *a)
{
    (void)!fli_async_own((fl_async *)(uintptr_t)a);
}

int fl_async_fd(const fl_async *a)
{
    own_if_possible(a);
    return a->engine.epoll_fd;
}

struct fl_bytes fl_async_owner(const fl_async *a)
{
    own_if_possible(a);
    return fli_owner_bytes(&a->engine.owner);
}

uint64_t fli_async_last_attempt(const struct fl_async *a)
{
    return fli_attempts_last(&a->engine.attempts, fli_clock_ms());
}

/* ---- calls ----------------------------------------------------------------------------------- */

static struct fl_call *make_call(struct fl_async *a, void *arg)
{
    struct fl_call *call = calloc(1, sizeof *call);
    if (call != NULL) {
        fli_list_init(&call->in);
        call->async = a;
        call->arg = arg;
    }
    return call;
}

/* Starts the call. On failure it is freed. */
static int start_call(struct fl_call *call, const struct fli_ask *ask, uint64_t wait_ms,
                      uint64_t timeout_ms, fli_ended_cb ended)
{
    struct fl_async *a = call->async;
    uint64_t most_ms = timeout_ms != 0 ? timeout_ms : a->engine.timeout_ms;
    const struct fli_call_times times = {.deadline_ms = fli_clock_ms() + wait_ms + most_ms,
                                         .wait_ms = wait_ms};
    int rc = fli_async_own(a);
    (void)pthread_mutex_lock(&a->mutex);
    rc = rc != 0 ? rc : fli_engine_start(&a->engine, ask, &times, ended, call, &call->op);
    if (rc == 0) {
        fli_list_push(&a->calls, &call->in);
    } else {
        call_delete(call);
    }
    (void)pthread_mutex_unlock(&a->mutex);
    return rc;
}

void fl_call_cancel(fl_call *call)
{
    struct fl_async *a = call->async;
    own_if_possible(a);
    (void)pthread_mutex_lock(&a->mutex);
    if (call->op != NULL) {
        fli_engine_cancel(call->op);
    }
    call_delete(call);
    (void)pthread_mutex_unlock(&a->mutex);
}

static bool name_ok(struct fl_bytes name)
{
    return name.len >= 1 && name.len <= FL_NAME_MAX;
}

/* ---- acquire --------------------------------------------------------------------------------- */

static void acquired(void *arg, struct fli_ended *ended)
{
    struct fl_call *call = arg;
    fl_acquire_cb callback = call->callback.acquire;
    void *callback_arg = call->arg;
    struct fl_lock *lock = NULL;
    if (ended->status == 0) {
        lock = call->lock;
        call->lock = NULL;
        fl_token token = lock->is_session ? FL_TOKEN_NONE : (fl_token)ended->reply->integer;
        fli_lock_begin(lock, token, ended->lease_until_ms);
    }
    call_delete(call);
    callback(callback_arg, ended->status, ended->error, lock);
}

struct started {
    uint64_t wait_ms;
    uint64_t timeout_ms;
    const struct fl_hold_options *hold;
};

/* Starts a call whose success makes something held. */
static int start_held(struct fl_async *a, const struct fli_ask *ask, const struct fli_held *held,
                      const struct started *how, fl_acquire_cb done, void *arg, fl_call **ret_call)
{
    struct fl_call *call = make_call(a, arg);
    if (call == NULL) {
        return FL_ENOMEM;
    }
    call->lock = fli_lock_make(a, held, how->hold);
    if (call->lock == NULL) {
        call_delete(call);
        return FL_ENOMEM;
    }
    call->callback.acquire = done;
    int rc = start_call(call, ask, how->wait_ms, how->timeout_ms, acquired);
    if (rc == 0 && ret_call != NULL) {
        *ret_call = call;
    }
    return rc;
}

static bool acquire_ok(const struct fli_ask *ask, const struct fl_acquire_options *o,
                       const struct fl_hold_options *hold)
{
    return name_ok(ask->name) && o->session == NULL && ask->ttl_ms >= FL_TTL_MIN_MS &&
           ask->ttl_ms <= FL_TTL_MAX_MS && fli_acquire_mode_ok(o) &&
           ask->owner.len >= FL_OWNER_MIN && ask->owner.len <= FL_OWNER_MAX &&
           ask->value.len <= FL_VALUE_MAX && o->wait_ms <= FL_WAIT_MAX_MS &&
           o->timeout_ms <= FL_TIMEOUT_MAX_MS && fli_hold_options_ok(hold, ask->ttl_ms);
}

int fl_async_acquire(fl_async *a, struct fl_bytes name, const struct fl_acquire_options *options,
                     const struct fl_hold_options *hold, fl_acquire_cb done, void *arg,
                     fl_call **ret_call)
{
    static const struct fl_acquire_options defaults;
    const struct fl_acquire_options *o = options != NULL ? options : &defaults;
    const struct fli_ask ask = {.op = FLI_ASK_ACQUIRE,
                                .name = name,
                                .owner = o->owner.len != 0 ? o->owner : fl_async_owner(a),
                                .value = o->value,
                                .ttl_ms = o->ttl_ms != 0 ? o->ttl_ms : FL_TTL_DEFAULT_MS,
                                .also = o->also,
                                .also_len = o->also_len,
                                .permits = o->permits,
                                .shared = o->mode == FL_MODE_SHARED};
    if (done == NULL || !acquire_ok(&ask, o, hold)) {
        return FL_EINVAL;
    }
    const struct fli_held held = {.name = name, .ttl_ms = ask.ttl_ms};
    const struct started how = {.wait_ms = o->wait_ms, .timeout_ms = o->timeout_ms, .hold = hold};
    return start_held(a, &ask, &held, &how, done, arg, ret_call);
}

/* ---- sessions -------------------------------------------------------------------------------- */

int fl_async_session(fl_async *a, const struct fl_session_options *options,
                     const struct fl_hold_options *hold, fl_acquire_cb done, void *arg,
                     fl_call **ret_call)
{
    static const struct fl_session_options defaults;
    const struct fl_session_options *o = options != NULL ? options : &defaults;
    struct fli_owner made;
    struct fl_bytes owner = o->owner;
    if (owner.len == 0) {
        fli_owner_make(&made);
        owner = fli_owner_bytes(&made);
    }
    const struct fli_ask ask = {.op = FLI_ASK_SESSION_OPEN,
                                .owner = owner,
                                .value = o->label,
                                .ttl_ms = o->ttl_ms != 0 ? o->ttl_ms : FL_TTL_DEFAULT_MS,
                                .lockdelay_ms = o->lockdelay_ms};
    bool ok = done != NULL && owner.len >= FL_OWNER_MIN && owner.len <= FL_OWNER_MAX &&
              o->label.len <= FL_LABEL_MAX && o->lockdelay_ms <= FL_LOCKDELAY_MAX_MS &&
              o->timeout_ms <= FL_TIMEOUT_MAX_MS && ask.ttl_ms >= FL_TTL_MIN_MS &&
              ask.ttl_ms <= FL_TTL_MAX_MS && fli_hold_options_ok(hold, ask.ttl_ms);
    if (!ok) {
        return FL_EINVAL;
    }
    const struct fli_held held = {.is_session = true, .name = owner, .ttl_ms = ask.ttl_ms};
    const struct started how = {.timeout_ms = o->timeout_ms, .hold = hold};
    return start_held(a, &ask, &held, &how, done, arg, ret_call);
}

void fli_calls_forget(struct fl_async *a, const struct fl_lock *session)
{
    FLI_LIST_FOREACH(at, &a->calls)
    {
        struct fl_call *call = FLI_CONTAINER_OF(at, struct fl_call, in);
        call->session = call->session == session ? NULL : call->session;
    }
}

/* Does not call on_change: the lock's own turn does that, and the token is of no use here. */
static bool is_lost(struct fl_lock *session)
{
    return session == NULL || fli_lease_state(&session->lease, fli_clock_ms()) == FL_HOLD_LOST;
}

static void acquired_under(void *arg, struct fli_ended *ended)
{
    struct fl_call *call = arg;
    fl_token_cb callback = call->callback.token;
    void *callback_arg = call->arg;
    int status = ended->status;
    const char *error = ended->error;
    if (status == 0 && is_lost(call->session)) {
        status = FL_ENOSESSION;
        error = fl_strerror(status);
    }
    fl_token token = status == 0 ? (fl_token)ended->reply->integer : FL_TOKEN_NONE;
    call_delete(call);
    callback(callback_arg, status, error, token);
}

int fl_async_acquire_under(fl_lock *session, struct fl_bytes name,
                           const struct fl_acquire_options *options, fl_token_cb done, void *arg,
                           fl_call **ret_call)
{
    static const struct fl_acquire_options defaults;
    const struct fl_acquire_options *o = options != NULL ? options : &defaults;
    bool ok = done != NULL && session->is_session && name_ok(name) && o->session == NULL &&
              o->ttl_ms == 0 && o->owner.len == 0 && o->value.len <= FL_VALUE_MAX &&
              o->wait_ms <= FL_WAIT_MAX_MS && o->timeout_ms <= FL_TIMEOUT_MAX_MS &&
              fli_acquire_mode_ok(o);
    if (!ok) {
        return FL_EINVAL;
    }
    if (session->async->closed || fl_lock_state(session) == FL_HOLD_LOST) {
        return FL_ENOSESSION;
    }
    const struct fli_ask ask = {.op = FLI_ASK_ACQUIRE,
                                .name = name,
                                .owner = session->renew.owner,
                                .value = o->value,
                                .also = o->also,
                                .also_len = o->also_len,
                                .permits = o->permits,
                                .shared = o->mode == FL_MODE_SHARED,
                                .under_session = true};
    struct fl_call *call = make_call(session->async, arg);
    if (call == NULL) {
        return FL_ENOMEM;
    }
    call->session = session;
    call->callback.token = done;
    int rc = start_call(call, &ask, o->wait_ms, o->timeout_ms, acquired_under);
    if (rc == 0 && ret_call != NULL) {
        *ret_call = call;
    }
    return rc;
}

/* ---- release, show --------------------------------------------------------------------------- */

static void released(void *arg, struct fli_ended *ended)
{
    struct fl_call *call = arg;
    fl_done_cb callback = call->callback.done;
    void *callback_arg = call->arg;
    call_delete(call);
    if (callback != NULL) {
        callback(callback_arg, ended->status, ended->error);
    }
}

int fl_async_release_under(fl_lock *session, struct fl_bytes name, fl_token token,
                           uint64_t timeout_ms, fl_done_cb done, void *arg)
{
    if (!session->is_session || session->async->closed || !name_ok(name) ||
        token == FL_TOKEN_NONE || token > FL_TOKEN_MAX || timeout_ms > FL_TIMEOUT_MAX_MS) {
        return FL_EINVAL;
    }
    if (fli_grant_is_inherited(session->process)) {
        return FL_ENOTHELD;
    }
    const struct fli_ask ask = {.op = FLI_ASK_RELEASE, .name = name, .token = token};
    struct fl_call *call = make_call(session->async, arg);
    if (call == NULL) {
        return FL_ENOMEM;
    }
    call->callback.done = done;
    return start_call(call, &ask, 0, timeout_ms, released);
}

int fl_async_release(fl_lock *lock, uint64_t timeout_ms, fl_done_cb done, void *arg)
{
    if (lock->async->closed || timeout_ms > FL_TIMEOUT_MAX_MS) {
        return FL_EINVAL;
    }
    if (fli_grant_is_inherited(lock->process)) {
        return FL_ENOTHELD;
    }
    struct fli_ask ask;
    fli_lock_give_up(lock, &ask);
    struct fl_call *call = make_call(lock->async, arg);
    if (call == NULL) {
        return FL_ENOMEM;
    }
    call->callback.done = done;
    return start_call(call, &ask, 0, timeout_ms, released);
}

static void shown(void *arg, struct fli_ended *ended)
{
    struct fl_call *call = arg;
    fl_show_cb callback = call->callback.show;
    void *callback_arg = call->arg;
    struct fl_lock_list *list = NULL;
    int status = ended->status == FL_ENOTHELD ? FL_ENOTFOUND : ended->status;
    const char *error = ended->error;
    call_delete(call);
    if (status == 0) {
        status = fli_list_of_one(ended->reply, &list);
        ended->reply = NULL; /* fli_list_of_one() takes it, whatever it returns */
        error = status == 0 ? "" : fl_strerror(status);
    }
    callback(callback_arg, status, error, list);
}

int fl_async_show(fl_async *a, struct fl_bytes name, uint64_t timeout_ms, fl_show_cb done,
                  void *arg, fl_call **ret_call)
{
    if (done == NULL || !name_ok(name) || timeout_ms > FL_TIMEOUT_MAX_MS) {
        return FL_EINVAL;
    }
    struct fl_call *call = make_call(a, arg);
    if (call == NULL) {
        return FL_ENOMEM;
    }
    const struct fli_ask ask = {.op = FLI_ASK_SHOW, .name = name};
    call->callback.show = done;
    int rc = start_call(call, &ask, 0, timeout_ms, shown);
    if (rc == 0 && ret_call != NULL) {
        *ret_call = call;
    }
    return rc;
}

static void issued(void *arg, struct fli_ended *ended)
{
    struct fl_call *call = arg;
    fl_token_cb callback = call->callback.token;
    void *callback_arg = call->arg;
    int status = ended->status;
    const char *error = ended->error;
    fl_token token = status == 0 ? (fl_token)ended->reply->integer : FL_TOKEN_NONE;
    call_delete(call);
    callback(callback_arg, status, error, token);
}

int fl_async_issue_token(fl_async *a, struct fl_bytes name, uint64_t timeout_ms, fl_token_cb done,
                         void *arg, fl_call **ret_call)
{
    if (done == NULL || !name_ok(name) || timeout_ms > FL_TIMEOUT_MAX_MS) {
        return FL_EINVAL;
    }
    struct fl_call *call = make_call(a, arg);
    if (call == NULL) {
        return FL_ENOMEM;
    }
    const struct fli_ask ask = {.op = FLI_ASK_TOKEN, .name = name};
    call->callback.token = done;
    int rc = start_call(call, &ask, 0, timeout_ms, issued);
    if (rc == 0 && ret_call != NULL) {
        *ret_call = call;
    }
    return rc;
}
