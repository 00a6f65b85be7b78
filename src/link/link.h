/* link.h: one connection to a server that speaks RESP, driven in steps that do not wait; with TLS
 * when the client says so. Replies are parsed by hiredis, with ceilings on what a broken peer can
 * make us keep. One thread. */
#ifndef FLI_LINK_LINK_H
#define FLI_LINK_LINK_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "link/link_security.h"

/* Unless an owner sets others after fli_link_init(). A LOCKS of 1000 locks has 36,000 elements. */
#define FLI_REPLY_BYTES_MAX ((size_t)64 << 20) /* of one reply on the wire */
#define FLI_REPLY_ELEMENTS_MAX 262144u         /* of all arrays in a reply */
#define FLI_REPLY_LINE_MAX ((size_t)64 << 10)  /* of one line: a status, an error, a length */
#define FLI_REPLY_DEPTH_MAX 8                  /* arrays in one another */

#define FLI_LINK_ERROR_SIZE 160u

#if HIREDIS_MAJOR >= 1
typedef size_t fli_array_len;
#else
typedef int fli_array_len;
#endif

struct fli_link {
    int fd;           /* -1: closed */
    uint64_t process; /* that has opened it: in a child it is closed without a word */
    bool wants_read;  /* after FL_EBUSY: it waits to read, not to write */
    /* While it connects: the first socket that began to, beside the newest in fd; -1: none. */
    int first_fd;
    uint64_t again_ms; /* when to begin another socket; UINT64_MAX: not */
    struct sockaddr_storage to;
    socklen_t to_len;
    redisReader *reader; /* NULL until there is a connection */
    bool ready;          /* and has logged in, if a user is named: requests may be sent */
    size_t login_at;     /* bytes of the login that have been sent */
    /* With TLS; else NULL and empty. */
    struct fli_tls *tls;
    struct fli_buf plain, out;          /* decrypted and not parsed; encrypted and not sent */
    size_t out_at;                      /* bytes of `out` that have been sent */
    struct fli_link_security *security; /* while it connects: the client's */
    char host[FL_ADDRESS_MAX + 1];
    size_t bytes_max; /* of one reply */
    size_t line_max;
    uint32_t elements; /* of the reply that is being read, as far as they are announced */
    redisReplyObjectFunctions functions;
    void *(*make_array)(const redisReadTask *, fli_array_len); /* hiredis's own */
    size_t fed;                      /* bytes since the last whole reply */
    char error[FLI_LINK_ERROR_SIZE]; /* why the last call here failed */
};

void fli_link_init(struct fli_link *l);
void fli_link_close(struct fli_link *l); /* closing twice is fine */

/* Connects, does the TLS handshake and logs in, as `security` says, which must outlive the link:
 * begin, then finish whenever the descriptor is ready, and at again_ms; the descriptor may be
 * another one afterwards. host: the name that the server's certificate must have. 0; FL_EBUSY (not
 * yet; wants_read says for what it waits); FL_ENOCONN; FL_ENOMEM; FL_EDENIED: user or password are
 * wrong, which every node says alike. The link must be closed. */
int fli_link_begin(struct fli_link *l, struct fli_link_security *security, const char *host,
                   const struct sockaddr *address, socklen_t address_len) FLI_MUST_USE;
int fli_link_finish(struct fli_link *l) FLI_MUST_USE;

/* Hands over what the kernel takes now of what comes after *at, and moves *at. 0 when that was all;
 * FL_EBUSY when the rest must wait for the descriptor to be writable; FL_EIO. */
int fli_link_push(struct fli_link *l, const void *data, size_t len, size_t *at) FLI_MUST_USE;

/* Read takes some of what has arrived: 1 when more may be there, else 0, or a code. Next gives a
 * reply out of what was taken, to be freed by freeReplyObject(): 1 with a reply, else 0, or a code.
 * FL_EIO (closed or lost); FL_EPROTO (not RESP2, or beyond a ceiling); FL_EDENIED (refused in the
 * handshake, which with TLS 1.3 is heard this late: nothing that was sent has been looked at). */
int fli_link_read(struct fli_link *l) FLI_MUST_USE;
int fli_link_next(struct fli_link *l, redisReply **ret) FLI_MUST_USE;

#endif
