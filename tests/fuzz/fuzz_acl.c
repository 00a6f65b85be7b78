/* fuzz_acl.c: words of a user, of any bytes. What is taken prints as words that make the same user,
 * and as bytes that do; what is refused changes nothing. The first byte chooses whether they are
 * words or the bytes of a user. */
#include "fuzz.h"

#include <string.h>

#include "machine/acl.h"

static void check_bytes(const struct acl_user *u)
{
    uint8_t bytes[ACL_ENCODED_MAX];
    size_t len = acl_encode(u, bytes);
    struct fli_reader r;
    struct acl_user back;
    fli_reader_init(&r, bytes, len);
    bool ok = acl_decode(&r, &back);
    FLI_ASSERT(ok && fli_reader_left(&r) == 0 && memcmp(u, &back, sizeof back) == 0);
}

/* What prints longer than words may be cannot be made in one piece. */
static void check_words(const struct acl_user *u)
{
    struct fli_buf text;
    struct acl_user back;
    char why[256];
    fli_buf_init(&text, (size_t)1 << 20);
    int rc = acl_print(u, &text);
    FLI_ASSERT(rc == 0);
    acl_user_init(&back, (struct fli_slice){u->name, u->name_len});
    if (text.len <= ACL_TEXT_MAX) {
        rc = acl_apply(&back, (struct fli_slice){text.data, text.len}, ACL_LOCK_RIGHTS, why,
                       sizeof why);
        FLI_ASSERT(rc == 0);
        FLI_ASSERT(memcmp(u, &back, sizeof back) == 0);
    }
    fli_buf_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t name[] = "ann";
    struct acl_user u;
    char why[256];
    if (size < 1) {
        return 0;
    }
    if (data[0] == 'b') {
        struct fli_reader r;
        fli_reader_init(&r, data + 1, size - 1);
        if (acl_decode(&r, &u)) {
            check_bytes(&u);
        }
        return 0;
    }
    acl_user_init(&u, (struct fli_slice){name, 3});
    struct acl_user before = u;
    struct fli_slice words = {data + 1, size - 1};
    int rc = acl_apply(&u, words, ACL_LOCK_RIGHTS, why, sizeof why);
    if (rc != 0) {
        FLI_ASSERT(memcmp(&u, &before, sizeof u) == 0 && strlen(why) < sizeof why);
        return 0;
    }
    check_bytes(&u);
    check_words(&u);
    return 0;
}
