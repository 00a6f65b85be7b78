/* link.h: one TCP connection to a server, driven by poll() with a deadline for everything, or
 * in steps that do not wait. Replies
 * are parsed by hiredis, with ceilings on what a broken peer can make us keep. One thread. */
#ifndef FLI_CLIENT_LINK_H
#define FLI_CLIENT_LINK_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "client/nodes.h"

#define FLI_REPLY_BYTES_MAX ((size_t)64 << 20) /* of one reply on the wire */
#define FLI_REPLY_ELEMENTS_MAX 65536           /* of one array in a reply */

struct fli_link {
    int fd; /* -1: closed */
    redisReader *reader;
    redisReplyObjectFunctions functions;
    void *(*make_array)(const redisReadTask *, int); /* hiredis's own */
    size_t fed;                                      /* bytes since the last whole reply */
    char error[160];                                 /* why the last call here failed */
};

void fli_link_init(struct fli_link *l);
void fli_link_close(struct fli_link *l); /* closing twice is fine */

/* Gives the connection of one to the other, which must be closed. */
void fli_link_move(struct fli_link *to, struct fli_link *from);

/* 0; FL_ENOCONN; FL_ENOMEM. The link must be closed. */
int fli_link_connect(struct fli_link *l, const struct fli_node *node,
                     uint64_t until_ms) FLI_MUST_USE;

/* The same in steps that do not wait: begin, then finish whenever the descriptor is writable. 0;
 * FL_EBUSY (not yet connected); FL_ENOCONN; FL_ENOMEM. */
int fli_link_begin(struct fli_link *l, const struct sockaddr *address,
                   socklen_t address_len) FLI_MUST_USE;
int fli_link_finish(struct fli_link *l) FLI_MUST_USE;

/* Whether the peer has said nothing unasked and not closed, as far as can be seen now. */
bool fli_link_is_fresh(const struct fli_link *l);

/* Hands all bytes to the kernel. FL_EIO, FL_ETIMEOUT: not all of them, so the peer cannot have a
 * whole request. */
int fli_link_send(struct fli_link *l, const void *data, size_t len, uint64_t until_ms) FLI_MUST_USE;

/* Hands over what the kernel takes now of what comes after *at, and moves *at. 0 when that was all;
 * FL_EBUSY when the rest must wait for the descriptor to be writable; FL_EIO. */
int fli_link_push(struct fli_link *l, const void *data, size_t len, size_t *at) FLI_MUST_USE;

/* The next reply, to be freed by freeReplyObject(). FL_ETIMEOUT (call again to go on waiting);
 * FL_EIO (closed or lost); FL_EPROTO (not RESP2, or beyond a ceiling). */
int fli_link_receive(struct fli_link *l, uint64_t until_ms, redisReply **ret) FLI_MUST_USE;

#endif
