/* fence.h: the storage side of fencing tokens, for any backend.
 *
 * For each lock a storage remembers the mark: the highest token it has accepted. An operation with
 * a lower token comes from a holder that has been replaced and must be refused; an equal token is
 * the same holder writing again (Kleppmann, "How to do distributed locking", 2016). A claim raises
 * the mark without writing; a new holder claims before it reads, otherwise a late write of the old
 * holder can land between its read and its write (docs/GUARANTEES.md, promise 4).
 *
 * Two ways to use it:
 *   - Your storage has transactions: keep the mark beside the data, call fl_fence_judge() inside
 * the transaction, and store the new mark in the same one. Pure; no library state.
 *   - It has none: open a fence directory and call fl_fence_admit() before each write. It is
 * durable before it returns.
 */
#ifndef FENCELOCK_FENCE_H
#define FENCELOCK_FENCE_H

#include <stddef.h>
#include <stdint.h>

#include "fencelock/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The rule. `mark` is what is stored for the lock, 0 when nothing is. 0: go on, and store *ret_mark
 * (>= mark) together with the write; FL_ESTALE: refuse; FL_EINVAL: the token is 0 or above
 * FL_TOKEN_MAX. *ret_mark is written on success only. Pure; any thread. */
FL_API int fl_fence_judge(fl_token mark, fl_token token, fl_token *ret_mark) FL_MUST_USE;

typedef struct fl_fence fl_fence;

/* Opens or creates durable marks in a directory (created when missing). size_max: bytes the
 * database may grow to, 0 for 1 GiB. 0, FL_EINVAL, FL_EIO, FL_ECORRUPT, FL_EVERSION, FL_EBUSY
 * (another process has it open). */
FL_API int fl_fence_open(const char *dir, size_t size_max, fl_fence **ret) FL_MUST_USE;
FL_API void fl_fence_close(fl_fence *f); /* NULL is fine */

/* Admits an operation or claim: raises the mark to the token and syncs it to disk when it grew,
 * before returning. 0; FL_ESTALE, with the mark in *ret_mark; FL_EINVAL; FL_EIO; FL_ELIMIT
 * (database full). ret_mark may be NULL. On 0 *ret_mark is the token. Any thread. */
FL_API int fl_fence_admit(fl_fence *f, const void *lock, size_t lock_len, fl_token token,
                          fl_token *ret_mark) FL_MUST_USE;

/* The mark of a lock; 0 (FL_TOKEN_NONE) in *ret_mark when there is none. Any thread. */
FL_API int fl_fence_mark(fl_fence *f, const void *lock, size_t lock_len,
                         fl_token *ret_mark) FL_MUST_USE;

/* Forgets marks that can no longer matter: those below the smallest live token, which the lock
 * service publishes (INFO min_live_token). At most `max` are removed per call; *ret_removed says
 * how many. A lock whose mark is forgotten accepts only tokens at or above min_live from then on.
 */
FL_API int fl_fence_forget(fl_fence *f, fl_token min_live, size_t max,
                           size_t *ret_removed) FL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
