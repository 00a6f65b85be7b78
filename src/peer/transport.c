/* transport.c: binding, deadlines, checks of peers, members, log lines, the end. */
#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/address.h"
#include "base/clock.h"
#include "base/listen.h"
#include "peer/transport_private.h"

/* The kernel keeps as many that wait to be accepted. A turn accepts some of them only, so a storm
 * must find room: whoever finds none calls again after 1 s at the earliest. */
#define TRANSPORT_BACKLOG 1024
#define TICK_MS 10u

/* ---- log ---- */

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

/* ---- checks of peers ---- */

/* Whether two nodes can belong to one cluster, by the members and the state that each began with. A
 * formed cluster knows its nodes by their incarnations. A node that joins it begins empty, not with
 * a restored state. */
static bool began_alike(const struct transport *t, const struct peer_identity *peer)
{
    bool self_formed = t->self.cluster_id != 0;
    bool peer_formed = peer->cluster_id != 0;
    if (peer->members_crc == t->self.members_crc || peer->members_crc == 0 ||
        t->self.members_crc == 0) {
        return true;
    }
    return (self_formed && peer->members_crc == t->members_crc) ||
           (peer_formed && t->self.members_crc == t->members_crc);
}

static int check(struct transport *t, const struct handshake *h, bool *alike,
                 char reason[HANDSHAKE_REASON_MAX])
{
    const struct peer_identity *peer = &h->from;
    unsigned long long peer_id = peer->node_id;
    unsigned long long self_id = t->self.node_id;
    *alike = false;
    if (!began_alike(t, peer)) {
        return fli_refuse(reason, HANDSHAKE_REASON_MAX, HANDSHAKE_OTHER_MEMBERS,
                          "nodes %llu and %llu began with different members, or from different "
                          "backups: give all nodes the same, or join with --join",
                          self_id, peer_id);
    }
    if (peer->cluster_id != 0 && t->self.cluster_id != 0 &&
        peer->cluster_id != t->self.cluster_id) {
        return fli_refuse(reason, HANDSHAKE_REASON_MAX, HANDSHAKE_OTHER_CLUSTER,
                          "node %llu belongs to cluster %016llx, node %llu to cluster %016llx",
                          self_id, (unsigned long long)t->self.cluster_id, peer_id,
                          (unsigned long long)peer->cluster_id);
    }
    *alike = true;
    if (h->target != t->self.node_id) {
        return fli_refuse(reason, HANDSHAKE_REASON_MAX, HANDSHAKE_STRANGER,
                          "node %llu was called, but this is node %llu",
                          (unsigned long long)h->target, self_id);
    }
    bool is_self = peer_id == self_id;
    enum handshake_verdict verdict = HANDSHAKE_WELCOME;
    if (!is_self) {
        verdict = t->cbs.check(t->cbs.ctx, peer, reason);
    }
    if (verdict == HANDSHAKE_WELCOME && (is_self || members_find(&t->members, peer_id) == NULL)) {
        return fli_refuse(reason, HANDSHAKE_REASON_MAX, HANDSHAKE_STRANGER,
                          "node %llu is not another member for node %llu", peer_id, self_id);
    }
    return (int)verdict;
}

enum handshake_verdict transport_check(struct transport *t, const struct handshake *h, bool *alike,
                                       char reason[HANDSHAKE_REASON_MAX])
{
    return (enum handshake_verdict)check(t, h, alike, reason);
}

/* A check may begin and end others. */
void transport_check_again(struct transport *t)
{
    if (!t->started || t->closing) {
        return;
    }
    FLI_LIST_FOREACH(pos, &t->all)
    {
        if (stream_of(pos)->phase == STREAM_UNDECIDED && !stream_of(pos)->closing) {
            shake_check(stream_of(pos));
        }
    }
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
    t->connect_ms = connect_ms;
    t->answer_ms = answer_ms;
    t->unacked_ms = unacked_ms;
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
    bool waits = t->accept_waits && accept_start(t) != 0;
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
    struct fli_address a;
    struct fli_slice text = {(const uint8_t *)address, strlen(address)};
    if (fli_address_split(text, &a) != NULL || a.host.len >= sizeof host) {
        return fli_refuse(errmsg, errmsg_size, FL_EINVAL,
                          "peer address '%.200s' is not HOST:PORT (write [ADDRESS]:PORT for IPv6)",
                          address);
    }
    snprintf(host, sizeof host, "%.*s", (int)a.host.len, (const char *)a.host.data);
    snprintf(service, sizeof service, "%u", a.port);
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
                              ? "; another process has it, perhaps another node: choose "
                                "another port with --peer (and in --cluster)"
                              : fli_listen_remedy(strerror(rv)));
    }
    t->port = fli_listen_port(t->fd);
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
    t->connect_ms = config->connect_ms;
    t->answer_ms = config->answer_ms;
    t->unacked_ms = config->unacked_ms;
    t->pending_ms = TRANSPORT_PENDING_MS;
    t->members = config->members;
    t->self = config->self;
    t->members_crc = config->members_crc;
    t->formats = config->formats;
    t->cbs = *cbs;
    t->host = (struct host){.ctx = cbs->ctx, .log = cbs->log};
    t->fd = -1;
    memcpy(t->limits, config->limits, sizeof t->limits);
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

uint16_t transport_port(const struct transport *t)
{
    return t->port;
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
    return &t->self;
}

void transport_set_members(struct transport *t, const struct members *members)
{
    const struct member *self = members_find(members, t->self.node_id);
    if (self != NULL) {
        (void)snprintf(t->self.peer_address, sizeof t->self.peer_address, "%s", self->address);
    }
    t->members = *members;
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

int transport_dial(struct transport *t, uint64_t peer_id, enum stream_kind kind,
                   transport_dial_cb cb, void *ctx)
{
    const struct member *m = members_find(&t->members, peer_id);
    FLI_ASSERT(kind >= 1 && (unsigned)kind <= STREAM_KINDS && cb != NULL);
    if (m == NULL || peer_id == t->self.node_id) {
        return FL_EINVAL;
    }
    if (t->closing || !t->started) {
        return FL_ENOCONN;
    }
    return dial_start(t, kind, m, cb, ctx);
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
    FLI_LIST_FOREACH(pos, &t->all)
    {
        if (is_pending(stream_of(pos))) {
            stream_close(stream_of(pos));
        }
    }
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
