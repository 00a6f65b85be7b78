/* fuzz_snapshot.c: snapshots of any bytes. What is taken for a machine must be sound, encode to the
 * very same bytes, and live on. The input is tried as it is and with magic, version and checksum
 * put right, since no fuzzer guesses those. */
#include "fuzz.h"

#include <stdlib.h>

#include "../lib/machine_check.h"
#include "../lib/snapshot_bytes.h"
#include "machine/machine.h"

static const uint64_t seed[2] = {1, 2};

/* Lets everything that has a deadline reach it. */
static void live_on(struct machine *m)
{
    uint8_t batch[MACHINE_BATCH_HEADER_SIZE];
    uint64_t clock_ms = machine_clock(m);
    for (unsigned i = 0; i < 3 && clock_ms < MACHINE_CLOCK_MAX_MS - 2 * FL_TTL_MAX_MS; i++) {
        clock_ms += FL_TTL_MAX_MS / 2 + 1;
        struct machine_batch_header h = {
            .flags = i == 0 ? MACHINE_BATCH_TERM_MARK : 0,
            .timestamp_ms = clock_ms,
            .length = sizeof batch,
        };
        FLI_ASSERT(machine_apply(m, batch, machine_batch_seal(batch, &h), NULL) == 0);
        machine_check(m);
    }
}

#define FORMAT_AT 8
#define FORMAT 4u

/* In pieces of a length that the input itself decides. */
static int decode_pieces(const uint8_t *data, size_t size, struct machine **ret)
{
    struct machine_restore *r;
    size_t piece = size == 0 ? 1 : 1 + data[size / 2] % 31u;
    FLI_ASSERT(machine_restore_begin(seed, &r) == 0);
    for (size_t at = 0; at < size; at += piece) {
        int rc = machine_restore_feed(r, data + at, piece < size - at ? piece : size - at);
        if (rc != 0) {
            machine_restore_abort(r);
            return rc;
        }
    }
    return machine_restore_finish(r, ret);
}

static void try_decode(const uint8_t *data, size_t size)
{
    struct machine *m = NULL;
    struct machine *pieced = NULL;
    int rc = machine_snapshot_decode(data, size, seed, &m);
    FLI_ASSERT(decode_pieces(data, size, &pieced) == rc);
    FLI_ASSERT(rc != 0 || machine_hash(pieced) == machine_hash(m));
    machine_destroy(pieced);
    if (rc != 0) {
        FLI_ASSERT((rc == FL_ECORRUPT || rc == FL_EVERSION) && m == NULL);
        return;
    }
    struct fli_buf again;
    fli_buf_init(&again, SIZE_MAX);
    machine_check(m);
    FLI_ASSERT(machine_snapshot_encode(m, &again) == 0);
    FLI_ASSERT(fli_bytes_cmp(again.data, again.len, data, size) == 0);
    live_on(m);
    machine_destroy(m);
    fli_buf_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t head[12] = {'F', 'L', 'S', 'N', 'A', 'P', '\r', '\n', 0, 0, 0, 0};
    try_decode(data, size);
    if (size < sizeof head + 4) {
        return 0;
    }
    uint8_t *copy = malloc(size);
    FLI_ASSERT(copy != NULL);
    memcpy(copy, data, size);
    memcpy(copy, head, sizeof head);
    copy[FORMAT_AT] = FORMAT;
    fli_put_u32(copy + size - 4, fli_crc32c(0, copy, size - 4));
    try_decode(copy, size);
    free(copy);
    return 0;
}
