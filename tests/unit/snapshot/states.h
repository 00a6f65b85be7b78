/* states.h: machines with many locks, for the tests of snapshots. */
#ifndef TEST_SNAPSHOT_STATES_H
#define TEST_SNAPSHOT_STATES_H

#include "machine/machine.h"

/* Locks 0 to n - 1, each with the longest value. */
struct machine *states_make(unsigned n);
struct machine *states_make_cluster(uint64_t id, unsigned n);   /* likewise, of a formed cluster */
void states_add(struct machine *m, unsigned from, unsigned to); /* more of them */

#endif
