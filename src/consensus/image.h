/* image.h: a snapshot that a child process encodes, from a copy of our memory as it was at one
 * moment, while this process goes on.
 *
 * Encoding a large state takes hundreds of milliseconds, in which a loop would do nothing else: no
 * grant, no renewal, no heartbeat. fork() copies the page tables only (some milliseconds for some
 * hundred megabytes); the kernel copies a page when one of the two writes to it. The child has the
 * thread that forked and nothing else, opens and writes no file, keeps none of our descriptors,
 * lets nothing but SIGKILL through, and dies with us. Its result lies in memory that both share.
 *
 * While the result is written to disk a thread keeps it from being resident here, and unmaps it in
 * the end. All functions are for the thread of the loop. */
#ifndef CONSENSUS_IMAGE_H
#define CONSENSUS_IMAGE_H

#include <uv.h>

#include "machine/machine.h"

struct image;

struct image_callbacks {
    void *ctx;
    /* The child has ended. error: 0, or FL_ESYSTEM when it ended without a result (somebody killed
     * it, or there was no memory); what it should have encoded is gone then. At most once. */
    void (*done)(void *ctx, int error);
    void (*gone)(void *ctx); /* after image_destroy: nothing of it is on the loop any more */
};

/* Forks. `records` bounds what will be encoded: held locks, waits, sessions and the like together.
 * 0; FL_ESYSTEM: there is no child, and nothing has happened. */
int image_create(uv_loop_t *loop, const struct machine *m, uint64_t records,
                 const struct image_callbacks *cbs, struct image **ret) FLI_MUST_USE;

/* After done(0), until it is destroyed. */
struct fli_slice image_bytes(const struct image *i);

/* Also before it is done: the child is killed, and done does not come. */
void image_destroy(struct image *i);

#endif
