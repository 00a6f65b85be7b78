/* tools.h: the uses of runs besides plain running, for main.c. */
#ifndef SIM_TOOLS_H
#define SIM_TOOLS_H

#include "sim.h"

struct plan {
    const char *program;
    uint64_t from, seeds, seconds, operations;
    bool minimize, sabotaged, verbose, part;
    uint64_t scenarios; /* seeds of each scenario; 0: not asked for */
    uint64_t every;     /* of the points of scenes at which the power goes; 0: not asked for */
    struct sim_orders orders;
    uint8_t without[SIM_FAULTS_MAX];
    unsigned faults; /* of the seed that ran last */
};

/* main.c */
const char *tools_sabotage_name(enum sim_sabotage k);
size_t tools_list_print(const uint8_t *without, unsigned n, char *out, size_t size);
void tools_replay(const struct plan *p, uint64_t seed, char *out, size_t size);

/* tools.c */
int tools_minimize(struct plan *p);
int tools_sabotaged(struct plan *p);

#endif
