/* scenario_snapshots.c: scenarios of nodes that are left behind until they need a snapshot, and of
 * what is under way when it comes (scenario.c). */
#include <string.h>

#include "members/membership_private.h"
#include "consensus/peers.h"
#include "consensus/replica_private.h"
#include "log/log_private.h"
#include "node_clock.h"
#include "scenario_steps.h"
#include "snapshot/format.h"

#define ROUNDS 3u
#define OWN_ENTRIES                                                                                \
    12u            /* commands of a leader that nobody hears: as many entries as may be in flight */
#define LARGE 100u /* commands that make a snapshot due, in one entry */
#define BEHIND_MS (3 * LATE_MS) /* a transfer that hangs keeps the log for a while */
#define CACHE_BYTES ((size_t)1 << 20)

static bool is_open(const struct sim_node *n)
{
    return sim_node_runs(n) && proposer_is_open(&n->node->proposer);
}

static void wake(struct sim_event *e)
{
}

/* Until the log of whoever leads begins behind this entry. */
static void leave_behind(struct sim *s, uint64_t index)
{
    uint64_t until = s->now + BEHIND_MS;
    while (log_first_index(scenario_the_leader(s)->node->log) <= index + 1) {
        scenario_churn(s);
        sim_pass(s, 300);
        SIM_CHECK(s, s->now < until, "the log keeps entry %llu", ull(index));
    }
}

/* ---- overtaken ---- */

static void append(struct sim_node *n, unsigned commands)
{
    for (unsigned i = 0; i < commands && is_open(n); i++) {
        scenario_add(n, MACHINE_OP_BREAK, FILLERS);
    }
    (void)sim_to_node(n, 0, wake);
    sim_pass(n->sim, 6);
}

static bool has_snapshot(const struct sim_node *n, uint64_t index, uint64_t term)
{
    char name[LOG_NAME_MAX + 1];
    size_t len;
    snapshot_name(index, term, false, name);
    return sim_device_data(n->disk.device, name, &len) != NULL;
}

static struct sim_node *successor_of(struct sim_node *old)
{
    struct sim *s = old->sim;
    uint64_t until = s->now + LATE_MS;
    while (is_open(old) || sim_leader(s) == NULL) {
        sim_step(s);
        SIM_CHECK(s, s->now < until, "nobody leads in the place of node %u", old->index + 1);
    }
    return sim_leader(s);
}

/* A leader that nobody hears appends entries, and others take their places. A snapshot comes that
 * goes as far as some of them, and the power goes before the log begins anew behind it. */
void scenario_overtaken(struct sim *s)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct sim_node *old = scenario_the_leader(s);
        sim_wait_for(old, scenario_is_settled, LATE_MS, "it does not settle");
        uint64_t last = replica_last_index(old->node->replica);
        scenario_cut_off(old, LATE_MS);
        for (unsigned k = 0; k < OWN_ENTRIES; k++) {
            append(old, 1);
        }
        struct sim_node *next = successor_of(old);
        uint64_t until = s->now + SOON_MS;
        while (s->now < until && replica_snapshot_index(next->node->replica) <= last + 1) {
            append(next, LARGE);
            sim_pass(s, 100);
        }
        uint64_t index = replica_snapshot_index(next->node->replica);
        uint64_t term = next->node->replica->snapshot.term;
        uint64_t was = log_term_of(old->node->log, index);
        scenario_cut_off(old, 0);
        until = s->now + SOON_MS;
        while (s->now < until && !has_snapshot(old, index, term) && !scenario_has_all(old)) {
            sim_step(s);
        }
        if (has_snapshot(old, index, term)) {
            s->marks->scenarios_told += was != 0 && was != term;
            sim_node_crash(old, sim_below(s, 2) == 0);
            sim_node_start(old);
        }
        sim_wait_for(old, scenario_has_all, LATE_MS, "it does not catch up");
    }
}

/* ---- beside ---- */

static bool has_come(const struct sim_node *n)
{
    const struct snapshot_install *in = &n->node->snapshots.install;
    return snapshot_install_works(in) ||
           (snapshot_install_receives(in) != 0 && in->received == in->size);
}

