/* scenario_members.c: scenarios of members that come and go, and of founders (scenario.c). */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "members/membership_private.h"
#include "commands/proposer.h"
#include "consensus/message_codec.h"
#include "members.h"
#include "node_clock.h"
#include "scenario_steps.h"

#define BUSY_MS 250u   /* until the log takes what is on its way */
#define KNOWN_MS 3500u /* so long after its election a leader says whom it misses */
#define FOR_EVER_MS 86400000u
#define OFTEN (KNOWN_MEMBERS_MAX + 2)
#define FLOOD 2000u     /* commands: more than some entries have room for */
#define OTHER 100u      /* the first of the locks that are about nothing */
#define LEFT 200u       /* this one a client has left behind */
#define EXPIRE_SIZE 20u /* as in proposer.c */
#define ALONE 201u      /* and this is of one that asks for nothing else */

/* ---- removed ---- */

/* Whoever asks again for what is in the log already stands in nobody's way. */
static void ask_again(struct sim *s, const struct node_change *what)
{
    static int status;
    struct sim_node *leader = sim_leader(s);
    const struct membership *m = leader == NULL ? NULL : leader->node->membership;
    bool waits = m == NULL || m->operation.active || membership_transferring(m);
    int rv = waits ? 0 : scenario_ask(leader, what, &status);
    SIM_CHECK(s, rv != FL_EBUSY, "a leader is busy with the removal of node %llu, asked for again",
              ull(what->id));
}

void scenario_removed(struct sim *s)
{
    struct sim_node *n =
        scenario_other(s, scenario_the_leader(s), (unsigned)sim_below(s, s->n - 1));
    struct node_change what = {.kind = NODE_CHANGE_REMOVE, .id = n->index + 1};
    n->wiped = true; /* so it may end */
    bool hears = sim_below(s, 2) == 0;
    scenario_change(s, &what);
    ask_again(s, &what);
    if (!hears) {
        scenario_cut_off(n, LATE_MS);
    }
    sim_wait_for(n, scenario_is_no_member, LATE_MS, "it is not taken out");
    scenario_cut_off(n, 0);
    sim_wait_for(n, sim_is_down, LATE_MS, "it was removed, and goes on");
    sim_node_start(n);
    sim_wait_for(n, sim_is_down, LATE_MS, "it was removed and started again, and goes on");
    s->marks->scenarios_told++;
    scenario_leave_to_operator(n);
}

/* ---- busy ---- */
static bool waits_for_log(const struct sim_node *leader)
{
    const struct membership *m = leader->node->membership;
    return m->own_busy && !m->operation.active;
}

static bool is_formed(const struct sim_node *n)
{
    const struct sim_node *leader = sim_leader(n->sim);
    return leader != NULL && !waits_for_log(leader);
}

/* Two of five are gone. While one of them is to come back, and the log has not taken that yet, an
 * operator asks for the removal of a member; then another one ends. Whether the rest is a majority
 * when it is carried out, members_look.c judges. */
