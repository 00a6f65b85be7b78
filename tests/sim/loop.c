/* loop.c: the part of libuv that the shipping node uses, and nodes as processes.
 *
 * A node's turn has the same order as libuv's: due timers, idle handles, prepare, everything that
 * has arrived (its inbox), check, closing handles. Nothing arrives in the middle of a turn. A
 * paused node collects what arrives and reads it at once when it continues. A crash takes away the
 * memory of the process: the node object is closed by its own code so that no memory leaks, as a
 * ghost that can neither write, nor send, nor answer. */
#include <stdlib.h>
#include <string.h>

#include "members.h"
#include "node_clock.h"
#include "promises.h"
#include "wire.h"

/* Turns in one millisecond. One that something was delivered to counts less: where messages take no
 * time, a long pipeline of queries is answered in one. */
#define SPINS_MAX 40000u
#define SPINS_IDLE 20u

static struct sim_node *node_of(const uv_loop_t *loop)
{
    return FLI_CONTAINER_OF(loop, struct sim_node, loop);
}

/* ---- libuv, as far as the node uses it ---- */

uint64_t uv_now(const uv_loop_t *loop)
{
    return node_of(loop)->loop_ms;
}

void uv_update_time(uv_loop_t *loop)
{
    struct sim_node *n = node_of(loop);
    n->loop_ms = sim_clock_read(n->sim, &n->clock);
}

int uv_timer_init(uv_loop_t *loop, uv_timer_t *t)
{
    struct sim_node *n = node_of(loop);
    t->loop = loop;
    t->timeout = SIM_NEVER;
    for (unsigned i = 0; i < SIM_TIMERS_MAX; i++) {
        if (n->timers[i] == NULL) {
            n->timers[i] = t;
            return 0;
        }
    }
    FLI_ASSERT(false);
}

int uv_timer_start(uv_timer_t *t, uv_timer_cb cb, uint64_t timeout, uint64_t repeat)
{
    t->timer_cb = cb;
    t->timeout = node_of(t->loop)->loop_ms + timeout;
    t->repeat = repeat;
    return 0;
}

int uv_timer_stop(uv_timer_t *t)
{
    t->timeout = SIM_NEVER;
    return 0;
}

int uv_check_init(uv_loop_t *loop, uv_check_t *h)
{
    h->loop = loop;
    h->check_cb = NULL;
    node_of(loop)->check = h;
    return 0;
}

int uv_check_start(uv_check_t *h, uv_check_cb cb)
{
    h->check_cb = cb;
    return 0;
}

int uv_prepare_init(uv_loop_t *loop, uv_prepare_t *h)
{
    h->loop = loop;
    h->prepare_cb = NULL;
    node_of(loop)->prepare = h;
    return 0;
}

int uv_prepare_start(uv_prepare_t *h, uv_prepare_cb cb)
{
    h->prepare_cb = cb;
    return 0;
}

int uv_idle_init(uv_loop_t *loop, uv_idle_t *h)
{
    h->loop = loop;
    h->idle_cb = NULL;
    node_of(loop)->idle = h;
    return 0;
}

int uv_idle_start(uv_idle_t *h, uv_idle_cb cb)
{
    h->idle_cb = cb;
    return 0;
}

int uv_idle_stop(uv_idle_t *h)
{
    h->idle_cb = NULL;
    return 0;
}

static void forget_handle(struct sim_node *n, const uv_handle_t *h)
{
    for (unsigned i = 0; i < SIM_TIMERS_MAX; i++) {
        if ((uv_handle_t *)n->timers[i] == h) {
            n->timers[i] = NULL;
        }
    }
    if ((uv_handle_t *)n->check == h) {
        n->check = NULL;
    }
    if ((uv_handle_t *)n->prepare == h) {
        n->prepare = NULL;
    }
    if ((uv_handle_t *)n->idle == h) {
        n->idle = NULL;
    }
}

