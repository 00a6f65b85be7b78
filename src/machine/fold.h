/* fold.h (private to machine): one step of a hash: the 128 bits of a product, folded onto 64. */
#ifndef MACHINE_FOLD_H
#define MACHINE_FOLD_H

#include <stdint.h>

/* The same out of 32-bit halves, for compilers without a 128-bit integer. */
static inline uint64_t fold_halves(uint64_t a, uint64_t b)
{
    uint64_t a_low = a & UINT32_MAX, a_high = a >> 32;
    uint64_t b_low = b & UINT32_MAX, b_high = b >> 32;
    uint64_t low = a_low * b_low;
    uint64_t middle = a_high * b_low + (low >> 32);
    uint64_t middle_low = (middle & UINT32_MAX) + a_low * b_high;
    uint64_t high = a_high * b_high + (middle >> 32) + (middle_low >> 32);
    return (middle_low << 32 | (low & UINT32_MAX)) ^ high;
}

#ifdef __SIZEOF_INT128__
__extension__ typedef unsigned __int128 fold_wide;

static inline uint64_t fold(uint64_t a, uint64_t b)
{
    fold_wide product = (fold_wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}
#else
static inline uint64_t fold(uint64_t a, uint64_t b)
{
    return fold_halves(a, b);
}
#endif

#endif
