/* faults.c: the options that a seed chooses, the faults of a run, and the operator that repairs.
 *
 * The list of faults is drawn before the run begins, from a random number of its own. So any fault
 * can be left out without changing the others, and --minimize finds the shortest list that fails.
 * The list has only faults that a correct system must survive: at most one node at a time has lost
 * its disk, until it has everything again, and each node that ends is started again. */
#include <stdlib.h>
#include <string.h>

#include "members.h"

#define TEND_MS 100u
#define PING_MS 500u /* as in relay.c */

/* ---- what a seed chooses ---- */

static uint64_t pick(struct sim_random *r, uint64_t low, uint64_t high)
{
    return low + sim_draw_below(r, high - low + 1);
}

static void choose_network(struct sim_options *o, struct sim_random *r)
{
    o->delay_ms = (unsigned)sim_draw_below(r, 5);
    o->delay_spread_ms =
        sim_draw_chance(r, 70) ? (unsigned)sim_draw_below(r, 5) : (unsigned)sim_draw_below(r, 60);
    o->loss_permille = sim_draw_chance(r, 50) ? 0 : (unsigned)sim_draw_below(r, 50);
    o->twice_permille = sim_draw_chance(r, 50) ? 0 : (unsigned)sim_draw_below(r, 50);
    o->spike_permille = sim_draw_chance(r, 50) ? 0 : (unsigned)sim_draw_below(r, 10);
    o->disk_ms = (unsigned)sim_draw_below(r, 4);
    o->disk_spread_ms =
        sim_draw_chance(r, 70) ? (unsigned)sim_draw_below(r, 6) : (unsigned)sim_draw_below(r, 80);
    o->cpu_ms = sim_draw_chance(r, 70) ? 0 : (unsigned)sim_draw_below(r, 4);
}

static void choose_limits(struct sim_options *o, struct sim_random *r)
{
    o->limits = MACHINE_LIMITS_DEFAULT;
    o->pending_max = NODE_PENDING_MAX;
    o->snapshot_bytes = NODE_SNAPSHOT_BYTES;
    if (sim_draw_chance(r, 25)) {
        o->limits.locks_max = (uint32_t)pick(r, 1, 4);
        o->limits.sessions_max = (uint32_t)pick(r, 2, 8);
        o->limits.waits_max = (uint32_t)pick(r, 1, 6);
        o->limits.lock_waits_max = (uint32_t)pick(r, 1, 3);
        o->limits.session_locks_max = (uint32_t)pick(r, 1, 2);
    }
    if (sim_draw_chance(r, 25)) {
        o->pending_max = MACHINE_COMMAND_MAX;
    }
    if (sim_draw_chance(r, 50)) {
        o->snapshot_entries = (unsigned)pick(r, 1, 60);
    }
    if (sim_draw_chance(r, 75)) {
        o->snapshot_bytes = pick(r, 2000, 60000);
    }
}

static void choose_faults(struct sim_options *o, struct sim_random *r)
{
    static const unsigned usual[SIM_FAULT_KINDS] = {
        [SIM_FAULT_CUT] = 60,         [SIM_FAULT_LOSSY] = 40,       [SIM_FAULT_SLOW_LINK] = 40,
        [SIM_FAULT_JOIN] = 60,        [SIM_FAULT_BREAK] = 40,       [SIM_FAULT_CRASH] = 60,
        [SIM_FAULT_STOP] = 40,        [SIM_FAULT_POWER] = 40,       [SIM_FAULT_PAUSE] = 60,
        [SIM_FAULT_STALL] = 40,       [SIM_FAULT_DISK_ERROR] = 30,  [SIM_FAULT_WIPE] = 40,
        [SIM_FAULT_TRANSFER] = 50,    [SIM_FAULT_JUMP] = 20,        [SIM_FAULT_CLIENT_PAUSE] = 70,
        [SIM_FAULT_STORE_CRASH] = 40, [SIM_FAULT_STORE_PAUSE] = 50, [SIM_FAULT_REDIS_RESTART] = 60,
        [SIM_FAULT_REDIS_JUMP] = 60,
    };
    for (unsigned k = 0; k < SIM_FAULT_DISMISS; k++) {
        bool chosen = sim_draw_chance(r, usual[k]);
        unsigned weight = (unsigned)pick(r, 1, 10);
        o->weight[k] = chosen ? weight : 0;
    }
    /* Faults that stop the whole cluster, or a node for seconds, are rarer. */
    o->weight[SIM_FAULT_POWER] = o->weight[SIM_FAULT_POWER] != 0;
    o->weight[SIM_FAULT_WIPE] = o->weight[SIM_FAULT_WIPE] != 0;
    o->fault_every_ms = pick(r, 60, 500);
    o->jumps = o->weight[SIM_FAULT_JUMP] != 0;
}

