/* histogram.h: counts durations, in fixed memory, and tells percentiles. It has 64 steps for each
 * power of two, so a percentile is at most 1/64 too high. No I/O. */
#ifndef BENCH_HISTOGRAM_H
#define BENCH_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_STEP_BITS 6u
#define HISTOGRAM_STEPS (1u << HISTOGRAM_STEP_BITS)
#define HISTOGRAM_BITS_MAX 40u /* durations of 2^40 ns (18 minutes) and more count as that */
#define HISTOGRAM_BUCKETS ((HISTOGRAM_BITS_MAX - HISTOGRAM_STEP_BITS + 1) * HISTOGRAM_STEPS)

/* All zero: empty. */
struct histogram {
    uint64_t n;
    uint64_t max_ns; /* exact */
    uint32_t count[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *h, uint64_t ns);

/* The duration that per_mille (at most 1000) of 1000 samples do not exceed; 0 when it is empty. */
uint64_t histogram_percentile(const struct histogram *h, unsigned per_mille);

#endif
