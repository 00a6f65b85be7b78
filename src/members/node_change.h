/* node_change.h: what an operator requests of a member: see membership.h. */
#ifndef MEMBERS_NODE_CHANGE_H
#define MEMBERS_NODE_CHANGE_H

#include "peer/members.h"

enum node_change_kind {
    NODE_CHANGE_ADD,
    NODE_CHANGE_REMOVE,
    NODE_CHANGE_REPLACE, /* by a node with an empty directory, here or elsewhere */
    NODE_CHANGE_MOVE
};

struct node_change {
    enum node_change_kind kind;
    uint64_t id;
    uint64_t incarnation; /* REPLACE: the one that is to be replaced; 0: whichever the node has */
    bool learner;         /* ADD: the node stays a learner */
    bool force;           /* REMOVE, REPLACE, MOVE: even when the rest has no majority */
    char address[MEMBER_ADDRESS_MAX]; /* ADD, MOVE, REPLACE; for REPLACE "" is the present one */
};

#endif
