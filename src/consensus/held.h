/* held.h: commands that wait for a leader, or for room in a batch.
 *
 * `returned` has the commands that were on their way and came back, first in, first out. `waiting`
 * has those that were never sent, in turns of their sources. Returned ones go first, so that one
 * client's commands keep their order over a fail-over as far as possible. Bounded by bytes_max,
 * which counts also what is on its way over a relay; the last quarter is for sources that have
 * nothing waiting, so that nobody fills it for all. Each command has a deadline, which counts only
 * while it is here. */
#ifndef CONSENSUS_HELD_H
#define CONSENSUS_HELD_H

#include "consensus/backlog.h"

struct held_queue {
    struct fli_list returned;
    struct backlog waiting;
    size_t bytes_max;
    size_t bytes;       /* of all that were created and not destroyed */
    uint64_t count;     /* likewise */
    uint64_t ever;      /* commands that had to wait */
    uint64_t uncertain; /* answered so */
};

void held_init(struct held_queue *q, size_t bytes_max);
void held_fini(struct held_queue *q); /* it must be empty */

/* Keeps a command, which waits from now on. 0; FL_EBUSY: too much is held; FL_ENOMEM. */
int held_add(struct held_queue *q, struct node_ticket *t, const void *command,
             size_t len) FLI_MUST_USE;
void held_destroy(struct held_queue *q, struct held *h);
void held_answer(struct held_queue *q, struct held *h, int status); /* destroys, then calls back */

struct held *held_first(const struct held_queue *q);              /* NULL: none waits */
struct held *held_first_urgent(const struct held_queue *q);       /* NULL: nothing urgent may go */
bool held_has(struct held_queue *q, const struct node_ticket *t); /* of its source, or it may be */
/* Takes out what one of these told. It stays the queue's until it is destroyed or answered. */
void held_take(struct held_queue *q, struct held *h);
/* Takes out all, in the order in which they came, and puts them on a list of the caller's. */
void held_take_all(struct held_queue *q, struct fli_list *to);
void held_expire(struct held_queue *q, uint64_t now_ms);
void held_refuse_all(struct held_queue *q, int status);

/* A command comes back that was surely not done. */
void held_give_back(struct held_queue *q, struct node_ticket *t, const void *command, size_t len);

#endif
