/* lock_stats.h: statistics of locks, from the log that this node applies.
 *
 * Counters and times count while this node leads, so that the sum over all nodes counts each event
 * once. Every node records which locks are waited for most (busiest), and the history of some
 * locks. These records begin with this process, and after a snapshot they begin anew. One
 * thread. */
#ifndef SERVER_LOCK_STATS_H
#define SERVER_LOCK_STATS_H

#include "metrics/busiest.h"
#include "metrics/histogram.h"
#include "server/history.h"

enum lock_end { LOCK_RELEASED, LOCK_CLOSED, LOCK_EXPIRED, LOCK_BROKEN, LOCK_ENDS };
enum lock_refusal { REFUSED_HELD, REFUSED_STALE_RENEW, REFUSED_STALE_RELEASE, LOCK_REFUSALS };
#define LOCK_WAIT_ENDS (MACHINE_REASON_MAX + 1)

/* Plain data: readers copy it. */
struct lock_figures {
    struct metrics_histogram wait;      /* of waits that were granted; on the cluster clock */
    struct metrics_histogram held;      /* of grants that ended; likewise */
    struct metrics_histogram hand_over; /* from the arrival of the request that freed a lock to
                                           the grant to its waiter */
    uint64_t grants, queued;
    uint64_t ends[LOCK_ENDS];
    uint64_t wait_ends[LOCK_WAIT_ENDS]; /* without a grant, by enum machine_reason */
    uint64_t refusals[LOCK_REFUSALS];
};

struct lock_stats {
    struct lock_figures figures;
    uint64_t refused_seen; /* counted on every node, for the page */
    struct busiest busiest;
    struct history history;
};

void lock_stats_init(struct lock_stats *s, bool history, const uint64_t hash_seed[2]);
void lock_stats_fini(struct lock_stats *s);

/* under_way_ns: how long the batch being applied has been under way; 0: another node proposed
 * it. */
void lock_stats_event(struct lock_stats *s, const struct machine_event *e, bool leads,
                      uint64_t under_way_ns);
void lock_stats_refused(struct lock_stats *s, const struct machine_command *c,
                        const struct machine_result *r, bool leads);
void lock_stats_restored(struct lock_stats *s);

#endif
