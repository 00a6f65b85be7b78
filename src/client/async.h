/* async.h: what fl_async and fl_keepalive share: locks that are held, on an engine, under a
 * mutex. */
#ifndef FLI_CLIENT_ASYNC_H
#define FLI_CLIENT_ASYNC_H

#include <pthread.h>

#include "client/engine.h"
#include "client/lease.h"
#include "client/owner.h"

/* The mutex is recursive, and is held while callbacks run. So callbacks may call these functions,
 * and no other thread can use a lock before its holder has been told that it is lost. */
struct fl_async {
    pthread_mutex_t mutex;
    struct fli_engine engine;
    struct fli_list locks;
    struct fli_list calls;
    struct fli_owner owner;
    /* Leases since that was last told to a node, with a renewal. */
    uint32_t jeopardies, lost;
    bool report_refused; /* the nodes are older and do not know these words */
};

struct fl_lock {
    struct fli_list in;
    struct fl_async *async; /* NULL when that has ended */
    struct fli_lease lease;
    struct fl_hold_options options;
    enum fl_hold_state told;
    unsigned telling; /* on_change calls that have not returned */
    bool freed;       /* in one of them */
    bool is_session;
    struct fli_engine_call *renewal;
    struct fli_ask renew; /* its bytes are below */
    char bytes[];
};

/* What is to be held. */
struct fli_held {
    bool is_session;
    struct fl_bytes name; /* of the lock, or the owner of the session */
    fl_token token;
    uint64_t ttl_ms;
};

/* A lock that is not held yet; NULL when there is no memory. hold may be NULL. */
struct fl_lock *fli_lock_make(struct fl_async *a, const struct fli_held *held,
                              const struct fl_hold_options *hold) FLI_MUST_USE;

/* From now on it is held, believed until then, and renewed. */
void fli_lock_begin(struct fl_lock *lock, fl_token token, uint64_t lease_until_ms);

/* Whether these options make sense for that TTL. */
bool fli_hold_options_ok(const struct fl_hold_options *hold, uint64_t ttl_ms);

/* The lock is about to be freed: its calls go on without it. */
void fli_calls_forget(struct fl_async *a, const struct fl_lock *session);

/* Ends the lock as released, without a callback, and fills in the request that releases it. */
void fli_lock_give_up(struct fl_lock *lock, struct fli_ask *ret);

#endif
