/* source.h: the bytes of a snapshot file for the loop, which must not wait for a disk.
 *
 * A worker finds and opens the file, and reads the next unit when one was taken. Each byte was
 * verified (file.h). The file stays open, so a newer snapshot may replace it meanwhile. All
 * functions and callbacks are the loop's. */
#ifndef SNAPSHOT_SOURCE_H
#define SNAPSHOT_SOURCE_H

#include "peer/host.h"
#include "snapshot/file.h"

struct snapshot_source;

struct snapshot_source_config {
    const struct host *host; /* its node does not end while a worker uses the device */
    struct log_device *device;
    uint64_t index; /* of the snapshot */
    void *ctx;
    void (*ready)(void *ctx); /* it is open, has more bytes, or has failed; NULL: the owner asks */
};

/* Begins to open it. 0 or FL_ENOMEM. */
int snapshot_source_open(const struct snapshot_source_config *config,
                         struct snapshot_source **ret) FLI_MUST_USE;

/* NULL until it is open. */
const struct snapshot_meta *snapshot_source_meta(const struct snapshot_source *s);

/* The length of the file, once it is open. */
uint64_t snapshot_source_size(const struct snapshot_source *s);

/* At most `most` of the next bytes, which stay in place until they are taken; none at the end.
 * FL_EBUSY: `ready` will be called. Else as snapshot_reader_open() and snapshot_reader_next(): it
 * has failed, for good. */
int snapshot_source_next(struct snapshot_source *s, size_t most, struct fli_slice *ret,
                         struct snapshot_error *e) FLI_MUST_USE;
void snapshot_source_take(struct snapshot_source *s, size_t len);

/* No callback comes any more. NULL is fine. */
void snapshot_source_close(struct snapshot_source *s);

#endif
