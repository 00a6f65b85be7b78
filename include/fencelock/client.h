/* client.h: taking locks with fencing tokens, and holding them, from C.
 *
 *     fl_client *c; fl_lock *l; fl_token t;
 *     fl_open("10.0.0.1:7401,10.0.0.2:7401", NULL, &c);
 *     if (fl_lock_take(c, "report", &(struct fl_take){.wait_ms = 60000}, &l) == 0) {
 *         while (more() && fl_lock_token(l, &t) == 0) write_with(t);
 *         fl_lock_release(l);
 *     }
 *     fl_close(c);
 *
 * The lock is renewed beside the work, and lost in time when that is not possible. The token goes
 * with each write, and the storage refuses it once a newer holder was there
 * (fencelock/store_client.h).
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
 * Time. Each call ends within its timeout, on a clock that also counts time in which the machine
 * was suspended. A timeout is in milliseconds; 0 means the client's; above FL_TIMEOUT_MAX_MS it is
 * FL_EINVAL. Only resolving host names can take longer: give numeric addresses where that matters.
 * A client that renews resolves them once, before its first lock.
 *
 * Retries. A call asks one node after the other, with growing random pauses, until it has an answer
 * or its time is over. It repeats what may be repeated:
 *
 *   fl_lock_take    with the same owner, so it cannot be granted twice. A delayed copy of the
 *                   request may still take the lock for this owner after the call has ended, or
 *                   was cancelled. Where the owner is the library's own choice, it gives back what
 *                   that may get. Where it is given, the TTL limits that, and fl_settle() prevents
 *                   it.
 *   FL_ASK_RENEW    yes
 *   FL_ASK_RELEASE, yes. When an earlier try had no answer and a later one finds nothing to
 *   fl_lock_release release, the result is FL_EUNCERTAIN: the lock is surely not held under this
 *                   token any more, but whether this call or the lease's end did it is unknown.
 *                   An fl_lock_release() without an answer goes on after the call, until the lease
 *                   has ended, unless the owner is given.
 *   FL_ASK_TOKEN    yes; it may burn a token, which does no harm
 *   FL_ASK_BREAK    no: a second one could break the next holder. FL_EUNCERTAIN.
 *   reading calls   yes
 *
 * Threads. Any thread may call any function here with any handle. One exception: no thread may use
 * a handle, a lock or a call while another thread closes, frees, releases or cancels it. A blocking
 * call of a client that is closed meanwhile gives FL_EUNCERTAIN. Locks of a closed client may be
 * used until they are freed. fl_client_error() is of the calling thread.
 *
 * A client that keeps a lock renewed starts one thread, with all signals blocked, which ends in
 * fl_close(). With options.own_loop it starts none: call fl_process() whenever fl_fd() is readable.
 *
 * Callbacks come from that thread, from fl_process(), or from inside a call that blocks, on its
 * thread. They never come from inside functions like fl_lock_token(). No lock of the library is
 * held meanwhile: a callback may call every function but fl_close() of its own client, and may take
 * any mutex. It must not last, since renewals may wait for it. Freeing or releasing a lock, and
 * cancelling a call, wait for its callback that is under way on another thread. So do not hold a
 * mutex that this callback takes.
 *
 * fork(). A child may use every handle of this library that it inherits, and closes its copies.
 * The first call in the child makes the handle the child's, and must have returned before another
 * thread calls: it closes the inherited sockets without a word to the nodes, and makes a new random
 * owner, also where one was given. The parent does not notice. Locks and sessions stay the
 * parent's: in the child they are lost (FL_LOST_INHERITED), without on_change, and releasing them
 * there fails with FL_ENOTHELD (FL_ENOSESSION) and does nothing else but free them. Calls that were
 * in progress end without their callbacks. A release is known by the handle: another one takes the
 * token for one that the parent has handed over. A child that is forked inside a callback must not
 * return from that.
 *
 * Memory. Structs of options are all zero by default; the bytes in `reserved` must stay so. What
 * the library allocates is reached by pointers and freed by it, and may have more fields in a later
 * version. */
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
#define FL_USER_MAX 64u
#define FL_PASSWORD_MAX 512u

