/* hold.h: a lock that is watched and renewed while you use it, without blocking and without a
 * hidden thread.
 *
 * What you may believe. A held lock (fl_lock) is always in one of three states:
 *
 *   safe      the last renewal succeeded in time
 *   jeopardy  no renewal has succeeded for half of the TTL, or one has failed: the lease is
 *             still yours, but begin nothing that you cannot finish soon
 *   lost      stop. This is final: every later operation with this lock fails with FL_ENOTHELD
 *
 * A lock is always lost here before the service may give it to another holder. Its time is counted
 * from before the request was sent, on a clock that counts suspension, less a margin, and without
 * asking the service. Two things can end a lock before its holder knows: an operator's BREAK, and a
 * clock of this machine that is slower than the leader's by more than a hundredth. The token
 * protects the data then, as it does when this process is stopped in the middle of a write.
 *
 * on_change is called once for each change, on the thread that notices it first: that of
 * fl_async_process(), the keep-alive thread, or one that calls a function here. Until that call has
 * returned, no other thread can use the lock: each waits for a mutex of the library's. So on_change
 * must not block, and must not take a mutex that another thread holds while it calls a function
 * here: the two would wait for each other for ever. It must not destroy its caller; it may use
 * fl_lock_* functions and start new calls.
 *
 * fork() (see also client.h). A lock that a child inherits is lost there (FL_LOST_INHERITED),
 * without on_change; releasing it there fails with FL_ENOTHELD and does nothing; it must still be
 * freed. Calls that were in progress end without their callbacks. The child may use an inherited
 * fl_async and fl_keepalive; the first function that it calls with one must have returned before
 * another thread calls one.
 *
 * There are two ways to use it:
 *
 *   fl_async      on your own event loop, one thread. fl_async_fd() becomes readable when
 *                 fl_async_process() has something to do, timers included.
 *   fl_keepalive  a thread that you start and stop, for programs that use the blocking calls of
 *                 client.h.
 *
 * Host names are resolved when a client is created and never again, so that no resolver can hold up
 * a deadline. */
#ifndef FENCELOCK_HOLD_H
#define FENCELOCK_HOLD_H

#include "fencelock/client.h"

