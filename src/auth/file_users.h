/* file_users.h: users of a file (aclfile.h), and their logins, for a daemon that keeps no users of
 * its own.
 *
 * The file is read at the start and by file_users_reload(), as a whole: a wrong file changes
 * nothing. A login stays valid while the bytes of the user's switch and passwords are unchanged. A
 * password in clear gets another salt at each reading, so its users must log in again. Clients
 * without a login are the default user, if the file has it and it needs no password.
 *
 * One loop, one thread; a worker's thread makes hashes and reads the file. */
#ifndef AUTH_FILE_USERS_H
#define AUTH_FILE_USERS_H

#include "auth/logins.h"

/* NULL stands for a daemon without users, for all functions but those that ask for rights. */
struct file_users;

struct file_users_config {
    uv_loop_t *loop;
    const char *path; /* must stay valid */
    unsigned rights;  /* as for acl_apply() */
    enum fli_tls_user cert_users;
    struct net_commands *commands; /* gets users_ctx, user_name, is_known and auth */
    struct auth_login **(*slot)(struct net_request *r);
    void *ctx;
    void (*log)(void *ctx, int level, const char *message);
};

struct file_users_counts {
    uint64_t users, logins, failures, delayed, denied;
};

/* Reads the file. 0, or a code with a sentence in errmsg. */
int file_users_create(const struct file_users_config *config, struct file_users **ret, char *errmsg,
                      size_t errmsg_size) FLI_MUST_USE;
void file_users_reload(struct file_users *u); /* the log reports the result */
/* Answers no login any more. Calls cb once, from the loop; at once for NULL. */
void file_users_close(struct file_users *u, void (*cb)(void *ctx), void *ctx);
void file_users_destroy(struct file_users *u); /* closed, or never used */

/* For net_callbacks: at shaken; and at cancel. */
void file_users_shaken(struct file_users *u, struct net_conn *c);
void file_users_cancel(struct file_users *u, struct net_request *r);

/* Whether the client has a login that is valid now, or needs none. */
bool file_users_is_known(void *u, const struct net_conn *c);
/* Whether the client has the right to the name; NULL: to every name. ACL_ADMIN needs no name. */
bool file_users_may(const struct file_users *u, const struct net_conn *c, unsigned right,
                    const struct fli_slice *name);
/* Answers a client that may not: NOAUTH without a login, NOPERM without the right. */
void file_users_deny(struct file_users *u, struct net_request *r, unsigned right);
void file_users_get_counts(const struct file_users *u, struct file_users_counts *ret);

#endif
