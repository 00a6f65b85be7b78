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
};

void host_log(const struct host *h, int level, const char *fmt, ...) FLI_PRINTF(3, 4);
void host_fail(const struct host *h, int error, const char *fmt, ...) FLI_PRINTF(3, 4);

#endif
