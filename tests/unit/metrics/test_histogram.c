/* test_histogram.c: every value falls into the bucket whose bound is the first not below it. */
#include "../../lib/unit.h"

#include "metrics/histogram.h"

static unsigned only_bucket(enum metrics_range range, uint64_t us)
{
    struct metrics_histogram h;
    metrics_histogram_init(&h, range);
    metrics_observe_us(&h, us);
    assert_int_equal(h.sum_us, us);
    assert_int_equal(metrics_histogram_count(&h), 1);
    for (unsigned i = 0; i <= METRICS_BUCKETS; i++) {
        if (h.counts[i] == 1) {
            return i;
        }
    }
    fail_msg("%llu us is in no bucket", (unsigned long long)us);
    return 0;
}

TEST(bounds_are_inclusive)
{
    const enum metrics_range ranges[] = {METRICS_RANGE_FAST, METRICS_RANGE_SLOW};
    for (unsigned r = 0; r < 2; r++) {
        struct metrics_histogram h;
        metrics_histogram_init(&h, ranges[r]);
        for (unsigned i = 0; i < METRICS_BUCKETS; i++) {
            uint64_t bound = metrics_histogram_bound_us(&h, i);
            assert_int_equal(only_bucket(ranges[r], bound), i);
            assert_int_equal(only_bucket(ranges[r], bound + 1), i + 1);
        }
    }
}

TEST(the_ends)
{
    assert_int_equal(only_bucket(METRICS_RANGE_FAST, 0), 0);
    assert_int_equal(only_bucket(METRICS_RANGE_FAST, 1), 0);
    assert_int_equal(only_bucket(METRICS_RANGE_SLOW, UINT64_MAX), METRICS_BUCKETS);
    struct metrics_histogram h;
    metrics_histogram_init(&h, METRICS_RANGE_FAST);
    metrics_observe_ns(&h, 16999); /* nanoseconds below a microsecond are not counted */
    assert_int_equal(h.sum_us, 16);
    assert_int_equal(h.counts[0], 1);
}
