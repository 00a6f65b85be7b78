/* device_uring.h: one io_uring that has at most one write in it. The only user of liburing. */
#ifndef LOG_DEVICE_URING_H
#define LOG_DEVICE_URING_H

#include <liburing.h>

#include "base/base.h"

struct log_uring {
    struct io_uring ring; /* its descriptor is readable when a write is done */
    bool busy;
};

/* 0, or a negative errno: the kernel, or the environment, does not allow it. Only the thread that
 * calls this may use it. io_uring_queue_exit() ends it. */
FLI_MUST_USE int log_uring_init(struct log_uring *u);

/* Begins a durable write. 0 or a negative errno. */
FLI_MUST_USE int log_uring_write(struct log_uring *u, int fd, const void *data, size_t len,
                                 uint64_t offset);

/* Whether a write is done; *ret_result: bytes written, or a negative errno. */
bool log_uring_reap(struct log_uring *u, int *ret_result);

#endif
