/* take.c: takes locks and sessions, and releases them; see client.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "client/handle.h"
#include "fencelock/redlock.h"

#define SETTLE_TTL_MS UINT64_C(1000)

static int check_owner(const fl_client *c, struct fl_bytes owner)
{
    if (owner.len < FL_OWNER_MIN || owner.len > FL_OWNER_MAX) {
        return fli_fail(c, FL_EINVAL,
                        "an owner has %u to %u bytes, not %zu: choose one that nobody else uses",
                        FL_OWNER_MIN, FL_OWNER_MAX, owner.len);
    }
    return 0;
}

static int check_hold(const fl_client *c, uint64_t reserve_ms, uint64_t max_hold_ms,
                      uint64_t ttl_ms)
{
    if (reserve_ms > ttl_ms / 2 || max_hold_ms >= UINT64_MAX / 4) {
        return fli_fail(c, FL_EINVAL, "a reserve is at most half of the TTL");
    }
    return 0;
}

/* Waits for the end of the call, and says why it has failed. False: it was interrupted, and is to
 * be ended. */
static bool wait_for(struct fl_call *call, struct fli_wait *w, const struct fli_call_plan *q,
                     struct fl_result *ret)
{
    call->wait = w;
    call->ret = ret;
    if (!fli_wait(call->client, w)) {
        return false;
    }
    int rc = ret->status == FL_ENOSESSION && q->request.command == FLI_CALL_SESSION_CLOSE
                 ? FL_ENOTHELD
                 : ret->status;
    fli_wait_explain(w, rc, q->no, q->timeout_ms);
    return true;
}

/* ---- taking ---------------------------------------------------------------------------------- */

static int start_taking(struct fl_call *call);

/* The lock of this call is asked for anew, with a lease of its own: its shared session has ended,
 * or another lock of that is in a circle of waits. The holder of that is another one, since each
 * lock object is a holder of its own. False: it was not under a shared session. */
static bool go_alone(struct fl_call *call)
{
    fl_client *c = call->client;
    struct fl_lock *old = call->lock;
    struct fli_owner owner;
    if (!old->is_private || !old->request.under_session) {
        return false;
    }
    fli_owner_make(&owner);
    struct fli_call_request request = old->request;
    request.owner = fli_owner_bytes(&owner);
    request.ttl_ms = old->ttl_ms;
    request.under_session = false;
    struct fl_lock *lock = fli_lock_make(c, &request);
    if (lock == NULL) {
        return false;
    }
    lock->on_change = old->on_change;
    lock->arg = old->arg;
    lock->max_hold_ms = old->max_hold_ms;
    lock->reserve_ms = old->reserve_ms;
    lock->is_renewed = old->is_renewed;
    lock->is_private = true;
    fli_lock_discard(old);
    call->lock = lock;
    if (call->session != NULL) {
        call->session->takers--;
        call->session = NULL;
    }
    uint64_t passed_ms = fli_clock_ms() - call->began_ms;
    if (call->times.wait_ms != 0) {
        call->times.wait_ms = passed_ms < call->times.wait_ms ? call->times.wait_ms - passed_ms : 1;
    }
    return start_taking(call) == 0;
}

/* ---- nothing is left behind ------------------------------------------------------------------ */

static bool is_alive(struct fl_lock *session)
{
    return session != NULL && session->is_held && fli_lock_state(session) != FL_HOLD_LOST;
}

/* Until when what this call may have got is held; 0: it is not held any more. */
static uint64_t held_until(const struct fl_call *call)
{
    const struct fl_lock *lock = call->lock;
    if (lock->request.under_session) {
        return is_alive(call->session) ? call->session->lease.deadline_ms : 0;
    }
    uint64_t until_ms = call->settle_until_ms;
    return until_ms > fli_clock_ms() ? until_ms : 0;
}

static bool is_passing(int status)
{
    return status == FL_EUNCERTAIN || status == FL_ENOLEADER || status == FL_ENOCONN ||
           status == FL_EBUSY || status == FL_ETIMEOUT;
}

static void given_back(void *arg, struct fli_ended *how);

/* Releases what a call without a user has got, for as long as that may be held. */
static void give_back(struct fl_call *call)
{
    const struct fl_lock *lock = call->lock;
    const struct fli_call_request request = {
        .command = FLI_CALL_RELEASE, .name = lock->request.name, .token = lock->token};
    const struct fli_call_times times = {.deadline_ms = held_until(call), .insists = true};
    call->engine_call = NULL;
    if (times.deadline_ms == 0 || fli_engine_start(&call->client->engine, &request, &times,
                                                   given_back, call, &call->engine_call) != 0) {
        fli_call_delete(call);
    }
}

