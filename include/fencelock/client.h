/* client.h: taking locks with fencing tokens, from C.
 *
 *     fl_client *c;
 *     struct fl_grant grant;
 *     if (fl_client_create("10.0.0.1:7401,10.0.0.2:7401,10.0.0.3:7401", NULL, &c) == 0) {
 *         if (fl_acquire(c, fl_str("report"), NULL, &grant) == 0) {
 *             ... claim grant.token at the storage, then read and write with it, and stop when
 *             ... fl_remaining_ms(&grant) is 0
 *         }
 *     }
 *
 * Results. 0 means that the call did what it says: the lock is held, renewed, released, and so on.
 * Every other result is negative, and fl_err_class() gives its class:
 *
 *   refused   surely not done. FL_ENOTHELD is the plain "no" (another owner holds the lock; the
 *             lock is not held under this token). FL_ENOLEADER and FL_ENOCONN: no node could be
 *             asked.
 *   unknown   it may or may not have been done, or may still be done later. This library never
 *             turns FL_EUNCERTAIN into a yes or a no.
 *   fault     the peer or this process is broken. FL_EPROTO is also an answer of more than 64 MiB,
 *             262,144 elements, eight arrays in one another, or a line of 64 KiB: no node sends
 *             such.
 *
 * fl_client_error() says in a sentence what happened.
 *
 * Time. Each call ends within its timeout (milliseconds; 0 means the client's; above
 * FL_TIMEOUT_MAX_MS it is FL_EINVAL), on a clock that also counts time in which the machine was
 * suspended. Only resolving host names can take longer: give numeric addresses where that matters.
 *
 * Retries. A call asks one node after the other, with growing random pauses, until it has an answer
 * or its time is over. It repeats what may be repeated:
 *
 *   fl_acquire      with the same owner, so it cannot be granted twice. A delayed copy of the
 *                   request may still take the lock for this owner after the call has ended; its
 *                   TTL limits that, and fl_settle() prevents it.
 *   fl_renew        yes
 *   fl_release      yes. When an earlier try had no answer and a later one finds nothing to
 *                   release, the result is FL_EUNCERTAIN: the lock is surely not held under this
 *                   token any more, but whether this call or the lease's end did it is unknown.
 *   fl_issue_token  yes; it may burn a token, which does no harm
 *   fl_break        no: a second one could break the next holder. FL_EUNCERTAIN.
 *   reading calls   yes
 *
 * fork(). A child may use every handle of this library that it inherits, and destroys its copies.
 * The first call in the child makes the handle the child's: it closes the inherited sockets without
 * a word to the nodes, and makes a new random owner, also where one was given. The parent does not
 * notice. Locks and sessions stay the parent's: in the child they are lost, fl_remaining_ms() is 0,
 * and renewing or releasing them there fails with FL_ENOTHELD (FL_ENOSESSION) and does nothing.
 * A release is known by the handle: another one takes the token for one that the parent has handed
 * over. No other thread may be inside a call of the handle while the process forks, but for those
 * that this library starts. A child that is forked inside a callback must not return from that.
 *
 * A client belongs to one thread at a time. It starts no thread, installs no signal handler, and
 * keeps at most one connection, an epoll descriptor and a timer open between calls. */
#ifndef FENCELOCK_CLIENT_H
#define FENCELOCK_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "fencelock/tls.h"
#include "fencelock/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FL_TIMEOUT_DEFAULT_MS UINT64_C(5000)
#define FL_TIMEOUT_MAX_MS UINT64_C(86400000)
#define FL_ATTEMPT_DEFAULT_MS UINT64_C(1000)
#define FL_NODES_MAX 16u
#define FL_ADDRESS_MAX 255u

typedef struct fl_client fl_client;

