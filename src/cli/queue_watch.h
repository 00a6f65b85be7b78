/* queue_watch.h: the place of a waiter in the queue of its lock, for `fencelock run`.
 *
 * It subscribes to the events of the lock, asks once who is in the queue (SHOW), and then keeps
 * that list by the events: a thousand waiters ask a thousand times, and not
 * a thousand times a second. Of an owner the last event decides, so those that the answer had
 * counted already do no harm. After a gap (the connection broke, or the node has skipped events) it
 * begins anew, each time after a longer pause.
 *
 * Nothing here waits, but for the names of the nodes, which are resolved at the beginning. One
 * thread. */
#ifndef CLI_QUEUE_WATCH_H
#define CLI_QUEUE_WATCH_H

#include "cli/subscription.h"
#include "fencelock/client.h"

struct queue_owner {
    size_t len;
    char data[FL_OWNER_MAX];
};

struct queue_watch {
    struct fl_bytes lock, owner; /* that of the waiter */
    fl_client *client;           /* that asks who is in the queue */
    /* That request had no answer; NULL error: it has one again. */
    void (*on_silence)(void *ctx, int status, const char *error);
    void *ctx;
    /* private */
    struct subscription events;
    fl_call *showing;         /* who is in the queue */
    bool known;               /* that was answered, and nothing was missed since */
    struct queue_owner *list; /* from the first on */
    size_t n_list, cap_list;
    uint64_t beyond; /* waiters behind those of the list */
};

/* Resolves the names, and asks nobody yet. The caller has set the members above, and the others to
 * zero, which is a watch that does nothing. 0, or the exit code after a sentence. */
int queue_watch_begin(struct queue_watch *w, const struct cli_args *a,
                      const struct cli_access *with);
void queue_watch_end(struct queue_watch *w); /* ending twice is fine */

/* When w->events has something to do (subscription_poll(), subscription_next_ms()). */
void queue_watch_process(struct queue_watch *w);

/* False: not known. */
bool queue_watch_place(const struct queue_watch *w, uint64_t *ret_place, uint64_t *ret_waiters);

#endif
