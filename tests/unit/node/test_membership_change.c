/* test_membership_change.c: a change of members that is asked for at one time and carried out at
 * another; and whom a refused node believes. */
#include "../../lib/unit.h"

#include "cluster.h"
#include "members/membership_private.h"
#include "node/node_private.h"
#include "../../lib/scratch.h"

struct place {
    struct cluster *c;
    unsigned i;
};

static bool has_failed(void *ctx)
{
    struct cluster_node *cn = ctx;
    return cn->fatal != 0;
}

struct refusal {
    struct node *node;
    uint64_t by;
};

static bool is_refused(void *ctx)
{
    const struct refusal *r = ctx;
    const struct peer *p = peers_find(&r->node->peers, r->by);
    assert_int_not_equal(p->verdict, HANDSHAKE_OTHER_INCARNATION);
    return p->verdict == HANDSHAKE_STRANGER;
}

static bool hears_no_leader(void *ctx)
{
    const struct node *n = ctx;
    return replica_leader(n->replica) == 0;
}

/* Who says that this node was removed has committed that: nobody can know better. */
TEST_WITH(test_the_member_that_knows_more_is_believed, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned refused = cluster_other_than(c, leader);
    cluster_acquire(c, refused, "a", "owner-1");
    struct membership *m = c->nodes[refused].node->membership;
    membership_answered(m, leader + 1, HANDSHAKE_WELCOME, "");
    membership_answered(m, 4 - refused - leader, HANDSHAKE_REMOVED, "it knows more");
    cluster_until(c, has_failed, &c->nodes[refused], "the node stops");
    assert_non_null(strstr(c->nodes[refused].fatal_text, "it knows more"));
}

/* The leader is out of reach, and nobody else has welcomed this node. It knows from its own log
 * that it is a member, so it has not lost its data. */
TEST_WITH(test_a_member_knows_more_than_who_is_behind, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned refused = cluster_other_than(c, leader);
    cluster_acquire(c, refused, "a", "owner-1");
    struct membership *m = c->nodes[refused].node->membership;
    assert_true(replica_member_index(m->replica) > 0);
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) { /* as after a start */
        m->config.peers->list[i].verdict = 0;
    }
    membership_answered(m, 4 - refused - leader, HANDSHAKE_OTHER_INCARNATION, "it is behind");
    assert_int_equal(c->nodes[refused].fatal, 0);
}

/* A follower may lag, and not know yet that a new node is to come. Only a leader can say for good
 * that one has lost its data. */
TEST_WITH(test_one_refusal_may_be_stale, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned follower = cluster_other_than(c, leader);
    const struct peer_identity empty = {.node_id = 4 - leader - follower,
                                        .incarnation = 77,
                                        .version = (uint16_t)machine_version_max(),
                                        .members_crc = 1,
                                        .start = {1, 1}};
    char reason[HANDSHAKE_REASON_MAX];
    cluster_acquire(c, follower, "a", "owner-1");
    assert_int_not_equal(replica_leader(c->nodes[follower].node->replica), 0);
    assert_int_equal(membership_check_peer(c->nodes[follower].node->membership, &empty, reason),
                     HANDSHAKE_STRANGER);
    assert_int_equal(membership_check_peer(c->nodes[leader].node->membership, &empty, reason),
                     HANDSHAKE_OTHER_INCARNATION);
    assert_non_null(strstr(reason, "has lost its data"));
}

/* It takes the place of another, and was started before that one was replaced. A node that does not
 * join can only have lost its data. */
TEST_WITH(who_joins_waits_until_another_is_replaced, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = *state;
    cluster_init(c, 3);
    cluster_start(c, 0);
    struct membership *m = c->nodes[0].node->membership;
    membership_now(m)->identity.joins = true;
    membership_answered(m, 2, HANDSHAKE_OTHER_INCARNATION, "it leads, and has another one");
    assert_int_equal(c->nodes[0].fatal, 0);
    membership_now(m)->identity.joins = false;
    membership_answered(m, 2, HANDSHAKE_OTHER_INCARNATION, "it leads, and has another one");
    assert_int_equal(c->nodes[0].fatal, FL_EDENIED);
}

static bool is_seen(void *ctx)
{
    const struct peer *p = ctx;
    return p->seen == PEER_HERE;
}

