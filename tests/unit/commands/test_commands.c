/* test_commands.c: the queue of commands: each source's in order, sources in turn, renewals first
 * but not for ever; what is put back; its bound; its end. */
#include "../../lib/unit.h"

#include "commands/commands.h"
#include "machine/batch.h"

#define SOURCES 40u
#define CALLS_MAX 4000u
#define ROOM ((size_t)1 << 20)
#define HOLD_MS 100u
#define MS UINT64_C(1000000)

struct call {
    struct node_ticket ticket;
    unsigned number; /* of its source, from 1 */
    bool urgent;
    unsigned answers;
    int status;
    unsigned order;         /* of the answer */
    struct commands *again; /* in the callback this one is added once more */
};

static struct call calls[CALLS_MAX];
static struct commands q;
static unsigned order;

static void answered(struct node_ticket *t, int status, const struct machine_result *result,
                     struct fli_slice payload)
{
    struct call *c = FLI_CONTAINER_OF(t, struct call, ticket);
    assert_int_equal(payload.len, 0);
    assert_true(result == NULL || status == 0);
    c->answers++;
    c->status = status;
    c->order = ++order;
    if (c->again != NULL) {
        static const uint8_t command[4] = {MACHINE_OP_RELEASE};
        assert_int_equal(commands_add(c->again, t, command, sizeof command, 0), 0);
        c->again = NULL;
    }
}

/* Of a command of another node, whose number is its call's. */
static void relayed(void *ctx, const struct command_way *way, int status,
                    const struct machine_result *result, struct fli_slice payload)
{
    assert_ptr_equal(ctx, &q);
    answered(&calls[way->number].ticket, status, result, payload);
}

static int set_up(void **state)
{
    memset(calls, 0, sizeof calls);
    order = 0;
    commands_init(&q, ROOM, HOLD_MS);
    q.ctx = &q;
    q.answer = relayed;
    return 0;
}

static int tear_down(void **state)
{
    commands_end_waiting(&q);
    commands_fini(&q);
    return 0;
}

static int add(unsigned i, uint64_t via, uint64_t source, enum machine_op op, size_t len)
{
    static uint8_t command[MACHINE_COMMAND_MAX];
    command[0] = (uint8_t)op;
    calls[i].ticket = (struct node_ticket){.cb = answered, .source = source};
    calls[i].urgent = op == MACHINE_OP_RENEW;
    if (via != 0) {
        const struct command_way way = {via, source, 0, i};
        return commands_add_relayed(&q, &way, (struct fli_slice){command, len}, i * MS);
    }
    return commands_add(&q, &calls[i].ticket, command, len, i * MS);
}

static void put(unsigned i, uint64_t via, uint64_t source, enum machine_op op)
{
    assert_int_equal(add(i, via, source, op, 4), 0);
}

static struct command *take(void)
{
    struct command *c = commands_first(&q, COMMANDS_ALL);
    assert_non_null(c);
    commands_take(&q, c);
    return c;
}

static struct call *call_of(const struct command *c)
{
    return c->t == NULL ? &calls[c->way.number] : FLI_CONTAINER_OF(c->t, struct call, ticket);
}

static struct call *take_and_end(void)
{
    struct command *c = take();
    struct call *call = call_of(c);
    const struct machine_result result = {0};
    commands_end(&q, c, 0, &result, (struct fli_slice){NULL, 0});
    return call;
}

static void expect(const unsigned *which, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_ptr_equal(take_and_end(), &calls[which[i]]);
    }
    assert_null(commands_first(&q, COMMANDS_ALL));
}

/* ---- turns ---- */

TEST_WITH(sources_take_turns, set_up, tear_down)
{
    static const unsigned ORDER[] = {0, 3, 5, 1, 4, 2};
    for (unsigned i = 0; i < 6; i++) {
        put(i, 0, i < 3 ? 1 : i < 5 ? 2 : 3, MACHINE_OP_ACQUIRE);
    }
    expect(ORDER, 6);
}

/* The same number behind another node is another source. */
TEST_WITH(a_relayed_source_is_its_own, set_up, tear_down)
{
    static const unsigned ORDER[] = {0, 2, 1};
    put(0, 0, 7, MACHINE_OP_ACQUIRE);
    put(1, 0, 7, MACHINE_OP_ACQUIRE);
    put(2, 3, 7, MACHINE_OP_ACQUIRE);
    expect(ORDER, 3);
    assert_int_equal(q.sources.len, 0);
}

