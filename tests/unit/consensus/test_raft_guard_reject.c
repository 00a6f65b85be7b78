/* test_raft_guard_reject.c: rejections that were overtaken, and those that were not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "consensus/raft_guard_reject.h"

static void judge(raft_index match, raft_index rejected, raft_index last, enum guard_reject verdict,
                  raft_index last_after)
{
    struct raft_append_entries_result m = {.term = 3, .rejected = rejected, .last_log_index = last};
    assert_int_equal(guard_judge_reject(match, &m), verdict);
    assert_int_equal(m.rejected, rejected);
    assert_int_equal(m.last_log_index, last_after);
}

static void what_is_no_rejection_stays(void **state)
{
    judge(10, 0, 3, GUARD_REJECT_KEEP, 3);
    judge(0, 0, 0, GUARD_REJECT_KEEP, 0);
}

static void what_was_confirmed_cannot_be_rejected(void **state)
{
    judge(10, 1, 0, GUARD_REJECT_DROP, 0);
    judge(10, 10, 9, GUARD_REJECT_DROP, 9);
    judge(10, 11, 10, GUARD_REJECT_KEEP, 10);
    judge(0, 1, 0, GUARD_REJECT_KEEP, 0);
}

/* It sends the leader back no further than to what was confirmed. */
static void what_was_confirmed_is_there(void **state)
{
    judge(10, 12, 9, GUARD_REJECT_CORRECT, 10);
    judge(10, 12, 10, GUARD_REJECT_KEEP, 10);
    judge(10, 12, 11, GUARD_REJECT_KEEP, 11);
    judge(UINT64_MAX - 1, UINT64_MAX, 0, GUARD_REJECT_CORRECT, UINT64_MAX - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_rejection_stays),
        cmocka_unit_test(what_was_confirmed_cannot_be_rejected),
        cmocka_unit_test(what_was_confirmed_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
