/* version.c: the versions that this build knows. The cluster's version is the lowest of its nodes'
 * versions. It is raised once all of them know a higher one (nodes.c). From then on, batches and
 * snapshots have its format:
 *
 *   version 1   batch format 1, snapshot format SNAPSHOT_FORMAT
 *   version 2   batch format 2, snapshot format SNAPSHOT_FORMAT + 1; the same bytes otherwise.
 *               There is no such version yet: it is what a test upgrades to, and comes with the
 *               build option format_next.
 *
 * This is a file of its own so that a program can be linked with another one. */
#include "machine/machine.h"

uint32_t machine_version_max(void)
{
#ifdef FENCELOCK_FORMAT_NEXT
    return 2;
#else
    return 1;
#endif
}
