/* replica.h: one server of the Raft group: the raft library's core, its log, and the machine to
 * which entries are applied.
 *
 *   events                          raft_step()                 what it asks for
 *   message of a peer  --> edge -->                --> hard state, entries, truncation: the log
 *   entries on disk    ----------->                --> messages: `send`
 *   timer              ----------->                --> commit index: entries are applied
 *   submit, change     ----------->                --> snapshot for a peer: `snapshot_wanted`
 *
 * Order on disk. Hard state, entries and truncations go to the log in the order in which the core
 * asks for them. A message may promise them only when they are on disk:
 *   - entries: the core acknowledges them once it is told that they are persisted;
 *   - term and vote: messages that follow a change of them wait here until the change is on disk.
 * A leader sends its entries before it has written them (dissertation, section 10.2.1).
 *
 * Nothing here waits for the disk, once it is created. Entries that a follower lacks, or that are
 * to be applied, and that are not in memory, are read by the log's device meanwhile.
 *
 * Snapshots. A snapshot is a file that the owner writes, sends and receives. The core is told of a
 * taken snapshot once it is complete, and starts anew behind a received one once it is complete and
 * decoded. Until then this server goes on with its old state.
 *
 * Numbers. A server of the Raft group is an incarnation (configuration.h), and the core knows no
 * other name. All functions here name a server by the number of its node, but replica_receive().
 *
 * No libuv: time comes in as an argument, and the owner flushes the log and the streams once a
 * turn. Callbacks must not call functions of this file, except those that say so. One thread. */
#ifndef CONSENSUS_REPLICA_H
#define CONSENSUS_REPLICA_H

#include "consensus/configuration.h"
#include "consensus/fsm.h"
#include "consensus/message_codec.h"
#include "consensus/raft_edge.h"
#include "log/log.h"
#include "snapshot/file.h"

struct replica;

#define REPLICA_IN_FLIGHT_DEFAULT 128u

struct replica_config {
    uint64_t id;                          /* the node's number */
    uint64_t incarnation;                 /* the server in the Raft group */
    struct log *log;                      /* recovered; the owner's, which calls
                                             replica_durable() and
                                             replica_arrived() */
    struct fsm *fsm;                      /* holds the state of `snapshot`, or is empty */
    const struct snapshot_meta *snapshot; /* the newest; NULL: none. The log continues it. */
    unsigned election_ms, heartbeat_ms;
    /* The most entries that may be sent to a follower and not confirmed. It must be less than what
     * each server keeps behind a snapshot: a follower refuses entries when its core has forgotten
     * the entry in front of them. */
    unsigned in_flight; /* 0: REPLICA_IN_FLIGHT_DEFAULT */
    unsigned seed;      /* of election times: must differ between servers */
    void *ctx;
    /* The number of the node that is this server of the Raft group; 0: nobody knows. */
    uint64_t (*number_of)(void *ctx, uint64_t incarnation);
    /* Sends one message; its parts are valid during the call only. */
    void (*send)(void *ctx, uint64_t peer_id, const struct message_body *body);
    /* A follower of this leader lacks entries that are compacted. Repeated until it has them. */
    void (*snapshot_wanted)(void *ctx, uint64_t peer_id);
    bool (*sends_snapshot)(void *ctx, uint64_t peer_id);      /* whether one is on its way to the
                                                                 follower */
    void (*fatal)(void *ctx, int error, const char *message); /* at most once */
};

/* Starts with the contents of the log. 0; FL_ECORRUPT: log and snapshot do not fit; FL_ENOMEM,
 * FL_EIO; errmsg says what is wrong and what to do. The only voter of a group leads at once. */
int replica_create(const struct replica_config *config, uint64_t now_ms, struct replica **ret,
                   char *errmsg, size_t errmsg_size) FLI_MUST_USE;
void replica_destroy(struct replica *r); /* NULL is fine */

/* ---- events ---- */

/* Takes a frame from a stream of Raft messages of that incarnation. 0; FL_EPROTO: no correct peer
 * sends this. */
int replica_receive(struct replica *r, uint64_t now_ms, uint64_t from, uint8_t type,
                    struct fli_slice body) FLI_MUST_USE;

/* The log reports that something is on disk. */
void replica_durable(struct replica *r, uint64_t now_ms);

/* The log reports that a read has ended: log_config.arrived. */
void replica_arrived(struct replica *r, uint64_t now_ms);

/* Sets new times; an election time has at least three heartbeats. */
void replica_set_times(struct replica *r, unsigned election_ms, unsigned heartbeat_ms);

/* Runs once a turn: the core's timer, and sending and applying entries that were left over. paused:
 * the process was stopped, and messages of that time are not read yet; the timer waits for the next
 * turn. */
void replica_turn(struct replica *r, uint64_t now_ms, bool paused);

/* Whether this node could not serve if it led, since its disk gives nothing back. It then calls no
 * election by the core's timer, and takes over from nobody. */
void replica_set_unfit(struct replica *r, bool unfit);
uint64_t replica_next_ms(const struct replica *r, uint64_t now_ms); /* until a turn is needed */

/* ---- what a leader does ---- */

/* Appends one entry of commands, or a barrier; the bytes are copied. 0: it will be applied later,
 * never within this call, unless its term ends before. Surely not appended: FL_ENOLEADER (also
 * while leadership is handed over), FL_EBUSY (the disk is behind). */
