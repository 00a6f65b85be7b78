/* test_proposer_reads.c: queries that come without commands: rounds in place of entries. */
#include "../../lib/unit.h"

#include "rig.h"

#define OWNER_A "owner-of-16-bytes-a"

static struct rig rig;

static int start_three(void **state)
{
    rig_start(&rig, 3, NULL);
    *state = &rig;
    return 0;
}

static int stop(void **state)
{
    rig_stop(&rig);
    return 0;
}

TEST_WITH(a_query_alone_needs_no_entry, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    rig_run(r, 100);
    uint64_t batches = rig_batches(r, l);
    uint64_t last = replica_last_index(r->nodes[l].server->replica);
    struct rig_call *c = rig_check(r, "lock", 1);
    assert_int_equal(rig_add(r, l, c), 0);
    rig_turn(r, l);
    assert_int_equal(c->answers, 0); /* a majority has not said yet that this one leads */
    rig_await(r, c);
    assert_int_equal(c->result.code, MACHINE_NO);
    assert_int_equal(rig_batches(r, l), batches);
    assert_int_equal(replica_last_index(r->nodes[l].server->replica), last);
}

/* Those that come while a round is on its way wait for the next one, in order. */
TEST_WITH(queries_gather_while_a_round_is_on_its_way, start_three, stop)
{
    struct rig *r = *state;
    struct rig_call *c[6];
    unsigned l = rig_leader(r);
    rig_run(r, 100);
    uint64_t batches = rig_batches(r, l);
    for (unsigned i = 0; i < 6; i++) {
        c[i] = rig_check(r, "lock", 1);
        assert_int_equal(rig_add(r, l, c[i]), 0);
        rig_turn(r, l);
    }
    while (c[0]->answers == 0) {
        rig_step(r);
    }
    assert_int_equal(c[1]->answers, 0);
    rig_await(r, c[5]);
    assert_int_equal(c[1]->answers, 1);
    assert_int_equal(rig_batches(r, l), batches);
}

/* The client's RELEASE came behind its CHECK. Whatever arrives first, the CHECK is answered by the
 * state in front of it. */
TEST_WITH(a_query_is_answered_before_the_entry_behind_it, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    struct rig_call *take = rig_acquire(r, "lock", OWNER_A, 60000);
    assert_int_equal(rig_add(r, l, take), 0);
    rig_await(r, take);
    struct rig_call *check = rig_check(r, "lock", take->result.token);
    assert_int_equal(rig_add(r, l, check), 0);
    rig_turn(r, l);
    group_drop(&r->g); /* the round is lost */
    struct rig_call *give = rig_release(r, "lock", take->result.token);
    assert_int_equal(rig_add(r, l, give), 0);
    rig_turn(r, l);
    assert_int_equal(check->answers, 0);
    rig_await(r, give);
    assert_int_equal(check->answers, 1);
    assert_int_equal(check->result.code, MACHINE_DONE);
    assert_int_equal(give->result.code, MACHINE_DONE);
}

/* Another node may have answered by what is committed and not applied here yet. */
TEST_WITH(a_query_waits_for_what_is_committed, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    rig_run(r, 100);
    struct rig_call *take = rig_acquire(r, "lock", OWNER_A, 60000);
    struct rig_call *check = rig_check(r, "lock", 1);
    assert_int_equal(rig_add(r, l, take), 0);
    rig_turn(r, l);
    assert_int_equal(rig_add(r, l, check), 0);
    rig_turn(r, l);
    rig_await(r, check);
    assert_int_equal(take->answers, 1);
    assert_int_equal(check->result.code, MACHINE_DONE);
}

/* A leader that was replaced and does not know it answers nothing: its state may be old. */
TEST_WITH(a_replaced_leader_answers_no_query, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    rig_run(r, 200);
    group_isolate(&r->g, l, true);
    struct rig_call *check[2] = {rig_check(r, "lock", 1), rig_check(r, "lock", 1)};
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(rig_add(r, l, check[i]), 0);
        rig_turn(r, l);
    }
    while (proposer_is_open(&r->nodes[l].proposer)) {
        rig_step(r);
        assert_int_equal(check[0]->answers + check[1]->answers, 0);
    }
    rig_run(r, 10);
    for (unsigned i = 0; i < 2; i++) {
        assert_true(rig_waits(r, l, check[i]));
    }
}