static void choose_log(struct sim_options *o, struct sim_random *r)
{
    uint64_t size = sim_draw_chance(r, 90) ? sim_draw_below(r, 3) : 4;
    o->segment_bytes = (uint64_t)LOG_SEGMENT_MIN
                       << (o->snapshot_entries == 0 && size < 2 ? 2 : size);
    o->cache_bytes = sim_draw_chance(r, 50) ? 0 : (size_t)pick(r, 1, 20000);
    o->log_kept_entries = sim_draw_chance(r, 50) ? 0 : (unsigned)pick(r, 2, 60);
    o->weight[SIM_FAULT_FULL] = sim_draw_chance(r, 30) ? (unsigned)pick(r, 1, 5) : 0;
    o->weight[SIM_FAULT_SNAPSHOT] = sim_draw_chance(r, 30) ? (unsigned)pick(r, 1, 10) : 0;
    o->weight[SIM_FAULT_ROT] = sim_draw_chance(r, 30) ? (unsigned)pick(r, 1, 4) : 0;
    o->weight[SIM_FAULT_VOTE] = sim_draw_chance(r, 20) ? (unsigned)pick(r, 1, 5) : 0;
}

/* Options that are newer than the first seeds that the tests keep. They draw from a random number
 * of their own, so that those seeds still give the same runs. */
static void choose_more(struct sim *s)
{
    struct sim_options *o = &s->options;
    struct sim_random random = {s->orders.seed * UINT64_C(0x9fb21c651e98df25) + 3};
    struct sim_random *r = &random;
    o->weight[SIM_FAULT_DISMISS] = sim_draw_chance(r, 25) ? (unsigned)pick(r, 1, 4) : 0;
    choose_log(o, r);
    /* In a tenth of the seeds, many configuration changes and snapshots. */
    if (sim_draw_chance(r, 10)) {
        o->weight[SIM_FAULT_WIPE] = 10;
        o->weight[SIM_FAULT_DISMISS] = 5;
        o->weight[SIM_FAULT_CRASH] = 5;
        o->weight[SIM_FAULT_PAUSE] = 5;
        o->snapshot_entries = (unsigned)pick(r, 1, 6);
    }
}

