/* readiness.h: whether a node can serve a grant within its hold time, and if not, why. Pure.
 *
 * A request that comes while nobody leads is held for --hold-ms, so a node is ready until it has
 * been without a leader, or without a stream to it, for longer. */
#ifndef SERVER_READINESS_H
#define SERVER_READINESS_H

#include "base/buf.h"
#include "consensus/node.h"

struct readiness {
    uint64_t apart_since_ms; /* without a leader it can reach; 0: it has one */
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

/* Looks at the facts; to be called now and then, also when nobody asks. True: ready. `out` gets a
 * line a condition, "[+] what is well" or "[-] what is not: why"; NULL for none. */
bool readiness_check(struct readiness *r, const struct readiness_facts *f, struct fli_buf *out);

#endif
