/* members_look.c: what must hold of members, whatever an operator asks for; and what a run with
 * many changes of members has reached (--members-heavy).
 *
 *   - A node that has a configuration lets in only members; and whoever names a later configuration
 *     in which it is one. Whoever is only waited for may be the second one of its name, so the
 *     leader alone decides.
 *   - No incarnation is added that was a member before; no member is told that it is none.
 *   - What a node knows of the present incarnation of another is never forgotten for an older one.
 *   - A node tells of no entry that is not committed, since the others would miss it later.
 *   - A node that was welcomed notes that its start is known.
 *   - Whoever is refused as an older copy is one, and whoever ends as one that was removed was.
 *   - A successor that comes before its predecessor has left waits, and is not told to end.
 *   - What a node says of the committed members is no older than what its core was told. */
#include "members.h"

#include <string.h>

#include "members/membership_private.h"
#include "node_clock.h"

#define NEW_LEADER_MS 3000u /* as in membership_change.c */

/* Mostly changes of members, and what makes them hard. */
void sim_members_choose(struct sim *s)
{
    static const unsigned wanted[SIM_FAULT_KINDS] = {
        [SIM_FAULT_MEMBER] = 20, [SIM_FAULT_WIPE] = 3,  [SIM_FAULT_DISMISS] = 3,
        [SIM_FAULT_OLDER] = 3,   [SIM_FAULT_CRASH] = 5, [SIM_FAULT_TRANSFER] = 4,
        [SIM_FAULT_CUT] = 4,     [SIM_FAULT_PAUSE] = 3, [SIM_FAULT_JOIN] = 6,
        [SIM_FAULT_STOP] = 2,
    };
    struct sim_options *o = &s->options;
    if (!s->orders.members_heavy) {
        return;
    }
    for (unsigned k = 0; k < SIM_FAULT_KINDS; k++) {
        o->weight[k] = wanted[k] != 0 ? wanted[k] : o->weight[k] != 0;
    }
    o->starts_fail = s->orders.seed % 3 == 0;
    o->snapshot_entries = o->snapshot_entries == 0 ? 40 : o->snapshot_entries;
    o->fault_every_ms = o->fault_every_ms > 250 ? 250 : o->fault_every_ms;
}

size_t __real_node_record_message(const struct node_record *k, uint8_t out[STARTS_MESSAGE_MAX]);
size_t __wrap_node_record_message(const struct node_record *k, uint8_t out[STARTS_MESSAGE_MAX]);

size_t __wrap_node_record_message(const struct node_record *k, uint8_t out[STARTS_MESSAGE_MAX])
{
    struct sim *s = sim_running;
    struct starts_message told;
    size_t len = __real_node_record_message(k, out);
    int rv = starts_message_decode((struct fli_slice){out, len}, &told);
    SIM_CHECK(s, rv == 0 && told.index <= replica_commit_index(k->replica),
              "node %llu tells of entry %llu, and has committed %llu",
              (unsigned long long)k->own.now.identity.id, (unsigned long long)told.index,
              (unsigned long long)replica_commit_index(k->replica));
    sim_steps_told(s->current, &told);
    return len;
}

void sim_members_check_starts(const struct membership *m, const struct starts *before)
{
    const struct identity *id = &membership_now(m)->identity;
    const struct configuration *c = replica_configuration(m->replica);
    for (unsigned i = 0; i < c->n; i++) {
        const struct configuration_server *k = &c->servers[i];
        const struct starts_known *was = starts_find(before, k->incarnation);
        const struct starts_known *is = starts_find(&membership_now(m)->starts, k->incarnation);
        SIM_CHECK(sim_running,
                  was == NULL || (is != NULL && is->start.number >= was->start.number &&
                                  is->index >= was->index),
                  "node %llu has lost what it knew of node %llu", (unsigned long long)id->id,
                  (unsigned long long)k->id);
    }
}

/* ---- who was a member, and when ---- */

static void note_incarnation(struct sim *s, uint64_t index, uint64_t id, uint64_t incarnation)
{
    struct sim_oracle *o = &s->oracle;
    for (size_t i = o->joined_len; i > 0; i--) {
        if (o->joined[i - 1].id == id && o->joined[i - 1].incarnation == incarnation) {
            return;
        }
        if (o->joined[i - 1].id == id) {
            break;
        }
    }
    o->joined = sim_grow(o->joined, &o->joined_cap, o->joined_len + 1, sizeof *o->joined);
    o->joined[o->joined_len++] = (struct sim_joined){index, id, incarnation};
}

