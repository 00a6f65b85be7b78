/* membership_known.c: the known incarnations, and which callers are accepted by them. */
#include "consensus/membership_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t known_of(const struct membership *m, uint64_t id)
{
    return identity_known(m->config.identity, id);
}

/* Whether every member's incarnation is known, and this node is a member. */
static bool all_known(const struct membership *m)
{
    const struct identity *id = m->config.identity;
    const struct configuration *c = replica_configuration(m->replica);
    for (unsigned i = 0; i < c->n; i++) {
        if (identity_known(id, c->servers[i].id) == 0) {
            return false;
        }
    }
    return identity_known(id, id->id) == id->incarnation;
}

uint64_t membership_ready_index(const struct membership *m)
{
    return all_known(m) ? m->config.identity->known_index : 0;
}

uint64_t membership_admitted_index(const struct identity *id)
{
    bool admitted = id->cluster_id != 0 && identity_known(id, id->id) == id->incarnation;
    return admitted ? id->known_index : 0;
}

/* ---- from the machine to the disk ---- */

/* A member may be forgotten and join again with the same incarnation, and this node may apply both
 * entries in one go. Then the machine looks as before, but what the member tells about itself must
 * be from after its return. So every committed configuration change moves known_index forward, even
 * when nothing else changes. */
static bool known_index_is_old(const struct membership *m)
{
    uint64_t change = replica_configuration_index(m->replica);
    return replica_configuration_committed(m->replica) &&
           change > m->config.identity->known_index && change <= replica_applied_index(m->replica);
}

/* Lists the incarnations in the machine, by id. */
static unsigned list_incarnations(const struct machine *machine,
                                  struct identity_known ret[KNOWN_MEMBERS_MAX])
{
    struct machine_node nodes[MACHINE_NODES_MAX];
    unsigned n = machine_nodes(machine, nodes);
    unsigned known = 0;
    for (unsigned i = 0; i < n; i++) {
        if (nodes[i].incarnation != 0) {
            ret[known++] = (struct identity_known){nodes[i].id, nodes[i].incarnation};
        }
    }
    return known;
}

/* The machine shows no more than what is in the log or before it. The identity file may be ahead of
 * a log whose end was lost. */
void membership_report_admitted(struct membership *m)
{
    const struct identity *id = m->config.identity;
    struct identity_known known[KNOWN_MEMBERS_MAX];
    uint64_t index = membership_admitted_index(id);
    unsigned n = list_incarnations(membership_machine(m), known);
    for (unsigned i = 0; index != 0 && i < n; i++) {
        if (known[i].id == id->id && known[i].incarnation == id->incarnation) {
            index = 1;
        }
    }
    replica_set_admitted(m->replica, index);
}

static bool knows_these(const struct identity *id, const struct identity_known *known, unsigned n)
{
    return n == id->n_known && (n == 0 || memcmp(known, id->known, n * sizeof known[0]) == 0);
}

/* Whether the machine has other incarnations than the identity. */
static bool has_changes(const struct membership *m)
{
    struct identity_known known[KNOWN_MEMBERS_MAX];
    const struct identity *id = m->config.identity;
    struct machine *machine = membership_machine(m);
    unsigned n = list_incarnations(machine, known);
    return machine_cluster_id(machine) != id->cluster_id || !knows_these(id, known, n) ||
           known_index_is_old(m);
}

/* Copies the machine's incarnations to `id`. True when anything is new. */
static bool learn(const struct membership *m, struct identity *id)
{
    struct identity_known known[KNOWN_MEMBERS_MAX];
    struct machine *machine = membership_machine(m);
    uint64_t cluster_id = machine_cluster_id(machine);
    unsigned n = list_incarnations(machine, known);
    bool changed = !knows_these(id, known, n);
    if (changed) {
        memset(id->known, 0, sizeof id->known);
        memcpy(id->known, known, n * sizeof known[0]);
        id->n_known = n;
    }
    if (cluster_id != 0 && cluster_id != id->cluster_id) {
        id->cluster_id = cluster_id;
        id->begun_crc = m->begun_crc;
        changed = true;
    }
    return changed;
}

/* After a member was forgotten, the next caller under its id is accepted. This node applies many
 * entries at a time, so it may notice only when the member has already joined again. */
static void note_forgotten(struct membership *m, const struct identity *fresh)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        struct member_state *p = &m->peers[i];
        uint64_t before = known_of(m, p->id);
        uint64_t now = identity_known(fresh, p->id);
        if (p->id == 0 || before == 0 || before == now || p->id == fresh->id) {
            continue;
        }
        p->other_incarnation = false;
        if (p->incarnation != before) {
            continue; /* its streams are another incarnation's, which this node may follow */
        }
        p->incarnation = 0;
        if (now == 0) {
            relay_server_hang_up(m->config.followers, p->id, "it is no member now");
        }
    }
}