static void given_back(void *arg, struct fli_ended *how)
{
    struct fl_call *call = arg;
    if (is_passing(how->status)) {
        give_back(call);
    } else {
        fli_call_delete(call);
    }
}

static void settled(void *arg, struct fli_ended *how)
{
    struct fl_call *call = arg;
    if (how->status == 0) {
        call->lock->token = how->token;
        give_back(call);
    } else if (is_passing(how->status)) {
        fli_call_settle(call);
    } else {
        fli_call_delete(call);
    }
}

/* Until it is answered, the session has the name, and is renewed. Its own TTL is short, in case
 * that its grant is not heard of. */
void fli_call_settle(struct fl_call *call)
{
    struct fli_call_request request = call->lock->request;
    if (call->settle_until_ms == 0) {
        call->settle_until_ms = call->times.deadline_ms + call->lock->ttl_ms;
    }
    const struct fli_call_times times = {
        .deadline_ms = held_until(call), .wait_ms = 1, .insists = true};
    if (!request.under_session && request.ttl_ms > SETTLE_TTL_MS) {
        request.ttl_ms = SETTLE_TTL_MS;
    }
    call->engine_call = NULL;
    if (times.deadline_ms == 0 || call->client->closing ||
        fli_engine_start(&call->client->engine, &request, &times, settled, call,
                         &call->engine_call) != 0) {
        fli_call_delete(call);
    }
}

/* A call of its own for the lock of this one, which ends without an answer; NULL: out of memory. */
static struct fl_call *go_on_apart(struct fl_call *call)
{
    const struct fli_call_plan q = {.request = {.command = call->request.command}};
    struct fl_call *more = fli_call_make(call->client, &q, NULL, NULL);
    if (more != NULL) {
        more->times = call->times;
        more->times.watcher = NULL;
        more->lock = call->lock;
        more->session = call->session;
        call->lock = NULL;
        call->session = NULL;
    }
    return more;
}

static void release_ended(void *arg, struct fli_ended *how)
{
    struct fl_call *call = arg;
    struct fl_lock *lock = call->lock;
    /* also when it was refused: the lock is held */
    bool is_done = how->status == 0 || how->status == FL_ENOTHELD || how->status == FL_ENOSESSION;
    struct fl_call *more = !is_done && lock->is_private ? go_on_apart(call) : NULL;
    if (more != NULL) {
        more->settle_until_ms = lock->lease.config.lease_until_ms;
        give_back(more);
    }
    fli_call_ended(call, how);
}

/* Ends the lock, and begins to release it; it is the call's. The session has its name until that is
 * answered: a later attempt of the same session would get the same token. 0; or it is freed all the
 * same, and nothing is sent. */
static int start_release(struct fl_lock *lock, struct fli_call_plan *q, fl_done done, void *arg,
                         struct fl_call **ret)
{
    fl_client *c = lock->client;
    struct fl_lock *session = lock->is_private ? lock->session : NULL;
    fli_lock_give_up(lock, &q->request);
    fli_calls_leave(c, lock);
    fli_list_remove(&lock->in);
    fli_due_set(&c->engine.dues, &lock->due, FLI_DUE_NEVER);
    c->refs--;
    (void)!fli_callback_drop(c, &lock->note); /* this very thread may be in it */
    struct fl_call *call = fli_call_make(c, q, done, arg);
    if (call == NULL) {
        fli_lock_discard(lock);
        return FL_ENOMEM;
    }
    call->lock = lock;
    call->session = session;
    if (session != NULL) {
        session->takers++;
    }
    int rc = fli_engine_start(&c->engine, &call->request, &call->times, release_ended, call,
                              &call->engine_call);
    if (rc != 0) {
        fli_call_delete(call);
        return rc;
    }
    *ret = call;
    return 0;
}

void fli_lock_abandon(struct fl_lock *lock)
{
    struct fli_call_plan q = {.timeout_ms = 0};
    struct fl_call *call;
    (void)!start_release(lock, &q, NULL, NULL, &call); /* else it ends with its lease */
}