/* The first node that knows that a configuration is committed tells the judge. */
static void note_committed(const struct sim_node *by)
{
    uint64_t index;
    const struct configuration *c = replica_committed_configuration(by->node->replica, &index);
    for (unsigned i = 0; c != NULL && index > by->sim->oracle.joined_index && i < by->sim->n; i++) {
        const struct configuration_server *server = configuration_find(c, i + 1);
        note_incarnation(by->sim, index, i + 1, server == NULL ? 0 : server->incarnation);
    }
    if (index > by->sim->oracle.joined_index) {
        by->sim->oracle.joined_index = index;
    }
}

/* As of that entry, as the log says; 0: none. */
static uint64_t incarnation_at(const struct sim *s, uint64_t id, uint64_t index)
{
    for (size_t i = s->oracle.joined_len; i > 0; i--) {
        const struct sim_joined *j = &s->oracle.joined[i - 1];
        if (j->id == id && j->index <= index) {
            return j->incarnation;
        }
    }
    return 0;
}

static bool was_ever(const struct sim *s, uint64_t id, uint64_t incarnation)
{
    for (size_t i = 0; i < s->oracle.joined_len; i++) {
        const struct sim_joined *j = &s->oracle.joined[i];
        if (j->id == id && j->incarnation == incarnation) {
            return true;
        }
    }
    return false;
}

bool sim_members_is_known(const struct sim *s, uint64_t incarnation)
{
    bool known = false;
    for (unsigned i = 0; i < s->n; i++) {
        known = known || s->nodes[i].disk.record.identity.incarnation == incarnation;
    }
    for (size_t i = 0; i < s->oracle.joined_len && !known; i++) {
        known = s->oracle.joined[i].incarnation == incarnation;
    }
    return known;
}

void sim_members_check_went_back(const struct sim_node *by, const struct peer_identity *peer,
                                 enum handshake_verdict verdict)
{
    const struct sim_node *n = &by->sim->nodes[peer->node_id - 1];
    bool may = n->wiped || n->rotten || n->disk.unseen || n->older.phase >= SIM_OLDER_BACK ||
               n->disk.record.identity.incarnation != peer->incarnation ||
               !start_is(n->disk.record.starts.own, peer->start); /* it has started again */
    SIM_CHECK(by->sim, verdict != HANDSHAKE_WENT_BACK || may,
              "node %u takes the disk of node %u for an older copy, and it is its own",
              by->index + 1, n->index + 1);
}

/* Its own log tells it so. What others tell it is judged where they do. */
void sim_members_check_end(const struct sim_node *n, const char *why)
{
    struct sim *s = n->sim;
    SIM_CHECK(s, strstr(why, "or a second one") == NULL || n->older.phase >= SIM_OLDER_BACK,
              "node %u ends as an older copy, and is none", n->index + 1);
    if (strstr(why, "this node was removed from the cluster") == NULL) {
        return;
    }
    for (unsigned i = 0; i < s->n; i++) {
        if (s->nodes[i].power == SIM_UP && s->nodes[i].node != NULL) {
            note_committed(&s->nodes[i]);
        }
    }
    SIM_CHECK(s, incarnation_at(s, n->index + 1, UINT64_MAX) != n->disk.record.identity.incarnation,
              "node %u ends since it was removed, and that is not committed", n->index + 1);
}

/* Nobody who is a member by all that the judge knows is told that it is none; nor that it has lost
 * its data, by whoever knows what the log says. */
static void check_refused(const struct sim_node *by, const struct peer_identity *peer,
                          enum handshake_verdict verdict)
{
    bool none = verdict == HANDSHAKE_REMOVED || verdict == HANDSHAKE_OTHER_INCARNATION;
    uint64_t index;
    note_committed(by);
    (void)replica_committed_configuration(by->node->replica, &index);
    index = verdict == HANDSHAKE_REMOVED ? UINT64_MAX : index;
    SIM_CHECK(by->sim, !none || incarnation_at(by->sim, peer->node_id, index) != peer->incarnation,
              "node %u tells member %llu that it is none", by->index + 1,
              (unsigned long long)peer->node_id);
    struct machine_node e = *machine_node_find(fsm_machine(by->node->fsm), peer->node_id);
    SIM_CHECK(by->sim,
              verdict != HANDSHAKE_OTHER_INCARNATION ||
                  (e.plan != MACHINE_PLAN_ADD && e.plan != MACHINE_PLAN_REPLACE),
              "node %u tells node %llu, for which it waits, that it has lost its data",
              by->index + 1, (unsigned long long)peer->node_id);
}

