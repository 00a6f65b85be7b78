/* image.c: see image.h. */
#include "consensus/image.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEAD_SIZE ((size_t)4096) /* of the shared memory; the bytes come behind it */
/* Address space, not memory: far above what a record can take, with names, owners and value. */
#define RECORD_MAX ((size_t)16 << 10)
#define BASE_MAX ((size_t)1 << 20)
#define RECORDS_MAX (UINT64_C(1) << 30)
#define NICENESS 10 /* the child's: requests come first, but it is not starved for long */
#define FORGET_MS 2

struct head {
    _Atomic int done;
    int error;
    size_t len;
};
_Static_assert(sizeof(struct head) <= HEAD_SIZE, "the head has room");

struct image {
    struct image_callbacks cbs;
    uint8_t *shared;
    size_t size;
    pid_t pid; /* 0: it was waited for */
    int pipe;  /* comes to its end when the child does */
    uv_poll_t poll;
    uv_thread_t helper;
    bool has_finished;   /* the handle of this name is there */
    bool helped;         /* the helper runs, and will unmap */
    _Atomic bool finish; /* says so to the helper */
    uv_async_t finished; /* it has */
    unsigned left;       /* handles that are not closed yet, after image_destroy */
};

static struct head *head_of(const struct image *i)
{
    return (struct head *)(void *)i->shared;
}

/* ---- the child ------------------------------------------------------------------------------- */

static void close_between(unsigned first, unsigned last)
{
    if (first > last || syscall(SYS_close_range, first, last, 0u) == 0) {
        return;
    }
    long n = sysconf(_SC_OPEN_MAX); /* a kernel before 5.9 */
    unsigned end = n > 0 && (unsigned long)n <= last ? (unsigned)n : last;
    for (unsigned fd = first; fd < end; fd++) {
        close((int)fd);
    }
    if (end == last) {
        close((int)last);
    }
}

/* Keeps standard error, for an assertion's last words, and the pipe. */
static void close_all_but(int keep)
{
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    close_between(3, (unsigned)keep - 1);
    close_between((unsigned)keep + 1, UINT32_MAX);
}

static _Noreturn void encode(struct image *i, const struct machine *m, pid_t parent, int end)
{
    struct head *h = head_of(i);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
        _exit(1);
    }
    close_all_but(end);
    /* Slower or not, it is right. One that inherited real time would keep us from a core. */
    (void)sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0});
    (void)setpriority(PRIO_PROCESS, 0, NICENESS);
    size_t max = i->size - HEAD_SIZE;
    struct fli_buf out = {.data = i->shared + HEAD_SIZE, .cap = max, .max = max}; /* never grows */
    h->error = machine_snapshot_encode(m, &out);
    h->len = out.len;
    atomic_store(&h->done, 1);
    _exit(0);
}

/* ---- the parent ------------------------------------------------------------------------------ */

