/* backup.h: a storage as one file, and a storage out of such a file.
 *
 * A backup is a SQLite file with the tables of the storage, of one commit: marks and data are of
 * the same moment. Its marks are older than tokens that holders have shown since. So a restore sets
 * a floor above every token that was issued before it. From then on none of those tokens is
 * accepted, for any lock, and nothing is written under a lock before a newer token has claimed it.
 * Marks never go down. */
#ifndef STORE_BACKUP_H
#define STORE_BACKUP_H

#include "store/store.h"

struct store_facts {
    uint64_t commit, keys, tombstones, marks;
    fl_token highest_mark;
    uint64_t bytes; /* of the file */
};

/* Writes the backup under a temporary name, reads it back, and renames it. A server may have the
 * directory open, and goes on meanwhile. 0, or an error: errmsg says what is wrong and what to
 * do. */
int store_backup(const char *dir, const char *path, struct store_facts *ret, char *errmsg,
                 size_t errmsg_size) FLI_MUST_USE;
/* Reads and checks all of a backup. */
int store_verify(const char *path, struct store_facts *ret, char *errmsg,
                 size_t errmsg_size) FLI_MUST_USE;
/* Makes `dir`, which must be absent or empty, from a backup. From then on tokens up to `above` are
 * refused; `above` must not be below the backup's highest mark. What a crash leaves has another
 * name. */
int store_restore(const char *path, const char *dir, size_t size_max, fl_token above,
                  struct store_facts *ret, char *errmsg, size_t errmsg_size) FLI_MUST_USE;

#endif
