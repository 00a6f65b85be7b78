/* replica_private.h: shared by replica*.c; nobody else includes it. */
#ifndef CONSENSUS_REPLICA_PRIVATE_H
#define CONSENSUS_REPLICA_PRIVATE_H

#include "consensus/replica.h"

#define REPLICA_HELD_MAX 64u
#define REPLICA_READ_BYTES ((size_t)4 << 20) /* of entries read in one go */
#define REPLICA_READ_ENTRIES 64u
/* Bytes of entries that one turn sends to followers that are behind, and the message that goes
 * beyond. */
#define REPLICA_REST_BYTES ((size_t)1 << 20)
#define REPLICA_FRESH 4u /* as many entries as a proposer has in flight */

/* Hashes of the state that are kept: of every so many entries, and so many of them. */
#define REPLICA_HASH_STEP 16u
#define REPLICA_HASHES 256u

/* The core's kinds of entries are stored in the log as they are. */
_Static_assert(RAFT_COMMAND == 1 && RAFT_BARRIER == 2 && RAFT_CHANGE == 3, "kinds are on disk");

/* The last question to the followers whether this leader still leads: see replica_round.c. */
struct replica_round {
    uint64_t number, term; /* of the last that began */
    uint64_t confirmed;    /* the last that a majority has answered */
    bool wanted;           /* the next is to begin as soon as it is confirmed */
    uint64_t sent_ms;
};

struct replica {
    struct replica_config config;
    struct raft raft;
    struct raft_edge edge;
    struct log *log;
    bool failed;
    uint64_t applied;
    uint64_t barrier_term;         /* of the last barrier that was applied */
    struct snapshot_meta snapshot; /* the newest; index 0: there is none */
    /* No message leaves before the log is on disk up to this position: that of the last change of
     * term and vote, or of a beginning that the core takes for written. */
    uint64_t promised_at;
    bool unfit;             /* to lead */
    bool apply_waits;       /* for the disk */
    uint64_t applied_steps; /* in this turn, as the machine counts them */
    struct {
        uint64_t index, hash; /* of the state behind this entry; index 0: none */
    } hashes[REPLICA_HASHES];
    uint64_t transferee; /* gets leadership once it has all entries; 0: nobody */
    uint64_t transferee_until_ms;
    uint64_t learner, learner_ms; /* that was asked for last, and since when */
    uint64_t learner_index;       /* the last entry then */
    unsigned rest_next;           /* whose turn it is */
    size_t rest_bytes;            /* sent in this turn */
    struct replica_round round;
    struct raft_message held[REPLICA_HELD_MAX]; /* they wait for the hard state */
    unsigned held_n;
    struct raft_entry entries[MESSAGE_ENTRIES_MAX]; /* of the event in progress */
    struct message_body body;
};

/* The replica goes on no more; the owner is told. */
void replica_fail(struct replica *r, int error, const char *fmt, ...) FLI_PRINTF(3, 4);

/* The number of the node that is this server; 0: nobody knows. And the server that a node is by the
 * newest configuration; 0: none. */
uint64_t replica_number_of(const struct replica *r, uint64_t incarnation);
uint64_t replica_server_of(const struct replica *r, uint64_t id);

/* replica_send.c */
/* Term and vote must be on disk before a message that depends on them leaves; until then it is
 * held. */
void replica_send(struct replica *r, const struct raft_message *m);
void replica_send_now(struct replica *r, const struct raft_message *m); /* it has no entries */
void replica_send_held(struct replica *r);
void replica_send_rests(struct replica *r);
bool replica_has_rest(const struct replica *r); /* that does not wait for the disk */
void replica_rests_arrived(struct replica *r);  /* none waits for the disk any more */

/* replica_round.c */
int replica_round_receive(struct replica *r, const struct raft_message *m) FLI_MUST_USE;
void replica_round_turn(struct replica *r);
uint64_t replica_round_due_ms(const struct replica *r); /* when it asks again */

/* Starts the core anew, with the log as it is, once that is on disk up to the position. */
void replica_restart(struct replica *r, uint64_t position);

/* The configuration of a snapshot. 0; FL_ECORRUPT; FL_EVERSION. */
int replica_conf_of(const struct snapshot_meta *meta, struct configuration *ret) FLI_MUST_USE;
/* The label of a snapshot, whose configuration was decoded before, for the core. */
void replica_label(const struct snapshot_meta *meta, struct raft_snapshot_metadata *ret);

void replica_set_now(struct replica *r, uint64_t now_ms);
/* The term of an entry of the log, or of the last one in the snapshot; 0: it is not there. */
uint64_t replica_term_of(const struct replica *r, uint64_t index);

static inline bool replica_leads(const struct replica *r)
{
    return !r->failed && replica_role(r) == REPLICA_LEADER;
}

/* Gives the event to the core and carries out its result. */
void replica_step(struct replica *r, struct raft_event *event);

/* Writes term and vote to the log. Messages that depend on them leave once they are on disk. */
void replica_set_hard_state(struct replica *r, uint64_t term, uint64_t vote);

#endif
