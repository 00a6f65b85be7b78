/* rights.h: which right of a user (auth/file_users.h) each command needs. The rights are read,
 * write, claim and admin; the names are names of locks:
 *
 *   CLAIM lock token, GET key FENCE lock token    @claim (GET: @read as well) to the lock
 *   SET, DEL ... FENCE lock token                 @write to the lock
 *   MARK lock                                     @read to the lock
 *   GET key                                       @read to the lock that the key belongs to
 *   INFO, CLIENT LIST                             @admin */
#ifndef STORE_RIGHTS_H
#define STORE_RIGHTS_H

#include "auth/file_users.h"
#include "store/store.h"
#include "wire/request.h"

/* Whether the client may do it; if not, it was answered. Without users (NULL) everybody may.
 * rights_gate() checks commands that need ACL_ADMIN, rights_allow() those of the storage. A GET
 * without a lock is checked by the key that it finds (rights_may_know()). */
bool rights_gate(struct file_users *u, struct net_request *r, enum fli_command_id id);
bool rights_allow(struct file_users *u, struct net_request *r, const struct fli_request *q,
                  enum store_verb verb);
/* Whether the client may learn what was found: the lock that a key belongs to, and the value of a
 * GET without a lock. Only users who may read everything learn that a key does not exist. */
bool rights_may_know(const struct file_users *u, const struct net_conn *c,
                     const struct store_op *op);

#endif