/* This node has applied its own removal. */
static void note_removed(struct membership *m, const struct identity *fresh)
{
    struct machine_node self;
    const struct identity *id = m->config.identity;
    bool was = identity_known(id, id->id) == id->incarnation;
    bool is = identity_known(fresh, fresh->id) == fresh->incarnation;
    bool comes_back =
        machine_node_find(membership_machine(m), id->id, &self) && self.former != id->incarnation;
    if (was && !is && !comes_back) {
        host_fail(&m->config.host, FL_EDENIED,
                  "this node was removed from the cluster: its data directory is of no more use");
    }
}

/* A peer that was refused a moment ago may be accepted now: it is dialed at once, without the rest
 * of the pause. */
static void report_joined(struct membership *m, const struct identity *before)
{
    const struct identity *now = m->config.identity;
    for (unsigned i = 0; i < now->n_known; i++) {
        uint64_t id = now->known[i].id;
        if (id != now->id && identity_known(before, id) != now->known[i].incarnation) {
            m->config.joined(m->config.ctx, id);
        }
    }
}

/* What is on disk counts from now on. */
static void take(struct membership *m, const struct identity *fresh)
{
    struct identity *id = m->config.identity;
    struct identity before = *id;
    note_forgotten(m, fresh);
    note_removed(m, fresh);
    *id = *fresh;
    report_joined(m, &before);
    m->members_due = true;
    transport_set_cluster(m->transport, id->cluster_id, membership_admitted_index(id),
                          id->begun_crc);
    membership_report_admitted(m);
}

static void save(struct membership *m)
{
    const struct identity *id = m->config.identity;
    if (id->cluster_id != 0 && m->unsaved.cluster_id != id->cluster_id) {
        m->unsaved.id = 0;
        host_fail(&m->config.host, FL_ECORRUPT,
                  "the log is of another cluster than the data directory");
        return;
    }
    m->saving = true;
    m->config.save_identity(m->config.ctx, &m->unsaved);
}

void membership_identity_saved(struct membership *m, int error)
{
    struct identity fresh = m->unsaved;
    FLI_ASSERT(m->saving);
    m->saving = false;
    m->unsaved.id = 0;
    if (error != 0) {
        host_fail(&m->config.host, FL_EIO, "the identity file in %s cannot be written",
                  m->config.dir->path);
        return;
    }
    take(m, &fresh);
    m->config.ready(m->config.ctx, membership_ready_index(m));
}

/* Notes what is new in the machine. */
static void prepare_identity(struct membership *m)
{
    uint64_t applied = replica_applied_index(m->replica);
    /* While the log is replayed, the machine is older than the identity file. The file is right. */
    if (applied < m->config.identity->known_index || !has_changes(m)) {
        return;
    }
    struct identity fresh = *m->config.identity;
    fresh.known_index = applied;
    if (learn(m, &fresh) || known_index_is_old(m)) {
        m->unsaved = fresh;
    }
}

/* The file follows the log on this disk, and is never ahead of it. Entries are applied when they
 * are on the disks of a majority; a power cut may take them from this one. A node whose log does
 * not reach what its file says could not tell who was admitted, itself included. And nothing counts
 * before it is in the file. Until then this node is as one that has applied less, which every node
 * may be at any time. */
void membership_sync(struct membership *m)
{
    if (m->unsaved.id == 0) {
        prepare_identity(m);
    }
    if (!m->saving && m->unsaved.id != 0 &&
        replica_is_on_disk(m->replica, m->unsaved.known_index)) {
        save(m);
    }
}

/* ---- checking callers ---- */

/* Whether another incarnation of a member was taken into the cluster later than this node's
 * knowledge. A node that was down while X was forgotten and came back knows X's former incarnation.
 * It would refuse the present one even as leader, and so never hear of the change.
 *
 * X tells the index of the log at which the state, as X applied it, has X's present incarnation.
 * Applied entries are committed, and all states at one index are equal. If that index is beyond
 * known_index, X's knowledge is later in the same log, and this node would agree had it applied as
 * much. An incarnation that was wiped and not forgotten has applied no state that names it. One
 * that is older than this node's knowledge was forgotten at an index below known_index, and can
 * only tell smaller ones.
 *
 * Votes and commits need no more than that. X's removal, which came before, was committed by a
 * majority of the others without X. Any majority of voters with X in it, old or new, contains one
 * of those besides X. So what was acknowledged before the removal is safe whatever X's new
 * incarnation says (membership.h). Nor can X help to elect a second leader of a term in which its
 * former incarnation voted. X has applied its own JOIN, whose term is at least that of the removal.
 * A candidate of that term or an earlier one that lacks these entries has an older log than X, and
 * does not get its vote. */
static bool admitted_since(const struct membership *m, uint64_t admitted_index)
{
    return admitted_index > m->config.identity->known_index;
}

