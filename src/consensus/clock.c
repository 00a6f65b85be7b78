/* clock.c: see clock.h. All sums saturate, so that a clock near its end stands still instead of
 * starting again at zero. */
#include "consensus/clock.h"

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

void cluster_clock_start(struct cluster_clock *c, uint64_t machine_ms, uint64_t now_ms)
{
    c->value_ms = machine_ms;
    c->beat_at_ms = now_ms;
    c->proposed_ms = machine_ms;
}

void cluster_clock_beat(struct cluster_clock *c, uint64_t now_ms)
{
    if (now_ms <= c->beat_at_ms) {
        return;
    }
    uint64_t step_ms = now_ms - c->beat_at_ms;
    if (step_ms > CLUSTER_CLOCK_STEP_MAX_MS) {
        step_ms = CLUSTER_CLOCK_STEP_MAX_MS;
    }
    c->value_ms = add_saturated(c->value_ms, step_ms);
    c->beat_at_ms = now_ms;
}

uint64_t cluster_clock_stamp(const struct cluster_clock *c, uint64_t machine_ms)
{
    uint64_t stamp_ms = c->value_ms;
    if (stamp_ms < c->proposed_ms) {
        stamp_ms = c->proposed_ms;
    }
    return stamp_ms < machine_ms ? machine_ms : stamp_ms;
}

void cluster_clock_proposed(struct cluster_clock *c, uint64_t stamp_ms)
{
    FLI_ASSERT(stamp_ms >= c->proposed_ms);
    c->proposed_ms = stamp_ms;
    if (c->value_ms < stamp_ms) {
        c->value_ms = stamp_ms;
    }
}

uint64_t cluster_clock_wait(const struct cluster_clock *c, uint64_t deadline_ms, uint64_t now_ms)
{
    uint64_t wait_ms = deadline_ms <= c->value_ms ? 0 : deadline_ms - c->value_ms;
    if (wait_ms > CLUSTER_CLOCK_BEAT_MS) {
        wait_ms = CLUSTER_CLOCK_BEAT_MS;
    }
    uint64_t due_ms = add_saturated(c->beat_at_ms, wait_ms);
    return due_ms <= now_ms ? 0 : due_ms - now_ms;
}
