/* keep_thread.c: keeps locks of a handle whose calls block. Nobody runs such a handle's loop
 * between the calls, so a thread does, with a handle of its own: other connections, the same
 * servers. The first keeper starts it, and the end of the handle ends it.
 *
 * What a keeper and its lock are is passed between the threads under one mutex; the calls of the
 * thread's handle are made by the thread alone. */
#include "redlock/keep_thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"

struct fli_keep_thread {
    uv_thread_t thread;
    uint64_t process;
    uv_mutex_t mutex;
    uv_cond_t turned; /* a job is done */
    uv_loop_t loop;
    uv_async_t wake;
    fl_redlock *handle;
    struct fli_list jobs;    /* kept locks that are to be started or stopped */
    struct fli_list keeping; /* those that were started */
    bool ends;
};

enum job { JOB_NONE, JOB_START, JOB_STOP };

struct fli_kept {
    struct fli_list in;             /* jobs or keeping */
    struct fli_keep_thread *thread; /* NULL: its handle is closed */
    uint64_t process;
    enum job job;
    bool done;
    int result;
    fl_redlock_keeper *keeper; /* of the thread's handle */
    struct fl_redlock_lock lock;
    uint64_t max_hold_ms;
    fl_redlock_ended *ended;
    void *ctx;
    struct fl_bytes name;
    char bytes[];
};

/* ---- on the thread --------------------------------------------------------------------------- */

static void on_moved(void *ctx, const struct fl_redlock_lock *lock)
{
    struct fli_kept *k = ctx;
    uv_mutex_lock(&k->thread->mutex);
    k->lock = *lock;
    uv_mutex_unlock(&k->thread->mutex);
}

static void on_ended(void *ctx, enum fl_redlock_end why, const struct fl_redlock_lock *lock)
{
    struct fli_kept *k = ctx;
    k->ended(k->ctx, why, lock);
}

/* Under the mutex, which it gives back meanwhile. */
static void do_job(struct fli_keep_thread *t, struct fli_kept *k)
{
    struct fl_redlock_lock lock = k->lock;
    uv_mutex_unlock(&t->mutex);
    if (k->job == JOB_START) {
        k->result = fl_redlock_keep_start(t->handle, k->name, &lock, k->max_hold_ms, on_ended, k,
                                          &k->keeper);
        if (k->result == 0) {
            fli_keeper_watch(k->keeper, on_moved, k);
        }
    } else {
        fl_redlock_keep_stop(k->keeper);
        k->keeper = NULL;
    }
    uv_mutex_lock(&t->mutex);
    if (k->job == JOB_START && k->result == 0) {
        fli_list_push(&t->keeping, &k->in);
    }
    k->done = true;
    uv_cond_broadcast(&t->turned);
}

static void stop_all(struct fli_keep_thread *t)
{
    struct fli_list *at;
    while ((at = fli_list_pop(&t->keeping)) != NULL) {
        struct fli_kept *k = FLI_CONTAINER_OF(at, struct fli_kept, in);
        fl_redlock_keep_stop(k->keeper);
        k->keeper = NULL;
    }
}

static void on_wake(uv_async_t *wake)
{
    struct fli_keep_thread *t = wake->data;
    struct fli_list *at;
    uv_mutex_lock(&t->mutex);
    while ((at = fli_list_pop(&t->jobs)) != NULL) {
        do_job(t, FLI_CONTAINER_OF(at, struct fli_kept, in));
    }
    bool ends = t->ends;
    uv_mutex_unlock(&t->mutex);
    if (ends && uv_is_closing((uv_handle_t *)wake) == 0) {
        stop_all(t);
        fl_redlock_close(t->handle, NULL, NULL);
        uv_close((uv_handle_t *)wake, NULL);
    }
}

static void run(void *arg)
{
    struct fli_keep_thread *t = arg;
    (void)uv_run(&t->loop, UV_RUN_DEFAULT);
}

/* ---- starting and ending --------------------------------------------------------------------- */

static void thread_free(struct fli_keep_thread *t)
{
    uv_mutex_destroy(&t->mutex);
    uv_cond_destroy(&t->turned);
    free(t);
}

/* Signals are for the threads of the program. */
static int start_thread(struct fli_keep_thread *t)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) {
        return FL_ESYSTEM;
    }
    int rc = uv_thread_create(&t->thread, run, t);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0 ? 0 : FL_ESYSTEM;
}

