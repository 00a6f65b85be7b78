/* handle.h: what an fl_client is: an engine (engine.h) under a mutex, with the calls and the held
 * locks of its user.
 *
 * Who drives it. One thread at a time waits for the engine's descriptor and processes what there
 * is: the library's own thread, one inside fl_process(), or one inside a call that blocks. A thread
 * in a blocking call that finds nobody driving drives until its own call has ended, and wakes the
 * others.
 *
 * Callbacks. What is to be called back is noted under the mutex, and called by who drives, without
 * the mutex and when it is not driving: so a callback may call anything but fl_close(). A callback
 * of one lock, or of one call, is on one thread at a time. Who frees a lock or cancels a call waits
 * for a callback of it on another thread. */
#ifndef FLI_CLIENT_HANDLE_H
#define FLI_CLIENT_HANDLE_H

#include <pthread.h>

#include "client/caller.h"
#include "client/engine.h"
#include "client/lease.h"

#define FLI_TROUBLE_SIZE 512u /* the reason stands behind a path */
#define FLI_LOG_LINE_MAX 400u

struct fl_client {
    pthread_mutex_t mutex;
    pthread_cond_t turned; /* a turn of the engine, or a callback, has ended */
    unsigned refs; /* its user's, and one for each lock and watch: the mutex outlives fl_close() */
    bool own_loop; /* of its user's: no thread is started */
    bool closing, closed;
    bool driving;
    bool has_thread;
    pthread_t thread;
    unsigned inside;  /* calls that block */
    unsigned calling; /* threads that call back */
    struct fli_engine engine;
    struct fli_list locks;
    struct fli_list watches;
    struct fli_list notes;
    struct fli_list sessions; /* that locks share: one for each TTL */
    /* Leases of which no node knows yet; the next renewal reports them. */
    uint32_t jeopardies, lost;
    bool report_refused;     /* the nodes are older, and refuse a report */
    bool inspection_refused; /* its user may not see sessions */
    void (*on_log)(void *arg, const char *text);
    void *log_arg;
    char logged[FLI_LOG_LINE_MAX]; /* the last line */
    /* for programs of our own: caller.h */
    int stop_fd;
    fli_trouble_cb on_trouble;
    void *trouble_arg;
};

/* ---- handle.c -------------------------------------------------------------------------------- */

/* A handle for one kind of server. */
int fli_client_make(const char *nodes, const struct fl_client_options *options, enum fli_kind kind,
                    fl_client **ret) FLI_MUST_USE;

/* Makes an inherited handle this process's own, and takes the mutex. 0; FL_EINVAL: it is closed, or
 * NULL; FL_ESYSTEM. */
int fli_client_enter(fl_client *c) FLI_MUST_USE;
void fli_client_leave(fl_client *c);
void fli_client_unref(fl_client *c); /* under the mutex, which it gives back */

/* Sees to it that somebody renews. 0; FL_ESYSTEM, FL_ENOCONN. */
int fli_client_keep(fl_client *c) FLI_MUST_USE;

void fli_callback_add(fl_client *c, struct fli_callback *n);
/* It is not called any more. False: it is being called by this very thread. */
bool fli_callback_drop(fl_client *c, struct fli_callback *n) FLI_MUST_USE;

/* A line for its user's log. */
void fli_log(fl_client *c, const char *what, const char *how);

/* The text of a failure on this thread; of a storage's, if is_store. Returns code. */
int fli_fail(const fl_client *c, int code, const char *fmt, ...) FLI_PRINTF(3, 4);
const char *fli_error(bool is_store);
int fli_failed(const fl_client *c, int code); /* its text, unless there is one. Returns code */

/* What a thread waits for. */
struct fli_wait {
    bool over;
    uint64_t until_ms; /* NEVER after init */
    bool tells;        /* of troubles, as caller.h says */
    uint64_t without_ms;
    bool without; /* no usable node, since without_ms */
    fl_client *c;
    char trouble[FL_NODES_MAX + 1][FLI_TROUBLE_SIZE]; /* of each node */
    struct fli_outcome *outcome; /* of the call that it waits for; NULL: it is for another thing */
};

void fli_wait_init(struct fli_wait *w, fl_client *c);
/* Waits, under the mutex, until w->over, or until_ms. False: it was interrupted, or the handle is
 * closed. */
bool fli_wait(fl_client *c, struct fli_wait *w);
/* What there is to know of a call that has ended. */
struct fli_outcome {
    struct fl_result result; /* but for its error */
    bool is_no;              /* the plain "no" of its command */
    bool unknown;            /* some attempt may have been done without an answer */
    uint64_t lease_until_ms; /* of an extend that has failed, too: what it may have set; or 0 */
    redisReply *reply;       /* its user's; NULL when the result has what it says */
};