static void taken(void *arg, struct fli_ended *how)
{
    struct fl_call *call = arg;
    struct fl_lock *lock = call->lock;
    fl_client *c = call->client;
    int status = how->status;
    const char *error = how->error;
    bool under = lock->request.under_session;
    call->result.report = how->report;
    how->report = NULL;
    if (status == 0 && under && !is_alive(call->session)) {
        status = FL_ENOSESSION;
        error = fl_strerror(status);
    }
    if ((status == FL_ENOSESSION || status == FL_EDEADLOCK) && go_alone(call)) {
        return;
    }
    bool left = status == FL_EUNCERTAIN && lock->is_private;
    struct fl_call *more = left ? go_on_apart(call) : NULL;
    if (more != NULL) {
        fli_call_settle(more);
    }
    if (status == 0) {
        fl_token token = how->token;
        if (call->result.report != NULL) { /* whose value nobody has known before */
            memcpy((char *)(uintptr_t)lock->request.owner.data, call->result.report->value,
                   lock->request.owner.len);
        }
        c->engine.newest = token > c->engine.newest ? token : c->engine.newest;
        lock->session = call->session;
        if (under) {
            fli_list_push(&call->session->members, &lock->in_session);
        }
        fli_lock_begin(lock, token, how->lease_until_ms);
        call->lock = NULL;
        call->result.lock = lock;
        call->result.token = token;
    }
    fli_call_complete(call, status, error);
}

static int start_taking(struct fl_call *call)
{
    struct fl_lock *lock = call->lock;
    if (lock->request.under_session) {
        fli_lock_renew_soon(call->session);
    }
    return fli_engine_start(&call->client->engine, &lock->request, &call->times, taken, call,
                            &call->engine_call);
}

/* The session that locks share is open, or cannot be opened. */
static void session_opened(void *arg, struct fli_ended *how)
{
    struct fl_lock *session = arg;
    fl_client *c = session->client;
    session->renewal = NULL;
    if (how->status == 0) {
        fli_lock_begin(session, FL_TOKEN_NONE, how->lease_until_ms);
    } else {
        fli_list_remove(&session->in_shared);
    }
    FLI_LIST_FOREACH_SAFE(at, next, &c->calls)
    {
        struct fl_call *call = FLI_CONTAINER_OF(at, struct fl_call, in);
        if (call->session != session || call->engine_call != NULL) {
            continue;
        }
        int rc = how->status != 0 ? how->status : start_taking(call);
        if (rc != 0) {
            fli_call_complete(call, rc, how->status != 0 ? how->error : fl_strerror(rc));
        }
    }
    if (how->status != 0) {
        fli_calls_leave(c, session);
        fli_lock_discard(session);
    }
}

/* Whether this handle has, or is taking, a lock of this name under its session. Each lock object is
 * another holder, and a session would get the same token once more. */
static bool is_taken(const struct fl_lock *session, struct fl_bytes name)
{
    FLI_LIST_FOREACH(at, &session->members)
    {
        const struct fl_bytes *b = &FLI_CONTAINER_OF(at, struct fl_lock, in_session)->request.name;
        if (b->len == name.len && memcmp(b->data, name.data, name.len) == 0) {
            return true;
        }
    }
    FLI_LIST_FOREACH(at, &session->client->calls)
    {
        const struct fl_call *call = FLI_CONTAINER_OF(at, struct fl_call, in);
        if (call->session != session || call->lock == NULL) {
            continue;
        }
        const struct fl_bytes *b = &call->lock->request.name;
        if (b->len == name.len && memcmp(b->data, name.data, name.len) == 0) {
            return true;
        }
    }
    return false;
}

static struct fl_lock *open_shared(fl_client *c, uint64_t ttl_ms,
                                   const struct fli_call_times *times)
{
    struct fli_owner owner;
    fli_owner_make(&owner);
    const struct fli_call_request request = {
        .command = FLI_CALL_SESSION_OPEN, .owner = fli_owner_bytes(&owner), .ttl_ms = ttl_ms};
    struct fl_lock *session = fli_lock_make(c, &request);
    if (session == NULL) {
        return NULL;
    }
    session->is_shared = true;
    session->is_renewed = true;
    session->opening_until_ms = times->deadline_ms;
    int rc = fli_engine_start(&c->engine, &session->request, times, session_opened, session,
                              &session->renewal);
    if (rc != 0) {
        fli_lock_discard(session);
        return NULL;
    }
    fli_list_push(&c->sessions, &session->in_shared);
    return session;
}

