/* test_held.c: commands that wait for a leader: their order, their bound, their end. */
#include "../../lib/unit.h"

#include "consensus/held.h"
#include "machine/batch.h"

#define CALLS 8u

struct call {
    struct node_ticket ticket;
    unsigned answers;
    int status;
    unsigned order;
    struct held_queue *again; /* in the callback this one is held once more */
};

static struct call calls[CALLS];
static unsigned order;
static const uint8_t COMMAND[64] = {MACHINE_OP_RELEASE};
static const uint8_t QUERY[64] = {MACHINE_OP_CHECK};

static void answered(struct node_ticket *t, int status, const struct machine_result *result,
                     struct fli_slice payload)
{
    struct call *c = FLI_CONTAINER_OF(t, struct call, ticket);
    assert_null(result);
    assert_int_equal(payload.len, 0);
    c->answers++;
    c->status = status;
    c->order = ++order;
    if (c->again != NULL) {
        assert_int_equal(held_add(c->again, t, COMMAND, sizeof COMMAND), 0);
        c->again = NULL;
    }
}

static int set_up(void **state)
{
    memset(calls, 0, sizeof calls);
    order = 0;
    for (unsigned i = 0; i < CALLS; i++) {
        fli_list_init(&calls[i].ticket.link);
        calls[i].ticket.cb = answered;
        calls[i].ticket.deadline_ms = 100 + i;
    }
    return 0;
}

static void hold(struct held_queue *q, unsigned i)
{
    assert_int_equal(held_add(q, &calls[i].ticket, COMMAND, sizeof COMMAND), 0);
}

static void let_go(struct held_queue *q)
{
    struct held *h = held_first(q);
    assert_non_null(h);
    held_take(q, h);
    held_destroy(q, h);
}

TEST_WITH(those_that_come_back_go_first, set_up, NULL)
{
    struct held_queue q;
    held_init(&q, 1024);
    assert_null(held_first(&q));
    hold(&q, 0);
    hold(&q, 1);
    assert_ptr_equal(held_first(&q)->t, &calls[0].ticket);
    held_return(&q, &calls[2].ticket, QUERY, sizeof QUERY);
    held_return(&q, &calls[3].ticket, COMMAND, 7);
    assert_ptr_equal(held_first(&q)->t, &calls[2].ticket);
    assert_true(held_first(&q)->query);
    assert_memory_equal(held_first(&q)->data, QUERY, sizeof QUERY);
    assert_int_equal(q.count, 4);
    assert_int_equal(q.bytes, 3 * 64 + 7);
    static const unsigned EXPECTED[] = {2, 3, 0, 1};
    for (unsigned i = 0; i < 4; i++) {
        struct held *h = held_first(&q);
        assert_ptr_equal(h->t, &calls[EXPECTED[i]].ticket);
        held_take(&q, h);
        held_answer(&q, h, i == 1 ? FL_EUNCERTAIN : FL_ENOLEADER);
        assert_int_equal(calls[EXPECTED[i]].answers, 1);
    }
    assert_int_equal(q.uncertain, 1);
    assert_int_equal(q.count + q.bytes, 0);
    held_fini(&q);
}

/* Whoever had much in line at a former leader keeps nobody waiting: sources and urgency count for
 * what came back as well. */
TEST_WITH(those_that_come_back_take_turns, set_up, NULL)
{
    static const uint8_t acquire[64] = {MACHINE_OP_ACQUIRE};
    static const uint8_t renewal[64] = {MACHINE_OP_RENEW};
    static const unsigned ORDER[] = {5, 0, 3, 1, 4, 2};
    struct held_queue q;
    held_init(&q, 4096);
    for (unsigned i = 0; i < 6; i++) {
        calls[i].ticket.source = i < 3 ? 1 : i < 5 ? 2 : 3;
    }
    for (unsigned i = 0; i < 3; i++) {
        held_return(&q, &calls[i].ticket, acquire, sizeof acquire);
    }
    assert_null(held_first_urgent(&q));
    for (unsigned i = 3; i < 6; i++) {
        const uint8_t *command = i < 5 ? acquire : renewal;
        assert_false(i != 4 && held_has(&q, &calls[i].ticket));
        assert_int_equal(held_add(&q, &calls[i].ticket, command, 64), 0);
    }
    assert_ptr_equal(held_first_urgent(&q)->t, &calls[5].ticket);
    for (unsigned i = 0; i < 6; i++) {
        assert_ptr_equal(held_first(&q)->t, &calls[ORDER[i]].ticket);
        let_go(&q);
    }
    assert_int_equal(q.count + q.bytes, 0);
    held_fini(&q);
}

