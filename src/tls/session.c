/* session.c: one connection's handshake and records. */
#include <arpa/inet.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tls/context.h"
#include "tls/secret.h"
#include "tls/session.h"

struct fli_tls {
    SSL *ssl;
    enum fli_tls_state state;
    bool server;
    bool heard;           /* plaintext has come */
    bool failed_io;       /* `out` had no room */
    int alert;            /* fatal one from the peer, or -1 */
    size_t handshake_len; /* bytes taken before the end of the handshake */
    const uint8_t *in;    /* valid during a call: the rest of the ciphertext */
    size_t in_len;
    struct fli_buf *out;             /* valid during a call */
    char *error;                     /* NULL while there is none */
    struct fli_tls_secrets *secrets; /* until the handshake is over; NULL: certificates */
    char *identity; /* what this end, or the one that called, says with a secret; NULL: nothing */
};

/* ---- the BIO --------------------------------------------------------------------------------- */

static int bio_read(BIO *b, char *to, int size)
{
    struct fli_tls *t = BIO_get_data(b);
    BIO_clear_retry_flags(b);
    if (t->in_len == 0 || size <= 0) {
        BIO_set_retry_read(b);
        return -1;
    }
    size_t n = t->in_len < (size_t)size ? t->in_len : (size_t)size;
    memcpy(to, t->in, n);
    t->in += n;
    t->in_len -= n;
    return (int)n;
}

static int bio_write(BIO *b, const char *from, int size)
{
    struct fli_tls *t = BIO_get_data(b);
    BIO_clear_retry_flags(b);
    if (size <= 0) {
        return 0;
    }
    if (t->out == NULL || fli_buf_append(t->out, from, (size_t)size) != 0) {
        t->failed_io = true;
        return -1;
    }
    return size;
}

static long bio_ctrl(BIO *b, int command, long number, void *pointer)
{
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

static BIO_METHOD *method;
static pthread_once_t method_once = PTHREAD_ONCE_INIT;

static void make_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "fencelock");
    if (m != NULL && BIO_meth_set_read(m, bio_read) == 1 && BIO_meth_set_write(m, bio_write) == 1 &&
        BIO_meth_set_ctrl(m, bio_ctrl) == 1) {
        method = m;
    } else {
        BIO_meth_free(m);
    }
}

static bool attach_bio(struct fli_tls *t)
{
    (void)pthread_once(&method_once, make_method);
    BIO *b = method == NULL ? NULL : BIO_new(method);
    if (b == NULL) {
        return false;
    }
    BIO_set_data(b, t);
    BIO_set_init(b, 1);
    SSL_set_bio(t->ssl, b, b); /* which owns it now */
    return true;
}

/* ---- start and end --------------------------------------------------------------------------- */

static bool is_numeric(const char *name)
{
    uint8_t bytes[16];
    return inet_pton(AF_INET, name, bytes) == 1 || inet_pton(AF_INET6, name, bytes) == 1;
}

/* Sets the name that the peer's certificate must have. */
static bool expect(SSL *ssl, const char *name)
{
    X509_VERIFY_PARAM *p = SSL_get0_param(ssl);
    if (is_numeric(name)) {
        return X509_VERIFY_PARAM_set1_ip_asc(p, name) == 1;
    }
    X509_VERIFY_PARAM_set_hostflags(p, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return X509_VERIFY_PARAM_set1_host(p, name, 0) == 1 &&
           SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                    (void *)(uintptr_t)name) == 1;
}

/* Between equals a certificate stands for one of them. So a wildcard does not count, and neither
 * does a CN, which a CA may give to anybody. */
static bool expect_exactly(SSL *ssl, const char *name)
{
    X509_VERIFY_PARAM *p = SSL_get0_param(ssl);
    X509_VERIFY_PARAM_set_hostflags(p, FLI_TLS_EXACTLY);
    return X509_VERIFY_PARAM_set1_host(p, name, 0) == 1;
}

static int create(struct fli_tls_context *c, bool server, struct fli_tls **ret)
{
    struct fli_tls *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return FL_ENOMEM;
    }
    t->alert = -1;
    t->server = server;
    t->ssl = fli_tls_context_ssl(c);
    if (t->ssl == NULL || SSL_set_app_data(t->ssl, t) != 1 || !attach_bio(t)) {
        ERR_clear_error();
        fli_tls_destroy(t);
        return FL_ENOMEM;
    }
    if (server) {
        SSL_set_accept_state(t->ssl);
    } else {
        SSL_set_connect_state(t->ssl);
    }
    *ret = t;
    return 0;
}

