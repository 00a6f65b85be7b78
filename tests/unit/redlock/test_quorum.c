/* The arithmetic of Redlock: all small values against the plain formula, and both ends of each
 * limit. */
#include "rng.h"

#include "redlock/quorum.h"

TEST(test_quorum_is_more_than_half)
{
    static const uint32_t expected[] = {0, 1, 2, 2, 3, 3, 4, 4, 5};
    for (uint32_t n = 1; n <= 8; n++) {
        assert_int_equal(fli_quorum(n), expected[n]);
    }
    for (uint32_t n = 1; n < 100000; n++) {
        assert_true(2 * fli_quorum(n) > n);        /* two quorums always meet */
        assert_true(2 * (fli_quorum(n) - 1) <= n); /* and one less would not do */
    }
}

TEST(test_drift)
{
    assert_int_equal(fli_drift_ms(0), 2);
    assert_int_equal(fli_drift_ms(99), 2);
    assert_int_equal(fli_drift_ms(100), 3);
    assert_int_equal(fli_drift_ms(10000), 102);
    assert_true(fli_drift_ms(UINT64_MAX) == UINT64_MAX / 100 + 2);
}

TEST(test_deadline_and_validity_of_all_small_values)
{
    for (uint64_t ttl = 0; ttl <= 300; ttl++) {
        for (uint64_t elapsed = 0; elapsed <= 310; elapsed++) {
            int64_t left = (int64_t)ttl - (int64_t)elapsed - (int64_t)(ttl / 100 + 2);
            uint64_t expected = left > 0 ? (uint64_t)left : 0;
            uint64_t deadline = fli_deadline_ms(1000, ttl);
            assert_int_equal(fli_left_ms(deadline, 1000 + elapsed), expected);
            for (uint64_t least = 0; least <= 3; least++) {
                bool valid = left >= (int64_t)(least == 0 ? 1 : least);
                assert_int_equal(fli_is_valid(1000, ttl, least, 1000 + elapsed), valid);
            }
        }
    }
}

TEST(test_a_lock_is_over_at_its_deadline_not_after)
{
    uint64_t deadline = fli_deadline_ms(5000, 10000);
    assert_int_equal(deadline, 5000 + 10000 - 102);
    assert_int_equal(fli_left_ms(deadline, deadline - 1), 1);
    assert_int_equal(fli_left_ms(deadline, deadline), 0);
    assert_int_equal(fli_left_ms(deadline, deadline + 1), 0);
    assert_true(fli_is_valid(5000, 10000, 1, deadline - 1));
    assert_false(fli_is_valid(5000, 10000, 1, deadline));
    assert_true(fli_is_valid(5000, 10000, 700, deadline - 700));
    assert_false(fli_is_valid(5000, 10000, 700, deadline - 699));
}

TEST(test_nothing_overflows)
{
    assert_true(fli_deadline_ms(UINT64_MAX, UINT64_MAX) == UINT64_MAX);
    assert_true(fli_deadline_ms(UINT64_MAX - 5, 1000) == UINT64_MAX);
    assert_int_equal(fli_deadline_ms(7, 0), 7);
    assert_int_equal(fli_deadline_ms(7, 2), 7);
    assert_int_equal(fli_deadline_ms(7, 3), 8);
    assert_true(fli_counts_from_ms(UINT64_MAX, 0, UINT64_MAX) == UINT64_MAX);
    assert_true(fli_counts_from_ms(3, UINT64_MAX, UINT64_MAX) >= 3);
    assert_true(fli_retry_ms(UINT32_MAX, UINT64_MAX, UINT64_MAX, 77) == 77);
}

TEST(test_server_budget)
{
    assert_int_equal(fli_server_budget_ms(10000, 50), 50);
    assert_int_equal(fli_server_budget_ms(1000, 50), 50);
    assert_int_equal(fli_server_budget_ms(999, 50), 49);
    assert_int_equal(fli_server_budget_ms(20, 50), 1);
    assert_int_equal(fli_server_budget_ms(10, 50), 1);
    assert_int_equal(fli_server_budget_ms(10000, 0), 1);
}

TEST(test_retry_is_within_its_bounds_and_reaches_both)
{
    uint64_t rng = rng_seed();
    static const uint64_t ceilings[] = {0, 50, 100, 200, 400, 800, 1000, 1000};
    for (uint32_t attempt = 1; attempt < 8; attempt++) {
        assert_int_equal(fli_retry_ms(attempt, 50, 1000, ceilings[attempt]), ceilings[attempt]);
        assert_int_equal(fli_retry_ms(attempt, 50, 1000, ceilings[attempt] + 1), 0);
        for (int i = 0; i < 1000; i++) {
            assert_true(fli_retry_ms(attempt, 50, 1000, rng_next(&rng)) <= ceilings[attempt]);
        }
    }
    assert_int_equal(fli_retry_ms(1000000, 1, 64, 64), 64);
    assert_int_equal(fli_retry_ms(5, 0, 64, 12345), 0);
    assert_int_equal(fli_retry_ms(5, 10, 0, 12345), 0);
}

TEST(test_restarted_servers)
{
    uint64_t needed = 30000 + 302;
    assert_int_equal(fli_counts_from_ms(5000, 0, 30000), 5000 + needed);
    assert_int_equal(fli_counts_from_ms(5000, 1, 30000), 5000 + needed);
    assert_int_equal(fli_counts_from_ms(5000, 2, 30000), 5000 + needed - 1000);
    assert_int_equal(fli_counts_from_ms(5000, 31, 30000), 5000 + 302);
    assert_int_equal(fli_counts_from_ms(5000, 32, 30000), 5000);
    assert_int_equal(fli_counts_from_ms(5000, 1000000, 30000), 5000);
}
