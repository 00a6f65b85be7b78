/* fencelock_cmd_run.c: a command that runs while a lock is held, and not longer.
 *
 * One thread, and nothing here waits but the one poll(): neither a silent network nor a full pipe
 * may keep us from stopping the command in time.
 *
 *     sent      ttl/3 .. renewals        lost: TERM      KILL   deadline   the server's expiry
 *      |-----------|----------------------|---------------|--------|-------------|
 *                                         ttl/4 before the deadline, ttl/20 before it
 *
 * The command is the leader of a process group of its own, so that what it has started is stopped
 * with it. When we are killed the kernel kills the command; what it has started it does not. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/fencelock_common.h"
#include "fencelock/hold.h"

#define NEVER UINT64_MAX
#define PLACE_FIRST_MS UINT64_C(300)
#define PLACE_EVERY_MS UINT64_C(1000)
#define TAKEN_GRACE_MAX_MS UINT64_C(1000)
#define RELEASE_TIMEOUT_MS UINT64_C(2000)
#define RELEASE_LOST_TIMEOUT_MS UINT64_C(500) /* likely in vain */

enum on_lost { ON_LOST_KILL, ON_LOST_TERM, ON_LOST_WARN };

struct runner {
    const struct cli_args *args;
    fl_async *async;
    int signal_fd;
    sigset_t mask_before;
    struct sigaction pipe_before;
    uint64_t ttl_ms, reserve_ms;
    enum on_lost on_lost;
    /* waiting */
    fl_call *acquiring;
    fl_call *looking;
    uint64_t look_ms; /* when to ask for the place next */
    uint64_t place, waiters;
    bool place_line; /* a line on the terminal that the next one overwrites */
    /* running */
    fl_lock *lock;
    pid_t child; /* 0: none, or reaped */
    siginfo_t ended;
    bool terminal; /* ours to lend to the command */
    bool lost;     /* and the command stopped for it */
    uint64_t kill_ms;
    /* the end */
    bool releasing;
    int exit_code;
    int died_of; /* a signal that is to end us as well; 0: none */
};

static const int forwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

/* A message that is dropped rather than waited for when nobody reads. */
static void say(struct runner *r, const char *text)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&p, 1, 0) != 1 || (p.revents & POLLOUT) == 0) {
        return;
    }
    if (r->place_line) {
        fputs("\r\033[K", stderr);
        r->place_line = false;
    }
    cli_complain("%.64s: %.400s", r->args->arg[0], text);
}

/* ---- the place in the queue ------------------------------------------------------------------ */

static void show_place(struct runner *r, uint64_t place, uint64_t waiters)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    if ((place == r->place && waiters == r->waiters) || poll(&p, 1, 0) != 1) {
        return;
    }
    r->place = place;
    r->waiters = waiters;
    char text[96];
    snprintf(text, sizeof text, "waiting, place %" PRIu64 " of %" PRIu64, place, waiters);
    if (isatty(STDERR_FILENO) != 1) {
        say(r, text);
        return;
    }
    fputs("\r\033[Kfencelock: ", stderr);
    cli_print_safe(stderr, fl_str(r->args->arg[0]));
    fprintf(stderr, ": %s", text);
    r->place_line = true;
}

static struct fl_bytes owner_of(const struct runner *r)
{
    return cli_has(r->args, CLI_OPT_OWNER) ? fl_str(r->args->text[CLI_OPT_OWNER])
                                           : fl_async_owner(r->async);
}

static void on_shown(void *arg, int status, const char *error, struct fl_lock_list *list)
{
    (void)error;
    struct runner *r = arg;
    struct fl_bytes owner = owner_of(r);
    r->looking = NULL;
    r->look_ms = fl_now_ms() + PLACE_EVERY_MS;
    if (status != 0 || r->acquiring == NULL) {
        fl_lock_list_free(list);
        return;
    }
    const struct fl_lock_info *l = &list->locks[0];
    for (size_t i = 0; i < l->queue_len; i++) {
        const struct fl_bytes *w = &l->queue[i].owner;
        if (w->len == owner.len && memcmp(w->data, owner.data, w->len) == 0) {
            show_place(r, i + 1, l->waiters);
            break;
        }
    }
    fl_lock_list_free(list);
}

