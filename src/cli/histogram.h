/* histogram.h: counts of durations, for percentiles, in fixed memory: 64 steps for each power of
 * two, so that what it says is at most 1/64 too high. No I/O. */
#ifndef CLI_HISTOGRAM_H
#define CLI_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_STEP_BITS 6u
#define HISTOGRAM_STEPS (1u << HISTOGRAM_STEP_BITS)
#define HISTOGRAM_BITS_MAX 40u /* durations of 2^40 ns (18 minutes) and more count as that */
#define HISTOGRAM_BUCKETS ((HISTOGRAM_BITS_MAX - HISTOGRAM_STEP_BITS + 1) * HISTOGRAM_STEPS)

/* All zero is an empty one. */
struct histogram {
    uint64_t n;
    uint64_t max_ns; /* exact */
    uint32_t count[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *h, uint64_t ns);

/* The duration that so many of 1000 did not exceed; 0 when it is empty. per_mille: at most 1000. */
uint64_t histogram_percentile(const struct histogram *h, unsigned per_mille);

#endif
