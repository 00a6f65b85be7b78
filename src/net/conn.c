/* conn.c: one connection: reading, taking requests, writing, and its end. conn.h has the states.
 *
 * The usual turn of the loop: bytes arrive in the shared buffer, requests are parsed in place and
 * handed to the service, their answers are collected, and the check handle writes them out with one
 * call. There are four exceptions:
 *   - The last request is incomplete, or the connection is paused: the rest is copied into an
 *     input buffer of the connection's own.
 *   - The kernel does not take all of the output: the rest goes to uv_write(), and further answers
 *     are collected in a new buffer.
 *   - Framing is lost: the client gets one error, and the connection ends.
 *   - Many connections have much to ask: each is visited for a moment. When the requests' share of
 *     the turn is used up, the rest waits for a later turn (base/turn.h), so that other work of
 *     this loop (heartbeats between nodes) is done in time. Connections that were not visited yet
 *     go before the others, and addresses take turns (line.h), so much work waits behind little. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "net/address.h"
#include "base/clock.h"
#include "net/conn.h"

static struct net_input *input_take(struct net_server *s)
{
    struct fli_list *link = fli_list_pop(&s->free_inputs);
    if (link != NULL) {
        s->free_inputs_n--;
        return FLI_CONTAINER_OF(link, struct net_input, link);
    }
    struct net_input *in = malloc(sizeof *in);
    if (in != NULL) {
        fli_list_init(&in->link);
        fli_buf_init(&in->buf, s->limits.resp.request_max + NET_INPUT_SIZE);
    }
    return in;
}

void net_input_drop(struct net_conn *c)
{
    struct net_server *s = c->server;
    struct net_input *in = c->input;
    if (in == NULL) {
        return;
    }
    c->input = NULL;
    net_buffer_give(s, &in->buf);
    if (s->free_inputs_n == NET_INPUTS_KEEP) {
        free(in);
        return;
    }
    fli_list_push(&s->free_inputs, &in->link);
    s->free_inputs_n++;
}

/* Keeps what a pass over the shared buffer left over, with the parser's state. */
static void input_keep(struct net_conn *c, const uint8_t *data, size_t len)
{
    struct net_server *s = c->server;
    FLI_ASSERT(c->input == NULL);
    c->input = input_take(s);
    if (c->input == NULL) {
        net_conn_doom(c);
        return;
    }
    c->input->parser = s->parser;
    net_buffer_take(s, &c->input->buf, s->limits.resp.request_max + NET_INPUT_SIZE);
    if (fli_buf_append(&c->input->buf, data, len) != 0) {
        net_conn_doom(c);
    }
}

void net_conn_doom(struct net_conn *c)
{
    if (c->doomed) {
        return;
    }
    c->doomed = true;
    if (c->reading) {
        (void)uv_read_stop((uv_stream_t *)&c->tcp);
        c->reading = false;
    }
    net_conn_touch(c);
}

void net_conn_yield(struct net_conn *c, bool served)
{
    struct net_server *s = c->server;
    c->paused = true;
    if (fli_list_linked(&c->yielded) || s->closing) {
        return;
    }
    struct net_waits *w = net_waits_of(c);
    fli_queue_push(served ? &w->yielded : &w->unserved, &c->yielded);
    net_server_stay_awake(s);
}

static void visit(struct net_server *s)
{
    s->visit_ns = fli_clock_ns();
    s->visit_n = 0;
}

static void visited(struct net_server *s)
{
    s->take_ns += fli_clock_ns() - s->visit_ns;
}

/* Whether this connection must let others take their turn. */
static bool must_yield(const struct net_server *s)
{
    uint64_t visit_ns = fli_clock_ns() - s->visit_ns;
    return s->take_ns + visit_ns > s->share_ns ||
           (s->visit_n > 0 && visit_ns > FLI_TURN_VISIT_US * UINT64_C(1000));
}

static bool may_take(struct net_conn *c)
{
    struct net_server *s = c->server;
    if (c->doomed || c->last) {
        return false;
    }
    if (c->waits) {
        c->paused = true;
        return false;
    }
    size_t unsent = net_conn_unsent(c);
    if (c->full) {
        /* Only at half the limit, so that the state does not flip at each request. */
        c->full = c->in_flight > s->limits.pipeline_max / 2 || unsent > s->output_pause / 2;
    } else if (c->in_flight >= s->limits.pipeline_max || unsent > s->output_pause) {
        c->full = true;
        c->server->stats.paused++;
    }
    c->paused = c->full;
    if (!c->paused && must_yield(s)) {
        net_conn_yield(c, s->visit_n > 0);
    }
    return !c->paused;
}

