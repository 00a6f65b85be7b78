/* stream_private.h: streams as the transport makes them. */
#ifndef PEER_STREAM_PRIVATE_H
#define PEER_STREAM_PRIVATE_H

#include "base/list.h"
#include "peer/stream.h"

/* Where the transport counts a stream: left when it is lost or closed. */
struct stream_place {
    struct fli_list link; /* linked, or not in use */
    unsigned *count;      /* of its list */
};

/* Takes the channel over, also on failure, and `leftover`, what was read past the handshake; *open
 * is one more until the stream is closed. */
int stream_create(struct channel *c, const struct stream_limits *limits, struct fli_slice leftover,
                  unsigned *open, struct stream **ret) FLI_MUST_USE;
struct stream_place *stream_place(struct stream *s);
struct stream *stream_of_place(struct fli_list *link);

/* As when the connection had ended. */
void stream_lose(struct stream *s, enum channel_end end, const char *why);

#endif
