/* source.h: the bytes of a snapshot file for the loop, which must not wait for a disk.
 *
 * A worker finds and opens the file, and reads the next unit when one was taken. Each byte was
 * verified (file.h). The file stays open, so a newer snapshot may replace it meanwhile. All
 * functions are the loop's. */
#ifndef SNAPSHOT_SOURCE_H
#define SNAPSHOT_SOURCE_H

#include "peer/host.h"
#include "snapshot/file.h"

struct snapshot_source;

/* Begins to open the snapshot of this entry. NULL: no memory. The node of the host does not end
 * while a worker uses the device. */
struct snapshot_source *snapshot_source_open(const struct host *host, struct log_device *device,
                                             uint64_t index);

/* At most `most` of the next bytes, which stay in place until they are taken; none at the end.
 * FL_EBUSY: they are being read. Else as snapshot_reader_open() and snapshot_reader_next(): it has
 * failed, for good. */
int snapshot_source_next(struct snapshot_source *s, size_t most, struct fli_slice *ret,
                         struct snapshot_error *e) FLI_MUST_USE;
void snapshot_source_take(struct snapshot_source *s, size_t len);

/* Valid when its first bytes are there, until they are taken. */
const struct snapshot_meta *snapshot_source_meta(const struct snapshot_source *s);

void snapshot_source_close(struct snapshot_source *s); /* NULL is fine */

#endif