int fli_tls_create(struct fli_tls_context *c, const char *name, struct fli_tls **ret)
{
    struct fli_tls *t = NULL;
    FLI_ASSERT(!fli_tls_context_is_both(c));
    FLI_ASSERT(!fli_tls_context_is_server(c) || name == NULL);
    int rc = create(c, fli_tls_context_is_server(c), &t);
    if (rc == 0 && name != NULL && !expect(t->ssl, name)) {
        ERR_clear_error();
        fli_tls_destroy(t);
        return FL_EINVAL;
    }
    if (rc == 0) {
        *ret = t;
    }
    return rc;
}

/* Makes a copy: the context may read other secrets before the handshake is over. */
static int take_secrets(struct fli_tls *t, const struct fli_tls_secrets *secrets,
                        const char *psk_context)
{
    t->secrets = malloc(sizeof *t->secrets);
    if (t->secrets == NULL) {
        return FL_ENOMEM;
    }
    *t->secrets = *secrets;
    if (psk_context == NULL) {
        return 0;
    }
    size_t size = SECRET_NAME_SIZE + strlen(psk_context) + 1;
    t->identity = size > FLI_TLS_IDENTITY_MAX ? NULL : malloc(size);
    if (t->identity == NULL) {
        return size > FLI_TLS_IDENTITY_MAX ? FL_EINVAL : FL_ENOMEM;
    }
    (void)snprintf(t->identity, size, "%s %s", secrets->list[0].name, psk_context);
    return 0;
}

int fli_tls_create_end(struct fli_tls_context *c, bool calls, const char *name,
                       const char *psk_context, struct fli_tls **ret)
{
    struct fli_tls *t = NULL;
    const struct fli_tls_secrets *secrets = fli_tls_context_secrets(c);
    FLI_ASSERT(fli_tls_context_is_both(c));
    FLI_ASSERT(calls == (name != NULL) && calls == (psk_context != NULL));
    int rc = create(c, !calls, &t);
    if (rc != 0) {
        return rc;
    }
    if (secrets != NULL) {
        rc = take_secrets(t, secrets, psk_context);
        /* The called end shows no certificate and asks for none; the caller would refuse one. */
        SSL_set_verify(t->ssl, calls ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, NULL);
    } else if (calls && !expect_exactly(t->ssl, name)) {
        rc = FL_EINVAL;
    }
    if (rc != 0) {
        ERR_clear_error();
        fli_tls_destroy(t);
        return rc;
    }
    *ret = t;
    return 0;
}

static void forget_secrets(struct fli_tls *t)
{
    if (t->secrets != NULL) {
        OPENSSL_cleanse(t->secrets, sizeof *t->secrets);
        free(t->secrets);
        t->secrets = NULL;
    }
}

void fli_tls_destroy(struct fli_tls *t)
{
    if (t != NULL) {
        SSL_free(t->ssl);
        forget_secrets(t);
        free(t->identity);
        free(t->error);
        free(t);
    }
}

/* ---- failing --------------------------------------------------------------------------------- */

void fli_tls_on_alert(const SSL *ssl, int where, int value)
{
    struct fli_tls *t = SSL_get_app_data(ssl);
    if ((where & SSL_CB_READ_ALERT) == SSL_CB_READ_ALERT && value >> 8 == SSL3_AL_FATAL) {
        t->alert = value & 0xff;
    }
}

static int fail(struct fli_tls *t, int code, const char *text)
{
    t->state = FLI_TLS_FAILED;
    if (t->error == NULL) {
        t->error = strdup(text); /* without memory there is no text */
    }
    ERR_clear_error();
    return code;
}

/* OpenSSL 3.0 has no text for the newest alert. */
static const char *alert_text(int alert)
{
    return alert == SSL_AD_CERTIFICATE_REQUIRED ? "certificate required"
                                                : SSL_alert_desc_string_long(alert);
}

static int fail_as_openssl_says(struct fli_tls *t)
{
    char text[FLI_TLS_ERRMSG_SIZE];
    char reason[128];
    long verify = SSL_get_verify_result(t->ssl);
    unsigned long error = ERR_peek_error();
    bool unverified = ERR_GET_REASON(error) == SSL_R_CERTIFICATE_VERIFY_FAILED;
    if (t->failed_io) {
        return fail(t, FL_ELIMIT, "no room for what has to be sent");
    }
    if (t->alert >= 0) {
        (void)snprintf(text, sizeof text, "the other side refuses: %s", alert_text(t->alert));
        return fail(t, FL_EPROTO, text);
    }
    if (unverified && verify != X509_V_OK) {
        (void)snprintf(text, sizeof text, "its certificate is not accepted: %s",
                       X509_verify_cert_error_string(verify));
        return fail(t, FL_EPROTO, text);
    }
    fli_tls_reason(reason, sizeof reason);
    return fail(t, FL_EPROTO, reason);
}

