/* device.c: see device.h. */
#include "log/device.h"

#include <errno.h>
#include <poll.h>

bool log_device_wait(struct log_device *d, int timeout_ms)
{
    struct pollfd fds[LOG_DEVICE_FDS];
    bool any = false;
    for (unsigned i = 0; i < LOG_DEVICE_FDS; i++) {
        fds[i] = (struct pollfd){.fd = log_device_fd(d, i), .events = POLLIN};
        any = any || fds[i].fd >= 0;
    }
    int n = 1;
    if (any) {
        do {
            n = poll(fds, LOG_DEVICE_FDS, timeout_ms);
        } while (n < 0 && errno == EINTR);
    }
    log_device_poll(d);
    return n > 0;
}
