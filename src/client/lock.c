/* lock.c: a held lock or session: sends its renewals, and reports its changes of state; see
 * client.h. All of it is under the handle's mutex, but for the public functions at the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "client/handle.h"
#include "client/lists.h"
#include "fencelock/store_client.h"

static const char *text_of(const char *const *texts, size_t n, unsigned i)
{
    return texts[i < n ? i : n - 1];
}

const char *fl_hold_state_name(enum fl_hold_state state)
{
    static const char *const names[] = {"safe", "jeopardy", "lost"};
    return text_of(names, sizeof names / sizeof names[0], (unsigned)state);
}

const char *fl_lost_reason_text(enum fl_lost_reason reason)
{
    static const char *const texts[] = {
        [FL_LOST_NOT] = "it is not lost",
        [FL_LOST_DEADLINE] = "no renewal came through in time",
        [FL_LOST_TAKEN] = "the service says that it is not held any more",
        [FL_LOST_MAX_HOLD] = "it was held for as long as was allowed",
        [FL_LOST_RELEASED] = "it was given back",
        [FL_LOST_INHERITED] = "it is held by the process that forked this one",
    };
    return text_of(texts, sizeof texts / sizeof texts[0], (unsigned)reason);
}

/* ---- reports --------------------------------------------------------------------------------- */

static void take_report(struct fl_lock *lock, struct fli_call_request *renew)
{
    fl_client *c = lock->client;
    if (c->report_refused) {
        return;
    }
    renew->jeopardies = lock->jeopardies = c->jeopardies;
    renew->lost = lock->lost = c->lost;
    c->jeopardies = c->lost = 0;
}

/* A report that no node has taken goes with the next renewal. A renewal is worth more than a
 * report: if it is refused for another reason than time, the node may not know the words of the
 * report, so they are not sent again. */
static void report_ended(struct fl_lock *lock, int status)
{
    fl_client *c = lock->client;
    bool heard = status == 0 || status == FL_ENOTHELD || status == FL_ENOSESSION;
    if (!heard && lock->jeopardies + lock->lost > 0) {
        c->report_refused = !fli_is_passing(status);
        c->jeopardies += lock->jeopardies;
        c->lost += lock->lost;
    }
    lock->jeopardies = lock->lost = 0;
}

/* ---- changes of state ------------------------------------------------------------------------ */

static void deliver(fl_client *c, struct fli_callback *n)
{
    struct fl_lock *lock = FLI_CONTAINER_OF(n, struct fl_lock, note);
    enum fl_hold_state state = lock->lease.state;
    if (state != lock->told) {
        lock->told = state;
        (void)pthread_mutex_unlock(&c->mutex);
        lock->on_change(lock->arg, lock, state);
        (void)pthread_mutex_lock(&c->mutex);
    }
    n->under_way = false;
    if (lock->freed) { /* in its callback */
        fli_lock_delete(lock);
    } else if (lock->lease.state != lock->told) {
        fli_callback_add(c, n);
    }
}

static void count(struct fl_lock *lock)
{
    enum fl_lost_reason reason = lock->lease.reason;
    lock->client->jeopardies += lock->lease.state == FL_HOLD_JEOPARDY;
    lock->client->lost += reason == FL_LOST_DEADLINE || reason == FL_LOST_TAKEN;
}

/* The session that locks share is renewed while there are any. */
static bool is_needed(const struct fl_lock *lock)
{
    return !lock->is_shared || lock->takers > 0 || !fli_list_empty(&lock->members);
}

static void log_state(struct fl_lock *lock)
{
    char what[64];
    struct fl_bytes name = fl_lock_name(lock);
    snprintf(what, sizeof what, "%s %.*s", lock->is_session ? "session" : "lock",
             (int)(name.len < 40 ? name.len : 40), (const char *)name.data);
    fli_log(lock->client, what,
            lock->lease.state == FL_HOLD_LOST ? fl_lost_reason_text(lock->lease.reason)
                                              : fl_hold_state_name(lock->lease.state));
}

/* The state was `before`; sees to it that its user hears of another one. A lock that its session
 * holds is not counted: the session is. */
static void notice(struct fl_lock *lock, enum fl_hold_state before)
{
    if (lock->lease.state == before) {
        return;
    }
    if (lock->session == NULL && is_needed(lock)) {
        count(lock);
        log_state(lock);
    }
    if (lock->on_change != NULL && lock->lease.state != lock->told) {
        fli_callback_add(lock->client, &lock->note);
    }
}

enum fl_hold_state fli_lock_state(struct fl_lock *lock)
{
    enum fl_hold_state before = lock->lease.state;
    enum fl_hold_state state = fli_lease_state(&lock->lease, fli_clock_ms());
    notice(lock, before);
    return state;
}

