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

/* A callback that is to be made. */
struct fli_callback {
    struct fli_list in;
    /* Under the mutex, which it gives back while it calls its user. */
    void (*deliver)(struct fl_client *c, struct fli_callback *n);
    bool under_way;
    pthread_t thread; /* on which it is */
};

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
    uint64_t process; /* whose it is */
    struct fli_engine engine;
    struct fli_list locks;
    struct fli_list calls;
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

/* What a thread waits for. */
struct fli_wait {
    bool over;
    bool tells; /* of troubles, as caller.h says */
    uint64_t without_ms;
    bool without; /* no usable node, since without_ms */
    fl_client *c;
    char trouble[FL_NODES_MAX + 1][FLI_TROUBLE_SIZE]; /* of each node */
    struct fl_redlock_report *report; /* how a call of Redlock ended; freed by fli_wait_explain() */
    struct fli_engine_watcher watcher;
};

void fli_wait_init(struct fli_wait *w, fl_client *c);
/* Waits, under the mutex, until w->over. False: it was interrupted, or the handle is closed. */
bool fli_wait(fl_client *c, struct fli_wait *w);
/* The text of its failure, if it has failed. timeout_ms: 0: the handle's. */
void fli_wait_explain(struct fli_wait *w, int status, const char *no, uint64_t timeout_ms);

/* One call, from begin to end. */
struct fli_call_plan {
    struct fli_call_request request;
    uint64_t wait_ms;
    uint64_t timeout_ms; /* 0: the handle's */
    const char *no;      /* the text of a "no" */
    bool once;           /* at this node and no other */
    uint32_t node;
    const struct fli_engine_watcher *watcher; /* NULL: none */
};
struct fli_call_times fli_times_of(const fl_client *c, const struct fli_call_plan *q);
/* 0; FL_ENOTHELD for a "no"; or a code. ret_reply and ret_lease_ms may be NULL. */
int fli_run(fl_client *c, const struct fli_call_plan *q, redisReply **ret_reply,
            uint64_t *ret_lease_ms) FLI_MUST_USE;
/* The same; ret: all that is known of its end, whose reply is the caller's. */
int fli_run_to_end(fl_client *c, const struct fli_call_plan *q, struct fli_ended *ret) FLI_MUST_USE;

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
    uint64_t opening_until_ms; /* of a shared session that is not held yet */
    struct fli_call *renewal;
    struct fli_call *inspection;     /* of a session: how many locks the service has for it */
    struct fli_call_request request; /* that takes it; its texts are in bytes */
    uint32_t jeopardies, lost;       /* reported by the renewal that is under way */
    struct fl_bytes also[FL_NAMES_MAX - 1];
    char bytes[];
};

/* Copies the texts of the request. NULL: out of memory. */
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

/* A call that calls back, or that takes or releases a lock. */
struct fl_call {
    struct fli_list in;
    struct fli_callback note;
    fl_client *client;
    struct fli_call
        *engine_call;        /* NULL: it waits for its session, has ended, or is the parent's */
    struct fl_lock *lock;    /* that a yes makes held, or that is given back */
    struct fl_lock *session; /* under which; NULL also when that was freed */
    struct fli_call_request request;
    struct fli_call_times times;
    uint64_t began_ms;
    uint64_t settle_until_ms; /* until when what it may have got is held without a session */
    bool cancelled;           /* during its callback: who cancels it deletes it */
    fl_done done;
    void *arg;
    struct fli_wait *wait; /* of a thread that blocks; NULL: it calls back */
    struct fl_result *ret; /* of that thread */
    struct fl_result result;
    char error[640];
};

/* Before anything is sent: 0; FL_EINVAL with a sentence. */
int fli_client_check_timeout(const fl_client *c, uint64_t timeout_ms) FLI_MUST_USE;
int fli_client_check_name(const fl_client *c, struct fl_bytes name) FLI_MUST_USE;
int fli_client_check_token(const fl_client *c, fl_token token) FLI_MUST_USE;
int fli_client_check_ttl(const fl_client *c, uint64_t ttl_ms) FLI_MUST_USE;
int fli_client_check_node(const fl_client *c, size_t node, uint64_t timeout_ms) FLI_MUST_USE;
/* What a newer header names is not passed over. */
int fli_check_reserved(const fl_client *c, const uint64_t *reserved, size_t n) FLI_MUST_USE;

extern const char fli_not_held[];
int fli_not_ours(const fl_client *c, int code);             /* its sentence; returns code */
int fli_code_of(enum fli_call_command command, int status); /* of a "no" to this command */

/* Under the mutex. */
struct fl_call *fli_call_make(fl_client *c, const struct fli_call_plan *q, fl_done done,
                              void *arg) FLI_MUST_USE;
void fli_call_ended(void *arg, struct fli_ended *how); /* as fli_ended_cb; arg: the call */
void fli_call_complete(struct fl_call *call, int status, const char *error);
void fli_call_cancel(struct fl_call *call);
/* Ends it without its callback, and waits for nobody. False: that is being called. */
bool fli_call_forsake(struct fl_call *call) FLI_MUST_USE;
void fli_call_delete(struct fl_call *call);
/* This session is about to be freed; its calls go on without it. */
void fli_calls_leave(fl_client *c, const struct fl_lock *session);
void fli_calls_end(fl_client *c);            /* without callbacks */
bool fli_calls_are_left(const fl_client *c); /* calls without users, which give back */
/* In a child: what the parent had begun never ends here. */
void fli_calls_forget(fl_client *c);

/* ---- watch.c --------------------------------------------------------------------------------- */

/* In a child, or when the handle is closed: they tell nothing any more. */
void fli_watches_end(fl_client *c);

/* ---- take.c ---------------------------------------------------------------------------------- */

void fli_lock_abandon(struct fl_lock *lock); /* one that nobody has heard of: it is released */
/* One more attempt of a call that takes a lock and has lost its user; gives back what it gets. */
void fli_call_settle(struct fl_call *call);

#endif
