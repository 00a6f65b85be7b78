/* server.h: one fencelockd: net, dispatch and node put together on one uv loop. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include <uv.h>

#include "server/config.h"

struct server;

struct server_callbacks {
    void *ctx;
    void (*log)(void *ctx, int level, const char *part, const char *message); /* as in node.h */
    /* The node cannot go on; the process must end without any further answer. */
    void (*fatal)(void *ctx, const char *message);
    /* The log level that was set for all nodes, 1 to 4; 0: the own option applies. May be NULL. */
    void (*log_level)(void *ctx, unsigned level);
};

/* Listens for clients and starts the node; clients are served as soon as the loop runs. `config`
 * must outlive the server. 0 or a code, and a sentence in errmsg. After a failure the loop may hold
 * handles that are being closed, so the process should end. */
int server_create(uv_loop_t *loop, const struct config *config, const struct server_callbacks *cbs,
                  struct server **ret, char *errmsg, size_t errmsg_size) FLI_MUST_USE;

/* The address for clients, with the port that was bound; "" when there is only one with TLS. */
const char *server_address(const struct server *s);

/* The same of the TLS port; "" when there is none. */
const char *server_tls_address(const struct server *s);

/* The state of the node in one line: "node 1 of 3 leads, term 5, 2 of 3 connected, ...". */
void server_describe(struct server *s, char *out, size_t size);

/* Reads the files of TLS again; the log reports the result. */
void server_reload(struct server *s);

/* Ends in order: takes no new requests, hands leadership over, answers what is pending, closes.
 * Calls cb once, from the loop. */
void server_stop(struct server *s, void (*cb)(void *ctx), void *ctx);
void server_destroy(struct server *s); /* after cb; NULL is fine */

#endif
