/* signals.h: private to dispatch: BLPOP as python-redis-lock uses it, which waits for the key
 * lock-signal:X until the lock lock:X may be free. There is no list behind it: the wait ends when
 * the lock is not held, or when its end is seen in the local log, or with its time.
 *
 *   asked --(the lock is free, or its end is seen meanwhile)--> answered
 *     `------(it is held)--> parked --(its end, the time)-----> answered
 *
 * All who wait for one lock are woken, since nobody knows which of them is still there; each then
 * asks for the lock as everybody does. A wait is known to this node only: it has no place in the
 * lock's queue. */
#ifndef SERVER_SIGNALS_H
#define SERVER_SIGNALS_H

#include "server/dispatch_private.h"

void signals_init(struct signals *s);

/* Takes a BLPOP; answers it now, or later. */
void signals_request(struct dispatch *d, void *request, struct dispatch_slot *slot, int proto,
                     const struct fli_slice *args, unsigned n);

/* What dispatch's functions of the same names do for those that wait. */
void signals_event(struct dispatch *d, const struct machine_event *event);
void signals_leave(struct call *c); /* the client has hung up; or gone, and request is NULL */
void signals_turn(struct dispatch *d);
void signals_wake_all(struct dispatch *d); /* events were skipped, or the node is about to stop */

#endif