void scenario_busy(struct sim *s)
{
    struct sim_node *away[2] = {scenario_other(s, scenario_the_leader(s), 0),
                                scenario_other(s, scenario_the_leader(s), 1)};
    static int status;
    for (unsigned i = 0; i < 2; i++) {
        struct node_change remove = {.kind = NODE_CHANGE_REMOVE, .id = away[i]->index + 1};
        away[i]->wiped = true;
        scenario_change(s, &remove);
        sim_wait_for(away[i], scenario_is_no_member, LATE_MS, "it is not taken out");
        if (sim_node_runs(away[i])) {
            sim_node_crash(away[i], false);
        }
    }
    struct node_change back = {.kind = NODE_CHANGE_ADD, .id = away[0]->index + 1};
    (void)snprintf(back.address, sizeof back.address, "node%u:1", away[0]->index + 1);
    sim_pass(s, 3500); /* it is known who is up */
    scenario_change(s, &back);
    sim_disk_wipe(away[0]);
    away[0]->joins = true;
    sim_node_start(away[0]);
    struct sim_node *leader = scenario_the_leader(s);
    uint64_t until = s->now + SOON_MS;
    while (s->now < until && sim_leader(s) == leader && !waits_for_log(leader)) {
        sim_step(s);
    }
    struct sim_node *rest[2] = {NULL, NULL};
    for (unsigned i = 0; i < s->n; i++) {
        struct sim_node *n = &s->nodes[i];
        if (n != leader && n != away[0] && n != away[1]) {
            rest[rest[0] != NULL] = n;
        }
    }
    if (sim_leader(s) == leader && waits_for_log(leader)) {
        struct node_change remove = {.kind = NODE_CHANGE_REMOVE, .id = rest[0]->index + 1};
        leader->disk.stalled_until = rest[0]->disk.stalled_until = s->now + BUSY_MS;
        rest[0]->wiped = true;
        int rv = scenario_ask(leader, &remove, &status);
        sim_node_crash(rest[1], false);
        s->marks->scenarios_told += rv == 1;
        until = s->now + SOON_MS;
        while (rv == 1 && status == 1 && s->now < until) {
            sim_step(s);
        }
        sim_node_start(rest[1]);
    }
    sim_wait_for(leader, is_formed, LATE_MS, "nobody leads");
    scenario_leave_to_operator(rest[0]);
    scenario_leave_to_operator(away[0]);
    scenario_leave_to_operator(away[1]);
}

/* ---- four ---- */

static bool knows_who_is_up(const struct sim_node *n)
{
    const struct membership *m = n->node->membership;
    return sim_node_runs(n) && m->leads && sim_node_ms(n) - m->leads_since_ms >= KNOWN_MS;
}

static void must_be_denied(struct sim_node *leader, const struct node_change *what)
{
    static int status;
    bool knows = knows_who_is_up(leader) && membership_may_change(leader->node->membership);
    int rv = scenario_ask(leader, what, &status);
    SIM_CHECK(leader->sim, rv == FL_EDENIED || (!knows && (rv == FL_EBUSY || rv == FL_ENOLEADER)),
              "change %d of node %llu is answered %s, and two others do not decide alone",
              (int)what->kind, ull(what->id), rv == 1 ? "later" : fl_err_name(rv));
    leader->sim->marks->scenarios_told += rv == FL_EDENIED;
}

/* Four vote, and one of them is away: the two others that are up are no majority of four. */
void scenario_four(struct sim *s)
{
    struct sim_node *gone = scenario_other(s, scenario_the_leader(s), 0);
    struct node_change remove = {.kind = NODE_CHANGE_REMOVE, .id = gone->index + 1};
    gone->wiped = true;
    scenario_change(s, &remove);
    sim_wait_for(gone, scenario_is_no_member, LATE_MS, "it is not taken out");
    struct sim_node *leader = scenario_the_leader(s);
    struct sim_node *rest[3] = {NULL, NULL, NULL};
    for (unsigned i = 0, k = 0; i < s->n; i++) {
        if (&s->nodes[i] != gone && &s->nodes[i] != leader) {
            rest[k++] = &s->nodes[i];
        }
    }
    bool silent = sim_below(s, 2) == 0; /* its streams stay for some seconds more */
    if (silent) {
        scenario_cut_off(rest[0], KNOWN_MS + 2 * SOON_MS);
    } else {
        sim_node_crash(rest[0], false);
    }
    sim_pass(s, KNOWN_MS + SOON_MS);
    struct node_change move = {.kind = NODE_CHANGE_MOVE, .id = rest[1]->index + 1};
    (void)snprintf(move.address, sizeof move.address, "node%u:3", rest[1]->index + 1);
    if (sim_leader(s) == leader) {
        must_be_denied(leader, &move);
    }
    if (!silent) {
        sim_node_start(rest[0]);
    }
    sim_wait_for(rest[0], is_formed, LATE_MS, "nobody leads");
    scenario_leave_to_operator(gone);
}

/* ---- learner ---- */

static const struct configuration_server *server_of(const struct sim_node *n)
{
    const struct sim_node *leader = sim_leader(n->sim);
    return leader == NULL
               ? NULL
               : configuration_find(replica_configuration(leader->node->replica), n->index + 1);
}

