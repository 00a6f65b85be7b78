/* file.h: snapshots as files: written, read, sent and received in pieces, of any size.
 *
 *   snapshot-<index>-<term>        whole: it was synced before it got this name
 *   snapshot-<index>-<term>.part   being written or received; else a leftover
 *
 * The byte table is at the top of format.c. All calls are synchronous; the caller paces
 * them. One thread at a time, of any kind, uses a writer, reader or receiver. They also work in a
 * child after fork(), since open allocates their memory (one piece). Errors: 0 or FL_EIO (the
 * message has the system's words, also for a full disk), FL_ECORRUPT with file and byte,
 * FL_EVERSION, FL_ENOMEM, FL_ENOTFOUND. After an error only abort (writer, receiver) or close
 * (reader) may follow. */
#ifndef SNAPSHOT_FILE_H
#define SNAPSHOT_FILE_H

#include "base/base.h"
#include "log/device.h"

#define SNAPSHOT_CONF_MAX 4096u
#define SNAPSHOT_PIECE ((size_t)256 << 10) /* bytes of data under one checksum, at most */
/* Whole snapshots that snapshot_clean() keeps by default. */
#define SNAPSHOT_KEPT 1u

struct snapshot_meta {
    uint64_t index;
    uint64_t term;
    uint64_t conf_index; /* of the configuration that is in force at index */
    uint32_t conf_len;   /* at most SNAPSHOT_CONF_MAX */
    uint8_t conf[SNAPSHOT_CONF_MAX];
    uint64_t size; /* bytes of data, once it is whole; a writer ignores it */
};

struct snapshot_error {
    int code; /* 0: none */
    char text[256];
};

/* --- writing --- */

struct snapshot_writer;

/* Replaces a leftover .part of the same name. */
FLI_MUST_USE int snapshot_writer_open(struct log_device *d, const struct snapshot_meta *meta,
                                      struct snapshot_writer **ret, struct snapshot_error *e);
FLI_MUST_USE int snapshot_writer_write(struct snapshot_writer *w, const void *data, size_t len,
                                       struct snapshot_error *e);

/* Syncs the bytes written so far, which leaves little to finish(). */
FLI_MUST_USE int snapshot_writer_sync(struct snapshot_writer *w, struct snapshot_error *e);

/* Syncs, renames and syncs the directory: after 0 it is durable. Frees the writer, also on an
 * error, and then removes the part. */
FLI_MUST_USE int snapshot_writer_finish(struct snapshot_writer *w, struct snapshot_error *e);
void snapshot_writer_abort(struct snapshot_writer *w);

/* --- reading --- */

struct snapshot_reader;

/* index 0: opens the newest. Checks header and trailer. A damaged snapshot is an error, never
 * skipped: the log that an older one needs may be gone. */
FLI_MUST_USE int snapshot_reader_open(struct log_device *d, uint64_t index,
                                      struct snapshot_reader **ret, struct snapshot_error *e);
const struct snapshot_meta *snapshot_reader_meta(const struct snapshot_reader *r);

/* Reads the next piece and verifies it; it is valid until the next call. len 0: the end, and all of
 * it was right. */
FLI_MUST_USE int snapshot_reader_next(struct snapshot_reader *r, struct fli_slice *ret,
                                      struct snapshot_error *e);

/* For sending the file unchanged: its length; and its bytes from the first to the last, at most len
 * at a time, fewer only at the end. offset must be the number of bytes read so far, else FL_EINVAL.
 * Bytes are returned only after everything under the same checksum was verified. Not together with
 * snapshot_reader_next(). */
uint64_t snapshot_reader_file_size(const struct snapshot_reader *r);
FLI_MUST_USE int snapshot_reader_raw(struct snapshot_reader *r, uint64_t offset, void *data,
                                     size_t len, size_t *ret_len, struct snapshot_error *e);
void snapshot_reader_close(struct snapshot_reader *r);

/* --- receiving another node's file --- */

struct snapshot_receiver;

FLI_MUST_USE int snapshot_receiver_open(struct log_device *d, uint64_t index, uint64_t term,
                                        struct snapshot_receiver **ret, struct snapshot_error *e);

/* offset must be the number of bytes received so far, else FL_EINVAL. Verifies each complete piece;
 * a wrong piece is FL_ECORRUPT and is not written. */
FLI_MUST_USE int snapshot_receiver_take(struct snapshot_receiver *r, uint64_t offset,
                                        const void *data, size_t len, struct snapshot_error *e);
uint64_t snapshot_receiver_received(const struct snapshot_receiver *r);
FLI_MUST_USE int snapshot_receiver_sync(struct snapshot_receiver *r, struct snapshot_error *e);

/* Opens what was received, before finish() gives it the name by which it is found. FL_ECORRUPT: it
 * is not whole. */
FLI_MUST_USE int snapshot_receiver_read(struct snapshot_receiver *r, struct snapshot_reader **ret,
                                        struct snapshot_error *e);

/* As snapshot_writer_finish(). FL_ECORRUPT: it is not whole, or not of the expected index and
 * term. */
FLI_MUST_USE int snapshot_receiver_finish(struct snapshot_receiver *r, struct snapshot_error *e);
void snapshot_receiver_abort(struct snapshot_receiver *r);

/* --- the directory --- */

struct snapshot_info {
    uint64_t index;
    uint64_t term;
    uint64_t file_size;
};

/* Lists whole snapshots by name, newest first, at most n; *ret_n is the number of all. */
FLI_MUST_USE int snapshot_list(struct log_device *d, struct snapshot_info *ret, size_t n,
                               size_t *ret_n, struct snapshot_error *e);

/* Makes the newest whole snapshot durable, with its name; only then removes all but the newest
 * `keep`. With `parts`, removes half-written ones: only when no writer or receiver is open. */
FLI_MUST_USE int snapshot_clean(struct log_device *d, size_t keep, bool parts,
                                struct snapshot_error *e);

#endif
