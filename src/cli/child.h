/* child.h: the command that `run` and `redlock run` start when they hold a lock, and stop before
 * they lose it. Used from one thread.
 *
 *     lost: TERM          KILL        deadline
 *      |-------------------|-------------|
 *      ttl/4 before the deadline, ttl/20 before it
 *
 * The command leads a process group of its own, so that the processes it has started are stopped
 * with it. When this process is killed, the kernel kills the command, but not those other
 * processes. */
#ifndef CLI_CHILD_H
#define CLI_CHILD_H

#include <signal.h>
#include <sys/types.h>

#include "cli/fencelock_common.h"

#define CLI_NEVER_MS UINT64_MAX

enum cli_on_lost { CLI_ON_LOST_KILL, CLI_ON_LOST_TERM, CLI_ON_LOST_WARN };

struct cli_child {
    const struct cli_args *args;
    enum cli_on_lost on_lost;
    /* reserve_ms: the lock counts as lost so long before its deadline */
    uint64_t ttl_ms, reserve_ms;
    /* the line on stderr about the place in the queue is to be overwritten */
    bool place_line;

    struct cli_signals signals;
    int timer_fd;     /* of the clock of deadlines; that of poll() stands still while suspended */
    uint64_t kill_ms; /* CLI_NEVER_MS: not due */
    pid_t pid;        /* 0: not running */
    bool terminal;    /* the terminal is ours, so the command may have it */
    bool lost;        /* the lock is lost, and the command is being stopped */
    bool not_stopped; /* a signal could not be sent to it, and that was printed */
    int exit_code;
    int died_of;                /* the signal by which this process will end too; 0: none */
    struct sigaction before[2]; /* of SIGPIPE and SIGXFSZ */
};

/* Takes --on-lost. ttl_ms: of the lock. */
void cli_child_init(struct cli_child *c, const struct cli_args *a, uint64_t ttl_ms);

/* From now on signals arrive at signals.fd. False: that or timer_fd could not be made. */
bool cli_child_take_over_signals(struct cli_child *c);

/* Writes a message to stderr, or drops it when a full pipe would block. quietly: not with
 * --quiet. */
void cli_child_say(struct cli_child *c, bool quietly, const char *fmt, ...) FLI_PRINTF(3, 4);

/* Starts the command with the lock's data in its environment. token: FL_TOKEN_NONE for none. */
void cli_child_start(struct cli_child *c, fl_token token, uint64_t deadline_ms);

/* The lock is lost: sends TERM now, and KILL at kill_ms. taken: another may hold it already. */
void cli_child_stop(struct cli_child *c, uint64_t deadline_ms, bool taken);

/* Waits until something happens to the client or the command, or until next_ms (CLI_NEVER_MS: not),
 * and reacts to it. */
void cli_child_turn(struct cli_child *c, fl_client *client, uint64_t next_ms);

/* The exit code of this process: CLI_EXIT_SIGNAL and more, if a signal came before the command
 * began. */
int cli_child_result(const struct cli_child *c);

#endif
