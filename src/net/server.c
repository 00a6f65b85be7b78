/* server.c: listeners, the turn of the loop, the tick, and the orderly end.
 *
 * Two handles surround the loop's poll: `check` runs after the sockets were read, `prepare` before
 * the loop sleeps. So answers made in between (by a timer, by a raft callback) are written out
 * before the thread can block. */
#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/listen.h"
#include "base/clock.h"
#include "net/address.h"
#include "net/conn.h"

#define US UINT64_C(1000)

_Static_assert(FLI_TURN_REQUESTS_LEAST_US >= FLI_TURN_VISIT_US, "a share has room for a visit");

void net_server_log(struct net_server *s, int level, const char *fmt, ...)
{
    if (s->cbs.log == NULL) {
        return;
    }
    char text[256];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    s->cbs.log(s->cbs.ctx, level, text);
}

/* The loop terminates: a connection becomes dirty again only by taking input that was already read,
 * by being answered, or by being doomed. */
static void flush_dirty(struct net_server *s)
{
    struct fli_list *link = NULL;
    while ((link = fli_list_pop(&s->dirty)) != NULL) {
        net_conn_work(FLI_CONTAINER_OF(link, struct net_conn, dirty));
    }
}

/* One event may be pushed to every connection there is, so this has a share of each turn. */
static void flush_pushed(struct net_server *s)
{
    struct fli_list *link = NULL;
    uint64_t began_ns = fli_clock_ns();
    uint64_t before_ns = s->push_ns;
    while (s->push_ns <= FLI_TURN_PUSHES_US * US && (link = fli_list_pop(&s->pushed)) != NULL) {
        struct net_conn *c = FLI_CONTAINER_OF(link, struct net_conn, dirty);
        c->later = false;
        net_conn_work(c);
        flush_dirty(s);
        s->push_ns = before_ns + (fli_clock_ns() - began_ns);
    }
    if (!fli_list_empty(&s->pushed)) {
        net_server_stay_awake(s);
    }
}

void net_flush(struct net_server *s)
{
    if (s->flushing || (fli_list_empty(&s->dirty) && fli_list_empty(&s->pushed))) {
        return;
    }
    s->flushing = true;
    enum fli_turn_part part = fli_turn_enter(&s->turn, FLI_TURN_WRITES);
    flush_dirty(s);
    if (!fli_list_empty(&s->pushed)) {
        flush_pushed(s);
    }
    fli_turn_leave(&s->turn, part);
    s->flushing = false;
}

static void idle_cb(uv_idle_t *idle)
{
    /* Nothing to do: the loop turns, and continues with connections that have yielded. */
}

void net_server_stay_awake(struct net_server *s)
{
    if (!s->closing) {
        (void)uv_idle_start(&s->idle, idle_cb); /* the callback is not NULL */
    }
}

/* libuv notes the time right after its poll, in whole milliseconds, so a turn may seem up to one
 * longer or shorter. UV_METRICS_IDLE_TIME would be exact, but polls twice. Both times are of the
 * loop's clock, which is compared with no other. */
static void note_idle(struct net_server *s)
{
    s->idle_ns = (uv_now(s->loop) - s->polled_at_ms) * UINT64_C(1000000);
}

static void check_cb(uv_check_t *handle)
{
    note_idle(handle->data);
    net_flush(handle->data);
}

static void continue_handshakes(struct net_server *s)
{
    struct fli_list *link = NULL;
    while (!net_shake_over(s) && ((link = fli_line_pop(&s->deferred_begun)) != NULL ||
                                  (link = fli_line_pop(&s->deferred)) != NULL)) {
        const struct net_secure *sec = FLI_CONTAINER_OF(link, struct net_secure, deferred);
        net_secure_go_on(sec->conn);
    }
}

static bool serve_next(struct net_server *s, struct fli_line *line)
{
    struct fli_list *link = fli_line_pop(line);
    if (link == NULL) {
        return false;
    }
    struct net_conn *c = FLI_CONTAINER_OF(link, struct net_conn, yielded);
    net_conn_work(c);
    if (c->reading && c->read_in != s->turn_n) {
        net_conn_read_now(c);
    }
    return true;
}

/* However long others took, each turn works on one that has had its share, and then on at least one
 * that was not served yet: one request may take longer than the whole share, and the machine may be
 * busy with something else. Otherwise those that were not served yet go first. */
