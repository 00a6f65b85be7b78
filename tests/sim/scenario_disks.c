/* scenario_disks.c: scenarios of disks: older copies, lost parts, snapshots (scenario.c). */
#include <errno.h>
#include <string.h>

#include "members/membership_private.h"
#include "scenario_steps.h"

#define TORN 40u        /* writes */
#define LONG_WRITE 150u /* commands, of a quarter of a segment */

/* ---- an older copy ---- */

static bool knows_start(const struct sim_node *of, const struct sim_node *by)
{
    const struct starts_known *k =
        starts_find(&by->disk.record.starts, of->disk.record.identity.incarnation);
    return k != NULL && k->start.number >= of->disk.record.starts.own.number;
}

/* The node is started with nobody but one to hear of it, and then with its disk of before. The one
 * that knows is cut off from it at first; the others tell it, or they hear of it from that one. */
void scenario_older(struct sim *s)
{
    struct sim_node *leader = scenario_the_leader(s);
    struct sim_node *n = scenario_other(s, leader, 0);
    struct sim_node *knows = sim_below(s, 2) == 0 ? leader : scenario_other(s, leader, 1);
    struct sim_node *lets_in = knows == leader ? scenario_other(s, leader, 1) : leader;
    sim_wait_for(n, scenario_is_settled, LATE_MS, "it does not settle");
    sim_pass(s, 1500);
    struct sim_device *device = sim_device_clone(n->disk.device, sim_draw(&s->random), false);
    struct record record = n->disk.record;
    sim_node_crash(n, false);
    scenario_cut(n, lets_in, LATE_MS);
    scenario_cut(lets_in, knows, LATE_MS);
    sim_node_start(n);
    uint64_t until = s->now + SOON_MS;
    while (!knows_start(n, knows) && s->now < until) {
        sim_step(s);
    }
    bool known =
        knows_start(n, knows) && n->disk.record.starts.own.number > record.starts.own.number;
    sim_node_crash(n, false);
    sim_disk_adopt(n, device, &record);
    scenario_cut(n, lets_in, 0);
    bool asks_all = known && sim_below(s, 3) == 0;
    scenario_cut(n, knows, asks_all ? 0 : LATE_MS);
    n->wiped = true;
    n->older.phase = asks_all ? SIM_OLDER_BACK : SIM_OLDER_NONE; /* it must not even speak */
    sim_node_start(n);
    sim_pass(s, sim_below(s, 400));
    scenario_cut(lets_in, knows, 0);
    sim_pass(s, sim_below(s, 2500));
    scenario_cut(n, knows, 0);
    if (known) {
        sim_wait_for(n, sim_is_down, LATE_MS, "it runs on an older copy of its disk, and goes on");
    }
    if (sim_node_runs(n)) {
        sim_node_crash(n, false);
    }
    s->marks->scenarios_told += known;
    sim_older_forget(n);
    sim_disk_wipe(n);
}

/* ---- snapshots ---- */

static unsigned locks(const struct sim_node *n)
{
    struct machine_counts counts;
    machine_get_counts(fsm_machine(n->node->fsm), &counts);
    return (unsigned)counts.locks;
}

/* All fillers, or none: what a leader that is replaced has lost comes again. */
static void fill(struct sim *s, uint8_t op)
{
    unsigned wanted = op == MACHINE_OP_ACQUIRE ? FILLERS : 0;
    uint64_t until = s->now + LATE_MS;
    while (locks(scenario_the_leader(s)) != wanted) {
        scenario_add_many(s, op, 0, FILLERS);
        SIM_CHECK(s, s->now < until, "the state has %u locks", locks(scenario_the_leader(s)));
    }
}

static void disturb(struct sim *s, struct sim_node *n)
{
    struct sim_node *leader = scenario_the_leader(s);
    switch (sim_below(s, 6)) {
    case 0:
        s->current = leader;
        (void)!node_transfer(leader->node, 0, scenario_transferred, s);
        s->current = NULL;
        break;
    case 1:
        sim_node_pause(n);
        sim_pass(s, sim_below(s, 600));
        sim_node_resume(n);
        break;
    case 2:
        scenario_cut(leader, n, sim_below(s, 2500));
        break;
    case 3:
        scenario_churn(s);
        break;
    default:
        sim_net_break(s, leader->index, n->index);
        break;
    }
}

