/* test_membership.c: members that lost their disk, were forgotten, and come back. */
#include "../../lib/unit.h"

#include <signal.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "cluster.h"
#include "consensus/replica_private.h"
#include "members/membership_private.h"
#include "node/node_private.h"
#include "../../lib/ports.h"
#include "../../lib/scratch.h"

static bool has_failed(void *ctx)
{
    struct cluster_node *cn = ctx;
    return cn->fatal != 0;
}

struct rejoin {
    struct cluster *c;
    unsigned i;
};

static bool is_voter_again(void *ctx)
{
    struct rejoin *r = ctx;
    struct node_member m[MEMBERS_MAX];
    int leader = cluster_leader(r->c);
    if (leader < 0) {
        return false;
    }
    size_t n = node_members(r->c->nodes[leader].node, m, MEMBERS_MAX);
    bool votes = false;
    for (size_t i = 0; i < n; i++) {
        votes = votes || (m[i].id == r->i + 1 && m[i].voter);
    }
    return votes;
}

struct replacing {
    struct cluster *c;
    unsigned i;
    unsigned leader; /* which was told */
    struct cluster_count count;
};

/* A leader that does not know yet that it leads, that the node is gone, or that the others are
 * there, refuses. */
static bool is_being_replaced(void *ctx)
{
    struct replacing *f = ctx;
    int leader = cluster_leader(f->c);
    if (leader < 0) {
        return false;
    }
    struct node *n = f->c->nodes[leader].node;
    struct node_change what = {.kind = NODE_CHANGE_REPLACE, .id = f->i + 1};
    int rv = node_change(n, &what, cluster_count_cb, &f->count);
    if (rv == FL_ENOLEADER || rv == FL_EBUSY || rv == FL_EDENIED) {
        return false;
    }
    assert_int_equal(rv, 0);
    assert_int_equal(node_change(n, &what, cluster_count_cb, &f->count), FL_EBUSY);
    f->leader = (unsigned)leader;
    return true;
}

/* Its successor is waited for. */
static bool has_left(void *ctx)
{
    const struct replacing *f = ctx;
    int leader = cluster_leader(f->c);
    return leader >= 0 &&
           machine_node_find(node_machine(f->c->nodes[leader].node), f->i + 1)->plan ==
               MACHINE_PLAN_ADD;
}

/* Asks again, as an operator may, when an election came in between. */
static void replace(struct cluster *c, unsigned i)
{
    struct replacing f = {.c = c, .i = i};
    bool again = true;
    while (again) {
        f.count = (struct cluster_count){0, 1};
        cluster_until(c, is_being_replaced, &f, "the leader replaces the node");
        cluster_until(c, cluster_counted, &f.count, "the node is replaced");
        again = (f.count.status == FL_EUNCERTAIN || f.count.status == FL_ENOLEADER) &&
                c->election_ms != CLUSTER_ELECTION_LONG_MS;
    }
    assert_int_equal(f.count.status, 0);
    cluster_until(c, has_left, &f, "the node has left");
}