/* A snapshot comes while a process writes one of the node's own, which is of an earlier entry. */
void scenario_beside(struct sim *s)
{
    struct sim_node *n =
        scenario_other(s, scenario_the_leader(s), (unsigned)sim_below(s, s->n - 1));
    sim_wait_for(n, scenario_is_settled, LATE_MS, "it does not settle");
    n->child_waits = true;
    uint64_t until = s->now + SOON_MS;
    while (s->now < until && n->child == NULL) {
        scenario_churn(s);
    }
    uint64_t last = replica_last_index(n->node->replica);
    scenario_cut_off(n, 2 * BEHIND_MS);
    leave_behind(s, last);
    scenario_cut_off(n, 0);
    until = s->now + SOON_MS;
    while (s->now < until && !has_come(n)) {
        sim_step(s);
    }
    s->marks->scenarios_told += n->child != NULL && has_come(n);
    sim_pass(s, sim_below(s, 200));
    n->child_waits = false;
    sim_wait_for(n, scenario_has_all, LATE_MS, "it does not catch up");
}

/* ---- differs ---- */

/* The leader is told that the node has another state. */
static void tell_of_another_state(struct sim_node *leader, uint64_t id)
{
    struct node_report r = {.role = NODE_FOLLOWER, .hash_version = MACHINE_HASH_VERSION};
    uint8_t body[NODE_REPORT_SIZE];
    r.term = replica_term(leader->node->replica);
    r.commit_index = r.applied_index = replica_applied_index(leader->node->replica);
    r.hash_index = replica_hash_index(leader->node->replica);
    (void)replica_hash_at(leader->node->replica, r.hash_index, &r.hash);
    r.hash++;
    node_report_encode(&r, body);
    leader->sim->current = leader;
    int rv = node_report_receive(leader->node, id, (struct fli_slice){body, sizeof body});
    leader->sim->current = NULL;
    FLI_ASSERT(rv == 0);
}

/* Of two states that differ nobody knows which is right. A voter that is behind gets neither, as
 * long as the others do without it. */
void scenario_differs(struct sim *s)
{
    struct sim_node *leader = scenario_the_leader(s);
    struct sim_node *n = scenario_other(s, leader, 0);
    struct sim_node *third = scenario_other(s, leader, 1);
    sim_wait_for(n, scenario_is_settled, LATE_MS, "it does not settle");
    uint64_t last = replica_last_index(n->node->replica);
    scenario_cut_off(n, 2 * BEHIND_MS);
    leave_behind(s, last);
    leader = scenario_the_leader(s);
    third = scenario_other(s, leader, scenario_other(s, leader, 0) == n);
    sim_wait_for(third, scenario_has_all, LATE_MS, "it does not catch up");
    scenario_cut_off(n, 0);
    uint64_t until = s->now + SOON_MS;
    while (s->now < until && sim_leader(s) == leader) {
        third->node->watch.own.at_ms = sim_node_ms(third); /* it says nothing else */
        tell_of_another_state(leader, third->index + 1);
        if (node_report_differs(&leader->node->peers) != 0) {
            s->marks->scenarios_told++;
            SIM_CHECK(s, snapshot_install_receives(&n->node->snapshots.install) == 0,
                      "node %u sends a voter its state, and another one has a different one",
                      leader->index + 1);
        }
        sim_pass(s, 10);
    }
    sim_wait_for(n, scenario_has_all, LATE_MS, "it does not catch up");
}

/* ---- doubted ---- */

static bool is_voter(const struct sim_node *leader, const struct sim_node *n)
{
    const struct configuration_server *is =
        configuration_find(replica_configuration(leader->node->replica), n->index + 1);
    return is != NULL && is->role == CONFIGURATION_VOTER;
}

/* Two differ in their states while a third one comes. Its vote would make a majority for the
 * leader, which may be the one that is damaged: it stays a learner. */
