/* alarm.h: wakes a handle at a time of fli_clock_ms()'s clock, also when the machine was suspended
 * until then: libuv's timers stand still meanwhile, and would tell of a deadline as much later. */
#ifndef FLI_REDLOCK_ALARM_H
#define FLI_REDLOCK_ALARM_H

#include <uv.h>

#include "base/base.h"

struct fli_alarm {
    uv_poll_t poll;
    int fd;
    void (*own)(struct fli_alarm *a);
    void (*ring)(struct fli_alarm *a);
    void (*closed)(struct fli_alarm *a);
};

/* It is off. The loop calls own() before the timer is read, and then ring(). 0 or FL_ESYSTEM. */
int fli_alarm_init(struct fli_alarm *a, uv_loop_t *loop, void (*own)(struct fli_alarm *a),
                   void (*ring)(struct fli_alarm *a)) FLI_MUST_USE;

/* In a child of fork(), where the loop is already the child's: leaves the timer to the parent, and
 * never rings here until there is another one. */
void fli_alarm_leave(struct fli_alarm *a);

bool fli_alarm_is_own(const struct fli_alarm *a); /* false after fli_alarm_leave() */

/* After fli_alarm_leave(): a timer of its own. 0 or FL_ESYSTEM. */
int fli_alarm_own(struct fli_alarm *a) FLI_MUST_USE;

/* Rings once, from the loop, at at_ms or at once if that is over; instead of at an earlier set
 * time. */
void fli_alarm_set(struct fli_alarm *a, uint64_t at_ms);

/* Rings no more. closed() comes from the loop. */
void fli_alarm_close(struct fli_alarm *a, void (*closed)(struct fli_alarm *a));

#endif
