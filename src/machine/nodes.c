/* nodes.c: the plan for each node of the cluster, the version that it knows, and the version of the
 * cluster.
 *
 *   plan       becomes, by NODE_SETTLED
 *   add        none: the node has joined
 *   remove     (nothing): it has left, and is forgotten
 *   replace    add: it has left, and another one with its number is to come
 *
 * The configuration of the Raft group says who is a member; it has entries of its own. A plan says
 * what the leader has to do to it, so a new leader goes on where the last one stopped. At most one
 * node at a time is being removed or replaced; several may be being added. A plan to take one out
 * that waits is withdrawn by one for another node: the leader asks for that only while the first is
 * still in the configuration. */
#include <string.h>

#include "machine/state.h"

/* The index of a node in the sorted array, or the index where it would be inserted. */
static unsigned place_of(const struct machine *m, uint64_t id)
{
    unsigned i = 0;
    while (i < m->n_nodes && m->nodes[i].id < id) {
        i++;
    }
    return i;
}

const struct machine_node *machine_node_find(const struct machine *m, uint64_t id)
{
    static const struct machine_node unknown;
    unsigned i = place_of(m, id);
    return i < m->n_nodes && m->nodes[i].id == id ? &m->nodes[i] : &unknown;
}

/* The node, or a new record of it: of a member that was there from the beginning there is none
 * before it has told its version. NULL when there is no room; r then holds the answer. */
static struct machine_node *find_or_insert(struct machine *m, uint64_t id, struct machine_result *r)
{
    unsigned i = place_of(m, id);
    struct machine_node *n = &m->nodes[i];
    if (i == m->n_nodes || n->id != id) {
        if (m->n_nodes == MACHINE_NODES_MAX) {
            machine_answer_limit(m, r, MACHINE_LIMIT_NODES);
            return NULL;
        }
        memmove(n + 1, n, (m->n_nodes - i) * sizeof *n);
        *n = (struct machine_node){.id = id};
        m->n_nodes++;
    }
    r->code = MACHINE_DONE;
    return n;
}

static void drop(struct machine *m, struct machine_node *n)
{
    m->n_nodes--;
    memmove(n, n + 1, (size_t)(&m->nodes[m->n_nodes] - n) * sizeof *n);
}

static void drop_plan(struct machine_node *n)
{
    *n = (struct machine_node){.id = n->id, .version = n->version};
}

/* Whoever else was about to leave stays. */
static void withdraw_others(struct machine *m, uint64_t id)
{
    for (unsigned i = 0; i < m->n_nodes; i++) {
        if (m->nodes[i].id != id && machine_node_leaves(&m->nodes[i])) {
            drop_plan(&m->nodes[i]);
        }
    }
}

static void plan(struct machine *m, const struct machine_command *c, enum machine_plan what,
                 struct machine_result *r)
{
    const struct machine_node *known = machine_node_find(m, c->number);
    FLI_ASSERT(c->value.len <= MACHINE_NODE_ADDRESS_MAX);
    if ((what == MACHINE_PLAN_ADD && known->id != 0) ||
        (what == MACHINE_PLAN_REPLACE && known->plan == MACHINE_PLAN_REMOVE)) {
        r->code = MACHINE_EXISTS;
        return;
    }
    struct machine_node *n = find_or_insert(m, c->number, r);
    if (n == NULL) {
        return;
    }
    if (what != MACHINE_PLAN_ADD) {
        withdraw_others(m, c->number);
    }
    drop_plan(n);
    n->plan = what;
    n->learner = c->number2 % 2 != 0;
    n->forced = (c->flags & MACHINE_NODE_FORCED) != 0;
    if (c->value.len > 0) {
        memcpy(n->address, c->value.data, c->value.len);
    }
}

static void settle(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    struct machine_node *n = &m->nodes[place_of(m, c->number)];
    enum machine_plan was = machine_node_find(m, c->number)->plan;
    r->code = was == MACHINE_PLAN_NONE ? MACHINE_NOTFOUND : MACHINE_DONE;
    if (was == MACHINE_PLAN_ADD) {
        drop_plan(n);
    } else if (was == MACHINE_PLAN_REMOVE) {
        drop(m, n);
    } else if (was == MACHINE_PLAN_REPLACE) {
        n->plan = MACHINE_PLAN_ADD;
        n->forced = false;
        n->version = 0;
    }
}

/* ---- the version ---- */

static void note_version(struct machine *m, const struct machine_command *c,
                         struct machine_result *r)
{
    struct machine_node *n = find_or_insert(m, c->number, r);
    if (n != NULL) {
        n->version = (uint32_t)c->number2;
    }
}

/* The highest version that all nodes know that are known here. The leader looks at the members. */
static uint32_t known_to_all(const struct machine *m)
{
    uint32_t least = m->n_nodes == 0 ? m->version : UINT32_MAX;
    for (unsigned i = 0; i < m->n_nodes; i++) {
        least = m->nodes[i].version < least ? m->nodes[i].version : least;
    }
    return least;
}

/* The version only rises, and never above what every node knows: a node that does not know it would
 * stop at the next entry. */
static void raise_version(struct machine *m, const struct machine_command *c,
                          struct machine_result *r)
{
    r->code =
        c->number > m->version && c->number <= known_to_all(m) ? MACHINE_DONE : MACHINE_EXISTS;
    if (r->code == MACHINE_DONE) {
        m->version = (uint32_t)c->number;
    }
}

void machine_nodes_apply(struct machine *m, const struct machine_command *c,
                         struct machine_result *r)
{
    switch (c->op) {
    case MACHINE_OP_NODE_ADD:
        plan(m, c, MACHINE_PLAN_ADD, r);
        break;
    case MACHINE_OP_NODE_REPLACE:
        plan(m, c, MACHINE_PLAN_REPLACE, r);
        break;
    case MACHINE_OP_NODE_REMOVE:
        plan(m, c, MACHINE_PLAN_REMOVE, r);
        break;
    case MACHINE_OP_NODE_SETTLED:
        settle(m, c, r);
        break;
    case MACHINE_OP_NODE_VERSION:
        note_version(m, c, r);
        break;
    default:
        FLI_ASSERT(c->op == MACHINE_OP_VERSION_RAISE);
        raise_version(m, c, r);
        break;
    }
}

/* ---- what is asked ---- */

uint32_t machine_version(const struct machine *m)
{
    return m->version;
}

const struct machine_node *machine_nodes(const struct machine *m, unsigned *ret_n)
{
    *ret_n = m->n_nodes;
    return m->nodes;
}
