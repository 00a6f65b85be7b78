/* daemon.c: see daemon.h. */
#include "cli/daemon.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/standard.h"

static const int signal_numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
#define SIGNALS (sizeof signal_numbers / sizeof signal_numbers[0])

static const char *program_name;

bool daemon_begin(const char *program)
{
    program_name = program;
    (void)signal(SIGXFSZ, SIG_IGN); /* beyond the limit on file sizes, writes fail and say so */
    return fli_standard_keep();
}

void daemon_complain(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)fprintf(stderr, "%s: ", program_name);
    (void)vfprintf(stderr, fmt, args);
    (void)fputc('\n', stderr);
    va_end(args);
}

int daemon_printed(int code)
{
    if (fli_standard_flush()) {
        return code;
    }
    daemon_complain("cannot write the result");
    return code != DAEMON_DONE ? code : DAEMON_FAILED;
}

int daemon_print(const char *text)
{
    (void)fputs(text, stdout);
    return daemon_printed(DAEMON_DONE);
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

int daemon_open(struct daemon *d, enum log_style style, enum log_severity level)
{
    daemon_log_init(&d->log, style, level);
    daemon_notify_open(&d->notify);
    raise_open_files();
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGUSR1, SIG_IGN); /* until it is watched for */
    int rc = uv_loop_init(&d->loop);
    if (rc != 0) {
        daemon_complain("cannot make an event loop: %s%s", uv_strerror(rc),
                        fli_files_remedy(uv_strerror(rc)));
    }
    return rc != 0 ? DAEMON_FAILED : DAEMON_DONE;
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
    daemon_notify_stopping(&d->notify);
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
    daemon_notify_ready(&d->notify, &d->loop, d->describe, d->ctx);
    (void)uv_run(&d->loop, UV_RUN_DEFAULT);
}

void daemon_stopped(void *daemon)
{
    struct daemon *d = daemon;
    daemon_log_write(&d->log, LOG_SEVERITY_INFO, "daemon", "stopped");
    daemon_notify_close(&d->notify);
    for (unsigned i = 0; i < SIGNALS; i++) {
        uv_close((uv_handle_t *)&d->signals[i], NULL);
    }
}