TEST_WITH(test_wiped, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up_electing(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned lost = cluster_other_than(c, leader);
    uint64_t token = cluster_acquire(c, leader, "a", "owner-1");
    cluster_stop(c, lost, 0);
    scratch_wipe(c->nodes[lost].dir);
    cluster_start(c, lost);
    cluster_until(c, has_failed, &c->nodes[lost], "the wiped node stops");
    assert_int_equal(c->nodes[lost].fatal, FL_EDENIED);
    assert_non_null(strstr(c->nodes[lost].fatal_text, "has lost its data"));
    assert_non_null(strstr(c->nodes[lost].fatal_text, "cluster replace"));
    assert_int_equal(machine_cluster_id(node_machine(c->nodes[lost].node)), 0);
    cluster_stop(c, lost, 0);
    cluster_acquire(c, leader, "b", "owner-1");

    replace(c, lost);
    scratch_wipe(c->nodes[lost].dir);
    cluster_start(c, lost);
    struct rejoin r = {c, lost};
    cluster_until(c, is_voter_again, &r, "the node is a voter again");
    cluster_expect_same_hash(c);
    assert_int_equal(c->nodes[lost].fatal, 0);
    /* It counts: with one of the others gone the two make a majority. */
    leader = cluster_wait_leader(c);
    cluster_stop(c, leader == lost ? (lost + 1) % 3 : leader, 0);
    cluster_wait_leader(c);
    cluster_check(c, lost, "a", token, MACHINE_DONE);
    /* And it is remembered under its new incarnation. */
    cluster_stop(c, lost, 0);
    cluster_start(c, lost);
    cluster_check(c, lost, "a", token, MACHINE_DONE);
    assert_int_equal(c->nodes[lost].fatal, 0);
}

/* The dangerous case: what was acknowledged is on two nodes, one of them is wiped, the other is
 * down. The two that are up must not become a cluster that knows nothing. */
TEST_WITH(test_wiped_with_one_that_is_behind, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up_electing(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned wiped = (leader + 1) % 3;
    unsigned behind = (leader + 2) % 3;
    cluster_stop(c, behind, 0);
    uint64_t token = cluster_acquire(c, leader, "a", "owner-1");
    cluster_stop(c, leader, 0);
    cluster_stop(c, wiped, 0);
    scratch_wipe(c->nodes[wiped].dir);
    cluster_start(c, wiped);
    cluster_start(c, behind);
    cluster_run_ms(c, 3 * CLUSTER_ELECTION_MS);
    assert_int_equal(cluster_leader(c), -1);
    cluster_start(c, leader);
    cluster_until(c, has_failed, &c->nodes[wiped], "the wiped node stops");
    cluster_stop(c, wiped, 0);
    cluster_wait_leader(c);
    cluster_check(c, behind, "a", token, MACHINE_DONE);
}

TEST_WITH(test_replace_refusals, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned follower = cluster_other_than(c, leader);
    struct cluster_count count = {0, 1};
    cluster_acquire(c, follower, "a", "owner-1");
    struct node *n = c->nodes[leader].node;
    struct node_change what = {.kind = NODE_CHANGE_REPLACE, .id = leader + 1};
    assert_int_equal(node_change(n, &what, cluster_count_cb, &count), FL_EBUSY);
    assert_int_equal(node_change(c->nodes[follower].node, &what, cluster_count_cb, &count),
                     FL_ENOLEADER);
    what.id = 99;
    assert_int_equal(node_change(n, &what, cluster_count_cb, &count), FL_ENOTFOUND);
    what.id = follower + 1;
    assert_int_equal(node_change(n, &what, cluster_count_cb, &count), FL_EBUSY);
    assert_int_equal(count.calls, 0);
}

/* A new leader waits for the others to connect before it says that they are down. */
TEST_WITH(test_new_leader_counts_nobody_as_down, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned follower = cluster_other_than(c, leader);
    cluster_stop(c, 3 - leader - follower, 0);
    cluster_until(c, cluster_misses_one, c, "the leader misses the third");

    struct node *n = c->nodes[leader].node;
    struct membership *m = n->membership;
    struct cluster_count count = {0, 1};
    struct node_change remove = {.kind = NODE_CHANGE_REMOVE, .id = follower + 1};
    m->leads = false; /* as before its first turn */
    assert_int_equal(node_change(n, &remove, cluster_count_cb, &count), FL_EBUSY);
    m->leads = true;
    m->leads_since_ms = fli_clock_ms() - 3000;
    assert_int_equal(node_change(n, &remove, cluster_count_cb, &count), FL_EDENIED);
    assert_int_equal(count.calls, 0);
}

/* The leader loses its majority before the removal is committed; asking again does no harm. */
TEST_WITH(test_replace_uncertain, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up_electing(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned away = (leader + 1) % 3;
    struct replacing f = {.c = c, .i = away, .count = {0, 1}};
    cluster_acquire(c, leader, "a", "owner-1");
    cluster_stop(c, away, 0);
    cluster_until(c, is_being_replaced, &f, "the leader replaces the node");
    unsigned other = 3 - away - f.leader;
    cluster_stop(c, other, 0);
    cluster_until(c, cluster_counted, &f.count, "replacing was answered");
    if (f.count.status != 0) {
        /* ENOLEADER: it was deposed before it could propose anything. */
        assert_true(f.count.status == FL_EUNCERTAIN || f.count.status == FL_ENOLEADER);
        cluster_start(c, other);
        cluster_wait_leader(c);
        cluster_acquire(c, other, "b", "owner-1");
        replace(c, away);
    } else {
        cluster_start(c, other);
    }
    assert_int_equal(f.count.calls, 1);
    scratch_wipe(c->nodes[away].dir);
    cluster_start(c, away);
    struct rejoin r = {c, away};
    cluster_until(c, is_voter_again, &r, "the node is a voter again");
    cluster_expect_same_hash(c);
}

static void take_back(struct cluster *c, unsigned i)
{
    struct rejoin r = {c, i};
    cluster_start(c, i);
    cluster_until(c, is_voter_again, &r, "the node is a voter again");
}

/* Forgotten without need: it was only away. Its number comes back with an empty directory, and that
 * directory never does. */
TEST_WITH(test_forgotten_but_whole, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned away = cluster_other_than(c, leader);
    cluster_acquire(c, leader, "a", "owner-1");
    cluster_stop(c, away, 0);
    replace(c, away);
    cluster_acquire(c, leader, "b", "owner-1");
    cluster_start(c, away);
    cluster_until(c, has_failed, &c->nodes[away], "the node stops");
    assert_int_equal(c->nodes[away].fatal, FL_EDENIED);
    assert_non_null(strstr(c->nodes[away].fatal_text, "of no more use"));
    cluster_stop(c, away, 0);
    scratch_wipe(c->nodes[away].dir);
    take_back(c, away);
    cluster_expect_same_hash(c);
}

static void replace_and_take_back(struct cluster *c, unsigned i)
{
    cluster_stop(c, i, 0);
    replace(c, i);
    scratch_wipe(c->nodes[i].dir);
    take_back(c, i);
}

static void hand_over(struct cluster *c, unsigned to)
{
    unsigned leader = cluster_wait_leader(c);
    struct cluster_count count = {0, 1};
    assert_int_equal(node_transfer(c->nodes[leader].node, to + 1, cluster_count_cb, &count), 0);
    cluster_until(c, cluster_counted, &count, "leadership was handed over");
    assert_int_equal(count.status, 0);
    assert_int_equal(cluster_wait_leader(c), to);
}

/* Five nodes with the same state, and the places of the leader and of two others. */
static void five(struct cluster *c, unsigned *leader, unsigned *away, unsigned *other)
{
    *leader = cluster_wait_leader(c);
    *away = (*leader + 1) % 5;
    *other = (*leader + 2) % 5;
    cluster_acquire(c, *leader, "a", "owner-1");
    cluster_expect_same_hash(c);
}

/* A node that was down while another one was forgotten and came back knows only that one's former
 * incarnation, and must believe its present one, which leads. */
TEST_WITH(test_back_after_another_was_forgotten, cluster_set_up, cluster_tear_down)
{
    unsigned leader, away, lost;
    struct cluster *c = cluster_up(state, 5);
    five(c, &leader, &away, &lost);
    cluster_stop(c, away, 0);
    replace_and_take_back(c, lost);
    uint64_t token = cluster_acquire(c, leader, "b", "owner-1");
    hand_over(c, lost);
    cluster_start(c, away);
    cluster_check(c, away, "b", token, MACHINE_DONE);
    cluster_expect_same_hash(c);
}

/* As the one before; but the other was wiped once more, and nobody has forgotten that life: it is
 * refused by the one that is behind, too. */
TEST_WITH(test_back_after_another_was_wiped_again, cluster_set_up, cluster_tear_down)
{
    unsigned leader, away, lost;
    struct cluster *c = cluster_up_electing(state, 5);
    five(c, &leader, &away, &lost);
    cluster_stop(c, away, 0);
    replace_and_take_back(c, lost);
    for (unsigned i = 0; i < 5; i++) {
        if (i != away) {
            cluster_stop(c, i, 0);
        }
    }
    scratch_wipe(c->nodes[lost].dir);
    cluster_start(c, away);
    cluster_start(c, lost);
    cluster_start(c, leader);
    cluster_start(c, (leader + 3) % 5);
    cluster_until(c, has_failed, &c->nodes[lost], "the wiped node stops");
    assert_int_equal(c->nodes[lost].fatal, FL_EDENIED);
    cluster_stop(c, lost, 0);
    cluster_wait_leader(c);
    cluster_check(c, away, "a", 1, MACHINE_DONE);
}

static uint64_t known_of(const struct node *n, uint64_t id)
{
    const struct configuration_server *s =
        configuration_find(replica_configuration(n->replica), id);
    return s == NULL ? 0 : s->incarnation;
}

/* As the transport does: a handshake is undecided until its start is on disk. Incarnation 0: the
 * one that is a member. */
static struct peer_identity caller(struct node *n, uint64_t id, uint64_t incarnation,
                                   uint64_t member_index, const char *address, bool waited)
{
    struct peer_identity peer = {.node_id = id,
                                 .incarnation = incarnation != 0 ? incarnation : known_of(n, id),
                                 .cluster_id = n->record.own.now.identity.cluster_id,
                                 .members_crc = n->record.own.now.identity.begun_crc,
                                 .member_index = member_index,
                                 .version = UINT16_MAX,
                                 .start = {UINT32_MAX, 1},
                                 .term = UINT32_MAX,
                                 .last_index = UINT32_MAX,
                                 .waited = waited};
    (void)snprintf(peer.peer_address, sizeof peer.peer_address, "%s", address);
    return peer;
}

static enum handshake_verdict call_as(struct node *n, uint64_t id, uint64_t incarnation,
                                      uint64_t member_index, const char *address, bool waited)
{
    char reason[HANDSHAKE_REASON_MAX] = "";
    struct peer_identity peer = caller(n, id, incarnation, member_index, address, waited);
    return membership_check_peer(n->membership, &peer, reason);
}

static enum handshake_verdict call_once(struct node *n, uint64_t id, uint64_t member_index,
                                        const char *address, bool waited)
{
    return call_as(n, id, 0, member_index, address, waited);
}

struct call {
    struct node *n;
    uint64_t id, member_index;
    const char *address;
    enum handshake_verdict verdict;
};

static bool is_decided(void *ctx)
{
    struct call *call = ctx;
    call->verdict = call_once(call->n, call->id, call->member_index, call->address, true);
    return call->verdict != HANDSHAKE_UNDECIDED;
}

static enum handshake_verdict call_from(struct cluster *c, unsigned i, uint64_t id,
                                        uint64_t member_index, const char *address)
{
    struct call call = {c->nodes[i].node, id, member_index, address, HANDSHAKE_UNDECIDED};
    call.verdict = call_once(call.n, id, member_index, address, false);
    if (call.verdict == HANDSHAKE_UNDECIDED) {
        cluster_until(c, is_decided, &call, "the start of the caller is on disk");
    }
    return call.verdict;
}

/* Whether node i tells others of the start with which call_once() calls. */
static bool tells(struct cluster *c, unsigned i, uint64_t id)
{
    uint8_t bytes[STARTS_MESSAGE_MAX];
    struct starts_message told;
    size_t len = node_record_message(&c->nodes[i].node->record, bytes);
    assert_int_equal(starts_message_decode((struct fli_slice){bytes, len}, &told), 0);
    bool found = false;
    for (unsigned k = 0; k < told.n; k++) {
        found = found || (told.list[k].id == id && told.list[k].start.number == UINT32_MAX);
    }
    return found;
}

/* The lock of the file keeps the thread that writes it from its work, as a disk that stands still
 * would. Meanwhile the node leads on, lets nobody in by what it has not written, and tells nobody
 * of it. */
TEST_WITH(a_start_waits_for_the_disk_and_the_loop_does_not, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned gone = cluster_other_than(c, leader);
    struct node *n = c->nodes[leader].node;
    const char *address = c->members.list[gone].address;
    uint64_t index = replica_member_index(n->replica);
    uint64_t term = replica_term(n->replica);
    cluster_stop(c, gone, 0);
    pthread_mutex_lock(&n->record.own.lock);
    assert_int_equal(call_once(n, gone + 1, index, address, false), HANDSHAKE_UNDECIDED);
    for (unsigned i = 0; i < 20; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "lock-%u", i);
        cluster_acquire(c, leader, name, "owner-1");
    }
    assert_int_equal(call_once(n, gone + 1, index, address, true), HANDSHAKE_UNDECIDED);
    assert_false(tells(c, leader, gone + 1));
    assert_true(membership_known(n->membership, gone + 1)->start.number != UINT32_MAX);
    assert_int_equal(replica_term(n->replica), term);
    pthread_mutex_unlock(&n->record.own.lock);
    assert_int_equal(call_from(c, leader, gone + 1, index, address), HANDSHAKE_WELCOME);
    assert_true(tells(c, leader, gone + 1));
    assert_int_equal(membership_known(n->membership, gone + 1)->start.number, UINT32_MAX);
}

static bool is_newest_kept(void *ctx)
{
    struct call *call = ctx;
    return membership_known(call->n->membership, call->id)->start.number ==
           UINT32_MAX + UINT64_C(300);
}

/* The node hears all that another has written. */
static void hear(struct node *n, uint64_t from, const struct record *r)
{
    uint8_t bytes[STARTS_MESSAGE_MAX];
    size_t len = starts_message_encode(&r->starts, from, r->identity.incarnation, 1, 1, bytes);
    assert_int_equal(membership_receive_starts(n->membership, from, (struct fli_slice){bytes, len}),
                     0);
}

/* Hearsay of hundreds of starts, in one turn, is one write. */
TEST_WITH(starts_that_come_together_are_one_write, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    struct node *n = c->nodes[leader].node;
    unsigned from = cluster_other_than(c, leader);
    unsigned third = 3 - leader - from;
    cluster_stop(c, third, 0);
    uint64_t sequence = n->record.own.now.sequence;
    for (unsigned i = 1; i <= 300; i++) {
        struct record r = c->nodes[from].node->record.own.kept;
        uint64_t incarnation = known_of(n, third + 1);
        (void)starts_record(&r.starts, third + 1, incarnation,
                            (struct start){UINT32_MAX + UINT64_C(1) * i, 1});
        hear(n, from + 1, &r);
    }
    struct call call = {n, third + 1, 0, "", HANDSHAKE_UNDECIDED};
    cluster_until(c, is_newest_kept, &call, "the newest one is on disk");
    assert_true(n->record.own.now.sequence - sequence <= 4);
}

/* A node that is behind hears of the one that another has replaced, after that one has called. */
TEST_WITH(hearsay_of_who_was_replaced_takes_nothing_away, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned behind = cluster_other_than(c, leader);
    unsigned wiped = 3 - leader - behind;
    struct node *n = c->nodes[behind].node;
    const struct starts *known = &n->record.own.now.starts;
    uint64_t index = replica_configuration_index(n->replica);
    uint64_t before = known_of(n, wiped + 1);
    cluster_stop(c, wiped, 0);
    (void)call_as(n, wiped + 1, 77, index + 1, c->members.list[wiped].address, false);
    assert_non_null(starts_find(known, 77));
    hear(n, leader + 1, &c->nodes[leader].node->record.own.kept);
    assert_non_null(starts_find(known, 77));
    assert_non_null(starts_find(known, before));
}

/* It is a member by a configuration that this node lacks, and calls again when the list is full. */
TEST_WITH(a_known_caller_is_not_forgotten_for_its_own_call, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned behind = cluster_other_than(c, leader);
    unsigned wiped = 3 - leader - behind;
    struct node *n = c->nodes[behind].node;
    struct starts *known = &n->record.own.now.starts;
    uint64_t index = replica_configuration_index(n->replica);
    cluster_stop(c, wiped, 0);
    (void)call_as(n, wiped + 1, 77, index + 1, c->members.list[wiped].address, false);
    assert_true(starts_record_progress(known, 77, 1, 1));
    for (uint64_t other = 1000; known->n < KNOWN_MEMBERS_MAX; other++) {
        assert_true(starts_record(known, other, other, (struct start){1, 1}));
    }
    (void)call_as(n, wiped + 1, 77, index + 1, c->members.list[wiped].address, true);
    assert_int_equal(starts_find(known, 77)->index, 1);
}

static pthread_mutex_t threads_stand = PTHREAD_MUTEX_INITIALIZER;

static void stand(uv_work_t *req)
{
    (void)req;
    pthread_mutex_lock(&threads_stand);
    pthread_mutex_unlock(&threads_stand);
}

static void stands_no_more(uv_work_t *req, int status)
{
    (void)req;
    assert_int_equal(status, 0);
}

static int store_on_a_full_disk(struct node *n)
{
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    int rv = node_record_store(&n->record);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, handler);
    return rv;
}

/* A write that waits for a thread is overtaken by one of the loop, which fails: it is not done. */
TEST_WITH(a_failed_write_overtakes_none, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned gone = cluster_other_than(c, leader);
    struct node *n = c->nodes[leader].node;
    const char *address = c->members.list[gone].address;
    uint64_t index = replica_member_index(n->replica);
    static uv_work_t threads[128];
    char path[300];
    struct record r;
    cluster_stop(c, gone, 0);
    pthread_mutex_lock(&threads_stand);
    for (unsigned i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        assert_int_equal(uv_queue_work(n->host.loop, &threads[i], stand, stands_no_more), 0);
    }
    assert_int_equal(call_once(n, gone + 1, index, address, false), HANDSHAKE_UNDECIDED);
    node_record_turn(&n->record);
    assert_true(n->record.own.work.busy);
    assert_int_not_equal(store_on_a_full_disk(n), 0);
    pthread_mutex_unlock(&threads_stand);
    assert_int_equal(call_from(c, leader, gone + 1, index, address), HANDSHAKE_WELCOME);
    (void)snprintf(path, sizeof path, "%s/identity", c->nodes[leader].dir);
    assert_int_equal(record_read(path, &r), 0);
    const struct starts_known *k = starts_find(&r.starts, known_of(n, gone + 1));
    assert_true(k != NULL && k->start.number == UINT32_MAX);
}

static const char *address_of(const struct node *n, uint64_t id)
{
    const struct member *m = members_find(&n->membership->members, id);
    return m == NULL ? "" : m->address;
}

/* The address that a member tells counts as long as it names the configuration that this node has,
 * or a later one. One that is not committed may never be: a node that is planned has not moved. But
 * its own guess does not count against it, unless it is of a later one still. */
TEST_WITH(test_addresses_of_who_is_ahead, cluster_set_up, cluster_tear_down)
{
    unsigned leader, behind, moved;
    struct cluster *c = cluster_up(state, 5);
    five(c, &leader, &behind, &moved);
    struct node *n = c->nodes[behind].node;
    const char *before = c->members.list[moved].address;
    uint64_t index = replica_configuration_index(n->replica);
    assert_int_equal(call_from(c, behind, moved + 1, index + 1, "127.0.0.1:1"), HANDSHAKE_WELCOME);
    assert_string_equal(address_of(n, moved + 1), "127.0.0.1:1");
    assert_int_equal(call_from(c, behind, moved + 1, index, "127.0.0.1:2"), HANDSHAKE_WELCOME);
    assert_string_equal(address_of(n, moved + 1), "127.0.0.1:2");
    assert_int_equal(call_from(c, behind, moved + 1, index - 1, "127.0.0.1:1"), HANDSHAKE_WELCOME);
    membership_tick(n->membership, true);
    membership_members_turn(n->membership);
    assert_string_equal(address_of(n, moved + 1), before);
    struct configuration planned = *replica_configuration(n->replica);
    assert_int_equal(configuration_set_address(&planned, moved + 1, "127.0.0.1:3"), 0);
    changes_add(&n->replica->edge.changes, replica_last_index(n->replica) + 1, &planned);
    assert_int_equal(call_once(n, moved + 1, index, "127.0.0.1:2", false), HANDSHAKE_WELCOME);
    assert_string_equal(address_of(n, moved + 1), "127.0.0.1:2");
    peers_find(&n->peers, moved + 1)->told.guesses = true;
    n->membership->members_due = true;
    membership_members_turn(n->membership);
    assert_string_equal(address_of(n, moved + 1), "127.0.0.1:3");
    peers_find(&n->peers, moved + 1)->told.member_index =
        replica_configuration_index(n->replica) + 1;
    n->membership->members_due = true;
    membership_members_turn(n->membership);
    assert_string_equal(address_of(n, moved + 1), "127.0.0.1:2");
    changes_truncate(&n->replica->edge.changes, replica_last_index(n->replica) + 1);
    membership_members_turn(n->membership);
}

/* Where the others reach a node that listens at another port, it cannot know: they may have moved
 * it since its log was written. So it says that it guesses, and where their logs put it counts. */
TEST_WITH(test_who_listens_elsewhere_guesses, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 1);
    struct node *n = c->nodes[0].node;
    assert_false(transport_self(n->peers.transport)->guesses);
    cluster_stop(c, 0, 0);
    uint16_t port;
    char elsewhere[32];
    int reserved = port_reserve(&port);
    (void)snprintf(elsewhere, sizeof elsewhere, "127.0.0.1:%u", port);
    c->bind_address = elsewhere;
    cluster_start(c, 0);
    cluster_wait_leader(c);
    close(reserved);
    n = c->nodes[0].node;
    assert_true(transport_self(n->peers.transport)->guesses);
    assert_string_equal(address_of(n, 1), c->members.list[0].address);
    /* Its log knows: it was moved there, and is to be moved on, which may never be committed. */
    struct configuration moved = *replica_configuration(n->replica);
    const char *const addresses[] = {elsewhere, "127.0.0.1:1"};
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(configuration_set_address(&moved, 1, addresses[i]), 0);
        changes_add(&n->replica->edge.changes, replica_last_index(n->replica) + 1 + i, &moved);
    }
    membership_members_turn(n->membership);
    assert_false(transport_self(n->peers.transport)->guesses);
    assert_string_equal(address_of(n, 1), elsewhere);
    changes_truncate(&n->replica->edge.changes, replica_last_index(n->replica) + 1);
    membership_members_turn(n->membership);
}

