/* node_list.h: what the nodes say of themselves, which `status`, `health` and `top` look at, and
 * the list of them that `status` and `top` print. */
#ifndef CLI_NODE_LIST_H
#define CLI_NODE_LIST_H

#include "cli/fencelock_common.h"

#define SEEN_MESSAGE_SIZE 320u

struct seen_node {
    const char *address;
    int error;   /* 0: `status` is valid */
    bool serves; /* for `health` */
    char message[SEEN_MESSAGE_SIZE];
    struct fl_node_status status;
};

struct seen_nodes {
    struct seen_node node[FL_NODES_MAX];
    size_t n, reached;
    uint64_t commit;               /* the highest commit index of any */
    const struct seen_node *first; /* has applied most; NULL: none was reached */
    const struct seen_node *leader;
};

void see_nodes(fl_client *c, uint64_t timeout_ms, struct seen_nodes *ret);

/* How many entries this node has yet to apply. */
uint64_t seen_lag(const struct seen_nodes *seen, const struct seen_node *node);

/* work: a table of what they do now, and not of what they are. */
void list_nodes(struct cli_out *o, const struct seen_nodes *seen, bool work);

#endif
