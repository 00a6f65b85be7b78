/* backup.h: the answers to CLUSTER BACKUP. */
#ifndef SERVER_BACKUP_H
#define SERVER_BACKUP_H

#include "base/buf.h"
#include "wire/request.h"

struct dispatch_node;

/* Each appends the whole answer. 0 or the buffer's error. */
int backup_begin(struct fli_buf *b, const struct dispatch_node *node) FLI_MUST_USE;
int backup_read(struct fli_buf *b, const struct dispatch_node *node,
                const struct fli_request *q) FLI_MUST_USE;

#endif
