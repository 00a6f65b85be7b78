/* tables.c: whom a node knows, talks to and sends to, after every step.
 *
 *   - It lists the members of its configuration at their addresses, but for those who know as much
 *     as it does and say where they are. Its transport has the same list. When all is well again,
 *     it lists nobody else. Of itself it tells where it listens, or
 *     that it guesses.
 *   - It has streams of one incarnation, and one start, of another node at a time. One on which a
 *     snapshot comes may outlast its start.
 *   - Who does not lead sends no snapshot. */
#include "members/membership_private.h"
#include "net_private.h"
#include "steps.h"

#include <string.h>

/* Its own word counts; of this node what it listens at. */
static bool tells_address(const struct membership *m, uint64_t id)
{
    const struct peer *p = peers_find(m->config.peers, id);
    return id == membership_self(m) ||
           (p != NULL && p->told.peer_address[0] != '\0' &&
            (!p->told.guesses || p->told.member_index > replica_configuration_index(m->replica)) &&
            membership_knows_as_much(m, p->told.member_index));
}

static bool is_awaited(const struct sim_node *n, uint64_t id)
{
    return machine_node_find(fsm_machine(n->node->fsm), id)->plan == MACHINE_PLAN_ADD;
}

/* It tells where it listens, or that it guesses. */
static void check_tells(struct sim_node *n)
{
    const struct peer_identity *told = transport_self(n->transport);
    char host[256];
    uint16_t port = 0;
    bool right = address_split(told->peer_address, host, &port) == 0 && port == n->listens;
    SIM_CHECK(n->sim, right != told->guesses,
              "node %u tells that it is at port %u, and it listens at %u", n->index + 1,
              (unsigned)port, n->listens);
}

static void check_members(struct sim_node *n)
{
    const struct membership *m = n->node->membership;
    const struct configuration *c = replica_configuration(n->node->replica);
    for (unsigned i = 0; i < c->n; i++) {
        const struct configuration_server *is = &c->servers[i];
        const struct member *listed = members_find(&m->members, is->id);
        SIM_CHECK(n->sim, listed != NULL, "node %u does not list member %llu", n->index + 1,
                  ull(is->id));
        SIM_CHECK(n->sim, strcmp(listed->address, is->address) == 0 || tells_address(m, is->id),
                  "node %u lists member %llu at %s, and it is at %s", n->index + 1, ull(is->id),
                  listed->address, is->address);
    }
    check_tells(n);
    SIM_CHECK(n->sim, members_equal(&m->members, &n->transport->members),
              "node %u calls others than it lists", n->index + 1);
}

bool sim_tables_lists_others(const struct sim_node *n)
{
    const struct membership *m = n->node->membership;
    const struct configuration *c = replica_configuration(n->node->replica);
    bool others = false;
    for (unsigned i = 0; i < m->members.n && c->n != 0; i++) {
        uint64_t id = m->members.list[i].id;
        others = others ||
                 (configuration_find(c, id) == NULL && !is_awaited(n, id) && id != n->index + 1);
    }
    return others;
}

static bool is_open(const struct sim_end *e, const struct sim_node *n)
{
    return e->node == n && e->life == n->life && e->stream != NULL && !e->stream->lost &&
           !e->stream->closed;
}

static void check_streams(const struct sim_node *n)
{
    const struct sim_conn *of[SIM_NODES_MAX] = {NULL};
    bool leads = replica_role(n->node->replica) == REPLICA_LEADER;
    for (const struct sim_conn *c = n->sim->conns; c != NULL; c = c->next) {
        SIM_CHECK(n->sim, leads || c->kind != STREAM_SNAPSHOT || !is_open(&c->end[0], n),
                  "node %u sends a snapshot, and does not lead", n->index + 1);
        if (!is_open(&c->end[1], n) || c->kind == STREAM_SNAPSHOT) {
            continue;
        }
        unsigned from = c->end[0].node->index;
        const struct sim_conn *other = of[from];
        SIM_CHECK(n->sim,
                  other == NULL ||
                      (other->incarnation == c->incarnation && start_is(other->start, c->start)),
                  "node %u has streams of starts %llu and %llu of node %u", n->index + 1,
                  ull(c->start.number), ull(other == NULL ? 0 : other->start.number), from + 1);
        of[from] = c;
    }
}

void sim_tables_node(struct sim_node *n)
{
    if (n->node->phase < PHASE_CLOSE && n->transport != NULL) {
        check_members(n);
        check_streams(n);
    }
}
