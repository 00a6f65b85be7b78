/* Percentiles of durations: exact where they are small, within 1/64 above, up to the ceiling. */
#include "../lib/unit.h"

#include "histogram.h"

static struct histogram h;

static int set_up(void **state)
{
    memset(&h, 0, sizeof h);
    return 0;
}

TEST_WITH(test_empty, set_up, NULL)
{
    assert_int_equal(histogram_percentile(&h, 500), 0);
    assert_int_equal(histogram_percentile(&h, 1000), 0);
}

TEST_WITH(test_small_ones_are_exact, set_up, NULL)
{
    for (uint64_t ns = 0; ns < 2 * HISTOGRAM_STEPS; ns++) {
        memset(&h, 0, sizeof h);
        histogram_add(&h, ns);
        histogram_add(&h, UINT64_C(1) << 30);
        assert_int_equal(histogram_percentile(&h, 500), ns);
    }
}

/* Each power of two and its neighbours: never too low, at most 1/64 too high. */
TEST_WITH(test_error_is_bounded, set_up, NULL)
{
    for (unsigned bit = 1; bit < HISTOGRAM_BITS_MAX; bit++) {
        for (int d = -1; d <= 1; d++) {
            uint64_t ns = (UINT64_C(1) << bit) + (uint64_t)(int64_t)d;
            memset(&h, 0, sizeof h);
            histogram_add(&h, ns);
            histogram_add(&h, UINT64_MAX);
            uint64_t p50 = histogram_percentile(&h, 500);
            assert_true(p50 >= ns);
            assert_true(p50 - ns <= ns / HISTOGRAM_STEPS);
        }
    }
}

TEST_WITH(test_ceiling, set_up, NULL)
{
    histogram_add(&h, (UINT64_C(1) << HISTOGRAM_BITS_MAX) - 1);
    histogram_add(&h, UINT64_C(1) << HISTOGRAM_BITS_MAX);
    histogram_add(&h, UINT64_MAX);
    assert_int_equal(h.n, 3);
    assert_int_equal(histogram_percentile(&h, 1), (UINT64_C(1) << HISTOGRAM_BITS_MAX) - 1);
    assert_int_equal(histogram_percentile(&h, 1000), (UINT64_C(1) << HISTOGRAM_BITS_MAX) - 1);
    assert_int_equal(h.max_ns, UINT64_MAX);
}

TEST_WITH(test_ranks, set_up, NULL)
{
    for (uint64_t ns = 1; ns <= 100; ns++) {
        histogram_add(&h, ns);
    }
    assert_int_equal(histogram_percentile(&h, 0), 1);
    assert_int_equal(histogram_percentile(&h, 10), 1);
    assert_int_equal(histogram_percentile(&h, 11), 2);
    assert_int_equal(histogram_percentile(&h, 500), 50);
    assert_int_equal(histogram_percentile(&h, 990), 99);
    assert_int_equal(histogram_percentile(&h, 1000), 100);
}
