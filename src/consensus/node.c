/* node.c: making a node, the way in for commands, the turn of the loop.
 *
 * The turn. Sockets are read in the poll phase of the loop; then the check handle runs
 * node_turn(): leadership is looked at, held commands are moved on, the proposer makes one entry of
 * all that came, and each link gets one write. The prepare handle flushes links again, for answers
 * that were made by timers. The one-shot timer only wakes the loop when the proposer has something
 * due. Waking is an idle handle: a timer alone fires before the poll phase, which then waits for
 * something else. Whatever is not urgent happens at the beat.
 *
 * A pause. When the process was stopped, or the machine suspended, the first turn afterwards still
 * believes what it believed before. Commands are held for a moment then (doubt_until_ms): raft has
 * read its sockets and looked at its timer by that time, and a leader that was replaced knows it.
 * This saves clients from UNCERTAIN; that a replaced leader can commit nothing is raft's part. */
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "consensus/cut.h"
#include "consensus/node_private.h"
#include "consensus/raft_heap.h"
#include "consensus/segments.h"
#include "consensus/snapshots.h"

#define IN_FLIGHT_ENTRIES 128u /* one message to a follower: at most this many batches */
#define CONNECT_RETRY_MS 100u
#define INSTALL_SNAPSHOT_MS 10000u
#define SNAPSHOT_ENTRIES 65536u       /* between snapshots, for a small state */
#define SNAPSHOT_ENTRIES_MAX 1048576u /* for the largest */
#define SNAPSHOT_STAGGER 16u
#define TRAILING_SHARE 4u /* of snapshot_bytes: log kept behind a snapshot, for late followers */
#define TRAILING_MIN 256u
#define TRAILING_MAX 8192u
_Static_assert(TRAILING_MIN > IN_FLIGHT_ENTRIES, "what may be in flight is still in the log");

/* ---- small things ---- */

void node_log(struct node *n, int level, const char *fmt, ...)
{
    char text[512];
    va_list args;
    if (n->cbs.log == NULL) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    n->cbs.log(n->cbs.ctx, level, text);
}

void node_fail(struct node *n, int error, const char *fmt, ...)
{
    char text[512];
    va_list args;
    if (n->failed) {
        return;
    }
    n->failed = true;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    n->cbs.fatal(n->cbs.ctx, error, text);
}

struct peer *node_peer(struct node *n, uint64_t id)
{
    for (unsigned i = 0; i < n->identity.members.n; i++) {
        if (n->peers[i].id == id && id != n->id) {
            return &n->peers[i];
        }
    }
    return NULL;
}

static void idle_cb(uv_idle_t *idle)
{
    /* Nothing: the loop turns, and node_turn() does the work after the sockets were read. */
}

void node_wake(struct node *n)
{
    if (!n->woken && n->phase < PHASE_CLOSE) {
        n->woken = true;
        int rv = uv_idle_start(&n->idle, idle_cb);
        FLI_ASSERT(rv == 0);
    }
}

static void timer_cb(uv_timer_t *timer)
{
    node_wake(timer->data);
}

bool node_can_propose(struct node *n)
{
    return n->phase == PHASE_RUN && !n->failed && uv_now(n->loop) >= n->doubt_until_ms &&
           uv_now(n->loop) - n->turned_ms <= n->election_ms && proposer_is_open(n->proposer) &&
           raft_transferee(&n->raft) == 0 && roster_formed(n);
}

/* ---- what the parts call back ---- */

static void fatal_cb(void *ctx, int error, const char *message)
{
    node_fail(ctx, error, "%s", message);
}

static void log_cb(void *ctx, int level, const char *message)
{
    node_log(ctx, level, "%s", message);
}

static void event_cb(void *ctx, const struct machine_event *event)
{
    struct node *n = ctx;
    relay_event(n, event);
    if (n->cbs.event != NULL) {
        n->cbs.event(n->cbs.ctx, event);
    }
}

static void restored_cb(void *ctx)
{
    struct node *n = ctx;
    relay_restored(n);
    if (n->cbs.restored != NULL) {
        n->cbs.restored(n->cbs.ctx);
    }
}

