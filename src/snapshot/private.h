/* private.h: shared by the writer, the reader and the receiver of snapshot files. */
#ifndef SNAPSHOT_PRIVATE_H
#define SNAPSHOT_PRIVATE_H

#include "snapshot/format.h"

/* Sets *e and returns its code. */
int snapshot_fail(struct snapshot_error *e, int code, const char *fmt, ...) FLI_PRINTF(3, 4);

/* FL_EIO: "cannot <what> <file>: <the system's words>". */
int snapshot_io_fail(struct snapshot_error *e, const struct log_device *d, const char *what,
                     const char *name, int error);

/* FL_ECORRUPT, or FL_EVERSION if `why` is snapshot_other_version: "<file>: at byte <at>: <why>". */
int snapshot_damage(struct snapshot_error *e, const struct log_device *d, const char *name,
                    uint64_t at, const char *why);

/* A file under construction: NAME.part, which becomes NAME. */
struct snapshot_part {
    struct log_device *device;
    struct log_file *file;
    uint64_t index, term;
    uint64_t len; /* bytes in the file */
};

FLI_MUST_USE int snapshot_part_open(struct snapshot_part *p, struct log_device *d, uint64_t index,
                                    uint64_t term, struct snapshot_error *e);
FLI_MUST_USE int snapshot_part_write(struct snapshot_part *p, const void *data, size_t len,
                                     struct snapshot_error *e);
FLI_MUST_USE int snapshot_part_sync(struct snapshot_part *p, struct snapshot_error *e);

/* Syncs, closes, renames, syncs the directory. On an error the part is removed. */
FLI_MUST_USE int snapshot_part_finish(struct snapshot_part *p, struct snapshot_error *e);
void snapshot_part_abort(struct snapshot_part *p);

/* As snapshot_reader_open(), of a file under construction. */
FLI_MUST_USE int snapshot_reader_open_part(struct log_device *d, uint64_t index, uint64_t term,
                                           struct snapshot_reader **ret, struct snapshot_error *e);

#endif
