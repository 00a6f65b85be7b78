/* backup_format.h: a backup of the storage as bytes: every record of one commit, marks with the
 * data. Pure but for backup_format_read(), which reads a file.
 *
 *   offset size  of the header, little endian
 *   0      8     "fencestb"
 *   8      4     format, 1
 *   12     4     CRC-32C of bytes 16 to 47
 *   16     8     when it was made: milliseconds since 1970
 *   24     8     number of the commit
 *   32     8     records
 *   40     8     zeros
 *
 * each record, by key: length of the key (2, not 0), length of the value (4), key, value, CRC-32C
 * (4) over these, which continues the checksum of the record before, or of the header
 *
 * the end: 0 (2), 8 (4), the highest mark (8), CRC-32C (4) in the same chain; nothing follows
 *
 * Keys and values are those of the database (record.c). The chain of checksums detects a missing
 * record, two exchanged ones, or a mix of two backups, just like a flipped bit. */
#ifndef STORE_BACKUP_FORMAT_H
#define STORE_BACKUP_FORMAT_H

#include <stdbool.h>

#include "base/base.h"

#define STORE_BACKUP_HEADER 48u
#define STORE_BACKUP_PIECE ((size_t)64 << 10)

struct store_backup_facts {
    uint64_t made_ms, commit, records;
    uint64_t keys, tombstones, marks; /* of the records */
    fl_token highest_mark;
    uint64_t bytes; /* of the whole */
};

/* Takes the bytes, in pieces of at most STORE_BACKUP_PIECE. Returns 0, or an error, which ends
 * it. */
typedef int (*store_backup_sink)(void *ctx, const void *data, size_t len);

struct store_backup_writer {
    store_backup_sink sink;
    void *ctx;
    uint32_t crc;
    uint64_t bytes;
    size_t len;
    uint8_t piece[STORE_BACKUP_PIECE];
};

/* Each returns 0, or the sink's error. The header gets the counts in `facts`. */
int store_backup_begin(struct store_backup_writer *w, const struct store_backup_facts *facts,
                       store_backup_sink sink, void *ctx) FLI_MUST_USE;
int store_backup_add(struct store_backup_writer *w, struct fli_slice key,
                     struct fli_slice value) FLI_MUST_USE;
int store_backup_end(struct store_backup_writer *w, fl_token highest_mark) FLI_MUST_USE;

/* Gets each record in order, valid during the call. Returns 0, or an error, which ends the
 * reading. */
typedef int (*store_backup_visit)(void *ctx, struct fli_slice key, struct fli_slice value);

/* Reads a file from end to end; visit may be NULL. 0; FL_ECORRUPT, FL_EVERSION, FL_EIO, FL_ENOMEM,
 * or visit's error: errmsg says what is wrong, and at which byte. */
int store_backup_read(const char *path, store_backup_visit visit, void *ctx,
                      struct store_backup_facts *ret, char *errmsg,
                      size_t errmsg_size) FLI_MUST_USE;

#endif
