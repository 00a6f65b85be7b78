/* child.c: see child.h. */
#include "snapshot/child.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define NICENESS 10 /* the child's: requests come first, but it must not starve for long */
#define SYNC_BYTES (UINT64_C(1) << 20)
#define REST_MAX_NS UINT64_C(50000000)
#define POLL_MS 10u

/* The child's final message through the pipe. Shorter than PIPE_BUF. */
struct verdict {
    int error;
    uint64_t size;
    char why[512];
};

struct snapshot_child {
    const struct host *host;
    snapshot_child_cb *done;
    void *ctx;
    pid_t pid; /* 0: it was waited for */
    int pipe;  /* has the verdict, or nothing when the child was killed */
    bool closing;
    uv_timer_t timer; /* looks whether the process has ended */
};

/* ---- the child ------------------------------------------------------------------------------- */

/* The sink for the machine's bytes. */
struct sink {
    struct snapshot_writer *writer;
    struct snapshot_error error;
    uint64_t size, synced;
};

static void close_between(unsigned first, unsigned last)
{
    if (first > last || syscall(SYS_close_range, first, last, 0u) == 0) {
        return;
    }
    long n = sysconf(_SC_OPEN_MAX); /* for kernels before 5.9 */
    unsigned end = n > 0 && (unsigned long)n <= last ? (unsigned)n : last;
    for (unsigned fd = first; fd < end; fd++) {
        close((int)fd);
    }
    if (end == last) {
        close((int)last);
    }
}

/* Keeps the pipe, as standard output, standard error (for an assertion's last message), and the
 * directory. A socket left open here would not be closed for its peer when the parent closes it. */
static bool close_others(int pipe, int dir)
{
    unsigned kept = dir > STDERR_FILENO ? (unsigned)dir : STDERR_FILENO;
    close(STDIN_FILENO);
    if (dup2(pipe, STDOUT_FILENO) < 0) {
        return false;
    }
    close_between(STDERR_FILENO + 1, kept - 1);
    close_between(kept + 1, UINT32_MAX);
    return true;
}

/* The log shares the disk: after each sync the child rests for as long as the sync took. */
static int sync_and_rest(struct sink *s)
{
    uint64_t start_ns = fli_clock_ns();
    int rv = snapshot_writer_sync(s->writer, &s->error);
    uint64_t rest_ns = fli_clock_ns() - start_ns;
    rest_ns = rest_ns < REST_MAX_NS ? rest_ns : REST_MAX_NS;
    struct timespec rest = {.tv_nsec = (long)rest_ns};
    (void)nanosleep(&rest, NULL);
    s->synced = s->size;
    return rv;
}

static int take_bytes(void *ctx, const void *bytes, size_t len)
{
    struct sink *s = ctx;
    int rv = snapshot_writer_write(s->writer, bytes, len, &s->error);
    s->size += len;
    if (rv == 0 && s->size - s->synced >= SYNC_BYTES) {
        rv = sync_and_rest(s);
    }
    return rv;
}

static void write_snapshot(struct log_device *device, const struct machine *m,
                           const struct snapshot_meta *meta, struct verdict *v)
{
    struct sink s = {0};
    int rv = snapshot_writer_open(device, meta, &s.writer, &s.error);
    if (rv == 0) {
        rv = machine_snapshot_write(m, take_bytes, &s);
        if (rv == 0) {
            rv = snapshot_writer_finish(s.writer, &s.error);
        } else {
            snapshot_writer_abort(s.writer);
        }
    }
    v->error = rv;
    v->size = s.size;
    snprintf(v->why, sizeof v->why, "%s", s.error.code != 0 ? s.error.text : fl_strerror(rv));
}

static _Noreturn void run_child(struct log_device *device, const struct machine *m,
                                const struct snapshot_meta *meta, pid_t parent, int pipe)
{
    struct verdict v = {0};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent ||
        !close_others(pipe, device->keep_fd)) {
        _exit(1);
    }
    /* A lower priority only slows the child down. A child that inherited real-time priority would
     * take a core from this process. */
    (void)sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0});
    (void)setpriority(PRIO_PROCESS, 0, NICENESS);
    write_snapshot(device, m, meta, &v);
    _exit(write(STDOUT_FILENO, &v, sizeof v) == (ssize_t)sizeof v ? 0 : 1);
}

/* ---- the parent ------------------------------------------------------------------------------ */

static void closed(uv_handle_t *handle)
{
    struct snapshot_child *c = handle->data;
    const struct host *host = c->host;
    close(c->pipe);
    free(c);
    host->release(host->ctx);
}

static void read_verdict(const struct snapshot_child *c, struct verdict *ret)
{
    if (read(c->pipe, ret, sizeof *ret) != (ssize_t)sizeof *ret) {
        *ret =
            (struct verdict){.error = FL_ESYSTEM, .why = "the process that writes it was killed"};
    }
    ret->why[sizeof ret->why - 1] = '\0';
}

/* After its verdict the process gives back its memory, which takes tenths of a second for a large
 * state, and longer at its low priority. So nobody waits for that in waitpid(). */
static void poll_cb(uv_timer_t *timer)
{
    struct snapshot_child *c = timer->data;
    struct verdict v = {0};
    if (c->pid != 0 && waitpid(c->pid, NULL, WNOHANG) == 0) {
        return;
    }
    c->pid = 0;
    (void)uv_timer_stop(timer);
    if (c->closing) {
        uv_close((uv_handle_t *)timer, closed);
        return;
    }
    read_verdict(c, &v);
    c->done(c->ctx, v.error, v.why, v.size);
}

/* No signal may reach a handler of the parent in the child: it would use the parent's loop. */
static pid_t fork_quietly(struct log_device *device, const struct machine *m,
                          const struct snapshot_meta *meta, int pipe)
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
        run_child(device, m, meta, self, pipe);
    }
    int rv = pthread_sigmask(SIG_SETMASK, &before, NULL);
    FLI_ASSERT(rv == 0);
    return pid;
}

int snapshot_child_start(const struct host *host, struct log_device *device,
                         const struct machine *m, const struct snapshot_meta *meta,
                         snapshot_child_cb *done, void *ctx, struct snapshot_child **ret)
{
    int ends[2];
    struct snapshot_child *c = calloc(1, sizeof *c);
    if (c == NULL || pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        free(c);
        return FL_ESYSTEM;
    }
    c->host = host;
    c->done = done;
    c->ctx = ctx;
    c->pipe = ends[0];
    c->pid = fork_quietly(device, m, meta, ends[1]);
    close(ends[1]);
    if (c->pid < 0) {
        close(c->pipe);
        free(c);
        return FL_ESYSTEM;
    }
    host->hold(host->ctx);
    (void)uv_timer_init(host->loop, &c->timer); /* these cannot fail */
    c->timer.data = c;
    (void)uv_timer_start(&c->timer, poll_cb, POLL_MS, POLL_MS);
    *ret = c;
    return 0;
}

void snapshot_child_destroy(struct snapshot_child *c)
{
    c->closing = true;
    if (c->pid != 0) {
        (void)kill(c->pid, SIGKILL);
    }
    (void)uv_timer_start(&c->timer, poll_cb, 0, POLL_MS);
}
