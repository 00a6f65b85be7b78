/* daemon.h: what fencelockd and fencelock-store have in common: how they begin, print and end.
 *
 * stderr gets one line per event (daemon_log.h), and a service manager the daemon's state
 * (daemon_notify.h). SIGUSR1 sets the log's level to debug, and back. SIGHUP reads files again.
 * SIGTERM and SIGINT end the daemon in order, exit 0; a second one ends it at once, exit 130. */
#ifndef CLI_DAEMON_H
#define CLI_DAEMON_H

#include <uv.h>

#include "cli/daemon_log.h"
#include "cli/daemon_notify.h"

enum { DAEMON_DONE, DAEMON_FAILED, DAEMON_USAGE }; /* exit codes */

/* All zero but for the members of the first paragraph. */
struct daemon {
    void *ctx;                                           /* of what it calls */
    void (*describe)(void *ctx, char *out, size_t size); /* what it does, in one line */
    void (*reload)(void *ctx);
    void (*stop)(void *ctx); /* when that is done, the loop calls daemon_stopped() */

    uv_loop_t loop;
    struct daemon_log log;
    struct daemon_notify notify;
    uv_signal_t signals[4];
    bool stopping;
};

/* The first thing in main(). program: what its sentences begin with. False: it cannot run. */
bool daemon_begin(const char *program) FLI_MUST_USE;

/* Prints a sentence on stderr. */
void daemon_complain(const char *fmt, ...) FLI_PRINTF(1, 2);

/* Prints this, and writes out all that was printed: a result that was not written must not look
 * like success. Returns the exit code; `code` when all was written. */
int daemon_print(const char *text);
int daemon_printed(int code);

/* Makes the log and the loop, and raises the limit of open files. An exit code. */
int daemon_open(struct daemon *d, enum log_style style, enum log_severity level);

/* Says that it is ready, and serves until it is stopped. who: "", or what it is called; plain, tls:
 * the addresses of clients, "" for none. */
void daemon_run(struct daemon *d, const char *who, const char *plain, const char *tls);
void daemon_stopped(void *daemon);

#endif
