/* bytes.h: little-endian loads and stores at any alignment, CRC-32C, and parsing of decimal numbers
 * without surprises. */
#ifndef FLI_BYTES_H
#define FLI_BYTES_H

#include <stdbool.h>
#include <string.h>

#include "base/base.h"

/* Stores one after the other, which compilers join to one; they do not join those of a loop. */
static inline void fli_put_u16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}
static inline void fli_put_u32(uint8_t *p, uint32_t v)
{
    fli_put_u16(p, (uint16_t)v);
    fli_put_u16(p + 2, (uint16_t)(v >> 16));
}
static inline void fli_put_u64(uint8_t *p, uint64_t v)
{
    fli_put_u32(p, (uint32_t)v);
    fli_put_u32(p + 4, (uint32_t)(v >> 32));
}
static inline uint16_t fli_get_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | (uint16_t)(p[1] << 8));
}
static inline uint32_t fli_get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint64_t fli_get_u64(const uint8_t *p)
{
    return (uint64_t)fli_get_u32(p) | (uint64_t)fli_get_u32(p + 4) << 32;
}

/* CRC-32C (Castagnoli). Start with 0; feeding in pieces gives the same result. Uses SSE4.2 where
 * the CPU has it. */
uint32_t fli_crc32c(uint32_t crc, const void *data, size_t len);

/* Whole string is a decimal number, digits only, no sign, no leading blanks, at most `max`. */
bool fli_parse_u64(const void *text, size_t len, uint64_t max, uint64_t *ret);

/* The value of a hex digit in either case; -1: it is none. */
static inline int fli_hex_digit(uint8_t c)
{
    uint8_t letter = c | 0x20;
    return c >= '0' && c <= '9' ? c - '0' : letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

/* Decodes the %XX in len bytes; `to` has room for as many. False: a % without two hex digits. */
bool fli_percent_decode(const char *from, size_t len, char *to, size_t *ret_len);

/* Parses "1500", "1500ms", "5s", "2m", "1h". False for anything else, and for what does not fit. */
bool fli_parse_duration(const char *text, uint64_t *ret_ms);

/* Where the comment of a line begins, or `end`: at a # that stands first or behind a blank. */
const char *fli_comment_of(const char *start, const char *end);

static inline int fli_bytes_cmp(const void *a, size_t alen, const void *b, size_t blen)
{
    size_t n = alen < blen ? alen : blen;
    int c = n == 0 ? 0 : memcmp(a, b, n);
    if (c != 0) {
        return c;
    }
    return alen < blen ? -1 : alen > blen;
}

/* Bounded reader over untrusted bytes: the first short read sets `bad` and everything after it
 * yields zeros, so a decoder may read a whole record and test once. */
struct fli_reader {
    const uint8_t *p;
    const uint8_t *end;
    bool bad;
};
static inline void fli_reader_init(struct fli_reader *r, const void *data, size_t len)
{
    FLI_ASSERT(data != NULL || len == 0);
    r->p =
        len == 0 ? (const uint8_t *)"" : data; /* Arithmetic on NULL is undefined, even with 0. */
    r->end = r->p + len;
    r->bad = false;
}
static inline size_t fli_reader_left(const struct fli_reader *r)
{
    return (size_t)(r->end - r->p);
}

/* The next n bytes, or NULL after marking the reader bad. */
static inline const uint8_t *fli_read_raw(struct fli_reader *r, size_t n)
{
    if (FLI_UNLIKELY(n > fli_reader_left(r))) {
        r->bad = true;
        r->p = r->end; /* Later reads are short as well, except those of no bytes. */
        return NULL;
    }
    const uint8_t *p = r->p;
    r->p += n;
    return p;
}
static inline uint8_t fli_read_u8(struct fli_reader *r)
{
    const uint8_t *p = fli_read_raw(r, 1);
    return p == NULL ? 0 : *p;
}
static inline uint16_t fli_read_u16(struct fli_reader *r)
{
    const uint8_t *p = fli_read_raw(r, 2);
    return p == NULL ? 0 : fli_get_u16(p);
}
static inline uint32_t fli_read_u32(struct fli_reader *r)
{
    const uint8_t *p = fli_read_raw(r, 4);
    return p == NULL ? 0 : fli_get_u32(p);
}
static inline uint64_t fli_read_u64(struct fli_reader *r)
{
    const uint8_t *p = fli_read_raw(r, 8);
    return p == NULL ? 0 : fli_get_u64(p);
}
static inline struct fli_slice fli_read_bytes(struct fli_reader *r, size_t len)
{
    const uint8_t *p = fli_read_raw(r, len);
    return (struct fli_slice){p, p == NULL ? 0 : len};
}

#endif