void sim_options_choose(struct sim *s)
{
    struct sim_options *o = &s->options;
    struct sim_random random = {s->orders.seed * UINT64_C(0x2545f4914f6cdd1d) + 1};
    struct sim_random *r = &random;
    o->nodes = sim_draw_chance(r, 75) ? 3 : 5;
    o->writers = (unsigned)pick(r, 1, 5);
    o->callers = (unsigned)pick(r, 0, 4);
    o->redlockers = sim_draw_chance(r, 60) ? (unsigned)pick(r, 2, 3) : 0;
    o->redis = sim_draw_chance(r, 70) ? 3 : 5;
    o->work_ms = pick(r, 4000, 12000);
    bool quick = sim_draw_chance(r, 40);
    o->heartbeat_ms = quick ? 20 : NODE_HEARTBEAT_MS;
    o->election_ms = quick ? 150 : NODE_ELECTION_MS;
    o->hold_ms = sim_draw_chance(r, 50) ? NODE_HOLD_MS : (unsigned)pick(r, 50, 1000);
    o->ppm_max = sim_draw_chance(r, 50) ? 0 : (int64_t)pick(r, 1, 4000);
    o->ttl_max_ms = sim_draw_chance(r, 50) ? 600 : 3000;
    o->think_ms = (unsigned)(sim_draw_chance(r, 50) ? pick(r, 20, 200) : pick(r, 200, 1500));
    o->hold_back_percent = sim_draw_chance(r, 50) ? 0 : (unsigned)pick(r, 1, 30);
    o->redis_lies = sim_draw_chance(r, 40);
    choose_network(o, r);
    choose_limits(o, r);
    choose_faults(o, r);
    if (s->orders.until_ms != 0) {
        o->work_ms = s->orders.until_ms;
    }
    choose_more(s);
    sim_options_choose_more(s);
    sim_members_choose(s);
    sim_pipeline_choose(s);
    sim_scene_choose(s);
    sim_scenario_choose(s);
    s->random.state = sim_draw(r);
    s->node_random.state = sim_draw(r);
}

static const char *const kind_names[SIM_FAULT_KINDS] = {
    [SIM_FAULT_CUT] = "cut",
    [SIM_FAULT_LOSSY] = "lossy",
    [SIM_FAULT_SLOW_LINK] = "slow",
    [SIM_FAULT_JOIN] = "join",
    [SIM_FAULT_BREAK] = "break",
    [SIM_FAULT_CRASH] = "crash",
    [SIM_FAULT_STOP] = "stop",
    [SIM_FAULT_POWER] = "power",
    [SIM_FAULT_PAUSE] = "pause",
    [SIM_FAULT_STALL] = "disk-stall",
    [SIM_FAULT_DISK_ERROR] = "disk-error",
    [SIM_FAULT_WIPE] = "disk-lost",
    [SIM_FAULT_TRANSFER] = "transfer",
    [SIM_FAULT_JUMP] = "clock-jump",
    [SIM_FAULT_CLIENT_PAUSE] = "client-pause",
    [SIM_FAULT_STORE_CRASH] = "store-crash",
    [SIM_FAULT_STORE_PAUSE] = "store-pause",
    [SIM_FAULT_REDIS_RESTART] = "redis-restart",
    [SIM_FAULT_REDIS_JUMP] = "redis-jump",
    [SIM_FAULT_DISMISS] = "dismiss",
    [SIM_FAULT_FULL] = "disk-full",
    [SIM_FAULT_SNAPSHOT] = "snapshot-trouble",
    [SIM_FAULT_ROT] = "disk-rot",
    [SIM_FAULT_VOTE] = "vote-lost",
    [SIM_FAULT_MEMBER] = "member",
    [SIM_FAULT_OLDER] = "older-copy",
    [SIM_FAULT_PIPELINE] = "pipeline",
    [SIM_FAULT_LATE] = "late",
};

void sim_options_print(const struct sim *s, FILE *out)
{
    const struct sim_options *o = &s->options;
    fprintf(out,
            "seed %llu: %u nodes, %u writers, %u callers, %u by Redlock on %u Redis, %llu ms;\n"
            "  delay %u+%u ms, loss %u, twice %u, spikes %u per 1000; disk %u+%u ms; heartbeat %u, "
            "election %u, hold %u ms;\n  clocks wrong by up to %lld ppm%s; snapshots at %llu "
            "bytes; faults every %llu ms:",
            (unsigned long long)s->orders.seed, o->nodes, o->writers, o->callers, o->redlockers,
            o->redis, (unsigned long long)o->work_ms, o->delay_ms, o->delay_spread_ms,
            o->loss_permille, o->twice_permille, o->spike_permille, o->disk_ms, o->disk_spread_ms,
            o->heartbeat_ms, o->election_ms, o->hold_ms, (long long)o->ppm_max,
            o->jumps ? ", and jump" : "", (unsigned long long)o->snapshot_bytes,
            (unsigned long long)o->fault_every_ms);
    for (unsigned k = 0; k < SIM_FAULT_KINDS; k++) {
        if (o->weight[k] != 0) {
            fprintf(out, " %s %u", kind_names[k], o->weight[k]);
        }
    }
    fputc('\n', out);
}

