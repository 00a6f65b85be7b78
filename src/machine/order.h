/* order.h: a list in the order of growing keys. A walk can begin at any key, and the rank of an
 * element can be computed.
 *
 * Elements are appended with keys larger than all before and removed anywhere; both are O(1) in
 * practice. Beside the list stands a short array of parts: runs of at most part_max neighbours,
 * with the first key and the number of each. A seek is a binary search and at most part_max steps;
 * a rank is a sum over the parts and at most part_max steps. Thin neighbouring parts are joined, so
 * there are at most about 4 * elements / part_max of them. Used for held locks (keys: tokens), idle
 * locks, explicit sessions and queues (keys: serials). Elements belong to the caller. Out of memory
 * stops the process. */
#ifndef MACHINE_ORDER_H
#define MACHINE_ORDER_H

#include "base/list.h"

struct order_node {
    struct fli_list link;
    uint64_t key;
};

struct order_part {
    uint64_t key; /* of first */
    struct order_node *first;
    uint32_t len;
};

struct order {
    struct fli_list list;
    struct order_part *parts;
    uint32_t parts_len;
    uint32_t parts_cap;
    uint32_t part_max;
    uint64_t len;
};

void machine_order_init(struct order *o, uint32_t part_max);
void machine_order_fini(struct order *o); /* frees the parts, not the elements */

/* Appends. The key must be larger than that of every element. */
void machine_order_push(struct order *o, struct order_node *n, uint64_t key);
void machine_order_remove(struct order *o, struct order_node *n);

/* The first element whose key is larger than `key`; NULL when there is none. */
struct order_node *machine_order_seek(const struct order *o, uint64_t key);

/* The rank of an element, 1 for the first. */
uint64_t machine_order_rank(const struct order *o, const struct order_node *n);

static inline struct order_node *machine_order_of(struct fli_list *link)
{
    return FLI_CONTAINER_OF(link, struct order_node, link);
}
static inline struct order_node *machine_order_first(const struct order *o)
{
    return o->len == 0 ? NULL : machine_order_of(o->list.next);
}
static inline struct order_node *machine_order_last(const struct order *o)
{
    return o->len == 0 ? NULL : machine_order_of(o->list.prev);
}
/* NULL at the ends. */
static inline struct order_node *machine_order_next(const struct order *o,
                                                    const struct order_node *n)
{
    return n->link.next == &o->list ? NULL : machine_order_of(n->link.next);
}
static inline struct order_node *machine_order_prev(const struct order *o,
                                                    const struct order_node *n)
{
    return n->link.prev == &o->list ? NULL : machine_order_of(n->link.prev);
}

#endif