static void schedule(struct fl_lock *lock)
{
    fli_due_set(&lock->client->engine.dues, &lock->due, fli_lease_next_ms(&lock->lease));
    fli_engine_wake_for(&lock->client->engine, lock->due.at_ms);
}

static void leave_session(struct fl_lock *lock)
{
    if (lock->session != NULL) {
        fli_list_remove(&lock->in_session);
        lock->session = NULL;
    }
}

/* ---- making ---------------------------------------------------------------------------------- */

static void on_due(struct fli_due *due, uint64_t now_ms);

struct fl_lock *fli_lock_make(fl_client *c, const struct fli_call_request *request)
{
    const struct fli_call_request kept = {.name = request->name, .owner = request->owner};
    struct fl_lock *lock = calloc(1, sizeof *lock + fli_call_request_size(&kept));
    if (lock == NULL || fli_due_add(&c->engine.dues, &lock->due, on_due) != 0) {
        free(lock);
        return NULL;
    }
    fli_call_request_copy(&lock->request, &kept, NULL, lock->bytes);
    fli_list_init(&lock->in);
    fli_list_init(&lock->in_session);
    fli_list_init(&lock->in_shared);
    fli_list_init(&lock->members);
    fli_list_init(&lock->note.in);
    lock->note.deliver = deliver;
    lock->client = c;
    lock->process = fli_process();
    lock->is_session = request->command == FLI_CALL_SESSION_OPEN;
    lock->ttl_ms = request->ttl_ms;
    return lock;
}

void fli_lock_begin(struct fl_lock *lock, fl_token token, uint64_t lease_until_ms)
{
    const struct fl_lock *session = lock->session;
    const struct fli_lease_config config = {
        .ttl_ms = session != NULL ? session->ttl_ms : lock->ttl_ms,
        .lease_until_ms = session != NULL ? session->lease.config.lease_until_ms : lease_until_ms,
        .reserve_ms = lock->reserve_ms,
        .max_hold_ms = lock->max_hold_ms,
        .seed = fli_engine_random(&lock->client->engine, UINT64_MAX),
    };
    lock->token = token;
    lock->ttl_ms = config.ttl_ms;
    lock->is_held = true;
    fli_lease_init(&lock->lease, &config);
    if (session != NULL || !lock->is_renewed) {
        fli_lease_renewal_began(&lock->lease); /* it hears of its session's, or never */
    }
    lock->told = lock->lease.state;
    lock->client->refs++;
    fli_list_push(&lock->client->locks, &lock->in);
    schedule(lock);
}

/* ---- renewing -------------------------------------------------------------------------------- */

static void renewal_ended(struct fl_lock *lock, int status, uint64_t lease_until_ms)
{
    enum fl_hold_state before = lock->lease.state;
    fli_lease_renewal_ended(&lock->lease, fli_clock_ms(), status, lease_until_ms);
    if (lock->session != NULL && lock->lease.state != FL_HOLD_LOST) {
        fli_lease_renewal_began(&lock->lease);
    }
    notice(lock, before);
    schedule(lock);
}

/* ---- locks that are not held any more while their session is --------------------------------- */

static void checked(struct fl_call *call)
{
    struct fl_lock *member = call->arg;
    member->renewal = NULL;
    if (call->call_state.status == FL_ENOTHELD && member->lease.state != FL_HOLD_LOST) {
        leave_session(member);
        renewal_ended(member, FL_ENOTHELD, 0);
    }
}

/* Without memory the next renewal looks again. */
static void check_member(struct fl_lock *member, const struct fli_call_times *times)
{
    const struct fli_call_request request = {
        .command = FLI_CALL_CHECK, .name = member->request.name, .token = member->token};
    if (member->lease.state != FL_HOLD_LOST && member->renewal == NULL) {
        member->renewal =
            fli_engine_start(&member->client->engine, &request, times, checked, member);
    }
}

static uint64_t attempt_ms(const struct fl_lock *lock);

static struct fli_call_times times_of_renewal(const struct fl_lock *lock)
{
    return (struct fli_call_times){.deadline_ms = lock->lease.deadline_ms,
                                   .attempt_ms = attempt_ms(lock)};
}

static void inspected(struct fl_call *call)
{
    struct fl_lock *session = call->arg;
    int status = call->call_state.status;
    session->inspection = NULL;
    session->client->inspection_refused = status == FL_EDENIED;
    if (status != 0) {
        return;
    }
    uint64_t held = 0;
    FLI_LIST_FOREACH(at, &session->members)
    {
        held += FLI_CONTAINER_OF(at, struct fl_lock, in_session)->lease.state != FL_HOLD_LOST;
    }
    if (fli_session_locks(call->reply) >= held) {
        return;
    }
    const struct fli_call_times times = times_of_renewal(session);
    FLI_LIST_FOREACH(at, &session->members)
    {
        check_member(FLI_CONTAINER_OF(at, struct fl_lock, in_session), &times);
    }
}

