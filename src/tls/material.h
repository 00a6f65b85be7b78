/* material.h: parses certificates, keys and CAs in PEM, and checks whether they can be used.
 * Private to src/tls. Reads no files. */
#ifndef FLI_TLS_MATERIAL_H
#define FLI_TLS_MATERIAL_H

#include <openssl/ssl.h>

#include "tls/tls.h"

#define FLI_TLS_EXACTLY (X509_CHECK_FLAG_NO_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT)

struct fli_tls_text {
    const char *what; /* "certificate file", for messages */
    const char *path;
    const void *data;
    size_t len;
};

/* The own certificate and those after it in its file. */
struct fli_tls_own {
    STACK_OF(X509) * chain; /* at least one */
    EVP_PKEY *key;
    int64_t ends_s; /* when the first of them ends, in seconds from now */
};

/* 0; FL_EINVAL with a sentence in errmsg. */
int fli_tls_parse_own(const struct fli_tls_text *cert, const struct fli_tls_text *key,
                      struct fli_tls_own *ret, char *errmsg, size_t errmsg_size) FLI_MUST_USE;
void fli_tls_own_fini(struct fli_tls_own *own);

/* The same for CAs. Expired ones are useless but do no harm, unless all are expired. */
int fli_tls_parse_ca(const struct fli_tls_text *ca, X509_STORE **ret, int64_t *ret_ends_s,
                     char *errmsg, size_t errmsg_size) FLI_MUST_USE;

/* Checks whether the own certificate chains up to one of the CAs. must: that the issuer is none of
 * them is an error too; otherwise only a chain that is broken is one. */
int fli_tls_check_issuer(const struct fli_tls_own *own, X509_STORE *ca, bool server, bool must,
                         const char *path, char *errmsg, size_t errmsg_size) FLI_MUST_USE;

/* Checks whether the own certificate has exactly this name: no wildcard, and not as its CN. */
int fli_tls_check_name(const struct fli_tls_own *own, const char *name, const char *path,
                       char *errmsg, size_t errmsg_size) FLI_MUST_USE;
bool fli_tls_bears(X509 *x, const char *name);
/* See fli_tls_peer_bears_other. */
bool fli_tls_bears_other(X509 *x, const char *stem, uint64_t own);

/* Writes the first of OpenSSL's errors in this thread as text, and clears them all. */
void fli_tls_reason(char *text, size_t size);

#endif
