/* tls.h: TLS as a layer of bytes: ciphertext in, plaintext out, and the other way round.
 *
 *      from the socket --> fli_tls_read() --> plaintext        a handshake's own messages come out
 *      to the socket <---- fli_tls_write() <-- plaintext       of either as ciphertext to be sent
 *
 * No sockets, no loop, no threads: the owner of the socket moves the bytes. It uses OpenSSL 3, with
 * a BIO of our own that reads from the caller's bytes and writes to the caller's buffer. So an idle
 * session keeps no buffers.
 *
 * TLS 1.2 and 1.3; no renegotiation, compression, early data or resumption: each connection proves
 * its identity anew. Certificates have dates, so this layer reads the wall clock.
 *
 * Equals, such as the nodes of a cluster, use one context for both ends of their connections
 * (`both`). Each end shows its certificate, or proves that it knows a secret, and demands the same
 * of the other end.
 *
 * A context belongs to one thread at a time, and so does each session. Sessions outlive their
 * context and its reloads. */
#ifndef FLI_TLS_TLS_H
#define FLI_TLS_TLS_H

#include <stdbool.h>

#include "base/buf.h"

#define FLI_TLS_FILE_MAX ((size_t)1 << 20) /* bytes of a certificate, key or CA file */
#define FLI_TLS_CHAIN_MAX 16u              /* certificates in a certificate file */
/* Bytes that a peer may send before the end of the handshake. */
#define FLI_TLS_HANDSHAKE_MAX ((size_t)128 << 10)
#define FLI_TLS_RECORD_MAX ((size_t)16 << 10) /* plaintext of one record */
#define FLI_TLS_NAME_MAX 256u

/* Which part of a client's certificate names its user. */
enum fli_tls_user { FLI_TLS_USER_OFF, FLI_TLS_USER_CN, FLI_TLS_USER_SAN };
#define FLI_TLS_ERRMSG_SIZE 256u
#define FLI_TLS_LINE_SIZE 384u
#define FLI_TLS_FILES_MS 2000u
#define FLI_TLS_SECRETS_MAX 4u /* in a file: a new one, and those being phased out */
#define FLI_TLS_SECRET_MIN 32u /* bytes of a secret, so that it cannot be guessed */
#define FLI_TLS_SECRET_MAX 1024u
#define FLI_TLS_IDENTITY_MAX 512u /* the name of a secret, and a psk_context */

/* The most plaintext from reading n bytes of ciphertext, with that of a record begun before. */
#define FLI_TLS_PLAIN_MAX(n) ((n) + FLI_TLS_RECORD_MAX)
/* The most ciphertext from writing n bytes of plaintext: 64 covers what a record adds. */
#define FLI_TLS_CIPHER_MAX(n) ((n) + 64 * ((n) / FLI_TLS_RECORD_MAX + 2))

/* Whether a server asks its clients for a certificate. A certificate that is shown is always
 * verified. */
enum fli_tls_auth { FLI_TLS_AUTH_NO, FLI_TLS_AUTH_OPTIONAL, FLI_TLS_AUTH_REQUIRED };

/* Strings are copied. NULL or "": not given. */
struct fli_tls_config {
    bool server;
    bool both; /* either end of a connection between equals; `server` and `auth` have
                                no meaning then, and both own_chain and a CA file are needed, or a
                                secret file and nothing else */
    const char
        *secret_file; /* with `both`: a secret a line, the first is used to call, each lets in */
    const char *cert_file;  /* PEM: own certificate first, then those that lead to its CA */
    const char *key_file;   /* PEM, without a passphrase */
    const char *ca_file;    /* PEM: who may vouch for the peer; not given: a client trusts those
                              that the system trusts */
    const char *protocols;  /* of "TLSv1.2 TLSv1.3"; not given: both */
    enum fli_tls_auth auth; /* a server's */
    bool own_chain;         /* the own certificate must chain up to ca_file too */
    const char *own_name;   /* with `both`: what own certificate must bear, as fli_tls_peer_bears
                               has it; not given: anything */
};

struct fli_tls_context;
struct fli_tls;

/* For programs, not for libraries: this thread keeps the buffers of the last few records for reuse
 * (pool.c). Must be called before anything else of OpenSSL; later it has no effect. */
void fli_tls_keep_buffers(void);

/* Facts about the files in use. */
struct fli_tls_facts {
    char subject[FLI_TLS_NAME_MAX]; /* of own certificate; "" when there is none */
    bool has_cert, has_ca;
    int64_t cert_days; /* until the first of the own certificates expires; 0: no such */
    int64_t ca_days;   /* until the last of the CAs ends */
    uint64_t reloads;  /* that were put into use */
    uint64_t failures; /* reloads that were refused */
};

/* Reads and checks the files: keys fit, each certificate is signed by the next, all are valid now.
 * 0; FL_EINVAL with a sentence in errmsg; FL_ENOMEM. Blocks on the disk. */
