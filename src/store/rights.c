/* rights.c: see rights.h. */
#include "store/rights.h"

bool rights_gate(struct file_users *u, struct net_request *r, enum fli_command_id id)
{
    bool needs_admin = id == FLI_CMD_INFO || id == FLI_CMD_CLIENT_LIST;
    bool is_for_all =
        id == FLI_CMD_AUTH || id == FLI_CMD_HELLO || id == FLI_CMD_QUIT || id == FLI_CMD_RESET;
    bool may = u == NULL || is_for_all ||
               (file_users_is_known(u, r->conn) &&
                (!needs_admin || file_users_may(u, r->conn, ACL_ADMIN, NULL)));
    if (!may) {
        file_users_deny(u, r, ACL_ADMIN);
    }
    return may;
}

bool rights_allow(struct file_users *u, struct net_request *r, const struct fli_request *q,
                  enum store_verb verb)
{
    bool writes = verb == STORE_SET || verb == STORE_DEL;
    unsigned first = writes ? ACL_WRITE : verb == STORE_CLAIM ? ACL_CLAIM : ACL_READ;
    unsigned second = verb == STORE_GET ? ACL_CLAIM : first;
    if (u == NULL || (!q->fenced && (verb == STORE_GET || writes))) {
        return true; /* a write is answered NOTOKEN */
    }
    unsigned lacks = !file_users_may(u, r->conn, first, &q->lock)    ? first
                     : !file_users_may(u, r->conn, second, &q->lock) ? second
                                                                     : 0;
    if (lacks != 0) {
        file_users_deny(u, r, lacks);
    }
    return lacks == 0;
}

bool rights_may_know(const struct file_users *u, const struct net_conn *c,
                     const struct store_op *op)
{
    const struct fli_slice bound = {op->bound.bytes, op->bound.len};
    bool tells = op->result == FL_EWRONGLOCK || (op->verb == STORE_GET && !op->fenced);
    return u == NULL || !tells || file_users_may(u, c, ACL_READ, op->bound.len > 0 ? &bound : NULL);
}
