/* logins.h: AUTH, and HELLO with AUTH, alike for both daemons.
 *
 *   AUTH ---> turn of its address ---> the user, from the daemon ---> password, on a worker's
 *            (throttle.h)             (find)                         thread ---> login
 *
 * A connection keeps its login (net_conn_set_login()). While it logs in, no further request of it
 * is read: requests behind AUTH are the new user's. One loop, one thread. */
#ifndef AUTH_LOGINS_H
#define AUTH_LOGINS_H

#include "auth/throttle.h"
#include "auth/worker.h"
#include "net/connection_commands.h"

#define AUTH_LOGINS_MAX 512u                       /* under way */
#define AUTH_ADDRESS_MAX (AUTH_LOGINS_MAX / 4 * 3) /* of the clients of one address */
#define AUTH_USER_MAX (AUTH_ADDRESS_MAX / 4 * 3)   /* of these, under one name */

struct auth_login {
    char user[ACL_NAME_MAX + 1]; /* "": no user can have the name that was given */
    /* What find() has found. */
    bool found;
    uint64_t login; /* the number for net_conn_set_login() */
    struct acl_user acl;

    struct fli_list link; /* private, from here on: delayed */
    struct fli_list all;
    struct auth_job job;
    struct auth_logins *logins;
    struct net_request *r; /* NULL: the request has gone */
    uint64_t at_ms;        /* delayed until then */
    uint64_t origin;       /* a number for its address; job.source also tells users apart */
    struct net_auth hello; /* its slices are not used */
    bool worked, ok;       /* the worker has run; the password is right */
    bool counted;          /* throttle.h */
    uint8_t password[AUTH_PASSWORD_MAX];
    size_t password_len;
    uint8_t tag[AUTH_TAG_SIZE]; /* of the password */
    uint8_t host[16];           /* its address */
    uint8_t host_len;
    _Alignas(16) uint8_t room[]; /* find()'s */
};

struct auth_logins_config {
    const struct net_commands *commands;
    struct auth_worker *worker; /* for hashes of passwords */
    size_t room;
    void *ctx;
    /* Where a request keeps its login; NULL at first. */
    struct auth_login **(*slot)(void *ctx, struct net_request *r);
    /* Looks for the user, and calls auth_login_go_on(), at once or later. */
    void (*find)(void *ctx, struct auth_login *l);
    /* Answers a login that could not be checked: FL_EBUSY, or what find() has failed with. */
    void (*failed)(void *ctx, struct net_request *r, int status);
    /* A password was wrong. May be NULL. */
    void (*wrong)(void *ctx, const struct net_conn *c, const char *user);
};

struct auth_logins {
    struct auth_logins_config config;
    struct throttle throttle;
    struct fli_list delayed;
    struct fli_list all;
    unsigned n;
    bool stopping;
    struct {
        uint64_t logins, failures; /* ever */
        uint64_t delayed;          /* that had to wait for their turn, ever */
    } counts;
};

void auth_logins_init(struct auth_logins *ls, const struct auth_logins_config *config);
void auth_logins_fini(struct auth_logins *ls); /* none may be under way */

/* Takes the request, as net_commands.auth. */
void auth_logins_begin(struct auth_logins *ls, struct net_request *r, const struct net_auth *auth);
/* find() has ended. 0: found, login and acl are filled in. */
void auth_login_go_on(struct auth_login *l, int status);
void auth_logins_cancel(struct auth_logins *ls, struct net_request *r); /* it has gone */

/* Goes on with those whose turn has come. When that is to be done next; UINT64_MAX: not at all. */
void auth_logins_turn(struct auth_logins *ls);
uint64_t auth_logins_next_ms(const struct auth_logins *ls);
/* From here on none is checked. The worker is closed next. */
void auth_logins_stop(struct auth_logins *ls);

#endif
