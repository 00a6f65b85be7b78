/* histogram.c: see histogram.h. */
#include "metrics/histogram.h"

#include <string.h>

void metrics_histogram_init(struct metrics_histogram *h, enum metrics_range range)
{
    memset(h, 0, sizeof *h);
    h->first_log2 = (uint32_t)range;
}

/* The first bucket whose bound is not below us. */
static unsigned bucket_of(const struct metrics_histogram *h, uint64_t us)
{
    FLI_ASSERT(h->first_log2 > 0); /* it was initialised */
    if (us <= (UINT64_C(1) << h->first_log2)) {
        return 0;
    }
    unsigned log2_up = 64u - (unsigned)__builtin_clzll(us - 1);
    unsigned i = log2_up - h->first_log2;
    return i < METRICS_BUCKETS ? i : METRICS_BUCKETS;
}

void metrics_observe_us(struct metrics_histogram *h, uint64_t us)
{
    h->counts[bucket_of(h, us)]++;
    h->sum_us += us;
}

uint64_t metrics_histogram_count(const struct metrics_histogram *h)
{
    uint64_t n = 0;
    for (unsigned i = 0; i <= METRICS_BUCKETS; i++) {
        n += h->counts[i];
    }
    return n;
}

uint64_t metrics_histogram_bound_us(const struct metrics_histogram *h, unsigned i)
{
    FLI_ASSERT(i < METRICS_BUCKETS);
    return UINT64_C(1) << (h->first_log2 + i);
}