static bool is_member(const struct sim_node *n)
{
    return server_of(n) != NULL;
}

static bool is_voter(const struct sim_node *n)
{
    const struct configuration_server *is = server_of(n);
    return is != NULL && is->role == CONFIGURATION_VOTER;
}

static void take_out(struct sim_node *n)
{
    struct node_change remove = {.kind = NODE_CHANGE_REMOVE, .id = n->index + 1};
    n->wiped = true;
    scenario_change(n->sim, &remove);
    sim_wait_for(n, scenario_is_no_member, LATE_MS, "it is not taken out");
    if (sim_node_runs(n)) {
        sim_node_crash(n, false);
    }
}

static void bring_in(struct sim_node *n)
{
    struct node_change add = {.kind = NODE_CHANGE_ADD, .id = n->index + 1};
    (void)snprintf(add.address, sizeof add.address, "node%u:1", n->index + 1);
    sim_disk_wipe(n);
    n->joins = true;
    sim_node_start(n);
    scenario_change(n->sim, &add);
}

/* Whoever is behind, and has heard of the predecessor last, tells the successor how often that one
 * was started. */
static void tell_of_predecessor(struct sim_node *n, const struct sim_node *by, uint64_t incarnation)
{
    uint8_t body[STARTS_MESSAGE_MAX];
    struct starts told = by->disk.record.starts;
    told.n = 1;
    told.known[0] = (struct starts_known){.id = n->index + 1, .incarnation = incarnation};
    told.known[0].start =
        (struct start){.number = n->disk.record.starts.own.number + 4, .nonce = 1};
    size_t len = starts_message_encode(&told, by->index + 1, by->disk.record.identity.incarnation,
                                       0, 0, body);
    n->sim->current = n;
    int rv = membership_receive_starts(n->node->membership, by->index + 1,
                                       (struct fli_slice){body, len});
    n->sim->current = NULL;
    FLI_ASSERT(rv == 0);
}

/* A learner is cut off before it votes. The next one that is added does not wait for it. */
void scenario_learner(struct sim *s)
{
    struct sim_node *leader = scenario_the_leader(s);
    struct sim_node *away = scenario_other(s, leader, 0);
    struct sim_node *next = scenario_other(s, leader, 1 + (unsigned)sim_below(s, s->n - 2));
    uint64_t before = away->disk.record.identity.incarnation;
    take_out(away);
    take_out(next);
    bring_in(away);
    sim_wait_for(away, is_member, LATE_MS, "it is not added");
    tell_of_predecessor(away, scenario_the_leader(s), before);
    s->marks->scenarios_told += !is_voter(away);
    scenario_cut_off(away, 4 * LATE_MS);
    bring_in(next);
    sim_wait_for(next, is_voter, 2 * LATE_MS, "it does not vote while another one is away");
    scenario_cut_off(away, 0);
    sim_wait_for(away, is_voter, LATE_MS, "it does not vote");
    scenario_leave_to_operator(away);
    scenario_leave_to_operator(next);
}

/* ---- awaited ---- */

static bool leaves_now(const struct sim_node *leader, const struct sim_node *n)
{
    return machine_node_find(fsm_machine(leader->node->fsm), n->index + 1)->plan ==
               MACHINE_PLAN_REMOVE &&
           configuration_find(replica_configuration(leader->node->replica), n->index + 1) != NULL;
}

/* One that is waited for may not be removed while another one leaves: its plan would withdraw the
 * other one's, of which the operator was told that it is made. */