struct fl_redlock_report;
typedef struct fl_client fl_client;
typedef struct fl_lock fl_lock;   /* a lock, or a session, that is held */
typedef struct fl_watch fl_watch; /* listens to the events of locks */

/* ---- opening --------------------------------------------------------------------------------- */

struct fl_client_options {
    uint64_t timeout_ms;   /* for calls that give none; FL_TIMEOUT_DEFAULT_MS */
    uint64_t attempt_ms;   /* how long one node may take to connect or to answer before the next
                              one is tried; FL_ATTEMPT_DEFAULT_MS. Doubles after each round. A
                              node whose answer is late is left sooner if another one is found to
                              serve. */
    struct fl_bytes owner; /* of the locks that name none: FL_OWNER_MIN to FL_OWNER_MAX bytes, which
                              no other client may use. Taking a lock twice gives the same token
                              then. Empty: each lock object is a holder of its own. */
    const struct fl_tls_options *tls; /* NULL: without TLS */
    /* The user to log in as, and its password, at most FL_PASSWORD_MAX bytes; copied. NULL for
     * user: no login; a certificate may name the user. Without TLS the password is sent in clear. A
     * wrong password ends a call at once with FL_EDENIED. */
    const char *user, *password;
    bool own_loop; /* start no thread: fl_process() is called whenever fl_fd() is readable */
    /* Told of nodes that do not answer, and why; of locks in jeopardy and lost. A callback like the
     * others. NULL: none. */
    void (*on_log)(void *arg, const char *text);
    void *log_arg;
    uint64_t reserved[8];
};

/* nodes: 1 to FL_NODES_MAX of HOST:PORT or [IPV6]:PORT, with commas between. Connects to nobody
 * yet. 0; FL_EINVAL (a bad address or option, or files of TLS); FL_ENOMEM; FL_ESYSTEM (it needs two
 * descriptors, and there are none); FL_ENOCONN (own_loop, for which names are resolved here: none
 * is known). Unless it is 0, fl_client_error(NULL) says why, *ret is NULL, and every call with that
 * says FL_EINVAL, so that a program may look at the first lock only.
 *
 * Or one URL, fencelock://[USER:PASSWORD@]HOST:PORT[,HOST:PORT...] (fencelocks://: with TLS), with
 * %XX for bytes of user and password that have a meaning in a URL. Then `options` must name no user
 * and, with fencelock://, no TLS. */
FL_API int fl_open(const char *nodes, const struct fl_client_options *options, fl_client **ret);

/* Ends the thread, if there is one, and the connections. What cancelled calls may have got is given
 * back before, for at most options.timeout_ms. Calls in progress end without their callbacks. Locks
 * that were not released or freed are lost (FL_LOST_RELEASED) without a callback; they stay held
 * until their lease ends, and must still be freed. Not from a callback. NULL is fine. */
FL_API void fl_close(fl_client *c);

/* A sentence about the failure of this thread's last call of a client; "" after success. Valid
 * until this thread's next call. */
FL_API const char *fl_client_error(const fl_client *c);

/* The owner of locks that name none; random when the options have none. Valid as long as the
 * client; in a forked child ask again. */
FL_API struct fl_bytes fl_client_owner(const fl_client *c);

/* The present time in milliseconds, on the clock of all deadlines (CLOCK_BOOTTIME). Any thread. */
FL_API uint64_t fl_now_ms(void);

/* With own_loop: wait until fl_fd() is readable, then call fl_process(), which does what is due and
 * calls back. In a forked child ask for the descriptor again, and watch it there with a loop of the
 * child's own (libuv: after uv_loop_fork()). Without own_loop they are not needed. */
FL_API int fl_fd(const fl_client *c);
FL_API void fl_process(fl_client *c);

/* ---- taking and holding a lock --------------------------------------------------------------- */

enum fl_mode {
    FL_MODE_EXCLUSIVE, /* alone */
    FL_MODE_SHARED,    /* together with other holders in this mode */
    FL_MODE_PERMITS,   /* as one of that many holders; in answers only, requests set permits */
};