/* Whether this node accepts an incarnation of p, by what it knows and by what that incarnation
 * tells about itself. */
static bool is_member_now(const struct membership *m, const struct member_state *p,
                          uint64_t incarnation, uint64_t admitted_index)
{
    return known_of(m, p->id) == incarnation || admitted_since(m, admitted_index);
}

/* Whether the machine has a plan to add the node, and this is not its incarnation that was
 * replaced. */
static bool is_expected(const struct membership *m, uint64_t id, uint64_t incarnation)
{
    struct machine_node node;
    return machine_node_find(membership_machine(m), id, &node) && node.plan == MACHINE_PLAN_ADD &&
           node.former != incarnation;
}

/* A node that is to be added, and does not tell that it was taken in since, is accepted only by a
 * leader, and only once the leader has applied all that was committed before its term. For any
 * other node, it may be a second incarnation: the first one joined again, voted, acknowledged, and
 * was wiped. Before a cluster is formed, its configured members may join. */
static bool may_join(const struct membership *m, uint64_t id, uint64_t incarnation)
{
    const struct identity *self = m->config.identity;
    if (known_of(m, id) != 0) {
        return false;
    }
    return self->cluster_id == 0
               ? members_find(&m->members, id) != NULL
               : proposer_is_open(m->config.proposer) && is_expected(m, id, incarnation);
}

/* Whether this node, which is in no cluster yet, may follow a peer that is in one. Either this node
 * joins that cluster, or it was wiped, or it is late in forming its own. In the last case both
 * began with the same members, as the transport has checked. */
static bool may_follow(const struct membership *m, const struct peer_identity *peer)
{
    const struct identity *self = m->config.identity;
    return self->cluster_id == 0 && peer->cluster_id != 0 &&
           (self->joins || peer->members_crc != 0) && known_of(m, peer->node_id) == 0;
}

/* A stream may outlive the knowledge with which it was accepted: the caller that was let in to join
 * may turn out not to be the incarnation that joined. */
bool membership_is_stranger(const struct membership *m, uint64_t id)
{
    const struct member_state *p = membership_find(m, id);
    return p != NULL && id != m->config.identity->id && p->incarnation != 0 &&
           ((known_of(m, id) != 0 && !is_member_now(m, p, p->incarnation, p->admitted_index)) ||
            membership_is_past(m, p));
}

/* Whether the peer names a state of this cluster in which the peer was a member. A node that lost
 * its data names none. */
static bool was_member(const struct membership *m, const struct peer_identity *peer)
{
    const struct identity *self = m->config.identity;
    return self->cluster_id != 0 && peer->cluster_id == self->cluster_id &&
           peer->admitted_index != 0;
}

/* Whether this node has applied that state too, and knows no more of the peer. */
static bool was_removed(const struct membership *m, const struct peer_identity *peer)
{
    const struct identity *self = m->config.identity;
    bool up_to_date = m->replica != NULL && replica_applied_index(m->replica) >= self->known_index;
    return up_to_date && was_member(m, peer) && !is_expected(m, peer->node_id, peer->incarnation);
}

static enum handshake_verdict refuse(struct membership *m, const struct peer_identity *peer,
                                     char reason[HANDSHAKE_REASON_MAX])
{
    uint64_t id = peer->node_id;
    struct member_state *p = membership_find(m, id);
    if (known_of(m, id) != 0 && p != NULL) {
        p->other_incarnation = true;
    }
    if (known_of(m, id) != 0 && was_member(m, peer)) {
        snprintf(reason, HANDSHAKE_REASON_MAX,
                 "node %" PRIu64 " was replaced: this data directory is of no more use", id);
        return HANDSHAKE_REMOVED;
    }
    if (known_of(m, id) != 0) {
        snprintf(reason, HANDSHAKE_REASON_MAX,
                 "node %" PRIu64 " has lost its data: run fencelock cluster replace %" PRIu64
                 " (CLUSTER FORGET) and start it again",
                 id, id);
        return HANDSHAKE_OTHER_INCARNATION;
    }
    if (was_removed(m, peer)) {
        snprintf(reason, HANDSHAKE_REASON_MAX,
                 "node %" PRIu64 " was removed from the cluster: its data directory is of no more "
                 "use",
                 id);
        return HANDSHAKE_REMOVED;
    }
    if (is_expected(m, id, peer->incarnation)) {
        snprintf(reason, HANDSHAKE_REASON_MAX,
                 "node %" PRIu64 " is waited for, and its leader has not taken it in yet", id);
    } else if (m->config.identity->cluster_id == 0) {
        snprintf(reason, HANDSHAKE_REASON_MAX, "node %" PRIu64 " is not another member", id);
    } else {
        snprintf(reason, HANDSHAKE_REASON_MAX,
                 "node %" PRIu64 " is no member: run fencelock cluster add %" PRIu64 " HOST:PORT",
                 id, id);
    }
    return HANDSHAKE_STRANGER;
}

