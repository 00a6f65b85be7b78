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

/* ---- the child ------------------------------------------------------------------------------- */

/* The machine's bytes go here. */
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
    int rv = snapshot_writer_sync(s->writer);
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
    int rv = snapshot_writer_write(s->writer, bytes, len);
    s->size += len;
    if (rv == 0 && s->size - s->synced >= SYNC_BYTES) {
        rv = sync_and_rest(s);
    }
    return rv;
}

/* Whatever is half-written is of a child before, since only one writes at a time, and what another
 * node sends is of a later entry. It must not take the room of this one. */
static void write_snapshot(struct log_device *device, const struct machine *m,
                           const struct snapshot_meta *meta, struct snapshot_verdict *v)
{
    struct sink s = {0};
    struct snapshot_error stays = {0};
    uint64_t start_ns = fli_clock_ns();
    (void)!snapshot_clean_parts(device, meta->index, &stays);
    v->error = snapshot_writer_open(device, meta, &s.writer, &s.error);
    if (v->error == 0) {
        v->error = snapshot_writer_end(s.writer, machine_snapshot_write(m, take_bytes, &s));
    }
    v->size = s.size;
    v->took_ns = fli_clock_ns() - start_ns;
    stays = (struct snapshot_error){0};
    (void)!snapshot_clean(device, meta->index, &stays); /* of a full disk, too */
    memcpy(v->why, v->error != 0 ? s.error.text : stays.text, sizeof v->why);
}

static _Noreturn void run_child(struct log_device *device, const struct machine *m,
                                const struct snapshot_meta *meta, pid_t parent, int pipe)
{
    struct snapshot_verdict v = {0};
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

int snapshot_child_start(struct snapshot_child *c, struct log_device *device,
                         const struct machine *m, const struct snapshot_meta *meta)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        return FL_ESYSTEM;
    }
    pid_t pid = fork_quietly(device, m, meta, ends[1]);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return FL_ESYSTEM;
    }
    *c = (struct snapshot_child){.pid = pid, .pipe = ends[0]};
    return 0;
}

/* After its verdict the process gives back its memory, which takes tenths of a second for a large
 * state, and longer at its low priority. So nobody waits for that in waitpid(). */
bool snapshot_child_ended(struct snapshot_child *c, struct snapshot_verdict *ret)
{
    if (c->pid == 0 || waitpid(c->pid, NULL, WNOHANG) == 0) {
        return false;
    }
    if (read(c->pipe, ret, sizeof *ret) != (ssize_t)sizeof *ret) {
        *ret = (struct snapshot_verdict){.error = FL_ESYSTEM,
                                         .why = "the process that writes it was killed"};
    }
    ret->why[sizeof ret->why - 1] = '\0';
    close(c->pipe);
    c->pid = 0;
    return true;
}

void snapshot_child_kill(const struct snapshot_child *c)
{
    if (c->pid != 0) {
        (void)kill(c->pid, SIGKILL);
    }
}
