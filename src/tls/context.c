/* context.c: what sessions are made from: files that are read and checked, and used as a whole or
 * not at all. */
#include "tls/context.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "tls/secret.h"

#define SECONDS_A_DAY INT64_C(86400)
#define VERIFY_DEPTH_MAX 8
#define PEER_CERTS_MAX (32L << 10) /* bytes of the peer's certificates */
#define SECURITY_LEVEL 2           /* OpenSSL's: 112 bits, so neither RSA of 1024 bits nor SHA-1 */
#define PATH_SIZE 4096u
#define WARN_DAYS 14 /* an earlier end of a certificate is worth a warning */

/* Only forward secrecy and authenticated encryption; all of TLS 1.3's suites have both. */
#define CIPHERS_12 "ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL"

enum file { CERT, KEY, CA, SECRET, FILES };

static const char *const file_words[FILES] = {"certificate file", "key file", "CA file",
                                              "cluster secret file"};

/* The state of a file when it was last checked. */
struct file_state {
    bool there;
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
};

struct fli_tls_context {
    SSL_CTX *ssl; /* in use */
    bool server, both, own_chain;
    enum fli_tls_auth auth;
    struct fli_tls_secrets secrets; /* none without a secret file */
    int version_min, version_max;
    char *path[FILES];             /* NULL: not given */
    char *own_name;                /* NULL: any */
    struct file_state seen[FILES]; /* when they were last read */
    char subject[FLI_TLS_NAME_MAX];
    uint64_t read_s; /* the time from which the next two count, on the monotonic clock */
    int64_t cert_ends_s, ca_ends_s;
    uint64_t reloads, failures;
};

/* The contents of the files, until they are in use. */
struct load {
    void *data[FILES];
    size_t len[FILES];
    struct fli_tls_own own;
    X509_STORE *ca;
    int64_t ca_ends_s;
    struct fli_tls_secrets secrets;
};

/* ---- files ----------------------------------------------------------------------------------- */

static void stat_file(const char *path, struct file_state *ret)
{
    struct stat st;
    *ret = (struct file_state){.there = false};
    if (path != NULL && stat(path, &st) == 0) {
        *ret = (struct file_state){true, st.st_dev, st.st_ino, st.st_size, st.st_mtim};
    }
}

static bool is_same(const struct file_state *a, const struct file_state *b)
{
    return a->there == b->there &&
           (!a->there ||
            (a->device == b->device && a->inode == b->inode && a->size == b->size &&
             a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec));
}

static int read_all(int fd, size_t size, void **ret, size_t *ret_len)
{
    char *data = malloc(size + 1);
    size_t len = 0;
    ssize_t n = 1;
    if (data == NULL) {
        return ENOMEM;
    }
    while (n > 0 && len < size) {
        n = read(fd, data + len, size - len);
        len += n > 0 ? (size_t)n : 0;
    }
    if (n < 0) {
        int error = errno;
        free(data);
        return error;
    }
    *ret = data;
    *ret_len = len;
    return 0;
}

/* 0, or an errno: EFBIG for a file that is too large, EINVAL for one that is no plain file. */
static int read_file(const char *path, void **ret, size_t *ret_len)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return errno;
    }
    int error = fstat(fd, &st) != 0 ? errno : 0;
    if (error == 0 && !S_ISREG(st.st_mode)) {
        error = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    }
    if (error == 0 && (size_t)st.st_size > FLI_TLS_FILE_MAX) {
        error = EFBIG;
    }
    error = error != 0 ? error : read_all(fd, (size_t)st.st_size, ret, ret_len);
    (void)close(fd);
    return error;
}