void scenario_awaited(struct sim *s)
{
    static int first, second;
    struct sim_node *leader = scenario_the_leader(s);
    struct sim_node *away = scenario_other(s, leader, 0);
    struct sim_node *leaving = scenario_other(s, leader, 1);
    take_out(away);
    struct node_change add = {.kind = NODE_CHANGE_ADD, .id = away->index + 1};
    struct node_change remove = {.kind = NODE_CHANGE_REMOVE, .id = leaving->index + 1};
    struct node_change other = {.kind = NODE_CHANGE_REMOVE, .id = away->index + 1};
    (void)snprintf(add.address, sizeof add.address, "node%u:1", away->index + 1);
    scenario_change(s, &add); /* and nobody comes */
    sim_pass(s, KNOWN_MS);
    leaving->wiped = true;
    leader = scenario_the_leader(s);
    uint64_t until = s->now + SOON_MS;
    if (leader != leaving && scenario_ask(leader, &remove, &first) == 1) {
        while (first == 1 && s->now < until) {
            sim_step(s);
        }
        bool leaves = sim_leader(s) == leader && leaves_now(leader, leaving);
        int rv = leaves ? scenario_ask(leader, &other, &second) : FL_EBUSY;
        s->marks->scenarios_told += leaves;
        SIM_CHECK(s, rv == FL_EBUSY || rv == FL_ENOLEADER,
                  "node %u is to be removed while node %u leaves: %s", away->index + 1,
                  leaving->index + 1, rv == 1 ? "later" : fl_err_name(rv));
    }
    scenario_change(s, &remove);
    sim_wait_for(leaving, scenario_is_no_member, LATE_MS, "it is not taken out");
    sim_disk_wipe(away);
    away->joins = true;
    sim_node_start(away);
    sim_wait_for(away, is_voter, LATE_MS, "it does not vote");
    scenario_leave_to_operator(away);
    scenario_leave_to_operator(leaving);
}

/* ---- forced ---- */

/* A removal that was forced is carried out, whoever is away. Another one does not withdraw it. */
void scenario_forced(struct sim *s)
{
    static int first, second;
    struct sim_node *leader = scenario_the_leader(s);
    struct sim_node *leaving = scenario_other(s, leader, 0);
    struct sim_node *other = scenario_other(s, leader, 1);
    struct sim_node *away[2] = {scenario_other(s, leader, 2), scenario_other(s, leader, 3)};
    struct node_change remove = {.kind = NODE_CHANGE_REMOVE, .id = leaving->index + 1};
    struct node_change another = {.kind = NODE_CHANGE_REMOVE, .id = other->index + 1};
    remove.force = another.force = true;
    leaving->wiped = true;
    sim_node_crash(away[0], false);
    sim_node_crash(away[1], false);
    sim_pass(s, KNOWN_MS + SOON_MS);
    uint64_t until = s->now + SOON_MS;
    if (sim_leader(s) == leader && scenario_ask(leader, &remove, &first) == 1) {
        while (first == 1 && s->now < until) {
            sim_step(s);
        }
        bool leaves = first == 0 && sim_leader(s) == leader && leaves_now(leader, leaving);
        int rv = leaves ? scenario_ask(leader, &another, &second) : FL_EBUSY;
        s->marks->scenarios_told += leaves;
        SIM_CHECK(s, rv == FL_EBUSY || rv == FL_ENOLEADER,
                  "node %u is to be removed, and the forced removal of node %u is withdrawn: %s",
                  other->index + 1, leaving->index + 1, rv == 1 ? "later" : fl_err_name(rv));
    }
    sim_node_start(away[0]);
    sim_node_start(away[1]);
    scenario_change(s, &remove);
    sim_wait_for(leaving, scenario_is_no_member, LATE_MS, "it is not taken out");
    scenario_leave_to_operator(leaving);
}

/* ---- moved ---- */

static void be_moved(struct sim_node *n, const struct node_change *what, unsigned port)
{
    struct sim *s = n->sim;
    scenario_change(s, what);
    const struct configuration_server *is = server_of(n);
    SIM_CHECK(s, is == NULL || strcmp(is->address, what->address) == 0,
              "node %u is moved to %s, and is said to be at %s", n->index + 1, what->address,
              is->address);
    n->port = n->listens = port;
    sim_node_crash(n, false);
    sim_node_start(n);
    sim_wait_for(n, scenario_has_all, LATE_MS, "it does not catch up");
}

/* A command of the cluster's own ends while a node is being moved. It is no answer to whoever has
 * asked for that. */
