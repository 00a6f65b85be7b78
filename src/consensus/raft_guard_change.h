/* raft_guard_change.h: the part of the guard that knows which change of the configuration is
 * committed when the next one comes; see raft_guard.h.
 *
 * Ownership: a former found is given back with guard_note_former, once. */
#ifndef CONSENSUS_RAFT_GUARD_CHANGE_H
#define CONSENSUS_RAFT_GUARD_CHANGE_H

#include <raft.h>

#include "base/base.h"

/* The configuration before the last one that a message brings. */
struct guard_former {
    raft_index index; /* 0: none */
    raft_index next;  /* of the last one */
    struct raft_configuration conf;
};

/* False, with nothing to close, when there is no memory. */
bool guard_copy_configuration(const struct raft_configuration *from, struct raft_configuration *to);

/* Before raft gets the message. */
void guard_find_former(const struct raft *r, const struct raft_append_entries *m,
                       struct guard_former *ret);

/* When raft has had it, with one that was found. Whether raft's notes were put right. */
bool guard_note_former(struct raft *r, struct guard_former *f);

#endif