static void serve_waiting(struct net_server *s)
{
    (void)serve_next(s, &s->yielded);
    s->take_ns = net_take_over(s) ? s->share_ns - FLI_TURN_VISIT_US * US : s->take_ns;
    while (serve_next(s, &s->unserved) && !net_take_over(s)) {
    }
    while (!net_take_over(s) && serve_next(s, &s->yielded)) {
    }
}

/* A request causes work outside of its share as well. So the share is halved when a whole turn took
 * long, and grows slowly otherwise. */
static void fit_share(struct net_server *s)
{
    if (s->turn.took_ns > FLI_TURN_LONG_US * US) {
        s->share_ns /= 2;
    } else {
        s->share_ns += s->share_ns / 16;
    }
    s->share_ns = s->share_ns > FLI_TURN_REQUESTS_US * US ? FLI_TURN_REQUESTS_US * US : s->share_ns;
    s->share_ns = s->share_ns < FLI_TURN_REQUESTS_LEAST_US * US ? FLI_TURN_REQUESTS_LEAST_US * US
                                                                : s->share_ns;
}

static void accept_one(struct net_listener *l)
{
    l->waits = false;
    l->server->accepts++;
    net_conn_accept(l);
}

/* libuv then goes on to accept what waits behind it, in this turn. */
static void accept_waiting(struct net_server *s)
{
    for (unsigned i = 0; i < s->listeners_n; i++) {
        if (s->listeners[i]->waits) {
            accept_one(s->listeners[i]);
        }
    }
}

/* Begins a turn: the connections that yielded in the last one continue, within the share.
 * At least half of it is left for connections that send in this turn: else a client with a single
 * request would wait for another turn. */
static void begin_turn(struct net_server *s)
{
    s->take_ns = 0;
    s->shake_ns = 0;
    s->push_ns = 0;
    s->accepts = 0;
    s->turn_n++;
    accept_waiting(s);
    net_ends_go_on(s);
    continue_handshakes(s);
    net_lists_turn(s);
    serve_waiting(s);
    s->take_ns = s->take_ns > s->share_ns / 2 ? s->share_ns / 2 : s->take_ns;
    if (fli_line_empty(&s->yielded) && fli_line_empty(&s->unserved) && fli_list_empty(&s->ending) &&
        fli_list_empty(&s->hanging_up) && fli_list_empty(&s->pushed) &&
        fli_line_empty(&s->deferred) && fli_line_empty(&s->deferred_begun) &&
        fli_list_empty(&s->lists)) {
        (void)uv_idle_stop(&s->idle);
    }
}

static void end_turn(struct net_server *s)
{
    if (!s->turning) {
        /* What came before is the start of the daemon: it opens its log, and delays nobody. */
        s->turning = true;
        fli_turn_init(&s->turn);
        return;
    }
    char text[FLI_TURN_TEXT_MAX];
    if (fli_turn_end(&s->turn, s->idle_ns, text)) {
        net_server_log(s, 2, "%s", text);
    }
    s->idle_ns = 0;
    fit_share(s);
}

static void prepare_cb(uv_prepare_t *handle)
{
    struct net_server *s = handle->data;
    end_turn(s);
    begin_turn(s);
    net_flush(s);
    uv_update_time(s->loop);
    s->polled_at_ms = uv_now(s->loop);
}

static void handle_closed(uv_handle_t *handle)
{
    net_server_closed(handle->data);
}

static void close_own(struct net_server *s)
{
    s->closing = true;
    uv_close((uv_handle_t *)&s->check, handle_closed);
    uv_close((uv_handle_t *)&s->prepare, handle_closed);
    uv_close((uv_handle_t *)&s->tick, handle_closed);
    uv_close((uv_handle_t *)&s->idle, handle_closed);
    uv_close((uv_handle_t *)&s->files, handle_closed);
}

void net_server_closed(struct net_server *s)
{
    FLI_ASSERT(s->handles > 0);
    s->handles--;
    if (s->handles == 0) {
        FLI_ASSERT(s->closing);
        s->stop_cb(s->stop_ctx);
    } else if (s->stopping && !s->closing && s->conns_n == 0) {
        close_own(s);
    }
}

/* --- listening --- */

static void listener_closed(uv_handle_t *handle)
{
    struct net_listener *l = handle->data;
    l->ends = false;
    net_server_closed(l->server);
}

