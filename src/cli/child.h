/* child.h: the command that `run` and `redlock run` start while they hold a lock, and stop before
 * they lose it. Used from one thread, whose poll() watches signal_fd and wakes at kill_ms.
 *
 *     lost: TERM          KILL        deadline
 *      |-------------------|-------------|
 *      ttl/4 before the deadline, ttl/20 before it
 *
 * The command is the leader of a process group of its own, so that what it has started is stopped
 * with it. When we are killed the kernel kills the command; what it has started it does not. */
#ifndef CLI_CHILD_H
#define CLI_CHILD_H

#include <signal.h>
#include <sys/types.h>

#include "cli/fencelock_common.h"

#define CLI_NEVER_MS UINT64_MAX

enum cli_on_lost { CLI_ON_LOST_KILL, CLI_ON_LOST_TERM, CLI_ON_LOST_WARN };

struct cli_child {
    const struct cli_args *args;
    /* Called after we were stopped together with the command: learns what became of the lock
     * meanwhile and says whether the command may go on. */
    bool (*still_held)(void *ctx);
    void *ctx;
    enum cli_on_lost on_lost;
    uint64_t ttl_ms, reserve_ms; /* call the lock lost so long before its deadline */
    bool place_line;             /* stderr has a line that the next message overwrites */

    int signal_fd;
    uint64_t kill_ms; /* CLI_NEVER_MS: not due */
    pid_t pid;        /* 0: none, or reaped */
    bool terminal;    /* ours to lend to the command */
    bool lost;        /* and the command stopped for it */
    int exit_code;
    int died_of; /* a signal that is to end us as well; 0: none */
    sigset_t mask_before;
    struct sigaction pipe_before;
};

/* Takes --ttl, --on-lost and --max-hold. default_ms: without --ttl. False after a sentence. */
bool cli_child_init(struct cli_child *c, const struct cli_args *a, uint64_t default_ms,
                    uint64_t ttl_max_ms);

/* From now on signals come through signal_fd. False: none to be had. */
bool cli_child_take_over_signals(struct cli_child *c);

/* A message that is dropped rather than waited for when nobody reads. cli_child_tell: one that
 * --quiet leaves out. */
void cli_child_say(struct cli_child *c, const char *text);
void cli_child_tell(struct cli_child *c, const char *text);

/* Starts the command with what it needs in its environment. token: FL_TOKEN_NONE for none. */
void cli_child_start(struct cli_child *c, fl_token token, uint64_t deadline_ms);

/* The lock is lost: TERM, and KILL when it is due. taken: another may have the lock already. */
void cli_child_stop(struct cli_child *c, uint64_t deadline_ms, bool taken);

/* How long poll() may wait, given when something else is due (or CLI_NEVER_MS). */
int cli_child_poll_ms(const struct cli_child *c, uint64_t next_ms);

/* After each poll(), before and after the rest is seen to. */
void cli_child_before(struct cli_child *c);
void cli_child_after(struct cli_child *c);

/* The end: closes signal_fd; ends us by a signal when one did so before the command began. Returns
 * the exit code. */
int cli_child_fini(struct cli_child *c);

#endif
