/* proposer.h: group commit on the leader: commands become batches, batches become log entries, and
 * every command gets exactly one answer.
 *
 * No libuv here: time comes in as an argument. The proposer takes commands out of the queue
 * (commands.h) when it can send a batch. It owns the cluster clock of a term (clock.h) and takes
 * results directly from the apply (fsm.h). A command is answered right after it is applied, before
 * the next one is, so that an event never precedes the answer that announces it.
 *
 *   closed --(raft leads)--> barrier --(barrier of the term applied)--> open
 *      ^------------------------(leadership lost)------------------------/
 *
 * When leadership is lost, what was proposed is answered FL_EUNCERTAIN. What only reads, or was not
 * proposed, is put back.
 *
 * The replica is called from proposer_turn() only, never from within one of its callbacks.
 * Callbacks of tickets may call commands_add() and proposer_close(), nothing else here. One
 * thread. */
#ifndef COMMANDS_PROPOSER_H
#define COMMANDS_PROPOSER_H

#include "commands/commands.h"
#include "consensus/fsm.h"
#include "consensus/replica.h"

#define PROPOSER_IN_FLIGHT_DEFAULT 4u
#define PROPOSER_BATCH_DEFAULT ((size_t)256 << 10)
#define PROPOSER_RETRY_MS 20u /* after the replica refused a batch */

struct proposer;

struct proposer_config {
    struct fsm *fsm; /* the proposer becomes its observer */
    struct commands *queue;
    unsigned in_flight_max; /* entries in flight; 0: default */
    size_t batch_max;       /* bytes of one batch; 0: default; at most MACHINE_BATCH_MAX */
    struct fli_turn *turn;  /* may be NULL */
};

int proposer_create(const struct proposer_config *config, struct proposer **ret) FLI_MUST_USE;
/* Sets the replica to which it proposes: once, before the first turn. */
void proposer_set_replica(struct proposer *p, struct replica *r);

/* It is closed. NULL is fine. */
void proposer_destroy(struct proposer *p);

/* Whether commands are proposed: the barrier of this term was applied. */
bool proposer_is_open(const struct proposer *p);
/* Whether commands that are bound to this leader may come: they are proposed once it is open, or
 * end with FL_ENOLEADER. */
bool proposer_leads(const struct proposer *p);

/* Runs once per turn of the loop, after the sockets were read: notices changes of leadership,
 * advances the cluster clock, and proposes commands of these classes. */
void proposer_turn(struct proposer *p, unsigned classes, uint64_t now_ms);

/* Milliseconds until proposer_turn() must run even if nothing else happens (an expiry, a clock
 * tick, a batch to propose); UINT64_MAX for never. */
uint64_t proposer_next_turn_ms(const struct proposer *p, uint64_t now_ms);

/* Puts everything back, or answers it FL_EUNCERTAIN, at once; for stopping. Afterwards nothing is
 * proposed. */
void proposer_close(struct proposer *p);

/* The cluster clock of the moment, if this node leads; else as its machine knows it. */
uint64_t proposer_clock_ms(const struct proposer *p);

struct proposer_stats {
    uint64_t batches, commands, queries, bytes; /* proposed since start; queries: answered */
    uint64_t in_flight;                         /* now */
};
void proposer_get_stats(const struct proposer *p, struct proposer_stats *ret);

/* Times from proposing an entry of this node to applying it. */
const struct metrics_histogram *proposer_commit_times(const struct proposer *p);
/* While a batch of this node is applied: when its first command came (fli_clock_ns()). Else, and
 * while expiry runs before its commands, 0. */
uint64_t proposer_applying_since_ns(const struct proposer *p);

#endif