static void reap(struct image *i)
{
    while (i->pid != 0 && waitpid(i->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    i->pid = 0;
}

/* Whoever writes the bytes to disk maps them into this process, page by page, though they are there
 * without that. This thread lets go of what was mapped since it last looked, and at the end of all:
 * the kernel needs ten milliseconds to take back a hundred megabytes, which the loop has not. */
static void help(void *arg)
{
    struct image *i = arg;
    size_t len = head_of(i)->len;
    while (!atomic_load(&i->finish)) {
        (void)madvise(i->shared + HEAD_SIZE, len, MADV_DONTNEED);
        uv_sleep(FORGET_MS);
    }
    munmap(i->shared, i->size);
    uv_async_send(&i->finished);
}

static void poll_cb(uv_poll_t *poll, int status, int events)
{
    struct image *i = poll->data;
    (void)uv_poll_stop(poll);
    reap(i);
    const struct head *h = head_of(i);
    bool whole = atomic_load(&h->done) == 1 && h->error == 0;
    i->helped = whole && i->has_finished && uv_thread_create(&i->helper, help, i) == 0;
    i->cbs.done(i->cbs.ctx, whole ? 0 : FL_ESYSTEM);
}

static void closed(uv_handle_t *handle)
{
    struct image *i = handle->data;
    if (--i->left > 0) {
        return;
    }
    void (*gone)(void *ctx) = i->cbs.gone;
    void *ctx = i->cbs.ctx;
    close(i->pipe);
    free(i);
    gone(ctx);
}

static void finished_cb(uv_async_t *async)
{
    struct image *i = async->data;
    int rv = uv_thread_join(&i->helper);
    FLI_ASSERT(rv == 0);
    uv_close((uv_handle_t *)async, closed);
}

/* No signal may reach a handler of ours in the child: it would talk to our loop. */
static pid_t fork_quietly(struct image *i, const struct machine *m, int end)
{
    sigset_t all;
    sigset_t before;
    pid_t self = getpid();
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) {
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        encode(i, m, self, end);
    }
    int rv = pthread_sigmask(SIG_SETMASK, &before, NULL);
    FLI_ASSERT(rv == 0);
    return pid;
}

/* Nothing is on the loop when it fails. Without a helper its work is done here. */
static int watch(struct image *i, uv_loop_t *loop)
{
    if (uv_poll_init(loop, &i->poll, i->pipe) != 0) {
        return FL_ESYSTEM;
    }
    i->poll.data = i;
    i->finished.data = i;
    i->has_finished = uv_async_init(loop, &i->finished, finished_cb) == 0;
    if (i->has_finished) {
        uv_unref((uv_handle_t *)&i->finished); /* until there is something to wait for */
    }
    int rv = uv_poll_start(&i->poll, UV_READABLE, poll_cb);
    FLI_ASSERT(rv == 0);
    return 0;
}

static int start(struct image *i, uv_loop_t *loop, const struct machine *m)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        return FL_ESYSTEM;
    }
    i->pid = ends[1] > 2 ? fork_quietly(i, m, ends[1]) : -1;
    close(ends[1]);
    if (i->pid < 0) {
        close(ends[0]);
        return FL_ESYSTEM;
    }
    i->pipe = ends[0];
    if (watch(i, loop) != 0) {
        (void)kill(i->pid, SIGKILL);
        reap(i);
        close(ends[0]);
        return FL_ESYSTEM;
    }
    return 0;
}

int image_create(uv_loop_t *loop, const struct machine *m, uint64_t records,
                 const struct image_callbacks *cbs, struct image **ret)
{
    if (records > RECORDS_MAX) {
        return FL_ESYSTEM;
    }
    struct image *i = calloc(1, sizeof *i);
    if (i == NULL) {
        return FL_ESYSTEM;
    }
    i->cbs = *cbs;
    i->size = HEAD_SIZE + BASE_MAX + (size_t)records * RECORD_MAX;
    void *shared = mmap(NULL, i->size, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shared == MAP_FAILED) {
        free(i);
        return FL_ESYSTEM;
    }
    i->shared = shared;
    int rv = start(i, loop, m);
    if (rv != 0) {
        munmap(i->shared, i->size);
        free(i);
        return rv;
    }
    *ret = i;
    return 0;
}

struct fli_slice image_bytes(const struct image *i)
{
    const struct head *h = head_of(i);
    FLI_ASSERT(i->pid == 0 && atomic_load(&h->done) == 1 && h->error == 0);
    return (struct fli_slice){i->shared + HEAD_SIZE, h->len};
}

void image_destroy(struct image *i)
{
    if (i->pid != 0) {
        (void)kill(i->pid, SIGKILL);
        reap(i);
    }
    i->left = 1 + i->has_finished;
    uv_close((uv_handle_t *)&i->poll, closed);
    if (i->helped) {
        uv_ref((uv_handle_t *)&i->finished);
        atomic_store(&i->finish, true);
        return;
    }
    munmap(i->shared, i->size);
    if (i->has_finished) {
        uv_close((uv_handle_t *)&i->finished, closed);
    }
}