#ifdef __cplusplus
extern "C" {
#endif

enum fl_hold_state { FL_HOLD_SAFE, FL_HOLD_JEOPARDY, FL_HOLD_LOST };

enum fl_lost_reason {
    FL_LOST_NOT,       /* it is not lost */
    FL_LOST_DEADLINE,  /* no renewal succeeded in time */
    FL_LOST_TAKEN,     /* the service says that it is no longer held under this token */
    FL_LOST_MAX_HOLD,  /* max_hold_ms has passed */
    FL_LOST_RELEASED,  /* released, or given up by fl_lock_free() or the end of its client */
    FL_LOST_INHERITED, /* it is held by the process that forked this one, and not by this one */
};

/* "safe", "jeopardy", "lost"; a sentence for the reason. Never NULL. */
FL_API const char *fl_hold_state_name(enum fl_hold_state state);
FL_API const char *fl_lost_reason_text(enum fl_lost_reason reason);

/* A lock, or a session, that is renewed at a third of its TTL. */
typedef struct fl_lock fl_lock;

struct fl_hold_options {
    uint64_t max_hold_ms; /* lost this long after it was requested, renewed or not; 0: no limit */
    uint64_t reserve_ms;  /* lost this long before the deadline, which leaves time to stop the work
                            that relies on it; at most half of the TTL */
    void (*on_change)(void *arg, fl_lock *lock, enum fl_hold_state state); /* may be NULL */
    void *arg;
};

FL_API enum fl_hold_state fl_lock_state(fl_lock *lock);
FL_API enum fl_lost_reason fl_lock_reason(fl_lock *lock);
FL_API uint64_t fl_lock_remaining_ms(fl_lock *lock); /* 0 when lost */

/* The time, on fl_now_ms()'s clock, when it is lost unless it is renewed before. */
FL_API uint64_t fl_lock_deadline_ms(fl_lock *lock);

/* The token to send with an operation now. 0; FL_ENOTHELD when the lock is lost. FL_TOKEN_NONE for
 * a session. */
FL_API int fl_lock_token(fl_lock *lock, fl_token *ret) FL_MUST_USE;

/* Stops renewing, and frees. Does not release the lock: it ends with its lease. NULL is fine. */
FL_API void fl_lock_free(fl_lock *lock);

/* ---- on an event loop ------------------------------------------------------------------------ */

typedef struct fl_async fl_async;
typedef struct fl_call fl_call; /* a call in progress; invalid once its callback is called */

/* As fl_client_create(), and resolves host names, which may block. FL_ENOCONN: no name is known.
 * FL_ESYSTEM: no file descriptors. */
FL_API int fl_async_create(const char *nodes, const struct fl_client_options *options,
                           fl_async **ret) FL_MUST_USE;

/* Calls in progress end without their callbacks. Its locks are lost (FL_LOST_RELEASED) without a
 * callback; they are not released, and must still be freed. NULL is fine. Not from a callback. */
FL_API void fl_async_destroy(fl_async *a);

/* Wait until this is readable, then call fl_async_process(). In a forked child ask again, and watch
 * it there with a loop of the child's own (libuv: after uv_loop_fork()). */
FL_API int fl_async_fd(const fl_async *a);
FL_API void fl_async_process(fl_async *a);

FL_API struct fl_bytes fl_async_owner(const fl_async *a);

/* fl_async_process() calls the callbacks. error: a sentence, "" after success, valid in the
 * callback only. After a result other than 0 no callback comes. ret_call may be NULL. */

/* Takes a lock, as fl_acquire(), and keeps it renewed. hold may be NULL. The callback owns the lock
 * and must free it. */
typedef void (*fl_acquire_cb)(void *arg, int status, const char *error, fl_lock *lock);
FL_API int fl_async_acquire(fl_async *a, struct fl_bytes name,
                            const struct fl_acquire_options *options,
                            const struct fl_hold_options *hold, fl_acquire_cb done, void *arg,
                            fl_call **ret_call) FL_MUST_USE;

/* Opens a session, as fl_session_open(), and keeps it renewed. hold may be NULL. The result has no
 * token; the callback owns it, and fl_async_release() closes it. */
FL_API int fl_async_session(fl_async *a, const struct fl_session_options *options,
                            const struct fl_hold_options *hold, fl_acquire_cb done, void *arg,
                            fl_call **ret_call) FL_MUST_USE;

/* Takes a lock under such a session; of the options, ttl_ms, owner and session must be unset. The
 * token is valid as long as the session is not lost: check fl_lock_state() of the session before
 * you use it. FL_ENOSESSION, here or in the callback: the session is lost or was freed, and its
 * grants end with it. */
typedef void (*fl_token_cb)(void *arg, int status, const char *error, fl_token token);
FL_API int fl_async_acquire_under(fl_lock *session, struct fl_bytes name,
                                  const struct fl_acquire_options *options, fl_token_cb done,
                                  void *arg, fl_call **ret_call) FL_MUST_USE;

/* Releases one of the locks under a session; the others stay. done may be NULL. */
typedef void (*fl_done_cb)(void *arg, int status, const char *error);
FL_API int fl_async_release_under(fl_lock *session, struct fl_bytes name, fl_token token,
                                  uint64_t timeout_ms, fl_done_cb done, void *arg) FL_MUST_USE;

/* Releases a lock. It is lost at once (FL_LOST_RELEASED), without on_change; the service's result
 * goes to the callback, which may be NULL. May be called for a lock that is lost already: releasing
 * a lock that another holder has does nothing. A session is closed. */
FL_API int fl_async_release(fl_lock *lock, uint64_t timeout_ms, fl_done_cb done,
                            void *arg) FL_MUST_USE;

/* As fl_show(); the callback owns the list and must free it. */
typedef void (*fl_show_cb)(void *arg, int status, const char *error, struct fl_lock_list *list);
FL_API int fl_async_show(fl_async *a, struct fl_bytes name, uint64_t timeout_ms, fl_show_cb done,
                         void *arg, fl_call **ret_call) FL_MUST_USE;

/* As fl_issue_token() of fencelock/client.h: a new token without a lock, larger than all before. */
FL_API int fl_async_issue_token(fl_async *a, struct fl_bytes name, uint64_t timeout_ms,
                                fl_token_cb done, void *arg, fl_call **ret_call) FL_MUST_USE;

/* Ends a call without its callback. A wait is given up; a request that was sent may have been
 * done. */
FL_API void fl_call_cancel(fl_call *call);

/* ---- on a thread ----------------------------------------------------------------------------- */

typedef struct fl_keepalive fl_keepalive;

/* Starts a thread, with all signals blocked, that renews the locks given to it. As
 * fl_async_create(); FL_ESYSTEM also when no thread can be created. */
FL_API int fl_keepalive_start(const char *nodes, const struct fl_client_options *options,
                              fl_keepalive **ret) FL_MUST_USE;

/* Ends the thread. Its locks are lost, as with fl_async_destroy(), and other threads may still use
 * them meanwhile and until they are freed. In a forked child, which has no such thread until
 * fl_keepalive_lock() starts one there, it waits for none. NULL is fine. Not from a callback. */
FL_API void fl_keepalive_stop(fl_keepalive *k);

/* Renews a lock that fl_acquire() has taken, or a session that fl_session_open() has opened, from
 * now on. Any thread. options may be NULL. 0; FL_ENOTHELD (the grant is over already); FL_EINVAL;
 * FL_ENOMEM. */
FL_API int fl_keepalive_lock(fl_keepalive *k, struct fl_bytes name, const struct fl_grant *grant,
                             const struct fl_hold_options *options, fl_lock **ret) FL_MUST_USE;
FL_API int fl_keepalive_session(fl_keepalive *k, const struct fl_session *session,
                                const struct fl_hold_options *options, fl_lock **ret) FL_MUST_USE;

/* Releases, through c, a lock or session that a keep-alive thread renews, and stops renewing it
 * whatever the result. Results as fl_release(). The lock must still be freed. */
FL_API int fl_lock_release(fl_client *c, fl_lock *lock, uint64_t timeout_ms) FL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
