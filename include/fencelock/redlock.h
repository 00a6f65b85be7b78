/* redlock.h: Redlock over independent Redis servers, from C; usable without the rest of fencelock.
 *
 *     fl_redlock *r;
 *     struct fl_redlock_lock lock;
 *     struct fl_redlock_options options = {.servers = "10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379"};
 *     if (fl_redlock_create(NULL, &options, &r, NULL, 0) == 0) {
 *         if (fl_redlock_acquire(r, fl_str("report"), NULL, &lock) == 0) {
 *             ... work while fl_redlock_remaining_ms(&lock) > 0
 *             rc = fl_redlock_release(r, fl_str("report"), &lock);
 *         }
 *         fl_redlock_close(r, NULL, NULL);
 *     }
 *
 * Its promise. The algorithm is the one of the page "Distributed Locks with Redis" of the
 * Redis documentation (sections "The Redlock Algorithm", "Retry on Failure", "Releasing the Lock",
 * "Performance, Crash Recovery and fsync"). It is exclusive only while pauses and delays stay below
 * the TTL, server clocks do not jump, and no server forgets keys: Martin Kleppmann, "How to do
 * distributed locking" (2016). Redlock itself has no fencing token. Where the data matters, get one
 * from a fencelock cluster with fl_redlock_acquire_fenced() and let the storage check it. Then any
 * failure of this kind costs a refused write instead of a lost update.
 *
 * A lock is held until its deadline and no longer. The deadline counts from before the first byte
 * of the successful attempt was written, less ttl/100 + 2 ms for clock drift. The clock goes on
 * while the machine is suspended (CLOCK_BOOTTIME). No call asks the servers whether the lock is
 * "still" held, since the answer would be old when it arrives.
 *
 * All clients of a lock must be given the same servers. The quorum is more than half of the
 * configured servers, whether they can be reached or not.
 *
 * Results are 0 or a negative `enum fl_err`:
 *
 *   FL_ENOTHELD  contended: others hold it; for extend and release: it is no longer ours
 *   FL_ENOCONN   unreachable: too few servers can be connected to
 *   FL_ETIMEOUT  too slow: too few answered in time, or the lock's time was over when they had
 *   FL_EDENIED   refused: too few servers take part (errors, wrong password, replicas, restarted)
 *   FL_EUNCERTAIN  extend and release: the handle was closed before enough servers had answered
 *   FL_EINVAL, FL_ENOMEM, FL_EBUSY
 *
 * After any result but 0 of an acquire, keys that may have been set are released: each server that
 * was asked is sent a release behind the request; on a server that cannot be reached, the key ends
 * after the TTL.
 *
 * Threads. A handle belongs to one thread. The library starts no thread but for
 * fl_redlock_keep_start() of a handle whose calls block, installs no signal
 * handler, and causes no SIGPIPE. fl_redlock_create() resolves host names, once.
 *
 * fork(). A child may use a handle that it inherits; one on a loop of yours after uv_loop_fork() of
 * that loop. Its first call in the child, or the loop's first event, closes the inherited
 * connections without a word to the servers, and connects anew. The parent does not notice.
 * Calls that were in flight get FL_REDLOCK_CANCELLED in the child, from the loop, and keepers
 * FL_REDLOCK_END_CLOSED. Calls fail with FL_ESYSTEM there while no descriptor is left for a timer.
 * Locks stay the parent's: in the child fl_redlock_remaining_ms() is 0, and extending, keeping or
 * releasing them fails with FL_ENOTHELD and does nothing. A child that is forked inside a callback
 * must not return from that.
 *
 * TLS. To all servers or to none, except for Unix sockets, which are never encrypted. Each server's
 * certificate must have its host's name. */
