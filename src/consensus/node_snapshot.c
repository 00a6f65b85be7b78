/* node_snapshot.c: taking, sending and installing snapshots.
 *
 * A snapshot is taken when enough bytes of entries, or enough entries, were applied since the last
 * one, or when the log takes too much room on disk (each write fills a block at least). All three
 * limits grow with the size of the state. A child process writes it (snapshot/child.h). A failure
 * is logged and counted, and the snapshot is tried again after a pause that doubles up to a minute.
 * A healthy node never stops for want of a snapshot: only its log grows. */
#include <inttypes.h>

#include "base/clock.h"
#include "consensus/node_private.h"

#define ENTRIES_MAX 1048576u /* for the largest state */
#define STAGGER 16u
#define DISK_SHARE 4u     /* of bytes_max: log on disk */
#define TRAILING_SHARE 4u /* of snapshot_bytes: log kept behind a snapshot, for late followers */
#define TRAILING_MAX 8192u
#define PAUSE_MIN_MS 1000u
#define PAUSE_MAX_MS 60000u
#define CLEAN_AGAIN_MS 1000u

/* ---- taking ---- */

/* Spreads the nodes out: with the same log, all would write their snapshots at the same moment. */
static uint64_t staggered(const struct node *n, uint64_t most)
{
    return most + most / STAGGER * (n->id % 3);
}

static void applied_now(const struct node *n, uint64_t *ret_bytes, uint64_t *ret_entries)
{
    struct fsm_stats s;
    fsm_get_stats(n->fsm, &s);
    *ret_bytes = s.bytes;
    *ret_entries = s.entries;
}

static bool is_due(const struct node *n)
{
    uint64_t bytes;
    uint64_t entries;
    uint64_t bytes_max = n->config.snapshot_bytes;
    uint64_t entries_max = n->config.snapshot_entries + n->snapshot_last_bytes / 512;
    applied_now(n, &bytes, &entries);
    if (bytes_max < n->snapshot_last_bytes / 2) {
        bytes_max = n->snapshot_last_bytes / 2;
    }
    entries_max = staggered(n, entries_max < ENTRIES_MAX ? entries_max : ENTRIES_MAX);
    if (n->log_bytes >= DISK_SHARE * staggered(n, bytes_max) &&
        entries - n->entries_at_snapshot >= TRAILING_MAX) {
        return true;
    }
    return bytes - n->bytes_at_snapshot >= staggered(n, bytes_max) ||
           entries - n->entries_at_snapshot >= entries_max;
}

/* The index up to which the log may be compacted. */
static uint64_t keep_index(const struct node *n, const struct snapshot_meta *meta)
{
    uint64_t entries = n->child_entries - n->entries_at_snapshot;
    uint64_t bytes = n->child_bytes - n->bytes_at_snapshot;
    uint64_t each = bytes / (entries == 0 ? 1 : entries) + 1;
    uint64_t trailing = n->config.snapshot_bytes / TRAILING_SHARE / each;
    trailing = trailing > TRAILING_MAX ? TRAILING_MAX : trailing;
    trailing = trailing < n->config.log_kept_entries ? n->config.log_kept_entries : trailing;
    uint64_t keep = meta->index > trailing ? meta->index - trailing : 0;
    /* A follower that is being sent an older snapshot needs the entries that follow it. */
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        uint64_t sent =
            n->peers.list[i].send == NULL ? 0 : snapshot_send_index(n->peers.list[i].send);
        keep = sent != 0 && sent < keep ? sent : keep;
    }
    return keep;
}

static void clean_work(struct host_work *w)
{
    struct node_cleaning *k = FLI_CONTAINER_OF(w, struct node_cleaning, work);
    (void)!snapshot_clean(k->device, k->parts, &k->error);
}

static void clean_done(struct host_work *w)
{
    struct node_cleaning *k = FLI_CONTAINER_OF(w, struct node_cleaning, work);
    if (k->error.code != 0) {
        host_log(w->host, 2, "an old snapshot cannot be removed: %s; this is tried again",
                 k->error.text);
        k->wanted = true;
        k->not_before_ms = fli_clock_ms() + CLEAN_AGAIN_MS;
    }
}

/* Whether a snapshot has come: it is decoded, or waits to be installed, or what it replaces is
 * dropped. */
static bool install_works(const struct node *n)
{
    return snapshot_install_busy(n->install) && snapshot_install_receives(n->install) == 0;
}

/* Removes old snapshots, and what a child that was killed has left. Not on the loop: a file system
 * takes milliseconds to free the blocks of a large file. Not while a child writes, nor does one
 * begin meanwhile. One that comes is of a later entry than the last child's. When it has come and
 * is not installed yet it is the newest, but this node's own is what a backup reads. */
