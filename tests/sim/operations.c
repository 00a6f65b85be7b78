/* operations.c: what operators are told of changes of members, against the log.
 *
 *   - A plan in the log was asked for, and is there once for each time that it was submitted.
 *   - Whoever is told OK finds its plan in the log. Whoever is
 *     told that a change is surely not made finds it nowhere, ever. UNCERTAIN is said only of what
 *     was submitted.
 *   - One operation has one answer; so has each request to hand leadership over, and that is OK
 *     when the node that was named leads.
 *   - A leader denies nothing before it can know who is up.
 *   - What REPLACE has thrown out does not come back. */
#include "members.h"

#include <stdlib.h>
#include <string.h>

#include "members/membership_private.h"
#include "node_clock.h"

#define NEW_LEADER_MS 3000u /* as in membership_change.c */

/* One that was given to a leader's proposer. */
struct submitted {
    uint64_t id, term;
    uint8_t op;
    bool bars;                  /* by REPLACE: that incarnation may not come back */
    bool denied, applied, done; /* denied: its operator was told that it is not made */
};

struct operation {
    struct sim_node *of;
    uint64_t life, id;
    enum node_change_kind kind;
    size_t submitted; /* + 1; 0: it was not */
    bool over;
    void (*cb)(void *ctx, int status);
    void *ctx;
};

/* A request to hand leadership over, and how many a node has not answered in this life. */
struct handover {
    struct sim_node *of;
    uint64_t life, id; /* 0: to whoever is best */
    void (*cb)(void *ctx, int status);
    void *ctx;
};

static struct {
    uint64_t life;
    unsigned open;
} handovers[SIM_NODES_MAX];

static struct submitted *all;
static size_t all_cap, all_len;
static struct operation *at[SIM_NODES_MAX]; /* that a node is about */
/* Incarnations that give way to a successor, and that have. */
static uint64_t giving_way[SIM_NODES_MAX + 1], barred[SIM_NODES_MAX + 1];

void sim_operations_init(void)
{
    all_len = 0;
    memset(handovers, 0, sizeof handovers);
    memset(giving_way, 0, sizeof giving_way);
    memset(barred, 0, sizeof barred);
}

void sim_operations_fini(void)
{
    for (unsigned i = 0; i < SIM_NODES_MAX; i++) {
        free(at[i]);
        at[i] = NULL;
    }
}

static struct submitted *submitted_by(const struct operation *o)
{
    return o->submitted == 0 ? NULL : &all[o->submitted - 1];
}

static void check_answer(const struct operation *o, int status)
{
    struct sim *s = o->of->sim;
    struct submitted *p = submitted_by(o);
    bool move = o->kind == NODE_CHANGE_MOVE;
    bool refused = status == FL_EBUSY || status == FL_ENOTFOUND || status == FL_ELIMIT;
    SIM_CHECK(s, !o->over, "a change of node %llu has two answers", (unsigned long long)o->id);
    SIM_CHECK(s, status != 0 || move || (p != NULL && p->done),
              "a change of node %llu is said to be made, and is not in the log",
              (unsigned long long)o->id);
    SIM_CHECK(s, !refused || p == NULL || !p->done,
              "a change of node %llu is answered %s, and is made", (unsigned long long)o->id,
              fl_err_name(status));
    SIM_CHECK(s, status != FL_ENOLEADER || p == NULL || !p->applied,
              "a change of node %llu is said not to be made, and is in the log",
              (unsigned long long)o->id);
    SIM_CHECK(s, status != FL_EUNCERTAIN || move || p != NULL,
              "a change of node %llu is said to be uncertain, and nobody has submitted it",
              (unsigned long long)o->id);
    if (p != NULL && status == FL_ENOLEADER) {
        p->denied = true;
    }
}

static void answered(void *ctx, int status)
{
    struct operation *o = ctx;
    if (!o->of->ghost) {
        check_answer(o, status);
    }
    o->over = true;
    o->cb(o->ctx, status);
}

/* ---- leadership that is handed over ---- */

static bool is_handed_over(const struct sim_node *of)
{
    return handovers[of->index].life == of->life && handovers[of->index].open > 0;
}

static void handed_over(void *ctx, int status)
{
    struct handover h = *(struct handover *)ctx;
    bool leads = status == 0 && replica_leader(h.of->node->replica) == h.id;
    free(ctx);
    SIM_CHECK(h.of->sim, status != 0 || h.id == 0 || leads,
              "node %u says that it has handed over to node %llu, which does not lead",
              h.of->index + 1, (unsigned long long)h.id);
    if (is_handed_over(h.of) && h.life == h.of->life) {
        handovers[h.of->index].open--;
    }
    h.cb(h.ctx, status);
}

int __real_membership_transfer(struct membership *m, uint64_t id, void (*cb)(void *ctx, int status),
                               void *ctx);
int __wrap_membership_transfer(struct membership *m, uint64_t id, void (*cb)(void *ctx, int status),
                               void *ctx);

