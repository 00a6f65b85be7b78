/* timer.h: a descriptor that becomes readable at a time of fli_clock_ms()'s clock, also when the
 * machine was suspended until then. The timers of libuv and of poll() stand still meanwhile. */
#ifndef FLI_TIMER_H
#define FLI_TIMER_H

#include "base/base.h"

/* It is off. The descriptor, non-blocking and closed on exec, which the caller owns; or -1: errno
 * says why. Any thread. */
int fli_timer_open(void) FLI_MUST_USE;

/* Readable from at_ms on, or at once if that is over; instead of at the time set before.
 * UINT64_MAX: off. Any thread. */
void fli_timer_set(int fd, uint64_t at_ms);

#endif