/* ---- the list ---- */

static uint64_t duration(struct sim_random *r, enum sim_fault_kind kind)
{
    switch (kind) {
    case SIM_FAULT_PAUSE:
        return sim_draw_chance(r, 70) ? pick(r, 10, 700) : pick(r, 700, 4000);
    case SIM_FAULT_CLIENT_PAUSE:
        return sim_draw_chance(r, 50) ? pick(r, 50, 1000) : pick(r, 1000, 6000);
    case SIM_FAULT_JUMP:
        return pick(r, 1, 2000);
    case SIM_FAULT_REDIS_JUMP:
        return pick(r, 1, 8000);
    case SIM_FAULT_STORE_CRASH:
    case SIM_FAULT_STORE_PAUSE:
    case SIM_FAULT_REDIS_RESTART:
        return pick(r, 10, 1500);
    default:
        return sim_draw_chance(r, 70) ? pick(r, 20, 900) : pick(r, 900, 4000);
    }
}

static enum sim_fault_kind kind_of(const struct sim_options *o, struct sim_random *r)
{
    uint64_t all = 0;
    for (unsigned k = 0; k < SIM_FAULT_KINDS; k++) {
        all += o->weight[k];
    }
    uint64_t dice = all == 0 ? 0 : sim_draw_below(r, all);
    unsigned k = 0;
    while (all != 0 && dice >= o->weight[k]) {
        dice -= o->weight[k];
        k++;
    }
    return (enum sim_fault_kind)k;
}

void sim_faults_plan(struct sim *s)
{
    if (s->orders.scene != SIM_SCENE_NONE) {
        sim_scene_plan(s);
        return;
    }
    const struct sim_options *o = &s->options;
    struct sim_random random = {s->orders.seed * UINT64_C(0xd1342543de82ef95) + 7};
    struct sim_random *r = &random;
    uint64_t at = 0;
    unsigned any = 0;
    for (unsigned k = 0; k < SIM_FAULT_KINDS; k++) {
        any += o->weight[k];
    }
    while (any != 0 && s->faults_n < SIM_FAULTS_MAX) {
        struct sim_fault f = {0};
        at += 1 + sim_draw_below(r, 2 * o->fault_every_ms);
        if (at >= o->work_ms && s->orders.length == 0) {
            break;
        }
        f.at = at;
        f.kind = kind_of(o, r);
        f.ms = duration(r, f.kind);
        f.i = (unsigned)sim_draw_below(r, o->nodes);
        f.j = (unsigned)sim_draw_below(r, o->nodes);
        f.k = (unsigned)sim_draw_below(r, 1u << o->nodes);
        f.both = sim_draw_chance(r, 60);
        if (sim_draw_chance(r, 50)) {
            f.k = 0;
        }
        s->faults[s->faults_n++] = f;
    }
}

void sim_fault_text(const struct sim_fault *f, char *out, size_t size)
{
    snprintf(out, size, "%s %u %u %s%u, %llu ms", kind_names[f->kind], f->i + 1, f->j + 1,
             f->both ? "both " : "", f->k, (unsigned long long)f->ms);
}

/* ---- the faults ---- */

static void cut(struct sim *s, unsigned from, unsigned to, uint64_t until)
{
    struct sim_link *l = &s->links[from][to];
    l->cut_until = until > l->cut_until ? until : l->cut_until;
    s->marks->cuts++;
}

/* Cuts links: with k != 0, between the nodes of this set and the others; with i == j, between a
 * node and its clients. */