/* NULL: there is none that is not lost. */
static struct fl_lock *find_shared(fl_client *c, uint64_t ttl_ms)
{
    FLI_LIST_FOREACH_SAFE(at, next, &c->sessions)
    {
        struct fl_lock *session = FLI_CONTAINER_OF(at, struct fl_lock, in_shared);
        if (session->is_held && fli_lock_state(session) == FL_HOLD_LOST) {
            fli_lock_delete(session);
            c->refs--;
        } else if (session->ttl_ms == ttl_ms) {
            return session;
        }
    }
    return NULL;
}

/* The session under which this lock is taken; NULL: it gets a lease of its own. */
static struct fl_lock *shared_session(fl_client *c, const struct fl_take *o,
                                      const struct fli_call_request *request,
                                      const struct fli_call_times *times)
{
    bool shares = c->engine.backend == NULL && !o->alone && !o->unrenewed &&
                  (o->shares || o->ttl_ms == 0) && o->owner.len == 0 && o->also_len == 0 &&
                  o->permits == 0 && o->mode == FL_MODE_EXCLUSIVE && !c->engine.owner_is_given;
    if (!shares) {
        return NULL;
    }
    struct fl_lock *session = find_shared(c, request->ttl_ms);
    if (session != NULL && !session->is_held && session->opening_until_ms > times->deadline_ms) {
        return NULL; /* it would wait for longer than it may */
    }
    if (session != NULL) {
        return is_taken(session, request->name) ? NULL : session;
    }
    struct fli_call_times opening = *times;
    opening.deadline_ms -= times->wait_ms;
    opening.wait_ms = 0;
    return open_shared(c, request->ttl_ms, &opening);
}

static int begin_taking(struct fl_call *call, struct fl_lock *session)
{
    call->session = session;
    if (session != NULL) {
        session->takers++;
        call->lock->request.ttl_ms = 0; /* it has the session's */
    }
    /* else session_opened() goes on */
    return session == NULL || session->is_held ? start_taking(call) : 0;
}

struct taking;
typedef int take_fn(fl_client *c, struct taking *t, fl_done done, void *arg, struct fl_call **ret);

struct taking {
    take_fn *fn;
    struct fli_call_plan request;
    struct fl_take options; /* of a session, what it has of them */
    struct fli_owner owner; /* room for one */
};

static int check_take(const fl_client *c, const struct taking *t)
{
    const struct fli_call_request *request = &t->request.request;
    const struct fl_take *o = &t->options;
    int rc = fli_client_check_name(c, request->name);
    rc = rc != 0 ? rc : fli_client_check_timeout(c, o->timeout_ms);
    rc = rc != 0 ? rc
                 : fli_check_reserved(c, o->reserved, sizeof o->reserved / sizeof o->reserved[0]);
    rc = rc != 0 || o->ttl_ms == 0 ? rc : fli_client_check_ttl(c, o->ttl_ms);
    if (rc != 0) {
        return rc;
    }
    if (o->wait_ms > FL_WAIT_MAX_MS) {
        return fli_fail(c, FL_EINVAL, "a wait is at most %llu ms",
                        (unsigned long long)FL_WAIT_MAX_MS);
    }
    if (o->session != NULL && (o->ttl_ms != 0 || o->owner.len != 0)) {
        return fli_fail(c, FL_EINVAL, "a lock under a session has the session's TTL and owner");
    }
    if (o->session != NULL && (!o->session->is_session || o->session->client != c)) {
        return fli_fail(c, FL_EINVAL, "that is no session of this client");
    }
    if (o->value.len > FL_VALUE_MAX) {
        return fli_fail(c, FL_EINVAL, "a value has at most %u bytes, not %zu", FL_VALUE_MAX,
                        o->value.len);
    }
    struct fli_backend *backend = c->engine.backend;
    if (backend == NULL ? o->min_validity_ms != 0 : o->session != NULL || o->owner.len != 0) {
        return fli_fail(c, FL_EINVAL, "an option is set that is of no use with these servers");
    }
    const char *why = backend != NULL ? backend->refuses(&c->engine, request) : NULL;
    if (why != NULL) {
        return fli_fail(c, FL_EINVAL, "%s", why);
    }
    if (!fli_acquire_mode_ok(o)) {
        return fli_fail(c, FL_EINVAL,
                        "a lock is taken alone, in shared mode, with 1 to %u permits, or "
                        "together with up to %u others",
                        FL_PERMITS_MAX, FL_NAMES_MAX - 1);
    }
    rc = o->owner.len == 0 ? 0 : check_owner(c, o->owner);
    uint64_t ttl_ms = o->session != NULL ? o->session->ttl_ms : request->ttl_ms;
    return rc != 0 ? rc : check_hold(c, o->reserve_ms, o->max_hold_ms, ttl_ms);
}

