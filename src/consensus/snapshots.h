/* snapshots.h: looks for damage in the newest snapshot before the raft library loads it.
 *
 * The library (0.22.1) takes the next older snapshot when the record beside the newest one is not
 * right, and numbers the entries of open segments as if they followed that one. The node would go
 * on with other entries than the others have under the same numbers. It does not look at the bytes
 * of the snapshot itself; they carry a checksum of the machine's (machine/snapshot.c).
 *
 * A snapshot and its record are synced before they get their names, so no crash leaves one of the
 * two wrong. One without the other, or an empty one, is what a crash may leave: passed over here as
 * the library does.
 *
 * Not seen: a newest snapshot that is gone as a whole. */
#ifndef CONSENSUS_SNAPSHOTS_H
#define CONSENSUS_SNAPSHOTS_H

#include <stddef.h>

#include "base/base.h"

/* FL_ECORRUPT or FL_EIO with a message that names the file. */
FLI_MUST_USE int snapshots_check(const char *path, char *errmsg, size_t errmsg_size);

/* Of the newest snapshot with its record, which is the one that the library loads; 0: none. FL_EIO
 * with a message. */
FLI_MUST_USE int snapshots_newest_index(const char *path, uint64_t *ret, char *errmsg,
                                        size_t errmsg_size);

#endif
