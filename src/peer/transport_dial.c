/* transport_dial.c: dials another node.
 *
 *   resolving --> connecting --> shaking --> done (the stream is handed on)
 *        |          |    ^           |
 *        |          `----' next      |
 *        `---> finished (status) <---'
 *
 * While shaking, an answer may wait for this node's disk. With security, shaking begins with TLS's
 * handshake. A numeric address skips resolving. Each address that the name resolved to gets its own
 * deadlines. When one fails, the next is tried; but a peer that answered with a refusal ends the
 * attempt. The callback always comes from the loop, never from within dial_start(). When the
 * transport closes, an attempt that waits for the resolver ends when the resolver returns, since
 * resolving cannot be interrupted. */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer/transport_private.h"

struct dial {
    struct fli_list link;
    struct transport *t;
    enum stream_kind kind;
    struct member member;
    transport_dial_cb cb;
    void *ctx;
    uv_getaddrinfo_t resolve;
    bool resolving;
    bool shaking;
    struct addrinfo *list; /* from the resolver; NULL when numeric */
    struct addrinfo *next;
    unsigned tried, absent;  /* addresses that were tried, and those of them where nobody listens */
    struct channel *channel; /* while connecting and shaking */
    struct deadline deadline;
    char why[96]; /* why the last address failed */
    struct undecided undecided;
    struct fli_buf leftover; /* bytes behind an answer that waits */
    size_t got;
    uint8_t buf[HANDSHAKE_SIZE];
};

static unsigned long long dial_id(const struct dial *d)
{
    return d->member.id;
}

/* Ends the attempt, with the stream if status is 0. */
static void dial_finish(struct dial *d, int status, const struct peer_identity *peer,
                        struct stream *s)
{
    struct transport *t = d->t;
    struct dial done = *d;
    FLI_ASSERT(d->channel == NULL && !d->resolving);
    fli_list_remove(&d->link);
    t->dialing_n--;
    if (d->list != NULL) {
        uv_freeaddrinfo(d->list);
    }
    fli_buf_fini(&d->leftover);
    free(d);
    if (status == FL_ENOCONN && !t->closing) {
        transport_log(t, 3, "node %llu at %s cannot be reached: %s", dial_id(&done),
                      done.member.address, done.why);
    }
    done.cb(done.ctx, status, peer, s);
    if (status == FL_ENOCONN && done.tried > 0 && done.absent == done.tried && !t->closing &&
        t->cbs.absent != NULL) {
        t->cbs.absent(t->cbs.ctx, done.member.id);
    }
    transport_maybe_closed(t);
}

static void dial_hang_up(struct dial *d)
{
    struct channel *c = d->channel;
    d->channel = NULL;
    channel_close(c);
}

static void dial_next(struct dial *d);

/* ---- the answer ---- */

static void dial_refused(struct dial *d, enum handshake_verdict verdict, const char *reason)
{
    struct transport *t = d->t;
    uint64_t id = d->member.id;
    transport_log(t, 2, "node %llu at %s refused this node: %s", dial_id(d), d->member.address,
                  reason);
    dial_hang_up(d);
    dial_finish(d, FL_EDENIED, NULL, NULL);
    if (t->cbs.answered != NULL) {
        t->cbs.answered(t->cbs.ctx, id, verdict, reason);
    }
}

static void dial_welcome(struct dial *d, const struct handshake *h, struct fli_slice leftover)
{
    struct transport *t = d->t;
    uint64_t id = d->member.id;
    struct stream *s;
    struct channel *c = d->channel;
    d->channel = NULL;
    if (stream_create(c, &t->limits[d->kind], leftover, &t->streams, &s) != 0) {
        snprintf(d->why, sizeof d->why, "out of memory");
        dial_finish(d, FL_ENOCONN, NULL, NULL);
        return;
    }
    dial_finish(d, 0, &h->from, s);
    if (t->cbs.answered != NULL) {
        t->cbs.answered(t->cbs.ctx, id, HANDSHAKE_WELCOME, "");
    }
}

/* This node refuses the peer, or cannot read its answer. */
static void dial_reject(struct dial *d, const char *reason)
{
    transport_log(d->t, 2, "hung up on node %llu at %s: %s", dial_id(d), d->member.address, reason);
    dial_hang_up(d);
    dial_finish(d, FL_EDENIED, NULL, NULL);
}

/* The socket is not read meanwhile: the peer may send as soon as it has answered. */
static void dial_wait(struct dial *d, struct fli_slice leftover)
{
    struct transport *t = d->t;
    channel_read_stop(d->channel);
    d->undecided.waits = true;
    deadline_set(t, &d->deadline, t->answer_ms);
    if (fli_buf_append(&d->leftover, leftover.data, leftover.len) != 0) {
        snprintf(d->why, sizeof d->why, "out of memory");
        dial_hang_up(d);
        dial_finish(d, FL_ENOCONN, NULL, NULL);
    }
}

