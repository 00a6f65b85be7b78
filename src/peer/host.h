/* host.h: what the parts of a node require of the node that contains them. */
#ifndef PEER_HOST_H
#define PEER_HOST_H

#include <uv.h>

#include "base/base.h"
#include "base/turn.h"

struct host {
    uv_loop_t *loop;
    void *ctx;
    void (*log)(void *ctx, int level, const char *message);  /* 1 error to 4 debug; may be NULL */
    void (*fail)(void *ctx, int error, const char *message); /* the node cannot go on */
    struct fli_turn *turn;                                   /* of the loop; may be NULL */
    void (*wake)(void *ctx);                                 /* the loop must turn at once */
    /* Something has begun, which ends by `release`: until then the node does not end. May be NULL
     * where no work is given to host_work(). */
    void (*hold)(void *ctx);
    void (*release)(void *ctx);
};

/* Work for a thread of libuv's pool, for what may wait for a disk. All zeros at first. */
struct host_work {
    uv_work_t req;
    const struct host *host;
    void (*work)(struct host_work *w); /* on the thread */
    void (*done)(struct host_work *w); /* then, on the loop */
    bool busy;                         /* until `done` is called */
};

/* It must not be busy, and the host outlives it. */
void host_work(const struct host *h, struct host_work *w, void (*work)(struct host_work *w),
               void (*done)(struct host_work *w));

void host_log(const struct host *h, int level, const char *fmt, ...) FLI_PRINTF(3, 4);
void host_fail(const struct host *h, int error, const char *fmt, ...) FLI_PRINTF(3, 4);

#endif
