/* rng.h: the randomness of a unit test, from one seed that is printed and can be set through the
 * environment variable FENCELOCK_SEED. It also includes cmocka, with the headers that cmocka needs
 * before it. */
#ifndef TEST_RNG_H
#define TEST_RNG_H

#include "unit.h"

#include "base/clock.h"

/* SplitMix64 (Steele, Lea and Flood 2014). */
static inline uint64_t rng_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* From 0 to n - 1; n > 0. */
static inline uint64_t rng_below(uint64_t *state, uint64_t n)
{
    return rng_next(state) % n;
}

/* FENCELOCK_SEED, or a new one; prints it. */
static inline uint64_t rng_seed(void)
{
    uint64_t seed = 0;
    const char *given = getenv("FENCELOCK_SEED");
    if (given != NULL) {
        seed = strtoull(given, NULL, 0);
    } else {
        fli_random(&seed, sizeof seed);
    }
    printf("FENCELOCK_SEED=%llu\n", (unsigned long long)seed);
    (void)fflush(stdout); /* a crash must not lose the seed */
    return seed;
}

#endif
