/* stream_private.h: functions for the transport, which makes streams. */
#ifndef PEER_STREAM_PRIVATE_H
#define PEER_STREAM_PRIVATE_H

#include "base/list.h"
#include "peer/handshake.h"
#include "peer/stream.h"

/* What the transport knows of a stream that it has accepted, until the stream is lost or closed. */
struct stream_place {
    struct fli_list link; /* linked, or not in use */
    enum stream_kind kind;
    struct transport *transport;
    uint64_t peer_id;
};

/* The place ends because of what the peer has sent (transport_accept.c). */
void stream_place_broken(const struct stream_place *place, const char *why);

/* Takes over the channel, also on failure, and `leftover`, the bytes read behind the handshake.
 * *open is one higher until the stream is closed. */
int stream_create(struct channel *c, const struct stream_limits *limits, struct fli_slice leftover,
                  unsigned *open, struct stream **ret) FLI_MUST_USE;
struct stream_place *stream_place(struct stream *s);
struct stream *stream_of_place(struct fli_list *link);

/* Ends the stream as if its connection had ended. */
void stream_lose(struct stream *s, enum channel_end end, const char *why);

#endif