static void clean_if_possible(struct node *n)
{
    struct node_cleaning *k = &n->cleaning;
    if (!k->wanted || k->work.busy || n->child != NULL || install_works(n) ||
        fli_clock_ms() < k->not_before_ms) {
        return;
    }
    *k = (struct node_cleaning){.device = n->device, .parts = n->child_meta.index};
    host_work(&n->host, &k->work, clean_work, clean_done);
}

static void clean(struct node *n)
{
    n->cleaning.wanted = true;
    clean_if_possible(n);
}

static void failed(struct node *n, const char *why)
{
    n->snapshot_failures++;
    n->snapshot_pause_ms = n->snapshot_pause_ms == 0 ? PAUSE_MIN_MS : 2 * n->snapshot_pause_ms;
    if (n->snapshot_pause_ms > PAUSE_MAX_MS) {
        n->snapshot_pause_ms = PAUSE_MAX_MS;
    }
    n->snapshot_not_before_ms = fli_clock_ms() + n->snapshot_pause_ms;
    clean(n); /* of a full disk, too */
    host_log(&n->host, 2, "no snapshot was taken: %s; next attempt in %" PRIu64 " ms", why,
             n->snapshot_pause_ms);
}

static void child_done(void *ctx, int error, const char *why, uint64_t size)
{
    struct node *n = ctx;
    snapshot_child_destroy(n->child);
    n->child = NULL;
    node_backup_ended(n, error, why);
    if (error != 0) {
        failed(n, why);
        return;
    }
    n->snapshots++;
    n->snapshot_pause_ms = 0;
    n->snapshot_damaged = false;
    n->snapshot_last_bytes = size;
    n->snapshot_last_ns = fli_clock_ns() - n->child_began_ns;
    n->snapshot_at_ms = fli_clock_ms();
    replica_snapshot_taken(n->replica, fli_clock_ms(), &n->child_meta,
                           keep_index(n, &n->child_meta));
    n->bytes_at_snapshot = n->child_bytes;
    n->entries_at_snapshot = n->child_entries;
    clean(n);
    host_log(&n->host, 3,
             "a snapshot is taken index=%" PRIu64 " bytes=%" PRIu64 " took_ms=%" PRIu64,
             n->child_meta.index, size, n->snapshot_last_ns / 1000000);
    node_wake(n);
}

/* One that is on its way may be long in coming, or never come. Its file has another name than this
 * node's own, since it is of a later entry. */
static bool install_forbids(const struct node *n, uint64_t index)
{
    uint64_t receives = snapshot_install_receives(n->install);
    return install_works(n) || (receives != 0 && receives <= index);
}

void node_snapshot_turn(struct node *n)
{
    struct snapshot_child_callbacks cbs = {.ctx = n, .done = child_done, .gone = node_closed_one};
    struct snapshot_meta meta;
    bool again = n->snapshot_damaged || node_backup_is_wanted(n);
    if (n->child != NULL || n->cleaning.work.busy || !node_running(n) || !(is_due(n) || again) ||
        fli_clock_ms() < n->snapshot_not_before_ms ||
        replica_snapshot_meta(n->replica, again, &meta) != 0 || install_forbids(n, meta.index)) {
        return;
    }
    n->child_meta = meta;
    n->child_meta.node_id = n->id;
    n->child_meta.made_ms = fli_clock_wall_ms();
    applied_now(n, &n->child_bytes, &n->child_entries);
    n->child_began_ns = fli_clock_ns();
    enum fli_turn_part part = fli_turn_enter(n->host.turn, FLI_TURN_SNAPSHOT);
    int rv = snapshot_child_start(n->loop, n->device, fsm_machine(n->fsm), &n->child_meta, &cbs,
                                  &n->child);
    fli_turn_leave(n->host.turn, part);
    if (rv != 0) {
        n->child = NULL;
        failed(n, "there is no process to write it");
        return;
    }
    node_backup_began(n, n->child_meta.index);
    n->open++;
}

/* ---- sending ---- */

/* The newest snapshot file is damaged, so neither a follower nor the next start could use it. The
 * state in memory is written again, even when it is of the same entry. One that was being sent may
 * not be the newest any more. */
static void on_damaged(void *ctx, uint64_t index)
{
    struct node *n = ctx;
    if (index < replica_snapshot_index(n->replica)) {
        return;
    }
    if (!n->snapshot_damaged) {
        host_log(&n->host, 1, "the newest snapshot cannot be used; another one is taken");
    }
    n->snapshot_damaged = true;
    node_wake(n);
}

/* What is told of snapshots is told as such. */
static struct host snapshot_host(const struct node *n)
{
    struct host host = n->host;
    host.log = node_snapshot_log;
    return host;
}

