/* node_watch.c: what this node knows of the cluster and of itself: who leads, which members are
 * here, how long the disk takes; lines of the log about that; the reports that nodes exchange; the
 * times in force; the status, for people. */
#include "node/node_private.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"

#define SLOW_WRITE_NS UINT64_C(250000000)
#define LEADERLESS_ELECTIONS 50u

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

/* ---- members that are here ------------------------------------------------------------------- */

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

/* A member counts as connected while this node's stream to it is up, and while a founder is called
 * anew (membership.c), even if the cluster is formed meanwhile. */
static bool note_member(struct node *n, const struct member *m, bool settled)
{
    struct peer *p = peers_find(&n->peers, m->id);
    bool anew =
        p != NULL && p->seen == PEER_HERE && p->outbound.dialing && fli_clock_ms() < p->call_at_ms;
    bool up = p != NULL && outbound_is_up(&p->outbound);
    enum peer_seen now = up || anew ? PEER_HERE : PEER_AWAY;
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
        changed = note_member(n, &n->election.members->list[i], settled) || changed;
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
 * than may be in flight; it must not be elected while its disk hangs. What the disk has
 * done in a pause of this process is read in the turn behind this tick. */
static void watch_disk(struct node *n)
{
    struct node_watch *w = &n->watch;
    struct log_stats s;
    log_get_stats(n->log, &s);
    bool reads = s.read_age_ns > s.age_ns;
    uint64_t waiting_ms = (reads ? s.read_age_ns : s.age_ns) / 1000000;
    if (fli_clock_since_ms(n->loop.turned_ms) >= NODE_DISK_SLOW_MS) {
        return;
    }
    w->log_bytes = s.bytes;
    w->own.log_waits = s.waiting_for_segment;
    w->own.disk_hangs = waiting_ms >= NODE_DISK_SLOW_MS;
    note_slow_write(n, s.write_ns_max);
    replica_set_unfit(n->replica, w->own.disk_hangs);
    if (!w->own.disk_hangs) {
        w->disk_logged_ms = 0;
        return;
    }
    bool logged = waiting_ms > 2 * w->disk_logged_ms;
    if (logged) {
        w->disk_logged_ms = waiting_ms;
        host_log(&n->host, 1, "the disk of %s has not finished a %s for %" PRIu64 " ms",
                 n->record.dir.path, reads ? "read" : "write", waiting_ms);
    }
    if (logged || waiting_ms % NODE_REPORT_MS < NODE_TICK_MS) { /* others may lead by now */
        hand_over(n, logged);
    }
}

/* A worker asks for the disk's size: a disk that hangs must not hold up the loop. */
static void space_work(struct host_work *work)
{
    struct node_watch *w = FLI_CONTAINER_OF(work, struct node_watch, space_work);
    const struct node *n = FLI_CONTAINER_OF(w, struct node, watch);
    if (statvfs(n->record.dir.path, &w->space) != 0) {
        w->space = (struct statvfs){0};
    }
}

static void space_done(struct host_work *work)
{
    struct node_watch *w = FLI_CONTAINER_OF(work, struct node_watch, space_work);
    w->own.disk_bytes = (uint64_t)w->space.f_blocks * w->space.f_frsize;
    w->own.disk_free_bytes = (uint64_t)w->space.f_bavail * w->space.f_frsize;
}

/* ---- reports (peers.h) ----------------------------------------------------------------------- */

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static void fill_report(struct node *n)
{
    struct node_report *own = &n->watch.own;
    own->role = (uint8_t)n->watch.role;
    own->term = replica_term(n->replica);
    own->commit_index = replica_commit_index(n->replica);
    own->applied_index = replica_applied_index(n->replica);
    own->hash_version = MACHINE_HASH_VERSION;
    own->hash_index = replica_hash_index(n->replica);
    own->hash = 0;
    (void)replica_hash_at(n->replica, own->hash_index, &own->hash);
    own->lag = own->role == NODE_LEADER ? own->commit_index - own->applied_index : own->lag;
}

static void send_report(struct node *n)
{
    uint8_t body[NODE_REPORT_SIZE];
    uint8_t bytes[STARTS_MESSAGE_MAX];
    node_report_encode(&n->watch.own, body);
    const struct fli_slice part = {body, sizeof body};
    const struct fli_slice starts = {bytes, node_record_message(&n->record, bytes)};
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        struct outbound *o = &n->peers.list[i].outbound;
        if (outbound_send(o, NODE_REPORT_TYPE, &part, 1) != 0 ||
            outbound_send(o, STARTS_MESSAGE_TYPE, &starts, 1) != 0) {
            continue; /* the next ones will be newer */
        }
    }
}

