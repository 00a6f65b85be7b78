/* test_backlog.c: commands in line: each source's in order, sources in turn, renewals first but not
 * for ever. */
#include "../../lib/unit.h"

#include "consensus/backlog.h"
#include "machine/batch.h"

#define SOURCES 40u
#define COMMANDS_MAX 4000u

struct command {
    struct node_ticket ticket;
    struct held *held;
    unsigned number; /* of its source, from 1 */
    bool urgent;
};

static struct command commands[COMMANDS_MAX];
static struct backlog b;

static int set_up(void **state)
{
    backlog_init(&b);
    return 0;
}

static int tear_down(void **state)
{
    backlog_fini(&b);
    return 0;
}

static void put(unsigned i, uint64_t via, uint64_t source, enum machine_op op)
{
    struct command *c = &commands[i];
    *c = (struct command){.ticket = {.via = via, .source = source}};
    c->held = calloc(1, sizeof *c->held + 4);
    assert_non_null(c->held);
    fli_list_init(&c->held->link);
    fli_list_init(&c->held->at_source);
    fli_heap_node_init(&c->held->at_due);
    c->held->t = &c->ticket;
    c->held->len = 4;
    c->held->data[0] = (uint8_t)op;
    c->urgent = op == MACHINE_OP_RENEW;
    assert_int_equal(backlog_push(&b, c->held), 0);
}

static void drop(struct held *h)
{
    backlog_remove(&b, h);
    free(h);
}

static struct command *take(void)
{
    struct held *h = backlog_first(&b);
    assert_non_null(h);
    struct command *c = FLI_CONTAINER_OF(h->t, struct command, ticket);
    drop(h);
    return c;
}

static void expect(const unsigned *order, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_ptr_equal(take(), &commands[order[i]]);
    }
    assert_null(backlog_first(&b));
}

TEST_WITH(sources_take_turns, set_up, tear_down)
{
    static const unsigned ORDER[] = {0, 3, 5, 1, 4, 2};
    for (unsigned i = 0; i < 6; i++) {
        put(i, 0, i < 3 ? 1 : i < 5 ? 2 : 3, MACHINE_OP_ACQUIRE);
    }
    assert_ptr_equal(backlog_first_due(&b), commands[0].held);
    expect(ORDER, 6);
}

/* The same number behind another node is another source. */
TEST_WITH(a_relayed_source_is_its_own, set_up, tear_down)
{
    static const unsigned ORDER[] = {0, 2, 1};
    put(0, 0, 7, MACHINE_OP_ACQUIRE);
    put(1, 0, 7, MACHINE_OP_ACQUIRE);
    put(2, 3, 7, MACHINE_OP_ACQUIRE);
    assert_true(backlog_has(&b, &commands[2].ticket));
    struct node_ticket other = {.via = 2, .source = 7};
    assert_false(backlog_has(&b, &other));
    expect(ORDER, 3);
    assert_false(backlog_has(&b, &commands[2].ticket));
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
        others += !take()->urgent;
        assert_in_range(others, i / BACKLOG_TURN, i / BACKLOG_TURN);
    }
}

/* Cleaning up after clients that are gone comes behind renewals and behind what others ask,
 * whatever it consists of, and has one of eight all the same. */
TEST_WITH(what_is_cleaned_up_goes_last, set_up, tear_down)
{
    for (unsigned i = 0; i < 20; i++) {
        put(i, i % 2, NODE_SOURCE_CLEANUP, i % 4 < 2 ? MACHINE_OP_CANCEL : MACHINE_OP_RELEASE);
        commands[i].urgent = false;
    }
    put(20, 0, 1, MACHINE_OP_CHECK);
    put(21, 0, 2, MACHINE_OP_RENEW);
    assert_null(backlog_is_urgent(&commands[0].ticket, MACHINE_OP_RELEASE) ? &b : NULL);
    assert_ptr_equal(backlog_first_urgent(&b), commands[21].held);
    assert_ptr_equal(take(), &commands[21]);
    assert_ptr_equal(take(), &commands[20]);
    unsigned taken = 0;
    for (unsigned i = 22; i < 82; i++) {
        put(i, 0, i, MACHINE_OP_CHECK);
    }
    for (unsigned i = 1; i <= 68; i++) {
        taken += take()->ticket.source == NODE_SOURCE_CLEANUP;
        assert_true(taken >= i / BACKLOG_TURN_LAST && taken <= i / BACKLOG_TURN_LAST + 1);
    }
    while (backlog_first(&b) != NULL) {
        take();
    }
}

