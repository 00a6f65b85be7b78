/* node_members.c: the members as a node reports them; and the check of the configured members
 * against the log. */
#include "consensus/node_private.h"

static enum node_member_plan plan_of(const struct machine_node *e)
{
    static const enum node_member_plan plans[] = {[MACHINE_PLAN_NONE] = NODE_STAYS,
                                                  [MACHINE_PLAN_ADD] = NODE_COMES,
                                                  [MACHINE_PLAN_REMOVE] = NODE_GOES,
                                                  [MACHINE_PLAN_REPLACE] = NODE_IS_REPLACED};
    return plans[e->plan];
}

/* Nodes that are ahead are left out: this node does not know yet whether they are members. */
static bool describe_member(struct node *n, const struct member *m, struct node_member *ret)
{
    const struct configuration_server *server =
        configuration_find(replica_configuration(n->replica), m->id);
    struct machine_node e = {.plan = MACHINE_PLAN_NONE};
    bool planned = machine_node_find(fsm_machine(n->fsm), m->id, &e);
    bool founds = replica_configuration(n->replica)->n == 0; /* and nobody leads */
    if (server == NULL && !planned && !founds) {
        return false;
    }
    *ret = (struct node_member){
        .id = m->id,
        .peer_address = server != NULL ? server->address : m->address,
        .client_address = membership_client_address(n->membership, m->id),
        .member = server != NULL,
        .plan = plan_of(&e),
        .version = e.version,
        .incarnation = server != NULL ? server->incarnation : 0,
        .voter = server != NULL && server->role == CONFIGURATION_VOTER,
        .leader = m->id == n->leader_id,
        .self = m->id == n->id,
        .connected = m->id == n->id || relay_has_follower(n->relay, m->id) ||
                     relay_has_leader(n->relay, m->id) || (founds && peers_is_up(&n->peers, m->id)),
        .match_index = replica_match_index(n->replica, m->id),
        .starts = m->id == n->id ? n->record.own.now.starts.own.number
                                 : membership_start_of(n->membership, m->id),
        .kept_index = m->id == n->id ? node_record_index(&n->record)
                                     : membership_kept_index_of(n->membership, m->id),
        .report = node_report_of(n, m->id),
    };
    return true;
}

size_t node_members(struct node *n, struct node_member *ret, size_t max)
{
    struct machine_node nodes[MACHINE_NODES_MAX];
    unsigned known = machine_nodes(fsm_machine(n->fsm), nodes);
    size_t count = 0;
    for (unsigned i = 0; i < n->members->n && count < max; i++) {
        count += describe_member(n, &n->members->list[i], &ret[count]);
    }
    /* Adds nodes with a plan in the machine that are not in the list, any more or yet. */
    for (unsigned i = 0; i < known && count < max; i++) {
        if (nodes[i].plan != MACHINE_PLAN_NONE && members_find(n->members, nodes[i].id) == NULL) {
            ret[count++] = (struct node_member){
                .id = nodes[i].id, .peer_address = nodes[i].address, .plan = plan_of(&nodes[i])};
        }
    }
    return count;
}

/* Whether the configured members can be the cluster in the node's log: at least one must have its
 * configured address. Others may have been added, removed or moved since. */
int node_check_members(const struct node *n, char *errmsg, size_t errmsg_size)
{
    const struct node_config *c = &n->config;
    struct members now = {0};
    const struct configuration *conf = replica_configuration(n->replica);
    for (unsigned i = 0; i < conf->n; i++) {
        (void)members_put(&now, conf->servers[i].id, conf->servers[i].address);
    }
    if (n->record.own.now.identity.cluster_id == 0 || c->joins || members_equal(c->members, &now) ||
        members_equal(c->members, &n->record.own.now.identity.members)) {
        return 0;
    }
    if (conf->n == 0) {
        return identity_refuse_members(&n->dir, &n->record.own.now.identity.members, c->members,
                                       errmsg, errmsg_size);
    }
    if (!members_overlap(c->members, &now) &&
        !members_overlap(c->members, &n->record.own.now.identity.members)) {
        return identity_refuse_members(&n->dir, &now, c->members, errmsg, errmsg_size);
    }
    host_log(&n->host, 3,
             "the log says who is a member, and --cluster says otherwise: it is only the way to "
             "begin");
    return 0;
}
