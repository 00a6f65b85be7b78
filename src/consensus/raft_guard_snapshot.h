/* raft_guard_snapshot.h (private to raft_guard): snapshots that the backend has read for raft to
 * send them to a follower. */
#ifndef CONSENSUS_RAFT_GUARD_SNAPSHOT_H
#define CONSENSUS_RAFT_GUARD_SNAPSHOT_H

#include <raft.h>
#include <stdbool.h>

/* Whether its bytes have the checksum that the machine ended them with. */
bool raft_guard_is_whole(const struct raft_snapshot *snapshot);

/* With all that it owns, as raft does. */
void raft_guard_free_snapshot(struct raft_snapshot *snapshot);

#endif
