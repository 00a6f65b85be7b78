/* clock.c: see clock.h. */
#include "base/clock.h"

#include <errno.h>
#include <sys/random.h>
#include <time.h>

uint64_t fli_clock_ns(void)
{
    struct timespec now;
    if (FLI_UNLIKELY(clock_gettime(CLOCK_BOOTTIME, &now) != 0)) {
        fli_fatal("clock_gettime(CLOCK_BOOTTIME) failed, errno %d", errno);
    }
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t fli_clock_ms(void)
{
    return fli_clock_ns() / UINT64_C(1000000);
}

uint64_t fli_clock_wall_ms(void)
{
    struct timespec now;
    if (FLI_UNLIKELY(clock_gettime(CLOCK_REALTIME, &now) != 0 || now.tv_sec < 0)) {
        return 0;
    }
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void fli_random(void *data, size_t len)
{
    uint8_t *p = data;
    while (len > 0) {
        ssize_t n = getrandom(p, len, 0);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            fli_fatal("getrandom failed, errno %d", errno);
        }
        p += n;
        len -= (size_t)n;
    }
}
