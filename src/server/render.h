/* render.h: answers of the machine and the node, as RESP. Pure. Every function appends one whole
 * reply and returns 0, FL_ELIMIT or FL_ENOMEM; after a failure the output is incomplete. */
#ifndef SERVER_RENDER_H
#define SERVER_RENDER_H

#include "node/node.h"
#include "machine/machine.h"
#include "metrics/busiest.h"
#include "wire/commands.h"

/* The answer to a command that the machine executed. `payload`: of a query, as in machine/view.h;
 * it may have come from another node and is checked. QUEUED has no answer of its own. */
int render_result(struct fli_buf *b, int proto, enum fli_command_id id,
                  const struct machine_result *result, struct fli_slice payload) FLI_MUST_USE;

/* The answer to a command that was not executed, or perhaps was: FL_ENOLEADER, FL_EBUSY,
 * FL_EUNCERTAIN. `retryable`: its sender can find out by sending it again. */
int render_failure(struct fli_buf *b, int status, bool retryable) FLI_MUST_USE;

/* The end of a wait: the token, or the reason why there is none. */
int render_granted(struct fli_buf *b, uint64_t token) FLI_MUST_USE;
int render_wait_ended(struct fli_buf *b, int proto, uint8_t reason) FLI_MUST_USE;

int render_leader(struct fli_buf *b, int proto, const struct node_status *status) FLI_MUST_USE;
/* LOCKS BY WAIT. */
int render_busiest(struct fli_buf *b, int proto, const struct busiest_entry *const *top,
                   unsigned n) FLI_MUST_USE;
int render_nodes(struct fli_buf *b, int proto, const struct node_member *members,
                 size_t n) FLI_MUST_USE;
int render_sentinel(struct fli_buf *b, int proto, uint64_t term, const struct node_member *members,
                    size_t n_members, const struct fli_slice *args, unsigned n) FLI_MUST_USE;

/* CLUSTER TRANSFER: 0 or a code of node_transfer. */
int render_transfer(struct fli_buf *b, int code, const struct node_status *status) FLI_MUST_USE;

/* CLUSTER ADD, REMOVE, REPLACE, MOVE: 0 or a code of node_change. */
int render_change(struct fli_buf *b, enum fli_command_id id, int code, uint64_t node,
                  const struct node_status *status) FLI_MUST_USE;

/* The text of an address as the machine keeps it (batch.h): HOST:PORT; "" for an empty one. */
#define RENDER_ADDRESS_MAX 64u
void render_address(struct fli_slice address, char out[RENDER_ADDRESS_MAX]);

#endif
