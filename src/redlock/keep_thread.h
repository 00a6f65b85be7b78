/* keep_thread.h: a thread that extends locks for a handle whose calls block. */
#ifndef FLI_REDLOCK_KEEP_THREAD_H
#define FLI_REDLOCK_KEEP_THREAD_H

#include "redlock/redlock_private.h"

struct fli_keep_thread;
struct fli_kept; /* one lock */

/* It has a handle of its own with these options. 0; FL_ENOMEM, FL_ESYSTEM, FL_ENOCONN. */
int fli_keep_thread_start(const struct fl_redlock_options *options,
                          struct fli_keep_thread **ret) FLI_MUST_USE;
bool fli_keep_thread_is_ours(const struct fli_keep_thread *t); /* false in a forked child */
/* Stops all without a callback, and waits for its end; not from a callback. NULL is fine. */
void fli_keep_thread_end(struct fli_keep_thread *t);

/* As fl_redlock_keep_start(); ended() is called on the thread. */
int fli_kept_start(struct fli_keep_thread *t, struct fl_bytes name,
                   const struct fl_redlock_lock *lock, uint64_t max_hold_ms,
                   fl_redlock_ended *ended, void *ctx, struct fli_kept **ret) FLI_MUST_USE;
void fli_kept_copy(struct fli_kept *k, struct fl_redlock_lock *ret);
void fli_kept_forget_thread(struct fli_kept *k); /* which has ended */
/* Waits until it is not extended and its callback has returned; from there as well. */
void fli_kept_stop(struct fli_kept *k);

#endif
