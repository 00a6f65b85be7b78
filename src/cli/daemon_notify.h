/* daemon_notify.h: reports to the service manager that started a daemon, in the protocol of
 * sd_notify(3): datagrams to the socket in NOTIFY_SOCKET. Without that variable nothing happens.
 *
 * With WATCHDOG_USEC (WatchdogSec= of the unit) a timer of the loop sends WATCHDOG=1 twice as
 * often as asked for. When the loop hangs, the manager notices and restarts the process. */
#ifndef CLI_DAEMON_NOTIFY_H
#define CLI_DAEMON_NOTIFY_H

#include <sys/socket.h>
#include <sys/un.h>
#include <uv.h>

#include "base/base.h"

#define NOTIFY_STATUS_MAX 256u
/* how often the status line is compared with the last one */
#define NOTIFY_STATUS_MS UINT64_C(1000)

struct daemon_notify {
    int fd; /* -1: no service manager listens */
    struct sockaddr_un to;
    socklen_t to_len;
    uint64_t watchdog_ms; /* 0: none */
    uv_timer_t timer;
    bool timing;
    uint64_t status_at_ms;
    char status[NOTIFY_STATUS_MAX]; /* the last one that was sent */
    /* Writes one line: what this process is doing. */
    void (*describe)(void *ctx, char *out, size_t size);
    void *ctx;
};

/* Reads the variables, and removes them from the environment: they are not for children. */
void daemon_notify_open(struct daemon_notify *n);

/* The loop is about to run: sends READY=1, and from now on the status and the watchdog. */
void daemon_notify_ready(struct daemon_notify *n, uv_loop_t *loop,
                         void (*describe)(void *ctx, char *out, size_t size), void *ctx);

/* Sends STOPPING=1. The watchdog goes on until the end. */
void daemon_notify_stopping(struct daemon_notify *n);

/* Closes the timer, so that the loop can end. */
void daemon_notify_close(struct daemon_notify *n);

#endif
