/* membership_change.c: members that are added, removed, replaced and moved: the table of
 * membership.h. */
#include "members/membership_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/address.h"
#include "base/clock.h"

/* So long after this node has begun to lead, nobody is known to be down. The others connect to a
 * leader when they hear of it, which takes milliseconds; a busy machine takes longer. */
#define NEW_LEADER_MS 3000u

static const struct configuration_server *server_of(const struct membership *m, uint64_t id)
{
    return configuration_find(replica_configuration(m->replica), id);
}

static const struct machine_node *plan_of(const struct membership *m, uint64_t id)
{
    return machine_node_find(membership_machine(m), id);
}

static bool change(struct membership *m, const struct configuration *c)
{
    int rv = replica_change(m->replica, fli_clock_ms(), c);
    if (rv != 0 && rv != FL_EBUSY) { /* busy: the next tick tries again */
        host_log(&m->config.host, 2, "a change of the configuration was refused: %s",
                 fl_strerror(rv));
    }
    membership_wake(m);
    return rv == 0;
}

static bool is_up(const struct membership *m, uint64_t id)
{
    return id == membership_self(m) || relay_has_follower(m->config.relay, id);
}

/* ---- what the others can do without one ---- */

enum majority { OF_THE_OTHERS, OF_ALL };

/* Whether the voters besides the node that have confirmed the entry are that majority of voters;
 * and are up, if that is asked. Nothing tells at once that a node's power has gone, but what it has
 * confirmed since. */
static bool others_decide(const struct membership *m, uint64_t without, enum majority of,
                          uint64_t index, bool up)
{
    const struct configuration *c = replica_configuration(m->replica);
    unsigned found = 0;
    unsigned voters = of == OF_ALL ? 1 : 0;
    for (unsigned i = 0; i < c->n; i++) {
        uint64_t id = c->servers[i].id;
        if (id != without && c->servers[i].role == CONFIGURATION_VOTER) {
            voters++;
            found += (!up || is_up(m, id)) &&
                     (id == membership_self(m) || replica_match_index(m->replica, id) >= index);
        }
    }
    return found > voters / 2;
}

static bool is_voter(const struct configuration_server *server)
{
    return server != NULL && server->role == CONFIGURATION_VOTER;
}

static bool is_last_voter(const struct membership *m, uint64_t id)
{
    return is_voter(server_of(m, id)) &&
           configuration_voters(replica_configuration(m->replica)) == 1;
}

static bool leads_since_just_now(const struct membership *m)
{
    return !m->leads || fli_clock_since_ms(m->leads_since_ms) < NEW_LEADER_MS;
}

/* Of two that differ nobody knows which one is damaged, and this leader may be. A voter that has
 * got its state from here would make a majority for it, and the one that is right would end. So
 * `id` stays without, whatever that is. */
static bool all_agree(struct membership *m, uint64_t id, const char *without)
{
    uint64_t other = node_report_differs(m->config.peers);
    if (other != 0) {
        membership_log_once(m,
                            "node %" PRIu64 " %s: the states of node %" PRIu64
                            " and of this one differ; replace the one that is damaged",
                            id, without, other);
    }
    return other == 0;
}

bool membership_may_send_snapshot(struct membership *m, uint64_t id)
{
    return !is_voter(server_of(m, id)) || !others_decide(m, id, OF_ALL, 0, true) ||
           all_agree(m, id, "gets no snapshot");
}

/* ---- the leader's work ---- */

/* The node is what its plan says. */
static bool settle(struct membership *m, uint64_t id)
{
    struct machine_command c = {.op = MACHINE_OP_NODE_SETTLED, .number = id};
    return replica_configuration_committed(m->replica) && membership_submit(m, &c);
}

static void add_learner(struct membership *m, const struct machine_node *e, uint64_t incarnation)
{
    struct configuration c = *replica_configuration(m->replica);
    int rv = configuration_add(&c, e->id, incarnation, e->address, CONFIGURATION_LEARNER);
    if (rv != 0) {
        host_log(&m->config.host, 2, "node %" PRIu64 " at %s cannot be added: %s", e->id,
                 e->address, fl_strerror(rv));
    } else if (change(m, &c)) {
        host_log(&m->config.host, 3,
                 "node %" PRIu64 " at %s is added to the cluster, as %016" PRIx64, e->id,
                 e->address, incarnation);
    }
}