void scenario_moved(struct sim *s)
{
    static int status;
    struct sim_node *away = scenario_other(s, scenario_the_leader(s), 0);
    take_out(away);
    sim_pass(s, KNOWN_MS);
    struct sim_node *leader = scenario_the_leader(s);
    struct sim_node *moves = scenario_other(s, leader, scenario_other(s, leader, 0) == away);
    struct node_change move = {.kind = NODE_CHANGE_MOVE, .id = moves->index + 1};
    (void)snprintf(move.address, sizeof move.address, "node%u:5003", moves->index + 1);
    bring_in(away);
    uint64_t until = s->now + SOON_MS;
    for (status = -1; status < 0 && s->now < until && sim_leader(s) == leader;) {
        sim_step(s);
        if (waits_for_log(leader)) {
            (void)scenario_ask(leader, &move, &status);
            s->marks->scenarios_told += status == 1;
        }
    }
    while (status == 1) {
        sim_step(s);
        const struct replica *r = leader->node->replica;
        SIM_CHECK(s,
                  status != 0 || replica_configuration_index(r) <= raft_commit_index(leader->raft),
                  "node %u says that node %u is moved, and that is not committed",
                  leader->index + 1, moves->index + 1);
    }
    be_moved(moves, &move, 5003);
    (void)snprintf(move.address, sizeof move.address, "node%u:3", moves->index + 1);
    be_moved(moves, &move, 3);
    scenario_leave_to_operator(away);
}

/* ---- often ---- */

static bool is_done(const struct sim_node *n)
{
    return n->change == SIM_CHANGE_NONE && !n->wiped;
}

static bool all_follow(const struct sim_node *n)
{
    struct sim *s = n->sim;
    struct sim_node *leader = sim_leader(s);
    bool all = leader != NULL;
    s->current = leader; /* its clock is the one that is read */
    for (unsigned i = 0; i < s->n && all; i++) {
        all = i == leader->index || relay_has_follower(&leader->node->relay, i + 1);
    }
    s->current = NULL;
    return all;
}

/* More often than a node has places for others. A leader that has not heard of one of them may not
 * leave. */
void scenario_often(struct sim *s)
{
    sim_wait_for(&s->nodes[0], all_follow, LATE_MS, "not all follow who leads");
    struct sim_node *leader = sim_leader(s);
    struct sim_node *n = sim_below(s, 2) == 0 ? leader : scenario_other(s, leader, 0);
    struct sim_node *far = scenario_other(s, leader, 1);
    unsigned connect_ms = far->transport->connect_ms;
    if (n != leader || sim_below(s, 2) == 0) {
        scenario_cut(n, far, FOR_EVER_MS);
        far->transport->connect_ms = FOR_EVER_MS;
        sim_net_break(s, n->index, far->index);
    }
    sim_tend(s);
    for (unsigned i = 0; i < OFTEN; i++) {
        const struct sim_fault f = {.kind = SIM_FAULT_MEMBER, .both = i % 2 == 0};
        sim_wait_for(n, is_done, LATE_MS, "it is not taken in");
        sim_member_begin(n, &f);
    }
    sim_wait_for(n, is_done, LATE_MS, "it is not taken in");
    scenario_cut(n, far, 0);
    far->transport->connect_ms = connect_ms; /* a call to whoever ends meanwhile has an end again */
    s->marks->scenarios_told++;
}

/* ---- founders ---- */

static bool has_begun(const struct sim_node *n)
{
    return sim_node_runs(n) && replica_configuration(n->node->replica)->n != 0;
}

/* All have written the founders once one has begun: the cluster is formed without a third. */
void scenario_found(struct sim *s)
{
    struct sim_node *first = NULL;
    while (first == NULL) {
        sim_step(s);
        for (unsigned i = 0; i < s->n; i++) {
            first = has_begun(&s->nodes[i]) ? &s->nodes[i] : first;
        }
    }
    struct sim_node *away = scenario_other(s, first, (unsigned)sim_below(s, s->n - 1));
    s->marks->scenarios_told += !has_begun(away);
    sim_node_crash(away, sim_below(s, 2) == 0);
    sim_wait_for(first, scenario_leads, LATE_MS,
                 "the cluster is not formed without one that is away");
    sim_node_start(away);
}

