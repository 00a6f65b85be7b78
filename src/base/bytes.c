/* bytes.c: numbers in text and the bounded reader; see bytes.h. */
#include "base/bytes.h"

bool fli_parse_u64(const void *text, size_t len, uint64_t max, uint64_t *ret)
{
    const uint8_t *p = text;
    if (len == 0) {
        return false;
    }
    uint64_t v = 0;
    for (size_t i = 0; i < len; i++) {
        uint64_t digit = (uint64_t)p[i] - '0';
        if (digit > 9) { /* What stands below '0' wraps around to a large number. */
            return false;
        }
        if (digit > max || v > (max - digit) / 10) {
            return false;
        }
        v = v * 10 + digit;
    }
    *ret = v;
    return true;
}

void fli_reader_init(struct fli_reader *r, const void *data, size_t len)
{
    static const uint8_t nothing = 0;
    FLI_ASSERT(data != NULL || len == 0);
    r->p = len == 0 ? &nothing : data; /* Arithmetic on NULL is undefined, even with 0. */
    r->end = r->p + len;
    r->bad = false;
}

/* The next n bytes, or NULL after marking the reader bad. */
static const uint8_t *take(struct fli_reader *r, size_t n)
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

uint8_t fli_read_u8(struct fli_reader *r)
{
    const uint8_t *p = take(r, 1);
    return p == NULL ? 0 : *p;
}

uint16_t fli_read_u16(struct fli_reader *r)
{
    const uint8_t *p = take(r, 2);
    return p == NULL ? 0 : fli_get_u16(p);
}

uint32_t fli_read_u32(struct fli_reader *r)
{
    const uint8_t *p = take(r, 4);
    return p == NULL ? 0 : fli_get_u32(p);
}

uint64_t fli_read_u64(struct fli_reader *r)
{
    const uint8_t *p = take(r, 8);
    return p == NULL ? 0 : fli_get_u64(p);
}

struct fli_slice fli_read_bytes(struct fli_reader *r, size_t len)
{
    const uint8_t *p = take(r, len);
    if (p == NULL) {
        return (struct fli_slice){NULL, 0};
    }
    return (struct fli_slice){p, len};
}