/* No entry moves the machine's clock meanwhile. */
TEST_WITH(time_left_is_told_by_the_clock_of_the_moment, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    struct rig_call *take = rig_acquire(r, "lock", OWNER_A, 60000);
    assert_int_equal(rig_add(r, l, take), 0);
    rig_await(r, take);
    uint64_t batches = rig_batches(r, l);
    rig_run(r, 20000);
    struct machine_command show = {.op = MACHINE_OP_SHOW, .name = rig_text("lock")};
    struct rig_call *look = rig_call(r, &show);
    assert_int_equal(rig_add(r, l, look), 0);
    rig_await(r, look);
    assert_int_equal(rig_batches(r, l), batches);
    assert_true(look->result.clock_ms >= take->result.clock_ms + 19000);
    assert_true(look->result.clock_ms <= take->result.clock_ms + 20100);
}

/* What is over when the query comes ends before it is answered. */
TEST_WITH(a_query_goes_with_an_expiry_that_is_due, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    struct rig_call *take = rig_acquire(r, "lock", OWNER_A, 1000);
    assert_int_equal(rig_add(r, l, take), 0);
    rig_await(r, take);
    r->nodes[l].asleep = true;
    for (unsigned i = 0; i < 5; i++) {
        rig_run(r, 190);
        r->nodes[l].asleep = false;
        rig_turn(r, l);
        r->nodes[l].asleep = true;
    }
    rig_run(r, 100);
    struct rig_call *check = rig_check(r, "lock", take->result.token);
    assert_int_equal(rig_add(r, l, check), 0);
    r->nodes[l].asleep = false;
    rig_await(r, check);
    assert_int_equal(check->result.code, MACHINE_NO);
}

/* ---- renewals -------------------------------------------------------------------------------- */

static struct rig_call *take(struct rig *r, unsigned l, uint64_t ttl_ms)
{
    struct rig_call *c = rig_acquire(r, "lock", OWNER_A, ttl_ms);
    assert_int_equal(rig_add(r, l, c), 0);
    rig_await(r, c);
    assert_int_equal(c->result.code, MACHINE_GRANTED);
    return c;
}

static struct rig_call *renew(struct rig *r, unsigned l, uint64_t token, uint64_t ttl_ms)
{
    struct machine_command m = {
        .op = MACHINE_OP_RENEW, .name = rig_text("lock"), .token = token, .ttl_ms = ttl_ms};
    struct rig_call *c = rig_call(r, &m);
    assert_int_equal(rig_add(r, l, c), 0);
    return c;
}

static unsigned check(struct rig *r, unsigned l, uint64_t token)
{
    struct rig_call *c = rig_check(r, "lock", token);
    assert_int_equal(rig_add(r, l, c), 0);
    rig_await(r, c);
    return c->result.code;
}

TEST_WITH(a_renewal_needs_no_entry, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    struct rig_call *own = take(r, l, 5000);
    uint64_t token = own->result.token;
    uint64_t batches = rig_batches(r, l);
    uint64_t until_ms = own->result.deadline_ms;
    for (unsigned i = 0; i < 5; i++) {
        rig_run(r, 4000);
        struct rig_call *c = renew(r, l, token, i % 2 == 0 ? 0 : 5000);
        rig_turn(r, l);
        assert_int_equal(c->answers, 0); /* a majority has not said yet that this one leads */
        rig_await(r, c);
        assert_int_equal(c->result.code, MACHINE_DONE);
        assert_true(c->result.deadline_ms >= until_ms + 3900);
        assert_in_range(c->result.deadline_ms - c->result.clock_ms, 4900, 5000); /* as is told */
        until_ms = c->result.deadline_ms;
    }
    assert_int_equal(rig_batches(r, l), batches);
    assert_int_equal(check(r, l, token), MACHINE_DONE);
    /* Nobody renews it any more: one entry ends it. */
    rig_run(r, 6000);
    assert_int_equal(rig_batches(r, l), batches + 1);
    assert_int_equal(check(r, l, token), MACHINE_NO);
    struct rig_call *late = renew(r, l, token, 0);
    rig_await(r, late);
    assert_int_equal(late->result.code, MACHINE_NO);
}

