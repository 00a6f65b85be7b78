/* transport_private.h: what the two halves of the transport share: transport.c (listening, judging,
 * closing) and transport_dial.c (connecting). */
#ifndef CONSENSUS_TRANSPORT_PRIVATE_H
#define CONSENSUS_TRANSPORT_PRIVATE_H

#include <stdbool.h>

#include "base/list.h"
#include "consensus/hello.h"
#include "consensus/transport.h"

#define TRANSPORT_SAID_MAX 32u
#define TRANSPORT_SAID_MS 60000u

struct transport {
    uv_loop_t *loop;
    struct members members;
    struct transport_identity self;
    struct transport_callbacks cbs;
    struct raft_uv_transport raft;
    int fd; /* bound; the listener's once it listens */
    uint16_t port;
    bool inited;    /* by raft: the sweeper is a live handle */
    bool listening; /* the listener is a live handle */
    bool closing;
    uv_tcp_t listener;
    uv_timer_t sweeper; /* runs while anybody has a deadline */
    struct fli_list accepting;
    unsigned accepting_count;
    struct fli_list dialing;
    unsigned handles; /* that must be closed before close_cb */
    raft_uv_accept_cb accept_cb;
    raft_uv_transport_close_cb close_cb;
    struct {
        uint32_t crc; /* of the text */
        uint64_t at_ms;
    } said[TRANSPORT_SAID_MAX]; /* so that retries each 100 ms do not fill the log */
    unsigned said_next;
};

void transport_say(struct transport *t, int level, const char *fmt, ...) FLI_PRINTF(3, 4);
/* As transport_say, but the same text not again within TRANSPORT_SAID_MS. */
void transport_say_once(struct transport *t, int level, const char *fmt, ...) FLI_PRINTF(3, 4);

enum transport_verdict transport_judge(struct transport *t, const struct hello *h,
                                       char reason[TRANSPORT_REASON_MAX]);
void transport_tune(uv_tcp_t *tcp); /* no delay, keep-alive */
void transport_sweep_soon(struct transport *t);
void transport_maybe_closed(struct transport *t);

int dial_start(struct transport *t, uint8_t kind, uint64_t peer_id, const char *address,
               struct raft_uv_connect *req, transport_link_cb link_cb, void *link_ctx) FLI_MUST_USE;
void dial_sweep(struct transport *t, uint64_t now_ms);
void dial_cancel_all(struct transport *t);

#endif
