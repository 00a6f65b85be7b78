/* backup.h: fetches a backup from one node. */
#ifndef FLI_CLIENT_BACKUP_H
#define FLI_CLIENT_BACKUP_H

#include "client/handle.h"

/* As fl_backup() or fl_store_backup(); op says which. */
int fli_backup(fl_client *c, enum fli_ask_op op, uint32_t node, uint64_t timeout_ms,
               int (*sink)(void *arg, const void *data, size_t len), void *arg) FLI_MUST_USE;

#endif