/* Waits until a part of a snapshot has come to the node. */
static bool part_comes(struct sim_node *n)
{
    struct sim *s = n->sim;
    uint64_t until = s->now + SOON_MS;
    while (s->now < until && !scenario_has_all(n) &&
           snapshot_install_receives(&n->node->snapshots.install) == 0) {
        sim_step(s);
    }
    sim_pass(s, sim_below(s, 20 + 3 * s->options.delay_ms));
    return snapshot_install_receives(&n->node->snapshots.install) != 0;
}

/* A stream breaks when all has come and the node cannot install it yet; its sender begins again. */
static void break_when_whole(struct sim_node *n)
{
    struct sim *s = n->sim;
    const struct snapshot_install *in = &n->node->snapshots.install;
    uint64_t until = s->now + SOON_MS;
    while (s->now < until && !scenario_has_all(n) && !snapshot_install_works(in)) {
        sim_step(s);
    }
    if (!scenario_has_all(n)) {
        sim_net_break(s, scenario_the_leader(s)->index, n->index);
    }
}

/* Until the log of whoever leads begins behind this entry: two snapshots may be needed, and one may
 * come as late as half of this time. */
#define BEHIND_MS (2 * LATE_MS)
static void leave_behind(struct sim *s, uint64_t index)
{
    uint64_t until = s->now + BEHIND_MS;
    while (log_first_index(scenario_the_leader(s)->node->log) <= index + 1) {
        scenario_churn(s);
        sim_pass(s, 300);
        SIM_CHECK(s, s->now < until, "the log keeps entry %llu", ull(index));
    }
}

/* The leader's newest snapshot, which it is about to send, has one bit that is not as it was. */
static void rot_snapshot(struct sim *s)
{
    const struct sim_node *leader = scenario_the_leader(s);
    const char *newest = NULL;
    size_t len = 0;
    for (size_t i = 0; i < sim_device_files(leader->disk.device); i++) {
        const char *name = sim_device_name(leader->disk.device, i);
        bool snapshot = strncmp(name, "snapshot-", 9) == 0 && strstr(name, ".part") == NULL;
        if (snapshot && (newest == NULL || strcmp(newest, name) < 0)) {
            newest = name;
        }
    }
    FLI_ASSERT(newest != NULL);
    sim_read_back(&s->nodes[leader->index]); /* from now on it cannot be read */
    (void)!sim_device_data(leader->disk.device, newest, &len);
    sim_device_flip(leader->disk.device, newest, sim_below(s, len), (unsigned)sim_below(s, 8));
}

/* Until the leader has applied nothing behind its newest snapshot. */
static void end_with_snapshot(struct sim *s)
{
    struct sim_node *leader = scenario_the_leader(s);
    uint64_t until = s->now + SOON_MS;
    while (s->now < until && sim_leader(s) == leader &&
           replica_snapshot_index(leader->node->replica) <
               replica_applied_index(leader->node->replica)) {
        scenario_add_many(s, MACHINE_OP_BREAK, FILLERS, 1);
        while (leader->child != NULL && s->now < until) {
            sim_step(s);
        }
    }
}