void scenario_founders(struct sim *s)
{
    sim_wait_for(&s->nodes[0], scenario_is_settled, LATE_MS, "it does not settle");
}

/* ---- deposed ---- */

struct request {
    struct node_ticket t;
    bool over, done;
    unsigned after; /* so many others were over */
    uint64_t token;
};

static unsigned over;

static void on_answer(struct node_ticket *t, int status, const struct machine_result *result,
                      struct fli_slice payload)
{
    struct request *r = FLI_CONTAINER_OF(t, struct request, t);
    r->over = true;
    r->after = over++;
    r->done = status == 0 && (result->code == MACHINE_DONE || result->code == MACHINE_GRANTED);
    r->token = r->done ? result->token : 0;
}

/* The node takes a turn. */
static void wake(struct sim_event *e)
{
}

/* About a lock of a long ttl, that has the token. */
static int ask_node(struct sim_node *n, uint8_t op, unsigned lock, uint64_t token,
                    struct request *r)
{
    uint8_t name[SIM_FILLER_LEN];
    struct machine_command c = {.op = op, .n_names = 1, .token = token};
    scenario_filler(lock, name);
    c.name = (struct fli_slice){name, sizeof name};
    if (op == MACHINE_OP_ACQUIRE) {
        c.owner = c.name;
        c.ttl_ms = FOR_EVER_MS;
        c.permits = 1;
    }
    *r = (struct request){.t = {.source = lock == LEFT    ? NODE_SOURCE_CLEANUP
                                          : lock == ALONE ? ALONE
                                                          : 0}};
    (void)sim_to_node(n, 0, wake);
    return scenario_send(n, &c, &r->t, on_answer);
}

/* At this node, until it is done. Returns its token. */
static uint64_t carry_out(struct sim_node *n, uint8_t op, unsigned lock)
{
    static struct request r;
    int rv = ask_node(n, op, lock, 0, &r);
    SIM_CHECK(n->sim, rv == 0, "node %u takes no command: %s", n->index + 1, fl_err_name(rv));
    uint64_t until = n->sim->now + LATE_MS;
    while (!r.over && n->sim->now < until) {
        sim_step(n->sim);
    }
    SIM_CHECK(n->sim, r.done, "node %u does not do what it took", n->index + 1);
    return r.token;
}

static void forget(struct node_ticket *t, int status, const struct machine_result *result,
                   struct fli_slice payload)
{
    free(t);
}

static bool is_open(const struct sim_node *n)
{
    return sim_node_runs(n) && proposer_is_open(&n->node->proposer);
}

/* Answers to its rounds come then; 0: like all else. */
static void late_answers(struct sim_node *n, uint64_t at)
{
    for (unsigned i = 0; i < n->sim->n; i++) {
        n->sim->links[i][n->index].rounds_at = at;
    }
}

/* A round is on its way, and nobody awaits it: an entry that stood behind who asked has shown that
 * the node led then. */
static void ask_before(struct sim_node *n, unsigned lock)
{
    static struct request r;
    uint64_t until = n->sim->now + LATE_MS;
    late_answers(n, until);
    int rv = ask_node(n, MACHINE_OP_SHOW, lock, 0, &r);
    SIM_CHECK(n->sim, rv == 0, "node %u takes no query: %s", n->index + 1, fl_err_name(rv));
    sim_pass(n->sim, 1);
    (void)carry_out(n, MACHINE_OP_ACQUIRE, OTHER + lock);
    (void)carry_out(n, MACHINE_OP_BREAK, OTHER + lock);
    while (!r.over && n->sim->now < until) {
        sim_step(n->sim);
    }
    SIM_CHECK(n->sim, r.over, "node %u does not answer what an entry has shown", n->index + 1);
}

