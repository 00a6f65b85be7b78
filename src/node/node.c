/* node.c: the turn of the loop, streams that other nodes open, the submission of commands, the end.
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
 * guarantee.
 *
 * The graceful end.
 *
 *   run --node_stop()--> drain --(quiet, or drain_ms over)--> close --> closed, cb
 *
 * While draining, new commands are refused, and followers' new commands are returned to them. A
 * leader does what waits; a node that cannot answers it ENOLEADER. Then leadership is handed over,
 * so that the others need no election. Then what was relayed is answered. Closing answers the rest,
 * with UNCERTAIN where the outcome is unknown, and closes the log, the streams and all handles. The
 * tick timer's handle is closed last, so that the end comes from its callback and not from within
 * another. */
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

/* ---- streams that other nodes have opened ---- */

/* One on which another node sends messages of Raft. */
struct inbound {
    struct node *node;
    uint64_t from, incarnation;
    struct stream *stream;
};

static void inbound_close(struct inbound *in)
{
    stream_close(in->stream);
    free(in);
}

static void inbound_frame(void *ctx, uint8_t type, struct fli_slice body)
{
    struct inbound *in = ctx;
    struct node *n = in->node;
    if (n->phase >= PHASE_CLOSE || n->failed) {
        return;
    }
    enum fli_turn_part part = fli_turn_enter(n->host.turn, FLI_TURN_PEERS);
    uint64_t from = in->from;
    uint64_t now_ms = fli_clock_ms();
    if (type == MESSAGE_APPEND && from == replica_leader(n->replica)) {
        node_watch_heard(n, now_ms);
    }
    int rv = type == NODE_REPORT_TYPE ? node_report_receive(n, from, body)
             : type == STARTS_MESSAGE_TYPE
                 ? membership_receive_starts(n->membership, from, body)
                 : replica_receive(n->replica, now_ms, in->incarnation, type, body);
    fli_turn_leave(n->host.turn, part);
    if (rv != 0) {
        host_log(&n->host, 1,
                 "node %" PRIu64
                 " has sent a message that no correct node sends: the connection is "
                 "closed",
                 from);
        inbound_close(in);
    }
}

static void inbound_lost(void *ctx, const char *why)
{
    inbound_close(ctx);
}

static void inbound_open(struct node *n, const struct peer_identity *peer, struct stream *stream)
{
    struct inbound *in = calloc(1, sizeof *in);
    if (in == NULL) {
        stream_close(stream);
        return;
    }
    struct stream_callbacks cbs = {.ctx = in, .frame = inbound_frame, .lost = inbound_lost};
    *in = (struct inbound){n, peer->node_id, peer->incarnation, stream};
    (void)stream_start(stream, &cbs);
}

void node_accepted(void *ctx, enum stream_kind kind, const struct peer_identity *peer,
                   struct stream *stream)
{
    struct node *n = ctx;
    if (n->phase >= PHASE_CLOSE || n->failed) {
        stream_close(stream);
    } else if (kind == STREAM_RAFT) {
        inbound_open(n, peer, stream);
    } else if (kind == STREAM_RELAY) {
        relay_accept(&n->relay, peer, stream);
    } else {
        snapshot_install_accept(&n->snapshots.install, peer->node_id, stream);
    }
}

/* ---- closing ---- */

void node_free(struct node *n)
{
    replica_destroy(n->replica);
    membership_destroy(n->membership);
    proposer_fini(&n->proposer);
    fsm_destroy(n->fsm);
    if (n->log != NULL) {
        log_destroy(n->log);
    }
    if (n->loop.device != NULL) {
        log_files_destroy(n->loop.device);
    }
    transport_destroy(n->peers.transport);
    node_record_close(&n->record);
}

static void finished(uv_handle_t *handle)
{
    struct node *n = handle->data;
    node_free(n);
    n->phase = PHASE_CLOSED;
    if (n->loop.stopped != NULL) {
        n->loop.stopped(n->loop.stopped_ctx); /* it may free the node */
    }
}

void node_hold(void *ctx)
{
    struct node *n = ctx;
    n->loop.open++;
}

/* When all else has closed, the tick timer's handle is closed, which ends the node. */
void node_release(void *ctx)
{
    struct node *n = ctx;
    FLI_ASSERT(n->loop.open > 0);
    n->loop.open--;
    if (n->phase == PHASE_CLOSE && n->loop.open == 0) {
        uv_close((uv_handle_t *)&n->loop.tick, finished);
    }
}

static void handle_closed(uv_handle_t *handle)
{
    node_release(handle->data);
}