/* Makes the lock of the call, and begins to take it. */
static int take_with(struct fl_call *call, const struct fli_call_request *request,
                     const struct fl_take *o, struct fl_lock *session, struct fl_call **ret)
{
    const struct fli_engine *e = &call->client->engine;
    struct fl_lock *lock = fli_lock_make(call->client, request);
    int rc = lock == NULL ? FL_ENOMEM : 0;
    call->lock = lock;
    if (rc == 0) {
        lock->on_change = o->on_change;
        lock->arg = o->arg;
        lock->max_hold_ms = o->max_hold_ms;
        lock->reserve_ms = o->reserve_ms;
        lock->is_renewed = !o->unrenewed;
        lock->is_private = !lock->is_session && o->session == NULL && o->owner.len == 0 &&
                           !e->owner_is_given && e->backend == NULL;
        rc = begin_taking(call, session);
    }
    if (rc != 0) {
        fli_call_delete(call);
        return rc;
    }
    *ret = call;
    return 0;
}

/* Under the mutex. */
static int take(fl_client *c, struct taking *t, fl_done done, void *arg, struct fl_call **ret)
{
    const struct fl_take *o = &t->options;
    struct fli_call_request *request = &t->request.request;
    int rc = check_take(c, t);
    if (rc != 0) {
        return rc;
    }
    struct fl_lock *session = o->session;
    if (session != NULL &&
        (fli_grant_is_inherited(session->process) || fli_lock_state(session) == FL_HOLD_LOST)) {
        return fli_fail(c, FL_ENOSESSION, "the session has ended");
    }
    rc = o->unrenewed && o->on_change == NULL ? 0 : fli_client_keep(c);
    struct fl_call *call = rc == 0 ? fli_call_make(c, &t->request, done, arg) : NULL;
    if (call == NULL) {
        return rc != 0 ? rc : FL_ENOMEM;
    }
    session = session != NULL ? session : shared_session(c, o, request, &call->times);
    request->under_session = session != NULL;
    if (session != NULL) { /* which its lock may outlive: that gets a copy */
        request->owner = session->request.owner;
    } else if (request->owner.len == 0) { /* each lock object is another holder */
        fli_owner_make(&t->owner);
        t->owner.len = c->engine.backend != NULL ? FL_REDLOCK_VALUE_LEN : t->owner.len;
        request->owner = c->engine.owner_is_given ? fli_owner_bytes(&c->engine.owner)
                                                  : fli_owner_bytes(&t->owner);
    }
    return take_with(call, request, o, session, ret);
}

static void plan_take(struct taking *t, const char *name, const struct fl_take *options)
{
    *t = (struct taking){.fn = take, .options = {.ttl_ms = 0}};
    if (options != NULL) {
        t->options = *options;
    }
    const struct fl_take *o = &t->options;
    t->request = (struct fli_call_plan){
        .request = {.command = FLI_CALL_ACQUIRE,
                    .name = name != NULL ? fl_str(name) : o->name,
                    .owner = o->owner,
                    .value = o->value,
                    .ttl_ms = o->ttl_ms != 0 ? o->ttl_ms : FL_TTL_DEFAULT_MS,
                    .also = o->also,
                    .also_len = o->also_len,
                    .permits = o->permits,
                    .min_validity_ms = o->min_validity_ms,
                    .shared = o->mode == FL_MODE_SHARED},
        .wait_ms = o->wait_ms,
        .timeout_ms = o->timeout_ms,
        .no = o->wait_ms == 0 ? "another owner holds the lock"
                              : "another owner kept the lock as long as we waited",
    };
}

