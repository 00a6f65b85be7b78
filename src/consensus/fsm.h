/* fsm.h: the raft_fsm around the machine: apply, snapshot, restore.
 *
 * Each applied entry goes to the machine command by command. When the proposer recognises the batch
 * as its own (same term and sequence; raft copies the bytes, so their address tells nothing) it is
 * asked between the commands to answer tickets and queries. An entry that cannot be applied
 * (corrupt, unknown version) is fatal: the node halts rather than diverge, and no entry after it is
 * applied.
 *
 * Ownership. The fsm owns the machine, and the bytes of a snapshot until raft has written it,
 * unless an imager made them. The buffer of a snapshot to restore is raft's until the restore has
 * succeeded, then freed here. */
#ifndef CONSENSUS_FSM_H
#define CONSENSUS_FSM_H

#include <raft.h>

#include "machine/machine.h"

struct fsm;

/* Leader's hook: called around every batch that is applied on this node. */
struct fsm_observer {
    void *ctx;
    /* The clock has moved and what was due has expired; no command is applied yet. True: it is
     * ours, call the others. */
    bool (*batch_begin)(void *ctx, const struct machine_batch_header *h);
    /* After command `index` of the batch and before the next one. */
    void (*command_done)(void *ctx, uint32_t index, const struct machine_result *result);
    void (*batch_end)(void *ctx);
};

/* Who encodes snapshots somewhere else, while this thread goes on. */
struct fsm_imager {
    void *ctx;
    /* True: fsm_image_ready() comes later. False: it is encoded here and now. */
    bool (*begin)(void *ctx, const struct machine *m);
    void (*end)(void *ctx); /* raft needs the bytes no more, or never will */
};

struct fsm_config {
    struct fsm_imager imager; /* begin may be NULL */
    machine_event_cb event;
    void *event_ctx;
    void (*fatal)(void *ctx, int error, const char *message); /* at most once */
    void (*restored)(void *ctx);                              /* a snapshot replaced the machine */
    void *ctx;
};

int fsm_create(const struct fsm_config *config, struct fsm **ret) FLI_MUST_USE;
void fsm_destroy(struct fsm *f);            /* after raft has closed; NULL is fine */
struct raft_fsm *fsm_raft(struct fsm *f);   /* to give to raft_init */
struct machine *fsm_machine(struct fsm *f); /* the pointer changes when a snapshot is restored */
/* The bytes of the snapshot that the imager began; they must stay until its end. */
void fsm_image_ready(struct fsm *f, struct fli_slice bytes);
void fsm_set_observer(struct fsm *f, const struct fsm_observer *o); /* copied; NULL for none */

struct fsm_stats {
    uint64_t entries;              /* batches applied since start */
    uint64_t bytes_since_snapshot; /* of entries applied since the last snapshot was taken */
    uint64_t snapshots, snapshot_last_bytes,
        snapshot_last_ns; /* taken; the time is of encoding, wherever */
    uint64_t restores;
};
void fsm_get_stats(const struct fsm *f, struct fsm_stats *ret);

#endif
