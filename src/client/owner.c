/* owner.c: see owner.h. */
#include "client/owner.h"

#include "base/clock.h"

#define OWNER_BYTES 16u
#define HEX_BYTES_MAX 32u

void fli_random_hex(char *to, size_t bytes)
{
    static const char hex[] = "0123456789abcdef";
    uint8_t random[HEX_BYTES_MAX];
    FLI_ASSERT(bytes <= sizeof random);
    fli_random(random, bytes);
    for (size_t i = 0; i < bytes; i++) {
        to[2 * i] = hex[random[i] >> 4];
        to[2 * i + 1] = hex[random[i] & 15];
    }
}

void fli_owner_make(struct fli_owner *ret)
{
    fli_random_hex(ret->id, OWNER_BYTES);
    ret->len = (size_t)2 * OWNER_BYTES;
}
