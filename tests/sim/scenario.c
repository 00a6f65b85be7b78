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
 *   unsynced   a call of the disk fails while a snapshot gets its name, and the power goes */

#include <errno.h>
#include <string.h>

#include "consensus/membership_private.h"
#include "node_clock.h"
#include "members.h"
#include "net_private.h"

#define SOON_MS 5000u
#define LATE_MS 30000u
#define BUSY_MS 250u   /* until the log takes what is on its way */
#define KNOWN_MS 3500u /* so long after its election a leader says whom it misses */
#define FOR_EVER_MS 86400000u
#define OFTEN (KNOWN_MEMBERS_MAX + 2)
#define FILLERS 2600u /* locks, each with this name and owner: more than the window of a snapshot */
#define CHURN 1500u   /* commands about such names that make a snapshot due, twice */
#define FILLER_TTL_MS 86400000u

/* ---- steps ---- */

static bool leads(const struct sim_node *n)
{
    return sim_leader(n->sim) != NULL;
}

static struct sim_node *the_leader(struct sim *s)
{
    sim_wait_for(&s->nodes[0], leads, LATE_MS, "nobody leads");
    return sim_leader(s);
}

static struct sim_node *other(struct sim *s, const struct sim_node *than, unsigned which)
{
    unsigned i = 0;
    while (&s->nodes[i] == than || which-- > 0) {
        i++;
        FLI_ASSERT(i < s->n);
    }
    return &s->nodes[i];
}

/* Between one node and another, both ways. */
static void cut(struct sim_node *a, struct sim_node *b, uint64_t ms)
{
    a->sim->links[a->index][b->index].cut_until = a->sim->now + ms;
    a->sim->links[b->index][a->index].cut_until = a->sim->now + ms;
}

static void cut_off(struct sim_node *n, uint64_t ms)
{
    for (unsigned i = 0; i < n->sim->n; i++) {
        if (i != n->index) {
            cut(n, &n->sim->nodes[i], ms);
        }
    }
}

static void answered(void *ctx, int status)
{
    *(int *)ctx = status;
}

static int ask(struct sim_node *leader, const struct node_change *what, int *status)
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
static void change(struct sim *s, const struct node_change *what)
{
    static int status;
    uint64_t until = s->now + LATE_MS;
    for (status = -1; status != 0;) {
        struct sim_node *leader = sim_leader(s);
        if (leader != NULL && status <= 0) {
            (void)ask(leader, what, &status);
        }
        sim_pass(s, 50);
        SIM_CHECK(s, s->now < until, "a change of node %llu is not made: %s", ull(what->id),
                  fl_err_name(status));
    }
}

static bool is_no_member(const struct sim_node *n)
{
    const struct sim_node *leader = sim_leader(n->sim);
    struct machine_node node;
    return leader != NULL && leader != n &&
           configuration_find(replica_configuration(leader->node->replica), n->index + 1) == NULL &&
           replica_configuration_committed(leader->node->replica) &&
           !machine_node_find(fsm_machine(leader->node->fsm), n->index + 1, &node);
}

/* The operator of faults.c brings it back, in the end. */
static void leave_to_operator(struct sim_node *n)
{
    n->wiped = true;
    n->change = SIM_CHANGE_REMOVE;
    n->keeps_disk = false;
}

/* Whoever asks again for what is in the log already stands in nobody's way. */
static void ask_again(struct sim *s, const struct node_change *what)
{
    static int status;
    struct sim_node *leader = sim_leader(s);
    const struct membership *m = leader == NULL ? NULL : leader->node->membership;
    bool waits = m == NULL || m->operation.active || membership_transferring(m);
    int rv = waits ? 0 : ask(leader, what, &status);
    SIM_CHECK(s, rv != FL_EBUSY, "a leader is busy with the removal of node %llu, asked for again",
              ull(what->id));
}

/* ---- removed ---- */

static void play_removed(struct sim *s)
{
    struct sim_node *n = other(s, the_leader(s), (unsigned)sim_below(s, s->n - 1));
    struct node_change what = {.kind = NODE_CHANGE_REMOVE, .id = n->index + 1};
    n->wiped = true; /* so it may end */
    bool hears = sim_below(s, 2) == 0;
    change(s, &what);
    ask_again(s, &what);
    if (!hears) {
        cut_off(n, LATE_MS);
    }
    sim_wait_for(n, is_no_member, LATE_MS, "it is not taken out");
    cut_off(n, 0);
    sim_wait_for(n, sim_is_down, LATE_MS, "it was removed, and goes on");
    sim_node_start(n);
    sim_wait_for(n, sim_is_down, LATE_MS, "it was removed and started again, and goes on");
    s->marks->scenarios_told++;
    leave_to_operator(n);
}

