/* late.c: what a node waits for comes so late that it may have begun another try: the answer to a
 * call, the end of a stream, bytes on a stream, the end of a thread's work, or of a write of the
 * log. For each kind the marks count what the node was about by then: nothing else, the same call
 * or stream anew, or another term.
 *
 * Bytes keep their order; a late one holds up those behind it. An old stream is closed when there
 * is another, so no bytes of it come. */
#include "consensus/replica.h"
#include "sim.h"

uint64_t sim_late_moment(const struct sim_node *n)
{
    bool runs = n->power == SIM_UP && n->node != NULL && n->node->replica != NULL;
    return 1 + (runs ? replica_term(n->node->replica) : 0);
}

void sim_late_begin(struct sim_node *n, const struct sim_fault *f)
{
    if (!sim_node_runs(n)) {
        return;
    }
    n->late_until[(f->k + f->j) % SIM_LATE_KINDS] = n->sim->now + f->ms;
}

uint64_t sim_late_ms(const struct sim_node *n, enum sim_late kind)
{
    uint64_t until = n->late_until[kind];
    return until > n->sim->now && !n->ghost ? until - n->sim->now : 0;
}

void sim_late_came(struct sim_node *n, enum sim_late kind, bool retried, uint64_t moment)
{
    struct sim_marks *m = n->sim->marks;
    uint64_t *const marks[SIM_LATE_KINDS][3] = {
        [SIM_LATE_CALL] = {&m->late_calls, &m->late_calls_retried, &m->late_calls_in_a_new_term},
        [SIM_LATE_END] = {&m->late_ends, &m->late_ends_retried, &m->late_ends_in_a_new_term},
        [SIM_LATE_BYTES] = {&m->late_bytes, &m->late_bytes, &m->late_bytes_in_a_new_term},
        [SIM_LATE_WORK] = {&m->late_works, &m->late_works, &m->late_works_in_a_new_term},
        [SIM_LATE_DISK] = {&m->late_disks, &m->late_disks, &m->late_disks_in_a_new_term},
    };
    bool new_term = sim_late_moment(n) != moment;
    ++*marks[kind][retried ? 1 : new_term ? 2 : 0];
}
