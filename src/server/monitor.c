/* monitor.c: see monitor.h. */
#include "server/monitor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/figures.h"
#include "server/page_state.h"
#include "server/readiness.h"

#define SAMPLE_MS 250u /* between checks whether there is a leader */

struct monitor {
    struct monitor_config config;
    struct lock_stats stats;
    struct readiness readiness;
    struct metrics_listener *listener; /* NULL: none */
    char address[NET_ADDRESS_MAX];
    uv_timer_t timer; /* only with a listener */
    uint64_t sampled_ms, leaderless_ms;
    struct page_series series;
    unsigned closing;
    void (*stop_cb)(void *ctx);
    void *stop_ctx;
};

/* ---- samples ---- */

static bool is_formed(const struct info *i)
{
    return i->machine != NULL && machine_cluster_id(i->machine) != 0;
}

static bool check(struct monitor *m, const struct info *i, struct fli_buf *out)
{
    struct readiness_facts facts = {
        .now_ms = fli_clock_ms(),
        .hold_ms = i->status.hold_ms,
        .stopping = m->config.stopping(m->config.ctx),
        .formed = is_formed(i),
        .status = &i->status,
        .members = i->members,
        .members_n = i->members_n,
    };
    return readiness_check(&m->readiness, &facts, out);
}

static void timer_cb(uv_timer_t *timer)
{
    struct monitor *m = timer->data;
    struct info i;
    uint64_t now_ms = fli_clock_ms();
    m->config.fill(m->config.ctx, &i);
    (void)check(m, &i, NULL);
    if (m->readiness.apart_since_ms != 0) {
        m->leaderless_ms += now_ms - m->sampled_ms;
    }
    m->sampled_ms = now_ms;
    page_series_sample(&m->series, now_ms, &m->stats, &i);
}

/* ---- requests of the listener, on the loop ---- */

static void sample_cb(void *ctx, void *ret)
{
    struct monitor *m = ctx;
    struct figures *f = ret;
    memset(f, 0, sizeof *f);
    m->config.fill(m->config.ctx, &f->info);
    f->ready = check(m, &f->info, NULL);
    f->formed = is_formed(&f->info);
    f->leaderless_ms = m->leaderless_ms;
    f->has_times = m->config.times(m->config.ctx, &f->times);
    f->locks = m->stats.figures;
    const struct machine *machine = f->info.machine;
    if (machine != NULL) {
        f->has_machine = true;
        machine_get_counts(machine, &f->counts);
        f->limits = *machine_get_limits(machine);
        f->clock_ms = f->info.status.clock_ms;
        f->last_token = machine_last_token(machine);
        f->min_live_token = machine_min_live_token(machine);
    }
}

static bool ready_cb(void *ctx, struct fli_buf *out)
{
    struct monitor *m = ctx;
    struct info i;
    m->config.fill(m->config.ctx, &i);
    return check(m, &i, out);
}

static int state_cb(void *ctx, const char *path, struct fli_slice name, struct fli_buf *out)
{
    struct monitor *m = ctx;
    struct info i;
    m->config.fill(m->config.ctx, &i);
    struct page_view view = {
        .info = &i,
        .stats = &m->stats,
        .series = &m->series,
        .formed = is_formed(&i),
        .ready = check(m, &i, NULL),
    };
    if (strcmp(path, "state") == 0) {
        return page_state(&view, out);
    }
    if (strcmp(path, "lock") == 0 && name.len > 0) {
        return page_lock(&view, name, out);
    }
    return FL_ENOTFOUND;
}

/* ---- on the listener's thread ---- */

static void render_cb(void *ctx, const void *sample, struct metrics_text *t)
{
    const struct monitor *m = ctx; /* its configuration does not change */
    figures_render(sample, m->config.config->id, m->config.config->data, t);
}

/* ---- start and stop ---- */

