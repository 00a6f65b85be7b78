/* snapshot_file.h: snapshots as files: written, read, sent and received in pieces, of any size.
 *
 *   snapshot-<index>-<term>        whole: it was synced before it got this name
 *   snapshot-<index>-<term>.part   being written or received; a leftover when nobody is at it
 *
 * The bytes are at the top of snapshot_file.c. All calls are synchronous; the caller paces them. A
 * writer, reader or receiver is used by one thread at a time, which may be any, and works in a
 * child after fork() (its memory is taken by open: one piece). Errors: 0 or FL_EIO (the message has
 * the system's words, a full disk too), FL_ECORRUPT with file and byte, FL_EVERSION, FL_ENOMEM,
 * FL_ENOTFOUND. After an error only abort (writer, receiver) or close (reader) may follow. */
#ifndef LOG_SNAPSHOT_FILE_H
#define LOG_SNAPSHOT_FILE_H

#include "base/base.h"
#include "log/device.h"

#define SNAPSHOT_CONF_MAX 4096u
#define SNAPSHOT_PIECE ((size_t)256 << 10) /* bytes of data under one checksum, at most */
#define SNAPSHOT_KEPT 1u                   /* whole ones that snapshot_clean keeps by default */

struct snapshot_meta {
    uint64_t index;
    uint64_t term;
    uint64_t conf_index; /* of the configuration that is in force at index */
    uint32_t conf_len;   /* at most SNAPSHOT_CONF_MAX */
    uint8_t conf[SNAPSHOT_CONF_MAX];
    uint64_t size; /* bytes of data; known when it is whole: a writer ignores it */
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

/* Bytes that were given to the file; and a sync of these, so that finish has little left to do. */
uint64_t snapshot_writer_written(const struct snapshot_writer *w);
FLI_MUST_USE int snapshot_writer_sync(struct snapshot_writer *w, struct snapshot_error *e);

/* Syncs, renames and syncs the directory: after 0 it is there for good. Frees the writer, also on
 * an error, and then removes the part. */
FLI_MUST_USE int snapshot_writer_finish(struct snapshot_writer *w, struct snapshot_error *e);
void snapshot_writer_abort(struct snapshot_writer *w);

/* --- reading --- */

struct snapshot_reader;

/* index 0: the newest. Checks header and trailer. A damaged one is an error, never skipped: the log
 * that an older one needs may be gone. */
FLI_MUST_USE int snapshot_reader_open(struct log_device *d, uint64_t index,
                                      struct snapshot_reader **ret, struct snapshot_error *e);
const struct snapshot_meta *snapshot_reader_meta(const struct snapshot_reader *r);

/* The next piece, verified; it is valid until the next call. len 0: the end, all of it was right.
 */
FLI_MUST_USE int snapshot_reader_next(struct snapshot_reader *r, struct fli_slice *ret,
                                      struct snapshot_error *e);

/* The file as it is, for sending: its length, and bytes of it from the first to the last, at most
 * len, less only at its end. offset is what has been read so far, else FL_EINVAL. Bytes are given
 * when all under the same checksum were found to be right. Not together with snapshot_reader_next.
 */
uint64_t snapshot_reader_file_size(const struct snapshot_reader *r);
FLI_MUST_USE int snapshot_reader_raw(struct snapshot_reader *r, uint64_t offset, void *data,
                                     size_t len, size_t *ret_len, struct snapshot_error *e);
void snapshot_reader_close(struct snapshot_reader *r);

/* --- receiving a file as another node has it --- */

struct snapshot_receiver;

FLI_MUST_USE int snapshot_receiver_open(struct log_device *d, uint64_t index, uint64_t term,
                                        struct snapshot_receiver **ret, struct snapshot_error *e);

/* offset is what has been received so far, else FL_EINVAL. Verifies what is complete; a piece that
 * is wrong is FL_ECORRUPT and not written. */
FLI_MUST_USE int snapshot_receiver_take(struct snapshot_receiver *r, uint64_t offset,
                                        const void *data, size_t len, struct snapshot_error *e);
uint64_t snapshot_receiver_received(const struct snapshot_receiver *r);
FLI_MUST_USE int snapshot_receiver_sync(struct snapshot_receiver *r, struct snapshot_error *e);

/* As snapshot_writer_finish. FL_ECORRUPT: it is not whole, or not of the index and term expected.
 */
FLI_MUST_USE int snapshot_receiver_finish(struct snapshot_receiver *r, struct snapshot_error *e);
void snapshot_receiver_abort(struct snapshot_receiver *r);

/* --- the directory --- */

struct snapshot_info {
    uint64_t index;
    uint64_t term;
    uint64_t file_size;
};

/* Whole ones by name, newest first, at most n; *ret_n is how many there are. */
FLI_MUST_USE int snapshot_list(struct log_device *d, struct snapshot_info *ret, size_t n,
                               size_t *ret_n, struct snapshot_error *e);

/* Removes all but the newest `keep` whole ones, and with `parts` what was left half written: only
 * when no writer or receiver is open. */
FLI_MUST_USE int snapshot_clean(struct log_device *d, size_t keep, bool parts,
                                struct snapshot_error *e);

#endif
