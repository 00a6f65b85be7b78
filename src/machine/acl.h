/* acl.h: a user, its rights, and the words (those of Redis) that set them:
 *
 *   on off                      whether the user may log in
 *   nopass resetpass #HASH !HASH  any password; none; one more; one less
 *   ~PATTERN allkeys resetkeys  the names that the rights cover (glob.h; `~*` is allkeys)
 *   +@RIGHT -@RIGHT +@all -@all  the rights: see acquire token break admin (lock service), read
 *                               write claim admin (storage)
 *   (WORDS) clearselectors      rights to other names, beside those of the user itself
 *   reset                       back to a new user: off, without passwords, rights, names
 *
 * HASH is `scrypt:N:R:P:SALT:KEY`: three numbers (N: a power of two's exponent) and hex digits.
 * Passwords never come here in clear: src/auth makes hashes of them.
 *
 * Blanks separate the words, so no pattern can contain one (write `?`). Pure, total, bounded:
 * input that is wrong is refused with a sentence and changes nothing. */
#ifndef MACHINE_ACL_H
#define MACHINE_ACL_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/bytes.h"

#define ACL_NAME_MAX 64u /* of visible ASCII, no blanks */
#define ACL_PASSWORDS_MAX 8u
#define ACL_RULES_MAX 8u /* the user's own rule, and its selectors */
#define ACL_PATTERN_MAX 255u
#define ACL_PATTERNS_SIZE 2048u /* bytes of all patterns of a user, two more for each */
#define ACL_SALT_SIZE 16u
#define ACL_KEY_SIZE 32u
#define ACL_TEXT_MAX 3500u /* length of a text of words */

enum acl_right {
    ACL_SEE = 1,
    ACL_ACQUIRE = 2,
    ACL_TOKEN = 4,
    ACL_BREAK = 8,
    ACL_ADMIN = 16, /* independent of names */
    ACL_READ = 32,  /* of the storage, as are the next two */
    ACL_WRITE = 64,
    ACL_CLAIM = 128
};
#define ACL_LOCK_RIGHTS (ACL_SEE | ACL_ACQUIRE | ACL_TOKEN | ACL_BREAK | ACL_ADMIN)
#define ACL_STORE_RIGHTS (ACL_READ | ACL_WRITE | ACL_CLAIM | ACL_ADMIN)
#define ACL_ALL_RIGHTS 255u

struct acl_hash {
    uint8_t log2_n, r, p;
    uint8_t salt[ACL_SALT_SIZE];
    uint8_t key[ACL_KEY_SIZE];
};

struct acl_rule {
    uint8_t rights; /* a set of enum acl_right */
    bool all_names;
};

struct acl_user {
    bool on, nopass;
    uint8_t name_len, n_passwords, n_rules; /* at least one rule */
    uint16_t patterns_len;
    uint8_t name[ACL_NAME_MAX];
    struct acl_hash passwords[ACL_PASSWORDS_MAX];
    struct acl_rule rules[ACL_RULES_MAX];
    uint8_t patterns[ACL_PATTERNS_SIZE]; /* each: rule 1, length 1, bytes; sorted by rule */
};

bool acl_name_ok(struct fli_slice name);

/* A new user: off, without any right. The name must satisfy acl_name_ok(). */
void acl_user_init(struct acl_user *u, struct fli_slice name);

/* Applies words in order. `rights`: the rights that this service knows; a word for another right is
 * refused. Returns 0; or FL_EINVAL (a wrong word) or FL_ELIMIT (more than a user may have) with a
 * sentence, and then *u is unchanged. */
int acl_apply(struct acl_user *u, struct fli_slice words, unsigned rights, char *errmsg,
              size_t errmsg_size) FLI_MUST_USE;

/* Whether any rule of the user grants this right (one bit) for this name. It is not checked whether
 * the user is on. *steps grows by the cost of matching. */
bool acl_may(const struct acl_user *u, unsigned right, struct fli_slice name, uint64_t *steps);
/* The most steps that acl_may() takes with a name of this length. */
size_t acl_steps_max(const struct acl_user *u, size_t name_len);
/* Whether the user can change users: it is on, has the right, and can log in. `certified`: it needs
 * no password for that, since it has a certificate. */
bool acl_is_administrator(const struct acl_user *u, bool certified);
bool acl_may_some(const struct acl_user *u, unsigned right); /* for some name, or for none */
bool acl_may_all(const struct acl_user *u, unsigned right);  /* for every name */

/* Whether anybody may do everything as this user without a password: on, nopass, all rights. */
bool acl_is_open(const struct acl_user *u);

/* Prints the words that turn a new user into this one. The other two print, for one rule, only the
 * words for names or for rights, without parentheses. Returns 0, or the buffer's error. */
int acl_print(const struct acl_user *u, struct fli_buf *out) FLI_MUST_USE;
int acl_print_names(const struct acl_user *u, unsigned rule, struct fli_buf *out) FLI_MUST_USE;
int acl_print_rights(const struct acl_user *u, unsigned rule, struct fli_buf *out) FLI_MUST_USE;
int acl_print_hash(const struct acl_hash *h, struct fli_buf *out) FLI_MUST_USE; /* without the # */

const char *acl_right_name(unsigned right); /* the name of one bit: "see" */
/* The bit with this name; 0 when there is none. */
unsigned acl_right_of(struct fli_slice name);

/* Parses scrypt:N:R:P:SALT:KEY. False for anything else, and for costs that no machine should have
 * to pay. */
bool acl_hash_parse(struct fli_slice text, struct acl_hash *ret);

/* Takes the next word off the text; false at the end. */
bool acl_next_word(struct fli_slice *rest, struct fli_slice *ret);

/* As bytes, canonical: equal users have equal bytes.
 *
 *   flags 1 (1 on, 2 nopass), name (length 1, bytes), passwords: number 1, each log2_n 1, r 1, p 1,
 *   salt 16, key 32; rules: number 1, each rights 1, all names 1; patterns (length 2, bytes) */
#define ACL_ENCODED_MAX                                                                            \
    (1 + 1 + ACL_NAME_MAX + 1 + ACL_PASSWORDS_MAX * (3 + ACL_SALT_SIZE + ACL_KEY_SIZE) + 1 +       \
     2 * ACL_RULES_MAX + 2 + ACL_PATTERNS_SIZE)
size_t acl_encode(const struct acl_user *u, uint8_t out[ACL_ENCODED_MAX]);
/* False when the bytes are no user; r is bad when bytes are missing. */
bool acl_decode(struct fli_reader *r, struct acl_user *ret);

#endif
