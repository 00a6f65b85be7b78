/* transport.c: log lines, security, time limits, binding, members, the end. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/listen.h"
#include "peer/transport_private.h"

/* The kernel keeps as many that wait to be accepted. A turn accepts some of them only, so a storm
 * must find room: whoever finds none calls again after 1 s at the earliest. */
#define TRANSPORT_BACKLOG 1024
#define TICK_MS 10u

/* ---- log ---- */

bool log_throttle_allows(struct log_throttle *s, const char *text, uint64_t now_ms,
                         uint64_t *left_out)
{
    uint32_t crc = fli_crc32c(0, text, strlen(text));
    *left_out = 0;
    for (unsigned i = 0; i < LOG_THROTTLE_LINES; i++) {
        if (s->lines[i].crc == crc && s->lines[i].at_ms != 0 &&
            now_ms - s->lines[i].at_ms < LOG_THROTTLE_AGAIN_MS) {
            return false;
        }
    }
    uint64_t spent = s->spent_until_ms > now_ms ? s->spent_until_ms - now_ms : 0;
    if (spent > (LOG_THROTTLE_BURST - 1) * LOG_THROTTLE_EVERY_MS) {
        s->left_out++;
        return false;
    }
    s->spent_until_ms = now_ms + spent + LOG_THROTTLE_EVERY_MS;
    s->lines[s->next].crc = crc;
    s->lines[s->next].at_ms = now_ms;
    s->next = (s->next + 1) % LOG_THROTTLE_LINES;
    *left_out = s->left_out;
    s->left_out = 0;
    return true;
}

void transport_log(struct transport *t, int level, const char *fmt, ...)
{
    char text[TRANSPORT_LOG_MAX];
    uint64_t left_out;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (!log_throttle_allows(&t->throttle, text, fli_clock_ms(), &left_out)) {
        return;
    }
    if (left_out > 0) {
        host_log(&t->host, level, "%llu more line%s about connections between nodes left out",
                 (unsigned long long)left_out, fli_s(left_out));
    }
    host_log(&t->host, level, "%s", text);
}

/* ---- security ---- */

static void renew(struct transport *t, bool always)
{
    char line[FLI_TLS_LINE_SIZE];
    int level = fli_tls_context_renew(t->security.context, always, line);
    if (level != 0) {
        host_log(&t->host, level, "between nodes: %s", line);
    }
}

void transport_reload(struct transport *t)
{
    if (t->security.context != NULL) {
        renew(t, true);
    }
}

void transport_set_times(struct transport *t, unsigned connect_ms, unsigned answer_ms,
                         unsigned unacked_ms)
{
    t->config.connect_ms = connect_ms;
    t->config.answer_ms = answer_ms;
    t->config.unacked_ms = unacked_ms;
}

void transport_get_security(const struct transport *t, struct transport_security *ret)
{
    *ret = (struct transport_security){
        .handshakes = t->shaken, .failed = t->shake_failed, .deferred = t->shake_deferred};
    if (t->security.context != NULL) {
        ret->trust =
            t->security.certificates ? TRANSPORT_TRUSTS_CERTIFICATES : TRANSPORT_TRUSTS_SECRET;
        fli_tls_context_facts(t->security.context, &ret->facts);
    }
}

/* ---- time limits ---- */

/* They are counted in ticks of the loop, not by a clock. Between two ticks the sockets are read. So
 * a long turn of the loop, or a suspended machine, says nothing about a peer. */
static void tick_cb(uv_timer_t *timer)
{
    struct transport *t = timer->data;
    bool waits = !uv_is_active((uv_handle_t *)&t->listener) && accept_start(t) != 0;
    if (t->security.context != NULL && fli_clock_since_ms(t->files_ms) >= FLI_TLS_FILES_MS) {
        t->files_ms = fli_clock_ms();
        renew(t, false);
    }
    FLI_LIST_FOREACH(pos, &t->all)
    {
        struct stream *s = stream_of(pos);
        if (s->ticks == 1) {
            stream_lose(s, s->phase == STREAM_UNDECIDED ? "this node's disk was not done in time"
                           : s->phase == STREAM_SHAKING ? "no answer in time"
                                                        : "no connection in time");
        }
        s->ticks -= s->ticks > 0;
        waits = waits || s->ticks > 0;
    }
    if (!t->closing) {
        (void)uv_timer_start(timer, tick_cb, waits ? TICK_MS : FLI_TLS_FILES_MS, 0);
    }
}

