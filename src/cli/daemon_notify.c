/* daemon_notify.c: see daemon_notify.h. */
#include "cli/daemon_notify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"

static void send_text(struct daemon_notify *n, const char *text)
{
    if (n->fd >= 0) {
        /* a manager that is gone or busy does not matter here */
        (void)!sendto(n->fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL,
                      (const struct sockaddr *)&n->to, n->to_len);
    }
}

/* NOTIFY_SOCKET is a path, or after an @ a name in the abstract namespace. */
static bool find_socket(struct daemon_notify *n, const char *path)
{
    size_t len = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || len < 2 || len >= sizeof n->to.sun_path) {
        return false;
    }
    n->to.sun_family = AF_UNIX;
    memcpy(n->to.sun_path, path, len);
    if (path[0] == '@') {
        n->to.sun_path[0] = '\0';
    }
    n->to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    return true;
}

static uint64_t watchdog_of_environment(void)
{
    const char *usec = getenv("WATCHDOG_USEC");
    const char *pid = getenv("WATCHDOG_PID");
    uint64_t number;
    if (usec == NULL || !fli_parse_u64(usec, strlen(usec), UINT64_MAX / 2, &number) ||
        (pid != NULL &&
         (!fli_parse_u64(pid, strlen(pid), INT64_MAX, &number) || (pid_t)number != getpid()))) {
        return 0;
    }
    (void)fli_parse_u64(usec, strlen(usec), UINT64_MAX / 2, &number);
    return number / 1000;
}

void daemon_notify_open(struct daemon_notify *n)
{
    const char *path = getenv("NOTIFY_SOCKET");
    memset(n, 0, sizeof *n);
    n->fd = -1;
    if (path != NULL && find_socket(n, path)) {
        n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        n->watchdog_ms = watchdog_of_environment();
    }
    (void)unsetenv("NOTIFY_SOCKET");
    (void)unsetenv("WATCHDOG_USEC");
    (void)unsetenv("WATCHDOG_PID");
}

static void send_status(struct daemon_notify *n, const char *before)
{
    char status[NOTIFY_STATUS_MAX] = "";
    char text[NOTIFY_STATUS_MAX + 64];
    n->describe(n->ctx, status, sizeof status);
    status[strcspn(status, "\n")] = '\0'; /* a line feed would begin another assignment */
    if (before[0] != '\0' || strcmp(status, n->status) != 0) {
        (void)snprintf(text, sizeof text, "%sSTATUS=%s", before, status);
        send_text(n, text);
    }
    memcpy(n->status, status, sizeof status);
}

static void timer_cb(uv_timer_t *timer)
{
    struct daemon_notify *n = timer->data;
    uint64_t now_ms = fli_clock_ms();
    if (n->watchdog_ms != 0) {
        send_text(n, "WATCHDOG=1");
    }
    if (now_ms >= n->status_at_ms) {
        n->status_at_ms = now_ms + NOTIFY_STATUS_MS;
        send_status(n, "");
    }
}

void daemon_notify_ready(struct daemon_notify *n, uv_loop_t *loop,
                         void (*describe)(void *ctx, char *out, size_t size), void *ctx)
{
    n->describe = describe;
    n->ctx = ctx;
    if (n->fd < 0) {
        return;
    }
    uint64_t half_ms = n->watchdog_ms / 2;
    uint64_t every_ms =
        n->watchdog_ms != 0 && half_ms < NOTIFY_STATUS_MS ? half_ms : NOTIFY_STATUS_MS;
    every_ms = every_ms > 0 ? every_ms : 1;
    int rc = uv_timer_init(loop, &n->timer);
    n->timer.data = n;
    rc = rc != 0 ? rc : uv_timer_start(&n->timer, timer_cb, every_ms, every_ms);
    FLI_ASSERT(rc == 0); /* a timer of a live loop cannot fail */
    uv_unref((uv_handle_t *)&n->timer);
    n->timing = true;
    send_status(n, "READY=1\n");
}

void daemon_notify_stopping(struct daemon_notify *n)
{
    send_text(n, "STOPPING=1\nSTATUS=stopping");
}

void daemon_notify_close(struct daemon_notify *n)
{
    if (n->timing) {
        n->timing = false;
        uv_close((uv_handle_t *)&n->timer, NULL);
    }
    if (n->fd >= 0) {
        close(n->fd);
        n->fd = -1;
    }
}
