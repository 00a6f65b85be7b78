/* fencelockd.c: the daemon: arguments, wiring, signals.
 *
 * stdout gets one line, when clients are served: "ready: node 1 listening on 127.0.0.1:7401".
 * stderr gets one line per event: seconds since the start on the monotonic clock, level, text.
 * SIGHUP reads the files of TLS again. SIGTERM and SIGINT end it in order, exit 0; a second one
 * ends it at once, exit 130. Wrong usage is exit 2, everything else that goes wrong exit 1. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/server.h"

struct daemon {
    uv_loop_t loop;
    struct config config;
    struct server *server;
    uv_signal_t sigterm, sigint, sighup;
    uint64_t started_ns;
    bool stopping;
};

extern char **environ;

static void log_line(void *ctx, int level, const char *message)
{
    static const char *const names[] = {"error", "error", "warning", "info", "debug"};
    const struct daemon *d = ctx;
    if (level > (int)d->config.log_level) {
        return;
    }
    uint64_t ms = (fli_clock_ns() - d->started_ns) / 1000000;
    char line[640];
    int n = snprintf(line, sizeof line - 1, "%llu.%03llu %-7s %s", (unsigned long long)(ms / 1000),
                     (unsigned long long)(ms % 1000), names[level >= 1 && level <= 4 ? level : 1],
                     message);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof line - 1 ? (size_t)n : sizeof line - 2;
    line[len++] = '\n';
    (void)!write(STDERR_FILENO, line, len); /* one call, so that lines stay whole */
}

static void fatal(void *ctx, const char *message)
{
    log_line(ctx, 1, message);
    _exit(1); /* nothing may be answered any more, so nothing is cleaned up */
}

static void stopped_cb(void *ctx)
{
    struct daemon *d = ctx;
    log_line(d, 3, "stopped");
    uv_close((uv_handle_t *)&d->sigterm, NULL);
    uv_close((uv_handle_t *)&d->sigint, NULL);
    uv_close((uv_handle_t *)&d->sighup, NULL);
}

static void hangup_cb(uv_signal_t *handle, int number)
{
    struct daemon *d = handle->data;
    (void)number;
    if (!d->stopping) {
        log_line(d, 3, "SIGHUP: reading the files of TLS again");
        server_reload(d->server);
    }
}

static void signal_cb(uv_signal_t *handle, int number)
{
    struct daemon *d = handle->data;
    if (d->stopping) {
        log_line(d, 2, "second signal: ending at once");
        _exit(128 + SIGINT);
    }
    d->stopping = true;
    log_line(d, 3, number == SIGTERM ? "SIGTERM: stopping" : "SIGINT: stopping");
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

/* A client is a file descriptor. */
static void raise_open_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
}

static void say_ready(const struct daemon *d)
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
    d->started_ns = fli_clock_ns();
    raise_open_files();
    (void)signal(SIGPIPE, SIG_IGN);
    int rc = uv_loop_init(&d->loop);
    if (rc != 0) {
        (void)fprintf(stderr, "fencelockd: cannot make an event loop: %s\n", uv_strerror(rc));
        return 1;
    }
    struct server_callbacks cbs = {.ctx = d, .log = log_line, .fatal = fatal};
    rc = server_create(&d->loop, &d->config, &cbs, &d->server, errmsg, sizeof errmsg);
    if (rc != 0) {
        (void)fprintf(stderr, "fencelockd: %s\n", errmsg);
        return 1;
    }
    watch_signal(d, &d->sigterm, SIGTERM, signal_cb);
    watch_signal(d, &d->sigint, SIGINT, signal_cb);
    watch_signal(d, &d->sighup, SIGHUP, hangup_cb);
    say_ready(d);
    (void)uv_run(&d->loop, UV_RUN_DEFAULT);
    server_destroy(d->server);
    (void)uv_loop_close(&d->loop);
    return 0;
}

int main(int argc, char **argv)
{
    static struct daemon d;
    char errmsg[CONFIG_ERRMSG_MAX];
    switch (config_read(argc - 1, (const char *const *)argv + 1, (const char *const *)environ,
                        &d.config, errmsg)) {
    case CONFIG_HELP:
        (void)fputs(config_help(), stdout);
        return 0;
    case CONFIG_VERSION:
        (void)puts("fencelockd " FL_VERSION);
        return 0;
    case CONFIG_WRONG:
        (void)fprintf(stderr, "fencelockd: %s\n", errmsg);
        return 2;
    default:
        return run(&d);
    }
}
