/* raft_guard_reject.h: the part of the guard that knows a rejection which was overtaken; see
 * raft_guard.h. */
#ifndef CONSENSUS_RAFT_GUARD_REJECT_H
#define CONSENSUS_RAFT_GUARD_REJECT_H

#include <raft.h>

#include "base/base.h"

enum guard_reject {
    GUARD_REJECT_KEEP,    /* as it is, or no rejection */
    GUARD_REJECT_CORRECT, /* it says less than was heard since: corrected */
    GUARD_REJECT_DROP     /* it is over */
};

/* A follower's answer, before raft gets it. match: what it has confirmed in this term. */
enum guard_reject guard_judge_reject(raft_index match, struct raft_append_entries_result *m);

#endif
