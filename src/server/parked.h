/* parked.h: requests that wait for the grant of a lock, found by the id of their wait.
 *
 * An ACQUIRE ... WAIT that was answered QUEUED is parked here until an event with the same wait id
 * comes: GRANTED or WAIT_ENDED. Ids are unique for ever, so an old event cannot answer a new wait.
 *
 *   (parked) --event--> (told: in line for its answer) --parked_take_told()--> taken
 *       `------------------------`---------- its deadline, its client leaves --^
 *
 * These cases have to be handled:
 *
 *   - Several requests may be parked on one wait (the same owner asked again on another
 *     connection). One event answers all of them, and these may be all requests of the node. An
 *     event comes from inside apply, so it only moves the wait to those that are told of. The
 *     caller takes some of their requests in each turn. Such waits take turns: who waits alone does
 *     not stand behind all who wait together.
 *   - An event may come twice (from the leader ahead of the log, and from the log). Only the first
 *     one finds a request.
 *   - An event may come before the QUEUED that announces its wait (the log was faster than the
 *     link to the leader), also when an earlier request is parked on the wait. While answers to
 *     such requests are outstanding, a ring records all events, and parked_add() looks there first:
 *     by the wait's id, since each QUEUED asks, and most come from inside apply. When the ring has
 *     lost events since a request was sent, the event of its wait may be one of them: nobody can
 *     tell its client how the wait has ended, which is said at once.
 *   - No event may ever come (the link broke at the wrong moment, a snapshot skipped the event).
 *     So each request has a deadline of its own, and those whose events a snapshot skipped are due
 *     at once.
 *   - The client may leave. The wait is given up when the last interested client has left.
 *
 * Pure: time comes as an argument. The memory of a request is the caller's. */
#ifndef SERVER_PARKED_H
#define SERVER_PARKED_H

#include <stdbool.h>

#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"

#define PARKED_RING 4096u      /* events recorded */
#define PARKED_SPARE_MAX 4096u /* waits kept for reuse */

enum parked_end { PARKED_WAITING = 0, PARKED_GRANTED, PARKED_ENDED };

/* How a wait ended. */
struct parked_news {
    enum parked_end end;
    uint8_t reason; /* ENDED: enum machine_reason */
    uint64_t wait;
    uint64_t token; /* GRANTED */
};

/* An event in the ring. */
struct parked_event {
    struct fli_map_node node; /* of parked->recent */
    struct parked_news news;
    uint64_t number;
    bool listed; /* in parked->recent: the newest of its wait */
};

struct parked_wait;

struct parked_request {
    struct fli_list link;     /* of its wait */
    struct fli_list verified; /* parked->verified or ->unverified */
    struct fli_heap_node timer;
    struct parked_wait *wait; /* NULL while not parked */
    uint64_t deadline_ms;
    uint64_t order; /* breaks ties of deadlines: first come */
    bool live;      /* its client is still interested */
};

struct parked {
    struct fli_map waits;
    struct fli_heap timers;
    struct fli_list told;  /* waits that have ended, while requests are parked on them */
    struct fli_list spare; /* waits for reuse */
    unsigned spare_n;
    struct fli_list verified;   /* requests */
    struct fli_list unverified; /* requests whose end may be among events that were skipped */
    uint64_t order;
    size_t len;          /* requests parked */
    unsigned unanswered; /* requests whose answer may still be QUEUED */
    uint64_t events;     /* events put into the ring, ever */
    struct fli_map recent;
    struct parked_event ring[PARKED_RING];
};

void parked_init(struct parked *p, const uint64_t seed[2]);
void parked_fini(struct parked *p); /* nothing may be parked */

/* Called when a request is sent and when it is answered. The first returns the number of the next
 * event, which parked_add() takes as `since`. */
uint64_t parked_request_sent(struct parked *p);
void parked_request_answered(struct parked *p);

/* Whether the ring still has all events from the one numbered `since` on. If not, the event of a
 * wait that is announced only now may be lost. */
bool parked_has_all(const struct parked *p, uint64_t since);

/* Parks a request, or returns how its wait has ended already (then it is not parked). times_asked
 * is the request count that QUEUED gave. */
struct parked_news parked_add(struct parked *p, struct parked_request *r, uint64_t wait,
                              uint64_t times_asked, uint64_t since, uint64_t deadline_ms);

/* The client of a parked request has left; the request stays parked. True when no other client is
 * interested in this wait: then the wait should be cancelled under *ret_times_asked, the highest
 * request count known (with a lower one the machine would ignore the cancel). False also when this
 * client had left before. Not for a request that is told: there is nothing to cancel. */
bool parked_leave(struct parked *p, struct parked_request *r, uint64_t *ret_times_asked);

/* Whether the wait has ended, and the request stands in line for its answer. */
bool parked_is_told(const struct parked_request *r);

/* Returns how the wait has ended; PARKED_WAITING: it has not, as far as this node has heard. */
struct parked_news parked_remove(struct parked *p, struct parked_request *r);

/* Takes an event, in constant time. parked_take_told() then removes and returns the requests that
 * events answer, one in each call; NULL when there is none. */
void parked_end(struct parked *p, const struct parked_news *news);
struct parked_request *parked_take_told(struct parked *p, struct parked_news *ret);

/* Removes and returns the next request whose deadline is due; NULL when none is. *ret: as from
 * parked_remove(). */
struct parked_request *parked_take_due(struct parked *p, uint64_t now_ms, struct parked_news *ret);
/* Events were skipped. parked_verify() then finds the requests whose wait does not go on, and makes
 * them due at once; it verifies `max` of them in one call. */
void parked_skipped(struct parked *p);
void parked_verify(struct parked *p, unsigned max, bool (*goes_on)(void *ctx, uint64_t wait),
                   void *ctx);
/* Removes and returns any request; NULL when there is none. */
struct parked_request *parked_take_any(struct parked *p, struct parked_news *ret);
/* UINT64_MAX when nothing is parked; 0 while some are to be verified or are told. */
uint64_t parked_next_deadline(const struct parked *p);

#endif
