/* link_security.h: what the connections of one client have in common: TLS, and the user to log in
 * as. */
#ifndef FLI_LINK_LINK_SECURITY_H
#define FLI_LINK_LINK_SECURITY_H

#include "fencelock/client.h"
#include "tls/tls.h"

/* Zero: no TLS, and no login. */
struct fli_link_security {
    struct fli_tls_context *context; /* NULL: no TLS */
    char name[FL_ADDRESS_MAX + 1];   /* that the certificate must have; "": the host's */
    uint8_t *login;                  /* the request that logs in; NULL: none */
    size_t login_len;
    /* The text of the last refusal of the login, and when it came. The login is not tried again for
     * FLI_LOGIN_AGAIN_MS, since servers delay clients that try wrong passwords often. */
    char refused[160];
    uint64_t refused_ms;
};
#define FLI_LOGIN_AGAIN_MS UINT64_C(5000)

/* options NULL: no TLS; user NULL: no login. 0; FL_EINVAL, FL_ENOMEM, with a sentence in errmsg. */
int fli_link_security_init(struct fli_link_security *security, const struct fl_tls_options *options,
                           const char *user, const char *password, char *errmsg,
                           size_t errmsg_size) FLI_MUST_USE;
void fli_link_security_fini(struct fli_link_security *security);

/* Makes a session with that host. Files that have changed are read first; when they are bad the old
 * ones stay. 0; FL_ENOMEM; FL_EINVAL. */
int fli_link_security_session(struct fli_link_security *security, const char *host,
                              struct fli_tls **ret) FLI_MUST_USE;

#endif
