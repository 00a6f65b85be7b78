/* child.c: see child.h. */
#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/timer.h"

#define TAKEN_GRACE_MAX_MS UINT64_C(1000)
#define GONE_POLLS 100 /* of 10 ms: for so long may a killed process take to be gone */

/* They end a program that writes to a pipe nobody reads, or beyond RLIMIT_FSIZE. This one has a
 * command to stop first. */
static const int ignored[2] = {SIGPIPE, SIGXFSZ};

void cli_child_init(struct cli_child *c, const struct cli_args *a, uint64_t ttl_ms)
{
    c->args = a;
    c->on_lost = (enum cli_on_lost)a->number[CLI_OPT_ON_LOST];
    c->ttl_ms = ttl_ms;
    c->reserve_ms = c->on_lost == CLI_ON_LOST_WARN ? 0 : ttl_ms / 4;
    c->kill_ms = CLI_NEVER_MS;
    c->exit_code = CLI_EXIT_RUN_FAILED;
}

bool cli_child_take_over_signals(struct cli_child *c)
{
    sigset_t more; /* they do not interrupt what is done before the command starts */
    sigemptyset(&more);
    sigaddset(&more, SIGCHLD);
    sigaddset(&more, SIGTTOU);
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    const struct sigaction normal = {.sa_handler = SIG_DFL};
    for (size_t i = 0; i < 2; i++) {
        (void)sigaction(ignored[i], &ignore, &c->before[i]);
    }
    (void)sigaction(SIGCHLD, &normal, NULL); /* if SIGCHLD is ignored, children leave no status */
    c->timer_fd = fli_timer_open();
    bool taken = cli_signals_take(&c->signals);
    (void)sigprocmask(SIG_BLOCK, &more, NULL);
    return taken && c->timer_fd >= 0;
}

void cli_child_say(struct cli_child *c, bool quietly, const char *fmt, ...)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    char text[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if ((quietly && cli_has(c->args, CLI_OPT_QUIET)) || poll(&p, 1, 0) != 1 ||
        (p.revents & POLLOUT) == 0) {
        return;
    }
    if (c->place_line) {
        fputs("\r\033[K", stderr);
        c->place_line = false;
    }
    cli_complain("%.64s: %.400s", c->args->arg[0], text);
}

/* ---- starting and stopping ------------------------------------------------------------------- */

static void set_environment(const struct cli_child *c, fl_token token, uint64_t deadline_ms)
{
    char number[24];
    if (token != FL_TOKEN_NONE) {
        snprintf(number, sizeof number, "%" PRIu64, token);
        (void)setenv("FENCELOCK_TOKEN", number, 1);
    } else {
        (void)unsetenv("FENCELOCK_TOKEN"); /* one that was inherited is not of this lock */
    }
    (void)setenv("FENCELOCK_LOCK", c->args->arg[0], 1);
    snprintf(number, sizeof number, "%" PRIu64, deadline_ms);
    (void)setenv("FENCELOCK_DEADLINE_MS", number, 1);
}

static void lend_terminal(const struct cli_child *c, pid_t group)
{
    if (c->terminal) {
        (void)tcsetpgrp(STDIN_FILENO, group); /* SIGTTOU is blocked, so this does not stop us */
    }
}

_Noreturn static void become_command(struct cli_child *c, pid_t parent)
{
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(CLI_EXIT_RUN_FAILED); /* the parent died before the line above */
    }
    lend_terminal(c, getpid());
    for (size_t i = 0; i < 2; i++) {
        (void)sigaction(ignored[i], &c->before[i], NULL);
    }
    (void)sigprocmask(SIG_SETMASK, &c->signals.before, NULL);
    /* execvp() changes nothing; only its type says otherwise, for historical reasons. */
    char **argv = (char **)(uintptr_t)c->args->rest;
    (void)execvp(argv[0], argv);
    int error = errno;
    cli_complain("cannot run %.200s: %s", argv[0], strerror(error));
    _exit(error == ENOENT ? CLI_EXIT_RUN_NOT_FOUND : CLI_EXIT_RUN_CANNOT);
}

