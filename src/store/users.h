/* users.h: who may do what at the storage, as a file of users says (auth/aclfile.h, words of
 * machine/acl.h). The rights are read, write, claim and admin, and the names are names of locks:
 *
 *   CLAIM lock token, GET key FENCE lock token    @claim (GET: @read as well) to the lock
 *   SET, DEL ... FENCE lock token                 @write to the lock
 *   MARK lock                                     @read to the lock
 *   GET key                                       @read to the lock that the key belongs to
 *   SET, DEL without a token (--no-fencing)       @write to every name
 *   INFO, CLIENT LIST                             @admin
 *
 * The file is read at the start and by users_reload(), as a whole: one that is wrong changes
 * nothing. Who is logged in stays so while the user's switch and passwords are the same bytes; a
 * password that stands in the file in clear gets another salt each time, so its users log in again.
 * The default user (who has not logged in) is off unless the file has it.
 *
 * One loop, one thread; hashes are made and the file is read on a worker's. */
#ifndef STORE_USERS_H
#define STORE_USERS_H

#include "machine/acl.h"
#include "net/connection_commands.h"
#include "store/store.h"
#include "wire/request.h"

struct users;
struct users_login;

#define USERS_LOGINS_MAX 256u /* under way */

struct users_config {
    uv_loop_t *loop;
    const char *path; /* must stay */
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
void users_reload(struct users *u); /* the log says what came of it */
/* No login is answered any more; cb once, from the loop. */
void users_close(struct users *u, void (*cb)(void *ctx), void *ctx);
void users_destroy(struct users *u); /* closed, or never used; NULL is fine */

/* For net_commands and net_callbacks. */
void users_auth(void *ctx, struct net_request *r, const struct net_auth *auth);
bool users_is_known(void *u, const struct net_conn *c);
void users_name(void *ctx, const struct net_conn *c, char out[NET_USER_NAME_MAX + 1]);
void users_shaken(struct users *u, struct net_conn *c);
void users_cancel(struct users *u, struct users_login *l); /* its request has gone */

/* Whether the client may; if not it has been answered. The first looks at commands that need
 * ACL_ADMIN, the second at those of the storage; a GET without a lock is judged by what it finds
 * (users_may_know). */
bool users_gate(struct users *u, struct net_request *r, enum fli_command_id id);
bool users_allow(struct users *u, struct net_request *r, const struct fli_request *q,
                 enum store_verb verb, bool fencing);
/* Whether the client may hear of the lock that a key turned out to belong to. A key that is not
 * there tells those alone who may read all. */
bool users_may_know(const struct users *u, const struct net_conn *c, const struct store_op *op);
/* Answers for whoever may not: NOAUTH who is nobody, NOPERM who lacks the right. */
void users_deny(struct users *u, struct net_request *r, unsigned right);
void users_get_counts(const struct users *u, struct users_counts *ret);

#endif
