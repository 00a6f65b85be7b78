/* fsm.h: the raft_fsm around the machine: apply, snapshot, restore.
 *
 * Each applied entry goes to the machine command by command. When the proposer recognises the batch
 * as its own (same term and sequence) it is asked between the commands to answer tickets and
 * queries. An entry that cannot be applied (corrupt, unknown version) is fatal: the node halts
 * rather than diverge. */
#ifndef CONSENSUS_FSM_H
#define CONSENSUS_FSM_H

#include <raft.h>

#include "machine/machine.h"

struct fsm;

/* Leader's hook: called around every batch that is applied on this node. */
struct fsm_observer {
    void *ctx;
    bool (*batch_begin)(
        void *ctx, const struct machine_batch_header *h); /* true: it is ours, call the others */
    void (*command_done)(
        void *ctx, uint32_t index,
        const struct machine_result *result); /* after command `index` of the batch */
    void (*batch_end)(void *ctx);
};

struct fsm_config {
    machine_event_cb event;
    void *event_ctx;
    void (*fatal)(void *ctx, int error, const char *message);
    void (*restored)(void *ctx); /* a snapshot replaced the machine */
    void *ctx;
};

int fsm_create(const struct fsm_config *config, struct fsm **ret) FLI_MUST_USE;
void fsm_destroy(struct fsm *f);
struct raft_fsm *fsm_raft(struct fsm *f);   /* to give to raft_init */
struct machine *fsm_machine(struct fsm *f); /* the pointer changes when a snapshot is restored */
void fsm_set_observer(struct fsm *f, const struct fsm_observer *o);

struct fsm_stats {
    uint64_t entries, bytes_since_snapshot, snapshots, snapshot_last_bytes, snapshot_last_ns,
        restores;
};
void fsm_get_stats(const struct fsm *f, struct fsm_stats *ret);

#endif
