/* subscription.h: the events of locks, from whichever node sends them, for `watch` and `run`.
 *
 * It subscribes at one of the nodes. When that ends, hangs or sends nonsense, it goes to the next,
 * and pauses after each round of them, longer each time. What happened in between was missed.
 *
 * Nothing here waits, but for the names of the nodes. One thread. */
#ifndef CLI_SUBSCRIPTION_H
#define CLI_SUBSCRIPTION_H

#include <poll.h>

#include "cli/fencelock_common.h"
#include "cli/watch_event.h"
#include "client/place.h"

enum subscription_step {
    SUBSCRIPTION_OFF,
    SUBSCRIPTION_RESTS,
    SUBSCRIPTION_CONNECTS,
    SUBSCRIPTION_ASKS,
    SUBSCRIPTION_LISTENS,
};

enum subscription_news {
    SUBSCRIPTION_NOTHING,
    SUBSCRIPTION_BEGUN,  /* it listens now */
    SUBSCRIPTION_FAILED, /* it does not (any more), for the reason in `code` and `error` */
    SUBSCRIPTION_QUIET,  /* nothing has come for quiet_ms: it has sent a PING */
};

struct subscription {
    /* The owner sets these, and the others to zero: that is off. */
    void (*on_event)(void *ctx, const struct watch_event *e);
    void *ctx;
    uint64_t first_ms; /* before the first connection */
    uint64_t pause_ms, pause_max_ms;
    uint64_t quiet_ms;
    bool patterns;       /* words with * ? or [ are patterns, not names */
    bool resolves_again; /* names, at each connection; otherwise only at the beginning */
    /* for reading */
    enum subscription_step step;
    uint32_t at; /* the node */
    int code;
    char error[256];
    /* The owner may set it: then nothing is read, and no connection is begun. */
    bool holds;
    /* private */
    struct fli_link_security security;
    struct fli_place *places;
    uint32_t n_places, tried;
    struct fli_link link;
    uint64_t until_ms; /* of the step */
    struct fli_buf request;
    size_t sent;
    unsigned n_requests, confirmed;
    bool pinged; /* and no answer yet */
    bool more;   /* of what was read is left */
};

/* words: names of locks. 0, or the exit code after a sentence. */
int subscription_begin(struct subscription *s, const struct cli_args *a,
                       const struct cli_access *with, const char *const *words, unsigned n);
void subscription_end(struct subscription *s); /* ending twice is fine */

/* What to poll for, and until when; then process takes what has come, and calls on_event(). */
struct pollfd subscription_poll(const struct subscription *s);
uint64_t subscription_next_ms(const struct subscription *s);
enum subscription_news subscription_process(struct subscription *s);

/* Where it listens, or tried to. */
const char *subscription_node(const struct subscription *s);

/* The owner has found out that the node is of no use: it goes to the next. */
void subscription_fail(struct subscription *s, int code, const char *why);

#endif
