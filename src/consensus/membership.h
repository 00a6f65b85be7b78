/* membership.h: who the members are: their incarnations; forming the cluster; members that are
 * added, removed, moved and replaced; handing leadership over.
 *
 * Forming. Raft itself needs only a majority of empty nodes to elect a leader. That is not safe.
 * Two empty nodes out of three may be a new cluster whose third node is late. They may also be an
 * old cluster in which one node never got anything and another was wiped, while the third holds
 * everything that was acknowledged. So nothing is answered before the cluster is formed. Its leader
 * forms it, once in its life, in steps that each wait for the one before:
 *
 *   1. JOIN is committed for every member, with the incarnation from its handshake
 *   2. every member has all these incarnations on disk, and says so (READY)
 *   3. INIT is committed: the cluster has an id, and takes commands
 *
 * From then on, the incarnation of a node that comes back empty tells any other member, whatever
 * that member's log holds.
 *
 * One source. The configuration of the Raft group, in entries of the log and in snapshots, is all
 * that says who is a member, at which address, and with a vote or without. The machine has the
 * incarnations, and the plans of operators that are not carried out yet (machine/nodes.c). The
 * members given to a node at its start are only for its beginning, and are not read again.
 *
 * Joining. A new node has an empty log, and takes any caller for a member of its cluster. The
 * leader calls it at the address that the operator gave, takes its incarnation into the log, sends
 * it the log as to a learner, and makes it a voter when it is close enough and has on disk that it
 * is a member.
 *
 * Removing. The remaining members close its streams. When it comes back they refuse it, by what
 * they have applied, and it stops.
 *
 * Forgetting. A majority of old voters may include the wiped node. Its removal from the
 * configuration commits by a majority of the others, each of which then holds everything before. Of
 * 2m+1 old voters, at least m others (besides the wiped one) held each acknowledged entry; any
 * majority of the remaining 2m, which is m+1, meets those m. The same holds for an even number. The
 * empty node may then be added again, first as a learner. The incarnation is forgotten after the
 * removal, never before. A node that is replaced by another machine is forgotten in the same way,
 * and its former incarnation may not come back.
 *
 * The leader's work at each tick depends on state alone (configuration, machine, handshakes), so a
 * new leader goes on where the old one stopped. One thread, the loop's. */
#ifndef CONSENSUS_MEMBERSHIP_H
#define CONSENSUS_MEMBERSHIP_H

#include "peer/host.h"
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
    struct identity *identity;           /* the caller's; changed and stored here */
    const struct machine_limits *limits; /* of a new cluster */
    struct fsm *fsm;
    struct proposer *proposer;
    struct relay_server *followers;
    struct starts *starts;            /* the caller's, see node_starts.c */
    const struct starts *starts_kept; /* likewise: what of them is on disk; only that is told */
    bool is_new;                      /* the directory was just made: it has promised nothing */
    unsigned ask_ms; /* how long others may take to answer before this node speaks */
    void *ctx;
    int (*store_starts)(void *ctx); /* writes them to disk at once: 0 or an error */
    void (*save_starts)(void *ctx); /* has them written; starts_kept follows */
    /* Has it written; membership_identity_saved() follows. It stays as it is until then. */
    void (*save_identity)(void *ctx, const struct identity *identity);
    void (*hang_up)(void *ctx, uint64_t id);  /* closes the streams of a node's start that is
                                                  over */
    bool (*can_lead)(void *ctx, uint64_t id); /* as far as it has told of itself */
    uint64_t (*differs)(void *ctx); /* a node whose state is another than this one's; 0: none */
    /* From now on the identity on disk names every member, this node among them, as of this entry;
     * 0: it does not. Told again and again. */
    void (*ready)(void *ctx, uint64_t index);
    void (*peer_back)(void *ctx, uint64_t id); /* a member has called, or was reached */
    void (*joined)(void *ctx, uint64_t id);    /* a member has joined, and is accepted from now
                                                  on */
    /* The set of nodes that this node talks to, itself included, has changed. */
    void (*members)(void *ctx, const struct members *members);
};

int membership_create(const struct membership_config *config, struct membership **ret) FLI_MUST_USE;
void membership_destroy(struct membership *m); /* NULL is fine */

/* Gives it the other parts of the node when they exist: each once. */
void membership_set_transport(struct membership *m, struct transport *t);
void membership_set_replica(struct membership *m, struct replica *r);

/* ---- what a node asks ---- */

bool membership_formed(const struct membership *m); /* commands are taken */

/* Whether Raft must not talk to a peer, because the last caller under its id was another
 * incarnation than the valid one. */
bool membership_is_stranger(const struct membership *m, uint64_t id);

/* The index of the state that names this node's incarnation, as far as the node knows; 0: none
 * does. */
uint64_t membership_admitted_index(const struct identity *id);

/* For transport_callbacks. ctx: the membership. */
enum handshake_verdict membership_check_peer(void *ctx, const struct peer_identity *peer,
                                             char reason[HANDSHAKE_REASON_MAX]);
void membership_answered(void *ctx, uint64_t peer_id, enum handshake_verdict verdict,
                         uint64_t index, const char *reason);

/* A dial found that nobody listens at this peer's address. */
void membership_absent(struct membership *m, uint64_t peer_id);

/* Whether this node may send messages of Raft and take commands: it has asked the others whether
 * its directory is the newest one (membership_starts.c). */
bool membership_may_speak(struct membership *m);

/* Takes in what another node tells about starts. 0 or FL_EPROTO. */
int membership_receive_starts(struct membership *m, uint64_t from,
                              struct fli_slice body) FLI_MUST_USE;
/* The newest start of a node that is on this disk; 0: none is. */
uint64_t membership_start_of(const struct membership *m, uint64_t id);
/* The last entry that the node has told to be on its disk; 0: none. */
uint64_t membership_kept_index_of(const struct membership *m, uint64_t id);

void membership_set_client_address(struct membership *m, uint64_t id, const char *address);
const char *membership_client_address(const struct membership *m, uint64_t id); /* NULL: unknown */

/* ---- what a node tells ---- */

void membership_start(struct membership *m); /* all parts exist: reports the members */

/* Has the incarnations that the machine knows written to disk, once the entries that they come from
 * are on disk. Until they are written, this node goes by those from before. */
void membership_sync(struct membership *m);
void membership_identity_saved(struct membership *m, int error); /* the write has ended */
void membership_tick(struct membership *m, bool running);
void membership_turn(struct membership *m, bool running); /* forms the cluster, as fast as answers
                                                             come */
void membership_deposed(struct membership *m);
void membership_close(struct membership *m);

/* Takes a ticket that the proposer gave back, whose command was surely not done. False: it does not
 * belong to this file. */
bool membership_returned(struct membership *m, struct node_ticket *t);

/* ---- operators ---- */

/* See node_change() and node_transfer() in node.h. membership_transfer(): cb may be NULL. */
int membership_change(struct membership *m, const struct node_change *wanted,
                      void (*cb)(void *ctx, int status), void *ctx) FLI_MUST_USE;
int membership_transfer(struct membership *m, uint64_t id, void (*cb)(void *ctx, int status),
                        void *ctx) FLI_MUST_USE;
bool membership_transferring(const struct membership *m);

/* Whether a node that lacks what is compacted may have this node's state. */
bool membership_may_send_snapshot(struct membership *m, uint64_t id);

#endif
