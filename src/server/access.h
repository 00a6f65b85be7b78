/* access.h: identifies the clients of this node and checks what they may do here: AUTH, HELLO with
 * AUTH, certificates that stand for a user, protected mode, the ACL commands, and the users of a
 * new cluster.
 *
 *   AUTH ---> turn of its address ---> the user, from the leader ---> password, on a worker's
 *            (auth/logins.h)          (a query, so never stale)       thread ---> login
 *
 * A connection keeps its login: the number of its user and of the login. Commands carry both to the
 * machine, which checks the rights when it applies them (machine.h). So this file decides nothing
 * about locks. Only commands that a node answers by itself (INFO, CLIENT LIST, CLUSTER MEMBERS...)
 * are checked here, against the users in the node's own state.
 *
 * While a connection logs in, no further request of it is read: requests behind AUTH are the new
 * user's. */
#ifndef SERVER_ACCESS_H
#define SERVER_ACCESS_H

#include "net/connection_commands.h"
#include "server/audit.h"
#include "server/config.h"
#include "server/dispatch.h"

struct access;
struct access_call;
struct auth_login;

/* What a request keeps; NULL at first. */
struct access_slot {
    struct access_call *call;
    struct auth_login *login; /* of AUTH and HELLO */
};

struct access_config {
    uv_loop_t *loop;
    const struct config *config;
    struct dispatch_node node;
    const struct net_commands *commands;
    void *ctx;
    void (*log)(void *ctx, int level, const char *message);
    struct access_slot *(*slot)(struct net_request *r);
};

struct access_counts {
    uint64_t logins, failures; /* ever */
    uint64_t delayed;          /* attempts that had to wait for their turn, ever */
    uint64_t denied;           /* requests refused here: protected mode, no login, no right */
    struct audit_counts audit;
};

/* Reads the aclfile, and makes the hashes of its passwords and of requirepass. 0; FL_EINVAL with a
 * sentence in errmsg; FL_ENOMEM, FL_ESYSTEM. */
int access_create(const struct access_config *config, struct access **ret, char *errmsg,
                  size_t errmsg_size) FLI_MUST_USE;
/* Calls cb when all work under way has ended; no ticket may come back afterwards. */
void access_stop(struct access *a, void (*cb)(void *ctx), void *ctx);
void access_destroy(struct access *a); /* NULL is fine */

/* Dispatch and net_commands get the access, and a net_request, as void pointers.
 *
 * For dispatch: whether the command may go on; when not, it was answered. */
bool access_gate(void *a, void *r, const struct fli_command *command);
/* For dispatch: the same for a list of locks that the node answers by itself. */
bool access_sees(void *a, void *r, const struct fli_command *command);
/* For dispatch: puts the sender into m. */
void access_set_sender(void *a, void *r, struct machine_command *m);

/* For the audit log: an event of the machine; a request that the machine refused; and that the node
 * was opened, so that it now replays entries of its log that it had before. */
void access_event(struct access *a, const struct machine_event *event);
void access_refused_by_machine(void *a, void *r, enum fli_command_id id, bool by_right);
void access_opened(struct access *a);
/* No event will come any more: ends the audit log. May call cb at once. */
void access_end(struct access *a, void (*cb)(void *ctx), void *ctx);

void access_auth(void *a, struct net_request *r, const struct net_auth *auth);
void access_command(void *a, void *r, const struct fli_command *command,
                    const struct fli_slice *args, unsigned n);
void access_shaken(struct access *a, struct net_conn *c); /* a certificate may name its user */
void access_closed(struct access *a, const struct net_conn *c);
void access_cancel(struct access *a, struct net_request *r);
bool access_is_known(void *a, const struct net_conn *c);
void access_user_name(void *a, const struct net_conn *c, char out[NET_USER_NAME_MAX + 1]);
bool access_may_see(struct access *a, const struct net_conn *c, struct fli_slice lock,
                    uint64_t *steps);

/* Does what is due: attempts whose turn has come, users of a new cluster. Not from inside an event
 * or a result. */
void access_turn(struct access *a);
uint64_t access_next_turn_ms(const struct access *a);

void access_get_counts(const struct access *a, struct access_counts *ret);

#endif
