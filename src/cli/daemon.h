/* daemon.h: what fencelockd and fencelock-store have in common: how they begin, print and end.
 *
 * stderr gets one line per event (daemon_log.h). SIGUSR1 sets the log's level to debug, and back.
 * SIGHUP reads files again. SIGTERM and SIGINT end the daemon in order, exit 0; a second one ends
 * it at once, exit 130.
 *
 * A service manager that started the daemon hears its state in the protocol of sd_notify(3):
 * datagrams to the socket in NOTIFY_SOCKET. Without that variable nothing happens. With
 * WATCHDOG_USEC (WatchdogSec= of the unit) a timer of the loop sends WATCHDOG=1 twice as often as
 * asked for. When the loop hangs, the manager notices and restarts the process. */
#ifndef CLI_DAEMON_H
#define CLI_DAEMON_H

#include <sys/socket.h>
#include <sys/un.h>
#include <uv.h>

#include "cli/daemon_log.h"

enum { DAEMON_DONE, DAEMON_FAILED, DAEMON_USAGE }; /* exit codes */

#define NOTIFY_STATUS_MAX 256u

/* Whom to tell what this process is doing. */
struct daemon_notify {
    int fd; /* -1: no service manager listens */
    struct sockaddr_un to;
    socklen_t to_len;
    uint64_t watchdog_ms; /* 0: none */
    uv_timer_t timer;
    uint64_t status_at_ms;
    char status[NOTIFY_STATUS_MAX]; /* the last one that was sent */
};

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

/* Prints a sentence on stderr; and ends the process with that exit code. */
void daemon_complain(const char *fmt, ...) FLI_PRINTF(1, 2);
_Noreturn void daemon_die(int code, const char *fmt, ...) FLI_PRINTF(2, 3);

/* Ends the process when all that was printed is written: a result that was not written must not
 * look like success. The other one prints this before. */
_Noreturn void daemon_end(int code);
_Noreturn void daemon_print(const char *text);

/* Makes the log and the loop, and raises the limit of open files; or ends the process. */
void daemon_open(struct daemon *d, enum log_style style, enum log_severity level);

/* Says that it is ready, and serves until it is stopped. who: "", or what it is called; plain, tls:
 * the addresses of clients, "" for none. */
void daemon_run(struct daemon *d, const char *who, const char *plain, const char *tls);
void daemon_stopped(void *daemon);

#endif
