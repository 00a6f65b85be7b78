/* context.h: what a session needs of its context. Private to src/tls. */
#ifndef FLI_TLS_CONTEXT_H
#define FLI_TLS_CONTEXT_H

#include <openssl/ssl.h>

#include "tls/tls.h"

SSL *fli_tls_context_ssl(const struct fli_tls_context *c); /* NULL: out of memory */
bool fli_tls_context_is_server(const struct fli_tls_context *c);
/* Whether the context is one of the peer port, for clients and servers. */
bool fli_tls_context_is_both(const struct fli_tls_context *c);
const struct fli_tls_secrets *
fli_tls_context_secrets(const struct fli_tls_context *c); /* or NULL */

/* OpenSSL's callback for alerts; in session.c. */
void fli_tls_on_alert(const SSL *ssl, int where, int value);

#endif