enum fl_hold_state { FL_HOLD_SAFE, FL_HOLD_JEOPARDY, FL_HOLD_LOST };

enum fl_lost_reason {
    FL_LOST_NOT,       /* it is not lost */
    FL_LOST_DEADLINE,  /* no renewal succeeded in time */
    FL_LOST_TAKEN,     /* the service says that it is no longer held under this token */
    FL_LOST_MAX_HOLD,  /* max_hold_ms has passed */
    FL_LOST_RELEASED,  /* released, or given up by the end of its client or session */
    FL_LOST_INHERITED, /* it is held by the process that forked this one, and not by this one */
};

struct fl_take {
    /* FL_TTL_MIN_MS to FL_TTL_MAX_MS. 0: FL_TTL_DEFAULT_MS, and the lock is held under a session
     * that these locks of this client share: one renewal serves them all. A lock with a TTL (unless
     * it shares), an owner, a mode, permits, or further names has a lease of its own. It is renewed
     * at some moment of the second sixth of its TTL. */
    uint64_t ttl_ms;
    uint64_t wait_ms;            /* how long to queue for the lock, at most FL_WAIT_MAX_MS; 0: do
                                    not wait */
    uint64_t timeout_ms;         /* beyond wait_ms; 0: the client's */
    struct fl_bytes name;        /* when the name that is given is NULL: it may have zero bytes */
    struct fl_bytes owner;       /* FL_OWNER_MIN to FL_OWNER_MAX bytes; empty: see the client's */
    struct fl_bytes value;       /* at most FL_VALUE_MAX bytes, which SHOW shows to everybody */
    fl_lock *session;            /* the session that is to hold the lock: ttl_ms and owner must be
                                    unset, and the lock lasts as long as the session. NULL: none */
    enum fl_mode mode;           /* FL_MODE_EXCLUSIVE or FL_MODE_SHARED. Tokens order grants, not
                                    the holders of a shared lock: write only under exclusive
                                    ones */
    uint64_t permits;            /* 1 to FL_PERMITS_MAX: a semaphore with so many holders at a
                                    time, not together with FL_MODE_SHARED; 0: no semaphore */
    const struct fl_bytes *also; /* further locks, at most FL_NAMES_MAX - 1, all different: all
                                    are taken or none, exclusively, under one token, which is a
                                    token of each */
    size_t also_len;
    bool alone;           /* a lease of its own in any case */
    bool unrenewed;       /* it is held for one TTL: no thread is started */
    bool shares;          /* it has a TTL, and locks of this client with the same share a session */
    uint64_t max_hold_ms; /* lost this long after it was requested, renewed or not; 0: no limit */
    uint64_t reserve_ms;  /* lost this long before the deadline, which leaves time to stop the work
                             that relies on it; at most half of the TTL */
    /* Called once for each change of state; when several came while it was called, with the last.
     * See "Callbacks" above. */
    void (*on_change)(void *arg, fl_lock *lock, enum fl_hold_state state);
    void *arg;
    uint64_t min_validity_ms; /* of a Redlock (redlock.h), at most ttl - ttl/100 - 2: fail if less
                                 would be left of its TTL, and the token issued; 0: 1 */
    uint64_t lockdelay_ms;    /* of a session: how long its locks stay unavailable after it expired;
                                 at most FL_LOCKDELAY_MAX_MS */
    uint64_t reserved[6];
};

/* Takes the lock, or queues for it for up to wait_ms, and keeps it renewed. NULL: the defaults. 0
 * and *ret, which is ended by fl_lock_release() or fl_lock_free(). FL_ENOTHELD (another owner held
 * it for as long as we waited); FL_EDEADLOCK, FL_ELIMIT, FL_EINVAL, FL_ENOLEADER, FL_ENOCONN,
 * FL_EBUSY; FL_ENOSESSION (the session is over, and its locks with it); FL_EMISMATCH (it is in use
 * with another number of permits, or this owner holds or awaits it in another mode); FL_ESYSTEM (no
 * thread can be started); FL_EUNCERTAIN. */
