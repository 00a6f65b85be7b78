/* histogram.c: see histogram.h. */
#include "histogram.h"

#include "base/base.h"

/* Below HISTOGRAM_STEPS every duration has its own bucket; above, its highest bits choose one. */
static unsigned bucket_of(uint64_t ns)
{
    if (ns < HISTOGRAM_STEPS) {
        return (unsigned)ns;
    }
    unsigned top = 63u - (unsigned)__builtin_clzll(ns);
    if (top >= HISTOGRAM_BITS_MAX) {
        return HISTOGRAM_BUCKETS - 1;
    }
    unsigned shift = top - HISTOGRAM_STEP_BITS;
    return (shift + 1) * HISTOGRAM_STEPS + (unsigned)((ns >> shift) - HISTOGRAM_STEPS);
}

/* The largest duration that belongs to a bucket. */
static uint64_t end_of(unsigned bucket)
{
    if (bucket < HISTOGRAM_STEPS) {
        return bucket;
    }
    unsigned shift = bucket / HISTOGRAM_STEPS - 1;
    uint64_t step = bucket % HISTOGRAM_STEPS + HISTOGRAM_STEPS;
    return ((step + 1) << shift) - 1;
}

void histogram_add(struct histogram *h, uint64_t ns)
{
    unsigned bucket = bucket_of(ns);
    FLI_ASSERT(bucket < HISTOGRAM_BUCKETS);
    h->count[bucket]++;
    h->n++;
    h->max_ns = ns > h->max_ns ? ns : h->max_ns;
}

uint64_t histogram_percentile(const struct histogram *h, unsigned per_mille)
{
    FLI_ASSERT(per_mille <= 1000);
    if (h->n == 0) {
        return 0;
    }
    uint64_t rank = (h->n * per_mille + 999) / 1000; /* the rank of the sample to be found */
    rank = rank == 0 ? 1 : rank;
    uint64_t seen = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->count[i];
        if (seen >= rank) {
            return end_of(i) < h->max_ns ? end_of(i) : h->max_ns;
        }
    }
    return h->max_ns;
}
