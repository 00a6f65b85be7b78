/* net_private.h: streams and calls between nodes, shared by net.c and net_dial.c; nobody else
 * includes it. */
#ifndef SIM_NET_PRIVATE_H
#define SIM_NET_PRIVATE_H

#include "sim.h"

#define RETRANSMIT_MS 40u

struct sim_end {
    struct sim_node *node;
    uint64_t life;
    struct stream *stream; /* until its owner has closed it */
    bool closed;
    uint64_t next_at;        /* bytes sent later arrive later */
    uint64_t sent, received; /* chunks of this end's sending */
    uint64_t blocked_since;  /* 0: they get through */
    uint64_t late; /* since when bytes to this end are late, for sim_late_came(); 0: they are not */
};

/* One stream. It is given back some time after the last of its ends, its call and the events of it
 * has let go of it. */
struct sim_conn {
    struct sim_conn *next;
    struct sim *sim;
    unsigned users;
    enum stream_kind kind;
    unsigned unacked_ms;
    struct sim_end end[2]; /* 0 called, 1 was called */
    uint64_t incarnation;  /* that its caller has named */
    struct start start;    /* of that incarnation */
    struct sim_wire *wire; /* see wire.c; NULL: nothing of it */
};

/* A message of Raft. */
struct sim_frame {
    struct sim_frame *next;
    size_t len;
    uint8_t type;
    uint8_t bytes[];
};

struct stream {
    struct sim_conn *conn;
    unsigned side, depth;
    struct stream_limits limits;
    struct stream_callbacks cbs;
    bool started, lost, closed;
    bool draining; /* the socket had no room for the rest of what was flushed */
    struct frame_reader in;
    struct fli_buf out;
    struct sim_frame *first, **last; /* messages that were not flushed */
    uint64_t appended, handed, heard_ms;
};

/* A call. It is given back some time after its last event. */
struct sim_dial {
    struct sim_dial *next;
    unsigned users;
    enum stream_kind kind;
    struct sim_node *from, *to;
    uint16_t port; /* that is called */
    uint64_t life;
    bool done;
    uint64_t late; /* as in sim_end, of its answer */
    transport_dial_cb cb;
    void *ctx;
    enum handshake_verdict verdict; /* 0: nobody listens there */
    struct sim_node *undecided;     /* this node has to write something first; NULL: none has */
    uint64_t undecided_life;
    struct peer_identity asked; /* what the called node was shown */
    char reason[HANDSHAKE_REASON_MAX];
    struct peer_identity answer;
    struct sim_conn *conn;
};

struct transport {
    uv_timer_t handle; /* only to be closed */
    struct sim_node *node;
    struct peer_identity self;
    struct members members;
    struct stream_limits limits[STREAM_KINDS + 1];
    unsigned connect_ms, unacked_ms;
    struct transport_callbacks cbs;
    bool started, closing, ending;
    unsigned streams;
    void (*close_cb)(void *ctx);
    void *close_ctx;
};

/* net.c */
void sim_conn_hang_up(struct sim_conn *c, unsigned side);
void sim_stream_lose(struct stream *st);

/* net_dial.c */
void sim_transport_maybe_closed(struct transport *t);

#endif
