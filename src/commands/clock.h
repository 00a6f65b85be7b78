/* clock.h: the cluster clock as the leader of a term keeps it.
 *
 * The machine's clock is the largest timestamp that it has applied. Between two timestamps the
 * leader advances it by its own monotonic clock, tick by tick. One tick counts for at most
 * CLUSTER_CLOCK_STEP_MAX_MS, however long it really took. A leader that was stopped for a minute
 * received nothing in that minute, and must not charge it to leases whose renewals still wait in
 * its sockets. So the cluster clock may run slower than real time and never faster: a lease may
 * last too long, and never ends too soon.
 *
 * Pure; any thread on its own data. */
#ifndef COMMANDS_CLOCK_H
#define COMMANDS_CLOCK_H

#include "base/base.h"

#define CLUSTER_CLOCK_TICK_MS 50u      /* the leader ticks at least this often, also when idle */
#define CLUSTER_CLOCK_STEP_MAX_MS 200u /* one tick counts for at most this much */

_Static_assert(CLUSTER_CLOCK_STEP_MAX_MS >= 2 * CLUSTER_CLOCK_TICK_MS,
               "a tick that is a little late is not clipped");

struct cluster_clock {
    uint64_t value_ms;   /* the cluster clock at the last tick */
    uint64_t tick_at_ms; /* when that tick was, on the monotonic clock */
};

/* A term begins: machine_ms is the clock of the machine once the barrier of the term is applied. No
 * machine's clock is above MACHINE_CLOCK_MAX_MS. */
void cluster_clock_start(struct cluster_clock *c, uint64_t machine_ms, uint64_t now_ms);

/* Advances by the time since the last tick, at most CLUSTER_CLOCK_STEP_MAX_MS. If now_ms went back,
 * no time passes. At MACHINE_CLOCK_MAX_MS the clock stands still. */
void cluster_clock_tick(struct cluster_clock *c, uint64_t now_ms);

/* Monotonic time from now_ms until the cluster clock can reach deadline_ms, or until the next tick
 * is due, whichever comes first. */
uint64_t cluster_clock_wait(const struct cluster_clock *c, uint64_t deadline_ms, uint64_t now_ms);

#endif