/* The log's completions come through these handles, so they are closed after the log. */
static void log_closed(void *ctx)
{
    struct node *n = ctx;
    for (unsigned i = 0; i < n->loop.disk_handles; i++) {
        uv_close((uv_handle_t *)&n->loop.disk[i], handle_closed);
    }
    node_release(n);
}

void node_close(struct node *n)
{
    struct node_loop *l = &n->loop;
    FLI_ASSERT(n->phase < PHASE_CLOSE);
    n->phase = PHASE_CLOSE;
    n->commands.closed = true;
    if (!n->failed) {
        node_record_end(&n->record);
    }
    proposer_close(&n->proposer); /* first, so that followers get answers to their commands */
    membership_close(n->membership);
    relay_close(&n->relay, "this node stops");
    commands_end_waiting(&n->commands);
    uv_close((uv_handle_t *)&l->check, handle_closed);
    uv_close((uv_handle_t *)&l->prepare, handle_closed);
    uv_close((uv_handle_t *)&l->timer, handle_closed);
    uv_close((uv_handle_t *)&l->idle, handle_closed);
    node_snapshot_stop(n);
    peers_close(&n->peers);
    l->open += 2;
    transport_close(n->peers.transport, node_release, n);
    log_close(n->log, log_closed, n);
}

void node_stop(struct node *n, unsigned drain_ms, void (*cb)(void *ctx), void *ctx)
{
    FLI_ASSERT(n->phase == PHASE_RUN);
    n->loop.stopped = cb;
    n->loop.stopped_ctx = ctx;
    n->loop.drain_until_ms = fli_clock_ms() + drain_ms;
    n->phase = PHASE_DRAIN;
    n->commands.closed = true;
    node_wake(n);
}

void node_destroy(struct node *n)
{
    if (n != NULL) {
        FLI_ASSERT(n->phase == PHASE_CLOSED);
        commands_fini(&n->commands);
        free(n);
    }
}

/* ---- draining ---- */

/* True when leadership was handed over, or when that is not needed, not possible, or was tried. */
static bool handed_over(struct node *n)
{
    if (n->failed || replica_role(n->replica) != REPLICA_LEADER || n->loop.transfer_tried) {
        return !membership_transferring(n->membership);
    }
    if (proposer_in_flight(&n->proposer) > 0 || n->commands.count > 0) {
        return false;
    }
    n->loop.transfer_tried = true;
    return membership_transfer(n->membership, 0, NULL, NULL) != 0;
}

/* Whether nothing is left to be done, or there is no time left. */
static bool has_drained(struct node *n)
{
    bool late = fli_clock_ms() >= n->loop.drain_until_ms;
    if (!node_can_propose(n) && proposer_in_flight(&n->proposer) == 0) {
        commands_end_waiting(&n->commands); /* else some may overtake what is given back */
    }
    relay_flush(&n->relay);
    bool quiet = handed_over(n) && relay_quiet(&n->relay);
    return late || n->failed || quiet;
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
    return node_running(n) && !n->watch.own.disk_hangs;
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

static void node_turn(struct node *n)
{
    n->loop.woken = false;
    uv_idle_stop(&n->loop.idle);
    note_pause(n);
    node_settings_turn(n);
    if (!n->failed) { /* a node whose disk has failed receives and sends nothing more */
        unsigned classes = node_can_propose(n) ? COMMANDS_ALL : COMMANDS_OF(COMMAND_CLUSTER);
        replica_turn(n->replica, n->loop.turned_ms, n->loop.paused);
        proposer_turn(&n->proposer, classes, n->loop.turned_ms);
    }
    expire(n);
    node_watch_turn(n);
    if (!n->loop.paused) { /* silence means nothing until the messages of the pause are read */
        election_turn(&n->election, may_call_elections(n));
    }
    node_snapshot_turn(n); /* the next ones are about the members of what it installs */
    if (!n->failed) {
        membership_turn(n->membership, node_running(n));
        node_record_turn(&n->record);
    }
    if (n->phase == PHASE_RUN) {
        relay(n);
    } else if (has_drained(n)) {
        node_close(n);
        return;
    }
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
    if (n->phase >= PHASE_CLOSE) {
        node_snapshot_turn(n); /* the end may wait for its child */
        return;
    }
    if (!n->failed) {
        membership_tick(n->membership, node_running(n));
        node_record_tick(&n->record);
    }
    relay_tick(&n->relay, fli_clock_since_ms(n->loop.turned_ms) > n->election.election_ms);
    node_backup_tick(n);
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
    FLI_ASSERT(rv == 0);           /* they cannot fail */
    l->open = 4 + l->disk_handles; /* all but the tick's */
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
    l->turned_ms = n->watch.started_ms = n->watch.led_ms = fli_clock_ms();
    node_wake(n);
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

/* ---- what the server asks ---- */

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
