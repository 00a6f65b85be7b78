/* hash.h: turns passwords into salted slow hashes (scrypt, RFC 7914, by OpenSSL), and words of an
 * ACL rule that have passwords in clear into words that the machine accepts. Each hash takes some
 * 40 ms of a core and 16 MiB: call this on a worker's thread, not on a loop's. Any thread may. */
#ifndef AUTH_HASH_H
#define AUTH_HASH_H

#include "machine/acl.h"

#define AUTH_PASSWORD_MAX 512u /* bytes */

/* Hashes with a fresh salt. 0; FL_EINVAL (longer than AUTH_PASSWORD_MAX); FL_ENOMEM. */
int auth_hash(struct fli_slice password, struct acl_hash *ret) FLI_MUST_USE;

/* Compares in constant time. Out of memory counts as a wrong password. */
bool auth_verify(const struct acl_hash *hash, struct fli_slice password);

/* Whether the user may log in with this password: the user is on, and either needs no password or
 * has this one. Takes the time of at least one hash in every case, also when `user` is NULL (there
 * is none) or has no hash, so that the time does not reveal which users exist. */
bool auth_may_log_in(const struct acl_user *user, struct fli_slice password);

/* A short form of a password that says nothing without the key: for comparing it with one that was
 * right a while ago. */
#define AUTH_TAG_SIZE 32u
void auth_tag(const uint8_t key[AUTH_TAG_SIZE], struct fli_slice password,
              uint8_t ret[AUTH_TAG_SIZE]);

/* Appends the words to out. `>PASSWORD` becomes `#HASH`, and `<PASSWORD` becomes `!HASH` if `user`
 * (NULL: none) has that password. Each argument is one word, or one whole selector in brackets,
 * whose words have blanks between them: any other blank is refused, also in a pattern. 0; FL_EINVAL
 * with a sentence that quotes no password; FL_ENOMEM; FL_ELIMIT. */
int auth_words(const struct fli_slice *args, unsigned n, const struct acl_user *user,
               struct fli_buf *out, char *errmsg, size_t errmsg_size) FLI_MUST_USE;

#endif
