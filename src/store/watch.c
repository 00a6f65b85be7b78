/* watch.c: see watch.h. */
#include "store/watch.h"

#include <stdio.h>
#include <stdlib.h>

#include "metrics/listener.h"
#include "net/address.h"
#include "store/info.h"

struct store_watch {
    struct store_server *server;
    const char *data_dir;
    struct metrics_listener *listener;
};

struct sample {
    struct store_info info;
    struct metrics_histogram commits;
    bool serving;
};

struct row {
    const char *name, *help;
    uint64_t value;
};

/* ---- on the listener's thread ---- */

static void put_rows(struct metrics_text *t, const struct row *rows,
                     void (*put)(struct metrics_text *t, const char *name, const char *help,
                                 uint64_t value))
{
    for (; rows->name != NULL; rows++) {
        put(t, rows->name, rows->help, rows->value);
    }
}

static void put_refused(struct metrics_text *t, const struct store_info *i)
{
    const struct store_counts *c = &i->counts;
    const struct {
        const char *reason;
        uint64_t value;
    } all[] = {{"stale", c->stale},
               {"wronglock", c->wronglock},
               {"notoken", c->notoken},
               {"limit", c->limit},
               {"notheld", i->strict_counts.refused},
               {"unchecked", i->strict_counts.unreachable}};
    metrics_family(t, "fencelock_store_refused_total", "counter",
                   "Operations refused, by why; stale: the token is below the mark.");
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        metrics_whole(t, &(struct metrics_label){"reason", all[k].reason}, all[k].value);
    }
}

static void put_sample(struct metrics_text *t, const struct sample *s)
{
    const struct store_info *i = &s->info;
    const struct row now[] = {
        {"fencelock_store_serving", "1 while requests are taken.", s->serving},
        {"fencelock_store_fencing", "0 when started with --no-fencing: tokens are ignored.",
         i->fencing},
        {"fencelock_store_strict", "1 when the lock service is asked as well.", i->strict},
        {"fencelock_store_keys", "Keys with a value.", i->counts.keys},
        {"fencelock_store_marks", "Locks with a mark.", i->marks},
        {"fencelock_store_bytes", "What keys, values and marks take.", i->db_bytes},
        {"fencelock_store_bytes_max", "What they may take.", i->db_bytes_max},
        {"fencelock_store_file_bytes", "Size of the data file.", i->db_file_bytes},
        {"fencelock_store_held_operations",
         "Operations that wait for the lock service, or for their client to read.", i->held_ops},
        {"fencelock_store_connections", "Clients that are connected.", i->connections},
        {NULL, NULL, 0}};
    const struct row ever[] = {
        {"fencelock_store_operations_total", "Operations executed.", i->counts.ops},
        {"fencelock_store_commits_total", "Synced transactions that changed something.",
         i->counts.commits},
        {"fencelock_store_strict_checks_total", "Questions to the lock service.",
         i->strict_counts.checks},
        {"fencelock_store_requests_total", "Requests of all kinds.", i->net.requests},
        {"fencelock_store_connections_accepted_total", "Connections, the refused ones included.",
         i->net.accepted},
        {"fencelock_store_received_bytes_total", "From clients.", i->net.bytes_in},
        {"fencelock_store_sent_bytes_total", "To clients.", i->net.bytes_out},
        {"fencelock_store_logins_total", "Logins; 0 without an aclfile.", i->users.logins},
        {"fencelock_store_login_failures_total", "Wrong passwords.", i->users.failures},
        {"fencelock_store_denied_total", "Requests refused for want of a right.", i->users.denied},
        {NULL, NULL, 0}};
    put_rows(t, now, metrics_gauge);
    put_rows(t, ever, metrics_counter);
    put_refused(t, i);
    metrics_histogram(t, "fencelock_store_group_seconds",
                      "How long a group of operations took until it was on disk.", &s->commits);
    metrics_family(t, "fencelock_store_uptime_seconds", "gauge", "Since this process began.");
    metrics_milli(t, NULL, i->uptime_ms);
    if (i->tls_port != 0 && i->tls.has_cert) {
        metrics_gauge(t, "fencelock_store_certificate_left_seconds",
                      "Until its own certificate expires, in whole days; 0 when it has.",
                      i->tls.cert_days <= 0 ? 0 : (uint64_t)i->tls.cert_days * 86400);
    }
}

static void render_cb(void *ctx, const void *sample, struct metrics_text *t)
{
    const struct store_watch *w = ctx;
    uint64_t size = 0;
    uint64_t free_bytes = 0;
    metrics_family(t, "fencelock_store_info", "gauge", "Always 1; says which version this is.");
    metrics_info(t, &(struct metrics_label){"version", FENCELOCK_VERSION}, 1);
    if (metrics_disk(w->data_dir, &size, &free_bytes)) {
        metrics_gauge(t, "fencelock_store_disk_bytes", "Size of the file system of --data.", size);
        metrics_gauge(t, "fencelock_store_disk_free_bytes", "What is free on it.", free_bytes);
    }
    if (sample != NULL) {
        put_sample(t, sample);
    }
}

/* ---- on the loop ---- */

static void sample_cb(void *ctx, void *ret)
{
    const struct store_watch *w = ctx;
    struct sample *s = ret;
    store_server_get_info(w->server, &s->info);
    s->commits = *store_server_commit_times(w->server);
    s->serving = store_server_is_serving(w->server);
}

static bool ready_cb(void *ctx, struct fli_buf *out)
{
    const struct store_watch *w = ctx;
    bool serving = store_server_is_serving(w->server);
    /* Only the verdict matters; a line without room is left out. */
    (void)!fli_buf_printf(out, "[%c] process: %s\n", serving ? '+' : '-',
                          serving ? "running" : "it is stopping, or its database has failed");
    return serving;
}

/* ---- start and end ---- */

int store_watch_create(uv_loop_t *loop, const char *address, const char *data_dir,
                       struct store_server *server, struct store_watch **ret, char *errmsg,
                       size_t errmsg_size)
{
    char host[NET_HOST_MAX];
    uint16_t port = 0;
    if (net_address_split(address, host, &port) != 0) {
        (void)snprintf(errmsg, errmsg_size,
                       "--metrics: '%.128s' is not HOST:PORT, such as "
                       "127.0.0.1:7611",
                       address);
        return FL_EINVAL;
    }
    struct store_watch *w = fli_xcalloc(1, sizeof *w);
    struct metrics_service s = {.ctx = w,
                                .sample_size = sizeof(struct sample),
                                .sample = sample_cb,
                                .ready = ready_cb,
                                .render = render_cb};
    w->server = server;
    w->data_dir = data_dir;
    int rc =
        metrics_listener_create(loop, host, port, false, &s, &w->listener, errmsg, errmsg_size);
    if (rc != 0) {
        free(w);
        return rc;
    }
    *ret = w;
    return 0;
}

uint16_t store_watch_port(const struct store_watch *w)
{
    return metrics_listener_port(w->listener);
}

void store_watch_stop(struct store_watch *w, void (*cb)(void *ctx), void *ctx)
{
    metrics_listener_stop(w->listener, cb, ctx);
}

void store_watch_destroy(struct store_watch *w)
{
    if (w != NULL) {
        metrics_listener_destroy(w->listener);
        free(w);
    }
}
