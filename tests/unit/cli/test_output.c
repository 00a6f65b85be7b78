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

/* ---- texts ----------------------------------------------------------------------------------- */

/* What may be printed is for base/escape.h to say; here it is asked. */
TEST(test_safe_text)
{
    FILE *f = begin();
    cli_print_safe(f, fl_str("Z\xc3\xbc \x1b[2J \xe2\x80\xae \xc2\x9b C:\\x"));
    expect(f, "Z\xc3\xbc \\x1b[2J \\xe2\\x80\\xae \\xc2\\x9b C:\\x5cx");
}

/* Members are for JSON alone. */
TEST(test_text)
{
    FILE *f = begin();
    struct cli_out o = cli_out_begin(f, false, false);
    assert_false(o.terminal || o.colours);
    fli_json_u64(&o.j, "a", 1);
    cli_text(&o, "%d ", 7);
    cli_paint(&o, CLI_RED, "%s", "red");
    o.colours = true;
    cli_paint(&o, CLI_RED, "%s", "red");
    cli_paint_safe(&o, CLI_GREEN, fl_str("\n"));
    cli_out_end(&o);
    expect(f, "7 red\033[31mred\033[0m\033[32m\\x0a\033[0m");
}

/* One object after the other, each on a line of its own. */
TEST(test_json)
{
    for (unsigned i = 0; i < 2; i++) {
        FILE *f = begin();
        struct cli_out o = cli_out_begin(f, true, false);
        fli_json_array(&o.j, "a");
        fli_json_end_array(&o.j);
        fli_json_text(&o.j, "b", "\xe2\x80\xae");
        cli_text(&o, "not in JSON");
        cli_paint(&o, CLI_RED, "nor this");
        cli_text_safe(&o, fl_str("nor this"));
        cli_out_end(&o);
        expect(f, "{\"a\":[],\"b\":\"\\u202e\"}\n");
    }
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void add(struct cli_list *l, enum cli_colour colour, const char *name, uint64_t n,
                const char *x)
{
    cli_list_row(l);
    cli_list_text(l, "name", "NAME", colour, name);
    cli_list_u64(l, "n", "N", CLI_PLAIN, n);
    cli_list_bool(l, "is_x", "X", CLI_PLAIN, x[0] != '\0', x);
}

TEST(test_table)
{
    struct cli_list l;
    FILE *f = begin();
    struct cli_out o = cli_out_begin(f, false, false);
    cli_list_begin(&l, &o, "rows");
    add(&l, CLI_PLAIN, "Z\xc3\xbcrich\n", 12345, "x");
    add(&l, CLI_PLAIN, "a", 1, "");
    cli_list_row(&l);
    l.none = true;
    cli_list_text(&l, "name", "NAME", CLI_PLAIN, "");
    l.none = false;
    cli_list_ms(&l, "n", "N", CLI_PLAIN, 61000);
    l.none = true;
    cli_list_text(&l, NULL, "X", CLI_PLAIN, "");
    cli_list_end(&l);
    expect(f, "NAME              N  X\n"
              "Z\xc3\xbcrich\\x0a    12345  x\n"
              "a                 1\n"
              "-           1 m 1 s  -\n");
}

TEST(test_table_colours_keep_the_alignment)
{
    struct cli_list l;
    FILE *f = begin();
    struct cli_out o = cli_out_begin(f, false, false);
    o.colours = true;
    cli_list_begin(&l, &o, "rows");
    add(&l, CLI_GREEN, "a", 7, "x");
    cli_list_end(&l);
    expect(f, "\033[1mNAME\033[0m  \033[1mN\033[0m  \033[1mX\033[0m\n"
              "\033[32ma\033[0m     7  x\n");
}

/* The same fields as JSON; and a list of nothing, which has no titles. */
TEST(test_list_as_json)
{
    struct cli_list l;
    FILE *f = begin();
    struct cli_out o = cli_out_begin(f, true, false);
    cli_list_begin(&l, &o, "none");
    cli_list_end(&l);
    cli_list_begin(&l, &o, "two");
    add(&l, CLI_PLAIN, "\xff", 1, "");
    cli_list_row(&l);
    l.none = true;
    cli_list_text(&l, "name", "NAME", CLI_PLAIN, "x");
    l.none = false;
    cli_list_ms(&l, "n", "N", CLI_PLAIN, 61000);
    cli_list_end(&l);
    cli_out_end(&o);
    expect(f, "{\"none\":[],\"two\":[{\"name\":\"\\ufffd\",\"name_base64\":\"/w==\",\"n\":1,"
              "\"is_x\":false},{\"name\":null,\"n\":61000}]}\n");
    f = begin();
    o = cli_out_begin(f, false, false);
    cli_list_begin(&l, &o, "none");
    cli_list_end(&l);
    expect(f, "");
}

TEST(test_table_of_many_rows)
{
    struct cli_list l;
    FILE *f = begin();
    struct cli_out o = cli_out_begin(f, false, false);
    cli_list_begin(&l, &o, "rows");
    for (unsigned i = 0; i < 1000; i++) {
        add(&l, CLI_PLAIN, "a", i, "x");
    }
    cli_list_end(&l);
    fclose(f);
    size_t lines = 0;
    for (size_t i = 0; i < text_len; i++) {
        lines += text[i] == '\n' ? 1 : 0;
    }
    assert_int_equal(lines, 1001);
    free(text);
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