static int make_loop(struct fli_keep_thread *t, const struct fl_redlock_options *options)
{
    if (uv_loop_init(&t->loop) != 0) {
        return FL_ESYSTEM;
    }
    t->wake.data = t;
    int rc = uv_async_init(&t->loop, &t->wake, on_wake) == 0
                 ? fl_redlock_create(&t->loop, options, &t->handle, NULL, 0)
                 : FL_ESYSTEM;
    if (rc == 0 && (rc = start_thread(t)) != 0) {
        fl_redlock_close(t->handle, NULL, NULL);
    }
    if (rc != 0) {
        uv_close((uv_handle_t *)&t->wake, NULL);
        (void)uv_run(&t->loop, UV_RUN_DEFAULT);
        (void)uv_loop_close(&t->loop);
    }
    return rc;
}

int fli_keep_thread_start(const struct fl_redlock_options *options, struct fli_keep_thread **ret)
{
    struct fli_keep_thread *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return FL_ENOMEM;
    }
    fli_list_init(&t->jobs);
    fli_list_init(&t->keeping);
    t->process = fli_process();
    if (uv_mutex_init(&t->mutex) != 0 || uv_cond_init(&t->turned) != 0) {
        fli_fatal("a mutex cannot be made"); /* the C library needs no memory for them */
    }
    int rc = make_loop(t, options);
    if (rc != 0) {
        thread_free(t);
        return rc;
    }
    *ret = t;
    return 0;
}

bool fli_keep_thread_is_ours(const struct fli_keep_thread *t)
{
    return t->process == fli_process();
}

void fli_keep_thread_end(struct fli_keep_thread *t)
{
    if (t == NULL || !fli_keep_thread_is_ours(t)) {
        return; /* a child leaves it as it is: the thread may have been at it */
    }
    uv_mutex_lock(&t->mutex);
    t->ends = true;
    uv_mutex_unlock(&t->mutex);
    (void)uv_async_send(&t->wake);
    (void)uv_thread_join(&t->thread);
    (void)uv_loop_close(&t->loop);
    thread_free(t);
}

/* ---- keeping --------------------------------------------------------------------------------- */

/* Has the thread do it, and waits for that. */
static void have_done(struct fli_keep_thread *t, struct fli_kept *k, enum job job)
{
    uv_mutex_lock(&t->mutex);
    fli_list_remove(&k->in);
    k->job = job;
    k->done = false;
    fli_list_push(&t->jobs, &k->in);
    (void)uv_async_send(&t->wake);
    while (!k->done) {
        uv_cond_wait(&t->turned, &t->mutex);
    }
    uv_mutex_unlock(&t->mutex);
}

int fli_kept_start(struct fli_keep_thread *t, struct fl_bytes name,
                   const struct fl_redlock_lock *lock, uint64_t max_hold_ms,
                   fl_redlock_ended *ended, void *ctx, struct fli_kept **ret)
{
    struct fli_kept *k = calloc(1, sizeof *k + name.len);
    if (k == NULL) {
        return FL_ENOMEM;
    }
    memcpy(k->bytes, name.data, name.len);
    k->name = (struct fl_bytes){k->bytes, name.len};
    k->thread = t;
    k->process = fli_process();
    k->lock = *lock;
    k->max_hold_ms = max_hold_ms;
    k->ended = ended;
    k->ctx = ctx;
    fli_list_init(&k->in);
    have_done(t, k, JOB_START);
    int rc = k->result;
    if (rc != 0) {
        free(k);
        return rc;
    }
    *ret = k;
    return 0;
}

void fli_kept_copy(struct fli_kept *k, struct fl_redlock_lock *ret)
{
    struct fli_keep_thread *t = k->process == fli_process() ? k->thread : NULL;
    if (t != NULL) {
        uv_mutex_lock(&t->mutex);
    }
    *ret = k->lock;
    if (t != NULL) {
        uv_mutex_unlock(&t->mutex);
    }
}

void fli_kept_forget_thread(struct fli_kept *k)
{
    fli_list_init(&k->in);
    k->thread = NULL;
}

void fli_kept_stop(struct fli_kept *k)
{
    struct fli_keep_thread *t = k->process == fli_process() ? k->thread : NULL;
    const uv_thread_t self = uv_thread_self();
    if (t != NULL && uv_thread_equal(&self, &t->thread) != 0) { /* in its callback */
        fl_redlock_keep_stop(k->keeper);
        fli_list_remove(&k->in);
    } else if (t != NULL) {
        have_done(t, k, JOB_STOP);
    }
    free(k);
}
