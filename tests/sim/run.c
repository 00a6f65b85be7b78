/* run.c: one run. The cluster is formed; clients work while faults come and go. Then everything is
 * healed, and every client must get its answer in bounded time. Then no client asks for anything,
 * and every lease must end by itself and all replicas must be equal. */
#include <stdlib.h>

#include "steps.h"

#define FORM_BOUND_MS 20000u
#define ANSWER_BOUND_MS 40000u /* from healing to the last answer */
#define REST_BOUND_MS 40000u   /* from the last request to the end of every lease */
#define UNDONE_BOUND_MS 2000u  /* from there to the end of grants that no client knows of */
#define LONG_MS 3600000u       /* where the faults let hardly anything be done */
#define IDLE_ENTRIES_MAX 600u  /* the most that expiry alone may write in that time */

void sim_wait_for(const struct sim_node *n, sim_condition *is, uint64_t ms, const char *what)
{
    struct sim *s = n->sim;
    uint64_t until = s->now + ms;
    while (!is(n)) {
        sim_step(s);
        SIM_CHECK(s, s->now < until, "node %u: %s, for %llu ms", n->index + 1, what, ull(ms));
    }
}

void sim_pass(struct sim *s, uint64_t ms)
{
    uint64_t until = s->now + ms;
    while (s->now < until) {
        sim_step(s);
    }
}

bool sim_is_down(const struct sim_node *n)
{
    return n->power == SIM_DOWN;
}

static uint64_t entries_proposed(struct sim *s)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < s->n; i++) {
        const struct node *node = s->nodes[i].node;
        n += node == NULL ? 0 : node->proposer.stats.batches;
    }
    return n;
}

static bool formed(struct sim *s)
{
    const struct sim_node *leader = sim_leader(s);
    return leader != NULL && machine_cluster_id(fsm_machine(leader->node->fsm)) != 0;
}

static void form(struct sim *s)
{
    while (!formed(s)) {
        sim_step(s);
        SIM_CHECK(s, s->now < FORM_BOUND_MS, "the cluster has not formed after %u ms",
                  FORM_BOUND_MS);
    }
}

/* Without operations of clients that only ask. */
static uint64_t operations(const struct sim *s)
{
    return s->marks->operations - s->marks->asked;
}

static void work(struct sim *s)
{
    uint64_t until = s->now + s->options.work_ms;
    uint64_t enough = operations(s) + s->orders.length;
    bool cut_short = s->orders.length == 0 || s->orders.until_ms != 0;
    sim_users_start(s);
    sim_clients_start(s);
    sim_reenter_start(s);
    sim_faults_start(s, s->now);
    if (s->orders.scene == SIM_SCENE_NONE) {
        sim_tend(s);
    }
    s->scene_began = true;
    while (s->now < until || (!cut_short && operations(s) < enough && s->now < LONG_MS)) {
        sim_step(s);
    }
    sim_clients_awake(s);
}

static bool at_rest(struct sim *s)
{
    struct machine_counts counts;
    if (!sim_converged(s)) {
        return false;
    }
    machine_get_counts(fsm_machine(s->nodes[0].node->fsm), &counts);
    return counts.sessions == 0 && counts.locks == 0;
}

static uint64_t least_applied(const struct sim *s)
{
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < s->n; i++) {
        const struct node *n = s->nodes[i].node;
        uint64_t applied = n == NULL ? 0 : replica_applied_index(n->replica);
        least = applied < least ? applied : least;
    }
    return least;
}

/* In some runs so few entries may be in flight that a node which lacks thousands is longer behind.
 * It gets at least half as many as those, in a round trip that is as long as one can be. */
static uint64_t entries_in_bound(const struct sim *s)
{
    const struct sim_options *o = &s->options;
    uint64_t in_flight = o->log_kept_entries / 2;
    uint64_t round_trip_ms =
        2 * (o->delay_ms + o->delay_spread_ms + o->disk_ms + o->disk_spread_ms);
    return in_flight == 0 ? UINT64_MAX : ANSWER_BOUND_MS / (round_trip_ms + 1) * in_flight / 2 + 1;
}

/* Judged before the exercise: a node that starts again cannot take back what it granted before. */
static void take_back(struct sim *s)
{
    uint64_t since = s->now;
    while (!at_rest(s) && s->now < since + UNDONE_BOUND_MS) {
        sim_step(s);
    }
    sim_oracle_undone(s, since);
}

static void settle(struct sim *s)
{
    sim_heal(s);
    uint64_t bound = s->now + ANSWER_BOUND_MS;
    uint64_t applied = least_applied(s);
    while (!sim_clients_done(s) || !sim_reenter_done(s) || !sim_converged(s)) {
        sim_step(s);
        if (s->now >= bound) {
            uint64_t more = least_applied(s) - applied;
            SIM_CHECK(s, more >= entries_in_bound(s),
                      "not everybody is answered %u ms after healing", ANSWER_BOUND_MS);
            applied += more;
            bound += ANSWER_BOUND_MS;
        }
    }
    take_back(s);
    if (s->orders.scene == SIM_SCENE_NONE) {
        sim_pipeline_rest(s);
    }
    if (s->orders.scene == SIM_SCENE_NONE && s->orders.sabotage == SIM_SABOTAGE_NONE) {
        sim_rest_exercise(s);
    }
    uint64_t entries = entries_proposed(s);
    bound = s->now + REST_BOUND_MS;
    while (!at_rest(s)) {
        sim_step(s);
        SIM_CHECK(s, s->now < bound, "leases have not ended %u ms after the last answer",
                  REST_BOUND_MS);
    }
    /* A node that has started again has proposed nothing yet. */
    SIM_CHECK(s,
              s->orders.scene != SIM_SCENE_NONE || entries_proposed(s) - entries < IDLE_ENTRIES_MAX,
              "expiry wrote %llu entries in an idle cluster",
              (unsigned long long)(entries_proposed(s) - entries));
}

uint64_t sim_run(const struct sim_orders *orders, struct sim_marks *marks, unsigned *ret_faults)
{
    struct sim *s = calloc(1, sizeof *s);
    FLI_ASSERT(s != NULL);
    s->orders = *orders;
    s->marks = marks;
    sim_event_queue_init(s);
    sim_options_choose(s);
    sim_users_choose(s);
    sim_faults_plan(s);
    if (orders->trace) {
        sim_options_print(s, stdout);
    }
    sim_oracle_init(s);
    sim_steps_init(s);
    sim_redis_init(s);
    sim_reenter_init(s);
    sim_store_init(s);
    if (s->orders.scene != SIM_SCENE_NONE) {
        sim_scene_look(s);
        sim_tend(s);
    }
    sim_nodes_init(s);
    sim_scenario_found(s);
    form(s);
    if (s->orders.scenario != SIM_SCENARIO_NONE) {
        sim_scenario_play(s);
    } else {
        work(s);
    }
    settle(s);
    sim_oracle_end(s);
    for (unsigned i = 0; i < s->n; i++) {
        sim_snapshot_check_left(&s->nodes[i]);
    }
    uint64_t digest = s->digest;
    marks->simulated_ms += s->now;
    marks->points = s->points;
    if (ret_faults != NULL) {
        *ret_faults = s->faults_n;
    }
    sim_nodes_fini(s);
    sim_event_queue_fini(s);
    sim_net_fini(s);
    sim_oracle_fini(s);
    sim_steps_fini(s);
    sim_reenter_fini(s);
    free(s);
    return digest;
}
