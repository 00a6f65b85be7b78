/* strict.h: asks the lock service whether a token is still held, for many operations at once.
 *
 * One connection to one node at a time, on the service's loop; CHECKs are pipelined on it. A node
 * is given up for the next one when it cannot be reached, closes the connection, answers with an
 * error, or is silent for half the time allowed. What it left unanswered is asked again at the next
 * node, since CHECK changes nothing. When all nodes have failed in a row, pauses grow. The verdict
 * HELD or NOTHELD is an answer of the lock service that came after the question was sent and before
 * its deadline. When the deadline passes without one, the verdict is UNKNOWN.
 *
 * Limits: STRICT_WINDOW questions on the wire, the others wait in their owners' memory;
 * STRICT_NODES_MAX nodes; an answer is one short line; STRICT_LATE_MAX late questions in a turn.
 * One loop, one thread. */
#ifndef STORE_STRICT_H
#define STORE_STRICT_H

#include <uv.h>

#include "base/list.h"
#include "tls/tls.h"

#define STRICT_NODES_MAX 16u
#define STRICT_WINDOW 1024u
#define STRICT_LATE_MAX 2048u /* questions without an answer in time that one turn decides */
#define STRICT_TIMEOUT_DEFAULT_MS 1000u
#define STRICT_TIMEOUT_MIN_MS 10u
#define STRICT_TIMEOUT_MAX_MS 60000u

struct strict;

enum strict_verdict { STRICT_HELD, STRICT_NOTHELD, STRICT_UNKNOWN };

/* A question, embedded in its owner's memory, which must stay until the verdict. */
struct strict_question {
    struct fli_list link; /* private */
    uint64_t due_ms;      /* until when an answer is good; 0: not asked. Set by strict_ask() */
    uint64_t number;      /* private: of those sent; 0: not yet sent */
    struct fli_slice lock;
    fl_token token;
};

struct strict_config {
    const char *nodes;                /* HOST:PORT,HOST:PORT... */
    const struct fli_tls_config *tls; /* of a client; NULL: without TLS */
    const char *user, *password;      /* the login there; NULL for user: none. Copied */
    unsigned timeout_ms;              /* STRICT_TIMEOUT_MIN_MS to STRICT_TIMEOUT_MAX_MS */
    void *ctx;
    /* Verdicts come in the order of the questions, one for each, never inside strict_ask(). */
    void (*verdict)(void *ctx, struct strict_question *question, enum strict_verdict verdict);
    void (*log)(void *ctx, int level, const char *message); /* levels as in node.h */
};

struct strict_counts {
    uint64_t checks;      /* questions sent */
    uint64_t refused;     /* the token was not held */
    uint64_t unreachable; /* no answer in time */
};

/* 0, or FL_EINVAL with a sentence in errmsg: a wrong address, no address, or too many. */
int strict_check_nodes(const char *nodes, char *errmsg, size_t errmsg_size) FLI_MUST_USE;

/* Connects at the first question. With TLS, each node's certificate must have its host's name. 0;
 * FL_EINVAL; FL_ENOMEM. */
int strict_create(uv_loop_t *loop, const struct strict_config *config, struct strict **ret,
                  char *errmsg, size_t errmsg_size) FLI_MUST_USE;

void strict_ask(struct strict *s, struct strict_question *question);

/* There will be no verdict on this open question, and its memory is its owner's again. */
void strict_cancel(struct strict *s, struct strict_question *question);

/* Gives the verdict UNKNOWN, inside this call, to all open questions. None may be asked
 * afterwards. */
void strict_stop(struct strict *s);

/* After strict_stop(), or when nothing was ever asked; handles close in the loop. NULL is fine. */
void strict_destroy(struct strict *s);

unsigned strict_timeout_ms(const struct strict *s);
struct strict_counts strict_get_counts(const struct strict *s);

#endif