/* A renewal does not overtake what its own client sent before. */
TEST_WITH(a_renewal_goes_first_but_not_before_its_own, set_up, tear_down)
{
    static const unsigned ORDER[] = {3, 0, 2, 1};
    put(0, 0, 1, MACHINE_OP_ACQUIRE);
    put(1, 0, 2, MACHINE_OP_ACQUIRE);
    put(2, 0, 1, MACHINE_OP_RENEW);
    put(3, 0, 3, MACHINE_OP_RENEW);
    expect(ORDER, 4);
}

/* Those that ask and those that want more take turns as one. */
TEST_WITH(queries_are_no_class_of_their_own, set_up, tear_down)
{
    static const unsigned ORDER[] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (unsigned i = 0; i < 8; i++) {
        put(i, 0, i, i % 3 == 0 ? MACHINE_OP_CHECK : MACHINE_OP_ACQUIRE);
    }
    expect(ORDER, 8);
}

/* When there is no room for queries, the others go on, each client's in order. */
TEST_WITH(queries_without_room_hold_up_nobody_else, set_up, tear_down)
{
    const unsigned rest = COMMANDS_ALL & ~COMMANDS_OF(COMMAND_QUERY);
    put(0, 0, 1, MACHINE_OP_CHECK);
    put(1, 0, 1, MACHINE_OP_ACQUIRE);
    put(2, 0, 2, MACHINE_OP_ACQUIRE);
    struct command *c = commands_first(&q, rest);
    assert_ptr_equal(call_of(c), &calls[2]);
    commands_take(&q, c);
    assert_null(commands_first(&q, rest));
    commands_put_back(&q, c);
}

TEST_WITH(renewals_do_not_keep_others_waiting_for_ever, set_up, tear_down)
{
    unsigned others = 0;
    for (unsigned i = 0; i < 30; i++) {
        put(i, 0, i % 3, MACHINE_OP_RENEW);
    }
    for (unsigned i = 30; i < 40; i++) {
        put(i, 0, 9, MACHINE_OP_ACQUIRE);
    }
    for (unsigned i = 1; i <= 40; i++) {
        others += !take_and_end()->urgent;
        assert_int_equal(others, i / 4);
    }
}

/* Cleaning up after clients that are gone comes behind renewals and behind what others ask,
 * whatever it consists of, and has one of eight all the same. */
TEST_WITH(what_is_cleaned_up_goes_last, set_up, tear_down)
{
    for (unsigned i = 0; i < 20; i++) {
        put(i, i % 2, NODE_SOURCE_CLEANUP, i % 4 < 2 ? MACHINE_OP_CANCEL : MACHINE_OP_RELEASE);
    }
    put(20, 0, 1, MACHINE_OP_CHECK);
    put(21, 0, 2, MACHINE_OP_RENEW);
    assert_ptr_equal(take_and_end(), &calls[21]);
    assert_ptr_equal(take_and_end(), &calls[20]);
    unsigned taken = 0;
    for (unsigned i = 22; i < 82; i++) {
        put(i, 0, i, MACHINE_OP_CHECK);
    }
    for (unsigned i = 1; i <= 68; i++) {
        taken += take_and_end()->ticket.source == NODE_SOURCE_CLEANUP;
        assert_in_range(taken, i / 8, i / 8 + 1);
    }
}

/* The leader's own command goes before everything, also when there is no room; another node's
 * client cannot pass for it. */
TEST_WITH(the_cluster_goes_first, set_up, tear_down)
{
    static const unsigned ORDER[] = {3, 0, 2};
    put(0, 0, 1, MACHINE_OP_RENEW);
    q.bytes_max = 0;
    assert_int_equal(add(1, 2, NODE_SOURCE_CLUSTER, MACHINE_OP_ACQUIRE, 4), FL_EBUSY);
    q.bytes_max = ROOM;
    put(2, 2, NODE_SOURCE_CLUSTER, MACHINE_OP_ACQUIRE);
    q.bytes_max = 0;
    put(3, 0, NODE_SOURCE_CLUSTER, MACHINE_OP_ACQUIRE);
    assert_ptr_equal(call_of(commands_first(&q, COMMANDS_OF(COMMAND_CLUSTER))), &calls[3]);
    expect(ORDER, 3);
}

/* Commands come and go at random: each source gets its turn, and its commands leave in order, also
 * those that were taken out and put back. */
