/* channel.h: the bytes of one TCP connection to another node, with TLS (channel_secure()) or
 * without. All of src/peer reads and writes sockets through it.
 *
 * Reading: all channels share one buffer of their transport, so an idle channel keeps none. Bytes
 * are shown to the owner once, when they arrive; the owner copies what it needs later.
 *
 * Each turn of the loop reads for FLI_TURN_PEERS_US, one channel for FLI_TURN_PEERS_VISIT_US. Who
 * has more to say waits for the next turn, first come, first served. A read is whole: after one
 * that took long the channel's next is smaller.
 *
 * A TLS handshake costs a thousand times as much as a message, and any stranger may begin one. So
 * those that others began have a share of their own, CHANNEL_SHAKE_TURN_MS, and wait in the same
 * line, where others pass them. Handshakes that this node began are few and never wait.
 *
 * Writing: channel_write() takes a whole buffer. While the kernel has not taken all of it, the
 * channel is busy; `drained` tells when it is free again.
 *
 * Ownership: channel_create() allocates. channel_close() closes the descriptor at once, and frees
 * the channel when the loop has released the handle: never within a callback of this channel, but
 * for a `lost` that comes from the loop. Then `freed` and `gone` are called; no other callback
 * comes after channel_close(). One thread, the loop's. */
#ifndef PEER_CHANNEL_H
#define PEER_CHANNEL_H

#include <uv.h>

#include "base/buf.h"
#include "base/list.h"
#include "tls/tls.h"

#define CHANNEL_READ_SIZE ((size_t)64 << 10)
#define CHANNEL_READ_FIRST ((size_t)16 << 10) /* the first reads of a channel */
#define CHANNEL_READ_LEAST ((size_t)4 << 10)
#define CHANNEL_RESUMED_MAX 8u   /* channels that waited and are read in a turn, in any case */
#define CHANNEL_RESHAKEN_MAX 4u  /* of these, handshakes that other nodes began */
#define CHANNEL_SHAKE_TURN_MS 5u /* time in a turn for handshakes that other nodes began */

/* How a connection ends. */
enum channel_end {
    CHANNEL_HUNG_UP = 1,  /* the peer's process ended it: end of stream, or a reset */
    CHANNEL_FAILED = 2,   /* the network or this system ended it, e.g. no acknowledgement in
                             time */
    CHANNEL_BROKEN = 3,   /* the peer broke the protocol */
    CHANNEL_REPLACED = 4, /* by a newer connection of the same peer */
    CHANNEL_REFUSED = 5   /* no process listens there */
};

struct channel;

struct channel_callbacks {
    void *ctx;
    void (*bytes)(void *ctx, const uint8_t *data, size_t len);      /* valid during the call only */
    void (*drained)(void *ctx);                                     /* may be NULL */
    void (*lost)(void *ctx, enum channel_end end, const char *why); /* at most once */
    void (*freed)(void *ctx); /* its memory goes, after channel_close(); may be NULL */
};

/* Time of a turn of the loop that was used. */
struct channel_share {
    uint64_t turn; /* channel_turn() */
    uint64_t ns;
};

/* The part that all channels of one transport share. Its owner sets the fields up to `gone`. */
struct channel_shared {
    uv_loop_t *loop;
    unsigned unacked_ms; /* a connection ends when bytes stay unacknowledged for so long */
    void *gone_ctx;
    void (*gone)(void *gone_ctx); /* called for each channel that is freed */
    uint8_t read_buf[CHANNEL_READ_SIZE];
    struct fli_buf plain;   /* decrypted bytes of the current channel */
    uv_idle_t turn;         /* a live handle; the owner closes it */
    struct fli_list paused; /* channels that wait to be read, the first to come first */
    struct channel_share read, shake;
    uint64_t shaken, shake_failed, shake_deferred;
};

/* Tells turns of the loop from one another; those that begin in one millisecond count as one. No
 * time: the loop's clock stands still while the machine is suspended. */
static inline uint64_t channel_turn(const struct channel_shared *shared)
{
    return uv_now(shared->loop);
}

int channel_shared_init(struct channel_shared *shared) FLI_MUST_USE; /* 0 or FL_ESYSTEM */
/* To be called when `turn` and all channels are closed. */
void channel_shared_fini(struct channel_shared *shared);

/* Creates a channel without a connection, for uv_accept() or channel_connect(). The shared part
 * must outlive it. */
int channel_create(struct channel_shared *shared, struct channel **ret) FLI_MUST_USE;
/* Accepts the next connection of the listener. 0 or FL_ESYSTEM. */
int channel_accept(struct channel *c, uv_stream_t *listener) FLI_MUST_USE;

/* The loop calls `connected` or `lost` later; neither after channel_close(). */
void channel_connect(struct channel *c, const struct sockaddr *to, void (*connected)(void *ctx));
uv_tcp_t *channel_tcp(struct channel *c);

/* Puts TLS between the socket and the owner; to be called before anything is read or written. Takes
 * `tls` over, also on failure. `opened` is called after TLS's handshake and before any `bytes`; it
 * may close the channel. Until then nothing may be written. ours: this node dialed, and
 * channel_secure_begin() must follow once reading has started. 0 or FL_ENOMEM. */
int channel_secure(struct channel *c, struct fli_tls *tls, bool ours,
                   void (*opened)(void *ctx)) FLI_MUST_USE;
void channel_secure_begin(struct channel *c); /* sends the first message of TLS; may call `lost` */
const struct fli_tls *channel_tls(const struct channel *c); /* NULL: none */

/* Sets the receiver of the callbacks. */
void channel_own(struct channel *c, const struct channel_callbacks *cbs);

int channel_read_start(struct channel *c) FLI_MUST_USE; /* 0, FL_ESYSTEM */
void channel_read_stop(struct channel *c);

/* Takes all of `from`, which is left empty, with memory or without. Not while the channel is busy.
 * False: the connection is lost, and `lost` was called. */
bool channel_write(struct channel *c, struct fli_buf *from);
bool channel_busy(const struct channel *c);

/* Reports the end once and closes the descriptor; channel_close() must still be called. */
void channel_lose(struct channel *c, enum channel_end end, const char *why);

/* Does the same, but reports it from the loop. */
void channel_cancel(struct channel *c);

void channel_close(struct channel *c); /* NULL is fine */

#endif
