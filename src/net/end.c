/* end.c: how connections end: clients that hang up, our side shut down, and freeing.
 *
 * A client costs nothing to end, and the server tens of microseconds: its socket, its TLS, its
 * subscriptions, the requests that it had in flight. Thousands may end in one moment, as when one
 * process exits. So hang-ups and freeing have a share of each turn (base/turn.h), and the rest
 * waits for later turns. */
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "net/conn.h"

#include "base/clock.h"

#define US UINT64_C(1000)

static void report_hangup(struct net_conn *c)
{
    struct net_server *s = c->server;
    if (s->cbs.hangup == NULL) {
        return;
    }
    c->requests_in_use = true;
    for (struct fli_list *link = c->requests.next; link != &c->requests; link = link->next) {
        struct net_request *r = FLI_CONTAINER_OF(link, struct net_request, link);
        if (!r->answered) {
            s->cbs.hangup(s->cbs.ctx, r);
        }
    }
    c->requests_in_use = false;
    if (!c->doomed) {
        net_conn_advance(c);
    }
}

/* Many may hang up in one moment, each with all it may have in flight. */
static bool hangups_over(const struct net_server *s)
{
    return s->hung >= NET_HUNG_TURN || s->hang_ns > FLI_TURN_ENDS_US * US;
}

static void hang_up(struct net_conn *c)
{
    struct net_server *s = c->server;
    uint64_t began_ns = fli_clock_ns();
    s->hung += c->in_flight;
    report_hangup(c);
    net_conn_touch(c);
    s->hang_ns += fli_clock_ns() - began_ns;
}

void net_conn_read_end(struct net_conn *c)
{
    struct net_server *s = c->server;
    (void)uv_read_stop((uv_stream_t *)&c->tcp);
    c->reading = false;
    c->eof = true;
    if (c->lingering) {
        net_conn_doom(c);
    } else if (c->in_flight == 0) {
        net_conn_touch(c); /* nobody is to be told */
    } else if (hangups_over(s)) {
        fli_list_push(&s->hanging_up, &c->hung);
        net_server_stay_awake(s);
    } else {
        hang_up(c);
    }
}

/* Shuts down our side and waits for the client's end. Closing a socket that has unread input would
 * reset the connection, and a reset can overtake the answers. */
static void linger(struct net_conn *c)
{
    struct net_server *s = c->server;
    uv_os_fd_t fd = -1;
    int unread = 0;
    net_secure_end(c);
    if (uv_fileno((uv_handle_t *)&c->tcp, &fd) != 0 || ioctl(fd, FIONREAD, &unread) != 0) {
        net_conn_doom(c);
        return;
    }
    if (c->eof || (s->stopping && unread == 0) || shutdown(fd, SHUT_WR) != 0) {
        net_conn_doom(c);
        return;
    }
    net_input_drop(c);
    c->lingering = true;
    c->watch_ms = fli_clock_ms() + NET_LINGER_MS;
    fli_list_remove(&c->watch);
    fli_list_push(&s->lingering, &c->watch);
    net_server_tick_start(s);
    net_conn_set_reading(c);
}

void net_conn_settle(struct net_conn *c)
{
    if (c->doomed || c->lingering || c->in_flight > 0 || net_conn_unsent(c) > 0) {
        return;
    }
    FLI_ASSERT(c->sending == NULL);
    if (c->last) {
        linger(c);
    } else if (c->eof) {
        net_secure_end(c);
        net_conn_doom(c); /* the rest is an incomplete request */
    }
}

static void close_cb(uv_handle_t *handle)
{
    struct net_conn *c = handle->data;
    struct net_server *s = c->server;
    FLI_ASSERT(c->sending == NULL && c->in_flight == 0);
    net_buffer_give(s, &c->out);
    free(c);
    net_server_closed(s);
}

static void free_conn(struct net_conn *c)
{
    struct net_server *s = c->server;
    FLI_ASSERT(c->doomed && !c->closing && !c->requests_in_use);
    c->closing = true;
    net_memory_forget(c);
    fli_list_remove(&c->dirty);
    fli_list_remove(&c->watch);
    net_waits_leave(c);
    fli_list_remove(&c->hung);
    net_input_drop(c);
    net_secure_drop(c);
    struct fli_list *link = NULL;
    while ((link = fli_list_first(&c->requests)) != NULL) {
        struct net_request *r = FLI_CONTAINER_OF(link, struct net_request, link);
        if (!r->answered) {
            r->answered = true;
            s->cbs.cancel(s->cbs.ctx, r);
        }
        net_request_free(r);
    }
    net_origin_leave(c);
    net_list_skip(c);
    fli_list_remove(&c->link);
    FLI_ASSERT(s->conns_n > 0);
    s->conns_n--;
    if (!c->admitted) {
        s->refused_n--;
    } else if (s->cbs.closed != NULL) {
        s->cbs.closed(s->cbs.ctx, c);
    }
    if (!c->reset || uv_tcp_close_reset(&c->tcp, close_cb) != 0) {
        uv_close((uv_handle_t *)&c->tcp, close_cb);
    }
}

static bool reaps_over(const struct net_server *s)
{
    return s->reaped >= NET_REAPED_TURN || s->reap_ns > FLI_TURN_ENDS_US * US;
}

static void reap(struct net_conn *c)
{
    struct net_server *s = c->server;
    uint64_t began_ns = fli_clock_ns();
    s->reaped += c->in_flight;
    free_conn(c);
    s->reap_ns += fli_clock_ns() - began_ns;
}

void net_conn_reap(struct net_conn *c)
{
    struct net_server *s = c->server;
    if (!reaps_over(s)) {
        reap(c);
        return;
    }
    fli_list_remove(&c->dirty);
    c->later = false;
    fli_list_push(&s->ending, &c->dirty);
    net_server_stay_awake(s);
}

void net_ends_go_on(struct net_server *s)
{
    struct fli_list *link = NULL;
    s->hung = s->reaped = 0;
    s->hang_ns = s->reap_ns = 0;
    while (!reaps_over(s) && (link = fli_list_pop(&s->ending)) != NULL) {
        reap(FLI_CONTAINER_OF(link, struct net_conn, dirty));
    }
    while (!hangups_over(s) && (link = fli_list_pop(&s->hanging_up)) != NULL) {
        hang_up(FLI_CONTAINER_OF(link, struct net_conn, hung));
    }
}
