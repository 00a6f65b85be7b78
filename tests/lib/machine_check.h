/* machine_check.h: checks every invariant of a machine, as listed at the top of machine_check.c;
 * aborts with a message when one is broken. O(n log n). */
#ifndef TEST_MACHINE_CHECK_H
#define TEST_MACHINE_CHECK_H

#include "machine/machine.h"
#include "machine/order.h"

void machine_check(struct machine *m);

/* Aborts when the parts do not describe the list. */
void machine_order_check(const struct order *o);

#endif