/* One that was taken out counts until it is answered, and is put back where it was. */
TEST_WITH(one_is_put_back, set_up, NULL)
{
    struct held_queue q;
    held_init(&q, 1024);
    hold(&q, 0);
    hold(&q, 1);
    struct held *h = held_first(&q);
    held_take(&q, h);
    assert_ptr_equal(held_first(&q)->t, &calls[1].ticket);
    assert_int_equal(q.count, 2);
    assert_int_equal(held_put_back(&q, h), 0);
    assert_ptr_equal(held_first(&q), h);
    assert_int_equal(q.count, 2);
    assert_int_equal(q.bytes, 2 * sizeof COMMAND);
    held_refuse_all(&q, FL_ENOLEADER);
    assert_int_equal(calls[0].answers + calls[1].answers, 2);
    held_fini(&q);
}

/* The last quarter is for who has nothing waiting, and of that the last for who renews or gives
 * back. */
TEST_WITH(a_part_is_for_renewals, set_up, NULL)
{
    static const uint8_t large[256] = {MACHINE_OP_ACQUIRE};
    static const uint8_t renewal[64] = {MACHINE_OP_RENEW};
    struct held_queue q;
    held_init(&q, 1024);
    for (unsigned i = 0; i < CALLS; i++) {
        calls[i].ticket.source = i < 4 ? 1 : i;
    }
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(held_add(&q, &calls[i].ticket, large, sizeof large), 0);
    }
    assert_int_equal(held_add(&q, &calls[3].ticket, renewal, sizeof renewal), FL_EBUSY);
    assert_int_equal(held_add(&q, &calls[4].ticket, large, 193), FL_EBUSY);
    assert_int_equal(held_add(&q, &calls[4].ticket, large, 192), 0);
    assert_int_equal(held_add(&q, &calls[5].ticket, large, 1), FL_EBUSY);
    assert_int_equal(held_add(&q, &calls[6].ticket, renewal, sizeof renewal), 0);
    assert_int_equal(held_add(&q, &calls[7].ticket, renewal, 1), FL_EBUSY);
    while (q.count > 0) {
        let_go(&q);
    }
    held_fini(&q);
}

/* Its bytes count until it is destroyed, on a list or not. */
TEST_WITH(bytes_are_bounded, set_up, NULL)
{
    struct held_queue q;
    held_init(&q, 4 * sizeof COMMAND);
    for (unsigned i = 0; i < CALLS; i++) {
        calls[i].ticket.source = i < 5 ? 1 : i;
    }
    for (unsigned i = 0; i < 3; i++) {
        hold(&q, i);
    }
    assert_int_equal(held_add(&q, &calls[3].ticket, COMMAND, 1), FL_EBUSY);
    assert_int_equal(held_add(&q, &calls[5].ticket, COMMAND, sizeof COMMAND + 1), FL_EBUSY);
    hold(&q, 5);
    assert_int_equal(held_add(&q, &calls[6].ticket, COMMAND, 1), FL_EBUSY);
    /* What comes back when there is no room is answered at once: it was surely not done. */
    held_return(&q, &calls[7].ticket, COMMAND, 1);
    assert_int_equal(calls[7].status, FL_EBUSY);
    assert_int_equal(calls[7].answers, 1);
    struct held *h = held_first(&q);
    held_take(&q, h);
    assert_int_equal(held_add(&q, &calls[6].ticket, COMMAND, 1), FL_EBUSY);
    held_destroy(&q, h);
    assert_int_equal(held_add(&q, &calls[6].ticket, COMMAND, sizeof COMMAND + 1), FL_EBUSY);
    hold(&q, 6);
    while (q.count > 0) {
        let_go(&q);
    }
    assert_int_equal(calls[0].answers + calls[5].answers + calls[6].answers, 0);
    held_fini(&q);
}

/* A bound below one command holds nothing, rather than everything. */
TEST_WITH(a_small_bound_holds_nothing, set_up, NULL)
{
    struct held_queue q;
    held_init(&q, 8);
    assert_int_equal(held_add(&q, &calls[0].ticket, COMMAND, 9), FL_EBUSY);
    assert_int_equal(held_add(&q, &calls[0].ticket, COMMAND, 8), 0);
    let_go(&q);
    held_fini(&q);
}