static void returned_cb(void *ctx, struct node_ticket *t, const void *command, size_t len)
{
    struct node *n = ctx;
    if (t == &n->admin) {
        roster_admin_returned(n);
    } else if (relay_owns(t)) {
        relay_return(n, t);
    } else {
        hold_give_back(n, t, command, len);
    }
}

static void opened_cb(void *ctx, uint64_t term)
{
    struct node *n = ctx;
    node_log(n, 3, "this node leads in term %" PRIu64, term);
    relay_opened(n);
    node_wake(n);
}

static void link_cb(void *ctx, const struct transport_identity *peer, uv_stream_t *stream)
{
    relay_inlet(ctx, peer, stream);
}

/* ---- the turn ---- */

static void watch_leadership(struct node *n)
{
    raft_id leader = 0;
    const char *address;
    enum node_role role = NODE_FOLLOWER;
    bool open = proposer_is_open(n->proposer);
    raft_leader(&n->raft, &leader, &address);
    switch (raft_state(&n->raft)) {
    case RAFT_LEADER:
        role = NODE_LEADER;
        break;
    case RAFT_CANDIDATE:
        role = NODE_CANDIDATE;
        break;
    default:
        break;
    }
    if (role == n->role && leader == n->leader_id && open == n->open) {
        return;
    }
    if (n->role == NODE_LEADER && role != NODE_LEADER) {
        relay_forget_waits(n);
        roster_deposed(n);
    }
    n->role = role;
    n->open = open;
    n->leader_id = leader;
    if (leader != 0 && leader != n->leader_seen) {
        n->leader_seen = leader;
        n->leader_changes++;
        node_log(n, 3, "node %llu leads in term %llu", leader, raft_current_term(&n->raft));
    }
    relay_replaced(n);
    relay_connect(n);
    if (n->cbs.leadership != NULL) {
        n->cbs.leadership(n->cbs.ctx);
    }
}

/* Nodes that have the same log would all write their snapshots in the same moment. */
static uint64_t staggered(const struct node *n, uint64_t most)
{
    return most + most / SNAPSHOT_STAGGER * (n->id % 3);
}

/* Whichever comes first, bytes or entries; both grow with the state, since writing a snapshot costs
 * in proportion to it. Half of it and not all, since raft keeps the log in memory as well. */
static void bound_log(struct node *n)
{
    struct fsm_stats s;
    fsm_get_stats(n->fsm, &s);
    if (s.snapshots != n->snapshots_seen || s.restores != n->restores_seen) {
        n->snapshots_seen = s.snapshots;
        n->restores_seen = s.restores;
        n->entries_at_snapshot = s.entries;
        n->snapshot_index = raft_last_applied(&n->raft);
    }
    uint64_t bytes_max = n->snapshot_bytes;
    uint64_t entries_max = SNAPSHOT_ENTRIES + s.snapshot_last_bytes / 512;
    if (bytes_max < s.snapshot_last_bytes / 2) {
        bytes_max = s.snapshot_last_bytes / 2;
    }
    bytes_max = staggered(n, bytes_max);
    entries_max = staggered(n, entries_max);
    if (entries_max > SNAPSHOT_ENTRIES_MAX) {
        entries_max = SNAPSHOT_ENTRIES_MAX;
    }
    uint64_t entries = s.entries - n->entries_at_snapshot;
    if (s.bytes_since_snapshot >= bytes_max) {
        /* What raft keeps behind a snapshot, for followers a little late, is counted in entries. */
        uint64_t each = s.bytes_since_snapshot / (entries == 0 ? 1 : entries) + 1;
        uint64_t trailing = n->snapshot_bytes / TRAILING_SHARE / each;
        trailing = trailing < TRAILING_MIN   ? TRAILING_MIN
                   : trailing > TRAILING_MAX ? TRAILING_MAX
                                             : trailing;
        raft_set_snapshot_trailing(&n->raft, (unsigned)trailing);
        /* As soon as raft looks, but never within what may be in flight to a follower: a snapshot
         * taken there leaves it waiting for entries that its leader no longer has. */
        entries_max = IN_FLIGHT_ENTRIES + 1;
    }
    raft_set_snapshot_threshold(&n->raft, (unsigned)entries_max);
}