/* A reply made by net itself, in the order of the requests. */
static void answer_error(struct net_conn *c, const char *text)
{
    struct net_request *r = net_request_take(c);
    if (r == NULL) {
        net_conn_doom(c);
        return;
    }
    if (fli_resp_error(net_reply(r), "ERR", "%s", text) != 0) {
        net_answer_failed(r);
        return;
    }
    net_answer(r);
}

static void take_request(struct net_conn *c, const struct fli_resp_parser *p)
{
    struct net_server *s = c->server;
    struct net_request *r = net_request_take(c);
    if (r == NULL) {
        net_conn_doom(c);
        return;
    }
    s->visit_n++;
    if (c->taken++ == 0 && fli_list_linked(&c->watch)) {
        fli_list_remove(&c->watch);
    }
    s->stats.requests++;
    if (!net_transaction(r, p->argv)) {
        s->cbs.request(s->cbs.ctx, r, p->argv, p->argc);
    }
}

/* Takes requests from data until there are no more, or until the connection may take no more.
 * Returns the number of bytes used up. */
static size_t take(struct net_conn *c, struct fli_resp_parser *p, const uint8_t *data, size_t len)
{
    size_t used = 0;
    while (used < len && may_take(c)) {
        switch (fli_resp_next(p, data + used, len - used)) {
        case FLI_RESP_MORE:
            return used;
        case FLI_RESP_REQUEST:
            take_request(c, p);
            break;
        case FLI_RESP_EMPTY:
            break;
        case FLI_RESP_TOOBIG:
            answer_error(c, p->error);
            break;
        case FLI_RESP_BROKEN:
            c->server->stats.broken++;
            answer_error(c, p->error);
            c->last = true;
            fli_resp_parser_init(p, c->server->limits.resp);
            return len;
        }
        size_t n = fli_resp_consume(p);
        FLI_ASSERT(n <= len - used);
        used += n;
    }
    return used;
}

static void take_kept(struct net_conn *c)
{
    struct net_input *in = c->input;
    fli_buf_consume(&in->buf, take(c, &in->parser, in->buf.data, in->buf.len));
    if (c->last || (in->buf.len == 0 && net_parser_idle(&in->parser))) {
        net_input_drop(c);
    }
}

static void take_read(struct net_conn *c, const uint8_t *data, size_t len)
{
    struct net_server *s = c->server;
    if (c->input != NULL) {
        if (fli_buf_append(&c->input->buf, data, len) != 0) {
            net_conn_doom(c);
            return;
        }
        take_kept(c);
        return;
    }
    FLI_ASSERT(net_parser_idle(&s->parser));
    size_t used = take(c, &s->parser, data, len);
    bool rest = used < len || !net_parser_idle(&s->parser);
    if (rest && !c->last && !c->doomed) {
        input_keep(c, data + used, len - used);
    }
    if (!net_parser_idle(&s->parser)) {
        fli_resp_parser_init(&s->parser, s->limits.resp);
    }
}

void net_conn_take(struct net_conn *c, const uint8_t *data, size_t len)
{
    struct net_server *s = c->server;
    enum fli_turn_part part = fli_turn_enter(&s->turn, FLI_TURN_REQUESTS);
    visit(s);
    take_read(c, data, len);
    visited(s);
    fli_turn_leave(&s->turn, part);
    net_memory_note(c);
}

static bool is_deferred(const struct net_conn *c)
{
    return c->secure != NULL && fli_list_linked(&c->secure->deferred);
}

/* A connection is read once in a turn, since libuv reads on as long as reads are full, and not when
 * the requests' share is over. */
static bool may_read(const struct net_conn *c)
{
    const struct net_server *s = c->server;
    return c->read_in != s->turn_n && !net_take_over(s);
}

static void begin_read(struct net_conn *c)
{
    struct net_server *s = c->server;
    s->read_part = fli_turn_enter(&s->turn, FLI_TURN_REQUESTS);
    s->read_at_ns = fli_clock_ns();
    s->counted_ns = s->take_ns + s->shake_ns;
    c->read_in = s->turn_n;
}

/* What is not read waits in the kernel: without room, libuv reads nothing, and read_cb() gets
 * UV_ENOBUFS. */