#ifndef FENCELOCK_REDLOCK_H
#define FENCELOCK_REDLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fencelock/tls.h"
#include "fencelock/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FL_REDLOCK_SERVERS_MAX 15u
#define FL_REDLOCK_ADDRESS_MAX 255u
#define FL_REDLOCK_VALUE_LEN 40u /* 20 random bytes in lower-case hex */
#define FL_REDLOCK_KEY_FORMAT_MAX 255u
#define FL_REDLOCK_ERROR_MAX 160u /* of one server's text, with its terminator */
#define FL_REDLOCK_CREDENTIAL_MAX 511u
#define FL_REDLOCK_OPS_MAX 100000u /* calls in flight on one handle */

#define FL_REDLOCK_TTL_DEFAULT_MS UINT64_C(10000)
#define FL_REDLOCK_MAX_TTL_DEFAULT_MS UINT64_C(30000)
#define FL_REDLOCK_BUDGET_DEFAULT_MS UINT64_C(50)
#define FL_REDLOCK_CONNECT_DEFAULT_MS UINT64_C(1000)
#define FL_REDLOCK_RETRY_DEFAULT_MS UINT64_C(50)
#define FL_REDLOCK_RETRY_CAP_DEFAULT_MS UINT64_C(1000)
#define FL_REDLOCK_HUNG_DEFAULT_MS UINT64_C(5000)
#define FL_REDLOCK_TIME_MAX_MS UINT64_C(86400000) /* the most of any time in the options */

struct uv_loop_s; /* uv_loop_t */

typedef struct fl_redlock fl_redlock;

/* The login at one server. */
struct fl_redlock_login {
    const char *username; /* NULL: the default user */
    const char *password; /* NULL: no AUTH is sent */
    uint32_t database;    /* SELECT; 0 is the default */
};

/* Copied by fl_redlock_create(). Zero means the default where a default is named. */
struct fl_redlock_options {
    /* HOST:PORT, [IPV6]:PORT or /path/of/a/socket, with commas between; 1 to
     * FL_REDLOCK_SERVERS_MAX. Use three or five that fail independently. */
    const char *servers;
    struct fl_redlock_login login;       /* of all servers */
    const struct fl_redlock_login *each; /* or one for each, in the order of `servers`; NULL:
                                            `login` */
    const struct fl_tls_options *tls;    /* NULL: without TLS */

    /* How a lock's name becomes a key: exactly one %s, and %% for a percent sign. NULL: "%s", the
     * name itself, as in most Redlock libraries. Some use a prefix ("redlock:%s"). */
    const char *key_format;

    /* The largest TTL that any client uses on these servers; larger ones are refused here. A server
     * that was restarted may have forgotten keys. So it does not count until it has been up for
     * this long (the page's "delayed restarts"). FL_REDLOCK_MAX_TTL_DEFAULT_MS. */
    uint64_t max_ttl_ms;
    /* Set this if servers keep their keys over a restart (appendonly yes, appendfsync always), or
     * are started only max_ttl_ms after their end: then restarted servers count at once. */
    bool restarts_are_safe;

    /* The most time that one server may take for one request; never more than a twentieth of the
     * TTL. FL_REDLOCK_BUDGET_DEFAULT_MS. It must be above the slowest round trip. */
    uint64_t budget_ms;
    /* The most time for the first connections, and for each later one in the background.
     * FL_REDLOCK_CONNECT_DEFAULT_MS. */
    uint64_t connect_ms;
    /* A connection is given up when its oldest request has had no answer for this long.
     * FL_REDLOCK_HUNG_DEFAULT_MS. */
    uint64_t hung_ms;
    /* The pause before attempt n is random between 0 and min(retry_cap_ms, retry_ms * 2^n). */
    uint64_t retry_ms;     /* FL_REDLOCK_RETRY_DEFAULT_MS */
    uint64_t retry_cap_ms; /* FL_REDLOCK_RETRY_CAP_DEFAULT_MS */
};

