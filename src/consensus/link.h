/* link.h: frames over one relay stream between two nodes.
 *
 *   offset size   frame, little endian
 *   0      4      length of what follows
 *   4      1      type, enum link_type
 *   5      ...    body
 *
 * The relay says what the bodies are (relay.c). Sending appends to a buffer; link_flush() hands
 * what has gathered to the kernel, so that one turn of the loop costs one write. What was appended
 * but not handed over is known never to have left: link_appended() and link_handed() tell the two
 * apart.
 *
 * Limits: a frame of at most LINK_FRAME_MAX; LINK_OUT_MAX bytes not yet sent, beyond which sending
 * fails and the owner should close. A peer that breaks the framing is told to the owner as lost.
 *
 * Ownership: link_create takes the stream (made with raft_malloc). After `lost` the owner still
 * calls link_close. link_close frees everything when the handle is closed and calls `gone` then;
 * no other callback comes after link_close. One thread, the loop's. */
#ifndef CONSENSUS_LINK_H
#define CONSENSUS_LINK_H

#include <stdbool.h>
#include <uv.h>

#include "base/buf.h"

#define LINK_FRAME_MAX ((size_t)96 << 10)
#define LINK_OUT_MAX ((size_t)32 << 20)

/* Values travel and must not change. */
enum link_type {
    LINK_COMMAND = 1,  /* to the leader: sequence, command */
    LINK_RESULT = 2,   /* from the leader: sequence, status, result, payload */
    LINK_RETURNED = 3, /* from the leader: sequence; surely not done, send it to whoever leads */
    LINK_EARLY = 4,    /* from the leader: an event */
    LINK_READY = 5,    /* to the leader: this node knows every member's incarnation, on disk */
    LINK_PING = 6,     /* to the leader */
    LINK_PONG = 7      /* from the leader */
};

struct link;

struct link_callbacks {
    void *ctx;
    void (*frame)(void *ctx, uint8_t type, struct fli_slice body);
    void (*lost)(void *ctx, const char *why); /* at most once */
    void *gone_ctx;
    void (*gone)(void *gone_ctx);
};

/* Starts to read. On failure the stream is closed all the same, and `gone` is called. */
int link_create(uv_stream_t *stream, const struct link_callbacks *cbs,
                struct link **ret) FLI_MUST_USE;

/* Appends one frame made of n parts. 0, FL_ELIMIT, FL_ENOMEM; then nothing was appended. */
int link_send(struct link *l, uint8_t type, const struct fli_slice *parts, unsigned n) FLI_MUST_USE;

void link_flush(struct link *l);

uint64_t link_appended(const struct link *l); /* bytes ever appended */
uint64_t link_handed(const struct link *l);   /* of these, bytes that may have left */
bool link_idle(const struct link *l);         /* nothing waits to be sent */
uint64_t link_heard_ms(const struct link *l); /* loop time of the last bytes from the peer */

void link_close(struct link *l); /* NULL is fine */

#endif