/* All nodes have to know a new ttl, since one of them may lead next. */
TEST_WITH(a_new_ttl_needs_an_entry, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    uint64_t token = take(r, l, 5000)->result.token;
    uint64_t batches = rig_batches(r, l);
    struct rig_call *c = renew(r, l, token, 60000);
    rig_await(r, c);
    assert_int_equal(rig_batches(r, l), batches + 1);
    rig_run(r, 30000);
    assert_int_equal(check(r, l, token), MACHINE_DONE);
}

static void hold_all(struct rig *r, bool held)
{
    for (unsigned i = 1; i <= r->g.n; i++) {
        r->g.held[i] = held;
    }
}

/* It comes when the end of the lease is on its way, and hears what becomes of it. */
TEST_WITH(a_renewal_waits_for_an_end_that_is_on_its_way, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    uint64_t token = take(r, l, 5000)->result.token;
    uint64_t batches = rig_batches(r, l);
    while (rig_batches(r, l) == batches) {
        rig_step(r);
    }
    hold_all(r, true); /* messages take a millisecond */
    struct rig_call *c = renew(r, l, token, 0);
    rig_run(r, 10);
    assert_int_equal(c->answers, 0);
    hold_all(r, false);
    rig_await(r, c);
    assert_int_equal(c->result.code, MACHINE_NO);
}

/* The leader hands over, or was stopped: it proposes nothing of clients for a while. */
TEST_WITH(a_renewal_that_came_in_time_may_wait_for_the_leader, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    uint64_t token = take(r, l, 5000)->result.token;
    rig_run(r, 4900);
    struct rig_call *c = renew(r, l, token, 0);
    r->nodes[l].asleep = true;
    for (unsigned i = 0; i < 500; i++) {
        rig_step(r);
        proposer_turn(&r->nodes[l].proposer, COMMANDS_OF(COMMAND_CLUSTER), r->g.now_ms);
    }
    r->nodes[l].asleep = false;
    assert_int_equal(c->answers, 0);
    rig_await(r, c);
    assert_int_equal(c->result.code, MACHINE_DONE);
    rig_run(r, 4900);
    assert_int_equal(check(r, l, token), MACHINE_DONE);
    rig_run(r, 1000);
    assert_int_equal(check(r, l, token), MACHINE_NO);
}

/* The replica takes no entry, while leadership is handed over or the disk is behind. The lease of
 * the token that is returned is due meanwhile. */
static uint64_t refuse_an_end(struct rig *r, unsigned l, unsigned to)
{
    uint64_t token = take(r, l, 5000)->result.token;
    rig_run(r, 4990);
    group_isolate(&r->g, to, true);
    assert_int_equal(replica_transfer(group_replica(&r->g, l), r->g.now_ms, to + 1), 0);
    uint64_t batches = rig_batches(r, l);
    rig_run(r, 40);
    assert_int_equal(rig_batches(r, l), batches);
    return token;
}

TEST_WITH(an_end_that_was_refused_is_proposed_again, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    uint64_t token = refuse_an_end(r, l, (l + 1) % r->g.n);
    uint64_t batches = rig_batches(r, l);
    rig_run(r, 2000);
    assert_int_equal(rig_batches(r, l), batches + 1);
    assert_int_equal(check(r, l, token), MACHINE_NO);
}

/* A read that comes meanwhile needs no entry, but the batch that it joins does. */
TEST_WITH(an_end_that_was_refused_is_proposed_again_with_reads, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    uint64_t token = refuse_an_end(r, l, (l + 1) % r->g.n);
    struct rig_call *c = rig_check(r, "lock", token);
    assert_int_equal(rig_add(r, l, c), 0);
    rig_await(r, c);
    rig_run(r, 2000);
    assert_int_equal(check(r, l, token), MACHINE_NO);
}

