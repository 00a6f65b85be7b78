/* cluster.c: nodes of the simulation on raft's fixture. */
#include <stdio.h>

#include "sim.h"

static struct sim_node *node_of_fsm(struct raft_fsm *fsm)
{
    return FLI_CONTAINER_OF(fsm, struct sim_node, wrapped);
}

static int wrapped_apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result)
{
    struct sim_node *node = node_of_fsm(fsm);
    struct raft_fsm *own = fsm_raft(node->fsm);
    raft_index index = raft_last_applied(node->raft) + 1;
    node->applying = index;
    node->first = index > node->sim->oracle.max_index;
    node->event_digest = 1;
    if (node->first) {
        sim_oracle_batch(node, buf->base, buf->len);
    }
    int rv = own->apply(own, buf, result);
    SIM_CHECK(node->sim, rv == 0, "node %u cannot apply index %llu", node->index + 1, index);
    sim_oracle_applied(node, index);
    node->applying = 0;
    return rv;
}

static int wrapped_snapshot(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n_bufs)
{
    struct sim_node *node = node_of_fsm(fsm);
    struct raft_fsm *own = fsm_raft(node->fsm);
    node->sim->marks->snapshots_taken++;
    return own->snapshot(own, bufs, n_bufs);
}

static int wrapped_finalize(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n_bufs)
{
    struct raft_fsm *own = fsm_raft(node_of_fsm(fsm)->fsm);
    return own->snapshot_finalize(own, bufs, n_bufs);
}

static int wrapped_restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
    struct sim_node *node = node_of_fsm(fsm);
    struct raft_fsm *own = fsm_raft(node->fsm);
    int rv = own->restore(own, buf);
    SIM_CHECK(node->sim, rv == 0, "node %u cannot restore a snapshot", node->index + 1);
    sim_oracle_restored(node, raft_commit_index(node->raft));
    return rv;
}

/* Between raft and its guard: a batch that is written for the first time was sealed just now. */
static int watch_append(struct raft_io *io, struct raft_io_append *req,
                        const struct raft_entry entries[], unsigned n, raft_io_append_cb cb)
{
    struct raft_guard *guard = FLI_CONTAINER_OF(io, struct raft_guard, outer);
    struct sim_node *node = FLI_CONTAINER_OF(guard, struct sim_node, guard);
    for (unsigned i = 0; i < n; i++) {
        if (entries[i].type == RAFT_COMMAND) {
            sim_oracle_sealed(node, entries[i].buf.base, entries[i].buf.len);
        }
    }
    return node->guard_append(io, req, entries, n, cb);
}

/* Nothing here ever reads the fixture's disk back, and its truncate copies beyond its array once a
 * snapshot was installed. So its disk just keeps what was written. */
static int no_truncate(struct raft_io *io, raft_index index)
{
    (void)io;
    (void)index;
    return 0;
}

static void on_event(void *ctx, const struct machine_event *e)
{
    sim_oracle_event(ctx, e);
}

static void on_fatal(void *ctx, int error, const char *message)
{
    struct sim_node *node = ctx;
    sim_fail(node->sim, "node %u halts: %s (%s)", node->index + 1, message, fl_err_name(error));
}

static void on_returned(void *ctx, struct node_ticket *t, const void *command, size_t len)
{
    struct sim_node *node = ctx;
    sim_client_returned(node->sim, t, command, len);
}

static void on_opened(void *ctx, uint64_t term)
{
    struct sim_node *node = ctx;
    struct machine_command init = {
        .op = MACHINE_OP_INIT, .number = 7, .limits = MACHINE_LIMITS_DEFAULT};
    struct fli_buf buf;
    SIM_CHECK(node->sim, term > node->term_seen, "node %u opens term %llu twice", node->index + 1,
              (unsigned long long)term);
    node->term_seen = term;
    node->sim->marks->terms++;
    sim_trace(node->sim, "node %u leads term %llu", node->index + 1, (unsigned long long)term);
    fli_buf_init(&buf, MACHINE_COMMAND_MAX);
    int rv = machine_command_encode(&init, &buf);
    FLI_ASSERT(rv == 0);
    rv = proposer_add(node->proposer, NULL, buf.data, buf.len, NULL);
    FLI_ASSERT(rv == 0);
    fli_buf_fini(&buf);
}

static void no_trace(struct raft_tracer *t, int type, const void *info)
{
    (void)t;
    (void)type;
    (void)info;
}

static struct raft_tracer silent = {.version = 2, .emit = no_trace};