static void do_cut(struct sim *s, const struct sim_fault *f)
{
    uint64_t until = s->now + f->ms;
    if (f->k == 0) {
        cut(s, f->i, f->j, until);
        if (f->both) {
            cut(s, f->j, f->i, until);
        }
        return;
    }
    for (unsigned i = 0; i < s->n; i++) {
        for (unsigned j = 0; j < s->n; j++) {
            bool in_i = (f->k >> i & 1) != 0;
            bool in_j = (f->k >> j & 1) != 0;
            if (in_i && !in_j) {
                cut(s, i, j, until);
            } else if (!in_i && in_j && f->both) {
                cut(s, i, j, until);
            }
        }
    }
}

static bool may_wipe(struct sim *s)
{
    for (unsigned i = 0; i < s->n; i++) {
        if (s->nodes[i].wiped || s->nodes[i].rotten) {
            return false;
        }
    }
    return true;
}

static void crash(struct sim_node *n, uint64_t ms, bool power)
{
    struct sim *s = n->sim;
    if (!sim_node_runs(n)) {
        return;
    }
    SIM_TRACE(s, "node %u crashes", n->index + 1);
    s->marks->crashes++;
    sim_node_crash(n, power);
    n->restart_at = s->now + ms;
}

static void transferred(void *ctx, int status)
{
    struct sim *s = ctx;
    s->marks->transfers += status == 0;
}

static void do_transfer(struct sim *s)
{
    struct sim_node *n = sim_leader(s);
    if (n != NULL) {
        s->current = n;
        (void)!node_transfer(n->node, 0, transferred, s);
        s->current = NULL;
    }
}

static void resume_fire(struct sim *s, struct sim_event *e)
{
    struct sim_node *n = e->node;
    bool mine = n->life == e->life;
    sim_drop(s, e);
    if (mine && n->paused) {
        SIM_TRACE(s, "node %u goes on", n->index + 1);
        sim_node_resume(n);
        if (n->disk.device != NULL) {
            sim_device_capacity(n->disk.device, UINT64_MAX);
        }
        if (n->rotten) {
            crash(n, 100, false); /* the next start detects the damage, if any start can */
        }
    }
}

static void do_pause(struct sim *s, struct sim_node *n, uint64_t ms)
{
    if (!sim_node_runs(n) || n->paused) {
        return;
    }
    sim_node_pause(n);
    struct sim_event *e = sim_after(s, ms, resume_fire);
    e->node = n;
    e->life = n->life;
}

static void do_jump(struct sim *s, const struct sim_fault *f)
{
    s->marks->clock_jumps++;
    if (f->both || s->clients_n == 0) {
        s->nodes[f->i].clock.local_us += f->ms * 1000;
    } else {
        s->clients[(f->i + f->j * 3) % s->clients_n].clock.local_us += f->ms * 1000;
    }
}

/* The node hears nobody until it gives its streams up; meanwhile the operator has it
 * replaced. */
static void do_dismiss(struct sim *s, const struct sim_fault *f)
{
    struct sim_node *n = &s->nodes[f->i];
    uint64_t ms = 3 * (uint64_t)s->options.election_ms + PING_MS + f->ms;
    if (!may_wipe(s)) {
        return;
    }
    for (unsigned i = 0; i < s->n; i++) {
        if (i != n->index) {
            cut(s, i, n->index, s->now + ms);
            if (f->both) {
                cut(s, n->index, i, s->now + ms);
            }
        }
    }
    n->dismiss_until = s->now + ms;
}

/* A vote that is lost with the power. The leader ends, and comes back. The disk of the next voter
 * stalls, and its power is cut while its vote is not on disk; the candidate is cut off. If the
 * voter sent its vote before it was on disk, the candidate leads the term already, and the two
 * others can elect a second leader in it. */
static void do_vote(struct sim *s, const struct sim_fault *f)
{
    struct sim_node *leader = sim_leader(s);
    if (leader == NULL) {
        return;
    }
    s->vote_until = s->now + 4 * (uint64_t)s->options.election_ms;
    crash(leader, f->ms % 200, f->both);
}

