/* server.h: one Redis server: its connection, kept and opened again in the background, and the
 * requests that wait for answers, in order. The connection is a channel of the engine
 * (client/channel.h) that the server has for itself.
 *
 * A request belongs to the server from fli_server_put() until its answered() is called, exactly
 * once; from then on to whoever answered() belongs to.
 *
 * A connection is usable when the log-in has been answered: AUTH, SELECT, INFO (is it a master, how
 * long has it been up, which one is it), whether it runs scripts. */
#ifndef FLI_REDLOCK_SERVER_H
#define FLI_REDLOCK_SERVER_H

#include <stdbool.h>

#include "client/engine.h"
#include "redlock/answer.h"

#define FLI_SERVER_OUT_MAX ((size_t)1 << 20) /* bytes that are not sent yet */
#define FLI_SERVER_PENDING_MAX 65536u        /* requests without an answer */

struct fli_redlock;
struct fli_server;

struct fli_redis_request {
    struct fli_list node;
    /* reply: valid during the call; NULL when the connection broke before the answer. */
    void (*answered)(struct fli_redis_request *q, struct fli_server *s, const redisReply *reply);
    uint64_t sent_ns; /* when it was put into the connection */
};

enum fli_server_state {
    FLI_SERVER_DOWN,    /* until it is due */
    FLI_SERVER_OPENING, /* connecting, or logging in */
    FLI_SERVER_READY,
    FLI_SERVER_CLOSED /* for good */
};

/* In the order in which they are asked. */
enum fli_login_step {
    FLI_LOGIN_AUTH,
    FLI_LOGIN_SELECT,
    FLI_LOGIN_INFO,
    FLI_LOGIN_COMMANDS,
    FLI_LOGIN_EVAL,
    FLI_LOGIN_STEPS /* how many there are */
};

struct fli_server {
    struct fli_redlock *r;
    uint32_t index; /* of the engine's node */

    enum fli_server_state state;
    struct fli_due due; /* of the state */
    struct fli_listener listener;
    struct fli_channel *channel; /* NULL: closed */
    enum fli_login_step step;    /* that is answered next, while it logs in */
    struct fli_list pending;
    bool settled;      /* the first attempt to connect has ended */
    uint32_t failures; /* in a row */
    uint64_t opened_ms;

    enum fl_redlock_status status; /* why it is not ready, or does not count: DOWN, ERROR, ... */
    char error[FL_REDLOCK_ERROR_MAX];
    struct fli_facts facts; /* as of the last log-in */
    uint64_t counts_from_ms;
    /* it becomes a master at an unknown time, so it then counts as just restarted */
    bool was_replica;
    char no_scripts
        [FL_REDLOCK_ERROR_MAX]; /* it refuses to run any, with this error; "": it runs them */
    bool is_duplicate;          /* an earlier entry of the list is the same server */
    enum fli_delete_how delete_how;

    struct fli_list deferred; /* releases to be sent when it is ready again; see request.c */
    size_t deferred_len;
};

/* Connects as soon as the engine runs. 0; FL_ENOMEM. */
int fli_server_init(struct fli_server *s, struct fli_redlock *r, uint32_t index) FLI_MUST_USE;
/* Open requests are answered with NULL, and the connection is left to the engine, which closes it.
 * It is not connected again before fli_server_begin(), which may lack memory: FL_ENOMEM. */
void fli_server_leave(struct fli_server *s);
int fli_server_begin(struct fli_server *s) FLI_MUST_USE;
/* In a child whose parent was in the middle of using it: leaves all that it has where it is. */
void fli_server_abandon(struct fli_server *s);

/* How long the oldest request has been without an answer. */
uint64_t fli_server_silent_ms(const struct fli_server *s, uint64_t now_ns);

/* Sends the bytes of one request; answered() will be called for it. The server must be ready. 0;
 * FL_EBUSY: too many are pending; FL_ENOMEM. */
int fli_server_put(struct fli_server *s, struct fli_redis_request *q, const struct fli_buf *bytes,
                   uint64_t now_ns) FLI_MUST_USE;

/* An answer makes no sense: closes the connection, since nothing more that comes from it is
 * believed. */
void fli_server_distrust(struct fli_server *s);

#endif