/* A call of a user, before it begins. */
struct fli_call_plan {
    struct fli_call_request request;
    /* Makes the call, and begins it. NULL: the request is checked and sent. */
    int (*begin)(fl_client *c, struct fli_call_plan *q, struct fl_call **ret);
    uint64_t wait_ms;
    uint64_t timeout_ms; /* 0: the handle's */
    bool once;           /* at this node and no other */
    uint32_t node;
    fl_done done; /* NULL: nobody hears of its end, or a thread waits for it */
    void *arg;
    struct fli_wait *wait; /* of a thread that waits for it; NULL: none */
    /* of what is taken or released */
    struct fl_take options; /* of a session, what it has of them */
    struct fli_owner owner; /* room for one */
    struct fl_lock *lock;
};
struct fli_call_times fli_times_of(const fl_client *c, const struct fli_call_plan *q);
struct fli_call_plan fli_at_node(enum fli_call_command command, size_t node, uint64_t timeout_ms);
/* The text of its failure, if it has failed. */
void fli_wait_explain(struct fli_wait *w, const struct fli_call_plan *q);
/* Waits for the end of the call. 0 or a code, with its text. */
int fli_run(fl_client *c, struct fli_call_plan *q, struct fli_outcome *ret) FLI_MUST_USE;
/* Begins it. ret_name may be NULL. Its callback may come before this returns, on another thread. */
int fli_start(fl_client *c, struct fli_call_plan *q, fl_call *ret_name) FLI_MUST_USE;

/* ---- lock.c ---------------------------------------------------------------------------------- */

struct fl_lock {
    struct fli_list in;
    struct fli_due due;
    struct fl_client *client;
    uint64_t
        process; /* that holds it: in a child it is lost, and nothing else of it is looked at */
    struct fli_lease lease;
    struct fli_callback note;
    enum fl_hold_state told; /* what on_change was called with last */
    void (*on_change)(void *arg, struct fl_lock *lock, enum fl_hold_state state);
    void *arg;
    uint64_t max_hold_ms, reserve_ms;
    bool is_session;
    bool is_shared;  /* a session of the handle's locks */
    bool is_private; /* nobody else knows its owner, so what is left of it is given back */
    bool is_renewed;
    bool is_held; /* it was granted */
    bool freed;   /* by its user */
    uint64_t ttl_ms;
    fl_token token;
    struct fl_lock *session; /* under which it is held; NULL: it has a lease of its own */
    struct fli_list in_session;
    struct fli_list in_shared; /* of a shared session */
    struct fli_list members;   /* of a session: its locks */
    unsigned takers;           /* of a session: calls that take locks under it */
    struct fl_call *renewal;
    struct fl_call *inspection;      /* of a session: how many locks the service has for it */
    struct fli_call_request request; /* its name and owner, whose texts are in bytes */
    uint32_t jeopardies, lost;       /* reported by the renewal that is under way */
    char bytes[];
};

/* Copies its name and owner from the request. NULL: out of memory. */
struct fl_lock *fli_lock_make(fl_client *c, const struct fli_call_request *request) FLI_MUST_USE;
void fli_lock_discard(struct fl_lock *lock); /* one that is not held; NULL is fine */
/* From now on it is held, and believed in until lease_until_ms. */
void fli_lock_begin(struct fl_lock *lock, fl_token token, uint64_t lease_until_ms);
/* Ends the lock as released, without a callback, and fills in the request that releases it. */
void fli_lock_give_up(struct fl_lock *lock, struct fli_call_request *ret);
void fli_lock_delete(struct fl_lock *lock); /* under the mutex; the reference stays */
enum fl_hold_state fli_lock_state(struct fl_lock *lock);
void fli_lock_renew_soon(struct fl_lock *session);
/* In a child, or when the handle is closed: all locks are lost. */
void fli_locks_end(fl_client *c);

/* ---- calls.c --------------------------------------------------------------------------------- */

/* Before anything is sent: 0; FL_EINVAL with a sentence. */
int fli_check(const fl_client *c, enum fli_limit limit, uint64_t value) FLI_MUST_USE;
int fli_check_request(const fl_client *c, const struct fli_call_request *request) FLI_MUST_USE;
/* What a newer header names is not passed over. */
int fli_check_reserved(const fl_client *c, const uint64_t *reserved, size_t n) FLI_MUST_USE;

int fli_not_ours(const fl_client *c, int code); /* its sentence; returns code */

/* Under the mutex. NULL: out of memory. */
struct fl_call *fli_call_plan(fl_client *c, const struct fli_call_plan *q) FLI_MUST_USE;
/* Its user hears of its end, with what is in its result. */
void fli_call_complete(struct fl_call *call, int status, const char *error);
void fli_call_ended(struct fl_call *call);  /* as the engine tells it */
void fli_call_cancel(struct fl_call *call); /* without its callback; it may settle yet */
struct fl_call *fli_call_find(fl_client *c, fl_call name); /* NULL: it is over */
/* Ends it without its callback, and waits for nobody. False: that is being called, or was. */
bool fli_call_forsake(fl_client *c, fl_call name) FLI_MUST_USE;
/* This session is about to be freed; its calls go on without it. */
void fli_calls_leave(fl_client *c, const struct fl_lock *session);
void fli_calls_forget(fl_client *c);         /* none calls back */
bool fli_calls_are_left(const fl_client *c); /* calls without users, which give back */

/* ---- watch.c --------------------------------------------------------------------------------- */

/* In a child, or when the handle is closed: they tell nothing any more. */
void fli_watches_end(fl_client *c);

/* ---- take.c ---------------------------------------------------------------------------------- */

bool fli_is_passing(int status); /* it may succeed another time: nothing was refused for good */
void fli_lock_abandon(struct fl_lock *lock); /* one that nobody has heard of: it is released */
/* The call of a private owner has lost its user: gives back what it may get or have. False: it is
 * over. */
bool fli_call_settle(struct fl_call *call) FLI_MUST_USE;

#endif
