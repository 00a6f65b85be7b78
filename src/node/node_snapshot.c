/* node_snapshot.c: taking, sending and installing snapshots.
 *
 * A snapshot is taken when enough bytes of entries, or enough entries, were applied since the last
 * one, or when the log takes too much room on disk (each write fills a block at least). All three
 * limits grow with the size of the state. A child process writes it (snapshot/child.h). A failure
 * is logged and counted, and the snapshot is tried again after a pause that doubles up to a minute.
 * A healthy node never stops for want of a snapshot: only its log grows. */
#include <inttypes.h>

#include "base/clock.h"
#include "node/node_private.h"

#define ENTRIES_MAX 1048576u /* for the largest state */
#define STAGGER 16u
#define DISK_SHARE 4u     /* of bytes_max: log on disk */
#define TRAILING_SHARE 4u /* of snapshot_bytes: log kept behind a snapshot, for late followers */
#define TRAILING_MAX 8192u
#define PAUSE_MIN_MS 1000u
#define PAUSE_MAX_MS 60000u

/* ---- taking ---- */

/* Spreads the nodes out: with the same log, all would write their snapshots at the same moment. */
static uint64_t staggered(const struct node *n, uint64_t most)
{
    return most + most / STAGGER * (n->config.id % 3);
}

static struct node_applied applied_now(const struct node *n)
{
    return (struct node_applied){.bytes = n->fsm->bytes, .entries = n->fsm->entries};
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool is_due(const struct node *n)
{
    const struct node_snapshots *s = &n->snapshots;
    struct node_applied now = applied_now(n);
    uint64_t bytes = now.bytes - s->at_last.bytes;
    uint64_t entries = now.entries - s->at_last.entries;
    uint64_t half = s->last_bytes / 2;
    uint64_t bytes_max =
        staggered(n, n->config.snapshot_bytes < half ? half : n->config.snapshot_bytes);
    uint64_t entries_max = n->config.snapshot_entries + s->last_bytes / 512;
    return bytes >= bytes_max || entries >= staggered(n, least(entries_max, ENTRIES_MAX)) ||
           (n->watch.log_bytes >= DISK_SHARE * bytes_max && entries >= TRAILING_MAX);
}

/* The index up to which the log may be compacted. */
static uint64_t keep_index(const struct node *n)
{
    const struct node_snapshots *s = &n->snapshots;
    uint64_t entries = s->at_child.entries - s->at_last.entries;
    uint64_t bytes = s->at_child.bytes - s->at_last.bytes;
    uint64_t each = bytes / (entries == 0 ? 1 : entries) + 1;
    uint64_t trailing = least(n->config.snapshot_bytes / TRAILING_SHARE / each, TRAILING_MAX);
    trailing = trailing < n->config.log_kept_entries ? n->config.log_kept_entries : trailing;
    uint64_t keep = s->meta.index > trailing ? s->meta.index - trailing : 0;
    /* A follower that is being sent an older snapshot needs the entries that follow it. */
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        uint64_t sent = snapshot_send_index(&n->peers.list[i].send);
        keep = sent != 0 && sent < keep ? sent : keep;
    }
    return keep;
}

static void failed(struct node *n, const char *why)
{
    struct node_snapshots *s = &n->snapshots;
    s->failures++;
    s->pause_ms = s->pause_ms == 0 ? PAUSE_MIN_MS : least(2 * s->pause_ms, PAUSE_MAX_MS);
    s->not_before_ms = fli_clock_ms() + s->pause_ms;
    host_log(&n->host, 2, "no snapshot was taken: %s; next attempt in %" PRIu64 " ms", why,
             s->pause_ms);
}

/* The next child removes it. */
static void old_stays(struct node *n, const char *why)
{
    host_log(&n->host, 2, "an old snapshot cannot be removed: %s; this is tried again", why);
}

/* This node has a snapshot of that size, behind which `at` was applied. */
static void note_complete(struct node *n, uint64_t size, struct node_applied at)
{
    struct node_snapshots *s = &n->snapshots;
    s->last_bytes = size;
    s->at_ms = fli_clock_ms();
    s->at_last = at;
}

static void taken(struct node *n, const struct snapshot_verdict *v)
{
    struct node_snapshots *s = &n->snapshots;
    s->made++;
    s->pause_ms = 0;
    s->damaged = false;
    s->last_ns = v->took_ns;
    replica_snapshot_taken(n->replica, fli_clock_ms(), &s->meta, keep_index(n));
    note_complete(n, v->size, s->at_child);
    host_log(&n->host, 3,
             "a snapshot is taken index=%" PRIu64 " bytes=%" PRIu64 " took_ms=%" PRIu64,
             s->meta.index, v->size, s->last_ns / 1000000);
    if (v->why[0] != '\0') {
        old_stays(n, v->why);
    }
    node_wake(n);
}

static void ended(struct node *n, const struct snapshot_verdict *v)
{
    node_backup_ended(n, v->error, v->why);
    if (v->error != 0) {
        failed(n, v->why);
    } else {
        taken(n, v);
    }
}

/* Polls the child. The node does not end before. */
static void poll_child(struct node *n)
{
    struct snapshot_verdict v;
    if (!snapshot_child_ended(&n->snapshots.child, &v)) {
        return;
    }
    if (n->phase < PHASE_CLOSE) {
        ended(n, &v);
    }
    node_release(n);
}

