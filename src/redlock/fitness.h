/* fitness.h: decides whether servers are fit for Redlock, by what they tell of themselves. Pure. */
#ifndef FLI_REDLOCK_FITNESS_H
#define FLI_REDLOCK_FITNESS_H

#include "redlock/answer.h"

struct fli_fitness_rules {
    bool eviction_allowed;
    bool restarts_are_safe;
};

/* Writes all findings about n servers. True: none of them forbids to use the servers. */
bool fli_fitness(const struct fli_facts *facts, uint32_t n, const struct fli_fitness_rules *rules,
                 struct fl_redlock_check_report *ret);

#endif
