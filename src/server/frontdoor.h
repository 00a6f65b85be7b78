/* frontdoor.h: private to dispatch: requests of Redis clients about locks (src/frontdoor), from
 * words to a command of the machine and back. */
#ifndef SERVER_FRONTDOOR_H
#define SERVER_FRONTDOOR_H

#include "server/dispatch_private.h"

/* Takes a request of FLI_CMD_FRONTDOOR; answers it now or later. */
void dispatch_frontdoor(struct dispatch *d, void *request, struct dispatch_slot *slot, int proto,
                        enum fli_command_id id, const struct fli_slice *args, unsigned n);

/* SET ... GET of a key that has another value: whether the value is asked for, so that the call is
 * not answered yet. */
bool dispatch_frontdoor_goes_on(struct call *c, const struct machine_result *result);

/* Appends the answer of a call that dispatch_frontdoor() has submitted. */
int dispatch_frontdoor_render(struct fli_buf *b, const struct call *c,
                              const struct machine_result *result,
                              struct fli_slice payload) FLI_MUST_USE;

#endif
