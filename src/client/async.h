/* async.h: what fl_async and fl_keepalive share: held locks, on an engine, under a mutex. */
#ifndef FLI_CLIENT_ASYNC_H
#define FLI_CLIENT_ASYNC_H

#include <pthread.h>

#include "client/engine.h"
#include "client/lease.h"
#include "client/owner.h"

/* The mutex is recursive, and held while callbacks run. So callbacks may call these functions, and
 * no other thread can use a lock before its holder has heard that it is lost. */
struct fl_async {
    pthread_mutex_t mutex;
    unsigned refs;    /* its user's, and one for each lock: the mutex outlives fl_async_destroy() */
    bool closed;      /* by fl_async_destroy() */
    bool has_thread;  /* of the library's own, which may be at work while the process forks */
    uint64_t process; /* whose it is */
    struct fli_engine engine;
    struct fli_list locks;
    struct fli_list calls;
    /* Leases of which no node knows yet; the next renewal reports them. */
    uint32_t jeopardies, lost;
    bool report_refused; /* the nodes are older, and refuse a report */
};

struct fl_lock {
    struct fli_list in;
    struct fli_due due;
    struct fl_async *async;
    uint64_t
        process; /* that holds it: in a child it is lost, and nothing else of it is looked at */
    struct fli_lease lease;
    struct fl_hold_options options;
    enum fl_hold_state reported; /* what on_change was called with last */
    unsigned in_callbacks;       /* calls of on_change that have not returned */
    bool freed;                  /* freed inside on_change */
    bool is_session;
    struct fli_engine_call *renewal;
    struct fli_ask renew; /* its texts point to the bytes below */
    char bytes[];
};

/* A lock or session that is to be held. */
struct fli_held {
    bool is_session;
    struct fl_bytes name; /* the lock's name, or the session's owner */
    fl_token token;
    uint64_t ttl_ms;
};

/* In a child that has inherited it: fli_engine_own(); its locks are lost without a callback. 0;
 * FL_ESYSTEM. */
int fli_async_own(struct fl_async *a) FLI_MUST_USE;

/* One reference fewer, under the mutex. True: it was the last, so call fli_async_free() when the
 * mutex is given back. */
bool fli_async_unref(struct fl_async *a) FLI_MUST_USE;
void fli_async_free(struct fl_async *a);

/* Makes a lock that is not held yet. NULL: out of memory. hold may be NULL. */
struct fl_lock *fli_lock_make(struct fl_async *a, const struct fli_held *held,
                              const struct fl_hold_options *hold) FLI_MUST_USE;

void fli_lock_discard(struct fl_lock *lock); /* that never was; NULL is fine */

/* From now on it is held, renewed, and believed in until lease_until_ms. */
void fli_lock_begin(struct fl_lock *lock, fl_token token, uint64_t lease_until_ms);

/* Whether these options make sense with that TTL. */
bool fli_hold_options_ok(const struct fl_hold_options *hold, uint64_t ttl_ms);

/* This session is about to be freed; its calls go on without it. */
void fli_calls_forget(struct fl_async *a, const struct fl_lock *session);

/* Ends the lock as released, without a callback, and fills in the request that releases it. */
void fli_lock_give_up(struct fl_lock *lock, struct fli_ask *ret);

#endif
