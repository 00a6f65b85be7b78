/* proposer.h: group commit on the leader: commands become batches, batches become log entries, and
 * every command gets exactly one answer.
 *
 * No libuv here: time comes in as an argument. The proposer takes commands out of the queue
 * (commands.h) when it can send a batch. It owns the cluster clock of a term (clock.h) and takes
 * results directly from the apply (fsm.h). A command is answered right after it is applied, before
 * the next one is, so that an event never precedes the answer that announces it.
 *
 *   closed --(raft leads)--> barrier due --(sent)--> barrier --(applied)--> open
 *      ^------------------------(leadership lost)-----------------------------/
 *
 * When leadership is lost, what was proposed is answered FL_EUNCERTAIN. What only reads, or was not
 * proposed, is put back.
 *
 * The replica is called from proposer_turn() only, never from within one of its callbacks.
 * Callbacks of tickets may call commands_add(), nothing else here. One thread. */
#ifndef COMMANDS_PROPOSER_H
#define COMMANDS_PROPOSER_H

#include "commands/clock.h"
#include "commands/commands.h"
#include "consensus/fsm.h"
#include "consensus/replica.h"
#include "machine/batch.h"

#define PROPOSER_IN_FLIGHT_DEFAULT 4u
#define PROPOSER_BATCH_DEFAULT ((size_t)256 << 10)
#define PROPOSER_RETRY_MS 20u /* after the replica refused a batch */

struct proposer_config {
    struct fsm *fsm; /* the proposer becomes its observer */
    struct commands *queue;
    unsigned in_flight_max; /* entries in flight; 0: default */
    size_t batch_max;       /* bytes of one batch; 0: default; at most MACHINE_BATCH_MAX */
    struct fli_turn *turn;  /* may be NULL */
};

/* The commands that become one log entry, and those that are answered with it. They stay in the
 * queue until they are answered, and their bytes stay with them. */
struct batch {
    struct fli_list commands; /* those that need no entry have a place among the others */
    size_t len;               /* of the header and the commands of the entry */
    size_t read_bytes;        /* of commands that need no entry */
    uint32_t count;           /* commands of the entry */
    uint32_t reads;           /* commands that need none */
    uint32_t cost;            /* of all, machine_command_cost_now() */
    uint32_t expiries;        /* the leader's own EXPIRE, behind the commands of the entry */
    uint64_t sequence;        /* in the term, once it is proposed; 0: it is no entry */
    uint64_t round;           /* that confirms it, if it is no entry */
    uint64_t timestamp_ms;
    uint64_t began_ns, proposed_ns; /* for metrics only: when the first command came */
};

enum proposer_state {
    PROPOSER_CLOSED,
    PROPOSER_BARRIER_DUE, /* it leads, and the replica has not taken the barrier */
    PROPOSER_BARRIER,
    PROPOSER_OPEN
};

struct proposer {
    struct proposer_config config;
    struct replica *replica;               /* set by the owner, before the first turn */
    struct metrics_histogram commit_times; /* from proposing an entry to applying it */
    struct proposer_stats {
        uint64_t batches, commands, queries, bytes; /* proposed since start; queries: answered */
    } stats;
    /* Private from here on. */
    enum proposer_state state;
    bool marked;       /* the first batch of the term was applied: leases have its deadlines */
    uint64_t term;     /* of leadership, unless closed */
    uint64_t sequence; /* of the last batch proposed in the term; 0: the mark is due */
    uint64_t retry_at_ms;
    struct cluster_clock clock;
    unsigned classes; /* of commands that may be proposed */
    /* A ring: those that were proposed, the oldest first, then the open one. */
    struct batch *batches;
    unsigned first, proposed;
    const struct batch *applying; /* the oldest; NULL unless it is being applied */
    uint8_t *entry;               /* the bytes of the batch that is proposed; the log copies them */
    struct fli_buf expired;       /* the bytes of the open batch's EXPIREs */
    struct fli_buf payload, filled;
};

/* 0 or FL_ENOMEM. */
int proposer_init(struct proposer *p, const struct proposer_config *config) FLI_MUST_USE;
/* It is closed, or all zeros. */
void proposer_fini(struct proposer *p);

/* Whether commands are proposed: the barrier of this term was applied. */
static inline bool proposer_is_open(const struct proposer *p)
{
    return p->state == PROPOSER_OPEN;
}

/* Whether commands that are bound to this leader may come: they are proposed once it is open, or
 * end with FL_ENOLEADER. */
static inline bool proposer_leads(const struct proposer *p)
{
    return p->state != PROPOSER_CLOSED;
}

/* Runs once per turn of the loop, after the sockets were read: notices changes of leadership,
 * advances the cluster clock, and proposes commands of these classes. */
void proposer_turn(struct proposer *p, unsigned classes, uint64_t now_ms);

/* Milliseconds until proposer_turn() must run even if nothing else happens (an expiry, a clock
 * tick, a batch to propose); UINT64_MAX for never. */
uint64_t proposer_next_turn_ms(const struct proposer *p, uint64_t now_ms);

/* Puts everything back, or answers it FL_EUNCERTAIN, at once; for stopping. No turn may follow. */
void proposer_close(struct proposer *p);

/* The cluster clock of the moment, if this node leads; else as its machine knows it. */
uint64_t proposer_clock_ms(const struct proposer *p);

unsigned proposer_in_flight(const struct proposer *p); /* entries */
/* While a batch of this node is applied: when its first command came (fli_clock_ns()). Else, and
 * while expiry runs before its commands, 0. */
uint64_t proposer_applying_since_ns(const struct proposer *p);

#endif
