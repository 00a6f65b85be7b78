/* escape.c: see escape.h. */
#include "base/escape.h"

static bool is_tail(uint8_t c)
{
    return (c & 0xc0) == 0x80;
}

/* Well-formed sequences by the Unicode Standard (chapter 3, table 3-7). */
size_t fli_utf8_len(const void *data, size_t left)
{
    const uint8_t *p = data;
    FLI_ASSERT(left > 0);
    uint8_t c = p[0];
    if (c < 0x80) {
        return 1;
    }
    if (c >= 0xc2 && c <= 0xdf) {
        return left >= 2 && is_tail(p[1]) ? 2 : 0;
    }
    if (c >= 0xe0 && c <= 0xef) {
        uint8_t low = c == 0xe0 ? 0xa0 : 0x80;
        uint8_t high = c == 0xed ? 0x9f : 0xbf;
        return left >= 3 && p[1] >= low && p[1] <= high && is_tail(p[2]) ? 3 : 0;
    }
    if (c >= 0xf0 && c <= 0xf4) {
        uint8_t low = c == 0xf0 ? 0x90 : 0x80;
        uint8_t high = c == 0xf4 ? 0x8f : 0xbf;
        bool good = left >= 4 && p[1] >= low && p[1] <= high && is_tail(p[2]) && is_tail(p[3]);
        return good ? 4 : 0;
    }
    return 0;
}

bool fli_is_utf8(const void *data, size_t len)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < len;) {
        size_t n = fli_utf8_len(p + i, len - i);
        if (n == 0) {
            return false;
        }
        i += n;
    }
    return true;
}

/* All that are kept back have one to three bytes. */
size_t fli_shown_len(const void *data, size_t left)
{
    const uint8_t *p = data;
    size_t n = fli_utf8_len(p, left);
    bool kept = false;
    if (n == 1) {
        kept = p[0] < 0x20 || p[0] == 0x7f;
    } else if (n == 2) {
        kept = (p[0] == 0xc2 && p[1] < 0xa0) || (p[0] == 0xd8 && p[1] == 0x9c);
    } else if (n == 3 && p[0] == 0xe2) {
        bool line_or_turn = p[1] == 0x80 && p[2] >= 0xa8 && p[2] <= 0xae;
        bool mark = p[1] == 0x80 && (p[2] == 0x8e || p[2] == 0x8f);
        kept = line_or_turn || mark || (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9);
    }
    return kept ? 0 : n;
}

static int put_escapes(struct fli_buf *out, const uint8_t *p, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    char text[4 * 4];
    FLI_ASSERT(n <= sizeof text / 4);
    for (size_t i = 0; i < n; i++) {
        text[4 * i] = '\\';
        text[4 * i + 1] = 'x';
        text[4 * i + 2] = hex[p[i] >> 4];
        text[4 * i + 3] = hex[p[i] & 15];
    }
    return fli_buf_append(out, text, 4 * n);
}

int fli_put_shown(struct fli_buf *out, const void *data, size_t len, bool lossless)
{
    const uint8_t *p = data;
    int rc = 0;
    for (size_t i = 0; i < len && rc == 0;) {
        size_t n = fli_utf8_len(p + i, len - i);
        bool stands = fli_shown_len(p + i, len - i) > 0 && !(lossless && p[i] == '\\');
        n = n > 0 ? n : 1;
        rc = stands ? fli_buf_append(out, p + i, n) : put_escapes(out, p + i, n);
        i += n;
    }
    return rc;
}