void uv_close(uv_handle_t *h, uv_close_cb cb)
{
    struct sim_node *n = node_of(h->loop);
    forget_handle(n, h);
    FLI_ASSERT(n->closing_n < sizeof n->closing / sizeof n->closing[0]);
    n->closing[n->closing_n].handle = h;
    n->closing[n->closing_n].cb = cb;
    n->closing_n++;
}

static void run_closing(struct sim_node *n)
{
    while (n->closing_n > 0) {
        uv_handle_t *h = n->closing[0].handle;
        uv_close_cb cb = n->closing[0].cb;
        n->closing_n--;
        memmove(n->closing, n->closing + 1, n->closing_n * sizeof n->closing[0]);
        if (cb != NULL) {
            cb(h);
        }
    }
}

/* Only node_create() runs the loop itself, to close handles after a failure. */
int uv_run(uv_loop_t *loop, uv_run_mode mode)
{
    run_closing(node_of(loop));
    return 0;
}

/* ---- turns ---- */

static void turn_fire(struct sim *s, struct sim_event *e);

static void turn_at(struct sim_node *n, uint64_t at)
{
    struct sim *s = n->sim;
    if (n->turn_at <= at) {
        return;
    }
    n->turn_at = at;
    struct sim_event *e = sim_after(s, at > s->now ? at - s->now : 0, turn_fire);
    e->node = n;
    e->life = n->life;
}

static void turn_soon(struct sim_node *n)
{
    struct sim *s = n->sim;
    turn_at(n, s->now + (s->options.cpu_ms == 0 ? 0 : sim_below(s, s->options.cpu_ms + 1)));
}

static void run_timers(struct sim_node *n)
{
    for (unsigned i = 0; i < SIM_TIMERS_MAX; i++) {
        uv_timer_t *t = n->timers[i];
        if (t != NULL && t->timeout <= n->loop_ms) {
            t->timeout = t->repeat != 0 ? n->loop_ms + t->repeat : SIM_NEVER;
            t->timer_cb(t);
        }
    }
}

static void plan(struct sim_node *n)
{
    uint64_t due = SIM_NEVER;
    if (n->power == SIM_DOWN) {
        return;
    }
    if ((n->idle != NULL && n->idle->idle_cb != NULL) || n->closing_n > 0) {
        turn_at(n, n->sim->now);
        return;
    }
    for (unsigned i = 0; i < SIM_TIMERS_MAX; i++) {
        if (n->timers[i] != NULL && n->timers[i]->timeout < due) {
            due = n->timers[i]->timeout;
        }
    }
    uint64_t next_ms = sim_server_next_ms(n);
    due = next_ms < due ? next_ms : due;
    if (due != SIM_NEVER) {
        turn_at(n, sim_clock_when(n->sim, &n->clock, due));
    }
}

static void count_spin(struct sim_node *n)
{
    struct sim *s = n->sim;
    uint64_t applied = replica_applied_index(n->node->replica);
    if (n->spins_at != s->now || n->spins_applied != applied) {
        n->spins_at = s->now;
        n->spins_applied = applied;
        n->spins = 0;
    }
    n->spins += n->inbox.first == NULL ? SPINS_IDLE : 1;
    SIM_CHECK(s, n->spins < SPINS_MAX, "node %u turns again and again", n->index + 1);
}

static void die_of_failure(struct sim_node *n)
{
    struct sim *s = n->sim;
    SIM_TRACE(s, "node %u ends itself: %s", n->index + 1, n->failed_why);
    sim_works_end(n);
    sim_node_crash(n, sim_below(s, 4) == 0);
    n->restart_at = s->now + 200 + sim_below(s, 800);
}

