/* signals.c: see signals.h. */
#include "cli/signals.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "fencelock/client.h"

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