/* One node is left behind: it has crashed, or is cut off while it takes a snapshot of its own. */
void scenario_snapshots(struct sim *s)
{
    unsigned which = (unsigned)sim_below(s, s->n - 1);
    fill(s, MACHINE_OP_ACQUIRE);
    for (unsigned round = 0; round < 2; round++) {
        struct sim_node *n = scenario_other(s, scenario_the_leader(s), which);
        uint64_t last = replica_last_index(n->node->replica);
        bool crashes = sim_below(s, 2) == 0;
        if (crashes) {
            sim_node_crash(n, sim_below(s, 2) == 0);
        } else {
            scenario_churn(s);
            last = replica_last_index(n->node->replica);
            scenario_cut_off(n, BEHIND_MS);
        }
        leave_behind(s, last);
        bool rots = crashes && sim_below(s, 3) == 0;
        if (rots && sim_below(s, 2) == 0) {
            end_with_snapshot(s);
        }
        if (rots) {
            rot_snapshot(s);
        }
        scenario_cut_off(n, 0);
        if (crashes) {
            sim_node_start(n);
        }
        for (unsigned i = 0; i < 6 && !scenario_has_all(n) && !rots; i++) {
            s->marks->scenarios_told += part_comes(n);
            disturb(s, n);
        }
        if (!rots) {
            break_when_whole(n);
        }
        sim_wait_for(n, scenario_has_all, LATE_MS, "it does not catch up");
    }
    fill(s, MACHINE_OP_BREAK);
}

/* ---- lacks ---- */

static bool all_know_more(const struct sim_node *of, uint64_t index)
{
    for (unsigned i = 0; i < of->sim->n; i++) {
        const struct starts_known *k = starts_find(&of->sim->nodes[i].disk.record.starts,
                                                   of->disk.record.identity.incarnation);
        if (i != of->index && (k == NULL || k->index <= index)) {
            return false;
        }
    }
    return true;
}

static void hand_over(struct sim *s, struct sim_node *to)
{
    uint64_t until = s->now + LATE_MS;
    while (scenario_the_leader(s) != to) {
        struct sim_node *leader = scenario_the_leader(s);
        s->current = leader;
        (void)!node_transfer(leader->node, to->index + 1, scenario_transferred, s);
        s->current = NULL;
        sim_pass(s, 200);
        SIM_CHECK(s, s->now < until, "node %u does not lead", to->index + 1);
    }
}

static bool leads_in(const struct sim_node *n, uint64_t term)
{
    return sim_leader(n->sim) == n && replica_term(n->node->replica) == term;
}

/* A leader of a newer term than the copy's knows how far the node's log is on disk; nobody has
 * noted that yet. Returns that leader, or NULL if another one came in between. */
static struct sim_node *one_knows_more(struct sim *s, struct sim_node *n, uint64_t last)
{
    struct sim_node *third = scenario_other(s, scenario_the_leader(s),
                                            scenario_other(s, scenario_the_leader(s), 0) == n);
    hand_over(s, third);
    uint64_t term = replica_term(third->node->replica);
    uint64_t until = s->now + SOON_MS;
    while (s->now < until && leads_in(third, term) &&
           replica_match_index(third->node->replica, n->index + 1) <= last) {
        sim_step(s);
    }
    return leads_in(third, term) ? third : NULL;
}

static void all_note_more(struct sim *s, const struct sim_node *n, uint64_t last)
{
    scenario_add_many(s, MACHINE_OP_BREAK, 0, (unsigned)(1 + sim_below(s, 100)));
    uint64_t until = s->now + LATE_MS;
    while (!all_know_more(n, last)) {
        sim_step(s);
        SIM_CHECK(s, s->now < until, "nobody notes what node %u tells", n->index + 1);
    }
}

/* The node calls an election that nobody answers, and tells of its new term. The copy lacks nothing
 * else. Returns whether both others have noted that. */
static bool all_note_term(struct sim *s, struct sim_node *n)
{
    const struct sim_node *leader = scenario_the_leader(s);
    uint64_t term = replica_term(n->node->replica);
    for (unsigned i = 0; i < s->n; i++) {
        s->links[i][n->index].cut_until = s->now + LATE_MS;
    }
    scenario_take_over_late(n, leader);
    uint64_t until = s->now + SOON_MS;
    unsigned know = 0;
    while (know < 2 && s->now < until) {
        sim_step(s);
        know = 0;
        for (unsigned i = 0; i < s->n; i++) {
            const struct starts_known *k = starts_find(&s->nodes[i].node->record.own.now.starts,
                                                       n->disk.record.identity.incarnation);
            know += i != n->index && k != NULL && k->term > term;
        }
    }
    scenario_cut_off(n, 0);
    return know == 2;
}

