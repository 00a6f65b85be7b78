/* snapshot_child.h: a snapshot that a child process writes, from a copy of our memory as it was at
 * one moment, while this process goes on.
 *
 * Writing a large state takes seconds, in which a loop would do nothing else: no grant, no renewal,
 * no heartbeat. fork() copies the page tables only; the kernel copies a page when one of the two
 * writes to it. The child has the thread that forked and nothing else, keeps none of our sockets,
 * writes the file in pieces, shares the disk with the log (it rests as long as each sync took), and
 * dies with us. Whatever happens to it, this process only learns that there is no snapshot yet.
 *
 * All functions are for the thread of the loop. */
#ifndef CONSENSUS_SNAPSHOT_CHILD_H
#define CONSENSUS_SNAPSHOT_CHILD_H

#include <uv.h>

#include "log/snapshot_file.h"
#include "machine/machine.h"

struct snapshot_child;

struct snapshot_child_callbacks {
    void *ctx;
    /* The child has ended. 0: the snapshot is on disk and has `size` bytes of data. Else a code and
     * what went wrong; nothing is left on disk. At most once; never within a call of this file. */
    void (*done)(void *ctx, int error, const char *why, uint64_t size);
    void (*gone)(void *ctx); /* after snapshot_child_destroy: nothing of it is on the loop */
};

/* Forks. 0; FL_ESYSTEM: there is no child, and nothing has happened. */
int snapshot_child_start(uv_loop_t *loop, struct log_device *device, const struct machine *m,
                         const struct snapshot_meta *meta,
                         const struct snapshot_child_callbacks *cbs,
                         struct snapshot_child **ret) FLI_MUST_USE;

/* Also before it is done: the child is killed, and done does not come. */
void snapshot_child_destroy(struct snapshot_child *c);

#endif
