/* store.h: keys, values and marks in one SQLite file. service.c has the rule, store.c the rows.
 *
 * Every key is bound for ever to the lock that first wrote it. Deleting keeps the binding;
 * otherwise a stale holder of another lock could take the key over. The mark of a lock and the data
 * written under it change in the same transaction, so neither can exist without the other.
 *
 * A floor (fence/db.h) is there after a restore. Then no token below it is accepted, and a lock
 * whose own mark is below it must be claimed before anything is written under it, since its holder
 * may have read data that the restore undid. One thread. */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <stdbool.h>

#include "base/buf.h"
#include "fence/db.h"
#include "wire/commands.h"

#define STORE_KEY_MAX 400u                    /* bytes of a key, 1 at least */
#define STORE_VALUE_MAX ((size_t)1024 * 1024) /* bytes of a value */
#define STORE_SIZE_MIN ((size_t)1024 * 1024)  /* bytes of the smallest database */
#define STORE_SIZE_DEFAULT ((size_t)1 << 30)  /* bytes */

enum store_verb {
    STORE_CLAIM = FLI_CMD_CLAIM,
    STORE_GET = FLI_CMD_GET,
    STORE_SET = FLI_CMD_SET,
    STORE_DEL = FLI_CMD_DEL,
    STORE_MARK = FLI_CMD_MARK
};

struct store_op {
    enum store_verb verb;
    bool fenced; /* lock and token are given (CLAIM: always, MARK: lock only) */
    fl_token token;
    struct fli_slice key; /* GET SET DEL: 1 to STORE_KEY_MAX */
    struct fli_slice lock;
    struct fli_slice value; /* SET */
    /* Results, written by store_do(). */
    int result;               /* 0, or a refusal: nothing was changed by this operation */
    fl_token mark;            /* MARK; FL_ESTALE: the mark that refused it */
    bool found;               /* GET, DEL: the key had a value */
    bool unclaimed;           /* FL_ESTALE: because the lock must be claimed first */
    struct fli_slice out;     /* GET: the value, valid until the next operation */
    struct fli_db_name bound; /* the lock that the key belongs to: for FL_EWRONGLOCK, and GET */
};

/* As of the last commit. Refusals and commits count from opening. */
struct store_counts {
    uint64_t keys;                             /* with a value */
    uint64_t tombstones;                       /* deleted, still bound */
    uint64_t commits;                          /* transactions that changed something */
    uint64_t ops;                              /* operations executed */
    uint64_t ops_written;                      /* of these, operations in the commits */
    uint64_t stale, wronglock, notoken, limit; /* refused */
};

struct store_entry {
    bool exists, present; /* a deleted one exists, and is not present */
    fl_token mark;        /* the stored mark of the operation's lock; 0: none */
    struct fli_db_name lock;
    size_t value_len;
    uint64_t hash;
};

/* Entries that were read or put last, without their marks; as fli_db_recent. */
#define STORE_RECENT 1024u
#define STORE_RECENT_KEY 63u
struct store_recent {
    uint8_t len, key[STORE_RECENT_KEY];
    struct store_entry entry;
};

struct store {
    struct fli_db db;
    bool fencing;
    struct store_recent *recent; /* STORE_RECENT of them */
    struct store_counts now, committed;
    struct fli_buf value; /* of the last GET */
    sqlite3_stmt *get_entry, *get_value, *insert_entry, *update_entry;
};

/* Opens or creates a database directory. size_max: bytes, at least STORE_SIZE_MIN. fencing: false
 * ignores tokens and bindings altogether (for tests). 0; FL_EINVAL; FL_EBUSY;
 * FL_EIO; FL_ECORRUPT; FL_EVERSION; FL_ENOMEM; errmsg gets a sentence on failure. */
int store_open(const char *dir, size_t size_max, bool fencing, struct store **ret, char *errmsg,
               size_t errmsg_size) FLI_MUST_USE;
void store_close(struct store *s); /* NULL is fine */

/* A transaction, as in fence/db.h: any number of operations, one sync. */
int store_begin(struct store *s) FLI_MUST_USE;
int store_commit(struct store *s) FLI_MUST_USE;
void store_rollback(struct store *s);

/* Executes an operation. op->result: 0; FL_ESTALE; FL_EWRONGLOCK; FL_ENOTOKEN; FL_EINVAL (token,
 * lock, key or value out of range); FL_ELIMIT (no room). Returns 0; otherwise the transaction
 * can only be rolled back. */
int store_do(struct store *s, struct store_op *op) FLI_MUST_USE;

/* ---- as one file, as in fence/backup.h, and out of such a file */

struct store_facts {
    uint64_t commit, keys, tombstones, marks;
    fl_token highest_mark;
    uint64_t bytes; /* of the file */
};

int store_backup(const char *dir, const char *path, struct store_facts *ret, char *errmsg,
                 size_t errmsg_size) FLI_MUST_USE;
/* Reads and checks all of a backup. */
int store_verify(const char *path, struct store_facts *ret, char *errmsg,
                 size_t errmsg_size) FLI_MUST_USE;
int store_restore(const char *path, const char *dir, size_t size_max, fl_token above,
                  struct store_facts *ret, char *errmsg, size_t errmsg_size) FLI_MUST_USE;

/* ---- the rows, for service.c */

/* Reads what is stored of a key, and of a lock, which may be empty. */
int store_get_entry(struct store *s, struct fli_slice key, struct fli_slice lock,
                    struct store_entry *ret) FLI_MUST_USE;
/* The value of a present entry, valid until the next one is read. */
int store_get_value(struct store *s, struct fli_slice key, struct fli_slice *ret) FLI_MUST_USE;
/* Writes an entry over the old one. value NULL: it is deleted, and stays bound. FL_ELIMIT. */
int store_put_entry(struct store *s, struct fli_slice key, const struct store_entry *old,
                    struct fli_slice lock, const struct fli_slice *value) FLI_MUST_USE;
/* Whether store_put_entry() would find room. */
bool store_has_room(struct store *s, struct fli_slice key, const struct store_entry *old,
                    const struct fli_slice *value);

#endif
