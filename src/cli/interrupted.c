/* interrupted.c: see interrupted.h. */
#include "cli/interrupted.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "client/caller.h"

#define SETTLE_MS UINT64_C(2000)
#define BEHIND_MAX_MS UINT64_C(600000)

static const int watched[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

bool cli_signals_take(struct cli_signals *s)
{
    sigemptyset(&s->ours);
    for (size_t i = 0; i < sizeof watched / sizeof watched[0]; i++) {
        struct sigaction inherited;
        bool known = sigaction(watched[i], NULL, &inherited) == 0;
        if (known && inherited.sa_handler != SIG_IGN) {
            sigaddset(&s->ours, watched[i]);
        }
    }
    (void)sigprocmask(SIG_BLOCK, &s->ours, &s->before);
    s->fd = signalfd(-1, &s->ours, SFD_NONBLOCK | SFD_CLOEXEC);
    return s->fd >= 0;
}

void cli_signals_add(struct cli_signals *s, int signal)
{
    struct sigaction inherited;
    if (sigaction(signal, NULL, &inherited) == 0 && inherited.sa_handler != SIG_IGN) {
        sigaddset(&s->ours, signal);
        (void)sigprocmask(SIG_BLOCK, &s->ours, NULL);
        (void)signalfd(s->fd, &s->ours, 0);
    }
}

void cli_signals_give_back(struct cli_signals *s)
{
    (void)sigprocmask(SIG_SETMASK, &s->before, NULL);
    (void)close(s->fd);
}

int cli_signals_next(const struct cli_signals *s)
{
    struct signalfd_siginfo info;
    bool came = read(s->fd, &info, sizeof info) == (ssize_t)sizeof info;
    return came ? (int)info.ssi_signo : 0;
}

int cli_signals_die(struct cli_signals *s, int signal)
{
    const struct sigaction normal = {.sa_handler = SIG_DFL};
    (void)sigaction(signal, &normal, NULL);
    sigdelset(&s->before, signal);
    (void)sigprocmask(SIG_SETMASK, &s->before, NULL);
    (void)raise(signal);
    return 128 + signal;
}

/* ---- an acquire without an answer ------------------------------------------------------------ */

/* stop: ends it when that becomes readable; -1. */
static int settle(const struct cli_args *a, const struct fl_take *options, uint64_t last, int stop,
                  uint64_t timeout_ms)
{
    int unused;
    fl_client *c = cli_client_create(a, &unused);
    if (c == NULL) {
        return FL_EUNCERTAIN;
    }
    fli_client_on_trouble(c, NULL, NULL);
    fli_client_begin_above(c, last);
    fli_client_stop_at(c, stop);
    int rc = fl_settle(c, a->arg[0], options, timeout_ms);
    fl_close(c);
    return rc;
}

/* Whoever waits for this process to end, or for the end of what it prints, does not wait for the
 * rest. */
static void leave_everybody(const struct cli_signals *s)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)sigprocmask(SIG_SETMASK, &s->before, NULL); /* whoever wants it to end may end it */
    (void)setsid();
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO && null >= 0; fd++) {
        (void)dup2(null, fd);
    }
    if (chdir("/") != 0) {
        return; /* it only keeps a file system busy */
    }
}

void cli_settle(const struct cli_args *a, const struct cli_signals *s,
                const struct fl_take *options, uint64_t last)
{
    if (last == 0 || settle(a, options, last, s->fd, SETTLE_MS) == 0) {
        return;
    }
    uint64_t ttl_ms = options->ttl_ms != 0 ? options->ttl_ms : FL_TTL_DEFAULT_MS;
    uint64_t more_ms = ttl_ms < BEHIND_MAX_MS ? ttl_ms : BEHIND_MAX_MS;
    char text[CLI_DURATION_SIZE];
    cli_format_duration(text, ttl_ms);
    char who_gives_it_back[96] = "See fencelock show";
    pid_t behind = getpid() == 1 ? -1 : fork(); /* with process 1, all processes end */
    if (behind == 0) {
        leave_everybody(s);
        _exit(settle(a, options, last, -1, more_ms) == 0 ? 0 : 1);
    }
    if (behind > 0) {
        (void)snprintf(who_gives_it_back, sizeof who_gives_it_back,
                       "Process %d gives it back in the background when one answers", (int)behind);
    }
    cli_complain("%.64s: no node has said whether it still takes the lock: it may be held by "
                 "nobody for %s. %s",
                 a->arg[0], text, who_gives_it_back);
}
