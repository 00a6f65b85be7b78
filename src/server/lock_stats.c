/* lock_stats.c: see lock_stats.h. */
#include "server/lock_stats.h"

#include <string.h>

void lock_stats_init(struct lock_stats *s, bool history, const uint64_t hash_seed[2])
{
    memset(s, 0, sizeof *s);
    metrics_histogram_init(&s->figures.wait, METRICS_RANGE_SLOW);
    metrics_histogram_init(&s->figures.held, METRICS_RANGE_SLOW);
    metrics_histogram_init(&s->figures.hand_over, METRICS_RANGE_FAST);
    busiest_init(&s->busiest, hash_seed);
    history_init(&s->history, history, hash_seed);
}

void lock_stats_fini(struct lock_stats *s)
{
    busiest_fini(&s->busiest);
    history_fini(&s->history);
}

/* Each part of a multi-lock has an event; where grants are counted, the first part's stands for
 * all. */
static void count(struct lock_figures *f, const struct machine_event *e, uint64_t under_way_ns)
{
    bool first = e->index == 0;
    switch (e->type) {
    case MACHINE_EVENT_GRANTED:
        f->grants += first;
        if (first && e->wait != 0 && e->since_ms != 0) {
            metrics_observe_us(&f->wait, (e->clock_ms - e->since_ms) * 1000);
        }
        if (first && e->wait != 0 && under_way_ns != 0) {
            metrics_observe_ns(&f->hand_over, under_way_ns);
        }
        break;
    case MACHINE_EVENT_QUEUED:
        f->queued += first;
        break;
    case MACHINE_EVENT_RELEASED:
        f->ends[e->reason == MACHINE_REASON_CLOSE ? LOCK_CLOSED : LOCK_RELEASED] += first;
        break;
    case MACHINE_EVENT_EXPIRED:
        f->ends[LOCK_EXPIRED] += first;
        break;
    case MACHINE_EVENT_BROKEN:
        f->ends[LOCK_BROKEN] += first;
        break;
    case MACHINE_EVENT_WAIT_ENDED:
        FLI_ASSERT(e->reason < LOCK_WAIT_ENDS);
        f->wait_ends[e->reason] += first;
        break;
    default:
        return;
    }
    bool ended = e->type == MACHINE_EVENT_RELEASED || e->type == MACHINE_EVENT_EXPIRED ||
                 e->type == MACHINE_EVENT_BROKEN;
    if (ended && first) {
        metrics_observe_us(&f->held, (e->clock_ms - e->since_ms) * 1000);
    }
}

void lock_stats_event(struct lock_stats *s, const struct machine_event *e, bool leads,
                      uint64_t under_way_ns)
{
    FLI_ASSERT(e->since_ms <= e->clock_ms);
    if (leads) {
        count(&s->figures, e, under_way_ns);
    }
    bool wait_over =
        e->type == MACHINE_EVENT_WAIT_ENDED || (e->type == MACHINE_EVENT_GRANTED && e->wait != 0);
    if (wait_over) {
        busiest_waited(&s->busiest, e->name, e->since_ms == 0 ? 0 : e->clock_ms - e->since_ms);
    }
    history_event(&s->history, e);
}

void lock_stats_refused(struct lock_stats *s, const struct machine_command *c,
                        const struct machine_result *r, bool leads)
{
    enum lock_refusal why = MACHINE_ASKS_FOR_LOCK(c)   ? REFUSED_HELD
                            : MACHINE_ASKS_FOR_TIME(c) ? REFUSED_STALE_RENEW
                                                       : REFUSED_STALE_RELEASE;
    s->figures.refusals[why] += leads;
    s->refused_seen++;
    if (why == REFUSED_HELD && c->name.len > 0) {
        busiest_refused(&s->busiest, c->name);
    }
    history_refused(&s->history, c, r);
}

void lock_stats_restored(struct lock_stats *s)
{
    history_clear(&s->history);
}