/* All zero (or a NULL pointer) means the defaults. */
struct fl_client_options {
    uint64_t timeout_ms;   /* for calls that give none; FL_TIMEOUT_DEFAULT_MS */
    uint64_t attempt_ms;   /* how long one node may take to connect or to answer before the next
                              one is tried; FL_ATTEMPT_DEFAULT_MS. Doubles after each round. A
                              node whose answer is late is left sooner if another one is found to
                              serve. */
    struct fl_bytes owner; /* FL_OWNER_MIN to FL_OWNER_MAX bytes; empty: 32 hex digits of 128
                              random bits. No other client may use the same owner. */
    const struct fl_tls_options *tls; /* NULL: without TLS */
    /* The user to log in as, and its password, at most FL_PASSWORD_MAX bytes; copied. NULL for
     * user: no login; a certificate may name the user. Without TLS the password is sent in clear. A
     * wrong password ends a call at once with FL_EDENIED. */
    const char *user, *password;
};
#define FL_USER_MAX 64u
#define FL_PASSWORD_MAX 512u

/* Checks whether these files and this name can be used, for a message when a create call refuses
 * them. 0; FL_EINVAL with a sentence in errmsg; FL_ENOMEM. Any thread. */
FL_API int fl_tls_check(const struct fl_tls_options *options, char *errmsg,
                        size_t errmsg_size) FL_MUST_USE;

/* nodes: 1 to FL_NODES_MAX of HOST:PORT or [IPV6]:PORT, with commas between. Connects to nobody
 * yet. 0; FL_EINVAL (a bad address or option, or files of TLS: see fl_tls_check()); FL_ENOMEM;
 * FL_ESYSTEM (it needs two descriptors, and there are none).
 *
 * Or one URL, fencelock://[USER:PASSWORD@]HOST:PORT[,HOST:PORT...] (fencelocks://: with TLS), with
 * %XX for bytes of user and password that have a meaning in a URL. Then `options` must name no user
 * and, with fencelock://, no TLS. */
FL_API int fl_client_create(const char *nodes, const struct fl_client_options *options,
                            fl_client **ret) FL_MUST_USE;

/* Closes the connection and frees the client. Its locks stay held until released or expired. In a
 * forked child it frees the child's copy. NULL is fine. */
FL_API void fl_client_destroy(fl_client *c);

/* A sentence about the last call's failure; "" after success. Valid until the next call. */
FL_API const char *fl_client_error(const fl_client *c);

/* The owner of acquires whose call names none. Valid as long as the client; in a forked child ask
 * again. */
FL_API struct fl_bytes fl_client_owner(const fl_client *c);

/* The present time in milliseconds, on the clock of all deadlines (CLOCK_BOOTTIME). Any thread. */
FL_API uint64_t fl_now_ms(void);

/* ---- holding a lock -------------------------------------------------------------------------- */

struct fl_session;

enum fl_mode {
    FL_MODE_EXCLUSIVE, /* alone */
    FL_MODE_SHARED,    /* together with other holders in this mode */
    FL_MODE_PERMITS,   /* as one of that many holders; in answers only, requests set permits */
};

struct fl_acquire_options {
    uint64_t ttl_ms;             /* FL_TTL_MIN_MS to FL_TTL_MAX_MS; 0: FL_TTL_DEFAULT_MS */
    uint64_t wait_ms;            /* how long to queue for the lock, at most FL_WAIT_MAX_MS; 0: do
                                   not wait */
    uint64_t timeout_ms;         /* beyond wait_ms; 0: the client's */
    struct fl_bytes owner;       /* empty: the client's */
    struct fl_bytes value;       /* at most FL_VALUE_MAX bytes, which SHOW shows to everybody */
    struct fl_session *session;  /* the session that is to hold the lock: ttl_ms and owner must be
                                   unset, and the grant lasts as long as the session. A long wait
                                   renews the session on the way. NULL: none */
    enum fl_mode mode;           /* FL_MODE_EXCLUSIVE or FL_MODE_SHARED. Tokens order grants, not
                                   the holders of a shared lock: write only under exclusive
                                   ones */
    uint64_t permits;            /* 1 to FL_PERMITS_MAX: a semaphore with so many holders at a
                                   time, not together with FL_MODE_SHARED; 0: no semaphore */
    const struct fl_bytes *also; /* further locks, at most FL_NAMES_MAX - 1, all different: all
                                    are taken or none, exclusively, under one token, which is a
                                    token of each. Renewing or releasing any one does so for
                                    all. */
    size_t also_len;
};

struct fl_grant {
    fl_token token;
    uint64_t ttl_ms;
    uint64_t deadline_ms; /* on fl_now_ms()'s clock: from then on do not believe that you hold the
                             lock. Counted from before the request was sent, less ttl/100 + 2
                             ms. */
    uint64_t process;     /* the library's, and 0 in a grant that you make yourself */
};

