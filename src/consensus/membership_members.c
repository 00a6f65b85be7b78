/* membership_members.c: the nodes that this node talks to, and their addresses.
 *
 * The list is built again whenever one of its sources has changed. The sources are: the newest
 * configuration in the log; the members given at the start, as long as the log has none; on the
 * leader, the nodes that are to be added; and nodes that called, were let in, and have the
 * configuration that this node has, or a later one: they know best where they are. The list is
 * stored nowhere. */
#include "consensus/membership_private.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

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
    struct machine_node nodes[MACHINE_NODES_MAX];
    unsigned n =
        proposer_is_open(m->config.proposer) ? machine_nodes(membership_machine(m), nodes) : 0;
    for (unsigned i = 0; i < n; i++) {
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
        if (p->id != 0 && membership_knows_as_much(m, p->told_index) && p->address[0] != '\0') {
            (void)members_put(ret, p->id, p->address);
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

static void note_self(struct membership *m)
{
    struct peer *self = peers_find(m->config.peers, m->config.identity->id);
    if (self != NULL) {
        self->incarnation = m->config.identity->incarnation;
        self->cluster_id = membership_cluster_id(m);
    }
}

/* Whoever may not stay is hung up on, and hears why when it calls again. */
static void drop_strangers(struct membership *m)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        struct peer *p = &m->config.peers->list[i];
        bool stays = p->id == 0 || p->incarnation == 0 || p->id == m->config.identity->id ||
                     membership_is_let_in(m, p);
        if (!stays) {
            p->incarnation = 0;
            p->cluster_id = p->told_index = 0;
            membership_hang_up(m, p->id);
        }
    }
}

void membership_members_turn(struct membership *m)
{
    struct members fresh;
    uint64_t index = replica_configuration_index(m->replica);
    if (!m->members_due && index == m->members_index) {
        return;
    }
    m->members_due = false;
    m->members_index = index;
    drop_strangers(m);
    /* With the index goes its term: by both a leader judges whether it knows all. */
    transport_set_progress(m->config.transport, replica_term(m->replica),
                           replica_last_index(m->replica));
    transport_set_cluster(m->config.transport, membership_cluster_id(m),
                          replica_member_index(m->replica), m->config.identity->begun_crc);
    make_members(m, &fresh);
    bool same = members_equal(&fresh, &m->members);
    m->members = fresh;
    if (!same) {
        transport_set_members(m->config.transport, &m->members);
        m->config.members(m->config.ctx, &m->members);
    }
    /* Also for a member that there was no room for while a worker read for a former one. */
    peers_set_members(m->config.peers, &m->members);
    note_self(m);
}

void membership_start(struct membership *m)
{
    m->members_due = true;
    m->started_ms = fli_clock_ms();
    m->members.n = 0;
    membership_members_turn(m);
}
