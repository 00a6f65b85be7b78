/* snapshot_install.h: a snapshot that comes from another node (snapshot_send.h has the frames).
 *
 *   stream  ->  pieces wait (SNAPSHOT_WINDOW at most)  ->  a worker writes them to a file
 *   all there  ->  the worker syncs the file, reads it back and decodes it into a fresh machine
 *   decoded  ->  `ready`: the owner puts it in the place of its own when it can
 *
 * Nothing of it stops the loop, and the node goes on with its old state meanwhile. One snapshot at
 * a time: a newer stream of the same or another node takes the place of an older one that is not
 * complete. A failed transfer leaves nothing behind but a line in the log. One thread, the
 * loop's. */
#ifndef CONSENSUS_SNAPSHOT_INSTALL_H
#define CONSENSUS_SNAPSHOT_INSTALL_H

#include "consensus/snapshot_send.h"
#include "machine/machine.h"

struct snapshot_install;

struct snapshot_install_config {
    uv_loop_t *loop;
    struct log_device *device;
    void *ctx;
    /* A snapshot is on disk and decoded. Comes at each tick again until snapshot_install_taken().
     * */
    void (*ready)(void *ctx, const struct snapshot_meta *meta, struct machine *fresh);
    void (*log)(void *ctx, int level, const char *message);
    void (*idle)(void *ctx); /* after snapshot_install_stop has said false: no work is under way */
};

int snapshot_install_create(const struct snapshot_install_config *config,
                            struct snapshot_install **ret) FLI_MUST_USE;

/* A stream of kind STREAM_SNAPSHOT, which it owns from now on. */
void snapshot_install_accept(struct snapshot_install *s, uint64_t from, struct stream *stream);

/* Within or after `ready`. `garbage` is a machine that a worker destroys: what was replaced, or the
 * fresh one when it is of no use. error 0: it is in place; else what the sender is told. */
void snapshot_install_taken(struct snapshot_install *s, int error, struct machine *garbage);

void snapshot_install_tick(struct snapshot_install *s);
bool snapshot_install_busy(const struct snapshot_install *s);
uint64_t snapshot_install_failures(const struct snapshot_install *s);

/* Once. True: no work is under way. False: it is, and `idle` comes later. */
bool snapshot_install_stop(struct snapshot_install *s) FLI_MUST_USE;
void snapshot_install_destroy(struct snapshot_install *s); /* idle; NULL is fine */

#endif
