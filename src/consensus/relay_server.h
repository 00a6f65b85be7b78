/* relay_server.h: takes commands of followers' clients on the leader (relay_client.h has the
 * frames).
 *
 * The leader trusts nothing that it reads. The stream bounds the frames. Only commands that a
 * client may send are taken. The proposer decodes each before it proposes it. A peer that breaks
 * the rules loses its stream.
 *
 * Pushed events. A wait ends in an entry that followers apply a heartbeat after the leader. So the
 * leader tells them at once. One thread, the loop's. */
#ifndef CONSENSUS_RELAY_SERVER_H
#define CONSENSUS_RELAY_SERVER_H

#include "peer/host.h"
#include "consensus/proposer.h"
#include "peer/transport.h"

struct relay_server;

struct relay_server_config {
    struct host host;
    struct commands *queue;
    const struct proposer *proposer; /* unless it is open, a command goes back to its follower */
};

int relay_server_create(const struct relay_server_config *config,
                        struct relay_server **ret) FLI_MUST_USE;
void relay_server_destroy(struct relay_server *s); /* it is closed and all is answered; NULL is
                                                      fine */

/* Takes over a stream of kind STREAM_RELAY. */
void relay_server_accept(struct relay_server *s, const struct peer_identity *peer,
                         struct stream *stream);

void relay_server_event(struct relay_server *s, const struct machine_event *e);

/* Whether the peer has a stream to this node, and was heard on it within the last three seconds. */
bool relay_server_connected(const struct relay_server *s, uint64_t peer_id);

void relay_server_tick(struct relay_server *s);
void relay_server_flush(struct relay_server *s);
bool relay_server_quiet(const struct relay_server *s); /* no ticket is out, nothing is unsent */
void relay_server_close(struct relay_server *s, const char *why);

#endif
