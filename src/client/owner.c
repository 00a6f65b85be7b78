/* owner.c: see owner.h. */
#include "client/owner.h"

#include <string.h>

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

int fli_owner_and_options(struct fli_engine *e, struct fli_owner *ret,
                          const struct fl_client_options *options)
{
    static const struct fl_client_options defaults;
    const struct fl_client_options *o = options != NULL ? options : &defaults;
    bool owner_ok =
        o->owner.len == 0 || (o->owner.len >= FL_OWNER_MIN && o->owner.len <= FL_OWNER_MAX);
    if (o->timeout_ms > FL_TIMEOUT_MAX_MS || o->attempt_ms > FL_TIMEOUT_MAX_MS || !owner_ok) {
        return FL_EINVAL;
    }
    e->timeout_ms = o->timeout_ms != 0 ? o->timeout_ms : e->timeout_ms;
    e->attempt_ms = o->attempt_ms != 0 ? o->attempt_ms : e->attempt_ms;
    fli_owner_make(ret);
    if (o->owner.len != 0) {
        memcpy(ret->id, o->owner.data, o->owner.len);
        ret->len = o->owner.len;
    }
    char errmsg[FLI_TLS_ERRMSG_SIZE];
    int rc = fli_link_security_init(&e->tls, o->tls, errmsg, sizeof errmsg);
    return rc != 0 ? rc : fli_link_login(&e->tls, o->user, o->password);
}
