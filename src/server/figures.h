/* figures.h: what a fencelockd counts, as Prometheus reads it: every family, its name, its unit.
 *
 * Of what the whole cluster does (grants, ends, refusals) the leader counts, so the sum over the
 * nodes is right. What is replicated state (locks held, waits) is the same on every node: take the
 * maximum. No name of a lock is in a label. */
#ifndef SERVER_FIGURES_H
#define SERVER_FIGURES_H

#include "metrics/text.h"
#include "server/info.h"
#include "server/lock_stats.h"

/* A copy, made on the loop in one piece, and read by another thread: it points to nothing that
 * moves. */
struct figures {
    struct info info; /* its texts and its machine are not for the reader */
    struct node_times times;
    bool has_times; /* false: the node is closed */
    struct lock_figures locks;
    bool formed, ready;
    uint64_t leaderless_ms;
    bool has_machine; /* the next ones are known */
    struct machine_counts counts;
    struct machine_limits limits;
    uint64_t clock_ms, last_token, min_live_token;
};

/* f: NULL when the loop has not answered. `data_dir` is looked at here. */
void figures_render(const struct figures *f, uint64_t node_id, const char *data_dir,
                    struct metrics_text *t);

#endif
