/* spool.h: a backup of the running storage for a client, one at a time: BACKUP [id offset].
 *
 * A worker's thread writes the backup into a nameless file beside the database, from a transaction
 * that reads one commit. Neither the loop nor the writers wait for it. While that transaction is
 * open the database cannot reuse the pages it reads. It closes when the file is written, so a slow
 * client does not make the database grow: it reads the file, piece by piece. A backup that no
 * client reads for SPOOL_IDLE_MS is given up. All but the worker's part runs on the loop's
 * thread. */
#ifndef STORE_SPOOL_H
#define STORE_SPOOL_H

#include <uv.h>

#include "net/net.h"
#include "store/store.h"
#include "wire/request.h"

#define SPOOL_IDLE_MS 30000u
#define SPOOL_STALE_MS 5000u /* after this much silence another client may replace the backup */
#define SPOOL_PIECE ((size_t)64 << 10)   /* the most bytes of one answer */
#define SPOOL_SPARE ((uint64_t)16 << 20) /* disk space that a backup leaves to the database */

struct spool;

struct spool_counts {
    uint64_t made, failed; /* made: read to the end; failed: not made, or not read to the end */
    uint64_t age_ms;       /* since the last one was read to its end */
};

/* 0 or FL_ENOMEM. `log` as in service.h. The store must outlive the loop's last turn. */
int spool_create(uv_loop_t *loop, struct store *store,
                 void (*log)(void *ctx, int level, const char *message), void *ctx,
                 struct spool **ret) FLI_MUST_USE;
/* Takes no more requests; frees itself in the loop once the worker has ended. NULL is fine. */
void spool_close(struct spool *s);

/* Appends the answer: begins a backup (id 0) of a database of so many bytes, or gives the bytes at
 * q's offset. False: it did not fit. */
bool spool_answer(struct spool *s, struct fli_buf *b, const struct fli_request *q,
                  uint64_t db_bytes);
void spool_get_counts(const struct spool *s, struct spool_counts *ret);

#endif
