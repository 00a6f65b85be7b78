/* op_private.h: an op is one call of the user's: acquire, extend or release, with its requests to
 * servers. Shared by op.c and request.c.
 *
 * An op has a reference for its caller, for each request without an answer, and for the issuer
 * of a token while that may call back. An answer that comes after the end of the op changes
 * nothing but the report. */
#ifndef FLI_REDLOCK_OP_PRIVATE_H
#define FLI_REDLOCK_OP_PRIVATE_H

#include "redlock/redlock_private.h"

enum fli_op_state {
    OP_CONNECTING, /* the first connections of the handle are still being made */
    OP_ATTEMPT,
    OP_ISSUING, /* the quorum is held, and the token has not come yet */
    OP_PAUSE,   /* the pause before the next attempt */
    OP_ENDED
};

struct fli_redlock_op;

enum fli_op_request_kind { REQUEST_SET, REQUEST_EXTEND, REQUEST_RELEASE };

struct fli_op_request {
    struct fli_redis_request base;
    struct fli_redlock_op *op;
    enum fli_op_request_kind kind;
    bool counts;             /* the attempt waits for the answer */
    bool by_text;            /* as fli_put_extend(): EVAL, not EVALSHA */
    bool is_own;             /* one of op->own, not allocated */
    bool is_used;            /* with is_own: a request is in it */
    enum fli_delete_how how; /* how a release deletes the key */
    uint32_t index;
    uint32_t serial;     /* number of the attempt */
    uint64_t give_up_ms; /* a release is not sent after that: the TTL has ended */
    uint64_t ttl_ms;
    char value[FL_REDLOCK_VALUE_LEN + 1];
};

struct fli_redlock_op {
    struct fli_list node;
    struct fli_due due;
    struct fli_note note;
    struct fl_redlock *r; /* NULL: the handle was freed */
    uint32_t refs;
    uint64_t id;
    enum fli_op_state state;
    struct fli_attempt attempt;
    uint64_t began_ns;
    uint64_t until_ms; /* no attempt begins after that */
    uint64_t ttl_ms;
    uint64_t min_validity_ms;
    struct fl_redlock_lock lock; /* the lock to be acquired, extended or released */
    fl_redlock_issue_start *issue;
    void *issue_ctx;
    uint32_t deferred;     /* servers that get the release when they are ready again; a bit each */
    uint32_t issue_serial; /* the attempt that waits for a token; 0: none does */

    fl_redlock_done *done;
    void *ctx;
    int result;
    struct fl_redlock_report report;
    size_t name_len;
    size_t key_len;
    char name[FL_NAME_MAX];
    char key[FLI_REDIS_KEY_MAX];
    struct fli_op_request own[]; /* one for each server; an op seldom needs more */
};

/* ---- request.c: what is said to servers ------------------------------------------------------ */

void fli_op_unref(struct fli_redlock_op *op);

/* Sends server i, which is ready, the request of the attempt. 0, FL_EBUSY, FL_ENOMEM. */
int fli_op_ask(struct fli_redlock_op *op, uint32_t i, uint64_t now_ns) FLI_MUST_USE;

/* Releases what the attempt may have set. To a server that has not answered yet the release goes
 * right behind the request; to one that is down, when it is ready again. */
void fli_op_release(struct fli_redlock_op *op, uint32_t servers);

/* Keeps the release for a server that is down until it is ready again. */
void fli_op_defer_release(struct fli_redlock_op *op, uint32_t i);

/* The server is ready: sends it the releases that were kept for it. */
void fli_op_send_deferred(struct fli_server *s);

/* ---- op.c: called by request.c --------------------------------------------------------------- */

/* The attempt has taken an answer, with this verdict: goes on with the op. */
void fli_op_after(struct fli_redlock_op *op, enum fli_verdict verdict, uint64_t now_ms);

#endif