FL_API int fl_lock_take(fl_client *c, const char *name, const struct fl_take *options,
                        fl_lock **ret) FL_MUST_USE;

/* The token to send with an operation now. 0; FL_ENOTHELD when the lock is lost. FL_TOKEN_NONE for
 * a session. */
FL_API int fl_lock_token(fl_lock *lock, fl_token *ret) FL_MUST_USE;

FL_API enum fl_hold_state fl_lock_state(fl_lock *lock);
FL_API enum fl_lost_reason fl_lock_reason(fl_lock *lock);
FL_API uint64_t fl_lock_remaining_ms(fl_lock *lock); /* 0 when lost */
/* The time, on fl_now_ms()'s clock, when it is lost unless it is renewed before. */
FL_API uint64_t fl_lock_deadline_ms(fl_lock *lock);
FL_API uint64_t fl_lock_ttl_ms(const fl_lock *lock);
/* The token of its grant, lost or not: for a log, never for a write. */
FL_API fl_token fl_lock_granted(const fl_lock *lock);
/* Its name; of a session, its owner. Valid until it is freed. */
FL_API struct fl_bytes fl_lock_name(const fl_lock *lock);

/* "safe", "jeopardy", "lost"; a sentence for the reason. Never NULL. */
FL_API const char *fl_hold_state_name(enum fl_hold_state state);
FL_API const char *fl_lost_reason_text(enum fl_lost_reason reason);

/* Releases the lock, or closes the session with all its locks, and frees it, whatever the result.
 * May be called for one that is lost: what another holder has is not released. 0; FL_ENOTHELD (it
 * was not held any more; FL_ENOSESSION for a session); FL_EUNCERTAIN, see above; others as
 * fl_lock_take(): it ends with its lease. A program that ends has no use for the result. */
FL_API int fl_lock_release(fl_lock *lock);
FL_API int fl_lock_release_within(fl_lock *lock, uint64_t timeout_ms) FL_MUST_USE;

/* Stops renewing, and frees. Does not release the lock: it ends with its lease, and the locks of a
 * session with that. NULL is fine. */
FL_API void fl_lock_free(fl_lock *lock);

/* After an fl_lock_take() that ended with FL_EUNCERTAIN, for a program that does not want the lock
 * any more: sees to it that no attempt of this owner holds the lock, waits for it, or takes it
 * later. options: those of the take, which must name the owner or a session. 0: that is so; other
 * results as fl_lock_take(): it may still be held until its TTL is over. It releases what this
 * owner holds. A client that is closed settles nothing by itself. */
FL_API int fl_settle(fl_client *c, const char *name, const struct fl_take *options,
                     uint64_t timeout_ms) FL_MUST_USE;

/* Opens a session, a lease under which many locks may be held (fl_take.session), and keeps it
 * renewed. NULL: the defaults. Of the options it takes ttl_ms, lockdelay_ms, timeout_ms, owner
 * (empty: 32 hex digits of 128 random bits, new for each session), value (its label: at most
 * FL_LABEL_MAX bytes, for people), max_hold_ms, reserve_ms, and on_change. With the owner of a live
 * session it renews that one. 0; FL_ELIMIT, FL_EINVAL, and others as fl_lock_take(). */
FL_API int fl_session_open(fl_client *c, const struct fl_take *options, fl_lock **ret) FL_MUST_USE;

/* ---- information ----------------------------------------------------------------------------- */

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
    const struct fl_session_info *const *sessions;
    size_t len;
    struct fl_bytes cursor; /* of the next page; empty at the end */
};

FL_API void fl_session_list_free(struct fl_session_list *list); /* NULL is fine */

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
 * several holders, FL_ASK_SHOW has the oldest here and all of them in held_by; FL_ASK_LOCKS lists
 * the lock once for each holder. */
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
    const struct fl_waiter *const *queue; /* the next one first; FL_ASK_SHOW only */
    size_t queue_len;
    enum fl_mode mode; /* meaningless when nobody holds it */
    uint64_t permits;
    uint64_t holders;
    uint64_t together;                      /* number of locks of this grant */
    const struct fl_holder *const *held_by; /* oldest first; FL_ASK_SHOW only */
    size_t held_by_len;
    /* From FL_ASK_BUSIEST only, which fills in these fields and the name. */
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
    const struct fl_lock_info *const *locks;
    size_t len;
    struct fl_bytes cursor; /* of the next page; empty at the end */
};

