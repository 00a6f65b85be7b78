/* test_turn.c: where the time of a turn went, and which turns are told. */
#include "../../lib/unit.h"

#include "base/turn.h"

/* Returns how long it took, in nanoseconds: longer, when this process stands still. */
static uint64_t work(uint64_t us)
{
    uint64_t began_ns = fli_clock_ns();
    uint64_t now_ns = began_ns;
    while (now_ns - began_ns < us * 1000) {
        now_ns = fli_clock_ns();
    }
    return now_ns - began_ns;
}

TEST(waiting_is_no_work)
{
    struct fli_turn t;
    char text[FLI_TURN_TEXT_MAX];
    fli_turn_init(&t);
    (void)work(2 * FLI_TURN_SLOW_US);
    /* As if the loop had waited all the time. */
    assert_false(fli_turn_end(&t, UINT64_MAX, text));
    assert_int_equal(t.stats.turns, 1);
    assert_int_equal(t.stats.slow, 0);
    assert_int_equal(t.stats.ns[FLI_TURN_OTHER], 0);
}

/* A turn with work in one part. Whether that took the most of it: this process may stand still in
 * the others. */
static bool turn_of_one_part(struct fli_turn *t, char text[FLI_TURN_TEXT_MAX])
{
    uint64_t began_ns = fli_clock_ns();
    fli_turn_init(t);
    enum fli_turn_part before = fli_turn_enter(t, FLI_TURN_REQUESTS);
    assert_int_equal(before, FLI_TURN_OTHER);
    enum fli_turn_part outer = fli_turn_enter(t, FLI_TURN_APPLY);
    assert_int_equal(outer, FLI_TURN_REQUESTS);
    uint64_t worked_ns = work(10 * FLI_TURN_SLOW_US);
    fli_turn_leave(t, outer);
    fli_turn_leave(t, before);
    assert_true(fli_turn_end(t, 0, text));
    return fli_clock_ns() - began_ns < 2 * worked_ns;
}

TEST(a_slow_turn_names_its_part)
{
    struct fli_turn t;
    char text[FLI_TURN_TEXT_MAX];
    while (!turn_of_one_part(&t, text)) {
    }
    assert_non_null(strstr(text, "'apply'"));
    assert_int_equal(t.stats.slow, 1);
    assert_int_equal(t.stats.slow_part[FLI_TURN_APPLY], 1);
    assert_true(t.stats.ns[FLI_TURN_APPLY] >= 10 * FLI_TURN_SLOW_US * UINT64_C(1000));
    assert_true(t.stats.max_ns >= t.stats.ns[FLI_TURN_APPLY]);
}

/* Five slow turns, of which the last one seems to come much later. Returns how long they took. */
static uint64_t five_slow_turns(struct fli_turn *t, unsigned *ret_told,
                                char text[FLI_TURN_TEXT_MAX])
{
    uint64_t began_ns = fli_clock_ns();
    *ret_told = 0;
    fli_turn_init(t);
    for (unsigned i = 0; i < 5; i++) {
        (void)work(FLI_TURN_SLOW_US + 1000);
        *ret_told += fli_turn_end(t, 0, text);
        t->logged_ns = i == 3 ? 1 : fli_clock_ns();
    }
    return fli_clock_ns() - began_ns;
}

/* Many in a row are one line, which tells how many. They are in a row if this process does not
 * stand still between them. */
TEST(lines_are_few)
{
    struct fli_turn t;
    char text[FLI_TURN_TEXT_MAX];
    unsigned told = 0;
    while (five_slow_turns(&t, &told, text) >= FLI_TURN_LOG_MS * UINT64_C(1000000)) {
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
