/* replica_state.c: the state of a replica, for callers at any time. */
#include "consensus/replica_private.h"

_Static_assert((int)RAFT_CANDIDATE - RAFT_FOLLOWER == (int)REPLICA_CANDIDATE &&
                   (int)RAFT_LEADER - RAFT_FOLLOWER == (int)REPLICA_LEADER,
               "in the order of the library");

enum replica_role replica_role(const struct replica *r)
{
    return (enum replica_role)(r->raft.state - RAFT_FOLLOWER);
}

uint64_t replica_term(const struct replica *r)
{
    return raft_current_term(&r->raft);
}

uint64_t replica_term_of(const struct replica *r, uint64_t index)
{
    return index == r->snapshot.index ? r->snapshot.term : log_term_of(r->log, index);
}

uint64_t replica_leader(const struct replica *r)
{
    raft_id id = 0;
    const char *address;
    /* The library's readers take no const. */
    raft_leader((struct raft *)(uintptr_t)&r->raft, &id, &address);
    return id == 0 ? 0 : replica_number_of(r, id);
}

uint64_t replica_term_on_disk(const struct replica *r)
{
    return log_durable(r->log) >= r->promised_at ? log_get_hard_state(r->log).term : 0;
}

uint64_t replica_commit_index(const struct replica *r)
{
    return raft_commit_index(&r->raft);
}

uint64_t replica_applied_index(const struct replica *r)
{
    return r->applied;
}

uint64_t replica_barrier_term(const struct replica *r)
{
    return r->barrier_term;
}

uint64_t replica_last_index(const struct replica *r)
{
    return log_last_index(r->log);
}

uint64_t replica_snapshot_index(const struct replica *r)
{
    return r->snapshot.index;
}

uint64_t replica_match_index(const struct replica *r, uint64_t id)
{
    raft_index match = 0;
    return raft_match_index(&r->raft, replica_server_of(r, id), &match) == 0 ? match : 0;
}

const struct configuration *replica_configuration(const struct replica *r)
{
    return &changes_last(&r->edge.changes)->conf;
}

const struct changes *replica_changes(const struct replica *r)
{
    return &r->edge.changes;
}

uint64_t replica_configuration_index(const struct replica *r)
{
    return changes_last(&r->edge.changes)->index;
}

bool replica_configuration_committed(const struct replica *r)
{
    return changes_last(&r->edge.changes)->index <= raft_commit_index(&r->raft);
}

const struct configuration *replica_committed_configuration(const struct replica *r,
                                                            uint64_t *ret_index)
{
    const struct change *c = changes_at(&r->edge.changes, raft_edge_committed(&r->edge));
    *ret_index = c == NULL ? 0 : c->index;
    return c == NULL ? NULL : &c->conf;
}

uint64_t replica_member_index(const struct replica *r)
{
    unsigned i = r->edge.changes.n;
    while (i > 0 &&
           configuration_server(&r->edge.changes.list[i - 1].conf, r->config.incarnation) == NULL) {
        i--;
    }
    return i == 0 ? 0 : r->edge.changes.list[i - 1].index;
}
