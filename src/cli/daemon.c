/* daemon.c: see daemon.h. */
#include "cli/daemon.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/standard.h"

static const int signal_numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
#define SIGNALS (sizeof signal_numbers / sizeof signal_numbers[0])

/* how often the status line is compared with the last one */
#define NOTIFY_STATUS_MS UINT64_C(1000)

static const char *program_name;

bool daemon_begin(const char *program)
{
    program_name = program;
    (void)signal(SIGXFSZ, SIG_IGN); /* beyond the limit on file sizes, writes fail and say so */
    return fli_standard_keep();
}

static void FLI_PRINTF(1, 0) complain(const char *fmt, va_list args)
{
    (void)fprintf(stderr, "%s: ", program_name);
    (void)vfprintf(stderr, fmt, args);
    (void)fputc('\n', stderr);
}

void daemon_complain(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    complain(fmt, args);
    va_end(args);
}

void daemon_die(int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    complain(fmt, args);
    va_end(args);
    exit(code);
}

void daemon_end(int code)
{
    if (!fli_standard_flush()) {
        daemon_die(code != DAEMON_DONE ? code : DAEMON_FAILED, "cannot write the result");
    }
    exit(code);
}

void daemon_print(const char *text)
{
    (void)fputs(text, stdout);
    daemon_end(DAEMON_DONE);
}

/* Each client needs a file descriptor. */
static void raise_open_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

/* ---- the service manager --------------------------------------------------------------------- */

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

/* 0: there is none, or it is another process's. */
static uint64_t watchdog_of_environment(void)
{
    const char *usec = getenv("WATCHDOG_USEC");
    const char *pid = getenv("WATCHDOG_PID");
    uint64_t of = (uint64_t)getpid();
    uint64_t number = 0;
    bool known =
        usec != NULL && fli_parse_u64(usec, strlen(usec), UINT64_MAX / 2, &number) &&
        (pid == NULL || (fli_parse_u64(pid, strlen(pid), INT64_MAX, &of) && (pid_t)of == getpid()));
    return known ? number / 1000 : 0;
}

/* Reads the variables, and removes them from the environment: they are not for children. */
static void notify_open(struct daemon_notify *n)
{
    const char *path = getenv("NOTIFY_SOCKET");
    n->fd = -1;
    if (path != NULL && find_socket(n, path)) {
        n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        n->watchdog_ms = watchdog_of_environment();
    }
    (void)unsetenv("NOTIFY_SOCKET");
    (void)unsetenv("WATCHDOG_USEC");
    (void)unsetenv("WATCHDOG_PID");
}

static void send_status(struct daemon *d, const char *before)
{
    char status[NOTIFY_STATUS_MAX] = "";
    char text[NOTIFY_STATUS_MAX + 64];
    d->describe(d->ctx, status, sizeof status);
    status[strcspn(status, "\n")] = '\0'; /* a line feed would begin another assignment */
    if (before[0] != '\0' || strcmp(status, d->notify.status) != 0) {
        (void)snprintf(text, sizeof text, "%sSTATUS=%s", before, status);
        send_text(&d->notify, text);
    }
    memcpy(d->notify.status, status, sizeof status);
}

static void notify_cb(uv_timer_t *timer)
{
    struct daemon *d = timer->data;
    uint64_t now_ms = fli_clock_ms();
    if (d->notify.watchdog_ms != 0) {
        send_text(&d->notify, "WATCHDOG=1");
    }
    if (now_ms >= d->notify.status_at_ms) {
        d->notify.status_at_ms = now_ms + NOTIFY_STATUS_MS;
        send_status(d, "");
    }
}

/* The loop is about to run: sends READY=1, and from now on the status and the watchdog. */
static void notify_ready(struct daemon *d)
{
    struct daemon_notify *n = &d->notify;
    uint64_t half_ms = n->watchdog_ms / 2;
    uint64_t every_ms =
        n->watchdog_ms != 0 && half_ms < NOTIFY_STATUS_MS ? half_ms : NOTIFY_STATUS_MS;
    every_ms = every_ms > 0 ? every_ms : 1;
    int rc = uv_timer_init(&d->loop, &n->timer);
    n->timer.data = d;
    rc = rc != 0 || n->fd < 0 ? rc : uv_timer_start(&n->timer, notify_cb, every_ms, every_ms);
    FLI_ASSERT(rc == 0); /* a timer of a live loop cannot fail */
    uv_unref((uv_handle_t *)&n->timer);
    send_status(d, "READY=1\n");
}

void daemon_open(struct daemon *d, enum log_style style, enum log_severity level)
{
    daemon_log_init(&d->log, style, level);
    notify_open(&d->notify);
    raise_open_files();
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGUSR1, SIG_IGN); /* until it is watched for */
    int rc = uv_loop_init(&d->loop);
    if (rc != 0) {
        daemon_die(DAEMON_FAILED, "cannot make an event loop: %s%s", uv_strerror(rc),
                   fli_files_remedy(uv_strerror(rc)));
    }
}

/* ---- signals --------------------------------------------------------------------------------- */

static void stop(struct daemon *d, int number)
{
    if (d->stopping) {
        daemon_log_write(&d->log, LOG_SEVERITY_WARNING, "daemon", "second signal: ending at once");
        _exit(128 + SIGINT);
    }
    d->stopping = true;
    daemon_log_write(&d->log, LOG_SEVERITY_INFO, "daemon",
                     number == SIGTERM ? "SIGTERM: stopping" : "SIGINT: stopping");
    send_text(&d->notify, "STOPPING=1\nSTATUS=stopping"); /* the watchdog goes on */
    d->stop(d->ctx);
}

static void signal_cb(uv_signal_t *handle, int number)
{
    struct daemon *d = handle->data;
    if (number == SIGUSR1) {
        daemon_log_toggle(&d->log);
    } else if (number != SIGHUP) {
        stop(d, number);
    } else if (!d->stopping) {
        daemon_log_write(&d->log, LOG_SEVERITY_INFO, "daemon",
                         "SIGHUP: reading the files of TLS again");
        d->reload(d->ctx);
    }
}

static void watch_signals(struct daemon *d)
{
    for (unsigned i = 0; i < SIGNALS; i++) {
        int rc = uv_signal_init(&d->loop, &d->signals[i]);
        d->signals[i].data = d;
        rc = rc != 0 ? rc : uv_signal_start(&d->signals[i], signal_cb, signal_numbers[i]);
        if (rc != 0) {
            fli_fatal("cannot watch for signals: %s", uv_strerror(rc));
        }
    }
}

/* ---- the course ------------------------------------------------------------------------------ */

void daemon_run(struct daemon *d, const char *who, const char *plain, const char *tls)
{
    watch_signals(d);
    (void)printf("ready: %slistening on %s%s%s%s\n", who, plain,
                 plain[0] != '\0' && tls[0] != '\0' ? " and " : "", tls,
                 tls[0] != '\0' ? " (TLS)" : "");
    (void)fflush(stdout);
    notify_ready(d);
    (void)uv_run(&d->loop, UV_RUN_DEFAULT);
}

void daemon_stopped(void *daemon)
{
    struct daemon *d = daemon;
    daemon_log_write(&d->log, LOG_SEVERITY_INFO, "daemon", "stopped");
    uv_close((uv_handle_t *)&d->notify.timer, NULL);
    (void)close(d->notify.fd); /* or -1 */
    for (unsigned i = 0; i < SIGNALS; i++) {
        uv_close((uv_handle_t *)&d->signals[i], NULL);
    }
}