TEST_WITH(the_longest_command_is_held, set_up, NULL)
{
    static const uint8_t longest[MACHINE_COMMAND_MAX] = {MACHINE_OP_ACQUIRE};
    struct held_queue q;
    held_init(&q, 2 * (size_t)MACHINE_COMMAND_MAX);
    assert_int_equal(held_add(&q, &calls[0].ticket, longest, sizeof longest), 0);
    assert_int_equal(held_first(&q)->len, sizeof longest);
    assert_int_equal(q.bytes, sizeof longest);
    let_go(&q);
    held_fini(&q);
}

/* What is due is answered; in the list of those that came back each has its own deadline. */
TEST_WITH(deadlines, set_up, NULL)
{
    struct held_queue q;
    held_init(&q, 1024);
    for (unsigned i = 0; i < 3; i++) {
        hold(&q, i);
    }
    calls[5].ticket.deadline_ms = 90;
    held_return(&q, &calls[4].ticket, COMMAND, 8);
    held_return(&q, &calls[5].ticket, COMMAND, 8);
    assert_false(held_expire(&q, 89));
    assert_int_equal(order, 0);
    assert_false(held_expire(&q, 90));
    assert_int_equal(calls[5].status, FL_ENOLEADER);
    assert_int_equal(order, 1);
    calls[1].again = &q;
    assert_false(held_expire(&q, 101));
    assert_int_equal(order, 3);
    assert_int_equal(calls[0].answers + calls[1].answers, 2);
    assert_int_equal(q.count, 3);
    held_refuse_all(&q, FL_ENOLEADER);
    assert_int_equal(calls[1].answers, 2);
    assert_int_equal(calls[4].answers + calls[2].answers, 2);
    assert_true(calls[4].order < calls[2].order);
    assert_int_equal(q.count + q.bytes, 0);
    held_fini(&q);
}

/* A minute without a leader may hold a million of them: they end over several turns. */
TEST_WITH(many_that_are_due_end_in_parts, set_up, NULL)
{
    enum { N = 3 * HELD_EXPIRED_MAX };
    struct held_queue q;
    struct call *many = test_calloc(N, sizeof *many);
    held_init(&q, N * sizeof COMMAND * 2);
    for (unsigned i = 0; i < N; i++) {
        fli_list_init(&many[i].ticket.link);
        many[i].ticket.cb = answered;
        many[i].ticket.deadline_ms = 100;
        many[i].ticket.source = i;
        if (i % 2 == 0) {
            held_return(&q, &many[i].ticket, COMMAND, sizeof COMMAND);
        } else {
            assert_int_equal(held_add(&q, &many[i].ticket, COMMAND, sizeof COMMAND), 0);
        }
    }
    for (unsigned i = 1; i <= 3; i++) {
        assert_true(held_expire(&q, 100));
        assert_int_equal(order, i * HELD_EXPIRED_MAX);
    }
    assert_false(held_expire(&q, 100));
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal(many[i].answers, 1);
    }
    held_fini(&q);
    test_free(many);
}

/* What a callback adds is not refused with the rest, or it would never end. */
TEST_WITH(refusing_ends, set_up, NULL)
{
    struct held_queue q;
    held_init(&q, 1024);
    hold(&q, 0);
    calls[0].again = &q;
    held_refuse_all(&q, FL_ENOLEADER);
    assert_int_equal(calls[0].answers, 1);
    assert_int_equal(q.count, 1);
    held_refuse_all(&q, FL_ENOLEADER);
    assert_int_equal(calls[0].answers, 2);
    assert_int_equal(q.count, 0);
    held_fini(&q);
}

/* The time for which commands are held was lowered, and a command of the node itself has no
 * deadline: whoever comes behind these is answered when its own deadline is over. */
TEST_WITH(each_ends_at_its_own_deadline, set_up, NULL)
{
    struct held_queue q;
    held_init(&q, 1024);
    calls[0].ticket.deadline_ms = 3000;
    hold(&q, 0);
    assert_int_equal(held_add(&q, NULL, COMMAND, sizeof COMMAND), 0);
    for (unsigned i = 1; i < 4; i++) {
        hold(&q, i); /* until 101, 102, 103 */
    }
    assert_false(held_expire(&q, 102));
    assert_int_equal(calls[1].answers + calls[2].answers, 2);
    assert_int_equal(calls[3].answers + calls[0].answers, 0);
    assert_int_equal(calls[1].order, 1);
    assert_int_equal(q.count, 3);
    for (unsigned i = 0; i < 3; i++) {
        let_go(&q);
    }
    held_fini(&q);
}
