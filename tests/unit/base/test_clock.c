/* test_clock.c: steps of the wall clock do not change the monotonic clock. */
#include "../../lib/unit.h"

#include <time.h>

#include "base/clock.h"

int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);

static time_t wall_ahead_s;

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
    int rv = __real_clock_gettime(id, ret);
    ret->tv_sec += id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE ? wall_ahead_s : 0;
    return rv;
}

TEST(test_the_wall_clock_jumps)
{
    wall_ahead_s = 0;
    uint64_t wall_ms = fli_clock_wall_ms();
    uint64_t before_ms = fli_clock_ms();
    for (int i = 0; i < 2; i++) {
        wall_ahead_s = i == 0 ? 86400 : -86400;
        uint64_t now_ms = fli_clock_ms();
        assert_true(now_ms >= before_ms);
        assert_true(now_ms - before_ms < 3600000);
        assert_true(fli_clock_ns() / 1000000 >= now_ms);
        assert_int_equal(fli_clock_wall_ms() > wall_ms, i == 0);
    }
}
