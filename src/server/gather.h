/* gather.h: private to dispatch: one request that becomes several independent commands and has one
 * answer, an array. Redisson prolongs the locks of a process in this way, each with its own owner.
 *
 *   whole (in flight, without a ticket) <-- part, part... (in line, then in flight; orphans)
 *
 * One request may be 120 commands, so a client could fill the node with what counts as few
 * requests. Therefore a whole has GATHER_WINDOW parts, and each goes on with the next lock when it
 * has its result. Until the answer, the client's connection takes no further request: so it has
 * no second whole, and in the log its commands keep their order. The connection is charged for the
 * parts and for the copy of the keys.
 *
 * The first part that fails ends it, as does a client that leaves. Parts that are in flight then
 * come back first. */
#ifndef SERVER_GATHER_H
#define SERVER_GATHER_H

#include "server/dispatch_private.h"

#define GATHER_WINDOW 16u /* parts of a whole */

/* Takes a request with keys of `each`; answers it later, or with an error now. */
void gather_request(struct dispatch *d, void *request, struct dispatch_slot *slot, int proto,
                    enum fli_command_id id, const struct frontdoor_request *q);

void gather_leave(struct call *whole); /* the client is gone */
void gather_turn(struct dispatch *d);  /* submits what is in line */

#endif
