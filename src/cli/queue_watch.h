/* queue_watch.h: the place of a waiter in the queue of its lock, for `fencelock run`.
 *
 * It listens to the events of the lock, asks once who is in the queue (SHOW), and then keeps that
 * list by the events: a thousand waiters ask a thousand times, and not a thousand times a second.
 * Of an owner the last event decides, so those that the answer had counted already do no harm. When
 * events may have been missed it begins anew, each time after a longer pause.
 *
 * Nothing here waits. One thread. */
#ifndef CLI_QUEUE_WATCH_H
#define CLI_QUEUE_WATCH_H

#include "cli/fencelock_common.h"
#include "fencelock/client.h"

struct queue_watch {
    struct fl_bytes lock, owner; /* that of the waiter */
    fl_client *client;           /* with a loop of its own */
    /* That request had no answer; NULL error: it has one again. */
    void (*on_silence)(void *ctx, int status, const char *error);
    void *ctx;
    /* private */
    uint64_t next_ms; /* when to begin to listen, or to ask again; 0: not at all */
    uint64_t pause_ms;
    fl_watch *events;
    bool listens;
    fl_call showing;     /* who is in the queue */
    bool known;          /* that was answered, and nothing was missed since */
    struct fli_buf list; /* of numbers of owners, from the first on */
    uint64_t beyond;     /* waiters behind those of the list */
};

/* Asks nobody yet. The caller has set the members above, and the others to zero, which is a watch
 * that does nothing. */
void queue_watch_begin(struct queue_watch *w);
void queue_watch_end(struct queue_watch *w); /* ending twice is fine */

/* After each fl_process(), and at that time; UINT64_MAX: never. */
void queue_watch_process(struct queue_watch *w);
uint64_t queue_watch_next_ms(const struct queue_watch *w);

/* False: not known. */
bool queue_watch_place(const struct queue_watch *w, uint64_t *ret_place, uint64_t *ret_waiters);

#endif
