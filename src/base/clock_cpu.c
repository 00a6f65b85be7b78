/* clock_cpu.c: the part of clock.h that a simulator does not replace. */
#include <errno.h>
#include <time.h>

#include "base/clock.h"

uint64_t fli_clock_cpu_ns(void)
{
    struct timespec used;
    if (FLI_UNLIKELY(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) != 0)) {
        fli_fatal("clock_gettime(CLOCK_THREAD_CPUTIME_ID) failed, errno %d", errno);
    }
    return (uint64_t)used.tv_sec * UINT64_C(1000000000) + (uint64_t)used.tv_nsec;
}
