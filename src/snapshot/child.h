/* child.h: a child process writes a snapshot, from a copy of this process's memory at one
 * moment, while this process goes on.
 *
 * Writing a large state takes seconds, in which the loop could do nothing else: no grant, no
 * renewal, no heartbeat. fork() copies only the page tables; the kernel copies a page when one of
 * the two processes writes to it. The child has only the thread that forked, closes all sockets,
 * writes the file in pieces, and dies with its parent. It shares the disk with the log, so it rests
 * as long as each sync took. If the child fails, this process only learns that there is no snapshot
 * yet. The loop never waits for the child: with a large state its mere end takes tenths of a
 * second. */
#ifndef SNAPSHOT_CHILD_H
#define SNAPSHOT_CHILD_H

#include <sys/types.h>

#include "snapshot/file.h"

/* How it ended. */
struct snapshot_verdict {
    int error;        /* 0: the snapshot is on disk */
    uint64_t size;    /* bytes of data */
    uint64_t took_ns; /* to write it */
    char why[512];    /* of the error; without one: why an older snapshot stays; or "" */
};

struct snapshot_child {
    pid_t pid; /* 0: there is none */
    int pipe;  /* has the verdict, or nothing when the child was killed */
};

/* Forks the child. It also removes what earlier ones have left, and in the end all but the newest
 * whole one. 0; FL_ESYSTEM: there is no child, and nothing has happened. */
int snapshot_child_start(struct snapshot_child *c, struct log_device *device,
                         const struct machine *m, const struct snapshot_meta *meta) FLI_MUST_USE;

/* Whether it has ended by now: then there is none any more, and *ret says how. To be asked from
 * time to time, also after snapshot_child_kill(). */
bool snapshot_child_ended(struct snapshot_child *c, struct snapshot_verdict *ret);

/* One that is killed leaves its half-written file to the next one, or to the next start. */
void snapshot_child_kill(const struct snapshot_child *c);

#endif