static int start_listener(struct monitor *m, char *errmsg, size_t errmsg_size)
{
    const struct config *c = m->config.config;
    char host[NET_HOST_MAX];
    uint16_t port = 0;
    int rc = net_address_split(c->metrics, host, &port);
    FLI_ASSERT(rc == 0); /* config.c has checked it */
    struct metrics_service service = {
        .ctx = m,
        .sample_size = sizeof(struct figures),
        .sample = sample_cb,
        .ready = ready_cb,
        .state = state_cb,
        .render = render_cb,
        .page = (const char *)page_html,
        .page_len = page_html_len,
        .log = m->config.log,
    };
    /* The page has no logins. Where there are users, it would show more than they may see. */
    bool users = c->aclfile[0] != '\0' || c->requirepass[0] != '\0';
    bool names = !users && (!c->protected_mode || net_host_is_loopback(host));
    rc = metrics_listener_create(m->config.loop, host, port, names, &service, &m->listener, errmsg,
                                 errmsg_size);
    if (rc != 0) {
        return rc;
    }
    (void)net_address_join(host, metrics_listener_port(m->listener), m->address, sizeof m->address);
    rc = uv_timer_init(m->config.loop, &m->timer);
    m->timer.data = m;
    m->sampled_ms = fli_clock_ms();
    rc = rc != 0 ? rc : uv_timer_start(&m->timer, timer_cb, SAMPLE_MS, SAMPLE_MS);
    FLI_ASSERT(rc == 0);
    char text[NET_ADDRESS_MAX + 160];
    (void)snprintf(text, sizeof text, "metrics at http://%s/metrics%s", m->address,
                   names
                       ? ", the page at /"
                       : "; no page, since it shows names of locks: the address is not a loopback "
                         "one, or there are users");
    m->config.log(m->config.ctx, 3, text);
    return 0;
}

int monitor_create(const struct monitor_config *config, struct monitor **ret, char *errmsg,
                   size_t errmsg_size)
{
    struct monitor *m = fli_xcalloc(1, sizeof *m);
    uint64_t seed[2];
    fli_random(seed, sizeof seed);
    m->config = *config;
    lock_stats_init(&m->stats, config->config->metrics[0] != '\0', seed);
    if (config->config->metrics[0] != '\0') {
        int rc = start_listener(m, errmsg, errmsg_size);
        if (rc != 0) {
            lock_stats_fini(&m->stats);
            free(m);
            return rc;
        }
    }
    *ret = m;
    return 0;
}

static void part_closed(void *ctx)
{
    struct monitor *m = ctx;
    FLI_ASSERT(m->closing > 0);
    if (--m->closing == 0) {
        m->stop_cb(m->stop_ctx);
    }
}

static void timer_closed(uv_handle_t *handle)
{
    part_closed(handle->data);
}

void monitor_stop(struct monitor *m, void (*cb)(void *ctx), void *ctx)
{
    m->stop_cb = cb;
    m->stop_ctx = ctx;
    if (m->listener == NULL) {
        cb(ctx);
        return;
    }
    m->closing = 2;
    metrics_listener_stop(m->listener, part_closed, m);
    uv_close((uv_handle_t *)&m->timer, timer_closed);
}

void monitor_destroy(struct monitor *m)
{
    if (m == NULL) {
        return;
    }
    metrics_listener_destroy(m->listener);
    lock_stats_fini(&m->stats);
    free(m);
}

void monitor_event(struct monitor *m, const struct machine_event *e, bool leads,
                   uint64_t under_way_ns)
{
    lock_stats_event(&m->stats, e, leads, under_way_ns);
}

void monitor_refused(struct monitor *m, const struct machine_command *c,
                     const struct machine_result *r, bool leads)
{
    lock_stats_refused(&m->stats, c, r, leads);
}

void monitor_restored(struct monitor *m)
{
    lock_stats_restored(&m->stats);
}

const struct busiest *monitor_busiest(const struct monitor *m)
{
    return &m->stats.busiest;
}
