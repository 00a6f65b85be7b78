/* hash.h: passwords into salted slow hashes (scrypt, RFC 7914, by OpenSSL), and words with
 * passwords in clear into words that the machine takes. Each hash takes some 40 ms of a core and
 * 16 MiB: on a worker's thread, not on a loop's. Any thread. */
#ifndef AUTH_HASH_H
#define AUTH_HASH_H

#include "machine/acl.h"

#define AUTH_PASSWORD_MAX 512u /* bytes */

/* With a fresh salt. 0; FL_EINVAL (longer than AUTH_PASSWORD_MAX); FL_ENOMEM. */
int auth_hash(struct fli_slice password, struct acl_hash *ret) FLI_MUST_USE;

/* Compared in constant time. False also when there is no memory for it. */
bool auth_verify(const struct acl_hash *hash, struct fli_slice password);

/* Whether the user may log in with this password: is on, and it is one of its own, or needs none.
 * Takes the time of one hash at least, also for a user that is NULL (there is none) or has none, so
 * that how long it takes does not tell which users there are. */
bool auth_may_log_in(const struct acl_user *user, struct fli_slice password);

/* Appends the words with `>PASSWORD` as `#HASH`, and `<PASSWORD` as `!HASH` of those that `user`
 * has (NULL: none). Each argument is one word, but for words without passwords, which may be
 * several with blanks between. 0; FL_EINVAL with a sentence that has no password in it; FL_ENOMEM,
 * FL_ELIMIT. */
int auth_words(const struct fli_slice *args, unsigned n, const struct acl_user *user,
               struct fli_buf *out, char *errmsg, size_t errmsg_size) FLI_MUST_USE;

#endif