static void take_turn(struct node *n)
{
    struct node_snapshots *s = &n->snapshots;
    struct snapshot_meta meta;
    bool again = s->damaged || node_backup_is_wanted(n);
    if (s->child.pid != 0 || !node_running(n) || !(is_due(n) || again) ||
        fli_clock_ms() < s->not_before_ms || replica_snapshot_meta(n->replica, again, &meta) != 0 ||
        snapshot_install_works(&s->install)) {
        return;
    }
    s->meta = meta;
    s->meta.node_id = n->config.id;
    s->meta.made_ms = fli_clock_wall_ms();
    s->at_child = applied_now(n);
    node_backup_began(n);
    enum fli_turn_part part = fli_turn_enter(n->host.turn, FLI_TURN_SNAPSHOT);
    int rv = snapshot_child_start(&s->child, n->loop.device, fsm_machine(n->fsm), &s->meta);
    fli_turn_leave(n->host.turn, part);
    if (rv == 0) {
        node_hold(n);
    } else {
        ended(n, &(struct snapshot_verdict){.error = rv, .why = "there is no process to write it"});
    }
}

/* ---- sending ---- */

/* The newest snapshot file is damaged, so neither a follower nor the next start could use it. The
 * state in memory is written again, even when it is of the same entry. One that was being sent may
 * not be the newest any more; nor while a child writes its successor, which may have removed it. */
static void on_damaged(struct node *n, uint64_t index)
{
    if (index < replica_snapshot_index(n->replica) || n->snapshots.child.pid != 0) {
        return; /* if it is still wanted, this is found again */
    }
    if (!n->snapshots.damaged) {
        host_log(&n->host, 1, "the newest snapshot cannot be used; another one is taken");
    }
    n->snapshots.damaged = true;
    node_wake(n);
}

/* Whether a node may have this node's state. What forbids to begin a transfer may be known only
 * when it is under way. */
static bool may_send(const struct node *n, uint64_t peer_id)
{
    return replica_role(n->replica) == REPLICA_LEADER &&
           members_find(n->election.members, peer_id) != NULL &&
           membership_may_send_snapshot(n->membership, peer_id);
}

void node_snapshot_wanted(void *ctx, uint64_t peer_id)
{
    struct node *n = ctx;
    struct peer *p = peers_find(&n->peers, peer_id);
    if (p != NULL && node_running(n) && may_send(n, peer_id)) { /* else it is asked for again */
        snapshot_send_start(&p->send, &n->snapshots.sending, peer_id,
                            replica_snapshot_index(n->replica));
    }
}

bool node_sends_snapshot(void *ctx, uint64_t peer_id)
{
    const struct node *n = ctx;
    const struct peer *p = peers_find(&n->peers, peer_id);
    return p != NULL && snapshot_send_busy(&p->send);
}

static void send_turn(struct node *n)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        struct peer *p = &n->peers.list[i];
        if (snapshot_send_busy(&p->send) && !may_send(n, p->id)) {
            snapshot_send_stop(&p->send);
        }
        uint64_t damaged = snapshot_send_turn(&p->send);
        if (damaged != 0) {
            on_damaged(n, damaged);
        }
    }
}

/* ---- installing ---- */

static void install_turn(struct node *n)
{
    struct snapshot_install *s = &n->snapshots.install;
    if (!snapshot_install_turn(s, replica_applied_index(n->replica), n->snapshots.child.pid != 0)) {
        return;
    }
    struct machine *garbage = s->machine;
    int rv = replica_install(n->replica, fli_clock_ms(), &s->meta, s->machine, &garbage);
    if (rv == FL_EBUSY) {
        return;
    }
    if (rv == 0) {
        host_log(&n->host, 3, "the snapshot of entry %" PRIu64 " is installed", s->meta.index);
        note_complete(n, s->meta.size, applied_now(n));
        node_report_installed(n);
    }
    snapshot_install_taken(s, rv, garbage);
    node_wake(n);
}

/* ---- all of it ---- */

void node_snapshot_make(struct node *n, const struct snapshot_meta *meta)
{
    struct node_snapshots *s = &n->snapshots;
    s->host = n->host;
    s->host.log = node_log_snapshot;
    s->sending = (struct snapshot_send_config){
        .host = &s->host, .transport = n->peers.transport, .device = n->loop.device};
    s->install = (struct snapshot_install){
        .host = &s->host, .device = n->loop.device, .is_sound = replica_snapshot_is_sound};
    s->last_bytes = meta->size;
    s->at_ms = fli_clock_ms();
}

void node_snapshot_turn(struct node *n)
{
    poll_child(n);
    install_turn(n);
    send_turn(n);
    take_turn(n);
}

void node_snapshot_status(const struct node *n, struct node_status *ret)
{
    const struct node_snapshots *s = &n->snapshots;
    ret->snapshots = s->made;
    ret->snapshot_last_ms = s->last_ns / 1000000;
    ret->snapshot_last_bytes = s->last_bytes;
    ret->snapshot_age_ms = fli_clock_ms() - s->at_ms;
    ret->snapshot_failures = s->failures + s->install.failures;
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        ret->snapshot_failures += n->peers.list[i].send.failures;
    }
}

void node_snapshot_stop(struct node *n)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        snapshot_send_stop(&n->peers.list[i].send);
    }
    node_backup_stop(n);
    snapshot_child_kill(&n->snapshots.child);
    poll_child(n);
    snapshot_install_stop(&n->snapshots.install);
}
