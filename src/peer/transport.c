/* transport.c: binding, handshakes under way, deadlines, checks of peers, log lines, closing. See
 * transport.h. */
#include "peer/transport.h"

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

#define CERT_WARN_DAYS 14 /* an earlier end is worth a warning */

/* ---- log ---- */

void transport_log(struct transport *t, int level, const char *fmt, ...)
{
    char text[TRANSPORT_LOG_MAX];
    char note[TRANSPORT_LOG_MAX];
    uint64_t left_out;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (t->cbs.log == NULL || !log_throttle_allows(&t->throttle, text, fli_clock_ms(), &left_out)) {
        return;
    }
    if (left_out > 0) {
        snprintf(note, sizeof note, "%llu more line%s about connections between nodes left out",
                 (unsigned long long)left_out, fli_s(left_out));
        t->cbs.log(t->cbs.ctx, level, note);
    }
    t->cbs.log(t->cbs.ctx, level, text);
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

enum handshake_verdict transport_check(struct transport *t, const struct handshake *h, bool *alike,
                                       char reason[HANDSHAKE_REASON_MAX])
{
    const struct peer_identity *peer = &h->from;
    unsigned long long peer_id = peer->node_id;
    unsigned long long self_id = t->self.node_id;
    *alike = false;
    if (!began_alike(t, peer)) {
        snprintf(
            reason, HANDSHAKE_REASON_MAX,
            "nodes %llu and %llu began with different members, or from different backups: give all "
            "nodes the same, or join with --join",
            self_id, peer_id);
        return HANDSHAKE_OTHER_MEMBERS;
    }
    if (peer->cluster_id != 0 && t->self.cluster_id != 0 &&
        peer->cluster_id != t->self.cluster_id) {
        snprintf(reason, HANDSHAKE_REASON_MAX,
                 "node %llu belongs to cluster %016llx, node %llu to cluster %016llx", self_id,
                 (unsigned long long)t->self.cluster_id, peer_id,
                 (unsigned long long)peer->cluster_id);
        return HANDSHAKE_OTHER_CLUSTER;
    }
    *alike = true;
    if (h->target != t->self.node_id) {
        snprintf(reason, HANDSHAKE_REASON_MAX, "node %llu was called, but this is node %llu",
                 (unsigned long long)h->target, self_id);
        return HANDSHAKE_STRANGER;
    }
    if (peer->node_id == t->self.node_id) {
        snprintf(reason, HANDSHAKE_REASON_MAX, "node %llu is not another member for node %llu",
                 peer_id, self_id);
        return HANDSHAKE_STRANGER;
    }
    enum handshake_verdict verdict = t->cbs.check(t->cbs.ctx, peer, reason);
    if (verdict == HANDSHAKE_WELCOME && members_find(&t->members, peer->node_id) == NULL) {
        snprintf(reason, HANDSHAKE_REASON_MAX, "node %llu is not another member for node %llu",
                 peer_id, self_id);
        return HANDSHAKE_STRANGER;
    }
    return verdict;
}

/* ---- handshakes under way ---- */

static struct shake *shake_of(struct fli_list *pos)
{
    return FLI_CONTAINER_OF(pos, struct shake, link);
}

void shake_init(struct shake *s, struct transport *t)
{
    s->t = t;
    fli_buf_init(&s->leftover, CHANNEL_READ_SIZE);
    fli_list_init(&s->link);
    fli_list_push(&t->shaking, &s->link);
}

void shake_fini(struct shake *s)
{
    fli_list_remove(&s->link);
    fli_buf_fini(&s->leftover);
}

void shake_bytes(void *shake, const uint8_t *data, size_t len)
{
    struct shake *s = shake;
    struct transport *t = s->t;
    size_t n = HANDSHAKE_SIZE - s->got < len ? HANDSHAKE_SIZE - s->got : len;
    memcpy(s->buf + s->got, data, n);
    s->got += n;
    if (s->got == HANDSHAKE_SIZE) {
        s->check(s, (struct fli_slice){data + n, len - n});
        deadlines_changed(t);
    }
}

bool shake_send(struct shake *s, const struct handshake *h)
{
    struct fli_buf out;
    uint8_t bytes[HANDSHAKE_SIZE];
    handshake_encode(h, &s->t->formats, bytes);
    fli_buf_init(&out, sizeof bytes);
    if (fli_buf_append(&out, bytes, sizeof bytes) != 0) {
        channel_lose(s->channel, CHANNEL_FAILED, "out of memory");
        return false;
    }
    bool sent = channel_write(s->channel, &out);
    fli_buf_fini(&out);
    return sent;
}

static struct shake *first_due(struct transport *t)
{
    FLI_LIST_FOREACH(pos, &t->shaking)
    {
        if (shake_of(pos)->due) {
            return shake_of(pos);
        }
    }
    return NULL;
}

/* Each result may begin and end others, so the list is read anew after each. */
void transport_check_again(struct transport *t)
{
    struct shake *s;
    if (!t->started || t->closing) {
        return;
    }
    FLI_LIST_FOREACH(pos, &t->shaking)
    {
        shake_of(pos)->due = shake_of(pos)->waits;
    }
    while ((s = first_due(t)) != NULL) {
        struct fli_buf leftover = s->leftover;
        s->due = false;
        fli_buf_init(&s->leftover, CHANNEL_READ_SIZE);
        s->check(s, (struct fli_slice){leftover.data, leftover.len});
        fli_buf_fini(&leftover);
    }
    deadlines_changed(t);
}

/* ---- deadlines ---- */

void deadline_set(struct deadline *d, unsigned after_ms)
{
    d->at_ms = fli_clock_ms() + after_ms;
    d->late = false;
}

bool deadline_over(struct deadline *d)
{
    uint64_t now_ms = fli_clock_ms();
    if (now_ms < d->at_ms) {
        return false;
    }
    if (d->late) {
        return true;
    }
    d->late = true; /* the sockets are read before the timer runs out once more */
    d->at_ms = now_ms;
    return false;
}

/* ---- security ---- */

static void log_facts(struct transport *t, const char *what)
{
    struct fli_tls_facts f;
    fli_tls_context_facts(security_context(t->security), &f);
    if (security_has_certificates(t->security)) {
        host_log(&t->host, f.cert_days < CERT_WARN_DAYS ? 2 : 3,
                 "between nodes: %s %s, %lld days left", what, f.subject, (long long)f.cert_days);
    } else {
        host_log(&t->host, 3, "between nodes: %s the secret in the file", what);
    }
}

void transport_reload(struct transport *t)
{
    char errmsg[FLI_TLS_ERRMSG_SIZE];
    if (t->security == NULL) {
        return;
    }
    if (fli_tls_context_reload(security_context(t->security), errmsg, sizeof errmsg) == 0) {
        log_facts(t, "new connections get");
        return;
    }
    host_log(&t->host, 2,
             "between nodes: the new files are refused, and the old ones stay in use: %s", errmsg);
}

static void files_sweep(struct transport *t)
{
    if (t->security == NULL || !deadline_over(&t->files)) {
        return;
    }
    deadline_set(&t->files, TRANSPORT_FILES_MS);
    if (fli_tls_context_changed(security_context(t->security))) {
        transport_reload(t);
    }
}

void transport_set_times(struct transport *t, unsigned connect_ms, unsigned answer_ms,
                         unsigned unacked_ms)
{
    t->connect_ms = connect_ms;
    t->answer_ms = answer_ms;
    t->shared.unacked_ms = unacked_ms;
}

void transport_get_security(const struct transport *t, struct transport_security *ret)
{
    *ret = (struct transport_security){.handshakes = t->shared.shaken,
                                       .failed = t->shared.shake_failed,
                                       .deferred = t->shared.shake_deferred};
    if (t->security != NULL) {
        ret->trust = security_has_certificates(t->security) ? TRANSPORT_TRUSTS_CERTIFICATES
                                                            : TRANSPORT_TRUSTS_SECRET;
        fli_tls_context_facts(security_context(t->security), &ret->facts);
    }
}

/* ---- the timer ---- */

static void timer_cb(uv_timer_t *timer)
{
    struct transport *t = timer->data;
    files_sweep(t);
    accept_sweep(t);
    FLI_LIST_FOREACH_SAFE(pos, tmp, &t->shaking)
    {
        struct shake *s = shake_of(pos);
        if (s->channel != NULL && deadline_over(&s->deadline)) {
            s->late(s);
        }
    }
    deadlines_changed(t);
}

static uint64_t earlier(uint64_t at_ms, bool set, const struct deadline *d)
{
    return set && d->at_ms < at_ms ? d->at_ms : at_ms;
}

void deadlines_changed(struct transport *t)
{
    uint64_t now_ms = fli_clock_ms();
    FLI_ASSERT(t->started);
    if (t->closing) {
        return;
    }
    uint64_t at_ms = earlier(UINT64_MAX, t->security != NULL, &t->files);
    at_ms = earlier(at_ms, t->accept_paused, &t->accept_retry);
    FLI_LIST_FOREACH(pos, &t->shaking)
    {
        at_ms = earlier(at_ms, shake_of(pos)->channel != NULL, &shake_of(pos)->deadline);
    }
    if (at_ms == UINT64_MAX) {
        uv_timer_stop(&t->timer);
        return;
    }
    int rv = uv_timer_start(&t->timer, timer_cb, at_ms > now_ms ? at_ms - now_ms : 1, 0);
    FLI_ASSERT(rv == 0);
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
        snprintf(errmsg, errmsg_size,
                 "peer address '%.200s' is not HOST:PORT (write [ADDRESS]:PORT for IPv6)", address);
        return FL_EINVAL;
    }
    snprintf(host, sizeof host, "%.*s", (int)a.host.len, (const char *)a.host.data);
    snprintf(service, sizeof service, "%u", a.port);
    int rv = getaddrinfo(host, service, &hints, &list);
    if (rv != 0) {
        snprintf(errmsg, errmsg_size, "peer address %s: %s", address, gai_strerror(rv));
        return FL_ESYSTEM;
    }
    /* Listening begins here, so that "address in use" is an error before the log is read. No
     * connection is accepted before transport_start(). */
    t->fd = fli_listen_first(list, TRANSPORT_BACKLOG);
    rv = errno;
    freeaddrinfo(list);
    if (t->fd < 0) {
        snprintf(errmsg, errmsg_size, "cannot listen for the other nodes on %s: %s%s", address,
                 strerror(rv),
                 rv == EADDRINUSE ? "; another process has it, perhaps another node: choose "
                                    "another port with --peer (and in --cluster)"
                                  : fli_listen_remedy(strerror(rv)));
        return FL_ESYSTEM;
    }
    t->port = fli_listen_port(t->fd);
    return 0;
}

