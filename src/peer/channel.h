/* channel.h: the bytes of one TCP connection to another node, with TLS (channel_secure) or without.
 * Everything that src/peer reads from or writes to a socket goes through here.
 *
 * Reading: all channels share one buffer of their transport, so an idle one keeps none. What has
 * arrived is shown to the owner once; the owner copies what it needs later.
 *
 * Writing: channel_try_write() offers bytes to the kernel at once; channel_write() takes a whole
 * buffer, and while the kernel has not taken all of that the channel is busy: `drained` tells when
 * it is free again.
 *
 * Ownership: channel_create allocates. channel_close closes the descriptor at once and frees when
 * the loop has let go of the handle; `gone` comes then, and no other callback after channel_close.
 * One thread, the loop's. */
#ifndef PEER_CHANNEL_H
#define PEER_CHANNEL_H

#include <uv.h>

#include "base/buf.h"
#include "base/list.h"
#include "tls/tls.h"

#define CHANNEL_READ_SIZE ((size_t)64 << 10)
#define CHANNEL_SHAKE_TURN_MS 5u /* of handshakes that others began, in a turn of the loop */
#define CHANNEL_PARTS_MAX 66u    /* of one try to write */

/* How a connection ends. */
enum channel_end {
    CHANNEL_HUNG_UP = 1,  /* the peer's process ended it: end of stream, or a reset */
    CHANNEL_FAILED = 2,   /* the network or this system did: no acknowledgement in time, and such */
    CHANNEL_BROKEN = 3,   /* what came is not what was agreed */
    CHANNEL_REPLACED = 4, /* by a newer one of the same peer */
    CHANNEL_REFUSED = 5   /* nobody listens there */
};

struct channel;

struct channel_callbacks {
    void *ctx;
    void (*bytes)(void *ctx, const uint8_t *data, size_t len);      /* valid during the call only */
    void (*drained)(void *ctx);                                     /* may be NULL */
    void (*lost)(void *ctx, enum channel_end end, const char *why); /* at most once */
};

/* What the channels of one transport share. The upper part is its owner's to set. */
struct channel_shared {
    uv_loop_t *loop;
    unsigned unacked_ms; /* a connection is given up when bytes stay unacknowledged for so long */
    void *gone_ctx;
    void (*gone)(void *gone_ctx); /* for each channel that was created and is freed now */
    uint8_t read_buf[CHANNEL_READ_SIZE];
    struct fli_buf plain; /* decrypted, of the channel at hand */
    uv_idle_t turn;       /* a live handle, for its owner to close */
    struct fli_list deferred;
    uint64_t shake_ns; /* of this turn */
    uint64_t shaken, shake_failed, shake_deferred;
};

int channel_shared_init(struct channel_shared *shared) FLI_MUST_USE; /* 0 or FL_ESYSTEM */
void channel_shared_fini(
    struct channel_shared *shared); /* when `turn` and all channels are closed */

/* A channel without a connection: for uv_accept, or to connect. The shared part must outlive it. */
int channel_create(struct channel_shared *shared, struct channel **ret) FLI_MUST_USE;
/* Takes the connection that waits at the listener. 0 or FL_ESYSTEM. */
int channel_accept(struct channel *c, uv_stream_t *listener) FLI_MUST_USE;

/* `connected` or `lost` comes, from the loop; neither after channel_close. */
void channel_connect(struct channel *c, const struct sockaddr *to, void (*connected)(void *ctx));
uv_tcp_t *channel_tcp(struct channel *c);

/* Puts TLS between the socket and the owner; to be called before anything is read or written. It
 * takes `tls` over, also on failure. `opened` is called after TLS's handshake and before any bytes;
 * it may close the channel. Until then nothing may be written. ours: this node has dialed; then
 * channel_secure_begin must follow, once reading has started. 0 or FL_ENOMEM. */
int channel_secure(struct channel *c, struct fli_tls *tls, bool ours,
                   void (*opened)(void *ctx)) FLI_MUST_USE;
void channel_secure_begin(struct channel *c); /* sends the first message of TLS; may call `lost` */
const struct fli_tls *channel_tls(const struct channel *c); /* NULL: none */

/* Who hears of it from now on. */
void channel_own(struct channel *c, const struct channel_callbacks *cbs);

int channel_read_start(struct channel *c) FLI_MUST_USE; /* 0, FL_ESYSTEM */
void channel_read_stop(struct channel *c);

/* Writes the few bytes of the nodes' own handshake, all of them. False: the connection is lost, and
 * `lost` was called. */
bool channel_say(struct channel *c, const void *data, size_t len);

/* How many bytes of the parts left at once: 0 when busy, when the kernel has no room, with TLS, and
 * when the connection has ended, which the next channel_write or read finds. Never calls back. */
size_t channel_try_write(struct channel *c, const struct fli_slice *parts, unsigned n);

/* Takes all of `from`, which is left empty, with memory or without. Not while busy. False: the
 * connection is lost, and `lost` was called. */
bool channel_write(struct channel *c, struct fli_buf *from);
size_t channel_memory(const struct channel *c);
bool channel_busy(const struct channel *c);

/* Reports the end once, and closes the descriptor; channel_close must still be called. */
void channel_lose(struct channel *c, enum channel_end end, const char *why);

/* As channel_lose, but reports it from the loop. */
void channel_cancel(struct channel *c);

void channel_close(struct channel *c); /* NULL is fine */

#endif
