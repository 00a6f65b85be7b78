/* service.h: the storage commands over RESP, with one sync for many writers.
 *
 * Everything parsed in one turn of the loop, from all connections, becomes one group: one
 * transaction and one sync on a worker thread, while the next group collects. Reads go the same
 * way, so a pipeline reads its own writes, and no value is shown before it is on disk. Answers are
 * given on the loop after the sync.
 *
 * The answers to reads are far larger than the requests. When a client is behind with reading its
 * answers, its further reads, and everything after them, are held until it has caught up. So a long
 * pipeline of reads costs little memory, and its client is not taken for one that does not read.
 *
 * In strict mode, the lock service is asked about an operation with a token before the operation
 * gets to the queue (strict.h); what follows it on its connection waits with it.
 *
 * Bounds: bytes that wait for their group, and operations that are held back (beyond: BUSY, for the
 * address that has the most), operations and bytes of a group; net has the others (net.h). One
 * loop, one thread, except for the worker. */
#ifndef STORE_SERVICE_H
#define STORE_SERVICE_H

#include <uv.h>

#include "metrics/histogram.h"
#include "net/net.h"
#include "store/store.h"

#define SERVICE_CONNECTIONS_MAX 20000u
#define SERVICE_PIPELINE_MAX 1024u
#define SERVICE_OUTPUT_MAX ((size_t)32 * 1024 * 1024)
/* Of all connections; beyond it the largest is closed. */
#define SERVICE_CLIENT_MEMORY ((size_t)1 << 30)
#define SERVICE_PENDING_MAX ((size_t)64 * 1024 * 1024) /* bytes of operations not yet answered */
/* Of these, operations of clients that are behind with reading their answers. Each counts as so
 * much at least, which bounds their number. */
#define SERVICE_DEFERRED_MAX (SERVICE_PENDING_MAX / 2)
#define SERVICE_DEFERRED_LEAST ((size_t)4096)
#define SERVICE_GROUP_OPS_MAX 4096u
#define SERVICE_VISITS_MAX 8192u /* operations that one turn takes from the queue */
#define SERVICE_GROUP_BYTES_MAX ((size_t)8 * 1024 * 1024)
/* Unsent answers that hold back further reads. */
#define SERVICE_DEFER_BYTES ((size_t)4 * 1024 * 1024)
#define SERVICE_DRAIN_MS 5000u

struct service;

struct service_config {
    const char *listen;                      /* HOST:PORT, port 0 picks one; NULL: only TLS */
    const char *tls_listen;                  /* the same for TLS; NULL: none */
    const struct fli_tls_config *tls;        /* for tls_listen */
    const struct fli_tls_config *strict_tls; /* for the lock service; NULL: without TLS */
    const char *aclfile;          /* users (users.h); NULL: every client may do everything */
    enum fli_tls_user cert_users; /* which part of a verified certificate names its user */
    const char *strict;           /* the lock service's nodes for strict mode; NULL: no strict
                                   mode */
    unsigned strict_timeout_ms;   /* as in strict_config */
    const char *strict_user, *strict_password; /* likewise */
    void *ctx;
    /* The database failed, and `message` says how. Nothing more will be answered: stop the
     * process. */
    void (*fatal)(void *ctx, int error, const char *message);
    /* May be NULL; level, part and message as in node.h. */
    void (*log)(void *ctx, int level, const char *part, const char *message);
};

/* Listens. The caller owns the store, which must outlive the service. 0, or a code with a sentence
 * in errmsg. On failure it may run the loop for a moment, so call it before anything else is on the
 * loop. */
int service_create(uv_loop_t *loop, struct store *store, const struct service_config *config,
                   struct service **ret, char *errmsg, size_t errmsg_size) FLI_MUST_USE;
uint16_t service_port(const struct service *s);
uint16_t service_tls_port(const struct service *s); /* 0: none */
struct store_info;
void service_get_info(struct service *s, struct store_info *ret); /* the facts for INFO */
/* Times of groups until they were on disk. */
const struct metrics_histogram *service_group_times(const struct service *s);
bool service_is_serving(const struct service *s);
void service_reload(struct service *s); /* reads the files of TLS again */

/* Takes no more requests, answers those it has, closes everything. Then calls cb, once, never
 * inside this call. Clients that do not read their answers are cut off after SERVICE_DRAIN_MS. */
void service_stop(struct service *s, void (*cb)(void *ctx), void *ctx);
void service_destroy(struct service *s); /* after stop's cb; NULL is fine */

#endif