static void turn(struct sim_node *n)
{
    struct sim *s = n->sim;
    struct sim_inbox arrived = n->inbox;
    struct sim_event *e;
    uint64_t life = n->life;
    s->current = n;
    count_spin(n);
    n->inbox = (struct sim_inbox){0};
    uv_update_time(&n->loop);
    run_timers(n);
    sim_server_turn(n); /* src/server's handle was started last, so it comes first */
    if (n->prepare != NULL && n->prepare->prepare_cb != NULL) {
        n->prepare->prepare_cb(n->prepare);
    }
    while ((e = sim_inbox_pop(&arrived)) != NULL) {
        if (n->failed == 0) {
            sim_point(n);
        }
        if (n->failed != 0 || n->cut) {
            sim_drop(s, e);
            continue;
        }
        if (n->life == life && n->power != SIM_DOWN) {
            e->deliver(e);
        }
        sim_drop(s, e);
    }
    if (n->check != NULL && n->check->check_cb != NULL) {
        n->check->check_cb(n->check);
    }
    run_closing(n);
    if (n->life == life && n->power == SIM_UP && n->failed == 0 && !n->cut) {
        sim_oracle_node(n);
        sim_steps_node(n);
        sim_members_node(n);
        sim_net_check_waits(n);
    }
    s->current = NULL;
    if (n->cut) {
        sim_point_crash(n);
    } else if (n->failed != 0 && n->life == life && n->power != SIM_DOWN) {
        die_of_failure(n);
    } else {
        plan(n);
    }
}

static void turn_fire(struct sim *s, struct sim_event *e)
{
    struct sim_node *n = e->node;
    bool mine = n->life == e->life && n->turn_at == e->at;
    sim_drop(s, e);
    if (!mine) {
        return;
    }
    n->turn_at = SIM_NEVER;
    if (n->power == SIM_DOWN || n->paused) {
        return;
    }
    turn(n);
}

void sim_node_fire(struct sim *s, struct sim_event *e)
{
    struct sim_node *n = e->node;
    if (n->power == SIM_DOWN || n->life != e->life) {
        sim_drop(s, e);
        return;
    }
    if (n->paused) {
        sim_inbox_push(&n->deferred, e);
        return;
    }
    sim_inbox_push(&n->inbox, e);
    turn_soon(n);
}

struct sim_event *sim_to_node(struct sim_node *n, uint64_t ms, void (*deliver)(struct sim_event *))
{
    struct sim_event *e = sim_after(n->sim, ms, sim_node_fire);
    e->node = n;
    e->life = n->life;
    e->deliver = deliver;
    return e;
}

/* ---- life of a node ---- */

static void on_event(void *ctx, const struct machine_event *e)
{
    struct sim_node *n = ctx;
    if (n->ghost) {
        return;
    }
    sim_oracle_event(n, e);
    sim_server_event(n, e);
}

static void on_push(void *ctx, const struct machine_event *e)
{
    struct sim_node *n = ctx;
    if (!n->ghost) {
        sim_server_event(n, e);
    }
}

static void on_restored(void *ctx)
{
    struct sim_node *n = ctx;
    if (!n->ghost) {
        sim_server_restored(n);
    }
}

static void on_leadership(void *ctx)
{
    struct sim_node *n = ctx;
    struct node_status st;
    if (n->ghost || n->node == NULL) {
        return;
    }
    node_get_status(n->node, &st);
    SIM_TRACE(n->sim, "node %u: %s of term %llu%s, leader %llu", n->index + 1,
              st.role == NODE_LEADER      ? "leader"
              : st.role == NODE_CANDIDATE ? "candidate"
                                          : "follower",
              (unsigned long long)st.term, proposer_is_open(&n->node->proposer) ? ", open" : "",
              (unsigned long long)st.leader_id);
}

/* A node may give up because of an injected fault, and for no other reason. */
static void on_fatal(void *ctx, int error, const char *message)
{
    struct sim_node *n = ctx;
    struct sim *s = n->sim;
    if (n->ghost) {
        return;
    }
    bool refused = error == FL_EDENIED && n->wiped;
    bool disk = error == FL_EIO && (n->disk.error_now || n->disk.troubled);
    bool rot = (error == FL_EIO || error == FL_ECORRUPT) && n->rotten;
    SIM_CHECK(s, refused || disk || rot, "node %u halts: %s (%s)", n->index + 1, message,
              fl_err_name(error));
    s->marks->nodes_refused += refused;
    if (refused) {
        sim_members_check_end(n, message);
        sim_older_refused(n);
    }
    n->failed = 1;
    snprintf(n->failed_why, sizeof n->failed_why, "%s", message);
}

