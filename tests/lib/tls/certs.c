/* certs.c: see certs.h. */
#include "certs.h"

#include <dirent.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MUST(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            (void)fprintf(stderr, "certs.c:%d: %s\n", __LINE__, #cond);                            \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static FILE *open_in(const char *dir, const char *name, const char *ending, const char *mode)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s%s", dir, name, ending);
    FILE *f = fopen(path, mode);
    MUST(f != NULL);
    return f;
}

static void add_extension(X509 *x, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    MUST(e != NULL && X509_add_ext(x, e, -1) == 1);
    X509_EXTENSION_free(e);
}

static void fill(X509 *x, X509 *issuer, EVP_PKEY *key, const struct cert *cert)
{
    bool default_validity = cert->begins_days == 0 && cert->ends_days == 0;
    unsigned char serial[8];
    MUST(RAND_bytes(serial, sizeof serial) == 1);
    uint64_t number = 0;
    memcpy(&number, serial, sizeof number);
    MUST(ASN1_INTEGER_set_uint64(X509_get_serialNumber(x), number >> 1) == 1);
    MUST(X509_set_version(x, 2) == 1 && X509_set_pubkey(x, key) == 1);
    MUST(
        X509_gmtime_adj(X509_getm_notBefore(x),
                        (default_validity ? -1 : cert->begins_days) * 86400l) &&
        X509_gmtime_adj(X509_getm_notAfter(x), (default_validity ? 10 : cert->ends_days) * 86400l));
    X509_NAME *name = X509_get_subject_name(x);
    MUST(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)cert->cn, -1,
                                    -1, 0) == 1);
    MUST(X509_set_issuer_name(x, X509_get_subject_name(issuer)) == 1);
    add_extension(x, issuer, NID_basic_constraints, cert->ca ? "critical,CA:TRUE" : "CA:FALSE");
    add_extension(x, issuer, NID_subject_key_identifier, "hash");
    if (cert->san != NULL) {
        add_extension(x, issuer, NID_subject_alt_name, cert->san);
    }
}

void certs_make(const char *dir, const char *name, const struct cert *cert)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    X509 *issuer = x;
    EVP_PKEY *issuer_key = key;
    MUST(key != NULL && x != NULL);
    if (cert->issuer != NULL) {
        FILE *f = open_in(dir, cert->issuer, ".crt", "r");
        issuer = PEM_read_X509(f, NULL, NULL, NULL);
        (void)fclose(f);
        f = open_in(dir, cert->issuer, ".key", "r");
        issuer_key = PEM_read_PrivateKey(f, NULL, NULL, NULL);
        (void)fclose(f);
        MUST(issuer != NULL && issuer_key != NULL);
    }
    fill(x, issuer, key, cert);
    MUST(X509_sign(x, issuer_key, EVP_sha256()) > 0);
    FILE *f = open_in(dir, name, ".crt", "w");
    MUST(PEM_write_X509(f, x) == 1);
    (void)fclose(f);
    f = open_in(dir, name, ".key", "w");
    MUST(PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL) == 1);
    (void)fclose(f);
    if (cert->issuer != NULL) {
        X509_free(issuer);
        EVP_PKEY_free(issuer_key);
    }
    X509_free(x);
    EVP_PKEY_free(key);
}

const char *certs_dir(char path[64])
{
    (void)snprintf(path, 64, P_tmpdir "/fencelock-certs-XXXXXX");
    MUST(mkdtemp(path) != NULL);
    return path;
}

void certs_remove(const char *dir)
{
    DIR *d = opendir(dir);
    MUST(d != NULL);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        (void)unlink(path); /* not of . and .. */
    }
    (void)closedir(d);
    MUST(rmdir(dir) == 0);
}

void certs_write(const char *dir, const char *name, const void *data, size_t len)
{
    FILE *f = open_in(dir, name, "", "w");
    MUST(len == 0 || fwrite(data, len, 1, f) == 1);
    MUST(fclose(f) == 0);
}

void certs_join(const char *dir, const char *name, const char *first, const char *second)
{
    static char bytes[65536];
    FILE *f = open_in(dir, first, "", "r");
    size_t len = fread(bytes, 1, sizeof bytes / 2, f);
    (void)fclose(f);
    f = open_in(dir, second, "", "r");
    len += fread(bytes + len, 1, sizeof bytes / 2, f);
    (void)fclose(f);
    certs_write(dir, name, bytes, len);
}