/* Whether a caller knows more than the log that this node has its addresses from. That log may be
 * behind the identity file, when its end was lost in a power cut. */
static bool is_ahead(const struct membership *m, uint64_t admitted_index)
{
    return admitted_since(m, admitted_index) ||
           (admitted_index > replica_applied_index(m->replica) &&
            admitted_index > replica_configuration_index(m->replica));
}

/* A node that knows more of the log than this one tells its own address. False: it told none. */
static bool find_place(struct membership *m, const struct peer_identity *peer,
                       uint64_t admitted_index)
{
    const struct member *known = members_find(&m->members, peer->node_id);
    bool newer =
        m->config.identity->cluster_id == 0 ? peer->cluster_id != 0 : is_ahead(m, admitted_index);
    bool elsewhere = known == NULL || strcmp(known->address, peer->peer_address) != 0;
    if (!elsewhere || (known != NULL && !newer)) {
        return true;
    }
    return membership_record_guest(m, peer);
}

enum handshake_verdict membership_check_peer(void *ctx, const struct peer_identity *peer,
                                             char reason[HANDSHAKE_REASON_MAX])
{
    struct membership *m = ctx;
    uint64_t id = peer->node_id;
    struct member_state nobody = {.id = id};
    /* A member that was forgotten a moment ago is accepted from its next handshake on, which may be
     * this one. So the machine is read before the check, not at the next tick. */
    if (m->replica != NULL) {
        membership_sync(m);
    }
    uint64_t admitted_index = peer->cluster_id == 0 ? 0 : peer->admitted_index;
    if (peer->version < machine_version(membership_machine(m))) {
        snprintf(reason, HANDSHAKE_REASON_MAX,
                 "node %" PRIu64 " knows version %u, and the cluster is at %u: start a newer "
                 "program there",
                 id, peer->version, (unsigned)machine_version(membership_machine(m)));
        return HANDSHAKE_OTHER_VERSION;
    }
    if (!is_member_now(m, &nobody, peer->incarnation, admitted_index) &&
        !may_join(m, id, peer->incarnation) && !may_follow(m, peer)) {
        return refuse(m, peer, reason);
    }
    if (membership_went_back(m, peer, reason)) {
        return HANDSHAKE_WENT_BACK;
    }
    struct member_state *p = find_place(m, peer, admitted_index) ? membership_place(m, id) : NULL;
    if (p == NULL) {
        snprintf(reason, HANDSHAKE_REASON_MAX,
                 "node %" PRIu64 " is not known here yet, and does not say where it is", id);
        return HANDSHAKE_STRANGER;
    }
    if (!membership_record_start(m, peer)) {
        return HANDSHAKE_UNDECIDED;
    }
    p->version = peer->version;
    p->admitted_index = admitted_index;
    p->incarnation = peer->incarnation;
    p->term = m->replica == NULL ? 0 : replica_term(m->replica);
    p->other_incarnation = false;
    m->begun_crc = m->begun_crc == 0 ? peer->members_crc : m->begun_crc;
    m->config.peer_back(m->config.ctx, p->id);
    if (peer->client_address[0] != '\0') {
        membership_set_client_address(m, p->id, peer->client_address);
    }
    return HANDSHAKE_WELCOME;
}

void membership_answered(void *ctx, uint64_t peer_id, enum handshake_verdict verdict,
                         uint64_t index, const char *reason)
{
    struct membership *m = ctx;
    struct member_state *p = membership_find(m, peer_id);
    if (p != NULL) {
        p->has_answered = verdict != HANDSHAKE_WENT_BACK;
    }
    if (verdict == HANDSHAKE_WENT_BACK) { /* the refusing peer has proof, even if others have
                                             none */
        membership_is_refused(m);
        host_fail(&m->config.host, FL_EDENIED, "the other members refuse this node: %s", reason);
        return;
    }
    if (verdict == HANDSHAKE_WELCOME) {
        membership_is_recorded(m);
    }
    if (p != NULL && handshake_is_dated(verdict)) {
        p->verdict = verdict;
        p->verdict_index = index;
        if (verdict != HANDSHAKE_WELCOME) {
            snprintf(m->refused_why, sizeof m->refused_why, "%s", reason);
        }
    }
}

void membership_set_client_address(struct membership *m, uint64_t id, const char *address)
{
    struct member_state *p = membership_find(m, id);
    FLI_ASSERT(p != NULL);
    snprintf(p->client_address, sizeof p->client_address, "%s", address);
}

const char *membership_client_address(const struct membership *m, uint64_t id)
{
    const struct member_state *p = membership_find(m, id);
    return p == NULL || p->client_address[0] == '\0' ? NULL : p->client_address;
}