/* How long you may still believe in the grant; 0 when it is over, and in a process that was forked
 * after it was granted. Any thread. */
FL_API uint64_t fl_remaining_ms(const struct fl_grant *grant);

/* Takes the lock, or queues for it for up to options->wait_ms. NULL options: the defaults. 0 and
 * *ret; FL_ENOTHELD (another owner held it for as long as we waited); FL_EDEADLOCK, FL_ELIMIT,
 * FL_EINVAL, FL_ENOLEADER, FL_ENOCONN, FL_EBUSY; FL_EMISMATCH (it is in use with another number of
 * permits, or this owner holds or awaits it in another mode); FL_EUNCERTAIN. An owner that holds
 * the lock already gets the same token again. */
FL_API int fl_acquire(fl_client *c, struct fl_bytes name, const struct fl_acquire_options *options,
                      struct fl_grant *ret) FL_MUST_USE;

/* After an fl_acquire() that ended with FL_EUNCERTAIN, for a program that does not want the lock
 * any more: sees to it that no attempt of this owner holds the lock, waits for it, or takes it
 * later. options: those of the acquire. 0: that is so; other results as fl_acquire(): it may still
 * be held until its TTL is over. It releases what this owner holds. A client that is destroyed
 * settles nothing by itself. */
FL_API int fl_settle(fl_client *c, struct fl_bytes name, const struct fl_acquire_options *options,
                     uint64_t timeout_ms) FL_MUST_USE;

/* Makes the lease last grant->ttl_ms from now on, and sets grant->deadline_ms. With a ttl_ms of 0
 * the lease lasts its old TTL, and deadline_ms becomes 0, since that TTL is unknown here. 0;
 * FL_ENOTHELD (lost; the grant's deadline becomes 0); others as fl_acquire(), and the grant is
 * unchanged. */
FL_API int fl_renew(fl_client *c, struct fl_bytes name, struct fl_grant *grant,
                    uint64_t timeout_ms) FL_MUST_USE;

/* Releases the lock. 0; FL_ENOTHELD (it was not held under this token); FL_EUNCERTAIN, see above;
 * others as fl_acquire(). */
FL_API int fl_release(fl_client *c, struct fl_bytes name, fl_token token,
                      uint64_t timeout_ms) FL_MUST_USE;

/* Whether the lock is held under exactly this token: 0 (yes), FL_ENOTHELD (no), or an error. The
 * answer may be out of date when it arrives: only the storage's check protects data. */
FL_API int fl_check(fl_client *c, struct fl_bytes name, fl_token token,
                    uint64_t timeout_ms) FL_MUST_USE;

/* Issues a token without a lock, larger than all before: for Redlock, or an election of your
 * own. */
FL_API int fl_issue_token(fl_client *c, struct fl_bytes name, uint64_t timeout_ms,
                          fl_token *ret) FL_MUST_USE;

/* Does the same; its type fits fl_redlock_acquire_fenced() as a source of tokens
 * (fencelock/redlock.h). ctx is an fl_client that belongs to the calling thread. */
FL_API int fl_issue_token_from(void *ctx, struct fl_bytes name, uint64_t timeout_ms,
                               fl_token *ret) FL_MUST_USE;

/* For operators: takes the lock from its holders and burns a token, larger than theirs and smaller
 * than any granted later. The holders can still write until a storage has seen a newer token: claim
 * there with *ret_burnt, which never shuts out a successor. ret_burnt may be NULL; it gets
 * FL_TOKEN_NONE from an old node that does not tell the token. 0; FL_ENOTHELD (it was not held);
 * FL_EUNCERTAIN (not repeated). */
FL_API int fl_break(fl_client *c, struct fl_bytes name, uint64_t timeout_ms,
                    fl_token *ret_burnt) FL_MUST_USE;

/* ---- sessions -------------------------------------------------------------------------------- */

/* A lease on the client's own liveness, under which it may hold many locks: one renewal serves them
 * all, and they end with it. */
struct fl_session {
    char owner[FL_OWNER_MAX];
    size_t owner_len;
    uint64_t ttl_ms;
    uint64_t deadline_ms; /* of the session: from then on do not believe in it or its locks */
    uint64_t process;     /* as in struct fl_grant */
};