/* What a leader of a former term adds is never committed; a later one may have added it. */
static bool is_overtaken(const struct sim_node *by)
{
    bool overtaken = false;
    for (unsigned i = 0; i < by->sim->n; i++) {
        const struct sim_node *n = &by->sim->nodes[i];
        overtaken =
            overtaken || (n->power == SIM_UP && n->node != NULL && n->node->replica != NULL &&
                          replica_term(n->node->replica) > replica_term(by->node->replica));
    }
    return overtaken;
}

void sim_members_check_added(const struct sim_node *by, const struct configuration_server *added)
{
    sim_operations_joins(by, added->id, added->incarnation);
    SIM_CHECK(by->sim, is_overtaken(by) || !was_ever(by->sim, added->id, added->incarnation),
              "node %u adds an incarnation of node %llu that was a member before", by->index + 1,
              (unsigned long long)added->id);
}

/* Whether this node may speak with that incarnation, by the log that it knows. */
static bool may_be_let_in(const struct sim_node *by, const struct peer_identity *peer)
{
    uint64_t index;
    const struct configuration *now = replica_configuration(by->node->replica);
    const struct configuration *then = replica_committed_configuration(by->node->replica, &index);
    if (now->n == 0 || configuration_server(now, peer->incarnation) != NULL ||
        (then != NULL && configuration_server(then, peer->incarnation) != NULL) ||
        peer->member_index > replica_configuration_index(by->node->replica)) {
        return true;
    }
    return peer->member_index == 0 && configuration_find(now, peer->node_id) == NULL &&
           proposer_is_open(&by->node->proposer) &&
           machine_node_find(fsm_machine(by->node->fsm), peer->node_id)->plan == MACHINE_PLAN_ADD;
}

void sim_members_check_welcome(struct sim_node *by, const struct peer_identity *peer,
                               enum handshake_verdict verdict)
{
    if (verdict == HANDSHAKE_WELCOME) {
        SIM_CHECK(by->sim, may_be_let_in(by, peer),
                  "node %u, which %s, lets in an incarnation of node %llu that has not joined",
                  by->index + 1, proposer_is_open(&by->node->proposer) ? "leads" : "does not lead",
                  (unsigned long long)peer->node_id);
        sim_steps_let_in(by, peer);
    }
}

void sim_members_check_verdict(struct sim_node *by, const struct peer_identity *peer,
                               enum handshake_verdict verdict)
{
    struct sim_marks *marks = by->sim->marks;
    sim_members_check_welcome(by, peer, verdict);
    check_refused(by, peer, verdict);
    sim_members_check_went_back(by, peer, verdict);
    marks->called_welcome += verdict == HANDSHAKE_WELCOME;
    marks->called_undecided += verdict == HANDSHAKE_UNDECIDED;
    marks->called_stranger += verdict == HANDSHAKE_STRANGER;
    marks->called_wiped += verdict == HANDSHAKE_OTHER_INCARNATION;
    marks->called_removed += verdict == HANDSHAKE_REMOVED;
    marks->called_older += verdict == HANDSHAKE_WENT_BACK;
}

void sim_members_welcomed(const struct sim_node *n)
{
    SIM_CHECK(n->sim, n->node->record.own.now.starts.next.number != 0,
              "node %u was welcomed, and has not noted that its start is known", n->index + 1);
}

/* A node whose log says that it was removed ends. */
void sim_members_node(struct sim_node *n)
{
    uint64_t index;
    const struct replica *r = n->node->replica;
    const struct configuration *c = replica_committed_configuration(r, &index);
    uint64_t was = replica_member_index(r);
    uint64_t told = n->raft->configuration_committed_index;
    note_committed(n);
    SIM_CHECK(n->sim, told <= n->knew_change || index >= told,
              "node %u says that the change at %llu is the last committed one, and knows of %llu",
              n->index + 1, (unsigned long long)index, (unsigned long long)told);
    SIM_CHECK(n->sim,
              c == NULL || was == 0 || was >= index ||
                  configuration_server(c, n->disk.record.identity.incarnation) != NULL,
              "node %u was removed, knows it, and goes on", n->index + 1);
}

/* ---- plans ---- */

/* A plan that takes a member out is written only while a majority of the others is connected and
 * none other leaves; the machine says so to the operator, but by then it is in the log. */
