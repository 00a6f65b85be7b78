/* figures.h: the metrics of a fencelockd for Prometheus: every family, its name, its unit.
 *
 * The leader alone counts what the whole cluster does (grants, ends, refusals), so the sum over the
 * nodes is right. Replicated state (locks held, waits) is the same on every node: take the maximum.
 * No label contains the name of a lock. */
#ifndef SERVER_FIGURES_H
#define SERVER_FIGURES_H

#include "metrics/text.h"
#include "server/info.h"
#include "server/lock_stats.h"

/* A copy that the loop makes in one piece, for another thread to read: it points to nothing that
 * changes. */
struct figures {
    struct info info; /* the reader must not use its texts and its machine */
    struct node_times times;
    bool has_times; /* false: the node is closed */
    struct lock_figures locks;
    bool formed, ready;
    uint64_t leaderless_ms;
    bool has_machine; /* the next fields are set */
    struct machine_counts counts;
    struct machine_limits limits;
    uint64_t clock_ms, last_token, min_live_token;
};

/* f: NULL when the loop has not answered. `data_dir` is read here. */
void figures_render(const struct figures *f, uint64_t node_id, const char *data_dir,
                    struct metrics_text *t);

#endif
