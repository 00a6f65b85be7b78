/* server.h: the storage commands over RESP, with one sync for many writers.
 *
 * All operations of one turn of the loop, from all connections, are one transaction. At the end of
 * the turn it is committed, with one sync, and only then are they answered, reads included: no
 * value is shown before it is on disk, and a pipeline reads its own writes. The loop waits for that
 * sync, as Redis does; clients that send meanwhile are in the next turn, together.
 *
 * A connection is held back, with all that it sends, while the lock service is asked about its
 * operation (strict.h). So its order stays, and it keeps little memory. A client that does not read
 * its answers is not read either (net.h).
 *
 * Bounds: operations and answers of a transaction; net has the others (net.h). One loop, one
 * thread. */
#ifndef STORE_SERVER_H
#define STORE_SERVER_H

#include <uv.h>

#include "net/net.h"
#include "store/store.h"
#include "store/strict.h"

#define STORE_CONNECTIONS_MAX 20000u
#define STORE_PIPELINE_MAX 1024u
#define STORE_OUTPUT_MAX ((size_t)32 * 1024 * 1024)
/* Of all connections; beyond it the largest is closed. */
#define STORE_CLIENT_MEMORY ((size_t)1 << 30)
#define STORE_TURN_OPS_MAX 4096u
#define STORE_TURN_OUT_MAX ((size_t)8 * 1024 * 1024) /* bytes of answers that end a transaction */
#define STORE_DRAIN_MS 5000u

struct store_server;

struct store_server_config {
    const char *listen;               /* HOST:PORT, port 0 picks one; NULL: only TLS */
    const char *tls_listen;           /* the same for TLS; NULL: none */
    const struct fli_tls_config *tls; /* for tls_listen */
    const char *aclfile;              /* users (rights.h); NULL: every client may do everything */
    enum fli_tls_user cert_users;     /* which part of a verified certificate names its user */
    struct strict_config strict; /* nodes NULL: no strict mode; ctx and what it calls are ours */
    void *ctx;
    /* The database failed. Nothing more will be answered: stop the process. */
    void (*fatal)(void *ctx, int error);
    void (*log)(void *ctx, int level, const char *message); /* levels as in node.h */
};

/* Listens. The caller owns the store, which must outlive the server. 0, or a code with a sentence
 * in errmsg. On failure it may run the loop for a moment, so call it before anything else is on the
 * loop. */
int store_server_create(uv_loop_t *loop, struct store *store,
                        const struct store_server_config *config, struct store_server **ret,
                        char *errmsg, size_t errmsg_size) FLI_MUST_USE;
struct store_info;
void store_server_get_info(struct store_server *s, struct store_info *ret); /* the facts for INFO */
void store_server_reload(struct store_server *s); /* reads the files of TLS and of users again */

/* Takes no more requests, answers those it has, closes everything. Then calls cb, once, never
 * inside this call. Clients that do not read their answers are cut off after STORE_DRAIN_MS. */
void store_server_stop(struct store_server *s, void (*cb)(void *ctx), void *ctx);
void store_server_destroy(struct store_server *s); /* after stop's cb; NULL is fine */

#endif