static void vote_fire(struct sim *s, struct sim_event *e)
{
    struct sim_node *n = e->node;
    unsigned candidate = (unsigned)e->a;
    bool mine = n->life == e->life && sim_node_runs(n) && !s->healed;
    sim_drop(s, e);
    if (!mine) {
        return;
    }
    s->marks->votes_interrupted++;
    n->disk.stalled_until = 0;
    crash(n, 0, true);
    for (unsigned i = 0; i < s->n; i++) {
        if (i != candidate) {
            cut(s, i, candidate, s->now + 3 * (uint64_t)s->options.election_ms);
            cut(s, candidate, i, s->now + 3 * (uint64_t)s->options.election_ms);
        }
    }
}

/* The node whose disk is this server of the Raft group; the number of nodes: none. */
static unsigned node_of(const struct sim *s, uint64_t incarnation)
{
    unsigned i = 0;
    while (i < s->n && s->nodes[i].disk.record.identity.incarnation != incarnation) {
        i++;
    }
    return i;
}

uint64_t __real_log_set_hard_state(struct log *l, const struct log_hard_state *hs);
uint64_t __wrap_log_set_hard_state(struct log *l, const struct log_hard_state *hs);

uint64_t __wrap_log_set_hard_state(struct log *l, const struct log_hard_state *hs)
{
    struct sim *s = sim_running;
    struct sim_node *n = s->current;
    unsigned voted = node_of(s, hs->vote);
    if (!n->ghost && s->vote_until > s->now && hs->vote != 0 && voted < s->n && voted != n->index) {
        s->vote_until = 0;
        uint64_t ms = 20 + sim_below(s, 100);
        n->disk.stalled_until = s->now + ms + 1;
        struct sim_event *e = sim_after(s, ms, vote_fire);
        e->node = n;
        e->life = n->life;
        e->a = voted;
    }
    return __real_log_set_hard_state(l, hs);
}

static void do_node_fault(struct sim *s, const struct sim_fault *f)
{
    struct sim_node *n = &s->nodes[f->i];
    switch (f->kind) {
    case SIM_FAULT_CRASH:
        crash(n, f->ms, f->both);
        break;
    case SIM_FAULT_STOP:
        n->restart_at = s->now + 1000 + f->ms;
        sim_node_stop(n);
        break;
    case SIM_FAULT_POWER:
        s->marks->power_cuts++;
        for (unsigned i = 0; i < s->n; i++) {
            crash(&s->nodes[i], f->ms / 2 + sim_below(s, 200), true);
        }
        break;
    case SIM_FAULT_PAUSE:
        do_pause(s, n, f->ms);
        break;
    case SIM_FAULT_STALL:
        s->marks->disk_stalls++;
        n->disk.stalled_until = s->now + f->ms;
        break;
    case SIM_FAULT_DISK_ERROR:
        n->disk.errors = sim_node_runs(n) ? 1 : 0;
        break;
    case SIM_FAULT_WIPE:
        if (may_wipe(s)) {
            crash(n, f->ms, false);
            sim_disk_wipe(n);
            n->wiped = true;
            s->marks->disks_lost++;
        }
        break;
    case SIM_FAULT_DISMISS:
        do_dismiss(s, f);
        break;
    case SIM_FAULT_FULL:
        sim_disk_fill(n, f->ms);
        break;
    case SIM_FAULT_SNAPSHOT:
        sim_disk_trouble(n, f->k + (unsigned)s->now);
        break;
    case SIM_FAULT_ROT:
        if (may_wipe(s)) {
            sim_disk_rot(n, f->k);
        }
        break;
    case SIM_FAULT_VOTE:
        do_vote(s, f);
        break;
    case SIM_FAULT_OLDER:
        sim_older_begin(n, f);
        break;
    case SIM_FAULT_PIPELINE:
        sim_pipeline_begin(n, f);
        break;
    case SIM_FAULT_LATE:
        sim_late_begin(n, f);
        break;
    case SIM_FAULT_MEMBER:
        if (may_wipe(s)) {
            sim_member_begin(n, f);
        }
        break;
    default:
        sim_fail(s, "this is no fault of a node");
    }
}

