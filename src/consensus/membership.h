/* membership.h: who the members are: incarnations, forming the cluster, members that come, go, move
 * and are replaced, handing leadership over.
 *
 * Forming. Raft itself needs no more than a majority of empty nodes to elect a leader, and that is
 * one too few to be safe: two empty nodes out of three may be a new cluster whose third node is
 * late, or an old one of which one node never got anything and another was wiped, while the third
 * holds all that was acknowledged. So nothing is answered before the cluster is formed, once in its
 * life, by its leader, in steps that each wait for the one before:
 *
 *   1. JOIN is committed for every member, with the incarnation from its handshake
 *   2. every member has all these incarnations on disk, and says so (READY)
 *   3. INIT is committed: the cluster has an id, and takes commands
 *
 * From then on a node that comes back empty is told by its incarnation, by any other member,
 * whatever that member's log holds.
 *
 * One store. Who is a member, where, and whether it votes, is said by the configuration of the Raft
 * group, in entries of the log and in snapshots, and by nothing else. The machine has the
 * incarnations, and what operators have asked for and is not done yet (machine/nodes.c). What a
 * node is told at its start is how it begins, and is not looked at again.
 *
 * Joining. A new node has an empty log, and takes whoever calls it for a member of its cluster. The
 * leader calls it where the operator says it is, takes its incarnation into the log, sends it the
 * log as to a learner, and makes it a voter when it is close enough.
 *
 * Removing. The members that are left drop its streams, and refuse it, by what they have applied,
 * when it comes back: it stops.
 *
 * Forgetting. A majority of old voters may include the wiped node. Removing it from the
 * configuration commits by a majority of the others, each of which then holds everything before:
 * of 2m+1 old voters at least m others held each acknowledged entry (with the wiped one), and any
 * majority of the remaining 2m, which is m+1, meets those m. What is empty may then be added again,
 * first as a learner. The same holds for an even number. The incarnation is forgotten after the
 * removal, never before. A node that is replaced by another machine is forgotten in the same way,
 * and its former incarnation may not come back.
 *
 * What the leader does at each tick is driven by state alone (configuration, machine, handshakes),
 * so a new leader goes on where the old one stopped. One thread, the loop's. */
#ifndef CONSENSUS_MEMBERSHIP_H
#define CONSENSUS_MEMBERSHIP_H

#include "consensus/host.h"
#include "consensus/identity.h"
#include "consensus/node_change.h"
#include "consensus/proposer.h"
#include "consensus/relay_server.h"
#include "consensus/replica.h"
#include "consensus/starts.h"
#include "peer/transport.h"

struct membership;

struct membership_config {
    struct host host;
    const struct data_dir *dir;
    struct identity *identity;           /* the owner's; changed and stored here */
    const struct machine_limits *limits; /* of a new cluster */
    struct fsm *fsm;
    struct proposer *proposer;
    struct relay_server *followers;
    struct starts *starts; /* the owner's, see node_starts.c */
    bool is_new;           /* the directory was made just now: it has promised nothing */
    unsigned ask_ms;       /* how long others may take before this node speaks */
    void *ctx;
    int (*store_starts)(void *ctx);            /* to disk: 0 or an error */
    void (*hang_up)(void *ctx, uint64_t id);   /* a start of a node is over: so are its streams */
    void (*all_known)(void *ctx);              /* every member's incarnation is known, on disk */
    void (*peer_back)(void *ctx, uint64_t id); /* a member has called, or was reached */
    void (*joined)(void *ctx, uint64_t id);    /* a member has joined, and is let in from now on */
    /* The nodes that this one has to do with, itself among them, have changed. */
    void (*members)(void *ctx, const struct members *members);
};

int membership_create(const struct membership_config *config, struct membership **ret) FLI_MUST_USE;
void membership_destroy(struct membership *m); /* NULL is fine */

/* The rest of a node, as soon as it is there: each once. */
void membership_set_transport(struct membership *m, struct transport *t);
void membership_set_replica(struct membership *m, struct replica *r);

/* ---- what a node asks ---- */

const struct members *membership_members(const struct membership *m);

bool membership_formed(const struct membership *m); /* commands are taken */
bool membership_all_known(const struct membership *m);

/* Raft must not talk to a peer: what called was another incarnation than the one that counts. */
bool membership_is_stranger(const struct membership *m, uint64_t id);

/* Of the state that says who this node is, as far as it knows; 0: none does. */
uint64_t membership_admitted_index(const struct identity *id);

/* For transport_callbacks. ctx: the membership. */
enum handshake_verdict membership_check_peer(void *ctx, const struct peer_identity *peer,
                                             char reason[HANDSHAKE_REASON_MAX]);
void membership_answered(void *ctx, uint64_t peer_id, enum handshake_verdict verdict,
                         const char *reason);

/* Nobody listens at the address of this one. */
void membership_absent(struct membership *m, uint64_t peer_id);

/* Whether messages of Raft may be sent, and commands taken: the others were asked whether this
 * node's directory is the newest one (membership_starts.c). */
bool membership_may_speak(struct membership *m);

/* What another node tells of starts. 0 or FL_EPROTO. */
int membership_told_starts(struct membership *m, uint64_t from, struct fli_slice body) FLI_MUST_USE;
/* Whether anything was told since the last call that is not on disk. */
bool membership_take_starts_news(struct membership *m);
/* The newest start that is known of a node, and up to where its log was; NULL: nothing. */
const struct starts_known *membership_starts_of(const struct membership *m, uint64_t id);

void membership_set_client_address(struct membership *m, uint64_t id, const char *address);
const char *membership_client_address(const struct membership *m, uint64_t id); /* NULL: unknown */

/* ---- what a node tells ---- */

void membership_start(struct membership *m); /* all parts are there: tells who the members are */

/* What the machine says of members goes to disk; at each turn, before anything that was promised in
 * it leaves the node. */
void membership_sync(struct membership *m);
void membership_tick(struct membership *m, bool running);
void membership_turn(struct membership *m, bool running); /* forms the cluster at its own pace */
void membership_deposed(struct membership *m);
void membership_close(struct membership *m);

/* A ticket that the proposer has given back: whether it was this file's. */
bool membership_returned(struct membership *m, struct node_ticket *t);

/* ---- operators ---- */

/* See node_change() and node_transfer() in node.h. membership_transfer: cb may be NULL. */
int membership_change(struct membership *m, const struct node_change *wanted,
                      void (*cb)(void *ctx, int status), void *ctx) FLI_MUST_USE;
int membership_transfer(struct membership *m, uint64_t id, void (*cb)(void *ctx, int status),
                        void *ctx) FLI_MUST_USE;
bool membership_transferring(const struct membership *m);

#endif