static void alloc_cb(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    struct net_conn *c = handle->data;
    struct net_server *s = c->server;
    *ret = uv_buf_init(s->read_buf, may_read(c) ? NET_READ_SIZE : 0);
    if (ret->len > 0) {
        begin_read(c);
    }
}

/* A read costs by the byte, and at least a call of the kernel, even if no request comes of it. */
static void count_read(struct net_server *s)
{
    uint64_t took_ns = fli_clock_ns() - s->read_at_ns;
    uint64_t counted_ns = s->take_ns + s->shake_ns - s->counted_ns;
    s->take_ns += took_ns > counted_ns ? took_ns - counted_ns : 0;
    fli_turn_leave(&s->turn, s->read_part);
}

static void got(struct net_conn *c, ssize_t n, const uint8_t *data)
{
    if (n == 0 || c->doomed) {
        return;
    }
    if (n == UV_EOF) {
        net_conn_read_end(c);
        return;
    }
    if (n < 0) {
        net_conn_failed(c, (int)n);
        return;
    }
    c->active_ms = fli_clock_ms();
    c->server->stats.bytes_in += (uint64_t)n;
    if (c->last) {
        return; /* it takes no more requests; reading only detects the end */
    }
    if (c->secure != NULL) {
        net_secure_read(c, data, (size_t)n);
    } else {
        net_conn_take(c, data, (size_t)n);
    }
    if (c->paused || c->last || is_deferred(c)) {
        /* Done at once: the room for what is not taken is that of one read. */
        net_conn_set_reading(c);
        net_conn_touch(c);
    }
}

static void read_cb(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct net_conn *c = stream->data;
    if (n == UV_ENOBUFS && buf->len == 0) {
        net_conn_yield(c, c->read_in == c->server->turn_n);
        net_conn_set_reading(c);
        return;
    }
    struct net_server *s = c->server;
    got(c, n, (const uint8_t *)buf->base);
    count_read(s);
}

/* The poll would read it as well, in an order that the kernel chooses: whoever had its turn in a
 * line would then wait for others once more. */
void net_conn_read_now(struct net_conn *c)
{
    struct net_server *s = c->server;
    uv_os_fd_t fd = -1;
    FLI_ASSERT(c->reading && c->read_in != s->turn_n);
    int rc = uv_fileno((uv_handle_t *)&c->tcp, &fd);
    FLI_ASSERT(rc == 0); /* it is open */
    begin_read(c);
    ssize_t n = recv(fd, s->read_buf, NET_READ_SIZE, MSG_DONTWAIT);
    if (n == 0) {
        got(c, UV_EOF, NULL);
    } else if (n > 0) {
        got(c, n, (const uint8_t *)s->read_buf);
    } else if (errno != EAGAIN && errno != EINTR) {
        got(c, uv_translate_sys_error(errno), NULL);
    } else {
        c->read_in = 0; /* what comes in this turn may still be read */
    }
    count_read(s);
}

void net_conn_set_reading(struct net_conn *c)
{
    bool want = !fli_list_linked(&c->yielded) && !c->doomed &&
                (c->lingering || (!c->paused && !c->eof && !c->last && !is_deferred(c)));
    if (want == c->reading) {
        return;
    }
    c->reading = want;
    int rc = want ? uv_read_start((uv_stream_t *)&c->tcp, alloc_cb, read_cb)
                  : uv_read_stop((uv_stream_t *)&c->tcp);
    if (rc != 0) {
        net_conn_doom(c);
    }
}

static void take_more(struct net_conn *c)
{
    struct net_server *s = c->server;
    enum fli_turn_part part = fli_turn_enter(&s->turn, FLI_TURN_REQUESTS);
    visit(s);
    if (may_take(c) && c->input != NULL) {
        FLI_ASSERT(!c->eof); /* the end is reported only when at most half a request is left
                                over */
        take_kept(c);
    }
    visited(s);
    fli_turn_leave(&s->turn, part);
}

/* Continues with what was left over while the connection was paused. */
static void resume(struct net_conn *c)
{
    if (c->paused && !fli_list_linked(&c->yielded)) {
        take_more(c);
        net_secure_resume(c);
    }
    net_secure_send_end(c);
    net_conn_set_reading(c);
}