/* A learner gets a vote when it is close enough. */
static void promote(struct membership *m, uint64_t id)
{
    struct configuration c = *replica_configuration(m->replica);
    if (!replica_has_caught_up(m->replica, fli_clock_ms(), id) ||
        !all_agree(m, id, "stays a learner")) {
        return;
    }
    configuration_find(&c, id)->role = CONFIGURATION_VOTER;
    if (change(m, &c)) {
        host_log(&m->config.host, 3, "node %" PRIu64 " is a voter", id);
    }
}

/* Takes the next step for a node that is to be added. True: there was one to take. A node that is
 * not connected waits, and the others do not wait for it. The leader calls a new one, which may
 * know no other (membership.c). It is added when it is known which incarnation runs, and that it
 * was never a member. One that was removed is not listed before its successor is waited for, so its
 * handshake is forgotten (peers.h). */
static bool bring_in(struct membership *m, const struct machine_node *e)
{
    const struct peer *p = peers_find(m->config.peers, e->id);
    const struct configuration_server *server = server_of(m, e->id);
    if (server != NULL && (is_voter(server) || e->learner)) {
        return settle(m, e->id);
    }
    bool has_shaken_hands = p != NULL && p->told.incarnation != 0 && p->told.member_index == 0;
    bool there = server == NULL ? has_shaken_hands : is_up(m, e->id);
    if (!there || !membership_may_change(m)) {
        return false;
    }
    if (server == NULL) {
        add_learner(m, e, p->told.incarnation);
    } else {
        promote(m, e->id);
    }
    return true; /* one node at a time */
}

/* Whoever was up when the change was asked for may be lost by the time that it is carried out: a
 * learner that catches up, or an election, comes in between. */
static bool may_leave(struct membership *m, const struct machine_node *e)
{
    bool may = e->forced || others_decide(m, e->id, OF_THE_OTHERS, m->asked_index, true);
    if (!may && !leads_since_just_now(m)) {
        membership_log_once(m,
                            "node %" PRIu64
                            " stays for now: without it no majority of voters would be connected",
                            e->id);
    }
    return may;
}

/* Takes the next step for a node that is to be removed or replaced. */
static bool take_out(struct membership *m, const struct machine_node *e)
{
    struct configuration c = *replica_configuration(m->replica);
    if (server_of(m, e->id) == NULL) {
        return settle(m, e->id);
    }
    bool self = e->id == membership_self(m);
    /* Whoever leads next checks by its own connections: a member may refuse this node by a removal
     * in its log that was never committed. */
    if (!membership_may_change(m) || (!self && !may_leave(m, e))) {
        return false;
    }
    if (self) {
        int rv = membership_transfer(m, 0, NULL, NULL);
        if (rv == FL_ENOTFOUND) {
            membership_log_once(m, "this node is to be removed, and nobody could lead instead");
        }
        return rv == 0; /* or other plans go on: a node that is added may lead */
    }
    if (configuration_remove(&c, e->id) == 0 && configuration_voters(&c) > 0 && change(m, &c)) {
        host_log(&m->config.host, 3, "node %" PRIu64 " is being removed from the cluster", e->id);
    }
    return true;
}

/* Removals come before additions: a node that never arrives must not hold up a removal. */
void membership_plans(struct membership *m)
{
    unsigned n;
    const struct machine_node *nodes = machine_nodes(membership_machine(m), &n);
    for (unsigned i = 0; i < n; i++) {
        if (machine_node_leaves(&nodes[i]) && take_out(m, &nodes[i])) {
            return;
        }
    }
    for (unsigned i = 0; i < n; i++) {
        if (nodes[i].plan == MACHINE_PLAN_ADD && bring_in(m, &nodes[i])) {
            return;
        }
    }
}

/* ---- versions ---- */

