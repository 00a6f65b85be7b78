/* test_clock.c: the leader's cluster clock. */
#include "../../lib/unit.h"

#include "commands/clock.h"
#include "machine/limits.h"

TEST(starts_at_the_machine)
{
    struct cluster_clock c;
    cluster_clock_start(&c, 5000, 77);
    cluster_clock_tick(&c, 77);
    assert_int_equal(c.value_ms, 5000);
}

TEST(runs_with_the_monotonic_clock)
{
    struct cluster_clock c;
    cluster_clock_start(&c, 100, 1000);
    for (uint64_t now_ms = 1001; now_ms <= 2000; now_ms += 3) {
        cluster_clock_tick(&c, now_ms);
    }
    cluster_clock_tick(&c, 2000);
    assert_int_equal(c.value_ms, 1100);
}

TEST(one_tick_counts_for_a_bounded_time)
{
    struct cluster_clock c;
    cluster_clock_start(&c, 0, 0);
    cluster_clock_tick(&c, CLUSTER_CLOCK_STEP_MAX_MS);
    assert_int_equal(c.value_ms, CLUSTER_CLOCK_STEP_MAX_MS);
    cluster_clock_tick(&c, 2 * CLUSTER_CLOCK_STEP_MAX_MS + 1);
    assert_int_equal(c.value_ms, 2 * CLUSTER_CLOCK_STEP_MAX_MS);
    cluster_clock_tick(&c, 3600000);
    assert_int_equal(c.value_ms, 3 * CLUSTER_CLOCK_STEP_MAX_MS);
    /* What was cut off is gone: it is not made up for later. */
    cluster_clock_tick(&c, 3600001);
    assert_int_equal(c.value_ms, 3 * CLUSTER_CLOCK_STEP_MAX_MS + 1);
}

TEST(never_goes_back)
{
    struct cluster_clock c;
    cluster_clock_start(&c, 10, 1000);
    cluster_clock_tick(&c, 1100);
    cluster_clock_tick(&c, 900);
    assert_int_equal(c.value_ms, 110);
    cluster_clock_tick(&c, 1100);
    assert_int_equal(c.value_ms, 110);
    cluster_clock_tick(&c, 1101);
    assert_int_equal(c.value_ms, 111);
}

TEST(waits_for_the_deadline_or_the_tick)
{
    struct cluster_clock c;
    cluster_clock_start(&c, 1000, 50);
    assert_int_equal(cluster_clock_wait(&c, UINT64_MAX, 50), CLUSTER_CLOCK_TICK_MS);
    assert_int_equal(cluster_clock_wait(&c, 1020, 50), 20);
    assert_int_equal(cluster_clock_wait(&c, 1020, 55), 15);
    assert_int_equal(cluster_clock_wait(&c, 1020, 70), 0);
    assert_int_equal(cluster_clock_wait(&c, 1020, 5000), 0);
    assert_int_equal(cluster_clock_wait(&c, 1000, 50), 0);
    assert_int_equal(cluster_clock_wait(&c, 10, 50), 0);
}

TEST(stands_still_at_its_end)
{
    struct cluster_clock c;
    cluster_clock_start(&c, MACHINE_CLOCK_MAX_MS - 1, 1000);
    for (uint64_t now_ms = 1001; now_ms <= 1003; now_ms++) {
        cluster_clock_tick(&c, now_ms);
        assert_true(c.value_ms == MACHINE_CLOCK_MAX_MS);
    }
    assert_int_equal(cluster_clock_wait(&c, MACHINE_CLOCK_MAX_MS + 1, 1003), 1);
}