/* A held lock. Plain data in the caller's memory. */
struct fl_redlock_lock {
    char value[FL_REDLOCK_VALUE_LEN + 1]; /* the key's value; new for each attempt */
    uint64_t ttl_ms;
    uint64_t deadline_ms; /* on fl_redlock_now_ms()'s clock: from then on do not believe that you
                             hold it */
    fl_token token;       /* of fl_redlock_acquire_fenced(); else FL_TOKEN_NONE */
    uint64_t process;     /* the library's, and 0 in a lock that you make yourself */
};

enum fl_redlock_cause {
    FL_REDLOCK_NONE,        /* no failure */
    FL_REDLOCK_CONTENDED,   /* enough servers work, and another holder has the lock on them */
    FL_REDLOCK_UNREACHABLE, /* too many servers cannot be connected to */
    FL_REDLOCK_TOO_SLOW,    /* too many servers are silent, or the quorum came too late */
    FL_REDLOCK_REFUSED,     /* too many servers answer with errors or do not count */
    FL_REDLOCK_LOST,        /* extend, release: too many servers no longer have our value */
    FL_REDLOCK_NOTOKEN,     /* the quorum was held, but no token could be issued */
    FL_REDLOCK_CANCELLED    /* fl_redlock_cancel() or fl_redlock_close() */
};

enum fl_redlock_status {
    FL_REDLOCK_UNASKED, /* the outcome was decided before this server could be asked */
    FL_REDLOCK_WAITING, /* the outcome was decided before this server had answered */
    FL_REDLOCK_YES,     /* set, extended, deleted */
    FL_REDLOCK_HELD,    /* acquire: the key exists already */
    FL_REDLOCK_FOREIGN, /* the key is of another type: another library's lock */
    FL_REDLOCK_NOTOURS, /* extend, release: the key is gone or holds another value */
    FL_REDLOCK_ERROR,   /* an error reply; see error */
    FL_REDLOCK_DOWN,    /* no connection, or it broke before the answer */
    FL_REDLOCK_SILENT,  /* no answer within the budget */
    FL_REDLOCK_YOUNG,   /* it said yes, but was restarted too recently to count */
    FL_REDLOCK_REPLICA, /* it is a replica */
    FL_REDLOCK_TWICE    /* the same server as an earlier one in the list */
};

struct fl_redlock_server_report {
    enum fl_redlock_status status;
    bool is_node;    /* it is fencelockd, whose whole cluster is one server and not several */
    uint64_t rtt_us; /* until its answer; 0: there was none */
    char error[FL_REDLOCK_ERROR_MAX]; /* the server's or the system's text; "" for none */
};

/* The course of a call: its last attempt. */
struct fl_redlock_report {
    enum fl_redlock_cause cause;
    uint32_t servers; /* configured */
    uint32_t quorum;
    uint32_t yes;      /* servers that said yes and count */
    uint32_t attempts; /* attempts of this call */
    uint64_t elapsed_us;
    struct fl_redlock_server_report server[FL_REDLOCK_SERVERS_MAX];
};

/* loop: the caller's, which must outlive the handle; the calls whose names end in _start are for
 * it. A handle is active on its loop until it is closed, so the loop keeps running. NULL: a private
 * loop that runs only inside the blocking calls. Starts connecting to all servers and waits for
 * none. Resolves host names, which blocks. 0; FL_EINVAL or FL_ENOCONN (a name does not resolve)
 * with a sentence in errmsg (may be NULL); FL_ENOMEM, FL_ESYSTEM. */
FL_API int fl_redlock_create(struct uv_loop_s *loop, const struct fl_redlock_options *options,
                             fl_redlock **ret, char *errmsg, size_t errmsg_size) FL_MUST_USE;

/* Closes the handle. Calls in flight get FL_REDLOCK_CANCELLED: acquires with FL_ENOTHELD, extends
 * and releases with FL_EUNCERTAIN, since they may have reached servers. Queued releases are written
 * as far as the kernel takes them; locks stay held until released or expired. On a loop of the
 * caller's, a later turn of the loop frees the memory and calls closed(ctx) (may be NULL).
 * Otherwise both happen before this returns. NULL is fine. */
