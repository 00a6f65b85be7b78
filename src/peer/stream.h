/* stream.h: one connection between two nodes, and the frames on it.
 *
 * frame.h reads and checks the frames. Bytes that are no valid frame end the stream, with a reason
 * for the log. They never end the node.
 *
 * Sending appends to a buffer; stream_flush() hands the buffer to the kernel, so that one turn of
 * the loop costs one write. Bytes that were appended and not handed over have surely not left the
 * node: compare stream_appended() with stream_handed().
 *
 * Memory: a stream with nothing to send keeps little; stream_flush(), called each turn, frees the
 * rest.
 *
 * Limits: bodies of at most frame_max bytes, both ways; out_max bytes not yet sent, beyond which
 * sending fails. What TLS adds to them counts.
 *
 * Ownership: the transport hands a stream on, unread; stream_start() begins to read. After `lost`,
 * which comes at most once, nothing is read or sent any more and the descriptor is closed, but the
 * owner must still call stream_close(). After stream_close() no callback comes; it may be called
 * inside any of them. One thread, the loop's. */
#ifndef PEER_STREAM_H
#define PEER_STREAM_H

#include "peer/frame.h"

#define STREAM_PARTS_MAX 64u /* parts of a frame */
#define STREAM_OUT_MAX ((size_t)1 << 30)

struct stream;

struct stream_limits {
    size_t frame_max; /* bytes of a body; 1 to FRAME_MAX */
    size_t out_max;   /* bytes not yet sent, headers included; a frame to STREAM_OUT_MAX */
};

struct stream_callbacks {
    void *ctx;
    /* The body is valid during the call only. */
    void (*frame)(void *ctx, uint8_t type, struct fli_slice body);
    void (*lost)(void *ctx, const char *why);
};

/* Begins to read; call it once. False: the stream is lost (`lost` was called). */
bool stream_start(struct stream *s, const struct stream_callbacks *cbs);

/* Appends one frame of n parts, at most STREAM_PARTS_MAX. 0; FL_EINVAL: larger than frame_max;
 * FL_ELIMIT: more than out_max would be unsent; FL_ENOMEM; FL_ENOCONN: the stream is lost. On an
 * error nothing is appended. Never calls back. */
int stream_send(struct stream *s, uint8_t type, const struct fli_slice *parts,
                unsigned n) FLI_MUST_USE;

/* Writes the buffer; may call `lost`. */
void stream_flush(struct stream *s);

uint64_t stream_appended(const struct stream *s); /* bytes ever appended */
uint64_t stream_handed(const struct stream *s);   /* of these, bytes that may have left */
size_t stream_unsent(const struct stream *s);     /* bytes that the kernel has not taken */
uint64_t stream_heard_ms(const struct stream *s); /* when the last bytes came, on clock.h's clock */

void stream_close(struct stream *s); /* discards what is unsent; NULL is fine */

#endif
