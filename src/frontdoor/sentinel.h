/* sentinel.h: SENTINEL, as far as clients need it to find a master. The cluster is one master,
 * under whatever name a client asks for: the leader or, while none is known, the node that is
 * asked. The nodes are its sentinels. It has no replicas: clients would read from a replica what it
 * does not know yet. Pure. */
#ifndef FRONTDOOR_SENTINEL_H
#define FRONTDOOR_SENTINEL_H

#include "base/buf.h"

struct frontdoor_node {
    uint64_t id;
    const char *client_address; /* NULL: unknown */
    bool leader, self;
};

/* Appends the answer. 0 or the error of the buffer. */
int frontdoor_sentinel(struct fli_buf *out, int proto, uint64_t term,
                       const struct frontdoor_node *nodes, size_t n_nodes,
                       const struct fli_slice *args, unsigned n) FLI_MUST_USE;

#endif
