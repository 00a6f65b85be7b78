/* node_watch.c: log lines about the state of the cluster, as this node sees it: who leads, why
 * leadership ended, which members left and returned, and how long the disk took. */
#include "node/node_private.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"

#define SLOW_WRITE_NS UINT64_C(250000000)

void node_watch_start(struct node *n)
{
    n->watch.started_ms = n->watch.led_ms = fli_clock_ms();
}

/* ---- leadership ------------------------------------------------------------------------------ */

/* The reason why this node has stopped leading, as far as it can know. */
static const char *why_lost(const struct node *n)
{
    if (membership_transferring(n->membership)) {
        return "handed over";
    }
    return replica_term(n->replica) > n->watch.term_led ? "another node called an election"
                                                        : "a majority of the nodes was not heard";
}

/* Logs what differs from what was reported last. */
static void log_leadership(struct node *n, bool leads, uint64_t leader, bool opened)
{
    const struct node_watch *w = &n->watch;
    uint64_t term = replica_term(n->replica);
    bool led = w->role == NODE_LEADER;
    if (led && !leads) {
        host_log(&n->host, 2, "this node leads no more reason=\"%s\" term=%" PRIu64, why_lost(n),
                 term);
        host_log(&n->host, 3, "commands that were not proposed wait for the next leader");
    }
    if (leader == 0 && w->leader_id != 0 && !led) {
        host_log(&n->host, 2, "no leader is heard last_leader=%" PRIu64 " term=%" PRIu64,
                 w->leader_id, term);
    }
    if (leader != 0 && (leader != w->leader_seen || w->leader_id == 0)) {
        host_log(&n->host, 3,
                 "node %" PRIu64 " leads leader=%" PRIu64 " term=%" PRIu64
                 " without_leader_ms=%" PRIu64,
                 leader, leader, term,
                 w->leader_id == 0 && w->leader_seen != 0 ? fli_clock_since_ms(w->led_ms) : 0);
    }
    if (opened && !w->opened) {
        host_log(&n->host, 3, "this node leads and takes commands term=%" PRIu64, term);
    }
}

/* Who leads has changed, or whether this node does. */
static void note_leadership(struct node *n, enum node_role role, uint64_t leader, bool opened)
{
    struct node_watch *w = &n->watch;
    bool leads = role == NODE_LEADER;
    log_leadership(n, leads, leader, opened);
    if (w->role == NODE_LEADER && !leads) {
        membership_deposed(n->membership);
        node_snapshot_deposed(n);
    }
    w->term_led = leads && w->role != NODE_LEADER ? replica_term(n->replica) : w->term_led;
    w->role = role;
    w->opened = opened;
    w->leader_id = leader;
    if (leader != 0 && leader != w->leader_seen) {
        w->leader_seen = leader;
        w->leader_changes++;
    }
    if (n->cbs.leadership != NULL) {
        n->cbs.leadership(n->cbs.ctx);
    }
}

_Static_assert((int)NODE_CANDIDATE == (int)REPLICA_CANDIDATE &&
                   (int)NODE_LEADER == (int)REPLICA_LEADER,
               "a node has the role of its replica");

void node_watch_turn(struct node *n)
{
    struct node_watch *w = &n->watch;
    uint64_t leader = replica_leader(n->replica);
    enum node_role role = (enum node_role)replica_role(n->replica);
    bool opened = proposer_is_open(&n->proposer);
    bool led = leader != 0 || w->leader_id != 0; /* until now: a pause before it is not counted */
    n->commands.taker = leader;
    relay_follow(&n->relay, role == NODE_FOLLOWER && leader != n->config.id ? leader : 0);
    if (role != w->role || leader != w->leader_id || opened != w->opened) {
        note_leadership(n, role, leader, opened);
    }
    w->led_ms = led ? n->loop.turned_ms : w->led_ms;
}

void node_watch_heard(struct node *n, uint64_t now_ms)
{
    struct node_watch *w = &n->watch;
    uint64_t heartbeat_ms = n->election.heartbeat_ms;
    uint64_t silence_ms = replica_silence_ms(n->replica, now_ms);
    w->silence_ms_max = silence_ms > w->silence_ms_max ? silence_ms : w->silence_ms_max;
    if (silence_ms > 2 * heartbeat_ms) {
        w->heartbeats_missed += silence_ms / heartbeat_ms - 1;
    }
}

void node_watch_status(const struct node *n, struct node_status *ret)
{
    const struct node_watch *w = &n->watch;
    ret->role = n->phase >= PHASE_CLOSE ? NODE_STOPPED : w->role;
    ret->leader_id = w->leader_id;
    ret->leader_client_address =
        w->leader_id == 0 ? NULL : membership_client_address(n->membership, w->leader_id);
    ret->leader_changes = w->leader_changes;
    ret->heartbeats_missed = w->heartbeats_missed;
    ret->silence_ms_max = w->silence_ms_max;
}

/* ---- members --------------------------------------------------------------------------------- */

static bool is_here(const struct node *n, uint64_t id)
{
    const struct peer *p = peers_find(&n->peers, id);
    return id == n->config.id || (p != NULL && p->seen == PEER_HERE);
}

static unsigned count_here(const struct node *n)
{
    unsigned count = 0;
    for (unsigned i = 0; i < n->election.members->n; i++) {
        count += is_here(n, n->election.members->list[i].id);
    }
    return count;
}

