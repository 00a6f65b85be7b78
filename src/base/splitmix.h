/* splitmix.h: SplitMix64 (Steele, Lea and Flood 2014): good enough for jitter, and the same on
 * every machine. Pure. */
#ifndef FLI_SPLITMIX_H
#define FLI_SPLITMIX_H

#include <stdint.h>

static inline uint64_t fli_splitmix(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

#endif
