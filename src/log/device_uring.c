/* device_uring.c: durable writes through io_uring.
 *
 * A completion is posted at this thread's next system call, so it does not interrupt the thread's
 * work (IORING_SETUP_COOP_TASKRUN). The ring's own descriptor reports it; an eventfd would have to
 * be read each time. IORING_SETUP_DEFER_TASKRUN does not fit: polling the descriptor of such a ring
 * does not wake the poller.
 *
 * The ring lives as long as the device: closing one waits for the kernel, up to tens of
 * milliseconds in some versions. A child after fork() does not inherit it. */
#include "log/device_uring.h"

#include <errno.h>
#include <sys/uio.h>

#define TRIES 1000u
#define RING_ENTRIES 4u

int log_uring_init(struct log_uring *u)
{
    int rv = io_uring_queue_init(RING_ENTRIES, &u->ring, IORING_SETUP_COOP_TASKRUN);
    if (rv == -EINVAL) { /* kernels before 5.19 do not know the flag */
        rv = io_uring_queue_init(RING_ENTRIES, &u->ring, 0);
    }
    if (rv != 0) {
        return rv;
    }
    rv = io_uring_ring_dontfork(&u->ring);
    if (rv != 0) {
        io_uring_queue_exit(&u->ring);
    }
    return rv;
}

int log_uring_write(struct log_uring *u, int fd, const void *data, size_t len, uint64_t offset)
{
    FLI_ASSERT(!u->busy && len <= INT32_MAX);
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    FLI_ASSERT(sqe != NULL);
    io_uring_prep_write(sqe, fd, data, (unsigned)len, offset);
    sqe->rw_flags = RWF_DSYNC;
    /* EAGAIN: the kernel has no memory for it at the moment. After any other error nothing more may
     * be submitted, since the failed write would be submitted with it. */
    int rv = -EAGAIN;
    for (unsigned n = 0; n < TRIES && (rv == -EINTR || rv == -EAGAIN); n++) {
        rv = io_uring_submit(&u->ring);
    }
    u->busy = rv == 1;
    return rv == 1 ? 0 : rv < 0 ? rv : -EIO;
}

bool log_uring_reap(struct log_uring *u, int *ret_result)
{
    struct io_uring_cqe *cqe = NULL;
    if (!u->busy || io_uring_peek_cqe(&u->ring, &cqe) != 0) {
        return false;
    }
    *ret_result = cqe->res;
    io_uring_cqe_seen(&u->ring, cqe);
    u->busy = false;
    return true;
}
