/* store.h: keys, values and marks in one database; a group of operations is one transaction.
 *
 * Every key is bound for ever to the lock that first wrote it. Deleting keeps the binding;
 * otherwise a stale holder of another lock could take the key over. The mark of a lock and the data
 * written under it change in the same transaction, so neither can exist without the other.
 *
 * Threads: one call of store_execute() at a time, on any thread; store_reader_*() and store_env()
 * beside it, on one other; all other functions by the owner, while no call is running. */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <stdbool.h>

#include "base/base.h"

#define STORE_KEY_MAX 400u                    /* bytes of a key, 1 at least */
#define STORE_VALUE_MAX ((size_t)1024 * 1024) /* bytes of a value */
#define STORE_SIZE_MIN ((size_t)1024 * 1024)  /* bytes of the smallest database */
#define STORE_SIZE_DEFAULT ((size_t)1 << 30)  /* bytes */
/* Bytes of values read by one group, which then ends early. */
#define STORE_OUT_MAX ((size_t)8 * 1024 * 1024)

enum store_verb { STORE_CLAIM, STORE_GET, STORE_SET, STORE_DEL, STORE_MARK };

struct store_op {
    enum store_verb verb;
    bool fenced; /* lock and token are given (CLAIM: always, MARK: lock only) */
    fl_token token;
    struct fli_slice key; /* GET SET DEL: 1 to STORE_KEY_MAX */
    struct fli_slice lock;
    struct fli_slice value; /* SET */
    /* Results, written by store_execute(). */
    int result;     /* 0, or a refusal: nothing was changed by this operation */
    fl_token mark;  /* MARK; FL_ESTALE: the mark that refused it */
    bool found;     /* GET, DEL: the key had a value */
    bool unclaimed; /* FL_ESTALE: because the lock must be claimed first */
    uint8_t *out;   /* GET: the value, malloc'ed; see store_op_fini() */
    size_t out_len;
    uint8_t bound[FL_NAME_MAX]; /* the lock that the key belongs to: for FL_EWRONGLOCK, and GET */
    size_t bound_len;
};

/* As of the last commit. Refusals and commits count from opening. */
struct store_counts {
    uint64_t keys;                             /* with a value */
    uint64_t tombstones;                       /* deleted, still bound */
    uint64_t marks;                            /* locks with a mark */
    uint64_t commits;                          /* groups that changed something */
    uint64_t ops;                              /* operations executed */
    uint64_t ops_written;                      /* of these, operations in the commits */
    uint64_t stale, wronglock, notoken, limit; /* refused */
};

struct store;

/* Opens or creates a database directory. size_max: bytes, at least STORE_SIZE_MIN. fencing: false
 * ignores tokens and bindings altogether (to demonstrate the result). 0; FL_EINVAL; FL_EBUSY;
 * FL_EIO; FL_ECORRUPT; FL_EVERSION; FL_ENOMEM; errmsg gets a sentence on failure. */
int store_open(const char *dir, size_t size_max, bool fencing, struct store **ret, char *errmsg,
               size_t errmsg_size) FLI_MUST_USE;
void store_close(struct store *s); /* NULL is fine */

/* Executes operations in order as one transaction, which is synced on return. *ret_done: how many
 * were executed (at least one; fewer than n when STORE_OUT_MAX was reached). Each has its result:
 * 0; FL_ESTALE; FL_EWRONGLOCK; FL_ENOTOKEN; FL_EINVAL (token, lock, key or value out of range);
 * FL_ELIMIT (database or disk full); FL_ENOMEM. The operations of a group that does not fit are
 * executed in ever smaller parts, so that those that fit are done. On FL_EIO or FL_ECORRUPT no
 * result may be used, nothing may be answered, and the process should stop: what is on disk is
 * unknown. */
int store_execute(struct store *s, struct store_op *const *ops, size_t n,
                  size_t *ret_done) FLI_MUST_USE;
void store_op_fini(struct store_op *op); /* frees the value that was read */

void store_get_counts(const struct store *s, struct store_counts *ret);
uint64_t store_bytes(const struct store *s);      /* of pages that records take */
uint64_t store_file_bytes(const struct store *s); /* of the data file */
uint64_t store_size_max(const struct store *s);   /* bytes */
struct fli_env;
struct fli_env *store_env(struct store *s); /* for restore.c and backup.c */

/* One thread at a time may read a commit beside the one that executes (backup.c). When a group
 * finds no room because of the pages that the reader keeps, the reader must end: it asks
 * store_reader_must_end() often. */
void store_reader_begin(struct store *s);
bool store_reader_must_end(struct store *s);
void store_reader_end(struct store *s);
bool store_fencing(const struct store *s);

#endif
