/* spool.h: a backup of the running storage for a client, one at a time: BACKUP [id offset].
 *
 * A worker's thread writes it into a file without a name beside the database, from a transaction
 * that reads one commit, so neither the loop nor the writers wait for it, and a slow client keeps
 * no page from being used again. Then the file is read piece by piece. What is not asked for in
 * SPOOL_IDLE_MS is given up. One loop, one thread, except for the worker. */
#ifndef STORE_SPOOL_H
#define STORE_SPOOL_H

#include <uv.h>

#include "net/net.h"
#include "store/store.h"
#include "wire/request.h"

#define SPOOL_IDLE_MS 30000u
#define SPOOL_STALE_MS 5000u /* of silence: then another client may begin one in its place */
#define SPOOL_PIECE ((size_t)64 << 10)   /* bytes of one answer, at most */
#define SPOOL_SPARE ((uint64_t)16 << 20) /* what a backup leaves of the disk to the database */

struct spool;

struct spool_counts {
    uint64_t made, failed; /* read to the end; not made, or not read to the end */
    uint64_t age_ms;       /* of the last one that was read to its end */
};

/* 0 or FL_ENOMEM. `log` as in service.h. The store must outlive the loop's last turn. */
int spool_create(uv_loop_t *loop, struct store *store,
                 void (*log)(void *ctx, int level, const char *message), void *ctx,
                 struct spool **ret) FLI_MUST_USE;
/* Takes no more; frees itself once the worker has ended, in the loop. NULL is fine. */
void spool_close(struct spool *s);

/* Appends the answer: begins one (id 0), or the bytes at q's offset. Whether it is whole. */
bool spool_answer(struct spool *s, struct fli_buf *b, const struct fli_request *q);
void spool_get_counts(const struct spool *s, struct spool_counts *ret);

#endif
