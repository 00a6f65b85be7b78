/* membership.h: who the members are; forming the cluster; members that are added, removed, moved
 * and replaced; handing leadership over.
 *
 * One identity. A server of the Raft group is an incarnation: the number that was made with a data
 * directory, and is never used again. The configuration of the Raft group, in entries of the log
 * and in snapshots, is all that says who is a member, under which number, at which address, and
 * with a vote or without. A wiped disk is not in it. It has no vote to give, confirms nothing that
 * counts, and cannot be taken for its predecessor. The members given to a node at its start are
 * only for its beginning, and are not read again.
 *
 * Forming. Raft itself needs only a majority of empty nodes to elect a leader. That is not safe.
 * Two empty nodes out of three may be a new cluster whose third node is late. They may also be an
 * old cluster in which one node never got anything and another was wiped, while the third holds
 * everything that was acknowledged. So nobody has a log before all of them have met, once in their
 * lives, in steps that each wait for the one before:
 *
 *   1. each has heard the incarnation of every other, and writes all of them to its disk: these are
 *      the founders, and the id of the cluster is made of them
 *   2. each has heard from every other that it has written the same
 *   3. each writes the same first entry: the configuration with the founders
 *
 * Before step 3 nobody votes. After it, every founder has on its disk that a node which comes back
 * empty is none, so that one never hears from all others that they have written its incarnation.
 * The first leader commits INIT: the cluster has limits, and takes commands.
 *
 * Joining. An empty node has no configuration, and follows any member that calls. The leader calls
 * it at the address that the operator gave, adds the incarnation that answers as a learner, and
 * makes it a voter when it is close enough. It takes in only who has never been a member.
 *
 * Removing. When the configuration without a server is committed, the remaining members close its
 * streams. When it calls, it says in which configuration of its log it was a member last. Whoever
 * has committed that one or a later one, without this server, says that it was removed, and it
 * stops: no server is ever added again.
 *
 * Replacing is removing and adding. Of 2m+1 old voters, at least m others (besides the one that
 * leaves) held each acknowledged entry; any majority of the remaining 2m, which is m+1, meets those
 * m. The same holds for an even number.
 *
 * A member that was away meets members that it has never heard of. One that names a later
 * configuration than it has is believed, with the address that it tells, until it has as much.
 *
 * The leader's work at each tick depends on the state of each node alone, so a new leader goes on
 * where the old one stopped. The state has two parts: its server in the configuration, and the plan
 * that an operator's command has put into the machine (machine/nodes.c).
 *
 *   server    plan      the node         next
 *   none      none      is refused
 *   none      add       is to come       the leader calls it; once it has answered: a learner
 *   learner   add       catches up       a voter, when it is close enough; then SETTLED
 *   any       none      is a member
 *   any       remove    is to leave      the configuration without it; then SETTLED
 *   any       replace   gives way        the same, and then it is to come
 *
 * SETTLED is the leader's own command, which ends a plan.
 * A removal waits until the others that are up are a majority, and a node that leads hands that
 * over first. MOVE is only a change of the configuration, so it needs no plan.
 *
 * One thread, the loop's. */
#ifndef MEMBERS_MEMBERSHIP_H
#define MEMBERS_MEMBERSHIP_H

#include "peer/host.h"
#include "consensus/election.h"
#include "members/node_change.h"
#include "members/node_record.h"
#include "consensus/peers.h"
#include "commands/proposer.h"
#include "commands/relay.h"
#include "consensus/replica.h"
#include "peer/transport.h"

struct membership;

struct membership_config {
    struct host host;
    struct replica *replica;
    struct node_record *record;          /* the caller's; changed here */
    const struct machine_limits *limits; /* of a new cluster */
    struct peers *peers;                 /* the node's */
    struct transport *transport;
    struct fsm *fsm;
    struct commands *queue;
    struct proposer *proposer;
    struct relay *relay;
    struct election *election;
};

/* All other parts exist: they are told the members. */
int membership_create(const struct membership_config *config, struct membership **ret) FLI_MUST_USE;
void membership_destroy(struct membership *m); /* NULL is fine */

/* ---- what a node asks ---- */

/* Whether this node is to form a cluster, and has no log yet. */
bool membership_founds(const struct membership *m);
bool membership_formed(const struct membership *m); /* commands are taken */

/* The number of the node that is this server of the Raft group, by the newest configuration or by
 * what it told when it was let in; 0: nobody knows. */
uint64_t membership_number_of(const struct membership *m, uint64_t incarnation);

/* For transport_callbacks. */
enum handshake_verdict membership_check_peer(struct membership *m, const struct peer_identity *peer,
                                             char reason[HANDSHAKE_REASON_MAX]);
void membership_answered(struct membership *m, uint64_t peer_id, enum handshake_verdict verdict,
                         const char *reason);

/* Whether this node may send messages of Raft and take commands: it has asked the others whether
 * its directory is the newest one (membership_callers.c). */
bool membership_may_speak(struct membership *m);

/* Takes in what another node tells about starts. 0 or FL_EPROTO. */
int membership_receive_starts(struct membership *m, uint64_t from,
                              struct fli_slice body) FLI_MUST_USE;
/* What is on this disk of the node's start and progress; zeros: nothing. */
const struct starts_known *membership_known(const struct membership *m, uint64_t id);
const char *membership_client_address(const struct membership *m, uint64_t id); /* NULL: unknown */

/* ---- what a node tells ---- */

void membership_tick(struct membership *m, bool running);
void membership_turn(struct membership *m, bool running); /* forms the cluster, as fast as answers
                                                             come */
void membership_deposed(struct membership *m);            /* it leads no more */
void membership_close(struct membership *m);

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
