/* fuzz_snapshot_file.c: snapshot files of any bytes. The reader and the receiver agree on whether
 * the file is whole, whatever the pieces it comes in. Memory does not depend on lengths in it.
 *
 *   1   what is put right before: checksums (bit 0), the end (1)
 *   1   how many bytes are received at once
 *       the rest: the file */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "../unit/log/sim_device.h"
#include "snapshot_mend.h"

#define FILE_MAX ((size_t)1 << 20)
#define NAME "snapshot-00000000000000000009-00000000000000000004"

/* Reads from the first unit to the last, and closes the reader. */
static int read_units(struct snapshot_reader *r, uint64_t *ret_size, struct snapshot_error *e)
{
    struct fli_slice whole = {.len = 1};
    struct fli_slice piece;
    int rv = 0;
    *ret_size = 0;
    while (rv == 0 && whole.len > 0) {
        rv = snapshot_reader_next(r, &whole, &piece, e);
        *ret_size += rv == 0 ? piece.len : 0;
    }
    FLI_ASSERT(rv != 0 || *ret_size == snapshot_reader_meta(r)->size);
    snapshot_reader_close(r);
    return rv;
}

static int receive(struct log_device *d, const uint8_t *data, size_t len, size_t cut)
{
    struct snapshot_error e = {0};
    struct snapshot_part p;
    struct snapshot_reader *r = NULL;
    uint64_t size = 0;
    int rv = snapshot_part_open(&p, d, MEND_INDEX, MEND_TERM, &e);
    FLI_ASSERT(rv == 0);
    for (size_t at = 0; at < len; at += cut) {
        rv = snapshot_part_write(&p, data + at, len - at < cut ? len - at : cut, &e);
        FLI_ASSERT(rv == 0);
    }
    rv = snapshot_part_read(&p, &r, &e);
    rv = rv == 0 ? read_units(r, &size, &e) : rv;
    if (rv != 0) {
        FLI_ASSERT(e.code == rv && e.text[0] != '\0');
        snapshot_part_abort(&p);
        return rv;
    }
    return snapshot_part_finish(&p, &e);
}

static int read_all(struct log_device *d, uint64_t *ret_size)
{
    struct snapshot_error e = {0};
    struct snapshot_reader *r = NULL;
    int rv = snapshot_reader_open(d, 0, &r, &e);
    if (rv != 0) {
        FLI_ASSERT(e.code == rv && e.text[0] != '\0');
        return rv;
    }
    return read_units(r, ret_size, &e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > FILE_MAX) {
        return 0;
    }
    size_t len = size - 2;
    uint8_t *bytes = calloc(1, len + SNAPSHOT_TRAILER + 1);
    FLI_ASSERT(bytes != NULL);
    memcpy(bytes, data + 2, len);
    if ((data[0] & 1) != 0) {
        struct snapshot_stream s = {0};
        const struct snapshot_meta meta = {.node_id = 1};
        size_t end = snapshot_mend(bytes, len, &s);
        if ((data[0] & 2) != 0 && s.stage == SNAPSHOT_AT_PIECE) {
            memset(bytes + end, 0, len + SNAPSHOT_TRAILER - end);
            len = end + snapshot_put_trailer(&s, &meta, bytes + end);
        }
    }
    struct sim_device *from = sim_device_create(1);
    struct sim_device *to = sim_device_create(2);
    uint64_t sizes[2] = {0, 0};
    sim_device_put(from, NAME, bytes, len);
    int read = read_all(sim_device_base(from), &sizes[0]);
    int got = receive(sim_device_base(to), bytes, len, data[1] == 0 ? len + 1 : data[1]);
    FLI_ASSERT(read == 0 || read == FL_ECORRUPT || read == FL_EVERSION);
    FLI_ASSERT((read == 0) == (got == 0));
    FLI_ASSERT((got == 0) == (sim_device_files(to) == 1));
    if (got == 0) {
        size_t copied = 0;
        const uint8_t *copy = sim_device_data(to, NAME, &copied);
        FLI_ASSERT(copied == len && memcmp(copy, bytes, len) == 0);
        FLI_ASSERT(read_all(sim_device_base(to), &sizes[1]) == 0 && sizes[0] == sizes[1]);
    }
    sim_device_destroy(from);
    sim_device_destroy(to);
    free(bytes);
    return 0;
}
