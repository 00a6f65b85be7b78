/* The store with groups of which something does not fit: the rest is done, in few commits. */
#include "scratch.h"

#include "store/store.h"

#define GROUP 4096u
#define DOUBLINGS 12u /* of 1 until the whole group */

struct fixture {
    struct scratch scratch;
    struct store *store;
};

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof(*x));
    char errmsg[256] = "";
    scratch_init(&x->scratch);
    int rc = store_open(x->scratch.data, STORE_SIZE_MIN, true, &x->store, errmsg, sizeof errmsg);
    if (rc != 0) {
        fail_msg("%d %s", rc, errmsg);
    }
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    store_close(x->store);
    scratch_fini(&x->scratch);
    free(x);
    return 0;
}

static struct fli_slice text(const char *s)
{
    return (struct fli_slice){(const uint8_t *)s, strlen(s)};
}

static bool is_large(unsigned i, unsigned first, unsigned every)
{
    return i >= first && (i - first) % every == 0;
}

/* Executes small writes with some in between that do not fit; returns the number of commits. */
static uint64_t write_with_large(struct fixture *x, fl_token token, unsigned first, unsigned every)
{
    static struct store_op ops[GROUP];
    static struct store_op *refs[GROUP];
    static uint8_t big[STORE_VALUE_MAX];
    struct fli_slice key = text("k");
    struct store_counts before;
    struct store_counts after;
    size_t done = 0;
    for (unsigned i = 0; i < GROUP; i++) {
        bool large = is_large(i, first, every);
        ops[i] = (struct store_op){.verb = STORE_SET,
                                   .fenced = true,
                                   .token = token + i,
                                   .key = key,
                                   .lock = text("a"),
                                   .value = large ? (struct fli_slice){big, sizeof big} : key};
        refs[i] = &ops[i];
    }
    store_get_counts(x->store, &before);
    assert_int_equal(store_execute(x->store, refs, GROUP, &done), 0);
    assert_int_equal(done, GROUP);
    store_get_counts(x->store, &after);
    fl_token last = FL_TOKEN_NONE;
    for (unsigned i = 0; i < GROUP; i++) {
        assert_int_equal(ops[i].result, is_large(i, first, every) ? FL_ELIMIT : 0);
        last = ops[i].result == 0 ? ops[i].token : last;
    }
    struct store_op mark = {.verb = STORE_MARK, .lock = text("a")};
    struct store_op *ref = &mark;
    assert_int_equal(store_execute(x->store, &ref, 1, &done), 0);
    assert_true(last == FL_TOKEN_NONE || mark.mark == last); /* they were executed in order */
    return after.commits - before.commits;
}

TEST_WITH(one_that_does_not_fit_costs_few_commits, setup, teardown)
{
    struct fixture *x = *state;
    static const unsigned at[] = {0, 1, 617, GROUP / 2 - 1, GROUP / 2, GROUP - 1};
    fl_token token = 1;
    for (unsigned i = 0; i < sizeof at / sizeof at[0]; i++) {
        assert_in_range(write_with_large(x, token, at[i], GROUP), 1, 2 * DOUBLINGS + 1);
        token += GROUP;
    }
    assert_in_range(write_with_large(x, token, 500, 512), 8, 8 * (2 * DOUBLINGS + 1));
    assert_int_equal(write_with_large(x, token + GROUP, 0, 1), 0); /* not one of them fits */
}
