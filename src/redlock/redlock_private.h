/* redlock_private.h: what the files of a client of Redis servers share.
 *
 *   redlock.c    opening: options, servers
 *   op.c         acquire, extend, release as a series of attempts
 *   request.c    their requests
 *   check.c      the check of the servers
 *
 * Such a client is one as any other (client/handle.h): its calls, held locks, renewals, thread and
 * callbacks are those of src/client. Only, its engine hands its calls to the functions here instead
 * of sending them to the nodes of a cluster. All of this is under the mutex of the client. */
#ifndef FLI_REDLOCK_PRIVATE_H
#define FLI_REDLOCK_PRIVATE_H

#include "base/list.h"
#include "redlock/attempt.h"
#include "redlock/server.h"

#define FLI_REDIS_KEY_MAX (FL_REDLOCK_KEY_FORMAT_MAX + FL_NAME_MAX)
#define FLI_OP_TEXT_MAX ((size_t)2048) /* a request with the longest key and the longer script */

struct fli_redlock {
    struct fli_backend backend;
    struct fli_engine *engine;
    uint32_t n;
    struct fli_server servers[FL_REDLOCK_SERVERS_MAX];

    char *user; /* or NULL */
    char *password;
    uint32_t database;
    bool restarts_are_safe;
    uint64_t connect_ms, hung_ms, max_ttl_ms;
    uint64_t budget_ms;
    uint64_t retry_ms;
    uint64_t retry_cap_ms;
    char prefix[FL_REDLOCK_KEY_FORMAT_MAX + 1]; /* the part of the key format before the name */
    char suffix[FL_REDLOCK_KEY_FORMAT_MAX + 1];

    struct fli_list ops;
    struct fli_list checks;
    struct fli_list tickets; /* of tokens that have not come yet */
    struct fli_buf text;     /* room for one request */

    /* Asks for a token, and calls done() later, never from inside. NULL: locks have none. */
    int (*issue)(struct fli_redlock *r, struct fl_bytes name, uint64_t timeout_ms, fl_done done,
                 void *arg, fl_call *ret_call);
    fl_client *tokens;
};

/* An op is one call: acquire, extend or release, as a series of attempts. It is its call's, which
 * frees it. An answer or a token that comes after the end of its attempt finds no op. */
enum fli_op_state {
    OP_ATTEMPT,
    OP_ISSUING, /* the quorum is held, and the token has not come yet */
    OP_ISSUED,  /* it has come, or cannot: the engine's turn goes on with it */
    OP_PAUSE,   /* the next attempt is due; before the first one, connections are being made */
    OP_ENDED
};

struct fli_ticket;

struct fli_redlock_op {
    struct fli_list in;       /* the client's ops, but for those that have ended */
    struct fli_list requests; /* of the last attempt, which have no answer */
    struct fli_redlock *r;
    struct fl_call *call;
    struct fli_ticket *ticket; /* OP_ISSUING: where the token comes */
    enum fli_op_state state;
    struct fli_attempt attempt;
    uint64_t began_ns;
    uint64_t until_ms; /* no attempt begins after that */
    uint64_t ttl_ms;
    uint64_t min_validity_ms;
    uint64_t deadline_ms; /* of the lock that it has got, or made longer */
    char value[FL_REDLOCK_VALUE_LEN + 1];
    int issued; /* OP_ISSUED: what the issuer said; if not 0, report->text says why */
    fl_token token;
    struct fl_redlock_report *report; /* NULL once it has ended */
    uint32_t attempts;
};

/* ---- redlock.c ------------------------------------------------------------------------------- */

struct fli_redlock *fli_redlock_of(fl_client *c);
/* As fli_client_enter(); FL_EINVAL also for a client of a cluster. */
int fli_redlock_enter(fl_client *c) FLI_MUST_USE;
/* It is ready, or down. */
void fli_server_changed(struct fli_server *s);
size_t fli_make_key(const struct fli_redlock *r, struct fl_bytes name, char *key);

/* ---- op.c ------------------------------------------------------------------------------------ */

extern const struct fli_backend fli_op_backend; /* all of it but fini() */
void fli_ops_server_changed(struct fli_server *s);
/* The attempt has taken an answer, with this verdict: goes on with the op. */
void fli_op_after(struct fli_redlock_op *op, enum fli_verdict verdict, uint64_t now_ms);

/* ---- request.c: what is said to servers ------------------------------------------------------ */

/* Sends server i, which is ready, the request of the attempt. 0, FL_EBUSY, FL_ENOMEM. */
int fli_op_ask(struct fli_redlock_op *op, uint32_t i, uint64_t now_ns) FLI_MUST_USE;

/* The answers that have not come yet are not the attempt's any more. */
void fli_op_forget_answers(struct fli_redlock_op *op);

/* Releases what the call may have set on these servers, a bit each. To a server that has not
 * answered yet the release goes right behind the request; to one that is down, when it is ready
 * again. */
void fli_op_release(struct fli_redlock_op *op, uint32_t servers);

/* The server is ready: sends it the releases that were kept for it. */
void fli_op_send_deferred(struct fli_server *s);
void fli_deferred_drop(struct fli_server *s);

/* ---- check.c --------------------------------------------------------------------------------- */

void fli_checks_server_changed(struct fli_server *s);
void fli_checks_forget(struct fli_redlock *r); /* in a child: they are the parent's */

/* ---- text.c ---------------------------------------------------------------------------------- */

/* What became of the call, and what each server had to say. token_error: of the issuer, or NULL. */
void fli_redlock_explain(const struct fli_redlock *r, enum fli_attempt_kind kind, int result,
                         const char *token_error, struct fl_redlock_report *report);

#endif