/* A member that only knows that somebody is to be added cannot tell who calls: it may be a life
 * that came after one which joined and counted. Only a leader that has applied everything lets it
 * in. */
TEST_WITH(test_forgotten_joins_at_the_leader_only, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned lost = (leader + 1) % 3;
    unsigned follower = (leader + 2) % 3;
    cluster_acquire(c, leader, "a", "owner-1");
    cluster_stop(c, lost, 0);
    replace(c, lost);
    cluster_expect_same_hash(c);
    const char *address = c->members.list[lost].address;
    enum handshake_verdict at_follower =
        call_as(c->nodes[follower].node, lost + 1, 77, 0, address, false);
    assert_int_equal(at_follower, HANDSHAKE_STRANGER);
    enum handshake_verdict at_leader =
        call_as(c->nodes[leader].node, lost + 1, 77, 0, address, false);
    assert_true(at_leader == HANDSHAKE_UNDECIDED || at_leader == HANDSHAKE_WELCOME);
}

/* The entry that made it a member was lost with its leader. A leader of a later term knows; one
 * that may be overtaken does not. */
TEST_WITH(test_joined_by_what_was_never_committed, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned lost = (leader + 1) % 3;
    cluster_acquire(c, leader, "a", "owner-1");
    cluster_stop(c, lost, 0);
    replace(c, lost);
    cluster_expect_same_hash(c);
    struct node *n = c->nodes[leader].node;
    uint64_t index = replica_configuration_index(n->replica) + 1;
    char reason[HANDSHAKE_REASON_MAX] = "";
    struct peer_identity peer =
        caller(n, lost + 1, 77, index, c->members.list[lost].address, false);
    peer.term = replica_term(n->replica);
    assert_int_equal(membership_check_peer(n->membership, &peer, reason), HANDSHAKE_REMOVED);
    assert_non_null(
        strstr(reason, "was lost with a leader: this data directory is of no more use"));
    peer.member_index = 1; /* a later change was committed meanwhile */
    assert_int_equal(membership_check_peer(n->membership, &peer, reason), HANDSHAKE_REMOVED);
    assert_non_null(
        strstr(reason, "was lost with a leader: this data directory is of no more use"));
    peer.member_index = index;
    peer.term++;
    assert_int_equal(membership_check_peer(n->membership, &peer, reason), HANDSHAKE_UNDECIDED);
}

