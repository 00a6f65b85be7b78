/* works.c: work for threads, as libuv's pool does it. Part of loop.c's stand-in for libuv. */
#include "sim.h"

static void forget_work(struct sim_node *n, const uv_work_t *req)
{
    for (unsigned i = 0; i < SIM_WORKS_MAX; i++) {
        if (n->works[i].req == req) {
            n->works[i].req = NULL;
        }
    }
}

static void do_work(struct sim_node *n, uv_work_t *req)
{
    n->by_thread = true;
    req->work_cb(req);
    n->by_thread = false;
}

static void end_work_deliver(struct sim_event *e)
{
    uv_work_t *req = e->p;
    if (e->a != 0) {
        sim_late_came(e->node, SIM_LATE_WORK, false, e->a);
    }
    forget_work(e->node, req);
    req->after_work_cb(req, 0);
}

/* Threads stand still when their process does. */
static void work_deliver(struct sim_event *e)
{
    struct sim_node *n = e->node;
    uv_work_t *req = e->p;
    for (unsigned i = 0; i < SIM_WORKS_MAX; i++) {
        if (n->works[i].req == req) {
            n->works[i].done = true;
        }
    }
    do_work(n, req);
    uint64_t late_ms = sim_late_ms(n, SIM_LATE_WORK);
    e = sim_to_node(n, late_ms + sim_below(n->sim, 5), end_work_deliver);
    e->p = req;
    e->a = late_ms == 0 ? 0 : sim_late_moment(n);
}

int uv_queue_work(uv_loop_t *loop, uv_work_t *req, uv_work_cb work_cb, uv_after_work_cb after_cb)
{
    struct sim_node *n = FLI_CONTAINER_OF(loop, struct sim_node, loop);
    unsigned i = 0;
    req->loop = loop;
    req->work_cb = work_cb;
    req->after_work_cb = after_cb;
    while (n->works[i].req != NULL) {
        i++;
        FLI_ASSERT(i < SIM_WORKS_MAX);
    }
    n->works[i].req = req;
    n->works[i].done = false;
    if (!n->ghost) {
        uint64_t now = n->sim->now;
        uint64_t wait_ms = n->works_begin > now ? n->works_begin - now : 0;
        sim_to_node(n, wait_ms + sim_below(n->sim, 10), work_deliver)->p = req;
    }
    return 0;
}

/* A ghost's work ends at once: it only frees memory. */
bool sim_works_run(struct sim_node *n)
{
    bool any = false;
    for (unsigned i = 0; i < SIM_WORKS_MAX; i++) {
        uv_work_t *req = n->works[i].req;
        if (req == NULL) {
            continue;
        }
        if (!n->works[i].done) {
            do_work(n, req);
        }
        n->works[i].req = NULL;
        req->after_work_cb(req, 0);
        any = true;
    }
    return any;
}

/* The threads of a process that ends may still do what they were given. */
void sim_works_end(struct sim_node *n)
{
    n->sim->current = n;
    for (unsigned i = 0; i < SIM_WORKS_MAX; i++) {
        uv_work_t *req = n->works[i].req;
        if (req != NULL && !n->works[i].done && (n->life + i) % 2 == 0) {
            n->works[i].done = true;
            do_work(n, req);
        }
    }
    n->sim->current = NULL;
}