FL_API void fl_lock_list_free(struct fl_lock_list *list); /* NULL is fine */

/* ---- asking ----------------------------------------------------------------------------------
 *
 * About locks whose tokens others hold, and what there is. */

enum fl_asked {
    /* Makes the lease of name and token last ttl_ms from now on, 0: its old TTL. The result's
     * deadline_ms is when it must not be believed in any more, 0 when its TTL is not known here.
     * FL_ENOTHELD. */
    FL_ASK_RENEW,
    /* Releases name and token. FL_ENOTHELD (it was not held under this token); FL_EUNCERTAIN, see
     * above. */
    FL_ASK_RELEASE,
    /* Whether the lock is held under exactly this token: 0 (yes), FL_ENOTHELD (no). The answer may
     * be out of date when it arrives: only the storage's check protects data. */
    FL_ASK_CHECK,
    /* Issues a token without a lock, larger than all before: for Redlock, or an election of your
     * own. name says for what. */
    FL_ASK_TOKEN,
    /* For operators: takes the lock from its holders and burns a token, larger than theirs and
     * smaller than any granted later. The holders can still write until a storage has seen a newer
     * token: claim there with the result's, which never shuts out a successor. FL_ENOTHELD (it was
     * not held); FL_EUNCERTAIN (not repeated). */
    FL_ASK_BREAK,
    /* Reads one lock into a list of one; FL_ENOTFOUND when it is neither held, awaited nor delayed.
     * Of many holders and waiting requests it has only the first, 1000 and 64 KiB together. */
    FL_ASK_SHOW,
    /* Reads a page of locks. name: a glob, empty for all; cursor: from the page before, empty at
     * first; count: at most this many, 0 for the server's default. */
    FL_ASK_LOCKS,
    /* Reads the locks that were waited for most, in the whole cluster, the first one the most.
     * Waits that have ended count, since the answering node began to apply its log. count: at most
     * this many, 0 for the server's default. */
    FL_ASK_BUSIEST,
    FL_ASK_SESSIONS, /* reads a page of the open sessions, oldest first; as FL_ASK_LOCKS */
};

struct fl_ask {
    enum fl_asked what;
    struct fl_bytes name;
    fl_token token;
    uint64_t ttl_ms;
    uint64_t timeout_ms;
    struct fl_bytes cursor;
    uint64_t count;
};

/* How a call ended: valid in the callback only, or until fl_client_error() is not. What is not said
 * is 0 or NULL. */
struct fl_result {
    int status;
    const char *error; /* a sentence; "" after success */
    fl_lock *lock;     /* the callback's: it must be ended */
    fl_token token;    /* of the lock; issued; or burnt */
    uint64_t deadline_ms;
    struct fl_lock_list *locks;       /* of fl_ask() its caller's, in a callback the library's */
    struct fl_session_list *sessions; /* likewise */
    struct fl_redlock_report *report; /* of redlock.h; the library's */
};

/* 0, and what `what` says; other results as fl_lock_take(). */
FL_API int fl_ask(fl_client *c, const struct fl_ask *ask, struct fl_result *ret) FL_MUST_USE;

/* ---- nodes ----------------------------------------------------------------------------------- */

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

/* Asks this node and no other. size: sizeof *ret, as the program was compiled. 0; FL_ENOCONN,
 * FL_ETIMEOUT, FL_EPROTO, FL_EINVAL (no such node, or a timeout above FL_TIMEOUT_MAX_MS). */
FL_API int fl_node_ask(fl_client *c, size_t index, uint64_t timeout_ms, struct fl_node_status *ret,
                       size_t size) FL_MUST_USE;

