/* sentinel.h: SENTINEL, as far as clients need it to find a master. The cluster is one master,
 * under whatever name a client asks for: the leader or, while none is known, the node that is
 * asked. The nodes are its sentinels. It has no replicas: clients would read from a replica what it
 * does not know yet. */
#ifndef SERVER_SENTINEL_H
#define SERVER_SENTINEL_H

#include "consensus/node.h"

/* Appends the answer. 0 or the error of the buffer. */
int sentinel_reply(struct fli_buf *out, int proto, const struct node_status *status,
                   const struct node_member *members, size_t n_members,
                   const struct fli_slice *args, unsigned n) FLI_MUST_USE;

#endif