FL_API void fl_redlock_close(fl_redlock *r, void (*closed)(void *ctx), void *ctx);

/* The clock of deadlines, in milliseconds. Any thread. */
FL_API uint64_t fl_redlock_now_ms(void);

/* How long you may still believe in the lock; 0 when it is over, and in a process that was forked
 * after it was acquired. Any thread. */
FL_API uint64_t fl_redlock_remaining_ms(const struct fl_redlock_lock *lock);

FL_API size_t fl_redlock_servers(const fl_redlock *r);
FL_API const char *fl_redlock_address(const fl_redlock *r,
                                      size_t index);                   /* as given; "" for an index
                                                                             beyond the end */
FL_API const char *fl_redlock_cause_text(enum fl_redlock_cause cause); /* never NULL */
FL_API const char *fl_redlock_status_text(enum fl_redlock_status status); /* never NULL */

/* Zero (or a NULL pointer) means the defaults. */
struct fl_redlock_acquire_options {
    uint64_t ttl_ms; /* FL_TTL_MIN_MS to max_ttl_ms; FL_REDLOCK_TTL_DEFAULT_MS */
    /* Fail if less of the TTL than this would be left; below ttl_ms; default 1. With a token: what
     * must be left after the token was issued. */
    uint64_t min_validity_ms;
    uint64_t wait_ms; /* keep trying for this long; 0: one attempt */
};

/* ---- calls that return at once; for a handle on the caller's loop ------------------------------
 *
 * 0: done() will be called exactly once, from the loop, never inside the call. FL_EINVAL,
 * FL_ENOMEM, FL_EBUSY: it will not be called. `lock` and `report` are valid during done() only. A
 * done() may start other calls and may close the handle. */

typedef void fl_redlock_done(void *ctx, int result, const struct fl_redlock_lock *lock,
                             const struct fl_redlock_report *report);

/* id (may be NULL): for fl_redlock_cancel(). lock is NULL unless result is 0. */
FL_API int fl_redlock_acquire_start(fl_redlock *r, struct fl_bytes name,
                                    const struct fl_redlock_acquire_options *options,
                                    fl_redlock_done *done, void *ctx, uint64_t *ret_id) FL_MUST_USE;

/* Ends an acquire in flight: it gets FL_ENOTHELD and FL_REDLOCK_CANCELLED, and is released on the
 * servers that were asked. An id that is not in flight is ignored. */
FL_API void fl_redlock_cancel(fl_redlock *r, uint64_t id);

/* On servers that still hold our value, sets the expiry to ttl_ms (0: lock->ttl_ms) from now. Never
 * sets a missing key, never touches another holder's. 0: `lock` in done() has the new deadline.
 * FL_ENOTHELD: surely lost. Any other result: it failed this time and may be tried again. In every
 * case use the lock that done() gets. After a failure its deadline is the old one, or an earlier
 * one if a shorter TTL may have reached some servers. Nothing is released. `lock` is copied.
 * A TTL shorter than the time left may take effect on the servers long before this process knows,
 * for example if the process is stopped. Until done(), believe in the lock no longer than
 * for that TTL, less a hundredth and 2 ms, counted from before this call. */
FL_API int fl_redlock_extend_start(fl_redlock *r, struct fl_bytes name,
                                   const struct fl_redlock_lock *lock, uint64_t ttl_ms,
                                   fl_redlock_done *done, void *ctx) FL_MUST_USE;

/* Deletes the key where it holds our value. 0: it was still held, and a quorum is free of it;
 * FL_ENOTHELD: it had been lost or had expired before. Otherwise too few servers answered; the
 * others get the release when they can be reached again, until the TTL has passed. done may be
 * NULL. `lock` is copied; it is NULL in done(). */
FL_API int fl_redlock_release_start(fl_redlock *r, struct fl_bytes name,
                                    const struct fl_redlock_lock *lock, fl_redlock_done *done,
                                    void *ctx) FL_MUST_USE;

