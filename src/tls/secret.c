/* secret.c: see secret.h. */
#include "tls/secret.h"

#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>

#include "tls/session.h"

/* The keys are for SHA-256, so only suites with SHA-256 may be agreed on. */
#define SUITES "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"

static const unsigned char SUITE[2] = {0x13, 0x01}; /* TLS_AES_128_GCM_SHA256 */

static bool derive(const void *key, size_t key_len, const char *purpose, uint8_t out[32])
{
    unsigned len = 0;
    return HMAC(EVP_sha256(), key, (int)key_len, (const unsigned char *)purpose, strlen(purpose),
                out, &len) != NULL &&
           len == 32;
}

static int add_secret(const struct fli_tls_text *file, const char *line, size_t len,
                      struct fli_tls_secrets *s, char *errmsg, size_t errmsg_size)
{
    if (len < FLI_TLS_SECRET_MIN || len > FLI_TLS_SECRET_MAX) {
        (void)snprintf(errmsg, errmsg_size,
                       "%s '%.512s': a secret has %u to %u bytes on a line of its own, not %zu: "
                       "make one with 'openssl rand -hex 32'",
                       file->what, file->path, FLI_TLS_SECRET_MIN, FLI_TLS_SECRET_MAX, len);
        return FL_EINVAL;
    }
    if (memchr(line, '\0', len) != NULL) { /* a file that a crash filled with zeros */
        (void)snprintf(errmsg, errmsg_size,
                       "%s '%.512s': a secret has a zero byte: make one with 'openssl rand -hex "
                       "32'",
                       file->what, file->path);
        return FL_EINVAL;
    }
    if (s->n == FLI_TLS_SECRETS_MAX) {
        (void)snprintf(errmsg, errmsg_size,
                       "%s '%.512s': more than %u secrets: take the old ones out", file->what,
                       file->path, FLI_TLS_SECRETS_MAX);
        return FL_EINVAL;
    }
    uint8_t name[32];
    uint8_t *key = s->list[s->n].key;
    if (!derive(line, len, "fencelock cluster secret: key", key) ||
        !derive(key, SECRET_KEY_SIZE, "fencelock cluster secret: name", name)) {
        return FL_ENOMEM;
    }
    for (unsigned i = 0; i < 8; i++) {
        (void)snprintf(s->list[s->n].name + 2 * (size_t)i, 3, "%02x", name[i]);
    }
    s->n++;
    return 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

int fli_tls_parse_secrets(const struct fli_tls_text *file, struct fli_tls_secrets *ret,
                          char *errmsg, size_t errmsg_size)
{
    struct fli_tls_secrets s = {.n = 0};
    const char *p = file->data;
    const char *end = p + file->len;
    int rc = 0;
    while (rc == 0 && p < end) {
        const char *feed = memchr(p, '\n', (size_t)(end - p));
        const char *next = feed == NULL ? end : feed + 1;
        const char *stop = feed == NULL ? end : feed;
        while (p < stop && is_blank(*p)) {
            p++;
        }
        while (stop > p && is_blank(stop[-1])) {
            stop--;
        }
        if (stop > p && *p != '#') {
            rc = add_secret(file, p, (size_t)(stop - p), &s, errmsg, errmsg_size);
        }
        p = next;
    }
    if (rc == 0 && s.n == 0) {
        (void)snprintf(errmsg, errmsg_size,
                       "%s '%.512s' is empty: make a secret with 'openssl rand -hex 32'",
                       file->what, file->path);
        rc = FL_EINVAL;
    }
    if (rc == 0) {
        *ret = s;
    }
    OPENSSL_cleanse(&s, sizeof s);
    return rc;
}

/* ---- OpenSSL's callbacks --------------------------------------------------------------------- */

static SSL_SESSION *session_of(SSL *ssl, const uint8_t key[SECRET_KEY_SIZE])
{
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, SUITE);
    SSL_SESSION *s = cipher == NULL ? NULL : SSL_SESSION_new();
    if (s != NULL && SSL_SESSION_set1_master_key(s, key, SECRET_KEY_SIZE) == 1 &&
        SSL_SESSION_set_cipher(s, cipher) == 1 &&
        SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION) == 1) {
        return s;
    }
    SSL_SESSION_free(s);
    return NULL;
}

/* For the calling end. Returns 0 to fail the handshake. */
static int use_cb(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_len,
                  SSL_SESSION **ret)
{
    const struct fli_tls *t = SSL_get_app_data(ssl);
    const struct fli_tls_secrets *secrets = fli_tls_session_secrets(t);
    if (secrets == NULL || (md != NULL && EVP_MD_get_type(md) != NID_sha256)) {
        return 0;
    }
    *id = (const unsigned char *)fli_tls_session_identity(t);
    *id_len = strlen((const char *)*id);
    *ret = session_of(ssl, secrets->list[0].key);
    return *ret != NULL;
}

/* For the called end: an identity is the name of a secret, a blank, and a context. An unknown
 * secret leaves nothing to agree on, which ends the handshake. */
static int find_cb(SSL *ssl, const unsigned char *id, size_t id_len, SSL_SESSION **ret)
{
    struct fli_tls *t = SSL_get_app_data(ssl);
    const struct fli_tls_secrets *secrets = fli_tls_session_secrets(t);
    const size_t name_len = SECRET_NAME_SIZE - 1;
    *ret = NULL;
    if (secrets == NULL || id_len >= FLI_TLS_IDENTITY_MAX || id_len <= name_len + 1 ||
        id[name_len] != ' ') {
        return 1;
    }
    for (unsigned i = 0; i < secrets->n; i++) {
        if (memcmp(id, secrets->list[i].name, name_len) == 0 &&
            fli_tls_session_identified(t, id, id_len)) {
            *ret = session_of(ssl, secrets->list[i].key);
            return *ret != NULL;
        }
    }
    return 1;
}

bool fli_tls_demand_secret(SSL_CTX *ssl)
{
    SSL_CTX_set_psk_use_session_callback(ssl, use_cb);
    SSL_CTX_set_psk_find_session_callback(ssl, find_cb);
    return SSL_CTX_set_ciphersuites(ssl, SUITES) == 1;
}