/* Who was let in and is no member, or is none any more, is hung up on; who names a later
 * configuration stays. */
TEST_WITH(test_strangers, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned other = cluster_other_than(c, leader);
    cluster_acquire(c, other, "a", "owner-1");
    cluster_expect_same_hash(c);
    struct membership *m = c->nodes[leader].node->membership;
    struct peer *p = peers_find(m->config.peers, other + 1);
    uint64_t incarnation = p->told.incarnation;
    uint64_t index = replica_configuration_index(m->replica);
    assert_int_equal(incarnation, known_of(c->nodes[leader].node, other + 1));
    assert_true(membership_is_let_in(m, &p->told));
    p->told.incarnation = incarnation + 1;
    p->told.member_index = index + 1;
    p->told.term = replica_term(m->replica) + 1;
    assert_true(membership_is_let_in(m, &p->told));
    p->told.member_index = index;
    assert_false(membership_is_let_in(m, &p->told));
    p->told.member_index = 0;
    assert_false(membership_is_let_in(m, &p->told));
    m->members_due = true;
    membership_members_turn(m);
    assert_int_equal(p->told.incarnation, 0);
    assert_false(relay_has_follower(&c->nodes[leader].node->relay, other + 1));
    cluster_acquire(c, other, "b", "owner-1"); /* it calls again */
    assert_int_equal(p->told.incarnation, incarnation);
}

