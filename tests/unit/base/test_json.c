/* test_json.c: the bytes that readers of JSON get, and buffers that are too small. */
#include "../../lib/unit.h"

#include <time.h>

#include "base/json.h"
#include "base/utc.h"

static struct fli_buf b;
static struct fli_json j;

static void begin(size_t max)
{
    fli_buf_fini(&b);
    fli_buf_init(&b, max);
    fli_json_init(&j, &b);
}

static void expect(const char *text)
{
    assert_int_equal(j.rc, 0);
    if (b.len != strlen(text) || memcmp(b.data, text, b.len) != 0) {
        fail_msg("this was written:\n%.*s\nand not:\n%s", (int)b.len, (const char *)b.data, text);
    }
}

TEST(test_structure)
{
    begin(4096);
    fli_json_object(&j, NULL);
    fli_json_array(&j, "a");
    fli_json_end_array(&j);
    fli_json_array(&j, "b");
    fli_json_u64(&j, NULL, 0);
    fli_json_u64(&j, NULL, UINT64_MAX);
    fli_json_object(&j, NULL);
    fli_json_end_object(&j);
    fli_json_object(&j, NULL);
    fli_json_bool(&j, "t", true);
    fli_json_bool(&j, "f", false);
    fli_json_null(&j, "n");
    fli_json_text(&j, "m", NULL);
    fli_json_end_object(&j);
    fli_json_end_array(&j);
    fli_json_text(&j, "c", "");
    fli_json_end_object(&j);
    assert_int_equal(j.depth, 0);
    expect("{\"a\":[],\"b\":[0,18446744073709551615,{},"
           "{\"t\":true,\"f\":false,\"n\":null,\"m\":null}],\"c\":\"\"}");
}

TEST(test_bytes)
{
    static const struct {
        struct fl_bytes in;
        const char *out;
    } rows[] = {
        {{"a\"b\\c/", 6}, "\"k\":\"a\\\"b\\\\c/\""},
        {{"\0\x1f\x7f\n", 4}, "\"k\":\"\\u0000\\u001f\\u007f\\u000a\""},
        {{"\xf0\x9f\x94\x92", 4}, "\"k\":\"\xf0\x9f\x94\x92\""},
        {{"</script>", 9}, "\"k\":\"\\u003c/script>\""},
        {{"\xe2\x80\xae\xd8\x9c\xc2\x9b", 7}, "\"k\":\"\\u202e\\u061c\\u009b\""},
        {{"\xff", 1}, "\"k\":\"\\ufffd\",\"k_base64\":\"/w==\""},
        {{"\xff\xfe", 2}, "\"k\":\"\\ufffd\\ufffd\",\"k_base64\":\"//4=\""},
        {{"\xff\xfe\0", 3}, "\"k\":\"\\ufffd\\ufffd\\u0000\",\"k_base64\":\"//4A\""},
        {{"ab\xc3", 3}, "\"k\":\"ab\\ufffd\",\"k_base64\":\"YWLD\""},
        {{NULL, 0}, "\"k\":\"\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        begin(256);
        fli_json_bytes(&j, "k", rows[i].in);
        expect(rows[i].out);
    }
}

TEST(test_encodings)
{
    static const uint8_t bytes[] = {'a', ' ', 0, 0xff, '%', '"', '<', '~'};
    const struct fli_slice v = {bytes, sizeof bytes};
    begin(256);
    fli_json_percent(&j, "p", v);
    fli_json_latin1(&j, "l", v);
    expect("\"p\":\"a%20%00%FF%25%22%3C~\",\"l\":\"a \\u0000\\u00ff%\\\"\\u003c~\"");
}

/* Longer than what is gathered on the way, with and without escapes. */
TEST(test_long_texts)
{
    for (size_t len = 0; len < 1200; len++) {
        uint8_t bytes[1200];
        memset(bytes, 'a', len);
        bytes[len / 2] = ' ';
        begin(4096);
        fli_json_percent(&j, NULL, (struct fli_slice){bytes, len});
        assert_int_equal(j.rc, 0);
        assert_int_equal(b.len, 2 + len + (len > 0 ? 2 : 0));
        memset(bytes, 0xff, len);
        begin(4096);
        fli_json_percent(&j, NULL, (struct fli_slice){bytes, len});
        assert_int_equal(b.len, 2 + 3 * len);
        assert_true(b.data[0] == '"' && b.data[b.len - 1] == '"');
        for (size_t i = 0; i < len; i++) {
            assert_memory_equal(b.data + 1 + 3 * i, "%FF", 3);
        }
    }
}

TEST(test_a_full_buffer_is_told)
{
    static const char text[] = "01234567890123456789012345678901234567890123456789";
    for (size_t max = 1; max < sizeof text + 1; max++) {
        begin(max);
        fli_json_text(&j, NULL, text);
        assert_int_equal(j.rc, FL_ELIMIT);
    }
    begin(sizeof text + 1);
    fli_json_text(&j, NULL, text);
    assert_int_equal(j.rc, 0);
}

/* Texts end before this length, behind a whole character; what follows still has its place. */
TEST(test_a_text_that_is_cut)
{
    static const char *const outs[] = {"\"\"", "\"\"", "\"a\"", "\"a\"", "\"a\xc3\xbc\""};
    for (size_t stop = 1; stop < 5; stop++) {
        begin(64);
        j.stop = stop;
        fli_json_text(&j, NULL, "a\xc3\xbc\n");
        expect(outs[stop]);
    }
    begin(64);
    j.stop = 10;
    fli_json_text(&j, NULL, "a\xc3\xbc\n!");
    expect("\"a\xc3\xbc\\u000a\"");
}

TEST(test_utc)
{
    static const struct {
        uint64_t ms;
        const char *text;
    } rows[] = {{0, "1970-01-01T00:00:00.000Z"},
                {UINT64_C(951782400000), "2000-02-29T00:00:00.000Z"},
                {UINT64_C(1795378821042), "2026-11-22T20:20:21.042Z"},
                {UINT64_C(4107542400000), "2100-03-01T00:00:00.000Z"},
                {UINT64_C(253402300799999), "9999-12-31T23:59:59.999Z"},
                {UINT64_MAX, "584556019-04-03T14:25:51.615Z"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char out[FLI_UTC_SIZE];
        fli_utc(out, rows[i].ms);
        assert_string_equal(out, rows[i].text);
    }
    for (uint64_t day = 0; day < 200000; day++) { /* against what everybody has */
        char out[FLI_UTC_SIZE];
        char expected[FLI_UTC_SIZE];
        time_t seconds = (time_t)(day * 86400);
        struct tm tm;
        assert_non_null(gmtime_r(&seconds, &tm));
        strftime(expected, sizeof expected, "%Y-%m-%dT%H:%M:%S.000Z", &tm);
        fli_utc(out, day * 86400000);
        assert_string_equal(out, expected);
    }
    fli_buf_fini(&b);
}