static void do_fault(struct sim *s, const struct sim_fault *f)
{
    struct sim_link *l = &s->links[f->i][f->j];
    switch (f->kind) {
    case SIM_FAULT_CUT:
        do_cut(s, f);
        break;
    case SIM_FAULT_LOSSY:
        l->lossy_until = s->now + f->ms;
        l->lossy_permille = 100 + f->k * 25;
        break;
    case SIM_FAULT_SLOW_LINK:
        l->slow_until = s->now + f->ms;
        l->slow_ms = 20 + f->k * 10;
        break;
    case SIM_FAULT_JOIN:
        memset(s->links, 0, sizeof s->links);
        break;
    case SIM_FAULT_BREAK:
        sim_net_break(s, f->i, f->j);
        break;
    case SIM_FAULT_TRANSFER:
        do_transfer(s);
        break;
    case SIM_FAULT_JUMP:
        do_jump(s, f);
        break;
    case SIM_FAULT_CLIENT_PAUSE:
        if (s->clients_n > 0) {
            sim_client_pause(&s->clients[(f->i * 5 + f->j) % s->clients_n], f->ms);
        }
        break;
    case SIM_FAULT_STORE_CRASH:
        sim_store_crash(s, f->ms);
        break;
    case SIM_FAULT_STORE_PAUSE:
        sim_store_pause(s, f->ms);
        break;
    case SIM_FAULT_REDIS_RESTART:
        sim_redis_restart(s, f->i % s->options.redis, f->ms);
        break;
    case SIM_FAULT_REDIS_JUMP:
        sim_redis_jump(s, f->i % s->options.redis, f->both ? (int64_t)f->ms : -(int64_t)f->ms);
        break;
    default:
        do_node_fault(s, f);
        break;
    }
}

static void plan_faults(struct sim *s, uint64_t from);

static void fault_fire(struct sim *s, struct sim_event *e)
{
    const struct sim_fault *f = &s->faults[e->a];
    uint64_t number = e->a;
    sim_drop(s, e);
    if (s->healed) {
        return;
    }
    if (s->orders.trace) {
        char text[96];
        sim_fault_text(f, text, sizeof text);
        SIM_TRACE(s, "FAULT %llu: %s", (unsigned long long)number, text);
    }
    s->marks->faults++;
    do_fault(s, f);
    if (s->orders.length != 0 && number + 1 == s->faults_n) {
        plan_faults(s, s->now); /* the run outlasts the list: begin the list again */
    }
}

/* ---- the operator ---- */

static void replaced(void *ctx, int status)
{
    struct sim_node *n = ctx;
    n->replacing = false;
    SIM_TRACE(n->sim, "REPLACE of node %u ends with %s", n->index + 1, fl_err_name(status));
}

static bool replace(struct sim_node *n, struct sim_node *leader)
{
    struct node_change what = {.kind = NODE_CHANGE_REPLACE, .id = n->index + 1};
    n->sim->current = leader;
    n->replacing = node_change(leader->node, &what, replaced, n) == 0;
    n->sim->current = NULL;
    n->sim->marks->plan_replace += n->replacing;
    return n->replacing;
}

bool sim_knows_all(const struct sim_node *n, const struct replica *leader)
{
    const struct replica *r = n->node->replica;
    return replica_applied_index(r) >= n->sim->oracle.max_index &&
           replica_configuration_committed(r) &&
           replica_configuration_index(r) == replica_configuration_index(leader);
}

/* A node that lost its disk has to be replaced once; then it joins again. It is back when it has
 * everything and a vote, and knows of its vote: the raft library lets no node vote that has not
 * seen its own vote, so the only other node that has seen it could not be elected. */
