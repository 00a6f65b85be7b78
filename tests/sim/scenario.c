/* scenario.c: runs that are told from beginning to end, for what random faults hardly ever bring
 * about. The seed chooses the network, the disks and the moments; the order of events is the
 * scenario's. All oracles judge, and the scenario asks for what must come of it.
 *
 *   removed    a node that is removed ends by itself, whether it hears of it or is cut off
 *   older      an older copy of a disk, of a start that only one other node knows to be over
 *   snapshots  one of many pieces, whose way breaks again and again
 *   lacks      an older copy of the present start
 *   tail       the newest file of a log is gone
 *   often      a node is removed and added again, more often than others have places for it; some
 *              calls to it have no end until all that is over
 *   busy       an operator's request waits for another command, and what it needs goes meanwhile
 *   four       of four that vote one is away, and another one is to move or to leave
 *   learner    a learner is away while another node is added
 *   unsynced   a call of the disk fails while a snapshot gets its name, and the power goes
 *   founders   once one founder has begun, another one is away
 *   deposed    a leader is replaced, hears of nothing, and is asked to renew what its successor has
 *              ended; answers to what it asked before may be on their way
 *   overtaken  a snapshot goes as far as entries of a leader that nobody heard
 *   beside     a snapshot comes while a process writes the own one of a node
 *   differs    a node is behind while two others have different states
 *   unread     a snapshot comes to a node whose disk gives nothing back
 *   flooded    what a client has left behind stands in a long line
 *   awaited    one that is waited for is to be removed while another one leaves
 *   doubted    a node is added while two others have different states
 *   cached     a write of the log fails whose bytes the next start finds in the cache
 *   crowded    a lease ends while each entry is full
 *   torn       writes are torn, again and again
 *   moved      a command of the cluster's own ends while a node is being moved
 *   forced     a removal that was forced is not withdrawn by another one */

#include <stdlib.h>
#include <errno.h>
#include <string.h>

#include "members/membership_private.h"
#include "scenario_steps.h"

#define CHURN 1500u /* commands that make a snapshot due, twice */
#define FILLER_TTL_MS 86400000u

/* ---- steps ---- */

bool scenario_leads(const struct sim_node *n)
{
    return sim_leader(n->sim) != NULL;
}

struct sim_node *scenario_the_leader(struct sim *s)
{
    sim_wait_for(&s->nodes[0], scenario_leads, LATE_MS, "nobody leads");
    return sim_leader(s);
}

struct sim_node *scenario_other(struct sim *s, const struct sim_node *than, unsigned which)
{
    unsigned i = 0;
    while (&s->nodes[i] == than || which-- > 0) {
        i++;
        FLI_ASSERT(i < s->n);
    }
    return &s->nodes[i];
}

/* Between one node and another, both ways. */
void scenario_cut(struct sim_node *a, struct sim_node *b, uint64_t ms)
{
    a->sim->links[a->index][b->index].cut_until = a->sim->now + ms;
    a->sim->links[b->index][a->index].cut_until = a->sim->now + ms;
}

void scenario_cut_off(struct sim_node *n, uint64_t ms)
{
    for (unsigned i = 0; i < n->sim->n; i++) {
        if (i != n->index) {
            scenario_cut(n, &n->sim->nodes[i], ms);
        }
    }
}

static void answered(void *ctx, int status)
{
    *(int *)ctx = status;
}

int scenario_ask(struct sim_node *leader, const struct node_change *what, int *status)
{
    struct sim *s = leader->sim;
    *status = 1;
    s->current = leader;
    int rv = node_change(leader->node, what, answered, status);
    s->current = NULL;
    *status = rv != 0 ? rv : *status;
    return *status;
}

/* Until it is done: who leads may change. */
void scenario_change(struct sim *s, const struct node_change *what)
{
    static int status;
    uint64_t until = s->now + LATE_MS;
    for (status = -1; status != 0;) {
        struct sim_node *leader = sim_leader(s);
        if (leader != NULL && status <= 0) {
            (void)scenario_ask(leader, what, &status);
        }
        sim_pass(s, 50);
        SIM_CHECK(s, s->now < until, "a change of node %llu is not made: %s", ull(what->id),
                  fl_err_name(status));
    }
}

