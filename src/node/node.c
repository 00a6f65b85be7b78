/* node.c: the turn of the loop, the submission of commands, status.
 *
 * The turn. Sockets and the disk are read in the poll phase of the loop. Then the check handle runs
 * node_turn(): due timers, the proposer, which makes one entry of all that came, leadership, and
 * the relay, which sends it to another leader. Then messages leave, with one write per stream, and
 * the log begins to write; followers take longer than this node's disk. The prepare handle flushes
 * streams again, for answers made by timers. The one-shot timer only wakes the loop when something
 * is due. An idle handle wakes the loop at once: a timer alone fires before the poll phase, which
 * would then wait for something else. Whatever is not urgent happens at the tick.
 *
 * A pause. When the process was stopped, or the machine suspended, the first turn afterwards works
 * with old knowledge. So Raft's timer waits for one turn, in which the sockets are read, and
 * commands wait for a moment (unverified_until_ms): by then a leader that was replaced knows
 * it. This saves clients from UNCERTAIN. That a replaced leader can commit nothing is Raft's
 * guarantee. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "node/node_private.h"

/* ---- the loop ---- */

static void idle_cb(uv_idle_t *idle)
{
    /* Nothing to do: the loop turns, and node_turn() works after the sockets are read. */
}

void node_wake(void *node)
{
    struct node *n = node;
    if (!n->loop.woken && n->phase < PHASE_CLOSE) {
        n->loop.woken = true;
        int rv = uv_idle_start(&n->loop.idle, idle_cb);
        FLI_ASSERT(rv == 0);
    }
}

bool node_running(const struct node *n)
{
    return n->phase == PHASE_RUN && !n->failed;
}

bool node_can_propose(const struct node *n)
{
    return n->loop.unverified_until_ms == 0 && proposer_is_open(&n->proposer) &&
           replica_transferee(n->replica) == 0 && membership_formed(n->membership) &&
           membership_may_speak(n->membership);
}

/* ---- commands ---- */

/* While this node follows, the relay takes commands out of the queue. When there is no room for the
 * next one of a class, there may be for one of another class. */
static void relay(struct node *n)
{
    unsigned classes = COMMANDS_ALL;
    struct command *c;
    while (!proposer_is_open(&n->proposer) && (c = commands_first(&n->commands, classes)) != NULL) {
        if (!relay_send(&n->relay, c)) {
            classes &= ~COMMANDS_OF(c->class);
        }
    }
}

static void expire(struct node *n)
{
    if (n->commands.count == 0 || node_can_propose(n)) {
        return;
    }
    uint64_t now_ns = fli_clock_ns();
    if (!proposer_is_open(&n->proposer)) {
        commands_expire_bound(&n->commands, now_ns);
    }
    if (commands_expire(&n->commands, now_ns)) {
        node_wake(n);
    }
}

/* ---- the turn ---- */

/* A pause is assumed at most every other turn: on a machine that is always late, Raft's timer must
 * still run. */
static void note_pause(struct node *n)
{
    struct node_loop *l = &n->loop;
    uint64_t now_ms = fli_clock_ms();
    uint64_t late_ms = now_ms - l->turned_ms;
    uint64_t election_ms = n->election.election_ms;
    uint64_t two_beats_ms = 2 * (uint64_t)n->election.heartbeat_ms;
    uint64_t most_ms = election_ms < 2 * two_beats_ms ? two_beats_ms : election_ms - two_beats_ms;
    l->paused = late_ms > most_ms && !l->paused;
    l->unverified_until_ms = now_ms < l->unverified_until_ms ? l->unverified_until_ms : 0;
    if (late_ms > election_ms) {
        host_log(&n->host, 2, "this process did not run for %" PRIu64 " ms", late_ms);
        l->unverified_until_ms = now_ms + two_beats_ms;
    }
    l->turned_ms = now_ms;
}

/* A follower without commands of its own has only this to do, and nobody waits for anything else
 * of it: so it does the write itself, which saves two switches of threads. */
