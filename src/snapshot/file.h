/* file.h: snapshots as files: written, read, sent and received in pieces, of any size.
 *
 *   snapshot-<index>-<term>        whole: it was synced before it got this name
 *   snapshot-<index>-<term>.part   being written or received; else a leftover
 *
 * The byte table is at the top of format.c. All calls are synchronous; the caller paces
 * them. One thread at a time, of any kind, uses a writer, reader or part. They also work in a
 * child after fork(), since open allocates their memory (one piece). Errors: 0 or FL_EIO (the
 * message has the system's words, also for a full disk), FL_ECORRUPT with file and byte,
 * FL_EVERSION, FL_ENOMEM, FL_ENOTFOUND. After an error only the end (writer), abort (part) or
 * close (reader) may follow. */
#ifndef SNAPSHOT_FILE_H
#define SNAPSHOT_FILE_H

#include "log/device.h"
#include "machine/machine.h"

#define SNAPSHOT_CONF_MAX 4096u
#define SNAPSHOT_PIECE ((size_t)256 << 10) /* bytes of data under one checksum, at most */

struct snapshot_meta {
    uint64_t index;
    uint64_t term;
    uint64_t conf_index; /* of the configuration that is in force at index */
    uint32_t conf_len;   /* at most SNAPSHOT_CONF_MAX */
    uint8_t conf[SNAPSHOT_CONF_MAX];
    /* A reader knows the next three once all was read. */
    uint64_t node_id;   /* of the node that made the file */
    uint64_t made_ms;   /* its wall clock then, since 1970: for people */
    uint64_t size;      /* bytes of data; a writer ignores it, and the next */
    uint64_t file_size; /* of a backup only when all was read */
};

struct snapshot_error {
    int code; /* 0: none */
    char text[512];
};

/* Sets *e and returns its code. */
int snapshot_fail(struct snapshot_error *e, int code, const char *fmt, ...) FLI_PRINTF(3, 4);

/* --- writing --- */

struct snapshot_writer;

/* Replaces a leftover .part of the same name. *e stays valid until the end. */
FLI_MUST_USE int snapshot_writer_open(struct log_device *d, const struct snapshot_meta *meta,
                                      struct snapshot_writer **ret, struct snapshot_error *e);

/* For machine_snapshot_write(). *e of open has the error. */
FLI_MUST_USE int snapshot_writer_write(void *writer, const void *data, size_t len);

/* Syncs the bytes written so far, which leaves little to the end. */
FLI_MUST_USE int snapshot_writer_sync(struct snapshot_writer *w);

/* The end. error 0: syncs, renames and syncs the directory: after 0 it is durable. Else, and after
 * an error, the part is removed, and the error returned. Frees the writer. */
FLI_MUST_USE int snapshot_writer_end(struct snapshot_writer *w, int error);

/* --- reading --- */

struct snapshot_reader;

/* Opens the one of this entry; index 0: the newest, while none is removed. Checks its header. A
 * damaged snapshot is an error, never skipped: the log that an older one needs may be gone. */
FLI_MUST_USE int snapshot_reader_open(struct log_device *d, uint64_t index,
                                      struct snapshot_reader **ret, struct snapshot_error *e);

const struct snapshot_meta *snapshot_reader_meta(const struct snapshot_reader *r);

/* Reads the next unit of the file and verifies it: the header, each piece, the trailer. `whole` is
 * all of its bytes, `data` those of the state; both are valid until the next call. `whole` is empty
 * at the end: all of the file was right. */
FLI_MUST_USE int snapshot_reader_next(struct snapshot_reader *r, struct fli_slice *whole,
                                      struct fli_slice *data, struct snapshot_error *e);

void snapshot_reader_close(struct snapshot_reader *r);

/* Reads a file that was just opened to its end, and closes it: the state in it, as a machine. 0;
 * FL_ENOMEM; FL_ECORRUPT or FL_EVERSION of the state; or an error of the file; *e says which, and
 * where. After an error *ret_meta and *ret are as before. Any thread. */
FLI_MUST_USE int snapshot_decode(struct snapshot_reader *r, const uint64_t hash_seed[2],
                                 struct snapshot_meta *ret_meta, struct machine **ret,
                                 struct snapshot_error *e);

/* The same of the newest, while none is removed. FL_ENOTFOUND: there is none. */
FLI_MUST_USE int snapshot_load(struct log_device *d, struct snapshot_meta *ret_meta,
                               struct machine **ret, struct snapshot_error *e);

/* The same for a backup, which is the file of a snapshot in any place. It may be one that can be
 * read only once. */
FLI_MUST_USE int snapshot_read_backup(const char *path, struct snapshot_meta *ret_meta,
                                      struct machine **ret, struct snapshot_error *e);

/* --- a file that is being made --- */

/* NAME.part, which becomes NAME. A writer has one, and so has the copy of another node's file. */
struct snapshot_part {
    struct log_device *device;
    struct log_file *file; /* NULL: none is being made */
    uint64_t index, term;
    char name[LOG_NAME_MAX + 1];
    uint64_t len; /* bytes in the file */
};

/* Replaces a leftover of the same name. */
FLI_MUST_USE int snapshot_part_open(struct snapshot_part *p, struct log_device *d, uint64_t index,
                                    uint64_t term, struct snapshot_error *e);
FLI_MUST_USE int snapshot_part_write(struct snapshot_part *p, const void *data, size_t len,
                                     struct snapshot_error *e);
FLI_MUST_USE int snapshot_part_sync(struct snapshot_part *p, struct snapshot_error *e);

/* As snapshot_reader_open(), before it has the name by which it is found. FL_ECORRUPT, too: it is
 * of another index or term. */
FLI_MUST_USE int snapshot_part_read(const struct snapshot_part *p, struct snapshot_reader **ret,
                                    struct snapshot_error *e);

/* Syncs, closes, renames, syncs the directory. On an error the part is removed. */
FLI_MUST_USE int snapshot_part_finish(struct snapshot_part *p, struct snapshot_error *e);
void snapshot_part_abort(struct snapshot_part *p);

/* --- the directory --- */

/* Makes the newest whole snapshot durable, with its name; only then removes the older ones, and
 * what is half-written of an entry up to `parts`: none of these may be in the making. */
FLI_MUST_USE int snapshot_clean(struct log_device *d, uint64_t parts, struct snapshot_error *e);
FLI_MUST_USE int snapshot_clean_parts(struct log_device *d, uint64_t parts,
                                      struct snapshot_error *e); /* only these */

#endif
