/* access_private.h: private to access*.c: a request that takes a while, until all work for it has
 * ended. The request may go away before that; then `r` is NULL and nothing is answered. */
#ifndef SERVER_ACCESS_PRIVATE_H
#define SERVER_ACCESS_PRIVATE_H

#include "auth/aclfile.h"
#include "auth/hash.h"
#include "auth/logins.h"
#include "server/access.h"

#define ACCESS_CALLS_MAX 512u
#define ACCESS_ADDRESS_MAX (ACCESS_CALLS_MAX / 4 * 3) /* of the clients of one address */
#define ACCESS_AGAIN_MS UINT64_C(300) /* between attempts to set up the users of a new cluster */

struct access_call;

/* One of several commands of a call. */
struct access_part {
    struct node_ticket ticket;
    struct access_call *call;
};

struct access_call {
    struct fli_list link; /* certs of access */
    struct fli_list all;  /* calls of access */
    struct node_ticket ticket;
    struct auth_job job;
    struct access *access;
    struct net_request *r; /* NULL: nothing is to be answered */
    struct net_conn *conn; /* for a certificate's login: the connection; NULL when it has
                              closed */
    enum fli_command_id id;
    int proto;
    uint64_t login; /* of the sender */
    uint8_t address[NET_CONN_ADDRESS_MAX];
    uint8_t address_len;
    char user[ACL_NAME_MAX + 1];
    uint64_t origin; /* a number for its address */
    bool found, worked;
    uint64_t found_login; /* of the user that was found, whose record is here too */
    struct acl_user acl;
    struct fli_slice *args; /* copies */
    unsigned n_args;
    struct fli_buf text; /* words, a file, or its users in the format of USERS_LOAD */
    struct access_part *parts;
    unsigned n_parts, parts_left, parts_done;
    int status; /* the first failure of a part or of the job */
    struct machine_result result;
    char error[512];
};

struct access {
    struct access_config config;
    struct auth_worker *worker; /* for hashes of passwords */
    struct auth_worker *files;  /* for the file of users: a disk that hangs holds up no login */
    void (*stop_cb)(void *ctx);
    void *stop_ctx;
    struct auth_logins logins;
    struct fli_list certs;
    struct fli_list calls; /* all */
    unsigned calls_n;
    uint64_t denied;      /* access_counts */
    struct audit *audit;  /* NULL: none */
    uint64_t known_index; /* the end of the log when it was opened; 0: all of that is applied */
    bool needs_users;     /* the configuration gives the users of a new cluster */
    bool stopping;
    struct access_call *initial; /* under way */
    uint64_t initial_ms;         /* when to try again */
    struct fli_buf users;        /* of a new cluster, in the format of USERS_LOAD */
    struct fli_buf scratch;
};

/* access.c */
struct machine *access_machine(const struct access *a); /* NULL: none yet */
/* For this connection, which may be NULL: for the node itself. NULL: too many are under way. */
struct access_call *access_take(struct access *a, const struct net_conn *c, enum fli_command_id id);
/* The same for a request, which the call is then to answer. */
struct access_call *access_take_request(struct access *a, struct net_request *r,
                                        enum fli_command_id id);
void access_free(struct access_call *c);
struct net_request *access_detach(struct access_call *c);
void access_finish(struct net_request *r, int rc);
void access_error(struct access_call *c, const char *word, const char *text);
int access_submit(struct access *a, struct machine_command *m, struct node_ticket *t,
                  node_ticket_cb cb) FLI_MUST_USE;
/* Answers a failure, or a refusal by the machine; false when it was neither. */
bool access_answer_refusal(struct access_call *c, int status, const struct machine_result *result);
/* The record of a user in the local state, which may lag. */
bool access_local_user(struct access *a, const char *name, struct acl_user *ret);

/* access_users.c */
void access_users_command(struct access_call *c, const struct fli_slice *args, unsigned n);
void access_initial(struct access *a);

#endif
