/* raft_guard_append.h: the part of the guard through which entries go to the disk, see
 * raft_guard.h.
 *
 * Ownership: a write on one of the guard's lists is raft's until it is called back. */
#ifndef CONSENSUS_RAFT_GUARD_APPEND_H
#define CONSENSUS_RAFT_GUARD_APPEND_H

#include "consensus/raft_guard.h"

static inline struct raft_guard *guard_of(struct raft_io *outer)
{
    return FLI_CONTAINER_OF(outer, struct raft_guard, outer);
}

/* raft_guard.c: a failure after which this node must stop; the same for what a function returned,
 * which is given back. */
void guard_fail(struct raft_guard *g, const char *what, int status);
void guard_end(struct raft_guard *g, const char *message); /* the same in other words */
int guard_must(struct raft_guard *g, const char *what, int rv);

int guard_append(struct raft_io *io, struct raft_io_append *req, const struct raft_entry entries[],
                 unsigned n, raft_io_append_cb cb);
void guard_append_delayed(struct raft_guard *g); /* gives them to the backend */
void guard_cancel_appends(struct raft_guard *g); /* those that the backend does not have */
/* What is on disk from this index on counts no more. False: that could not be noted, and guard_end
 * was called. */
bool guard_cut(struct raft_guard *g, raft_index index);
uint64_t guard_append_waiting_ns(const struct raft_guard *g);

#endif