static void on_log(void *ctx, int level, const char *part, const char *message)
{
    struct sim_node *n = ctx;
    if (!n->ghost) {
        sim_wire_said(n, message);
    }
    if (!n->ghost && level < 4) {
        SIM_TRACE(n->sim, "node %u says: %s: %s", n->index + 1, part, message);
    }
}

/* A node that cannot use its disk any more gets an empty one, and is forgotten, as by an
 * operator. */
void sim_exchange_disk(struct sim_node *n)
{
    struct sim *s = n->sim;
    SIM_TRACE(s, "node %u is given an empty disk", n->index + 1);
    sim_disk_wipe(n);
    n->rotten = false;
    n->wiped = true;
    n->restart_at = s->now + 200 + sim_below(s, 800);
    s->marks->rot_found++;
}

static void not_started(struct sim_node *n, int rv, const char *errmsg)
{
    struct sim *s = n->sim;
    if (n->cut) {
        n->cut = n->ghost = n->disk.frozen = false;
        sim_disk_crash(n, true);
        n->power = SIM_DOWN;
        n->restart_at = s->now + 200;
        return;
    }
    bool rot = n->rotten && (rv == FL_ECORRUPT || rv == FL_EIO);
    bool disk = rv == FL_EIO && (n->disk.error_now || n->disk.troubled);
    bool older = rv == FL_EDENIED && n->older.phase == SIM_OLDER_REFUSED;
    SIM_CHECK(s, rot || disk || older, "node %u does not start: %s (%s)", n->index + 1, errmsg,
              fl_err_name(rv));
    SIM_TRACE(s, "node %u does not start: %s", n->index + 1, errmsg);
    n->power = SIM_DOWN;
    if (rot) {
        sim_exchange_disk(n);
    } else {
        n->restart_at = s->now + 200 + sim_below(s, 800);
    }
}

static struct node_config config_of(const struct sim_node *n, const char *dir,
                                    const struct members *members)
{
    const struct sim_options *o = &n->sim->options;
    return (struct node_config){.id = n->index + 1,
                                .data_dir = dir,
                                .client_address = dir,
                                .members = members,
                                .joins = n->joins,
                                .limits = o->limits,
                                .heartbeat_ms = o->heartbeat_ms,
                                .election_ms = o->election_ms,
                                .hold_ms = o->hold_ms,
                                .pending_max = o->pending_max,
                                .snapshot_bytes = o->snapshot_bytes,
                                .snapshot_entries = o->snapshot_entries,
                                .log_kept_entries = o->log_kept_entries,
                                .log_segment_bytes = o->segment_bytes,
                                .log_cache_bytes = o->cache_bytes};
}

void sim_node_start(struct sim_node *n)
{
    struct sim *s = n->sim;
    char dir[32];
    char errmsg[512] = "";
    struct node_callbacks cbs = {.ctx = n,
                                 .event = on_event,
                                 .restored = on_restored,
                                 .leadership = on_leadership,
                                 .push = on_push,
                                 .fatal = on_fatal,
                                 .log = on_log};
    FLI_ASSERT(n->power == SIM_DOWN && n->node == NULL);
    n->power = SIM_UP;
    n->life++;
    n->paused = false;
    n->failed = 0;
    n->failed_why[0] = '\0';
    n->turn_at = SIM_NEVER;
    n->lost_ms = 0;
    n->disk.error_now = n->disk.troubled = false;
    n->kill_child = false;
    n->labelled = n->labelled_change = 0;
    s->marks->snapshots_started_from += sim_disk_has_snapshot(n);
    s->current = n;
    uv_update_time(&n->loop);
    snprintf(dir, sizeof dir, "node-%u", n->index + 1);
    struct members members = s->members;
    snprintf(members.list[n->index].address, MEMBER_ADDRESS_MAX, "node%u:%u", n->index + 1,
             n->listens);
    struct node_config config = config_of(n, dir, &members);
    sim_server_start(n);
    int rv = node_create(&n->loop, &config, &cbs, &n->node, errmsg, sizeof errmsg);
    sim_disk_trouble_over(n);
    s->marks->starts_failed += rv != 0 && n->disk.troubled;
    if (rv == 0 && n->cut) {
        s->current = NULL;
        sim_point_crash(n);
        return;
    }
    if (rv != 0) {
        sim_server_destroy(n);
        s->current = NULL;
        not_started(n, rv, errmsg);
        return;
    }
    SIM_TRACE(s, "node %u starts, with entries %llu to %llu on disk", n->index + 1,
              (unsigned long long)log_first_index(n->node->log),
              (unsigned long long)log_last_index(n->node->log));
    sim_promises_started(n);
    n->knew_change = n->raft->configuration_committed_index;
    n->rotten = false; /* it begins with undamaged bytes, or overwrites them before it reads
                          them */
    sim_oracle_watch(n);
    s->current = NULL;
    turn_soon(n);
}

