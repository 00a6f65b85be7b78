/* test_sha1.c: SHA-1 of known texts, whole and in pieces, and its hex digits. */
#include "../../lib/unit.h"

#include "base/sha1.h"

static struct fli_slice text(const char *s)
{
    return (struct fli_slice){(const uint8_t *)s, strlen(s)};
}

TEST(sha1)
{
    static const struct {
        const char *text, *hex;
    } rows[] = {
        {"", "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
        {"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "84983e441c3bd26ebaae4aa1f95129e5e54670f1"},
    };
    uint8_t out[FLI_SHA1_SIZE];
    uint8_t again[FLI_SHA1_SIZE];
    char hex[FLI_SHA1_HEX + 1];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fli_sha1_of(rows[i].text, strlen(rows[i].text), out);
        fli_sha1_text(out, hex);
        assert_string_equal(hex, rows[i].hex);
        assert_true(fli_sha1_parse(text(hex), again));
        assert_memory_equal(out, again, sizeof out);
    }
    struct fli_sha1 s; /* a million letters, in pieces of all lengths */
    fli_sha1_init(&s);
    char letters[1000];
    memset(letters, 'a', sizeof letters);
    for (size_t left = 1000000, n = 1; left > 0; n = n % 997 + 1) {
        size_t piece = n < left ? n : left;
        fli_sha1_add(&s, letters, piece);
        left -= piece;
    }
    fli_sha1_end(&s, out);
    fli_sha1_text(out, hex);
    assert_string_equal(hex, "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    assert_true(fli_sha1_parse(text("A9993E364706816ABA3E25717850C26C9CD0D89D"), out));
    assert_false(fli_sha1_parse(text("a9993e364706816aba3e25717850c26c9cd0d89"), out));
    assert_false(fli_sha1_parse(text("g9993e364706816aba3e25717850c26c9cd0d89d"), out));
}
