/* keepalive.c: a thread that renews leases for programs that block; see hold.h. */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/process.h"
#include "client/async.h"

struct fl_keepalive {
    struct fl_async *async;
    pthread_t thread;
    uint64_t process; /* in which the thread is */
    bool stopping;    /* guarded by the mutex */
};

static void *run(void *arg)
{
    struct fl_keepalive *k = arg;
    struct fl_async *a = k->async;
    for (;;) {
        struct pollfd p = {.fd = fl_async_fd(a), .events = POLLIN};
        (void)poll(&p, 1, -1);
        (void)pthread_mutex_lock(&a->mutex);
        bool stopping = k->stopping;
        if (!stopping) {
            fl_async_process(a);
        }
        (void)pthread_mutex_unlock(&a->mutex);
        if (stopping) {
            return NULL;
        }
    }
}

static int start_thread(struct fl_keepalive *k)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) {
        return FL_ESYSTEM;
    }
    k->process = fli_process();
    int rc = pthread_create(&k->thread, NULL, run, k);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0 ? 0 : FL_ESYSTEM;
}

/* A child of fork() has no copy of the thread, so it gets one of its own. */
static int own(struct fl_keepalive *k)
{
    uint64_t before = k->process;
    if (before == fli_process()) {
        return 0;
    }
    int rc = fli_async_own(k->async);
    rc = rc == 0 ? start_thread(k) : rc;
    k->process = rc == 0 ? k->process : before;
    return rc;
}

int fl_keepalive_start(const char *nodes, const struct fl_client_options *options,
                       fl_keepalive **ret)
{
    struct fl_keepalive *k = calloc(1, sizeof *k);
    if (k == NULL) {
        return FL_ENOMEM;
    }
    int rc = fl_async_create(nodes, options, &k->async);
    if (rc == 0) {
        k->async->has_thread = true;
        rc = start_thread(k);
    }
    if (rc != 0) {
        fl_async_destroy(k->async);
        free(k);
        return rc;
    }
    *ret = k;
    return 0;
}

void fl_keepalive_stop(fl_keepalive *k)
{
    if (k == NULL) {
        return;
    }
    if (k->process == fli_process()) {
        (void)pthread_mutex_lock(&k->async->mutex);
        k->stopping = true;
        fli_engine_wake(&k->async->engine);
        (void)pthread_mutex_unlock(&k->async->mutex);
        (void)pthread_join(k->thread, NULL);
    }
    fl_async_destroy(k->async);
    free(k);
}

static int keep(fl_keepalive *k, const struct fli_held *held, uint64_t deadline_ms,
                const struct fl_hold_options *options, fl_lock **ret)
{
    bool ttl_ok = held->ttl_ms >= FL_TTL_MIN_MS && held->ttl_ms <= FL_TTL_MAX_MS;
    if (!ttl_ok || !fli_hold_options_ok(options, held->ttl_ms)) {
        return FL_EINVAL;
    }
    uint64_t now_ms = fli_clock_ms();
    if (deadline_ms <= now_ms) {
        return FL_ENOTHELD;
    }
    /* A grant is never believed in for longer than its TTL from now. */
    if (deadline_ms > now_ms + held->ttl_ms || deadline_ms < fli_lease_until(0, held->ttl_ms)) {
        return FL_EINVAL;
    }
    int rc = own(k);
    if (rc != 0) {
        return rc;
    }
    struct fl_lock *lock = fli_lock_make(k->async, held, options);
    if (lock == NULL) {
        return FL_ENOMEM;
    }
    (void)pthread_mutex_lock(&k->async->mutex);
    fli_lock_begin(lock, held->token, deadline_ms);
    (void)pthread_mutex_unlock(&k->async->mutex);
    *ret = lock;
    return 0;
}

int fl_keepalive_lock(fl_keepalive *k, struct fl_bytes name, const struct fl_grant *grant,
                      const struct fl_hold_options *options, fl_lock **ret)
{
    const struct fli_held held = {.name = name, .token = grant->token, .ttl_ms = grant->ttl_ms};
    if (name.len < 1 || name.len > FL_NAME_MAX || grant->token == FL_TOKEN_NONE ||
        grant->token > FL_TOKEN_MAX) {
        return FL_EINVAL;
    }
    if (fli_grant_is_inherited(grant->process)) {
        return FL_ENOTHELD;
    }
    return keep(k, &held, grant->deadline_ms, options, ret);
}

int fl_keepalive_session(fl_keepalive *k, const struct fl_session *session,
                         const struct fl_hold_options *options, fl_lock **ret)
{
    const struct fli_held held = {.is_session = true,
                                  .name = {session->owner, session->owner_len},
                                  .ttl_ms = session->ttl_ms};
    if (session->owner_len < FL_OWNER_MIN || session->owner_len > FL_OWNER_MAX) {
        return FL_EINVAL;
    }
    if (fli_grant_is_inherited(session->process)) {
        return FL_ENOTHELD;
    }
    return keep(k, &held, session->deadline_ms, options, ret);
}
