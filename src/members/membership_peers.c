/* membership_peers.c: which callers are let in, what is known of them, and the nodes that this node
 * talks to, with their addresses.
 *
 * The list is built again whenever one of its sources has changed. The sources are: the newest
 * configuration in the log; the members given at the start, as long as the log has none; on the
 * leader, the nodes that are to be added; and nodes that called, were let in, and have the
 * configuration that this node has, or a later one: they know best where they are. The list is
 * stored nowhere. */
#include "members/membership_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

/* ---- who is let in ---- */

/* Whether an incarnation is a member, by the newest configuration or by the newest one that is
 * committed: a removal that is under way may yet be undone. */
static bool is_member(const struct membership *m, uint64_t incarnation)
{
    uint64_t index;
    const struct configuration *c = replica_committed_configuration(m->replica, &index);
    return configuration_server(replica_configuration(m->replica), incarnation) != NULL ||
           (c != NULL && configuration_server(c, incarnation) != NULL);
}

/* A leader that takes commands has each configuration that was committed up to its term, and no
 * other one of an earlier term ever will be. (The proposer may not know yet that it leads no
 * more.) */
static bool has_all(const struct membership *m, const struct peer_identity *told)
{
    return proposer_is_open(m->config.proposer) && replica_role(m->replica) == REPLICA_LEADER &&
           told->term <= replica_term(m->replica);
}

/* Whether somebody names a later configuration than this node has, in which it is a member. */
static bool is_ahead(const struct membership *m, const struct peer_identity *told)
{
    return told->member_index > replica_configuration_index(m->replica) && !has_all(m, told);
}

bool membership_knows_as_much(const struct membership *m, uint64_t told_index)
{
    return told_index != 0 && told_index >= replica_configuration_index(m->replica);
}

/* Whether the machine has a plan to add the node, or to do so when the one before has left. */
static bool is_expected(const struct membership *m, uint64_t id)
{
    enum machine_plan plan = machine_node_find(membership_machine(m), id)->plan;
    return plan == MACHINE_PLAN_ADD || plan == MACHINE_PLAN_REPLACE;
}

/* Only the leader takes in a node that is to be added. */
static bool may_join(const struct membership *m, const struct peer_identity *told)
{
    return told->member_index == 0 && proposer_is_open(m->config.proposer) &&
           is_expected(m, told->node_id) &&
           configuration_find(replica_configuration(m->replica), told->node_id) == NULL;
}

/* Whether a node may form the cluster with this one, which has no log yet. */
static bool may_found(const struct membership *m, const struct peer_identity *told)
{
    const struct identity *self = m->config.identity;
    bool founder = membership_founds(m) && members_find(&self->members, told->node_id) != NULL;
    for (unsigned i = 0; i < self->members.n && identity_is_founded(self) && founder; i++) {
        founder =
            self->members.list[i].id != told->node_id || self->founders[i] == told->incarnation;
    }
    return founder;
}

bool membership_is_let_in(const struct membership *m, const struct peer_identity *told)
{
    return is_member(m, told->incarnation) || is_ahead(m, told) || may_join(m, told) ||
           may_found(m, told);
}

/* ---- the list ---- */

static void put_configuration(const struct membership *m, struct members *ret)
{
    const struct configuration *c = replica_configuration(m->replica);
    for (unsigned i = 0; i < c->n; i++) {
        (void)members_put(ret, c->servers[i].id, c->servers[i].address);
    }
}

/* Only the leader calls a node that is to be added. */
static void put_expected(const struct membership *m, struct members *ret)
{
    unsigned n;
    const struct machine_node *nodes = machine_nodes(membership_machine(m), &n);
    for (unsigned i = 0; i < n && proposer_is_open(m->config.proposer); i++) {
        if (nodes[i].plan == MACHINE_PLAN_ADD && members_find(ret, nodes[i].id) == NULL) {
            (void)members_put(ret, nodes[i].id, nodes[i].address);
        }
    }
}

/* Where they are, by their own word. */
static void put_told(const struct membership *m, struct members *ret)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        const struct peer *p = &m->config.peers->list[i];
        char host[256];
        uint16_t port;
        if (p->id != 0 && membership_knows_as_much(m, p->told.member_index) &&
            address_split(p->told.peer_address, host, &port) == 0) {
            (void)members_put(ret, p->id, p->told.peer_address);
        }
    }
}

static bool listens_at(const struct membership *m, const char *address)
{
    char host[256];
    uint16_t port;
    return address_split(address, host, &port) == 0 && port == transport_port(m->config.transport);
}

/* A node that is being moved is at its address of before until it is started again there, and tells
 * that one; also when it has been started at the old one once more. */
