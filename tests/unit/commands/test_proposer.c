/* test_proposer.c: batches, tickets, leadership and time of the proposer, each tested alone. The
 * simulation in tests/sim tests them together. */
#include "../../lib/unit.h"

#include "commands/clock.h"
#include "machine/batch.h"
#include "rig.h"

#define OWNER_A "owner-of-16-bytes-a"
#define OWNER_B "owner-of-16-bytes-b"

static struct rig rig;

static int start_one(void **state)
{
    rig_start(&rig, 1, NULL);
    *state = &rig;
    return 0;
}

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

static void cut_off(struct rig *r, unsigned l)
{
    group_isolate(&r->g, l, true);
}

TEST_WITH(opens_behind_the_barrier_of_the_term, start_one, stop)
{
    struct rig *r = *state;
    struct rig_call *c = rig_acquire(r, "lock", OWNER_A, 1000);
    assert_int_equal(rig_add(r, 0, c), 0);
    assert_int_equal(r->nodes[0].opened, 0);
    assert_true(rig_waits(r, 0, c));
    commands_end_waiting(&r->nodes[0].queue);
    rig_leader(r);
    assert_int_equal(r->nodes[0].opened, 1);
    /* The term mark is sent although no command waits. */
    assert_int_equal(rig_batches(r, 0), 1);
    rig_run(r, 500);
    assert_int_equal(rig_batches(r, 0), 1);
}

TEST_WITH(answers_each_command_and_query_at_its_place, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    rig_run(r, 100);
    uint64_t batches = rig_batches(r, l);
    struct rig_call *before = rig_check(r, "lock", 1);
    struct rig_call *take = rig_acquire(r, "lock", OWNER_A, 5000);
    struct rig_call *during = rig_check(r, "lock", 1);
    struct rig_call *other = rig_acquire(r, "lock", OWNER_B, 5000);
    struct rig_call *give = rig_release(r, "lock", 1);
    struct rig_call *after = rig_check(r, "lock", 1);
    struct machine_command show = {.op = MACHINE_OP_SHOW, .name = rig_text("lock")};
    struct rig_call *look = rig_call(r, &show);
    struct rig_call *all[] = {before, take, during, other, give, after, look};
    for (unsigned i = 0; i < 7; i++) {
        assert_int_equal(rig_add(r, l, all[i]), 0);
    }
    rig_await(r, look);
    assert_int_equal(rig_batches(r, l), batches + 1);
    for (unsigned i = 0; i < 7; i++) {
        assert_int_equal(all[i]->answers, 1);
        assert_int_equal(all[i]->status, 0);
    }
    assert_int_equal(before->result.code, MACHINE_NO);
    assert_int_equal(take->result.code, MACHINE_GRANTED);
    assert_int_equal(take->result.token, 1);
    assert_int_equal(during->result.code, MACHINE_DONE);
    assert_int_equal(other->result.code, MACHINE_HELD);
    assert_int_equal(give->result.code, MACHINE_DONE);
    assert_int_equal(after->result.code, MACHINE_NO);
    assert_int_equal(look->result.code, MACHINE_NOTFOUND);
}

TEST(commands_gather_while_entries_are_in_flight)
{
    const struct proposer_config config = {.in_flight_max = 1};
    struct rig *r = &rig;
    rig_start(r, 3, &config);
    unsigned l = rig_leader(r);
    rig_run(r, 200);
    uint64_t batches = rig_batches(r, l);
    struct rig_call *first = rig_release(r, "lock", 1);
    assert_int_equal(rig_add(r, l, first), 0);
    rig_turn(r, l);
    assert_int_equal(rig_batches(r, l), batches + 1);
    struct rig_call *last = NULL;
    for (unsigned i = 0; i < 10; i++) {
        char name[8] = {'n', (char)('0' + i), 0};
        last = rig_acquire(r, name, OWNER_A, 5000);
        assert_int_equal(rig_add(r, l, last), 0);
        rig_turn(r, l);
    }
    assert_int_equal(rig_batches(r, l), batches + 1);
    rig_await(r, last);
    assert_int_equal(rig_batches(r, l), batches + 2);
    rig_stop(r);
}