/* Commands come and go at random: each source gets its turn, and its commands leave in order. */
TEST_WITH(at_random, set_up, tear_down)
{
    const char *given = getenv("FENCELOCK_SEED");
    uint64_t rng = given != NULL ? strtoull(given, NULL, 10) : 20261122;
    unsigned sent[SOURCES] = {0}, left[SOURCES] = {0}, waits = 0, since[SOURCES] = {0};
    print_message("seed %llu\n", (unsigned long long)rng);
    for (unsigned i = 0; i < COMMANDS_MAX; i++) {
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        unsigned r = (unsigned)(rng >> 40);
        unsigned source = r % SOURCES;
        put(i, 0, source, r % 7 == 0 ? MACHINE_OP_RENEW : MACHINE_OP_ACQUIRE);
        commands[i].number = ++sent[source];
        waits++;
        for (unsigned n = r / 7 % 3; n > 0 && waits > 0; n--) {
            struct command *c = take();
            waits--;
            source = (unsigned)c->ticket.source;
            assert_int_equal(c->number, ++left[source]);
            for (unsigned s = 0; s < SOURCES; s++) {
                since[s] = s == source || sent[s] == left[s] ? 0 : since[s] + 1;
                assert_true(since[s] <= BACKLOG_TURN * SOURCES);
            }
        }
    }
    while (waits-- > 0) {
        struct command *c = take();
        assert_int_equal(c->number, ++left[c->ticket.source]);
    }
}

static void out_and_back(const unsigned *which, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        backlog_remove(&b, commands[which[i]].held);
    }
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(backlog_return(&b, commands[which[i]].held), 0);
    }
}

/* What comes back goes before the others of its source, in order, and before nobody else. */
TEST_WITH(those_that_come_back_keep_their_order, set_up, tear_down)
{
    static const unsigned FIRST[] = {0, 1}, SECOND[] = {2};
    static const unsigned ORDER[] = {4, 0, 5, 1, 2, 3};
    for (unsigned i = 0; i < 6; i++) {
        put(i, 0, i < 4 ? 1 : 2, MACHINE_OP_ACQUIRE);
    }
    out_and_back(FIRST, 2);
    out_and_back(SECOND, 1);
    expect(ORDER, 6);
}

/* A leader that does not take commands yet gives them back all, and then one at a time. */
TEST_WITH(one_that_comes_back_again_stays_the_first, set_up, tear_down)
{
    static const unsigned ALL[] = {0, 1, 2}, ONE[] = {0};
    static const unsigned ORDER[] = {0, 1, 2, 3};
    for (unsigned i = 0; i < 4; i++) {
        put(i, 0, 1, MACHINE_OP_ACQUIRE);
        commands[i].ticket.number = i + 1;
    }
    out_and_back(ALL, 3);
    out_and_back(ONE, 1);
    out_and_back(ONE, 1);
    expect(ORDER, 4);
}

/* A source is urgent or not by its next command, which may be one that came back. */
TEST_WITH(what_comes_back_decides_the_ring, set_up, tear_down)
{
    static const unsigned ASKS[] = {0}, RENEWS[] = {2};
    put(0, 0, 1, MACHINE_OP_ACQUIRE);
    put(1, 0, 1, MACHINE_OP_RENEW);
    backlog_remove(&b, commands[0].held);
    assert_ptr_equal(backlog_first_urgent(&b), commands[1].held);
    assert_int_equal(backlog_return(&b, commands[0].held), 0);
    assert_null(backlog_first_urgent(&b));
    out_and_back(ASKS, 1);
    assert_null(backlog_first_urgent(&b));
    put(2, 0, 2, MACHINE_OP_RENEW);
    put(3, 0, 2, MACHINE_OP_ACQUIRE);
    out_and_back(RENEWS, 1);
    assert_ptr_equal(backlog_first_urgent(&b), commands[2].held);
    static const unsigned ORDER[] = {2, 0, 1, 3};
    expect(ORDER, 4);
}

/* Whatever the order in which commands came back, the deadline that comes first is known. */
TEST_WITH(the_first_deadline, set_up, tear_down)
{
    static const unsigned DUE[] = {30, 10, 10, 20, 10, 25};
    static const unsigned ORDER[] = {2, 4, 1, 3, 5, 0};
    for (unsigned i = 0; i < 6; i++) {
        put(i, 0, i / 2, MACHINE_OP_ACQUIRE);
        backlog_remove(&b, commands[i].held);
        commands[i].ticket.deadline_ms = DUE[i];
    }
    for (unsigned i = 0; i < 6; i++) {
        int rv =
            i % 2 == 0 ? backlog_return(&b, commands[i].held) : backlog_push(&b, commands[i].held);
        assert_int_equal(rv, 0);
    }
    for (unsigned i = 0; i < 6; i++) {
        assert_ptr_equal(backlog_first_due(&b), commands[ORDER[i]].held);
        drop(backlog_first_due(&b));
    }
    assert_null(backlog_first_due(&b));
}

/* A command in the middle of the line can be removed, as one whose time to wait is over. */
TEST_WITH(from_the_middle, set_up, tear_down)
{
    static const unsigned ORDER[] = {1, 3};
    for (unsigned i = 0; i < 4; i++) {
        put(i, 0, i / 2, MACHINE_OP_ACQUIRE);
    }
    drop(commands[0].held);
    drop(commands[2].held);
    assert_ptr_equal(backlog_first_due(&b), commands[1].held);
    expect(ORDER, 2);
}
