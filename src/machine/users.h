/* users.h: functions that users.c and users_load.c share. Private to src/machine. */
#ifndef MACHINE_USERS_H
#define MACHINE_USERS_H

#include "machine/state.h"

/* Adds a new user, which the machine then owns; or gives an existing user another record. */
void machine_user_insert(struct machine *m, struct user *u);
void machine_user_replace(struct machine *m, struct user *u, const struct acl_user *acl);

/* Frees the users that `goes` selects, in one pass. If the sender is one of them, it counts as a
 * node from here on. */
void machine_users_drop(struct machine *m, bool (*goes)(void *ctx, const struct user *u),
                        void *ctx);

/* Whether this user is an administrator with the record `after`. A sender who keeps its login is
 * one without a password too: it has logged in with a certificate, unknown to the machine. */
bool machine_user_administers(const struct machine *m, const struct user *u,
                              const struct acl_user *after);

/* Emits the event for a changed user; and starts the check of waits once all are changed. */
void machine_user_event(struct machine *m, const struct user *u, enum machine_reason reason);
void machine_users_recheck(struct machine *m);

/* USERS_LOAD. */
void machine_users_replace(struct machine *m, const struct machine_command *c,
                           struct machine_result *r);

#endif
