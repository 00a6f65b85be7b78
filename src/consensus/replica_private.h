/* replica_private.h: shared by replica*.c; nobody else includes it. */
#ifndef CONSENSUS_REPLICA_PRIVATE_H
#define CONSENSUS_REPLICA_PRIVATE_H

#include "consensus/changes.h"
#include "consensus/replica.h"

#define REPLICA_HELD_MAX 64u                 /* messages that wait for the hard state */
#define REPLICA_READ_BYTES ((size_t)4 << 20) /* of entries read in one go */
#define REPLICA_READ_ENTRIES 64u

/* The core's kinds of entries are stored in the log as they are. */
_Static_assert(RAFT_COMMAND == 1 && RAFT_BARRIER == 2 && RAFT_CHANGE == 3, "kinds are on disk");

struct replica {
    struct replica_config config;
    struct raft raft;
    struct raft_edge edge;
    struct log *log;
    bool failed;
    uint64_t now_ms;
    uint64_t applied;
    uint64_t stored;             /* entries up to this were reported to the core as persisted */
    uint64_t reported_committed; /* configurations up to this were reported to the core as
                                committed */
    uint64_t snapshot_index, snapshot_term;
    uint64_t hard_state_at; /* position of the last change of term and vote */
    uint64_t install_at;    /* position of the log's reset to a snapshot; 0: none under way */
    struct snapshot_meta installing;
    bool applying;
    uint64_t applied_steps; /* in this turn, as the machine counts them */
    uint64_t transferee;    /* gets leadership once it has all entries; 0: nobody */
    uint64_t transferee_until_ms;
    struct changes changes;
    struct raft_message held[REPLICA_HELD_MAX];
    unsigned held_n;
    uint64_t held_term;
    struct raft_entry entries[MESSAGE_ENTRIES_MAX];  /* of the event in progress */
    struct fli_slice as_stored[MESSAGE_ENTRIES_MAX]; /* their bytes as the log stores them */
    struct message_body body;
};

/* Gives the event to the core and carries out its result. */
void replica_step(struct replica *r, struct raft_event *event);

/* For raft_edge.changes_committed. ctx: the replica. */
uint64_t replica_changes_committed(void *ctx, uint64_t before);

bool replica_snapshot_is_sound(const struct snapshot_meta *meta);

/* Writes term and vote to the log. Messages that depend on them leave once they are on disk. */
void replica_set_hard_state(struct replica *r, const struct log_hard_state *hs);

#endif
