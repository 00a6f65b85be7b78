/* What may be printed as it stands, and what stands in place of the rest. */
#include "../../lib/unit.h"

#include "base/escape.h"

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
        assert_int_equal(fli_is_utf8(rows[i].data, strlen(rows[i].data)), rows[i].good);
    }
}

static size_t put_utf8(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6) {
        out[i] = (char)(unsigned char)(0x80 | (code & 0x3f));
    }
    static const uint8_t heads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    out[0] = (char)(unsigned char)(heads[n] | code);
    return n;
}

/* Every character there is, against the list of what is kept back. */
TEST(test_every_character)
{
    static const uint32_t kept[][2] = {{0, 0x1f},        {0x7f, 0x9f},     {0x61c, 0x61c},
                                       {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069}};
    for (uint32_t code = 0; code <= 0x10ffff; code++) {
        char text[4];
        size_t n = put_utf8(code, text);
        bool is_kept = code >= 0xd800 && code <= 0xdfff;
        for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
            is_kept = is_kept || (code >= kept[i][0] && code <= kept[i][1]);
        }
        if (fli_shown_len(text, n) != (is_kept ? 0 : n)) {
            fail_msg("U+%04X", code);
        }
    }
}

TEST(test_shown)
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
        {{"a\xe2\x80\xae"
          "txt.exe",
          11},
         "a\\xe2\\x80\\xaetxt.exe"},
        {{"\xd8\x9c\xe2\x81\xa9", 5}, "\\xd8\\x9c\\xe2\\x81\\xa9"},
        {{NULL, 0}, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fli_buf b;
        fli_buf_init(&b, 256);
        assert_int_equal(fli_put_shown(&b, rows[i].in.data, rows[i].in.len, true), 0);
        assert_int_equal(b.len, strlen(rows[i].out));
        assert_memory_equal(b.len == 0 ? (const void *)"" : b.data, rows[i].out, b.len);
        fli_buf_fini(&b);
    }
}

TEST(test_a_backslash_that_belongs_to_the_text)
{
    struct fli_buf b;
    fli_buf_init(&b, 16);
    assert_int_equal(fli_put_shown(&b, "a\\b", 3, false), 0);
    assert_memory_equal(b.data, "a\\b", 3);
    fli_buf_fini(&b);
}

/* Whole characters up to the end of the room. */
TEST(test_no_room)
{
    static const char text[] = "ab\xc3\xbc\n\xe2\x82\xac";
    static const char all[] = "ab\xc3\xbc\\x0a\xe2\x82\xac";
    static const size_t ends[] = {0, 1, 2, 2, 4, 4, 4, 4, 8, 8, 8, 11, 11};
    for (size_t max = 0; max < sizeof ends / sizeof ends[0]; max++) {
        struct fli_buf b;
        fli_buf_init(&b, max);
        int rc = fli_put_shown(&b, text, sizeof text - 1, true);
        assert_int_equal(rc, max < 11 ? FL_ELIMIT : 0);
        assert_int_equal(b.len, ends[max]);
        assert_memory_equal(b.len == 0 ? (const void *)"" : b.data, all, b.len);
        fli_buf_fini(&b);
    }
}
