/* link_wait.h: a connection (src/link) for programs that have nothing else to do: they wait for it,
 * until a time on the clock of fli_clock_ms(). */
#ifndef TESTS_LINK_WAIT_H
#define TESTS_LINK_WAIT_H

#include <poll.h>

#include "base/clock.h"
#include "client/place.h"

#define LINK_POLL_MS 20 /* another socket may be due, beside the one that is waited for */

/* False: the time is over. */
static inline bool link_wait(const struct fli_link *l, short events, uint64_t until_ms)
{
    struct pollfd p = {.fd = l->fd, .events = events};
    uint64_t now_ms = fli_clock_ms();
    uint64_t left_ms = until_ms > now_ms ? until_ms - now_ms : 0;
    (void)poll(&p, 1, left_ms < LINK_POLL_MS ? (int)left_ms : LINK_POLL_MS);
    return left_ms > 0;
}

/* 0, or the code of the last address; then the link is closed. */
static inline int link_open(struct fli_link *l, struct fli_link_security *security,
                            const struct fli_node *node, uint64_t until_ms)
{
    struct fli_place place = {.node = *node};
    fli_place_resolve(&place, false);
    int rc;
    do {
        rc = fli_place_connect(&place, l, security) ? fli_link_finish(l) : FL_ENOCONN;
        while (rc == FL_EBUSY && link_wait(l, l->wants_read ? POLLIN : POLLOUT, until_ms)) {
            rc = fli_link_finish(l);
        }
        if (rc != 0) {
            fli_link_close(l);
        }
    } while (rc != 0 && ++place.turn < place.n);
    return rc == FL_EBUSY ? FL_ENOCONN : rc;
}

static inline int link_send(struct fli_link *l, const void *data, size_t len, uint64_t until_ms)
{
    size_t at = 0;
    int rc;
    while ((rc = fli_link_push(l, data, len, &at)) == FL_EBUSY && link_wait(l, POLLOUT, until_ms)) {
    }
    return rc;
}

#endif
