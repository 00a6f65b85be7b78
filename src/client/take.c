/* take.c: takes locks and sessions, and releases them; see client.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "client/handle.h"
#include "fencelock/redlock.h"

#define SETTLE_TTL_MS UINT64_C(1000)

/* ---- taking ---------------------------------------------------------------------------------- */

static void start_taking(struct fl_call *call);

static void set_owner(struct fli_call_request *request, const struct fli_owner *owner)
{
    FLI_ASSERT(request->owner.len == owner->len);
    memcpy((char *)(uintptr_t)request->owner.data, owner->id, owner->len);
}

/* The lock of this call is asked for anew, with a lease of its own: its shared session has ended,
 * or another lock of that is in a circle of waits. The holder of that is another one, since each
 * lock object is a holder of its own. False: it was not under a shared session. */
static bool go_alone(struct fl_call *call)
{
    struct fl_lock *lock = call->lock;
    struct fli_owner owner; /* as long as that of the session */
    if (!call->is_private || !call->request.under_session) {
        return false;
    }
    fli_owner_make(&owner);
    set_owner(&call->request, &owner);
    set_owner(&lock->request, &owner);
    call->request.ttl_ms = lock->ttl_ms;
    call->request.under_session = lock->request.under_session = false;
    if (call->session != NULL) {
        call->session->takers--;
        call->session = NULL;
    }
    uint64_t passed_ms = fli_clock_ms() - call->began_ms;
    if (call->times.wait_ms != 0) {
        call->times.wait_ms = passed_ms < call->times.wait_ms ? call->times.wait_ms - passed_ms : 1;
    }
    start_taking(call);
    return true;
}

/* ---- nothing is left behind ------------------------------------------------------------------ */

static bool is_alive(struct fl_lock *session)
{
    return session != NULL && session->is_held && fli_lock_state(session) != FL_HOLD_LOST;
}

/* Until when what this call may have got is held; 0: it is not held any more. */
static uint64_t held_until(const struct fl_call *call)
{
    if (call->request.under_session) {
        return is_alive(call->session) ? call->session->lease.deadline_ms : 0;
    }
    return call->held_until_ms > fli_clock_ms() ? call->held_until_ms : 0;
}

bool fli_is_passing(int status)
{
    return status == FL_EUNCERTAIN || status == FL_ENOLEADER || status == FL_ENOCONN ||
           status == FL_EBUSY || status == FL_ETIMEOUT;
}

static bool go_on(struct fl_call *call, uint64_t wait_ms, void (*ended)(struct fl_call *call))
{
    const struct fli_call_times times = {
        .deadline_ms = held_until(call), .wait_ms = wait_ms, .insists = true};
    call->gives_back = true;
    if (times.deadline_ms == 0 || call->client->closing) {
        return false;
    }
    fli_call_begin(call, &times, ended);
    return true;
}

/* A release goes on for as long as the lock may be held. */
static void given_back(struct fl_call *call)
{
    if (fli_is_passing(call->call_state.status)) {
        (void)go_on(call, 0, given_back);
    }
}

static void settled(struct fl_call *call)
{
    int status = call->call_state.status;
    if (status == 0) {
        call->request.command = FLI_CALL_RELEASE;
        call->request.token = call->token;
        (void)go_on(call, 0, given_back);
    } else if (fli_is_passing(status)) {
        (void)!fli_call_settle(call);
    }
}

/* One more attempt to take it is the newest; what that gets is released. Until it is answered, the
 * session has the name, and is renewed. Its own TTL is short, in case that its grant is not heard
 * of. */
bool fli_call_settle(struct fl_call *call)
{
    bool releases = call->request.command == FLI_CALL_RELEASE;
    if (call->request.ttl_ms > SETTLE_TTL_MS) {
        call->request.ttl_ms = SETTLE_TTL_MS;
    }
    return releases ? go_on(call, 0, given_back) : go_on(call, 1, settled);
}

