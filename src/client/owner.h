/* owner.h: the id of a client as an owner of locks. */
#ifndef FLI_CLIENT_OWNER_H
#define FLI_CLIENT_OWNER_H

#include "base/base.h"
#include "fencelock/client.h"

struct fli_owner {
    char id[FL_OWNER_MAX];
    size_t len;
};

static inline struct fl_bytes fli_owner_bytes(const struct fli_owner *o)
{
    return (struct fl_bytes){o->id, o->len};
}

/* So many random bytes, as hex digits, without a zero byte. */
void fli_random_hex(char *to, size_t bytes);

/* Makes an id of 128 random bits, as hex digits. */
void fli_owner_make(struct fli_owner *ret);

#endif
