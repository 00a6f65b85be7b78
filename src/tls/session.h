/* session.h: what the rest of src/tls needs of a session. Private to it. */
#ifndef FLI_TLS_SESSION_H
#define FLI_TLS_SESSION_H

#include "tls/tls.h"

struct fli_tls_secrets;

/* NULL when the session uses certificates, or its handshake is over. */
const struct fli_tls_secrets *fli_tls_session_secrets(const struct fli_tls *t);
const char *fli_tls_session_identity(const struct fli_tls *t);

/* Records the identity of the calling end, which is trusted once the handshake is over. False: out
 * of memory, or it is no text. */
bool fli_tls_session_identified(struct fli_tls *t, const unsigned char *id, size_t len);

#endif
