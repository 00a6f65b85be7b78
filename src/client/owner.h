/* owner.h: the id of a client as an owner of locks, and the other options it is created with. */
#ifndef FLI_CLIENT_OWNER_H
#define FLI_CLIENT_OWNER_H

#include "client/engine.h"

struct fli_owner {
    char id[FL_OWNER_MAX];
    size_t len;
};

static inline struct fl_bytes fli_owner_bytes(const struct fli_owner *o)
{
    return (struct fl_bytes){o->id, o->len};
}

/* Makes an id of 128 random bits, as hex digits. */
void fli_owner_make(struct fli_owner *ret);

/* Copies the options to the engine and the owner's id to *ret; it is random when the options have
 * none. options may be NULL. 0; FL_EINVAL, FL_ENOMEM. */
int fli_owner_and_options(struct fli_engine *e, struct fli_owner *ret,
                          const struct fl_client_options *options) FLI_MUST_USE;

#endif
