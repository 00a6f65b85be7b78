/* What is due is done in the order of the times, each one once. */
#include "../../lib/unit.h"

#include "base/due.h"

#define N 100

static struct fli_dues dues;
static struct item {
    struct fli_due due;
    unsigned fired;
    uint64_t again_ms; /* 0: not */
    bool removes;      /* the one behind it */
} items[N];
static unsigned order[2 * N];
static unsigned n_fired;

static void fire(struct fli_due *d, uint64_t now_ms)
{
    struct item *i = FLI_CONTAINER_OF(d, struct item, due);
    i->fired++;
    order[n_fired++] = (unsigned)(i - items);
    if (i->again_ms != 0) {
        fli_due_set(&dues, d, i->again_ms);
    }
    if (i->removes) {
        fli_due_remove(&dues, &i[1].due);
    }
}

static int set_up(void **state)
{
    memset(items, 0, sizeof items);
    n_fired = 0;
    fli_dues_init(&dues);
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal(fli_due_add(&dues, &items[i].due, fire), 0);
    }
    return 0;
}

static int tear_down(void **state)
{
    fli_dues_fini(&dues);
    return 0;
}

TEST_WITH(nothing_is_due_until_it_is_set, set_up, tear_down)
{
    assert_true(fli_dues_next(&dues) == FLI_DUE_NEVER);
    fli_dues_run(&dues, UINT64_MAX - 1);
    assert_int_equal(n_fired, 0);
}

TEST_WITH(in_the_order_of_the_times, set_up, tear_down)
{
    for (unsigned i = 0; i < N; i++) {
        fli_due_set(&dues, &items[i].due, 1000 + (i * 37) % N);
    }
    assert_int_equal(fli_dues_next(&dues), 1000);
    fli_dues_run(&dues, 1000 + N / 2 - 1);
    assert_int_equal(n_fired, N / 2);
    fli_dues_run(&dues, 1000 + N);
    assert_int_equal(n_fired, N);
    for (unsigned i = 0; i < N; i++) {
        assert_int_equal((order[i] * 37) % N, i);
    }
    assert_true(fli_dues_next(&dues) == FLI_DUE_NEVER);
}

TEST_WITH(of_one_time_the_first_that_was_set, set_up, tear_down)
{
    fli_due_set(&dues, &items[2].due, 5);
    fli_due_set(&dues, &items[1].due, 5);
    fli_due_set(&dues, &items[2].due, 5);
    fli_dues_run(&dues, 5);
    assert_int_equal(order[0], 1);
    assert_int_equal(order[1], 2);
}

/* One that is set for a time that is over keeps nothing else waiting. */
TEST_WITH(what_is_set_anew_waits_for_the_next_run, set_up, tear_down)
{
    items[0].again_ms = 1;
    fli_due_set(&dues, &items[0].due, 1);
    fli_due_set(&dues, &items[1].due, 2);
    fli_dues_run(&dues, 2);
    assert_int_equal(items[0].fired, 1);
    assert_int_equal(items[1].fired, 1);
    assert_int_equal(fli_dues_next(&dues), 3);
}

TEST_WITH(what_is_removed_is_not_fired, set_up, tear_down)
{
    items[0].removes = true;
    fli_due_set(&dues, &items[0].due, 1);
    fli_due_set(&dues, &items[1].due, 1);
    fli_dues_run(&dues, 1);
    assert_int_equal(n_fired, 1);
    fli_due_remove(&dues, &items[1].due); /* once more is fine */
    assert_int_equal(fli_due_add(&dues, &items[1].due, fire), 0);
}
