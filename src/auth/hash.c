/* hash.c: see hash.h. */
#include "auth/hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define LOG2_N 14u
#define BLOCK_R 8u
#define PARALLEL_P 1u
#define MEMORY_MAX ((uint64_t)80 << 20) /* for the costliest hash that acl.h allows */

static int derive(const struct acl_hash *h, struct fli_slice password, uint8_t key[ACL_KEY_SIZE])
{
    const char *text = password.len == 0 ? "" : (const char *)password.data;
    int ok = EVP_PBE_scrypt(text, password.len, h->salt, ACL_SALT_SIZE, UINT64_C(1) << h->log2_n,
                            h->r, h->p, MEMORY_MAX, key, ACL_KEY_SIZE);
    return ok == 1 ? 0 : FL_ENOMEM;
}

int auth_hash(struct fli_slice password, struct acl_hash *ret)
{
    if (password.len > AUTH_PASSWORD_MAX) {
        return FL_EINVAL;
    }
    *ret = (struct acl_hash){.log2_n = LOG2_N, .r = BLOCK_R, .p = PARALLEL_P};
    fli_random(ret->salt, sizeof ret->salt);
    return derive(ret, password, ret->key);
}

bool auth_verify(const struct acl_hash *hash, struct fli_slice password)
{
    uint8_t key[ACL_KEY_SIZE];
    bool same = password.len <= AUTH_PASSWORD_MAX && derive(hash, password, key) == 0 &&
                CRYPTO_memcmp(key, hash->key, sizeof key) == 0;
    OPENSSL_cleanse(key, sizeof key);
    return same;
}

bool auth_may_log_in(const struct acl_user *user, struct fli_slice password)
{
    static const struct acl_hash dummy = {.log2_n = LOG2_N, .r = BLOCK_R, .p = PARALLEL_P};
    bool found = false;
    if (user == NULL || user->n_passwords == 0) {
        (void)auth_verify(&dummy, password);
        return user != NULL && user->on && user->nopass;
    }
    for (unsigned i = 0; i < user->n_passwords; i++) {
        found = auth_verify(&user->passwords[i], password) || found;
    }
    return found && user->on;
}

void auth_tag(const uint8_t key[AUTH_TAG_SIZE], struct fli_slice password,
              uint8_t ret[AUTH_TAG_SIZE])
{
    const uint8_t *text = password.len == 0 ? (const uint8_t *)"" : password.data;
    if (HMAC(EVP_sha256(), key, AUTH_TAG_SIZE, text, password.len, ret, NULL) == NULL) {
        fli_random(ret, AUTH_TAG_SIZE); /* equal to none */
    }
}

static int put_hash(struct fli_buf *out, char mark, const struct acl_hash *h)
{
    int rc = fli_buf_append(out, &mark, 1);
    return rc != 0 ? rc : acl_print_hash(h, out);
}

static int fail(char *errmsg, size_t size, const char *text)
{
    (void)snprintf(errmsg, size, "%s", text);
    return FL_EINVAL;
}

static int put_password(struct fli_slice arg, const struct acl_user *user, struct fli_buf *out,
                        char *errmsg, size_t errmsg_size)
{
    struct fli_slice password = {arg.data + 1, arg.len - 1};
    struct acl_hash h;
    if (password.len < 1 || password.len > AUTH_PASSWORD_MAX) {
        return fail(errmsg, errmsg_size, "a password has 1 to 512 bytes");
    }
    if (arg.data[0] == '>') {
        int rc = auth_hash(password, &h);
        return rc != 0 ? rc : put_hash(out, '#', &h);
    }
    for (unsigned i = 0; user != NULL && i < user->n_passwords; i++) {
        if (auth_verify(&user->passwords[i], password)) {
            return put_hash(out, '!', &user->passwords[i]);
        }
    }
    return fail(errmsg, errmsg_size, "<PASSWORD: the user has no such password");
}

/* One argument is one word, so that no blank in a name becomes an end of the pattern and a right
 * after it. Only a selector may be whole in its argument, without a password. */
static bool is_one_word(struct fli_slice arg)
{
    struct fli_slice rest = arg;
    struct fli_slice word = {.len = 0};
    bool in_selector = arg.len > 0 && arg.data[0] == '(';
    if (arg.len == 0 || memchr(arg.data, ' ', arg.len) == NULL) {
        return true;
    }
    while (in_selector && acl_next_word(&rest, &word)) {
        bool closes = word.data[word.len - 1] == ')';
        in_selector = word.data[0] != '>' && word.data[0] != '<' && closes == (rest.len == 0);
    }
    return in_selector;
}

int auth_words(const struct fli_slice *args, unsigned n, const struct acl_user *user,
               struct fli_buf *out, char *errmsg, size_t errmsg_size)
{
    (void)snprintf(errmsg, errmsg_size, "the words have at most %u bytes", ACL_TEXT_MAX);
    for (unsigned i = 0; i < n; i++) {
        bool secret = args[i].len > 0 && (args[i].data[0] == '>' || args[i].data[0] == '<');
        int rc = out->len == 0 ? 0 : fli_buf_append(out, " ", 1);
        if (rc == 0 && secret) {
            rc = put_password(args[i], user, out, errmsg, errmsg_size);
        } else if (rc == 0 && !is_one_word(args[i])) {
            return fail(errmsg, errmsg_size,
                        "an argument is one word, or one selector in ( ): a pattern has ? for a "
                        "blank");
        } else if (rc == 0) {
            rc = fli_buf_append(out, args[i].data, args[i].len);
        }
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}
