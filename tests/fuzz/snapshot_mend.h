/* snapshot_mend.h: puts a snapshot file right as far as checksums go, so that what is behind them
 * is tried. */
#ifndef TEST_FUZZ_SNAPSHOT_MEND_H
#define TEST_FUZZ_SNAPSHOT_MEND_H

#include <string.h>

#include "base/bytes.h"
#include "snapshot/format.h"

#define MEND_INDEX 9
#define MEND_TERM 4

/* Checksums of the units that are there as far as lengths go; returns where the last ends. */
static inline size_t snapshot_mend(uint8_t *data, size_t len, struct snapshot_stream *s)
{
    const char *why = NULL;
    size_t at = 0;
    if (len >= 8) {
        memcpy(data + 4, "FLSN", 4);
    }
    for (;;) {
        size_t need = snapshot_unit_len(s, data + at, len - at, &why);
        if (need == 0 || need > len - at) {
            return at;
        }
        uint8_t *p = data + at;
        struct snapshot_meta meta;
        struct fli_slice piece;
        if (s->stage == SNAPSHOT_AT_HEADER) {
            fli_put_u32(p + 12, SNAPSHOT_VERSION);
            fli_put_u64(p + 16, MEND_INDEX);
            fli_put_u64(p + 24, MEND_TERM);
        } else {
            fli_put_u32(p + 4, s->chain);
        }
        fli_put_u32(p, fli_crc32c(0, p + 4, need - 4));
        at += need;
        if (snapshot_take_unit(s, p, need, &meta, &piece) != NULL || s->stage == SNAPSHOT_AT_END) {
            return at;
        }
    }
}

#endif