static void note_pause(struct node *n)
{
    uint64_t now_ms = uv_now(n->loop);
    if (now_ms > n->turned_ms + n->election_ms) {
        node_log(n, 2, "this process did not run for %" PRIu64 " ms", now_ms - n->turned_ms);
        n->doubt_until_ms = now_ms + 2 * (uint64_t)n->heartbeat_ms;
    }
    n->turned_ms = now_ms;
}

/* When to turn again, if nothing else happens. */
static void plan_turn(struct node *n)
{
    uint64_t next_ms = proposer_next_turn_ms(n->proposer, fli_clock_ms());
    uint64_t hold_ms = hold_next_ms(n);
    uint64_t election_ms = election_next_ms(n);
    next_ms = hold_ms < next_ms ? hold_ms : next_ms;
    next_ms = election_ms < next_ms ? election_ms : next_ms;
    if (next_ms == 0) {
        node_wake(n);
    }
    if (n->woken || next_ms == UINT64_MAX) {
        uv_timer_stop(&n->timer);
    } else {
        int rv = uv_timer_start(&n->timer, timer_cb, next_ms, 0);
        FLI_ASSERT(rv == 0);
    }
}

static void propose(struct node *n)
{
    raft_guard_delay_appends(&n->guard);
    proposer_turn(n->proposer, fli_clock_ms());
    raft_guard_append_now(&n->guard);
}

static void node_turn(struct node *n)
{
    n->woken = false;
    uv_idle_stop(&n->idle);
    note_pause(n);
    propose(n);
    watch_leadership(n);
    election_turn(n);
    /* Before anything that raft has acknowledged in this turn leaves the node for good: a member
     * that counts must know that it does, should it start again. */
    roster_sync(n);
    if (!roster_formed(n) || n->identity.cluster_id == 0) {
        roster_beat(n); /* at its own pace, not the beat's: once in a life */
    }
    if (n->phase == PHASE_DRAIN) {
        stop_turn(n);
        if (n->phase >= PHASE_CLOSE) {
            return;
        }
    } else if (n->held_count > 0) {
        hold_route(n);
        propose(n);
    }
    bound_log(n);
    relay_flush(n);
    plan_turn(n);
}

static void check_cb(uv_check_t *check)
{
    node_turn(check->data);
}

static void prepare_cb(uv_prepare_t *prepare)
{
    relay_flush(prepare->data);
}

static void disk_transfer_done(void *ctx, int status)
{
    struct node *n = ctx;
    if (status != 0) {
        node_log(n, 1, "leadership could not be handed over: %s", fl_strerror(status));
    }
}

/* The others commit without this node's disk, so a leader whose disk is full or dead would go on,
 * and keep in memory every entry that it cannot write. A follower is sent no more than may be in
 * flight. */
static void watch_disk(struct node *n)
{
    struct raft_guard_stats s;
    raft_guard_get_stats(&n->guard, &s);
    uint64_t waiting_ms = s.append_waiting_ns / 1000000;
    if (waiting_ms < NODE_DISK_SLOW_MS) {
        n->disk_said_ms = 0;
    } else if (waiting_ms > 2 * n->disk_said_ms) {
        n->disk_said_ms = waiting_ms;
        node_log(n, 1, "the disk of %s has not finished a write for %" PRIu64 " ms", n->dir.path,
                 waiting_ms);
        int rv = roster_transfer(n, 0, disk_transfer_done, n);
        if (rv == FL_ENOTFOUND) {
            node_log(n, 1, "there is no other node that could lead instead");
        }
    }
}

static void beat_cb(uv_timer_t *timer)
{
    struct node *n = timer->data;
    hold_expire(n);
    roster_beat(n);
    relay_beat(n);
    watch_disk(n);
}

/* ---- the way in ---- */