/* The log records the version that each node knows. The cluster's version is raised once all
 * members know a higher one and all are connected: an absent node may come back with an older
 * program. */
void membership_versions(struct membership *m)
{
    const struct configuration *c = replica_configuration(m->replica);
    uint32_t least = UINT32_MAX;
    for (unsigned i = 0; i < c->n; i++) {
        const struct configuration_server *s = &c->servers[i];
        const struct peer *p = peers_find(m->config.peers, s->id);
        /* What it told when it was let in; 0: it was not, since this node began. */
        uint32_t told = p != NULL && p->told.incarnation == s->incarnation ? p->told.version : 0;
        if (told != 0 && told != plan_of(m, s->id)->version) {
            struct machine_command note = {
                .op = MACHINE_OP_NODE_VERSION, .number = s->id, .number2 = told};
            (void)membership_submit(m, &note);
            return;
        }
        uint32_t knows = is_up(m, s->id) ? told : 0;
        least = knows < least ? knows : least;
    }
    if (least > machine_version(membership_machine(m))) {
        struct machine_command raise = {.op = MACHINE_OP_VERSION_RAISE, .number = least};
        if (membership_submit(m, &raise)) {
            host_log(&m->config.host, 3, "all nodes know version %u: the cluster goes to it",
                     (unsigned)least);
        }
    }
}

/* ---- what an operator asks for ---- */

/* Whether the other voters can decide until the moved node is started at its new address: before
 * that, nobody reaches it. They have to be up when it is asked (index 0), and to have confirmed the
 * entry when it is answered: they call the node there from then on, so they may have no stream to
 * it any more. A node that is the only voter needs no others. */
static bool may_move(const struct membership *m, const struct node_change *what, uint64_t index)
{
    return !is_voter(server_of(m, what->id)) || is_last_voter(m, what->id) || what->force ||
           others_decide(m, what->id, OF_ALL, index, index == 0);
}

/* Whether the address belongs to another node, or is planned for one. */
static bool is_taken(const struct membership *m, uint64_t id, const char *address)
{
    unsigned n;
    const struct machine_node *nodes = machine_nodes(membership_machine(m), &n);
    const struct configuration *c = replica_configuration(m->replica);
    bool taken = false;
    for (unsigned i = 0; i < c->n; i++) {
        taken = taken || (c->servers[i].id != id && strcmp(c->servers[i].address, address) == 0);
    }
    for (unsigned i = 0; i < n; i++) {
        taken = taken || (nodes[i].id != id && strcmp(nodes[i].address, address) == 0);
    }
    return taken;
}

/* The node besides this one that is about to leave; there is one at most. NULL: none is. */
static const struct machine_node *other_leaves(const struct membership *m, uint64_t id)
{
    unsigned n;
    const struct machine_node *nodes = machine_nodes(membership_machine(m), &n);
    for (unsigned i = 0; i < n; i++) {
        if (nodes[i].id != id && machine_node_leaves(&nodes[i])) {
            return &nodes[i];
        }
    }
    return NULL;
}

/* Whether the node cannot leave since too few of the others are up. What they wait for may never
 * come back, so a plan for that one may take the place of this one, which is withdrawn then. */
static bool leaving_waits(const struct membership *m, const struct machine_node *e)
{
    return server_of(m, e->id) != NULL && membership_may_change(m) && !leads_since_just_now(m) &&
           !e->forced && !others_decide(m, e->id, OF_THE_OTHERS, 0, true);
}

/* Checks a change that takes a node out, for good or in order to replace it. One that runs where
 * its successor would is not replaced: whoever asks again after the successor has come must not
 * have it thrown out. */
static int check_leave(const struct membership *m, const struct node_change *what,
                       const struct configuration_server *server)
{
    const struct machine_node *other = other_leaves(m, what->id);
    bool replaces = what->kind == NODE_CHANGE_REPLACE;
    if (other != NULL && !leaving_waits(m, other)) {
        return FL_EBUSY; /* also of one that is in the machine only: its plan withdraws others */
    }
    if (replaces && plan_of(m, what->id)->plan == MACHINE_PLAN_REMOVE) {
        return FL_EBUSY;
    }
    if (server == NULL) {
        return 0;
    }
    if (is_last_voter(m, what->id)) {
        return FL_EDENIED;
    }
    if (replaces && is_up(m, what->id) && strcmp(server->address, what->address) == 0) {
        return FL_EBUSY;
    }
    return what->force || others_decide(m, what->id, OF_THE_OTHERS, 0, true) ? 0 : FL_EDENIED;
}

