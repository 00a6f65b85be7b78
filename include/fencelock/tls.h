/* tls.h: how a client speaks TLS; the same for locks, storage and Redlock.
 *
 * TLS 1.2 or 1.3. The server's certificate is always verified: it must lead to a CA that is
 * trusted, be valid now, and bear the host (or the numeric address) that is connected to. Files are
 * in PEM. They are read when a handle is created, and read again when they have changed, for the
 * connections that are made from then on. */
#ifndef FENCELOCK_TLS_H
#define FENCELOCK_TLS_H

#include "fencelock/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Copied by whoever takes it. */
struct fl_tls_options {
    const char *ca_file;     /* the CAs that are trusted; NULL: those that the system trusts */
    const char *cert_file;   /* own certificate, for servers that ask for one, and those that lead
                                to its CA; NULL: none */
    const char *key_file;    /* its key, without a passphrase; goes with cert_file */
    const char *server_name; /* what the server's certificate must bear instead of the host that is
                                connected to; NULL: the host */
};

#ifdef __cplusplus
}
#endif
#endif