static bool without_stream(void *ctx)
{
    struct rejoin *r = ctx;
    int leader = cluster_leader(r->c);
    return leader >= 0 && !relay_has_follower(&r->c->nodes[leader].node->relay, r->i + 1);
}

/* It runs, and its streams to the others are open: they are closed, and it hears why. */
TEST_WITH(test_forgotten_while_it_runs, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned away = cluster_other_than(c, leader);
    cluster_acquire(c, away, "a", "owner-1");
    cluster_expect_same_hash(c);
    struct node *n = c->nodes[away].node;
    struct rejoin r = {c, away};
    relay_close(&n->relay, "a test");
    peers_find(&n->peers, leader + 1)->redial_ms = UINT64_MAX; /* nor does it call again */
    cluster_until(c, without_stream, &r, "the leader has lost the stream");
    replace(c, away);
    cluster_until(c, has_failed, &c->nodes[away], "the node stops");
    assert_non_null(strstr(c->nodes[away].fatal_text, "of no more use"));
    cluster_acquire(c, leader, "b", "owner-1");
}

struct successor {
    struct node *leader;
    uint64_t id, since_ms;
};

static bool is_called_or_added(void *ctx)
{
    const struct successor *s = ctx;
    const struct configuration *c = replica_configuration(s->leader->replica);
    const struct peer *p = peers_find(&s->leader->peers, s->id);
    return configuration_find(c, s->id) != NULL ||
           (p != NULL && p->outbound.dialed_ms > s->since_ms);
}

