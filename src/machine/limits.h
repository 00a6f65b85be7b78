/* limits.h: every capacity of the machine. The ones in struct machine_limits are replicated state:
 * they travel in the log and in snapshots, because replicas with different capacities would answer
 * differently and so diverge. */
#ifndef MACHINE_LIMITS_H
#define MACHINE_LIMITS_H

#include "base/base.h"

struct machine_limits {
    uint32_t locks_max;         /* locks held, awaited or delayed */
    uint32_t sessions_max;      /* explicit and implicit together */
    uint32_t waits_max;         /* waits in all queues */
    uint32_t lock_waits_max;    /* waits in one lock's queue */
    uint32_t session_locks_max; /* locks one explicit session holds or awaits */
};

#define MACHINE_LIMITS_DEFAULT                                                                     \
    ((struct machine_limits){.locks_max = 2000000,                                                 \
                             .sessions_max = 2000000,                                              \
                             .waits_max = 200000,                                                  \
                             .lock_waits_max = 20000,                                              \
                             .session_locks_max = 100000})

#define MACHINE_NODES_MAX 9u      /* members whose incarnation is remembered */
#define MACHINE_COMMAND_MAX 4096u /* encoded bytes of one command */
#define MACHINE_BATCH_MAX                                                                          \
    (UINT32_C(4) << 20)                   /* encoded bytes of one batch; what a decoder accepts */
#define MACHINE_BATCH_COMMANDS_MAX 65536u /* commands in one batch */
#define MACHINE_DEADLOCK_VISITS_MAX                                                                \
    100000u /* edges the deadlock search may follow before it refuses to wait */

_Static_assert(1 + 1 + 2 + FL_NAME_MAX + FL_OWNER_MAX + FL_LABEL_MAX + FL_VALUE_MAX + 64 <
                   MACHINE_COMMAND_MAX,
               "the largest command fits");

#endif
