/* quorum.h: the arithmetic of Redlock. Pure: no clock, no randomness, no I/O.
 *
 * Times are milliseconds of one clock that never goes back. All sums saturate, so that no input
 * gives a deadline that is later than it should be. */
#ifndef FLI_REDLOCK_QUORUM_H
#define FLI_REDLOCK_QUORUM_H

#include <stdbool.h>

#include "base/base.h"

/* More than half of the configured servers. n > 0. */
uint32_t fli_quorum(uint32_t n);

/* How far clocks may drift apart during a TTL: ttl/100 + 2. */
uint64_t fli_drift_ms(uint64_t ttl_ms);

/* The end of a lock's validity, if it was asked for at t0: t0 + ttl - drift, at least t0. From then
 * on nobody may believe in it. */
uint64_t fli_deadline_ms(uint64_t t0_ms, uint64_t ttl_ms);

/* The time until the deadline; 0 when it has passed. */
uint64_t fli_left_ms(uint64_t deadline_ms, uint64_t now_ms);

/* Whether a quorum that was complete at now_ms makes a valid lock: at least min_validity_ms (0
 * counts as 1) are left. */
bool fli_is_valid(uint64_t t0_ms, uint64_t ttl_ms, uint64_t min_validity_ms, uint64_t now_ms);

/* How long one server may take: a twentieth of the TTL, at most budget_ms, at least 1. */
uint64_t fli_server_budget_ms(uint64_t ttl_ms, uint64_t budget_ms);

/* The pause after failed attempt number `attempt` (from 1): uniform between 0 and
 * min(cap, base * 2^(attempt - 1)), both included, out of 64 random bits. */
uint64_t fli_retry_ms(uint32_t attempt, uint64_t base_ms, uint64_t cap_ms, uint64_t random);

/* From when on a server counts that at now_ms says it has been up for uptime_s seconds (rounded up
 * or down): by then nobody can still believe in a key that it may have forgotten. */
uint64_t fli_counts_from_ms(uint64_t now_ms, uint64_t uptime_s, uint64_t max_ttl_ms);

#endif
