/* fencelockd.c: the daemon: arguments, wiring, signals.
 *
 * stdout gets one line, when clients are served: "ready: node 1 listening on 127.0.0.1:7401".
 * stderr gets one line per event (daemon_log.h). SIGUSR1 sets the log's level to debug, and back. A
 * service manager gets the daemon's state (daemon_notify.h). SIGHUP reads the files of TLS again.
 * SIGTERM and SIGINT end the daemon in order, exit 0; a second one ends it at once, exit 130. Wrong
 * usage is exit 2, any other failure exit 1. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/standard.h"
#include "cli/daemon_files.h"
#include "cli/daemon_log.h"
#include "cli/daemon_notify.h"
#include "cli/fencelockd_begin.h"
#include "cli/fencelockd_check.h"
#include "server/server.h"
#include "tls/tls.h"

struct daemon {
    uv_loop_t loop;
    struct config config;
    struct server *server;
    struct daemon_log log;
    struct daemon_notify notify;
    uv_signal_t sigterm, sigint, sighup, sigusr1;
    bool stopping;
};

extern char **environ;

static void log_cb(void *ctx, int level, const char *part, const char *message)
{
    struct daemon *d = ctx;
    daemon_log_write(&d->log, (enum log_severity)level, part, message);
}

static void fatal(void *ctx, const char *message)
{
    struct daemon *d = ctx;
    daemon_log_write(&d->log, LOG_SEVERITY_ERROR, "daemon", message);
    _exit(1); /* nothing may be answered any more, so nothing is closed in order */
}

static void stopped_cb(void *ctx)
{
    struct daemon *d = ctx;
    daemon_log_write(&d->log, LOG_SEVERITY_INFO, "daemon", "stopped");
    daemon_notify_close(&d->notify);
    uv_close((uv_handle_t *)&d->sigterm, NULL);
    uv_close((uv_handle_t *)&d->sigint, NULL);
    uv_close((uv_handle_t *)&d->sighup, NULL);
    uv_close((uv_handle_t *)&d->sigusr1, NULL);
}

static void level_cb(uv_signal_t *handle, int number)
{
    struct daemon *d = handle->data;
    daemon_log_toggle(&d->log);
}

static void cluster_level_cb(void *ctx, unsigned level)
{
    struct daemon *d = ctx;
    daemon_log_configure(&d->log, (enum log_severity)(level != 0 ? level : d->config.log_level));
}

static void describe_cb(void *ctx, char *out, size_t size)
{
    struct daemon *d = ctx;
    server_describe(d->server, out, size);
}

static void hangup_cb(uv_signal_t *handle, int number)
{
    struct daemon *d = handle->data;
    if (!d->stopping) {
        daemon_log_write(&d->log, LOG_SEVERITY_INFO, "daemon",
                         "SIGHUP: reading the files of TLS again");
        server_reload(d->server);
    }
}

static void signal_cb(uv_signal_t *handle, int number)
{
    struct daemon *d = handle->data;
    if (d->stopping) {
        daemon_log_write(&d->log, LOG_SEVERITY_WARNING, "daemon", "second signal: ending at once");
        _exit(128 + SIGINT);
    }
    d->stopping = true;
    daemon_log_write(&d->log, LOG_SEVERITY_INFO, "daemon",
                     number == SIGTERM ? "SIGTERM: stopping" : "SIGINT: stopping");
    daemon_notify_stopping(&d->notify);
    server_stop(d->server, stopped_cb, d);
}

static void watch_signal(struct daemon *d, uv_signal_t *handle, int number, uv_signal_cb cb)
{
    int rc = uv_signal_init(&d->loop, handle);
    handle->data = d;
    rc = rc != 0 ? rc : uv_signal_start(handle, cb, number);
    if (rc != 0) {
        fli_fatal("cannot watch for signals: %s", uv_strerror(rc));
    }
}

static void print_ready(const struct daemon *d)
{
    const char *plain = server_address(d->server);
    const char *tls = server_tls_address(d->server);
    (void)printf("ready: node %llu listening on %s%s%s%s\n", (unsigned long long)d->config.id,
                 plain, plain[0] != '\0' && tls[0] != '\0' ? " and " : "", tls,
                 tls[0] != '\0' ? " (TLS)" : "");
    (void)fflush(stdout);
}

static int run(struct daemon *d)
{
    char errmsg[512];
    daemon_log_init(&d->log, d->config.log_json ? LOG_JSON : LOG_TEXT,
                    (enum log_severity)d->config.log_level);
    daemon_notify_open(&d->notify);
    daemon_raise_open_files();
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGUSR1, SIG_IGN); /* until it is watched for */
    int rc = uv_loop_init(&d->loop);
    if (rc != 0) {
        (void)fprintf(stderr, "fencelockd: cannot make an event loop: %s%s\n", uv_strerror(rc),
                      fli_files_remedy(uv_strerror(rc)));
        return 1;
    }
    struct server_callbacks cbs = {
        .ctx = d, .log = log_cb, .fatal = fatal, .log_level = cluster_level_cb};
    rc = server_create(&d->loop, &d->config, &cbs, &d->server, errmsg, sizeof errmsg);
    if (rc != 0) {
        (void)fprintf(stderr, "fencelockd: %s%s\n", errmsg, fli_files_remedy(errmsg));
        return 1;
    }
    watch_signal(d, &d->sigterm, SIGTERM, signal_cb);
    watch_signal(d, &d->sigint, SIGINT, signal_cb);
    watch_signal(d, &d->sighup, SIGHUP, hangup_cb);
    watch_signal(d, &d->sigusr1, SIGUSR1, level_cb);
    print_ready(d);
    daemon_notify_ready(&d->notify, &d->loop, describe_cb, d);
    (void)uv_run(&d->loop, UV_RUN_DEFAULT);
    server_destroy(d->server);
    (void)uv_loop_close(&d->loop);
    return 0;
}

/* A result that was not written must not look like success. */
static int printed(int code)
{
    if (fli_standard_flush()) {
        return code;
    }
    (void)fprintf(stderr, "fencelockd: cannot write the result\n");
    return code != 0 ? code : 1;
}

int main(int argc, char **argv)
{
    static struct daemon d;
    char errmsg[CONFIG_ERRMSG_MAX];
    if (!fli_standard_keep()) {
        return 1;
    }
    (void)signal(SIGXFSZ, SIG_IGN); /* beyond the limit on file sizes, writes fail and say so */
    fli_tls_keep_buffers();
    switch (config_read(argc - 1, (const char *const *)argv + 1, (const char *const *)environ,
                        &d.config, errmsg)) {
    case CONFIG_HELP:
        (void)fputs(config_help(), stdout);
        return printed(0);
    case CONFIG_VERSION:
        (void)puts("fencelockd " FENCELOCK_VERSION);
        return printed(0);
    case CONFIG_WRONG:
        (void)fprintf(stderr, "fencelockd: %s\n", errmsg);
        return 2;
    default:
        if (d.config.check) {
            return printed(fencelockd_check(argc - 1, (const char *const *)argv + 1,
                                            (const char *const *)environ, &d.config));
        }
        if (d.config.restore[0] != '\0' || d.config.recover_from[0] != '\0') {
            return printed(fencelockd_begin(&d.config));
        }
        return run(&d);
    }
}
