/* line.h: private to src/net: a line of connections that wait for a later turn of the loop.
 *
 * Addresses take turns in it, so an address with thousands of connections waits behind one that has
 * few. An address of which nobody waited before goes first: whoever sends one request now and then
 * is visited in the next turn, whatever others have in line. Behind NET_LINE_FRESH of those, an
 * address that has more in line has its turn. The connections of an address keep their order.
 * (After fq_codel, RFC 8290, section 4.2; without its quantum, since a visit has a share of its
 * own; and an address that has nobody left in line is fresh again at once.) All O(1), no
 * allocation. */
#ifndef NET_LINE_H
#define NET_LINE_H

#include "base/list.h"

#define NET_LINE_FRESH 16u

struct net_line {
    struct fli_list fresh;   /* queues that were empty before */
    struct fli_list crowded; /* queues that were visited, and have more */
    unsigned fresh_n;        /* visits to fresh ones since the last to a crowded one */
};

/* The connections of one address in a line. */
struct net_queue {
    struct net_line *line;
    struct fli_list link; /* in the line, unless nobody waits */
    struct fli_list conns;
};

void net_line_init(struct net_line *l);
bool net_line_empty(const struct net_line *l);
void net_queue_init(struct net_queue *q, struct net_line *line);
void net_queue_push(struct net_queue *q, struct fli_list *conn);

/* The next connection, which leaves the line; NULL when nobody waits. */
struct fli_list *net_line_pop(struct net_line *l);

/* A connection has left a queue by fli_list_remove(), and it may have been the last. */
void net_queue_left(struct net_queue *q);

#endif
