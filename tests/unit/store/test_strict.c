/* Strict mode's questions, when the lock service says nothing. */
#include "../../lib/unit.h"

#include "base/clock.h"
#include "store/strict.h"

#define QUESTIONS (2u * STRICT_LATE_MAX + 1u)

static unsigned decided;

static void verdict(void *ctx, struct strict_question *question, enum strict_verdict got)
{
    assert_int_equal(got, STRICT_UNKNOWN);
    assert_ptr_equal(question, (struct strict_question *)ctx + decided); /* in their order */
    decided++;
}

/* All at once, they would keep the loop from everything else. */
TEST(late_questions_are_decided_in_several_turns)
{
    static struct strict_question questions[QUESTIONS];
    struct strict_config config = {.nodes = "127.0.0.1:1", /* nobody listens there */
                                   .timeout_ms = STRICT_TIMEOUT_MIN_MS,
                                   .ctx = questions,
                                   .verdict = verdict};
    struct strict *s = NULL;
    char errmsg[256];
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(strict_create(&loop, &config, &s, errmsg, sizeof errmsg), 0);
    for (unsigned i = 0; i < QUESTIONS; i++) {
        questions[i].lock = (struct fli_slice){(const uint8_t *)"a", 1};
        questions[i].token = 1;
        strict_ask(s, &questions[i]);
    }
    while (fli_clock_ms() < questions[QUESTIONS - 1].due_ms) {
    }
    unsigned turns = 0;
    while (decided < QUESTIONS) {
        unsigned before = decided;
        (void)uv_run(&loop, UV_RUN_ONCE);
        assert_true(decided - before <= STRICT_LATE_MAX);
        turns += decided > before ? 1 : 0;
    }
    assert_int_equal(turns, 3);
    strict_stop(s);
    strict_destroy(s);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}