static void add_some(struct rig *r, unsigned leader, unsigned n)
{
    static unsigned made;
    for (unsigned i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "some%u", made++);
        assert_int_equal(rig_add(r, leader, rig_acquire(r, name, OWNER_A, 5000)), 0);
    }
    rig_turn(r, leader);
}

/* Another entry is proposed when as many commands wait for it as are on their way in others. */
TEST_WITH(an_entry_in_flight_is_followed_by_one_as_large, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    rig_run(r, 200);
    uint64_t batches = rig_batches(r, l);
    add_some(r, l, 3);
    assert_int_equal(rig_batches(r, l), batches + 1);
    add_some(r, l, 2);
    assert_int_equal(rig_batches(r, l), batches + 1);
    add_some(r, l, 1);
    assert_int_equal(rig_batches(r, l), batches + 2);
    add_some(r, l, 5);
    assert_int_equal(rig_batches(r, l), batches + 2);
    rig_run(r, 200); /* what was in flight has come back, and the rest went by itself */
    assert_int_equal(rig_batches(r, l), batches + 3);
}

/* Of so many bytes. */
static struct rig_call *call_of(struct rig *r, size_t bytes)
{
    static const uint8_t value[FL_VALUE_MAX];
    struct machine_command m = {.op = MACHINE_OP_ACQUIRE,
                                .n_names = 1,
                                .permits = 1,
                                .name = rig_text("lock"),
                                .owner = rig_text(OWNER_A),
                                .value = {value, 1},
                                .ttl_ms = 5000};
    m.value.len += bytes - rig_call(r, &m)->bytes.len;
    return rig_call(r, &m);
}

/* Fills a batch to the last byte that is not kept for leases that end; the next byte goes into
 * another. */
TEST(a_batch_has_a_ceiling)
{
    enum { EACH = 1024, ALL = MACHINE_COMMAND_MAX / EACH };
    const struct proposer_config config = {.batch_max = 1}; /* raised to one command */
    struct rig *r = &rig;
    rig_start(r, 1, &config);
    rig_leader(r);
    rig_run(r, 100);
    for (unsigned more = 0; more < 2; more++) {
        struct proposer_stats before = r->nodes[0].proposer.stats;
        struct rig_call *c = NULL;
        for (unsigned i = 0; i < ALL; i++) {
            c = call_of(r, EACH + (i == 0 ? more : 0));
            assert_int_equal(rig_add(r, 0, c), 0);
        }
        rig_await(r, c);
        const struct proposer_stats *after = &r->nodes[0].proposer.stats;
        assert_int_equal(after->batches - before.batches, 1 + more);
        assert_true(more == 1 ||
                    after->bytes - before.bytes == MACHINE_BATCH_HEADER_SIZE + MACHINE_COMMAND_MAX);
    }
    rig_stop(r);
}

/* How many ACQUIRE fill a batch. */
enum { FILLS = MACHINE_BATCH_COST_MAX / (2 * MACHINE_STEPS_RECORD), RENEWALS = 20 };

TEST(what_does_not_fit_goes_into_the_next_batch)
{
    const struct proposer_config config = {.batch_max = 1}; /* raised to one command */
    struct rig *r = &rig;
    rig_start(r, 1, &config);
    rig_leader(r);
    rig_run(r, 100);
    uint64_t batches = rig_batches(r, 0);
    uint8_t value[FL_VALUE_MAX] = {0};
    struct rig_call *c[20];
    for (unsigned i = 0; i < 20; i++) {
        char name[8] = {'n', (char)('a' + i), 0};
        struct machine_command m = {.op = MACHINE_OP_ACQUIRE,
                                    .n_names = 1,
                                    .permits = 1,
                                    .name = rig_text(name),
                                    .owner = rig_text(OWNER_A),
                                    .value = {value, sizeof value},
                                    .ttl_ms = 5000};
        c[i] = rig_call(r, &m);
        assert_int_equal(rig_add(r, 0, c[i]), 0);
    }
    rig_await(r, c[19]);
    assert_int_equal(rig_batches(r, 0),
                     batches + 3); /* seven, seven and six of a little over 1 KiB */
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(c[i]->answers, 1);
        assert_int_equal(c[i]->result.token, i + 1);
    }
    rig_stop(r);
}

