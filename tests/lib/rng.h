/* rng.h: the randomness of a unit test, from one seed that is printed and can be set through the
 * environment variable FENCELOCK_SEED. */
#ifndef TEST_RNG_H
#define TEST_RNG_H

#include "splitmix.h"
#include "unit.h"

#include "base/clock.h"

static inline uint64_t rng_next(uint64_t *state)
{
    return splitmix64(state);
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
