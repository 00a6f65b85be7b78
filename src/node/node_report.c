/* node_report.c: the reports that nodes exchange (report.h): filled in, sent and compared; and the
 * members with what is known of them. A worker asks for the disk's size: a disk that hangs must not
 * hold up the loop. */
#include <inttypes.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "node/node_private.h"

/* ---- the disk -------------------------------------------------------------------------------- */

static void disk_work(struct host_work *w)
{
    struct node_reports *d = FLI_CONTAINER_OF(w, struct node_reports, work);
    struct statvfs v;
    bool found = statvfs(d->path, &v) == 0;
    d->disk_bytes = found ? (uint64_t)v.f_blocks * v.f_frsize : 0;
    d->disk_free_bytes = found ? (uint64_t)v.f_bavail * v.f_frsize : 0;
}

static void disk_done(struct host_work *w)
{
    struct node_reports *d = FLI_CONTAINER_OF(w, struct node_reports, work);
    d->own.disk_bytes = d->disk_bytes;
    d->own.disk_free_bytes = d->disk_free_bytes;
}

/* The last answer is kept until another comes. */
static void ask_disk(struct node *n)
{
    if (!n->reports.work.busy) {
        n->reports.path = n->record.dir.path;
        host_work(&n->host, &n->reports.work, disk_work, disk_done);
    }
}

/* ---- telling and hearing --------------------------------------------------------------------- */

void node_report_tick(struct node *n)
{
    uint64_t now_ms = fli_clock_ms();
    struct node_report *own = &n->reports.own;
    struct node_status s;
    if (own->at_ms != 0 && now_ms - own->at_ms < NODE_REPORT_MS) {
        return;
    }
    own->at_ms = now_ms;
    ask_disk(n);
    node_get_status(n, &s);
    own->role = (uint8_t)s.role;
    own->log_waits = s.log.waiting_for_segment;
    own->disk_hangs = n->watch.disk_hangs;
    own->own_election = n->settings.own_election;
    own->term = s.term;
    own->commit_index = s.commit_index;
    own->applied_index = s.applied_index;
    own->hash_version = MACHINE_HASH_VERSION;
    own->hash_index = replica_hash_index(n->replica);
    if (!replica_hash_at(n->replica, own->hash_index, &own->hash)) {
        own->hash = 0;
    }
    if (s.role == NODE_LEADER) {
        own->lag = s.commit_index - s.applied_index;
    }
    uint8_t body[NODE_REPORT_SIZE];
    node_report_encode(own, body);
    const struct fli_slice part = {body, sizeof body};
    uint8_t bytes[STARTS_MESSAGE_MAX];
    const struct fli_slice starts = {bytes, node_record_message(&n->record, bytes)};
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        struct outbound *o = &n->peers.list[i].outbound;
        if (outbound_send(o, NODE_REPORT_TYPE, &part, 1) != 0 ||
            outbound_send(o, STARTS_MESSAGE_TYPE, &starts, 1) != 0) {
            continue; /* the next ones will be newer */
        }
    }
}

/* Reports come only once a second. So the lag is computed when one arrives, while both of its
 * values are from the same moment. */
static void reckon_lag(struct node *n, struct node_report *r)
{
    struct node_status s;
    node_get_status(n, &s);
    r->lag = s.commit_index > r->applied_index ? s.commit_index - r->applied_index : 0;
    if (r->role == NODE_LEADER) {
        bool behind = r->commit_index > s.applied_index;
        n->reports.own.lag = behind ? r->commit_index - s.applied_index : 0;
    }
}

/* ---- comparing states ------------------------------------------------------------------------ */

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
static unsigned voters_that_differ(const struct node *n, unsigned *ret_voters)
{
    const struct configuration *c = replica_configuration(n->replica);
    unsigned count = 0;
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        const struct peer *t = &n->peers.list[i];
        const struct configuration_server *s = t->id == 0 ? NULL : configuration_find(c, t->id);
        count += s != NULL && s->role == CONFIGURATION_VOTER && t->differs &&
                 node_report_of(n, t->id) != NULL;
    }
    *ret_voters = configuration_voters(c);
    return count;
}

/* All replicas have the same state behind the same entry. If not, one of them has met a fault of
 * its memory, or a defect of the program. It ends when a majority of the voters, and more than one,
 * differs from it: so whatever befalls a minority, or a voter alone, this ends no other node. */
static void compare_states(struct node *n, struct peer *t)
{
    const struct node_report *r = &t->report;
    unsigned voters;
    uint64_t own;
    if (r->hash_version != MACHINE_HASH_VERSION || r->hash_index == 0) {
        t->differs = false; /* it may have a new disk */
        return;
    }
    if (!replica_hash_at(n->replica, r->hash_index, &own)) {
        return;
    }
    if (own == r->hash) {
        t->differs = false;
        return;
    }
    note_difference(n, t, r->hash_index);
    node_snapshot_review(n);
    unsigned differ = voters_that_differ(n, &voters);
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

int node_report_receive(struct node *n, uint64_t from, struct fli_slice body)
{
    struct node_report r;
    int rc = node_report_decode(body, &r);
    struct peer *t = peers_find(&n->peers, from);
    if (rc == 0 && t != NULL) {
        reckon_lag(n, &r);
        r.at_ms = fli_clock_ms();
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
    return n->reports.own.at_ms != 0 ? &n->reports.own : NULL;
}

/* ---- the members ----------------------------------------------------------------------------- */

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
