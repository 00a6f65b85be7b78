/* test_bytes.c: loads and stores, CRC-32C against published vectors and a bit-by-bit version,
 * decimal numbers and durations at their limits, and the bounded reader at every truncation. */
#include "../../lib/rng.h"

#include "base/bytes.h"
#include "base/crc32c.h"

TEST(test_little_endian)
{
    uint8_t b[16] = {0};
    for (size_t at = 0; at < 8; at++) { /* any alignment */
        fli_put_u64(b + at, UINT64_C(0x0123456789abcdef));
        assert_int_equal(b[at], 0xef);
        assert_int_equal(b[at + 7], 0x01);
        assert_true(fli_get_u64(b + at) == UINT64_C(0x0123456789abcdef));
        fli_put_u32(b + at, 0x89abcdefu);
        assert_int_equal(b[at + 3], 0x89);
        assert_true(fli_get_u32(b + at) == 0x89abcdefu);
        fli_put_u16(b + at, 0xcdef);
        assert_int_equal(b[at], 0xef);
        assert_int_equal(fli_get_u16(b + at), 0xcdef);
    }
}

static uint32_t naive_crc(uint32_t crc, const uint8_t *p, size_t len)
{
    uint32_t c = ~crc;
    while (len-- > 0) {
        c ^= *p++;
        for (int bit = 0; bit < 8; bit++) {
            c = (c >> 1) ^ ((c & 1) != 0 ? 0x82f63b78u : 0);
        }
    }
    return ~c;
}

typedef uint32_t (*crc_fn)(uint32_t crc, const void *data, size_t len);

/* RFC 3720, appendix B.4, and the usual check value. */
static void check_vectors(crc_fn crc)
{
    uint8_t b[32];
    memset(b, 0, sizeof b);
    assert_true(crc(0, b, 32) == 0x8a9136aau);
    memset(b, 0xff, sizeof b);
    assert_true(crc(0, b, 32) == 0x62a8ab43u);
    for (size_t i = 0; i < 32; i++) {
        b[i] = (uint8_t)i;
    }
    assert_true(crc(0, b, 32) == 0x46dd794eu);
    for (size_t i = 0; i < 32; i++) {
        b[i] = (uint8_t)(31 - i);
    }
    assert_true(crc(0, b, 32) == 0x113fdb5cu);
    assert_true(crc(0, "123456789", 9) == 0xe3069283u);
    assert_true(crc(0, b, 0) == 0);
    assert_true(crc(0xe3069283u, b, 0) == 0xe3069283u);
}

static void check_random(crc_fn crc, uint64_t *rng)
{
    static uint8_t b[600];
    for (int round = 0; round < 2000; round++) {
        size_t from = (size_t)rng_below(rng, 16);
        size_t len = (size_t)rng_below(rng, sizeof b - from);
        for (size_t i = 0; i < len; i++) {
            b[from + i] = (uint8_t)rng_next(rng);
        }
        uint32_t want = naive_crc(0, b + from, len);
        assert_true(crc(0, b + from, len) == want);
        size_t first = len == 0 ? 0 : (size_t)rng_below(rng, len); /* two pieces, the same sum */
        uint32_t half = crc(0, b + from, first);
        assert_true(crc(half, b + from + first, len - first) == want);
    }
}

TEST(test_crc32c)
{
    uint64_t rng = rng_seed();
    check_vectors(fli_crc32c);
    check_vectors(fli_crc32c_table);
    check_random(fli_crc32c, &rng);
    check_random(fli_crc32c_table, &rng);
    printf("hardware CRC-32C: %s\n", fli_crc32c_has_hardware() ? "yes" : "no");
}

static bool parses(const char *text, uint64_t max, uint64_t want)
{
    uint64_t v = 77;
    bool ok = fli_parse_u64(text, strlen(text), max, &v);
    assert_true(ok || v == 77); /* untouched on failure */
    return ok && v == want;
}

static bool refuses(const char *text, uint64_t max)
{
    uint64_t v = 77;
    bool ok = fli_parse_u64(text, strlen(text), max, &v);
    return !ok && v == 77;
}

