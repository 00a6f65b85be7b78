/* test_fold.c: machine/fold.h: the hash's step without a 128-bit integer is the step with one. */
#include "fixture.h"

#include "machine/fold.h"

TEST(test_known)
{
    assert_true(fold_halves(0, UINT64_MAX) == 0);
    assert_true(fold_halves(1, UINT64_MAX) == UINT64_MAX);
    assert_true(fold_halves(UINT64_C(1) << 32, UINT64_C(1) << 32) == 1);
    /* (2^64 - 1)^2 = 2^128 - 2^65 + 1 */
    assert_true(fold_halves(UINT64_MAX, UINT64_MAX) == (1 ^ (UINT64_MAX - 1)));
}

TEST(test_both_agree)
{
    uint64_t rng = rng_seed();
    for (unsigned i = 0; i < 200000; i++) {
        uint64_t a = rng_next(&rng) >> rng_below(&rng, 64);
        uint64_t b = rng_next(&rng) >> rng_below(&rng, 64);
        assert_true(fold(a, b) == fold_halves(a, b));
    }
}