/* One leader, whose lock "own" is held by OWNER_B. */
static unsigned leader_and_own(struct rig *r, const struct proposer_config *config,
                               struct rig_call **ret_own)
{
    rig_start(r, 1, config);
    unsigned l = rig_leader(r);
    *ret_own = rig_acquire(r, "own", OWNER_B, 60000);
    assert_int_equal(rig_add(r, l, *ret_own), 0);
    rig_await(r, *ret_own);
    return l;
}

static struct rig_call *renew(struct rig *r, unsigned l, const struct rig_call *own,
                              uint64_t source)
{
    struct machine_command m = {
        .op = MACHINE_OP_RENEW, .name = rig_text("own"), .token = own->result.token};
    struct rig_call *c = rig_call(r, &m);
    c->ticket.source = source;
    assert_int_equal(rig_add(r, l, c), 0);
    return c;
}

/* Not sent yet: ACQUIRE of lock n<i> with as large a value as there may be. */
static struct rig_call *large_acquire(struct rig *r, unsigned i, uint64_t source)
{
    static const uint8_t value[FL_VALUE_MAX];
    char name[16];
    (void)snprintf(name, sizeof name, "n%u", i);
    const struct machine_command m = {.op = MACHINE_OP_ACQUIRE,
                                      .n_names = 1,
                                      .permits = 1,
                                      .name = rig_text(name),
                                      .owner = rig_text(OWNER_A),
                                      .value = {value, sizeof value},
                                      .ttl_ms = 60000};
    struct rig_call *call = rig_call(r, &m);
    call->ticket.source = source;
    return call;
}

/* One client fills batches to come; another's renewal goes into the next that is filled, and the
 * first one's commands keep their order. */
TEST(a_small_client_waits_for_one_batch)
{
    const struct proposer_config config = {.batch_max = 1, .in_flight_max = 1};
    struct rig *r = &rig;
    struct rig_call *c[20];
    struct rig_call *own;
    unsigned l = leader_and_own(r, &config, &own);
    for (unsigned i = 0; i < 20; i++) {
        c[i] = large_acquire(r, i, 1);
        assert_int_equal(rig_add(r, l, c[i]), 0);
    }
    struct rig_call *renewal = renew(r, l, own, 2);
    rig_await(r, renewal);
    assert_int_equal(c[6]->answers, 1); /* seven were in the batch already */
    assert_int_equal(c[19]->answers, 0);
    rig_await(r, c[19]);
    for (unsigned i = 1; i < 20; i++) {
        assert_true(c[i - 1]->result.token < c[i]->result.token);
    }
    rig_stop(r);
}

/* Adds one command of client 1 more than a batch has room for: the last goes into the next. */
static void fill_a_batch(struct rig *r, unsigned l, struct rig_call *c[FILLS + 1])
{
    for (unsigned i = 0; i <= FILLS; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "n%u", i);
        c[i] = rig_acquire(r, name, OWNER_A, 60000);
        c[i]->ticket.source = 1;
        assert_int_equal(rig_add(r, l, c[i]), 0);
    }
}

/* Renewals that come behind all that is in line are in the next batch with it. */
TEST(renewals_go_into_the_next_batch)
{
    const struct proposer_config config = {.in_flight_max = 1};
    struct rig *r = &rig;
    struct rig_call *c[FILLS + 1];
    struct rig_call *renewal[RENEWALS];
    struct rig_call *own;
    unsigned l = leader_and_own(r, &config, &own);
    fill_a_batch(r, l, c);
    for (unsigned i = 0; i < RENEWALS; i++) {
        renewal[i] = renew(r, l, own, 2 + i);
    }
    rig_await(r, renewal[0]);
    assert_int_equal(renewal[RENEWALS - 1]->answers, 1);
    assert_int_equal(c[0]->answers, 1);
    assert_int_equal(c[FILLS]->answers, 0);
    rig_await(r, c[FILLS]);
    rig_stop(r);
}

/* While the entries in flight cost more than one batch may, new commands wait for the next batch,
 * even when more entries may be in flight. */
