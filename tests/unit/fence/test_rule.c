/* The rule of the mark, as a table. */
#include "../../lib/unit.h"

#include "fence/rule.h"

#define UNTOUCHED UINT64_C(0xABCDEF)

TEST(test_judge)
{
    static const struct {
        fl_token mark, token;
        int result;
        fl_token ret_mark;
    } rows[] = {
        {0, 1, 0, 1},
        {0, FL_TOKEN_MAX, 0, FL_TOKEN_MAX},
        {33, 34, 0, 34},
        {34, 34, 0, 34}, /* a holder writes many times */
        {34, 33, FL_ESTALE, UNTOUCHED},
        {34, 1, FL_ESTALE, UNTOUCHED},
        {1, 2, 0, 2},
        {FL_TOKEN_MAX, FL_TOKEN_MAX, 0, FL_TOKEN_MAX},
        {FL_TOKEN_MAX, FL_TOKEN_MAX - 1, FL_ESTALE, UNTOUCHED},
        {0, 0, FL_EINVAL, UNTOUCHED},
        {34, 0, FL_EINVAL, UNTOUCHED},
        {0, FL_TOKEN_MAX + 1, FL_EINVAL, UNTOUCHED},
        {34, UINT64_MAX, FL_EINVAL, UNTOUCHED},
        {UINT64_MAX, FL_TOKEN_MAX, FL_ESTALE, UNTOUCHED}, /* a mark that cannot be: refuse all */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        fl_token mark = UNTOUCHED;
        assert_int_equal(fl_fence_judge(rows[i].mark, rows[i].token, &mark), rows[i].result);
        assert_int_equal(mark, rows[i].ret_mark);
    }
}

/* For all small numbers: accepted exactly when not below, and the mark never goes back. */
TEST(test_judge_all_small)
{
    for (fl_token mark = 0; mark < 40; mark++) {
        for (fl_token token = 1; token < 40; token++) {
            fl_token out = mark;
            int rc = fl_fence_judge(mark, token, &out);
            assert_int_equal(rc, token < mark ? FL_ESTALE : 0);
            assert_true(out >= mark);
        }
    }
}

TEST(test_effective)
{
    assert_int_equal(fli_fence_effective(0, 0), 0);
    assert_int_equal(fli_fence_effective(0, 7), 7);
    assert_int_equal(fli_fence_effective(6, 7), 7);
    assert_int_equal(fli_fence_effective(8, 7), 8);
}