static void listener_close(struct net_listener *l)
{
    if (l->open) {
        l->open = false;
        l->ends = true;
        l->waits = false;
        uv_close((uv_handle_t *)&l->tcp, listener_closed);
    }
}

static void connection_cb(uv_stream_t *stream, int status)
{
    struct net_listener *l = stream->data;
    struct net_server *s = l->server;
    if (status == 0 && s->accepts < NET_ACCEPTS_TURN_MAX) {
        accept_one(l);
        return;
    }
    if (status == 0) {
        /* libuv accepts as long as connections wait, without leaving its loop. One that is not
         * taken from it ends that, until it is taken. */
        l->waits = true;
        net_server_stay_awake(s);
        return;
    }
    net_server_log(s, 2, "cannot accept a connection: %s%s", uv_strerror(status),
                   fli_files_remedy(uv_strerror(status)));
    if (status == UV_EMFILE || status == UV_ENFILE) {
        /* libuv has a spare descriptor to turn such connections away with. When even that is used
         * up, it would try again for ever without leaving its loop. Closing the listener ends
         * that. */
        listener_close(l);
        l->retry = true;
        s->retry_at_ms = fli_clock_ms() + NET_LISTEN_RETRY_MS;
        net_server_tick_start(s);
    }
}

/* Waits for the port for up to `wait_ms`. 0 or libuv's code. */
static int listener_open(struct net_listener *l, uint64_t wait_ms)
{
    struct net_server *s = l->server;
    int fd = fli_listen((const struct sockaddr *)&l->address, l->address_len, NET_BACKLOG, wait_ms);
    if (fd < 0) {
        return uv_translate_sys_error(errno);
    }
    int rc = uv_tcp_init(s->loop, &l->tcp);
    if (rc != 0) {
        (void)close(fd);
        return rc;
    }
    l->tcp.data = l;
    l->open = true;
    s->handles++;
    rc = uv_tcp_open(&l->tcp, fd);
    if (rc != 0) {
        (void)close(fd);
    } else {
        rc = uv_listen((uv_stream_t *)&l->tcp, NET_BACKLOG, connection_cb);
    }
    if (rc == 0) {
        int len = sizeof l->address; /* with the port that was chosen */
        rc = uv_tcp_getsockname(&l->tcp, (struct sockaddr *)&l->address, &len);
    }
    if (rc != 0) {
        listener_close(l);
    }
    return rc;
}

/* Listens on the first of the addresses that works. 0 or libuv's code of the last failure. */
static int listen_first(struct net_server *s, const struct addrinfo *found, bool secure)
{
    int rc = UV_EADDRNOTAVAIL;
    for (const struct addrinfo *a = found; a != NULL; a = a->ai_next) {
        if (a->ai_addrlen > sizeof(struct sockaddr_storage)) {
            continue;
        }
        /* A listener that failed stays in the list: its handle is still being closed. */
        if (s->listeners_n == NET_LISTENERS_MAX) {
            return UV_ENOBUFS;
        }
        struct net_listener *l = fli_xcalloc(1, sizeof *l);
        l->server = s;
        l->secure = secure;
        memcpy(&l->address, a->ai_addr, a->ai_addrlen);
        l->address_len = a->ai_addrlen;
        s->listeners[s->listeners_n++] = l;
        rc = listener_open(l, FLI_LISTEN_WAIT_MS);
        if (rc == 0) {
            return 0;
        }
    }
    return rc;
}

int net_server_listen(struct net_server *s, const char *address, char *errmsg, size_t errmsg_size)
{
    return net_server_listen_on(s, address, false, errmsg, errmsg_size);
}

int net_server_listen_on(struct net_server *s, const char *address, bool secure, char *errmsg,
                         size_t errmsg_size)
{
    char host[NET_HOST_MAX];
    uint16_t port = 0;
    if (net_address_split(address, host, &port) != 0) {
        (void)snprintf(errmsg, errmsg_size,
                       "'%s' is not an address: write HOST:PORT, such as 127.0.0.1:7401", address);
        return FL_EINVAL;
    }
    if (strcmp(host, "*") == 0) {
        (void)snprintf(host, sizeof host, "0.0.0.0");
    }
    char service[8];
    (void)snprintf(service, sizeof service, "%u", (unsigned)port);
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(host, service, &hints, &found);
    if (rc != 0) {
        (void)snprintf(errmsg, errmsg_size, "cannot find the host of %s: %s", address,
                       gai_strerror(rc));
        return FL_EINVAL;
    }
    rc = listen_first(s, found, secure);
    freeaddrinfo(found);
    if (rc != 0) {
        (void)snprintf(errmsg, errmsg_size, "cannot listen on %s: %s%s", address, uv_strerror(rc),
                       fli_listen_remedy(uv_strerror(rc)));
        return FL_ESYSTEM;
    }
    return 0;
}

