/* env.h: an LMDB environment that one process owns and that detects changed bytes.
 *
 * It is one tree of records, keys to values. Each value has a checksum. A head record, which every
 * commit rewrites, has a sum over all records, their count and the number of the commit. Opening
 * reads the file from end to end (pages.h) and compares. So a flipped bit, a lost record, a lost
 * commit or a file from an incomplete older copy is refused, never served. Only one thing goes
 * unnoticed: a complete, older directory in the place of the newer one.
 *
 * Durability: a commit returns after its pages and then its meta page were synced (LMDB's order).
 * The bytes found at opening are synced before they are trusted, since the process that wrote them
 * may have been killed between write and sync.
 *
 * Space: a commit that does not fit returns FL_ELIMIT and changes nothing. The limit is on the
 * pages that records take. The file has headroom above it: LMDB writes a changed page anew and
 * frees the old one only two commits later, so without headroom a full database could not even be
 * emptied. So the limit never refuses a transaction that does not make the records larger, as long
 * as it touches only a part of the headroom.
 *
 * After an input/output error of unknown outcome, or damage found while running, every call returns
 * that error until the environment is closed and opened again.
 *
 * Threads: one write transaction at a time, begun and ended by the same thread; fli_env_read() by
 * any thread at any time. */
#ifndef FLI_FENCE_ENV_H
#define FLI_FENCE_ENV_H

#include <lmdb.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/base.h"
#include "fence/data_dir.h"

/* Bytes of a key. The first is not 0, which is the key of the head. */
#define FLI_ENV_KEY_MAX 511u
#define FLI_ENV_SIZE_MIN ((size_t)256 * 1024)
#define FLI_ENV_HEADROOM_MIN ((size_t)1024 * 1024)
#define FLI_ENV_HEADROOM_SHARE 16u /* at least this part of size_max */

struct fli_env_head {
    uint64_t txnid; /* the commit that wrote it */
    uint64_t count; /* records, this one not included */
    uint64_t sum;   /* over all records, see env.c */
};

struct fli_env {
    struct fli_data_dir data_dir;
    char *dir;
    MDB_env *mdb;
    MDB_dbi dbi;
    size_t page_size;
    size_t size_max;
    size_t file_size; /* at opening */
    struct fli_env_head head;
    size_t pages;         /* taken by records */
    pthread_mutex_t lock; /* guards the two below */
    MDB_txn *reader;      /* reset between reads */
    int broken;           /* sticky error, 0 while all is well */
    bool no_page_free;    /* the last write found no free page, which a reader may be keeping */
};

struct fli_txn {
    struct fli_env *env;
    MDB_txn *mdb;
    struct fli_env_head head;
    size_t pages; /* taken by records; set by commit */
    bool dirty;
    int failed; /* first error of a put or delete: the transaction can only be aborted */
};

/* Visits each record at opening: its key and the beginning of its value (the whole value when it is
 * shorter than a page). */
typedef int (*fli_env_visit)(void *ctx, struct fli_slice key, struct fli_slice value_head);

/* size_max: bytes, at least FLI_ENV_SIZE_MIN. visit may be NULL. 0; FL_EINVAL; FL_EBUSY; FL_EIO;
 * FL_ECORRUPT; FL_EVERSION; FL_ENOMEM. errmsg gets a sentence on failure. */
int fli_env_open(const char *dir, const char *kind, size_t size_max, fli_env_visit visit, void *ctx,
                 struct fli_env **ret, char *errmsg, size_t errmsg_size) FLI_MUST_USE;
void fli_env_close(struct fli_env *e); /* NULL is fine; no transaction may be open */
/* In a child of fork(): gives back the descriptors, and so the lock on the directory, and nothing
 * else. LMDB's own close would take the parent's reader out of the table that they share. */
void fli_env_abandon(struct fli_env *e);

/* Copies a value of at most `cap` bytes, as of the last commit. 0; FL_ENOTFOUND; FL_ECORRUPT (which
 * includes a longer value); FL_EIO. */
int fli_env_read(struct fli_env *e, struct fli_slice key, void *buf, size_t cap,
                 size_t *ret_len) FLI_MUST_USE;

/* Begins the write transaction. After 0 exactly one of commit and abort must follow. */
int fli_txn_begin(struct fli_env *e, struct fli_txn *ret) FLI_MUST_USE;

/* Begins a transaction that sees the last commit and nothing later, beside the one that writes: by
 * any thread, for get and next, ended by abort in the same thread. head has the number of the
 * commit and how many records it had. What it sees is not written over meanwhile, so the
 * file grows. */
int fli_txn_begin_read(struct fli_env *e, struct fli_txn *ret) FLI_MUST_USE;

/* Returns the value, valid until the next put, delete or end. 0; FL_ENOTFOUND; FL_ECORRUPT;
 * FL_EIO. */
int fli_txn_get(struct fli_txn *t, struct fli_slice key, struct fli_slice *ret) FLI_MUST_USE;

/* Stores parts[0..n) one after the other as the value. The parts must not point into the database.
 * 0; FL_ELIMIT; FL_ENOMEM; FL_EIO; FL_ECORRUPT. */
int fli_txn_put(struct fli_txn *t, struct fli_slice key, const struct fli_slice *parts,
                size_t n) FLI_MUST_USE;

/* Removes a record. 0; FL_ENOTFOUND; else as put. */
int fli_txn_del(struct fli_txn *t, struct fli_slice key) FLI_MUST_USE;

/* Returns the first record whose key is at or after `from`; the key is valid as long as the value.
 * 0; FL_ENOTFOUND at the end. */
int fli_txn_next(struct fli_txn *t, struct fli_slice from, struct fli_slice *ret_key,
                 struct fli_slice *ret_value) FLI_MUST_USE;

/* Makes the transaction durable. One that changed nothing costs nothing. On failure nothing
 * changed, except after FL_EIO: then the outcome is unknown (and the environment is broken). */
int fli_txn_commit(struct fli_txn *t) FLI_MUST_USE;
void fli_txn_abort(struct fli_txn *t);

/* As of the last commit: bytes of the pages that records take, which size_max limits; and bytes of
 * the whole file with its free pages. Not while another thread has a transaction open. */
uint64_t fli_env_bytes(const struct fli_env *e);
uint64_t fli_env_file_bytes(const struct fli_env *e);

#endif