static void release_ended(struct fl_call *call)
{
    int status = call->call_state.status;
    /* also when it was refused: the lock is held */
    bool is_done = status == 0 || status == FL_ENOTHELD || status == FL_ENOSESSION;
    fli_call_ended(call);
    if (!is_done && call->is_private) {
        (void)go_on(call, 0, given_back);
    }
}

/* Ends the lock and frees it, and begins to release it. The session has its name until that is
 * answered: a later attempt of the same session would get the same token. */
static int start_release(fl_client *c, struct fli_call_plan *q, struct fl_call **ret)
{
    struct fl_lock *lock = q->lock;
    q->lock = NULL;
    c->inside++;                              /* who closes it waits */
    (void)!fli_callback_drop(c, &lock->note); /* this very thread may be in it */
    c->inside--;
    (void)pthread_cond_broadcast(&c->turned);
    /* what has gone meanwhile is not looked at */
    struct fl_lock *session = lock->is_private ? lock->session : NULL;
    fli_lock_give_up(lock, &q->request);
    fli_calls_leave(c, lock);
    fli_list_remove(&lock->in);
    c->refs--;
    struct fl_call *call = fli_call_plan(c, q);
    if (call != NULL) {
        call->is_private = lock->is_private;
        call->gives_back = true;
        call->held_until_ms = lock->lease.config.lease_until_ms;
        call->session = session;
        if (session != NULL) {
            session->takers++;
        }
        fli_call_begin(call, &call->times, release_ended);
        *ret = call;
    }
    fli_lock_discard(lock);
    return call != NULL ? 0 : FL_ENOMEM;
}

void fli_lock_abandon(struct fl_lock *lock)
{
    struct fli_call_plan q = {.lock = lock};
    struct fl_call *call;
    (void)!start_release(lock->client, &q, &call); /* else it ends with its lease */
}

/* The lock of this call is held. */
static void granted(struct fl_call *call)
{
    struct fl_lock *lock = call->lock;
    fl_client *c = call->client;
    if (call->report != NULL) { /* whose value nobody has known before */
        memcpy((char *)(uintptr_t)lock->request.owner.data, call->report->value,
               lock->request.owner.len);
    }
    c->engine.newest = call->token > c->engine.newest ? call->token : c->engine.newest;
    lock->session = call->session;
    if (call->request.under_session) {
        fli_list_push(&call->session->members, &lock->in_session);
    }
    fli_lock_begin(lock, call->token, call->call_state.lease_until_ms);
    call->lock = NULL;
    call->result.lock = lock;
    call->result.token = call->token;
}

static void taken(struct fl_call *call)
{
    int status = call->call_state.status;
    bool ended = status == 0 && call->request.under_session && !is_alive(call->session);
    status = ended ? FL_ENOSESSION : status;
    if ((status == FL_ENOSESSION || status == FL_EDEADLOCK) && go_alone(call)) {
        return;
    }
    if (status == 0) {
        granted(call);
    }
    fli_call_complete(call, status, ended ? fl_strerror(status) : call->error);
    if (status == FL_EUNCERTAIN && call->is_private) {
        (void)!fli_call_settle(call);
    }
}

static void start_taking(struct fl_call *call)
{
    if (call->request.under_session) {
        fli_lock_renew_soon(call->session);
    }
    fli_call_begin(call, &call->times, taken);
}

/* The session that locks share is open, or cannot be opened. */
static void session_opened(struct fl_call *opening)
{
    struct fl_lock *session = opening->arg;
    fl_client *c = session->client;
    int status = opening->call_state.status;
    session->renewal = NULL;
    if (status == 0) {
        fli_lock_begin(session, FL_TOKEN_NONE, opening->call_state.lease_until_ms);
    } else {
        fli_list_remove(&session->in_shared);
    }
    FLI_LIST_FOREACH_SAFE(at, next, &c->engine.calls)
    {
        struct fl_call *call = FLI_CONTAINER_OF(at, struct fl_call, in);
        if (call->session != session || call->active) {
            continue;
        }
        if (status == 0) {
            start_taking(call);
        } else {
            fli_call_complete(call, status, opening->error);
            fli_call_let_go(call);
        }
    }
    if (status != 0) {
        fli_calls_leave(c, session);
        fli_lock_discard(session);
    }
}

