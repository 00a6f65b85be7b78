/* clock.h: the only place that reads a clock or asks for randomness. Everything above takes time as
 * an argument, or through this seam, so that a simulator can supply its own. */
#ifndef FLI_CLOCK_H
#define FLI_CLOCK_H

#include "base/base.h"

/* Milliseconds / nanoseconds since an arbitrary start; counts time the machine was suspended
 * (CLOCK_BOOTTIME). Never goes back, never follows the wall clock. Any thread. */
uint64_t fli_clock_ms(void);
uint64_t fli_clock_ns(void);

/* Milliseconds since 1970 by the wall clock, which jumps: for people to read, never to decide. */
uint64_t fli_clock_wall_ms(void);

/* Nanoseconds that the processor has worked for this thread. A call of the kernel. */
uint64_t fli_clock_cpu_ns(void);

/* Fills with random bytes from the kernel; aborts when there is none to be had. Any thread. */
void fli_random(void *data, size_t len);

#endif