int node_submit(struct node *n, struct node_ticket *t, const void *command, size_t len,
                node_ticket_cb cb)
{
    FLI_ASSERT(cb != NULL && len >= 4 && len <= MACHINE_COMMAND_MAX);
    if (n->phase != PHASE_RUN || n->failed) {
        return FL_ENOLEADER;
    }
    fli_list_init(&t->link);
    t->cb = cb;
    t->deadline_ms = uv_now(n->loop) + n->hold_ms;
    if (n->held_count == 0 && node_can_propose(n)) {
        int rv = proposer_add(n->proposer, t, command, len, cb);
        if (rv != FL_ENOLEADER) {
            node_wake(n);
            return rv;
        }
    }
    struct held *h = held_create(n, t, command, len);
    if (h == NULL) {
        return FL_EBUSY;
    }
    fli_list_push(&n->held, &h->link);
    n->held_ever++;
    node_wake(n);
    return 0;
}

/* ---- status ---- */

void node_get_status(struct node *n, struct node_status *ret)
{
    struct proposer_stats p;
    struct fsm_stats f;
    if (n->phase == PHASE_CLOSED) {
        *ret = (struct node_status){.id = n->id, .role = NODE_STOPPED};
        return;
    }
    proposer_get_stats(n->proposer, &p);
    fsm_get_stats(n->fsm, &f);
    struct peer *leader = node_peer(n, n->leader_id);
    const char *client = NULL;
    unsigned self = 0;
    while (n->peers[self].id != n->id) {
        self++;
    }
    if (n->leader_id == n->id) {
        client = n->peers[self].client_known ? n->peers[self].client_address : NULL;
    } else if (leader != NULL && leader->client_known) {
        client = leader->client_address;
    }
    bool live = n->raft_live;
    *ret = (struct node_status){
        .id = n->id,
        .leader_id = n->leader_id,
        .term = live ? raft_current_term(&n->raft) : 0,
        .role = n->phase >= PHASE_CLOSE ? NODE_STOPPED : n->role,
        .leader_client_address = client,
        .commit_index = live ? raft_commit_index(&n->raft) : 0,
        .applied_index = live ? raft_last_applied(&n->raft) : 0,
        .last_index = live ? raft_last_index(&n->raft) : 0,
        .snapshot_index = n->snapshot_index,
        .batches = p.batches,
        .commands = p.commands,
        .queries = p.queries,
        .bytes_proposed = p.bytes,
        .relayed = n->relayed,
        .held = n->held_ever,
        .uncertain = n->uncertain + p.uncertain,
        .leader_changes = n->leader_changes,
        .pending_bytes = p.pending_bytes + n->held_bytes,
        .pending_commands = p.pending_commands + n->held_count,
        .in_flight = p.in_flight,
        .snapshots = f.snapshots,
        .restores = f.restores,
        .snapshot_last_ms = f.snapshot_last_ns / 1000000,
        .snapshot_last_bytes = f.snapshot_last_bytes,
    };
}

struct machine *node_machine(struct node *n)
{
    FLI_ASSERT(n->phase != PHASE_CLOSED);
    return fsm_machine(n->fsm);
}

/* ---- making ---- */

static void set_raft(struct node *n)
{
    raft_set_election_timeout(&n->raft, n->election_ms);
    raft_set_heartbeat_timeout(&n->raft, n->heartbeat_ms);
    raft_set_pre_vote(&n->raft, true);
    raft_set_max_inflight_entries(&n->raft, IN_FLIGHT_ENTRIES);
    raft_set_install_snapshot_timeout(&n->raft, INSTALL_SNAPSHOT_MS);
    raft_set_snapshot_threshold(&n->raft, SNAPSHOT_ENTRIES);
    raft_set_snapshot_trailing(&n->raft, TRAILING_MAX);
    /* Off: with it, the barrier that raft writes at the start of a term can be refused half way,
     * and a burst that uses up prepared segments looks like a full disk. A full disk makes writes
     * wait. */
    raft_set_capacity_threshold(&n->raft, 0);
    raft_uv_set_connect_retry_delay(&n->io, CONNECT_RETRY_MS);
}