static int read_files(const struct fli_tls_context *c, struct load *l, char *errmsg,
                      size_t errmsg_size)
{
    for (int i = 0; i < FILES; i++) {
        int error = c->path[i] == NULL ? 0 : read_file(c->path[i], &l->data[i], &l->len[i]);
        if (error != 0) {
            (void)snprintf(errmsg, errmsg_size, "cannot read the %s '%.512s': %s", file_words[i],
                           c->path[i], strerror(error));
            return error == ENOMEM ? FL_ENOMEM : FL_EINVAL;
        }
    }
    return 0;
}

static struct fli_tls_text text_of(const struct fli_tls_context *c, const struct load *l,
                                   enum file i)
{
    return (struct fli_tls_text){file_words[i], c->path[i], l->data[i], l->len[i]};
}

static int check_files(const struct fli_tls_context *c, struct load *l, char *errmsg,
                       size_t errmsg_size)
{
    int rc = 0;
    if (c->path[CERT] != NULL) {
        struct fli_tls_text cert = text_of(c, l, CERT);
        struct fli_tls_text key = text_of(c, l, KEY);
        rc = fli_tls_parse_own(&cert, &key, &l->own, errmsg, errmsg_size);
    }
    if (rc == 0 && c->path[CA] != NULL) {
        struct fli_tls_text ca = text_of(c, l, CA);
        rc = fli_tls_parse_ca(&ca, &l->ca, &l->ca_ends_s, errmsg, errmsg_size);
    }
    if (rc == 0 && c->path[SECRET] != NULL) {
        struct fli_tls_text secret = text_of(c, l, SECRET);
        rc = fli_tls_parse_secrets(&secret, &l->secrets, errmsg, errmsg_size);
    }
    if (rc == 0 && l->own.chain != NULL && c->own_name != NULL) {
        rc = fli_tls_check_name(&l->own, c->own_name, c->path[CERT], errmsg, errmsg_size);
    }
    bool leads = rc == 0 && l->own.chain != NULL && l->ca != NULL;
    if (leads) {
        rc = fli_tls_check_issuer(&l->own, l->ca, c->server, c->own_chain, c->path[CERT], errmsg,
                                  errmsg_size);
    }
    if (leads && rc == 0 && c->both) {
        rc = fli_tls_check_issuer(&l->own, l->ca, true, c->own_chain, c->path[CERT], errmsg,
                                  errmsg_size);
    }
    return rc;
}

static void load_fini(struct load *l)
{
    for (int i = 0; i < FILES; i++) {
        if (l->data[i] != NULL) {
            OPENSSL_cleanse(l->data[i], l->len[i]);
        }
        free(l->data[i]);
    }
    OPENSSL_cleanse(&l->secrets, sizeof l->secrets);
    fli_tls_own_fini(&l->own);
    X509_STORE_free(l->ca);
}

/* ---- OpenSSL's context ----------------------------------------------------------------------- */

static bool use_own(SSL_CTX *ssl, const struct fli_tls_own *own)
{
    bool ok = SSL_CTX_use_certificate(ssl, sk_X509_value(own->chain, 0)) == 1 &&
              SSL_CTX_use_PrivateKey(ssl, own->key) == 1;
    for (int i = 1; ok && i < sk_X509_num(own->chain); i++) {
        ok = SSL_CTX_add1_chain_cert(ssl, sk_X509_value(own->chain, i)) == 1;
    }
    return ok;
}

static bool trust(SSL_CTX *ssl, const struct fli_tls_context *c, X509_STORE *ca)
{
    SSL_CTX_set_verify_depth(ssl, VERIFY_DEPTH_MAX);
    SSL_CTX_set_max_cert_list(ssl, PEER_CERTS_MAX);
    if (ca != NULL) {
        SSL_CTX_set1_cert_store(ssl, ca);
    } else if (!c->server && !c->both) {
        return SSL_CTX_set_default_verify_paths(ssl) == 1;
    }
    return true;
}

