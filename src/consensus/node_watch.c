/* node_watch.c: log lines about the state of the cluster, as this node sees it: who leads, why
 * leadership ended, which members left and returned, and how long the disk took. */
#include "consensus/node_private.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"

#define SLOW_WRITE_NS UINT64_C(250000000)

/* Records what a leader was doing while it led, before a change of role is examined. */
void node_watch_turn(struct node *n)
{
    if (replica_role(n->replica) == REPLICA_LEADER) {
        n->transferee_seen = replica_transferee(n->replica);
    }
}

/* ---- leadership ------------------------------------------------------------------------------ */

/* The reason why this node has stopped leading, as far as it can know. */
static const char *why_lost(const struct node *n)
{
    if (n->transferee_seen != 0) {
        return "handed over";
    }
    return replica_term(n->replica) > n->term_led ? "another node called an election"
                                                  : "a majority of the nodes was not heard";
}

void node_watch_leadership(struct node *n, enum node_role role, uint64_t leader, bool opened)
{
    uint64_t term = replica_term(n->replica);
    uint64_t now_ms = fli_clock_ms();
    if (n->role == NODE_LEADER && role != NODE_LEADER) {
        host_log(&n->host, 2, "this node leads no more reason=\"%s\" term=%" PRIu64, why_lost(n),
                 term);
        host_log(&n->host, 3, "commands that were not proposed wait for the next leader");
    }
    if (role == NODE_LEADER && n->role != NODE_LEADER) {
        n->term_led = term;
        n->transferee_seen = 0;
    }
    if (leader == 0 && n->leader_id != 0) {
        n->leaderless_ms = now_ms;
        if (n->role != NODE_LEADER) {
            host_log(&n->host, 2, "no leader is heard last_leader=%" PRIu64 " term=%" PRIu64,
                     n->leader_id, term);
        }
    }
    if (leader != 0 && (leader != n->leader_seen || n->leader_id == 0)) {
        uint64_t without_ms = n->leaderless_ms != 0 ? now_ms - n->leaderless_ms : 0;
        n->leaderless_ms = 0;
        host_log(&n->host, 3,
                 "node %" PRIu64 " leads leader=%" PRIu64 " term=%" PRIu64
                 " without_leader_ms=%" PRIu64,
                 leader, leader, term, without_ms);
    }
    if (opened && !n->opened) {
        host_log(&n->host, 3, "this node leads and takes commands term=%" PRIu64, term);
    }
}

/* ---- members --------------------------------------------------------------------------------- */

static bool is_here(const struct node *n, uint64_t id)
{
    const struct peer *p = peers_find(&n->peers, id);
    return id == n->id || (p != NULL && p->seen == PEER_HERE);
}

static unsigned count_here(const struct node *n)
{
    unsigned count = 0;
    for (unsigned i = 0; i < n->members->n; i++) {
        count += is_here(n, n->members->list[i].id);
    }
    return count;
}

/* A member counts as connected while this node's stream to it is up. */
static bool note_member(struct node *n, unsigned i, bool settled)
{
    const struct member *m = &n->members->list[i];
    struct peer *p = peers_find(&n->peers, m->id);
    enum peer_seen now = p != NULL && outbound_is_up(&p->outbound) ? PEER_HERE : PEER_AWAY;
    if (m->id == n->id || p == NULL || now == p->seen ||
        (now == PEER_AWAY && p->seen == PEER_UNKNOWN && !settled)) {
        return false;
    }
    p->seen = now;
    host_log(&n->host, now == PEER_HERE ? 3 : 2,
             "node %" PRIu64 " is %s member=%" PRIu64 " address=%s connected=%u of=%u", m->id,
             now == PEER_HERE ? "connected" : "gone", m->id, m->address, count_here(n),
             n->members->n);
    return true;
}

/* Logs the missing members when the cluster cannot go on without them. For whom a cluster that is
 * being formed waits, membership.c logs. */
static void log_missing(struct node *n)
{
    char missing[640] = "";
    size_t len = 0;
    for (unsigned i = 0; i < n->members->n && len < sizeof missing - 1; i++) {
        const struct member *m = &n->members->list[i];
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
                 n->id);
    } else if (!forming && len > 0) {
        host_log(&n->host, 2, "there is no leader, and no connection to %s connected=%u of=%u",
                 missing, count_here(n), n->members->n);
    }
}

static void watch_members(struct node *n)
{
    bool settled = fli_clock_since_ms(n->started_ms) >= 2 * (uint64_t)n->election_ms;
    bool changed = settled && !n->settled;
    n->settled = settled;
    for (unsigned i = 0; i < n->members->n; i++) {
        changed = note_member(n, i, settled) || changed;
    }
    if (n->leader_id != 0) {
        n->missing_logged = false;
        return;
    }
    /* An election takes a moment; only a longer time without a leader gets a line of its own. */
    uint64_t since_ms = n->leaderless_ms != 0 ? n->leaderless_ms : n->started_ms;
    bool lasts = fli_clock_since_ms(since_ms) >= 2 * (uint64_t)n->election_ms;
    if (settled && lasts && (changed || !n->missing_logged)) {
        n->missing_logged = true;
        log_missing(n);
    }
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
    if (longest_ns >= SLOW_WRITE_NS && longest_ns >= 2 * n->slow_write_ns) {
        n->slow_write_ns = longest_ns;
        host_log(&n->host, 2, "a write of the log was slow took_ms=%" PRIu64 " directory=%s",
                 longest_ns / 1000000, n->dir.path);
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
    n->log_bytes = s.bytes;
    bool reads = s.read_age_ns > s.age_ns;
    uint64_t waiting_ms = (reads ? s.read_age_ns : s.age_ns) / 1000000;
    note_slow_write(n, s.write_ns_max);
    n->disk_hangs = waiting_ms >= NODE_DISK_SLOW_MS;
    replica_set_unfit(n->replica, n->disk_hangs);
    if (!n->disk_hangs) {
        n->disk_logged_ms = 0;
        return;
    }
    bool logged = waiting_ms > 2 * n->disk_logged_ms;
    if (logged) {
        n->disk_logged_ms = waiting_ms;
        host_log(&n->host, 1, "the disk of %s has not finished a %s for %" PRIu64 " ms",
                 n->dir.path, reads ? "read" : "write", waiting_ms);
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