static void flush(struct node *n)
{
    bool waits = replica_role(n->replica) == REPLICA_FOLLOWER && n->commands.count == 0;
    peers_flush(&n->peers);
    relay_flush(&n->relay);
    if (!waits) {
        log_flush(n->log);
    } else if (log_flush_here(n->log)) {
        peers_flush(&n->peers);
    }
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool may_call_elections(const struct node *n)
{
    return node_running(n) && !n->watch.disk_hangs;
}

static void timer_cb(uv_timer_t *timer)
{
    node_wake(timer->data);
}

/* Plans the next turn, in case nothing else causes one. */
static void plan_turn(struct node *n)
{
    uint64_t now_ms = fli_clock_ms();
    uint64_t next_ms = proposer_next_turn_ms(&n->proposer, now_ms);
    next_ms = least(next_ms, n->loop.paused ? 0 : replica_next_ms(n->replica, now_ms));
    next_ms = least(next_ms, peers_next_ms(&n->peers));
    next_ms = least(next_ms, election_next_ms(&n->election, may_call_elections(n)));
    if (next_ms == 0) {
        node_wake(n);
    }
    if (n->loop.woken || next_ms == UINT64_MAX) {
        uv_timer_stop(&n->loop.timer);
    } else {
        int rv = uv_timer_start(&n->loop.timer, timer_cb, next_ms, 0);
        FLI_ASSERT(rv == 0);
    }
}

static void raft_turn(struct node *n)
{
    if (!n->failed) { /* a node whose disk has failed receives and sends nothing more */
        replica_turn(n->replica, n->loop.turned_ms, n->loop.paused);
        proposer_turn(&n->proposer,
                      node_can_propose(n) ? COMMANDS_ALL : COMMANDS_OF(COMMAND_CLUSTER),
                      n->loop.turned_ms);
    }
}

static void node_turn(struct node *n)
{
    n->loop.woken = false;
    uv_idle_stop(&n->loop.idle);
    note_pause(n);
    node_settings_turn(n);
    raft_turn(n);
    expire(n);
    node_watch_turn(n);
    if (!n->loop.paused) { /* silence means nothing until the messages of the pause are read */
        election_turn(&n->election, may_call_elections(n));
    }
    if (!n->failed) {
        membership_turn(n->membership, node_running(n));
        node_record_turn(&n->record);
    }
    if (n->phase == PHASE_DRAIN) {
        node_stop_turn(n);
        if (n->phase >= PHASE_CLOSE) {
            return;
        }
    } else {
        relay(n);
    }
    node_snapshot_turn(n);
    peers_turn(&n->peers);
    flush(n);
    plan_turn(n);
}

static void check_cb(uv_check_t *check)
{
    struct node *n = check->data;
    enum fli_turn_part part = fli_turn_enter(n->host.turn, FLI_TURN_PEERS);
    node_turn(n);
    fli_turn_leave(n->host.turn, part);
}

static void prepare_cb(uv_prepare_t *prepare)
{
    flush(prepare->data);
}

static void disk_cb(uv_poll_t *poll, int status, int events)
{
    struct node *n = poll->data;
    enum fli_turn_part part = fli_turn_enter(n->host.turn, FLI_TURN_PEERS);
    log_device_poll(n->loop.device);
    fli_turn_leave(n->host.turn, part);
}

void node_durable(void *ctx)
{
    struct node *n = ctx;
    if (n->replica != NULL && n->phase < PHASE_CLOSE) {
        replica_durable(n->replica, fli_clock_ms());
    }
}

void node_arrived(void *ctx)
{
    struct node *n = ctx;
    if (n->replica != NULL && !n->failed && n->phase < PHASE_CLOSE) {
        replica_arrived(n->replica, fli_clock_ms());
    }
}

static void tick_cb(uv_timer_t *timer)
{
    struct node *n = timer->data;
    if (!n->failed) {
        membership_tick(n->membership, node_running(n));
        node_record_tick(&n->record);
    }
    relay_tick(&n->relay);
    node_snapshot_tick(n);
    node_watch_tick(n);
}

void node_loop_init(struct node *n)
{
    struct node_loop *l = &n->loop;
    uv_loop_t *loop = n->host.loop;
    int rv = uv_check_init(loop, &l->check);
    rv = rv != 0 ? rv : uv_prepare_init(loop, &l->prepare);
    rv = rv != 0 ? rv : uv_timer_init(loop, &l->timer);
    rv = rv != 0 ? rv : uv_timer_init(loop, &l->tick);
    rv = rv != 0 ? rv : uv_idle_init(loop, &l->idle);
    l->check.data = l->prepare.data = l->timer.data = l->tick.data = l->idle.data = n;
    for (unsigned i = 0; i < LOG_DEVICE_FDS; i++) {
        int fd = l->device->fds[i];
        if (fd >= 0) {
            uv_poll_t *poll = &l->disk[l->disk_handles++];
            rv = rv != 0 ? rv : uv_poll_init(loop, poll, fd);
            poll->data = n;
        }
    }
    FLI_ASSERT(rv == 0); /* they cannot fail */
    n->stop.open = 5 + l->disk_handles;
}

void node_loop_start(struct node *n)
{
    struct node_loop *l = &n->loop;
    int rv = uv_check_start(&l->check, check_cb);
    rv = rv != 0 ? rv : uv_prepare_start(&l->prepare, prepare_cb);
    rv = rv != 0 ? rv : uv_timer_start(&l->tick, tick_cb, NODE_TICK_MS, NODE_TICK_MS);
    for (unsigned i = 0; i < l->disk_handles; i++) {
        rv = rv != 0 ? rv : uv_poll_start(&l->disk[i], UV_READABLE, disk_cb);
    }
    FLI_ASSERT(rv == 0);
    l->turned_ms = fli_clock_ms();
    node_watch_start(n);
    node_wake(n);
}

static void handle_closed(uv_handle_t *handle)
{
    node_closed_one(handle->data);
}

void node_loop_close(struct node *n)
{
    struct node_loop *l = &n->loop;
    uv_timer_stop(&l->tick);
    uv_close((uv_handle_t *)&l->check, handle_closed);
    uv_close((uv_handle_t *)&l->prepare, handle_closed);
    uv_close((uv_handle_t *)&l->timer, handle_closed);
    uv_close((uv_handle_t *)&l->idle, handle_closed);
}

/* The log's completions come through these handles, so they are closed after the log. */
void node_loop_log_closed(void *ctx)
{
    struct node *n = ctx;
    for (unsigned i = 0; i < n->loop.disk_handles; i++) {
        uv_close((uv_handle_t *)&n->loop.disk[i], handle_closed);
    }
    node_closed_one(n);
}

/* ---- submitting ---- */

int node_submit(struct node *n, struct node_ticket *t, const void *command, size_t len,
                node_ticket_cb cb)
{
    FLI_ASSERT(cb != NULL && len >= 4 && len <= MACHINE_COMMAND_LARGEST);
    t->cb = cb;
    int rv = commands_add(&n->commands, t, command, len, fli_clock_ns());
    n->commands.waited += rv == 0 && !proposer_is_open(&n->proposer);
    node_wake(n);
    return rv;
}

int node_change(struct node *n, const struct node_change *wanted, void (*cb)(void *ctx, int status),
                void *ctx)
{
    return node_running(n) ? membership_change(n->membership, wanted, cb, ctx) : FL_ENOLEADER;
}

int node_transfer(struct node *n, uint64_t id, void (*cb)(void *ctx, int status), void *ctx)
{
    FLI_ASSERT(cb != NULL);
    return node_running(n) ? membership_transfer(n->membership, id, cb, ctx) : FL_ENOLEADER;
}

/* ---- status ---- */

void node_get_status(struct node *n, struct node_status *ret)
{
    const struct proposer_stats *p = &n->proposer.stats;
    if (n->phase == PHASE_CLOSED) {
        *ret = (struct node_status){.id = n->config.id, .role = NODE_STOPPED};
        return;
    }
    *ret = (struct node_status){
        .id = n->config.id,
        .founds = membership_founds(n->membership),
        .term = replica_term(n->replica),
        .commit_index = replica_commit_index(n->replica),
        .applied_index = replica_applied_index(n->replica),
        .last_index = replica_last_index(n->replica),
        .snapshot_index = replica_snapshot_index(n->replica),
        .batches = p->batches,
        .commands = p->commands,
        .queries = p->queries,
        .bytes_proposed = p->bytes,
        .relayed = n->relay.sent,
        .held = n->commands.waited,
        .uncertain = n->commands.uncertain,
        .pending_bytes = n->commands.bytes,
        .pending_limit = n->commands.bytes_max,
        .pending_commands = n->commands.count,
        .in_flight = proposer_in_flight(&n->proposer),
        .restores = n->fsm->restores,
        .backups = node_backup_counts(n),
        .clock_ms = proposer_clock_ms(&n->proposer),
        .starts = n->record.own.now.starts.own.number,
        .has_witness = n->record.witness.path != NULL,
        .witness_index = n->record.witness.work.busy ? 0 : n->record.witness.kept.starts.index,
        .election_ms = n->election.election_ms,
        .heartbeat_ms = n->election.heartbeat_ms,
        .hold_ms = (unsigned)n->commands.hold_ms,
    };
    node_watch_status(n, ret);
    node_snapshot_status(n, ret);
    log_get_stats(n->log, &ret->log);
}

void node_get_times(const struct node *n, struct node_times *ret)
{
    FLI_ASSERT(n->phase != PHASE_CLOSED);
    ret->log_write = *log_write_times(n->log);
    ret->commit = n->proposer.commit_times;
    ret->apply = n->fsm->apply_times;
    ret->relay = n->relay.times;
}

bool node_serves(const struct node *n)
{
    return n->phase != PHASE_CLOSED && proposer_is_open(&n->proposer);
}

uint64_t node_applying_since_ns(const struct node *n)
{
    return proposer_applying_since_ns(&n->proposer);
}

struct machine *node_machine(struct node *n)
{
    FLI_ASSERT(n->phase != PHASE_CLOSED);
    return fsm_machine(n->fsm);
}

void node_get_security(const struct node *n, struct transport_security *ret)
{
    *ret = (struct transport_security){.trust = TRANSPORT_TRUSTS_ALL};
    if (n->phase != PHASE_CLOSED) {
        transport_get_security(n->peers.transport, ret);
    }
}

void node_reload(struct node *n)
{
    if (n->phase != PHASE_CLOSED) {
        transport_reload(n->peers.transport);
    }
}