/* Each founder calls the others anew for their handshakes, and over a long way that takes a while.
 * The third one is forged: it has been met, and has not written yet. */
TEST_WITH(who_is_called_anew_is_not_gone, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = *state;
    cluster_init(c, 3);
    cluster_start(c, 0);
    cluster_start(c, 1);
    struct node *n = c->nodes[0].node;
    struct peer *p = peers_find(&n->peers, 2);
    cluster_until(c, is_seen, p, "the second node is connected");
    struct identity *id = &membership_now(n->membership)->identity;
    const uint64_t founders[] = {id->incarnation, p->told.incarnation, 77};
    identity_found(id, founders);
    n->record.own.kept.identity = *id;
    membership_turn(n->membership, true);
    peers_turn(&n->peers);
    assert_true(p->outbound.dialing);
    node_watch_tick(n);
    assert_int_equal(p->seen, PEER_HERE);
    /* The cluster may be formed before this call is answered: the other one has called, too. */
    struct configuration all;
    identity_configuration(id, &all);
    assert_int_equal(replica_begin(n->replica, fli_clock_ms(), &all), 0);
    node_watch_tick(n);
    assert_int_equal(p->seen, PEER_HERE);
}

/* A founder that lies: two of one incarnation make no configuration. */
TEST_WITH(an_incarnation_has_one_number, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = *state;
    char reason[HANDSHAKE_REASON_MAX];
    cluster_init(c, 3);
    cluster_start(c, 0);
    cluster_start(c, 1);
    struct node *n = c->nodes[0].node;
    struct peer *p = peers_find(&n->peers, 2);
    cluster_until(c, is_seen, p, "the second node is connected");
    struct peer_identity third = p->told;
    third.node_id = 3;
    assert_int_equal(membership_check_peer(n->membership, &third, reason), HANDSHAKE_STRANGER);
    third.incarnation = membership_now(n->membership)->identity.incarnation;
    assert_int_equal(membership_check_peer(n->membership, &third, reason), HANDSHAKE_STRANGER);
    third.incarnation ^= p->told.incarnation;
    assert_int_equal(membership_check_peer(n->membership, &third, reason), HANDSHAKE_UNDECIDED);
}

