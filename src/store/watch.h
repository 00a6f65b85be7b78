/* watch.h: metrics and probes of the storage server, over HTTP (metrics/listener.h). It shows no
 * names of locks, and has no status page. */
#ifndef STORE_WATCH_H
#define STORE_WATCH_H

#include <uv.h>

#include "store/server.h"

struct store_watch;

/* `address`: HOST:PORT, port 0 picks one; data_dir is checked for free space. Both, and the
 * server, must outlive it. 0; FL_EINVAL, FL_ESYSTEM with a sentence in errmsg. */
int store_watch_create(uv_loop_t *loop, const char *address, const char *data_dir,
                       struct store_server *server, struct store_watch **ret, char *errmsg,
                       size_t errmsg_size) FLI_MUST_USE;
uint16_t store_watch_port(const struct store_watch *w);
/* Call it before the server is destroyed. Calls cb once, from the loop; cb may free. */
void store_watch_stop(struct store_watch *w, void (*cb)(void *ctx), void *ctx);
void store_watch_destroy(struct store_watch *w); /* call it after cb; NULL is fine */

#endif
