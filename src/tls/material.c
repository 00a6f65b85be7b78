/* material.c: see material.h. */
#include "tls/material.h"

#include <limits.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"

#define SECONDS_A_DAY INT64_C(86400)

void fli_tls_reason(char *text, size_t size)
{
    unsigned long error = ERR_get_error();
    const char *reason = error == 0 ? NULL : ERR_reason_error_string(error);
    if (reason != NULL) {
        (void)snprintf(text, size, "%s", reason);
    } else {
        (void)snprintf(text, size, "OpenSSL's error %lx", error);
    }
    ERR_clear_error();
}

static int FLI_PRINTF(3, 4) bad(char *errmsg, size_t errmsg_size, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(errmsg, errmsg_size, fmt, args);
    va_end(args);
    ERR_clear_error();
    return FL_EINVAL;
}

static int no_passphrase(char *buf, int size, int rwflag, void *u)
{
    *(bool *)u = true;
    return -1;
}

/* ---- dates ----------------------------------------------------------------------------------- */

/* Seconds from now until `then`; false when it is no valid time. */
static bool seconds_until(const ASN1_TIME *then, int64_t *ret)
{
    int days = 0;
    int seconds = 0;
    if (ASN1_TIME_diff(&days, &seconds, NULL, then) != 1) {
        return false;
    }
    *ret = (int64_t)days * SECONDS_A_DAY + seconds;
    return true;
}

static void subject_of(const X509 *x, char *text, size_t size)
{
    BIO *b = BIO_new(BIO_s_mem());
    int n = 0;
    if (b != NULL && X509_NAME_print_ex(b, X509_get_subject_name(x), 0, XN_FLAG_ONELINE) >= 0) {
        n = BIO_read(b, text, size > INT_MAX ? INT_MAX : (int)size - 1);
    }
    text[n > 0 ? n : 0] = '\0';
    (void)BIO_free(b);
}

static int check_dates(const X509 *x, const char *path, int64_t *ret_ends_s, char *errmsg,
                       size_t errmsg_size)
{
    char subject[128];
    int64_t begins_s = 0;
    subject_of(x, subject, sizeof subject);
    if (!seconds_until(X509_get0_notBefore(x), &begins_s) ||
        !seconds_until(X509_get0_notAfter(x), ret_ends_s)) {
        return bad(errmsg, errmsg_size, "certificate file '%.512s': a date of %s is no date", path,
                   subject);
    }
    if (begins_s > 0) {
        return bad(errmsg, errmsg_size,
                   "certificate file '%.512s': %s is not valid yet; compare the clocks", path,
                   subject);
    }
    if (*ret_ends_s <= 0) {
        return bad(errmsg, errmsg_size,
                   "certificate file '%.512s': %s has expired; issue a new certificate", path,
                   subject);
    }
    return 0;
}

/* ---- own certificate ------------------------------------------------------------------------- */

static int parse_certs(const struct fli_tls_text *t, unsigned max, STACK_OF(X509) * to,
                       char *errmsg, size_t errmsg_size)
{
    BIO *b = BIO_new_mem_buf(t->data, (int)t->len);
    X509 *x = NULL;
    bool locked = false;
    bool full = false;
    if (b == NULL) {
        return FL_ENOMEM;
    }
    while (!full && (x = PEM_read_bio_X509(b, NULL, no_passphrase, &locked)) != NULL) {
        full = (unsigned)sk_X509_num(to) == max || sk_X509_push(to, x) == 0;
        if (full) {
            X509_free(x);
        }
    }
    (void)BIO_free(b);
    if (full) {
        return bad(errmsg, errmsg_size, "%s '%.512s' has more than %u certificates", t->what,
                   t->path, max);
    }
    /* The reader stops at the end, or at bytes that it cannot read. */
    unsigned long error = ERR_peek_last_error();
    bool at_end = ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
    if (!at_end) {
        char reason[96];
        fli_tls_reason(reason, sizeof reason);
        return bad(errmsg, errmsg_size, "%s '%.512s' cannot be read after %d certificates: %s",
                   t->what, t->path, sk_X509_num(to), reason);
    }
    ERR_clear_error();
    if (sk_X509_num(to) == 0) {
        return bad(errmsg, errmsg_size, "%s '%.512s' has no certificate in PEM in it", t->what,
                   t->path);
    }
    return 0;
}

