/* clock.c: see clock.h. Sums saturate, so that no clock starts again at zero. The cluster clock
 * stands still at MACHINE_CLOCK_MAX_MS, the last timestamp that an entry may have. */
#include "consensus/clock.h"

#include "machine/limits.h"

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

void cluster_clock_start(struct cluster_clock *c, uint64_t machine_ms, uint64_t now_ms)
{
    c->value_ms = machine_ms;
    c->tick_at_ms = now_ms;
    c->proposed_ms = machine_ms;
}

void cluster_clock_tick(struct cluster_clock *c, uint64_t now_ms)
{
    if (now_ms <= c->tick_at_ms) {
        return;
    }
    uint64_t step_ms = now_ms - c->tick_at_ms;
    if (step_ms > CLUSTER_CLOCK_STEP_MAX_MS) {
        step_ms = CLUSTER_CLOCK_STEP_MAX_MS;
    }
    c->value_ms = add_saturated(c->value_ms, step_ms);
    if (c->value_ms > MACHINE_CLOCK_MAX_MS) {
        c->value_ms = MACHINE_CLOCK_MAX_MS;
    }
    c->tick_at_ms = now_ms;
}

uint64_t cluster_clock_timestamp(const struct cluster_clock *c, uint64_t machine_ms)
{
    uint64_t timestamp_ms = c->value_ms;
    if (timestamp_ms < c->proposed_ms) {
        timestamp_ms = c->proposed_ms;
    }
    return timestamp_ms < machine_ms ? machine_ms : timestamp_ms;
}

void cluster_clock_proposed(struct cluster_clock *c, uint64_t timestamp_ms)
{
    FLI_ASSERT(timestamp_ms >= c->proposed_ms);
    c->proposed_ms = timestamp_ms;
    if (c->value_ms < timestamp_ms) {
        c->value_ms = timestamp_ms;
    }
}

uint64_t cluster_clock_wait(const struct cluster_clock *c, uint64_t deadline_ms, uint64_t now_ms)
{
    uint64_t wait_ms = deadline_ms <= c->value_ms ? 0 : deadline_ms - c->value_ms;
    if (wait_ms > CLUSTER_CLOCK_TICK_MS) {
        wait_ms = CLUSTER_CLOCK_TICK_MS;
    }
    uint64_t due_ms = add_saturated(c->tick_at_ms, wait_ms);
    return due_ms <= now_ms ? 0 : due_ms - now_ms;
}
