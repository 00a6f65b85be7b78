/* rest.c: when all is well again, a cluster does all that a new one does, whatever has happened to
 * it before. Something that was set on the way into trouble, and not on the way out, shows here.
 *
 *   - Each node is connected to each other one, and each follower to the leader. Nobody owes an
 *     answer to a follower.
 *   - Each node has on its disk of which cluster it is, which starts the others are, and how far
 *     they came.
 *   - Each voter takes over in turn, and meanwhile each node answers what it is asked. One that led
 *     before leads again, while what it was asked is on its way. One that is to hand over to a node
 *     that stands still says so, and goes on.
 *   - Each node ends and is started again in turn: in order, killed, and without power.
 *   - Each node takes a snapshot once one is due.
 *   - A power cut would take nothing of any of them that counts. */
#include "members.h"
#include "net_private.h"

#define SOON_MS 20000u
#define SNAPSHOT_MS 90000u /* a node that has failed to take one waits for a minute */
#define AGAIN_MS 60u
#define BURST 8u
#define LEAD_AGAIN 4u    /* in one of so many runs */
#define LONG_BURST 1600u /* more than a turn moves */

static bool votes(const struct sim_node *n)
{
    const struct configuration *c = replica_configuration(n->node->replica);
    const struct configuration_server *is = configuration_find(c, n->index + 1);
    return is != NULL && is->role == CONFIGURATION_VOTER;
}

/* ---- links ---- */

static bool is_linked(const struct sim_node *n)
{
    struct sim *s = n->sim;
    struct sim_node *leader = sim_leader(s);
    bool all = sim_converged(s) && !sim_tables_lists_others(n) && relay_quiet(&n->node->relay);
    for (unsigned i = 0; all && i < s->n; i++) {
        struct sim_node *other = &s->nodes[i];
        s->current = leader; /* its clock is the one that is read */
        all = other == n || (peers_is_up(&n->node->peers, i + 1) &&
                             peers_is_up(&other->node->peers, n->index + 1));
        all = all && (other == leader || relay_has_follower(&leader->node->relay, i + 1));
        s->current = NULL;
    }
    return all;
}

static void link_all(struct sim *s)
{
    for (unsigned i = 0; i < s->n; i++) {
        sim_wait_for(&s->nodes[i], is_linked, SOON_MS,
                     "all is well, and it is not connected to all");
    }
}

/* ---- what is written down ---- */

static uint64_t rested; /* an entry that all had when the exercise began */

static bool knows(const struct sim_node *n, const struct sim_node *of)
{
    const struct starts_known *k =
        starts_find(&n->disk.record.starts, of->disk.record.identity.incarnation);
    return k != NULL && start_is(k->start, of->node->record.own.now.starts.own) &&
           k->index >= rested &&
           configuration_server(replica_configuration(n->node->replica),
                                of->disk.record.identity.incarnation) != NULL;
}

static bool has_noted(const struct sim_node *n)
{
    bool all = n->disk.record.starts.next.number >= STARTS_RECORDED &&
               n->disk.record.identity.cluster_id != 0;
    for (unsigned i = 0; i < n->sim->n; i++) {
        all = all && (i == n->index || knows(n, &n->sim->nodes[i]));
    }
    return all;
}

static void note_all(struct sim *s)
{
    rested = replica_commit_index(sim_leader(s)->node->replica);
    for (unsigned i = 0; i < s->n; i++) {
        sim_wait_for(&s->nodes[i], has_noted, SOON_MS,
                     "all is well, and it has not noted what it knows of the others");
    }
}

/* ---- leading ---- */

static int handed_over; /* 1: not answered yet */

static void told(void *ctx, int status)
{
    *(int *)ctx = status;
}

static void lead(struct sim_node *n)
{
    static int status, again;
    struct sim *s = n->sim;
    uint64_t until = s->now + SOON_MS;
    status = -1;
    for (struct sim_node *leader = sim_leader(s); leader != n; leader = sim_leader(s)) {
        if (leader != NULL && status <= 0) {
            s->current = leader;
            status = 1;
            int rv = node_transfer(leader->node, n->index + 1, told, &status);
            if (rv == 0 && status == 1) { /* it is refused, see operations.c */
                (void)!node_transfer(leader->node, n->index + 1, told, &again);
            }
            s->current = NULL;
            status = rv != 0 ? rv : status;
        }
        sim_pass(s, AGAIN_MS);
        SIM_CHECK(s, s->now < until, "all is well, and node %u does not take over: %s",
                  n->index + 1, status == 1 ? "no answer" : fl_err_name(status));
    }
}

