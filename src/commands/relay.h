/* relay.h: sends commands of this node's clients to the leader, and brings back the answers; on the
 * leader, takes those of the other nodes' clients.
 *
 *   follower                                leader
 *   COMMAND: sequence, command     ---->    stands in the leader's queue
 *   it stays in the queue          <----    RESULT: it ends, or is put back if it was surely not
 *                                           done
 *                                  <----    PUSH, behind the RESULT that said QUEUED
 *
 * A stream on which a command came back ends when it is empty: its leader sends back all that come
 * behind. When a stream breaks, commands that were never handed to the kernel, and all queries, are
 * put back; commands that may have left are uncertain. When another node becomes leader, the old
 * stream stays open until it is empty, since a leader that stepped down in order still answers; a
 * dead one is noticed by its silence.
 *
 * The leader trusts nothing that it reads. The stream bounds the frames. Only commands that a
 * client may send are taken. The proposer decodes each before it proposes it. A peer that breaks
 * the rules loses its stream.
 *
 * Pushed events. A wait ends in an entry that followers apply a heartbeat after the leader. So the
 * leader tells them at once. One thread, the loop's. */
#ifndef COMMANDS_RELAY_H
#define COMMANDS_RELAY_H

#include "consensus/election.h"
#include "commands/proposer.h"

struct relay_config {
    struct peers *peers;             /* the node's */
    const struct election *election; /* has the members and the times in force */
    struct commands *queue;          /* the relay answers the other nodes' commands in it */
    const struct proposer *proposer; /* when this node does not lead, their commands go back */
    void *ctx;
    machine_event_cb push; /* an event of a wait, sent ahead of the log; may be NULL */
};

struct relay {
    struct relay_config config;
    struct metrics_histogram times; /* from sending a command to its answer */
    uint64_t sent;                  /* commands, since start */
    /* Private from here on. */
    uint64_t leader_id;      /* the leader that this node follows; 0: none */
    uint64_t opened;         /* streams, since start */
    struct fli_list streams; /* to leaders and from followers */
};

void relay_init(struct relay *r, const struct relay_config *config);

/* Gives up streams to and from nodes that are not members any more. */
void relay_leave_strangers(struct relay *r);

/* Sets the leader that this node follows; 0: none, or this node leads. Keeps a stream to the
 * leader, now and at each tick. A stream to a former leader is given up when that node is
 * silent. */
void relay_follow(struct relay *r, uint64_t leader_id);

/* Takes a command out of the queue and sends it to the leader. False: there is no stream, or it has
 * no room now for one of this class. */
bool relay_send(struct relay *r, struct command *c) FLI_MUST_USE;

/* Takes over a stream of kind STREAM_RELAY. */
void relay_accept(struct relay *r, const struct peer_identity *peer, struct stream *stream);

/* Sends the end of a wait to all followers. */
void relay_event(struct relay *r, const struct machine_event *e);

/* paused: this process was stopped, and what came is not read yet: silence means nothing. */
void relay_tick(struct relay *r, bool paused);
void relay_flush(struct relay *r);
bool relay_quiet(const struct relay *r); /* all commands are answered, nothing is unsent */
bool relay_has_leader(const struct relay *r, uint64_t id); /* there is a stream to it */
/* Whether the peer has a stream to this node, and was heard on it within the last three seconds. */
bool relay_has_follower(const struct relay *r, uint64_t id);
void relay_close(struct relay *r, const char *why); /* gives up unanswered commands; for stopping */

#endif
