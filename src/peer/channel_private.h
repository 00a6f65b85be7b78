/* channel_private.h: shared by channel.c (sockets) and channel_secure.c (TLS on sockets). */
#ifndef PEER_CHANNEL_PRIVATE_H
#define PEER_CHANNEL_PRIVATE_H

#include "peer/channel.h"

/* The TLS part of a channel. */
struct channel_secure {
    struct fli_tls *tls;
    void (*opened)(void *ctx);
    bool ours;              /* this end dialed */
    struct fli_buf waiting; /* plaintext, to be encrypted from `at` on */
    size_t at;
    struct fli_buf cipher; /* encrypted, not yet offered to the kernel */
};

struct channel {
    uv_tcp_t tcp;
    struct channel_shared *shared;
    struct channel_callbacks cbs;
    uv_connect_t connect;
    void (*connected)(void *ctx);
    int later; /* a known error that the loop will report */
    uv_write_t write;
    struct fli_buf out;            /* being written */
    struct channel_secure *secure; /* NULL: none */
    struct fli_list paused;        /* linked while it waits to be read in a later turn */
    bool owed;                     /* it has waited, and is read once whatever others have used */
    struct channel_share visit;    /* as `read`, of this channel */
    size_t read_max;
    bool reading, writing;
    bool closing; /* it is lost, or its owner has closed it: the handle is closing */
    bool closed;  /* the loop has released the handle */
    bool let_go;  /* the owner has closed the channel */
};

/* Exchanges the contents of two buffers, but not their limits. */
static inline void channel_swap(struct fli_buf *a, struct fli_buf *b)
{
    struct fli_buf was = *a;
    *a = (struct fli_buf){b->data, b->len, b->cap, a->max};
    *b = (struct fli_buf){was.data, was.len, was.cap, b->max};
}

/* channel.c */
/* As channel_write(), but for bytes as they go on the wire. */
bool channel_put(struct channel *c, struct fli_buf *from);

/* channel_secure.c */
void secure_free(struct channel *c);
void secure_read(struct channel *c, const uint8_t *data, size_t len);
bool secure_write(struct channel *c, struct fli_buf *from);
/* After a write has ended: continues with what waits to be encrypted or sent. True when nothing
 * waits any more. */
bool secure_go_on(struct channel *c);
bool secure_waits(const struct channel *c);
bool secure_shakes(const struct channel *c); /* TLS's handshake is not over */

#endif
