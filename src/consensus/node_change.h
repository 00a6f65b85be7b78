/* node_change.h: what an operator asks for about a member. */
#ifndef CONSENSUS_NODE_CHANGE_H
#define CONSENSUS_NODE_CHANGE_H

#include <stdbool.h>

#include "peer/members.h"

enum node_change_kind {
    NODE_CHANGE_ADD,
    NODE_CHANGE_REMOVE,
    NODE_CHANGE_REPLACE, /* by one with an empty directory, here or elsewhere */
    NODE_CHANGE_FORGET,  /* the same, of one that is not connected and may come back as it was */
    NODE_CHANGE_MOVE
};

struct node_change {
    enum node_change_kind kind;
    uint64_t id;
    bool learner;                     /* ADD: it is to stay a learner */
    bool force;                       /* REMOVE, REPLACE: also when what is left has no majority */
    char address[MEMBER_ADDRESS_MAX]; /* ADD, MOVE, and REPLACE, where "" is the present one */
};

#endif