static void write_cb(uv_write_t *write, int status)
{
    struct net_sending *sending = FLI_CONTAINER_OF(write, struct net_sending, write);
    struct net_conn *c = sending->conn;
    FLI_ASSERT(c->sending == sending);
    if (status == 0) {
        c->server->stats.bytes_out += c->sending_left;
    }
    c->sending = NULL;
    c->sending_left = 0;
    net_buffer_give(c->server, &sending->buf);
    free(sending);
    if (c->closing) {
        return;
    }
    if (status != 0) {
        net_conn_failed(c, status);
    }
    net_conn_touch(c);
}

static void send_rest(struct net_conn *c, struct fli_buf *b, size_t sent)
{
    struct net_sending *sending = malloc(sizeof *sending);
    if (sending == NULL) {
        net_conn_doom(c);
        return;
    }
    sending->conn = c;
    sending->buf = *b;
    c->sending = sending;
    c->sending_left = b->len - sent;
    fli_buf_init(b, b->max);
    uv_buf_t rest =
        uv_buf_init((char *)sending->buf.data + sent, (unsigned)(sending->buf.len - sent));
    int rc = uv_write(&sending->write, (uv_stream_t *)&c->tcp, &rest, 1, write_cb);
    if (rc != 0) { /* the callback will not be called */
        c->sending = NULL;
        c->sending_left = 0;
        fli_buf_fini(&sending->buf);
        free(sending);
        net_conn_doom(c);
    }
}

void net_conn_send(struct net_conn *c, struct fli_buf *b)
{
    uv_buf_t all = uv_buf_init((char *)b->data, (unsigned)b->len);
    int n = uv_try_write((uv_stream_t *)&c->tcp, &all, 1);
    if (n == UV_EAGAIN) {
        n = 0;
    }
    if (n < 0) {
        net_conn_failed(c, n);
        return;
    }
    c->server->stats.bytes_out += (uint64_t)n;
    if ((size_t)n == b->len) {
        net_buffer_give(c->server, b);
        return;
    }
    send_rest(c, b, (size_t)n);
}

static void flush(struct net_conn *c)
{
    if (c->sending != NULL) {
        return;
    }
    if (c->secure != NULL) {
        net_secure_flush(c);
    } else if (c->out.len > 0) {
        net_conn_send(c, &c->out);
    }
}

void net_conn_work(struct net_conn *c)
{
    if (!c->doomed) {
        flush(c);
    }
    if (!c->doomed) {
        resume(c);
    }
    /* If resume() made more output, the connection is dirty again and is visited once more. */
    if (!c->doomed) {
        net_conn_settle(c);
    }
    net_memory_note(c);
    if (c->doomed) {
        net_conn_reap(c);
    }
}

void net_conn_stop(struct net_conn *c)
{
    c->last = true;
    net_conn_touch(c);
}

static void refuse(struct net_conn *c, bool full)
{
    struct net_server *s = c->server;
    s->stats.refused++;
    if (c->secure != NULL) { /* before TLS's handshake it cannot be told the reason */
        net_conn_doom(c);
        return;
    }
    net_buffer_take(s, &c->out, s->limits.output_max);
    const char *raise = s->limits.fixed ? ""
                        : full          ? ", or raise connections-max"
                                        : ", or raise address-connections and address-memory";
    int rc = full ? fli_resp_error(&c->out, "LIMIT",
                                   "too many connections (this server takes %u): close some%s",
                                   s->limits.connections_max, raise)
                  : fli_resp_error(&c->out, "LIMIT",
                                   "your address has as many connections or as much memory as one "
                                   "may (%u connection%s): close some%s",
                                   s->limits.address_connections_max,
                                   fli_s(s->limits.address_connections_max), raise);
    c->last = true;
    net_conn_touch(c);
    if (rc != 0) {
        net_conn_doom(c);
        return;
    }
    if (s->refused_n > NET_REFUSED_MAX) {
        flush(c); /* too many at once: do not wait for each */
        net_conn_doom(c);
    }
}

static void admit(struct net_conn *c)
{
    struct net_server *s = c->server;
    c->admitted = true;
    if (s->limits.idle_first_ms > 0 && c->secure == NULL) {
        c->watch_ms = c->opened_ms + s->limits.idle_first_ms;
        fli_list_push(&s->fresh, &c->watch);
        net_server_tick_start(s);
    }
    (void)uv_tcp_keepalive(&c->tcp, 1, NET_KEEPALIVE_S);
    net_unread_limit(c);
    if (s->cbs.opened != NULL) {
        s->cbs.opened(s->cbs.ctx, c);
    }
    net_conn_set_reading(c);
}

