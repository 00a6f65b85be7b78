/* test_text.c: the bytes a scraper and the page read, and buffers that are too small. */
#include "../../lib/unit.h"

#include "metrics/text.h"

static void expect(const struct fli_buf *b, const char *text)
{
    if (b->len != strlen(text) || memcmp(b->data, text, b->len) != 0) {
        fail_msg("this was written:\n%.*s\nand not:\n%s", (int)b->len, (const char *)b->data, text);
    }
}

TEST(families_and_samples)
{
    struct fli_buf b;
    struct metrics_text t;
    fli_buf_init(&b, 4096);
    metrics_text_init(&t, &b);
    metrics_counter(&t, "a_total", "How many.", UINT64_MAX);
    metrics_gauge(&t, "b", "Now.", 0);
    metrics_family(&t, "c", "gauge", "Labelled.");
    metrics_whole(&t, &(struct metrics_label){"x", "a\"b\\c\nd"}, 1);
    metrics_milli(&t, NULL, 1002);
    metrics_real(&t, NULL, 0.25);
    metrics_info(&t, (const struct metrics_label[]){{"p", "1"}, {"q", "2"}}, 2);
    assert_int_equal(t.rc, 0);
    expect(&b, "# HELP a_total How many.\n# TYPE a_total counter\na_total 18446744073709551615\n"
               "# HELP b Now.\n# TYPE b gauge\nb 0\n"
               "# HELP c Labelled.\n# TYPE c gauge\nc{x=\"a\\\"b\\\\c\\nd\"} 1\nc 1.002\nc 0.25\n"
               "c{p=\"1\",q=\"2\"} 1\n");
    fli_buf_fini(&b);
}

TEST(a_histogram_is_cumulative)
{
    struct fli_buf b;
    struct metrics_text t;
    struct metrics_histogram h;
    fli_buf_init(&b, 8192);
    metrics_text_init(&t, &b);
    metrics_histogram_init(&h, METRICS_RANGE_FAST);
    metrics_observe_us(&h, 16);
    metrics_observe_us(&h, 17);
    metrics_observe_us(&h, 3000000000);
    metrics_histogram(&t, "w_seconds", "How long.", &h);
    assert_int_equal(fli_buf_append(&b, "", 1), 0);
    const char *s = (const char *)b.data;
    assert_non_null(strstr(s, "# TYPE w_seconds histogram\nw_seconds_bucket{le=\"0.000016\"} 1\n"
                              "w_seconds_bucket{le=\"0.000032\"} 2\n"));
    assert_non_null(strstr(s, "w_seconds_bucket{le=\"33.554432\"} 2\n"
                              "w_seconds_bucket{le=\"+Inf\"} 3\n"
                              "w_seconds_sum 3000.000033\nw_seconds_count 3\n"));
    fli_buf_fini(&b);
}

TEST(a_full_buffer_is_told)
{
    for (size_t max = 1; max < 120; max++) {
        struct fli_buf b;
        struct metrics_text t;
        fli_buf_init(&b, max);
        metrics_text_init(&t, &b);
        metrics_counter(&t, "a_total", "Help that is long enough to be cut off somewhere in it.",
                        1);
        metrics_gauge(&t, "b", "More of that, so that it never fits in any of these.", 2);
        assert_int_equal(t.rc, FL_ELIMIT);
        fli_buf_fini(&b);
    }
}
