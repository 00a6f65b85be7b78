/* mark.h: how a mark lies in an environment, the same for the library's own directory and for a
 * storage that keeps marks beside its data.
 *
 *   key 'L' + the lock's name    value: the mark, u64 little endian
 *   key 'F'                      value: the floor, u64 little endian; missing means 0
 */
#ifndef FLI_FENCE_MARK_H
#define FLI_FENCE_MARK_H

#include "fence/env.h"
#include "fence/rule.h"

#define FLI_MARK_KEY 'L'
#define FLI_MARK_FLOOR 'F'
#define FLI_MARK_SIZE 8u

struct fli_mark_key {
    uint8_t raw[1 + FL_NAME_MAX];
    size_t len;
};

/* lock.len is 1 to FL_NAME_MAX. */
void fli_mark_key_init(struct fli_mark_key *k, struct fli_slice lock);
static inline struct fli_slice fli_mark_key_slice(const struct fli_mark_key *k)
{
    return (struct fli_slice){k->raw, k->len};
}

/* Whether a record with one of the two keys is well formed, and its number. */
int fli_mark_decode(struct fli_slice key, struct fli_slice value, fl_token *ret) FLI_MUST_USE;

/* The stored mark of a lock inside a transaction, 0 when there is none. */
int fli_mark_get(struct fli_txn *t, struct fli_slice lock, fl_token *ret) FLI_MUST_USE;

/* Judges and, when the token is higher than the mark that counts, stores it. *ret_mark is set on 0
 * and on FL_ESTALE: the mark that counted. *ret_new (may be NULL): the lock had none before. 0;
 * FL_ESTALE; FL_EINVAL; or what the transaction gave. */
int fli_mark_raise(struct fli_txn *t, struct fli_slice lock, fl_token floor, fl_token token,
                   fl_token *ret_mark, bool *ret_new) FLI_MUST_USE;

#endif