static void dial_check(struct dial *d, struct fli_slice leftover)
{
    struct transport *t = d->t;
    struct handshake h;
    char reason[HANDSHAKE_REASON_MAX] = {0};
    bool alike;
    int rv = handshake_decode(d->buf, &t->formats, &h);
    if (rv == FL_EVERSION) {
        handshake_explain_version(d->buf, &t->formats, reason, sizeof reason);
        dial_refused(d, HANDSHAKE_OTHER_VERSION, reason);
        return;
    }
    if (rv != 0 || h.verdict == 0) {
        dial_reject(d, "its answer is not one of a node");
        return;
    }
    enum handshake_verdict verdict = (enum handshake_verdict)h.verdict;
    if (verdict != HANDSHAKE_WELCOME) {
        dial_refused(d, verdict, h.reason[0] != '\0' ? h.reason : handshake_verdict_text(verdict));
        return;
    }
    if (h.from.node_id != d->member.id || h.kind != d->kind) {
        snprintf(reason, sizeof reason, "node %llu answered where node %llu was called",
                 (unsigned long long)h.from.node_id, dial_id(d));
        dial_reject(d, reason);
        return;
    }
    h.from.welcomes = true;
    h.from.waited = d->undecided.waits;
    enum handshake_verdict ours = transport_check(t, &h, &alike, reason);
    if (ours == HANDSHAKE_UNDECIDED) {
        dial_wait(d, leftover);
    } else if (ours != HANDSHAKE_WELCOME) {
        dial_reject(d, reason);
    } else {
        dial_welcome(d, &h, leftover);
    }
}

static struct dial *first_due(struct transport *t)
{
    FLI_LIST_FOREACH(pos, &t->dialing)
    {
        struct dial *d = FLI_CONTAINER_OF(pos, struct dial, link);
        if (d->undecided.due) {
            return d;
        }
    }
    return NULL;
}

/* Each result may begin and end others, so the list is read anew after each. */
void dial_check_again(struct transport *t)
{
    struct dial *d;
    FLI_LIST_FOREACH(pos, &t->dialing)
    {
        d = FLI_CONTAINER_OF(pos, struct dial, link);
        d->undecided.due = d->undecided.waits;
    }
    while ((d = first_due(t)) != NULL) {
        struct fli_buf leftover = d->leftover;
        d->undecided.due = false;
        fli_buf_init(&d->leftover, CHANNEL_READ_SIZE);
        dial_check(d, (struct fli_slice){leftover.data, leftover.len});
        fli_buf_fini(&leftover);
    }
}

/* ---- the connection ---- */

static void dial_bytes(void *ctx, const uint8_t *data, size_t len)
{
    struct dial *d = ctx;
    struct transport *t = d->t;
    size_t n = HANDSHAKE_SIZE - d->got < len ? HANDSHAKE_SIZE - d->got : len;
    memcpy(d->buf + d->got, data, n);
    d->got += n;
    if (d->got == HANDSHAKE_SIZE) {
        dial_check(d, (struct fli_slice){data + n, len - n});
        deadlines_changed(t);
    }
}

static void dial_failed(struct dial *d, const char *why)
{
    snprintf(d->why, sizeof d->why, "%s", why);
    d->undecided = (struct undecided){.waits = false};
    fli_buf_clear(&d->leftover);
    dial_hang_up(d);
    dial_next(d);
}

static void dial_lost(void *ctx, enum channel_end end, const char *why)
{
    struct dial *d = ctx;
    struct transport *t = d->t;
    d->absent += end == CHANNEL_REFUSED && !d->shaking;
    dial_failed(d, why);
    deadlines_changed(t);
}

/* The connection is open: sends this node's handshake. */
static void dial_handshake(void *ctx)
{
    struct dial *d = ctx;
    struct transport *t = d->t;
    struct handshake ask;
    uint8_t bytes[HANDSHAKE_SIZE];
    memset(&ask, 0, sizeof ask);
    ask.kind = d->kind;
    ask.target = d->member.id;
    ask.from = t->self;
    handshake_encode(&ask, &t->formats, bytes);
    deadline_set(t, &d->deadline, t->answer_ms);
    deadlines_changed(t);
    (void)channel_write_handshake(d->channel, bytes,
                                  sizeof bytes); /* on failure, dial_lost() is called */
}

static int dial_secure(struct dial *d)
{
    struct fli_tls *tls;
    int rv = security_call(d->t->security, d->member.id, &tls);
    return rv != 0 ? rv : channel_secure(d->channel, tls, true, dial_handshake);
}

static void dial_connected(void *ctx)
{
    struct dial *d = ctx;
    struct transport *t = d->t;
    d->shaking = true;
    deadline_set(t, &d->deadline, t->answer_ms);
    deadlines_changed(t);
    if (channel_read_start(d->channel) != 0 || (t->security != NULL && dial_secure(d) != 0)) {
        dial_failed(d, "out of memory, or it cannot be read");
        deadlines_changed(t);
        return;
    }
    if (t->security != NULL) {
        channel_secure_begin(d->channel);
    } else {
        dial_handshake(d);
    }
}

