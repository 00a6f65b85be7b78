/* lock.c: a held lock: sends its renewals, and reports its changes of state; see hold.h. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "client/async.h"
#include "fencelock/store_client.h"

const char *fl_hold_state_name(enum fl_hold_state state)
{
    switch (state) {
    case FL_HOLD_SAFE:
        return "safe";
    case FL_HOLD_JEOPARDY:
        return "jeopardy";
    default:
        return "lost";
    }
}

const char *fl_lost_reason_text(enum fl_lost_reason reason)
{
    switch (reason) {
    case FL_LOST_NOT:
        return "it is not lost";
    case FL_LOST_DEADLINE:
        return "no renewal came through in time";
    case FL_LOST_TAKEN:
        return "the service says that it is not held any more";
    case FL_LOST_MAX_HOLD:
        return "it was held for as long as was allowed";
    case FL_LOST_INHERITED:
        return "it is held by the process that forked this one";
    default:
        return "it was given back";
    }
}

static void take_report(struct fl_async *a, struct fli_ask *ask)
{
    if (a->report_refused) {
        return;
    }
    ask->jeopardies = a->jeopardies;
    ask->lost = a->lost;
    a->jeopardies = a->lost = 0;
}

/* A report that no node has taken goes with the next renewal. A renewal is worth more than a
 * report: if it is refused for another reason than time, the node may not know the words of the
 * report, so they are not sent again. */
static void report_ended(struct fl_async *a, struct fli_ask *ask, int status)
{
    bool heard = status == 0 || status == FL_ENOTHELD || status == FL_ENOSESSION;
    if (!heard && ask->jeopardies + ask->lost > 0) {
        bool out_of_time = status == FL_ENOLEADER || status == FL_EBUSY || status == FL_ENOCONN ||
                           status == FL_EUNCERTAIN || status == FL_ETIMEOUT;
        a->report_refused = !out_of_time;
        a->jeopardies += ask->jeopardies;
        a->lost += ask->lost;
    }
    ask->jeopardies = ask->lost = 0;
}

static void stop_renewal(struct fl_lock *lock)
{
    if (lock->renewal != NULL) {
        fli_engine_cancel(lock->renewal);
        lock->renewal = NULL;
        report_ended(lock->async, &lock->renew, FL_EUNCERTAIN);
        lock->lease.renewing = false;
    }
}

/* True: it was the last one of a handle that is closed. */
static bool lock_delete(struct fl_lock *lock)
{
    struct fl_async *a = lock->async;
    stop_renewal(lock);
    if (!a->closed) {
        fli_due_remove(&a->engine.dues, &lock->due);
    }
    if (lock->is_session && !a->closed) {
        fli_calls_forget(a, lock);
    }
    fli_list_remove(&lock->in);
    free(lock);
    return fli_async_unref(a);
}

static void count(struct fl_lock *lock, enum fl_hold_state state)
{
    enum fl_lost_reason reason = lock->lease.reason;
    lock->async->jeopardies += state == FL_HOLD_JEOPARDY;
    lock->async->lost +=
        state == FL_HOLD_LOST && (reason == FL_LOST_DEADLINE || reason == FL_LOST_TAKEN);
}

/* Calls on_change. False: the lock was freed in it. */
static bool call_on_change(struct fl_lock *lock, enum fl_hold_state state)
{
    count(lock, state);
    lock->reported = state;
    if (lock->options.on_change == NULL) {
        return true;
    }
    lock->in_callbacks++;
    lock->options.on_change(lock->options.arg, lock, state);
    lock->in_callbacks--;
    if (lock->freed && lock->in_callbacks == 0) {
        bool last = lock_delete(lock);
        FLI_ASSERT(!last); /* a handle that calls back is not closed */
        return false;
    }
    return true;
}

/* Moves on to now, and calls on_change if the state has changed. */
static bool notice(struct fl_lock *lock)
{
    enum fl_hold_state state = fli_lease_state(&lock->lease, fli_clock_ms());
    return state == lock->reported || lock->freed || call_on_change(lock, state);
}

static void turn(struct fli_due *due, uint64_t now_ms);
static void schedule(struct fl_lock *lock);

/* ---- making ---------------------------------------------------------------------------------- */

bool fli_hold_options_ok(const struct fl_hold_options *hold, uint64_t ttl_ms)
{
    return hold == NULL || (hold->reserve_ms <= ttl_ms / 2 && hold->max_hold_ms < UINT64_MAX / 4);
}