static void look_for_place(struct runner *r)
{
    if (r->acquiring == NULL || r->looking != NULL || fl_now_ms() < r->look_ms) {
        return;
    }
    r->look_ms = fl_now_ms() + PLACE_EVERY_MS;
    /* Without memory for it the place is not shown, that is all. */
    if (fl_async_show(r->async, fl_str(r->args->arg[0]), PLACE_EVERY_MS, on_shown, r,
                      &r->looking) != 0) {
        r->looking = NULL;
    }
}

/* ---- the command ----------------------------------------------------------------------------- */

static void set_environment(const struct runner *r, fl_token token, uint64_t deadline_ms)
{
    char number[24];
    snprintf(number, sizeof number, "%" PRIu64, token);
    (void)setenv("FENCELOCK_TOKEN", number, 1);
    (void)setenv("FENCELOCK_LOCK", r->args->arg[0], 1);
    snprintf(number, sizeof number, "%" PRIu64, deadline_ms);
    (void)setenv("FENCELOCK_DEADLINE_MS", number, 1);
}

static void lend_terminal(const struct runner *r, pid_t group)
{
    if (r->terminal) {
        (void)tcsetpgrp(STDIN_FILENO, group); /* SIGTTOU is blocked */
    }
}

_Noreturn static void become_command(struct runner *r, pid_t parent)
{
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(CLI_EXIT_RUN_FAILED); /* it died before the line above */
    }
    lend_terminal(r, getpid());
    (void)sigaction(SIGPIPE, &r->pipe_before, NULL);
    (void)sigprocmask(SIG_SETMASK, &r->mask_before, NULL);
    /* execvp() takes the pointers as not const for reasons of history and changes nothing. */
    char **argv = (char **)(uintptr_t)r->args->rest;
    (void)execvp(argv[0], argv);
    int error = errno;
    cli_complain("cannot run %.200s: %s", argv[0], strerror(error));
    _exit(error == ENOENT ? CLI_EXIT_RUN_NOT_FOUND : CLI_EXIT_RUN_CANNOT);
}

static void start_command(struct runner *r)
{
    fl_token token;
    if (fl_lock_token(r->lock, &token) != 0) {
        say(r, "lost before the command could be started");
        r->exit_code = CLI_EXIT_RUN_LOST;
        return;
    }
    set_environment(r, token, fl_lock_deadline_ms(r->lock));
    r->terminal = isatty(STDIN_FILENO) == 1 && tcgetpgrp(STDIN_FILENO) == getpgrp();
    pid_t parent = getpid();
    pid_t child = fork();
    if (child == 0) {
        become_command(r, parent);
    }
    if (child < 0) {
        say(r, "the command cannot be started: no process to be had");
        r->exit_code = CLI_EXIT_RUN_CANNOT;
        return;
    }
    r->child = child;
    (void)setpgid(child, child); /* both do it, so that it is done whoever comes first */
    lend_terminal(r, child);
}

static void signal_command(const struct runner *r, int signal)
{
    if (r->child != 0 && kill(-r->child, signal) != 0 && errno == ESRCH) {
        (void)kill(r->child, signal); /* it has not made its group yet */
    }
}

static void stop_command(struct runner *r, enum fl_lost_reason reason)
{
    if (r->on_lost == ON_LOST_WARN || r->child == 0) {
        return;
    }
    r->lost = true;
    signal_command(r, SIGTERM);
    signal_command(r, SIGCONT); /* a stopped one would never hear of it */
    if (r->on_lost == ON_LOST_TERM) {
        return;
    }
    uint64_t grace_ms = r->reserve_ms - r->ttl_ms / 20;
    r->kill_ms = fl_lock_deadline_ms(r->lock) + grace_ms;
    if (reason == FL_LOST_TAKEN) {
        r->kill_ms = fl_now_ms() + (grace_ms < TAKEN_GRACE_MAX_MS ? grace_ms : TAKEN_GRACE_MAX_MS);
    }
}

