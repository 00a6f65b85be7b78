/* stream_private.h: for the transport, which makes streams. */
#ifndef PEER_STREAM_PRIVATE_H
#define PEER_STREAM_PRIVATE_H

#include "base/list.h"
#include "peer/handshake.h"
#include "peer/stream.h"

struct stream {
    struct channel *channel;
    struct stream_limits limits;
    struct stream_callbacks cbs;
    /* transport_accept.c: of one that another node has opened */
    struct fli_list accepted; /* linked until it is lost or closed */
    struct transport *transport;
    enum stream_kind kind;
    uint64_t peer_id;
    bool started, lost, closed;
    struct fli_buf leftover; /* bytes read behind the handshake */
    struct frame_reader in;
    struct fli_buf gather; /* appended, not yet handed over */
    unsigned quiet_turns;  /* turns without anything to send */
    size_t writing;        /* bytes that keep the channel busy */
    uint64_t appended;
    uint64_t handed;
    uint64_t heard_ms;
};

/* Takes over the channel, also on failure, and `leftover`, the bytes read behind the handshake. */
int stream_create(struct channel *c, const struct stream_limits *limits, struct fli_slice leftover,
                  struct stream **ret) FLI_MUST_USE;

/* transport_accept.c: one of `accepted` ends because of what the peer has sent. */
void accept_broken(const struct stream *s, const char *why);

#endif