void scenario_doubted(struct sim *s)
{
    static int status;
    scenario_churn(s); /* so states have been compared */
    struct sim_node *n = scenario_other(s, scenario_the_leader(s), 0);
    struct node_change what = {.kind = NODE_CHANGE_REMOVE, .id = n->index + 1};
    n->wiped = true;
    scenario_change(s, &what);
    sim_wait_for(n, scenario_is_no_member, LATE_MS, "it is not taken out");
    if (sim_node_runs(n)) {
        sim_node_crash(n, false);
    }
    sim_disk_wipe(n);
    n->joins = true;
    sim_node_start(n);
    struct sim_node *leader = scenario_the_leader(s);
    struct sim_node *third = scenario_other(s, leader, scenario_other(s, leader, 0) == n);
    sim_wait_for(third, scenario_has_all, LATE_MS, "it does not catch up");
    what = (struct node_change){.kind = NODE_CHANGE_ADD, .id = n->index + 1};
    (void)snprintf(what.address, sizeof what.address, "node%u:1", n->index + 1);
    uint64_t until = s->now + SOON_MS;
    for (status = -1; s->now < until && sim_leader(s) == leader;) {
        third->node->watch.own.at_ms = sim_node_ms(third); /* it says nothing else */
        tell_of_another_state(leader, third->index + 1);
        bool differ = node_report_differs(&leader->node->peers) != 0;
        s->marks->scenarios_told += differ;
        SIM_CHECK(s, !differ || !is_voter(leader, n),
                  "node %u gets a vote, and the states of two others differ", n->index + 1);
        if (status < 0) {
            (void)scenario_ask(leader, &what, &status);
        }
        sim_pass(s, 10);
    }
    scenario_leave_to_operator(n);
}

/* ---- unread ---- */

static bool waits_for_read(const struct sim_node *n)
{
    return n->node->replica->apply_waits;
}

/* Whoever leads has heard that the disk of that node hangs. */
static void must_choose_another(struct sim_node *n)
{
    struct sim *s = n->sim;
    sim_pass(s, NODE_DISK_SLOW_MS + 2 * NODE_REPORT_MS);
    struct sim_node *leader = scenario_the_leader(s);
    s->current = leader;
    int rv = node_transfer(leader->node, 0, scenario_transferred, s);
    s->current = NULL;
    SIM_CHECK(s, rv != 0 || replica_transferee(leader->node->replica) != n->index + 1,
              "node %u hands leadership to node %u, whose disk gives nothing back",
              leader->index + 1, n->index + 1);
}

/* The disk takes writes and gives nothing back; then the snapshot comes that has what it waits
 * for. */
void scenario_unread(struct sim *s)
{
    struct sim_node *n =
        scenario_other(s, scenario_the_leader(s), (unsigned)sim_below(s, s->n - 1));
    sim_wait_for(n, scenario_is_settled, LATE_MS, "it does not settle");
    n->reads_stalled_until = s->now + 4 * LATE_MS;
    uint64_t until = s->now + SOON_MS;
    while (s->now < until && !waits_for_read(n)) {
        scenario_add_many(s, MACHINE_OP_BREAK, 0, 1);
    }
    uint64_t last = replica_last_index(n->node->replica);
    bool waits = waits_for_read(n);
    if (waits) {
        must_choose_another(n);
    }
    n->node->log->config.cache_bytes = CACHE_BYTES; /* what comes from now on needs no read */
    scenario_cut_off(n, 2 * BEHIND_MS);
    leave_behind(s, last);
    scenario_cut_off(n, 0);
    until = s->now + LATE_MS;
    while (waits && s->now < until && replica_applied_index(n->node->replica) <= last) {
        sim_step(s);
    }
    s->marks->scenarios_told += waits && replica_applied_index(n->node->replica) > last;
    if (waits) {
        scenario_add_many(s, MACHINE_OP_BREAK, 0, 1);
        sim_wait_for(n, scenario_has_all, SOON_MS, "it applies nothing while a read hangs");
    }
    n->reads_stalled_until = 0;
    sim_wait_for(n, scenario_has_all, LATE_MS, "it does not catch up");
}
