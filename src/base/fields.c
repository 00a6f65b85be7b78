/* fields.c: see fields.h. */
#include "base/fields.h"

static uint8_t *put_field(uint8_t *p, struct fli_field f, const void *record)
{
    const uint8_t *at = (const uint8_t *)record + f.at;
    const struct fli_slice *s = (const void *)at;
    switch (f.kind) {
    case FLI_U8:
    case FLI_BOOL:
        *p = *at;
        return p + 1;
    case FLI_U32:
        fli_put_u32(p, *(const uint32_t *)(const void *)at);
        return p + 4;
    case FLI_U64:
        fli_put_u64(p, *(const uint64_t *)(const void *)at);
        return p + 8;
    case FLI_SHORT:
        FLI_ASSERT(s->len <= UINT8_MAX);
        *p++ = (uint8_t)s->len;
        break;
    default:
        FLI_ASSERT(f.kind == FLI_LONG && s->len <= UINT16_MAX);
        fli_put_u16(p, (uint16_t)s->len);
        p += 2;
        break;
    }
    if (s->len > 0) {
        memcpy(p, s->data, s->len);
    }
    return p + s->len;
}

static void read_field(struct fli_reader *r, struct fli_field f, void *record)
{
    uint8_t *at = (uint8_t *)record + f.at;
    switch (f.kind) {
    case FLI_U8:
        *at = fli_read_u8(r);
        break;
    case FLI_BOOL: {
        uint8_t v = fli_read_u8(r);
        *(bool *)(void *)at = v == 1;
        r->bad = r->bad || v > 1;
        break;
    }
    case FLI_U32:
        *(uint32_t *)(void *)at = fli_read_u32(r);
        break;
    case FLI_U64:
        *(uint64_t *)(void *)at = fli_read_u64(r);
        break;
    case FLI_SHORT:
        *(struct fli_slice *)(void *)at = fli_read_bytes(r, fli_read_u8(r));
        break;
    default:
        FLI_ASSERT(f.kind == FLI_LONG);
        *(struct fli_slice *)(void *)at = fli_read_bytes(r, fli_read_u16(r));
        break;
    }
}

uint8_t *fli_put_fields(uint8_t *p, const struct fli_field *list, size_t n, const void *record)
{
    for (size_t i = 0; i < n; i++) {
        p = put_field(p, list[i], record);
    }
    return p;
}

void fli_read_fields(struct fli_reader *r, const struct fli_field *list, size_t n, void *record)
{
    for (size_t i = 0; i < n; i++) {
        read_field(r, list[i], record);
    }
}