/* Takes a backup of one node's state (docs/operations/backup.md), without delaying other clients,
 * and gives its bytes to `sink` in order. If the sink returns anything but 0, that ends the backup
 * and is the result. Needs the right @admin. timeout_ms: of each step, but for the first piece, for
 * which the node writes its state and may take any time. 0; FL_EBUSY: the node is making another
 * one; FL_ENOLEADER: it hears no leader; FL_EDENIED, FL_ENOCONN, FL_ETIMEOUT, FL_EPROTO, FL_EINVAL
 * (no such node, or it failed there: fl_client_error() says why). */
FL_API int fl_backup(fl_client *c, size_t node, uint64_t timeout_ms,
                     int (*sink)(void *arg, const void *data, size_t len), void *arg) FL_MUST_USE;

/* ---- the cluster -----------------------------------------------------------------------------
 *
 * For operators: docs/operations/members.md. All but fl_members() need the right @admin. A
 * change is in the log when its call returns 0, and every leader from then on carries it out:
 * fl_members() shows how far it is. Each may be made again after FL_EUNCERTAIN, with the same
 * effect as once. FL_EDENIED: the leader refuses it, and fl_client_error() says why. Other results
 * as fl_lock_take(). */

/* A member of the cluster. Unknown is 0 or "". */
struct fl_member {
    uint64_t id;
    const char *role;           /* "leader", "follower" */
    const char *state;          /* "voter", "learner"; or what it is about to be: "joining" ... */
    const char *peer_address;   /* for the other nodes */
    const char *client_address; /* for clients */
    const char *incarnation;    /* of its data directory: fl_member_change() */
    uint64_t version;           /* the newest that it knows */
    uint64_t starts;
    bool connected; /* to the leader */
};

struct fl_member_list {
    const struct fl_member *const *members;
    size_t len;
};

/* Reads the members from the leader, if there is one, and otherwise from any node. */
FL_API int fl_members(fl_client *c, uint64_t timeout_ms, struct fl_member_list **ret) FL_MUST_USE;
FL_API void fl_member_list_free(struct fl_member_list *list); /* NULL is fine */

enum fl_change {
    FL_CHANGE_ADD,      /* makes a node that was started with --join a member */
    FL_CHANGE_REMOVE,   /* takes a member out */
    FL_CHANGE_REPLACE,  /* puts a node with an empty data directory in the member's place */
    FL_CHANGE_MOVE,     /* gives the member another address */
    FL_CHANGE_TRANSFER, /* hands leadership to it; id 0: to the one that is best prepared */
};

struct fl_member_change {
    uint64_t id;
    const char *peer_address; /* ADD, MOVE; REPLACE: NULL keeps it */
    const char *incarnation;  /* REPLACE: that which is to be replaced, so that the one in its place
                                 never is; NULL: any */
    bool learner;             /* ADD: without a vote */
    bool force;               /* also when the majority is lost by it */
};

FL_API int fl_member_change(fl_client *c, enum fl_change what,
                            const struct fl_member_change *change, uint64_t timeout_ms) FL_MUST_USE;

/* ---- events ---------------------------------------------------------------------------------- */

#define FL_WATCH_NAMES_MAX 256u
#define FL_WATCH_PATTERNS_MAX 16u
#define FL_WATCH_QUIET_DEFAULT_MS UINT64_C(2000)

enum fl_event_kind {
    FL_EVENT_OTHER,    /* one that this version does not know */
    FL_EVENT_GRANTED,  /* owner, token; wait, if it comes out of the queue */
    FL_EVENT_QUEUED,   /* owner, wait */
    FL_EVENT_RELEASED, /* owner, token: which it had, as of the next two */
    FL_EVENT_EXPIRED,
    FL_EVENT_BROKEN,
    FL_EVENT_LEFT,        /* a wait ended without a grant: owner, wait, reason */
    FL_EVENT_MISSED,      /* the node has skipped events, of all names when there is none here */
    FL_EVENT_LISTENS,     /* from now on events come from `node`. Earlier ones may be missed */
    FL_EVENT_INTERRUPTED, /* none come until the next FL_EVENT_LISTENS: status, text. The library
                             goes on trying, at one node after the other */
};

