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

/* Settings that an operator makes for all nodes at once. 0: each node's own option applies. The
 * machine only keeps them; the nodes read them. */
struct machine_settings {
    uint32_t election_ms, heartbeat_ms, hold_ms;
    uint32_t log_level; /* 1 error, 2 warning, 3 info, 4 debug */
};

/* Least and largest value of each setting, in the order of enum machine_setting. */
#define MACHINE_SETTINGS 4u
#define MACHINE_SETTING_BOUNDS                                                                     \
    {                                                                                              \
        {20, 60000}, {5, 30000}, {1, 600000}, {1, 4},                                              \
    }
#define MACHINE_HEARTBEATS_MIN 3u /* in one election time */

#define MACHINE_LIMITS_SETTABLE 5u /* the first five of enum machine_limit: those above */
#define MACHINE_NODES_MAX 9u       /* members whose incarnation is remembered */
#define MACHINE_NODE_ADDRESS_MAX 263u
#define MACHINE_COMMAND_MAX 8192u      /* encoded bytes of one command, except USERS_LOAD */
#define MACHINE_COMMAND_LARGEST 51200u /* of USERS_LOAD, which carries all users, and of KEYS */
/* Encoded bytes of one batch; what a decoder accepts. */
#define MACHINE_BATCH_MAX (UINT32_C(4) << 20)
#define MACHINE_BATCH_COMMANDS_MAX 65536u /* commands in one batch */

/* The most that one batch may cost, in steps. A step is one edge followed in a search for cycles,
 * or a tenth of the cost to make, change or end one record (a grant, a wait, a session). What does
 * not fit goes on in the next batch, see work.c. These numbers decide what a log means: a change of
 * one needs a new MACHINE_BATCH_FORMAT. */
#define MACHINE_STEPS_RECORD 10u
#define MACHINE_BATCH_DUE_STEPS 6000u /* for expiries, and work left by earlier batches */
#define MACHINE_EXPIRIES_MAX 300u     /* leases that a leader gives up in one batch, a step each */
#define MACHINE_BATCH_COMMAND_STEPS 6000u /* for work that the batch's commands cause */
#define MACHINE_BATCH_COST_MAX 10000u /* sum of machine_command_cost(); the leader keeps to it */
#define MACHINE_LIST_COST 5000u       /* of what visits many records: LOCKS, all users */
#define MACHINE_KEYS_COST (MACHINE_STEPS_RECORD * (2 + MACHINE_KEYS_MAX)) /* an owner for each */
#define MACHINE_SHOW_COST 250u         /* of SHOW, SESSION SHOW or one user: up to 64 KiB */
#define MACHINE_WORD_BYTE_COST 2u      /* of each byte of the words that change a user */
#define MACHINE_SEARCH_STEPS_MAX 1000u /* of one search for cycles */
#define MACHINE_SEARCH_STEPS_MIN 50u   /* which every search has */
/* How long a session's searches get only the minimum, after one of them took the maximum. */
#define MACHINE_SEARCH_PAUSE_MS 1000u

/* The cluster clock in ms stays below 2^48 (8 900 years), so that no sum of a clock and a
 * duration overflows and a clock fits beside other fields; a batch with a larger timestamp is
 * corrupt. */
#define MACHINE_CLOCK_MAX_MS ((UINT64_C(1) << 48) - 1)
#define MACHINE_NAMES_MAX 16u /* names an ACQUIRE may carry */
#define MACHINE_KEYS_MAX 120u /* keys of a KEYS that has an owner for each */

/* Serial numbers and counts of repetitions grow by one at a time, so none ever comes near this. A
 * snapshot with a larger one was made up, and would end with an overflow. */
#define MACHINE_NUMBER_MAX (UINT64_MAX / 2)
#define MACHINE_LOGIN_MAX (UINT32_MAX / 2) /* the same for a user's number of its login */

/* Outcomes of requests that may come again, see outcomes.h: an attempt at an ACQUIRE, and a release
 * of a key. Newer ones may push an outcome out before its time is over. */
