/* sim.h: a whole cluster in one process, from one seed.
 *
 *   cluster   3 or 5 nodes: the real fsm, guard and proposer of each on raft's in-memory fixture
 *   client    simulated clients that acquire, renew, release, wait, ask and give up
 *   oracle    what must hold after every single step
 *   main      faults, phases, seeds
 *
 * What the fixture can do to us: lose, delay and cut off messages one way or both, stop a node for
 * a while, let disks and networks be slow, change leaders. What it cannot: a node that is killed
 * and revived keeps its memory and its disk, so it is a pause, not a crash. Only cluster.c knows
 * the fixture; another raft_io that loses what was not synced goes in there.
 *
 * Everything is decided by the seed: the same seed gives the same run, to the last event, with any
 * compiler. The language leaves open which argument or initialiser is evaluated first, so never do
 * two of them draw a number. */
#ifndef SIM_H
#define SIM_H

#include <raft.h>
#include <raft/fixture.h>

#include "consensus/clock.h"
#include "consensus/fsm.h"
#include "consensus/proposer.h"
#include "consensus/raft_guard.h"

#define SIM_NODES_MAX 5u
#define SIM_CLIENTS_MAX 12u
#define SIM_LOCKS 4u
#define SIM_ELECTION_MS 200u
#define SIM_HEARTBEAT_MS 40u
#define SIM_RAFT_IN_FLIGHT 8u

struct sim;

/* Counted over all seeds, with the number of seeds in which each must have been reached: a run that
 * long in which one stays zero does not test what it says. */
#define SIM_MARKS(X)                                                                               \
    X(grants, 500)                                                                                 \
    X(queued, 500)                                                                                 \
    X(granted_from_queue, 500)                                                                     \
    X(waits_ended, 500)                                                                            \
    X(expired, 500)                                                                                \
    X(broken, 500)                                                                                 \
    X(released, 500)                                                                               \
    X(renewed, 500)                                                                                \
    X(renew_refused, 500)                                                                          \
    X(checks_held, 500)                                                                            \
    X(checks_gone, 500)                                                                            \
    X(shows, 500)                                                                                  \
    X(tokens, 500)                                                                                 \
    X(sessions, 500)                                                                               \
    X(deadlocks, 4000)                                                                             \
    X(uncertain, 500)                                                                              \
    X(returned, 500)                                                                               \
    X(busy, 500)                                                                                   \
    X(terms, 500)                                                                                  \
    X(stale_leaders, 500)                                                                          \
    X(transfers, 500)                                                                              \
    X(snapshots_taken, 500)                                                                        \
    X(snapshots_installed, 500)                                                                    \
    X(snapshots_dropped, 1000)                                                                     \
    X(commits_corrected, 4000)                                                                     \
    X(snapshots_corrected, 50000)                                                                  \
    X(pauses_survived, 500)                                                                        \
    X(pauses, 500)                                                                                 \
    X(pulses, 500)

struct sim_marks {
#define SIM_MARK_FIELD(name, seeds) uint64_t name;
    SIM_MARKS(SIM_MARK_FIELD)
#undef SIM_MARK_FIELD
};

struct sim_node {
    struct sim *sim;
    unsigned index;
    struct raft *raft;
    struct raft_fsm wrapped; /* around fsm's own: sees indexes */
    struct fsm *fsm;
    struct raft_guard guard;
    int (*guard_append)(struct raft_io *, struct raft_io_append *, const struct raft_entry[],
                        unsigned, raft_io_append_cb);
    struct proposer *proposer;
    struct raft_transfer transfer;
    bool transferring;
    uint64_t clock_offset_ms;
    uint64_t paused_at_ms;
    uint64_t lost_ms; /* time of pauses that its cluster clock must not count */
    uint64_t term_seen;
    /* While an entry is applied: */
    raft_index applying; /* 0: none */
    bool first;          /* no node has applied it before */
    uint64_t event_digest;
};

/* What is known of one log index once any node has applied it. */
struct sim_applied {
    uint64_t machine_hash;
    uint64_t event_digest; /* 0: not a batch */
};

struct sim_token {
    bool issued;
    bool lease; /* a grant, not a bare TOKEN */
    bool explicit_session;
    unsigned lock;
    uint64_t owner;     /* number of the owner */
    uint64_t ended_seq; /* 0: not ended */
    uint64_t base_ms;   /* the lease cannot have begun before */
    uint64_t ttl_ms;
    unsigned released_answers;
};

struct sim_seal {
    uint64_t term, sequence, at_ms;
    uint64_t lost_ms; /* of the node that sealed it */
};

struct sim_wait {
    uint64_t wait, token; /* token 0: ended without a grant */
};

