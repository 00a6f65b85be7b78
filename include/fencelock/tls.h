/* tls.h: TLS options of a client; the same for locks, storage and Redlock.
 *
 * TLS 1.2 or 1.3. The server's certificate is always verified: it must lead to a trusted CA, be
 * valid now, and have the host's name, or the numeric address that the client connects to.
 * Files are in PEM. They are read when a handle is created. When they have changed, they are read
 * again, for later connections. */
#ifndef FENCELOCK_TLS_H
#define FENCELOCK_TLS_H

#include "fencelock/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The function that takes it copies it. */
struct fl_tls_options {
    const char *ca_file;     /* the trusted CAs; NULL: those that the system trusts */
    const char *cert_file;   /* the own certificate, for servers that ask for one, and those that
                                lead to its CA; NULL: none */
    const char *key_file;    /* its key, without a passphrase; goes with cert_file */
    const char *server_name; /* the name that the server's certificate must have instead of the
                                host's; NULL: the host */
};

#ifdef __cplusplus
}
#endif
#endif
