/* restore.h: makes a backup of a storage, and a storage from a backup. Offline: no process may use
 * the directory.
 *
 * A backup has everything of one commit. A restored storage has the keys and values of that time.
 * Its marks are of that time as well, or older than tokens that holders have shown since. So the
 * restore sets a floor above every token that was issued before it. From then on none of those
 * tokens is accepted, for any lock, and nothing is written under a lock before a newer token has
 * claimed it. Marks never go down. */
#ifndef STORE_RESTORE_H
#define STORE_RESTORE_H

#include "store/backup_format.h"
#include "store/store.h"

/* Writes the backup under a temporary name, reads it back, and renames it. 0; FL_EBUSY: a process
 * uses the directory; others as store_open(), or FL_EIO: errmsg says what is wrong and what to
 * do. */
int store_backup_make(const char *dir, const char *path, struct store_backup_facts *ret,
                      char *errmsg, size_t errmsg_size) FLI_MUST_USE;

/* Makes `dir`, which must be absent or empty, from a complete backup. From then on tokens up to
 * `above` are refused; `above` must not be below the backup's highest mark. What a crash leaves has
 * another name. 0; FL_EINVAL: `above` is too low; FL_EDENIED: the directory is not empty; FL_EBUSY;
 * others as store_backup_read() and store_open(): errmsg says what is wrong and what to do. */
int store_restore(const char *path, const char *dir, size_t size_max, fl_token above,
                  struct store_backup_facts *ret, char *errmsg, size_t errmsg_size) FLI_MUST_USE;

#endif