TEST(full_batches_wait_for_those_in_flight)
{
    enum { EACH = MACHINE_BATCH_COST_MAX / (MACHINE_STEPS_RECORD * (1 + MACHINE_NAMES_MAX)) };
    struct rig *r = &rig;
    struct rig_call *c = NULL;
    rig_start(r, 1, NULL);
    rig_leader(r);
    rig_run(r, 100);
    r->nodes[0].server->disk_stuck = true;
    for (unsigned i = 0; i < 4 * EACH; i++) {
        struct machine_command m = {.op = MACHINE_OP_BREAK, .name = rig_text("none")};
        c = rig_call(r, &m);
        assert_int_equal(rig_add(r, 0, c), 0);
    }
    rig_run(r, 10);
    assert_int_equal(proposer_in_flight(&r->nodes[0].proposer), 2);
    assert_int_equal(r->nodes[0].queue.count, 4 * EACH);
    assert_true(rig_waits(r, 0, c));
    r->nodes[0].server->disk_stuck = false;
    rig_await(r, c);
    rig_stop(r);
}

/* A renewal does not overtake commands that its own client sent before. */
TEST(a_renewal_stays_behind_its_own)
{
    const struct proposer_config config = {.in_flight_max = 1};
    struct rig *r = &rig;
    struct rig_call *c[FILLS + 1];
    struct rig_call *own;
    unsigned l = leader_and_own(r, &config, &own);
    fill_a_batch(r, l, c);
    struct rig_call *renewal = renew(r, l, own, 1);
    rig_await(r, c[0]);
    assert_int_equal(renewal->answers, 0);
    rig_await(r, renewal);
    assert_int_equal(c[FILLS]->answers, 1);
    rig_stop(r);
}

/* n + 1 queries, of which the last is not answered with the others. */
static void expect_batch_of(struct rig *r, unsigned l, unsigned n, const struct machine_command *m)
{
    struct rig_call *c[64];
    assert_true(n < 64);
    for (unsigned i = 0; i <= n; i++) {
        c[i] = rig_call(r, &m[i == 0 ? 0 : 1]);
        assert_int_equal(rig_add(r, l, c[i]), 0);
    }
    rig_await(r, c[0]);
    assert_int_equal(c[n - 1]->answers, 1);
    assert_int_equal(c[n]->answers, 0);
    rig_await(r, c[n]);
}

/* All queries of a batch are answered at once, so lists fill a batch by what they may cost. */
TEST_WITH(lists_fill_a_batch_by_their_cost, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    rig_run(r, 100);
    enum { LISTS = MACHINE_BATCH_COST_MAX / MACHINE_LIST_COST };
    enum { SHOWS = (MACHINE_BATCH_COST_MAX - MACHINE_LIST_COST) / MACHINE_SHOW_COST };
    const struct machine_command lists[2] = {{.op = MACHINE_OP_LOCKS}, {.op = MACHINE_OP_LOCKS}};
    const struct machine_command mixed[2] = {{.op = MACHINE_OP_LOCKS},
                                             {.op = MACHINE_OP_SHOW, .name = rig_text("n")}};
    expect_batch_of(r, l, LISTS, lists);
    expect_batch_of(r, l, 1 + SHOWS, mixed);
}

/* What another node sends may be anything. None of it gets into an entry. */
TEST_WITH(refuses_what_is_not_one_command, start_one, stop)
{
    struct rig *r = *state;
    rig_leader(r);
    rig_run(r, 100);
    struct rig_call *whole = rig_acquire(r, "lock", OWNER_A, 1000);
    size_t len = whole->bytes.len;
    for (size_t cut = 1; cut <= len + 2; cut++) {
        struct rig_call *c = rig_acquire(r, "lock", OWNER_A, 1000);
        if (cut > len) {
            assert_int_equal(fli_buf_append(&c->bytes, "\0", 1), 0);
        } else {
            c->bytes.len = cut < len ? cut : len;
        }
        c->bytes.data[0] = cut == len ? 99 : c->bytes.data[0];
        assert_int_equal(rig_add(r, 0, c), 0);
        rig_await(r, c);
        assert_int_equal(c->status, FL_EINVAL);
    }
    assert_int_equal(r->nodes[0].proposer.stats.commands, 0);
    assert_int_equal(rig_add(r, 0, whole), 0);
    rig_await(r, whole);
    assert_int_equal(whole->result.code, MACHINE_GRANTED);
}

