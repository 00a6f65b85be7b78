/* membership_members.c: the nodes that this node talks to, and their addresses.
 *
 * The list is built again whenever one of its sources has changed. The sources are: the newest
 * configuration in the log; the nodes that are to be added; the members given at the start, as long
 * as the log has no configuration; and guests, which are nodes that called, were accepted, and know
 * more of the log than this node. The list is stored nowhere. */
#include "consensus/membership_private.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

struct member_state *membership_find(const struct membership *m, uint64_t id)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX && id != 0; i++) {
        if (m->peers[i].id == id) {
            return (struct member_state *)(uintptr_t)&m->peers[i];
        }
    }
    return NULL;
}

struct member_state *membership_place(struct membership *m, uint64_t id)
{
    struct member_state *p = membership_find(m, id);
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX && p == NULL; i++) {
        if (m->peers[i].id == 0) {
            p = &m->peers[i];
            memset(p, 0, sizeof *p);
            p->owner = m;
            p->id = id;
        }
    }
    return p;
}

/* ---- guests ---- */

static struct guest *find_guest(struct membership *m, uint64_t id)
{
    for (unsigned i = 0; i < GUESTS_MAX; i++) {
        if (m->guests[i].id == id) {
            return &m->guests[i];
        }
    }
    return NULL;
}

bool membership_record_guest(struct membership *m, const struct peer_identity *peer)
{
    char host[256];
    uint16_t port;
    struct guest *g = find_guest(m, peer->node_id);
    uint64_t known_index = m->config.identity->known_index;
    if (address_split(peer->peer_address, host, &port) != 0) {
        return membership_find(m, peer->node_id) != NULL;
    }
    if (g == NULL) {
        g = &m->guests[m->guest_next];
        m->guest_next = (m->guest_next + 1) % GUESTS_MAX;
    }
    g->id = peer->node_id;
    g->index = peer->admitted_index > known_index ? peer->admitted_index : known_index;
    (void)snprintf(g->address, sizeof g->address, "%s", peer->peer_address);
    m->members_due = true;
    membership_members_turn(m);
    return members_find(&m->members, peer->node_id) != NULL;
}

/* What counts is the log, which has the addresses. The identity file may be ahead of it, when the
 * log's end was lost in a power cut. */
static void drop_guests(struct membership *m)
{
    uint64_t applied = replica_applied_index(m->replica);
    for (unsigned i = 0; i < GUESTS_MAX; i++) {
        struct guest *g = &m->guests[i];
        if (g->id != 0 && m->config.identity->cluster_id != 0 && g->index <= applied) {
            g->id = 0;
            m->members_due = true;
        }
    }
}

/* ---- the list of members ---- */

static void put_configuration(const struct membership *m, struct members *ret)
{
    const struct configuration *c = replica_configuration(m->replica);
    for (unsigned i = 0; i < c->n; i++) {
        (void)members_put(ret, c->servers[i].id, c->servers[i].address);
    }
}

/* Only the leader calls a node that is being replaced, at its new address. The others do not list
 * it before it has shaken hands. */
static void put_expected(const struct membership *m, struct members *ret)
{
    struct machine_node nodes[MACHINE_NODES_MAX];
    unsigned n = machine_nodes(membership_machine(m), nodes);
    for (unsigned i = 0; i < n; i++) {
        const struct machine_node *e = &nodes[i];
        bool barred = e->former != 0 && e->incarnation == 0;
        if (e->plan == MACHINE_PLAN_ADD && members_find(ret, e->id) == NULL &&
            (!barred || proposer_is_open(m->config.proposer))) {
            (void)members_put(ret, e->id, e->address);
        }
    }
}

static void put_guests(const struct membership *m, struct members *ret)
{
    for (unsigned i = 0; i < GUESTS_MAX; i++) {
        if (m->guests[i].id != 0) {
            (void)members_put(ret, m->guests[i].id, m->guests[i].address);
        }
    }
}

static void make_members(const struct membership *m, struct members *ret)
{
    const struct identity *id = m->config.identity;
    memset(ret, 0, sizeof *ret);
    put_configuration(m, ret);
    if (ret->n == 0) {
        *ret = id->members;
    }
    put_expected(m, ret);
    put_guests(m, ret);
    if (members_find(ret, id->id) == NULL) {
        const struct member *self = members_find(&id->members, id->id);
        (void)members_put(ret, id->id, self->address);
    }
}

static void make_places(struct membership *m)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        struct member_state *p = &m->peers[i];
        if (p->id != 0 && !p->calling && members_find(&m->members, p->id) == NULL) {
            memset(p, 0, sizeof *p);
        }
    }
    for (unsigned i = 0; i < m->members.n; i++) {
        (void)membership_place(m, m->members.list[i].id);
    }
    struct member_state *self = membership_find(m, m->config.identity->id);
    if (self != NULL) {
        self->incarnation = m->config.identity->incarnation;
    }
}

void membership_members_turn(struct membership *m)
{
    struct members fresh;
    uint64_t index = replica_configuration_index(m->replica);
    drop_guests(m);
    if (!m->members_due && index == m->members_index) {
        return;
    }
    m->members_due = false;
    m->members_index = index;
    make_members(m, &fresh);
    bool same = members_equal(&fresh, &m->members);
    m->members = fresh;
    make_places(m); /* also of a member that there was no room for, while former ones were called */
    if (same) {
        return;
    }
    m->config.members(m->config.ctx, &m->members);
}

void membership_start(struct membership *m)
{
    m->members_due = true;
    m->started_ms = fli_clock_ms();
    m->members.n = 0;
    membership_members_turn(m);
}