TEST_WITH(at_random, set_up, tear_down)
{
    const char *given = getenv("FENCELOCK_SEED");
    uint64_t rng = given != NULL ? strtoull(given, NULL, 10) : 20261122;
    unsigned sent[SOURCES] = {0}, left[SOURCES] = {0}, since[SOURCES] = {0};
    print_message("seed %llu\n", (unsigned long long)rng);
    for (unsigned i = 0; i < CALLS_MAX; i++) {
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        unsigned r = (unsigned)(rng >> 40);
        unsigned source = r % SOURCES;
        put(i, 0, source, r % 7 == 0 ? MACHINE_OP_RENEW : MACHINE_OP_ACQUIRE);
        calls[i].number = ++sent[source];
        if (r % 11 == 0) {
            struct command *out[2] = {take(), q.count > 1 ? take() : NULL};
            commands_put_back(&q, out[0]);
            if (out[1] != NULL) {
                commands_put_back(&q, out[1]);
            }
            memset(since, 0, sizeof since); /* these two lost their turn */
        }
        for (unsigned n = r / 7 % 3; n > 0 && q.count > 0; n--) {
            const struct call *c = take_and_end();
            source = (unsigned)c->ticket.source;
            assert_int_equal(c->number, ++left[source]);
            for (unsigned s = 0; s < SOURCES; s++) {
                since[s] = s == source || sent[s] == left[s] ? 0 : since[s] + 1;
                assert_true(since[s] <= 4 * SOURCES);
            }
        }
    }
    while (q.count > 0) {
        const struct call *c = take_and_end();
        assert_int_equal(c->number, ++left[c->ticket.source]);
    }
}

/* ---- putting back ---- */

/* Whatever is put back, and in which order, has the place of before among its source's, and goes
 * before nobody else's. */
TEST_WITH(what_is_put_back_keeps_its_place, set_up, tear_down)
{
    static const unsigned ORDER[] = {0, 4, 1, 5, 2, 3};
    struct command *out[4];
    for (unsigned i = 0; i < 4; i++) {
        put(i, 0, 1, MACHINE_OP_ACQUIRE);
    }
    for (unsigned i = 0; i < 3; i++) {
        out[i] = take();
    }
    put(4, 0, 2, MACHINE_OP_ACQUIRE);
    put(5, 0, 2, MACHINE_OP_ACQUIRE);
    commands_put_back(&q, out[2]);
    commands_put_back(&q, out[0]);
    commands_put_back(&q, out[1]);
    assert_int_equal(q.count, 6);
    out[0] = take(); /* source 2 had joined before */
    assert_ptr_equal(call_of(out[0]), &calls[4]);
    commands_put_back(&q, out[0]);
    expect(ORDER, 6);
}

/* The first comes back while a later one is still out: it goes again, and then the ones behind. */
TEST_WITH(one_comes_back_before_the_others, set_up, tear_down)
{
    struct command *out[3];
    for (unsigned i = 0; i < 4; i++) {
        put(i, 0, 1, MACHINE_OP_ACQUIRE);
    }
    for (unsigned i = 0; i < 3; i++) {
        out[i] = take();
    }
    commands_put_back(&q, out[0]);
    assert_ptr_equal(take(), out[0]);
    assert_ptr_equal(call_of(commands_first(&q, COMMANDS_ALL)), &calls[3]);
    commands_put_back(&q, out[2]);
    commands_put_back(&q, out[1]);
    assert_ptr_equal(commands_first(&q, COMMANDS_ALL), out[1]);
    commands_put_back(&q, out[0]);
    assert_ptr_equal(commands_first(&q, COMMANDS_ALL), out[0]);
}

/* A former leader may give back what it has: the later commands of that source wait for this, and
 * nobody else's. */
TEST_WITH(a_source_waits_for_a_former_taker, set_up, tear_down)
{
    struct command *out[2];
    for (unsigned i = 0; i < 3; i++) {
        put(i, 0, 1, MACHINE_OP_ACQUIRE);
    }
    put(3, 0, 2, MACHINE_OP_ACQUIRE);
    q.taker = 7;
    out[0] = take();
    out[1] = commands_first(&q, COMMANDS_ALL);
    assert_ptr_equal(call_of(out[1]), &calls[3]);
    commands_take(&q, out[1]);
    commands_put_back(&q, out[1]);
    out[1] = take();
    assert_ptr_equal(call_of(out[1]), &calls[1]);
    q.taker = 8;
    assert_ptr_equal(take_and_end(), &calls[3]);
    assert_null(commands_first(&q, COMMANDS_ALL));
    commands_put_back(&q, out[1]);
    assert_null(commands_first(&q, COMMANDS_ALL));
    put(4, 0, 1, MACHINE_OP_RENEW);
    assert_null(commands_first(&q, COMMANDS_ALL));
    commands_fail(&q, out[0], FL_EUNCERTAIN);
    static const unsigned ORDER[] = {1, 2, 4};
    expect(ORDER, 3);
}