#define MACHINE_OUTCOMES_MAX 65536u
#define MACHINE_ATTEMPT_MAX FL_TOKEN_MAX
#define MACHINE_ATTEMPT_KEEP_MS 3600000u
#define MACHINE_LEAVE_KEEP_MS 60000u /* at most */
#define MACHINE_RELEASED_MS UINT64_C(5000)
#define MACHINE_HOLD_COUNT_MAX 65535u

/* The bytes of all users' records in a snapshot, so that one answer can hold them. A user with one
 * password and two short patterns takes about a hundred. */
#define MACHINE_USERS_BYTES_MAX 49152u
#define MACHINE_USERS_MAX 2048u /* users besides the default one */

#define MACHINE_COMMAND_COST_MAX                                                                   \
    (MACHINE_STEPS_RECORD * (1 + MACHINE_NAMES_MAX) + MACHINE_SEARCH_STEPS_MIN)
/* By how much the last piece of work may exceed the steps that are left: one grant, or one wait. */
#define MACHINE_STEPS_OVER_MAX (MACHINE_STEPS_RECORD * (1 + 2 * MACHINE_NAMES_MAX))
#define MACHINE_APPLY_STEPS_MAX                                                                    \
    (MACHINE_BATCH_DUE_STEPS + MACHINE_BATCH_COMMAND_STEPS + MACHINE_BATCH_COST_MAX +              \
     MACHINE_EXPIRIES_MAX + 2 * MACHINE_STEPS_OVER_MAX)

/* RAISE lifts the counter of tokens, for a restore. Nobody can undo a lift that went too far. So
 * one entry lifts it by a trillion at most, and none beyond a point above which tokens are left for
 * a hundred years at a million a second. */
#define MACHINE_RAISE_STEP_MAX (UINT64_C(1) << 40)
#define MACHINE_TOKENS_KEPT (UINT64_C(100) * 366 * 86400 * 1000000)
#define MACHINE_RAISE_TO_MAX (FL_TOKEN_MAX - MACHINE_TOKENS_KEPT)

/* One answer of LOCKS, SESSION LIST or SHOW. */
#define MACHINE_PAGE_COUNT_MAX 1000u               /* records */
#define MACHINE_PAGE_COUNT_DEFAULT 100u            /* when the query says 0 */
#define MACHINE_PAGE_SCAN_MAX 10000u               /* elements looked at */
#define MACHINE_SHOW_SCAN_MAX 1000u                /* holders looked at by SHOW */
#define MACHINE_PAGE_MATCH_MAX UINT32_C(2000000)   /* steps of pattern matching */
#define MACHINE_PAGE_SIZE_MAX (UINT32_C(64) << 10) /* bytes */

_Static_assert(1 + 1 + 2 + MACHINE_NAMES_MAX * (1 + FL_NAME_MAX) + FL_OWNER_MAX + FL_LABEL_MAX +
                       FL_VALUE_MAX + 64 <
                   MACHINE_COMMAND_MAX,
               "the largest command fits");
_Static_assert(MACHINE_USERS_BYTES_MAX + 64 < MACHINE_COMMAND_LARGEST &&
                   MACHINE_COMMAND_LARGEST <= UINT16_MAX,
               "and so do all users");
_Static_assert(MACHINE_BATCH_COST_MAX >= 40 * MACHINE_COMMAND_COST_MAX &&
                   MACHINE_SEARCH_STEPS_MIN <= MACHINE_SEARCH_STEPS_MAX &&
                   MACHINE_SEARCH_STEPS_MAX <= MACHINE_BATCH_COMMAND_STEPS &&
                   MACHINE_BATCH_COST_MAX >= 8 * MACHINE_KEYS_COST &&
                   MACHINE_BATCH_DUE_STEPS > MACHINE_STEPS_OVER_MAX,
               "a batch has room for the largest commands, and each ends something that is due");
_Static_assert(MACHINE_APPLY_STEPS_MAX <= 23000, "what docs/COMMANDS.md and adr 27 promise");

#endif
