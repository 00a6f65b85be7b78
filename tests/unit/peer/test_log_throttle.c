/* Which lines are logged again, and how many different ones. */
#include "../../lib/unit.h"

#include "peer/transport_private.h"

TEST(test_the_same_line)
{
    struct log_throttle s;
    uint64_t left_out;
    memset(&s, 0, sizeof s);
    assert_true(log_throttle_allows(&s, "a", 1000, &left_out));
    assert_false(log_throttle_allows(&s, "a", 1000, &left_out));
    assert_true(log_throttle_allows(&s, "b", 1000, &left_out));
    assert_false(log_throttle_allows(&s, "a", 1000 + LOG_THROTTLE_AGAIN_MS - 1, &left_out));
    assert_true(log_throttle_allows(&s, "a", 1000 + LOG_THROTTLE_AGAIN_MS, &left_out));
    assert_int_equal(left_out, 0);
}

/* Lines that are never the same: a burst, then one a second, and the number of the others. */
TEST(test_different_lines)
{
    struct log_throttle s;
    uint64_t left_out;
    unsigned n = 0;
    char text[32];
    memset(&s, 0, sizeof s);
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(text, sizeof text, "line %u", i);
        n += log_throttle_allows(&s, text, 5000, &left_out);
    }
    assert_int_equal(n, LOG_THROTTLE_BURST);
    assert_false(log_throttle_allows(&s, "x", 5000 + LOG_THROTTLE_EVERY_MS - 1, &left_out));
    assert_true(log_throttle_allows(&s, "x", 5000 + LOG_THROTTLE_EVERY_MS, &left_out));
    assert_int_equal(left_out, 1000 - LOG_THROTTLE_BURST + 1);
    assert_false(log_throttle_allows(&s, "y", 5000 + LOG_THROTTLE_EVERY_MS, &left_out));
    assert_true(log_throttle_allows(&s, "y", 5000 + 3600000, &left_out));
    assert_int_equal(left_out, 1);
    for (unsigned i = 1; i < LOG_THROTTLE_BURST; i++) {
        snprintf(text, sizeof text, "later %u", i);
        assert_true(log_throttle_allows(&s, text, 5000 + 3600000, &left_out));
    }
    assert_false(log_throttle_allows(&s, "z", 5000 + 3600000, &left_out));
}