static void set_protocol_options(SSL_CTX *ssl, const struct fli_tls_context *c)
{
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    /* Only the certificates in the file are sent: a CA that OpenSSL added would cost each peer
     * memory. */
    SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_NO_AUTO_CHAIN);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    if (SSL_CTX_get_security_level(ssl) < SECURITY_LEVEL) {
        SSL_CTX_set_security_level(ssl, SECURITY_LEVEL);
    }
    int verify = SSL_VERIFY_PEER; /* a client always verifies */
    if (c->server && c->auth == FLI_TLS_AUTH_NO) {
        verify = SSL_VERIFY_NONE;
    } else if (c->both || (c->server && c->auth == FLI_TLS_AUTH_REQUIRED)) {
        verify = SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    }
    SSL_CTX_set_verify(ssl, verify, NULL);
    SSL_CTX_set_info_callback(ssl, fli_tls_on_alert);
}

static SSL_CTX *make_ssl(const struct fli_tls_context *c, const struct load *l)
{
    SSL_CTX *ssl = SSL_CTX_new(c->both     ? TLS_method()
                               : c->server ? TLS_server_method()
                                           : TLS_client_method());
    if (ssl == NULL) {
        return NULL;
    }
    set_protocol_options(ssl, c);
    bool ok = SSL_CTX_set_min_proto_version(ssl, c->version_min) == 1 &&
              SSL_CTX_set_max_proto_version(ssl, c->version_max) == 1 &&
              SSL_CTX_set_cipher_list(ssl, CIPHERS_12) == 1 && trust(ssl, c, l->ca) &&
              (!(c->server || c->both) || SSL_CTX_set_num_tickets(ssl, 0) == 1) &&
              (l->secrets.n == 0 || fli_tls_demand_secret(ssl));
    ok = ok && (l->own.chain == NULL || use_own(ssl, &l->own));
    if (!ok) {
        SSL_CTX_free(ssl);
        return NULL;
    }
    return ssl;
}

static void copy_subject(struct fli_tls_context *c, const struct fli_tls_own *own)
{
    c->subject[0] = '\0';
    if (own->chain != NULL) {
        (void)X509_NAME_oneline(X509_get_subject_name(sk_X509_value(own->chain, 0)), c->subject,
                                sizeof c->subject);
    }
}

static int load(struct fli_tls_context *c, char *errmsg, size_t errmsg_size)
{
    struct load l = {.len = {0}};
    (void)snprintf(errmsg, errmsg_size, "out of memory");
    for (int i = 0; i < FILES; i++) {
        stat_file(c->path[i], &c->seen[i]); /* before reading, so that a later change is noticed */
    }
    int rc = read_files(c, &l, errmsg, errmsg_size);
    rc = rc != 0 ? rc : check_files(c, &l, errmsg, errmsg_size);
    SSL_CTX *ssl = rc == 0 ? make_ssl(c, &l) : NULL;
    if (rc == 0 && ssl == NULL) {
        char reason[96];
        fli_tls_reason(reason, sizeof reason);
        (void)snprintf(errmsg, errmsg_size, "OpenSSL does not take the %s: %s",
                       c->path[CERT] != NULL ? "certificate" : "settings", reason);
        rc = FL_EINVAL;
    }
    if (rc == 0) {
        SSL_CTX_free(c->ssl); /* sessions that use it keep it alive */
        c->ssl = ssl;
        c->read_s = fli_clock_ms() / 1000;
        c->cert_ends_s = l.own.ends_s;
        c->ca_ends_s = l.ca_ends_s;
        c->secrets = l.secrets;
        copy_subject(c, &l.own);
    }
    ERR_clear_error();
    load_fini(&l);
    return rc;
}

/* ---- settings -------------------------------------------------------------------------------- */

