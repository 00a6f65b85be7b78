/* relay_client.h: sends commands of this node's clients to the leader, and brings back the answers.
 *
 *   follower                                leader (relay_server.h)
 *   COMMAND: sequence, command     ---->    stands in the leader's queue
 *   it stays in the queue          <----    RESULT: it ends
 *                                  <----    RETURNED: surely not done, it is put back
 *                                  <----    PUSH, behind the RESULT that said QUEUED
 *
 * When a stream breaks, commands that were never handed to the kernel, and all queries, are put
 * back; commands that may have left are uncertain. When another node becomes leader, the old
 * stream stays open until it is empty, since a leader that stepped down in order still answers; a
 * dead one is noticed by its silence. One thread, the loop's. */
#ifndef CONSENSUS_RELAY_CLIENT_H
#define CONSENSUS_RELAY_CLIENT_H

#include "consensus/commands.h"
#include "consensus/peers.h"
#include "peer/host.h"
#include "metrics/histogram.h"
#include "peer/transport.h"

struct relay_client;

struct relay_client_config {
    struct host host;
    struct transport *transport;
    struct peers *peers;  /* the node's */
    unsigned election_ms; /* changed by relay_client_set_election_ms() */
    struct commands *queue;
    void *ctx;
    machine_event_cb push; /* an event of a wait, sent ahead of the log; may be NULL */
};

int relay_client_create(const struct relay_client_config *config,
                        struct relay_client **ret) FLI_MUST_USE;
/* Commands on their way to a node that is not among these members are given up. */
void relay_client_set_members(struct relay_client *c, const struct members *members);
void relay_client_destroy(struct relay_client *c); /* closed; NULL is fine */

/* Sets the leader that this node follows; 0: none, or this node leads. Keeps a stream to the
 * leader, now and at each tick. A stream to a former leader is given up when that node is
 * silent. */
void relay_client_follow(struct relay_client *c, uint64_t leader_id);

/* Takes a command out of the queue and sends it to the leader. False: there is no stream, or it has
 * no room now for one of this class. */
bool relay_client_send(struct relay_client *c, struct command *m) FLI_MUST_USE;

/* The time until relay_client_send() may succeed after a failure; UINT64_MAX: only an event can
 * change that. */
uint64_t relay_client_next_ms(const struct relay_client *c);

void relay_client_tick(struct relay_client *c);
void relay_client_set_election_ms(struct relay_client *c, unsigned election_ms);
void relay_client_flush(struct relay_client *c);
bool relay_client_quiet(const struct relay_client *c); /* all commands are answered */
bool relay_client_connected(const struct relay_client *c, uint64_t peer_id);
uint64_t relay_client_relayed(const struct relay_client *c); /* commands, since start */
/* Times from sending a command to its answer. */
const struct metrics_histogram *relay_client_times(const struct relay_client *c);
void relay_client_close(struct relay_client *c, const char *why); /* gives up unanswered
                                                                     commands */

#endif
