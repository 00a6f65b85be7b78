/* give_up.h: what a leader adds to a batch: the end of each lease that is due at its timestamp. */
#ifndef TEST_GIVE_UP_H
#define TEST_GIVE_UP_H

#include <stdlib.h>

#include "machine/machine.h"

/* Appends up to `most` of them, and returns how many. */
static inline uint32_t give_up_leases(struct machine *m, uint64_t clock_ms, struct fli_buf *batch,
                                      uint32_t most)
{
    struct machine_command c;
    uint32_t n = 0;
    while (n < most && !machine_mark_waits(m) && machine_lease_give_up(m, clock_ms, &c)) {
        if (machine_command_encode(&c, batch) != 0) {
            abort();
        }
        n++;
    }
    return n;
}

#endif