TEST_WITH(a_callback_may_ask_for_more, start_one, stop)
{
    struct rig *r = *state;
    rig_leader(r);
    struct rig_call *first = rig_acquire(r, "lock", OWNER_A, 5000);
    struct rig_call *query = rig_check(r, "lock", 1);
    struct rig_call *last = rig_release(r, "lock", 1);
    first->again = query->again = &r->nodes[0];
    first->next = query;
    query->next = last;
    assert_int_equal(rig_add(r, 0, first), 0);
    rig_await(r, last);
    assert_int_equal(first->answers, 1);
    assert_int_equal(query->answers, 1);
    assert_int_equal(query->result.code, MACHINE_DONE);
    assert_int_equal(last->result.code, MACHINE_DONE);
}

static void join_again(struct rig *r, unsigned l)
{
    group_isolate(&r->g, l, false);
}

static void note_theirs(void *ctx, const struct command_way *way, int status,
                        const struct machine_result *result, struct fli_slice payload)
{
    struct rig_call *theirs = ctx;
    theirs->answers++;
    theirs->status = status;
}

/* What was proposed is uncertain. What only reads, or was not proposed, waits for the next leader,
 * in the order in which it came. What is bound to this one ends. */
TEST_WITH(lost_leadership_answers_everybody_once, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    rig_run(r, 200);
    cut_off(r, l);
    struct rig_call *sent = rig_acquire(r, "sent", OWNER_A, 60000);
    struct rig_call *asked = rig_check(r, "sent", 1);
    struct rig_call *theirs = rig_check(r, "sent", 1);
    const struct command_way way = {.via = 2};
    assert_int_equal(rig_add(r, l, sent), 0);
    assert_int_equal(rig_add(r, l, asked), 0);
    r->nodes[l].queue.ctx = theirs;
    r->nodes[l].queue.answer = note_theirs;
    struct fli_slice bytes = {theirs->bytes.data, theirs->bytes.len};
    assert_int_equal(commands_add_relayed(&r->nodes[l].queue, &way, bytes, 0), 0);
    rig_turn(r, l);
    /* Proposed; the next ones are not, because the loop of this node does not turn. */
    r->nodes[l].asleep = true;
    struct rig_call *c[3] = {rig_acquire(r, "one", OWNER_A, 60000), rig_check(r, "one", 1),
                             rig_acquire(r, "two", OWNER_A, 60000)};
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(rig_add(r, l, c[i]), 0);
    }
    while (replica_role(r->nodes[l].server->replica) == REPLICA_LEADER) {
        rig_step(r);
    }
    rig_step(r);
    rig_turn(r, l);
    assert_int_equal(sent->answers, 1);
    assert_int_equal(sent->status, FL_EUNCERTAIN);
    assert_int_equal(theirs->answers, 1);
    assert_int_equal(theirs->status, FL_ENOLEADER);
    assert_false(proposer_is_open(&r->nodes[l].proposer));
    assert_true(rig_waits(r, l, asked));
    for (unsigned i = 0; i < 3; i++) {
        assert_true(rig_waits(r, l, c[i]));
    }
    struct commands *q = &r->nodes[l].queue;
    assert_ptr_equal(commands_first(q, COMMANDS_ALL)->t, &asked->ticket);
    /* Whatever becomes of the entry, nobody is answered again. */
    commands_end_waiting(q);
    r->nodes[l].asleep = false;
    join_again(r, l);
    rig_run(r, 5000);
    assert_int_equal(sent->answers, 1);
    assert_int_equal(asked->answers, 1);
    assert_int_equal(q->uncertain, 1);
}

TEST_WITH(leads_again_in_another_term, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    cut_off(r, l);
    while (proposer_is_open(&r->nodes[l].proposer)) {
        rig_step(r);
    }
    join_again(r, l);
    unsigned k = rig_leader(r);
    struct rig_call *c = rig_acquire(r, "lock", OWNER_A, 60000);
    assert_int_equal(rig_add(r, k, c), 0);
    rig_await(r, c);
    assert_int_equal(c->status, 0);
    assert_true(replica_term(r->nodes[k].server->replica) > 1);
}