bool scenario_is_no_member(const struct sim_node *n)
{
    const struct sim_node *leader = sim_leader(n->sim);
    return leader != NULL && leader != n &&
           configuration_find(replica_configuration(leader->node->replica), n->index + 1) == NULL &&
           replica_configuration_committed(leader->node->replica) &&
           machine_node_find(fsm_machine(leader->node->fsm), n->index + 1)->id == 0;
}

/* The operator of faults.c brings it back, in the end. */
void scenario_leave_to_operator(struct sim_node *n)
{
    n->wiped = true;
    n->change = SIM_CHANGE_REMOVE;
    n->keeps_disk = false;
}

int scenario_send(struct sim_node *n, const struct machine_command *c, struct node_ticket *t,
                  node_ticket_cb cb)
{
    struct fli_buf buf;
    fli_buf_init(&buf, MACHINE_COMMAND_MAX);
    int rv = machine_command_encode(c, &buf);
    FLI_ASSERT(rv == 0);
    n->sim->current = n;
    rv = node_submit(n->node, t, buf.data, buf.len, cb);
    n->sim->current = NULL;
    fli_buf_fini(&buf);
    return rv;
}

void scenario_filler(unsigned i, uint8_t name[SIM_FILLER_LEN])
{
    memset(name, '.', SIM_FILLER_LEN);
    name += snprintf((char *)name, SIM_FILLER_LEN, "F%05u", i);
    *name = '.';
}

static void forget(struct node_ticket *t, int status, const struct machine_result *result,
                   struct fli_slice payload)
{
    free(t);
}

void scenario_add(struct sim_node *leader, uint8_t op, unsigned i)
{
    uint8_t name[SIM_FILLER_LEN];
    struct machine_command c = {.op = op, .n_names = 1};
    scenario_filler(i, name);
    c.name = c.owner = (struct fli_slice){name, sizeof name};
    if (op == MACHINE_OP_ACQUIRE) {
        c.ttl_ms = FILLER_TTL_MS;
        c.permits = 1;
    } else {
        c.owner.len = 0;
    }
    struct node_ticket *t = fli_xcalloc(1, sizeof *t);
    int rv = scenario_send(leader, &c, t, forget);
    FLI_ASSERT(rv == 0);
}

static bool has_done(const struct sim_node *n)
{
    const struct sim_node *leader = sim_leader(n->sim);
    return leader != NULL && leader->node->commands.count == 0;
}

void scenario_add_many(struct sim *s, uint8_t op, unsigned from, unsigned n)
{
    struct sim_node *leader = scenario_the_leader(s);
    for (unsigned i = 0; i < n; i++) {
        scenario_add(leader, op, from + i);
    }
    sim_pass(s, 10);
    sim_wait_for(&s->nodes[0], has_done, LATE_MS, "what was asked for is not done");
}

/* Entries that change nothing: until a snapshot is due, and the log begins behind it. */
void scenario_churn(struct sim *s)
{
    scenario_add_many(s, MACHINE_OP_BREAK, FILLERS, CHURN);
}

bool scenario_has_all(const struct sim_node *n)
{
    const struct sim_node *leader = sim_leader(n->sim);
    return leader != NULL && sim_node_runs(n) &&
           replica_applied_index(n->node->replica) >= replica_commit_index(leader->node->replica);
}

void scenario_transferred(void *ctx, int status)
{
    struct sim *s = ctx;
    s->marks->transfers += status == 0;
}

bool scenario_is_settled(const struct sim_node *n)
{
    return sim_converged(n->sim);
}

/* ---- all of them ---- */

