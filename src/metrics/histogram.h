/* histogram.h: counts durations in buckets whose bounds are powers of two.
 *
 * A bound doubles from one bucket to the next, so counting bits finds the bucket of a value: an
 * observation costs a few instructions, and no clock is read here. One thread counts and copies.
 * Pure. */
#ifndef METRICS_HISTOGRAM_H
#define METRICS_HISTOGRAM_H

#include "base/base.h"

/* With a bound; one more bucket has everything above the last bound. */
#define METRICS_BUCKETS 22u

/* The bound of the first bucket, as a power of two of a microsecond. */
enum metrics_range {
    METRICS_RANGE_FAST = 4,  /* 16 us, and up to 33.6 s: disks and networks */
    METRICS_RANGE_SLOW = 10, /* 1.024 ms, and up to 35.8 min: waits of people and programs */
};

struct metrics_histogram {
    uint64_t counts[METRICS_BUCKETS + 1]; /* not cumulative */
    uint64_t sum_us;
    uint32_t first_log2; /* enum metrics_range */
};

void metrics_histogram_init(struct metrics_histogram *h, enum metrics_range range);
void metrics_observe_us(struct metrics_histogram *h, uint64_t us);

static inline void metrics_observe_ns(struct metrics_histogram *h, uint64_t ns)
{
    metrics_observe_us(h, ns / 1000);
}

uint64_t metrics_histogram_count(const struct metrics_histogram *h);

/* The largest value that bucket i takes, in microseconds; i < METRICS_BUCKETS. */
uint64_t metrics_histogram_bound_us(const struct metrics_histogram *h, unsigned i);

#endif
