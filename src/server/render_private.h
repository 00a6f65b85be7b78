/* render_private.h: shared by render*.c; nobody else includes it. Pairs of a map. */
#ifndef SERVER_RENDER_PRIVATE_H
#define SERVER_RENDER_PRIVATE_H

#include "server/render.h"
#include "wire/resp.h"

static inline int key(struct fli_buf *b, const char *name)
{
    return fli_resp_text(b, name);
}

static inline int number(struct fli_buf *b, const char *name, uint64_t v)
{
    int rc = key(b, name);
    /* RESP integers are signed. No number of ours comes near the limit, unless a peer made it
     * up. */
    return rc != 0 ? rc : fli_resp_u64(b, v <= INT64_MAX ? v : INT64_MAX);
}

static inline int text(struct fli_buf *b, const char *name, const char *v)
{
    int rc = key(b, name);
    return rc != 0 ? rc : fli_resp_text(b, v);
}

static inline int bytes(struct fli_buf *b, const char *name, struct fli_slice v)
{
    int rc = key(b, name);
    return rc != 0 ? rc : fli_resp_bulk(b, v.data, v.len);
}

static inline int null(struct fli_buf *b, int proto, const char *name)
{
    int rc = key(b, name);
    return rc != 0 ? rc : fli_resp_null(b, proto);
}

static inline int truth(struct fli_buf *b, int proto, const char *name, bool v)
{
    int rc = key(b, name);
    return rc != 0 ? rc : fli_resp_bool(b, proto, v);
}

static inline int render_no_leader(struct fli_buf *b)
{
    return fli_resp_error(b, "NOLEADER",
                          "no node leads the cluster at the moment, or it is still being formed; "
                          "nothing was done, try again");
}

#endif
