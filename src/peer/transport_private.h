/* transport_private.h: shared by transport.c (life, handshakes, deadlines, log), transport_accept.c
 * (connections that others open, and their streams) and transport_dial.c (dialing). */
#ifndef PEER_TRANSPORT_PRIVATE_H
#define PEER_TRANSPORT_PRIVATE_H

#include "base/list.h"
#include "peer/host.h"
#include "peer/log_throttle.h"
#include "peer/stream_private.h"
#include "peer/transport.h"

#define TRANSPORT_LOG_MAX 512u

/* The kernel keeps as many that wait to be accepted. A turn accepts some of them only, so a storm
 * must find room: whoever finds none calls again after 1 s at the earliest. */
#define TRANSPORT_BACKLOG 1024

/* A deadline. When it has passed, bytes that have arrived are read once more before the connection
 * is given up: a long turn of the loop says nothing about the peer. */
struct deadline {
    uint64_t at_ms;
    bool late;
};

/* A connection until the handshake of the other side is checked. This node has dialed it, or
 * accepted it. */
struct shake {
    struct fli_list link; /* of all such, the oldest first */
    struct transport *t;
    struct channel *channel; /* NULL: a name is being resolved */
    struct deadline deadline;
    bool waits; /* for a decision of this node */
    bool due;   /* it waits, and is to be checked in this round */
    void (*check)(struct shake *s, struct fli_slice leftover); /* the handshake is complete */
    void (*late)(struct shake *s);                             /* the deadline is over */
    struct fli_buf leftover; /* bytes behind a handshake that waits */
    size_t got;
    uint8_t buf[HANDSHAKE_SIZE];
};

struct transport {
    struct channel_shared shared;
    struct transport_callbacks cbs;
    struct host host; /* for lines of the log that are told each time */
    struct members members;
    struct peer_identity self;
    uint32_t members_crc; /* as in the configuration */
    struct handshake_formats formats;
    struct stream_limits limits[STREAM_KINDS + 1];
    struct security *security;                  /* NULL: none */
    struct deadline files;                      /* of the next check of its files for changes */
    unsigned connect_ms, answer_ms, pending_ms; /* as in struct transport_config */
    int fd;                                     /* listens; the listener has a copy of it */
    uint16_t port;
    bool started;   /* timer and turn are live handles */
    bool listening; /* the listener is a live handle */
    bool closing;
    bool accept_paused; /* no descriptors, no memory, or enough for a turn: no listener until
                           accept_retry */
    struct deadline accept_retry;
    uint64_t accepts_turn; /* the turn that `accepts` is of: channel_turn() */
    unsigned accepts;
    uv_tcp_t listener;
    uv_timer_t timer; /* fires at the earliest deadline */
    struct fli_list shaking;
    unsigned pending_n;       /* of these, connections that others have opened */
    unsigned channels;        /* not yet freed */
    struct fli_list accepted; /* streams that others have opened; the oldest first */
    uint64_t turned_away;     /* connections that were refused, or dropped; for tests */
    void (*close_cb)(void *ctx);
    void *close_ctx;
    struct log_throttle throttle;
};

/* `alike`: the peer is configured with the same members and is of no other cluster. */
enum handshake_verdict transport_check(struct transport *t, const struct handshake *h, bool *alike,
                                       char reason[HANDSHAKE_REASON_MAX]);

int transport_channel(struct transport *t, struct channel **ret) FLI_MUST_USE;
void transport_maybe_closed(struct transport *t);

/* Begins with what all connections need; its owner fills in the rest. */
void shake_init(struct shake *s, struct transport *t);
void shake_fini(struct shake *s);                               /* it stands in the list no more */
void shake_bytes(void *shake, const uint8_t *data, size_t len); /* as in channel_callbacks */
/* Sends this node's side. False: the connection is lost, and `lost` was called. */
bool shake_send(struct shake *s, const struct handshake *h);

void deadline_set(struct deadline *d, unsigned after_ms);
bool deadline_over(struct deadline *d);
void deadlines_changed(struct transport *t); /* sets the timer */

/* transport_accept.c */
int accept_start(struct transport *t, char *errmsg, size_t errmsg_size) FLI_MUST_USE;
void accept_stop(struct transport *t);
void accept_sweep(struct transport *t);
void accept_drop_all(struct transport *t);
/* Loses streams that a node has opened; 0: that nodes have which are no members any more. */
void accept_lose(struct transport *t, uint64_t peer_id, enum channel_end end, const char *why);

/* transport_dial.c */
int dial_start(struct transport *t, enum stream_kind kind, const struct member *m,
               transport_dial_cb cb, void *ctx) FLI_MUST_USE;
/* Tells those who dial nodes that are no members any more that there is no connection. What was
 * begun ends by itself. */
void dial_forsake(struct transport *t);

#endif
