/* install.h: receives a snapshot from another node (send.h has the frames).
 *
 *   stream  ->  pieces wait (SNAPSHOT_WINDOW at most)  ->  a worker writes them to a file
 *   all there  ->  the worker syncs the file, reads it back and decodes it into a fresh machine
 *   decoded  ->  `ready`: the owner replaces its own machine when it can
 *
 * None of this stops the loop, and the node goes on with its old state meanwhile. There is one
 * snapshot at a time: a newer stream of any node replaces an older one that is not complete. One
 * whose sender is silent for SNAPSHOT_SILENCE_MS, or that the node's own state has overtaken, is
 * given up. A failed transfer leaves nothing behind but a line in the log. One thread, the
 * loop's. */
#ifndef SNAPSHOT_INSTALL_H
#define SNAPSHOT_INSTALL_H

#include "snapshot/send.h"
#include "machine/machine.h"

struct snapshot_install;

struct snapshot_install_config {
    const struct host *host; /* its node does not end while a worker is at work */
    struct log_device *device;
    void *ctx;
    uint64_t (*applied)(void *ctx);                     /* the last entry of the node's own state */
    bool (*is_sound)(const struct snapshot_meta *meta); /* a log may go on behind it; any thread */
    /* A snapshot is on disk and decoded. Called at each tick until snapshot_install_taken(). */
    void (*ready)(void *ctx, const struct snapshot_meta *meta, struct machine *fresh);
};

int snapshot_install_create(const struct snapshot_install_config *config,
                            struct snapshot_install **ret) FLI_MUST_USE;

/* Takes over a stream of kind STREAM_SNAPSHOT. */
void snapshot_install_accept(struct snapshot_install *s, uint64_t from, struct stream *stream);

/* Called within or after `ready`. A worker destroys `garbage`: the machine that was replaced, or
 * the fresh one when it is of no use. error 0: the snapshot is in place; else the error that the
 * sender gets. */
void snapshot_install_taken(struct snapshot_install *s, int error, struct machine *garbage);

void snapshot_install_tick(struct snapshot_install *s);
bool snapshot_install_busy(const struct snapshot_install *s);

/* The index of the snapshot that is being received, which has a half-written file: the node had not
 * applied that entry when it began. 0: none is. */
uint64_t snapshot_install_receives(const struct snapshot_install *s);
uint64_t snapshot_install_failures(const struct snapshot_install *s);

void snapshot_install_stop(struct snapshot_install *s);    /* once */
void snapshot_install_destroy(struct snapshot_install *s); /* it must be idle; NULL is fine */

#endif