static int set_protocols(struct fli_tls_context *c, const char *text, char *errmsg,
                         size_t errmsg_size)
{
    bool has_12 = false;
    bool has_13 = false;
    for (const char *p = text; *p != '\0';) {
        size_t len = strcspn(p, " ,");
        if (len == 7 && strncasecmp(p, "TLSv1.2", 7) == 0) {
            has_12 = true;
        } else if (len == 7 && strncasecmp(p, "TLSv1.3", 7) == 0) {
            has_13 = true;
        } else if (len > 0) {
            (void)snprintf(errmsg, errmsg_size,
                           "'%.*s' is no protocol offered here: write TLSv1.2, TLSv1.3 or both",
                           len > 32 ? 32 : (int)len, p);
            return FL_EINVAL;
        }
        p += len + (p[len] != '\0');
    }
    if (!has_12 && !has_13) {
        (void)snprintf(errmsg, errmsg_size, "no protocol is named: write TLSv1.2, TLSv1.3 or both");
        return FL_EINVAL;
    }
    c->version_min = has_12 ? TLS1_2_VERSION : TLS1_3_VERSION;
    c->version_max = has_13 ? TLS1_3_VERSION : TLS1_2_VERSION;
    return 0;
}

static int set_paths(struct fli_tls_context *c, const struct fli_tls_config *config, char *errmsg,
                     size_t errmsg_size)
{
    const char *const given[FILES] = {config->cert_file, config->key_file, config->ca_file,
                                      config->secret_file};
    for (int i = 0; i < FILES; i++) {
        if (given[i] == NULL || given[i][0] == '\0') {
            continue;
        }
        if (strlen(given[i]) >= PATH_SIZE) {
            (void)snprintf(errmsg, errmsg_size, "the path of the %s is too long", file_words[i]);
            return FL_EINVAL;
        }
        c->path[i] = strdup(given[i]);
        if (c->path[i] == NULL) {
            return FL_ENOMEM;
        }
    }
    if (config->own_name != NULL && (c->own_name = strdup(config->own_name)) == NULL) {
        return FL_ENOMEM;
    }
    const char *wrong = NULL;
    if (c->both && c->path[SECRET] == NULL && c->path[CERT] == NULL) {
        wrong = "nodes need a certificate file, or a secret file";
    } else if (c->path[SECRET] != NULL && (!c->both || c->path[CERT] != NULL)) {
        wrong = "a secret file goes with no certificate: name one of them";
    } else if (c->server && c->path[CERT] == NULL) {
        wrong = "a server needs a certificate file";
    } else if ((c->path[CERT] == NULL) != (c->path[KEY] == NULL)) {
        wrong = "a certificate file and a key file belong together: name both or neither";
    } else if (c->server && c->auth != FLI_TLS_AUTH_NO && c->path[CA] == NULL) {
        wrong = "asking clients for certificates needs a CA file that says whose count";
    } else if (c->own_chain && c->path[CA] == NULL && c->path[SECRET] == NULL) {
        wrong = "a CA file is missing";
    }
    if (wrong != NULL) {
        (void)snprintf(errmsg, errmsg_size, "%s", wrong);
        return FL_EINVAL;
    }
    return 0;
}

int fli_tls_context_create(const struct fli_tls_config *config, struct fli_tls_context **ret,
                           char *errmsg, size_t errmsg_size)
{
    static const char both[] = "TLSv1.2 TLSv1.3";
    struct fli_tls_context *c = calloc(1, sizeof *c);
    (void)snprintf(errmsg, errmsg_size, "out of memory");
    if (c == NULL) {
        return FL_ENOMEM;
    }
    c->server = config->server && !config->both;
    c->both = config->both;
    c->own_chain = config->own_chain || config->both;
    c->auth = config->auth;
    const char *protocols = config->protocols;
    bool given = protocols != NULL && protocols[0] != '\0';
    int rc = set_protocols(c, given ? protocols : both, errmsg, errmsg_size);
    rc = rc != 0 ? rc : set_paths(c, config, errmsg, errmsg_size);
    if (rc == 0 && c->path[SECRET] != NULL) {
        c->version_min = c->version_max = TLS1_3_VERSION;
    }
    rc = rc != 0 ? rc : load(c, errmsg, errmsg_size);
    if (rc != 0) {
        fli_tls_context_destroy(c);
        return rc;
    }
    *ret = c;
    return 0;
}

