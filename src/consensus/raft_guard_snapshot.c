/* raft_guard_snapshot.c: see raft_guard_snapshot.h. */
#include "consensus/raft_guard_snapshot.h"

#include "base/bytes.h"

#define TRAILER 4 /* CRC-32C of the bytes before it: machine/snapshot.c */

bool raft_guard_is_whole(const struct raft_snapshot *snapshot)
{
    for (unsigned i = 0; i < snapshot->n_bufs; i++) {
        const uint8_t *p = snapshot->bufs[i].base;
        size_t len = snapshot->bufs[i].len;
        if (len < TRAILER || fli_get_u32(p + len - TRAILER) != fli_crc32c(0, p, len - TRAILER)) {
            return false;
        }
    }
    return true;
}

void raft_guard_free_snapshot(struct raft_snapshot *snapshot)
{
    for (unsigned i = 0; i < snapshot->n_bufs; i++) {
        raft_free(snapshot->bufs[i].base);
    }
    raft_free(snapshot->bufs);
    raft_configuration_close(&snapshot->configuration);
    raft_free(snapshot);
}