TEST_WITH(waits_while_leadership_is_handed_over, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    rig_run(r, 200);
    assert_int_equal(replica_transfer(r->g.servers[l].replica, r->g.now_ms, (l + 1) % 3 + 1), 0);
    assert_true(replica_role(r->g.servers[l].replica) == REPLICA_LEADER);
    uint64_t batches = rig_batches(r, l);
    struct rig_call *c = rig_acquire(r, "lock", OWNER_A, 60000);
    assert_int_equal(rig_add(r, l, c), 0);
    rig_turn(r, l);
    assert_int_equal(rig_batches(r, l), batches);
    assert_true(proposer_next_turn_ms(&r->nodes[l].proposer, r->g.now_ms) > 0);
    while (!rig_waits(r, l, c)) { /* it is in the batch that the log did not take */
        assert_int_equal(c->answers, 0);
        rig_step(r);
    }
    assert_false(proposer_is_open(&r->nodes[l].proposer));
    rig_run(r, 3000);
    assert_true(rig_waits(r, l, c));
}

/* What is proposed and not written is bounded; the rest waits, and goes on where it was. */
TEST(waits_while_the_disk_is_stuck)
{
    const struct proposer_config config = {.in_flight_max = 100000, .batch_max = 1};
    struct rig *r = &rig;
    rig_start(r, 1, &config);
    rig_leader(r);
    rig_run(r, 100);
    struct group_server *s = r->nodes[0].server;
    s->disk_stuck = true;
    struct rig_call *first = rig_acquire(r, "first", OWNER_A, 60000);
    assert_int_equal(rig_add(r, 0, first), 0);
    rig_turn(r, 0);
    uint8_t bytes[65536] = {0};
    for (unsigned i = 0; i < 2; i++) { /* one write is under way, what comes behind it waits */
        while (replica_submit(s->replica, r->g.now_ms, bytes, sizeof bytes) == 0 ||
               replica_submit(s->replica, r->g.now_ms, bytes, 8) == 0) {
            assert_true(log_room(s->log) < LOG_PENDING_MAX); /* none of these is ever applied */
        }
        rig_run(r, 1);
    }
    uint64_t batches = rig_batches(r, 0);
    struct rig_call *c = rig_acquire(r, "lock", OWNER_A, 60000);
    assert_int_equal(rig_add(r, 0, c), 0);
    rig_run(r, 300);
    assert_int_equal(first->answers + c->answers, 0);
    assert_int_equal(rig_batches(r, 0), batches);
    assert_int_equal(s->fatals, 0);
    assert_true(proposer_is_open(&r->nodes[0].proposer));
    assert_true(proposer_next_turn_ms(&r->nodes[0].proposer, r->g.now_ms) <= PROPOSER_RETRY_MS);
    rig_stop(r);
    assert_int_equal(c->status, FL_ENOLEADER);
    assert_int_equal(first->status, FL_EUNCERTAIN);
}

TEST_WITH(closing_answers_everybody, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    rig_run(r, 200);
    struct rig_call *sent = rig_acquire(r, "sent", OWNER_A, 60000);
    struct rig_call *asked = rig_check(r, "sent", 1);
    assert_int_equal(rig_add(r, l, sent), 0);
    assert_int_equal(rig_add(r, l, asked), 0);
    rig_turn(r, l);
    struct rig_call *waiting = rig_acquire(r, "waiting", OWNER_A, 60000);
    assert_int_equal(rig_add(r, l, waiting), 0);
    proposer_close(&r->nodes[l].proposer);
    r->nodes[l].asleep = true;
    assert_int_equal(sent->status, FL_EUNCERTAIN);
    rig_run(r, 1000); /* the entry is applied, but its tickets are gone */
    assert_int_equal(sent->answers, 1);
    assert_true(rig_waits(r, l, asked) && rig_waits(r, l, waiting));
    assert_int_equal(group_tokens(&r->g, l), 1);
}

TEST_WITH(expiry_needs_no_traffic_and_makes_little, start_one, stop)
{
    struct rig *r = *state;
    rig_leader(r);
    rig_run(r, 100);
    struct rig_call *c = rig_acquire(r, "lock", OWNER_A, 700);
    assert_int_equal(rig_add(r, 0, c), 0);
    rig_await(r, c);
    uint64_t granted = r->g.now_ms;
    uint64_t batches = rig_batches(r, 0);
    struct machine_counts counts;
    do {
        rig_step(r);
        machine_get_counts(fsm_machine(r->nodes[0].server->fsm), &counts);
        assert_true(r->g.now_ms < granted + 5000);
    } while (counts.expiries == 0);
    /* The grant was sealed at most one entry's latency before it was applied. */
    assert_true(r->g.now_ms + 100 >= granted + 700);
    assert_true(r->g.now_ms <= granted + 700 + 500);
    assert_true(rig_batches(r, 0) - batches <= 2);
    batches = rig_batches(r, 0);
    rig_run(r, 5000);
    assert_int_equal(rig_batches(r, 0), batches);
}

