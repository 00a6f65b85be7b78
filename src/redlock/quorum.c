/* quorum.c: see quorum.h. The formulas are those of "Distributed Locks with Redis" (Redis
 * documentation, "The Redlock Algorithm"); the allowance for drift is the one that its reference
 * implementation uses. */
#include "redlock/quorum.h"

#define KEEP_MIN_PAUSE_MS UINT64_C(5)

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

uint64_t fli_extended_deadline_ms(uint64_t old_deadline_ms, uint64_t t0_ms, uint64_t ttl_ms,
                                  bool extended)
{
    uint64_t fresh = fli_deadline_ms(t0_ms, ttl_ms);
    return extended || fresh < old_deadline_ms ? fresh : old_deadline_ms;
}

uint64_t fli_counts_from_ms(uint64_t now_ms, uint64_t uptime_s, uint64_t max_ttl_ms)
{
    /* Both ends of an uptime are cut to whole seconds, so the true one is larger than uptime - 1.
     * Drift is added here, not taken off: the server has to be old enough for the slowest clock. */
    uint64_t age_s = uptime_s > UINT64_MAX / 1000 ? UINT64_MAX / 1000 : less(uptime_s, 1);
    uint64_t needed_ms = sum(max_ttl_ms, fli_drift_ms(max_ttl_ms));
    return sum(now_ms, less(needed_ms, age_s * 1000));
}

/* ---- keeping a lock -------------------------------------------------------------------------- */

/* When a third of the time that is left will have passed. */
static uint64_t third_ms(uint64_t now_ms, uint64_t deadline_ms)
{
    return sum(now_ms, fli_left_ms(deadline_ms, now_ms) / 3);
}

void fli_renewal_init(struct fli_renewal *k, uint64_t now_ms, uint64_t ttl_ms, uint64_t deadline_ms,
                      uint64_t max_hold_ms)
{
    FLI_ASSERT(ttl_ms > 0 && max_hold_ms > 0);
    k->ttl_ms = ttl_ms;
    k->until_ms = sum(now_ms, max_hold_ms);
    k->deadline_ms = deadline_ms < k->until_ms ? deadline_ms : k->until_ms;
    k->try_ms = third_ms(now_ms, k->deadline_ms);
}

/* The largest TTL, at most the wanted one, whose deadline is not after the end of max_hold. A TTL
 * of the time that is left always fits, since a deadline comes before its TTL ends. */
static uint64_t affordable_ttl_ms(const struct fli_renewal *k, uint64_t now_ms)
{
    uint64_t left = fli_left_ms(k->until_ms, now_ms);
    return k->ttl_ms < left ? k->ttl_ms : left;
}

enum fli_renewal_step fli_renewal_next(const struct fli_renewal *k, uint64_t now_ms,
                                       uint64_t *ret_wake_ms, uint64_t *ret_ttl_ms)
{
    if (now_ms >= k->deadline_ms) {
        return FLI_RENEWAL_EXPIRED;
    }
    if (now_ms < k->try_ms) {
        *ret_wake_ms = k->try_ms < k->deadline_ms ? k->try_ms : k->deadline_ms;
        return FLI_RENEWAL_WAIT;
    }
    uint64_t ttl_ms = affordable_ttl_ms(k, now_ms);
    uint64_t worthwhile_ms = sum(k->deadline_ms, k->ttl_ms / 20);
    if (ttl_ms < FL_TTL_MIN_MS || fli_deadline_ms(now_ms, ttl_ms) <= worthwhile_ms) {
        return FLI_RENEWAL_ENDING;
    }
    *ret_ttl_ms = ttl_ms;
    return FLI_RENEWAL_EXTEND;
}

void fli_renewal_extended(struct fli_renewal *k, uint64_t now_ms, uint64_t deadline_ms,
                          bool extended)
{
    /* The extend began a little later than the time for which its TTL was computed. */
    k->deadline_ms = deadline_ms < k->until_ms ? deadline_ms : k->until_ms;
    uint64_t pause_ms = extended ? fli_left_ms(k->deadline_ms, now_ms) / 3 : k->ttl_ms / 20;
    k->try_ms = sum(now_ms, pause_ms > KEEP_MIN_PAUSE_MS ? pause_ms : KEEP_MIN_PAUSE_MS);
}