TEST(test_parse_u64)
{
    assert_true(parses("0", 0, 0));
    assert_true(parses("0", UINT64_MAX, 0));
    assert_true(parses("000000000000000000000000000007", 7, 7));
    assert_true(parses("18446744073709551615", UINT64_MAX, UINT64_MAX));
    assert_true(refuses("18446744073709551616", UINT64_MAX));
    assert_true(refuses("18446744073709551625", UINT64_MAX));
    assert_true(refuses("28446744073709551615", UINT64_MAX));
    assert_true(refuses("184467440737095516150", UINT64_MAX));
    assert_true(refuses("99999999999999999999999999", UINT64_MAX));
    assert_true(parses("9007199254740991", FL_TOKEN_MAX, FL_TOKEN_MAX));
    assert_true(refuses("9007199254740992", FL_TOKEN_MAX));
    assert_true(refuses("1", 0));
    assert_true(refuses("8", 7));
    assert_true(refuses("10", 9));
    static const char *const bad[] = {"",   " ",  " 1", "1 ", "+1", "-1",  "-0",   "0x1",
                                      "1e", "1.", "/",  ":",  "a",  "1\n", "\xb2", "1\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_true(refuses(bad[i], UINT64_MAX));
    }
    uint64_t v = 0;
    assert_false(fli_parse_u64("1\0", 2, UINT64_MAX, &v)); /* a NUL is a byte like any other */
    for (uint64_t max = 0; max < 300; max++) {             /* every limit is exact */
        for (uint64_t n = 0; n < 320; n++) {
            char text[8];
            int len = snprintf(text, sizeof text, "%u", (unsigned)n);
            assert_int_equal(fli_parse_u64(text, (size_t)len, max, &v), n <= max);
        }
    }
}

TEST(test_compare)
{
    assert_true(fli_bytes_cmp("", 0, NULL, 0) == 0);
    assert_true(fli_bytes_cmp("a", 1, "a", 1) == 0);
    assert_true(fli_bytes_cmp("a", 1, "b", 1) < 0);
    assert_true(fli_bytes_cmp("b", 1, "ab", 2) > 0);
    assert_true(fli_bytes_cmp("a", 1, "ab", 2) < 0);
    assert_true(fli_bytes_cmp("ab", 2, "a", 1) > 0);
    assert_true(fli_bytes_cmp("\xff", 1, "\x01", 1) > 0);
    assert_true(fli_bytes_cmp("a\0b", 3, "a\0c", 3) < 0);
}

/* Of a truncated record, the fields that are whole are read, and every later one is 0 and `bad`. */
TEST(test_reader)
{
    uint8_t record[18];
    record[0] = 7;
    fli_put_u16(record + 1, 0x1234);
    fli_put_u32(record + 3, 0x56789abcu);
    fli_put_u64(record + 7, UINT64_C(0xdef0123456789abc));
    memcpy(record + 15, "xyz", 3);
    for (size_t len = 0; len <= sizeof record; len++) {
        uint8_t *copy = malloc(len == 0 ? 1 : len); /* so that ASan sees a read too far */
        assert_non_null(copy);
        memcpy(copy, record, len);
        struct fli_reader r;
        fli_reader_init(&r, copy, len);
        assert_int_equal(fli_read_u8(&r), len >= 1 ? 7 : 0);
        assert_int_equal(fli_read_u16(&r), len >= 3 ? 0x1234 : 0);
        assert_true(fli_read_u32(&r) == (len >= 7 ? 0x56789abcu : 0));
        assert_true(fli_read_u64(&r) == (len >= 15 ? UINT64_C(0xdef0123456789abc) : 0));
        struct fli_slice s = fli_read_bytes(&r, 3);
        assert_int_equal(s.len, len == 18 ? 3 : 0);
        assert_int_equal(r.bad, len < 18);
        assert_int_equal(fli_reader_left(&r), 0);
        assert_int_equal(fli_read_u8(&r), 0);
        assert_true(r.bad);
        free(copy);
    }
    struct fli_reader r;
    fli_reader_init(&r, NULL, 0);
    assert_int_equal(fli_read_bytes(&r, 0).len, 0);
    assert_false(r.bad);
    fli_reader_init(&r, record, sizeof record);
    assert_int_equal(fli_read_bytes(&r, SIZE_MAX).len, 0);
    assert_true(r.bad);
}

TEST(test_durations)
{
    static const struct {
        const char *text;
        uint64_t ms;
    } good[] = {{"0", 0},
                {"1500", 1500},
                {"1500ms", 1500},
                {"5s", 5000},
                {"2m", 120000},
                {"24h", 86400000},
                {"007", 7},
                {"18446744073709551615", UINT64_MAX},
                {"18446744073709551s", UINT64_C(18446744073709551000)}};
    static const char *const bad[] = {"",
                                      "s",
                                      "ms",
                                      "-1",
                                      "+1",
                                      "1.5s",
                                      "5 s",
                                      "5sec",
                                      "5S",
                                      "1h1m",
                                      " 5",
                                      "0x5",
                                      "5d",
                                      "1e3",
                                      "18446744073709551616",
                                      "18446744073709552s",
                                      "5124095576030432h"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t ms = 42;
        assert_true(fli_parse_duration(good[i].text, &ms));
        assert_int_equal(ms, good[i].ms);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t ms = 42;
        assert_false(fli_parse_duration(bad[i], &ms));
        assert_int_equal(ms, 42);
    }
}