/* ---- an older copy ---- */

static bool is_settled(const struct sim_node *n)
{
    return sim_converged(n->sim);
}

static bool knows_start(const struct sim_node *of, const struct sim_node *by)
{
    const struct starts_known *k =
        starts_find(&by->disk.record.starts, of->index + 1, of->disk.record.identity.incarnation);
    return k != NULL && k->start.number >= of->disk.record.starts.own.number;
}

/* The node is started with nobody but one to hear of it, and then with its disk of before. The one
 * that knows is cut off from it at first; the others tell it, or they hear of it from that one. */
static void play_older(struct sim *s)
{
    struct sim_node *leader = the_leader(s);
    struct sim_node *n = other(s, leader, 0);
    struct sim_node *knows = sim_below(s, 2) == 0 ? leader : other(s, leader, 1);
    struct sim_node *lets_in = knows == leader ? other(s, leader, 1) : leader;
    sim_wait_for(n, is_settled, LATE_MS, "it does not settle");
    sim_pass(s, 1500);
    struct sim_device *device = sim_device_clone(n->disk.device, sim_draw(&s->random), false);
    struct record record = n->disk.record;
    sim_node_crash(n, false);
    cut(n, lets_in, LATE_MS);
    cut(lets_in, knows, LATE_MS);
    sim_node_start(n);
    uint64_t until = s->now + SOON_MS;
    while (!knows_start(n, knows) && s->now < until) {
        sim_step(s);
    }
    bool known =
        knows_start(n, knows) && n->disk.record.starts.own.number > record.starts.own.number;
    sim_node_crash(n, false);
    sim_disk_adopt(n, device, &record);
    cut(n, lets_in, 0);
    bool asks_all = known && sim_below(s, 3) == 0;
    cut(n, knows, asks_all ? 0 : LATE_MS);
    n->wiped = true;
    n->older.phase = asks_all ? SIM_OLDER_BACK : SIM_OLDER_NONE; /* it must not even speak */
    sim_node_start(n);
    sim_pass(s, sim_below(s, 400));
    cut(lets_in, knows, 0);
    sim_pass(s, sim_below(s, 2500));
    cut(n, knows, 0);
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

static void add(struct sim_node *leader, uint8_t op, unsigned i)
{
    uint8_t name[SIM_FILLER_LEN];
    struct fli_buf buf;
    struct machine_command c = {.op = op, .n_names = 1};
    memset(name, '.', sizeof name);
    (void)snprintf((char *)name, sizeof name, "F%05u", i);
    c.name = c.owner = (struct fli_slice){name, sizeof name};
    if (op == MACHINE_OP_ACQUIRE) {
        c.ttl_ms = FILLER_TTL_MS;
        c.permits = 1;
    } else {
        c.owner.len = 0;
    }
    fli_buf_init(&buf, MACHINE_COMMAND_MAX);
    int rv = machine_command_encode(&c, &buf);
    FLI_ASSERT(rv == 0);
    (void)!proposer_add(leader->node->proposer, NULL, buf.data, buf.len, NULL);
    fli_buf_fini(&buf);
}

static unsigned locks(const struct sim_node *n)
{
    struct machine_counts counts;
    machine_get_counts(fsm_machine(n->node->fsm), &counts);
    return (unsigned)counts.locks;
}

static bool has_done(const struct sim_node *n)
{
    const struct sim_node *leader = sim_leader(n->sim);
    struct proposer_stats stats;
    if (leader == NULL) {
        return false;
    }
    proposer_get_stats(leader->node->proposer, &stats);
    return stats.pending_commands == 0 && stats.in_flight == 0;
}

static void add_many(struct sim *s, uint8_t op, unsigned from, unsigned n)
{
    struct sim_node *leader = the_leader(s);
    s->current = leader;
    for (unsigned i = 0; i < n; i++) {
        add(leader, op, from + i);
    }
    s->current = NULL;
    sim_pass(s, 10);
    sim_wait_for(&s->nodes[0], has_done, LATE_MS, "what was asked for is not done");
}

/* All fillers, or none: what a leader that is replaced has lost comes again. */
static void fill(struct sim *s, uint8_t op)
{
    unsigned wanted = op == MACHINE_OP_ACQUIRE ? FILLERS : 0;
    uint64_t until = s->now + LATE_MS;
    while (locks(the_leader(s)) != wanted) {
        add_many(s, op, 0, FILLERS);
        SIM_CHECK(s, s->now < until, "the state has %u locks", locks(the_leader(s)));
    }
}

/* Entries that change nothing: until a snapshot is due, and the log begins behind it. */
static void churn(struct sim *s)
{
    add_many(s, MACHINE_OP_BREAK, FILLERS, CHURN);
}

static bool has_all(const struct sim_node *n)
{
    const struct sim_node *leader = sim_leader(n->sim);
    return leader != NULL && sim_node_runs(n) &&
           replica_applied_index(n->node->replica) >= replica_commit_index(leader->node->replica);
}

static void transferred(void *ctx, int status)
{
    struct sim *s = ctx;
    s->marks->transfers += status == 0;
}

static void disturb(struct sim *s, struct sim_node *n)
{
    struct sim_node *leader = the_leader(s);
    switch (sim_below(s, 6)) {
    case 0:
        s->current = leader;
        (void)!node_transfer(leader->node, 0, transferred, s);
        s->current = NULL;
        break;
    case 1:
        sim_node_pause(n);
        sim_pass(s, sim_below(s, 600));
        sim_node_resume(n);
        break;
    case 2:
        cut(leader, n, sim_below(s, 2500));
        break;
    case 3:
        churn(s);
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
    while (s->now < until && !has_all(n) && snapshot_install_receives(n->node->install) == 0) {
        sim_step(s);
    }
    sim_pass(s, sim_below(s, 20 + 3 * s->options.delay_ms));
    return snapshot_install_receives(n->node->install) != 0;
}

/* A stream breaks when all has come and the node cannot install it yet; its sender begins again. */
static void break_when_whole(struct sim_node *n)
{
    struct sim *s = n->sim;
    const struct snapshot_install *in = n->node->install;
    uint64_t until = s->now + SOON_MS;
    while (s->now < until && !has_all(n) &&
           (!snapshot_install_busy(in) || snapshot_install_receives(in) != 0)) {
        sim_step(s);
    }
    if (!has_all(n)) {
        sim_net_break(s, the_leader(s)->index, n->index);
    }
}

/* Until the log of whoever leads begins behind this entry. */
static void leave_behind(struct sim *s, uint64_t index)
{
    uint64_t until = s->now + LATE_MS;
    while (log_first_index(the_leader(s)->node->log) <= index + 1) {
        churn(s);
        sim_pass(s, 300);
        SIM_CHECK(s, s->now < until, "the log keeps entry %llu", ull(index));
    }
}

/* One node is left behind: it has crashed, or is cut off while it takes a snapshot of its own. */
static void play_snapshots(struct sim *s)
{
    unsigned which = (unsigned)sim_below(s, s->n - 1);
    fill(s, MACHINE_OP_ACQUIRE);
    for (unsigned round = 0; round < 2; round++) {
        struct sim_node *n = other(s, the_leader(s), which);
        uint64_t last = replica_last_index(n->node->replica);
        bool crashes = sim_below(s, 2) == 0;
        if (crashes) {
            sim_node_crash(n, sim_below(s, 2) == 0);
        } else {
            churn(s);
            last = replica_last_index(n->node->replica);
            cut_off(n, LATE_MS);
        }
        leave_behind(s, last);
        cut_off(n, 0);
        if (crashes) {
            sim_node_start(n);
        }
        for (unsigned i = 0; i < 6 && !has_all(n); i++) {
            s->marks->scenarios_told += part_comes(n);
            disturb(s, n);
        }
        break_when_whole(n);
        sim_wait_for(n, has_all, LATE_MS, "it does not catch up");
    }
    fill(s, MACHINE_OP_BREAK);
}

/* ---- busy ---- */

static bool waits_for_log(const struct sim_node *leader)
{
    const struct membership *m = leader->node->membership;
    return m->admin_busy && !m->admin_of_operation && !m->operation.active;
}

static bool is_formed(const struct sim_node *n)
{
    const struct sim_node *leader = sim_leader(n->sim);
    return leader != NULL && !waits_for_log(leader);
}

/* Two of five are gone. While one of them is to come back, and the log has not taken that yet, an
 * operator asks for the removal of a member; then another one ends. */
static void play_busy(struct sim *s)
{
    struct sim_node *away[2] = {other(s, the_leader(s), 0), other(s, the_leader(s), 1)};
    static int status;
    for (unsigned i = 0; i < 2; i++) {
        struct node_change remove = {.kind = NODE_CHANGE_REMOVE, .id = away[i]->index + 1};
        away[i]->wiped = true;
        change(s, &remove);
        sim_wait_for(away[i], is_no_member, LATE_MS, "it is not taken out");
        if (sim_node_runs(away[i])) {
            sim_node_crash(away[i], false);
        }
    }
    struct node_change back = {.kind = NODE_CHANGE_ADD, .id = away[0]->index + 1};
    (void)snprintf(back.address, sizeof back.address, "node%u:1", away[0]->index + 1);
    sim_pass(s, 3500); /* it is known who is up */
    change(s, &back);
    sim_disk_wipe(away[0]);
    away[0]->joins = true;
    sim_node_start(away[0]);
    struct sim_node *leader = the_leader(s);
    uint64_t until = s->now + SOON_MS;
    while (s->now < until && sim_leader(s) == leader && !waits_for_log(leader)) {
        sim_step(s);
    }
    struct sim_node *rest[2] = {NULL, NULL};
    for (unsigned i = 0; i < s->n; i++) {
        struct sim_node *n = &s->nodes[i];
        if (n != leader && n != away[0] && n != away[1]) {
            rest[rest[0] != NULL] = n;
        }
    }
    if (sim_leader(s) == leader && waits_for_log(leader)) {
        struct node_change remove = {.kind = NODE_CHANGE_REMOVE, .id = rest[0]->index + 1};
        leader->disk.stalled_until = rest[0]->disk.stalled_until = s->now + BUSY_MS;
        int rv = ask(leader, &remove, &status);
        sim_node_crash(rest[1], false);
        s->marks->scenarios_told += rv == 1;
        until = s->now + SOON_MS;
        while (rv == 1 && status == 1 && s->now < until) {
            sim_step(s);
        }
        SIM_CHECK(s, rv != 1 || status != 0,
                  "node %u is to be removed, without which there is no majority",
                  rest[0]->index + 1);
        sim_node_start(rest[1]);
    }
    sim_wait_for(leader, is_formed, LATE_MS, "nobody leads");
    leave_to_operator(away[0]);
    leave_to_operator(away[1]);
}

/* ---- four ---- */

static bool knows_who_is_up(const struct sim_node *n)
{
    const struct membership *m = n->node->membership;
    return sim_node_runs(n) && m->leads && sim_node_ms(n) - m->leads_since_ms >= KNOWN_MS;
}

static void must_be_denied(struct sim_node *leader, const struct node_change *what)
{
    static int status;
    bool knows = knows_who_is_up(leader) && membership_may_change(leader->node->membership);
    int rv = ask(leader, what, &status);
    SIM_CHECK(leader->sim, rv == FL_EDENIED || (!knows && (rv == FL_EBUSY || rv == FL_ENOLEADER)),
              "change %d of node %llu is answered %s, and two others do not decide alone",
              (int)what->kind, ull(what->id), rv == 1 ? "later" : fl_err_name(rv));
    leader->sim->marks->scenarios_told += rv == FL_EDENIED;
}

/* Four vote, and one of them is away: the two others that are up are no majority of four. */
static void play_four(struct sim *s)
{
    struct sim_node *gone = other(s, the_leader(s), 0);
    struct node_change remove = {.kind = NODE_CHANGE_REMOVE, .id = gone->index + 1};
    gone->wiped = true;
    change(s, &remove);
    sim_wait_for(gone, is_no_member, LATE_MS, "it is not taken out");
    struct sim_node *leader = the_leader(s);
    struct sim_node *rest[3] = {NULL, NULL, NULL};
    for (unsigned i = 0, k = 0; i < s->n; i++) {
        if (&s->nodes[i] != gone && &s->nodes[i] != leader) {
            rest[k++] = &s->nodes[i];
        }
    }
    bool silent = sim_below(s, 2) == 0; /* its streams stay for some seconds more */
    if (silent) {
        cut_off(rest[0], KNOWN_MS + 2 * SOON_MS);
    } else {
        sim_node_crash(rest[0], false);
    }
    sim_pass(s, KNOWN_MS + SOON_MS);
    struct node_change move = {.kind = NODE_CHANGE_MOVE, .id = rest[1]->index + 1};
    (void)snprintf(move.address, sizeof move.address, "node%u:3", rest[1]->index + 1);
    if (sim_leader(s) == leader) {
        must_be_denied(leader, &move);
    }
    if (!silent) {
        sim_node_start(rest[0]);
    }
    sim_wait_for(rest[0], is_formed, LATE_MS, "nobody leads");
    leave_to_operator(gone);
}

/* ---- learner ---- */

static const struct configuration_server *server_of(const struct sim_node *n)
{
    const struct sim_node *leader = sim_leader(n->sim);
    return leader == NULL
               ? NULL
               : configuration_find(replica_configuration(leader->node->replica), n->index + 1);
}

static bool is_member(const struct sim_node *n)
{
    return server_of(n) != NULL;
}

static bool is_voter(const struct sim_node *n)
{
    const struct configuration_server *is = server_of(n);
    return is != NULL && is->role == CONFIGURATION_VOTER;
}

static void take_out(struct sim_node *n)
{
    struct node_change remove = {.kind = NODE_CHANGE_REMOVE, .id = n->index + 1};
    n->wiped = true;
    change(n->sim, &remove);
    sim_wait_for(n, is_no_member, LATE_MS, "it is not taken out");
    if (sim_node_runs(n)) {
        sim_node_crash(n, false);
    }
}

static void bring_in(struct sim_node *n)
{
    struct node_change add = {.kind = NODE_CHANGE_ADD, .id = n->index + 1};
    (void)snprintf(add.address, sizeof add.address, "node%u:1", n->index + 1);
    sim_disk_wipe(n);
    n->joins = true;
    sim_node_start(n);
    change(n->sim, &add);
}

/* A learner is cut off before it votes. The next one that is added does not wait for it. */
static void play_learner(struct sim *s)
{
    struct sim_node *leader = the_leader(s);
    struct sim_node *away = other(s, leader, 0);
    struct sim_node *next = other(s, leader, 1 + (unsigned)sim_below(s, s->n - 2));
    take_out(away);
    take_out(next);
    bring_in(away);
    sim_wait_for(away, is_member, LATE_MS, "it is not added");
    s->marks->scenarios_told += !is_voter(away);
    cut_off(away, 4 * LATE_MS);
    bring_in(next);
    sim_wait_for(next, is_voter, 2 * LATE_MS, "it does not vote while another one is away");
    cut_off(away, 0);
    sim_wait_for(away, is_voter, LATE_MS, "it does not vote");
    leave_to_operator(away);
    leave_to_operator(next);
}

/* ---- lacks ---- */

static bool all_know_more(const struct sim_node *of, uint64_t index)
{
    for (unsigned i = 0; i < of->sim->n; i++) {
        const struct starts_known *k =
            starts_find(&of->sim->nodes[i].disk.record.starts, of->index + 1,
                        of->disk.record.identity.incarnation);
        if (i != of->index && (k == NULL || k->index <= index)) {
            return false;
        }
    }
    return true;
}

/* The copy is of the same start; it lacks what the node has told since. */
static void play_lacks(struct sim *s)
{
    struct sim_node *n = other(s, the_leader(s), (unsigned)sim_below(s, s->n - 1));
    sim_wait_for(n, is_settled, LATE_MS, "it does not settle");
    sim_pass(s, 1500);
    struct sim_device *device = sim_device_clone(n->disk.device, sim_draw(&s->random), false);
    struct record record = n->disk.record;
    uint64_t last = replica_last_index(n->node->replica);
    add_many(s, MACHINE_OP_BREAK, 0, (unsigned)(1 + sim_below(s, 100)));
    uint64_t until = s->now + LATE_MS;
    while (!all_know_more(n, last)) {
        sim_step(s);
        SIM_CHECK(s, s->now < until, "nobody notes what node %u tells", n->index + 1);
    }
    sim_node_crash(n, false);
    sim_disk_adopt(n, device, &record);
    n->wiped = true;
    n->older.phase = SIM_OLDER_BACK;
    sim_node_start(n);
    sim_wait_for(n, sim_is_down, LATE_MS, "it runs on an older copy of its disk, and goes on");
    s->marks->scenarios_told++;
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

/* That it ends earlier than it did cannot be seen in the log itself. */
static void play_tail(struct sim *s)
{
    struct sim_node *n = other(s, the_leader(s), (unsigned)sim_below(s, s->n - 1));
    add_many(s, MACHINE_OP_BREAK, 0, (unsigned)(50 + sim_below(s, 600)));
    sim_wait_for(n, is_settled, LATE_MS, "it does not settle");
    sim_pass(s, 2500);
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
    sim_wait_for(n, has_all, LATE_MS, "it does not catch up");
}

/* ---- often ---- */

static bool is_done(const struct sim_node *n)
{
    return n->change == SIM_CHANGE_NONE && !n->wiped;
}

/* More often than a node has places for others. */
static void play_often(struct sim *s)
{
    struct sim_node *leader = the_leader(s);
    struct sim_node *n = sim_below(s, 2) == 0 ? leader : other(s, leader, 0);
    struct sim_node *far = other(s, leader, 1);
    if (n != leader) {
        cut(n, far, FOR_EVER_MS);
        far->transport->connect_ms = FOR_EVER_MS;
    }
    sim_tend(s);
    for (unsigned i = 0; i < OFTEN; i++) {
        const struct sim_fault f = {.kind = SIM_FAULT_MEMBER, .both = i % 2 == 0};
        sim_wait_for(n, is_done, LATE_MS, "it is not taken in");
        sim_member_begin(n, &f);
    }
    sim_wait_for(n, is_done, LATE_MS, "it is not taken in");
    cut(n, far, 0);
    s->marks->scenarios_told++;
}

/* ---- unsynced ---- */

/* Until it was one of a snapshot's: others may come before it. */
static void fail_at_snapshot(struct sim_node *n, enum sim_call call)
{
    struct sim *s = n->sim;
    uint64_t failures = node_snapshot_failures(n->node);
    uint64_t until = s->now + LATE_MS;
    while (node_snapshot_failures(n->node) == failures) {
        n->disk.troubled = true;
        sim_device_fail(n->disk.device, call, 1, 1, -EIO);
        churn(s);
        SIM_CHECK(s, s->now < until, "node %u takes no snapshot", n->index + 1);
    }
}

/* What the failing call leaves behind is not the newest snapshot until it is durable: the one
 * before it stays. */
static void play_unsynced(struct sim *s)
{
    static const enum sim_call calls[] = {SIM_SYNC_DIR, SIM_SYNC, SIM_RENAME};
    struct sim_node *n = &s->nodes[sim_below(s, s->n)];
    churn(s);
    for (unsigned i = 0; i < 2 * (sizeof calls / sizeof calls[0]); i++) {
        fail_at_snapshot(n, calls[i / 2]);
        sim_pass(s, sim_below(s, 400));
        sim_read_back(n);
        s->marks->scenarios_told++;
        if (i % 2 == 1) {
            sim_node_crash(n, true);
            sim_node_start(n);
        }
        sim_wait_for(n, has_all, LATE_MS, "it does not catch up");
    }
}

/* ---- all of them ---- */

static const struct {
    const char *name;
    unsigned nodes;
    bool tended; /* by the operator of faults.c from the beginning */
    void (*play)(struct sim *s);
} scenarios[SIM_SCENARIOS] = {
    [SIM_SCENARIO_REMOVED] = {"removed", 3, false, play_removed},
    [SIM_SCENARIO_OLDER] = {"older", 3, false, play_older},
    [SIM_SCENARIO_SNAPSHOTS] = {"snapshots", 3, false, play_snapshots},
    [SIM_SCENARIO_BUSY] = {"busy", 5, false, play_busy},
    [SIM_SCENARIO_LACKS] = {"lacks", 3, false, play_lacks},
    [SIM_SCENARIO_TAIL] = {"tail", 3, false, play_tail},
    [SIM_SCENARIO_OFTEN] = {"often", 3, true, play_often},
    [SIM_SCENARIO_FOUR] = {"four", 5, false, play_four},
    [SIM_SCENARIO_LEARNER] = {"learner", 5, false, play_learner},
    [SIM_SCENARIO_UNSYNCED] = {"unsynced", 3, false, play_unsynced},
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
    o->segment_bytes = LOG_SEGMENT_MIN << 3;
    o->disk_spread_ms %= 8;
    o->child_ms = s->orders.scenario == SIM_SCENARIO_SNAPSHOTS ? 800 : 0;
    o->log_kept_entries = 2;
}

void sim_scenario_play(struct sim *s)
{
    scenarios[s->orders.scenario].play(s);
    if (!scenarios[s->orders.scenario].tended) {
        sim_tend(s);
    }
}
