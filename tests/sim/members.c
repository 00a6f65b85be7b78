/* members.c: an operator who removes nodes and adds them again, replaces them and moves them, while
 * other faults go on. It changes one node at a time. It repeats each change until it is done, and
 * the run does not end before that.
 *
 *   remove   asked for --> out of the log --> (its disk is emptied, or not) --> asked to be added
 *            --> a voter that has everything
 *   replace  asked for, with the incarnation that goes --> granted, planned or done before --> its
 *            disk is emptied, if it is still the one that goes --> a voter that has all
 *   move     asked for --> granted --> it is started there */
#include <stdio.h>

#include "members.h"

#define STAYS_MS 2000u /* that a node which is replaced runs on, in every other case */
#define BACK_MS 300u   /* until a node comes back whose disk was exchanged */

static void address_of(const struct sim_node *n, unsigned port, char out[MEMBER_ADDRESS_MAX])
{
    (void)snprintf(out, MEMBER_ADDRESS_MAX, "node%u:%u", n->index + 1, port);
}

static bool is_moved_here(const struct sim_node *n, const struct replica *r)
{
    char wanted[MEMBER_ADDRESS_MAX];
    const struct configuration_server *server =
        configuration_find(replica_configuration(r), n->index + 1);
    address_of(n, n->port, wanted);
    return server != NULL && strcmp(server->address, wanted) == 0;
}

/* Whoever has a move in its log cannot say that it will not be made: another leader may have it. */
static void check_move(const struct sim_node *n, int status)
{
    const struct sim_node *of = n->asked_of;
    bool asked = n->change == SIM_CHANGE_MOVE && of->life == n->asked_life && of->node != NULL;
    SIM_CHECK(n->sim, status != FL_ENOLEADER || !asked || !is_moved_here(n, of->node->replica),
              "node %u says that node %u is surely not moved, and has the move in its log",
              of->index + 1, n->index + 1);
    SIM_CHECK(n->sim,
              status != 0 || !asked ||
                  replica_configuration_index(of->node->replica) <= raft_commit_index(of->raft),
              "node %u says that node %u is moved, and that is not committed", of->index + 1,
              n->index + 1);
}

/* A replacement that was made before is as good as one that is made now. */
static void note_answer(struct sim_node *n, int status)
{
    n->granted = status == 0 || (status == FL_EEXISTS && n->change == SIM_CHANGE_REPLACE);
    sim_members_note_answer(n->sim, status);
}

static void answered(void *ctx, int status)
{
    struct sim_node *n = ctx;
    check_move(n, status);
    n->asked = false;
    note_answer(n, status);
    SIM_TRACE(n->sim, "a change of node %u ends with %s", n->index + 1, fl_err_name(status));
}

static void ask(struct sim_node *n, struct sim_node *leader, enum node_change_kind kind)
{
    struct sim *s = n->sim;
    struct node_change what = {.kind = kind, .id = n->index + 1};
    if (kind != NODE_CHANGE_REMOVE) {
        address_of(n, n->port, what.address);
    }
    if (kind == NODE_CHANGE_REPLACE) {
        what.incarnation = n->goes;
    }
    s->current = leader;
    n->asked = true;
    n->asked_of = leader;
    n->asked_life = leader->life;
    int rv = node_change(leader->node, &what, answered, n);
    s->current = NULL;
    if (rv != 0) {
        n->asked = false;
        note_answer(n, rv);
        return;
    }
    s->marks->plan_remove += kind == NODE_CHANGE_REMOVE;
    s->marks->plan_replace += kind == NODE_CHANGE_REPLACE;
    s->marks->plan_move += kind == NODE_CHANGE_MOVE;
    s->marks->plan_add += kind == NODE_CHANGE_ADD;
    SIM_TRACE(s, "change %d of node %u is asked of node %u", (int)kind, n->index + 1,
              leader->index + 1);
}

static uint64_t stays_until[SIM_NODES_MAX]; /* 0: it has not been granted yet */

/* Whether the one that is replaced runs on: it must not come back in its own place. */
static bool stays(const struct sim_node *n)
{
    uint64_t *until = &stays_until[n->index];
    if (*until == 0) {
        *until = n->sim->now + (n->goes % 2 == 0 ? STAYS_MS : 0);
    }
    return !n->sim->healed && n->sim->now < *until;
}

