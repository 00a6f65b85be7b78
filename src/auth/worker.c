/* worker.c: see worker.h. */
#include "auth/worker.h"

#include <stdlib.h>

#include "base/process.h"

struct auth_worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* a job has come, or the worker closes */
    uv_async_t async;
    struct fli_list todo, finished; /* guarded by `lock`, as are the next two */
    unsigned n;                     /* jobs submitted and not yet worked off */
    uint64_t turn;                  /* of the job that was begun last; guarded likewise */
    bool closing;
    unsigned jobs_max;
    void (*cb)(void *ctx);
    void *ctx;
};

static struct auth_job *job_of(struct fli_list *link)
{
    return FLI_CONTAINER_OF(link, struct auth_job, link);
}

static void *run(void *arg)
{
    struct auth_worker *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (fli_list_empty(&w->todo) && !w->closing) {
            pthread_cond_wait(&w->wake, &w->lock);
        }
        if (w->closing) {
            break;
        }
        struct fli_list *link = fli_list_pop(&w->todo);
        FLI_ASSERT(link != NULL);
        struct auth_job *job = job_of(link);
        w->turn = job->turn;
        pthread_mutex_unlock(&w->lock);
        job->work(job);
        pthread_mutex_lock(&w->lock);
        fli_list_push(&w->finished, &job->link);
        w->n--;
        (void)uv_async_send(&w->async);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void call_done(struct auth_worker *w)
{
    struct fli_list done;
    struct fli_list *link = NULL;
    fli_list_init(&done);
    pthread_mutex_lock(&w->lock);
    fli_list_splice(&done, &w->finished);
    pthread_mutex_unlock(&w->lock);
    while ((link = fli_list_pop(&done)) != NULL) {
        struct auth_job *job = job_of(link);
        job->done(job);
    }
}

static void async_cb(uv_async_t *async)
{
    call_done(async->data);
}

int auth_worker_create(uv_loop_t *loop, unsigned jobs_max, struct auth_worker **ret)
{
    struct auth_worker *w = calloc(1, sizeof *w);
    FLI_ASSERT(jobs_max > 0);
    if (w == NULL) {
        return FL_ENOMEM;
    }
    w->jobs_max = jobs_max;
    fli_list_init(&w->todo);
    fli_list_init(&w->finished);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    if (fli_thread_start(&w->thread, run, w) != 0) {
        free(w);
        return FL_ESYSTEM;
    }
    int rc = uv_async_init(loop, &w->async, async_cb);
    if (rc != 0) {
        fli_fatal("a worker thread cannot be heard: %s", uv_strerror(rc));
    }
    w->async.data = w;
    uv_unref((uv_handle_t *)&w->async);
    *ret = w;
    return 0;
}

/* Each job of a source is one turn later than the one before, and jobs are in the order of their
 * turns. So a source's first job stands before all others' second ones. Nobody joins the turn that
 * is being worked off, so each turn ends, whoever comes again meanwhile. */
static void line_up(struct auth_worker *w, struct auth_job *job)
{
    job->turn = w->turn + 1;
    FLI_LIST_FOREACH(link, &w->todo)
    {
        const struct auth_job *other = job_of(link);
        job->turn = other->source == job->source ? other->turn + 1 : job->turn;
    }
    struct fli_list *at = w->todo.next;
    while (at != &w->todo && job_of(at)->turn <= job->turn) {
        at = at->next;
    }
    fli_list_init(&job->link);
    fli_list_insert_before(at, &job->link);
}

int auth_worker_submit(struct auth_worker *w, struct auth_job *job)
{
    pthread_mutex_lock(&w->lock);
    bool full = w->n >= w->jobs_max || w->closing;
    if (!full) {
        line_up(w, job);
        w->n++;
        pthread_cond_signal(&w->wake);
    }
    pthread_mutex_unlock(&w->lock);
    return full ? FL_EBUSY : 0;
}

static void closed_cb(uv_handle_t *handle)
{
    struct auth_worker *w = handle->data;
    void (*cb)(void *) = w->cb;
    void *ctx = w->ctx;
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
    cb(ctx);
}

void auth_worker_close(struct auth_worker *w, void (*cb)(void *ctx), void *ctx)
{
    if (w == NULL) {
        return;
    }
    w->cb = cb;
    w->ctx = ctx;
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    (void)pthread_join(w->thread, NULL);
    fli_list_splice(&w->finished, &w->todo);
    call_done(w);
    uv_close((uv_handle_t *)&w->async, closed_cb);
}
