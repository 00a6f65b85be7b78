/* fuzz_material.c: files of certificates, keys, CAs and secrets, whatever is in them. The first
 * byte of an input says which file the rest is; of a certificate file with its key, the key is what
 * stands behind the first zero byte. The answer is material that can be used or a sentence, and the
 * same one twice. The keys in the corpus are nobody's. */
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

#include "tls/secret.h"

enum what { OWN, CA, SECRETS, WHATS };

struct outcome {
    int rc;
    char errmsg[FLI_TLS_ERRMSG_SIZE];
};

static void read_own(const uint8_t *data, size_t size, struct outcome *ret)
{
    struct fli_tls_own own = {.chain = NULL};
    const uint8_t *zero = size == 0 ? NULL : memchr(data, 0, size);
    size_t cert_len = zero == NULL ? size : (size_t)(zero - data);
    size_t key_at = zero == NULL ? 0 : cert_len + 1;
    struct fli_tls_text cert = {"certificate file", "c", data, cert_len};
    struct fli_tls_text key = {"key file", "k", data + key_at, size - key_at};
    ret->rc = fli_tls_parse_own(&cert, &key, &own, ret->errmsg, sizeof ret->errmsg);
    if (ret->rc == 0) {
        char why[FLI_TLS_ERRMSG_SIZE];
        FLI_ASSERT(own.chain != NULL && own.key != NULL);
        int rc = fli_tls_check_name(&own, "fencelock-node-1", "c", why, sizeof why);
        FLI_ASSERT(rc == 0 || strstr(why, "fencelock-node-1") != NULL);
        fli_tls_own_fini(&own);
    }
}

static void read_ca(const uint8_t *data, size_t size, struct outcome *ret)
{
    X509_STORE *store = NULL;
    int64_t ends_s = 0;
    struct fli_tls_text ca = {"CA file", "a", data, size};
    ret->rc = fli_tls_parse_ca(&ca, &store, &ends_s, ret->errmsg, sizeof ret->errmsg);
    if (ret->rc == 0) {
        FLI_ASSERT(store != NULL && ends_s > 0);
        X509_STORE_free(store);
    }
}

static void read_secrets(const uint8_t *data, size_t size, struct outcome *ret)
{
    struct fli_tls_secrets secrets = {.n = 0};
    struct fli_tls_text file = {"cluster secret file", "s", data, size};
    ret->rc = fli_tls_parse_secrets(&file, &secrets, ret->errmsg, sizeof ret->errmsg);
    FLI_ASSERT((ret->rc == 0) == (secrets.n > 0));
    FLI_ASSERT(secrets.n <= FLI_TLS_SECRETS_MAX);
    for (unsigned i = 0; i < secrets.n; i++) {
        FLI_ASSERT(strlen(secrets.list[i].name) == SECRET_NAME_SIZE - 1);
    }
}

static void read_it(enum what what, const uint8_t *data, size_t size, struct outcome *ret)
{
    memset(ret, 0, sizeof *ret);
    switch (what) {
    case OWN:
        read_own(data, size, ret);
        break;
    case CA:
        read_ca(data, size, ret);
        break;
    default:
        read_secrets(data, size, ret);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct outcome first;
    struct outcome second;
    if (size == 0) {
        return 0;
    }
    enum what what = (enum what)(data[0] % WHATS);
    read_it(what, data + 1, size - 1, &first);
    read_it(what, data + 1, size - 1, &second);
    FLI_ASSERT(first.rc == second.rc && strcmp(first.errmsg, second.errmsg) == 0);
    FLI_ASSERT(first.rc == 0 || first.rc == FL_EINVAL);
    FLI_ASSERT((first.rc == 0) == (first.errmsg[0] == '\0'));
    return 0;
}