struct fl_lock *fli_lock_make(struct fl_async *a, const struct fli_held *held,
                              const struct fl_hold_options *hold)
{
    struct fl_lock *lock = calloc(1, sizeof *lock + held->name.len);
    if (lock == NULL) {
        return NULL;
    }
    (void)pthread_mutex_lock(&a->mutex);
    int rc = fli_due_add(&a->engine.dues, &lock->due, turn);
    (void)pthread_mutex_unlock(&a->mutex);
    if (rc != 0) {
        free(lock);
        return NULL;
    }
    memcpy(lock->bytes, held->name.data, held->name.len);
    fli_list_init(&lock->in);
    lock->async = a;
    lock->process = fli_process();
    lock->is_session = held->is_session;
    if (hold != NULL) {
        lock->options = *hold;
    }
    struct fl_bytes name = {lock->bytes, held->name.len};
    lock->renew = (struct fli_ask){
        .op = held->is_session ? FLI_ASK_SESSION_RENEW : FLI_ASK_RENEW,
        .name = held->is_session ? (struct fl_bytes){NULL, 0} : name,
        .owner = held->is_session ? name : (struct fl_bytes){NULL, 0},
        .token = held->token,
        .ttl_ms = held->ttl_ms,
    };
    return lock;
}

void fli_lock_discard(struct fl_lock *lock)
{
    if (lock != NULL) {
        fli_due_remove(&lock->async->engine.dues, &lock->due);
        free(lock);
    }
}

void fli_lock_begin(struct fl_lock *lock, fl_token token, uint64_t lease_until_ms)
{
    const struct fli_lease_config config = {
        .ttl_ms = lock->renew.ttl_ms,
        .lease_until_ms = lease_until_ms,
        .reserve_ms = lock->options.reserve_ms,
        .max_hold_ms = lock->options.max_hold_ms,
    };
    lock->renew.token = token;
    fli_lease_init(&lock->lease, &config);
    lock->reported = lock->lease.state;
    lock->async->refs++;
    fli_list_push(&lock->async->locks, &lock->in);
    schedule(lock);
}

/* ---- renewing -------------------------------------------------------------------------------- */

static void renewed(void *arg, struct fli_ended *ended)
{
    struct fl_lock *lock = arg;
    lock->renewal = NULL;
    report_ended(lock->async, &lock->renew, ended->status);
    fli_lease_renewal_ended(&lock->lease, fli_clock_ms(), ended->status, ended->lease_until_ms);
    if (notice(lock)) {
        schedule(lock);
    }
}

/* A renewal without an answer must leave time for the other nodes, and for a second round. */
static uint64_t attempt_ms(const struct fl_lock *lock)
{
    uint64_t share_ms = lock->renew.ttl_ms / 12 + 1;
    uint64_t most_ms = lock->async->engine.attempt_ms;
    return share_ms < most_ms ? share_ms : most_ms;
}

static void renew_if_due(struct fl_lock *lock)
{
    if (!fli_lease_wants_renewal(&lock->lease, fli_clock_ms())) {
        return;
    }
    const struct fli_call_times times = {.deadline_ms = lock->lease.deadline_ms,
                                         .attempt_ms = attempt_ms(lock)};
    fli_lease_renewal_began(&lock->lease);
    take_report(lock->async, &lock->renew);
    int rc =
        fli_engine_start(&lock->async->engine, &lock->renew, &times, renewed, lock, &lock->renewal);
    if (rc != 0) {
        lock->renewal = NULL;
        report_ended(lock->async, &lock->renew, rc);
        fli_lease_renewal_ended(&lock->lease, fli_clock_ms(), rc, 0);
    }
}

/* Sets the time of its next turn. */
static void schedule(struct fl_lock *lock)
{
    fli_due_set(&lock->async->engine.dues, &lock->due, fli_lease_next_ms(&lock->lease));
    fli_engine_wake_for(&lock->async->engine, lock->due.at_ms);
}

static void turn(struct fli_due *due, uint64_t now_ms)
{
    struct fl_lock *lock = FLI_CONTAINER_OF(due, struct fl_lock, due);
    if (notice(lock)) {
        renew_if_due(lock);
        if (notice(lock)) {
            schedule(lock);
        }
    }
}

void fl_async_process(fl_async *a)
{
    if (fli_async_own(a) != 0) {
        return;
    }
    (void)pthread_mutex_lock(&a->mutex);
    fli_engine_process(&a->engine);
    (void)pthread_mutex_unlock(&a->mutex);
}

/* ---- what is known --------------------------------------------------------------------------- */

