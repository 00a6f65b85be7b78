/* signals.h: private to dispatch: BLPOP as python-redis-lock uses it, to wait on the key
 * lock-signal:X until the lock lock:X may be free. There is no list: the wait ends when the lock is
 * not held, when the end of its hold is seen in the local log, or at its timeout.
 *
 *   asked --(the lock is free, or its hold ends meanwhile)--------------------> answered
 *     `------(it is held)--> parked --(its end, the timeout)--> woken, over --> answered
 *
 * An event comes from inside apply and only moves calls on. Those that are woken, or whose time is
 * over, are answered by signals_turn(), DISPATCH_TOLD_MAX in a turn.
 *
 * All waiters of one lock are woken, since this node does not know which of them are still there.
 * Each then requests the lock as usual. Only this node knows of such a wait: it has no place in the
 * lock's queue. */
#ifndef SERVER_SIGNALS_H
#define SERVER_SIGNALS_H

#include "server/dispatch_private.h"

void signals_init(struct signals *s);
void signals_fini(struct signals *s); /* nothing may wait */

/* Takes a BLPOP; answers it now or later. */
void signals_request(struct dispatch *d, void *request, struct dispatch_slot *slot, int proto,
                     const struct fli_slice *args, unsigned n);

/* The parts of dispatch's functions of the same names for these waits. */
void signals_event(struct dispatch *d, const struct machine_event *event);
void signals_leave(struct call *c);      /* the client has hung up; or it is gone, and request is
                                            NULL */
bool signals_ends(const struct call *c); /* whether that ends the call: no query is under way */
void signals_turn(struct dispatch *d);
uint64_t signals_next_turn_ms(const struct dispatch *d);
void signals_wake_all(struct dispatch *d); /* events were skipped, or users changed */
void signals_stop(struct dispatch *d);     /* the node is about to stop: answers all at once */

#endif