void cli_child_start(struct cli_child *c, fl_token token, uint64_t deadline_ms)
{
    set_environment(c, token, deadline_ms);
    c->terminal = isatty(STDIN_FILENO) == 1 && tcgetpgrp(STDIN_FILENO) == getpgrp();
    cli_signals_add(&c->signals, SIGCHLD);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* whatever it leaves behind can be reaped */
    pid_t parent = getpid();
    pid_t child = fork();
    if (child == 0) {
        become_command(c, parent);
    }
    if (child < 0) {
        cli_child_say(c, false, "the command cannot be started: no process to be had");
        c->exit_code = CLI_EXIT_RUN_CANNOT;
        return;
    }
    c->pid = child;
    /* parent and child both do it, so that it is done whichever runs first */
    (void)setpgid(child, child);
    lend_terminal(c, child);
}

/* Somebody has to know that a command goes on which this process is not allowed to stop. */
static void warn_of_command(struct cli_child *c, const char *why)
{
    if (!c->not_stopped) {
        cli_child_say(c, false, "the command cannot be stopped: %s%s", why,
                      c->lost ? "; it still runs, and another owner may hold the lock" : "");
    }
    c->not_stopped = true;
}

static void signal_command(struct cli_child *c, int signal)
{
    if (c->pid == 0) {
        return;
    }
    int rc = kill(-c->pid, signal);
    if (rc != 0 && errno == ESRCH) {
        rc = kill(c->pid, signal); /* it may not have made its group yet */
    }
    if (rc != 0 && errno == EPERM) {
        warn_of_command(c, "it runs as another user, so a signal to it is not permitted");
    }
}

static void kill_if_due(struct cli_child *c)
{
    if (c->pid != 0 && fl_now_ms() >= c->kill_ms) {
        signal_command(c, SIGKILL);
        c->kill_ms = CLI_NEVER_MS;
    }
}

void cli_child_stop(struct cli_child *c, uint64_t deadline_ms, bool taken)
{
    if (c->on_lost == CLI_ON_LOST_WARN || c->pid == 0) {
        return;
    }
    c->lost = true;
    signal_command(c, SIGTERM);
    signal_command(c, SIGCONT); /* a stopped command gets no other signal */
    if (c->on_lost == CLI_ON_LOST_TERM) {
        return;
    }
    uint64_t early_ms = c->ttl_ms / 20;
    c->kill_ms = deadline_ms > early_ms ? deadline_ms - early_ms : 0;
    if (taken) {
        uint64_t grace_ms = c->reserve_ms - early_ms;
        c->kill_ms = fl_now_ms() + (grace_ms < TAKEN_GRACE_MAX_MS ? grace_ms : TAKEN_GRACE_MAX_MS);
    }
    kill_if_due(c);
}

/* ---- signals --------------------------------------------------------------------------------- */

static int exit_code_of(const siginfo_t *ended)
{
    return ended->si_code == CLD_EXITED ? ended->si_status : 128 + ended->si_status;
}

/* Job control: the terminal has stopped the command. This process stops too, or the shell would
 * wait for ever. Before the command goes on, what happened to the lease meanwhile is noticed. */
static void follow_into_stop(struct cli_child *c, fl_client *client)
{
    lend_terminal(c, getpgrp());
    (void)raise(SIGSTOP);
    fl_process(client);
    if (c->lost) {
        return;
    }
    if (c->terminal && tcgetpgrp(STDIN_FILENO) == getpgrp()) {
        lend_terminal(c, c->pid);
    }
    signal_command(c, SIGCONT);
}

/* What the command has started, and whose parents have ended, are this process's children. */
static void reap_orphans(const struct cli_child *c)
{
    siginfo_t info = {.si_pid = 0};
    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0 &&
           info.si_pid != c->pid) {
        (void)waitid(P_PID, (id_t)info.si_pid, &info, WEXITED | WNOHANG);
        info.si_pid = 0;
    }
}

