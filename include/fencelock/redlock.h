/* redlock.h: Redlock over independent Redis servers, from C.
 *
 *     fl_client *r; fl_lock *l;
 *     struct fl_redlock_options options = {.servers = "10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379"};
 *     if (fl_redlock_open(&options, &r) == 0) {
 *         if (fl_lock_take(r, "report", NULL, &l) == 0) {
 *             while (more() && fl_lock_state(l) != FL_HOLD_LOST) work();   (it is extended beside)
 *             rc = fl_lock_release(l);
 *         }
 *         fl_close(r);
 *     }
 *
 * Locks, sessions and Redlocks are held alike: all that client.h says of taking, holding and
 * releasing a lock, of threads, callbacks, loops and fork() goes for a client of Redis servers.
 * Only what follows is different.
 *
 * Its promise. The algorithm is the one of the page "Distributed Locks with Redis" of the
 * Redis documentation (sections "The Redlock Algorithm", "Retry on Failure", "Releasing the Lock",
 * "Performance, Crash Recovery and fsync"). It is exclusive only while pauses and delays stay below
 * the TTL, server clocks do not jump, and no server forgets keys: Martin Kleppmann, "How to do
 * distributed locking" (2016). Redlock itself has no fencing token. Where the data matters, name a
 * fencelock cluster in options.tokens and let the storage check its tokens. Then any failure of
 * this kind costs a refused write instead of a lost update.
 *
 * A lock is held until its deadline and no longer. The deadline counts from before the first byte
 * of the successful attempt was written, less ttl/100 + 2 ms for clock drift. No call asks the
 * servers whether the lock is "still" held, since the answer would be old when it arrives.
 *
 * All clients of a lock must be given the same servers. The quorum is more than half of the
 * configured servers, whether they can be reached or not.
 *
 * struct fl_take. It has no session, owner, value, mode, permits or further names here, and ttl_ms
 * is at most max_ttl_ms. A wait is a series of attempts, with random pauses: there is no queue.
 *
 * No timeout of a call bounds taking, extending or releasing here. connect_ms bounds the wait for
 * connections, and budget_ms how long an attempt waits for a server.
 *
 * Results of taking, extending and releasing:
 *
 *   FL_ENOTHELD  contended: others hold it; for extend and release: it is no longer ours
 *   FL_ENOCONN   unreachable: too few servers can be connected to
 *   FL_ETIMEOUT  too slow: too few answered in time, or the lock's time was over when they had
 *   FL_EDENIED   refused: too few servers take part (errors, wrong password, replicas, restarted)
 *   FL_EUNCERTAIN  interrupted, or the client was closed
 *   FL_EINVAL, FL_ENOMEM, FL_EBUSY; and the results of FL_ASK_TOKEN, with report->no_token
 *
 * After any result but 0 of taking a lock, also of a call that was cancelled, keys that may have
 * been set are released: each server that was asked is sent a release behind the request; on a
 * server that cannot be reached, the key ends after the TTL. A release has succeeded when a quorum
 * is free; the other servers get it when they can be reached again, until the TTL has passed.
 *
 * Other calls of client.h (fl_ask() and so on) fail with FL_EINVAL here.
 *
 * TLS. To all servers or to none, except for Unix sockets, which are never encrypted. Each server's
 * certificate must have its host's name. */
#ifndef FENCELOCK_REDLOCK_H
#define FENCELOCK_REDLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fencelock/client.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FL_REDLOCK_SERVERS_MAX 15u
#define FL_REDLOCK_VALUE_LEN 40u /* 20 random bytes in lower-case hex */
#define FL_REDLOCK_KEY_FORMAT_MAX 255u
#define FL_REDLOCK_ERROR_MAX 160u /* of one server's text, with its terminator */
#define FL_REDLOCK_TEXT_MAX 1024u

#define FL_REDLOCK_MAX_TTL_DEFAULT_MS UINT64_C(30000)
#define FL_REDLOCK_BUDGET_DEFAULT_MS UINT64_C(50)
#define FL_REDLOCK_CONNECT_DEFAULT_MS UINT64_C(1000)
#define FL_REDLOCK_RETRY_DEFAULT_MS UINT64_C(50)
#define FL_REDLOCK_RETRY_CAP_DEFAULT_MS UINT64_C(1000)
#define FL_REDLOCK_HUNG_DEFAULT_MS UINT64_C(5000)
#define FL_REDLOCK_TIME_MAX_MS UINT64_C(86400000) /* the most of any time in the options */

