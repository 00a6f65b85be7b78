/* backup.h: every record of one commit of an open storage, as a backup. */
#ifndef STORE_BACKUP_H
#define STORE_BACKUP_H

#include "store/backup_format.h"
#include "store/store.h"

/* Beside whoever executes, by any thread, one at a time. 0; FL_EBUSY: it gave way to writes, which
 * had no room left; FL_ECORRUPT, FL_EIO, FL_ENOMEM, or the sink's. */
int store_backup_write(struct store *s, store_backup_sink sink, void *ctx) FLI_MUST_USE;

#endif