static void report(struct node *n)
{
    struct node_watch *w = &n->watch;
    uint64_t now_ms = fli_clock_ms();
    if (w->own.at_ms != 0 && now_ms - w->own.at_ms < NODE_REPORT_MS) {
        return;
    }
    w->own.at_ms = now_ms;
    if (!w->space_work.busy) { /* the last answer is kept until another comes */
        host_work(&n->host, &w->space_work, space_work, space_done);
    }
    fill_report(n);
    send_report(n);
}

static void note_difference(struct node *n, struct peer *t, uint64_t index)
{
    if (!t->differs) {
        host_log(&n->host, 1,
                 "the states of node %" PRIu64 " and of this one differ at entry %" PRIu64
                 ": one of the two is damaged; the one that differs from a majority ends",
                 t->id, index);
    }
    t->differs = true;
}

/* A node that was not heard of lately does not count, whatever it once had. */
static unsigned voters_that_differ(const struct node *n)
{
    const struct configuration *c = replica_configuration(n->replica);
    unsigned count = 0;
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        const struct peer *t = &n->peers.list[i];
        const struct configuration_server *s = t->id == 0 ? NULL : configuration_find(c, t->id);
        count += s != NULL && s->role == CONFIGURATION_VOTER && t->differs &&
                 node_report_of(n, t->id) != NULL;
    }
    return count;
}

/* All replicas have the same state behind the same entry. If not, one of them has met a fault of
 * its memory, or a defect of the program. It ends when a majority of the voters, and more than one,
 * differs from it: so whatever befalls a minority, or a voter alone, this ends no other node. */
static void compare_states(struct node *n, struct peer *t)
{
    const struct node_report *r = &t->report;
    uint64_t own = 0;
    bool known = r->hash_version == MACHINE_HASH_VERSION && r->hash_index != 0;
    if (known && !replica_hash_at(n->replica, r->hash_index, &own)) {
        return;
    }
    if (!known || own == r->hash) {
        t->differs = false; /* it may have a new disk */
        return;
    }
    note_difference(n, t, r->hash_index);
    unsigned voters = configuration_voters(replica_configuration(n->replica));
    unsigned differ = voters_that_differ(n);
    if (differ > voters / 2 && differ > 1) {
        host_fail(&n->host, FL_ECORRUPT,
                  "the state of this node differs from the state of %u of %u voters, behind entry "
                  "%" PRIu64 ": move %s away, run fencelock cluster replace %" PRIu64
                  ", and start with an empty one; have the machine's memory tested",
                  differ, voters, r->hash_index, n->record.dir.path, n->config.id);
    }
}

void node_report_installed(struct node *n)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        n->peers.list[i].differs = false;
    }
}

/* Reports come only once a second. So the lag is computed when one arrives, while both of its
 * values are from the same moment. */
int node_report_receive(struct node *n, uint64_t from, struct fli_slice body)
{
    struct node_report r;
    int rc = node_report_decode(body, &r);
    struct peer *t = peers_find(&n->peers, from);
    if (rc == 0 && t != NULL) {
        r.lag = less(replica_commit_index(n->replica), r.applied_index);
        r.at_ms = fli_clock_ms();
        if (r.role == NODE_LEADER) {
            n->watch.own.lag = less(r.commit_index, replica_applied_index(n->replica));
        }
        t->report = r;
        compare_states(n, t);
    }
    return rc;
}

const struct node_report *node_report_of(const struct node *n, uint64_t id)
{
    if (id != n->config.id) {
        return node_report_of_peer(&n->peers, id);
    }
    return n->watch.own.at_ms != 0 ? &n->watch.own : NULL;
}

/* ---- settings of the operator, for all nodes (CLUSTER CONFIG) -------------------------------- */

