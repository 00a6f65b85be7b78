/* quorum.c: see quorum.h. The formulas are those of "Distributed Locks with Redis" (Redis
 * documentation, "The Redlock Algorithm"); the allowance for drift is the one that its reference
 * implementation uses. */
#include "redlock/quorum.h"

static uint64_t sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

uint32_t fli_quorum(uint32_t n)
{
    FLI_ASSERT(n > 0);
    return n / 2 + 1;
}

uint64_t fli_drift_ms(uint64_t ttl_ms)
{
    return ttl_ms / 100 + 2;
}

uint64_t fli_deadline_ms(uint64_t t0_ms, uint64_t ttl_ms)
{
    return sum(t0_ms, less(ttl_ms, fli_drift_ms(ttl_ms)));
}

uint64_t fli_left_ms(uint64_t deadline_ms, uint64_t now_ms)
{
    return less(deadline_ms, now_ms);
}

bool fli_is_valid(uint64_t t0_ms, uint64_t ttl_ms, uint64_t min_validity_ms, uint64_t now_ms)
{
    FLI_ASSERT(now_ms >= t0_ms);
    uint64_t least = min_validity_ms == 0 ? 1 : min_validity_ms;
    return fli_left_ms(fli_deadline_ms(t0_ms, ttl_ms), now_ms) >= least;
}

uint64_t fli_server_budget_ms(uint64_t ttl_ms, uint64_t budget_ms)
{
    uint64_t ms = ttl_ms / 20 < budget_ms ? ttl_ms / 20 : budget_ms;
    return ms == 0 ? 1 : ms;
}

uint64_t fli_retry_ms(uint32_t attempt, uint64_t base_ms, uint64_t cap_ms, uint64_t random)
{
    FLI_ASSERT(attempt > 0);
    uint64_t ceiling = base_ms;
    for (uint32_t i = 1; i < attempt && ceiling < cap_ms && ceiling > 0; i++) {
        ceiling = sum(ceiling, ceiling);
    }
    ceiling = ceiling < cap_ms ? ceiling : cap_ms;
    return ceiling == UINT64_MAX ? random : random % (ceiling + 1);
}

uint64_t fli_counts_from_ms(uint64_t now_ms, uint64_t uptime_s, uint64_t max_ttl_ms)
{
    /* Both ends of an uptime are cut to whole seconds, so the true one is larger than uptime - 1.
     * Drift is added here, not taken off: the server has to be old enough for the slowest clock. */
    uint64_t age_s = uptime_s > UINT64_MAX / 1000 ? UINT64_MAX / 1000 : less(uptime_s, 1);
    uint64_t needed_ms = sum(max_ttl_ms, fli_drift_ms(max_ttl_ms));
    return sum(now_ms, less(needed_ms, age_s * 1000));
}
