/* strict.h: asks the lock service whether a token is still held.
 *
 * The client's engine (client/engine.h) asks: it finds the leader, and goes to the next node when
 * one cannot be reached or is silent for half the time allowed. The verdict HELD or NOTHELD is an
 * answer of the lock service that came after the question was asked and before its deadline. When
 * the deadline passes without one, the verdict is UNKNOWN.
 *
 * STRICT_WINDOW questions are under way; the others wait in their owners' memory, and are UNKNOWN
 * when their turn comes too late. One loop, one thread. */
#ifndef STORE_STRICT_H
#define STORE_STRICT_H

#include <uv.h>

#include "client/engine.h"

#define STRICT_WINDOW 64u
#define STRICT_TIMEOUT_DEFAULT_MS 1000u
#define STRICT_TIMEOUT_MIN_MS 10u
#define STRICT_TIMEOUT_MAX_MS 60000u

struct strict;

enum strict_verdict { STRICT_HELD, STRICT_NOTHELD, STRICT_UNKNOWN };

/* A question, embedded in its owner's memory, which must stay until the verdict. Zeros before. */
struct strict_question {
    struct fli_list link; /* private */
    struct strict *strict;
    struct fl_call *call; /* private; NULL: it waits for its turn, or is over */
    uint64_t due_ms;      /* until when an answer is good. Set by strict_ask() */
    struct fli_slice lock;
    fl_token token;
};

struct strict_config {
    const char *nodes;                /* HOST:PORT,HOST:PORT... (node.h of the client) */
    const struct fl_tls_options *tls; /* NULL: without TLS */
    const char *user, *password;      /* the login there; NULL for user: none. Copied */
    unsigned timeout_ms;              /* STRICT_TIMEOUT_MIN_MS to STRICT_TIMEOUT_MAX_MS */
    void *ctx;
    /* One for each question, never inside strict_ask(). */
    void (*verdict)(void *ctx, struct strict_question *question, enum strict_verdict verdict);
    void (*log)(void *ctx, int level, const char *message); /* levels as in node.h */
};

struct strict_counts {
    uint64_t checks;      /* questions asked */
    uint64_t refused;     /* the token was not held */
    uint64_t unreachable; /* no answer in time */
};

/* Resolves the names; connects at the first question. 0; FL_EINVAL; FL_ENOCONN; FL_ENOMEM;
 * FL_ESYSTEM; errmsg gets a sentence. */
int strict_create(uv_loop_t *loop, const struct strict_config *config, struct strict **ret,
                  char *errmsg, size_t errmsg_size) FLI_MUST_USE;

void strict_ask(struct strict *s, struct strict_question *question);

/* There will be no verdict on this open question, and its memory is its owner's again. */
void strict_cancel(struct strict *s, struct strict_question *question);

/* No question may be open; handles close in the loop. NULL is fine. */
void strict_destroy(struct strict *s);

struct strict_counts strict_get_counts(const struct strict *s);

#endif
