/* model_nodes.c: the model's nodes: their incarnations and versions, and the plan for each. */
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
    n->former = 0;
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

static void join(struct model *m, const struct machine_command *c, struct machine_result *r)
{
    struct model_node *n = find(m, c->number);
    if (n != NULL && n->incarnation != 0) {
        r->code = n->incarnation == c->number2 ? MACHINE_DONE : MACHINE_EXISTS;
    } else if (n != NULL && n->former == c->number2) {
        r->code = MACHINE_EXISTS;
    } else {
        n = n == NULL ? add(m, c->number, r) : n;
        if (n != NULL) {
            n->incarnation = c->number2;
            r->code = MACHINE_DONE;
        }
    }
}

static void forget(struct model *m, struct model_node *n, struct machine_result *r)
{
    r->code = MACHINE_DONE;
    if (n->plan == MACHINE_PLAN_REPLACE) {
        n->plan = MACHINE_PLAN_ADD;
        n->forced = false;
        n->incarnation = 0;
        n->version = 0;
    } else {
        drop(m, n);
    }
}

static void take_out(struct model *m, struct model_node *n, const struct machine_command *c,
                     struct machine_result *r)
{
    r->code = MACHINE_DONE;
    if (n->incarnation == 0) {
        drop(m, n);
    } else {
        others_stay(m, n->id);
        n->plan = MACHINE_PLAN_REMOVE;
        n->forced = (c->flags & MACHINE_NODE_FORCED) != 0;
    }
}

static void replace(struct model *m, struct model_node *n, const struct machine_command *c,
                    struct machine_result *r)
{
    if (n->plan == MACHINE_PLAN_REMOVE) {
        r->code = MACHINE_EXISTS;
        return;
    }
    if (n->incarnation != 0) {
        others_stay(m, n->id);
    }
    if ((c->number2 & MACHINE_NODE_BARRED) != 0 && n->incarnation != 0) {
        n->former = n->incarnation;
    }
    set_plan(n, n->incarnation == 0 ? MACHINE_PLAN_ADD : MACHINE_PLAN_REPLACE, c);
    n->forced = n->incarnation != 0 && (c->flags & MACHINE_NODE_FORCED) != 0;
    r->code = MACHINE_DONE;
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

/* Applies a command to an existing node. */
static void change(struct model *m, struct model_node *n, const struct machine_command *c,
                   struct machine_result *r)
{
    switch (c->op) {
    case MACHINE_OP_FORGET:
        forget(m, n, r);
        break;
    case MACHINE_OP_NODE_REMOVE:
        take_out(m, n, c, r);
        break;
    case MACHINE_OP_NODE_REPLACE:
        replace(m, n, c, r);
        break;
    case MACHINE_OP_NODE_SETTLED:
        r->code = MACHINE_NOTFOUND;
        if (n->plan == MACHINE_PLAN_ADD && n->incarnation != 0) {
            r->code = MACHINE_DONE;
            stay(n);
        }
        break;
    default:
        r->code = n->incarnation == 0 ? MACHINE_NOTFOUND : MACHINE_DONE;
        n->version = n->incarnation == 0 ? n->version : (uint32_t)c->number2;
        break;
    }
}

void model_nodes_apply(struct model *m, const struct machine_command *c, struct machine_result *r)
{
    struct model_node *n = find(m, c->number);
    if (c->op == MACHINE_OP_VERSION_RAISE) {
        raise_version(m, c->number, r);
    } else if (c->op == MACHINE_OP_JOIN) {
        join(m, c, r);
    } else if (c->op == MACHINE_OP_NODE_ADD) {
        r->code = MACHINE_EXISTS;
        n = n == NULL ? add(m, c->number, r) : NULL;
        if (n != NULL) {
            set_plan(n, MACHINE_PLAN_ADD, c);
        }
    } else if (n == NULL) {
        r->code = MACHINE_NOTFOUND;
    } else {
        change(m, n, c, r);
    }
}
