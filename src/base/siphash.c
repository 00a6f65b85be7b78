/* siphash.c: SipHash-1-3: one round a word, three at the end (Aumasson and Bernstein, "SipHash: a
 * fast short-input PRF", 2012, section 2, with c = 1 and d = 3). */
#include "base/bytes.h"
#include "base/map.h"

struct sip {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotl(uint64_t x, unsigned n)
{
    return x << n | x >> (64 - n);
}

static inline void sip_round(struct sip *s)
{
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = rotl(s->v1, 13) ^ s->v0;
    s->v3 = rotl(s->v3, 16) ^ s->v2;
    s->v0 = rotl(s->v0, 32);
    s->v2 += s->v1;
    s->v0 += s->v3;
    s->v1 = rotl(s->v1, 17) ^ s->v2;
    s->v3 = rotl(s->v3, 21) ^ s->v0;
    s->v2 = rotl(s->v2, 32);
}

uint64_t fli_siphash(const uint64_t seed[2], const void *data, size_t len)
{
    struct sip s = {
        .v0 = seed[0] ^ UINT64_C(0x736f6d6570736575),
        .v1 = seed[1] ^ UINT64_C(0x646f72616e646f6d),
        .v2 = seed[0] ^ UINT64_C(0x6c7967656e657261),
        .v3 = seed[1] ^ UINT64_C(0x7465646279746573),
    };
    const uint8_t *p = data;
    size_t left = len;
    for (; left >= 8; left -= 8, p += 8) {
        uint64_t word = fli_get_u64(p);
        s.v3 ^= word;
        sip_round(&s);
        s.v0 ^= word;
    }
    uint64_t last = (uint64_t)len << 56;
    for (size_t i = 0; i < left; i++) {
        last |= (uint64_t)p[i] << (8 * i);
    }
    s.v3 ^= last;
    sip_round(&s);
    s.v0 ^= last;
    s.v2 ^= 0xff;
    for (unsigned i = 0; i < 3; i++) {
        sip_round(&s);
    }
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