struct group {
    pid_t id;
    bool is_seen; /* one of it is in /proc, which may hide the processes of other users */
};

/* One that has ended is in its group until its parent has noticed. If that cannot be read, it may
 * run. */
static int find_running(void *ctx, const char *name)
{
    struct group *g = ctx;
    char path[64];
    char stat[512] = "";
    if (name[0] < '1' || name[0] > '9' || getpgid((pid_t)strtol(name, NULL, 10)) != g->id) {
        return 0;
    }
    g->is_seen = true;
    snprintf(path, sizeof path, "/proc/%.20s/stat", name);
    FILE *f = fopen(path, "re");
    if (f != NULL) {
        (void)!fgets(stat, sizeof stat, f);
        fclose(f);
    }
    const char *name_end = strrchr(stat, ')');
    return name_end == NULL || strncmp(name_end, ") Z", 3) != 0;
}

/* Whether all of its group is gone, after a KILL to it and after its own end: kill() succeeds when
 * one of them could be sent it. Those who have ended may have a parent that runs, and has left the
 * group. */
static bool is_group_gone(const struct cli_child *c)
{
    for (int i = 0; i < GONE_POLLS; i++) {
        struct group g = {.id = c->pid};
        reap_orphans(c);
        if ((kill(-c->pid, 0) != 0 && errno == ESRCH) ||
            (fli_folder_each(AT_FDCWD, "/proc", find_running, &g) == 0 && g.is_seen)) {
            return true;
        }
        (void)poll(NULL, 0, 10);
    }
    return false;
}

static void reap_command(struct cli_child *c, fl_client *client)
{
    siginfo_t info = {.si_pid = 0};
    int wanted = WEXITED | WNOHANG | WNOWAIT | (c->terminal ? WSTOPPED : 0);
    if (c->pid == 0 || waitid(P_PID, (id_t)c->pid, &info, wanted) != 0 || info.si_pid == 0) {
        return;
    }
    if (info.si_code == CLD_STOPPED) {
        (void)waitid(P_PID, (id_t)c->pid, &info, WSTOPPED | WNOHANG);
        follow_into_stop(c, client);
        return;
    }
    if (c->lost && c->on_lost == CLI_ON_LOST_KILL) {
        /* kills what the command has left running; the group keeps its number until then */
        signal_command(c, SIGKILL);
    }
    (void)waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG);
    if (c->lost && c->on_lost == CLI_ON_LOST_KILL && !is_group_gone(c)) {
        warn_of_command(c, "what it has started runs as another user");
    }
    c->pid = 0;
    lend_terminal(c, getpgrp());
    c->exit_code = !c->lost         ? exit_code_of(&info)
                   : c->not_stopped ? (int)CLI_EXIT_RUN_NOT_STOPPED
                                    : (int)CLI_EXIT_RUN_LOST;
}

static void take_signals(struct cli_child *c)
{
    int signal;
    while ((signal = cli_signals_next(&c->signals)) != 0) {
        if (signal == SIGCHLD) {
            continue; /* the command is checked after each poll() in any case */
        }
        if (c->pid != 0) {
            signal_command(c, signal);
        } else if (c->died_of == 0) {
            c->died_of = signal;
        }
    }
}

void cli_child_turn(struct cli_child *c, fl_client *client, uint64_t next_ms)
{
    struct pollfd p[] = {{.fd = fl_fd(client), .events = POLLIN},
                         {.fd = c->signals.fd, .events = POLLIN},
                         {.fd = c->timer_fd, .events = POLLIN}};
    fli_timer_set(c->timer_fd, c->kill_ms < next_ms ? c->kill_ms : next_ms);
    (void)poll(p, 3, -1);
    kill_if_due(c);
    take_signals(c);
    fl_process(client);
    kill_if_due(c);
    reap_orphans(c);
    reap_command(c, client);
}

int cli_child_result(const struct cli_child *c)
{
    return c->died_of != 0 ? CLI_EXIT_SIGNAL + c->died_of : c->exit_code;
}
