/* worker.h: one thread beside a loop, for what takes too long on it: hashes of passwords, a disk
 * that is slow. Jobs are done one after the other, in the order they came; of those that have not
 * been begun there is a bounded number. */
#ifndef AUTH_WORKER_H
#define AUTH_WORKER_H

#include <uv.h>

#include "base/list.h"

struct auth_worker;

/* Embedded in whatever is to be done; the memory is the caller's and stays until `done`. */
struct auth_job {
    struct fli_list link;               /* private */
    void (*work)(struct auth_job *job); /* on the thread */
    void (*done)(struct auth_job *job); /* on the loop, once */
};

/* 0; FL_ENOMEM, FL_ESYSTEM. */
int auth_worker_create(uv_loop_t *loop, unsigned jobs_max, struct auth_worker **ret) FLI_MUST_USE;

/* 0; FL_EBUSY: there are jobs_max already, or it is closing; `done` then does not come. */
int auth_worker_submit(struct auth_worker *w, struct auth_job *job) FLI_MUST_USE;

/* Waits for the job at hand, then calls `done` for all jobs (those not begun were not done, and
 * cannot tell), and closes the handle; cb comes from the loop, and by then it is freed. NULL for w:
 * cb is not called. */
void auth_worker_close(struct auth_worker *w, void (*cb)(void *ctx), void *ctx);

#endif