struct fl_session_options {
    uint64_t ttl_ms;       /* FL_TTL_MIN_MS to FL_TTL_MAX_MS; 0: FL_TTL_DEFAULT_MS */
    uint64_t lockdelay_ms; /* how long its locks stay unavailable after it expired; at most
                              FL_LOCKDELAY_MAX_MS */
    uint64_t timeout_ms;
    struct fl_bytes owner; /* empty: 32 hex digits of 128 random bits, new for each session */
    struct fl_bytes label; /* at most FL_LABEL_MAX bytes, for people */
};

/* Opens a session; NULL options: the defaults. With the owner of a live session it renews that one.
 * 0; FL_ELIMIT, FL_EINVAL, and others as fl_acquire(). */
FL_API int fl_session_open(fl_client *c, const struct fl_session_options *options,
                           struct fl_session *ret) FL_MUST_USE;

/* Makes the session last its TTL from now on. 0; FL_ENOSESSION (it has ended, and all its locks
 * with it; the deadline becomes 0); others as fl_renew(). */
FL_API int fl_session_renew(fl_client *c, struct fl_session *session,
                            uint64_t timeout_ms) FL_MUST_USE;

/* Ends the session: releases its locks and gives up its waits. 0; FL_ENOSESSION; FL_EUNCERTAIN as
 * fl_release(). The deadline becomes 0 whatever the result. */
FL_API int fl_session_close(fl_client *c, struct fl_session *session,
                            uint64_t timeout_ms) FL_MUST_USE;

/* The list owns the bytes. */
struct fl_session_info {
    struct fl_bytes owner;
    struct fl_bytes label;
    uint64_t ttl_ms;
    uint64_t ttl_left_ms;
    uint64_t lockdelay_ms;
    uint64_t locks; /* held */
    uint64_t waits;
};

struct fl_session_list {
    const struct fl_session_info *sessions;
    size_t len;
    struct fl_bytes cursor; /* of the next page; empty at the end */
};

/* Reads a page of the open sessions, oldest first; as fl_locks(). */
FL_API int fl_sessions(fl_client *c, struct fl_bytes cursor, uint64_t count, uint64_t timeout_ms,
                       struct fl_session_list **ret) FL_MUST_USE;
FL_API void fl_session_list_free(struct fl_session_list *list); /* NULL is fine */

/* ---- information ----------------------------------------------------------------------------- */

enum fl_lock_state {
    FL_LOCK_OTHER, /* a state that this version does not know */
    FL_LOCK_HELD,
    FL_LOCK_DELAYED, /* nobody holds it, and a lock-delay keeps it unavailable */
    FL_LOCK_QUEUED   /* nobody holds it, and somebody waits for it */
};

struct fl_waiter {
    struct fl_bytes owner;
    struct fl_bytes label;
    bool session;
    uint64_t wait_left_ms; /* 0 when unknown */
};

struct fl_holder {
    struct fl_bytes owner;
    struct fl_bytes label;
    struct fl_bytes value;
    bool session;
    fl_token token;
    uint64_t age_ms;
    uint64_t ttl_left_ms;
    struct fl_bytes user;    /* the session's user */
    struct fl_bytes address; /* where the request came from; empty when not recorded */
    uint64_t renewals;       /* of the session's lease */
};

/* The list owns the bytes. Values that a server does not tell are empty or 0. For a lock with
 * several holders, fl_show() has the oldest here and all of them in held_by; fl_locks() lists the
 * lock once for each holder. */
struct fl_lock_info {
    struct fl_bytes name;
    enum fl_lock_state state;
    struct fl_bytes owner; /* of the holder */
    struct fl_bytes label; /* of the holder's session */
    struct fl_bytes value;
    bool session; /* held by an explicit session */
    fl_token token;
    uint64_t age_ms;      /* since the grant */
    uint64_t ttl_left_ms; /* of the lease, or of the lock-delay */
    uint64_t waiters;
    const struct fl_waiter *queue; /* the next one first; fl_show() only */
    size_t queue_len;
    enum fl_mode mode; /* meaningless when nobody holds it */
    uint64_t permits;
    uint64_t holders;
    uint64_t together;               /* number of locks of this grant */
    const struct fl_holder *held_by; /* oldest first; fl_show() only */
    size_t held_by_len;
    /* From fl_busiest() only, which fills in these fields and the name. */
    uint64_t waited_ms;      /* by all waiters together; never too small */
    uint64_t waited_over_ms; /* the most by which it may be too large */
    uint64_t waits, longest_ms;
    uint64_t refused; /* requests without a wait */
    /* Of the holder, too. */
    struct fl_bytes user;    /* the session's user */
    struct fl_bytes address; /* where the request came from; empty when not recorded */
    uint64_t renewals;       /* of the session's lease */
};

