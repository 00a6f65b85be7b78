/* private.h: shared by file.c, read.c and install.c. */
#ifndef SNAPSHOT_PRIVATE_H
#define SNAPSHOT_PRIVATE_H

#include "snapshot/format.h"

/* Sets *e and returns its code. */
int snapshot_fail(struct snapshot_error *e, int code, const char *fmt, ...) FLI_PRINTF(3, 4);

/* error: of a call of the device. 0; or FL_EIO: "cannot <what> <file>: <the system's words>". */
int snapshot_io(struct snapshot_error *e, const struct log_device *d, const char *what,
                const char *name, int error);

/* A whole snapshot, by its name. */
struct snapshot_found {
    bool any;
    uint64_t index, term;
};

/* Finds the one with this index, or the newest for 0. */
FLI_MUST_USE int snapshot_find(struct log_device *d, uint64_t index, struct snapshot_found *ret,
                               struct snapshot_error *e);

#endif
