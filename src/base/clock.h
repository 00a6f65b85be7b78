/* clock.h: only this file reads a clock or asks for randomness. All other code gets time as an
 * argument or from here, so that a simulator can supply its own.
 *
 * There is one clock for decisions, and it goes on while the machine is suspended. The clock of
 * libuv's loop stands still then, so a lint refuses uv_now(): a time of the one would be compared
 * with a time of the other. Timers of libuv only wake a loop, which then looks at this clock. */
#ifndef FLI_CLOCK_H
#define FLI_CLOCK_H

#include "base/base.h"

/* Milliseconds / nanoseconds since an arbitrary start; counts time the machine was suspended
 * (CLOCK_BOOTTIME). Never goes back, never follows the wall clock. Any thread. */
uint64_t fli_clock_ms(void);
uint64_t fli_clock_ns(void);

/* How long ago a time was that this clock has told. */
static inline uint64_t fli_clock_since_ms(uint64_t then_ms)
{
    return fli_clock_ms() - then_ms;
}

/* Milliseconds since 1970 by the wall clock, which may jump: for people, never for decisions. */
uint64_t fli_clock_wall_ms(void);

/* Nanoseconds of processor time of this thread. Costs a system call. */
uint64_t fli_clock_cpu_ns(void);

/* Fills with random bytes from the kernel; aborts when there is none to be had. Any thread. */
void fli_random(void *data, size_t len);

#endif
