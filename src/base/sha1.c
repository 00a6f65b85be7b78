/* sha1.c: see sha1.h. */
#include "base/sha1.h"

#include <string.h>

#include "base/bytes.h"

static uint32_t rotate(uint32_t v, unsigned n)
{
    return v << n | v >> (32 - n);
}

static void fill(uint32_t w[80], const uint8_t block[64])
{
    for (unsigned i = 0; i < 16; i++) {
        const uint8_t *p = block + (size_t)4 * i;
        w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    }
    for (unsigned i = 16; i < 80; i++) {
        w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    }
}

static uint32_t mix(unsigned i, uint32_t b, uint32_t c, uint32_t d)
{
    switch (i / 20) {
    case 0:
        return (b & c) | (~b & d);
    case 2:
        return (b & c) | (b & d) | (c & d);
    default:
        return b ^ c ^ d;
    }
}

static void step(struct fli_sha1 *s)
{
    static const uint32_t k[4] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
    uint32_t w[80];
    uint32_t a = s->h[0];
    uint32_t b = s->h[1];
    uint32_t c = s->h[2];
    uint32_t d = s->h[3];
    uint32_t e = s->h[4];
    fill(w, s->block);
    for (unsigned i = 0; i < 80; i++) {
        uint32_t t = rotate(a, 5) + mix(i, b, c, d) + e + k[i / 20] + w[i];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = t;
    }
    s->h[0] += a;
    s->h[1] += b;
    s->h[2] += c;
    s->h[3] += d;
    s->h[4] += e;
}

void fli_sha1_init(struct fli_sha1 *s)
{
    *s = (struct fli_sha1){.h = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}};
}

void fli_sha1_add(struct fli_sha1 *s, const void *data, size_t len)
{
    const uint8_t *p = data;
    while (len > 0) {
        size_t at = (size_t)(s->bytes % 64);
        size_t n = len < 64 - at ? len : 64 - at;
        memcpy(s->block + at, p, n);
        s->bytes += n;
        p += n;
        len -= n;
        if (s->bytes % 64 == 0) {
            step(s);
        }
    }
}

void fli_sha1_end(struct fli_sha1 *s, uint8_t out[FLI_SHA1_SIZE])
{
    static const uint8_t padding[64] = {0x80};
    uint8_t length[8];
    uint64_t bits = s->bytes * 8;
    for (unsigned i = 0; i < 8; i++) {
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    }
    size_t at = (size_t)(s->bytes % 64);
    fli_sha1_add(s, padding, at < 56 ? 56 - at : 120 - at);
    fli_sha1_add(s, length, sizeof length);
    FLI_ASSERT(s->bytes % 64 == 0);
    for (unsigned i = 0; i < 20; i++) {
        out[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
    }
}

void fli_sha1_of(const void *data, size_t len, uint8_t out[FLI_SHA1_SIZE])
{
    struct fli_sha1 s;
    fli_sha1_init(&s);
    fli_sha1_add(&s, data, len);
    fli_sha1_end(&s, out);
}

void fli_sha1_text(const uint8_t sha1[FLI_SHA1_SIZE], char out[FLI_SHA1_HEX + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < FLI_SHA1_SIZE; i++) {
        out[2 * i] = digits[sha1[i] >> 4];
        out[2 * i + 1] = digits[sha1[i] & 15];
    }
    out[FLI_SHA1_HEX] = '\0';
}

bool fli_sha1_parse(struct fli_slice text, uint8_t out[FLI_SHA1_SIZE])
{
    if (text.len != FLI_SHA1_HEX) {
        return false;
    }
    for (size_t i = 0; i < FLI_SHA1_SIZE; i++) {
        int high = fli_hex_digit(text.data[2 * i]);
        int low = fli_hex_digit(text.data[2 * i + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}