static void kill_if_due(struct runner *r)
{
    if (r->child != 0 && fl_now_ms() >= r->kill_ms) {
        signal_command(r, SIGKILL);
        r->kill_ms = NEVER;
    }
}

static void on_change(void *arg, fl_lock *lock, enum fl_hold_state state)
{
    struct runner *r = arg;
    char text[256];
    if (state == FL_HOLD_LOST) {
        enum fl_lost_reason reason = fl_lock_reason(lock);
        stop_command(r, reason);
        kill_if_due(r);
        snprintf(text, sizeof text, "the lock is lost: %s%s", fl_lost_reason_text(reason),
                 r->lost ? "; stopping the command" : "");
    } else {
        snprintf(text, sizeof text, "%s",
                 state == FL_HOLD_SAFE
                     ? "renewed again"
                     : "in jeopardy: the lease cannot be renewed, but has not run out yet");
    }
    say(r, text);
}

/* ---- signals --------------------------------------------------------------------------------- */

static int exit_code_of(const siginfo_t *ended)
{
    return ended->si_code == CLD_EXITED ? ended->si_status : 128 + ended->si_status;
}

/* Job control: the command was stopped from its terminal. So are we, or the shell would wait for
 * ever. Whatever of the lease has run out meanwhile is seen before the command goes on. */
static void follow_into_stop(struct runner *r)
{
    lend_terminal(r, getpgrp());
    (void)raise(SIGSTOP);
    fl_async_process(r->async);
    if (fl_lock_state(r->lock) == FL_HOLD_LOST && r->on_lost != ON_LOST_WARN) {
        return;
    }
    if (r->terminal && tcgetpgrp(STDIN_FILENO) == getpgrp()) {
        lend_terminal(r, r->child);
    }
    signal_command(r, SIGCONT);
}

static void look_at_command(struct runner *r)
{
    siginfo_t info = {.si_pid = 0};
    int wanted = WEXITED | WNOHANG | WNOWAIT | (r->terminal ? WSTOPPED : 0);
    if (r->child == 0 || waitid(P_PID, (id_t)r->child, &info, wanted) != 0 || info.si_pid == 0) {
        return;
    }
    if (info.si_code == CLD_STOPPED) {
        (void)waitid(P_PID, (id_t)r->child, &info, WSTOPPED | WNOHANG);
        follow_into_stop(r);
        return;
    }
    if (r->lost && r->on_lost == ON_LOST_KILL) {
        signal_command(r, SIGKILL); /* what it has left behind; its group still has its name */
    }
    (void)waitid(P_PID, (id_t)r->child, &info, WEXITED | WNOHANG);
    r->ended = info;
    r->child = 0;
    lend_terminal(r, getpgrp());
    r->exit_code = r->lost ? (int)CLI_EXIT_RUN_LOST : exit_code_of(&info);
}