static bool is_same(struct fl_bytes a, struct fl_bytes b)
{
    return a.len == b.len && memcmp(a.data, b.data, a.len) == 0;
}

/* Whether this handle has, or is taking, a lock of this name under its session. Each lock object is
 * another holder, and a session would get the same token once more. */
static bool is_taken(const struct fl_lock *session, struct fl_bytes name)
{
    FLI_LIST_FOREACH(at, &session->members)
    {
        if (is_same(FLI_CONTAINER_OF(at, struct fl_lock, in_session)->request.name, name)) {
            return true;
        }
    }
    FLI_LIST_FOREACH(at, &session->client->engine.calls)
    {
        const struct fl_call *call = FLI_CONTAINER_OF(at, struct fl_call, in);
        if (call->session == session && is_same(call->request.name, name)) {
            return true;
        }
    }
    return false;
}

static struct fl_lock *open_shared(fl_client *c, uint64_t ttl_ms,
                                   const struct fli_call_times *times, struct fli_wait *wait)
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
    session->renewal = fli_engine_start(&c->engine, &request, times, session_opened, session);
    if (session->renewal == NULL) {
        fli_lock_discard(session);
        return NULL;
    }
    session->renewal->wait = wait;
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
static struct fl_lock *shared_session(fl_client *c, const struct fli_call_plan *q,
                                      const struct fli_call_times *times)
{
    const struct fl_take *o = &q->options;
    const struct fli_call_request *request = &q->request;
    bool shares = request->command == FLI_CALL_ACQUIRE && c->engine.backend == NULL && !o->alone &&
                  !o->unrenewed && (o->shares || o->ttl_ms == 0) && o->owner.len == 0 &&
                  o->also_len == 0 && o->permits == 0 && o->mode == FL_MODE_EXCLUSIVE &&
                  !c->engine.owner_is_given;
    if (!shares) {
        return NULL;
    }
    struct fl_lock *session = find_shared(c, request->ttl_ms);
    if (session != NULL && !session->is_held &&
        session->renewal->call_state.config.deadline_ms > times->deadline_ms) {
        return NULL; /* it would wait for longer than it may */
    }
    if (session != NULL) {
        return is_taken(session, request->name) ? NULL : session;
    }
    struct fli_call_times opening = *times;
    opening.deadline_ms -= times->wait_ms;
    opening.wait_ms = 0;
    return open_shared(c, request->ttl_ms, &opening, q->wait);
}

/* What does not go together. NULL: nothing. */
static const char *contradiction(const fl_client *c, const struct fli_call_plan *q)
{
    const struct fli_call_request *request = &q->request;
    const struct fl_take *o = &q->options;
    struct fli_backend *backend = c->engine.backend;
    bool is_session = request->command == FLI_CALL_SESSION_OPEN;
    bool of_lock = o->wait_ms != 0 || o->session != NULL || o->mode != FL_MODE_EXCLUSIVE ||
                   o->permits != 0 || o->also_len != 0 || o->unrenewed || o->name.len != 0;
    uint64_t ttl_ms = o->session != NULL ? o->session->ttl_ms : request->ttl_ms;
    if (o->session != NULL && (o->ttl_ms != 0 || o->owner.len != 0)) {
        return "a lock under a session has the session's TTL and owner";
    }
    if (o->session != NULL && (!o->session->is_session || o->session->client != c)) {
        return "that is no session of this client";
    }
    if (is_session && backend != NULL) {
        return "Redis servers have no sessions";
    }
    if ((is_session ? of_lock : o->lockdelay_ms != 0) ||
        (backend == NULL ? o->min_validity_ms != 0 : o->session != NULL || o->owner.len != 0)) {
        return "an option is set that is of no use here";
    }
    const char *why = backend != NULL ? backend->refuses(&c->engine, request) : NULL;
    if (why == NULL && !fli_acquire_mode_ok(o)) {
        _Static_assert(FL_PERMITS_MAX == 1000000 && FL_NAMES_MAX == 16, "as the text says");
        why = "a lock is taken alone, in shared mode, with 1 to 1000000 permits, or together with "
              "up to 15 others";
    }
    if (why == NULL && (o->reserve_ms > ttl_ms / 2 || o->max_hold_ms >= UINT64_MAX / 4)) {
        why = "a reserve is at most half of the TTL";
    }
    return why;
}

