/* signals.h: signals that come while a lock is being taken, and the keyboard.
 *
 * A signal that this process was started with as ignored stays ignored (nohup, a background job of
 * a shell without job control): it is never seen here. */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <termios.h>

struct cli_signals {
    int fd; /* readable when one has come; -1 */
    sigset_t ours, before;
};

/* From now on these signals come from fd. False: not possible. */
bool cli_signals_take(struct cli_signals *s);

/* From now on this one comes from fd, too. */
void cli_signals_add(struct cli_signals *s, int signal);

/* They come from fd no more, which is closed. */
void cli_signals_give_back(struct cli_signals *s);

/* The next one that has come; 0: none. */
int cli_signals_next(const struct cli_signals *s);

/* Ends this process by that signal, so that its parent sees it. Process 1 cannot be ended so: then
 * this returns the exit code that says the same. */
int cli_signals_die(int signal);

/* The terminal at stdin, while it does not echo and a signal has its effect later. */
struct cli_keyboard {
    bool is_open;
    int when; /* its flags are changed: of tcsetattr() */
    struct termios before;
    struct cli_signals signals;
};

/* off: flags of the terminal that are taken away. False: it is none, or it cannot be told. */
bool cli_keyboard_open(struct cli_keyboard *k, tcflag_t off, int when);
/* Waits until then; UINT64_MAX: for ever. 1: something was typed; 0: not yet; -1: a signal came. */
int cli_keyboard_wait(const struct cli_keyboard *k, uint64_t until_ms);
/* The terminal is as it was. Returns the signal that has come; 0: none. */
int cli_keyboard_close(struct cli_keyboard *k);

#endif
