/* interrupted.c: see interrupted.h. */
#include "cli/interrupted.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "client/caller.h"

#define SETTLE_MS UINT64_C(2000)
#define BEHIND_MAX_MS UINT64_C(600000)

static const int watched[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

bool cli_signals_take(struct cli_signals *s)
{
    sigemptyset(&s->ours);
    (void)sigprocmask(SIG_BLOCK, &s->ours, &s->before);
    s->fd = signalfd(-1, &s->ours, SFD_NONBLOCK | SFD_CLOEXEC);
    for (size_t i = 0; s->fd >= 0 && i < sizeof watched / sizeof watched[0]; i++) {
        cli_signals_add(s, watched[i]);
    }
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

int cli_signals_die(int signal)
{
    const struct sigaction normal = {.sa_handler = SIG_DFL};
    sigset_t one;
    (void)sigaction(signal, &normal, NULL);
    sigemptyset(&one);
    sigaddset(&one, signal);
    (void)sigprocmask(SIG_UNBLOCK, &one, NULL);
    (void)raise(signal);
    return 128 + signal;
}

/* ---- the keyboard ---------------------------------------------------------------------------- */

bool cli_keyboard_open(struct cli_keyboard *k, tcflag_t off, int when)
{
    *k = (struct cli_keyboard){.when = when};
    if (isatty(STDIN_FILENO) != 1 || tcgetattr(STDIN_FILENO, &k->before) != 0 ||
        !cli_signals_take(&k->signals)) {
        return false;
    }
    struct termios quiet = k->before;
    quiet.c_lflag &= ~off;
    k->is_open = true;
    if (tcsetattr(STDIN_FILENO, when, &quiet) != 0) {
        (void)cli_keyboard_close(k);
    }
    return k->is_open;
}

int cli_keyboard_wait(const struct cli_keyboard *k, uint64_t until_ms)
{
    struct pollfd p[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                         {.fd = k->signals.fd, .events = POLLIN}};
    uint64_t now_ms = fl_now_ms();
    uint64_t left_ms = until_ms > now_ms ? until_ms - now_ms : 0;
    int n = poll(p, k->is_open ? 2 : 0, until_ms == UINT64_MAX ? -1 : (int)left_ms);
    return n <= 0 ? 0 : p[1].revents != 0 ? -1 : 1;
}

int cli_keyboard_close(struct cli_keyboard *k)
{
    int signal = k->is_open ? cli_signals_next(&k->signals) : 0;
    if (k->is_open) {
        (void)tcsetattr(STDIN_FILENO, k->when, &k->before);
        cli_signals_give_back(&k->signals);
    }
    k->is_open = false;
    return signal;
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