static void check_plan(const struct sim_node *n, const struct machine_command *c)
{
    unsigned voters;
    unsigned up =
        sim_steps_connected(n, replica_configuration(n->node->replica), c->number, &voters);
    bool member = configuration_find(replica_configuration(n->node->replica), c->number) != NULL;
    SIM_CHECK(n->sim, !member || (c->flags & MACHINE_NODE_FORCED) != 0 || up > voters / 2,
              "node %llu is to leave while %u of the %u others are connected",
              (unsigned long long)c->number, up, voters);
}

/* What the log takes of a plan's end comes after the change that it waits for is committed. */
static void check_end(const struct sim_node *n, const struct machine_command *c)
{
    const struct replica *r = n->node->replica;
    const struct configuration_server *server =
        configuration_find(replica_configuration(r), c->number);
    struct machine_node e = *machine_node_find(fsm_machine(n->node->fsm), c->number);
    bool committed = replica_configuration_index(r) <= raft_commit_index(n->raft);
    bool is_there = server != NULL && (server->role == CONFIGURATION_VOTER || e.learner);
    SIM_CHECK(n->sim, committed && (e.plan == MACHINE_PLAN_ADD ? is_there : server == NULL),
              "the plan for node %llu is to end, and it is not carried out",
              (unsigned long long)c->number);
}

static bool is_in(const struct fli_list *list, const struct command_way *way)
{
    FLI_LIST_FOREACH(pos, list)
    {
        const struct command *c = FLI_CONTAINER_OF(pos, struct command, age);
        if (c->way.via == way->via && c->way.source == way->source) {
            return true;
        }
    }
    return false;
}

static bool has_one(const struct commands *q, const struct command_way *way)
{
    return is_in(&q->own, way) || is_in(&q->bound, way);
}

/* The last quarter of the room is for clients that have nothing in the queue. */
static void check_room(const struct commands *q, const struct command_way *way, size_t bytes,
                       bool known, int rv)
{
    const struct sim_node *n = sim_running->current;
    bool own = way->source == NODE_SOURCE_CLUSTER && way->via == 0;
    size_t kept = known ? q->bytes_max / 4 : COMMANDS_URGENT(q->bytes_max / 4);
    SIM_CHECK(n->sim, rv != FL_EBUSY || bytes > q->bytes_max - kept,
              "node %u is too busy for a command, and has room for it", n->index + 1);
    SIM_CHECK(n->sim, rv != 0 || !known || own || bytes <= q->bytes_max - kept,
              "node %u takes one more command of a client, and leaves no room for others",
              n->index + 1);
}

int __real_commands_add(struct commands *q, struct node_ticket *t, const void *command, size_t len,
                        uint64_t now_ns);
int __wrap_commands_add(struct commands *q, struct node_ticket *t, const void *command, size_t len,
                        uint64_t now_ns);

int __wrap_commands_add(struct commands *q, struct node_ticket *t, const void *command, size_t len,
                        uint64_t now_ns)
{
    struct machine_command c;
    size_t size;
    size_t bytes = q->bytes + len;
    const struct command_way way = {.source = t->source};
    bool known = bytes > q->bytes_max / 2 && has_one(q, &way);
    int rv = __real_commands_add(q, t, command, len, now_ns);
    check_room(q, &way, bytes, known, rv);
    if (rv != 0 || machine_command_decode(command, len, &c, &size) != 0) {
        return rv;
    }
    if (c.op == MACHINE_OP_NODE_REMOVE || c.op == MACHINE_OP_NODE_REPLACE) {
        check_plan(sim_running->current, &c);
        sim_operations_submitted(sim_running->current, &c);
    } else if (c.op == MACHINE_OP_NODE_ADD) {
        sim_operations_submitted(sim_running->current, &c);
    } else if (c.op == MACHINE_OP_NODE_SETTLED) {
        check_end(sim_running->current, &c);
    }
    return rv;
}

int __real_commands_add_relayed(struct commands *q, const struct command_way *way,
                                struct fli_slice command, uint64_t now_ns);
int __wrap_commands_add_relayed(struct commands *q, const struct command_way *way,
                                struct fli_slice command, uint64_t now_ns);

int __wrap_commands_add_relayed(struct commands *q, const struct command_way *way,
                                struct fli_slice command, uint64_t now_ns)
{
    size_t bytes = q->bytes + command.len;
    bool known = bytes > q->bytes_max / 2 && has_one(q, way);
    int rv = __real_commands_add_relayed(q, way, command, now_ns);
    check_room(q, way, bytes, known, rv);
    return rv;
}

