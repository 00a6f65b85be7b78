/* db.h: a SQLite file that holds marks, and may hold more tables. The library's own marks and the
 * sample storage are both kept in one.
 *
 * The marks are in the tables of our guard for SQLite (guards/sqlite/guard.sql): fence_mark has the
 * mark of each lock; fence_origin has the floor, which every lock counts as having at least
 * (rule.h). Another table, fence_total, has one row: the number of the last commit, and the sum of
 * the hashes of all rows. So a row that has changed, is missing, or is an older one is noticed when
 * the file is opened, like damage to a page.
 *
 * A commit is durable when fli_db_commit() returns: WAL mode, synchronous = FULL, one sync. Then
 * the directory's `owner` file gets its number. So a WAL that has lost commits to damage is not
 * taken for one whose last write was torn.
 *
 * Other programs may read the file meanwhile, as `sqlite3 DIR/fencelock.db` does. One that writes
 * is noticed by the next transaction. One thread at a time, except for fli_db_read_mark(). */
#ifndef FLI_FENCE_DB_H
#define FLI_FENCE_DB_H

#include <sqlite3.h>
#include <stdbool.h>

#include "fence/data_dir.h"
#include "fence/rule.h"

#define FLI_DB_FILE "fencelock.db"
#define FLI_DB_PAGE ((size_t)4096)
#define FLI_DB_SIZE_MIN ((size_t)64 * FLI_DB_PAGE)
/* Pages of the WAL after which it is copied into the file, and begins anew. */
#define FLI_DB_WAL_PAGES 500
#define FLI_DB_BUSY_MS 2000 /* how long another program may keep us from writing */

struct fli_db_state {
    uint64_t commit; /* the number of the last one */
    uint64_t sum;    /* of the hashes of all rows */
    uint64_t marks;
    fl_token floor; /* FL_TOKEN_NONE: none */
};

/* Marks that were read or put last, as the transaction that is open sees them: in the place that
 * the name hashes to. len 0: none. */
#define FLI_DB_RECENT 1024u
#define FLI_DB_RECENT_NAME 55u
struct fli_db_recent {
    uint8_t len, lock[FLI_DB_RECENT_NAME];
    fl_token mark; /* FL_TOKEN_NONE: the lock has none */
};

struct fli_db {
    struct fli_data_dir dir;
    sqlite3 *sql, *reader;
    struct fli_db_state now, committed;
    uint64_t pages_max, pages; /* taken by rows; in a transaction, at most so many */
    int64_t version;           /* another one when another program has written */
    bool dirty;
    int wal_pages;
    fl_token highest; /* mark, when it was opened */
    int broken;       /* the error after which nothing is known; 0: all is well */
    sqlite3_stmt *begin, *commit, *rollback, *data_version, *page_count, *free_count;
    sqlite3_stmt *get_mark, *put_mark, *next_mark, *delete_mark, *put_floor, *put_total;
    sqlite3_stmt *read_mark; /* of the reader */
    struct fli_db_recent recent[FLI_DB_RECENT];
};

struct fli_db_options {
    const char *kind;   /* of the directory */
    const char *schema; /* further tables, CREATE ... IF NOT EXISTS; "": none */
    size_t size_max;    /* bytes that rows may take, at least FLI_DB_SIZE_MIN */
    /* Adds the hashes of the rows of the further tables to *sum; NULL: there are none. */
    int (*add)(void *ctx, struct fli_db *db, uint64_t *sum);
    void *ctx;
};

/* Opens or creates the file in `dir`, and checks all of it. 0; FL_EINVAL; FL_EBUSY; FL_EIO;
 * FL_ECORRUPT; FL_EVERSION; FL_ENOMEM; errmsg gets a sentence on failure. */
int fli_db_open(const char *dir, const struct fli_db_options *options, struct fli_db *ret,
                char *errmsg, size_t errmsg_size) FLI_MUST_USE;
/* Checks a file that no server writes to, such as a backup; nothing is changed, and nothing is left
 * open. ret->now says what is in it. */
int fli_db_verify(const char *path, const struct fli_db_options *options, struct fli_db *ret,
                  char *errmsg, size_t errmsg_size) FLI_MUST_USE;
void fli_db_close(struct fli_db *db);
/* In a child of fork(): gives back the lock on the directory, and leaves all else to the parent. */
void fli_db_abandon(struct fli_db *db);

/* Begins the transaction that writes. After 0 exactly one of commit and rollback must follow. 0;
 * FL_EBUSY: another program is writing; FL_ENOMEM; FL_EIO and FL_ECORRUPT, which every later call
 * returns too. */
int fli_db_begin(struct fli_db *db) FLI_MUST_USE;
/* Makes it durable. One that changed nothing costs no sync. 0; FL_ELIMIT: the disk is full, and
 * nothing changed; FL_EIO: whether it was done is unknown. */
int fli_db_commit(struct fli_db *db) FLI_MUST_USE;
void fli_db_rollback(struct fli_db *db);
bool fli_db_is_open(const struct fli_db *db); /* whether it goes on, after a failed statement */

/* The stored mark of a lock, as the transaction sees it; 0 when there is none. */
int fli_db_get_mark(struct fli_db *db, struct fli_slice lock, fl_token *ret) FLI_MUST_USE;
/* Stores a mark that is higher than the stored one, `old`. FL_ELIMIT: a new lock has no room. */
int fli_db_put_mark(struct fli_db *db, struct fli_slice lock, fl_token old,
                    fl_token mark) FLI_MUST_USE;
int fli_db_raise_floor(struct fli_db *db, fl_token floor) FLI_MUST_USE;

struct fli_db_name {
    uint8_t bytes[FL_NAME_MAX];
    size_t len;
};
/* Deletes the mark of the first lock behind `at` whose mark is below the floor; `at` becomes that
 * lock. FL_ENOTFOUND: there is none. */
int fli_db_forget_next(struct fli_db *db, struct fli_db_name *at) FLI_MUST_USE;

/* The effective mark as of the last commit, also beside a transaction of another thread. */
int fli_db_read_mark(struct fli_db *db, struct fli_slice lock, fl_token *ret) FLI_MUST_USE;

/* ---- for further tables */

int fli_db_prepare(struct fli_db *db, const char *sql, sqlite3_stmt **ret) FLI_MUST_USE;
/* 1: there is a row; otherwise the statement is reset: 0: it has run; or an error. */
int fli_db_step(struct fli_db *db, sqlite3_stmt *stmt) FLI_MUST_USE;
/* What SQLite has answered, as a code. */
int fli_db_code(struct fli_db *db, int rc) FLI_MUST_USE;
struct fli_slice fli_db_column(sqlite3_stmt *stmt, int column);
uint64_t fli_db_hash(uint64_t hash, struct fli_slice column); /* of a row: one after the other */
/* A row goes (0: there was none), and another one comes. */
void fli_db_changed(struct fli_db *db, uint64_t old_hash, uint64_t new_hash);
/* Whether rows may take so many more bytes. */
bool fli_db_has_room(struct fli_db *db, size_t bytes);

/* Copies the WAL into the file, if it has grown long. */
int fli_db_checkpoint(struct fli_db *db) FLI_MUST_USE;
uint64_t fli_db_bytes(struct fli_db *db); /* of pages that rows take; not in a transaction */
uint64_t fli_db_file_bytes(struct fli_db *db);

#endif
