/* snapshot_bytes.h: a snapshot of a machine in one piece. Encode: 0, FL_ENOMEM, FL_ELIMIT (the
 * buffer's ceiling); on failure nothing is appended. Decode: as restore. */
#ifndef TEST_SNAPSHOT_BYTES_H
#define TEST_SNAPSHOT_BYTES_H

#include "machine/machine.h"

static inline int snapshot_append(void *ctx, const void *bytes, size_t len)
{
    return fli_buf_append(ctx, bytes, len);
}

static inline int machine_snapshot_encode(const struct machine *m, struct fli_buf *out)
{
    size_t start = out->len;
    int rc = machine_snapshot_write(m, snapshot_append, out);
    if (rc != 0) {
        out->len = start;
    }
    return rc;
}

static inline int machine_snapshot_decode(const void *data, size_t len, const uint64_t hash_seed[2],
                                          struct machine **ret)
{
    struct machine_restore *r;
    int rc = machine_restore_begin(hash_seed, &r);
    if (rc != 0) {
        return rc;
    }
    rc = machine_restore_feed(r, data, len);
    if (rc != 0) {
        machine_restore_abort(r);
        return rc;
    }
    return machine_restore_finish(r, ret);
}

#endif