static void put_self(struct membership *m, struct members *ret)
{
    const struct identity *id = m->config.identity;
    const struct configuration_server *self =
        configuration_server(replica_configuration(m->replica), id->incarnation);
    const struct member *begun = members_find(&id->members, id->id);
    bool unknown = m->own_address[0] == '\0' && (begun == NULL || !listens_at(m, begun->address));
    if (self != NULL && (unknown || listens_at(m, self->address))) {
        (void)snprintf(m->own_address, sizeof m->own_address, "%s", self->address);
    }
    (void)members_put(ret, id->id, m->own_address[0] != '\0' ? m->own_address : begun->address);
}

static void make_members(struct membership *m, struct members *ret)
{
    const struct identity *id = m->config.identity;
    memset(ret, 0, sizeof *ret);
    put_configuration(m, ret);
    if (ret->n == 0) {
        *ret = id->members;
    }
    put_expected(m, ret);
    put_told(m, ret);
    put_self(m, ret);
}

/* Whoever may not stay is hung up on, and hears why when it calls again. */
static void drop_strangers(struct membership *m)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        struct peer *p = &m->config.peers->list[i];
        bool stays = p->id == 0 || p->told.incarnation == 0 || p->id == m->config.identity->id ||
                     membership_is_let_in(m, &p->told);
        if (!stays) {
            p->told.incarnation = p->told.cluster_id = p->told.member_index = 0;
            membership_hang_up(m, p->id);
        }
    }
}

void membership_members_turn(struct membership *m)
{
    struct members fresh;
    struct peer_identity *self = transport_self(m->config.transport);
    uint64_t index = replica_configuration_index(m->replica);
    /* With the index goes its term: by both a leader judges whether it knows all. */
    self->term = replica_term(m->replica);
    self->last_index = replica_last_index(m->replica);
    self->cluster_id = membership_cluster_id(m);
    self->member_index = replica_member_index(m->replica);
    self->members_crc = m->config.identity->begun_crc;
    if (!m->members_due && index == m->members_index) {
        return;
    }
    m->members_due = false;
    m->members_index = index;
    drop_strangers(m);
    make_members(m, &fresh);
    bool same = members_equal(&fresh, &m->members);
    m->members = fresh;
    if (!same) {
        transport_set_members(m->config.transport, &m->members);
        m->config.members(m->config.ctx, &m->members);
    }
    /* Also for a member that there was no room for while a worker read for a former one. */
    peers_set_members(m->config.peers, &m->members);
}

void membership_start(struct membership *m)
{
    m->members_due = true;
    m->started_ms = fli_clock_ms();
    m->members.n = 0;
    membership_members_turn(m);
}

/* ---- callers ---- */

static int refuse(const struct membership *m, const struct peer_identity *peer,
                  char reason[HANDSHAKE_REASON_MAX])
{
    uint64_t id = peer->node_id;
    uint64_t index;
    bool there = configuration_find(replica_configuration(m->replica), id) != NULL;
    (void)replica_committed_configuration(m->replica, &index);
    bool final = has_all(m, peer);
    if (peer->member_index != 0 && (peer->member_index <= index || final)) {
        return fli_refuse(reason, HANDSHAKE_REASON_MAX, HANDSHAKE_REMOVED,
                          "node %" PRIu64 " was %s, or what made it a member was lost with a "
                          "leader: this data directory is of no more use",
                          id,
                          there || is_expected(m, id) ? "replaced" : "removed from the cluster");
    }
    if (is_expected(m, id)) {
        return fli_refuse(reason, HANDSHAKE_REASON_MAX, HANDSHAKE_STRANGER,
                          "node %" PRIu64 " is waited for, and its leader has not taken it in yet",
                          id);
    }
    if (there) {
        /* Who does not lead may be behind, and not know that the node was replaced. */
        return fli_refuse(
            reason, HANDSHAKE_REASON_MAX, final ? HANDSHAKE_OTHER_INCARNATION : HANDSHAKE_STRANGER,
            "node %" PRIu64 " has lost its data: run fencelock cluster replace %" PRIu64
            " and start it again",
            id, id);
    }
    if (membership_founds(m) && members_find(&m->config.identity->members, id) != NULL) {
        return fli_refuse(reason, HANDSHAKE_REASON_MAX, HANDSHAKE_STRANGER,
                          "node %" PRIu64 " has other data than when the nodes met: replace it if "
                          "there is a leader; if there never was one, begin with empty directories",
                          id);
    }
    if (replica_configuration(m->replica)->n == 0) {
        return fli_refuse(reason, HANDSHAKE_REASON_MAX, HANDSHAKE_STRANGER,
                          "node %" PRIu64 " is not another member", id);
    }
    return fli_refuse(
        reason, HANDSHAKE_REASON_MAX, HANDSHAKE_STRANGER,
        "node %" PRIu64 " is no member: run fencelock cluster add %" PRIu64 " HOST:PORT", id, id);
}

