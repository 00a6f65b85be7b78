/* readiness.h: whether a node can serve a grant within its hold time, and if not, why. Pure.
 *
 * A request that comes while no node leads is held for --hold-ms. So a node is ready until it has
 * had no leader, or no stream to the leader, for longer than that. */
#ifndef SERVER_READINESS_H
#define SERVER_READINESS_H

#include "base/buf.h"
#include "node/node.h"

struct readiness {
    uint64_t apart_since_ms; /* since when it reaches no leader; 0: it reaches one */
};

struct readiness_facts {
    uint64_t now_ms;
    unsigned hold_ms;
    bool stopping;
    bool formed;
    const struct node_status *status;
    const struct node_member *members;
    size_t members_n;
};

/* Checks the facts; to be called from time to time, even without a request. True: ready. `out` gets
 * a line for each condition, "[+] what is well" or "[-] what is not: why"; NULL for none. */
bool readiness_check(struct readiness *r, const struct readiness_facts *f, struct fli_buf *out);

#endif