static void sim_node_create(struct sim *s, unsigned i)
{
    struct sim_node *node = &s->nodes[i];
    *node = (struct sim_node){.sim = s, .index = i};
    struct fsm_config config = {
        .event = on_event, .event_ctx = node, .fatal = on_fatal, .ctx = node};
    int rv = fsm_create(&config, &node->fsm);
    FLI_ASSERT(rv == 0);
    node->wrapped = (struct raft_fsm){.version = 2,
                                      .apply = wrapped_apply,
                                      .snapshot = wrapped_snapshot,
                                      .restore = wrapped_restore,
                                      .snapshot_finalize = wrapped_finalize};
    rv = raft_fixture_grow(&s->fixture, &node->wrapped);
    FLI_ASSERT(rv == 0);
    node->raft = raft_fixture_get(&s->fixture, i);
    node->raft->tracer = &silent;
    node->raft->io->truncate = no_truncate;
    raft_guard_init(&node->guard, node->raft->io, on_fatal, node);
    raft_guard_attach(&node->guard, node->raft);
    node->guard_append = node->guard.outer.append;
    node->guard.outer.append = watch_append;
    node->clock_offset_ms = sim_below(s, 1u << 30);

    raft_set_election_timeout(node->raft, SIM_ELECTION_MS);
    raft_set_heartbeat_timeout(node->raft, SIM_HEARTBEAT_MS);
    raft_set_install_snapshot_timeout(node->raft, 300);
    raft_set_pre_vote(node->raft, true);
    raft_set_max_inflight_entries(node->raft, SIM_RAFT_IN_FLIGHT);
    /* Both above the entries in flight, see raft_guard.h. */
    raft_set_snapshot_threshold(node->raft, (unsigned)(SIM_RAFT_IN_FLIGHT + 1 + sim_below(s, 40)));
    raft_set_snapshot_trailing(node->raft, (unsigned)(SIM_RAFT_IN_FLIGHT + 1 + sim_below(s, 20)));

    struct proposer_config pc = {
        .raft = node->raft,
        .fsm = node->fsm,
        .ctx = node,
        .returned = on_returned,
        .opened = on_opened,
        .fatal = on_fatal,
    };
    pc.in_flight_max = (unsigned)(1 + sim_below(s, 4));
    pc.batch_max = sim_chance(s, 50) ? 4200 : 0;
    pc.pending_max = sim_chance(s, 30) ? 200 : 0;
    rv = proposer_create(&pc, &node->proposer);
    FLI_ASSERT(rv == 0);
}

void sim_cluster_start(struct sim *s)
{
    int rv = raft_fixture_init(&s->fixture);
    FLI_ASSERT(rv == 0);
    /* The fixture's own init leaves these to whatever memory held. */
    s->fixture.leader_id = 0;
    for (unsigned i = 0; i < s->n; i++) {
        sim_node_create(s, i);
    }
    for (unsigned i = 0; i < s->n; i++) {
        sim_shuffle_election(s, i);
        unsigned network_ms = (unsigned)(1 + sim_below(s, 20));
        sim_slow(s, i, network_ms, (unsigned)(1 + sim_below(s, 10)));
    }
    struct raft_configuration conf;
    rv = raft_fixture_configuration(&s->fixture, s->n, &conf);
    FLI_ASSERT(rv == 0);
    rv = raft_fixture_bootstrap(&s->fixture, &conf);
    FLI_ASSERT(rv == 0);
    raft_configuration_close(&conf);
    rv = raft_fixture_start(&s->fixture);
    FLI_ASSERT(rv == 0);
}

void sim_cluster_stop(struct sim *s)
{
    for (unsigned i = 0; i < s->n; i++) {
        struct raft_guard_stats stats;
        struct proposer_stats ps;
        proposer_get_stats(s->nodes[i].proposer, &ps);
        s->marks->pulses += ps.pulses;
        proposer_close(s->nodes[i].proposer);
        raft_guard_get_stats(&s->nodes[i].guard, &stats);
        s->marks->snapshots_installed += stats.snapshots_installed;
        s->marks->snapshots_dropped += stats.snapshots_dropped;
        s->marks->commits_corrected += stats.commits_corrected;
        s->marks->snapshots_corrected += stats.snapshots_corrected;
    }
    raft_fixture_close(&s->fixture);
    for (unsigned i = 0; i < s->n; i++) {
        proposer_destroy(s->nodes[i].proposer);
        fsm_destroy(s->nodes[i].fsm);
    }
}

static void turn(struct sim_node *node)
{
    uint64_t now_ms = sim_now(node->sim) + node->clock_offset_ms;
    proposer_turn(node->proposer, now_ms);
    if (proposer_next_turn_ms(node->proposer, now_ms) == 0) {
        proposer_turn(node->proposer, now_ms);
    }
    /* Two turns with nothing in between must be enough, or the loop would spin. */
    SIM_CHECK(node->sim, proposer_next_turn_ms(node->proposer, now_ms) > 0,
              "node %u asks for turn after turn", node->index + 1);
}

void sim_cluster_step(struct sim *s)
{
    raft_fixture_step(&s->fixture);
    unsigned leaders = 0;
    for (unsigned i = 0; i < s->n; i++) {
        if (sim_node_alive(s, i)) {
            turn(&s->nodes[i]);
            leaders += proposer_is_open(s->nodes[i].proposer);
        }
    }
    s->marks->stale_leaders += leaders > 1;
    s->oracle.steps++;
}