/* Starts to issue a token for a name, without blocking. Later (or at once) it calls
 * issued(issued_ctx, result, token) exactly once, within timeout_ms or soon after. */
typedef void fl_redlock_issued(void *issued_ctx, int result, fl_token token);
typedef void fl_redlock_issue_start(void *ctx, struct fl_bytes name, uint64_t timeout_ms,
                                    fl_redlock_issued *issued, void *issued_ctx);

/* As fl_redlock_acquire_start(); then, with the quorum held, a token is issued and the validity is
 * checked again. If it is too late, the lock is released and the call fails. The token comes after
 * the quorum, never before, so of two holders in turn the later one has the larger token. It must
 * be claimed at the storage before the first read. */
FL_API int fl_redlock_acquire_fenced_start(fl_redlock *r, struct fl_bytes name,
                                           const struct fl_redlock_acquire_options *options,
                                           fl_redlock_issue_start *issue, void *issue_ctx,
                                           fl_redlock_done *done, void *ctx,
                                           uint64_t *ret_id) FL_MUST_USE;

/* ---- keeping a lock -------------------------------------------------------------------------- */

typedef struct fl_redlock_keeper fl_redlock_keeper;

enum fl_redlock_end {
    FL_REDLOCK_END_LOST,     /* the servers no longer hold it */
    FL_REDLOCK_END_EXPIRED,  /* no extend succeeded before the deadline */
    FL_REDLOCK_END_MAX_HOLD, /* max_hold_ms is nearly over: no more extends. The lock is held
                                until its deadline, which is not after the end of max_hold_ms */
    FL_REDLOCK_END_CLOSED    /* the handle was closed */
};

/* Called once, from the loop, or from the library's thread; not after fl_redlock_keep_stop(). The
 * keeper must still be stopped, here or later. */
typedef void fl_redlock_ended(void *ctx, enum fl_redlock_end why,
                              const struct fl_redlock_lock *lock);

/* Extends the lock whenever a third of its time is over, for at most max_hold_ms (1 to
 * FL_REDLOCK_TIME_MAX_MS) from now. So a stuck holder does not keep it for ever. A handle
 * whose calls block starts one thread for that, with all signals blocked and with connections of
 * its own. fl_redlock_close() ends it, and is not for a callback then. 0; FL_EINVAL; FL_ENOMEM;
 * FL_ESYSTEM; FL_ENOCONN. */
FL_API int fl_redlock_keep_start(fl_redlock *r, struct fl_bytes name,
                                 const struct fl_redlock_lock *lock, uint64_t max_hold_ms,
                                 fl_redlock_ended *ended, void *ctx,
                                 fl_redlock_keeper **ret) FL_MUST_USE;

/* The lock's present state; its deadline moves. Any time before the stop. Any thread, when calls of
 * the handle block. */
FL_API void fl_redlock_keep_copy(fl_redlock_keeper *k, struct fl_redlock_lock *ret);

/* The same in place, for a handle on the caller's loop alone. */
FL_API const struct fl_redlock_lock *fl_redlock_keep_lock(const fl_redlock_keeper *k);

/* Stops and frees the keeper. The lock stays: to release it, copy it first. After the handle was
 * closed this may still be called, but must be before closed(). NULL is fine. */
FL_API void fl_redlock_keep_stop(fl_redlock_keeper *k);

/* ---- calls that block; for a handle with a private loop ----------------------------------------
 *
 * The same without callbacks. Releases of failed attempts are written before a call returns.
 * Connections are maintained only inside the calls. */

FL_API int fl_redlock_acquire(fl_redlock *r, struct fl_bytes name,
                              const struct fl_redlock_acquire_options *options,
                              struct fl_redlock_lock *ret) FL_MUST_USE;

/* Changes *lock also when it fails: see fl_redlock_extend_start(). */
FL_API int fl_redlock_extend(fl_redlock *r, struct fl_bytes name, uint64_t ttl_ms,
                             struct fl_redlock_lock *lock) FL_MUST_USE;

