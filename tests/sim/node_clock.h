/* node_clock.h: the clock of a node, fli_clock_ms(), beside that of its loop.
 *
 * The machines of the simulation were suspended: libuv's clock stood still, and that of the node
 * did not. Whatever compares the one with the other is a day off. */
#ifndef SIM_NODE_CLOCK_H
#define SIM_NODE_CLOCK_H

#include "sim.h"

#define SIM_SUSPENDED_MS 86400000u

uint64_t sim_node_ms(const struct sim_node *n);

#endif