/* A source is in the class of its next command, which may be one that came back. */
TEST_WITH(what_comes_back_decides_the_class, set_up, tear_down)
{
    const unsigned urgent = COMMANDS_OF(COMMAND_URGENT);
    put(0, 0, 1, MACHINE_OP_ACQUIRE);
    put(1, 0, 1, MACHINE_OP_RENEW);
    assert_null(commands_first(&q, urgent));
    struct command *asks = take();
    assert_ptr_equal(call_of(commands_first(&q, urgent)), &calls[1]);
    commands_put_back(&q, asks);
    assert_null(commands_first(&q, urgent));
    put(2, 0, 2, MACHINE_OP_RENEW);
    put(3, 0, 2, MACHINE_OP_ACQUIRE);
    struct command *renews = take();
    assert_ptr_equal(call_of(renews), &calls[2]);
    assert_null(commands_first(&q, urgent));
    commands_put_back(&q, renews);
    assert_ptr_equal(commands_first(&q, urgent), renews);
    static const unsigned ORDER[] = {2, 0, 1, 3};
    expect(ORDER, 4);
}

/* ---- room ---- */

/* The last quarter is for who has nothing here, and of that a part for who renews or releases. */
TEST_WITH(a_part_is_for_renewals, set_up, tear_down)
{
    q.bytes_max = 1024;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(add(i, 0, 1, MACHINE_OP_ACQUIRE, 256), 0);
    }
    assert_int_equal(add(3, 0, 1, MACHINE_OP_RENEW, 1), FL_EBUSY);
    assert_int_equal(add(4, 0, 2, MACHINE_OP_ACQUIRE, 256 - 32 + 1), FL_EBUSY);
    assert_int_equal(add(4, 0, 2, MACHINE_OP_ACQUIRE, 256 - 32), 0);
    assert_int_equal(add(5, 0, 3, MACHINE_OP_ACQUIRE, 1), FL_EBUSY);
    assert_int_equal(add(6, 0, 4, MACHINE_OP_RENEW, 32 + 1), FL_EBUSY);
    assert_int_equal(add(6, 0, 4, MACHINE_OP_RENEW, 32), 0);
    assert_int_equal(add(7, 0, 5, MACHINE_OP_RENEW, 1), FL_EBUSY);
}

/* Its bytes count until it is answered, taken out or not. */
TEST_WITH(bytes_are_bounded, set_up, tear_down)
{
    q.bytes_max = 64;
    assert_int_equal(add(0, 0, 1, MACHINE_OP_RELEASE, 64 + 1), FL_EBUSY);
    assert_int_equal(add(0, 0, 1, MACHINE_OP_RELEASE, 64), 0);
    struct command *c = take();
    assert_int_equal(add(1, 0, 2, MACHINE_OP_RELEASE, 1), FL_EBUSY);
    commands_put_back(&q, c);
    assert_int_equal(add(1, 0, 2, MACHINE_OP_RELEASE, 1), FL_EBUSY);
    take_and_end();
    assert_int_equal(q.bytes + q.count, 0);
    assert_int_equal(add(1, 0, 2, MACHINE_OP_RELEASE, 64), 0);
}

TEST_WITH(the_longest_command_fits, set_up, tear_down)
{
    assert_int_equal(add(0, 0, 1, MACHINE_OP_ACQUIRE, MACHINE_COMMAND_MAX), 0);
    assert_int_equal(commands_first(&q, COMMANDS_ALL)->len, MACHINE_COMMAND_MAX);
}

TEST_WITH(a_node_that_ends_takes_none, set_up, tear_down)
{
    q.closed = true;
    assert_int_equal(add(0, 0, 1, MACHINE_OP_ACQUIRE, 4), FL_ENOLEADER);
    assert_int_equal(calls[0].answers, 0);
}

/* ---- the end ---- */

/* Command i came at i. Those that are out have a chance yet; those that are bound wait for no
 * leader. */
TEST_WITH(each_ends_when_it_has_waited_long_enough, set_up, tear_down)
{
    for (unsigned i = 0; i < 6; i++) {
        put(i, i == 2 ? 7 : 0, i, MACHINE_OP_ACQUIRE);
    }
    struct command *out = take();
    assert_false(commands_expire(&q, (HOLD_MS - 1) * MS));
    assert_false(commands_expire(&q, HOLD_MS * MS));
    assert_int_equal(order, 0);
    assert_false(commands_expire(&q, (HOLD_MS + 3) * MS));
    assert_int_equal(calls[1].status, FL_ENOLEADER);
    assert_int_equal(calls[1].order + calls[3].order, 3);
    assert_int_equal(order, 2);
    commands_put_back(&q, out);
    calls[0].again = &q;
    assert_false(commands_expire(&q, (HOLD_MS + 3) * MS));
    assert_int_equal(calls[0].answers, 1);
    assert_int_equal(calls[2].answers, 0);
    assert_int_equal(q.count, 4);
}

