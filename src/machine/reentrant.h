/* reentrant.h (private to machine): locks that one owner may take several times, see reentrant.c;
 * and the state of a key, as these and KEYS (keys.c) see it. */
#ifndef MACHINE_REENTRANT_H
#define MACHINE_REENTRANT_H

#include "machine/machine.h"

#define HOLD_COUNT_SIZE 4u /* bytes of a count, in the place of the request's value */

struct request;

/* keys.c: the state of a key for one owner. OWN: *ret is the request with which the owner alone
 * holds it. */
enum machine_key_state { KEY_FREE, KEY_OWN, KEY_OTHER };
enum machine_key_state machine_key_find(struct machine *m, struct fli_slice name,
                                        struct fli_slice owner, struct request **ret);
/* Grants a free lock to the owner in the command; or answers which limit is reached. */
void machine_key_grant(struct machine *m, const struct machine_command *c, bool counted,
                       struct machine_result *r);
void machine_keys(struct machine *m, const struct machine_command *c, struct machine_result *r);
int machine_key(struct machine *m, const struct machine_command *q, struct machine_result *r,
                struct fli_buf *payload);

/* lock_request.c: how often a counted request was taken; 0 for others. */
uint32_t machine_request_count(const struct request *request);
void machine_request_set_count(struct request *request, uint32_t n);

/* reentrant.c: REENTER, LEAVE and HOLDS. */
void machine_reenter(struct machine *m, const struct machine_command *c, struct machine_result *r);
void machine_leave(struct machine *m, const struct machine_command *c, struct machine_result *r);
/* Answers the query HOLDS: as KEY does for one key and an owner. DONE: `number` is how often the
 * owner has taken the key. */
int machine_holds(struct machine *m, const struct machine_command *q, struct machine_result *r,
                  struct fli_buf *payload);

#endif
