/* users.h: what users.c and users_load.c have of each other. Private to src/machine. */
#ifndef MACHINE_USERS_H
#define MACHINE_USERS_H

#include "machine/state.h"

/* A new user, which the machine owns from here on; another record for one that there is. */
void machine_user_insert(struct machine *m, struct user *u);
void machine_user_replace(struct machine *m, struct user *u, const struct acl_user *acl);

/* Frees those that `goes` names, in one pass; who asks is a node from here on if he is one. */
void machine_users_drop(struct machine *m, bool (*goes)(void *ctx, const struct user *u),
                        void *ctx);

/* What is told of a user who has changed, and what is done once all have. */
void machine_user_tell(struct machine *m, const struct user *u, enum machine_reason reason);
void machine_users_recheck(struct machine *m);

/* USERS_LOAD. */
void machine_users_replace(struct machine *m, const struct machine_command *c,
                           struct machine_result *r);

#endif