void transport_tick_soon(struct transport *t)
{
    if (!t->closing && uv_timer_get_due_in(&t->timer) > TICK_MS) {
        (void)uv_timer_start(&t->timer, tick_cb, TICK_MS, 0);
    }
}

void stream_expect(struct stream *s, unsigned within_ms)
{
    s->ticks = 1 + (within_ms + TICK_MS - 1) / TICK_MS;
    transport_tick_soon(s->t);
}

/* ---- binding ---- */

static int transport_bind(struct transport *t, const char *address, char *errmsg,
                          size_t errmsg_size)
{
    char host[256];
    char service[6];
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    if (address_split(address, host, &t->port) != 0) {
        return fli_refuse(errmsg, errmsg_size, FL_EINVAL,
                          "peer address '%.200s' is not HOST:PORT (write [ADDRESS]:PORT for IPv6)",
                          address);
    }
    snprintf(service, sizeof service, "%u", t->port);
    int rv = getaddrinfo(host, service, &hints, &list);
    if (rv != 0) {
        return fli_refuse(errmsg, errmsg_size, FL_ESYSTEM, "peer address %s: %s", address,
                          gai_strerror(rv));
    }
    /* Listening begins here, so that "address in use" is an error before the log is read. No
     * connection is accepted before transport_start(). */
    t->fd = fli_listen_first(list, TRANSPORT_BACKLOG);
    rv = errno;
    freeaddrinfo(list);
    if (t->fd < 0) {
        return fli_refuse(errmsg, errmsg_size, FL_ESYSTEM,
                          "cannot listen for the other nodes on %s: %s%s", address, strerror(rv),
                          rv == EADDRINUSE
                              ? "; another process has it, perhaps another node: stop that one, "
                                "or, for a new node, choose another port with --peer (and in "
                                "--cluster)"
                              : fli_listen_remedy(strerror(rv)));
    }
    return 0;
}

/* ---- start and end ---- */

int transport_create(uv_loop_t *loop, const struct transport_config *config,
                     const struct transport_callbacks *cbs, struct transport **ret, char *errmsg,
                     size_t errmsg_size)
{
    FLI_ASSERT(cbs->check != NULL && cbs->accepted != NULL && cbs->answered != NULL &&
               cbs->absent != NULL && cbs->log != NULL);
    FLI_ASSERT(config->self.node_id != 0 && config->self.incarnation != 0);
    FLI_ASSERT(members_find(&config->members, config->self.node_id) != NULL);
    struct transport *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return fli_refuse(errmsg, errmsg_size, FL_ENOMEM, "out of memory");
    }
    t->loop = loop;
    t->config = *config;
    t->pending_ms = TRANSPORT_PENDING_MS;
    t->cbs = *cbs;
    t->host = (struct host){.ctx = cbs->ctx, .log = cbs->log};
    t->fd = -1;
    fli_list_init(&t->all);
    int rv =
        security_init(&t->security, &config->security, config->self.node_id, errmsg, errmsg_size);
    rv = rv != 0 ? rv : transport_bind(t, config->bind_address, errmsg, errmsg_size);
    if (rv != 0) {
        fli_tls_context_destroy(t->security.context);
        free(t);
        return rv;
    }
    *ret = t;
    return 0;
}

