/* alarm.c: see alarm.h. */
#include "redlock/alarm.h"

#include <unistd.h>

#include "base/process.h"
#include "base/timer.h"
#include "fencelock/types.h"

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct fli_alarm *a = poll->data;
    uint64_t times;
    a->own(a); /* first: it may be the timer of the parent, which needs it */
    if (fli_alarm_is_own(a) && read(a->fd, &times, sizeof times) == (ssize_t)sizeof times) {
        a->ring(a);
    }
}

int fli_alarm_init(struct fli_alarm *a, uv_loop_t *loop, void (*own)(struct fli_alarm *a),
                   void (*ring)(struct fli_alarm *a))
{
    a->own = own;
    a->ring = ring;
    a->fd = fli_timer_open();
    if (a->fd < 0) {
        return FL_ESYSTEM;
    }
    if (uv_poll_init(loop, &a->poll, a->fd) != 0) {
        close(a->fd);
        return FL_ESYSTEM;
    }
    a->poll.data = a;
    (void)uv_poll_start(&a->poll, UV_READABLE, on_poll);
    return 0;
}

bool fli_alarm_is_own(const struct fli_alarm *a)
{
    return uv_is_active((const uv_handle_t *)&a->poll) != 0;
}

/* While the parent has its timer open, the loop could not let go of that under the number of
 * another. */
void fli_alarm_leave(struct fli_alarm *a)
{
    (void)uv_poll_stop(&a->poll);
}

int fli_alarm_own(struct fli_alarm *a)
{
    if (!fli_process_reopen(a->fd, fli_timer_open())) {
        return FL_ESYSTEM;
    }
    (void)uv_poll_start(&a->poll, UV_READABLE, on_poll);
    return 0;
}

void fli_alarm_set(struct fli_alarm *a, uint64_t at_ms)
{
    fli_timer_set(a->fd, at_ms);
}

static void on_closed(uv_handle_t *handle)
{
    struct fli_alarm *a = handle->data;
    a->closed(a);
}

void fli_alarm_close(struct fli_alarm *a, void (*closed)(struct fli_alarm *a))
{
    a->closed = closed;
    (void)uv_poll_stop(&a->poll); /* before its descriptor is closed */
    close(a->fd);
    uv_close((uv_handle_t *)&a->poll, on_closed);
}
