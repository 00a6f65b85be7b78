/* transport_private.h: shared by transport.c (life, deadlines, log), transport_accept.c (accepted
 * streams, and connections before their handshake) and transport_dial.c (dialing). */
#ifndef PEER_TRANSPORT_PRIVATE_H
#define PEER_TRANSPORT_PRIVATE_H

#include "base/list.h"
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

/* The accepted streams of one member and kind, oldest first. */
struct accepted {
    struct fli_list streams;
    unsigned n;
};

/* The accepted streams of one member. Another node gets the place when its node is no longer a
 * member and no stream is left. */
struct accepted_peer {
    uint64_t id; /* 0: a free place */
    struct accepted kinds[STREAM_KINDS];
};

struct transport {
    struct channel_shared shared;
    struct transport_callbacks cbs;
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
    bool started;   /* the timer is a live handle */
    bool listening; /* the listener is a live handle */
    bool closing;
    unsigned handles; /* timer and turn that were started and are not closed */
    bool handles_closing;
    bool accept_waits;  /* a connection waits for memory, or for the next turn */
    bool accept_paused; /* there were no descriptors: no listener until accept_retry */
    struct deadline accept_retry;
    uint64_t accepts_turn; /* the turn that `accepts` is of: channel_turn() */
    unsigned accepts;
    uv_tcp_t listener;
    uv_timer_t timer; /* fires at the earliest deadline */
    struct fli_list pending;
    unsigned pending_n;
    struct fli_list dialing;
    unsigned dialing_n;
    unsigned channels; /* not yet freed */
    unsigned streams;  /* not yet closed by their owners */
    struct accepted_peer accepted[KNOWN_MEMBERS_MAX];
    uint64_t accepted_ever, replaced, refused, dropped;
    void (*close_cb)(void *ctx);
    void *close_ctx;
    struct log_throttle throttle;
};

/* Logs a text at most once a minute, and not too many different ones. */

/* `alike`: the peer is configured with the same members and is of no other cluster. */
enum handshake_verdict transport_check(struct transport *t, const struct handshake *h, bool *alike,
                                       char reason[HANDSHAKE_REASON_MAX]);

int transport_channel(struct transport *t, struct channel **ret) FLI_MUST_USE;
void transport_maybe_closed(struct transport *t);

/* A handshake that waits for a decision of this node. */
struct undecided {
    bool waits;
    bool due; /* it is to be checked in this round */
};

void deadline_set(struct transport *t, struct deadline *d, unsigned after_ms);
bool deadline_over(struct transport *t, struct deadline *d);
void deadlines_changed(struct transport *t); /* sets the timer */

/* transport_accept.c */
int accept_start(struct transport *t, char *errmsg, size_t errmsg_size) FLI_MUST_USE;
void accept_stop(struct transport *t);
void accept_sweep(struct transport *t);
void accept_earliest(const struct transport *t, uint64_t *at_ms); /* lowers *at_ms to the earliest
                                                                     deadline */
void accept_check_again(struct transport *t);
void accept_drop_all(struct transport *t);
void accept_lose_former_members(
    struct transport *t); /* loses streams of nodes that are no members any
                                                    more */

/* transport_dial.c */
int dial_start(struct transport *t, enum stream_kind kind, const struct member *m,
               transport_dial_cb cb, void *ctx) FLI_MUST_USE;
void dial_check_again(struct transport *t);
void dial_sweep(struct transport *t);
void dial_earliest(const struct transport *t, uint64_t *at_ms);
void dial_cancel_all(struct transport *t);

#endif