/* Copied by fl_redlock_open(). Zero means the default where a default is named. */
struct fl_redlock_options {
    /* HOST:PORT, [IPV6]:PORT or /path/of/a/socket, with commas between; 1 to
     * FL_REDLOCK_SERVERS_MAX. Use three or five that fail independently. */
    const char *servers;
    /* The login at all servers, each at most FL_PASSWORD_MAX bytes. user NULL: the default user;
     * password NULL: no AUTH is sent. */
    const char *user, *password;
    uint32_t database;                /* SELECT; 0 is the default */
    const struct fl_tls_options *tls; /* NULL: without TLS */
    /* Issues a token once the quorum is held; then the validity is checked again. If it is too
     * late, the lock is released and the call fails. The token comes after the quorum, never
     * before, so of two holders in turn the later one has the larger token. It must be claimed at
     * the storage before the first read. That client must outlive this one; it starts its thread,
     * unless it has its own loop. NULL: locks have FL_TOKEN_NONE. */
    fl_client *tokens;

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

    bool own_loop; /* as these of struct fl_client_options */
    void (*on_log)(void *arg, const char *text);
    void *log_arg;
};

/* Connects to nobody yet. Resolves host names, once, which blocks. 0; FL_EINVAL, FL_ENOCONN (no
 * name resolves), FL_ENOMEM, FL_ESYSTEM: fl_client_error(NULL) says why, and *ret is NULL. */
FL_API int fl_redlock_open(const struct fl_redlock_options *options, fl_client **ret) FL_MUST_USE;

/* ---- what a call came to --------------------------------------------------------------------- */

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
    char text[FL_REDLOCK_TEXT_MAX];       /* a sentence; "" after success */
    char value[FL_REDLOCK_VALUE_LEN + 1]; /* the key's value; new for each attempt */
    bool no_token;                        /* the quorum was held, but no token could be issued */
    uint32_t servers;                     /* configured */
    uint32_t quorum;
    uint32_t yes;      /* servers that said yes and count */
    uint32_t attempts; /* attempts of this call */
    uint64_t elapsed_us;
    struct fl_redlock_server_report server[FL_REDLOCK_SERVERS_MAX];
};

/* Of the last call of this thread that blocked; never NULL. Valid until its next one. A callback
 * finds it in struct fl_result. */
FL_API const struct fl_redlock_report *fl_redlock_last(const fl_client *r);

FL_API const char *fl_redlock_status_text(enum fl_redlock_status status); /* never NULL */

/* ---- locks by their values -------------------------------------------------------------------
 *
 * For a program that takes a lock (`unrenewed`) and hands it to another one. fl_lock_free() leaves
 * the lock as it is. */

/* The value of its key, FL_REDLOCK_VALUE_LEN bytes; of any lock, its owner. Valid until it is
 * freed. */
FL_API struct fl_bytes fl_redlock_value(const fl_lock *lock);

/* On servers that still hold our value, sets the expiry to ttl_ms from now. Never sets a missing
 * key, never touches another holder's. *deadline_ms: until when you believe in the lock, before and
 * after the call. 0: it is the new one. FL_ENOTHELD: it is 0, since the lock is surely lost. Any
 * other result: it is the old one, or an earlier one if a shorter TTL may have reached some
 * servers; it failed this time and may be tried again. Until this returns, believe in the lock no
 * longer than for the shorter TTL, less a hundredth and 2 ms, counted from before the call. */
FL_API int fl_redlock_extend(fl_client *r, struct fl_bytes name, const char *value, uint64_t ttl_ms,
                             uint64_t *deadline_ms) FL_MUST_USE;

/* Deletes the key where it holds this value. 0: it was still held, and a quorum is free of it;
 * FL_ENOTHELD: it had been lost or had expired before. */
FL_API int fl_redlock_release(fl_client *r, struct fl_bytes name, const char *value) FL_MUST_USE;

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
    uint64_t timeout_ms;   /* 0: connect_ms + budget_ms of the client */
    bool eviction_allowed; /* only warn of servers that evict */
};

/* Blocks. 0: no finding refuses the servers; FL_EDENIED: one does. *ret is written for these two
 * results. */
FL_API int fl_redlock_check(fl_client *r, const struct fl_redlock_check_options *options,
                            struct fl_redlock_check_report *ret) FL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
