/* loadgen_tls.h: TLS on a connection of the load generator. Its sockets block, with time-outs, so a
 * handshake and a write are one call each. Private to it. */
#ifndef CLI_LOADGEN_TLS_H
#define CLI_LOADGEN_TLS_H

#include <hiredis/hiredis.h>

#include "client/link_tls.h"

struct loadgen_tls;

/* Shakes hands on the connection. NULL, with a sentence in errmsg. */
struct loadgen_tls *loadgen_tls_open(redisContext *redis, struct fli_link_tls *with,
                                     const char *host, char *errmsg, size_t errmsg_size);
void loadgen_tls_close(struct loadgen_tls *t); /* NULL is fine */

/* Keeps a request; sends those that were kept; reads once, for the reader of `redis`. 0 or an error
 * code; loadgen_tls_error says why. */
int loadgen_tls_put(struct loadgen_tls *t, const void *data, size_t len) FLI_MUST_USE;
int loadgen_tls_flush(struct loadgen_tls *t) FLI_MUST_USE;
int loadgen_tls_read(struct loadgen_tls *t) FLI_MUST_USE;
const char *loadgen_tls_error(const struct loadgen_tls *t);

#endif
