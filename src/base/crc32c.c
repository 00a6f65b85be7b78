/* crc32c.c: CRC-32C, reflected polynomial 0x82f63b78 (Castagnoli 1993), as in iSCSI (RFC 3720).
 *
 * On x86-64 with SSE4.2 the CPU's own instruction, eight bytes at a time; elsewhere eight tables of
 * 256 words ("slicing by 8", Kounavis and Berry 2005). A table is linear: its entry for a byte is
 * the exclusive or of its entries for the byte's bits. Eight constants therefore give a whole table
 * at compile time: nothing is set up at run time, and there is nothing for threads to race on. */
#include "base/bytes.h"

#include "base/crc32c.h"

#define BIT(i, b, c) (((i) >> (b)&1u) != 0 ? (c) : 0u)
#define ENTRY(i, c0, c1, c2, c3, c4, c5, c6, c7)                                                   \
    (BIT(i, 0, c0) ^ BIT(i, 1, c1) ^ BIT(i, 2, c2) ^ BIT(i, 3, c3) ^ BIT(i, 4, c4) ^               \
     BIT(i, 5, c5) ^ BIT(i, 6, c6) ^ BIT(i, 7, c7))
#define FOUR(i, ...)                                                                               \
    ENTRY(i, __VA_ARGS__), ENTRY((i) + 1u, __VA_ARGS__), ENTRY((i) + 2u, __VA_ARGS__),             \
        ENTRY((i) + 3u, __VA_ARGS__)
#define SIXTEEN(i, ...)                                                                            \
    FOUR(i, __VA_ARGS__), FOUR((i) + 4u, __VA_ARGS__), FOUR((i) + 8u, __VA_ARGS__),                \
        FOUR((i) + 12u, __VA_ARGS__)
#define SIXTY_FOUR(i, ...)                                                                         \
    SIXTEEN(i, __VA_ARGS__), SIXTEEN((i) + 16u, __VA_ARGS__), SIXTEEN((i) + 32u, __VA_ARGS__),     \
        SIXTEEN((i) + 48u, __VA_ARGS__)
#define TABLE(...)                                                                                 \
    {                                                                                              \
        SIXTY_FOUR(0u, __VA_ARGS__), SIXTY_FOUR(64u, __VA_ARGS__), SIXTY_FOUR(128u, __VA_ARGS__),  \
            SIXTY_FOUR(192u, __VA_ARGS__)                                                          \
    }

/* Row s: the effect of a byte that s more bytes follow. Column b: of its bit b. */
static const uint32_t tables[8][256] = {
    TABLE(0xf26b8303u, 0xe13b70f7u, 0xc79a971fu, 0x8ad958cfu, 0x105ec76fu, 0x20bd8edeu, 0x417b1dbcu,
          0x82f63b78u),
    TABLE(0x13a29877u, 0x274530eeu, 0x4e8a61dcu, 0x9d14c3b8u, 0x3fc5f181u, 0x7f8be302u, 0xff17c604u,
          0xfbc3faf9u),
    TABLE(0xa541927eu, 0x4f6f520du, 0x9edea41au, 0x38513ec5u, 0x70a27d8au, 0xe144fb14u, 0xc76580d9u,
          0x8b277743u),
    TABLE(0xdd45aab8u, 0xbf672381u, 0x7b2231f3u, 0xf64463e6u, 0xe964b13du, 0xd725148bu, 0xaba65fe7u,
          0x52a0c93fu),
    TABLE(0x38116facu, 0x7022df58u, 0xe045beb0u, 0xc5670b91u, 0x8f2261d3u, 0x1ba8b557u, 0x37516aaeu,
          0x6ea2d55cu),
    TABLE(0xef306b19u, 0xdb8ca0c3u, 0xb2f53777u, 0x6006181fu, 0xc00c303eu, 0x85f4168du, 0x0e045bebu,
          0x1c08b7d6u),
    TABLE(0x68032cc8u, 0xd0065990u, 0xa5e0c5d1u, 0x4e2dfd53u, 0x9c5bfaa6u, 0x3d5b83bdu, 0x7ab7077au,
          0xf56e0ef4u),
    TABLE(0x493c7d27u, 0x9278fa4eu, 0x211d826du, 0x423b04dau, 0x847609b4u, 0x0d006599u, 0x1a00cb32u,
          0x34019664u),
};

uint32_t fli_crc32c_table(uint32_t crc, const void *data, size_t len)
{
    const uint8_t *p = data;
    uint32_t c = ~crc;
    for (; len >= 8; len -= 8, p += 8) {
        uint32_t lo = fli_get_u32(p) ^ c;
        uint32_t hi = fli_get_u32(p + 4);
        c = tables[7][lo & 255] ^ tables[6][lo >> 8 & 255] ^ tables[5][lo >> 16 & 255] ^
            tables[4][lo >> 24] ^ tables[3][hi & 255] ^ tables[2][hi >> 8 & 255] ^
            tables[1][hi >> 16 & 255] ^ tables[0][hi >> 24];
    }
    for (; len > 0; len--, p++) {
        c = c >> 8 ^ tables[0][(c ^ *p) & 255];
    }
    return ~c;
}

#if defined(__x86_64__)

__attribute__((target("sse4.2"))) static uint32_t crc_sse42(uint32_t crc, const uint8_t *p,
                                                            size_t len)
{
    uint64_t c = (uint32_t)~crc;
    for (; len >= 8; len -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        c = __builtin_ia32_crc32di(c, word);
    }
    uint32_t c32 = (uint32_t)c;
    for (; len > 0; len--, p++) {
        c32 = __builtin_ia32_crc32qi(c32, *p);
    }
    return ~c32;
}

bool fli_crc32c_has_hardware(void)
{
    return __builtin_cpu_supports("sse4.2") != 0;
}

uint32_t fli_crc32c(uint32_t crc, const void *data, size_t len)
{
    /* The answer sits in a word that the C runtime fills before main; asking costs a load. */
    if (FLI_LIKELY(fli_crc32c_has_hardware())) {
        return crc_sse42(crc, data, len);
    }
    return fli_crc32c_table(crc, data, len);
}

#else

bool fli_crc32c_has_hardware(void)
{
    return false;
}

uint32_t fli_crc32c(uint32_t crc, const void *data, size_t len)
{
    return fli_crc32c_table(crc, data, len);
}

#endif