struct fl_lock_list {
    const struct fl_lock_info *locks;
    size_t len;
    struct fl_bytes cursor; /* of the next page; empty at the end */
};

/* Reads one lock. 0 and a list of one; FL_ENOTFOUND when it is neither held, awaited nor delayed.
 * Of many holders and waiting requests it has only the first, 1000 and 64 KiB together. Free it
 * with fl_lock_list_free(). */
FL_API int fl_show(fl_client *c, struct fl_bytes name, uint64_t timeout_ms,
                   struct fl_lock_list **ret) FL_MUST_USE;

/* Reads a page of locks. match: a glob, empty for all; cursor: from the page before, empty at
 * first; count: at most this many, 0 for the server's default. */
FL_API int fl_locks(fl_client *c, struct fl_bytes match, struct fl_bytes cursor, uint64_t count,
                    uint64_t timeout_ms, struct fl_lock_list **ret) FL_MUST_USE;

/* Reads the locks that were waited for most, in the whole cluster, the first one the most. Waits
 * that have ended count, since the answering node began to apply its log. count: at most this many,
 * 0 for the server's default. */
FL_API int fl_busiest(fl_client *c, uint64_t count, uint64_t timeout_ms,
                      struct fl_lock_list **ret) FL_MUST_USE;
FL_API void fl_lock_list_free(struct fl_lock_list *list); /* NULL is fine */

/* The content of one node's INFO. */
struct fl_node_status {
    char role[24]; /* "leader", "follower", ...; "" when not told */
    char version[32];
    char leader[FL_ADDRESS_MAX + 1];
    uint64_t node_id, term, commit_index, applied_index, clients, uptime_ms;
    uint64_t locks_held, waits;
    uint64_t leader_id;                              /* 0: it hears none */
    uint64_t cluster_nodes, cluster_nodes_connected; /* connected: to this node, including
                                                        itself */
    fl_token last_token, min_live_token;
    uint64_t grants, expiries, breaks; /* ever; part of the replicated state */
    uint64_t leader_changes;
    uint64_t log_bytes, log_write_avg_us;
    uint64_t log_waits;     /* 1: the disk has no room for its log, or is slow */
    char cluster_state[16]; /* "ok", "forming", "no leader"; "" when not told */
};

FL_API size_t fl_client_nodes(const fl_client *c);                   /* the number of addresses
                                                                        given */
FL_API const char *fl_client_node(const fl_client *c, size_t index); /* its address, as given */

/* Asks this node and no other. 0; FL_ENOCONN, FL_ETIMEOUT, FL_EPROTO, FL_EINVAL (no such node, or a
 * timeout above FL_TIMEOUT_MAX_MS). */
FL_API int fl_node_ask(fl_client *c, size_t index, uint64_t timeout_ms,
                       struct fl_node_status *ret) FL_MUST_USE;

/* Takes a backup of one node's state (docs/operations/backup.md), without delaying other clients,
 * and gives its bytes to `sink` in order. If the sink returns anything but 0, that ends the backup
 * and is the result. Needs the right @admin. timeout_ms: of each step, but for the first piece, for
 * which the node writes its state and may take any time. 0; FL_EBUSY: the node is making another
 * one; FL_ENOLEADER: it hears no leader; FL_EDENIED, FL_ENOCONN, FL_ETIMEOUT, FL_EPROTO, FL_EINVAL
 * (no such node, or it failed there: fl_client_error() says why). */
FL_API int fl_backup(fl_client *c, size_t node, uint64_t timeout_ms,
                     int (*sink)(void *arg, const void *data, size_t len), void *arg) FL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
