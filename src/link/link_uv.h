/* link_uv.h: a connection (link.h) on a loop of libuv: requests are appended, answers come one by
 * one. Nothing here waits.
 *
 * The watcher of the descriptor outlives the connection until libuv lets go of it, so it has memory
 * of its own, and a connection may be closed from anywhere, also from inside its callbacks. */
#ifndef FLI_LINK_LINK_UV_H
#define FLI_LINK_LINK_UV_H

#include <uv.h>

#include "link/link.h"

struct fli_link_uv;
struct fli_link_watch;

/* To whom connections belong. It must stay until there are no handles. */
struct fli_link_owner {
    uv_loop_t *loop;
    uint32_t handles; /* of libuv that are not closed yet; the owner may count its own as well */
    /* Around whatever libuv calls; after the last handle as well. */
    void (*enter)(struct fli_link_owner *o);
    void (*leave)(struct fli_link_owner *o);
    /* Connected, shaken hands and logged in, as the link was told to. */
    void (*opened)(struct fli_link_uv *c);
    /* The next answer, valid during the call. False: it makes no sense, and link.error says why. */
    bool (*answered)(struct fli_link_uv *c, const redisReply *reply);
    /* The connection has ended, and is closed; rc as in link.h, and link.error says why. */
    void (*broken)(struct fli_link_uv *c, int rc);
};

struct fli_link_uv {
    struct fli_link_owner *owner;
    struct fli_link link;         /* its ceilings may be set after init */
    struct fli_buf out;           /* requests that were not handed over yet, whole ones: append */
    struct fli_link_watch *watch; /* NULL: closed */
};

/* out_max: of bytes that are not handed over yet. */
void fli_link_uv_init(struct fli_link_uv *c, struct fli_link_owner *owner, size_t out_max);

/* Begins to connect, as fli_link_begin() does. 0; FL_ENOCONN, FL_ENOMEM: it is closed, and
 * link.error says why. */
int fli_link_uv_begin(struct fli_link_uv *c, struct fli_link_security *security, const char *host,
                      const struct sockaddr *address, socklen_t len) FLI_MUST_USE;

/* At once; broken() is not called. Closing twice is fine. */
void fli_link_uv_close(struct fli_link_uv *c);

/* Hands what is in `out` to the kernel; the rest goes when there is room. Before it has opened
 * nothing goes. */
void fli_link_uv_flush(struct fli_link_uv *c);

/* Takes what has arrived, without waiting for the loop. */
void fli_link_uv_read(struct fli_link_uv *c);

#endif