/* The library's. What is not said is 0, empty or "". */
struct fl_event {
    enum fl_event_kind kind;
    int status;
    const char *word; /* "granted", as the node says it */
    const char *text; /* all that the node says; FL_EVENT_INTERRUPTED: why, in a sentence */
    const char *node; /* its address */
    const char *reason;
    struct fl_bytes name;
    struct fl_bytes owner;
    fl_token token;
    uint64_t wait;     /* the number of this wait, which no other has, ever */
    uint64_t clock_ms; /* the cluster's */
};

struct fl_watch_options {
    const struct fl_bytes *names; /* of locks, at most FL_WATCH_NAMES_MAX, any bytes */
    size_t names_len;
    const struct fl_bytes *patterns; /* globs, with `pattern` at most FL_WATCH_PATTERNS_MAX */
    size_t patterns_len;
    /* When nothing has come for so long, the node is asked whether it is there, and in touch with a
     * leader. Also the longest pause between attempts. 0: FL_WATCH_QUIET_DEFAULT_MS */
    uint64_t quiet_ms;
    uint64_t reserved[8];
};

/* Listens to the events of these locks, in the order of the log, at any of the nodes, which need
 * not be the leader. pattern: a glob as in FL_ASK_LOCKS, may be NULL when the options name locks.
 *
 * Events are missed while there is no connection, and by a program that is so slow that the node
 * cuts it off: who keeps account of a lock asks FL_ASK_SHOW after each FL_EVENT_LISTENS and
 * FL_EVENT_MISSED. A node that has just been started tells of the last ones once more. Nothing is
 * kept here but one event, so memory does not grow; what is not fetched waits at the node. 0;
 * FL_EINVAL; FL_ENOMEM. Whether a node can be reached is told by events. */
FL_API int fl_watch_open(fl_client *c, const char *pattern, const struct fl_watch_options *options,
                         fl_watch **ret) FL_MUST_USE;

/* Waits for the next event. *ret is valid until this watch is used again. One thread at a time. 0;
 * FL_ETIMEOUT; FL_EINVAL (the client is closed, or the watch was inherited over
 * a fork()); FL_EBUSY (another thread waits); FL_EUNCERTAIN (interrupted by fl_close()). */
FL_API int fl_watch_next(fl_watch *watch, uint64_t timeout_ms,
                         const struct fl_event **ret) FL_MUST_USE;

/* The same without waiting: NULL when there is none. With own_loop: call it after fl_process()
 * until there is none. */
FL_API const struct fl_event *fl_watch_poll(fl_watch *watch);

/* Ends it, before or after its client. NULL is fine. */
FL_API void fl_watch_close(fl_watch *watch);

/* ---- calls that call back --------------------------------------------------------------------
 *
 * They return at once. 0: done() is called exactly once, unless the call is cancelled or the client
 * is closed; see "Callbacks" above. After another result it is not called. ret_call may be NULL. */

typedef uint64_t fl_call; /* the number of a call, above 0; no other call of its client has it */

typedef void (*fl_done)(void *arg, const struct fl_result *result);

FL_API int fl_lock_take_start(fl_client *c, const char *name, const struct fl_take *options,
                              fl_done done, void *arg, fl_call *ret_call) FL_MUST_USE;
FL_API int fl_session_open_start(fl_client *c, const struct fl_take *options, fl_done done,
                                 void *arg, fl_call *ret_call) FL_MUST_USE;
/* The lock is ended and freed at once, whatever the result; done may be NULL. */
FL_API int fl_lock_release_start(fl_lock *lock, uint64_t timeout_ms, fl_done done,
                                 void *arg) FL_MUST_USE;
/* Asks as fl_ask() does. */
FL_API int fl_ask_start(fl_client *c, const struct fl_ask *ask, fl_done done, void *arg,
                        fl_call *ret_call) FL_MUST_USE;

/* Ends a call without its callback; it may have ended already. A wait is given up; a lock that was
 * just granted is released; another request that was sent may have been done. */
FL_API void fl_call_cancel(fl_client *c, fl_call call);

#ifdef __cplusplus
}
#endif
#endif