/* The node answers with a round. */
static void ask_now(struct sim_node *n, unsigned lock)
{
    static struct request r;
    uint64_t until = n->sim->now + LATE_MS;
    int rv = ask_node(n, MACHINE_OP_SHOW, lock, 0, &r);
    SIM_CHECK(n->sim, rv == 0, "node %u takes no query: %s", n->index + 1, fl_err_name(rv));
    while (!r.over && n->sim->now < until) {
        sim_step(n->sim);
    }
    SIM_CHECK(n->sim, r.over, "node %u does not answer a query", n->index + 1);
}

/* A request to take over comes late: its sender has given that up, and leads on. */
void scenario_take_over_late(struct sim_node *n, const struct sim_node *from)
{
    uint8_t body[24];
    const struct replica *r = from->node->replica;
    fli_put_u64(body, replica_term(r));
    fli_put_u64(body + 8, log_last_index(from->node->log));
    fli_put_u64(body + 16, log_last_term(from->node->log));
    n->sim->current = n;
    int rv =
        replica_receive(n->node->replica, sim_node_ms(n), from->disk.record.identity.incarnation,
                        MESSAGE_TIMEOUT_NOW, (struct fli_slice){body, sizeof body});
    n->sim->current = NULL;
    FLI_ASSERT(rv == 0);
    (void)sim_to_node(n, 0, wake);
}

/* Else it does not take over. */
static bool is_on_disk(const struct sim_node *n)
{
    return sim_node_runs(n) && log_durable_index(n->node->log) == log_last_index(n->node->log);
}

/* The lease is over, and the leader of before may not know that it leads no more. */
void scenario_deposed(struct sim *s)
{
    static struct request r;
    for (unsigned i = 0; i < 4; i++) {
        struct sim_node *old = scenario_the_leader(s);
        struct sim_node *others[2] = {scenario_other(s, old, 0), scenario_other(s, old, 1)};
        sim_wait_for(old, scenario_is_settled, LATE_MS, "it does not settle");
        uint64_t token = carry_out(old, MACHINE_OP_ACQUIRE, i);
        uint64_t term = replica_term(old->node->replica);
        sim_pass(s, SOON_MS); /* no entry stands in front of the renewal */
        bool asks = sim_below(s, 2) == 0;
        ask_now(old, i);
        if (asks) {
            ask_before(old, i);
        }
        sim_wait_for(old, scenario_is_settled, LATE_MS, "it does not settle");
        sim_wait_for(others[0], is_on_disk, LATE_MS, "its disk has not got all that it has heard");
        scenario_take_over_late(others[0], old);
        uint64_t until = s->now + LATE_MS;
        while (replica_term(others[0]->node->replica) <= term && s->now < until) {
            sim_step(s);
        }
        scenario_cut_off(old, LATE_MS);
        while (!is_open(others[0]) && !is_open(others[1])) {
            sim_step(s);
            SIM_CHECK(s, s->now < until, "nobody leads in the place of node %u", old->index + 1);
        }
        (void)carry_out(is_open(others[0]) ? others[0] : others[1], MACHINE_OP_BREAK, i);
        if (is_open(old) && ask_node(old, MACHINE_OP_RENEW, i, token, &r) == 0) {
            s->marks->scenarios_told++;
            sim_pass(s, 1);
            late_answers(old, asks ? s->now : 0);
            until = s->now + LATE_MS;
            while (!r.over && s->now < until) {
                sim_step(s);
            }
            SIM_CHECK(s, r.over && !r.done, "node %u renews a lease that its successor has ended",
                      old->index + 1);
        }
        late_answers(old, 0);
        scenario_cut_off(old, 0);
        sim_wait_for(old, scenario_has_all, LATE_MS, "it does not catch up");
    }
}

/* ---- crowded ---- */

/* Of commands that all have this size, a batch has hardly any room left for anything else. They
 * cost so little that it is full by its bytes. */
static bool fills(const struct sim_node *leader, unsigned len, size_t *size)
{
    uint8_t name[SIM_FILLER_LEN] = {0};
    struct machine_command c = {.op = MACHINE_OP_RELEASE, .n_names = 1, .name = {name, len}};
    struct fli_buf buf;
    fli_buf_init(&buf, MACHINE_COMMAND_MAX);
    int rv = machine_command_encode(&c, &buf);
    FLI_ASSERT(rv == 0);
    *size = buf.len;
    fli_buf_fini(&buf);
    return (leader->node->proposer.config.batch_max - MACHINE_BATCH_HEADER_SIZE) % *size <
           EXPIRE_SIZE;
}