/* Who hears no leader may not know of what was replaced, and is not believed for good. */
TEST_WITH(test_who_has_no_leader_may_be_behind, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up_electing(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned behind = cluster_other_than(c, leader);
    unsigned wiped = 3 - leader - behind;
    cluster_acquire(c, behind, "a", "owner-1");
    cluster_stop(c, leader, 0);
    cluster_stop(c, wiped, 0);
    cluster_until(c, hears_no_leader, c->nodes[behind].node, "the last one hears no leader");
    scratch_wipe(c->nodes[wiped].dir);
    cluster_start(c, wiped);
    struct refusal r = {c->nodes[wiped].node, behind + 1};
    cluster_until(c, is_refused, &r, "it is refused");
    cluster_start(c, leader);
    cluster_until(c, has_failed, &c->nodes[wiped], "the wiped node stops once there is a leader");
    assert_non_null(strstr(c->nodes[wiped].fatal_text, "has lost its data"));
}

static bool is_idle(void *ctx)
{
    const struct membership *m = ctx;
    unsigned n;
    const struct machine_node *nodes = machine_nodes(membership_machine(m), &n);
    bool idle = !m->own_busy && membership_formed(m);
    for (unsigned i = 0; i < n; i++) {
        idle = idle && nodes[i].plan == MACHINE_PLAN_NONE && nodes[i].version != 0;
    }
    return idle;
}

static bool is_planned(void *ctx)
{
    struct place *r = ctx;
    int leader = cluster_leader(r->c);
    return leader >= 0 &&
           machine_node_find(node_machine(r->c->nodes[leader].node), r->i + 1)->plan ==
               MACHINE_PLAN_REMOVE;
}

static bool has_left(void *ctx)
{
    struct place *r = ctx;
    int leader = cluster_leader(r->c);
    return leader >= 0 &&
           configuration_find(replica_configuration(r->c->nodes[leader].node->replica), r->i + 1) ==
               NULL;
}

/* A removal that was accepted while all were up, and is to be carried out when one of them is not:
 * the voters that are left would be none too many. It waits for the one that is away. */
TEST_WITH(test_a_removal_is_checked_when_it_is_carried_out, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    struct place r = {c, cluster_other_than(c, leader)};
    unsigned away = 3 - leader - r.i;
    cluster_stop(c, away, 0);
    cluster_until(c, cluster_misses_one, c, "the leader misses the third");
    struct membership *m = c->nodes[leader].node->membership;
    cluster_until(c, is_idle, m, "the leader has no command of its own");
    const struct machine_command remove = {.op = MACHINE_OP_NODE_REMOVE, .number = r.i + 1};
    assert_true(membership_submit(m, &remove));
    cluster_until(c, is_planned, &r, "the removal is in the log");
    membership_plans(m);
    assert_int_equal(configuration_voters(replica_configuration(m->replica)), 3);
    cluster_acquire(c, leader, "a", "owner-1");
    cluster_start(c, away);
    cluster_until(c, has_left, &r, "the node has left the configuration");
}

static bool is_settled(void *ctx)
{
    struct place *r = ctx;
    int leader = cluster_leader(r->c);
    struct node *n = leader < 0 ? NULL : r->c->nodes[leader].node;
    const struct configuration_server *s =
        n == NULL ? NULL : configuration_find(replica_configuration(n->replica), r->i + 1);
    return s != NULL && s->role == CONFIGURATION_VOTER &&
           machine_node_find(node_machine(n), r->i + 1)->plan == MACHINE_PLAN_NONE;
}

struct asking {
    struct node *leader;
    struct node_change change;
    struct cluster_count count;
    int rv;
};

/* A leader that is new does not know yet who is up. */
static bool is_not_busy(void *ctx)
{
    struct asking *a = ctx;
    a->rv = node_change(a->leader, &a->change, cluster_count_cb, &a->count);
    return a->rv != FL_EBUSY;
}

/* While a removal waits for a node whose disk is lost, that node can be replaced: the removal is
 * withdrawn, and may be asked for again. */
TEST_WITH(test_a_removal_that_waits_is_withdrawn, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    struct place r = {c, cluster_other_than(c, leader)};
    struct place lost = {c, 3 - leader - r.i};
    struct asking a = {.leader = c->nodes[leader].node,
                       .change = {.kind = NODE_CHANGE_REPLACE, .id = lost.i + 1},
                       .count = {0, 1}};
    struct membership *m = a.leader->membership;
    const struct machine_command remove = {.op = MACHINE_OP_NODE_REMOVE, .number = r.i + 1};
    cluster_stop(c, lost.i, 0);
    cluster_until(c, cluster_misses_one, c, "the leader misses the third");
    cluster_until(c, is_idle, m, "the leader has no command of its own");
    assert_true(membership_submit(m, &remove));
    cluster_until(c, is_planned, &r, "the removal is in the log");
    scratch_wipe(c->nodes[lost.i].dir);
    cluster_until(c, is_not_busy, &a, "the leader takes up the replacement");
    assert_int_equal(a.rv, 0);
    cluster_until(c, cluster_counted, &a.count, "the replacement is in the log");
    assert_int_equal(a.count.status, 0);
    cluster_start(c, lost.i);
    cluster_until(c, is_settled, &lost, "the lost node is a voter again");
    assert_true(is_settled(&r));
}

/* A node is moved, and one of the others, which is to know that, is lost before it hears of it.
 * That one can be replaced. (It does not hear of its own MOVE; the other is asked for again.) */
TEST_WITH(a_move_that_waits_holds_up_no_other_change, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    struct place lost = {c, cluster_other_than(c, leader)};
    const struct member *moved = &c->members.list[3 - leader - lost.i];
    struct asking a = {.leader = c->nodes[leader].node,
                       .change = {.kind = NODE_CHANGE_MOVE, .id = moved->id},
                       .count = {0, 1}};
    struct asking b = {.leader = a.leader,
                       .change = {.kind = NODE_CHANGE_REPLACE, .id = lost.i + 1},
                       .count = {0, 1}};
    struct asking unheard = {
        .leader = a.leader,
        .change = {.kind = NODE_CHANGE_MOVE, .id = lost.i + 1, .address = "127.0.0.1:1"},
        .count = {0, 1}};
    (void)snprintf(a.change.address, sizeof a.change.address, "%s", moved->address);
    cluster_stop(c, lost.i, 0);
    cluster_until(c, cluster_misses_one, c, "the leader misses the third");
    cluster_until(c, is_not_busy, &unheard, "the leader takes up what the third does not hear of");
    cluster_until(c, cluster_counted, &unheard.count, "the others know of it");
    cluster_until(c, is_not_busy, &a, "the leader takes up the move");
    assert_int_equal(a.rv, 0);
    cluster_until(c, is_not_busy, &b, "the leader takes up the replacement");
    assert_int_equal(b.rv, 0);
    assert_int_equal(a.count.status, FL_EUNCERTAIN);
    cluster_until(c, cluster_counted, &b.count, "the replacement is in the log");
    assert_int_equal(b.count.status, 0);
}

static bool none_confirms; /* nobody but the leader has any entry */

uint64_t __real_replica_match_index(const struct replica *r, uint64_t id);
uint64_t __wrap_replica_match_index(const struct replica *r, uint64_t id);

uint64_t __wrap_replica_match_index(const struct replica *r, uint64_t id)
{
    return none_confirms ? 0 : __real_replica_match_index(r, id);
}

/* A node's new address is committed by its own vote: the third one may need to know it, when the
 * leader is gone and the node is started there. That it is connected is not enough. */
TEST_WITH(a_move_waits_until_the_others_know_of_it, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned moved = cluster_other_than(c, leader);
    struct node *n = c->nodes[leader].node;
    struct cluster_count count = {0, 1};
    cluster_acquire(c, 3 - leader - moved, "a", "owner-1");
    assert_true(relay_has_follower(&n->relay, 4 - leader - moved));
    n->membership->operation =
        (struct membership_operation){.active = true,
                                      .change = {.kind = NODE_CHANGE_MOVE, .id = moved + 1},
                                      .index = replica_configuration_index(n->replica),
                                      .cb = cluster_count_cb,
                                      .ctx = &count};
    none_confirms = true;
    membership_operation_turn(n->membership);
    none_confirms = false;
    assert_int_equal(count.calls, 0);
    membership_operation_turn(n->membership);
    assert_int_equal(count.calls, 1);
    assert_int_equal(count.status, 0);
}

static bool somebody_leads(void *ctx)
{
    return cluster_leader(ctx) >= 0;
}

/* A node is moved to another host, where it has the same port, and does not hear of it. The other
 * one does not know whether that was committed, and takes no wrong word for it. */
TEST_WITH(moved_to_another_host, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up_electing(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned moved = cluster_other_than(c, leader);
    struct asking a = {.leader = c->nodes[leader].node,
                       .change = {.kind = NODE_CHANGE_MOVE, .id = moved + 1},
                       .count = {0, 1}};
    (void)snprintf(a.change.address, sizeof a.change.address, "127.0.0.2%s",
                   strrchr(c->members.list[moved].address, ':'));
    cluster_acquire(c, leader, "a", "owner-1");
    cluster_stop(c, moved, 0);
    cluster_until(c, cluster_misses_one, c, "the leader misses the third");
    cluster_until(c, is_not_busy, &a, "the leader takes up the move");
    cluster_until(c, cluster_counted, &a.count, "the move is done");
    assert_int_equal(a.count.status, 0);
    cluster_stop(c, 3 - leader - moved, 0);
    cluster_stop(c, leader, 0);
    cluster_start(c, leader);
    struct outbound *o = &peers_find(&c->nodes[leader].node->peers, moved + 1)->outbound;
    while (o->dialing || o->dial_at_ms <= fli_clock_ms()) {
        uv_run(&c->loop, UV_RUN_ONCE);
    }
    o->dial_at_ms = UINT64_MAX; /* until it calls */
    c->bind_address = a.change.address;
    cluster_start(c, moved);
    assert_true(transport_self(c->nodes[moved].node->peers.transport)->guesses);
    cluster_until(c, somebody_leads, c, "the two have a leader");
}

/* An operator who knows better: the plan says so, and whoever leads carries it out. */
TEST_WITH(test_a_forced_removal_is_carried_out, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    struct place r = {c, cluster_other_than(c, leader)};
    struct cluster_count count = {0, 1};
    cluster_stop(c, 3 - leader - r.i, 0);
    cluster_until(c, cluster_misses_one, c, "the leader misses the third");
    struct node_change remove = {.kind = NODE_CHANGE_REMOVE, .id = r.i + 1, .force = true};
    assert_int_equal(node_change(c->nodes[leader].node, &remove, cluster_count_cb, &count), 0);
    cluster_until(c, has_left, &r, "the node has left the configuration");
}

/* As while a command of the cluster's own is being written. */
static void keep_busy(struct cluster *c, struct membership *m)
{
    cluster_until(c, is_idle, m, "the leader has no command of its own");
    m->own_busy = true;
}

/* What was not proposed when this node leads no longer is surely not done. Whether a node was moved
 * nobody can say then. */
TEST_WITH(test_what_was_never_submitted_is_not_done, cluster_set_up, cluster_tear_down)
{
    void (*const ends[])(struct membership *) = {membership_deposed, membership_close};
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    cluster_acquire(c, leader, "a", "owner-1");
    struct node *n = c->nodes[leader].node;
    struct membership *m = n->membership;
    struct node_change add = {.kind = NODE_CHANGE_ADD, .id = 7, .address = "127.0.0.1:7"};
    for (unsigned i = 0; i < 2; i++) {
        struct cluster_count count = {0, 1};
        struct cluster_count moved = {0, 1};
        keep_busy(c, m);
        assert_int_equal(node_change(n, &add, cluster_count_cb, &count), 0);
        commands_end_bound(&n->commands);
        assert_int_equal(count.status, FL_ENOLEADER);
        m->operation = (struct membership_operation){.active = true,
                                                     .change = {.kind = NODE_CHANGE_MOVE},
                                                     .index = UINT64_MAX,
                                                     .cb = cluster_count_cb,
                                                     .ctx = &moved};
        ends[i](m);
        assert_int_equal(moved.status, FL_EUNCERTAIN);
        assert_int_equal(count.calls + moved.calls, 2);
        m->own_busy = false;
    }
}

/* It waited until another one was lost. The plan is in the log, and is not carried out. */
TEST_WITH(test_an_operation_that_waited_is_checked_again, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned follower = cluster_other_than(c, leader);
    struct node *n = c->nodes[leader].node;
    struct membership *m = n->membership;
    struct cluster_count count = {0, 1};
    struct node_change remove = {.kind = NODE_CHANGE_REMOVE, .id = follower + 1};
    cluster_acquire(c, leader, "a", "owner-1");
    keep_busy(c, m);
    assert_int_equal(node_change(n, &remove, cluster_count_cb, &count), 0);
    cluster_until(c, cluster_counted, &count, "the operator is answered");
    assert_int_equal(count.status, 0);
    cluster_stop(c, 3 - leader - follower, 0);
    cluster_until(c, cluster_misses_one, c, "the leader misses the third");
    m->own_busy = false;
    membership_plans(m);
    assert_int_equal(configuration_voters(replica_configuration(m->replica)), 3);
}

/* Its successor is called where the plan has it, so the move would be answered, and lost. */
TEST_WITH(who_is_being_replaced_is_not_moved, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned lost = cluster_other_than(c, leader);
    struct membership *m = c->nodes[leader].node->membership;
    struct asking replace = {.leader = c->nodes[leader].node,
                             .change = {.kind = NODE_CHANGE_REPLACE, .id = lost + 1},
                             .count = {0, 1}};
    struct node_change move = {.kind = NODE_CHANGE_MOVE, .id = lost + 1, .address = "127.0.0.1:1"};
    struct cluster_count moved = {0, 1};
    cluster_stop(c, lost, 0);
    cluster_until(c, cluster_misses_one, c, "the leader misses the third");
    keep_busy(c, m);
    cluster_until(c, is_not_busy, &replace, "the leader takes up the replacement");
    cluster_until(c, cluster_counted, &replace.count, "the replacement is in the log");
    assert_int_equal(replace.count.status, 0);
    assert_int_equal(node_change(replace.leader, &move, cluster_count_cb, &moved), FL_EBUSY);
    m->own_busy = false;
}
