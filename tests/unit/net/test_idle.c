/* test_idle.c: what a turn of the loop took is told without the time that it waited, also after the
 * machine was suspended: our clock is a day ahead of the loop's then. */
#include "harness.h"

#include "base/clock.h"
#include "base/turn.h"

#define SUSPENDED_NS (UINT64_C(86400) * 1000000000)
#define IDLE_MS (3 * FLI_TURN_SLOW_US / 1000)

uint64_t __real_fli_clock_ns(void);
uint64_t __wrap_fli_clock_ns(void);

uint64_t __wrap_fli_clock_ns(void)
{
    return __real_fli_clock_ns() + SUSPENDED_NS;
}

static void timer_cb(uv_timer_t *timer)
{
    ++*(unsigned *)timer->data;
}

/* Whether a turn that only waited was a short one. */
static bool waits_in_a_short_turn(struct fixture *f, uv_timer_t *timer)
{
    const struct fli_turn *t = net_server_turn(f->server);
    unsigned fired = 0;
    uint64_t slow = t->stats.slow;
    timer->data = &fired;
    assert_int_equal(uv_timer_start(timer, timer_cb, IDLE_MS, IDLE_MS), 0);
    while (fired == 0) {
        (void)uv_run(&f->loop, UV_RUN_ONCE);
    }
    (void)uv_timer_stop(timer);
    turn(f); /* the turn in which it waited has ended */
    return t->stats.slow == slow;
}

TEST(a_turn_that_waits_is_not_slow)
{
    struct fixture f;
    uv_timer_t timer;
    fixture_start(&f, test_limits());
    assert_int_equal(uv_timer_init(&f.loop, &timer), 0);
    /* On a busy machine, a turn may be slow although it does nothing. */
    uint64_t until_ms = deadline();
    while (!waits_in_a_short_turn(&f, &timer)) {
        check_deadline(until_ms, "a turn that waits is short", __FILE__, __LINE__);
    }
    uv_close((uv_handle_t *)&timer, NULL);
    fixture_end(&f);
}
