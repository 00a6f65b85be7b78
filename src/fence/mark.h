/* mark.h: the records of marks in an environment. The library's own directory and a storage that
 * keeps marks beside its data use the same ones. A mark is the highest token that was accepted for
 * a lock; the floor, the least mark that every lock counts as having (rule.h).
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

/* Checks a record with one of the two keys, and returns its number. */
int fli_mark_decode(struct fli_slice key, struct fli_slice value, fl_token *ret) FLI_MUST_USE;

/* The stored mark of a lock, as the transaction sees it; 0 when there is none. */
int fli_mark_get(struct fli_txn *t, struct fli_slice lock, fl_token *ret) FLI_MUST_USE;

/* Checks a token and, when it is higher than the effective mark, stores it. *ret_mark is set on 0
 * and on FL_ESTALE: the mark that the token was compared with. *ret_new (may be NULL): the lock had
 * no mark before. 0; FL_ESTALE; FL_EINVAL; or the transaction's error. */
int fli_mark_raise(struct fli_txn *t, struct fli_slice lock, fl_token floor, fl_token token,
                   fl_token *ret_mark, bool *ret_new) FLI_MUST_USE;

#endif
