/* fence.h: the storage side of fencing tokens, for any backend.
 *
 * For each lock a storage remembers the mark: the highest token it has accepted. An operation with
 * a lower token comes from a holder that has been replaced and must be refused. An equal token
 * means the same holder writes again (Kleppmann, "How to do distributed locking", 2016). A claim
 * raises the mark without writing. A new holder claims before it reads. Otherwise a late write of
 * the old holder can land between its read and its write (docs/GUARANTEES.md, promise 4).
 *
 * There are two ways to use it:
 *   - Your storage has transactions: keep the mark beside the data, call fl_fence_judge() inside
 *     the transaction, and store the new mark in the same one. Pure; no library state.
 *   - It has none: open a fence directory and call fl_fence_admit() before each write. It is
 *     durable before it returns. Between an admission and the end of its write, admit no other
 *     operation for the same lock (use one thread, or a mutex per lock). Otherwise a writer that is
 *     admitted and then delayed would write after its successor.
 *
 * fork(). An open fence directory belongs to the process that has opened it. In a child that
 * inherits it each call but fl_fence_close() fails with FL_EBUSY and does nothing: open it in the
 * process that admits.
 *
 * docs/examples/fence_backend.c shows the second way in full. */
#ifndef FENCELOCK_FENCE_H
#define FENCELOCK_FENCE_H

#include <stddef.h>
#include <stdint.h>

#include "fencelock/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The rule. `mark` is the stored mark of the lock, 0 when there is none. 0: go on, and store
 * *ret_mark (>= mark) together with the write; FL_ESTALE: refuse; FL_EINVAL: the token is 0 or
 * above FL_TOKEN_MAX. *ret_mark is written on success only. Pure; any thread. */
FL_API int fl_fence_judge(fl_token mark, fl_token token, fl_token *ret_mark) FL_MUST_USE;

typedef struct fl_fence fl_fence;

/* Opens or creates durable marks in a directory (created if missing; its parent must exist; a local
 * file system). The marks are in a SQLite file, fencelock.db, which other programs may read.
 * size_max: bytes that the marks may take, at least 256 KiB, 0 for 1 GiB. The file may become a
 * sixteenth (at least 1 MiB) larger, and has a WAL beside it, mostly of some MiB. The whole
 * database is read and checked; damage is refused, never served as lower marks. 0; FL_EINVAL;
 * FL_EIO; FL_ENOMEM; FL_ECORRUPT; FL_EVERSION (the directory belongs to another program, or to
 * another version); FL_EBUSY (it is open already, in this process or another; or another program
 * writes to the file, now or when a mark is to be raised). */
FL_API int fl_fence_open(const char *dir, size_t size_max, fl_fence **ret) FL_MUST_USE;
FL_API void fl_fence_close(fl_fence *f); /* NULL is fine; in a child it frees the child's copy */

/* Admits an operation or claim. If the token is higher than the mark, it raises the mark and syncs
 * it to disk before it returns. Threads that raise at the same time share a sync. 0; FL_ESTALE,
 * with the mark in *ret_mark; FL_EINVAL; FL_EIO; FL_ECORRUPT; FL_ENOMEM; FL_ELIMIT (database or
 * disk full: nothing changed). ret_mark may be NULL. On 0 *ret_mark is the token. After FL_EIO or
 * FL_ECORRUPT every call fails until the directory is opened again. Any thread. */
FL_API int fl_fence_admit(fl_fence *f, const void *lock, size_t lock_len, fl_token token,
                          fl_token *ret_mark) FL_MUST_USE;

/* The mark with which a lock's tokens are compared; 0 (FL_TOKEN_NONE) in *ret_mark when there is
 * none. After fl_fence_forget(), a lock without a mark of its own has the floor given there. Never
 * decreases. Any thread. */
FL_API int fl_fence_mark(fl_fence *f, const void *lock, size_t lock_len,
                         fl_token *ret_mark) FL_MUST_USE;

/* Forgets marks that can no longer matter: those below the smallest live token, which the lock
 * service publishes (INFO min_live_token). At most `max` are removed per call; *ret_removed is
 * their number: call again while it is `max`. min_live becomes a floor, kept on disk: from then on
 * no lock accepts a token below it, whether its mark was forgotten or not. A lower min_live than
 * before changes nothing. Works on a full database. Any thread.
 * Tokens issued by TOKEN (for Redlock) are not held in the lock service and do not count there as
 * live. If you use these tokens, a holder below the floor is refused and must take a new one. */
FL_API int fl_fence_forget(fl_fence *f, fl_token min_live, size_t max,
                           size_t *ret_removed) FL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
