/* backup.h: a directory of marks (db.h) as one file, and a directory out of such a file.
 *
 * A backup is a SQLite file with the same tables, of one commit: marks and data are of the same
 * moment. Its marks are older than tokens that holders have shown since. So a restore sets a floor
 * above every token that was issued before it. From then on none of those tokens is accepted, for
 * any lock. Marks never go down. */
#ifndef FLI_FENCE_BACKUP_H
#define FLI_FENCE_BACKUP_H

#include "fence/db.h"

/* Writes the backup under a temporary name, reads it back, and renames it. A server may have the
 * directory open, and goes on meanwhile. 0, or an error: errmsg says what is wrong and what to do.
 * ret->now and ret->highest say what is in it; nothing is left open. */
int fli_db_backup(const char *dir, const struct fli_db_options *options, const char *path,
                  struct fli_db *ret, char *errmsg, size_t errmsg_size) FLI_MUST_USE;
/* Makes `dir`, which must be absent or empty, from a backup, of which *ret tells. From then on
 * tokens up to `above` are refused; `above` must not be below the backup's highest mark. What a
 * crash leaves has another name. */
int fli_db_restore(const char *path, const char *dir, const struct fli_db_options *options,
                   fl_token above, struct fli_db *ret, char *errmsg,
                   size_t errmsg_size) FLI_MUST_USE;

#endif