static int parse_key(const struct fli_tls_text *t, EVP_PKEY **ret, char *errmsg, size_t errmsg_size)
{
    bool locked = false;
    BIO *b = BIO_new_mem_buf(t->data, (int)t->len);
    if (b == NULL) {
        return FL_ENOMEM;
    }
    *ret = PEM_read_bio_PrivateKey(b, NULL, no_passphrase, &locked);
    (void)BIO_free(b);
    if (*ret == NULL && locked) {
        return bad(errmsg, errmsg_size,
                   "%s '%.512s' is locked with a passphrase, which nobody is there to type; write "
                   "the key without one and keep the file from others",
                   t->what, t->path);
    }
    if (*ret == NULL) {
        return bad(errmsg, errmsg_size, "%s '%.512s' has no private key in PEM in it", t->what,
                   t->path);
    }
    ERR_clear_error();
    return 0;
}

/* Checks that each certificate is signed by the next, and that all are valid now. */
static int check_chain(const struct fli_tls_own *own, const char *path, int64_t *ret_ends_s,
                       char *errmsg, size_t errmsg_size)
{
    int n = sk_X509_num(own->chain);
    *ret_ends_s = INT64_MAX;
    for (int i = 0; i < n; i++) {
        X509 *x = sk_X509_value(own->chain, i);
        int64_t ends_s = 0;
        int rc = check_dates(x, path, &ends_s, errmsg, errmsg_size);
        if (rc != 0) {
            return rc;
        }
        *ret_ends_s = ends_s < *ret_ends_s ? ends_s : *ret_ends_s;
        X509 *issuer = i + 1 < n ? sk_X509_value(own->chain, i + 1) : NULL;
        if (issuer != NULL && (X509_check_issued(issuer, x) != X509_V_OK ||
                               X509_verify(x, X509_get0_pubkey(issuer)) != 1)) {
            return bad(errmsg, errmsg_size,
                       "certificate file '%.512s': certificate %d is not signed by the one after "
                       "it; write own certificate first, then those that lead to its CA, in order",
                       path, i + 1);
        }
    }
    return 0;
}

int fli_tls_parse_own(const struct fli_tls_text *cert, const struct fli_tls_text *key,
                      struct fli_tls_own *ret, char *errmsg, size_t errmsg_size)
{
    struct fli_tls_own own = {.chain = sk_X509_new_null()};
    ERR_clear_error();
    int rc = own.chain == NULL
                 ? FL_ENOMEM
                 : parse_certs(cert, FLI_TLS_CHAIN_MAX, own.chain, errmsg, errmsg_size);
    rc = rc != 0 ? rc : parse_key(key, &own.key, errmsg, errmsg_size);
    if (rc == 0 && X509_check_private_key(sk_X509_value(own.chain, 0), own.key) != 1) {
        rc = bad(errmsg, errmsg_size,
                 "the key of '%.512s' does not fit the first certificate of '%.512s'", key->path,
                 cert->path);
    }
    rc = rc != 0 ? rc : check_chain(&own, cert->path, &own.ends_s, errmsg, errmsg_size);
    if (rc != 0) {
        fli_tls_own_fini(&own);
        return rc;
    }
    *ret = own;
    return 0;
}

void fli_tls_own_fini(struct fli_tls_own *own)
{
    sk_X509_pop_free(own->chain, X509_free);
    EVP_PKEY_free(own->key);
    *own = (struct fli_tls_own){.chain = NULL};
}

/* ---- CAs ------------------------------------------------------------------------------------- */

