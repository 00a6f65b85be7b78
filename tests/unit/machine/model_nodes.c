/* model_nodes.c: the model's nodes: their versions, and the plan for each. */
#include "model.h"

static struct model_node *find(struct model *m, uint64_t id)
{
    for (unsigned i = 0; i < m->n_nodes; i++) {
        if (m->nodes[i].id == id) {
            return &m->nodes[i];
        }
    }
    return NULL;
}

/* Appends a node; NULL: there is no room. */
static struct model_node *add(struct model *m, uint64_t id, struct machine_result *r)
{
    if (m->n_nodes == MACHINE_NODES_MAX) {
        model_answer_limit(m, r, MACHINE_LIMIT_NODES);
        return NULL;
    }
    m->nodes[m->n_nodes] = (struct model_node){.id = id};
    r->code = MACHINE_DONE;
    return &m->nodes[m->n_nodes++];
}

static void drop(struct model *m, struct model_node *n)
{
    *n = m->nodes[--m->n_nodes];
}

static void stay(struct model_node *n)
{
    n->plan = MACHINE_PLAN_NONE;
    n->learner = n->forced = false;
    n->address = 0;
}

static void others_stay(struct model *m, uint64_t id)
{
    for (unsigned i = 0; i < m->n_nodes; i++) {
        enum machine_plan plan = m->nodes[i].plan;
        if (m->nodes[i].id != id && (plan == MACHINE_PLAN_REMOVE || plan == MACHINE_PLAN_REPLACE)) {
            stay(&m->nodes[i]);
        }
    }
}

static void set_plan(struct model_node *n, enum machine_plan plan, const struct machine_command *c)
{
    n->plan = plan;
    n->learner = (c->number2 & MACHINE_NODE_LEARNER) != 0;
    n->address = (char)c->value.data[0];
}

static void settle(struct model *m, struct model_node *n)
{
    if (n->plan == MACHINE_PLAN_ADD) {
        stay(n);
    } else if (n->plan == MACHINE_PLAN_REPLACE) {
        n->plan = MACHINE_PLAN_ADD;
        n->forced = false;
        n->version = 0;
    } else {
        drop(m, n);
    }
}

static void take_out(struct model *m, struct model_node *n, const struct machine_command *c)
{
    others_stay(m, n->id);
    stay(n);
    n->plan = MACHINE_PLAN_REMOVE;
    n->forced = (c->flags & MACHINE_NODE_FORCED) != 0;
}

static void replace(struct model *m, struct model_node *n, const struct machine_command *c,
                    struct machine_result *r)
{
    if (n->plan == MACHINE_PLAN_REMOVE) {
        r->code = MACHINE_EXISTS;
        return;
    }
    others_stay(m, n->id);
    set_plan(n, MACHINE_PLAN_REPLACE, c);
    n->forced = (c->flags & MACHINE_NODE_FORCED) != 0;
}

static void raise_version(struct model *m, uint64_t to, struct machine_result *r)
{
    bool all_know = to <= (m->n_nodes == 0 ? m->version : UINT32_MAX);
    for (unsigned i = 0; i < m->n_nodes; i++) {
        all_know = all_know && to <= m->nodes[i].version;
    }
    r->code = all_know && to > m->version ? MACHINE_DONE : MACHINE_EXISTS;
    m->version = r->code == MACHINE_DONE ? (uint32_t)to : m->version;
}

/* Applies a command to a node, which may be a new one. */
static void change(struct model *m, struct model_node *n, const struct machine_command *c,
                   struct machine_result *r)
{
    r->code = MACHINE_DONE;
    switch (c->op) {
    case MACHINE_OP_NODE_REMOVE:
        take_out(m, n, c);
        break;
    case MACHINE_OP_NODE_REPLACE:
        replace(m, n, c, r);
        break;
    default:
        n->version = (uint32_t)c->number2;
        break;
    }
}

void model_nodes_apply(struct model *m, const struct machine_command *c, struct machine_result *r)
{
    struct model_node *n = find(m, c->number);
    if (c->op == MACHINE_OP_VERSION_RAISE) {
        raise_version(m, c->number, r);
    } else if (c->op == MACHINE_OP_NODE_ADD) {
        r->code = MACHINE_EXISTS;
        n = n == NULL ? add(m, c->number, r) : NULL;
        if (n != NULL) {
            set_plan(n, MACHINE_PLAN_ADD, c);
        }
    } else if (c->op == MACHINE_OP_NODE_SETTLED) {
        bool planned = n != NULL && n->plan != MACHINE_PLAN_NONE;
        r->code = planned ? MACHINE_DONE : MACHINE_NOTFOUND;
        if (planned) {
            settle(m, n);
        }
    } else {
        n = n == NULL ? add(m, c->number, r) : n;
        if (n != NULL) {
            change(m, n, c, r);
        }
    }
}
