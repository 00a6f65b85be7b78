/* server_private.h: what server*.c share; nobody else includes it. */
#ifndef SERVER_SERVER_PRIVATE_H
#define SERVER_SERVER_PRIVATE_H

#include "net/connection_commands.h"
#include "server/access.h"
#include "server/dispatch.h"
#include "server/events.h"
#include "server/monitor.h"
#include "server/frontdoor_open.h"
#include "server/server.h"

struct server {
    uv_loop_t *loop;
    const struct config *config;
    struct server_callbacks cbs;
    struct net_server *net;
    struct node *node; /* NULL until it is made */
    struct dispatch *dispatch;
    struct monitor *monitor;
    struct access *access;
    struct frontdoor_context frontdoor;
    struct events events;
    struct fli_buf confirm; /* scratch */
    struct net_commands commands;
    uv_prepare_t prepare;
    uv_timer_t timer;
    uint64_t timer_at_ms; /* when the timer fires; UINT64_MAX when it is off */
    uint64_t started_ms;
    unsigned connections_max;
    char address[NET_ADDRESS_MAX]; /* of the listener, with the bound port; "" for none */
    char tls_address[NET_ADDRESS_MAX];
    char advertised[MEMBER_ADDRESS_MAX]; /* to the other nodes: see two_addresses() */
    bool asked_with_tls;                 /* the current request */
    char leader_address[MEMBER_ADDRESS_MAX];
    char member_address[MEMBERS_MAX][MEMBER_ADDRESS_MAX];
    unsigned stopping; /* parts that have yet to stop */
    void (*stop_cb)(void *ctx);
    void *stop_ctx;
};

/* server_log.c: callbacks of the node. */
void server_on_node_log(void *ctx, int level, const char *part, const char *message);
void server_on_settings(void *ctx, const struct machine_settings *settings);

/* server_request.c: for struct dispatch_config. */
uint64_t server_source(void *ctx, void *request);
uint64_t server_client_address(void *ctx, void *request);
uint64_t server_conn_address(void *ctx, void *conn);
uint64_t server_conn_user(void *ctx, void *conn);
unsigned server_in_flight(void *ctx, void *request);

/* server_listen.c */
const char *server_pick_address(const struct server *s, const char *advertised,
                                char out[MEMBER_ADDRESS_MAX]);
int server_listen_for_clients(struct server *s, char *errmsg, size_t errmsg_size);

#endif
