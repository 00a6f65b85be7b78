/* address.h: "HOST:PORT" and "[V6]:PORT" as people write them. Pure. */
#ifndef FLI_BASE_ADDRESS_H
#define FLI_BASE_ADDRESS_H

#include "base/base.h"

struct fli_address {
    struct fli_slice host; /* without brackets; points into the text */
    uint16_t port;         /* 0 asks for any free one: the caller decides whether it may */
};

/* NULL; or why the text is no address, such as "has no port". A host is not empty and has neither
 * blanks, brackets nor zero bytes. An address of version 6 needs its brackets, since its own colons
 * would make the port ambiguous. */
const char *fli_address_split(struct fli_slice text, struct fli_address *ret) FLI_MUST_USE;

/* Whether a host means "every address of this machine" (0.0.0.0, ::, *). */
bool fli_host_is_any(const char *host);

#endif
