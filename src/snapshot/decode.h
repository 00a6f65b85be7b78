/* decode.h: the state in a snapshot file, as a machine. */
#ifndef SNAPSHOT_DECODE_H
#define SNAPSHOT_DECODE_H

#include "snapshot/file.h"
#include "machine/machine.h"

/* Reads the file from its beginning to its end. 0; FL_ENOMEM; FL_ECORRUPT or FL_EVERSION of the
 * state; or an error of the file; `error` says which, and where. Any thread. */
int snapshot_decode(struct snapshot_reader *reader, const uint64_t hash_seed[2],
                    struct machine **ret, struct snapshot_error *error) FLI_MUST_USE;

#endif
