/* parked.h: requests that wait for the grant of a lock, found by the id of their wait.
 *
 * ACQUIRE ... WAIT that was answered QUEUED is parked here until an event with the same wait id
 * comes: GRANTED or WAIT_ENDED. Ids are unique for ever, so an old event cannot answer a new wait.
 * What makes it less simple than it sounds:
 *
 *   - Several requests may be parked on one wait (the same owner asked again on another
 *     connection). One event answers all of them.
 *   - An event may come twice (from the leader ahead of the log, and from the log). Only the first
 *     finds anybody.
 *   - An event may come before the QUEUED that announces its wait (the log was faster than the
 *     link to the leader). While answers to such requests are outstanding, events that nobody waits
 *     for are remembered in a ring, and parked_add looks there first.
 *   - Nothing may ever come (the link broke at the wrong moment, a snapshot jumped over the event).
 *     Each request therefore has a deadline of its own, and those whose events a snapshot jumped
 *     over are due at once.
 *   - The client may leave. The wait is to be given up when the last one that still cares left.
 *
 * Pure: time comes as an argument. The memory of a request is the caller's. */
#ifndef SERVER_PARKED_H
#define SERVER_PARKED_H

#include <stdbool.h>

#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"

#define PARKED_RING 4096u /* events remembered */

enum parked_end { PARKED_WAITING = 0, PARKED_GRANTED, PARKED_ENDED };

/* How a wait ended. */
struct parked_news {
    enum parked_end end;
    uint8_t reason; /* ENDED: enum machine_reason */
    uint64_t wait;
    uint64_t token; /* GRANTED */
};

struct parked_wait;

struct parked_request {
    struct fli_list link; /* of its wait */
    struct fli_heap_node timer;
    struct parked_wait *wait; /* NULL while not parked */
    uint64_t deadline_ms;
    uint64_t order; /* breaks ties of deadlines: first come */
    bool live;      /* its client still cares */
};

struct parked {
    struct fli_map waits;
    struct fli_heap timers;
    struct fli_list spare; /* waits to be used again */
    uint64_t order;
    size_t len;          /* requests parked */
    unsigned unanswered; /* requests whose answer may still be QUEUED */
    uint64_t events;     /* events put into the ring, ever */
    struct parked_news ring[PARKED_RING];
};

void parked_init(struct parked *p, const uint64_t seed[2]);
void parked_fini(struct parked *p); /* nothing may be parked */

/* Around the time between sending a request and its answer. The first returns a mark to give to
 * parked_add. */
uint64_t parked_request_sent(struct parked *p);
void parked_request_answered(struct parked *p);

/* Parks a request, or says that the wait has ended already (then it is not parked). `asking` is the
 * number that QUEUED gave. */
struct parked_news parked_add(struct parked *p, struct parked_request *r, uint64_t wait,
                              uint64_t times_asked, uint64_t mark, uint64_t deadline_ms);

/* The client of a parked request no longer cares; the request stays parked. True when no other on
 * this wait does either: then the wait should be cancelled, under the number in *ret_times_asked
 * (the highest one known, or the cancel would be taken for an old one). False too when it had left
 * before. */
bool parked_leave(struct parked *p, struct parked_request *r, uint64_t *ret_times_asked);

/* The id of the wait it is parked on. */
uint64_t parked_wait_id(const struct parked_request *r);

void parked_remove(struct parked *p, struct parked_request *r);

/* The first of the requests that an event answers, removed; NULL when there is none (left). Call it
 * until then, and parked_remember() when even the first call gave none. */
struct parked_request *parked_take(struct parked *p, uint64_t wait);
void parked_remember(struct parked *p, const struct parked_news *news);

/* The next request whose deadline is due, removed; NULL when none is. */
struct parked_request *parked_take_due(struct parked *p, uint64_t now_ms);
/* Events were skipped: makes the requests due at once whose wait does not go on. */
void parked_skipped(struct parked *p, bool (*goes_on)(void *ctx, uint64_t wait), void *ctx);
/* Any request, removed; NULL when there is none. */
struct parked_request *parked_take_any(struct parked *p);
uint64_t parked_next_deadline(const struct parked *p); /* UINT64_MAX when nothing is parked */

#endif