int fli_tls_context_create(const struct fli_tls_config *config, struct fli_tls_context **ret,
                           char *errmsg, size_t errmsg_size) FLI_MUST_USE;
void fli_tls_context_destroy(struct fli_tls_context *c); /* NULL is fine */

/* Reads and checks the files anew. Sessions made from now on use what was read; those that exist
 * stay as they are. On failure nothing changes but a count. Errors as at create. */
int fli_tls_context_reload(struct fli_tls_context *c, char *errmsg,
                           size_t errmsg_size) FLI_MUST_USE;

/* Whether a file has changed since it was last read, with success or without. */
bool fli_tls_context_changed(const struct fli_tls_context *c);

void fli_tls_context_facts(const struct fli_tls_context *c, struct fli_tls_facts *ret);

/* For a log: writes a line that says what the context now shows or demands, and begins with `what`.
 * Returns its level: 3, or 2, a warning, when a certificate ends soon. */
int fli_tls_context_tell(const struct fli_tls_context *c, const char *what,
                         char line[FLI_TLS_LINE_SIZE]);

/* Reloads when a file has changed, or always. Writes a line about the result, and returns its
 * level; 0: nothing was done. A program that runs for long calls it each FLI_TLS_FILES_MS. */
int fli_tls_context_renew(struct fli_tls_context *c, bool always, char line[FLI_TLS_LINE_SIZE]);

enum fli_tls_state {
    FLI_TLS_SHAKING, /* handshake: nothing may be written yet */
    FLI_TLS_OPEN,
    FLI_TLS_ENDED, /* the peer has announced that it sends no more */
    FLI_TLS_FAILED,
};

/* name: for a client, the name that the server's certificate must have, a host or a numeric
 * address; NULL in a server. A client without a name accepts any certificate that leads to the CA:
 * only for callers that check the peer's name afterwards. 0; FL_ENOMEM; FL_EINVAL (no such name is
 * possible). */
int fli_tls_create(struct fli_tls_context *c, const char *name, struct fli_tls **ret) FLI_MUST_USE;

/* For a context of `both`. calls: this end has opened the connection. Then `name` must be exactly
 * among the alternative names of the other's certificate; with a secret, `psk_context` says who
 * calls whom, and is sent in the identity of the pre-shared key: printable, at most 256 bytes.
 * Errors as above. */
int fli_tls_create_end(struct fli_tls_context *c, bool calls, const char *name,
                       const char *psk_context, struct fli_tls **ret) FLI_MUST_USE;
void fli_tls_destroy(struct fli_tls *t); /* NULL is fine */

enum fli_tls_state fli_tls_state(const struct fli_tls *t);

/* Takes all of the ciphertext (with len 0, a client begins its handshake) and appends the results:
 * plaintext to `plain`, and to `out` the bytes to be sent. On failure those are an alert with the
 * reason. 0; FL_EPROTO: the session has failed, see fli_tls_error(); FL_ELIMIT, FL_ENOMEM: failed
 * for want of room in a buffer. */
int fli_tls_read(struct fli_tls *t, const void *data, size_t len, struct fli_buf *plain,
                 struct fli_buf *out) FLI_MUST_USE;

/* Appends the ciphertext of data to `out`. The state is OPEN, or ENDED. Errors as above. */
int fli_tls_write(struct fli_tls *t, const void *data, size_t len,
                  struct fli_buf *out) FLI_MUST_USE;

/* Appends the alert that nothing more will be sent (close_notify), if that is possible. */
void fli_tls_end(struct fli_tls *t, struct fli_buf *out);

/* The reason of a failure: a sentence without a full stop; "" before. */
const char *fli_tls_error(const struct fli_tls *t);

/* Whether the peer has refused us (usually our certificate) before it sent anything: then it has
 * surely not read what was written. */
bool fli_tls_was_refused(const struct fli_tls *t);

/* The peer's verified certificate. False when it has shown none, or before the state is OPEN. */
bool fli_tls_peer_is_shown(const struct fli_tls *t);
bool fli_tls_peer_name(const struct fli_tls *t, char ret[FLI_TLS_NAME_MAX]); /* its CN */
/* The first of its alternative names that is a DNS name, an e-mail address or a URI. */
bool fli_tls_peer_alt_name(const struct fli_tls *t, char ret[FLI_TLS_NAME_MAX]);
bool fli_tls_peer_is(const struct fli_tls *t, const char *name); /* a host or address it bears */
bool fli_tls_peer_bears(const struct fli_tls *t,
                        const char *name); /* exactly; no wildcards, no CN */
/* Whether one of those names is `stem` followed by a number other than `own`. */
bool fli_tls_peer_bears_other(const struct fli_tls *t, const char *stem, uint64_t own);

/* The psk_context of the calling end; only an end that knows the secret can have made it. NULL
 * without a secret, at the end that called, and before the state is OPEN. */
const char *fli_tls_peer_psk_context(const struct fli_tls *t);

/* The protocol version, such as "TLSv1.3". */
const char *fli_tls_version(const struct fli_tls *t);

#endif