static void note_relayed(struct sim_node *n)
{
    n->sim->marks->relayed += n->node->relay.sent;
}

static void end_of_life(struct sim_node *n)
{
    struct sim *s = n->sim;
    struct sim_event *e;
    sim_server_destroy(n);
    node_destroy(n->node);
    n->node = NULL;
    n->power = SIM_DOWN;
    n->paused = false;
    while ((e = sim_inbox_pop(&n->inbox)) != NULL || (e = sim_inbox_pop(&n->deferred)) != NULL) {
        sim_drop(s, e);
    }
    if (n->disk.unseen) {
        sim_exchange_disk(n);
    }
}

void sim_node_crash(struct sim_node *n, bool power)
{
    struct sim *s = n->sim;
    struct sim_node *before = s->current;
    if (n->power == SIM_DOWN) {
        return;
    }
    n->ghost = true;
    n->disk.frozen = true;
    s->current = n;
    sim_server_ended(n);
    sim_net_reset(n);
    note_relayed(n);
    if (n->node->phase < PHASE_CLOSE) {
        node_close(n->node);
    }
    sim_disk_crash(n, power || s->orders.sabotage == SIM_SABOTAGE_NO_SYNC);
    do {
        run_closing(n);
    } while (sim_works_run(n));
    s->current = before;
    FLI_ASSERT(n->node->phase == PHASE_CLOSED);
    n->disk.frozen = false;
    end_of_life(n);
    n->ghost = false;
}

static void stopped(void *ctx)
{
    struct sim_node *n = ctx;
    if (n->ghost) {
        return;
    }
    SIM_TRACE(n->sim, "node %u has stopped", n->index + 1);
    n->sim->marks->stops++;
    sim_disk_crash(n, n->sim->orders.sabotage == SIM_SABOTAGE_NO_SYNC);
    sim_server_ended(n);
    sim_net_reset(n);
    end_of_life(n);
}

void sim_node_stop(struct sim_node *n)
{
    if (n->power != SIM_UP || n->paused || n->failed != 0) {
        return;
    }
    n->power = SIM_STOPPING;
    n->stopping_ms = sim_node_ms(n);
    note_relayed(n);
    n->sim->current = n;
    sim_server_stopping(n);
    node_stop(n->node, SIM_DRAIN_MS, stopped, n);
    n->sim->current = NULL;
    turn_soon(n);
}

void sim_node_pause(struct sim_node *n)
{
    if (!sim_node_runs(n) || n->paused) {
        return;
    }
    n->paused = true;
    n->paused_at = n->sim->now;
    n->sim->marks->pauses++;
}

void sim_node_resume(struct sim_node *n)
{
    struct sim_event *e;
    if (!n->paused) {
        return;
    }
    uint64_t paused_ms = n->sim->now - n->paused_at;
    if (paused_ms > CLUSTER_CLOCK_STEP_MAX_MS) {
        n->lost_ms += paused_ms - CLUSTER_CLOCK_STEP_MAX_MS;
    }
    n->paused = false;
    while ((e = sim_inbox_pop(&n->deferred)) != NULL) {
        sim_inbox_push(&n->inbox, e);
    }
    turn_at(n, n->sim->now);
}