int __wrap_membership_transfer(struct membership *m, uint64_t id, void (*cb)(void *ctx, int status),
                               void *ctx)
{
    struct sim_node *of = sim_running->current;
    bool before = is_handed_over(of);
    if (cb == NULL) {
        return __real_membership_transfer(m, id, NULL, NULL);
    }
    struct handover *h = fli_xcalloc(1, sizeof *h);
    *h = (struct handover){.of = of, .life = of->life, .id = id, .cb = cb, .ctx = ctx};
    handovers[of->index].open = before ? handovers[of->index].open + 1 : 1;
    handovers[of->index].life = of->life;
    int rv = __real_membership_transfer(m, id, handed_over, h);
    if (rv != 0) {
        handovers[of->index].open--;
        free(h);
    }
    SIM_CHECK(of->sim, rv != 0 || !before,
              "node %u is to hand over twice, and has not answered the first request",
              of->index + 1);
    return rv;
}

void sim_operations_rest(const struct sim *s)
{
    for (unsigned i = 0; i < s->n; i++) {
        SIM_CHECK((struct sim *)(uintptr_t)s, !is_handed_over(&s->nodes[i]),
                  "node %u does not answer a request to hand over", i + 1);
    }
}

/* ---- changes ---- */

/* Until then whoever is missing may be about to connect. A last voter stays whatever happens. */
static void check_denied(const struct sim_node *of, const struct membership *m)
{
    bool known = m->leads && sim_node_ms(of) - m->leads_since_ms >= NEW_LEADER_MS;
    SIM_CHECK(of->sim, known || configuration_voters(replica_configuration(m->replica)) == 1,
              "node %u denies a change, and leads for %llu ms", of->index + 1,
              (unsigned long long)(sim_node_ms(of) - m->leads_since_ms));
}

int __real_membership_change(struct membership *m, const struct node_change *what,
                             void (*cb)(void *ctx, int status), void *ctx);
int __wrap_membership_change(struct membership *m, const struct node_change *what,
                             void (*cb)(void *ctx, int status), void *ctx);

int __wrap_membership_change(struct membership *m, const struct node_change *what,
                             void (*cb)(void *ctx, int status), void *ctx)
{
    struct sim_node *of = sim_running->current;
    size_t before = all_len;
    struct operation *was = at[of->index];
    struct operation *o = fli_xcalloc(1, sizeof *o);
    *o = (struct operation){.of = of, .life = of->life, .id = what->id, .kind = what->kind};
    o->cb = cb;
    o->ctx = ctx;
    at[of->index] = o;
    int rv = __real_membership_change(m, what, answered, o);
    if (rv == 0) {
        free(was);
        return 0;
    }
    if (rv == FL_EDENIED) {
        check_denied(of, m);
    }
    SIM_CHECK(of->sim, all_len == before, "a change of node %llu is answered %s, and submitted",
              (unsigned long long)what->id, fl_err_name(rv));
    at[of->index] = was;
    free(o);
    return rv;
}

void sim_operations_submitted(const struct sim_node *by, const struct machine_command *c)
{
    struct operation *o = at[by->index];
    SIM_CHECK(by->sim, o != NULL && !o->over && o->life == by->life && o->id == c->number,
              "node %u submits a plan for node %llu that nobody has asked for", by->index + 1,
              (unsigned long long)c->number);
    all = sim_grow(all, &all_cap, all_len + 1, sizeof *all);
    all[all_len++] =
        (struct submitted){.id = c->number, .term = replica_term(by->node->replica), .op = c->op};
    o->submitted = all_len;
}

/* One that leaves withdraws the plans by which others were to leave. */
static void note_leaves(const struct sim *s, const struct submitted *p)
{
    const struct configuration *c = replica_configuration(s->current->node->replica);
    memset(giving_way, 0, sizeof giving_way);
    if (p->id <= SIM_NODES_MAX && p->bars) {
        const struct configuration_server *server = configuration_find(c, p->id);
        giving_way[p->id] = server == NULL ? 0 : server->incarnation;
    }
}

void sim_operations_joins(const struct sim_node *by, uint64_t id, uint64_t incarnation)
{
    SIM_CHECK(by->sim, id > SIM_NODES_MAX || incarnation != barred[id],
              "node %llu joins as what its operator has replaced", (unsigned long long)id);
}

void sim_operations_applied(const struct sim *s, const struct machine_command *c,
                            const struct machine_result *r)
{
    bool plan = c->op == MACHINE_OP_NODE_ADD || c->op == MACHINE_OP_NODE_REMOVE ||
                c->op == MACHINE_OP_NODE_REPLACE;
    struct submitted *found = NULL;
    for (size_t i = 0; plan && i < all_len && found == NULL; i++) {
        struct submitted *p = &all[i];
        bool same = p->op == c->op && p->id == c->number && p->term == s->oracle.last_seal.term;
        found = same && !p->applied && !p->denied ? p : NULL;
    }
    SIM_CHECK(sim_running, !plan || found != NULL,
              "a plan for node %llu is in the log, and nobody has submitted it, or was told so",
              (unsigned long long)c->number);
    if (found != NULL) {
        found->applied = true;
        found->done = r->code == MACHINE_DONE;
    }
    if (found != NULL && found->done && c->op != MACHINE_OP_NODE_ADD) {
        note_leaves(s, found);
    } else if (c->op == MACHINE_OP_NODE_SETTLED && r->code == MACHINE_DONE &&
               c->number <= SIM_NODES_MAX) {
        barred[c->number] = giving_way[c->number] != 0 ? giving_way[c->number] : barred[c->number];
        giving_way[c->number] = 0;
    }
}