void net_conn_accept(struct net_listener *l)
{
    struct net_server *s = l->server;
    struct net_conn *c = fli_xcalloc(1, sizeof *c);
    int rc = uv_tcp_init(s->loop, &c->tcp);
    FLI_ASSERT(rc == 0);
    c->tcp.data = c;
    c->server = s;
    c->id = ++s->next_id;
    c->proto = 2;
    c->opened_ms = c->active_ms = fli_clock_ms();
    fli_list_init(&c->dirty);
    fli_list_init(&c->watch);
    fli_list_init(&c->yielded);
    fli_list_init(&c->hung);
    fli_list_init(&c->requests);
    fli_heap_node_init(&c->heavy);
    fli_heap_node_init(&c->heavy_here);
    fli_buf_init(&c->out, s->limits.output_max);
    fli_list_push(&s->conns, &c->link);
    s->conns_n++;
    s->handles++;
    s->stats.accepted++;
    s->refused_n++; /* counted here until it is admitted */
    rc = uv_accept((uv_stream_t *)&l->tcp, (uv_stream_t *)&c->tcp);
    if (rc != 0 || s->stopping) {
        net_conn_doom(c);
        return;
    }
    (void)uv_tcp_nodelay(&c->tcp, 1);
    net_origin_note(c);
    if (l->secure && !net_secure_attach(c)) {
        net_conn_doom(c);
        return;
    }
    bool full = s->conns_n - s->refused_n >= s->limits.connections_max;
    if (full || !net_origin_join(c)) {
        refuse(c, full);
        return;
    }
    s->refused_n--;
    admit(c);
    net_memory_note(c);
}

int net_conn_proto(const struct net_conn *c)
{
    return c->proto;
}

void net_conn_set_proto(struct net_conn *c, int proto)
{
    FLI_ASSERT(proto == 2 || proto == 3);
    c->proto = (uint8_t)proto;
}

void net_conn_set_name(struct net_conn *c, const char *name)
{
    (void)snprintf(c->name, sizeof c->name, "%s", name);
}

uint64_t net_conn_login(const struct net_conn *c)
{
    return c->login;
}

void net_conn_set_login(struct net_conn *c, uint64_t login)
{
    c->login = login;
}

bool net_conn_is_local(const struct net_conn *c)
{
    return c->local;
}

struct fli_slice net_conn_address(const struct net_conn *c)
{
    return (struct fli_slice){c->address, c->address_len};
}

void net_conn_hold(struct net_conn *c)
{
    c->waits = true;
    c->paused = true;
    net_conn_touch(c);
}

void net_conn_release(struct net_conn *c)
{
    c->waits = false;
    if (!c->doomed) {
        net_conn_touch(c);
    }
}

uint64_t net_conn_id(const struct net_conn *c)
{
    return c->id;
}

void *net_conn_user(const struct net_conn *c)
{
    return c->user;
}

void net_conn_set_user(struct net_conn *c, void *user)
{
    c->user = user;
}

bool net_conn_eof(const struct net_conn *c)
{
    return c->eof || c->doomed;
}

void net_conn_close_after_answers(struct net_conn *c)
{
    net_conn_stop(c);
}

static void format_peer(const struct net_conn *c, char *out, size_t size)
{
    char host[64] = "?";
    uint16_t port = 0;
    if (c->address_len > 0) {
        int family = c->address_len == NET_CONN_ADDRESS_MAX ? AF_INET6 : AF_INET;
        (void)uv_inet_ntop(family, c->address, host, sizeof host);
        memcpy(&port, c->address + c->address_len - 2, sizeof port);
    }
    (void)net_address_join(host, ntohs(port), out, size);
}

unsigned net_conn_in_flight(const struct net_conn *c)
{
    return c->in_flight;
}

size_t net_conn_output_bytes(const struct net_conn *c)
{
    return net_conn_unsent(c);
}

void net_conn_info(const struct net_conn *c, struct net_conn_info *ret)
{
    uint64_t now = fli_clock_ms();
    *ret = (struct net_conn_info){.id = c->id,
                                  .proto = c->proto,
                                  .age_ms = now - c->opened_ms,
                                  .idle_ms = now - c->active_ms,
                                  .requests = c->taken,
                                  .output_bytes = net_conn_unsent(c),
                                  .in_flight = c->in_flight};
    memcpy(ret->name, c->name, sizeof ret->name);
    format_peer(c, ret->peer, sizeof ret->peer);
}
