/* node_backup.h: a backup that a node makes of its state for a client, one at a time.
 *
 * A snapshot is taken for it, by a child as any other (snapshot_child.h), so that the loop does not
 * wait; then its file is read piece by piece, each verified, and stays readable when a newer one
 * replaces it. What is not asked for in BACKUP_IDLE_MS is given up. */
#ifndef CONSENSUS_NODE_BACKUP_H
#define CONSENSUS_NODE_BACKUP_H

#include "consensus/node.h"

#define BACKUP_IDLE_MS UINT64_C(30000)

/* Begins one. 0 and its number; FL_EBUSY: another one is being made; FL_ENOLEADER: this node hears
 * no leader, so it may be behind, or the cluster is not formed yet. */
int node_backup_begin(struct node *n, uint64_t *ret_id) FLI_MUST_USE;

/* The bytes at offset, which is what was read so far, at most len. *ret_len 0: that was all, and it
 * is over. FL_EBUSY: the snapshot is being written, ask again; FL_ENOTFOUND: there is no such
 * backup any more; FL_EINVAL: another offset; FL_EIO, FL_ECORRUPT, FL_ENOMEM: it failed and is
 * over, *ret_why says why, until the next call. */
int node_backup_read(struct node *n, uint64_t id, uint64_t offset, void *data, size_t len,
                     size_t *ret_len, const char **ret_why) FLI_MUST_USE;

/* How many were made since start, and how old the newest one is. */
struct backup_counts node_backup_counts(const struct node *n);

#endif