/* An operator may have broken one of its locks, which the renewal of the session does not tell. */
static void seek_broken(struct fl_lock *session)
{
    fl_client *c = session->client;
    if (fli_list_empty(&session->members) || session->inspection != NULL || c->inspection_refused) {
        return;
    }
    const struct fli_call_request request = {.command = FLI_CALL_SESSION_SHOW,
                                             .owner = session->request.owner};
    const struct fli_call_times times = times_of_renewal(session);
    session->inspection = fli_engine_start(&c->engine, &request, &times, inspected, session);
}

static void note_renewal(struct fl_lock *lock, int status, uint64_t lease_until_ms)
{
    lock->renewal = NULL;
    report_ended(lock, status);
    renewal_ended(lock, status, lease_until_ms);
    FLI_LIST_FOREACH(at, &lock->members)
    {
        struct fl_lock *member = FLI_CONTAINER_OF(at, struct fl_lock, in_session);
        if (member->lease.renewing) { /* else it is lost */
            renewal_ended(member, status, lease_until_ms);
        }
    }
    if (status == 0) {
        seek_broken(lock);
    }
}

static void renewed(struct fl_call *call)
{
    note_renewal(call->arg, call->call_state.status, call->call_state.lease_until_ms);
}

static struct fli_call_request renewal_of(const struct fl_lock *lock)
{
    return (struct fli_call_request){.command =
                                         lock->is_session ? FLI_CALL_SESSION_RENEW : FLI_CALL_RENEW,
                                     .name = lock->request.name,
                                     .owner = lock->request.owner,
                                     .token = lock->token,
                                     .ttl_ms = lock->ttl_ms,
                                     .under_session = lock->request.under_session};
}

/* A renewal without an answer must leave time for the other nodes, and for a second round. */
static uint64_t attempt_ms(const struct fl_lock *lock)
{
    uint64_t share_ms = lock->ttl_ms / 12 + 1;
    uint64_t most_ms = lock->client->engine.attempt_ms;
    return share_ms < most_ms ? share_ms : most_ms;
}

static void renew(struct fl_lock *lock)
{
    struct fli_call_request request = renewal_of(lock);
    const struct fli_call_times times = times_of_renewal(lock);
    fli_lease_renewal_began(&lock->lease);
    take_report(lock, &request);
    lock->renewal = fli_engine_start(&lock->client->engine, &request, &times, renewed, lock);
    if (lock->renewal == NULL) {
        note_renewal(lock, FL_ENOMEM, 0);
    }
}

static void on_due(struct fli_due *due, uint64_t now_ms)
{
    struct fl_lock *lock = FLI_CONTAINER_OF(due, struct fl_lock, due);
    (void)fli_lock_state(lock);
    if (!fli_lease_wants_renewal(&lock->lease, now_ms)) {
        schedule(lock);
    } else if (is_needed(lock)) {
        renew(lock);
        schedule(lock);
    } else { /* it ends with its lease, unless a lock is taken under it before */
        fli_due_set(&lock->client->engine.dues, due, lock->lease.deadline_ms);
    }
}