/* They replace this node's own options as soon as it has applied them, and after each start.
 *
 * An operator may have set only one of election time and heartbeat. Then the node's own value of
 * the other one is adjusted, so that MACHINE_HEARTBEATS_MIN heartbeats fit into an election time
 * whatever its options are.
 *
 * With an election time that is too short for the links between the nodes nobody is elected, and
 * so nobody can set a longer one. A node that finds no leader for LEADERLESS_ELECTIONS of its own
 * election times goes by its own, if that is longer, until the settings change. It may also have
 * been alone for so long, and the setting be fine: so it ends as well when this node follows a
 * leader that goes by the setting. */
static struct machine_settings find_in_force(const struct node *n)
{
    const struct node_config *options = &n->config;
    struct machine_settings now = n->watch.cluster;
    unsigned set_ms = n->watch.own.own_election ? 0 : now.election_ms;
    now.election_ms = set_ms != 0 ? set_ms : options->election_ms;
    now.heartbeat_ms = now.heartbeat_ms != 0 ? now.heartbeat_ms : options->heartbeat_ms;
    now.hold_ms = now.hold_ms != 0 ? now.hold_ms : options->hold_ms;
    if (now.election_ms < MACHINE_HEARTBEATS_MIN * now.heartbeat_ms) {
        if (set_ms != 0) {
            now.heartbeat_ms = now.election_ms / MACHINE_HEARTBEATS_MIN;
        } else {
            now.election_ms = MACHINE_HEARTBEATS_MIN * now.heartbeat_ms;
        }
    }
    return now;
}

/* Whether the cluster's election time may be why no leader is found. */
static bool is_too_short(const struct node *n)
{
    unsigned set_ms = n->watch.cluster.election_ms;
    unsigned own_ms = n->config.election_ms;
    return set_ms != 0 && set_ms < own_ms && n->watch.leader_id == 0 &&
           fli_clock_since_ms(n->watch.led_ms) >= (uint64_t)LEADERLESS_ELECTIONS * own_ms;
}

static bool leader_goes_by_the_setting(const struct node *n)
{
    uint64_t leader = replica_leader(n->replica);
    const struct node_report *r = leader == n->config.id ? NULL : node_report_of(n, leader);
    return r != NULL && !r->own_election;
}

/* Whether the times in force must be found anew. */
static bool has_news(struct node *n)
{
    const struct machine_settings *cluster = machine_get_settings(fsm_machine(n->fsm));
    struct node_watch *w = &n->watch;
    bool changed = memcmp(cluster, &w->cluster, sizeof w->cluster) != 0;
    if (changed || (w->own.own_election && leader_goes_by_the_setting(n))) {
        w->cluster = *cluster;
        w->own.own_election = false;
        return true;
    }
    if (w->own.own_election || !is_too_short(n)) {
        return false;
    }
    w->own.own_election = true;
    host_log(&n->host, 2,
             "no leader is found with election_ms=%u of CLUSTER CONFIG: this node goes by its own, "
             "%u, until that is changed or a leader goes by it",
             cluster->election_ms, n->config.election_ms);
    return true;
}

/* Gives the times to the parts. Whether they are new. */
static bool set_times(struct node *n, const struct machine_settings *now)
{
    struct election *e = &n->election;
    bool times = now->election_ms != e->election_ms || now->heartbeat_ms != e->heartbeat_ms;
    bool news = times || now->hold_ms != n->commands.hold_ms;
    if (times) {
        e->election_ms = now->election_ms;
        e->heartbeat_ms = now->heartbeat_ms;
        replica_set_times(n->replica, now->election_ms, now->heartbeat_ms);
        transport_set_times(n->peers.transport, now->election_ms / 2, now->election_ms,
                            NODE_UNACKED_MS(now->election_ms));
    }
    n->commands.hold_ms = now->hold_ms;
    return news;
}

void node_settings_turn(struct node *n)
{
    if (!has_news(n)) {
        return;
    }
    struct machine_settings now = find_in_force(n);
    if (set_times(n, &now)) {
        host_log(&n->host, 3,
                 "CLUSTER CONFIG: the times of this node are election_ms=%u heartbeat_ms=%u "
                 "hold_ms=%u",
                 now.election_ms, now.heartbeat_ms, now.hold_ms);
    }
    if (n->cbs.settings != NULL) {
        n->cbs.settings(n->cbs.ctx, &n->watch.cluster);
    }
}