static uint16_t port_of(const struct net_server *s, bool secure)
{
    for (unsigned i = 0; i < s->listeners_n; i++) {
        if (s->listeners[i]->secure == secure &&
            (s->listeners[i]->open || s->listeners[i]->retry)) {
            struct sockaddr_in v4; /* the port lies at the same place in both versions */
            memcpy(&v4, &s->listeners[i]->address, sizeof v4);
            return ntohs(v4.sin_port);
        }
    }
    return 0;
}

uint16_t net_server_port(const struct net_server *s)
{
    return port_of(s, false);
}

uint16_t net_server_tls_port(const struct net_server *s)
{
    return port_of(s, true);
}

/* --- the tick: runs only while something has a deadline --- */

/* Dooms the connections that are due on a list ordered by watch_ms. */
static void doom_due(struct fli_list *watched, uint64_t now, bool reset)
{
    struct fli_list *link = NULL;
    while ((link = fli_list_first(watched)) != NULL) {
        struct net_conn *c = FLI_CONTAINER_OF(link, struct net_conn, watch);
        if (c->watch_ms > now) {
            return;
        }
        fli_list_remove(&c->watch);
        c->reset = c->reset || reset;
        net_conn_doom(c);
    }
}

static bool retry_listeners(struct net_server *s, uint64_t now)
{
    bool waiting = false;
    for (unsigned i = 0; i < s->listeners_n; i++) {
        struct net_listener *l = s->listeners[i];
        if (!l->retry || s->stopping) {
            continue;
        }
        if (now < s->retry_at_ms || l->ends) {
            waiting = true;
            continue;
        }
        int rc = listener_open(l, 0);
        l->retry = rc != 0;
        if (rc != 0) {
            s->retry_at_ms = now + NET_LISTEN_RETRY_MS;
            waiting = true;
        }
    }
    return waiting;
}

static void tick_cb(uv_timer_t *timer)
{
    struct net_server *s = timer->data;
    uint64_t now = fli_clock_ms();
    doom_due(&s->fresh, now, false);
    doom_due(&s->shaking, now, false);
    doom_due(&s->leaving, now, true);
    doom_due(&s->lingering, now, false);
    bool waiting = retry_listeners(s, now);
    if (s->stopping && now >= s->drain_at_ms) {
        FLI_LIST_FOREACH(link, &s->conns)
        {
            net_conn_doom(FLI_CONTAINER_OF(link, struct net_conn, link));
        }
    }
    if (!waiting && !s->stopping && fli_list_empty(&s->fresh) && fli_list_empty(&s->leaving) &&
        fli_list_empty(&s->lingering) && fli_list_empty(&s->shaking)) {
        (void)uv_timer_stop(timer);
    }
    net_flush(s);
}

void net_server_tick_start(struct net_server *s)
{
    if (!s->closing && !uv_is_active((uv_handle_t *)&s->tick)) {
        int rc = uv_timer_start(&s->tick, tick_cb, NET_TICK_MS, NET_TICK_MS);
        FLI_ASSERT(rc == 0);
    }
}

/* --- life --- */

