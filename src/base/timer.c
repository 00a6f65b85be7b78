/* timer.c: see timer.h. */
#include "base/timer.h"

#include <sys/timerfd.h>

int fli_timer_open(void)
{
    return timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
}

void fli_timer_set(int fd, uint64_t at_ms)
{
    struct itimerspec when = {0}; /* off */
    if (at_ms != UINT64_MAX) {
        uint64_t ms = at_ms > 0 ? at_ms : 1; /* zero would turn it off */
        when.it_value.tv_sec = (time_t)(ms / 1000);
        when.it_value.tv_nsec = (long)(ms % 1000) * 1000000;
    }
    if (timerfd_settime(fd, TFD_TIMER_ABSTIME, &when, NULL) != 0) {
        fli_fatal("a timer cannot be set");
    }
}