static int bootstrap(struct node *n, char *errmsg, size_t errmsg_size)
{
    struct raft_configuration conf;
    int rv = 0;
    if (n->identity.bootstrapped) {
        return 0;
    }
    raft_configuration_init(&conf);
    for (unsigned i = 0; i < n->identity.members.n && rv == 0; i++) {
        const struct member *m = &n->identity.members.list[i];
        rv = raft_configuration_add(&conf, m->id, m->address, RAFT_VOTER);
    }
    if (rv == 0) {
        rv = raft_bootstrap(&n->raft, &conf);
    }
    raft_configuration_close(&conf);
    if (rv != 0) {
        snprintf(errmsg, errmsg_size, "cannot write the first entry of the log in %s: %s",
                 n->dir.raft_path, raft_errmsg(&n->raft));
        return FL_EIO;
    }
    n->identity.bootstrapped = true;
    if (identity_store(&n->dir, &n->identity) != 0) {
        snprintf(errmsg, errmsg_size, "cannot write the identity file in %s", n->dir.path);
        return FL_EIO;
    }
    return 0;
}

static void init_handles(struct node *n)
{
    int rv = uv_check_init(n->loop, &n->check);
    rv = rv != 0 ? rv : uv_prepare_init(n->loop, &n->prepare);
    rv = rv != 0 ? rv : uv_timer_init(n->loop, &n->timer);
    rv = rv != 0 ? rv : uv_timer_init(n->loop, &n->beat);
    rv = rv != 0 ? rv : uv_idle_init(n->loop, &n->idle);
    FLI_ASSERT(rv == 0); /* they cannot fail */
    n->check.data = n;
    n->prepare.data = n;
    n->timer.data = n;
    n->beat.data = n;
    n->idle.data = n;
    n->handles += 5;
}

static int make_transport(struct node *n, const struct node_config *c, char *errmsg,
                          size_t errmsg_size)
{
    char text[MEMBERS_TEXT_MAX];
    struct transport_identity self;
    struct transport_callbacks cbs = {.ctx = n,
                                      .judge = roster_judge,
                                      .link = link_cb,
                                      .answered = roster_answered,
                                      .absent = election_peer_absent,
                                      .hung_up = election_peer_hung_up,
                                      .log = log_cb};
    size_t len = members_format(&n->identity.members, text, sizeof text);
    memset(&self, 0, sizeof self);
    self.node_id = n->id;
    self.incarnation = n->identity.incarnation;
    self.cluster_id = n->identity.cluster_id;
    self.admitted_index = roster_admitted_index(&n->identity);
    self.members_crc = fli_crc32c(0, text, len);
    if (c->client_address != NULL) {
        unsigned i = 0;
        while (n->peers[i].id != n->id) {
            i++;
        }
        snprintf(self.client_address, sizeof self.client_address, "%s", c->client_address);
        memcpy(n->peers[i].client_address, self.client_address, sizeof self.client_address);
        n->peers[i].client_known = true;
    }
    const char *bind_address = c->peer_address;
    if (bind_address == NULL) {
        bind_address = members_find(&n->identity.members, n->id)->address;
    }
    return transport_create(n->loop, bind_address, &n->identity.members, &self, &cbs, &n->transport,
                            errmsg, errmsg_size);
}

/* The library puts a text together for each of its steps, a tenth of what a node computes for an
 * entry, and then throws it away unless this variable is set. Without a tracer it does not. */
static void mute_tracer(struct node *n)
{
    if (getenv("LIBRAFT_TRACE") == NULL) {
        n->raft.tracer = NULL;
        raft_uv_set_tracer(&n->io, NULL);
    }
}