/* The lease as it is now, after on_change was called for every change of state. A callback may have
 * freed the lock meanwhile. */
static struct fli_lease copy_lease(struct fl_lock *lock, fl_token *ret_token)
{
    struct fl_async *a = lock->async;
    struct fli_lease gone = {.state = FL_HOLD_LOST, .reason = FL_LOST_RELEASED};
    if (fli_grant_is_inherited(lock->process)) {
        *ret_token = FL_TOKEN_NONE;
        return (struct fli_lease){.state = FL_HOLD_LOST, .reason = FL_LOST_INHERITED};
    }
    (void)pthread_mutex_lock(&a->mutex);
    bool there = notice(lock);
    struct fli_lease lease = there ? lock->lease : gone;
    *ret_token = there ? lock->renew.token : FL_TOKEN_NONE;
    (void)pthread_mutex_unlock(&a->mutex);
    return lease;
}

enum fl_hold_state fl_lock_state(fl_lock *lock)
{
    fl_token token;
    return copy_lease(lock, &token).state;
}

enum fl_lost_reason fl_lock_reason(fl_lock *lock)
{
    fl_token token;
    return copy_lease(lock, &token).reason;
}

uint64_t fl_lock_remaining_ms(fl_lock *lock)
{
    fl_token token;
    struct fli_lease lease = copy_lease(lock, &token);
    return fli_lease_remaining_ms(&lease, fli_clock_ms());
}

uint64_t fl_lock_deadline_ms(fl_lock *lock)
{
    fl_token token;
    return copy_lease(lock, &token).deadline_ms;
}

int fl_lock_token(fl_lock *lock, fl_token *ret)
{
    fl_token token;
    if (copy_lease(lock, &token).state == FL_HOLD_LOST) {
        return FL_ENOTHELD;
    }
    *ret = token;
    return 0;
}

int fl_lock_fencing(fl_lock *lock, struct fl_fencing *ret)
{
    fl_token token;
    if (lock->is_session) {
        return FL_EINVAL;
    }
    int rc = fl_lock_token(lock, &token);
    if (rc == 0) {
        *ret = (struct fl_fencing){.lock = lock->renew.name, .token = token};
    }
    return rc;
}

/* ---- ending ---------------------------------------------------------------------------------- */

void fli_lock_give_up(struct fl_lock *lock, struct fli_ask *ret)
{
    (void)pthread_mutex_lock(&lock->async->mutex);
    fli_lease_end(&lock->lease, FL_LOST_RELEASED);
    lock->reported = FL_HOLD_LOST;
    stop_renewal(lock);
    *ret = lock->renew;
    ret->op = lock->is_session ? FLI_ASK_SESSION_CLOSE : FLI_ASK_RELEASE;
    (void)pthread_mutex_unlock(&lock->async->mutex);
}

/* In a child: what the parent is doing with the lock does not concern this copy of it. */
static void disown(struct fl_lock *lock)
{
    /* without descriptors the handle makes no call, and this lock is freed all the same */
    (void)!fli_async_own(lock->async);
    fli_list_init(&lock->in);
    fli_heap_node_init(&lock->due.node);
    lock->renewal = NULL;
    lock->in_callbacks = 0;
}

void fl_lock_free(fl_lock *lock)
{
    if (lock == NULL) {
        return;
    }
    struct fl_async *a = lock->async;
    bool last = false;
    if (fli_grant_is_inherited(lock->process)) {
        disown(lock);
    }
    (void)pthread_mutex_lock(&a->mutex);
    fli_lease_end(&lock->lease, FL_LOST_RELEASED);
    lock->reported = FL_HOLD_LOST;
    lock->freed = true;
    if (lock->in_callbacks == 0) {
        last = lock_delete(lock);
    }
    (void)pthread_mutex_unlock(&a->mutex);
    if (last) {
        fli_async_free(a);
    }
}

int fl_lock_release(fl_client *c, fl_lock *lock, uint64_t timeout_ms)
{
    struct fli_ask ask;
    if (fli_grant_is_inherited(lock->process)) {
        return lock->is_session ? FL_ENOSESSION : FL_ENOTHELD;
    }
    fli_lock_give_up(lock, &ask);
    if (ask.op == FLI_ASK_RELEASE) {
        return fl_release(c, ask.name, ask.token, timeout_ms);
    }
    struct fl_session session = {.owner_len = ask.owner.len, .ttl_ms = ask.ttl_ms};
    memcpy(session.owner, ask.owner.data, ask.owner.len);
    return fl_session_close(c, &session, timeout_ms);
}
