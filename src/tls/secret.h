/* secret.h: secrets that both ends of a connection know, in place of certificates: the pre-shared
 * keys of TLS 1.3. Private to src/tls. No files in here.
 *
 * A secret is never sent. Each end proves that it knows it by a MAC over all that was said so far,
 * with the random numbers of both ends and the claim of the one that called in it; the records that
 * follow are protected by keys from a fresh Diffie-Hellman exchange as well, so who learns the
 * secret later cannot read what was recorded before. */
#ifndef FLI_TLS_SECRET_H
#define FLI_TLS_SECRET_H

#include "tls/material.h"

#define SECRET_KEY_SIZE 32u
#define SECRET_NAME_SIZE 17u /* 16 hexadecimal digits */

/* The first one is used to call; each of them lets in. */
struct fli_tls_secrets {
    unsigned n;
    struct {
        uint8_t key[SECRET_KEY_SIZE];
        char name[SECRET_NAME_SIZE]; /* says which one it is, and nothing that helps to guess it */
    } list[FLI_TLS_SECRETS_MAX];
};

/* One secret a line, blanks around it left out, empty lines and those that begin with # too. 0;
 * FL_EINVAL with a sentence in errmsg; FL_ENOMEM. */
int fli_tls_parse_secrets(const struct fli_tls_text *file, struct fli_tls_secrets *ret,
                          char *errmsg, size_t errmsg_size) FLI_MUST_USE;

/* Makes sessions of this context prove and demand a secret, and nothing else. */
bool fli_tls_demand_secret(SSL_CTX *ssl);

#endif