static void lead_in_turn(struct sim *s)
{
    for (unsigned i = 0; i < s->n; i++) {
        for (unsigned k = 0; k < s->n; k++) {
            sim_pipeline_ask(&s->nodes[k], BURST);
        }
        if (votes(&s->nodes[i])) {
            lead(&s->nodes[i]);
        }
        sim_pipeline_wait(s);
    }
    link_all(s);
}

/* What followers have sent is on its way for so long that their leader has given back what came
 * before, and leads again. */
static void lead_again(struct sim *s)
{
    struct sim_node *n = sim_leader(s);
    struct sim_node *other = &s->nodes[(n->index + 1) % s->n];
    if (!votes(other) || !votes(n)) {
        return;
    }
    for (unsigned k = 0; k < s->n; k++) {
        sim_pipeline_ask(&s->nodes[k], LONG_BURST);
    }
    sim_pass(s, s->options.delay_ms + sim_below(s, 30));
    n->late_until[SIM_LATE_BYTES] = s->now + s->options.election_ms;
    lead(other);
    lead(n);
    sim_pipeline_wait(s);
    link_all(s);
}

static bool is_told(const struct sim_node *n)
{
    (void)n;
    return handed_over != 1;
}

/* The node lacks entries, so it must not take over, and does not get them. */
static void lead_nowhere(struct sim *s)
{
    struct sim_node *leader = sim_leader(s);
    struct sim_node *to = &s->nodes[(leader->index + 1) % s->n];
    if (!votes(to)) {
        return;
    }
    sim_node_pause(to);
    sim_pipeline_ask(leader, BURST);
    sim_pass(s, 2 * s->options.heartbeat_ms);
    handed_over = 1;
    s->current = leader;
    int rv = node_transfer(leader->node, to->index + 1, told, &handed_over);
    s->current = NULL;
    handed_over = rv != 0 ? rv : handed_over;
    sim_wait_for(leader, is_told, SOON_MS, "all is well, and it does not say that it leads on");
    sim_node_resume(to);
    sim_pipeline_wait(s);
    link_all(s);
}

/* ---- ends and starts ---- */

static void start_again(struct sim_node *n, unsigned how)
{
    if (how % 3 == 0) {
        sim_node_stop(n);
    } else {
        sim_node_crash(n, how % 3 == 1);
    }
    sim_wait_for(n, sim_is_down, SOON_MS, "all is well, and it does not end");
    n->restart_at = SIM_NEVER;
    sim_node_start(n);
    sim_wait_for(n, is_linked, 2 * SOON_MS, "all is well, and it is not back");
}

/* ---- snapshots ---- */

static uint64_t least_snapshot(const struct sim *s)
{
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < s->n; i++) {
        uint64_t index = replica_snapshot_index(s->nodes[i].node->replica);
        least = index < least ? index : least;
    }
    return least;
}

static void take_snapshots(struct sim *s)
{
    uint64_t last = replica_last_index(s->nodes[0].node->replica);
    uint64_t until = s->now + SNAPSHOT_MS;
    while (least_snapshot(s) <= last) {
        sim_pipeline_ask(&s->nodes[s->now % s->n], 1);
        sim_pass(s, 20);
        SIM_CHECK(s, s->now < until, "all is well, and not all nodes take a snapshot");
    }
    sim_pipeline_wait(s);
}

void sim_rest_exercise(struct sim *s)
{
    link_all(s);
    note_all(s);
    lead_in_turn(s);
    if (s->orders.relay_heavy || s->orders.seed % LEAD_AGAIN == 0) {
        lead_again(s);
        lead_nowhere(s);
    }
    for (unsigned i = 0; i < s->n; i++) {
        start_again(&s->nodes[i], i + (unsigned)s->orders.seed);
    }
    if (s->options.snapshot_entries != 0 && s->options.snapshot_entries <= 100) {
        take_snapshots(s);
    }
    link_all(s);
    note_all(s);
    for (unsigned i = 0; i < s->n; i++) {
        sim_read_back(&s->nodes[i]);
    }
    sim_operations_rest(s);
}
