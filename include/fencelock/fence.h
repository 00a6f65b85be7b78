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
 *     durable before it returns. Let nobody be admitted for the same lock between an admission and
 *     the end of the write it was for (one thread, or a mutex per lock): a writer that is admitted
 *     and then dawdles would otherwise write after its successor.
 *
 * See docs/examples/fence_backend.c for the second way in full.
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

/* Opens or creates durable marks in a directory (created when missing; its parent must exist; a
 * local file system). size_max: bytes the marks may take, at least 256 KiB, 0 for 1 GiB; the file
 * may become a sixteenth (at least 1 MiB) larger. The whole database is read and checked; damage is
 * refused, never served as lower marks. 0; FL_EINVAL; FL_EIO; FL_ENOMEM; FL_ECORRUPT; FL_EVERSION
 * (something else, or a later version, lives there); FL_EBUSY (open already, in this process or
 * another). */
FL_API int fl_fence_open(const char *dir, size_t size_max, fl_fence **ret) FL_MUST_USE;
FL_API void fl_fence_close(fl_fence *f); /* NULL is fine */

/* Admits an operation or claim: raises the mark to the token and syncs it to disk when it grew,
 * before returning; threads that raise at the same time share a sync. 0; FL_ESTALE, with the mark
 * in *ret_mark; FL_EINVAL; FL_EIO; FL_ECORRUPT; FL_ENOMEM; FL_ELIMIT (database or disk full:
 * nothing changed). ret_mark may be NULL. On 0 *ret_mark is the token. After FL_EIO or FL_ECORRUPT
 * every call fails until the directory is opened again. Any thread. */
FL_API int fl_fence_admit(fl_fence *f, const void *lock, size_t lock_len, fl_token token,
                          fl_token *ret_mark) FL_MUST_USE;

/* The mark of a lock: what a token is compared with. 0 (FL_TOKEN_NONE) in *ret_mark when there is
 * none; after fl_fence_forget() a lock without a mark of its own has the floor that was given
 * there. Never goes back. Any thread. */
FL_API int fl_fence_mark(fl_fence *f, const void *lock, size_t lock_len,
                         fl_token *ret_mark) FL_MUST_USE;

/* Forgets marks that can no longer matter: those below the smallest live token, which the lock
 * service publishes (INFO min_live_token). At most `max` are removed per call; *ret_removed says
 * how many: call again while it is `max`. min_live becomes a floor, kept on disk: from then on no
 * lock accepts a token below it, whether its mark was forgotten or not. A lower min_live than
 * before changes nothing. Works on a full database. Any thread.
 * Tokens issued by TOKEN (for Redlock) are not held in the lock service and do not count there as
 * live: with those in use, a holder below the floor is refused and must take a new token. */
FL_API int fl_fence_forget(fl_fence *f, fl_token min_live, size_t max,
                           size_t *ret_removed) FL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
