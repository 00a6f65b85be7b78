/* report.h: each node reports its state to all others once a second, so an operator who looks at
 * one node sees them all. The report also says whether the node could take over, and by which
 * election time it goes: service depends on that, and no promise. And it says which state the node
 * has: a node whose state differs from a majority's ends
 * (docs/adr/0070-nodes-compare-their-states.md).
 *
 * A frame on the stream of Raft's messages, little endian:
 *   1 role (enum node_role), 1 the log waits for room, 1 the disk hangs, 1 it goes by its own
 *   election time, 1 version of the hash, 8 term, 8 commit index, 8 applied index, 8 size of the
 *   disk, 8 free on it (both 0: not known), 8 entry (0: none), 8 hash of the state behind it */
#ifndef CONSENSUS_REPORT_H
#define CONSENSUS_REPORT_H

#include "base/base.h"

struct peers;

#define NODE_REPORT_TYPE 32u /* beside the types of message_codec.h */
#define NODE_REPORT_SIZE 61u
#define NODE_REPORT_OLD_MS 5000u /* reports of nodes older than this are ignored */

/* A node that lacks more entries is still replaying its log, or is catching up: no leader chooses
 * it by itself to take over. */
#define NODE_REPORT_NEAR 4096u

enum node_role { NODE_FOLLOWER, NODE_CANDIDATE, NODE_LEADER, NODE_STOPPED };

struct node_report {
    uint8_t role; /* enum node_role */
    bool log_waits;
    bool disk_hangs;   /* a read or a write of the log takes so long that it should not lead */
    bool own_election; /* it goes by its own election time, not by that of CLUSTER CONFIG */
    uint64_t term, commit_index, applied_index;
    uint64_t disk_bytes, disk_free_bytes; /* of the data directory; 0: unknown */
    uint8_t hash_version;
    uint64_t hash_index, hash; /* of the state behind that entry; index 0: none */
    /* Not sent. The entries that it lacked then, computed by the receiver; and when it was made, or
     * came; 0: never. */
    uint64_t lag, at_ms;
};

void node_report_encode(const struct node_report *r, uint8_t out[NODE_REPORT_SIZE]);
int node_report_decode(struct fli_slice body, struct node_report *ret) FLI_MUST_USE; /* FL_EPROTO */

/* What another node has told last; NULL: nothing, or too long ago. */
const struct node_report *node_report_of_peer(const struct peers *p, uint64_t id);
/* Whether another node could take over, as far as it has told of itself. */
bool node_report_can_lead(const struct peers *p, uint64_t id);
/* A node whose state is another than this one's; 0: none is. */
uint64_t node_report_differs(const struct peers *p);

#endif
