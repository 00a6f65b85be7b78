/* Lines of the daemons' log: time, fields, bytes that would forge a line, and how often. */
#include "../../lib/unit.h"

#include "cli/daemon_log.h"

static void expect_line(struct log_entry_text e, const char *expected)
{
    char out[LOG_LINE_MAX + 1];
    e.level = e.level == 0 ? LOG_SEVERITY_INFO : e.level;
    e.part = e.part == NULL ? "part" : e.part;
    size_t len = log_format_line(out, &e);
    assert_true(len <= LOG_LINE_MAX);
    out[len] = '\0';
    assert_string_equal(out, expected);
}

#define AT "1970-01-01T00:00:00.000Z"
#define JSON_HEAD "{\"time\":\"" AT "\",\"level\":\"info\",\"part\":\"part\",\"message\":\""

TEST(test_text)
{
    expect_line((struct log_entry_text){.wall_ms = UINT64_C(1795378821042),
                                        .level = LOG_SEVERITY_WARNING,
                                        .part = "cluster",
                                        .message = "node 2 is gone member=2"},
                "2026-11-22T20:20:21.042Z warning cluster  node 2 is gone member=2\n");
    expect_line((struct log_entry_text){.wall_ms = LOG_WALL_MAX_MS, .message = ""},
                "9999-12-31T23:59:59.999Z info    part     \n");
    expect_line((struct log_entry_text){.message = "m", .left_out = 7},
                AT " info    part     m left_out=7\n");
    expect_line(
        (struct log_entry_text){.message = "m", .colours = true, .level = LOG_SEVERITY_ERROR},
        AT " \033[31merror  \033[0m part     m\n");
    /* The day after February 28 of a leap year, and of one that is none. */
    expect_line((struct log_entry_text){.message = "", .wall_ms = UINT64_C(951782400000)},
                "2000-02-29T00:00:00.000Z info    part     \n");
    expect_line((struct log_entry_text){.message = "", .wall_ms = UINT64_C(4107542400000)},
                "2100-03-01T00:00:00.000Z info    part     \n");
}

TEST(test_bytes)
{
    expect_line((struct log_entry_text){.message = "a\nb\033[2J\x7f caf\xc3\xa9"},
                AT " info    part     a\\x0ab\\x1b[2J\\x7f caf\xc3\xa9\n");
    expect_line((struct log_entry_text){.message = "caf\xc3\xa9 \xff"},
                AT " info    part     caf\xc3\xa9 \\xff\n");
    expect_line((struct log_entry_text){.message = "a \"b\" \\ \n\xff", .style = LOG_JSON},
                JSON_HEAD "a \\\"b\\\" \\\\ \\u000a\\ufffd\"}\n");
}

/* What turns a text or controls a terminal (base/escape.h). */
TEST(test_marks)
{
    static const char marks[] = "a\xe2\x80\xae"
                                "b\xc2\x9b"
                                "c\xd8\x9c"
                                "d k=\xe2\x81\xa6";
    expect_line((struct log_entry_text){.message = marks},
                AT " info    part     a\\xe2\\x80\\xaeb\\xc2\\x9bc\\xd8\\x9cd "
                   "k=\\xe2\\x81\\xa6\n");
    expect_line((struct log_entry_text){.message = marks, .style = LOG_JSON},
                JSON_HEAD "a\\u202eb\\u009bc\\u061cd\",\"k\":\"\\u2066\"}\n");
}