static int check_session(const fl_client *c, const struct taking *t)
{
    const struct fli_call_request *request = &t->request.request;
    const struct fl_take *o = &t->options;
    int rc = check_owner(c, request->owner);
    rc = rc != 0 ? rc
                 : fli_check_reserved(c, o->reserved, sizeof o->reserved / sizeof o->reserved[0]);
    if (rc == 0 && request->value.len > FL_LABEL_MAX) {
        rc = fli_fail(c, FL_EINVAL, "a label has at most %u bytes, not %zu", FL_LABEL_MAX,
                      request->value.len);
    }
    if (rc == 0 && request->lockdelay_ms > FL_LOCKDELAY_MAX_MS) {
        rc = fli_fail(c, FL_EINVAL, "a lock-delay is at most %llu ms",
                      (unsigned long long)FL_LOCKDELAY_MAX_MS);
    }
    rc = rc != 0 ? rc : fli_client_check_timeout(c, t->request.timeout_ms);
    rc = rc != 0 ? rc : fli_client_check_ttl(c, request->ttl_ms);
    return rc != 0 ? rc : check_hold(c, o->reserve_ms, o->max_hold_ms, request->ttl_ms);
}

/* Under the mutex. */
static int take_session(fl_client *c, struct taking *t, fl_done done, void *arg,
                        struct fl_call **ret)
{
    int rc = check_session(c, t);
    rc = rc != 0 ? rc : fli_client_keep(c);
    struct fl_call *call = rc == 0 ? fli_call_make(c, &t->request, done, arg) : NULL;
    if (call == NULL) {
        return rc != 0 ? rc : FL_ENOMEM;
    }
    return take_with(call, &t->request.request, &t->options, NULL, ret);
}

static void plan_session(struct taking *t, const struct fl_session_options *options)
{
    static const struct fl_session_options defaults;
    const struct fl_session_options *o = options != NULL ? options : &defaults;
    *t = (struct taking){.fn = take_session,
                         .options = {.on_change = o->on_change,
                                     .arg = o->arg,
                                     .max_hold_ms = o->max_hold_ms,
                                     .reserve_ms = o->reserve_ms}};
    for (size_t i = 0; i < sizeof o->reserved / sizeof o->reserved[0]; i++) {
        t->options.reserved[0] |= o->reserved[i];
    }
    fli_owner_make(&t->owner);
    t->request = (struct fli_call_plan){
        .request = {.command = FLI_CALL_SESSION_OPEN,
                    .owner = o->owner.len != 0 ? o->owner : fli_owner_bytes(&t->owner),
                    .value = o->label,
                    .ttl_ms = o->ttl_ms != 0 ? o->ttl_ms : FL_TTL_DEFAULT_MS,
                    .lockdelay_ms = o->lockdelay_ms},
        .timeout_ms = o->timeout_ms,
        .no = "",
    };
}

static int wait_for_lock(fl_client *c, struct taking *t, fl_lock **ret)
{
    struct fl_call *call;
    struct fli_wait w;
    struct fl_result result;
    fli_wait_init(&w, c);
    w.tells = t->request.wait_ms == 0;
    t->request.watcher = &w.watcher;
    int rc = t->fn(c, t, NULL, NULL, &call);
    if (rc != 0) {
        return fli_error(false)[0] != '\0' ? rc : fli_fail(c, rc, "%s", fl_strerror(rc));
    }
    if (!wait_for(call, &w, &t->request, &result)) {
        fli_call_cancel(call);
        return FL_EUNCERTAIN;
    }
    if (result.status == 0) {
        *ret = result.lock;
    }
    return result.status;
}

static int take_and_wait(fl_client *c, struct taking *t, fl_lock **ret)
{
    int rc = fli_client_enter(c);
    if (rc == 0) {
        rc = wait_for_lock(c, t, ret);
        fli_client_leave(c);
    }
    return rc;
}

/* done may be called before this returns, on another thread. */
static int take_start(fl_client *c, struct taking *t, fl_done done, void *arg, fl_call **ret_call)
{
    struct fl_call *call;
    int rc = done == NULL ? fli_fail(c, FL_EINVAL, "nobody would hear of the lock")
                          : fli_client_enter(c);
    if (rc != 0) {
        return rc;
    }
    rc = t->fn(c, t, done, arg, &call);
    if (rc == 0 && ret_call != NULL) {
        *ret_call = call;
    }
    fli_client_leave(c);
    return rc;
}

int fl_lock_take(fl_client *c, const char *name, const struct fl_take *options, fl_lock **ret)
{
    struct taking t;
    plan_take(&t, name, options);
    return take_and_wait(c, &t, ret);
}