/* Everything that can fail without leaving a handle on the loop. */
static int make_parts(struct node *n, const struct node_config *c, char *errmsg, size_t errmsg_size)
{
    struct fsm_config fc = {
        .event = event_cb, .event_ctx = n, .fatal = fatal_cb, .restored = restored_cb, .ctx = n};
    fc.imager = snapshot_imager(n);
    struct proposer_config pc = {.raft = &n->raft,
                                 .ctx = n,
                                 .returned = returned_cb,
                                 .opened = opened_cb,
                                 .fatal = fatal_cb,
                                 .log = log_cb};
    int rv = make_transport(n, c, errmsg, errmsg_size);
    if (rv != 0) {
        return rv;
    }
    rv = fsm_create(&fc, &n->fsm);
    if (rv == 0) {
        pc.fsm = n->fsm;
        rv = proposer_create(&pc, &n->proposer);
    }
    if (rv != 0) {
        snprintf(errmsg, errmsg_size, "%s", fl_strerror(rv));
        return rv;
    }
    if (raft_uv_init(&n->io, n->loop, n->dir.raft_path, transport_raft(n->transport)) != 0) {
        snprintf(errmsg, errmsg_size, "raft: %s", n->io.errmsg);
        return FL_ESYSTEM;
    }
    raft_guard_init(&n->guard, &n->io, fatal_cb, n);
    raft_guard_set_path(&n->guard, n->dir.raft_path);
    n->guard.ballot = &n->ballot;
    raft_guard_set_stranger(&n->guard, roster_stranger);
    raft_guard_set_patience(&n->guard, n->election_ms, n->heartbeat_ms);
    const char *address = members_find(&n->identity.members, n->id)->address;
    if (raft_init(&n->raft, &n->guard.outer, fsm_raft(n->fsm), n->id, address) != 0) {
        snprintf(errmsg, errmsg_size, "raft: %s", n->raft.errmsg);
        raft_uv_close(&n->io);
        return FL_ESYSTEM;
    }
    n->raft_live = true;
    mute_tracer(n);
    return 0;
}

static int open_ballot(struct node *n, char *errmsg, size_t errmsg_size)
{
    bool corrected = false;
    int rv = ballot_open(&n->dir, &n->ballot, &corrected, errmsg, errmsg_size);
    if (corrected) {
        node_log(n, 2,
                 "the raft library's record of term and vote is damaged, or was not written before "
                 "the power went: corrected from %s/ballot",
                 n->dir.path);
    }
    return rv;
}

static int start(struct node *n, char *errmsg, size_t errmsg_size)
{
    set_raft(n);
    int rv = bootstrap(n, errmsg, errmsg_size);
    if (rv == 0 && n->ballot.fd < 0) {
        rv = open_ballot(n, errmsg, errmsg_size);
    }
    if (rv != 0) {
        return rv;
    }
    /* Before raft starts its own: of two check handles the one that was started later runs first,
     * and what raft has completed in a turn must be known when ours runs. */
    rv = uv_check_start(&n->check, check_cb);
    FLI_ASSERT(rv == 0);
    if (raft_start(&n->raft) != 0) {
        snprintf(errmsg, errmsg_size, "the log in %s cannot be read: %s", n->dir.raft_path,
                 raft_errmsg(&n->raft));
        return FL_EIO;
    }
    n->turned_ms = uv_now(n->loop);
    rv = uv_prepare_start(&n->prepare, prepare_cb);
    rv = rv != 0 ? rv : uv_timer_start(&n->beat, beat_cb, NODE_BEAT_MS, NODE_BEAT_MS);
    FLI_ASSERT(rv == 0);
    node_wake(n);
    return 0;
}

static void set_config(struct node *n, const struct node_config *c)
{
    n->heartbeat_ms = c->heartbeat_ms != 0 ? c->heartbeat_ms : NODE_HEARTBEAT_MS;
    n->election_ms = c->election_ms != 0 ? c->election_ms : NODE_ELECTION_MS;
    n->hold_ms = c->hold_ms != 0 ? c->hold_ms : NODE_HOLD_MS;
    n->pending_max = c->pending_max != 0 ? c->pending_max : NODE_PENDING_MAX;
    n->snapshot_bytes = c->snapshot_bytes != 0 ? c->snapshot_bytes : NODE_SNAPSHOT_BYTES;
    n->image_records = c->image_records != 0 ? c->image_records : NODE_IMAGE_RECORDS;
    n->limits = c->limits;
}