static int check_take(const fl_client *c, const struct fli_call_plan *q)
{
    const struct fl_take *o = &q->options;
    int rc = fli_check_request(c, &q->request);
    rc = rc != 0 ? rc : fli_check(c, FLI_LIMIT_TIMEOUT, o->timeout_ms);
    rc = rc != 0 ? rc : fli_check(c, FLI_LIMIT_WAIT, o->wait_ms);
    rc = rc != 0 ? rc
                 : fli_check_reserved(c, o->reserved, sizeof o->reserved / sizeof o->reserved[0]);
    const char *why = rc == 0 ? contradiction(c, q) : NULL;
    return why != NULL ? fli_fail(c, FL_EINVAL, "%s", why) : rc;
}

/* Makes the call and its lock, and begins to take it. */
static int take_with(fl_client *c, const struct fli_call_plan *q, struct fl_lock *session,
                     struct fl_call **ret)
{
    const struct fli_engine *e = &c->engine;
    const struct fl_take *o = &q->options;
    struct fl_call *call = fli_call_plan(c, q);
    struct fl_lock *lock = call != NULL ? fli_lock_make(c, &call->request) : NULL;
    if (lock == NULL) {
        fli_engine_cancel(call);
        return FL_ENOMEM;
    }
    lock->on_change = o->on_change;
    lock->arg = o->arg;
    lock->max_hold_ms = o->max_hold_ms;
    lock->reserve_ms = o->reserve_ms;
    lock->is_renewed = !o->unrenewed;
    lock->is_private = !lock->is_session && o->session == NULL && o->owner.len == 0 &&
                       !e->owner_is_given && e->backend == NULL;
    call->lock = lock;
    call->is_private = lock->is_private;
    call->held_until_ms = call->times.deadline_ms + lock->ttl_ms;
    call->session = session;
    lock->request.under_session = session != NULL;
    if (session != NULL) {
        session->takers++;
        call->request.ttl_ms = 0; /* it has the session's */
    }
    if (session == NULL || session->is_held) {
        start_taking(call);
    } /* else session_opened() goes on */
    *ret = call;
    return 0;
}

static int take(fl_client *c, struct fli_call_plan *q, struct fl_call **ret)
{
    const struct fl_take *o = &q->options;
    struct fli_call_request *request = &q->request;
    struct fl_lock *session = o->session;
    int rc = check_take(c, q);
    if (rc == 0 && session != NULL &&
        (fli_grant_is_inherited(session->process) || fli_lock_state(session) == FL_HOLD_LOST)) {
        rc = fli_fail(c, FL_ENOSESSION, "the session has ended");
    }
    rc = rc != 0 || (o->unrenewed && o->on_change == NULL) ? rc : fli_client_keep(c);
    if (rc != 0) {
        return rc;
    }
    const struct fli_call_times times = fli_times_of(c, q);
    session = session != NULL ? session : shared_session(c, q, &times);
    request->under_session = session != NULL;
    if (session != NULL) { /* which its lock may outlive: that gets a copy */
        request->owner = session->request.owner;
    } else if (request->owner.len == 0) { /* each lock object is another holder */
        bool is_given = c->engine.owner_is_given && request->command == FLI_CALL_ACQUIRE;
        fli_owner_make(&q->owner);
        q->owner.len = c->engine.backend != NULL ? FL_REDLOCK_VALUE_LEN : q->owner.len;
        request->owner = fli_owner_bytes(is_given ? &c->engine.owner : &q->owner);
    }
    return take_with(c, q, session, ret);
}

