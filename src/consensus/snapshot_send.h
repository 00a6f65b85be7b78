/* snapshot_send.h: the newest snapshot, on its way to a follower that lacks compacted entries.
 *
 *   leader                                     follower
 *   BEGIN: 8 index, 8 term, 8 file size  -->   receives into a file of its own
 *   DATA:  8 offset, bytes               -->
 *                                        <--   TAKEN: 8 bytes received so far
 *                                        <--   DONE: 4 code (0: it is in place), text
 *
 * The file is sent as it is, in pieces, SNAPSHOT_WINDOW bytes ahead of what the follower has taken.
 * It stays open, so a newer snapshot may replace it meanwhile. Each piece is verified before it is
 * sent: nothing after the first damaged byte leaves the node, and the owner is told. After a
 * failure the follower is left alone for a while, longer each time. One thread, the loop's. */
#ifndef CONSENSUS_SNAPSHOT_SEND_H
#define CONSENSUS_SNAPSHOT_SEND_H

#include "log/snapshot_file.h"
#include "peer/transport.h"

#define SNAPSHOT_SEND_PIECE ((size_t)64 << 10)
#define SNAPSHOT_WINDOW ((uint64_t)1 << 20)
#define SNAPSHOT_FRAME_MAX (SNAPSHOT_SEND_PIECE + 64u)

/* Types of frames. Values travel and must not change. */
enum snapshot_frame {
    SNAPSHOT_BEGIN = 1,
    SNAPSHOT_DATA = 2,
    SNAPSHOT_TAKEN = 3,
    SNAPSHOT_DONE = 4
};

struct snapshot_send;

struct snapshot_send_config {
    uv_loop_t *loop;
    struct transport *transport;
    struct log_device *device;
    uint64_t peer_id;
    void *ctx;
    void (*log)(void *ctx, int level, const char *message);
    void (*damaged)(void *ctx); /* the newest snapshot is, or is not there: make another one */
};

/* One for each peer, idle until it is started. 0 or FL_ENOMEM. */
int snapshot_send_create(const struct snapshot_send_config *config,
                         struct snapshot_send **ret) FLI_MUST_USE;

/* Begins, unless it is under way, or failed a moment ago. */
void snapshot_send_start(struct snapshot_send *s);

bool snapshot_send_busy(const struct snapshot_send *s);
uint64_t snapshot_send_index(const struct snapshot_send *s); /* of what is sent; 0: nothing is */
void snapshot_send_tick(struct snapshot_send *s); /* now and then: gives up a silent follower */
void snapshot_send_stop(struct snapshot_send *s); /* this node does not lead, or stops */
uint64_t snapshot_send_failures(const struct snapshot_send *s);

/* Stopped, when the transport is closed. NULL is fine. */
void snapshot_send_destroy(struct snapshot_send *s);

#endif
