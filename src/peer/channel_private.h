/* channel_private.h: what channel.c (sockets) and channel_secure.c (TLS on them) share. */
#ifndef PEER_CHANNEL_PRIVATE_H
#define PEER_CHANNEL_PRIVATE_H

#include "peer/channel.h"

/* Of a channel with TLS. */
struct channel_secure {
    struct channel *channel;
    struct fli_tls *tls;
    void (*opened)(void *ctx);
    bool ours;              /* this end has called: its handshake is not put off */
    struct fli_buf waiting; /* plaintext from `at` on is to be encrypted */
    size_t at;
    struct fli_buf cipher;    /* encrypted, and not offered to the kernel */
    struct fli_list deferred; /* linked while `held` waits for a turn with time left */
    struct fli_buf held;
};

struct channel {
    uv_tcp_t tcp;
    struct channel_shared *shared;
    struct channel_callbacks cbs;
    uv_connect_t connect;
    void (*connected)(void *ctx);
    int later; /* an error that is known, and reported from the loop */
    uv_write_t write;
    struct fli_buf out;            /* being written */
    struct channel_secure *secure; /* NULL: none */
    bool reading, writing, lost;
    bool closing; /* the handle */
    bool closed;  /* the loop has let go of it */
    bool let_go;  /* by the owner */
};

/* channel.c */
void channel_lose_by(struct channel *c, int error); /* a code of libuv */
/* As channel_write, of bytes as they go on the wire. */
bool channel_put(struct channel *c, struct fli_buf *from);
int channel_listen_on(struct channel *c);   /* lets the kernel's bytes come */
void channel_listen_off(struct channel *c); /* for a while */

/* channel_secure.c */
void secure_free(struct channel *c);
void secure_closing(struct channel *c);
void secure_read(struct channel *c, const uint8_t *data, size_t len);
bool secure_write(struct channel *c, struct fli_buf *from);
bool secure_say(struct channel *c, const void *data, size_t len);
/* Goes on with what waits. False: the connection is lost. */
bool secure_flush(struct channel *c);
bool secure_waits(const struct channel *c);
size_t secure_memory(const struct channel *c);

#endif
