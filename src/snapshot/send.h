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

struct snapshot_send_config {
    const struct host *host;
    struct transport *transport;
    struct log_device *device;
};

/* Transfers to one peer, one after another. All zeros at first. Others read `failures`. */
struct snapshot_send {
    const struct snapshot_send_config *config;
    uint64_t peer_id;
    uint64_t index, size;           /* of the snapshot, and of its file */
    struct snapshot_source *source; /* NULL: nothing is sent */
    bool dialing;                   /* a call has no answer yet; perhaps of a transfer that ended */
    struct stream *stream; /* NULL: the file is not open yet, or the peer is being called */
    uint64_t sent, taken;
    uint64_t not_before_ms, pause_ms; /* after a failure */
    uint64_t failures;
};

/* Begins to send the snapshot of this entry, the newest that there is, unless a transfer is under
 * way or failed a moment ago. One that is replaced before it is open is missing: the next attempt
 * is for its successor. `config` stays valid. */
void snapshot_send_start(struct snapshot_send *s, const struct snapshot_send_config *config,
                         uint64_t peer_id, uint64_t index);

/* Goes on, in each turn of the loop. Returns the entry of a snapshot that turns out to be damaged
 * or missing, else 0: if it is the newest, make another one. */
uint64_t snapshot_send_turn(struct snapshot_send *s);

/* This node does not lead any more, or stops. It stays busy until a call is answered. */
void snapshot_send_stop(struct snapshot_send *s);

static inline bool snapshot_send_busy(const struct snapshot_send *s)
{
    return s->source != NULL || s->dialing;
}

/* Of what is sent; 0: nothing is. */
static inline uint64_t snapshot_send_index(const struct snapshot_send *s)
{
    return s->source == NULL ? 0 : s->index;
}

#endif