/* A member counts as connected while this node's stream to it is up. */
static bool note_member(struct node *n, unsigned i, bool settled)
{
    const struct member *m = &n->election.members->list[i];
    struct peer *p = peers_find(&n->peers, m->id);
    enum peer_seen now = p != NULL && outbound_is_up(&p->outbound) ? PEER_HERE : PEER_AWAY;
    if (m->id == n->config.id || p == NULL || now == p->seen ||
        (now == PEER_AWAY && p->seen == PEER_UNKNOWN && !settled)) {
        return false;
    }
    p->seen = now;
    host_log(&n->host, now == PEER_HERE ? 3 : 2,
             "node %" PRIu64 " is %s member=%" PRIu64 " address=%s connected=%u of=%u", m->id,
             now == PEER_HERE ? "connected" : "gone", m->id, m->address, count_here(n),
             n->election.members->n);
    return true;
}

/* Logs the missing members when the cluster cannot go on without them. For whom a cluster that is
 * being formed waits, membership.c logs. */
static void log_missing(struct node *n)
{
    char missing[640] = "";
    size_t len = 0;
    for (unsigned i = 0; i < n->election.members->n && len < sizeof missing - 1; i++) {
        const struct member *m = &n->election.members->list[i];
        if (!is_here(n, m->id)) {
            int more = snprintf(missing + len, sizeof missing - len, "%snode %" PRIu64 " (%s)",
                                len == 0 ? "" : ", ", m->id, m->address);
            len += more > 0 ? (size_t)more : 0;
        }
    }
    bool forming = replica_configuration(n->replica)->n == 0;
    if (forming && n->record.own.now.identity.joins) {
        host_log(&n->host, 3,
                 "waiting to be taken in: run fencelock cluster add %" PRIu64
                 " with the address of --peer, unless that was done",
                 n->config.id);
    } else if (!forming && len > 0) {
        host_log(&n->host, 2, "there is no leader, and no connection to %s connected=%u of=%u",
                 missing, count_here(n), n->election.members->n);
    }
}

static void watch_members(struct node *n)
{
    struct node_watch *w = &n->watch;
    uint64_t moment_ms = 2 * (uint64_t)n->election.election_ms;
    bool settled = fli_clock_since_ms(w->started_ms) >= moment_ms;
    bool changed = false;
    for (unsigned i = 0; i < n->election.members->n; i++) {
        changed = note_member(n, i, settled) || changed;
    }
    /* An election takes a moment; only a longer time without a leader gets a line of its own. */
    bool lasts = w->leader_id == 0 && fli_clock_since_ms(w->led_ms) >= moment_ms;
    if (lasts && (changed || !w->missing_logged)) {
        log_missing(n);
    }
    w->missing_logged = w->leader_id == 0 && (w->missing_logged || lasts);
}

/* ---- the disk -------------------------------------------------------------------------------- */

static void disk_transfer_done(void *ctx, int status)
{
    struct node *n = ctx;
    if (status != 0) {
        host_log(&n->host, 1, "leadership could not be handed over: %s", fl_strerror(status));
    }
}

/* Reports the longest write so far, once it has ended, and only when it took at least twice as long
 * as the last one reported. */
static void note_slow_write(struct node *n, uint64_t longest_ns)
{
    if (longest_ns >= SLOW_WRITE_NS && longest_ns >= 2 * n->watch.slow_write_ns) {
        n->watch.slow_write_ns = longest_ns;
        host_log(&n->host, 2, "a write of the log was slow took_ms=%" PRIu64 " directory=%s",
                 longest_ns / 1000000, n->record.dir.path);
    }
}

static void hand_over(struct node *n, bool log)
{
    int rv = membership_transfer(n->membership, 0, log ? disk_transfer_done : NULL, n);
    if (rv == FL_ENOTFOUND && log) {
        host_log(&n->host, 1, "there is no other node that could lead instead");
    }
}

/* A leader whose disk is full or dead would go on, since the others commit without its disk. It
 * would keep in memory every entry that it cannot write. If it gives nothing back, this node can
 * apply nothing that is not in memory, and brings no follower up to date. A follower gets no more
 * than may be in flight; it must not be elected while its disk hangs. */
static void watch_disk(struct node *n)
{
    struct log_stats s;
    log_get_stats(n->log, &s);
    n->watch.log_bytes = s.bytes;
    bool reads = s.read_age_ns > s.age_ns;
    uint64_t waiting_ms = (reads ? s.read_age_ns : s.age_ns) / 1000000;
    note_slow_write(n, s.write_ns_max);
    n->watch.disk_hangs = waiting_ms >= NODE_DISK_SLOW_MS;
    replica_set_unfit(n->replica, n->watch.disk_hangs);
    if (!n->watch.disk_hangs) {
        n->watch.disk_logged_ms = 0;
        return;
    }
    bool logged = waiting_ms > 2 * n->watch.disk_logged_ms;
    if (logged) {
        n->watch.disk_logged_ms = waiting_ms;
        host_log(&n->host, 1, "the disk of %s has not finished a %s for %" PRIu64 " ms",
                 n->record.dir.path, reads ? "read" : "write", waiting_ms);
    }
    if (logged || waiting_ms % NODE_REPORT_MS < NODE_TICK_MS) { /* others may lead by now */
        hand_over(n, logged);
    }
}

void node_watch_tick(struct node *n)
{
    watch_disk(n);
    if (n->phase == PHASE_RUN) {
        watch_members(n);
        node_report_tick(n);
    }
}