static void tend_wiped(struct sim_node *n)
{
    struct sim *s = n->sim;
    struct sim_node *leader = sim_leader(s);
    if (leader == NULL || n->replacing) {
        return;
    }
    struct machine *m = fsm_machine(leader->node->fsm);
    const struct replica *r = leader->node->replica;
    const struct configuration_server *server =
        configuration_find(replica_configuration(r), n->index + 1);
    struct machine_node node = *machine_node_find(m, n->index + 1);
    bool planned = node.plan != MACHINE_PLAN_NONE;
    if (server != NULL && server->incarnation == n->disk.record.identity.incarnation) {
        bool votes = server != NULL && server->role == CONFIGURATION_VOTER && !planned &&
                     replica_configuration_committed(r);
        if (votes && n->power == SIM_UP && sim_knows_all(n, r)) {
            SIM_TRACE(s, "node %u has everything again", n->index + 1);
            n->wiped = false;
            s->marks->nodes_restored++;
        }
        return;
    }
    bool leaves = planned && node.plan == MACHINE_PLAN_REPLACE;
    if (server != NULL && !leaves && leader != n && replace(n, leader)) {
        SIM_TRACE(s, "REPLACE of node %u at node %u", n->index + 1, leader->index + 1);
    }
}

/* Replaces a node that has everything, and was only away for longer than its operator waits. */
static void tend_dismissed(struct sim_node *n)
{
    struct sim *s = n->sim;
    struct sim_node *leader = sim_leader(s);
    if (leader == NULL || leader == n || n->replacing || !may_wipe(s)) {
        return;
    }
    if (replace(n, leader)) {
        SIM_TRACE(s, "REPLACE of node %u, which is whole, at node %u", n->index + 1,
                  leader->index + 1);
        n->wiped = true;
        s->marks->nodes_dismissed++;
    }
}

static void tend_fire(struct sim *s, struct sim_event *e)
{
    sim_scene_look(s);
    sim_members_mistake(s);
    for (unsigned i = 0; i < s->n; i++) {
        struct sim_node *n = &s->nodes[i];
        if (n->power == SIM_DOWN && n->restart_at <= s->now) {
            n->restart_at = SIM_NEVER;
            if (strstr(n->failed_why, "of no more use") != NULL && !sim_older_is_back(n)) {
                sim_exchange_disk(n); /* its operator has read that */
            }
            sim_node_start(n);
        }
        sim_older_tend(n);
        if (n->change != SIM_CHANGE_NONE) {
            sim_member_tend(n);
        } else if (n->wiped && !sim_older_is_back(n)) {
            tend_wiped(n);
        } else if (n->dismiss_until > s->now) {
            tend_dismissed(n);
        }
    }
    sim_again(s, e, TEND_MS);
}

static void plan_faults(struct sim *s, uint64_t from)
{
    for (unsigned i = 0; i < s->faults_n; i++) {
        if (s->orders.without != NULL && s->orders.without[i] != 0) {
            s->faults_left_out++;
            continue;
        }
        struct sim_event *e = sim_after(s, from - s->now + s->faults[i].at, fault_fire);
        e->a = i;
    }
}

void sim_faults_start(struct sim *s, uint64_t from)
{
    plan_faults(s, from);
}

void sim_tend(struct sim *s)
{
    sim_after(s, TEND_MS, tend_fire);
}

void sim_heal(struct sim *s)
{
    SIM_TRACE(s, "everything is healed");
    s->healed = true;
    memset(s->links, 0, sizeof s->links);
    s->options.loss_permille = 0;
    s->options.twice_permille = 0;
    s->options.spike_permille = 0;
    for (unsigned i = 0; i < s->n; i++) {
        struct sim_node *n = &s->nodes[i];
        n->dismiss_until = 0;
        memset(n->late_until, 0, sizeof n->late_until);
        sim_disk_heal(n);
        sim_node_resume(n);
        if (n->rotten) {
            crash(n, 100, false); /* the next start detects the damage, if any start can */
        }
    }
}
