/* users.h: the rights of users at the storage, from a file of users (auth/aclfile.h, words of
 * machine/acl.h). The rights are read, write, claim and admin; the names are names of locks:
 *
 *   CLAIM lock token, GET key FENCE lock token    @claim (GET: @read as well) to the lock
 *   SET, DEL ... FENCE lock token                 @write to the lock
 *   MARK lock                                     @read to the lock
 *   GET key                                       @read to the lock that the key belongs to
 *   SET, DEL without a token (--no-fencing)       @write to every name
 *   INFO, CLIENT LIST                             @admin
 *
 * The file is read at the start and by users_reload(), as a whole: a wrong file changes nothing. A
 * login stays valid while the bytes of the user's switch and passwords are unchanged. A password in
 * clear gets another salt at each reading, so its users must log in again. Clients without a login
 * are the default user, if the file has it and it needs no password.
 *
 * One loop, one thread; a worker's thread makes hashes and reads the file. */
#ifndef STORE_USERS_H
#define STORE_USERS_H

#include "machine/acl.h"
#include "net/connection_commands.h"
#include "store/store.h"
#include "wire/request.h"

struct users;
struct users_login;

#define USERS_LOGINS_MAX 256u                        /* under way */
#define USERS_ADDRESS_MAX (USERS_LOGINS_MAX / 4 * 3) /* of the clients of one address */
#define USERS_USER_MAX (USERS_ADDRESS_MAX / 4 * 3)   /* of these, under one name */

struct users_config {
    uv_loop_t *loop;
    const char *path; /* must stay valid */
    enum fli_tls_user cert_users;
    const struct net_commands *commands;
    struct users_login **(*slot)(struct net_request *r); /* where a request keeps its login */
    void *ctx;
    void (*log)(void *ctx, int level, const char *message);
};

struct users_counts {
    uint64_t users, logins, failures, delayed, denied;
};

/* Reads the file. 0, or a code with a sentence in errmsg. */
int users_create(const struct users_config *config, struct users **ret, char *errmsg,
                 size_t errmsg_size) FLI_MUST_USE;
void users_reload(struct users *u); /* the log reports the result */
/* Answers no login any more. Calls cb once, from the loop. */
void users_close(struct users *u, void (*cb)(void *ctx), void *ctx);
void users_destroy(struct users *u); /* closed, or never used; NULL is fine */

/* For net_commands and net_callbacks. */
void users_auth(void *ctx, struct net_request *r, const struct net_auth *auth);
bool users_is_known(void *u, const struct net_conn *c);
void users_name(void *ctx, const struct net_conn *c, char out[NET_USER_NAME_MAX + 1]);
void users_after_handshake(struct users *u, struct net_conn *c);
void users_cancel(struct users *u, struct users_login *l); /* its request has gone */

/* Whether the client may do it; if not, it was answered. users_gate() checks commands that need
 * ACL_ADMIN, users_allow() those of the storage. A GET without a lock is checked by the key that it
 * finds (users_may_know()). */
bool users_gate(struct users *u, struct net_request *r, enum fli_command_id id);
bool users_allow(struct users *u, struct net_request *r, const struct fli_request *q,
                 enum store_verb verb);
/* Whether the client may learn which lock the key belongs to. Only users who may read everything
 * learn that a key does not exist. */
bool users_may_know(const struct users *u, const struct net_conn *c, const struct store_op *op);
/* Answers a client that may not: NOAUTH without a login, NOPERM without the right. */
void users_deny(struct users *u, struct net_request *r, unsigned right);
void users_get_counts(const struct users *u, struct users_counts *ret);

#endif
