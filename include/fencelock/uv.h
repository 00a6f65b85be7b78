/* uv.h: a client on a libuv loop.
 *
 *     struct fl_uv u;
 *     fl_open(nodes, &(struct fl_client_options){.own_loop = true}, &c);
 *     fl_uv_start(&u, loop, c);
 *     ... calls that call back: from uv_run() ...
 *     fl_uv_stop(&u, closed);    and in closed(), or later: fl_close(c)
 *
 * All of it is in this header, so only programs that use libuv depend on libuv. */
#ifndef FENCELOCK_UV_H
#define FENCELOCK_UV_H

#include <uv.h>

#include "fencelock/client.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In the caller's memory, which must stay until fl_uv_stop() has called back. */
struct fl_uv {
    uv_poll_t poll; /* its data is free for your use */
    fl_client *client;
};

static inline void fl_uv_ready_(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    /* poll is the first member. */
    fl_process(((struct fl_uv *)(void *)poll)->client);
}

/* 0; FL_ESYSTEM when the loop cannot take the descriptor. Like any active handle, it keeps the loop
 * alive until it is stopped; uv_unref((uv_handle_t *)&u.poll) changes that. */
static inline int fl_uv_start(struct fl_uv *u, uv_loop_t *loop, fl_client *client)
{
    u->client = client;
    if (uv_poll_init(loop, &u->poll, fl_fd(client)) != 0) {
        return FL_ESYSTEM;
    }
    return uv_poll_start(&u->poll, UV_READABLE, fl_uv_ready_) == 0 ? 0 : FL_ESYSTEM;
}

/* closed may be NULL. */
static inline void fl_uv_stop(struct fl_uv *u, uv_close_cb closed)
{
    uv_close((uv_handle_t *)&u->poll, closed);
}

#ifdef __cplusplus
}
#endif
#endif
