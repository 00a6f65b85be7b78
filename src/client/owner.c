/* owner.c: see owner.h. */
#include "client/owner.h"

#include "base/clock.h"

#define OWNER_BYTES 16u

void fli_owner_make(struct fli_owner *ret)
{
    static const char hex[] = "0123456789abcdef";
    uint8_t bytes[OWNER_BYTES];
    fli_random(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        ret->id[2 * i] = hex[bytes[i] >> 4];
        ret->id[2 * i + 1] = hex[bytes[i] & 15];
    }
    ret->len = (size_t)2 * OWNER_BYTES;
}
