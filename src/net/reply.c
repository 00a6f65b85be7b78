/* reply.c: requests in flight and their answers, and pushes: pools, order, the ceiling on unsent
 * bytes.
 *
 * The answer to the oldest request is written directly into the connection's output. Any other
 * answer waits in a buffer of its request until all earlier ones were answered. */
#include <stdlib.h>
#include <string.h>

#include "net/conn.h"

#include "base/clock.h"

void net_buffer_take(struct net_server *s, struct fli_buf *b, size_t max)
{
    if (b->data != NULL) {
        return;
    }
    if (s->free_buffers_n == 0) {
        fli_buf_init(b, max);
        return;
    }
    *b = s->free_buffers[--s->free_buffers_n];
    b->len = 0;
    b->max = max;
}

void net_buffer_give(struct net_server *s, struct fli_buf *b)
{
    if (b->data == NULL) {
        return;
    }
    if (b->cap > NET_BUFFER_KEEP || s->free_buffers_n == NET_BUFFERS_MAX) {
        fli_buf_fini(b);
    } else {
        s->free_buffers[s->free_buffers_n++] = *b;
    }
    fli_buf_init(b, b->max);
}

struct net_request *net_request_take(struct net_conn *c)
{
    struct net_server *s = c->server;
    struct net_request *r = NULL;
    struct fli_list *link = fli_list_pop(&s->free_requests);
    if (link != NULL) {
        s->free_requests_n--;
        r = FLI_CONTAINER_OF(link, struct net_request, link);
    } else {
        r = malloc(sizeof *r + s->user_size);
        if (r == NULL) {
            return NULL;
        }
    }
    fli_list_init(&r->link);
    r->conn = c;
    r->answered = false;
    r->is_push = false;
    r->counted = r->kept = 0;
    r->list = NULL;
    fli_buf_init(&r->reply, s->limits.output_max);
    memset(r->user, 0, s->user_size);
    fli_list_push(&c->requests, &r->link);
    c->in_flight++;
    return r;
}

void net_request_free(struct net_request *r)
{
    struct net_conn *c = r->conn;
    struct net_server *s = c->server;
    FLI_ASSERT(c->in_flight > 0);
    net_list_leave(r);
    fli_list_remove(&r->link);
    c->in_flight--;
    c->replies -= r->counted + r->kept;
    net_buffer_give(s, &r->reply);
    if (s->free_requests_n == NET_REQUESTS_KEEP) {
        free(r);
        return;
    }
    fli_list_push(&s->free_requests, &r->link);
    s->free_requests_n++;
}

void net_conn_drop(struct net_conn *c, const char *why)
{
    c->server->stats.cut_off++;
    net_server_log(c->server, 2, "client %llu cut off: %s", (unsigned long long)c->id, why);
    c->reset = true;
    net_conn_doom(c);
}

void net_conn_advance(struct net_conn *c)
{
    FLI_ASSERT(!c->requests_in_use);
    for (;;) {
        struct fli_list *link = fli_list_first(&c->requests);
        if (link == NULL) {
            break;
        }
        struct net_request *r = FLI_CONTAINER_OF(link, struct net_request, link);
        if (!r->answered) {
            break;
        }
        if (r->reply.len > 0) {
            FLI_ASSERT(c->waiting_len >= r->reply.len);
            c->waiting_len -= r->reply.len;
            net_buffer_take(c->server, &c->out, c->server->limits.output_max);
            if (fli_buf_append(&c->out, r->reply.data, r->reply.len) != 0) {
                net_request_free(r);
                net_conn_drop(c, "no room for its answers");
                return;
            }
        }
        net_request_free(r);
    }
    net_conn_touch(c);
}

static bool is_next(const struct net_request *r)
{
    const struct net_conn *c = r->conn;
    return c->requests.next == &r->link && !c->requests_in_use && r->reply.len == 0;
}

struct fli_buf *net_reply(struct net_request *r)
{
    struct net_conn *c = r->conn;
    struct net_server *s = c->server;
    FLI_ASSERT(!r->answered);
    if (c->doomed) {
        fli_buf_clear(&s->scratch);
        return &s->scratch;
    }
    if (is_next(r)) {
        net_buffer_take(s, &c->out, s->limits.output_max);
        return &c->out;
    }
    net_buffer_take(s, &r->reply, s->limits.output_max);
    return &r->reply;
}

void net_answer(struct net_request *r)
{
    struct net_conn *c = r->conn;
    FLI_ASSERT(!r->answered);
    r->answered = true;
    if (c->doomed) {
        if (!c->requests_in_use) {
            net_request_free(r);
        }
        return;
    }
    c->waiting_len += r->reply.len;
    net_memory_reply(r);
    net_conn_touch(c); /* so that it is counted */
    if (c->requests.next == &r->link && !c->requests_in_use) {
        net_conn_advance(c);
    }
    if (!c->doomed && net_conn_unsent(c) > c->server->limits.output_max) {
        net_conn_drop(c, "it does not read its answers");
    }
}

void net_answer_failed(struct net_request *r)
{
    struct net_conn *c = r->conn;
    FLI_ASSERT(!r->answered);
    r->answered = true;
    if (!c->doomed) {
        net_conn_drop(c, "an answer did not fit below the limit on unsent bytes");
    }
    if (!c->requests_in_use) {
        net_request_free(r);
    }
}

/* --- pushes --- */

/* A push goes behind all answers that are still to come: it is queued as an answer without a
 * request, and joins the push before it when nothing came in between. */
static bool push_behind(struct net_conn *c, const void *data, size_t len)
{
    struct net_request *r = FLI_CONTAINER_OF(c->requests.prev, struct net_request, link);
    if (!r->answered || !r->is_push) {
        r = net_request_take(c);
        if (r == NULL) {
            return false;
        }
        r->answered = r->is_push = true;
        net_buffer_take(c->server, &r->reply, c->server->limits.output_max);
    }
    if (fli_buf_append(&r->reply, data, len) != 0) {
        return false;
    }
    c->waiting_len += len;
    net_memory_reply(r);
    net_conn_touch_later(c);
    return true;
}

static bool push_now(struct net_conn *c, const void *data, size_t len)
{
    net_buffer_take(c->server, &c->out, c->server->limits.output_max);
    if (fli_buf_append(&c->out, data, len) != 0) {
        return false;
    }
    net_conn_touch_later(c);
    return true;
}

bool net_push(struct net_conn *c, const void *data, size_t len)
{
    FLI_ASSERT(!c->requests_in_use);
    if (c->doomed || c->last || c->lingering) {
        return false;
    }
    bool pushed = c->proto == 2 && !fli_list_empty(&c->requests) ? push_behind(c, data, len)
                                                                 : push_now(c, data, len);
    net_memory_note(c); /* it may be flushed in a later turn only */
    return pushed;
}

void net_conn_cut_off(struct net_conn *c, const char *why, const void *last_word, size_t len)
{
    struct net_server *s = c->server;
    if (!net_push(c, last_word, len)) {
        if (!c->doomed && !c->last && !c->lingering) {
            net_conn_drop(c, why);
        }
        return;
    }
    s->stats.cut_off++;
    net_server_log(s, 2, "client %llu cut off: %s", (unsigned long long)c->id, why);
    if (fli_list_linked(&c->watch)) {
        fli_list_remove(&c->watch);
    }
    c->watch_ms = fli_clock_ms() + NET_LAST_WORD_MS;
    fli_list_push(&s->leaving, &c->watch);
    net_server_tick_start(s);
    net_conn_stop(c);
}