static void ask_much(struct sim_node *leader, unsigned len, unsigned n)
{
    uint8_t name[SIM_FILLER_LEN];
    struct machine_command c = {.op = MACHINE_OP_RELEASE, .n_names = 1};
    memset(name, '.', sizeof name);
    c.name = (struct fli_slice){name, len};
    for (unsigned i = 0; i < n; i++) {
        struct node_ticket *t = fli_xcalloc(1, sizeof *t);
        int rv = scenario_send(leader, &c, t, forget);
        FLI_ASSERT(rv == 0);
    }
}

static bool holds_any(const struct sim_node *n)
{
    struct machine_counts counts;
    machine_get_counts(fsm_machine(n->node->fsm), &counts);
    return counts.locks > 0;
}

/* A lease ends while others ask for more than each entry has room for. */
void scenario_crowded(struct sim *s)
{
    static struct request r;
    struct sim_node *leader = scenario_the_leader(s);
    struct machine_command c = {.op = MACHINE_OP_ACQUIRE, .ttl_ms = BUSY_MS, .permits = 1};
    uint8_t name[SIM_FILLER_LEN];
    unsigned len = 50;
    size_t size = 0;
    sim_wait_for(leader, scenario_is_settled, LATE_MS, "it does not settle");
    while (len < sizeof name && !fills(leader, len, &size)) {
        len++;
    }
    scenario_filler(1, name);
    c.n_names = 1;
    c.name = c.owner = (struct fli_slice){name, sizeof name};
    r = (struct request){.over = false};
    int rv = scenario_send(leader, &c, &r.t, on_answer);
    FLI_ASSERT(rv == 0 && len < sizeof name);
    while (!r.over && sim_leader(s) == leader) {
        sim_step(s);
    }
    uint64_t until = s->now + SOON_MS;
    unsigned each = (unsigned)(8 * leader->node->proposer.config.batch_max / size);
    while (holds_any(leader) && sim_leader(s) == leader) {
        if (leader->node->commands.count < each) {
            ask_much(leader, len, each);
        }
        sim_step(s);
        SIM_CHECK(s, s->now < until, "node %u ends no lease while clients ask for more",
                  leader->index + 1);
    }
    s->marks->scenarios_told += sim_leader(s) == leader;
}

/* ---- flooded ---- */

static void flood(struct sim_node *leader, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        scenario_add(leader, MACHINE_OP_BREAK, FILLERS);
    }
}

/* Whoever sends one command has its turn among thousands of another client; so has what a third one
 * has left behind. */
void scenario_flooded(struct sim *s)
{
    static struct request left, last, alone;
    struct sim_node *leader = scenario_the_leader(s);
    sim_wait_for(leader, scenario_is_settled, LATE_MS, "it does not settle");
    int rv = ask_node(leader, MACHINE_OP_BREAK, ALONE, 0, &alone);
    flood(leader, FLOOD);
    rv = rv != 0 ? rv : ask_node(leader, MACHINE_OP_BREAK, LEFT, 0, &left);
    flood(leader, FLOOD);
    rv = rv != 0 ? rv : ask_node(leader, MACHINE_OP_BREAK, 1, 0, &last);
    SIM_CHECK(s, rv == 0, "node %u takes no command: %s", leader->index + 1, fl_err_name(rv));
    uint64_t until = s->now + LATE_MS;
    while (!last.over && s->now < until) {
        sim_step(s);
    }
    s->marks->scenarios_told += last.over;
    SIM_CHECK(s, alone.over && alone.after < last.after,
              "node %u serves one client when another has nothing left to ask", leader->index + 1);
    SIM_CHECK(s, left.over && left.after < last.after,
              "node %u cleans up when nobody asks for anything", leader->index + 1);
}