void fli_tls_context_destroy(struct fli_tls_context *c)
{
    if (c == NULL) {
        return;
    }
    for (int i = 0; i < FILES; i++) {
        free(c->path[i]);
    }
    free(c->own_name);
    OPENSSL_cleanse(&c->secrets, sizeof c->secrets);
    SSL_CTX_free(c->ssl);
    free(c);
}

int fli_tls_context_reload(struct fli_tls_context *c, char *errmsg, size_t errmsg_size)
{
    int rc = load(c, errmsg, errmsg_size);
    c->reloads += rc == 0;
    c->failures += rc != 0;
    return rc;
}

bool fli_tls_context_changed(const struct fli_tls_context *c)
{
    for (int i = 0; i < FILES; i++) {
        struct file_state now;
        stat_file(c->path[i], &now);
        if (!is_same(&now, &c->seen[i])) {
            return true;
        }
    }
    return false;
}

/* Days that are left of something that had so many seconds left at that time; negative when it is
 * over. */
static int64_t days(int64_t ends_s, uint64_t since_s)
{
    int64_t left_s = ends_s - (int64_t)since_s;
    return left_s >= 0 ? left_s / SECONDS_A_DAY : -1 - (-left_s - 1) / SECONDS_A_DAY;
}

void fli_tls_context_facts(const struct fli_tls_context *c, struct fli_tls_facts *ret)
{
    uint64_t since_s = fli_clock_ms() / 1000 - c->read_s;
    *ret = (struct fli_tls_facts){.has_cert = c->path[CERT] != NULL,
                                  .has_ca = c->path[CA] != NULL,
                                  .reloads = c->reloads,
                                  .failures = c->failures};
    memcpy(ret->subject, c->subject, sizeof ret->subject);
    if (ret->has_cert) {
        ret->cert_days = days(c->cert_ends_s, since_s);
    }
    if (ret->has_ca) {
        ret->ca_days = days(c->ca_ends_s, since_s);
    }
}

int fli_tls_context_tell(const struct fli_tls_context *c, const char *what,
                         char line[FLI_TLS_LINE_SIZE])
{
    struct fli_tls_facts f;
    fli_tls_context_facts(c, &f);
    if (!f.has_cert) {
        (void)snprintf(line, FLI_TLS_LINE_SIZE, "%s the secret in the file", what);
        return 3;
    }
    (void)snprintf(line, FLI_TLS_LINE_SIZE, "%s %s, %lld days left", what, f.subject,
                   (long long)f.cert_days);
    return f.cert_days < WARN_DAYS ? 2 : 3;
}

int fli_tls_context_renew(struct fli_tls_context *c, bool always, char line[FLI_TLS_LINE_SIZE])
{
    char errmsg[FLI_TLS_ERRMSG_SIZE];
    if (!always && !fli_tls_context_changed(c)) {
        return 0;
    }
    if (fli_tls_context_reload(c, errmsg, sizeof errmsg) == 0) {
        return fli_tls_context_tell(c, "new connections get", line);
    }
    (void)snprintf(line, FLI_TLS_LINE_SIZE,
                   "the new files are refused, and the old ones stay in use: %s", errmsg);
    return 2;
}

SSL *fli_tls_context_ssl(const struct fli_tls_context *c)
{
    return SSL_new(c->ssl);
}

bool fli_tls_context_is_server(const struct fli_tls_context *c)
{
    return c->server;
}

bool fli_tls_context_is_both(const struct fli_tls_context *c)
{
    return c->both;
}

const struct fli_tls_secrets *fli_tls_context_secrets(const struct fli_tls_context *c)
{
    return c->secrets.n == 0 ? NULL : &c->secrets;
}
