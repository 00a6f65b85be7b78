/* clock.h: only this file reads a clock or asks for randomness. All other code gets time as an
 * argument or from here, so that a simulator can supply its own. */
#ifndef FLI_CLOCK_H
#define FLI_CLOCK_H

#include "base/base.h"

/* Milliseconds / nanoseconds since an arbitrary start; counts time the machine was suspended
 * (CLOCK_BOOTTIME). Never goes back, never follows the wall clock. Any thread. */
uint64_t fli_clock_ms(void);
uint64_t fli_clock_ns(void);

/* Milliseconds since 1970 by the wall clock, which may jump: for people, never for decisions. */
uint64_t fli_clock_wall_ms(void);

/* Nanoseconds of processor time of this thread. Costs a system call. */
uint64_t fli_clock_cpu_ns(void);

/* Fills with random bytes from the kernel; aborts when there is none to be had. Any thread. */
void fli_random(void *data, size_t len);

#endif
