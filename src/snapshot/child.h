/* child.h: a child process writes a snapshot, from a copy of this process's memory at one
 * moment, while this process goes on.
 *
 * Writing a large state takes seconds, in which the loop could do nothing else: no grant, no
 * renewal, no heartbeat. fork() copies only the page tables; the kernel copies a page when one of
 * the two processes writes to it. The child has only the thread that forked, closes all sockets,
 * writes the file in pieces, and dies with its parent. It shares the disk with the log, so it rests
 * as long as each sync took. If the child fails, this process only learns that there is no snapshot
 * yet. The loop never waits for the child: with a large state its mere end takes tenths of a
 * second.
 *
 * All functions are for the thread of the loop. */
#ifndef SNAPSHOT_CHILD_H
#define SNAPSHOT_CHILD_H

#include "peer/host.h"
#include "snapshot/file.h"

struct snapshot_child;

/* The child has ended. 0: the snapshot is on disk and has `size` bytes of data. Else a code and the
 * reason. One that was killed has left its part on disk, which the owner removes
 * (snapshot_clean()). Called at most once, and never within a call of this file. */
typedef void snapshot_child_cb(void *ctx, int error, const char *why, uint64_t size);

/* Forks the child. 0; FL_ESYSTEM: there is no child, and nothing has happened. The node of the host
 * does not end while there is a process, or a handle on the loop. */
int snapshot_child_start(const struct host *host, struct log_device *device,
                         const struct machine *m, const struct snapshot_meta *meta,
                         snapshot_child_cb *done, void *ctx,
                         struct snapshot_child **ret) FLI_MUST_USE;

/* Allowed before it is done: then the child is killed, as above, and done is not called. */
void snapshot_child_destroy(struct snapshot_child *c);

#endif