/* Evaluates the result of an OpenSSL call. True: it wants more bytes, and all is well. */
static bool wants_more(struct fli_tls *t, int rc)
{
    return SSL_get_error(t->ssl, rc) == SSL_ERROR_WANT_READ && !t->failed_io;
}

/* OpenSSL's list of errors must be empty before a handshake goes on, so that later entries are of
 * that call. For records it is looked at only when one fails, since looking alone costs a twentieth
 * of a record: so whatever uses OpenSSL on this thread leaves the list empty. */
static void forget_errors(void)
{
    if (ERR_peek_error() != 0) {
        ERR_clear_error();
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

static int shake(struct fli_tls *t)
{
    int rc = SSL_do_handshake(t->ssl);
    if (rc == 1 && t->secrets != NULL && SSL_session_reused(t->ssl) != 1) {
        return fail(t, FL_EPROTO, "it has not proved that it knows the secret"); /* cannot be */
    }
    if (rc == 1) {
        forget_secrets(t);
        t->state = FLI_TLS_OPEN;
        return 0;
    }
    if (!wants_more(t, rc)) {
        return fail_as_openssl_says(t);
    }
    return t->handshake_len > FLI_TLS_HANDSHAKE_MAX
               ? fail(t, FL_EPROTO, "its handshake does not end")
               : 0;
}

static int take_plain(struct fli_tls *t, struct fli_buf *plain)
{
    for (;;) {
        size_t room = plain->max - plain->len;
        if (room == 0 && SSL_pending(t->ssl) == 0 && t->in_len == 0) {
            return 0; /* the buffer is full, and no more bytes are there */
        }
        room = room < FLI_TLS_RECORD_MAX ? room : FLI_TLS_RECORD_MAX;
        int rc = room == 0 ? FL_ELIMIT : fli_buf_reserve(plain, room);
        if (rc != 0) {
            return fail(t, rc, "no room for what has come");
        }
        int n = SSL_read(t->ssl, plain->data + plain->len, (int)room);
        if (n <= 0 && SSL_want(t->ssl) == SSL_READING && !t->failed_io) {
            return 0;
        }
        if (n <= 0) {
            int error = SSL_get_error(t->ssl, n);
            if (error == SSL_ERROR_ZERO_RETURN) {
                t->state = FLI_TLS_ENDED;
                t->in_len = 0;
                return 0;
            }
            return fail_as_openssl_says(t);
        }
        t->heard = true;
        plain->len += (size_t)n;
        /* Usually one record has come: asking for another costs a third of the time of the
         * first. */
        if (t->in_len == 0 && SSL_has_pending(t->ssl) == 0) {
            return 0;
        }
    }
}

int fli_tls_read(struct fli_tls *t, const void *data, size_t len, struct fli_buf *plain,
                 struct fli_buf *out)
{
    FLI_ASSERT(t->state != FLI_TLS_FAILED);
    if (t->state == FLI_TLS_ENDED) {
        return 0;
    }
    t->in = data;
    t->in_len = len;
    t->out = out;
    int rc = 0;
    if (t->state == FLI_TLS_SHAKING) {
        forget_errors();
        t->handshake_len += len;
        rc = shake(t);
        forget_errors();
    }
    if (rc == 0 && t->state == FLI_TLS_OPEN) {
        rc = take_plain(t, plain);
    }
    FLI_ASSERT(rc != 0 || t->in_len == 0);
    t->in = NULL;
    t->in_len = 0;
    t->out = NULL;
    return rc;
}

/* ---- writing --------------------------------------------------------------------------------- */

int fli_tls_write(struct fli_tls *t, const void *data, size_t len, struct fli_buf *out)
{
    FLI_ASSERT(t->state == FLI_TLS_OPEN || t->state == FLI_TLS_ENDED);
    const uint8_t *p = data;
    int rc = fli_buf_reserve(out, FLI_TLS_CIPHER_MAX(len));
    if (rc != 0) {
        return fail(t, rc, "no room for what has to be sent");
    }
    t->out = out;
    while (rc == 0 && len > 0) {
        int n = SSL_write(t->ssl, p, len > INT_MAX ? INT_MAX : (int)len);
        if (n <= 0) {
            rc = fail_as_openssl_says(t);
        } else {
            p += n;
            len -= (size_t)n;
        }
    }
    t->out = NULL;
    return rc;
}

void fli_tls_end(struct fli_tls *t, struct fli_buf *out)
{
    if (t->state != FLI_TLS_OPEN && t->state != FLI_TLS_ENDED) {
        return;
    }
    t->out = out;
    (void)SSL_shutdown(t->ssl); /* sent once; a failure to send it is ignored */
    t->out = NULL;
    ERR_clear_error();
}

/* ---- facts about the peer -------------------------------------------------------------------- */

enum fli_tls_state fli_tls_state(const struct fli_tls *t)
{
    return t->state;
}

const char *fli_tls_error(const struct fli_tls *t)
{
    return t->error != NULL ? t->error : t->state == FLI_TLS_FAILED ? "out of memory" : "";
}

bool fli_tls_was_refused(const struct fli_tls *t)
{
    return t->state == FLI_TLS_FAILED && t->alert >= 0 && !t->heard;
}

static X509 *peer(const struct fli_tls *t)
{
    bool is_open = t->state == FLI_TLS_OPEN || t->state == FLI_TLS_ENDED;
    return is_open && SSL_get_verify_result(t->ssl) == X509_V_OK ? SSL_get0_peer_certificate(t->ssl)
                                                                 : NULL;
}

bool fli_tls_peer_is_shown(const struct fli_tls *t)
{
    return peer(t) != NULL;
}

/* A zero byte inside could make two names look alike. */
static bool copy_name(const ASN1_STRING *name, char ret[FLI_TLS_NAME_MAX])
{
    unsigned char *text = NULL;
    int len = ASN1_STRING_to_UTF8(&text, name);
    bool good = len > 0 && (size_t)len < FLI_TLS_NAME_MAX && memchr(text, 0, (size_t)len) == NULL;
    if (good) {
        memcpy(ret, text, (size_t)len);
        ret[len] = '\0';
    }
    OPENSSL_free(text);
    ERR_clear_error();
    return good;
}

bool fli_tls_peer_name(const struct fli_tls *t, char ret[FLI_TLS_NAME_MAX])
{
    X509 *x = peer(t);
    if (x == NULL) {
        return false;
    }
    const X509_NAME *name = X509_get_subject_name(x);
    int at = X509_NAME_get_index_by_NID(name, NID_commonName, -1);
    const X509_NAME_ENTRY *entry = at < 0 ? NULL : X509_NAME_get_entry(name, at);
    return entry != NULL && copy_name(X509_NAME_ENTRY_get_data(entry), ret);
}

/* NULL when the name is of another kind. */
static const ASN1_STRING *alt_text(const GENERAL_NAME *g)
{
    switch (g->type) {
    case GEN_DNS:
        return g->d.dNSName;
    case GEN_EMAIL:
        return g->d.rfc822Name;
    case GEN_URI:
        return g->d.uniformResourceIdentifier;
    default:
        return NULL;
    }
}

bool fli_tls_peer_alt_name(const struct fli_tls *t, char ret[FLI_TLS_NAME_MAX])
{
    X509 *x = peer(t);
    GENERAL_NAMES *names = x == NULL ? NULL : X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
    const ASN1_STRING *text = NULL;
    for (int i = 0; text == NULL && i < sk_GENERAL_NAME_num(names); i++) {
        text = alt_text(sk_GENERAL_NAME_value(names, i));
    }
    bool good = text != NULL && copy_name(text, ret);
    GENERAL_NAMES_free(names);
    ERR_clear_error();
    return good;
}

bool fli_tls_peer_is(const struct fli_tls *t, const char *name)
{
    X509 *x = peer(t);
    if (x == NULL) {
        return false;
    }
    bool is = is_numeric(name)
                  ? X509_check_ip_asc(x, name, 0) == 1
                  : X509_check_host(x, name, 0, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS, NULL) == 1;
    ERR_clear_error();
    return is;
}

bool fli_tls_peer_bears(const struct fli_tls *t, const char *name)
{
    X509 *x = peer(t);
    return x != NULL && fli_tls_bears(x, name);
}

bool fli_tls_peer_bears_other(const struct fli_tls *t, const char *stem, uint64_t own)
{
    X509 *x = peer(t);
    return x != NULL && fli_tls_bears_other(x, stem, own);
}

const char *fli_tls_peer_psk_context(const struct fli_tls *t)
{
    bool is_open = t->state == FLI_TLS_OPEN || t->state == FLI_TLS_ENDED;
    return t->server && is_open && t->identity != NULL ? t->identity + SECRET_NAME_SIZE : NULL;
}

const struct fli_tls_secrets *fli_tls_session_secrets(const struct fli_tls *t)
{
    return t->secrets;
}

const char *fli_tls_session_identity(const struct fli_tls *t)
{
    FLI_ASSERT(t->identity != NULL);
    return t->identity;
}

bool fli_tls_session_identified(struct fli_tls *t, const unsigned char *id, size_t len)
{
    char *copy = malloc(len + 1);
    if (copy == NULL || memchr(id, 0, len) != NULL) {
        free(copy);
        return false;
    }
    memcpy(copy, id, len);
    copy[len] = '\0';
    free(t->identity); /* of an earlier offer */
    t->identity = copy;
    return true;
}

const char *fli_tls_version(const struct fli_tls *t)
{
    return SSL_get_version(t->ssl);
}
