/* server.h: one Redis server: its connection, kept and opened again in the background, and the
 * requests that wait for answers, in order.
 *
 * The asynchronous half of hiredis is not used: 0.14 aborts the process when a server says
 * something unasked, writes without MSG_NOSIGNAL, lets children inherit its sockets, and resolves
 * names while it connects.
 *
 * Lifetimes. Nothing is freed while an answer is being handed out: a connection that has to go is
 * marked and goes afterwards. A request belongs to the server from fli_server_put() until its
 * answered() is called, exactly once; from then on to whoever answered() belongs to.
 *
 * A connection is usable when the log-in has been answered: AUTH, SELECT, INFO (is it a master, how
 * long has it been up, which one is it), the scripts. */
#ifndef FLI_REDLOCK_SERVER_H
#define FLI_REDLOCK_SERVER_H

#include <stdbool.h>

#include "base/list.h"
#include "link/link_uv.h"
#include "redlock/answer.h"

#define FLI_SERVER_OUT_MAX ((size_t)1 << 20)   /* bytes that are not sent yet */
#define FLI_SERVER_REPLY_MAX ((size_t)1 << 20) /* bytes of an unfinished answer */
#define FLI_SERVER_ARRAY_MAX 1024u             /* elements of all arrays in an answer */
#define FLI_SERVER_PENDING_MAX 65536u          /* requests without an answer */

struct fli_server;

struct fli_redis_request {
    struct fli_list node;
    /* reply: valid during the call; NULL when the connection broke before the answer. */
    void (*answered)(struct fli_redis_request *q, struct fli_server *s, const redisReply *reply);
    uint64_t sent_ns; /* when it was put into the connection */
};

enum fli_server_state {
    FLI_SERVER_DOWN,    /* until retry_ms */
    FLI_SERVER_OPENING, /* connecting, or logging in */
    FLI_SERVER_READY,
    FLI_SERVER_CLOSED /* for good */
};

/* The handle that a server belongs to. */
struct fli_server_owner {
    void (*ready)(struct fli_server_owner *o, struct fli_server *s);
    void (*down)(struct fli_server_owner *o, struct fli_server *s);
    struct fli_link_owner links; /* its loop, enter and leave are the owner's to fill in */
    struct fli_link_security tls;
    uint64_t connect_ms;
    uint64_t hung_ms;
    uint64_t max_ttl_ms;
    bool restarts_are_safe;
};

struct fli_server {
    struct fli_server_owner *owner;
    uint32_t index;
    char address[FL_REDLOCK_ADDRESS_MAX + 1];
    char host[FL_REDLOCK_ADDRESS_MAX + 1]; /* "" for a socket of this machine */
    struct sockaddr_storage where;
    socklen_t where_len;
    char *username; /* or NULL */
    char *password;
    uint32_t database;

    enum fli_server_state state;
    struct fli_link_uv conn;
    struct fli_list pending;
    size_t pending_len;
    uint32_t login_left; /* answers still to come */
    bool settled;        /* the first attempt to connect has ended */
    bool doomed;         /* to be closed when the answers read so far are handed out */
    uint32_t failures;   /* in a row */
    uint64_t opened_ms;
    uint64_t retry_ms;

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
    bool extend_by_text; /* it had no script when that could not be made up for: the next does */

    struct fli_list deferred; /* releases to be sent when it is ready again; see request.c */
    size_t deferred_len;
};

/* The caller has filled in where, where_len, address, username, password and database. */
void fli_server_init(struct fli_server *s, struct fli_server_owner *owner, uint32_t index);
/* Closes the connection for good; open requests are answered with NULL. Then frees what the server
 * holds. */
void fli_server_close(struct fli_server *s);

/* In a child of fork(): ends the parent's connection here without a word to the server, and
 * connects anew when it is next time to. */
void fli_server_own(struct fli_server *s);

/* Connects when it is time to. Gives up a connection that takes too long. */
void fli_server_tick(struct fli_server *s, uint64_t now_ms);
/* When fli_server_tick() has to be called next; UINT64_MAX: not at all. */
uint64_t fli_server_due_ms(const struct fli_server *s);

/* How long the oldest request has been without an answer. */
uint64_t fli_server_silent_ms(const struct fli_server *s, uint64_t now_ns);

/* The buffer for the bytes of one request; NULL when too many are pending. The server must be
 * ready. After all bytes are appended, fli_server_put() says which request they are, and answered()
 * will be called for it. */
struct fli_buf *fli_server_out(struct fli_server *s);
void fli_server_put(struct fli_server *s, struct fli_redis_request *q, uint64_t now_ns);

/* Called inside answered(): an answer makes no sense. The connection is closed, and nothing more
 * that comes from it is believed. */
void fli_server_distrust(struct fli_server *s);

/* Reads what has arrived, without waiting. Not from inside answered(). */
void fli_server_read(struct fli_server *s);

/* Sends what is queued, as far as the kernel takes it. Not from inside answered(). */
void fli_server_flush(struct fli_server *s);

/* HOST:PORT, [IPV6]:PORT or /path. Resolves the host, which may block. 0; FL_EINVAL, FL_ENOCONN
 * with a sentence in errmsg. */
int fli_server_locate(struct fli_server *s, const char *text, size_t len, char *errmsg,
                      size_t errmsg_size) FLI_MUST_USE;

#endif
