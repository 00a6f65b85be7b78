/* clock.c: see clock.h. The cluster clock stands still at MACHINE_CLOCK_MAX_MS, the last timestamp
 * that an entry may have. It is far from the end of 64 bits, as the monotonic clock is. */
#include "commands/clock.h"

#include "machine/limits.h"

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void cluster_clock_start(struct cluster_clock *c, uint64_t machine_ms, uint64_t now_ms)
{
    c->value_ms = machine_ms;
    c->tick_at_ms = now_ms;
}

void cluster_clock_tick(struct cluster_clock *c, uint64_t now_ms)
{
    if (now_ms > c->tick_at_ms) {
        uint64_t step_ms = least(now_ms - c->tick_at_ms, CLUSTER_CLOCK_STEP_MAX_MS);
        c->value_ms = least(c->value_ms + step_ms, MACHINE_CLOCK_MAX_MS);
        c->tick_at_ms = now_ms;
    }
}

uint64_t cluster_clock_wait(const struct cluster_clock *c, uint64_t deadline_ms, uint64_t now_ms)
{
    uint64_t wait_ms = deadline_ms <= c->value_ms ? 0 : deadline_ms - c->value_ms;
    uint64_t due_ms = c->tick_at_ms + least(wait_ms, CLUSTER_CLOCK_TICK_MS);
    return due_ms <= now_ms ? 0 : due_ms - now_ms;
}