TEST_WITH(a_pause_is_not_charged_to_leases, start_one, stop)
{
    struct rig *r = *state;
    rig_leader(r);
    rig_run(r, 100);
    struct rig_call *c = rig_acquire(r, "lock", OWNER_A, 1000);
    assert_int_equal(rig_add(r, 0, c), 0);
    rig_await(r, c);
    /* Stopped for a minute; then the renewal that waited in the socket is read first. */
    r->nodes[0].ahead_ms = 60000;
    struct rig_call *check = rig_check(r, "lock", 1);
    assert_int_equal(rig_add(r, 0, check), 0);
    rig_await(r, check);
    assert_int_equal(check->result.code, MACHINE_DONE);
    assert_true(check->result.clock_ms <= c->result.clock_ms + CLUSTER_CLOCK_STEP_MAX_MS + 200);
}

/* One entry, or a backup, brought the cluster clock to its end: leaders go on, and it stands. */
TEST_WITH(leads_at_the_end_of_the_clock, start_three, stop)
{
    struct rig *r = *state;
    unsigned l = rig_leader(r);
    struct replica *replica = r->nodes[l].server->replica;
    const struct machine *m = fsm_machine(r->nodes[l].server->fsm);
    uint8_t data[MACHINE_BATCH_HEADER_SIZE];
    const struct machine_batch_header h = {.timestamp_ms = MACHINE_CLOCK_MAX_MS,
                                           .term = replica_term(replica),
                                           .sequence = UINT64_MAX,
                                           .length = sizeof data};
    size_t size = machine_batch_seal(data, &h);
    assert_int_equal(replica_submit(replica, r->g.now_ms, data, size), 0);
    while (machine_clock(m) != MACHINE_CLOCK_MAX_MS) {
        rig_step(r);
    }
    rig_run(r, 500);
    struct rig_call *c = rig_acquire(r, "lock", OWNER_A, 1000);
    assert_int_equal(rig_add(r, l, c), 0);
    rig_await(r, c);
    assert_int_equal(c->result.code, MACHINE_GRANTED);
    rig_run(r, 3000);
    assert_true(machine_clock(m) == MACHINE_CLOCK_MAX_MS);
    struct rig_call *back = rig_release(r, "lock", c->result.token);
    assert_int_equal(rig_add(r, l, back), 0);
    rig_await(r, back);
    assert_int_equal(back->result.code, MACHINE_DONE);
}

TEST_WITH(asks_for_turns_at_the_right_time, start_one, stop)
{
    struct rig *r = *state;
    struct proposer *p = &r->nodes[0].proposer;
    r->nodes[0].asleep = true;
    /* A cluster of one leads as soon as it starts, and the proposer wants to know. */
    assert_true(replica_role(r->nodes[0].server->replica) == REPLICA_LEADER);
    assert_int_equal(proposer_next_turn_ms(p, 0), 0);
    rig_turn(r, 0);
    assert_true(proposer_next_turn_ms(p, 0) == UINT64_MAX); /* raft wakes us */
    while (proposer_next_turn_ms(p, r->g.now_ms) != 0) {
        rig_step(r);
        assert_true(r->g.now_ms < 6000);
    }
    rig_turn(r, 0);
    assert_true(proposer_is_open(p));
    rig_run(r, 200);
    rig_turn(r, 0);
    uint64_t now_ms = r->g.now_ms;
    assert_int_equal(proposer_next_turn_ms(p, now_ms), CLUSTER_CLOCK_TICK_MS);
    assert_int_equal(proposer_next_turn_ms(p, now_ms + 30), CLUSTER_CLOCK_TICK_MS - 30);
    struct rig_call *c = rig_acquire(r, "lock", OWNER_A, 1000);
    assert_int_equal(rig_add(r, 0, c), 0);
    assert_int_equal(proposer_next_turn_ms(p, now_ms), 0);
    rig_turn(r, 0);
    assert_true(proposer_next_turn_ms(p, now_ms) > 0);
    r->nodes[0].asleep = false;
    rig_await(r, c);
}
