/* budget.h (private to machine): what one batch may cost. Replicas must agree on it, since what
 * does not fit goes on in the next batch; only tests set another one. */
#ifndef MACHINE_BUDGET_H
#define MACHINE_BUDGET_H

#include "machine/machine.h"

struct budget {
    uint32_t due;        /* steps for what is due, and for what earlier batches left */
    uint32_t commands;   /* steps for what the commands of the batch set going */
    uint32_t search_min; /* steps a search for cycles has in any case */
    uint32_t search_max; /* and with what is left for the commands */
};

void machine_set_budget(struct machine *m, const struct budget *budget);

/* As if so many tokens had been issued already. No command can do that (MACHINE_RAISE_TO_MAX). */
void machine_set_last_token(struct machine *m, fl_token token);

/* Steps that the last batch took, those of its commands included. */
uint64_t machine_spent(const struct machine *m);

#endif
