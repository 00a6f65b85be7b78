/* test_turn.c: where the time of a turn went, and which turns are told. */
#include "../../lib/unit.h"

#include "base/turn.h"

static void work(uint64_t us)
{
    uint64_t until_ns = fli_clock_ns() + us * 1000;
    while (fli_clock_ns() < until_ns) {
    }
}

TEST(waiting_is_no_work)
{
    struct fli_turn t;
    char text[FLI_TURN_TEXT_MAX];
    fli_turn_init(&t);
    work(2 * FLI_TURN_SLOW_US);
    /* As if the loop had waited all the time. */
    assert_false(fli_turn_end(&t, UINT64_MAX, text));
    assert_int_equal(t.stats.turns, 1);
    assert_int_equal(t.stats.slow, 0);
    assert_int_equal(t.stats.ns[FLI_TURN_OTHER], 0);
}

TEST(a_slow_turn_names_its_part)
{
    struct fli_turn t;
    char text[FLI_TURN_TEXT_MAX];
    fli_turn_init(&t);
    enum fli_turn_part before = fli_turn_enter(&t, FLI_TURN_REQUESTS);
    assert_int_equal(before, FLI_TURN_OTHER);
    enum fli_turn_part outer = fli_turn_enter(&t, FLI_TURN_APPLY);
    assert_int_equal(outer, FLI_TURN_REQUESTS);
    work(10 * FLI_TURN_SLOW_US);
    fli_turn_leave(&t, outer);
    fli_turn_leave(&t, before);
    assert_true(fli_turn_end(&t, 0, text));
    assert_non_null(strstr(text, "'apply'"));
    assert_int_equal(t.stats.slow, 1);
    assert_int_equal(t.stats.slow_part[FLI_TURN_APPLY], 1);
    assert_true(t.stats.ns[FLI_TURN_APPLY] >= 10 * FLI_TURN_SLOW_US * UINT64_C(1000));
    assert_true(t.stats.max_ns >= t.stats.ns[FLI_TURN_APPLY]);
}

/* Many in a row are one line, which tells how many. */
TEST(lines_are_few)
{
    struct fli_turn t;
    char text[FLI_TURN_TEXT_MAX];
    unsigned told = 0;
    fli_turn_init(&t);
    for (unsigned i = 0; i < 5; i++) {
        work(FLI_TURN_SLOW_US + 1000);
        told += fli_turn_end(&t, 0, text);
        t.logged_ns = i == 3 ? 1 : fli_clock_ns(); /* the last one comes much later */
    }
    assert_int_equal(told, 2);
    assert_int_equal(t.stats.slow, 5);
    assert_non_null(strstr(text, "since the last line: 4"));
}

TEST(without_an_accountant)
{
    assert_int_equal(fli_turn_enter(NULL, FLI_TURN_APPLY), FLI_TURN_OTHER);
    fli_turn_leave(NULL, FLI_TURN_OTHER);
    for (unsigned i = 0; i < FLI_TURN_PARTS; i++) {
        assert_non_null(fli_turn_part_name((enum fli_turn_part)i));
    }
}
