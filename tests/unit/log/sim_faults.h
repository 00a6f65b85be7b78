/* sim_faults.h: which calls of the simulated disk fail. */
#ifndef TEST_SIM_FAULTS_H
#define TEST_SIM_FAULTS_H

#include "sim_device.h"

struct fault {
    uint64_t calls;
    uint64_t from, to; /* calls that fail: from <= number < to */
    int error;
};

struct faults {
    struct fault of[SIM_CALLS];
    uint64_t tick; /* calls of any kind up to the one that fails; 0: none does */
    int tick_error;
};

/* Counts a call; its error, or 0. */
static int count_call(struct faults *all, enum sim_call call)
{
    struct fault *f = &all->of[call];
    uint64_t n = f->calls++;
    if (all->tick > 0 && --all->tick == 0) {
        return all->tick_error;
    }
    return n >= f->from && n < f->to ? f->error : 0;
}

#endif
