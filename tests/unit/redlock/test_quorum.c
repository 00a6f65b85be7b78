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

TEST(test_extend)
{
    uint64_t old = fli_deadline_ms(1000, 10000);
    assert_int_equal(fli_extended_deadline_ms(old, 2000, 10000, true),
                     fli_deadline_ms(2000, 10000));
    assert_int_equal(fli_extended_deadline_ms(old, 2000, 10000, false), old);
    /* A shorter TTL that reached some servers only. */
    assert_int_equal(fli_extended_deadline_ms(old, 2000, 100, false), fli_deadline_ms(2000, 100));
    assert_int_equal(fli_extended_deadline_ms(old, 2000, 100, true), fli_deadline_ms(2000, 100));
    assert_int_equal(fli_extended_deadline_ms(0, 2000, 100, false), 0);
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

/* ---- keeping --------------------------------------------------------------------------------- */

/* Plays a holder whose extends succeed or fail as the rng says; checks what must hold always. */
static void play_keeper(uint64_t *rng)
{
    uint64_t now = 1000 + rng_below(rng, 1000000);
    uint64_t ttl = 10 + rng_below(rng, 20000);
    uint64_t max_hold = 1 + rng_below(rng, 100000);
    uint64_t until = now + max_hold;
    uint64_t fail_in = 1 + rng_below(rng, 4);
    struct fli_renewal k;
    fli_renewal_init(&k, now, ttl, fli_deadline_ms(now, ttl), max_hold);
    uint64_t steps = 0;
    for (;;) {
        uint64_t wake = 0;
        uint64_t extend = 0;
        assert_true(k.deadline_ms <= until);
        assert_true(++steps < 200000);
        switch (fli_renewal_next(&k, now, &wake, &extend)) {
        case FLI_RENEWAL_WAIT:
            assert_true(wake > now && wake <= k.deadline_ms);
            now = wake;
            break;
        case FLI_RENEWAL_EXTEND: {
            uint64_t old = k.deadline_ms;
            assert_true(extend >= FL_TTL_MIN_MS && extend <= ttl && now < old);
            bool ok = rng_below(rng, fail_in) == 0;
            uint64_t t0 = now;
            now += rng_below(rng, 1 + ttl / 20);
            fli_renewal_extended(&k, now, fli_extended_deadline_ms(old, t0, extend, ok), ok);
            assert_true(k.deadline_ms <= until && k.try_ms > now);
            break;
        }
        case FLI_RENEWAL_ENDING:
            assert_true(now < k.deadline_ms);
            return;
        case FLI_RENEWAL_EXPIRED:
            assert_true(now >= k.deadline_ms);
            return;
        }
    }
}

TEST(test_keeping_ends_and_never_passes_max_hold)
{
    uint64_t rng = rng_seed();
    for (int i = 0; i < 20000; i++) {
        play_keeper(&rng);
    }
}

TEST(test_keeping_extends_after_a_third_and_stops_near_the_end)
{
    struct fli_renewal k;
    uint64_t wake = 0;
    uint64_t ttl = 0;
    uint64_t deadline = fli_deadline_ms(0, 3000); /* 2968 */
    fli_renewal_init(&k, 0, 3000, deadline, 10000);
    assert_int_equal(fli_renewal_next(&k, 0, &wake, &ttl), FLI_RENEWAL_WAIT);
    assert_int_equal(wake, deadline / 3);
    assert_int_equal(fli_renewal_next(&k, wake, &wake, &ttl), FLI_RENEWAL_EXTEND);
    assert_int_equal(ttl, 3000);
    /* A failed one is tried again soon, not after another third. */
    fli_renewal_extended(&k, 1000, deadline, false);
    assert_int_equal(k.try_ms, 1150);
    /* 9000: one more second is affordable. */
    fli_renewal_init(&k, 0, 3000, 9500, 10000);
    k.try_ms = 9000;
    assert_int_equal(fli_renewal_next(&k, 9000, &wake, &ttl), FLI_RENEWAL_EXTEND);
    assert_int_equal(ttl, 1000);
    fli_renewal_extended(&k, 9000, fli_deadline_ms(9000, 1000), true);
    assert_int_equal(fli_renewal_next(&k, k.try_ms, &wake, &ttl), FLI_RENEWAL_ENDING);
}
