/* link_tls.h: what the connections of one client have in common: TLS, and who logs in. */
#ifndef FLI_LINK_LINK_TLS_H
#define FLI_LINK_LINK_TLS_H

#include "fencelock/client.h"
#include "tls/tls.h"

/* Zero: no TLS. */
struct fli_link_tls {
    struct fli_tls_context *context; /* NULL: no TLS */
    /* Files that have changed cannot be used; NULL: nobody wants to know. */
    void (*on_bad_files)(void *arg, const char *why);
    void *arg;
    char name[FL_ADDRESS_MAX + 1]; /* to be proved instead of the host; "" for the host */
    uint8_t *login;                /* the request that logs in; NULL: nobody does */
    size_t login_len;
    char refused[160];   /* what the last refusal of it said; it is not tried again for a while, */
    uint64_t refused_ms; /* since a server slows down who tries a wrong password often */
};
#define FLI_LOGIN_AGAIN_MS UINT64_C(5000)

/* options may be NULL: no TLS. 0; FL_EINVAL with a sentence in errmsg; FL_ENOMEM. */
int fli_link_tls_init(struct fli_link_tls *with, const struct fl_tls_options *options, char *errmsg,
                      size_t errmsg_size) FLI_MUST_USE;
/* After init. user NULL: nobody logs in. 0; FL_EINVAL, FL_ENOMEM: `with` is as after fini. */
int fli_link_login(struct fli_link_tls *with, const char *user, const char *password) FLI_MUST_USE;
void fli_link_tls_fini(struct fli_link_tls *with);

/* A session towards that host. Files that have changed are read first; when they are bad the old
 * ones stay. 0; FL_ENOMEM; FL_EINVAL. */
int fli_link_tls_session(struct fli_link_tls *with, const char *host,
                         struct fli_tls **ret) FLI_MUST_USE;

#endif
