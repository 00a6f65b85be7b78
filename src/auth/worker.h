/* worker.h: a thread beside a loop, for work that would hold up the loop: hashes of passwords,
 * writes to a slow disk. Jobs are done one after the other. Sources take turns, so that one with
 * hundreds of jobs does not hold up the others; those of one source are done in the order in which
 * they came. The number of waiting jobs is bounded. */
#ifndef AUTH_WORKER_H
#define AUTH_WORKER_H

#include <uv.h>

#include "base/list.h"

struct auth_worker;

/* Embedded in the caller's struct, which must stay until `done`. */
struct auth_job {
    struct fli_list link;               /* private */
    uint64_t turn;                      /* private */
    uint64_t source;                    /* whom the job is for: any number */
    void (*work)(struct auth_job *job); /* on the thread */
    void (*done)(struct auth_job *job); /* on the loop, once */
};

/* 0; FL_ENOMEM, FL_ESYSTEM. */
int auth_worker_create(uv_loop_t *loop, unsigned jobs_max, struct auth_worker **ret) FLI_MUST_USE;

/* 0; FL_EBUSY: there are jobs_max already, or the worker is closing; then `done` is not called. */
int auth_worker_submit(struct auth_worker *w, struct auth_job *job) FLI_MUST_USE;

/* Waits for the current job, then calls `done` for all jobs, also for those that were never begun,
 * and closes the handle. cb comes from the loop; by then the worker is freed. NULL for w: cb is not
 * called. */
void auth_worker_close(struct auth_worker *w, void (*cb)(void *ctx), void *ctx);

#endif
