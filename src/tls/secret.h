/* secret.h: secrets that both ends of a connection know, instead of certificates: the pre-shared
 * keys of TLS 1.3. Private to src/tls. Reads no files.
 *
 * A secret is never sent. Each end proves that it knows the secret, by a MAC over all messages so
 * far, which contain the random numbers of both ends and the identity of the calling end. The keys
 * of later records also come from a fresh Diffie-Hellman exchange. So someone who learns the secret
 * later cannot read what was recorded before. */
#ifndef FLI_TLS_SECRET_H
#define FLI_TLS_SECRET_H

#include "tls/material.h"

#define SECRET_KEY_SIZE 32u
#define SECRET_NAME_SIZE 17u /* 16 hexadecimal digits */

/* The first one is used for calls; a caller may use any of them. */
struct fli_tls_secrets {
    unsigned n;
    struct {
        uint8_t key[SECRET_KEY_SIZE];
        char name[SECRET_NAME_SIZE]; /* identifies the secret, and does not help to guess it */
    } list[FLI_TLS_SECRETS_MAX];
};

/* One secret per line, without the blanks around it; empty lines and lines that begin with # are
 * ignored. 0; FL_EINVAL with a sentence in errmsg; FL_ENOMEM. */
int fli_tls_parse_secrets(const struct fli_tls_text *file, struct fli_tls_secrets *ret,
                          char *errmsg, size_t errmsg_size) FLI_MUST_USE;

/* Makes sessions of this context prove and demand a secret, and accept nothing else. */
bool fli_tls_demand_secret(SSL_CTX *ssl);

#endif
