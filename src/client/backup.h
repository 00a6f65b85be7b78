/* backup.h: a backup fetched from one node. */
#ifndef FLI_CLIENT_BACKUP_H
#define FLI_CLIENT_BACKUP_H

#include "client/caller.h"

/* As fl_backup(). */
int fli_backup(struct fli_caller *k, uint32_t node, uint64_t timeout_ms,
               int (*sink)(void *arg, const void *data, size_t len), void *arg) FLI_MUST_USE;

#endif