TEST(test_fields)
{
    expect_line((struct log_entry_text){.message = "it leads leader=2 term=17", .style = LOG_JSON},
                JSON_HEAD "it leads\",\"leader\":2,\"term\":17}\n");
    expect_line((struct log_entry_text){.message = "lost reason=\"a \\\"b\\\" c\" at=h:1",
                                        .style = LOG_JSON},
                JSON_HEAD "lost\",\"reason\":\"a \\\"b\\\" c\",\"at\":\"h:1\"}\n");
    expect_line((struct log_entry_text){.message = "term=1", .style = LOG_JSON},
                JSON_HEAD "\",\"term\":1}\n");
    /* What is no field, or has words behind it, stays a part of the message. */
    static const char *const none[] = {"a=1 and more", "x= ",      "Key=1", "=1",
                                       "a=\"open",     "a=1  b=2", "9a=1",  "a=b\"c"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        char out[LOG_LINE_MAX];
        struct log_entry_text e = {.style = LOG_JSON,
                                   .level = LOG_SEVERITY_INFO,
                                   .part = "part",
                                   .message = none[i],
                                   .left_out = 0};
        size_t len = log_format_line(out, &e);
        const char *comma = memchr(out + sizeof JSON_HEAD - 1, ',', len - sizeof JSON_HEAD + 1);
        assert_true(comma == NULL || strcmp(none[i], "a=1  b=2") == 0);
    }
    /* Numbers that a reader of JSON might change are texts. */
    expect_line((struct log_entry_text){.message = "n=999999999999999 m=1234567890123456 z=01",
                                        .style = LOG_JSON,
                                        .left_out = 3},
                JSON_HEAD "\",\"n\":999999999999999,\"m\":\"1234567890123456\",\"z\":\"01\","
                          "\"left_out\":3}\n");
}

/* However long, it is one line, whole as JSON. */
TEST(test_long)
{
    static char message[3 * LOG_LINE_MAX];
    static const char *const fillers[] = {"a",        "\"",   "\n",         "\xff",
                                          "\xc3\xa9", "k=v ", "k=\"\xff\" "};
    for (size_t f = 0; f < sizeof fillers / sizeof fillers[0]; f++) {
        for (size_t want = LOG_LINE_MAX - 300; want < LOG_LINE_MAX + 40; want++) {
            size_t step = strlen(fillers[f]);
            size_t len = 0;
            for (; len + step <= want / (f < 2 ? 1 : 4); len += step) {
                memcpy(message + len, fillers[f], step);
            }
            message[len] = '\0';
            for (unsigned style = 0; style < 2; style++) {
                char out[LOG_LINE_MAX];
                struct log_entry_text e = {.style = (enum log_style)style,
                                           .level = LOG_SEVERITY_WARNING,
                                           .part = "part",
                                           .message = message,
                                           .left_out = UINT64_MAX};
                size_t n = log_format_line(out, &e);
                assert_true(n <= LOG_LINE_MAX);
                assert_ptr_equal(memchr(out, '\n', n), out + n - 1);
                assert_true(style == LOG_TEXT || (out[n - 2] == '}' && out[0] == '{'));
            }
        }
    }
}

TEST(test_limit)
{
    static struct log_limit l;
    uint64_t left_out = 0;
    for (unsigned i = 0; i < LOG_BURST; i++) {
        char text[32];
        snprintf(text, sizeof text, "node %u is late", i);
        assert_true(log_limit_allows(&l, "peer", text, 1000, &left_out));
        assert_int_equal(left_out, 0);
    }
    assert_false(log_limit_allows(&l, "peer", "node 77 is late", 1000, &left_out));
    assert_true(log_limit_allows(&l, "peer", "something else", 1000, &left_out));
    assert_true(log_limit_allows(&l, "log", "node 77 is late", 1000, &left_out));
    assert_false(
        log_limit_allows(&l, "peer", "node 0 is late", 1000 + LOG_EVERY_MS - 1, &left_out));
    assert_true(log_limit_allows(&l, "peer", "node 0 is late", 1000 + LOG_EVERY_MS, &left_out));
    assert_int_equal(left_out, 2);
    assert_false(log_limit_allows(&l, "peer", "node 0 is late", 1000 + LOG_EVERY_MS, &left_out));
    uint64_t rested_ms = 1000 + (LOG_BURST + 2) * LOG_EVERY_MS;
    for (unsigned i = 0; i < LOG_BURST; i++) {
        assert_true(log_limit_allows(&l, "peer", "node 1 is late", rested_ms, &left_out));
    }
    assert_false(log_limit_allows(&l, "peer", "node 1 is late", rested_ms, &left_out));
}

/* More messages than are remembered: the one that was written longest ago is forgotten. */
TEST(test_many_messages)
{
    static struct log_limit l;
    uint64_t left_out = 0;
    char text[3] = "aa";
    for (unsigned i = 0; i < 3 * LOG_MESSAGES; i++) {
        text[0] = (char)('a' + i / 20);
        text[1] = (char)('a' + i % 20);
        assert_true(log_limit_allows(&l, "x", text, 1000 + i, &left_out));
    }
}