struct sim_oracle {
    uint64_t seq; /* grows with everything that happens */
    raft_index max_index;
    struct sim_applied *applied; /* by index */
    size_t applied_cap;
    struct sim_token *tokens; /* by token */
    size_t tokens_cap;
    uint64_t token_max; /* largest issued */
    uint64_t holder[SIM_LOCKS];
    struct sim_seal *seals;
    size_t seals_len, seals_cap;
    struct sim_wait *waits;
    size_t waits_len, waits_cap;
    uint64_t *owner_floor; /* by owner number: token_max when it first asked */
    size_t owners_len, owners_cap;
    uint64_t last_stamp_ms; /* of the last batch applied anywhere */
    struct sim_seal last_seal;
    uint64_t steps;
};

enum sim_op_state { SIM_OP_IDLE, SIM_OP_UNSENT, SIM_OP_SENT, SIM_OP_WAITING };

struct sim_client {
    struct sim *sim;
    unsigned index;
    struct node_ticket ticket;
    enum sim_op_state state;
    uint8_t op; /* enum machine_op */
    unsigned lock;
    uint64_t owner; /* of the operation */
    uint64_t token; /* the operation is about */
    uint64_t wait;  /* SIM_OP_WAITING */
    bool explicit_session;
    uint64_t start_seq, start_ms;
    uint64_t token_floor;
    uint8_t bytes[512];
    size_t bytes_len;
    uint64_t next_at_ms;
    /* What the client believes to have. */
    uint64_t held_token;
    uint64_t held_owner;
    unsigned held_lock;
    uint64_t session; /* owner number; 0: none */
};

struct sim {
    uint64_t seed;
    uint64_t random;
    bool trace;
    struct raft_fixture fixture;
    unsigned n;
    struct sim_node nodes[SIM_NODES_MAX];
    unsigned clients_n;
    struct sim_client clients[SIM_CLIENTS_MAX];
    struct sim_oracle oracle;
    bool quiet; /* clients start nothing new */
    uint64_t digest;
    struct sim_marks *marks;
};

/* main.c */
_Noreturn void sim_fail(struct sim *s, const char *fmt, ...) FLI_PRINTF(2, 3);
void sim_trace(struct sim *s, const char *fmt, ...) FLI_PRINTF(2, 3);
uint64_t sim_random(struct sim *s);
uint64_t sim_below(struct sim *s, uint64_t n); /* n > 0 */
bool sim_chance(struct sim *s, unsigned percent);
uint64_t sim_now(const struct sim *s);
void *sim_grow(void *p, size_t *cap, size_t need, size_t size); /* new room is zero */
#define SIM_CHECK(s, cond, ...)                                                                    \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            sim_fail(s, __VA_ARGS__);                                                              \
        }                                                                                          \
    } while (0)

/* cluster.c */
void sim_cluster_start(struct sim *s);
void sim_cluster_stop(struct sim *s);
void sim_cluster_step(struct sim *s); /* one event of the fixture, then a turn of every node */
bool sim_node_alive(struct sim *s, unsigned i);
void sim_pause(struct sim *s, unsigned i);
void sim_resume(struct sim *s, unsigned i);
void sim_cut(struct sim *s, unsigned from, unsigned to, bool lossy);
void sim_join(struct sim *s, unsigned from, unsigned to);
void sim_slow(struct sim *s, unsigned i, unsigned network_ms, unsigned disk_ms);
void sim_shuffle_election(struct sim *s, unsigned i);
void sim_transfer(struct sim *s, unsigned i);
void sim_heal(struct sim *s);
bool sim_converged(struct sim *s);
void sim_cluster_describe(struct sim *s);

/* client.c */
void sim_clients_start(struct sim *s);
void sim_clients_step(struct sim *s);
bool sim_clients_done(struct sim *s); /* nobody has anything outstanding */
void sim_clients_describe(struct sim *s);
void sim_client_returned(struct sim *s, struct node_ticket *t, const void *command, size_t len);
void sim_client_wait_ended(struct sim *s, uint64_t wait, uint64_t token);

/* oracle.c */
void sim_oracle_init(struct sim *s);
void sim_oracle_fini(struct sim *s);
void sim_oracle_event(struct sim_node *node, const struct machine_event *e);
void sim_oracle_batch(struct sim_node *node, const void *data, size_t len); /* first apply only */
void sim_oracle_applied(struct sim_node *node, raft_index index);
void sim_oracle_restored(struct sim_node *node, raft_index index);
void sim_oracle_sealed(struct sim_node *node, const void *data, size_t len);
uint64_t sim_oracle_new_owner(struct sim *s);
struct sim_token *sim_oracle_token(struct sim *s, uint64_t token);
bool sim_oracle_wait(struct sim *s, uint64_t wait, uint64_t *ret_token);
/* The answer to a client. */
void sim_oracle_answer(struct sim_client *c, const struct machine_result *r,
                       struct fli_slice payload);
void sim_oracle_end(struct sim *s); /* after the cluster has come to rest */

#endif