static int check_move(const struct membership *m, const struct node_change *what,
                      const struct configuration_server *server)
{
    if (server == NULL) {
        return FL_EEXISTS; /* its plan; nobody knows it yet where it is to be */
    }
    /* The successor of one that gives way is called where its plan has it. */
    if (!membership_may_change(m) || plan_of(m, what->id)->plan == MACHINE_PLAN_REPLACE) {
        return FL_EBUSY;
    }
    return strcmp(server->address, what->address) == 0 || may_move(m, what, 0) ? 0 : FL_EDENIED;
}

/* Whether it is an address at which other nodes can call one: to them, "every address of this
 * machine" is themselves. */
static bool may_be_called(const char *address)
{
    char host[256];
    uint16_t port;
    return address_split(address, host, &port) == 0 && !fli_host_is_any(host);
}

static int check(const struct membership *m, const struct node_change *what)
{
    const struct configuration_server *server = server_of(m, what->id);
    bool known = server != NULL || plan_of(m, what->id)->id != 0;
    if (known == (what->kind == NODE_CHANGE_ADD)) {
        return known ? FL_EMISMATCH : FL_ENOTFOUND;
    }
    /* An operator that names an incarnation which is replaced already: it is done. */
    if (what->incarnation != 0 && (server == NULL || server->incarnation != what->incarnation)) {
        return FL_EEXISTS;
    }
    if (what->kind != NODE_CHANGE_REMOVE && !may_be_called(what->address)) {
        return FL_EINVAL;
    }
    if (what->kind != NODE_CHANGE_REMOVE && is_taken(m, what->id, what->address)) {
        return FL_EMISMATCH;
    }
    return what->kind == NODE_CHANGE_ADD    ? 0 /* the machine has the limit */
           : what->kind == NODE_CHANGE_MOVE ? check_move(m, what, server)
                                            : check_leave(m, what, server);
}

static int begin_move(struct membership *m, struct membership_operation *o)
{
    struct configuration c = *replica_configuration(m->replica);
    bool asked_before = strcmp(server_of(m, o->change.id)->address, o->change.address) == 0;
    int rv = configuration_set_address(&c, o->change.id, o->change.address);
    if (rv == 0 && !asked_before) {
        rv = replica_change(m->replica, fli_clock_ms(), &c);
    }
    if (rv == 0) {
        o->index = replica_configuration_index(m->replica);
        host_log(&m->config.host, 3, "node %" PRIu64 " is being moved to %s", o->change.id,
                 o->change.address);
    }
    return rv;
}

/* Fills in the role of a successor, and its address where the operator gave none. A learner that
 * was about to become a voter keeps that plan. */
static void complete(const struct membership *m, struct node_change *what)
{
    const struct configuration_server *server = server_of(m, what->id);
    const struct machine_node *node = plan_of(m, what->id);
    what->learner = server != NULL && node->plan != MACHINE_PLAN_ADD
                        ? server->role == CONFIGURATION_LEARNER
                        : node->learner;
    if (what->address[0] == '\0') {
        (void)snprintf(what->address, sizeof what->address, "%s",
                       server != NULL ? server->address : node->address);
    }
}

/* 0, or why the change may not be made now. Whoever is missing may be about to connect. */
static int refusal(const struct membership *m, const struct node_change *what)
{
    int rv = check(m, what);
    bool may_connect = rv == FL_EDENIED && leads_since_just_now(m) && !is_last_voter(m, what->id);
    return may_connect ? FL_EBUSY : rv;
}

static void operation_end(struct membership *m, int status)
{
    struct membership_operation o = m->operation;
    FLI_ASSERT(o.active);
    m->operation = (struct membership_operation){.active = false};
    m->members_due = true;
    membership_wake(m);
    o.cb(o.ctx, status);
}

