/* connection_commands.h: the commands about the connection rather than the service: PING ECHO HELLO
 * AUTH SELECT QUIT RESET COMMAND CLIENT. Both daemons answer them alike, because the standard Redis
 * clients of every language send some of them before anything else. */
#ifndef NET_CONNECTION_COMMANDS_H
#define NET_CONNECTION_COMMANDS_H

#include "net/net.h"
#include "wire/commands.h"

/* The Redis version whose protocol we implement. Clients parse it and switch features on and
 * off. */
#define NET_REDIS_VERSION "7.0.15"

#define NET_HELLO_FIELDS_MAX 8u
#define NET_USER_NAME_MAX 64u

struct net_hello_field {
    const char *key;
    const char *text; /* NULL: it is a number */
    int64_t number;
};

/* The content of AUTH and HELLO. */
struct net_auth {
    bool is_hello;
    int proto;  /* HELLO */
    bool named; /* HELLO with SETNAME */
    char name[64];
    struct fli_slice user, password;
};

struct net_commands {
    enum fli_service service;
    struct net_server *server;
    const char *server_name; /* "server" in HELLO */
    void *ctx;
    /* Adds the service's fields to HELLO's answer; returns their number (at most
     * NET_HELLO_FIELDS_MAX). Their texts stay valid until the answer is made. May be NULL. */
    unsigned (*hello)(void *ctx, struct net_hello_field *fields);
    void *users_ctx; /* of the next two */
    /* The user's name, for CLIENT LIST. NULL: every client is "default". */
    void (*user_name)(void *ctx, const struct net_conn *c, char out[NET_USER_NAME_MAX + 1]);
    /* AUTH and HELLO with AUTH: takes the request, and answers it now or later. NULL: there is no
     * authentication, and they are refused. The password is valid during the call. */
    void (*auth)(void *ctx, struct net_request *r, const struct net_auth *auth);
};

/* Finishes HELLO after its AUTH has succeeded: applies its settings and answers. */
void net_hello_finish(const struct net_commands *commands, struct net_request *r,
                      const struct net_auth *auth);

/* Answers r when the command is one of those above, and returns true. `args` are the arguments
 * after the name (and subcommand) as fli_command_lookup() counts them. False: it is another command
 * (INFO is one), and nothing was done. */
bool net_connection_command(const struct net_commands *commands, struct net_request *r,
                            const struct fli_command *command, const struct fli_slice *args,
                            unsigned n);

#endif