int replica_submit(struct replica *r, uint64_t now_ms, const void *data, size_t len) FLI_MUST_USE;
int replica_barrier(struct replica *r, uint64_t now_ms) FLI_MUST_USE;
/* The term of the last barrier that was applied since the start; 0: none was. */
uint64_t replica_barrier_term(const struct replica *r);

/* Appends a configuration, which is in force at once. It may differ from the present one by one
 * server only. 0; FL_ENOLEADER; FL_EBUSY: a change is in progress, nothing of this leader's term is
 * committed yet (replica_barrier()), or the disk is behind. */
int replica_change(struct replica *r, uint64_t now_ms, const struct configuration *c) FLI_MUST_USE;

/* Appends the first configuration of a group to a log that has none. Each founder does so by
 * itself, and all append the same bytes. 0; FL_EBUSY: the disk is behind. */
int replica_begin(struct replica *r, uint64_t now_ms, const struct configuration *c) FLI_MUST_USE;

/* Whether a learner of this leader is close enough to vote: within an election time, or
 * REPLICA_CAUGHT_UP_MS if that is longer, it has confirmed all that the leader had when this was
 * asked first. Else that begins anew (dissertation, section 4.2.1). It is asked for one learner at
 * a time, at least twice in REPLICA_CAUGHT_UP_MS. */
#define REPLICA_CAUGHT_UP_MS 250u
bool replica_has_caught_up(struct replica *r, uint64_t now_ms, uint64_t id);

/* Hands leadership to a voter: it gets an election time for the entries that it lacks, and as much
 * to be elected. Meanwhile nothing is submitted. 0, FL_ENOLEADER, FL_ENOTFOUND (not a voter, or
 * this server), FL_EBUSY (one is under way). */
int replica_transfer(struct replica *r, uint64_t now_ms, uint64_t id) FLI_MUST_USE;
uint64_t replica_transferee(const struct replica *r); /* 0: leadership is not being handed over */

/* Asks the followers whether this server still leads. Returns the number of a round that begins now
 * or later; UINT64_MAX: it does not lead. Once as high a round is confirmed, nobody else led when
 * this was called. At most one round is on its way, and one waits. */
uint64_t replica_round(struct replica *r, uint64_t now_ms);
uint64_t replica_round_confirmed(const struct replica *r);

/* ---- hashes of the state, for comparing it with other nodes' ---- */

/* The newest entry of which the hash is kept; 0: none. */
uint64_t replica_hash_index(const struct replica *r);
/* The hash of the state behind this entry. False: it is not kept. */
bool replica_hash_at(const struct replica *r, uint64_t index, uint64_t *ret);

/* ---- elections out of turn: see raft_edge.h ---- */

bool replica_campaign(struct replica *r, uint64_t now_ms);
void replica_set_leader_gone(struct replica *r,
                             bool gone); /* the process of the one that is followed */
uint64_t replica_silence_ms(const struct replica *r, uint64_t now_ms);

/* ---- snapshots ---- */

/* Fills in the meta of a snapshot of the present state. 0; FL_EBUSY: the applied entries are not
 * all on this disk yet, or are the last snapshot already (`again` allows that). */
int replica_snapshot_meta(const struct replica *r, bool again,
                          struct snapshot_meta *ret) FLI_MUST_USE;

/* The snapshot is on disk. Entries above keep_index stay in the log, for followers that are a
 * little late. */
void replica_snapshot_taken(struct replica *r, uint64_t now_ms, const struct snapshot_meta *meta,
                            uint64_t keep_index);

/* Whether the numbers of a snapshot and its configuration can be of a log. Any thread. */
bool replica_snapshot_is_sound(const struct snapshot_meta *meta) FLI_MUST_USE;

/* A snapshot from another server is on disk, and `fresh` is its state. 0: the replica now owns
 * `fresh`, and *ret_old is the state that it replaced. FL_EBUSY: no leader is known now; try again
 * later. FL_EINVAL: it is no longer needed, or not usable. */
int replica_install(struct replica *r, uint64_t now_ms, const struct snapshot_meta *meta,
                    struct machine *fresh, struct machine **ret_old) FLI_MUST_USE;

/* ---- state; may be called from within callbacks ---- */

enum replica_role { REPLICA_FOLLOWER, REPLICA_CANDIDATE, REPLICA_LEADER };

enum replica_role replica_role(const struct replica *r);
uint64_t replica_term(const struct replica *r);
uint64_t replica_leader(const struct replica *r); /* 0: unknown */
uint64_t replica_commit_index(const struct replica *r);
/* The term that is on disk; 0 while a later one is being written. */
uint64_t replica_term_on_disk(const struct replica *r);
uint64_t replica_applied_index(const struct replica *r);
uint64_t replica_last_index(const struct replica *r);
uint64_t replica_snapshot_index(const struct replica *r);           /* of the newest; 0: none */
uint64_t replica_match_index(const struct replica *r, uint64_t id); /* leader only, else 0 */

/* The newest configuration of the log, its index, and whether it is committed. */
const struct configuration *replica_configuration(const struct replica *r);
uint64_t replica_configuration_index(const struct replica *r);
bool replica_configuration_committed(const struct replica *r);
/* All that are in the log or its snapshot, the oldest first. */
const struct changes *replica_changes(const struct replica *r);
/* The newest one that is surely committed, and its index; NULL and 0: none is known to be. */
const struct configuration *replica_committed_configuration(const struct replica *r,
                                                            uint64_t *ret_index);
/* The index of the newest configuration of the log in which this server is; 0: of none. */
uint64_t replica_member_index(const struct replica *r);

#endif
