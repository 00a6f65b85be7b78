/* backup.c: see backup.h. */
#include "server/backup.h"
#include "server/dispatch_private.h"

#include <stdlib.h>

#include "wire/resp.h"

#define PIECE_MAX ((size_t)64 << 10) /* bytes of one answer */

int backup_begin(struct fli_buf *b, const struct dispatch_node *node)
{
    uint64_t id = 0;
    int rc = node->backup_begin(node->ctx, &id);
    if (rc == FL_EBUSY) {
        return fli_resp_error(b, "BUSY",
                              "this node is making another backup; try again when that is done, "
                              "or ask another node");
    }
    if (rc != 0) {
        return fli_resp_error(b, "NOLEADER",
                              "this node hears no leader, so it may be behind; ask another node");
    }
    return fli_resp_u64(b, id);
}

static int put_piece(struct fli_buf *b, int rc, const void *data, size_t len, const char *why)
{
    switch (rc) {
    case 0:
        return fli_resp_bulk(b, data, len);
    case FL_EBUSY:
        return fli_resp_null(b, 2);
    case FL_ENOTFOUND:
        return fli_resp_error(b, "NOTFOUND",
                              "this node has no such backup (any more); begin another one");
    case FL_EINVAL:
        return fli_resp_error(b, "ERR", "offset: a backup is read from its beginning to its end");
    default:
        return fli_resp_error(b, "ERR", "the backup failed: %s", why);
    }
}

int backup_read(struct fli_buf *b, const struct dispatch_node *node, const struct fli_request *q)
{
    const char *why = "";
    size_t len = 0;
    void *data = malloc(PIECE_MAX);
    if (data == NULL) {
        return FL_ENOMEM;
    }
    int rc = node->backup_read(node->ctx, q->number, q->offset, data, PIECE_MAX, &len, &why);
    rc = put_piece(b, rc, data, len, why);
    free(data);
    return rc;
}