static int fill_store(X509_STORE *store, STACK_OF(X509) * all, const struct fli_tls_text *ca,
                      int64_t *ret_ends_s, char *errmsg, size_t errmsg_size)
{
    *ret_ends_s = INT64_MIN;
    for (int i = 0; i < sk_X509_num(all); i++) {
        X509 *x = sk_X509_value(all, i);
        int64_t ends_s = 0;
        if (X509_STORE_add_cert(store, x) != 1) {
            return FL_ENOMEM;
        }
        if (X509_check_ca(x) == 0) {
            return bad(errmsg, errmsg_size, "%s '%.512s': certificate %d does not belong to a CA",
                       ca->what, ca->path, i + 1);
        }
        if (seconds_until(X509_get0_notAfter(x), &ends_s) && ends_s > *ret_ends_s) {
            *ret_ends_s = ends_s;
        }
    }
    if (*ret_ends_s <= 0) {
        return bad(errmsg, errmsg_size, "%s '%.512s': each CA in it has expired", ca->what,
                   ca->path);
    }
    return 0;
}

int fli_tls_parse_ca(const struct fli_tls_text *ca, X509_STORE **ret, int64_t *ret_ends_s,
                     char *errmsg, size_t errmsg_size)
{
    STACK_OF(X509) *all = sk_X509_new_null();
    X509_STORE *store = X509_STORE_new();
    ERR_clear_error();
    int rc = all == NULL || store == NULL ? FL_ENOMEM
                                          : parse_certs(ca, INT_MAX, all, errmsg, errmsg_size);
    rc = rc != 0 ? rc : fill_store(store, all, ca, ret_ends_s, errmsg, errmsg_size);
    sk_X509_pop_free(all, X509_free);
    if (rc != 0) {
        X509_STORE_free(store);
        return rc;
    }
    *ret = store;
    return 0;
}

static bool has_unknown_issuer(int error)
{
    return error == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT ||
           error == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY ||
           error == X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE ||
           error == X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN ||
           error == X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT;
}

int fli_tls_check_issuer(const struct fli_tls_own *own, X509_STORE *ca, bool server, bool must,
                         const char *path, char *errmsg, size_t errmsg_size)
{
    X509_STORE_CTX *check = X509_STORE_CTX_new();
    if (check == NULL ||
        X509_STORE_CTX_init(check, ca, sk_X509_value(own->chain, 0), own->chain) != 1 ||
        X509_STORE_CTX_set_default(check, server ? "ssl_server" : "ssl_client") != 1) {
        X509_STORE_CTX_free(check);
        ERR_clear_error();
        return FL_ENOMEM;
    }
    bool good = X509_verify_cert(check) == 1;
    int error = X509_STORE_CTX_get_error(check);
    X509_STORE_CTX_free(check);
    ERR_clear_error();
    if (good || (!must && has_unknown_issuer(error))) {
        return 0;
    }
    return bad(errmsg, errmsg_size,
               "certificate file '%.512s': peers that trust the CA file would refuse it: %s", path,
               X509_verify_cert_error_string(error));
}

bool fli_tls_bears(X509 *x, const char *name)
{
    bool bears = X509_check_host(x, name, 0, FLI_TLS_EXACTLY, NULL) == 1;
    ERR_clear_error();
    return bears;
}

static bool is_other(const ASN1_IA5STRING *name, const char *stem, uint64_t own)
{
    size_t stem_len = strlen(stem);
    int len = ASN1_STRING_length(name);
    const char *text = (const char *)ASN1_STRING_get0_data(name);
    uint64_t number = 0;
    return len > 0 && (size_t)len > stem_len && strncasecmp(text, stem, stem_len) == 0 &&
           fli_parse_u64(text + stem_len, (size_t)len - stem_len, UINT64_MAX, &number) &&
           number != 0 && number != own;
}

bool fli_tls_bears_other(X509 *x, const char *stem, uint64_t own)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
    bool found = false;
    for (int i = 0; i < sk_GENERAL_NAME_num(names) && !found; i++) { /* -1 for no names */
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        found = name->type == GEN_DNS && is_other(name->d.dNSName, stem, own);
    }
    GENERAL_NAMES_free(names);
    ERR_clear_error();
    return found;
}

int fli_tls_check_name(const struct fli_tls_own *own, const char *name, const char *path,
                       char *errmsg, size_t errmsg_size)
{
    if (fli_tls_bears(sk_X509_value(own->chain, 0), name)) {
        return 0;
    }
    return bad(errmsg, errmsg_size,
               "certificate file '%.512s' does not bear the name %.128s, by which the other nodes "
               "know this one: put it among the alternative names (SAN, DNS:%.128s)",
               path, name, name);
}