/* Lists the node; at the address that it tells, if it knows as much as this one: a node that is
 * being moved may be at its address of before, whatever this log says. False: it is not listed. */
static bool let_in(struct membership *m, struct peer *p, const struct peer_identity *peer)
{
    p->told = *peer;
    m->members_due = true;
    membership_members_turn(m);
    if (members_find(&m->members, peer->node_id) == NULL) {
        return false;
    }
    outbound_redial(&p->outbound);
    election_peer_back(m->config.election, p->id);
    m->config.host.wake(m->config.host.ctx);
    return true;
}

static int check_peer(struct membership *m, const struct peer_identity *peer,
                      char reason[HANDSHAKE_REASON_MAX])
{
    uint64_t id = peer->node_id;
    if (peer->version < machine_version(membership_machine(m))) {
        return fli_refuse(reason, HANDSHAKE_REASON_MAX, HANDSHAKE_OTHER_VERSION,
                          "node %" PRIu64 " knows version %u, and the cluster is at %u: start a "
                          "newer program there",
                          id, peer->version, (unsigned)machine_version(membership_machine(m)));
    }
    if (membership_founds(m) && peer->member_index == 0 && peer->members_crc == 0) {
        return fli_refuse(
            reason, HANDSHAKE_REASON_MAX, HANDSHAKE_STRANGER,
            "node %" PRIu64 " joins, and there is no cluster yet: start it with --cluster", id);
    }
    if (!membership_is_let_in(m, peer)) {
        return refuse(m, peer, reason);
    }
    if (membership_went_back(m, peer, reason)) {
        return HANDSHAKE_WENT_BACK;
    }
    struct peer *p = peers_place(m->config.peers, id);
    if (p != NULL && !membership_record_start(m, p, peer)) {
        return HANDSHAKE_UNDECIDED;
    }
    if (p == NULL || !let_in(m, p, peer)) {
        return fli_refuse(reason, HANDSHAKE_REASON_MAX, HANDSHAKE_STRANGER,
                          "node %" PRIu64 " is not known here yet, and does not say where it is",
                          id);
    }
    return HANDSHAKE_WELCOME;
}

enum handshake_verdict membership_check_peer(struct membership *m, const struct peer_identity *peer,
                                             char reason[HANDSHAKE_REASON_MAX])
{
    return (enum handshake_verdict)check_peer(m, peer, reason);
}

/* A node ends when one that knows better says that it has gone back, was removed, or is wiped:
 * nobody else can tell it otherwise. A wiped one may have been taken in since it asked. One that
 * joins may have been started before its predecessor was replaced, and waits for that. */
void membership_answered(struct membership *m, uint64_t peer_id, enum handshake_verdict verdict,
                         const char *reason)
{
    struct peer *p = peers_find(m->config.peers, peer_id);
    if (p == NULL) {
        return;
    }
    bool wiped = verdict == HANDSHAKE_OTHER_INCARNATION && !m->config.identity->joins &&
                 replica_member_index(m->replica) == 0;
    p->verdict = verdict;
    if (verdict == HANDSHAKE_WELCOME) {
        membership_is_recorded(m);
    } else if (verdict == HANDSHAKE_WENT_BACK) {
        membership_is_refused(m);
    }
    if (verdict == HANDSHAKE_WENT_BACK || verdict == HANDSHAKE_REMOVED || wiped) {
        host_fail(&m->config.host, FL_EDENIED, "the other members refuse this node: %s", reason);
    }
}

/* ---- what is known of them ---- */

uint64_t membership_number_of(const struct membership *m, uint64_t incarnation)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        if (m->config.peers->list[i].told.incarnation == incarnation) {
            return m->config.peers->list[i].id;
        }
    }
    return 0;
}

void membership_set_client_address(struct membership *m, uint64_t id, const char *address)
{
    struct peer *p = peers_find(m->config.peers, id);
    FLI_ASSERT(p != NULL);
    snprintf(p->told.client_address, sizeof p->told.client_address, "%s", address);
}

const char *membership_client_address(const struct membership *m, uint64_t id)
{
    const struct peer *p = peers_find(m->config.peers, id);
    return p == NULL || p->told.client_address[0] == '\0' ? NULL : p->told.client_address;
}