static const struct {
    const char *name;
    unsigned nodes;
    bool tended; /* by the operator of faults.c from the beginning */
    void (*play)(struct sim *s);
    void (*found)(struct sim *s); /* before the cluster is formed; may be NULL */
} scenarios[SIM_SCENARIOS] = {
    [SIM_SCENARIO_FOUNDERS] = {"founders", 3, false, scenario_founders, scenario_found},
    [SIM_SCENARIO_REMOVED] = {"removed", 3, false, scenario_removed, NULL},
    [SIM_SCENARIO_OLDER] = {"older", 3, false, scenario_older, NULL},
    [SIM_SCENARIO_SNAPSHOTS] = {"snapshots", 3, false, scenario_snapshots, NULL},
    [SIM_SCENARIO_BUSY] = {"busy", 5, false, scenario_busy, NULL},
    [SIM_SCENARIO_LACKS] = {"lacks", 3, false, scenario_lacks, NULL},
    [SIM_SCENARIO_TAIL] = {"tail", 3, false, scenario_tail, NULL},
    [SIM_SCENARIO_OFTEN] = {"often", 3, true, scenario_often, NULL},
    [SIM_SCENARIO_FOUR] = {"four", 5, false, scenario_four, NULL},
    [SIM_SCENARIO_LEARNER] = {"learner", 5, false, scenario_learner, NULL},
    [SIM_SCENARIO_UNSYNCED] = {"unsynced", 3, false, scenario_unsynced, NULL},
    [SIM_SCENARIO_DEPOSED] = {"deposed", 3, false, scenario_deposed, NULL},
    [SIM_SCENARIO_OVERTAKEN] = {"overtaken", 3, false, scenario_overtaken, NULL},
    [SIM_SCENARIO_BESIDE] = {"beside", 3, false, scenario_beside, NULL},
    [SIM_SCENARIO_DIFFERS] = {"differs", 3, false, scenario_differs, NULL},
    [SIM_SCENARIO_UNREAD] = {"unread", 3, false, scenario_unread, NULL},
    [SIM_SCENARIO_FLOODED] = {"flooded", 3, false, scenario_flooded, NULL},
    [SIM_SCENARIO_DOUBTED] = {"doubted", 3, false, scenario_doubted, NULL},
    [SIM_SCENARIO_FORCED] = {"forced", 5, false, scenario_forced, NULL},
    [SIM_SCENARIO_CACHED] = {"cached", 3, false, scenario_cached, NULL},
    [SIM_SCENARIO_CROWDED] = {"crowded", 3, false, scenario_crowded, NULL},
    [SIM_SCENARIO_TORN] = {"torn", 3, false, scenario_torn, NULL},
    [SIM_SCENARIO_MOVED] = {"moved", 5, false, scenario_moved, NULL},
    [SIM_SCENARIO_AWAITED] = {"awaited", 5, false, scenario_awaited, NULL},
};

const char *sim_scenario_name(enum sim_scenario k)
{
    return k == SIM_SCENARIO_NONE ? "none" : scenarios[k].name;
}

void sim_scenario_choose(struct sim *s)
{
    struct sim_options *o = &s->options;
    if (s->orders.scenario == SIM_SCENARIO_NONE) {
        return;
    }
    memset(o->weight, 0, sizeof o->weight);
    o->nodes = scenarios[s->orders.scenario].nodes;
    o->writers = o->callers = o->redlockers = o->askers = 0;
    o->jumps = false;
    o->ppm_max = 0;
    o->spike_permille = 0;
    o->limits = MACHINE_LIMITS_DEFAULT;
    o->pending_max = NODE_PENDING_MAX;
    o->snapshot_entries = 10;
    o->snapshot_bytes = 2000;
    o->segment_bytes = LOG_SEGMENT_MIN << (s->orders.scenario == SIM_SCENARIO_CROWDED ? 0 : 3);
    o->disk_spread_ms %= 8;
    o->child_ms = s->orders.scenario == SIM_SCENARIO_SNAPSHOTS ? 800 : 0;
    o->log_kept_entries = 2;
    o->cache_bytes = s->orders.scenario == SIM_SCENARIO_UNREAD ? 1 : o->cache_bytes;
}

void sim_scenario_found(struct sim *s)
{
    void (*f)(struct sim * s) =
        s->orders.scenario == SIM_SCENARIO_NONE ? NULL : scenarios[s->orders.scenario].found;
    if (f != NULL) {
        f(s);
    }
}

void sim_scenario_play(struct sim *s)
{
    scenarios[s->orders.scenario].play(s);
    if (!scenarios[s->orders.scenario].tended) {
        sim_tend(s);
    }
}
