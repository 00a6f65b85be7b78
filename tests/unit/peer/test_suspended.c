/* The machine was suspended: the clock for decisions went on, and that of the loop stood still. */
#include "rig.h"

#include <time.h>
#include <unistd.h>

#include "peer/transport_private.h"

int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);

static time_t suspended_s;

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
    int rv = __real_clock_gettime(id, ret);
    ret->tv_sec += id == CLOCK_BOOTTIME ? suspended_s : 0;
    return rv;
}

/* A limit is time in which this process ran: the suspension gives nobody up, and a new one that is
 * short does not wait for an old one. */
TEST(a_new_deadline_does_not_wait_for_an_old_one)
{
    struct rig *r = rig_open(NULL);
    int before = plain_connect(r->ports[1]);
    RUN_UNTIL(r, rig_pending(&r->b) == 1);
    suspended_s = 3600;
    r->b.t->pending_ms = 50;
    int after = plain_connect(r->ports[1]);
    RUN_UNTIL(r, rig_turned_away(&r->b) == 1);
    assert_int_equal(rig_pending(&r->b), 1);
    assert_int_equal(plain_peek(before), 0);
    close(before);
    close(after);
    rig_close(r);
}

int main(int argc, char **argv)
{
    return unit_run(argc, argv, NULL, NULL);
}
