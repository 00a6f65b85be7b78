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

static struct node *find(struct machine *m, uint64_t id)
{
    unsigned i = place_of(m, id);
    return i < m->n_nodes && m->nodes[i].id == id ? &m->nodes[i] : NULL;
}

/* NULL when there is no room; r then holds the answer. */
static struct node *insert(struct machine *m, uint64_t id, struct machine_result *r)
{
    unsigned i = place_of(m, id);
    if (m->n_nodes == MACHINE_NODES_MAX) {
        machine_answer_limit(m, r, MACHINE_LIMIT_NODES);
        return NULL;
    }
    memmove(&m->nodes[i + 1], &m->nodes[i], (m->n_nodes - i) * sizeof m->nodes[0]);
    memset(&m->nodes[i], 0, sizeof m->nodes[i]);
    m->nodes[i].id = id;
    m->n_nodes++;
    return &m->nodes[i];
}

static void drop(struct machine *m, struct node *n)
{
    unsigned i = (unsigned)(n - m->nodes);
    m->n_nodes--;
    memmove(&m->nodes[i], &m->nodes[i + 1], (m->n_nodes - i) * sizeof m->nodes[0]);
}

static void plan(struct node *n, enum machine_plan what, const struct machine_command *c)
{
    FLI_ASSERT(c->value.len <= MACHINE_NODE_ADDRESS_MAX);
    n->plan = (uint8_t)what;
    n->learner = c->number2 % 2;
    n->address_len = (uint16_t)c->value.len;
    memset(n->address, 0, sizeof n->address);
    memcpy(n->address, c->value.data, c->value.len);
}

static void add(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    struct node *n = find(m, c->number);
    if (n != NULL) {
        r->code = MACHINE_EXISTS;
        return;
    }
    n = insert(m, c->number, r);
    if (n != NULL) {
        plan(n, MACHINE_PLAN_ADD, c);
        r->code = MACHINE_DONE;
    }
}

static void drop_plan(struct node *n)
{
    n->plan = MACHINE_PLAN_NONE;
    n->learner = 0;
    n->forced = 0;
    n->address_len = 0;
    memset(n->address, 0, sizeof n->address);
}

/* Whoever else was about to leave stays. */
static void withdraw_others(struct machine *m, uint64_t id)
{
    for (unsigned i = 0; i < m->n_nodes; i++) {
        struct node *n = &m->nodes[i];
        if (n->id != id && (n->plan == MACHINE_PLAN_REMOVE || n->plan == MACHINE_PLAN_REPLACE)) {
            drop_plan(n);
        }
    }
}

static bool is_forced(const struct machine_command *c)
{
    return (c->flags & MACHINE_NODE_FORCED) != 0;
}

/* The node, or a new record of it: of a member that was there from the beginning there is none
 * before it has told its version. NULL when there is no room; r then holds the answer. */
static struct node *find_or_insert(struct machine *m, uint64_t id, struct machine_result *r)
{
    struct node *n = find(m, id);
    n = n != NULL ? n : insert(m, id, r);
    if (n != NULL) {
        r->code = MACHINE_DONE;
    }
    return n;
}

static void remove_node(struct machine *m, const struct machine_command *c,
                        struct machine_result *r)
{
    struct node *n = find_or_insert(m, c->number, r);
    if (n != NULL) {
        withdraw_others(m, c->number);
        drop_plan(n);
        n->plan = MACHINE_PLAN_REMOVE;
        n->forced = is_forced(c);
    }
}

static void replace(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    struct node *n = find_or_insert(m, c->number, r);
    if (n != NULL && n->plan == MACHINE_PLAN_REMOVE) {
        r->code = MACHINE_EXISTS;
    } else if (n != NULL) {
        withdraw_others(m, c->number);
        plan(n, MACHINE_PLAN_REPLACE, c);
        n->forced = is_forced(c);
    }
}

static void settle(struct machine *m, const struct machine_command *c, struct machine_result *r)
{
    struct node *n = find(m, c->number);
    enum machine_plan was = n == NULL ? MACHINE_PLAN_NONE : (enum machine_plan)n->plan;
    r->code = was == MACHINE_PLAN_NONE ? MACHINE_NOTFOUND : MACHINE_DONE;
    if (was == MACHINE_PLAN_ADD) {
        drop_plan(n);
    } else if (was == MACHINE_PLAN_REMOVE) {
        drop(m, n);
    } else if (was == MACHINE_PLAN_REPLACE) {
        n->plan = MACHINE_PLAN_ADD;
        n->forced = 0;
        n->version = 0;
    }
}

/* ---- the version ---- */

static void note_version(struct machine *m, const struct machine_command *c,
                         struct machine_result *r)
{
    struct node *n = find_or_insert(m, c->number, r);
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
        add(m, c, r);
        break;
    case MACHINE_OP_NODE_REPLACE:
        replace(m, c, r);
        break;
    case MACHINE_OP_NODE_REMOVE:
        remove_node(m, c, r);
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

unsigned machine_nodes(const struct machine *m, struct machine_node ret[MACHINE_NODES_MAX])
{
    for (unsigned i = 0; i < m->n_nodes; i++) {
        const struct node *n = &m->nodes[i];
        ret[i] = (struct machine_node){.id = n->id,
                                       .version = n->version,
                                       .plan = (enum machine_plan)n->plan,
                                       .learner = n->learner != 0,
                                       .forced = n->forced != 0,
                                       .address = n->address};
    }
    return m->n_nodes;
}

bool machine_node_find(const struct machine *m, uint64_t id, struct machine_node *ret)
{
    struct machine_node all[MACHINE_NODES_MAX];
    unsigned n = machine_nodes(m, all);
    for (unsigned i = 0; i < n; i++) {
        if (all[i].id == id) {
            *ret = all[i];
            return true;
        }
    }
    return false;
}
