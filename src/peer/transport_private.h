/* transport_private.h: a connection between two nodes, and the transport that it belongs to.
 *
 *   dialed:    resolving -> connecting -> shaking -> undecided -> given -> open -> lost
 *   accepted:                             shaking -> undecided -> given -> open -> lost
 *
 * A connection may end in each phase. `undecided` is left out where this node can decide at once. A
 * dial goes back to `connecting` when an address has failed.
 *
 * Its memory goes when its owner has let it go and the loop has released the socket: only from the
 * loop, or in stream_close() of a stream that was lost before. So each callback may close streams,
 * and the list of all may be read on after it.
 *
 * transport.c: life, time limits, members, log. transport_open.c: how a connection begins, and its
 * handshake. stream.c: reading and writing, TLS, frames, the share of each turn, the end. */
#ifndef PEER_TRANSPORT_PRIVATE_H
#define PEER_TRANSPORT_PRIVATE_H

#include <uv.h>

#include "base/list.h"
#include "peer/host.h"
#include "peer/transport.h"

#define TRANSPORT_LOG_MAX 512u

/* Repeated lines of the log are left out, so that retries and strangers do not fill it. A line is
 * logged again after LOG_THROTTLE_AGAIN_MS. Different lines are logged up to LOG_THROTTLE_BURST at
 * once, and then one every LOG_THROTTLE_EVERY_MS. */
#define LOG_THROTTLE_LINES 32u
#define LOG_THROTTLE_AGAIN_MS 60000u
#define LOG_THROTTLE_BURST 32u
#define LOG_THROTTLE_EVERY_MS 1000u

struct log_throttle {
    struct {
        uint32_t crc; /* of the text */
        uint64_t at_ms;
    } lines[LOG_THROTTLE_LINES];
    unsigned next;
    uint64_t spent_until_ms; /* the burst is used up this far ahead of now */
    uint64_t left_out;
};

#define STREAM_READ_SIZE 16384u

/* The origin of a connection: an IPv4 address, or the network part of an IPv6 one. */
struct origin {
    uint8_t bytes[8];
};

enum stream_phase {
    STREAM_RESOLVING,  /* dialed: its name is being resolved; there is no socket */
    STREAM_CONNECTING, /* dialed */
    STREAM_SHAKING,    /* TLS's handshake, then the one of handshake.h */
    STREAM_UNDECIDED,  /* the other side's handshake is here, and this node must write first */
    STREAM_GIVEN,      /* it has an owner, which does not read it yet */
    STREAM_OPEN,
    STREAM_LOST /* its owner has still to close it */
};

struct stream {
    struct fli_list all; /* of its transport, the oldest first */
    struct transport *t;
    enum stream_phase phase;
    bool dialed;    /* by this node */
    bool let_go;    /* it has no owner: its memory goes once it is released */
    bool closing;   /* the socket is closed, or there is none yet */
    bool released;  /* neither the loop nor the resolver has something of it */
    unsigned ticks; /* until it is given up; 0: it is not */
    enum stream_kind kind;
    uint64_t peer_id; /* 0: not known yet */

    /* transport_open.c: accepted, until the other side is known */
    struct origin origin;
    char address[64];

    /* transport_open.c: dialed */
    transport_dial_cb dialed_cb;
    void *dialed_ctx;
    uv_getaddrinfo_t resolve;
    uv_connect_t connect;
    struct addrinfo *list, *next;
    unsigned tried, absent; /* addresses that were tried, and those of them where nobody listens */
    char why[96];           /* why the last address failed */

    /* reading */
    uv_tcp_t tcp;
    bool owed;           /* it has waited, and is read once whatever others have used */
    struct fli_tls *tls; /* NULL: none */
    struct stream_callbacks cbs;
    struct frame_reader in;
    uint64_t heard_ms;

    /* writing; stream_send() has the ceiling */
    struct fli_buf gather; /* appended; `at` bytes of it are encrypted already */
    size_t at;
    struct fli_buf cipher; /* encrypted, not yet offered to the kernel */
    struct fli_buf out;    /* being written */
    uv_write_t write;
    bool writing;
    uint64_t appended;
};

struct transport {
    uv_loop_t *loop;
    struct transport_callbacks cbs;
    struct host host;               /* for the log */
    struct transport_config config; /* but for what is used during transport_create() only */
    struct security security;
    uint64_t files_ms; /* when its files were last looked at */
    unsigned pending_ms;
    int fd; /* listens */
    uint16_t port;
    bool started;   /* the timer is a live handle */
    bool listening; /* and the listener */
    bool closing;
    uv_poll_t listener; /* not active: it waits for descriptors until the next tick */
    uv_timer_t timer;   /* ticks */
    struct fli_list all;
    uint64_t turned_away; /* connections that were refused, or dropped; for tests */
    void (*close_cb)(void *ctx);
    void *close_ctx;
    struct log_throttle throttle;

    /* stream.c */
    uint8_t read_buf[STREAM_READ_SIZE];
    uint64_t turn; /* uv_now() tells turns apart; those of one millisecond count as one */
    uint64_t read_ns, shake_ns; /* used of its shares */
    uint64_t shaken, shake_failed, shake_deferred;
};

static inline struct stream *stream_of(struct fli_list *pos)
{
    return FLI_CONTAINER_OF(pos, struct stream, all);
}

/* Whether another node has opened it, and has not shown yet that it is one. */
static inline bool is_pending(const struct stream *s)
{
    return !s->dialed && s->phase < STREAM_GIVEN && !s->let_go;
}

/* Whether it was welcomed when another node opened it. */
static inline bool is_accepted(const struct stream *s)
{
    return !s->dialed && s->phase >= STREAM_GIVEN;
}

/* transport.c */
/* Whether to log a line now; if so, it is recorded. *left_out: when true, the number of lines left
 * out since the last logged one, for being too many. */
bool log_throttle_allows(struct log_throttle *s, const char *text, uint64_t now_ms,
                         uint64_t *left_out);
void transport_maybe_closed(struct transport *t);
void transport_tick_soon(struct transport *t);
/* The connection is given up when what it waits for takes longer. */
void stream_expect(struct stream *s, unsigned within_ms);

/* transport_open.c */
int accept_start(struct transport *t) FLI_MUST_USE; /* 0, or an error of libuv */
void dial_next(struct stream *s); /* tries the next address, or ends the dial; from the loop only */
void dial_end(struct stream *s, int status); /* without a stream */
void shake_secured(struct stream *s);        /* TLS's handshake is over */
void shake_bytes(struct stream *s);          /* some have come */

/* stream.c */
struct stream *stream_create(struct transport *t, bool dialed); /* NULL: out of memory */
void stream_socket(struct stream *s);                           /* makes a new handle */
void stream_tune(struct stream *s);                             /* it is connected */
void stream_secure(struct stream *s);                           /* sends the first message of TLS */
void stream_read_start(struct stream *s);
void stream_read_stop(struct stream *s);
/* Gives it to its owner-to-be, unread. */
void stream_give(struct stream *s, enum stream_kind kind, uint64_t peer_id);
void stream_released(struct stream *s);               /* by the loop, or the resolver */
void stream_lose(struct stream *s, const char *why);  /* closes its socket; tells its owner */
void stream_lose_by(struct stream *s, int error);     /* of libuv */
void stream_break(struct stream *s, const char *why); /* the peer broke the protocol */

#endif
