/* relay_server.h: commands of followers' clients, at the leader (relay_client.h has the frames).
 *
 * The leader trusts nothing that it reads: frames are bounded by their stream, of all commands only
 * those that a client may send are taken, each is decoded by the proposer before it is proposed,
 * and a peer that breaks the rules loses its stream.
 *
 * Pushed events. A wait that was queued over a stream ends some time later, in an entry that the
 * follower applies a heartbeat after the leader. The leader tells it at once. One thread, the
 * loop's. */
#ifndef CONSENSUS_RELAY_SERVER_H
#define CONSENSUS_RELAY_SERVER_H

#include "consensus/host.h"
#include "consensus/proposer.h"
#include "peer/transport.h"

struct relay_server;

struct relay_server_config {
    struct host host;
    struct proposer *proposer;
    void *ctx;
    bool (*can_propose)(void *ctx); /* else a command goes back to its follower */
    const uint64_t *hash_seed;      /* two words */
};

int relay_server_create(const struct relay_server_config *config,
                        struct relay_server **ret) FLI_MUST_USE;
void relay_server_destroy(struct relay_server *s); /* closed, and all answered; NULL is fine */

/* A stream of kind STREAM_RELAY, which it owns from now on. */
void relay_server_accept(struct relay_server *s, const struct peer_identity *peer,
                         struct stream *stream);

/* A ticket that the proposer has given back: whether it is the relay's, and then it is returned to
 * its follower. */
bool relay_server_returned(struct relay_server *s, struct node_ticket *t);

void relay_server_event(struct relay_server *s, const struct machine_event *e);
void relay_server_opened(struct relay_server *s);   /* this node leads from now on */
void relay_server_deposed(struct relay_server *s);  /* and now not any more */
void relay_server_restored(struct relay_server *s); /* a snapshot came in place of events */

bool relay_server_connected(const struct relay_server *s, uint64_t peer_id);
/* This incarnation of a follower has said that it knows all others. */
bool relay_server_ready(const struct relay_server *s, uint64_t peer_id, uint64_t incarnation);

/* Ends its stream: it has to show anew who it is. */
void relay_server_hang_up(struct relay_server *s, uint64_t peer_id, const char *why);

void relay_server_tick(struct relay_server *s);
void relay_server_flush(struct relay_server *s);
bool relay_server_quiet(const struct relay_server *s); /* nothing is out, nothing unsent */
void relay_server_close(struct relay_server *s, const char *why);

#endif