void node_watch_tick(struct node *n)
{
    watch_disk(n);
    if (n->phase == PHASE_RUN) {
        watch_members(n);
        report(n);
    }
}

/* ---- the status, for people --------------------------------------------------------------- */

/* Nodes that are ahead are left out: this node does not know yet whether they are members. */
static bool describe_member(struct node *n, const struct member *m, struct node_member *ret)
{
    const struct configuration_server *server =
        configuration_find(replica_configuration(n->replica), m->id);
    const struct machine_node *e = machine_node_find(fsm_machine(n->fsm), m->id);
    uint64_t leader = replica_leader(n->replica);
    const struct starts_known *k = membership_known(n->membership, m->id);
    bool founds = replica_configuration(n->replica)->n == 0; /* and nobody leads */
    if (server == NULL && e->id == 0 && !founds) {
        return false;
    }
    *ret = (struct node_member){
        .id = m->id,
        .peer_address = server != NULL ? server->address : m->address,
        .client_address = membership_client_address(n->membership, m->id),
        .member = server != NULL,
        .plan = e->plan,
        .version = e->version,
        .incarnation = server != NULL ? server->incarnation : 0,
        .voter = server != NULL && server->role == CONFIGURATION_VOTER,
        .leader = m->id == leader,
        .self = m->id == n->config.id,
        .connected = m->id == n->config.id || relay_has_follower(&n->relay, m->id) ||
                     relay_has_leader(&n->relay, m->id) ||
                     (founds && peers_is_up(&n->peers, m->id)),
        .match_index = replica_match_index(n->replica, m->id),
        .starts = m->id == n->config.id ? n->record.own.now.starts.own.number : k->start.number,
        .kept_index = m->id == n->config.id ? node_record_index(&n->record) : k->index,
        .report = node_report_of(n, m->id),
    };
    return true;
}

size_t node_members(struct node *n, struct node_member *ret, size_t max)
{
    unsigned known;
    const struct machine_node *nodes = machine_nodes(fsm_machine(n->fsm), &known);
    size_t count = 0;
    for (unsigned i = 0; i < n->election.members->n && count < max; i++) {
        count += describe_member(n, &n->election.members->list[i], &ret[count]);
    }
    /* Adds nodes with a plan in the machine that are not in the list, any more or yet. */
    for (unsigned i = 0; i < known && count < max; i++) {
        if (nodes[i].plan != MACHINE_PLAN_NONE &&
            members_find(n->election.members, nodes[i].id) == NULL) {
            ret[count++] = (struct node_member){
                .id = nodes[i].id, .peer_address = nodes[i].address, .plan = nodes[i].plan};
        }
    }
    return count;
}

/* A member that has lost its disk begins as founders do, until all that answer say that they do not
 * know it: it waits for its place. */
static bool forms_cluster(const struct node *n)
{
    bool refused = false;
    bool welcomed = false;
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        refused = refused || n->peers.list[i].verdict == HANDSHAKE_STRANGER;
        welcomed = welcomed || n->peers.list[i].verdict == HANDSHAKE_WELCOME;
    }
    return membership_founds(n->membership) && (welcomed || !refused);
}

void node_get_status(struct node *n, struct node_status *ret)
{
    const struct node_watch *w = &n->watch;
    const struct proposer_stats *p = &n->proposer.stats;
    if (n->phase == PHASE_CLOSED) {
        *ret = (struct node_status){.id = n->config.id, .role = NODE_STOPPED};
        return;
    }
    *ret = (struct node_status){
        .id = n->config.id,
        .founds = forms_cluster(n),
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
        .role = n->phase >= PHASE_CLOSE ? NODE_STOPPED : w->role,
        .leader_id = w->leader_id,
        .leader_client_address =
            w->leader_id == 0 ? NULL : membership_client_address(n->membership, w->leader_id),
        .leader_changes = w->leader_changes,
        .heartbeats_missed = w->heartbeats_missed,
        .silence_ms_max = w->silence_ms_max,
    };
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