static void operation_done(struct node_ticket *t, int status, const struct machine_result *result,
                           struct fli_slice payload)
{
    struct membership *m = FLI_CONTAINER_OF(t, struct membership, operation.ticket);
    m->asked_index = replica_last_index(m->replica);
    if (status == 0 && result->code != MACHINE_DONE) {
        status = result->code == MACHINE_LIMIT ? FL_ELIMIT : FL_EBUSY;
    }
    operation_end(m, status);
}

/* Its command stands behind one of the leader's own that has no answer yet. None of these begins a
 * plan, so what was checked holds until then. */
static int begin_plan(struct membership *m, struct membership_operation *o)
{
    static const uint8_t ops[] = {[NODE_CHANGE_ADD] = MACHINE_OP_NODE_ADD,
                                  [NODE_CHANGE_REMOVE] = MACHINE_OP_NODE_REMOVE,
                                  [NODE_CHANGE_REPLACE] = MACHINE_OP_NODE_REPLACE};
    const struct node_change *what = &o->change;
    struct machine_command c = {.op = ops[what->kind], .number = what->id};
    if (c.op != MACHINE_OP_NODE_REMOVE) {
        c.value = (struct fli_slice){(const uint8_t *)what->address, strlen(what->address)};
        c.number2 = what->learner ? MACHINE_NODE_LEARNER : 0;
    }
    if (what->force && what->kind != NODE_CHANGE_ADD) {
        c.flags = MACHINE_NODE_FORCED;
    }
    int rv = membership_enqueue(m, &c, &o->ticket, operation_done);
    const struct machine_node *other = other_leaves(m, what->id);
    if (rv == 0 && what->kind != NODE_CHANGE_ADD && other != NULL) {
        host_log(&m->config.host, 2,
                 "node %" PRIu64 " was to leave, and waits: that is withdrawn, since node %" PRIu64
                 " is to leave",
                 other->id, what->id);
    }
    return rv;
}

/* A MOVE may wait for a node that is lost, and must not hold up that one's replacement. */
static bool gives_way(const struct membership *m)
{
    return m->operation.index != 0 && replica_configuration_committed(m->replica);
}

int membership_change(struct membership *m, const struct node_change *wanted,
                      void (*cb)(void *ctx, int status), void *ctx)
{
    struct membership_operation *o = &m->operation;
    struct node_change what = *wanted;
    if (!proposer_is_open(m->config.proposer) || !membership_formed(m)) {
        return FL_ENOLEADER;
    }
    if ((o->active && !gives_way(m)) || membership_transferring(m) ||
        replica_transferee(m->replica) != 0) {
        return FL_EBUSY;
    }
    if (what.kind == NODE_CHANGE_REPLACE) {
        complete(m, &what);
    }
    int rv = refusal(m, &what);
    if (rv != 0) {
        return rv;
    }
    if (o->active) {
        operation_end(m, FL_EUNCERTAIN);
    }
    *o = (struct membership_operation){.active = true, .change = what, .cb = cb, .ctx = ctx};
    rv = what.kind == NODE_CHANGE_MOVE ? begin_move(m, o) : begin_plan(m, o);
    o->active = rv == 0;
    membership_wake(m);
    return rv;
}

/* A plan has the answer of its command. */
void membership_deposed(struct membership *m)
{
    if (m->operation.active && m->operation.change.kind == NODE_CHANGE_MOVE) {
        operation_end(m, FL_EUNCERTAIN);
    }
}

/* Answers a MOVE: the others that can decide without the node know where it will be. One that did
 * not could not answer it, and it may have to be that one's vote. All other changes are answered
 * when their plan is committed. */
void membership_operation_turn(struct membership *m)
{
    const struct membership_operation *o = &m->operation;
    if (o->index != 0 && replica_configuration_index(m->replica) >= o->index &&
        replica_configuration_committed(m->replica) && may_move(m, &o->change, o->index)) {
        operation_end(m, 0);
    }
}
