/* node_backup.h: a backup that a node makes of its state for a client, one at a time.
 *
 * A snapshot child takes a snapshot for it (snapshot/child.h), and a worker reads its file
 * (snapshot/source.h), so the loop does not wait. Each piece is verified. The file stays readable
 * when a newer one replaces it. A backup that no client reads for BACKUP_IDLE_MS is given up. */
#ifndef CONSENSUS_NODE_BACKUP_H
#define CONSENSUS_NODE_BACKUP_H

#include "consensus/node.h"

#define BACKUP_IDLE_MS UINT64_C(30000)

/* Begins a backup. 0 and its number; FL_EBUSY: another one is being made; FL_ENOLEADER: this node
 * hears no leader, so it may be behind, or the cluster is not formed yet. */
int node_backup_begin(struct node *n, uint64_t *ret_id) FLI_MUST_USE;

/* Reads at most len bytes; `offset` must be the number of bytes read so far. *ret_len 0: the end,
 * and the backup is over. FL_EBUSY: they are not ready, ask again; FL_ENOTFOUND: there is no such
 * backup any more; FL_EINVAL: a wrong offset; FL_EIO, FL_ECORRUPT, FL_ENOMEM: the backup failed and
 * is over; *ret_why says why, until the next call. */
int node_backup_read(struct node *n, uint64_t id, uint64_t offset, void *data, size_t len,
                     size_t *ret_len, const char **ret_why) FLI_MUST_USE;

/* The number of backups since start, and the age of the newest one. */
struct backup_counts node_backup_counts(const struct node *n);

#endif