/* ---- start and end ---- */

static void channel_gone(void *ctx)
{
    struct transport *t = ctx;
    FLI_ASSERT(t->channels > 0);
    t->channels--;
    transport_maybe_closed(t);
}

int transport_channel(struct transport *t, struct channel **ret)
{
    int rv = channel_create(&t->shared, ret);
    t->channels += rv == 0 ? 1 : 0;
    return rv;
}

int transport_create(uv_loop_t *loop, const struct transport_config *config,
                     const struct transport_callbacks *cbs, struct transport **ret, char *errmsg,
                     size_t errmsg_size)
{
    FLI_ASSERT(cbs->check != NULL && cbs->accepted != NULL);
    FLI_ASSERT(config->self.node_id != 0 && config->self.incarnation != 0);
    FLI_ASSERT(members_find(&config->members, config->self.node_id) != NULL);
    struct transport *t = calloc(1, sizeof *t);
    if (t == NULL) {
        snprintf(errmsg, errmsg_size, "out of memory");
        return FL_ENOMEM;
    }
    t->shared.loop = loop;
    t->shared.unacked_ms = config->unacked_ms;
    t->shared.gone_ctx = t;
    t->shared.gone = channel_gone;
    t->connect_ms = config->connect_ms;
    t->answer_ms = config->answer_ms;
    t->pending_ms = config->pending_ms == 0 ? TRANSPORT_PENDING_MS : config->pending_ms;
    t->members = config->members;
    t->self = config->self;
    t->members_crc = config->members_crc;
    t->formats = config->formats;
    t->cbs = *cbs;
    t->host = (struct host){.ctx = cbs->ctx, .log = cbs->log};
    t->fd = -1;
    memcpy(t->limits, config->limits, sizeof t->limits);
    fli_list_init(&t->shaking);
    fli_list_init(&t->accepted);
    int rv =
        security_create(&config->security, config->self.node_id, &t->security, errmsg, errmsg_size);
    rv = rv != 0 ? rv : transport_bind(t, config->bind_address, errmsg, errmsg_size);
    if (rv != 0) {
        security_destroy(t->security);
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
    int rv = uv_timer_init(t->shared.loop, &t->timer);
    FLI_ASSERT(rv == 0);
    rv = channel_shared_init(&t->shared);
    FLI_ASSERT(rv == 0); /* neither can fail on a live loop */
    t->timer.data = t;
    t->started = true;
    deadline_set(&t->files, TRANSPORT_FILES_MS);
    if (t->security != NULL) {
        log_facts(t, "other nodes are shown");
        deadlines_changed(t);
    }
    return accept_start(t, errmsg, errmsg_size);
}

void transport_set_cluster(struct transport *t, uint64_t cluster_id, uint64_t member_index,
                           uint32_t members_crc)
{
    t->self.members_crc = members_crc;
    t->self.cluster_id = cluster_id;
    t->self.member_index = member_index;
}

void transport_set_progress(struct transport *t, uint64_t term, uint64_t last_index)
{
    t->self.term = term;
    t->self.last_index = last_index;
}

void transport_set_members(struct transport *t, const struct members *members)
{
    const struct member *self = members_find(members, t->self.node_id);
    if (self != NULL) {
        (void)snprintf(t->self.peer_address, sizeof t->self.peer_address, "%s", self->address);
    }
    t->members = *members;
    accept_lose(t, 0, CHANNEL_BROKEN, "the node is a member no more");
    dial_forsake(t);
}

void transport_hang_up(struct transport *t, uint64_t peer_id, const char *why)
{
    FLI_ASSERT(peer_id != 0);
    accept_lose(t, peer_id, CHANNEL_FAILED, why);
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

static void turn_closed(uv_handle_t *handle)
{
    struct transport *t = FLI_CONTAINER_OF((uv_idle_t *)handle, struct transport, shared.turn);
    t->started = false;
    channel_shared_fini(&t->shared);
    t->close_cb(t->close_ctx);
}

static void timer_closed(uv_handle_t *handle)
{
    struct transport *t = handle->data;
    uv_close((uv_handle_t *)&t->shared.turn, turn_closed);
}

void transport_maybe_closed(struct transport *t)
{
    if (t->closing && !t->listening && t->channels == 0 && fli_list_empty(&t->shaking) &&
        !uv_is_closing((uv_handle_t *)&t->timer)) {
        uv_close((uv_handle_t *)&t->timer, timer_closed);
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
    accept_stop(t);
    close(t->fd);
    t->fd = -1;
    accept_drop_all(t);
    transport_set_members(t, &nobody);
    transport_maybe_closed(t);
}

void transport_destroy(struct transport *t)
{
    if (t == NULL) {
        return;
    }
    FLI_ASSERT(!t->started && t->channels == 0 && fli_list_empty(&t->shaking));
    if (t->fd >= 0) {
        close(t->fd);
    }
    security_destroy(t->security);
    free(t);
}