/* In a later term of the same leader, the lease has its full time. */
TEST_WITH(an_end_that_was_refused_is_forgotten_with_its_term, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    unsigned to = (l + 1) % r->g.n;
    uint64_t token = take(r, l, 5000)->result.token;
    rig_run(r, 4990);
    hold_all(r, true);
    assert_int_equal(replica_transfer(group_replica(&r->g, l), r->g.now_ms, to + 1), 0);
    uint64_t batches = rig_batches(r, l);
    rig_run(r, 40);
    assert_int_equal(rig_batches(r, l), batches);
    hold_all(r, false);
    while (!proposer_is_open(&r->nodes[to].proposer)) {
        rig_step(r);
    }
    rig_run(r, 200);
    assert_int_equal(replica_transfer(group_replica(&r->g, to), r->g.now_ms, l + 1), 0);
    while (!proposer_is_open(&r->nodes[l].proposer)) {
        rig_step(r);
    }
    rig_run(r, 4000);
    assert_int_equal(check(r, l, token), MACHINE_DONE);
    rig_run(r, 2000);
    assert_int_equal(check(r, l, token), MACHINE_NO);
    group_expect_same(&r->g);
}

/* Others' leases end meanwhile, one in an entry that the renewal stands in. */
TEST_WITH(a_renewal_that_came_in_time_may_wait_for_a_round, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    struct rig_call *other = rig_acquire(r, "other", "owner-of-16-bytes-b", 5000);
    uint64_t token = take(r, l, 5000)->result.token;
    assert_int_equal(rig_add(r, l, other), 0);
    rig_await(r, other);
    rig_run(r, 4970);
    hold_all(r, true); /* not for so long that another one leads */
    struct rig_call *first = rig_check(r, "lock", token);
    assert_int_equal(rig_add(r, l, first), 0);
    rig_turn(r, l);
    struct rig_call *c = renew(r, l, token, 0);
    uint64_t batches = rig_batches(r, l);
    rig_run(r, 60);
    assert_int_equal(rig_batches(r, l), batches + 1);
    hold_all(r, false);
    rig_await(r, c);
    assert_int_equal(c->result.code, MACHINE_DONE);
    rig_run(r, 100);
    struct rig_call *gone = rig_check(r, "other", other->result.token);
    assert_int_equal(rig_add(r, l, gone), 0);
    rig_await(r, gone);
    assert_int_equal(gone->result.code, MACHINE_NO);
}

/* The end of a lease that is not committed is no end: the new leader gives the lease its full ttl,
 * and with it whatever the former one has said. */
TEST_WITH(a_new_leader_gives_each_lease_its_full_ttl, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    uint64_t token = take(r, l, 5000)->result.token;
    rig_run(r, 4900);
    struct rig_call *c = renew(r, l, token, 0);
    rig_await(r, c);
    uint64_t renewed_at_ms = r->g.now_ms;
    group_isolate(&r->g, l, true);
    while (rig_leader(r) == l) {
        rig_step(r);
    }
    unsigned next = rig_leader(r);
    while (r->g.now_ms < renewed_at_ms + 4900) {
        rig_step(r);
    }
    assert_int_equal(check(r, next, token), MACHINE_DONE);
    c = renew(r, next, token, 0);
    rig_await(r, c);
    assert_int_equal(c->result.code, MACHINE_DONE);
    /* The former leader has given the lease up meanwhile, and follows. */
    group_isolate(&r->g, l, false);
    rig_run(r, 4000);
    assert_int_equal(check(r, next, token), MACHINE_DONE);
    rig_run(r, 6000);
    assert_int_equal(check(r, next, token), MACHINE_NO);
}

static void hand_over(struct rig *r, unsigned from, unsigned to)
{
    assert_int_equal(replica_transfer(group_replica(&r->g, from), r->g.now_ms, to + 1), 0);
    while (rig_leader(r) != to) {
        rig_step(r);
    }
}

/* A leader gives a lease up, and is replaced before that is committed. When it leads again it
 * watches the lease as any other, and ends it. */
TEST_WITH(what_a_former_leader_gave_up_is_watched_again, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    uint64_t token = take(r, l, 5000)->result.token;
    uint64_t batches = rig_batches(r, l);
    rig_run(r, 4900);
    assert_int_equal(rig_batches(r, l), batches);
    group_isolate(&r->g, l, true);
    struct machine *m = fsm_machine(r->nodes[l].server->fsm);
    struct machine_command end;
    assert_true(machine_lease_give_up(m, machine_clock(m) + 60000, &end));
    while (rig_leader(r) == l) {
        rig_step(r);
    }
    unsigned next = rig_leader(r);
    group_isolate(&r->g, l, false);
    rig_run(r, 1000);
    assert_int_equal(check(r, next, token), MACHINE_DONE);
    hand_over(r, next, l);
    assert_int_equal(check(r, l, token), MACHINE_DONE);
    rig_run(r, 6000);
    assert_int_equal(check(r, l, token), MACHINE_NO);
}