int fl_lock_take_start(fl_client *c, const char *name, const struct fl_take *options, fl_done done,
                       void *arg, fl_call **ret_call)
{
    struct taking t;
    plan_take(&t, name, options);
    return take_start(c, &t, done, arg, ret_call);
}

int fl_session_open(fl_client *c, const struct fl_session_options *options, fl_lock **ret)
{
    struct taking t;
    plan_session(&t, options);
    return take_and_wait(c, &t, ret);
}

int fl_session_open_start(fl_client *c, const struct fl_session_options *options, fl_done done,
                          void *arg, fl_call **ret_call)
{
    struct taking t;
    plan_session(&t, options);
    return take_start(c, &t, done, arg, ret_call);
}

/* The attempt that settles is the newest, so that all before it have no effect any more. Its TTL is
 * short, in case that its own grant is not heard of. */
int fl_settle(fl_client *c, const char *name, const struct fl_take *options, uint64_t timeout_ms)
{
    struct fl_take o = {.wait_ms = 0};
    fl_lock *lock;
    o = options != NULL ? *options : o;
    o.ttl_ms = o.ttl_ms != 0 && o.ttl_ms < SETTLE_TTL_MS ? o.ttl_ms : SETTLE_TTL_MS;
    o.ttl_ms = o.session != NULL ? 0 : o.ttl_ms;
    o.wait_ms = 1; /* gives up the place in the queue, too */
    o.timeout_ms = timeout_ms;
    o.unrenewed = true;
    o.on_change = NULL;
    o.reserve_ms = 0;
    int rc = fl_lock_take(c, name, &o, &lock);
    rc = rc == 0 ? fl_lock_release_within(lock, timeout_ms) : rc;
    return rc == FL_ENOTHELD ? 0 : rc;
}

/* ---- releasing ------------------------------------------------------------------------------- */

/* Enters, and begins the release. 0; or it is freed all the same, and nothing is sent. */
static int enter_and_release(struct fl_lock *lock, struct fli_call_plan *q, fl_done done, void *arg,
                             struct fl_call **ret)
{
    fl_client *c = lock->client;
    int rc = fli_client_check_timeout(c, q->timeout_ms);
    if (rc == 0 && fli_grant_is_inherited(lock->process)) {
        rc = fli_not_ours(c, lock->is_session ? FL_ENOSESSION : FL_ENOTHELD);
    }
    rc = rc != 0 ? rc : fli_client_enter(c);
    if (rc != 0) {
        fl_lock_free(lock);
        return rc;
    }
    q->no = lock->is_session ? "the session has ended" : fli_not_held;
    rc = start_release(lock, q, done, arg, ret);
    if (rc != 0) {
        fli_client_leave(c);
    }
    return rc;
}

/* Nobody waits for it any more. */
static void leave_release(struct fl_call *call)
{
    fli_engine_cancel(call->engine_call);
    call->engine_call = NULL;
    call->wait = NULL;
    if (call->lock->is_private) {
        call->settle_until_ms = call->lock->lease.config.lease_until_ms;
        give_back(call);
    } else {
        fli_call_delete(call);
    }
}

int fl_lock_release_within(fl_lock *lock, uint64_t timeout_ms)
{
    struct fli_call_plan q = {.timeout_ms = timeout_ms};
    struct fl_result result = {.status = FL_EUNCERTAIN};
    struct fl_call *call;
    struct fli_wait w;
    if (lock == NULL) {
        return fli_fail(NULL, FL_EINVAL, "there is no lock");
    }
    fl_client *c = lock->client;
    fli_wait_init(&w, c);
    w.tells = true;
    q.watcher = &w.watcher;
    int rc = enter_and_release(lock, &q, NULL, NULL, &call);
    if (rc != 0) {
        return rc;
    }
    if (!wait_for(call, &w, &q, &result)) {
        leave_release(call);
    }
    fli_client_leave(c);
    return result.status;
}

int fl_lock_release(fl_lock *lock)
{
    return fl_lock_release_within(lock, 0);
}

int fl_lock_release_start(fl_lock *lock, uint64_t timeout_ms, fl_done done, void *arg)
{
    struct fli_call_plan q = {.timeout_ms = timeout_ms};
    fl_client *c = lock->client;
    struct fl_call *call;
    int rc = enter_and_release(lock, &q, done, arg, &call);
    if (rc == 0) {
        fli_client_leave(c);
    }
    return rc;
}