void sim_members_note_answer(struct sim *s, int status)
{
    struct sim_marks *marks = s->marks;
    marks->change_done += status == 0;
    marks->change_busy += status == FL_EBUSY;
    marks->change_denied += status == FL_EDENIED;
    marks->change_unknown_node += status == FL_ENOTFOUND;
    marks->change_taken += status == FL_EMISMATCH;
    marks->change_bad_address += status == FL_EINVAL;
    marks->change_repeated += status == FL_EEXISTS;
    marks->change_noleader += status == FL_ENOLEADER;
    marks->change_uncertain += status == FL_EUNCERTAIN;
}

/* ---- states ---- */

enum sim_member_state {
    SIM_MEMBER_NONE,
    SIM_MEMBER_LEAVING,    /* to be removed, and a member */
    SIM_MEMBER_LEFT,       /* and none any more */
    SIM_MEMBER_GIVING_WAY, /* to be replaced, and a member */
    SIM_MEMBER_GONE,       /* and none any more */
    SIM_MEMBER_AWAITED,
    SIM_MEMBER_LEARNER,
    SIM_MEMBER_SETTLING, /* a voter, and the plan stands yet */
    SIM_MEMBER_VOTER,
    SIM_MEMBER_STATES
};

static enum sim_member_state state_of(const struct sim_node *by, uint64_t id)
{
    const struct configuration_server *server =
        configuration_find(replica_configuration(by->node->replica), id);
    struct machine_node e = *machine_node_find(fsm_machine(by->node->fsm), id);
    if (e.id == 0) {
        return server == NULL ? SIM_MEMBER_NONE : SIM_MEMBER_VOTER;
    }
    switch (e.plan) {
    case MACHINE_PLAN_REMOVE:
        return server != NULL ? SIM_MEMBER_LEAVING : SIM_MEMBER_LEFT;
    case MACHINE_PLAN_REPLACE:
        return server != NULL ? SIM_MEMBER_GIVING_WAY : SIM_MEMBER_GONE;
    case MACHINE_PLAN_ADD:
        return server == NULL                          ? SIM_MEMBER_AWAITED
               : server->role == CONFIGURATION_LEARNER ? SIM_MEMBER_LEARNER
                                                       : SIM_MEMBER_SETTLING;
    default:
        return SIM_MEMBER_VOTER;
    }
}

static void note_state(struct sim_marks *marks, enum sim_member_state state)
{
    uint64_t *const counts[SIM_MEMBER_STATES] = {
        [SIM_MEMBER_NONE] = &marks->member_none,
        [SIM_MEMBER_LEAVING] = &marks->member_leaving,
        [SIM_MEMBER_LEFT] = &marks->member_left,
        [SIM_MEMBER_GIVING_WAY] = &marks->member_giving_way,
        [SIM_MEMBER_GONE] = &marks->member_gone,
        [SIM_MEMBER_AWAITED] = &marks->member_awaited,
        [SIM_MEMBER_LEARNER] = &marks->member_learner,
        [SIM_MEMBER_SETTLING] = &marks->member_settling,
        [SIM_MEMBER_VOTER] = &marks->member_voter,
    };
    ++*counts[state];
}

/* Called by the first node that has applied an entry. */
void sim_members_look(const struct sim_node *by)
{
    sim_steps_plans(by);
    for (unsigned i = 0; i < by->sim->n; i++) {
        struct sim_node *n = &by->sim->nodes[i];
        enum sim_member_state state = state_of(by, i + 1);
        if (state != n->seen) {
            n->seen = state;
            note_state(by->sim->marks, state);
        }
    }
}

/* ---- an operator who mistakes ---- */

/* One that is planned comes first: there are few. */
static const char *address_of_another(const struct sim_node *leader, uint64_t id)
{
    const struct configuration *c = replica_configuration(leader->node->replica);
    unsigned n;
    const struct machine_node *nodes = machine_nodes(fsm_machine(leader->node->fsm), &n);
    for (unsigned i = 0; i < n; i++) {
        if (nodes[i].id != id && nodes[i].address[0] != '\0' &&
            configuration_find(c, nodes[i].id) == NULL) {
            leader->sim->marks->change_planned_address++;
            return nodes[i].address;
        }
    }
    return c->servers[0].id != id ? c->servers[0].address : c->servers[c->n - 1].address;
}