bool sim_node_alive(struct sim *s, unsigned i)
{
    return raft_fixture_alive(&s->fixture, i);
}

void sim_pause(struct sim *s, unsigned i)
{
    s->marks->pauses++;
    sim_trace(s, "node %u stops", i + 1);
    s->nodes[i].paused_at_ms = sim_now(s);
    raft_fixture_kill(&s->fixture, i);
}

void sim_resume(struct sim *s, unsigned i)
{
    sim_trace(s, "node %u goes on", i + 1);
    uint64_t paused_ms = sim_now(s) - s->nodes[i].paused_at_ms;
    if (paused_ms > CLUSTER_CLOCK_STEP_MAX_MS) {
        s->nodes[i].lost_ms += paused_ms - CLUSTER_CLOCK_STEP_MAX_MS;
    }
    raft_fixture_revive(&s->fixture, i);
}

void sim_cut(struct sim *s, unsigned from, unsigned to, bool lossy)
{
    sim_trace(s, "link %u to %u %s", from + 1, to + 1, lossy ? "loses everything" : "is down");
    if (lossy) {
        raft_fixture_saturate(&s->fixture, from, to);
    } else {
        raft_fixture_disconnect(&s->fixture, from, to);
    }
}

void sim_join(struct sim *s, unsigned from, unsigned to)
{
    raft_fixture_reconnect(&s->fixture, from, to);
    raft_fixture_desaturate(&s->fixture, from, to);
}

void sim_slow(struct sim *s, unsigned i, unsigned network_ms, unsigned disk_ms)
{
    const struct raft_guard *guard = &s->nodes[i].guard;
    raft_fixture_set_network_latency(&s->fixture, i, network_ms);
    /* A faster disk would let a write overtake the one before it, which no backend of raft does. */
    if (fli_list_empty(&guard->appending) && guard->puts == 0) {
        raft_fixture_set_disk_latency(&s->fixture, i, disk_ms);
    }
}

void sim_shuffle_election(struct sim *s, unsigned i)
{
    raft_fixture_set_randomized_election_timeout(
        &s->fixture, i, SIM_ELECTION_MS + (unsigned)sim_below(s, SIM_ELECTION_MS));
}

static void transferred(struct raft_transfer *req)
{
    struct sim_node *node = req->data;
    node->transferring = false;
}

void sim_transfer(struct sim *s, unsigned i)
{
    struct sim_node *node = &s->nodes[i];
    if (node->transferring || raft_state(node->raft) != RAFT_LEADER) {
        return;
    }
    node->transfer.data = node;
    if (raft_transfer(node->raft, &node->transfer, 0, transferred) == 0) {
        sim_trace(s, "node %u hands over", i + 1);
        node->transferring = true;
        s->marks->transfers++;
    }
}

void sim_heal(struct sim *s)
{
    for (unsigned i = 0; i < s->n; i++) {
        if (!sim_node_alive(s, i)) {
            sim_resume(s, i);
        }
    }
    for (unsigned i = 0; i < s->n; i++) {
        for (unsigned j = 0; j < s->n; j++) {
            if (i != j) {
                sim_join(s, i, j);
            }
        }
        sim_slow(s, i, 5, 3);
    }
}

bool sim_converged(struct sim *s)
{
    unsigned open = 0;
    for (unsigned i = 0; i < s->n; i++) {
        struct proposer_stats stats;
        proposer_get_stats(s->nodes[i].proposer, &stats);
        open += proposer_is_open(s->nodes[i].proposer);
        if (raft_last_applied(s->nodes[i].raft) != raft_last_index(s->nodes[0].raft) ||
            stats.in_flight > 0 || stats.pending_commands > 0) {
            return false;
        }
    }
    return open == 1;
}

void sim_cluster_describe(struct sim *s)
{
    for (unsigned i = 0; i < s->fixture.n; i++) {
        struct sim_node *node = &s->nodes[i];
        struct proposer_stats stats = {0};
        struct raft_guard_stats guard;
        if (node->proposer == NULL) {
            continue;
        }
        proposer_get_stats(node->proposer, &stats);
        raft_guard_get_stats(&node->guard, &guard);
        fprintf(stderr,
                "  node %u: %s, %s, term %llu, last %llu, commit %llu, applied %llu, in flight "
                "%llu, pending %llu, writing %u, %s\n",
                i + 1, sim_node_alive(s, i) ? "up" : "stopped",
                raft_state_name((int)raft_state(node->raft)), raft_current_term(node->raft),
                raft_last_index(node->raft), raft_commit_index(node->raft),
                raft_last_applied(node->raft), (unsigned long long)stats.in_flight,
                (unsigned long long)stats.pending_commands, node->guard.puts,
                guard.append_waiting_ns == 0 ? "" : "appending");
    }
}