/* The time for which commands wait was lowered: that is of the ones which are here, too. */
TEST_WITH(a_shorter_time_is_of_all, set_up, tear_down)
{
    put(0, 0, 1, MACHINE_OP_ACQUIRE);
    put(10, 0, 2, MACHINE_OP_ACQUIRE);
    q.hold_ms = 5;
    put(11, 0, 3, MACHINE_OP_ACQUIRE);
    assert_false(commands_expire(&q, 15 * MS));
    assert_int_equal(calls[0].answers + calls[10].answers, 2);
    assert_int_equal(calls[11].answers, 0);
    assert_false(commands_expire(&q, 16 * MS));
    assert_int_equal(calls[11].answers, 1);
}

/* A minute without a leader may leave a million of them: they end over several turns. */
TEST_WITH(many_that_are_due_end_in_parts, set_up, tear_down)
{
    enum { N = 3 * COMMANDS_EXPIRED_MAX };
    static const uint8_t command[4] = {MACHINE_OP_ACQUIRE};
    struct call *many = test_calloc(N, sizeof *many);
    for (unsigned i = 0; i < N; i++) {
        many[i].ticket = (struct node_ticket){.cb = answered, .source = i};
        assert_int_equal(commands_add(&q, &many[i].ticket, command, sizeof command, 0), 0);
    }
    for (unsigned i = 1; i <= 3; i++) {
        assert_true(commands_expire(&q, HOLD_MS * MS));
        assert_int_equal(order, i * COMMANDS_EXPIRED_MAX);
    }
    assert_false(commands_expire(&q, HOLD_MS * MS));
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal(many[i].answers, 1);
    }
    test_free(many);
}

/* Those of other nodes, and the leader's own, end with its leadership; not one that is out. */
TEST_WITH(those_that_are_bound_end_at_once, set_up, tear_down)
{
    put(0, 2, 1, MACHINE_OP_ACQUIRE);
    struct command *out = take();
    put(1, 0, 1, MACHINE_OP_ACQUIRE);
    put(2, 2, 1, MACHINE_OP_ACQUIRE);
    put(3, 0, NODE_SOURCE_CLUSTER, MACHINE_OP_ACQUIRE);
    commands_end_bound(&q);
    assert_int_equal(calls[2].order + calls[3].order, 3);
    assert_int_equal(calls[2].status, FL_ENOLEADER);
    assert_int_equal(calls[0].answers + calls[1].answers, 0);
    commands_fail(&q, out, FL_EUNCERTAIN);
    assert_int_equal(q.uncertain, 1);
    assert_int_equal(q.count, 1);
}

/* A leader that does not begin its term keeps them as long as a command of its own clients. Then
 * all of them go back, in the order in which they came. */
TEST_WITH(those_that_are_bound_end_at_a_leader_that_does_not_begin, set_up, tear_down)
{
    put(0, 0, 1, MACHINE_OP_ACQUIRE);
    put(1, 2, 1, MACHINE_OP_ACQUIRE);
    put(2, 3, 1, MACHINE_OP_ACQUIRE);
    put(90, 2, 1, MACHINE_OP_RENEW);
    commands_expire_bound(&q, HOLD_MS * MS); /* the first of them came later */
    assert_int_equal(order, 0);
    commands_expire_bound(&q, (HOLD_MS + 1) * MS);
    assert_int_equal(calls[1].order, 1);
    assert_int_equal(calls[2].order, 2);
    assert_int_equal(calls[90].order, 3);
    assert_int_equal(calls[90].status, FL_ENOLEADER);
    assert_int_equal(calls[0].answers, 0);
    commands_expire_bound(&q, (HOLD_MS + 1) * MS);
    assert_int_equal(q.count, 1);
}

/* What a callback adds does not end with the rest, or it would never end. */
TEST_WITH(ending_ends, set_up, tear_down)
{
    put(0, 0, 1, MACHINE_OP_RELEASE);
    calls[0].again = &q;
    commands_end_waiting(&q);
    assert_int_equal(calls[0].answers, 1);
    assert_int_equal(q.count, 1);
    commands_end_waiting(&q);
    assert_int_equal(calls[0].answers, 2);
    assert_int_equal(q.count, 0);
}