void sim_member_begin(struct sim_node *n, const struct sim_fault *f)
{
    static const enum sim_change kinds[] = {SIM_CHANGE_REMOVE, SIM_CHANGE_REPLACE, SIM_CHANGE_MOVE};
    /* One leads to the next, and addresses become longer and shorter. */
    static const unsigned ports[] = {31, 5002, 33, 604, 5};
    if (n->change != SIM_CHANGE_NONE) {
        return;
    }
    n->change = kinds[f->k % 3];
    n->keeps_disk = f->both;
    n->granted = false;
    n->goes = 0;
    stays_until[n->index] = 0;
    n->wiped = true;
    n->port = n->change == SIM_CHANGE_REMOVE ? n->port : ports[n->port % 5];
}

/* The node comes back at its address, with --join and an empty disk or with its old one. */
static void come_back(struct sim_node *n, bool empty)
{
    struct sim *s = n->sim;
    if (sim_node_runs(n)) {
        sim_node_crash(n, false);
    }
    if (empty) {
        sim_disk_wipe(n);
        n->joins = true;
    }
    n->listens = n->port;
    n->restart_at = s->now + BACK_MS;
}

static bool is_whole(const struct sim_node *n, const struct sim_node *leader)
{
    const struct replica *r = leader->node->replica;
    const struct configuration_server *server =
        configuration_find(replica_configuration(r), n->index + 1);
    return n->power == SIM_UP && server != NULL &&
           server->incarnation == n->disk.record.identity.incarnation &&
           server->role == CONFIGURATION_VOTER && replica_configuration_committed(r) &&
           sim_knows_all(n, r);
}

static void end(struct sim_node *n)
{
    SIM_TRACE(n->sim, "the change of node %u is done", n->index + 1);
    n->change = SIM_CHANGE_NONE;
    n->wiped = false;
    n->sim->marks->members_changed++;
}

static bool is_moved(const struct sim_node *n, const struct sim_node *leader)
{
    const struct replica *r = leader->node->replica;
    return is_moved_here(n, r) && replica_configuration_committed(r);
}

/* The one that OF of CLUSTER REPLACE names. */
static uint64_t incarnation_of(const struct sim_node *n, const struct sim_node *leader)
{
    const struct configuration_server *server =
        configuration_find(replica_configuration(leader->node->replica), n->index + 1);
    return server == NULL ? 0 : server->incarnation;
}

/* Whether the node loses its disk once more, after it has joined and before its operator is done.
 * Then it has to be replaced again. */
static bool wipe_again(struct sim_node *n, const struct sim_node *leader)
{
    struct sim *s = n->sim;
    uint64_t known = incarnation_of(n, leader);
    if (s->healed || known == 0 || known != n->disk.record.identity.incarnation ||
        !sim_node_runs(n) || sim_below(s, 8) != 0) {
        return false;
    }
    SIM_TRACE(s, "node %u loses its disk while it joins", n->index + 1);
    s->marks->wiped_while_joining++;
    n->goes = known;
    come_back(n, true);
    return true;
}

void sim_member_tend(struct sim_node *n)
{
    struct sim_node *leader = sim_leader(n->sim);
    if (leader == NULL || n->asked) {
        return;
    }
    const struct replica *r = leader->node->replica;
    struct machine_node node = *machine_node_find(fsm_machine(leader->node->fsm), n->index + 1);
    bool there = node.id != 0 || configuration_find(replica_configuration(r), n->index + 1) != NULL;
    switch (n->change) {
    case SIM_CHANGE_REMOVE:
        if (!there && replica_configuration_committed(r)) {
            come_back(n, !n->keeps_disk);
            n->change = SIM_CHANGE_ADD;
        } else if (node.plan == MACHINE_PLAN_NONE) {
            ask(n, leader, NODE_CHANGE_REMOVE);
        }
        break;
    case SIM_CHANGE_REPLACE:
        n->goes = n->goes != 0 ? n->goes : incarnation_of(n, leader);
        /* Another plan says nothing: it may still be the one by which the node was added. A disk
         * that was emptied before may have been taken in meanwhile: it stays. */
        if (n->granted || node.plan == MACHINE_PLAN_REPLACE) {
            if (stays(n)) {
                break;
            }
            come_back(n, n->disk.record.identity.incarnation == n->goes);
            n->change = SIM_CHANGE_ADD;
        } else {
            ask(n, leader, NODE_CHANGE_REPLACE);
        }
        break;
    case SIM_CHANGE_MOVE:
        if (!n->granted) {
            ask(n, leader, NODE_CHANGE_MOVE);
        } else if (is_moved(n, leader)) {
            come_back(n, false); /* where it is called from now on */
            end(n);
        }
        break;
    default:
        if (!there) {
            ask(n, leader, NODE_CHANGE_ADD);
        } else if (n->sim->orders.members_heavy && wipe_again(n, leader)) {
            n->change = SIM_CHANGE_REPLACE;
            n->granted = false;
        } else if (is_whole(n, leader)) {
            end(n);
        }
        break;
    }
}