/* A leader has moved the end of a lease in its memory, far beyond the clock of the log, which stood
 * still meanwhile. Another one led, and the holder is gone: when the first leads again, the lease
 * has its full ttl from then and no more. */
TEST_WITH(what_a_former_leader_watched_is_forgotten, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    unsigned next = (l + 1) % r->g.n;
    uint64_t token = take(r, l, 5000)->result.token;
    for (unsigned i = 0; i < 10; i++) {
        rig_run(r, 4000);
        rig_await(r, renew(r, l, token, 0));
    }
    hand_over(r, l, next);
    hand_over(r, next, l);
    assert_int_equal(check(r, l, token), MACHINE_DONE);
    rig_run(r, 6000);
    assert_int_equal(check(r, l, token), MACHINE_NO);
}

#define NAMES 16u
#define WAITS 250u

/* So many wait for locks, 16 each, that their ends take several entries. All are due, and one of
 * these entries was applied. No other is proposed by this leader, nor by the next. */
static void leave_work(struct rig *r, unsigned l, uint64_t token)
{
    static const uint8_t also[2 * (NAMES - 1)] = "\1a\1b\1c\1d\1e\1f\1g\1h\1i\1j\1k\1l\1m\1n\1o";
    struct machine_command wait = {.op = MACHINE_OP_ACQUIRE,
                                   .flags = MACHINE_ACQUIRE_WAIT,
                                   .n_names = NAMES,
                                   .permits = 1,
                                   .name = rig_text("w"),
                                   .also = {also, sizeof also},
                                   .ttl_ms = 60000,
                                   .wait_ms = 3000};
    struct rig_call *c = rig_acquire(r, "w", OWNER_A, 60000);
    assert_int_equal(rig_add(r, l, c), 0);
    for (unsigned i = 0; i < WAITS; i++) {
        char owner[FL_OWNER_MAX];
        (void)snprintf(owner, sizeof owner, "waiter-of-16-bytes-%u", i);
        wait.owner = rig_text(owner);
        c = rig_call(r, &wait);
        assert_int_equal(rig_add(r, l, c), 0);
    }
    rig_await(r, c);
    rig_run(r, 2000);
    rig_await(r, renew(r, l, token, 0));
    rig_run(r, 900);
    for (unsigned i = 0; i < r->g.n; i++) {
        r->nodes[i].asleep = true;
    }
    rig_run(r, 190);
    rig_turn(r, l);
    rig_run(r, 10);
    assert_true(machine_has_work(fsm_machine(r->nodes[l].server->fsm)));
}

static void transfer(struct rig *r, unsigned from, unsigned to)
{
    assert_int_equal(replica_transfer(group_replica(&r->g, from), r->g.now_ms, to + 1), 0);
    while (replica_role(group_replica(&r->g, to)) != REPLICA_LEADER) {
        rig_step(r);
    }
}

/* A term mark waits until nothing is left that was due before. Until then the bounds of leases are
 * the log's, and what the former leader has promised is not in them. */
static void expect_full_ttl(struct rig *r, unsigned i, uint64_t token)
{
    r->nodes[i].asleep = false;
    rig_run(r, 200);
    struct rig_call *c = renew(r, i, token, 0);
    rig_await(r, c);
    assert_int_equal(c->result.code, MACHINE_DONE);
}

TEST_WITH(no_lease_is_given_up_while_the_mark_waits, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    uint64_t token = take(r, l, 2500)->result.token;
    leave_work(r, l, token);
    transfer(r, l, (l + 1) % 3);
    expect_full_ttl(r, (l + 1) % 3, token);
}

TEST_WITH(no_lease_is_given_up_before_the_mark, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    uint64_t token = take(r, l, 2500)->result.token;
    leave_work(r, l, token);
    transfer(r, l, (l + 1) % 3);
    transfer(r, (l + 1) % 3, l);
    expect_full_ttl(r, l, token);
}
