/* op_private.h: calls and their requests; between op.c and request.c.
 *
 * An op lives as long as somebody may still call it back: its caller, each request without an
 * answer, the issuer of a token. What comes after its end changes nothing but the report. */
#ifndef FLI_REDLOCK_OP_PRIVATE_H
#define FLI_REDLOCK_OP_PRIVATE_H

#include "redlock/redlock_private.h"

enum fli_op_state {
    OP_CONNECTING, /* the first connections of the handle are being made */
    OP_ATTEMPT,
    OP_ISSUING, /* the quorum is held, a token is awaited */
    OP_PAUSE,   /* before the next attempt */
    OP_ENDED
};

struct fli_redlock_op;

enum fli_op_request_kind { REQUEST_SET, REQUEST_EXTEND, REQUEST_RELEASE };

struct fli_op_request {
    struct fli_redis_request base;
    struct fli_redlock_op *op;
    enum fli_op_request_kind kind;
    bool counts; /* the attempt waits for its answer */
    bool by_text;
    bool is_own; /* one of the op's */
    bool is_used;
    enum fli_delete_how how; /* of a release */
    uint32_t index;
    uint32_t serial; /* number of the attempt */
    uint64_t give_up_ms;
    uint64_t ttl_ms;
    char value[FL_REDLOCK_VALUE_LEN + 1];
};

struct fli_redlock_op {
    struct fli_list node;
    struct fli_due due;
    struct fli_note note;
    struct fl_redlock *r; /* NULL: the handle is gone */
    uint32_t refs;
    uint64_t id;
    enum fli_op_state state;
    struct fli_attempt attempt;
    uint64_t began_ns;
    uint64_t until_ms; /* no attempt begins later */
    uint64_t ttl_ms;
    uint64_t min_validity_ms;
    struct fl_redlock_lock lock; /* what is sought, extended or released */
    fl_redlock_issue_start *issue;
    void *issue_ctx;
    uint32_t owed;         /* bits of servers that get the release later */
    uint32_t issue_serial; /* of the attempt whose token is awaited; 0: none */

    fl_redlock_done *done;
    void *ctx;
    int result;
    struct fl_redlock_report report;
    size_t name_len;
    size_t key_len;
    char name[FL_NAME_MAX];
    char key[FLI_REDIS_KEY_MAX];
    struct fli_op_request own[]; /* one for each server: for most calls all that are needed */
};

/* ---- request.c: what is said to servers ------------------------------------------------------ */

void fli_op_unref(struct fli_redlock_op *op);

/* Asks server i, which is ready, for what the attempt wants. 0, FL_EBUSY, FL_ENOMEM. */
int fli_op_ask(struct fli_redlock_op *op, uint32_t i, uint64_t now_ns) FLI_MUST_USE;

/* Takes back what the attempt may have set: behind its request where that is on its way, else when
 * the server can be reached again. */
void fli_op_release(struct fli_redlock_op *op, uint32_t servers);

/* The release for a server that is down, for later. */
void fli_op_owe(struct fli_redlock_op *op, uint32_t i);

/* The server is ready: it gets the releases it is owed. */
void fli_op_pay(struct fli_server *s);

/* ---- op.c: called by request.c --------------------------------------------------------------- */

/* An answer has been taken into the attempt. */
void fli_op_after(struct fli_redlock_op *op, enum fli_verdict verdict, uint64_t now_ms);

#endif