/* A node that joined in this term is replaced. The leader asks who is there now: the one that it
 * took in then never comes back, and no server is added twice. */
TEST_WITH(test_replaced_twice_in_one_term, cluster_set_up, cluster_tear_down)
{
    struct cluster *c = cluster_up(state, 3);
    unsigned leader = cluster_wait_leader(c);
    unsigned lost = cluster_other_than(c, leader);
    struct node *n = c->nodes[leader].node;
    uint64_t term = replica_term(n->replica);
    replace_and_take_back(c, lost);
    struct peer *p = peers_find(&n->peers, lost + 1);
    uint64_t former = p->told.incarnation;
    assert_true(former != 0 && p->told.member_index == 0);
    cluster_stop(c, lost, 0);
    replace(c, lost);
    assert_true(p->id == lost + 1 && p->told.incarnation == 0);
    p->told.incarnation = former; /* it comes back, and names a configuration that nobody has */
    p->told.member_index = UINT64_MAX;
    struct successor s = {n, lost + 1, fli_clock_ms()};
    cluster_until(c, is_called_or_added, &s, "the leader looks for the next one");
    assert_null(configuration_find(replica_configuration(n->replica), lost + 1));
    assert_int_equal(replica_term(n->replica), term);
    scratch_wipe(c->nodes[lost].dir);
    take_back(c, lost);
    cluster_expect_same_hash(c);
}