static struct fli_call_plan plan(enum fli_call_command command, const char *name,
                                 const struct fl_take *options)
{
    static const struct fl_take defaults;
    const struct fl_take *o = options != NULL ? options : &defaults;
    return (struct fli_call_plan){
        .begin = take,
        .options = *o,
        .request = {.command = command,
                    .name = name != NULL ? fl_str(name) : o->name,
                    .owner = o->owner,
                    .value = o->value,
                    .ttl_ms = o->ttl_ms != 0 ? o->ttl_ms : FL_TTL_DEFAULT_MS,
                    .lockdelay_ms = o->lockdelay_ms,
                    .also = o->also,
                    .also_len = o->also_len,
                    .permits = o->permits,
                    .min_validity_ms = o->min_validity_ms,
                    .shared = o->mode == FL_MODE_SHARED},
        .wait_ms = o->wait_ms,
        .timeout_ms = o->timeout_ms,
    };
}

static int take_and_wait(fl_client *c, struct fli_call_plan q, fl_lock **ret)
{
    struct fli_outcome o;
    int rc = fli_run(c, &q, &o);
    freeReplyObject(o.reply);
    if (rc == 0) {
        *ret = o.result.lock;
    }
    return rc;
}

static int take_start(fl_client *c, struct fli_call_plan q, fl_done done, void *arg,
                      fl_call *ret_call)
{
    q.done = done;
    q.arg = arg;
    return done == NULL ? fli_fail(c, FL_EINVAL, "nobody would hear of the lock")
                        : fli_start(c, &q, ret_call);
}

int fl_lock_take(fl_client *c, const char *name, const struct fl_take *options, fl_lock **ret)
{
    return take_and_wait(c, plan(FLI_CALL_ACQUIRE, name, options), ret);
}

int fl_lock_take_start(fl_client *c, const char *name, const struct fl_take *options, fl_done done,
                       void *arg, fl_call *ret_call)
{
    return take_start(c, plan(FLI_CALL_ACQUIRE, name, options), done, arg, ret_call);
}

int fl_session_open(fl_client *c, const struct fl_take *options, fl_lock **ret)
{
    return take_and_wait(c, plan(FLI_CALL_SESSION_OPEN, "", options), ret);
}

int fl_session_open_start(fl_client *c, const struct fl_take *options, fl_done done, void *arg,
                          fl_call *ret_call)
{
    return take_start(c, plan(FLI_CALL_SESSION_OPEN, "", options), done, arg, ret_call);
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

/* What can be said at once against releasing it. */
static int check_release(const fl_lock *lock, uint64_t timeout_ms)
{
    int rc = fli_check(lock->client, FLI_LIMIT_TIMEOUT, timeout_ms);
    return rc == 0 && fli_grant_is_inherited(lock->process)
               ? fli_not_ours(lock->client, lock->is_session ? FL_ENOSESSION : FL_ENOTHELD)
               : rc;
}

int fl_lock_release_within(fl_lock *lock, uint64_t timeout_ms)
{
    struct fli_call_plan q = {.begin = start_release, .timeout_ms = timeout_ms, .lock = lock};
    struct fli_outcome o = {.reply = NULL};
    int rc = lock == NULL ? fli_fail(NULL, FL_EINVAL, "there is no lock")
                          : check_release(lock, timeout_ms);
    rc = rc == 0 ? fli_run(lock->client, &q, &o) : rc;
    freeReplyObject(o.reply);
    fl_lock_free(q.lock); /* NULL: it was given back */
    return rc;
}

int fl_lock_release(fl_lock *lock)
{
    return fl_lock_release_within(lock, 0);
}

int fl_lock_release_start(fl_lock *lock, uint64_t timeout_ms, fl_done done, void *arg)
{
    struct fli_call_plan q = {
        .begin = start_release, .timeout_ms = timeout_ms, .lock = lock, .done = done, .arg = arg};
    int rc = check_release(lock, timeout_ms);
    rc = rc == 0 ? fli_start(lock->client, &q, NULL) : rc;
    fl_lock_free(q.lock);
    return rc;
}
