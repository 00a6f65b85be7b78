/* fencelockd.c: the daemon: arguments and wiring.
 *
 * stdout gets one line, when clients are served: "ready: node 1 listening on 127.0.0.1:7401". Wrong
 * usage is exit 2, any other failure exit 1. daemon.h has the rest. */
#include <stdio.h>
#include <unistd.h>

#include "cli/daemon.h"
#include "cli/fencelockd.h"
#include "server/server.h"
#include "tls/tls.h"

struct app {
    struct daemon daemon;
    struct config config;
    struct server *server;
};

extern char **environ;

static void log_cb(void *ctx, int level, const char *part, const char *message)
{
    struct app *a = ctx;
    daemon_log_write(&a->daemon.log, (enum log_severity)level, part, message);
}

static void fatal_cb(void *ctx, const char *message)
{
    log_cb(ctx, LOG_SEVERITY_ERROR, "daemon", message);
    _exit(DAEMON_FAILED); /* nothing may be answered any more, so nothing is closed in order */
}

static void cluster_level_cb(void *ctx, unsigned level)
{
    struct app *a = ctx;
    daemon_log_configure(&a->daemon.log,
                         (enum log_severity)(level != 0 ? level : a->config.log_level));
}

static void describe_cb(void *ctx, char *out, size_t size)
{
    struct app *a = ctx;
    server_describe(a->server, out, size);
}

static void reload_cb(void *ctx)
{
    struct app *a = ctx;
    server_reload(a->server);
}

static void stop_cb(void *ctx)
{
    struct app *a = ctx;
    server_stop(a->server, daemon_stopped, &a->daemon);
}

static int run(struct app *a)
{
    char errmsg[512];
    char who[40];
    struct daemon *d = &a->daemon;
    *d = (struct daemon){.ctx = a, .describe = describe_cb, .reload = reload_cb, .stop = stop_cb};
    daemon_open(d, a->config.log_json ? LOG_JSON : LOG_TEXT,
                (enum log_severity)a->config.log_level);
    struct server_callbacks cbs = {
        .ctx = a, .log = log_cb, .fatal = fatal_cb, .log_level = cluster_level_cb};
    if (server_create(&d->loop, &a->config, &cbs, &a->server, errmsg, sizeof errmsg) != 0) {
        daemon_die(DAEMON_FAILED, "%s%s", errmsg, fli_files_remedy(errmsg));
    }
    (void)snprintf(who, sizeof who, "node %llu ", (unsigned long long)a->config.id);
    daemon_run(d, who, server_address(a->server), server_tls_address(a->server));
    server_destroy(a->server);
    (void)uv_loop_close(&d->loop);
    return DAEMON_DONE;
}

int main(int argc, char **argv)
{
    static struct app a;
    char errmsg[CONFIG_ERRMSG_MAX];
    const char *const *arguments = (const char *const *)argv + 1;
    const char *const *env = (const char *const *)environ;
    if (!daemon_begin("fencelockd")) {
        return DAEMON_FAILED;
    }
    fli_tls_keep_buffers();
    switch (config_read(argc - 1, arguments, env, &a.config, errmsg)) {
    case CONFIG_HELP:
        daemon_print(config_help());
    case CONFIG_VERSION:
        daemon_print("fencelockd " FENCELOCK_VERSION "\n");
    case CONFIG_WRONG:
        daemon_die(DAEMON_USAGE, "%s", errmsg);
    default:
        break;
    }
    if (a.config.check) {
        daemon_end(fencelockd_check(argc - 1, arguments, env, &a.config));
    }
    if (a.config.restore[0] != '\0' || a.config.recover_from[0] != '\0') {
        fencelockd_begin(&a.config);
        daemon_end(DAEMON_DONE);
    }
    return run(&a);
}
