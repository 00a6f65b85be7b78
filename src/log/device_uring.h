/* device_uring.h: one io_uring that has at most one write in it. The only user of liburing. */
#ifndef LOG_DEVICE_URING_H
#define LOG_DEVICE_URING_H

#include "base/base.h"

struct log_uring;

/* event_fd becomes readable when a write is done. 0, or a negative errno: the kernel, or who runs
 * us, does not allow it. */
FLI_MUST_USE int log_uring_create(int event_fd, struct log_uring **ret);
void log_uring_destroy(struct log_uring *u);

/* Begins a durable write. 0 or a negative errno. */
FLI_MUST_USE int log_uring_write(struct log_uring *u, int fd, const void *data, size_t len,
                                 uint64_t offset);

/* Whether one is done; *ret_result: bytes written or a negative errno. */
bool log_uring_reap(struct log_uring *u, int *ret_result);

#endif