/* The copy is of the same start; it lacks what the node has told since. */
void scenario_lacks(struct sim *s)
{
    struct sim_node *n =
        scenario_other(s, scenario_the_leader(s), (unsigned)sim_below(s, s->n - 1));
    sim_wait_for(n, scenario_is_settled, LATE_MS, "it does not settle");
    sim_pass(s, 1500);
    struct sim_device *device = sim_device_clone(n->disk.device, sim_draw(&s->random), false);
    struct record record = n->disk.record;
    uint64_t last = replica_last_index(n->node->replica);
    struct sim_node *knows = NULL;
    uint64_t lacks = sim_below(s, 3);
    bool noted = lacks == 0;
    if (noted) {
        all_note_more(s, n, last);
    } else if (lacks == 1) {
        noted = all_note_term(s, n);
    } else {
        knows = one_knows_more(s, n, last);
    }
    uint64_t term = knows == NULL ? 0 : replica_term(knows->node->replica);
    sim_node_crash(n, false);
    sim_disk_adopt(n, device, &record);
    n->wiped = true;
    n->older.phase = SIM_OLDER_BACK;
    sim_node_start(n);
    uint64_t until = s->now + LATE_MS;
    while (!sim_is_down(n) && s->now < until &&
           (noted || (knows != NULL && leads_in(knows, term)))) {
        sim_step(s);
    }
    SIM_CHECK(s, s->now < until, "node %u runs on an older copy of its disk, and goes on",
              n->index + 1);
    s->marks->scenarios_told += sim_is_down(n) ? 1 : 0;
    if (sim_node_runs(n)) {
        sim_node_crash(n, false);
    }
    sim_older_forget(n);
    sim_disk_wipe(n);
}

/* ---- tail ---- */

static const char *newest_segment(const struct sim_node *n)
{
    const char *newest = NULL;
    for (size_t i = 0; i < sim_device_files(n->disk.device); i++) {
        const char *name = sim_device_name(n->disk.device, i);
        bool segment = strncmp(name, "segment-", 8) == 0 && strstr(name, ".part") == NULL;
        if (segment && (newest == NULL || strcmp(newest, name) < 0)) {
            newest = name;
        }
    }
    return newest;
}

static bool is_used(const struct sim_node *n, const char *name)
{
    size_t len;
    const uint8_t *data = sim_device_data(n->disk.device, name, &len);
    size_t at = LOG_BLOCK;
    while (at < len && data[at] == 0) {
        at++;
    }
    return at < len;
}

/* Those that are ready and not used yet go too. */
static bool lose_newest(const struct sim_node *n)
{
    const char *name;
    while ((name = newest_segment(n)) != NULL) {
        bool used = is_used(n, name);
        sim_device_unlink(n->disk.device, name);
        if (used) {
            return true;
        }
    }
    return false;
}

static bool has_noted_its_log(const struct sim_node *n)
{
    return n->disk.record.starts.index >= log_writes(n->node->log);
}

/* That it ends earlier than it did cannot be seen in the log itself. */
void scenario_tail(struct sim *s)
{
    struct sim_node *n =
        scenario_other(s, scenario_the_leader(s), (unsigned)sim_below(s, s->n - 1));
    scenario_add_many(s, MACHINE_OP_BREAK, 0, (unsigned)(50 + sim_below(s, 600)));
    sim_wait_for(n, scenario_is_settled, LATE_MS, "it does not settle");
    sim_wait_for(n, has_noted_its_log, LATE_MS, "it does not note how far its log goes");
    sim_node_crash(n, false);
    struct sim_device *device = sim_device_clone(n->disk.device, sim_draw(&s->random), false);
    struct record record = n->disk.record;
    if (lose_newest(n)) {
        s->marks->scenarios_told++;
        n->older.phase = SIM_OLDER_REFUSED; /* so it may refuse */
        sim_node_start(n);
        SIM_CHECK(s, n->power == SIM_DOWN, "node %u starts without the newest part of its log",
                  n->index + 1);
        n->older.phase = SIM_OLDER_NONE;
    }
    sim_disk_adopt(n, device, &record);
    sim_node_start(n);
    sim_wait_for(n, scenario_has_all, LATE_MS, "it does not catch up");
}

