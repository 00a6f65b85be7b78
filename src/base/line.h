/* line.h: a line in which those that wait take turns: connections that wait for a later turn of the
 * loop, operations of a storage, what is cleaned up after clients that are gone.
 *
 * It has a queue for each address. Queues take turns, so an address with thousands in line waits
 * behind one that has few. A queue in which nothing waited before goes first: whoever sends one
 * request now and then is visited in the next turn, whatever others have in line. Behind
 * FLI_LINE_FRESH of those, a queue that has more in line has its turn. What waits in a queue keeps
 * its order. (After fq_codel, RFC 8290, section 4.2; without its quantum, since a visit has a share
 * of its own; and a queue that has nothing left is fresh again at once.) All O(1), no
 * allocation. */
#ifndef FLI_LINE_H
#define FLI_LINE_H

#include "base/list.h"

#define FLI_LINE_FRESH 16u

struct fli_line {
    struct fli_list fresh;   /* queues that were empty before */
    struct fli_list crowded; /* queues that were visited, and have more */
    unsigned fresh_n;        /* visits to fresh ones since the last to a crowded one */
};

/* What waits of one address. */
struct fli_queue {
    struct fli_line *line;
    struct fli_list link; /* in the line, unless nothing waits */
    struct fli_list items;
};

void fli_line_init(struct fli_line *l);
bool fli_line_empty(const struct fli_line *l);
void fli_queue_init(struct fli_queue *q, struct fli_line *line);
void fli_queue_push(struct fli_queue *q, struct fli_list *item);
/* The same, in front of the others of its queue: it was taken out before them. */
void fli_queue_push_front(struct fli_queue *q, struct fli_list *item);

/* The next item, which leaves the line; NULL when nothing waits. */
struct fli_list *fli_line_pop(struct fli_line *l);

/* An item has left a queue by fli_list_remove(), and it may have been the last. */
void fli_queue_left(struct fli_queue *q);

#endif