void fli_lock_renew_soon(struct fl_lock *session)
{
    if (fli_lease_wants_renewal(&session->lease, fli_clock_ms())) {
        renew(session);
        schedule(session);
    }
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void stop_renewal(struct fl_lock *lock)
{
    fli_engine_cancel(lock->inspection);
    fli_engine_cancel(lock->renewal);
    if (lock->renewal != NULL) {
        report_ended(lock, FL_EUNCERTAIN);
    }
    lock->renewal = lock->inspection = NULL;
}

static void end(struct fl_lock *lock)
{
    fli_lease_end(&lock->lease, FL_LOST_RELEASED);
    lock->told = FL_HOLD_LOST;
    leave_session(lock);
}

/* The locks of a session that has ended hear of it. */
static void end_members(struct fl_lock *session, bool released)
{
    struct fli_list *at;
    while ((at = fli_list_pop(&session->members)) != NULL) {
        struct fl_lock *member = FLI_CONTAINER_OF(at, struct fl_lock, in_session);
        enum fl_hold_state before = member->lease.state;
        member->session = NULL;
        if (released) {
            fli_lease_end(&member->lease, FL_LOST_RELEASED);
        }
        notice(member, before);
    }
}

void fli_lock_give_up(struct fl_lock *lock, struct fli_call_request *ret)
{
    stop_renewal(lock);
    end_members(lock, true);
    *ret = renewal_of(lock);
    ret->command = lock->is_session ? FLI_CALL_SESSION_CLOSE : FLI_CALL_RELEASE;
    ret->ttl_ms = 0;
    end(lock);
}

void fli_lock_delete(struct fl_lock *lock)
{
    stop_renewal(lock);
    end_members(lock, false);
    fli_calls_leave(lock->client, lock);
    if (!lock->client->closed) {
        fli_due_remove(&lock->client->engine.dues, &lock->due);
    }
    leave_session(lock);
    fli_list_remove(&lock->in_shared);
    fli_list_remove(&lock->in);
    free(lock);
}

void fli_lock_discard(struct fl_lock *lock)
{
    if (lock != NULL && lock->note.under_way) { /* it is freed when its callback has returned */
        leave_session(lock);
        lock->freed = true;
    } else if (lock != NULL) {
        fli_lock_delete(lock);
    }
}

void fli_locks_end(fl_client *c)
{
    struct fli_list *at;
    while ((at = fli_list_pop(&c->locks)) != NULL) {
        struct fl_lock *lock = FLI_CONTAINER_OF(at, struct fl_lock, in);
        fli_due_remove(&c->engine.dues, &lock->due);
        fli_list_remove(&lock->note.in);
        lock->renewal = NULL;
        lock->inspection = NULL;
        fli_list_remove(&lock->in_shared);
        struct fli_list *member;
        while ((member = fli_list_pop(&lock->members)) != NULL) {
            FLI_CONTAINER_OF(member, struct fl_lock, in_session)->session = NULL;
        }
        end(lock);
        if (lock->is_shared) { /* nobody else has it */
            c->refs--;
            free(lock);
        }
    }
    while ((at = fli_list_pop(&c->sessions)) != NULL) { /* that are not open yet */
        struct fl_lock *session = FLI_CONTAINER_OF(at, struct fl_lock, in_shared);
        session->renewal = NULL;
        fli_lock_discard(session);
    }
}

/* In a child: what the parent is doing with the lock does not concern this copy of it. */
static void disown(struct fl_lock *lock)
{
    fli_list_init(&lock->in);
    fli_list_init(&lock->in_session);
    fli_list_init(&lock->in_shared);
    fli_list_init(&lock->members);
    fli_list_init(&lock->note.in);
    fli_heap_node_init(&lock->due.node);
    lock->session = NULL;
    lock->renewal = NULL;
    lock->inspection = NULL;
    lock->note.under_way = false;
}

void fl_lock_free(fl_lock *lock)
{
    if (lock == NULL) {
        return;
    }
    fl_client *c = lock->client;
    if (fli_grant_is_inherited(lock->process)) {
        (void)!fl_fd(c); /* makes the handle this process's, if that is possible */
        disown(lock);
    }
    (void)pthread_mutex_lock(&c->mutex);
    if (!fli_callback_drop(c, &lock->note)) {
        end(lock);
        lock->freed = true; /* it is freed when its callback has returned */
        c->refs--;
        (void)pthread_mutex_unlock(&c->mutex);
        return;
    }
    fli_lock_delete(lock);
    fli_client_unref(c);
}

/* ---- what is known --------------------------------------------------------------------------- */

/* The lease as it is now. */
static struct fli_lease lease_of(struct fl_lock *lock)
{
    if (fli_grant_is_inherited(lock->process)) {
        return (struct fli_lease){.state = FL_HOLD_LOST, .reason = FL_LOST_INHERITED};
    }
    (void)pthread_mutex_lock(&lock->client->mutex);
    (void)fli_lock_state(lock);
    struct fli_lease lease = lock->lease;
    (void)pthread_mutex_unlock(&lock->client->mutex);
    return lease;
}

enum fl_hold_state fl_lock_state(fl_lock *lock)
{
    return lease_of(lock).state;
}

enum fl_lost_reason fl_lock_reason(fl_lock *lock)
{
    return lease_of(lock).reason;
}

uint64_t fl_lock_remaining_ms(fl_lock *lock)
{
    struct fli_lease lease = lease_of(lock);
    return fli_lease_remaining_ms(&lease, fli_clock_ms());
}

uint64_t fl_lock_deadline_ms(fl_lock *lock)
{
    return lease_of(lock).deadline_ms;
}

uint64_t fl_lock_ttl_ms(const fl_lock *lock)
{
    return lock->ttl_ms;
}

fl_token fl_lock_granted(const fl_lock *lock)
{
    return lock->token;
}

struct fl_bytes fl_lock_name(const fl_lock *lock)
{
    return lock->is_session ? lock->request.owner : lock->request.name;
}

int fl_lock_token(fl_lock *lock, fl_token *ret)
{
    if (lease_of(lock).state == FL_HOLD_LOST) {
        return FL_ENOTHELD;
    }
    *ret = lock->token; /* which never changes once it is held */
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
        *ret = (struct fl_fencing){.lock = lock->request.name, .token = token};
    }
    return rc;
}
