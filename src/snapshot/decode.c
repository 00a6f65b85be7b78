/* decode.c: see decode.h. */
#include "snapshot/decode.h"

int snapshot_decode(struct snapshot_reader *reader, const uint64_t hash_seed[2],
                    struct machine **ret, struct snapshot_error *error)
{
    struct machine_restore *restore;
    struct fli_slice bytes;
    int rv = machine_restore_begin(hash_seed, &restore);
    if (rv != 0) {
        return rv;
    }
    while ((rv = snapshot_reader_next(reader, &bytes, error)) == 0 && bytes.len > 0) {
        rv = machine_restore_feed(restore, bytes.data, bytes.len);
        if (rv != 0) {
            break;
        }
    }
    if (rv != 0) {
        machine_restore_abort(restore);
        return rv;
    }
    return machine_restore_finish(restore, ret);
}