static void take_signals(struct runner *r)
{
    struct signalfd_siginfo info;
    while (read(r->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        int signal = (int)info.ssi_signo;
        if (signal == SIGCHLD || signal == SIGTTOU) {
            continue; /* looked at in any case */
        }
        if (r->child != 0) {
            signal_command(r, signal);
        } else if (r->died_of == 0) {
            r->died_of = signal;
        }
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int not_acquired(struct runner *r, int status, const char *error)
{
    if (status == FL_ENOTHELD) {
        say(r, cli_has(r->args, CLI_OPT_WAIT) && r->args->number[CLI_OPT_WAIT] == 0
                   ? "not acquired: another owner holds the lock"
                   : "not acquired: another owner kept the lock as long as we waited");
        return CLI_EXIT_RUN_NOT_ACQUIRED;
    }
    say(r, error);
    switch (cli_exit_of(status)) {
    case CLI_EXIT_NO:
        return CLI_EXIT_RUN_NOT_ACQUIRED;
    case CLI_EXIT_USAGE:
        return CLI_EXIT_USAGE;
    default:
        return CLI_EXIT_RUN_FAILED;
    }
}

static void on_acquired(void *arg, int status, const char *error, fl_lock *lock)
{
    struct runner *r = arg;
    r->acquiring = NULL;
    r->lock = lock;
    if (status != 0) {
        r->exit_code = not_acquired(r, status, error);
        return;
    }
    if (r->place_line) {
        say(r, "acquired");
    }
    if (r->died_of == 0) {
        start_command(r);
    }
}

static void on_released(void *arg, int status, const char *error)
{
    struct runner *r = arg;
    r->releasing = false;
    if (status != 0 && status != FL_ENOTHELD) {
        char text[400];
        snprintf(text, sizeof text, "not given back, it ends with its lease: %s", error);
        say(r, text);
    }
}

/* One turn: waits until something has happened, and sees to it. */
static void turn(struct runner *r)
{
    uint64_t next_ms = r->kill_ms;
    if (r->acquiring != NULL && r->looking == NULL && r->look_ms < next_ms) {
        next_ms = r->look_ms;
    }
    uint64_t now_ms = fl_now_ms();
    uint64_t left_ms = next_ms > now_ms ? next_ms - now_ms : 0;
    struct pollfd p[] = {{.fd = fl_async_fd(r->async), .events = POLLIN},
                         {.fd = r->signal_fd, .events = POLLIN}};
    (void)poll(p, 2, left_ms < INT_MAX ? (int)left_ms : next_ms == NEVER ? -1 : INT_MAX);
    kill_if_due(r);
    take_signals(r);
    fl_async_process(r->async);
    kill_if_due(r);
    look_at_command(r);
    look_for_place(r);
}

static void give_back(struct runner *r)
{
    if (r->lock == NULL) {
        return;
    }
    uint64_t timeout_ms = r->lost ? RELEASE_LOST_TIMEOUT_MS : RELEASE_TIMEOUT_MS;
    r->releasing = fl_async_release(r->lock, timeout_ms, on_released, r) == 0;
    while (r->releasing) {
        turn(r);
    }
    fl_lock_free(r->lock);
}

static void wait_run_and_give_back(struct runner *r)
{
    r->look_ms = fl_now_ms() + PLACE_FIRST_MS;
    while (r->acquiring != NULL && r->died_of == 0) {
        turn(r);
    }
    while (r->child != 0) {
        turn(r);
    }
    if (r->acquiring != NULL) {
        fl_call_cancel(r->acquiring);
    }
    if (r->looking != NULL) {
        fl_call_cancel(r->looking);
        r->looking = NULL;
    }
    r->acquiring = NULL;
    give_back(r);
    if (r->place_line) {
        fputc('\n', stderr);
    }
}

static bool take_arguments(struct runner *r)
{
    static const char *const words[] = {"kill", "term", "warn"};
    const struct cli_args *a = r->args;
    const char *word = cli_has(a, CLI_OPT_ON_LOST) ? a->text[CLI_OPT_ON_LOST] : words[0];
    size_t i = 0;
    while (i < 3 && strcmp(words[i], word) != 0) {
        i++;
    }
    if (i == 3) {
        cli_complain("--on-lost is kill, term or warn, not '%.32s'", word);
        return false;
    }
    if (cli_has(a, CLI_OPT_JSON)) {
        cli_complain("run takes no --json: what its command prints is not ours");
        return false;
    }
    r->on_lost = (enum on_lost)i;
    r->ttl_ms = cli_has(a, CLI_OPT_TTL) ? a->number[CLI_OPT_TTL] : FL_TTL_DEFAULT_MS;
    r->reserve_ms = r->on_lost == ON_LOST_WARN ? 0 : r->ttl_ms / 4;
    if (r->ttl_ms < CLI_RUN_TTL_MIN_MS || r->ttl_ms > FL_TTL_MAX_MS) {
        cli_complain("--ttl of run is %llu ms to 24 h: a command cannot be stopped faster",
                     (unsigned long long)CLI_RUN_TTL_MIN_MS);
        return false;
    }
    struct fl_acquire_options unused;
    if (!cli_mode_of(a, &unused)) {
        return false;
    }
    if (cli_has(a, CLI_OPT_MAX_HOLD) && a->number[CLI_OPT_MAX_HOLD] == 0) {
        cli_complain("--max-hold must not be 0");
        return false;
    }
    return true;
}

static bool take_over_signals(struct runner *r)
{
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGCHLD);
    sigaddset(&ours, SIGTTOU);
    for (size_t i = 0; i < sizeof forwarded / sizeof forwarded[0]; i++) {
        sigaddset(&ours, forwarded[i]);
    }
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    const struct sigaction normal = {.sa_handler = SIG_DFL};
    (void)sigaction(SIGPIPE, &ignore, &r->pipe_before);
    (void)sigaction(SIGCHLD, &normal, NULL); /* ignored, its children leave no status */
    (void)sigprocmask(SIG_BLOCK, &ours, &r->mask_before);
    r->signal_fd = signalfd(-1, &ours, SFD_NONBLOCK | SFD_CLOEXEC);
    return r->signal_fd >= 0;
}

static int acquire(struct runner *r)
{
    const struct cli_args *a = r->args;
    struct fl_acquire_options options = {
        .ttl_ms = r->ttl_ms,
        .wait_ms = cli_has(a, CLI_OPT_WAIT) ? a->number[CLI_OPT_WAIT] : FL_WAIT_MAX_MS,
        .owner = owner_of(r),
        .value = fl_str(a->text[CLI_OPT_VALUE]),
    };
    (void)cli_mode_of(a, &options); /* looked at in take_arguments() */
    const struct fl_hold_options hold = {.max_hold_ms = a->number[CLI_OPT_MAX_HOLD],
                                         .reserve_ms = r->reserve_ms,
                                         .on_change = on_change,
                                         .arg = r};
    return fl_async_acquire(r->async, fl_str(a->arg[0]), &options, &hold, on_acquired, r,
                            &r->acquiring);
}

/* Ends as the signal says, so that whoever started us sees it. */
static void die_of(struct runner *r)
{
    const struct sigaction normal = {.sa_handler = SIG_DFL};
    (void)sigaction(r->died_of, &normal, NULL);
    (void)sigprocmask(SIG_SETMASK, &r->mask_before, NULL);
    (void)raise(r->died_of);
}

int cli_run_run(const struct cli_args *a)
{
    struct runner r = {.args = a, .kill_ms = NEVER, .exit_code = CLI_EXIT_RUN_FAILED};
    if (!take_arguments(&r)) {
        return CLI_EXIT_USAGE;
    }
    int code;
    fl_client *checked = cli_client_create(a, &code); /* says what is wrong with the addresses */
    if (checked == NULL) {
        return code;
    }
    fl_client_destroy(checked);
    const struct fl_client_options options = {.timeout_ms = a->number[CLI_OPT_TIMEOUT]};
    int rc = fl_async_create(cli_nodes_of(a), &options, &r.async);
    if (rc == 0 && !take_over_signals(&r)) {
        rc = FL_ESYSTEM;
    }
    if (rc == 0) {
        rc = acquire(&r);
    }
    if (rc == 0) {
        wait_run_and_give_back(&r);
    } else {
        r.exit_code = not_acquired(&r, rc, fl_strerror(rc));
    }
    fl_async_destroy(r.async);
    if (r.signal_fd > 0) {
        close(r.signal_fd);
    }
    if (r.died_of != 0) {
        die_of(&r);
    }
    return r.exit_code;
}
