/* held.h: commands that wait for a leader, or for room in a batch.
 *
 * Sources take turns (backlog.h). Commands that were handed on and came back go before the others
 * of their source, so that one client's commands keep their order over a fail-over as far as
 * possible. They do not go before other clients' commands, or all would wait for whoever had most
 * in line at a former leader. The sum of bytes is bounded by bytes_max, including commands that a
 * relay has sent. The last quarter is reserved for sources that have nothing waiting, so no source
 * can fill it alone. Of that, the last quarter is for those of them that renew or release.
 * Each command has a deadline, which counts only while it waits here. */
#ifndef CONSENSUS_HELD_H
#define CONSENSUS_HELD_H

#include "consensus/backlog.h"

#define HELD_EXPIRED_MAX 4096u
/* So many go to a leader, or come back from one that leads no more, in a turn of the loop. */
#define HELD_MOVED_MAX 4096u

struct held_queue {
    struct backlog waiting;
    size_t bytes_max;
    size_t bytes;       /* of all that were created and not destroyed */
    uint64_t count;     /* likewise */
    uint64_t ever;      /* all commands that ever had to wait */
    uint64_t uncertain; /* answered FL_EUNCERTAIN */
};

void held_init(struct held_queue *q, size_t bytes_max);
void held_fini(struct held_queue *q); /* must be empty */

/* Keeps a command, which waits from now on. 0; FL_EBUSY: too many bytes are held; FL_ENOMEM. */
int held_add(struct held_queue *q, struct node_ticket *t, const void *command,
             size_t len) FLI_MUST_USE;
void held_destroy(struct held_queue *q, struct held *h);
void held_answer(struct held_queue *q, struct held *h, int status); /* destroys, then calls back */

struct held *held_first(const struct held_queue *q);              /* NULL: none waits */
size_t held_sources(const struct held_queue *q);                  /* that have one waiting */
void held_pass(struct held_queue *q, const struct held *h);       /* the first: others go before */
struct held *held_first_urgent(const struct held_queue *q);       /* NULL: nothing urgent may go */
bool held_has(struct held_queue *q, const struct node_ticket *t); /* one of its source's waits */
/* Takes out a command that one of these returned. The queue still owns it until it is destroyed
 * or answered. */
void held_take(struct held_queue *q, struct held *h);
/* Puts one back that was taken out, and surely not done. 0, or FL_ENOMEM. */
int held_put_back(struct held_queue *q, struct held *h) FLI_MUST_USE;
/* Answers all on a list of the caller's (held.link), which were taken out. */
void held_answer_all(struct held_queue *q, struct fli_list *list, int status);
/* Answers those whose time is over, HELD_EXPIRED_MAX at most. True: there may be more. */
bool held_expire(struct held_queue *q, uint64_t now_ms);
void held_refuse_all(struct held_queue *q, int status);

/* Takes a command that the proposer gives back, as held_put_back() does; one that cannot be kept is
 * answered FL_EBUSY. */
void held_return(struct held_queue *q, struct node_ticket *t, const void *command, size_t len);

#endif
