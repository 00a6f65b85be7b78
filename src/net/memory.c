/* memory.c: the memory of a server's clients, and the choice of the client to disconnect when it is
 * too much.
 *
 * A connection is counted anew whenever the loop has worked on it, so the sum is right except for
 * what one turn adds. While the sum is above the limit, the connection with the most memory is
 * closed: a client that asks for much and does not read the answers. The same goes for the sum of
 * each address (origin.c). Small connections are never considered: their number bounds their sum,
 * and an address at its limit gets no more connections. */
#include <stdio.h>

#include "net/conn.h"

#define TLS_BYTES ((size_t)48 << 10) /* OpenSSL's memory for a connection, about */

static struct net_conn *conn_of(const struct fli_heap_node *n)
{
    return FLI_CONTAINER_OF((struct fli_heap_node *)(uintptr_t)n, struct net_conn, heavy);
}

static struct net_conn *conn_here(const struct fli_heap_node *n)
{
    return FLI_CONTAINER_OF((struct fli_heap_node *)(uintptr_t)n, struct net_conn, heavy_here);
}

static bool larger(const struct net_conn *x, const struct net_conn *y)
{
    return x->bytes > y->bytes || (x->bytes == y->bytes && x->id < y->id);
}

static bool keeps_more(const struct fli_heap_node *a, const struct fli_heap_node *b)
{
    return larger(conn_of(a), conn_of(b));
}

static bool keeps_more_here(const struct fli_heap_node *a, const struct fli_heap_node *b)
{
    return larger(conn_here(a), conn_here(b));
}

void net_memory_heap_init(struct fli_heap *heavy_here)
{
    fli_heap_init(heavy_here, keeps_more_here);
}

void net_memory_init(struct net_server *s)
{
    fli_heap_init(&s->heavy, keeps_more);
}

void net_memory_fini(struct net_server *s)
{
    FLI_ASSERT(s->heavy.len == 0 && s->memory.clients == 0);
    fli_heap_fini(&s->heavy);
}

static size_t requests_bytes(const struct net_conn *c)
{
    const struct net_server *s = c->server;
    size_t each = sizeof(struct net_request) + s->user_size + s->limits.request_memory;
    return c->in_flight * each + c->replies;
}

static size_t output_bytes(const struct net_conn *c)
{
    return c->out.cap + (c->sending == NULL ? 0 : sizeof *c->sending + c->sending->buf.cap);
}

static size_t bytes_of(const struct net_conn *c)
{
    size_t n = sizeof *c + output_bytes(c) + requests_bytes(c) + c->subscribed;
    n += c->input == NULL ? 0 : sizeof *c->input + c->input->buf.cap;
    if (c->secure != NULL) {
        n += sizeof *c->secure + c->secure->in.cap + c->secure->out.cap;
        n += c->secure->tls == NULL ? 0 : TLS_BYTES;
    }
    return n;
}

/* False: there is no memory left at all. */
static bool place(struct fli_heap *heap, struct fli_heap_node *node, size_t bytes)
{
    bool listed = node->pos != FLI_HEAP_NONE;
    if (listed && bytes < NET_HEAVY_MIN) {
        fli_heap_remove(heap, node);
    } else if (listed) {
        fli_heap_update(heap, node);
    } else if (bytes >= NET_HEAVY_MIN) {
        return fli_heap_insert(heap, node) == 0;
    }
    return true;
}

static void set(struct net_conn *c, size_t bytes)
{
    struct net_server *s = c->server;
    struct net_origin *o = c->origin;
    if (bytes == c->bytes) {
        return;
    }
    s->memory.clients = s->memory.clients - c->bytes + bytes;
    if (s->memory.clients > s->memory.clients_max) {
        s->memory.clients_max = s->memory.clients;
    }
    if (o != NULL) {
        o->bytes = o->bytes - c->bytes + bytes;
    }
    if (o != NULL && o->bytes > s->memory.origin_max) {
        s->memory.origin_max = o->bytes;
    }
    c->bytes = bytes;
    if (!place(&s->heavy, &c->heavy, bytes) ||
        (o != NULL && !place(&o->heavy, &c->heavy_here, bytes))) {
        net_conn_doom(c);
    }
}

/* A client whose kernel has taken everything so far can still be told the reason. */
static void try_send_reason(struct net_conn *c, const char *of, const char *option)
{
    char text[192];
    int len = snprintf(text, sizeof text,
                       "-LIMIT this client keeps the most of the memory that %s may take (%s), and "
                       "does not read its answers: it is cut off\r\n",
                       of, option);
    if (c->sending == NULL && c->secure == NULL) {
        uv_buf_t all = uv_buf_init(text, (unsigned)len);
        (void)uv_try_write((uv_stream_t *)&c->tcp, &all, 1);
    }
}

static void cut(struct net_conn *c, const char *of, const char *option, size_t bytes)
{
    struct net_server *s = c->server;
    option = s->limits.fixed ? "a fixed limit" : option;
    net_server_log(s, 2,
                   "client %llu cut off: %s take %zu bytes, more than %s, and it the most, %zu",
                   (unsigned long long)c->id, of, bytes, option, c->bytes);
    s->stats.cut_off++;
    try_send_reason(c, of, option);
    net_conn_doom(c);
    net_memory_forget(c);
}

static bool is_above(size_t bytes, size_t max, const struct fli_heap *heavy)
{
    return max > 0 && bytes > max && heavy->len > 0;
}

static void cut_off_largest(struct net_server *s, struct net_origin *o)
{
    while (o != NULL && is_above(o->bytes, s->limits.address_memory_max, &o->heavy)) {
        s->memory.origin_cut_off++;
        cut(conn_here(fli_heap_min(&o->heavy)), "all clients of one address", "address-memory",
            o->bytes);
    }
    while (is_above(s->memory.clients, s->limits.memory_max, &s->heavy)) {
        s->memory.cut_off++;
        cut(conn_of(fli_heap_min(&s->heavy)), "all clients together", "client-memory",
            s->memory.clients);
    }
}

void net_memory_note(struct net_conn *c)
{
    struct net_server *s = c->server;
    if (c->doomed) {
        net_memory_forget(c);
        return;
    }
    set(c, bytes_of(c));
    cut_off_largest(s, c->origin);
}

void net_memory_forget(struct net_conn *c)
{
    set(c, 0);
}

void net_memory_reply(struct net_request *r)
{
    r->conn->replies += r->reply.cap - r->counted;
    r->counted = r->reply.cap;
}

void net_request_keeps(struct net_request *r, size_t bytes)
{
    r->conn->replies += bytes - r->kept;
    r->kept = bytes;
    net_conn_touch(r->conn); /* so that it is counted */
}

void net_conn_set_subscribed(struct net_conn *c, size_t bytes)
{
    c->subscribed = bytes;
    if (!c->closing) {
        net_conn_touch(c); /* so that it is counted */
    }
}

void net_get_memory(const struct net_server *s, struct net_memory *ret)
{
    *ret = s->memory;
    ret->limit = s->limits.memory_max;
    ret->heavy = s->heavy.len;
    ret->origins = s->origins.len;
    ret->origin_limit = s->limits.address_memory_max;
    ret->origin_connections_limit = s->limits.address_connections_max;
    ret->largest = s->heavy.len == 0 ? 0 : conn_of(fli_heap_min(&s->heavy))->bytes;
    ret->pooled = s->free_requests_n * (sizeof(struct net_request) + s->user_size) +
                  s->scratch.cap + s->plain.cap + sizeof *s;
    for (unsigned i = 0; i < s->free_buffers_n; i++) {
        ret->pooled += s->free_buffers[i].cap;
    }
}
