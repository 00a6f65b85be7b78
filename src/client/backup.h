/* backup.h: fetches a backup from one node. */
#ifndef FLI_CLIENT_BACKUP_H
#define FLI_CLIENT_BACKUP_H

#include "client/handle.h"

/* As fl_backup(), whose arguments have been checked. */
int fli_backup(fl_client *c, uint32_t node, uint64_t timeout_ms,
               int (*sink)(void *arg, const void *data, size_t len), void *arg) FLI_MUST_USE;

#endif
