/* memory.c: how much memory the clients of a server keep, and which of them is disconnected when it
 * is too much.
 *
 * A connection is counted anew whenever the loop has worked on it, so the sum is right up to what
 * one turn adds. While the sum is above the ceiling, the connection that keeps most is closed: that
 * is a client that asks for much and does not read the answers. Connections that keep little are
 * never looked at for this: all of them together are bounded by their number. */
#include <stdlib.h>

#include "net/conn.h"

#define TLS_BYTES ((size_t)48 << 10) /* what OpenSSL keeps for a connection, about */

static struct net_conn *conn_of(const struct fli_heap_node *n)
{
    return FLI_CONTAINER_OF((struct fli_heap_node *)(uintptr_t)n, struct net_conn, heavy);
}

static bool keeps_more(const struct fli_heap_node *a, const struct fli_heap_node *b)
{
    const struct net_conn *x = conn_of(a);
    const struct net_conn *y = conn_of(b);
    return x->bytes > y->bytes || (x->bytes == y->bytes && x->id < y->id);
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

static void set(struct net_conn *c, size_t bytes)
{
    struct net_server *s = c->server;
    bool listed = c->heavy.pos != FLI_HEAP_NONE;
    s->memory.clients = s->memory.clients - c->bytes + bytes;
    if (s->memory.clients > s->memory.clients_max) {
        s->memory.clients_max = s->memory.clients;
    }
    if (bytes == c->bytes) {
        return;
    }
    c->bytes = bytes;
    if (listed && bytes < NET_HEAVY_MIN) {
        fli_heap_remove(&s->heavy, &c->heavy);
    } else if (listed) {
        fli_heap_update(&s->heavy, &c->heavy);
    } else if (bytes >= NET_HEAVY_MIN && fli_heap_insert(&s->heavy, &c->heavy) != 0) {
        net_conn_doom(c); /* there is no memory at all */
    }
}

/* A client whose kernel has taken everything so far can still be told why. */
static void tell(struct net_conn *c)
{
    static const char text[] = "-LIMIT this client keeps the most of the memory that all clients "
                               "may take (client-memory), "
                               "and does not read its answers: it is cut off\r\n";
    if (c->sending == NULL && c->secure == NULL) {
        uv_buf_t all = uv_buf_init((char *)(uintptr_t)text, sizeof text - 1);
        (void)uv_try_write((uv_stream_t *)&c->tcp, &all, 1);
    }
}

static void cut_largest(struct net_server *s)
{
    struct net_conn *c = conn_of(fli_heap_min(&s->heavy));
    net_server_log(s, 2,
                   "client %llu cut off: all clients together take %zu bytes, more than "
                   "client-memory, and it the most, %zu",
                   (unsigned long long)c->id, s->memory.clients, c->bytes);
    s->memory.cut_off++;
    s->stats.cut_off++;
    tell(c);
    net_conn_doom(c);
    net_memory_forget(c);
}

void net_memory_note(struct net_conn *c)
{
    struct net_server *s = c->server;
    if (c->doomed) {
        net_memory_forget(c);
        return;
    }
    set(c, bytes_of(c));
    while (s->limits.memory_max > 0 && s->memory.clients > s->limits.memory_max &&
           s->heavy.len > 0) {
        cut_largest(s);
    }
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
    ret->largest = s->heavy.len == 0 ? 0 : conn_of(fli_heap_min(&s->heavy))->bytes;
    ret->pooled = s->free_requests_n * (sizeof(struct net_request) + s->user_size) +
                  s->scratch.cap + s->plain.cap + sizeof *s;
    for (unsigned i = 0; i < s->free_buffers_n; i++) {
        ret->pooled += s->free_buffers[i].cap;
    }
}
