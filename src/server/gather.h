/* gather.h: private to dispatch: one request that becomes several independent commands and has one
 * answer, an array. Redisson prolongs the locks of a process in this way, each with its own owner.
 *
 *   whole (in flight, without a ticket) <-- part, part, part... (in flight, orphans)
 *
 * The answer is due when all parts have come back. In the log they keep their order. */
#ifndef SERVER_GATHER_H
#define SERVER_GATHER_H

#include "server/dispatch_private.h"

/* Takes a request of FACE_OP_RENEW_EACH; answers it later, or with an error now. */
void gather_request(struct dispatch *d, void *request, struct dispatch_slot *slot, int proto,
                    enum fli_command_id id, const struct face_request *q);

#endif
