/* daemon_notify.h: what a daemon tells the service manager that started it, as sd_notify(3) says
 * it: datagrams to the socket in NOTIFY_SOCKET. Without that variable all of this does nothing.
 *
 * With WATCHDOG_USEC (WatchdogSec= of the unit) a timer of the loop says WATCHDOG=1 twice as often
 * as asked for, so that a loop that does not turn any more is noticed and the process restarted. */
#ifndef CLI_DAEMON_NOTIFY_H
#define CLI_DAEMON_NOTIFY_H

#include <sys/socket.h>
#include <sys/un.h>
#include <uv.h>

#include "base/base.h"

#define NOTIFY_STATUS_MAX 256u
#define NOTIFY_STATUS_MS UINT64_C(1000) /* how often the status line is looked at */

struct daemon_notify {
    int fd; /* -1: nobody wants to know */
    struct sockaddr_un to;
    socklen_t to_len;
    uint64_t watchdog_ms; /* 0: none */
    uv_timer_t timer;
    bool timing;
    uint64_t status_at_ms;
    char status[NOTIFY_STATUS_MAX]; /* what was told last */
    /* What this process is doing, one line. */
    void (*describe)(void *ctx, char *out, size_t size);
    void *ctx;
};

/* Reads the environment, and takes the variables out of it: they are not for our children. */
void daemon_notify_open(struct daemon_notify *n);

/* The loop is about to turn: READY=1, the status from now on, the watchdog. */
void daemon_notify_ready(struct daemon_notify *n, uv_loop_t *loop,
                         void (*describe)(void *ctx, char *out, size_t size), void *ctx);

/* STOPPING=1. The watchdog goes on until the end. */
void daemon_notify_stopping(struct daemon_notify *n);

/* Closes the timer, so that the loop can end. */
void daemon_notify_close(struct daemon_notify *n);

#endif