bool sim_node_runs(const struct sim_node *n)
{
    return n->power != SIM_DOWN;
}

/* ---- all of them ---- */

void sim_nodes_init(struct sim *s)
{
    s->n = s->options.nodes;
    s->members.n = s->n;
    for (unsigned i = 0; i < s->n; i++) {
        struct sim_node *n = &s->nodes[i];
        s->members.list[i].id = i + 1;
        snprintf(s->members.list[i].address, MEMBER_ADDRESS_MAX, "node%u:1", i + 1);
        n->sim = s;
        n->index = i;
        n->power = SIM_DOWN;
        n->restart_at = SIM_NEVER;
        n->port = n->listens = 1;
        uint64_t local_ms = 5000 + sim_below(s, 1u << 30);
        int64_t ppm =
            s->options.ppm_max == 0
                ? 0
                : (int64_t)sim_below(s, (uint64_t)s->options.ppm_max * 2 + 1) - s->options.ppm_max;
        sim_clock_set(s, &n->clock, local_ms, ppm);
    }
    for (unsigned i = 0; i < s->n; i++) {
        sim_node_start(&s->nodes[i]);
    }
}

void sim_nodes_fini(struct sim *s)
{
    for (unsigned i = 0; i < s->n; i++) {
        sim_node_crash(&s->nodes[i], false);
        sim_disk_wipe(&s->nodes[i]);
        sim_older_forget(&s->nodes[i]);
    }
}

struct sim_node *sim_leader(struct sim *s)
{
    for (unsigned i = 0; i < s->n; i++) {
        struct sim_node *n = &s->nodes[i];
        if (n->power == SIM_UP && !n->paused && n->failed == 0 &&
            proposer_is_open(&n->node->proposer)) {
            return n;
        }
    }
    return NULL;
}

bool sim_converged(struct sim *s)
{
    unsigned open = 0;
    for (unsigned i = 0; i < s->n; i++) {
        struct sim_node *n = &s->nodes[i];
        if (n->power != SIM_UP || n->paused || n->wiped || n->rotten) {
            return false;
        }
        open += proposer_is_open(&n->node->proposer);
        uint64_t applied = replica_applied_index(n->node->replica);
        if (applied < s->oracle.max_index ||
            applied != replica_last_index(s->nodes[0].node->replica) ||
            proposer_in_flight(&n->node->proposer) > 0 || n->node->commands.count > 0) {
            return false;
        }
    }
    return open == 1;
}

static const char *away(const struct sim_node *n)
{
    return n->wiped ? " (had lost its disk)" : "";
}

void sim_nodes_describe(struct sim *s, FILE *out)
{
    for (unsigned i = 0; i < s->n; i++) {
        struct sim_node *n = &s->nodes[i];
        if (n->node == NULL || n->node->phase == PHASE_CLOSED) {
            fprintf(out, "  node %u: down%s\n", i + 1, away(n));
            continue;
        }
        struct node_status st;
        s->current = n; /* its clock is the one that is read */
        node_get_status(n->node, &st);
        s->current = NULL;
        fprintf(out,
                "  node %u: %s%s, %s%s, term %llu, last %llu, commit %llu, applied %llu, in flight "
                "%llu, pending %llu\n",
                i + 1, n->paused ? "paused" : "up", away(n),
                st.role == NODE_LEADER      ? "leader"
                : st.role == NODE_CANDIDATE ? "candidate"
                                            : "follower",
                proposer_is_open(&n->node->proposer) ? " (open)" : "", (unsigned long long)st.term,
                (unsigned long long)st.last_index, (unsigned long long)st.commit_index,
                (unsigned long long)st.applied_index, (unsigned long long)st.in_flight,
                (unsigned long long)st.pending_commands);
    }
}