int net_server_create(uv_loop_t *loop, const struct net_limits *limits, size_t request_user_size,
                      const struct net_callbacks *cbs, struct net_server **ret)
{
    if (limits->connections_max == 0 || limits->pipeline_max == 0 || limits->output_max == 0 ||
        limits->resp.arg_max == 0 || limits->resp.request_max == 0) {
        return FL_EINVAL;
    }
    FLI_ASSERT(cbs->request != NULL && cbs->cancel != NULL);
    struct net_server *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return FL_ENOMEM;
    }
    s->loop = loop;
    s->limits = *limits;
    s->cbs = *cbs;
    s->user_size = request_user_size;
    s->output_pause = limits->output_max / 2;
    fli_list_init(&s->conns);
    fli_list_init(&s->dirty);
    fli_list_init(&s->ending);
    fli_list_init(&s->hanging_up);
    fli_list_init(&s->pushed);
    fli_list_init(&s->lists);
    fli_line_init(&s->unserved);
    fli_line_init(&s->yielded);
    net_waits_init(&s->refused, s);
    fli_turn_init(&s->turn);
    s->share_ns = FLI_TURN_REQUESTS_US * US;
    s->turn_n = 1; /* so that no connection was read in it */
    net_memory_init(s);
    net_origin_init(s);
    fli_list_init(&s->fresh);
    fli_list_init(&s->leaving);
    fli_list_init(&s->lingering);
    fli_list_init(&s->shaking);
    fli_line_init(&s->deferred);
    fli_line_init(&s->deferred_begun);
    fli_list_init(&s->free_requests);
    fli_list_init(&s->free_inputs);
    fli_buf_init(&s->scratch, limits->output_max);
    fli_resp_parser_init(&s->parser, limits->resp);
    int rc = uv_check_init(loop, &s->check);
    rc = rc != 0 ? rc : uv_prepare_init(loop, &s->prepare);
    rc = rc != 0 ? rc : uv_timer_init(loop, &s->tick);
    rc = rc != 0 ? rc : uv_idle_init(loop, &s->idle);
    rc = rc != 0 ? rc : uv_timer_init(loop, &s->files);
    rc = rc != 0 ? rc : uv_check_start(&s->check, check_cb);
    rc = rc != 0 ? rc : uv_prepare_start(&s->prepare, prepare_cb);
    FLI_ASSERT(rc == 0); /* none of these can fail on a live loop */
    s->check.data = s->prepare.data = s->tick.data = s->idle.data = s->files.data = s;
    s->handles = 5;
    *ret = s;
    return 0;
}

void net_server_stop(struct net_server *s, unsigned drain_ms, void (*cb)(void *ctx), void *ctx)
{
    FLI_ASSERT(!s->stopping);
    s->stopping = true;
    s->stop_cb = cb;
    s->stop_ctx = ctx;
    s->drain_at_ms = fli_clock_ms() + drain_ms;
    for (unsigned i = 0; i < s->listeners_n; i++) {
        s->listeners[i]->retry = false;
        listener_close(s->listeners[i]);
    }
    FLI_LIST_FOREACH(link, &s->conns)
    {
        net_conn_stop(FLI_CONTAINER_OF(link, struct net_conn, link));
    }
    if (s->conns_n == 0) {
        close_own(s);
    } else {
        net_server_tick_start(s);
    }
}

static void free_pools(struct net_server *s)
{
    struct fli_list *link = NULL;
    while ((link = fli_list_pop(&s->free_requests)) != NULL) {
        free(FLI_CONTAINER_OF(link, struct net_request, link));
    }
    while ((link = fli_list_pop(&s->free_inputs)) != NULL) {
        free(FLI_CONTAINER_OF(link, struct net_input, link));
    }
    for (unsigned i = 0; i < s->free_buffers_n; i++) {
        fli_buf_fini(&s->free_buffers[i]);
    }
    fli_buf_fini(&s->scratch);
    fli_buf_fini(&s->plain);
    fli_tls_context_destroy(s->tls);
}

void net_server_destroy(struct net_server *s)
{
    if (s == NULL) {
        return;
    }
    FLI_ASSERT(s->handles == 0 && s->conns_n == 0);
    net_memory_fini(s);
    net_origin_fini(s);
    free_pools(s);
    for (unsigned i = 0; i < s->listeners_n; i++) {
        free(s->listeners[i]);
    }
    free(s);
}

void net_each_conn(struct net_server *s, void (*fn)(void *ctx, struct net_conn *c), void *ctx)
{
    FLI_LIST_FOREACH(link, &s->conns)
    {
        struct net_conn *c = FLI_CONTAINER_OF(link, struct net_conn, link);
        if (c->admitted) {
            fn(ctx, c);
        }
    }
}

size_t net_connections(const struct net_server *s)
{
    return s->conns_n - s->refused_n;
}

void net_get_stats(const struct net_server *s, struct net_stats *ret)
{
    *ret = s->stats;
}

struct fli_turn *net_server_turn(struct net_server *s)
{
    return &s->turn;
}
