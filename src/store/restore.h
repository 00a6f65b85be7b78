/* restore.h: a storage's backup, and a storage out of one. Offline: no process has the directory.
 *
 * A backup is everything of one commit. A restored storage has keys and values of then; its marks
 * are those of then as well, or older than what holders have shown since. So it gets a floor above
 * every token that was issued before the restore: none of those is accepted any more, for whatever
 * lock, and under a lock nothing is written before it was claimed with a newer one. Marks never go
 * down. */
#ifndef STORE_RESTORE_H
#define STORE_RESTORE_H

#include "store/backup_format.h"
#include "store/store.h"

/* Writes the backup beside its place, reads it back, and gives it its name. 0; FL_EBUSY: a process
 * has the directory; others as store_open(), or FL_EIO: errmsg says what and what to do. */
int store_backup_make(const char *dir, const char *path, struct store_backup_facts *ret,
                      char *errmsg, size_t errmsg_size) FLI_MUST_USE;

/* Makes `dir`, which is not there or empty, out of a backup that is whole. Tokens up to `above` are
 * refused from then on; it is not below the highest mark of the backup. What a crash leaves has
 * another name. 0; FL_EINVAL: `above` is too low; FL_EDENIED: the directory is not empty; FL_EBUSY;
 * others as store_backup_read() and store_open(): errmsg says what and what to do. */
int store_restore(const char *path, const char *dir, size_t size_max, fl_token above,
                  struct store_backup_facts *ret, char *errmsg, size_t errmsg_size) FLI_MUST_USE;

#endif