static int check_config(const struct node_config *c, char *errmsg, size_t errmsg_size)
{
    if (members_find(c->members, c->id) == NULL) {
        snprintf(errmsg, errmsg_size, "node %llu is not among the members of the cluster",
                 (unsigned long long)c->id);
        return FL_EINVAL;
    }
    unsigned heartbeat_ms = c->heartbeat_ms != 0 ? c->heartbeat_ms : NODE_HEARTBEAT_MS;
    unsigned election_ms = c->election_ms != 0 ? c->election_ms : NODE_ELECTION_MS;
    if (heartbeat_ms < 5 || election_ms > 60000 || election_ms < 3 * heartbeat_ms) {
        snprintf(errmsg, errmsg_size,
                 "heartbeat %u ms and election %u ms: the heartbeat must be at least 5 ms, the "
                 "election at least three heartbeats and at most 60000 ms",
                 heartbeat_ms, election_ms);
        return FL_EINVAL;
    }
    if (c->pending_max != 0 && c->pending_max < MACHINE_COMMAND_MAX) {
        snprintf(errmsg, errmsg_size, "pending_max must be at least %u bytes", MACHINE_COMMAND_MAX);
        return FL_EINVAL;
    }
    return 0;
}

/* Only a process that has not decided about SIGPIPE itself is changed. */
static void ignore_sigpipe(void)
{
    struct sigaction now;
    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL) {
        (void)signal(SIGPIPE, SIG_IGN);
    }
}

/* Undoes what make_parts has done when raft was not begun. */
static void drop_parts(struct node *n)
{
    proposer_destroy(n->proposer);
    fsm_destroy(n->fsm);
    transport_destroy(n->transport);
    relay_fini(n);
    ballot_close(&n->ballot);
    data_dir_close(&n->dir);
    free(n);
}

static int finish_cut(struct node *n, char *errmsg, size_t errmsg_size)
{
    uint64_t index = 0;
    int rv = cut_finish(n->dir.raft_path, &index, errmsg, errmsg_size);
    if (rv == 0 && index != 0) {
        node_log(n, 2, "the log is cut off at entry %" PRIu64 ", which was not finished", index);
    }
    return rv;
}

int node_create(uv_loop_t *loop, const struct node_config *config, const struct node_callbacks *cbs,
                struct node **ret, char *errmsg, size_t errmsg_size)
{
    FLI_ASSERT(cbs->fatal != NULL);
    int rv = check_config(config, errmsg, errmsg_size);
    if (rv != 0) {
        return rv;
    }
    struct node *n = calloc(1, sizeof *n);
    if (n == NULL) {
        snprintf(errmsg, errmsg_size, "out of memory");
        return FL_ENOMEM;
    }
    uint64_t seed[2];
    fli_random(seed, sizeof seed);
    n->loop = loop;
    n->cbs = *cbs;
    n->id = config->id;
    n->dir.lock_fd = -1;
    ballot_init(&n->ballot);
    fli_list_init(&n->held);
    fli_list_init(&n->returned);
    fli_list_init(&n->inlets);
    relay_init(n, seed);
    set_config(n, config);
    ignore_sigpipe();
    raft_heap_install();
    uv_update_time(loop);
    rv = data_dir_open(config->data_dir, &n->dir, errmsg, errmsg_size);
    if (rv == 0) {
        rv = identity_open(&n->dir, n->id, config->members, &n->identity, errmsg, errmsg_size);
    }
    if (rv == 0) {
        rv = finish_cut(n, errmsg, errmsg_size);
    }
    if (rv == 0) {
        rv = segments_check(n->dir.raft_path, errmsg, errmsg_size);
    }
    if (rv == 0) {
        rv = snapshots_check(n->dir.raft_path, errmsg, errmsg_size);
    }
    if (rv == 0) {
        rv = n->identity.bootstrapped ? open_ballot(n, errmsg, errmsg_size)
                                      : ballot_forget(&n->dir, errmsg, errmsg_size);
    }
    if (rv == 0) {
        roster_init(n);
        rv = make_parts(n, config, errmsg, errmsg_size);
    }
    if (rv != 0) {
        drop_parts(n);
        return rv;
    }
    init_handles(n);
    rv = start(n, errmsg, errmsg_size);
    if (rv != 0) {
        stop_close(n);
        while (n->phase != PHASE_CLOSED) {
            uv_run(loop, UV_RUN_ONCE);
        }
        node_destroy(n);
        return rv;
    }
    *ret = n;
    return 0;
}
