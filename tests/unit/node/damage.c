/* damage.c: see damage.h. A file of its own, since the machine and the nodes both have a struct
 * node. */
#include "damage.h"

#include "machine/state.h"

void damage_state(struct machine *m)
{
    m->totals.grants++;
}

void repair_state(struct machine *m)
{
    m->totals.grants--;
}
