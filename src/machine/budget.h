/* budget.h (private to machine): the most that one batch may cost. The budget must be equal on all
 * replicas, since it decides which work is left for the next batch; only tests set another one. */
#ifndef MACHINE_BUDGET_H
#define MACHINE_BUDGET_H

#include "machine/machine.h"

struct budget {
    uint32_t due;        /* steps for expiries, and for work left by earlier batches */
    uint32_t commands;   /* steps for work that the commands of the batch cause */
    uint32_t search_min; /* steps that every search for cycles has */
    uint32_t search_max; /* the most it may use while the commands have steps left */
};

void machine_set_budget(struct machine *m, const struct budget *budget);

/* Sets the last token directly, which no command can do (MACHINE_RAISE_TO_MAX). */
void machine_set_last_token(struct machine *m, fl_token token);

#endif