FL_API int fl_redlock_release(fl_redlock *r, struct fl_bytes name,
                              const struct fl_redlock_lock *lock) FL_MUST_USE;

/* Issues a token, blocking for at most timeout_ms or little more. fl_issue_token_from() of
 * fencelock/client.h is one; its ctx is an fl_client. */
typedef int fl_redlock_issue(void *ctx, struct fl_bytes name, uint64_t timeout_ms, fl_token *ret);

/* As fl_redlock_acquire_fenced_start(). When no token could be issued, the result is issue()'s. */
FL_API int fl_redlock_acquire_fenced(fl_redlock *r, struct fl_bytes name,
                                     const struct fl_redlock_acquire_options *options,
                                     fl_redlock_issue *issue, void *issue_ctx,
                                     struct fl_redlock_lock *ret) FL_MUST_USE;

/* A sentence about the last blocking call; "" after success. Valid until the next call. */
FL_API const char *fl_redlock_error(const fl_redlock *r);

/* The course of the last blocking call. Valid until the next call; never NULL. */
FL_API const struct fl_redlock_report *fl_redlock_last(const fl_redlock *r);

/* ---- checking the servers -------------------------------------------------------------------- */

enum fl_redlock_finding_kind {
    FL_REDLOCK_FIND_EVEN,        /* an even number of servers: one fewer would tolerate as many
                                    failures */
    FL_REDLOCK_FIND_FEW,         /* fewer than three: no failure is tolerated */
    FL_REDLOCK_FIND_TWICE,       /* two entries are the same server (run_id); refuses */
    FL_REDLOCK_FIND_REPLICA,     /* a replica; refuses */
    FL_REDLOCK_FIND_EVICTS,      /* maxmemory-policy may delete keys that expire; refuses */
    FL_REDLOCK_FIND_FORGETS,     /* a crash may lose keys: not (appendonly yes, fsync always) */
    FL_REDLOCK_FIND_YOUNG,       /* restarted too recently to count */
    FL_REDLOCK_FIND_UNREACHABLE, /* not connected or silent: nothing is known of it */
    FL_REDLOCK_FIND_REFUSED,     /* it refused the log-in; refuses */
    FL_REDLOCK_FIND_UNKNOWN,     /* some facts are missing (INFO or CONFIG not permitted) */
    FL_REDLOCK_FIND_STRANGER,    /* its INFO is not Redis'; refuses */
    FL_REDLOCK_FIND_UNABLE       /* a lock could not be set, extended and released on a key of the
                                    check's own; refuses, unless it is about that key alone */
};

struct fl_redlock_finding {
    enum fl_redlock_finding_kind kind;
    bool refuses; /* locks on these servers would not be locks; otherwise a warning */
    int server;   /* index, or -1 when it is about all servers */
    char text[192];
};

#define FL_REDLOCK_FINDINGS_MAX (2u + 7u * FL_REDLOCK_SERVERS_MAX)

struct fl_redlock_check_report {
    size_t len;
    struct fl_redlock_finding finding[FL_REDLOCK_FINDINGS_MAX];
};

struct fl_redlock_check_options {
    uint64_t timeout_ms;   /* 0: connect_ms + budget_ms of the handle */
    bool eviction_allowed; /* only warn of servers that evict */
};

/* Result 0: no finding refuses the servers; FL_EDENIED: one does. The report is valid during done()
 * only. */
typedef void fl_redlock_checked(void *ctx, int result, const struct fl_redlock_check_report *found);

FL_API int fl_redlock_check_start(fl_redlock *r, const struct fl_redlock_check_options *options,
                                  fl_redlock_checked *done, void *ctx) FL_MUST_USE;

/* Blocks. *ret is written for results 0 and FL_EDENIED. */
FL_API int fl_redlock_check(fl_redlock *r, const struct fl_redlock_check_options *options,
                            struct fl_redlock_check_report *ret) FL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