bool transport_is_at(const struct transport *t, const char *address)
{
    static const uint8_t any[16];
    char host[256];
    uint8_t number[16];
    uint16_t port;
    struct sockaddr_storage own;
    socklen_t len = sizeof own;
    if (address_split(address, host, &port) != 0 || port != t->port) {
        return false;
    }
    if (getsockname(t->fd, (struct sockaddr *)&own, &len) != 0 ||
        inet_pton(own.ss_family, host, number) != 1) {
        return true;
    }
    bool four = own.ss_family == AF_INET;
    const void *bound = four ? (const void *)&((struct sockaddr_in *)&own)->sin_addr
                             : (const void *)&((struct sockaddr_in6 *)&own)->sin6_addr;
    size_t size = four ? 4 : 16;
    return memcmp(bound, any, size) == 0 || memcmp(bound, number, size) == 0;
}

int transport_start(struct transport *t, char *errmsg, size_t errmsg_size)
{
    FLI_ASSERT(!t->started);
    int rv = uv_timer_init(t->loop, &t->timer);
    FLI_ASSERT(rv == 0); /* it cannot fail on a live loop */
    t->timer.data = t->listener.data = t;
    t->started = true;
    (void)uv_timer_start(&t->timer, tick_cb, TICK_MS, 0);
    if (t->security.context != NULL) {
        char line[FLI_TLS_LINE_SIZE];
        int level = fli_tls_context_tell(t->security.context, "other nodes are shown", line);
        host_log(&t->host, level, "between nodes: %s", line);
        t->files_ms = fli_clock_ms();
    }
    rv = uv_poll_init(t->loop, &t->listener, t->fd);
    t->listening = rv == 0;
    rv = rv != 0 ? rv : accept_start(t);
    return rv == 0 ? 0
                   : fli_refuse(errmsg, errmsg_size, FL_ESYSTEM,
                                "cannot listen on the peer port: %s", uv_strerror(rv));
}

struct peer_identity *transport_self(struct transport *t)
{
    return &t->config.self;
}

void transport_set_members(struct transport *t, const struct members *members)
{
    t->config.members = *members;
    FLI_LIST_FOREACH(pos, &t->all)
    {
        struct stream *s = stream_of(pos);
        if (s->let_go || members_find(members, s->peer_id) != NULL) {
            continue;
        }
        if (is_accepted(s)) {
            stream_lose(s, "the node is a member no more");
        } else if (s->dialed && s->phase < STREAM_GIVEN) {
            dial_end(s, FL_ENOCONN);
        } else if (t->closing && is_pending(s)) {
            stream_close(s);
        }
    }
}

void transport_hang_up(struct transport *t, uint64_t peer_id, const char *why)
{
    FLI_LIST_FOREACH(pos, &t->all)
    {
        if (is_accepted(stream_of(pos)) && stream_of(pos)->peer_id == peer_id) {
            stream_lose(stream_of(pos), why);
        }
    }
}

/* One of the transport's own handles is closed. */
static void handle_closed(uv_handle_t *handle)
{
    struct transport *t = handle->data;
    if (handle == (uv_handle_t *)&t->listener) {
        t->listening = false;
        transport_maybe_closed(t);
    } else {
        t->started = false;
        t->close_cb(t->close_ctx);
    }
}

void transport_maybe_closed(struct transport *t)
{
    if (t->closing && !t->listening && fli_list_empty(&t->all) &&
        !uv_is_closing((uv_handle_t *)&t->timer)) {
        uv_close((uv_handle_t *)&t->timer, handle_closed);
    }
}

void transport_close(struct transport *t, void (*cb)(void *ctx), void *ctx)
{
    const struct members nobody = {.n = 0};
    FLI_ASSERT(t->started && !t->closing);
    t->closing = true;
    t->close_cb = cb;
    t->close_ctx = ctx;
    uv_timer_stop(&t->timer);
    if (t->listening) {
        uv_close((uv_handle_t *)&t->listener, handle_closed);
    }
    close(t->fd); /* libuv watches it no more */
    t->fd = -1;
    transport_set_members(t, &nobody);
    transport_maybe_closed(t);
}

void transport_destroy(struct transport *t)
{
    if (t == NULL) {
        return;
    }
    FLI_ASSERT(!t->started && fli_list_empty(&t->all));
    if (t->fd >= 0) {
        close(t->fd);
    }
    fli_tls_context_destroy(t->security.context);
    free(t);
}