static void make_send(struct node *n, struct peer *p)
{
    struct snapshot_send_config sc = {.host = snapshot_host(n),
                                      .transport = n->transport,
                                      .device = n->device,
                                      .peer_id = p->id,
                                      .ctx = n,
                                      .damaged = on_damaged,
                                      .busy = node_hold,
                                      .idle = node_closed_one};
    if (snapshot_send_create(&sc, &p->send) != 0) {
        p->send = NULL; /* it is asked for again */
    }
}

/* Whether a transfer that has begun may go on: what forbids to begin one may be known only now. */
static bool may_go_on(const struct node *n, const struct peer *p)
{
    return !snapshot_send_busy(p->send) || membership_may_send_snapshot(n->membership, p->id);
}

/* Stops transfers to nodes that are no members any more, or that may not have this node's state any
 * longer. Those to nodes that are gone are freed when they have ended. */
void node_snapshot_review(struct node *n)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        struct peer *p = &n->peers.list[i];
        bool is_member = members_find(n->members, p->id) != NULL;
        if (p->send == NULL || (is_member && may_go_on(n, p))) {
            continue;
        }
        snapshot_send_stop(p->send);
        if (!is_member && !snapshot_send_busy(p->send)) {
            snapshot_send_destroy(p->send);
            p->send = NULL;
        }
    }
}

void node_snapshot_wanted(void *ctx, uint64_t peer_id)
{
    struct node *n = ctx;
    struct peer *p = peers_find(&n->peers, peer_id);
    if (p == NULL || !node_running(n) || !membership_may_send_snapshot(n->membership, peer_id)) {
        return; /* it is asked for again */
    }
    if (p->send == NULL) {
        make_send(n, p);
    }
    if (p->send != NULL) {
        snapshot_send_start(p->send, replica_snapshot_index(n->replica));
    }
}

bool node_sends_snapshot(void *ctx, uint64_t peer_id)
{
    const struct node *n = ctx;
    const struct peer *p = peers_find(&n->peers, peer_id);
    return p != NULL && p->send != NULL && snapshot_send_busy(p->send);
}

void node_snapshot_deposed(struct node *n)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        if (n->peers.list[i].send != NULL) {
            snapshot_send_stop(n->peers.list[i].send);
        }
    }
}

/* ---- installing ---- */

static uint64_t applied_index(void *ctx)
{
    const struct node *n = ctx;
    return replica_applied_index(n->replica);
}

static void on_ready(void *ctx, const struct snapshot_meta *meta, struct machine *fresh)
{
    struct node *n = ctx;
    struct machine *garbage = fresh;
    if (n->child != NULL && n->phase < PHASE_CLOSE) {
        return; /* the child's memory is of the state to be replaced; tried again at the next
                   tick */
    }
    int rv = replica_install(n->replica, fli_clock_ms(), meta, fresh, &garbage);
    if (rv == FL_EBUSY) {
        return;
    }
    if (rv == 0) {
        host_log(&n->host, 3, "the snapshot of entry %" PRIu64 " is installed", meta->index);
        n->snapshot_last_bytes = meta->size;
        n->snapshot_at_ms = fli_clock_ms();
        applied_now(n, &n->bytes_at_snapshot, &n->entries_at_snapshot);
        node_report_installed(n);
        clean(n);
    }
    snapshot_install_taken(n->install, rv, garbage);
    node_wake(n);
}

int node_snapshot_make(struct node *n)
{
    struct snapshot_install_config ic = {.host = snapshot_host(n),
                                         .device = n->device,
                                         .ctx = n,
                                         .applied = applied_index,
                                         .is_sound = replica_snapshot_is_sound,
                                         .ready = on_ready,
                                         .idle = node_closed_one};
    return snapshot_install_create(&ic, &n->install);
}

void node_snapshot_tick(struct node *n)
{
    snapshot_install_tick(n->install);
    clean_if_possible(n);
    node_backup_tick(n);
    node_snapshot_review(n);
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        if (n->peers.list[i].send != NULL) {
            snapshot_send_tick(n->peers.list[i].send);
        }
    }
}

uint64_t node_snapshot_failures(const struct node *n)
{
    uint64_t failures = n->snapshot_failures + snapshot_install_failures(n->install);
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        failures +=
            n->peers.list[i].send == NULL ? 0 : snapshot_send_failures(n->peers.list[i].send);
    }
    return failures;
}

void node_snapshot_stop(struct node *n)
{
    node_snapshot_deposed(n);
    node_backup_stop(n);
    if (n->child != NULL) {
        snapshot_child_destroy(n->child);
        n->child = NULL;
    }
    n->open++;
    snapshot_install_stop(n->install);
}
