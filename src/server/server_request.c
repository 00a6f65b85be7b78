/* server_request.c: what dispatch wants of the connection that a request came on. */
#include "server/server_private.h"

uint64_t server_source(void *ctx, void *request)
{
    const struct net_request *r = request;
    return net_conn_id(r->conn);
}

uint64_t server_client_address(void *ctx, void *request)
{
    const struct net_request *r = request;
    return net_conn_origin(r->conn);
}

/* The same of a connection. */
uint64_t server_conn_address(void *ctx, void *conn)
{
    return net_conn_origin(conn);
}

uint64_t server_conn_user(void *ctx, void *conn)
{
    return net_conn_login(conn);
}

unsigned server_in_flight(void *ctx, void *request)
{
    const struct net_request *r = request;
    return net_conn_in_flight(r->conn);
}
