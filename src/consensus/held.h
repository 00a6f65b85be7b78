/* held.h: commands that wait for a leader.
 *
 * Two lists, both first in, first out: `returned` has what was on its way before and came back,
 * `waiting` what never was. The former go first, so that the order of one client's commands
 * survives a fail-over as well as it can. Bounded by bytes_max, which counts also what is on its
 * way over a relay; each command has a deadline, which counts only while it is on these lists. */
#ifndef CONSENSUS_HELD_H
#define CONSENSUS_HELD_H

#include "consensus/ticket.h"

/* A command whose bytes the node keeps. */
struct held {
    struct fli_list link;
    struct node_ticket *t;
    uint64_t start;   /* on a relay stream: where its frame begins */
    uint64_t sent_ns; /* likewise: when it was sent */
    uint32_t len;
    bool query;
    uint8_t data[];
};

struct held_queue {
    struct fli_list returned, waiting;
    size_t bytes_max;
    size_t bytes;       /* of all that were created and not destroyed */
    uint64_t count;     /* likewise */
    uint64_t ever;      /* commands that had to wait */
    uint64_t uncertain; /* answered so */
};

void held_init(struct held_queue *q, size_t bytes_max);

/* NULL: too much is held, or no memory. On no list. */
struct held *held_create(struct held_queue *q, struct node_ticket *t, const void *command,
                         size_t len) FLI_MUST_USE;
void held_destroy(struct held_queue *q, struct held *h);
void held_answer(struct held_queue *q, struct held *h, int status); /* destroys, then calls back */

struct held *held_first(const struct held_queue *q); /* NULL: none waits */
void held_expire(struct held_queue *q, uint64_t now_ms);
void held_refuse_all(struct held_queue *q, int status);

/* A command comes back that was surely not done. */
void held_give_back(struct held_queue *q, struct node_ticket *t, const void *command, size_t len);

#endif
