/* raft_guard_reject.c: see raft_guard_reject.h.
 *
 * While one leader leads, a follower never has less of its log than it has said to have: what it
 * confirmed is on its disk, and nobody else may cut it off. So a rejection at or below that is from
 * before. To drop it is what Raft bears of any message. */
#include "consensus/raft_guard_reject.h"

enum guard_reject guard_judge_reject(raft_index match, struct raft_append_entries_result *m)
{
    if (m->rejected == 0) {
        return GUARD_REJECT_KEEP;
    }
    if (m->rejected <= match) {
        return GUARD_REJECT_DROP;
    }
    if (m->last_log_index < match) {
        m->last_log_index = match;
        return GUARD_REJECT_CORRECT;
    }
    return GUARD_REJECT_KEEP;
}
