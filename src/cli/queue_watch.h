/* queue_watch.h: the place of a waiter in the queue of its lock, for `fencelock run`.
 *
 * It listens to the events of the lock, asks once who is in the queue (SHOW), and then keeps that
 * list by the events: a thousand waiters ask a thousand times, and not a thousand times a second.
 * Of an owner the last event decides, so those that the answer had counted already do no harm. When
 * events may have been missed it asks again. It looks at events once a second at most: until then
 * they wait at the node.
 *
 * Nothing here waits. One thread. */
#ifndef CLI_QUEUE_WATCH_H
#define CLI_QUEUE_WATCH_H

#include "cli/fencelock_common.h"
#include "fencelock/client.h"

struct queue_watch {
    struct fl_bytes lock, owner; /* that of the waiter */
    fl_client *client;           /* with a loop of its own; NULL: a watch that does nothing */
    /* 0: the place may be another one. Or the question had no answer, and why. */
    void (*on_news)(void *ctx, int status, const char *error);
    void *ctx;
    /* private */
    uint64_t next_ms;  /* nothing is looked at before; 0: it has passed */
    uint64_t pause_ms; /* after a question without an answer */
    fl_watch *events;
    bool asks;           /* who is in the queue, next time */
    fl_call showing;     /* that question */
    struct fli_buf list; /* of numbers of owners, from the first on */
    uint64_t beyond;     /* waiters behind those of the list */
};

/* Asks nobody yet. The caller has set the members above, and the others to zero. */
void queue_watch_begin(struct queue_watch *w);
void queue_watch_end(struct queue_watch *w); /* ending twice is fine */

/* After each fl_process(), and at that time; UINT64_MAX: never. */
void queue_watch_process(struct queue_watch *w);
uint64_t queue_watch_next_ms(const struct queue_watch *w);

/* False: not known. */
bool queue_watch_place(const struct queue_watch *w, uint64_t *ret_place, uint64_t *ret_waiters);

#endif