/* Connects to one address. 0: the loop does the rest; else nothing was begun. */
static int dial_connect(struct dial *d, const struct sockaddr *to)
{
    struct channel_callbacks cbs = {.ctx = d, .bytes = dial_bytes, .lost = dial_lost};
    int rv = transport_channel(d->t, &d->channel);
    if (rv != 0) {
        d->channel = NULL;
        return rv;
    }
    d->tried++;
    d->got = 0;
    d->shaking = false;
    channel_own(d->channel, &cbs);
    deadline_set(d->t, &d->deadline, d->t->connect_ms);
    channel_connect(d->channel, to, dial_connected);
    deadlines_changed(d->t);
    return 0;
}

/* Tries the next address, or ends the attempt when there is none. From the loop only. */
static void dial_next(struct dial *d)
{
    struct addrinfo *a = d->t->closing ? NULL : d->next;
    if (a != NULL) {
        d->next = a->ai_next;
    }
    if (a == NULL || dial_connect(d, a->ai_addr) != 0) {
        dial_finish(d, FL_ENOCONN, NULL, NULL);
    }
}

static void dial_resolved(uv_getaddrinfo_t *resolve, int status, struct addrinfo *list)
{
    struct dial *d = resolve->data;
    d->resolving = false;
    d->list = list;
    d->next = list;
    if (status != 0) {
        snprintf(d->why, sizeof d->why, "its name cannot be resolved: %s", uv_strerror(status));
    }
    dial_next(d);
}

static bool numeric_address(const char *host, uint16_t port, struct sockaddr_storage *ret)
{
    memset(ret, 0, sizeof *ret);
    return uv_ip4_addr(host, port, (struct sockaddr_in *)ret) == 0 ||
           uv_ip6_addr(host, port, (struct sockaddr_in6 *)ret) == 0;
}

static int dial_resolve(struct dial *d, const char *host, uint16_t port)
{
    char service[6];
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    snprintf(service, sizeof service, "%u", port);
    if (uv_getaddrinfo(d->t->shared.loop, &d->resolve, dial_resolved, host, service, &hints) != 0) {
        return FL_ESYSTEM;
    }
    d->resolving = true;
    return 0;
}

int dial_start(struct transport *t, enum stream_kind kind, const struct member *m,
               transport_dial_cb cb, void *ctx)
{
    char host[256];
    uint16_t port;
    struct sockaddr_storage numeric;
    if (address_split(m->address, host, &port) != 0) {
        return FL_EINVAL;
    }
    struct dial *d = calloc(1, sizeof *d);
    if (d == NULL) {
        return FL_ENOMEM;
    }
    d->t = t;
    d->kind = kind;
    d->member = *m;
    d->cb = cb;
    d->ctx = ctx;
    d->resolve.data = d;
    fli_buf_init(&d->leftover, CHANNEL_READ_SIZE);
    snprintf(d->why, sizeof d->why, "it has no address");
    fli_list_init(&d->link);
    fli_list_push(&t->dialing, &d->link);
    t->dialing_n++;
    int rv = numeric_address(host, port, &numeric)
                 ? dial_connect(d, (const struct sockaddr *)&numeric)
                 : dial_resolve(d, host, port);
    if (rv != 0) {
        fli_list_remove(&d->link);
        t->dialing_n--;
        free(d);
    }
    return rv;
}

/* ---- deadlines, closing ---- */

void dial_sweep(struct transport *t)
{
    FLI_LIST_FOREACH_SAFE(pos, tmp, &t->dialing)
    {
        struct dial *d = FLI_CONTAINER_OF(pos, struct dial, link);
        if (d->channel != NULL && deadline_over(t, &d->deadline)) {
            dial_failed(d, d->undecided.waits ? "this node's disk was not done in time"
                           : d->shaking       ? "no answer in time"
                                              : "no connection in time");
        }
    }
}

void dial_earliest(const struct transport *t, uint64_t *at_ms)
{
    FLI_LIST_FOREACH(pos, &t->dialing)
    {
        const struct dial *d = FLI_CONTAINER_OF(pos, struct dial, link);
        if (d->channel != NULL && d->deadline.at_ms < *at_ms) {
            *at_ms = d->deadline.at_ms;
        }
    }
}

/* An attempt ends when its channel is freed, from the loop. */
void dial_cancel_all(struct transport *t)
{
    FLI_LIST_FOREACH(pos, &t->dialing)
    {
        struct dial *d = FLI_CONTAINER_OF(pos, struct dial, link);
        if (d->resolving) {
            (void)uv_cancel((uv_req_t *)&d->resolve);
        } else {
            channel_cancel(d->channel);
        }
    }
}
