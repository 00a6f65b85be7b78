/* monitor.h: the monitoring of a fencelockd: metrics, probes, and the page.
 *
 * It counts the events of locks that it gets (lock_stats.h). With a listener, it also keeps the
 * last minutes, second by second, and answers the listener (metrics/listener.h) from the loop. */
#ifndef SERVER_MONITOR_H
#define SERVER_MONITOR_H

#include "metrics/listener.h"
#include "server/config.h"
#include "server/info.h"
#include "server/lock_stats.h"

struct monitor;

struct monitor_config {
    uv_loop_t *loop;
    const struct config *config;
    void *ctx;
    void (*fill)(void *ctx, struct info *ret);        /* all facts of INFO */
    bool (*times)(void *ctx, struct node_times *ret); /* false: the node is closed */
    bool (*stopping)(void *ctx);
    void (*log)(void *ctx, int level, const char *message);
};

/* Listens if the configuration asks for it. 0; FL_ESYSTEM with a sentence in errmsg. */
int monitor_create(const struct monitor_config *config, struct monitor **ret, char *errmsg,
                   size_t errmsg_size) FLI_MUST_USE;
void monitor_stop(struct monitor *m, void (*cb)(void *ctx), void *ctx); /* cb once, from the loop */
void monitor_destroy(struct monitor *m);                                /* NULL is fine */

/* Events and refusals of the log, in its order. */
void monitor_event(struct monitor *m, const struct machine_event *e, bool leads,
                   uint64_t under_way_ns);
void monitor_refused(struct monitor *m, const struct machine_command *c,
                     const struct machine_result *r, bool leads);
void monitor_restored(struct monitor *m);

const struct busiest *monitor_busiest(const struct monitor *m);

#endif
