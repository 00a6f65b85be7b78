/* damage.h: a fault of the memory. */
#ifndef TEST_NODE_DAMAGE_H
#define TEST_NODE_DAMAGE_H

#include "machine/machine.h"

/* What the machine answers stays right, and its state is another. */
void damage_state(struct machine *m);
void repair_state(struct machine *m); /* as before that */

#endif
