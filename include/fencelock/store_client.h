/* store_client.h: the client of fencelock-store, the sample storage that checks fencing tokens.
 *
 * The order that loses no update (docs/GUARANTEES.md, promise 4): acquire; fl_store_claim() with
 * the new token, or a fenced fl_store_get(); only then read, change, write. Checking writes alone
 * is not enough.
 *
 * Unknown outcomes. Claims and reads are repeated until the timeout, since they only raise the
 * mark. fl_store_set() and fl_store_del() are sent once: a delayed copy would carry the same token
 * as a later write and so could undo it. After FL_EUNCERTAIN of one of these, take a new token
 * (release, acquire, claim) before you write that key again; then the delayed copy is stale. If the
 * release fails, the same owner or session acquires the same token again, which is not a new one.
 *
 * Results as in client.h; FL_ESTALE, FL_EWRONGLOCK and FL_ENOTOKEN are the storage's refusals.
 * `ret_mark` may be NULL; it gets the mark with FL_ESTALE, and is unchanged otherwise. Threads may
 * share a handle; fl_store_error() is of the calling thread's last call. A forked child may use a
 * handle that it inherits: it connects anew, and the parent's connection is not touched (fork() in
 * client.h). */
#ifndef FENCELOCK_STORE_CLIENT_H
#define FENCELOCK_STORE_CLIENT_H

#include "fencelock/client.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fl_store fl_store;

/* The lock and the token under which an operation is done. FL_TOKEN_NONE as the token: not
 * fenced. */
struct fl_fencing {
    struct fl_bytes lock;
    fl_token token;
};

/* address: one, as for fl_open(), and the results of that; fl_store_error(NULL) says why. Of the
 * options it takes timeout_ms, attempt_ms, tls, user, password and on_log. The first call
 * connects. */
FL_API int fl_store_open(const char *address, const struct fl_client_options *options,
                         fl_store **ret) FL_MUST_USE;
FL_API void fl_store_close(fl_store *s);              /* NULL is fine */
FL_API const char *fl_store_error(const fl_store *s); /* as fl_client_error() */

/* Raises the mark of the lock without writing. 0; FL_ESTALE. */
FL_API int fl_store_claim(fl_store *s, struct fl_bytes lock, fl_token token, uint64_t timeout_ms,
                          fl_token *ret_mark) FL_MUST_USE;

/* Reads a key; with a token this is also a claim. 0, and *ret is *ret_len bytes and a zero byte;
 * free it with free(). FL_ENOTFOUND (no such key); FL_ESTALE; FL_EWRONGLOCK. ret_len may be
 * NULL. */
FL_API int fl_store_get(fl_store *s, struct fl_bytes key, struct fl_fencing fencing,
                        uint64_t timeout_ms, fl_token *ret_mark, char **ret,
                        size_t *ret_len) FL_MUST_USE;

/* Writes a key. 0 (on disk); FL_ESTALE; FL_EWRONGLOCK; FL_ENOTOKEN; FL_EUNCERTAIN (see above). */
FL_API int fl_store_set(fl_store *s, struct fl_bytes key, struct fl_bytes value,
                        struct fl_fencing fencing, uint64_t timeout_ms,
                        fl_token *ret_mark) FL_MUST_USE;

/* Deletes a key. 0; FL_ENOTFOUND; others as fl_store_set(). */
FL_API int fl_store_del(fl_store *s, struct fl_bytes key, struct fl_fencing fencing,
                        uint64_t timeout_ms, fl_token *ret_mark) FL_MUST_USE;

/* The mark of a lock, FL_TOKEN_NONE when there is none. */
FL_API int fl_store_mark(fl_store *s, struct fl_bytes lock, uint64_t timeout_ms,
                         fl_token *ret) FL_MUST_USE;

/* ---- with locks ------------------------------------------------------------------------------ */

/* The argument for the calls above while a lock is held; the lock owns its bytes. 0; FL_ENOTHELD
 * when the lock is lost, so that no operation is begun under it any more. */
FL_API int fl_lock_fencing(fl_lock *lock, struct fl_fencing *ret) FL_MUST_USE;

/* fl_lock_take() and then fl_store_claim() for each of the names, so that no earlier holder can
 * write any more: the order that loses no update. When a claim fails, the lock is released, and
 * *ret_store_failed (may be NULL) is true: fl_store_error() says why. Results of both; FL_ENOTHELD
 * also when the lease has run out during the claims. timeout_ms: of a claim. */
FL_API int fl_lock_take_claimed(fl_client *c, fl_store *s, const char *name,
                                const struct fl_take *options, uint64_t timeout_ms,
                                bool *ret_store_failed, fl_lock **ret) FL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