static void must_refuse(struct sim *s, struct sim_node *leader, const struct node_change *what,
                        const char *why)
{
    s->current = leader;
    int rv = node_change(leader->node, what, NULL, NULL);
    s->current = NULL;
    SIM_CHECK(s, rv == FL_EBUSY || rv == FL_EDENIED || rv == FL_ENOLEADER,
              "a change of node %llu is answered %s, though %s", (unsigned long long)what->id,
              fl_err_name(rv), why);
}

static bool leaves(const struct sim_node *leader, uint64_t id)
{
    return machine_node_leaves(machine_node_find(fsm_machine(leader->node->fsm), id));
}

/* A plan gives way to another one while too few voters are connected to carry it out, and the
 * leader leads for so long that it knows. */
static bool gives_way(const struct sim_node *leader, uint64_t id)
{
    const struct membership *m = leader->node->membership;
    bool knows = m->leads && sim_node_ms(leader) - m->leads_since_ms >= NEW_LEADER_MS;
    struct machine_node e = *machine_node_find(fsm_machine(leader->node->fsm), id);
    unsigned voters;
    unsigned up =
        sim_steps_connected(leader, replica_configuration(leader->node->replica), id, &voters);
    return knows && e.id != 0 && !e.forced && up <= voters / 2;
}

/* While a member leaves, no other one may; and none is replaced where it runs. */
static void ask_too_much(struct sim *s, struct sim_node *leader)
{
    const struct configuration *c = replica_configuration(leader->node->replica);
    uint64_t leaving = 0;
    for (unsigned i = 0; i < c->n; i++) {
        uint64_t id = c->servers[i].id;
        leaving = leaves(leader, id) && !gives_way(leader, id) ? id : leaving;
    }
    for (unsigned i = 0; i < c->n; i++) {
        uint64_t id = c->servers[i].id;
        s->current = leader; /* its clock is the one that is read */
        bool up = relay_has_follower(&leader->node->relay, id);
        s->current = NULL;
        if (leaving != 0 && id != leaving) {
            struct node_change remove = {.kind = NODE_CHANGE_REMOVE, .id = id};
            must_refuse(s, leader, &remove, "another one leaves");
        } else if (up) {
            struct node_change replace = {.kind = NODE_CHANGE_REPLACE, .id = id};
            must_refuse(s, leader, &replace, "the node runs there");
        }
    }
}

/* Now and then, asks for what must be refused. */
void sim_members_mistake(struct sim *s)
{
    struct sim_node *asked = s->orders.members_heavy && !s->healed ? sim_leader(s) : NULL;
    if (asked != NULL) {
        ask_too_much(s, asked);
    }
    if (!s->orders.members_heavy || s->healed || sim_below(s, 10) != 0) {
        return;
    }
    struct sim_node *leader = sim_leader(s);
    unsigned i = (unsigned)sim_below(s, s->n);
    struct node_change what = {.id = i + 1};
    static const int wanted[] = {FL_EMISMATCH, FL_ENOTFOUND, FL_EINVAL, FL_EMISMATCH, FL_EEXISTS};
    unsigned kind = (unsigned)sim_below(s, sizeof wanted / sizeof wanted[0]);
    (void)snprintf(what.address, sizeof what.address, "node%u:9", i + 1);
    if (leader == NULL) {
        return;
    }
    struct machine_node e = *machine_node_find(fsm_machine(leader->node->fsm), i + 1);
    if (e.id == 0 || e.plan != MACHINE_PLAN_NONE) {
        return;
    }
    switch (kind) {
    case 0:
        what.kind = NODE_CHANGE_ADD;
        break;
    case 1:
        what.kind = NODE_CHANGE_REMOVE;
        what.id = 99;
        break;
    case 2:
        what.kind = NODE_CHANGE_MOVE;
        (void)snprintf(what.address, sizeof what.address, "nowhere");
        break;
    case 3:
        what.kind = NODE_CHANGE_MOVE;
        (void)snprintf(what.address, sizeof what.address, "%s", address_of_another(leader, i + 1));
        break;
    default:
        what.kind = NODE_CHANGE_REPLACE;
        what.incarnation = 1; /* nobody's */
        break;
    }
    s->current = leader;
    int rv = node_change(leader->node, &what, NULL, NULL);
    s->current = NULL;
    SIM_CHECK(s, rv == wanted[kind] || rv == FL_EBUSY || rv == FL_ENOLEADER,
              "change %u that cannot be made is answered %s", kind, fl_err_name(rv));
    sim_members_note_answer(s, rv);
}