/* ---- cached ---- */

/* A write of the log fails, its node ends, and the next start finds in the cache all that the disk
 * has not got. What the node builds on that must be as durable as it says. */
void scenario_cached(struct sim *s)
{
    for (unsigned i = 0; i < s->n; i++) {
        struct sim_node *n = &s->nodes[i];
        sim_wait_for(n, scenario_is_settled, LATE_MS, "it does not settle");
        n->disk.troubled = true;
        sim_device_fail_in_cache(n->disk.device);
        scenario_add(scenario_the_leader(s), MACHINE_OP_BREAK, FILLERS);
        sim_wait_for(n, sim_is_down, LATE_MS, "a write of its log has failed, and it goes on");
        n->disk.troubled = false;
        sim_node_start(n);
        sim_wait_for(n, scenario_has_all, LATE_MS, "it does not catch up");
        sim_read_back(n);
        sim_pass(s, sim_below(s, 400));
        sim_node_crash(n, true);
        sim_node_start(n);
        s->marks->scenarios_told++;
        sim_wait_for(n, scenario_has_all, LATE_MS, "it does not catch up");
    }
}

/* ---- torn ---- */

static bool is_writing(const struct sim_node *n)
{
    return sim_device_busy(n->disk.device, LOG_LANE_WRITE);
}

/* Writes of many sizes are torn, again and again. What is left of one is in nobody's way, wherever
 * the log goes on. */
void scenario_torn(struct sim *s)
{
    struct sim_node *n = scenario_other(s, scenario_the_leader(s), 0);
    for (unsigned i = 0; i < TORN; i++) {
        unsigned most = 1 + (unsigned)sim_below(s, LONG_WRITE);
        struct sim_node *leader = scenario_the_leader(s);
        for (unsigned k = 0; k < most; k++) {
            scenario_add(leader, MACHINE_OP_BREAK, FILLERS);
        }
        uint64_t until = s->now + SOON_MS;
        while (s->now < until && !is_writing(n)) {
            sim_step(s);
        }
        s->marks->scenarios_told += is_writing(n);
        sim_node_crash(n, sim_below(s, 2) == 0);
        sim_node_start(n);
        sim_wait_for(n, scenario_has_all, LATE_MS, "it does not catch up");
    }
}

/* ---- unsynced ---- */

/* Until it was one of a snapshot's: others may come before it. */
static void fail_at_snapshot(struct sim_node *n, enum sim_call call)
{
    struct sim *s = n->sim;
    uint64_t failures = n->node->snapshots.failures;
    uint64_t until = s->now + LATE_MS;
    while (n->node->snapshots.failures == failures) {
        n->disk.troubled = true;
        sim_device_fail(n->disk.device, call, 1, 1, -EIO);
        scenario_churn(s);
        /* What failed is tried again, and would fail again: the log's comes first. */
        sim_wait_for(n, scenario_has_all, LATE_MS, "it does not catch up");
        SIM_CHECK(s, s->now < until, "node %u takes no snapshot", n->index + 1);
    }
}

/* What the failing call leaves behind is not the newest snapshot until it is durable: the one
 * before it stays. */
void scenario_unsynced(struct sim *s)
{
    static const enum sim_call calls[] = {SIM_SYNC_DIR, SIM_SYNC, SIM_RENAME};
    struct sim_node *n = &s->nodes[sim_below(s, s->n)];
    scenario_churn(s);
    for (unsigned i = 0; i < 2 * (sizeof calls / sizeof calls[0]); i++) {
        fail_at_snapshot(n, calls[i / 2]);
        sim_pass(s, sim_below(s, 400));
        sim_read_back(n);
        s->marks->scenarios_told++;
        if (i % 2 == 1) {
            sim_node_crash(n, true);
            sim_node_start(n);
        }
        sim_wait_for(n, scenario_has_all, LATE_MS, "it does not catch up");
    }
}
