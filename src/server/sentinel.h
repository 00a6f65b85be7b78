/* sentinel.h: SENTINEL, as far as clients need it to look for a master. The cluster is one
 * master, by whatever name it is asked for: the node that leads, or the one that is asked while
 * none is known. The nodes are its sentinels, and it has no replicas, since a replica would be
 * asked for what it does not know yet. */
#ifndef SERVER_SENTINEL_H
#define SERVER_SENTINEL_H

#include "consensus/node.h"

/* Appends the answer. 0 or the error of the buffer. */
int sentinel_reply(struct fli_buf *out, int proto, const struct node_status *status,
                   const struct node_member *members, size_t n_members,
                   const struct fli_slice *args, unsigned n) FLI_MUST_USE;

#endif
