/* send.h: sends a snapshot to a follower that lacks compacted entries.
 *
 *   leader                                     follower
 *   BEGIN: 8 index, 8 term, 8 file size  -->   receives into a file of its own
 *   DATA:  8 offset, bytes               -->
 *                                        <--   TAKEN: 8 bytes received so far
 *                                        <--   DONE: 4 code (0: it is in place), text
 *
 * The file is sent unchanged, in pieces, at most SNAPSHOT_WINDOW bytes ahead of what the follower
 * has taken. A worker reads it, since the loop must not wait for the disk. It stays open, so a
 * newer snapshot may replace it meanwhile. Each piece is verified before it is sent: no byte after
 * the first damaged one leaves the node, and the owner is told. After a failure the next attempt
 * waits, longer each time. One thread, the loop's. */
#ifndef SNAPSHOT_SEND_H
#define SNAPSHOT_SEND_H

#include "peer/host.h"
#include "snapshot/format.h"
#include "snapshot/source.h"
#include "peer/transport.h"

#define SNAPSHOT_SEND_PIECE (SNAPSHOT_UNIT_MAX / 4)
#define SNAPSHOT_WINDOW ((uint64_t)1 << 20)
#define SNAPSHOT_SILENCE_MS 30000u /* after which either side gives the other up */
#define SNAPSHOT_FRAME_MAX (SNAPSHOT_SEND_PIECE + 64u)

/* Types of frames. The values are sent and must not change. */
enum snapshot_frame {
    SNAPSHOT_BEGIN = 1,
    SNAPSHOT_DATA = 2,
    SNAPSHOT_TAKEN = 3,
    SNAPSHOT_DONE = 4
};

struct snapshot_send;

struct snapshot_send_config {
    const struct host *host;
    struct transport *transport;
    struct log_device *device;
    uint64_t peer_id;
    void *ctx;
    /* The snapshot of this entry is damaged or missing. If it is the newest, make another one. */
    void (*damaged)(void *ctx, uint64_t index);
};

/* Makes one for each peer, idle until it is started. 0 or FL_ENOMEM. */
int snapshot_send_create(const struct snapshot_send_config *config,
                         struct snapshot_send **ret) FLI_MUST_USE;

/* Begins to send the snapshot of this entry, the newest that there is, unless a transfer is under
 * way or failed a moment ago. One that is replaced before it is open is missing: the next attempt
 * is for its successor. */
void snapshot_send_start(struct snapshot_send *s, uint64_t index);

bool snapshot_send_busy(const struct snapshot_send *s);
uint64_t snapshot_send_index(const struct snapshot_send *s); /* of what is sent; 0: nothing is */
void snapshot_send_tick(struct snapshot_send *s);            /* from time to time: gives up a silent
                                                     follower */
/* This node does not lead any more, or stops. It stays busy until a call is answered. */
void snapshot_send_stop(struct snapshot_send *s);
uint64_t snapshot_send_failures(const struct snapshot_send *s);

/* It must be stopped and the transport closed. NULL is fine. */
void snapshot_send_destroy(struct snapshot_send *s);

#endif
