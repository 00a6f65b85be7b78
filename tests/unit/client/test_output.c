/* JSON, tables, and bytes made safe to look at. */
#include "../../lib/unit.h"

#include "cli/output.h"

/* ---- helpers --------------------------------------------------------------------------------- */

static char *text;
static size_t text_len;

static FILE *begin(void)
{
    FILE *f = open_memstream(&text, &text_len);
    assert_non_null(f);
    return f;
}

static void expect(FILE *f, const char *expected)
{
    fclose(f);
    assert_string_equal(text, expected);
    free(text);
    text = NULL;
}

/* ---- UTF-8 ----------------------------------------------------------------------------------- */

TEST(test_utf8)
{
    static const struct {
        const char *data;
        bool good;
    } rows[] = {
        {"", true},
        {"plain", true},
        {"Z\xc3\xbcrich", true},
        {"\xe2\x82\xac", true},
        {"\xf0\x9f\x94\x92", true},
        {"\xf4\x8f\xbf\xbf", true},  /* U+10FFFF */
        {"\xf4\x90\x80\x80", false}, /* above it */
        {"\xc0\x80", false},         /* overlong */
        {"\xc1\xbf", false},
        {"\xe0\x9f\xbf", false},
        {"\xf0\x8f\xbf\xbf", false},
        {"\xed\xa0\x80", false}, /* surrogate */
        {"\xed\x9f\xbf", true},
        {"\xee\x80\x80", true},
        {"\x80", false},
        {"\xc3", false},
        {"\xe2\x82", false},
        {"\xf0\x9f\x94", false},
        {"\xff", false},
        {"a\xc3(", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(cli_is_utf8(fl_str(rows[i].data)), rows[i].good);
    }
}

TEST(test_safe_text)
{
    static const struct {
        struct fl_bytes in;
        const char *out;
    } rows[] = {
        {{"plain", 5}, "plain"},
        {{"Z\xc3\xbc", 3}, "Z\xc3\xbc"},
        {{"a\0b", 3}, "a\\x00b"},
        {{"\x1b[2J\x7f\n\t", 7}, "\\x1b[2J\\x7f\\x0a\\x09"},
        {{"\xc2\x9b"
          "31m",
          5},
         "\\xc2\\x9b31m"}, /* CSI as one character */
        {{"\xc2\xa0", 2}, "\xc2\xa0"},
        {{"\xff\xc3", 2}, "\\xff\\xc3"},
        {{"C:\\x", 4}, "C:\\x5cx"},
        {{NULL, 0}, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        FILE *f = begin();
        cli_print_safe(f, rows[i].in);
        expect(f, rows[i].out);
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

TEST(test_json_structure)
{
    FILE *f = begin();
    struct cli_json j = cli_json_begin(f);
    cli_json_array(&j, "a");
    cli_json_end_array(&j);
    cli_json_array(&j, "b");
    cli_json_u64(&j, NULL, 0);
    cli_json_u64(&j, NULL, UINT64_MAX);
    cli_json_object(&j, NULL);
    cli_json_end_object(&j);
    cli_json_object(&j, NULL);
    cli_json_bool(&j, "t", true);
    cli_json_bool(&j, "f", false);
    cli_json_null(&j, "n");
    cli_json_end_object(&j);
    cli_json_end_array(&j);
    cli_json_text(&j, "c", "");
    cli_json_finish(&j);
    expect(f, "{\"a\":[],\"b\":[0,18446744073709551615,{},{\"t\":true,\"f\":false,\"n\":null}],"
              "\"c\":\"\"}\n");
}

TEST(test_json_strings)
{
    static const struct {
        struct fl_bytes in;
        const char *out;
    } rows[] = {
        {{"a\"b\\c/", 6}, "{\"k\":\"a\\\"b\\\\c/\"}\n"},
        {{"\0\x1f\x7f\n", 4}, "{\"k\":\"\\u0000\\u001f\\u007f\\u000a\"}\n"},
        {{"\xf0\x9f\x94\x92", 4}, "{\"k\":\"\xf0\x9f\x94\x92\"}\n"},
        {{"\xff", 1}, "{\"k\":\"\\ufffd\",\"k_base64\":\"/w==\"}\n"},
        {{"\xff\xfe", 2}, "{\"k\":\"\\ufffd\\ufffd\",\"k_base64\":\"//4=\"}\n"},
        {{"\xff\xfe\0", 3}, "{\"k\":\"\\ufffd\\ufffd\\u0000\",\"k_base64\":\"//4A\"}\n"},
        {{"ab\xc3", 3}, "{\"k\":\"ab\\ufffd\",\"k_base64\":\"YWLD\"}\n"},
        {{NULL, 0}, "{\"k\":\"\"}\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        FILE *f = begin();
        struct cli_json j = cli_json_begin(f);
        cli_json_bytes(&j, "k", rows[i].in);
        cli_json_finish(&j);
        expect(f, rows[i].out);
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

static const struct cli_column columns[] = {{"NAME", false}, {"N", true}, {"X", false}};

TEST(test_table)
{
    struct cli_table t;
    cli_table_init(&t, columns, 3);
    cli_table_bytes(&t, CLI_PLAIN, fl_str("Z\xc3\xbcrich\n"));
    cli_table_u64(&t, CLI_PLAIN, 12345);
    cli_table_text(&t, CLI_PLAIN, "x");
    cli_table_text(&t, CLI_PLAIN, "a");
    cli_table_u64(&t, CLI_PLAIN, 1);
    cli_table_text(&t, CLI_PLAIN, "");
    FILE *f = begin();
    cli_table_print(&t, f, false);
    expect(f, "NAME            N  X\n"
              "Z\xc3\xbcrich\\x0a  12345  x\n"
              "a               1\n");
    cli_table_fini(&t);
}

TEST(test_table_colours_keep_the_alignment)
{
    struct cli_table t;
    cli_table_init(&t, columns, 3);
    cli_table_text(&t, CLI_GREEN, "a");
    cli_table_u64(&t, CLI_RED, 7);
    cli_table_text(&t, CLI_PLAIN, "x");
    FILE *f = begin();
    cli_table_print(&t, f, true);
    expect(f, "\033[1mNAME\033[0m  \033[1mN\033[0m  \033[1mX\033[0m\n"
              "\033[32ma\033[0m     \033[31m7\033[0m  x\n");
    cli_table_fini(&t);
}

TEST(test_table_of_many_rows)
{
    struct cli_table t;
    cli_table_init(&t, columns, 3);
    for (unsigned i = 0; i < 3000; i++) {
        cli_table_u64(&t, CLI_PLAIN, i);
    }
    FILE *f = begin();
    cli_table_print(&t, f, false);
    fclose(f);
    size_t lines = 0;
    for (size_t i = 0; i < text_len; i++) {
        lines += text[i] == '\n' ? 1 : 0;
    }
    assert_int_equal(lines, 1001);
    free(text);
    cli_table_fini(&t);
}

TEST(test_durations)
{
    static const struct {
        uint64_t ms;
        const char *text;
    } rows[] = {
        {0, "0 ms"},
        {999, "999 ms"},
        {1000, "1.0 s"},
        {9949, "9.9 s"},
        {59999, "59.9 s"},
        {60000, "1 m 0 s"},
        {3599999, "59 m 59 s"},
        {3600000, "1 h 0 m"},
        {86399999, "23 h 59 m"},
        {86400000, "1 d 0 h"},
        {UINT64_MAX, "213503982334 d 14 h"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char out[CLI_DURATION_SIZE];
        cli_format_duration(out, rows[i].ms);
        assert_string_equal(out, rows[i].text);
    }
}
