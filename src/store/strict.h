/* strict.h: asks the lock service whether a token is still held, for many operations at once.
 *
 * One connection to one node at a time, on the service's loop; CHECKs are pipelined on it. A node
 * that cannot be reached, breaks off, answers with an error or says nothing for half the time
 * allowed is given up for the next one, and what it left unanswered is asked there again: CHECK
 * changes nothing. When all nodes have failed in a row, pauses grow. A verdict HELD or NOTHELD was
 * given by the lock service after the question was put and before its time was up; when the time
 * is up without one the verdict is UNKNOWN.
 *
 * Limits: STRICT_WINDOW questions on the wire, the others wait here in memory of their owners;
 * STRICT_NODES_MAX nodes; an answer is one short line. One loop, one thread. */
#ifndef STORE_STRICT_H
#define STORE_STRICT_H

#include <uv.h>

#include "base/list.h"
#include "tls/tls.h"

#define STRICT_NODES_MAX 16u
#define STRICT_WINDOW 1024u
#define STRICT_TIMEOUT_DEFAULT_MS 1000u
#define STRICT_TIMEOUT_MIN_MS 10u
#define STRICT_TIMEOUT_MAX_MS 60000u

struct strict;

enum strict_verdict { STRICT_HELD, STRICT_NOTHELD, STRICT_UNKNOWN };

/* A question. It is part of its owner's memory and must stay until its verdict. */
struct strict_ask {
    struct fli_list link; /* private */
    uint64_t due_ms;      /* private */
    struct fli_slice lock;
    fl_token token;
};

struct strict_config {
    const char *nodes;                /* HOST:PORT,HOST:PORT... */
    const struct fli_tls_config *tls; /* of a client; NULL: without TLS */
    const char *user, *password;      /* who logs in there; NULL for user: nobody. Copied */
    unsigned timeout_ms;              /* STRICT_TIMEOUT_MIN_MS to STRICT_TIMEOUT_MAX_MS */
    void *ctx;
    /* Verdicts come in the order of the questions, each once, never inside strict_ask(). */
    void (*verdict)(void *ctx, struct strict_ask *ask, enum strict_verdict verdict);
    void (*log)(void *ctx, int level, const char *message); /* levels as in node.h */
};

struct strict_counts {
    uint64_t checks;      /* questions put */
    uint64_t refused;     /* the token was not held */
    uint64_t unreachable; /* no answer in time */
};

/* 0, or FL_EINVAL with a sentence in errmsg: an address is wrong, there is none, too many. */
int strict_check_nodes(const char *nodes, char *errmsg, size_t errmsg_size) FLI_MUST_USE;

/* Connects at the first question. With TLS each node must prove the host it is given with. 0;
 * FL_EINVAL; FL_ENOMEM. */
int strict_create(uv_loop_t *loop, const struct strict_config *config, struct strict **ret,
                  char *errmsg, size_t errmsg_size) FLI_MUST_USE;

void strict_ask(struct strict *s, struct strict_ask *ask);

/* Gives UNKNOWN, inside this call, to all that is asked. Nothing may be asked afterwards. */
void strict_stop(struct strict *s);

/* After stop, or when nothing was ever asked; handles close in the loop. NULL is fine. */
void strict_destroy(struct strict *s);

unsigned strict_timeout_ms(const struct strict *s);
struct strict_counts strict_get_counts(const struct strict *s);

#endif
