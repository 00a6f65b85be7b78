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
 * attempt. The callback never comes from within dial_start().
 *
 * When the node is a member no more, or the transport closes, the callback comes at once. The
 * attempt, which is nobody's then, ends when its channel is freed or the resolver returns, since
 * resolving cannot be interrupted. */
#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer/transport_private.h"

struct dial {
    struct shake shake; /* no channel: its name is being resolved */
    enum stream_kind kind;
    struct member member;
    transport_dial_cb cb; /* NULL: nobody waits for it any more */
    void *ctx;
    uv_getaddrinfo_t resolve;
    bool shaking;
    struct addrinfo *list;
    struct addrinfo *next;
    unsigned tried, absent; /* addresses that were tried, and those of them where nobody listens */
    char why[96];           /* why the last address failed */
};

static unsigned long long dial_id(const struct dial *d)
{
    return d->member.id;
}

static void dial_free(struct dial *d)
{
    shake_fini(&d->shake);
    if (d->list != NULL) {
        uv_freeaddrinfo(d->list);
    }
    free(d);
}

/* Ends the attempt, with the stream if status is 0. */
static void dial_finish(struct dial *d, int status, const struct peer_identity *peer,
                        struct stream *s)
{
    struct transport *t = d->shake.t;
    struct dial done = *d;
    FLI_ASSERT(d->shake.channel == NULL);
    dial_free(d);
    if (done.cb != NULL) {
        if (status == FL_ENOCONN) {
            transport_log(t, 3, "node %llu at %s cannot be reached: %s", dial_id(&done),
                          done.member.address, done.why);
        }
        done.cb(done.ctx, status, peer, s);
        if (status == FL_ENOCONN && done.tried > 0 && done.absent == done.tried &&
            t->cbs.absent != NULL) {
            t->cbs.absent(t->cbs.ctx, done.member.id);
        }
    }
    transport_maybe_closed(t);
}

static void dial_hang_up(struct dial *d)
{
    struct channel *c = d->shake.channel;
    d->shake.channel = NULL;
    channel_close(c);
}

static void dial_next(struct dial *d);

/* ---- the answer ---- */

static void dial_refused(struct dial *d, enum handshake_verdict verdict, const char *reason)
{
    struct transport *t = d->shake.t;
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
    struct transport *t = d->shake.t;
    uint64_t id = d->member.id;
    struct stream *s;
    struct channel *c = d->shake.channel;
    d->shake.channel = NULL;
    if (stream_create(c, &t->limits[d->kind], leftover, &s) != 0) {
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
    transport_log(d->shake.t, 2, "hung up on node %llu at %s: %s", dial_id(d), d->member.address,
                  reason);
    dial_hang_up(d);
    dial_finish(d, FL_EDENIED, NULL, NULL);
}

/* The socket is not read meanwhile: the peer may send as soon as it has answered. */
static void dial_wait(struct dial *d, struct fli_slice leftover)
{
    channel_read_stop(d->shake.channel);
    d->shake.waits = true;
    deadline_set(&d->shake.deadline, d->shake.t->answer_ms);
    if (fli_buf_append(&d->shake.leftover, leftover.data, leftover.len) != 0) {
        snprintf(d->why, sizeof d->why, "out of memory");
        dial_hang_up(d);
        dial_finish(d, FL_ENOCONN, NULL, NULL);
    }
}

static void dial_check(struct shake *shake, struct fli_slice leftover)
{
    struct dial *d = FLI_CONTAINER_OF(shake, struct dial, shake);
    struct transport *t = shake->t;
    struct handshake h;
    char reason[HANDSHAKE_REASON_MAX] = {0};
    bool alike;
    int rv = handshake_decode(shake->buf, &t->formats, &h);
    if (rv == FL_EVERSION) {
        handshake_explain_version(shake->buf, &t->formats, reason, sizeof reason);
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
    h.from.waited = shake->waits;
    enum handshake_verdict ours = transport_check(t, &h, &alike, reason);
    if (d->cb == NULL) {
        return; /* the check has ended it */
    }
    if (ours == HANDSHAKE_UNDECIDED) {
        dial_wait(d, leftover);
    } else if (ours != HANDSHAKE_WELCOME) {
        dial_reject(d, reason);
    } else {
        dial_welcome(d, &h, leftover);
    }
}

/* ---- the connection ---- */

static void dial_failed(struct dial *d, const char *why)
{
    snprintf(d->why, sizeof d->why, "%s", why);
    d->shake.waits = d->shake.due = false;
    fli_buf_clear(&d->shake.leftover);
    dial_hang_up(d);
    dial_next(d);
}

static void dial_late(struct shake *s)
{
    struct dial *d = FLI_CONTAINER_OF(s, struct dial, shake);
    dial_failed(d, s->waits     ? "this node's disk was not done in time"
                   : d->shaking ? "no answer in time"
                                : "no connection in time");
}

static void dial_lost(void *ctx, enum channel_end end, const char *why)
{
    struct dial *d = ctx;
    struct transport *t = d->shake.t;
    d->absent += end == CHANNEL_REFUSED && !d->shaking;
    dial_failed(d, why);
    deadlines_changed(t);
}

/* The connection is open: sends this node's handshake. */
static void dial_handshake(void *ctx)
{
    struct dial *d = ctx;
    struct transport *t = d->shake.t;
    struct handshake ask;
    memset(&ask, 0, sizeof ask);
    ask.kind = d->kind;
    ask.target = d->member.id;
    ask.from = t->self;
    deadline_set(&d->shake.deadline, t->answer_ms);
    deadlines_changed(t);
    (void)shake_send(&d->shake, &ask); /* on failure, dial_lost() is called */
}

static int dial_secure(struct dial *d)
{
    struct fli_tls *tls;
    int rv = security_call(d->shake.t->security, d->member.id, &tls);
    return rv != 0 ? rv : channel_secure(d->shake.channel, tls, true, dial_handshake);
}

static void dial_connected(void *ctx)
{
    struct dial *d = ctx;
    struct transport *t = d->shake.t;
    d->shaking = true;
    deadline_set(&d->shake.deadline, t->answer_ms);
    deadlines_changed(t);
    if (channel_read_start(d->shake.channel) != 0 || (t->security != NULL && dial_secure(d) != 0)) {
        dial_failed(d, "out of memory, or it cannot be read");
        deadlines_changed(t);
        return;
    }
    if (t->security != NULL) {
        channel_secure_begin(d->shake.channel);
    } else {
        dial_handshake(d);
    }
}

/* Connects to one address. 0: the loop does the rest; else nothing was begun. */
static int dial_connect(struct dial *d, const struct sockaddr *to)
{
    struct shake *s = &d->shake;
    struct channel_callbacks cbs = {.ctx = d, .bytes = shake_bytes, .lost = dial_lost};
    _Static_assert(offsetof(struct dial, shake) == 0, "a dial is a shake, for shake_bytes()");
    int rv = transport_channel(s->t, &s->channel);
    if (rv != 0) {
        s->channel = NULL;
        return rv;
    }
    d->tried++;
    s->got = 0;
    d->shaking = false;
    channel_own(s->channel, &cbs);
    deadline_set(&s->deadline, s->t->connect_ms);
    channel_connect(s->channel, to, dial_connected);
    deadlines_changed(s->t);
    return 0;
}

/* Tries the next address, or ends the attempt when there is none. From the loop only. */
static void dial_next(struct dial *d)
{
    struct addrinfo *a = d->cb == NULL ? NULL : d->next;
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
    d->list = list;
    d->next = list;
    if (status != 0) {
        snprintf(d->why, sizeof d->why, "its name cannot be resolved: %s", uv_strerror(status));
    }
    dial_next(d);
}

static int dial_resolve(struct dial *d, const char *host, uint16_t port)
{
    char service[6];
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    snprintf(service, sizeof service, "%u", port);
    if (getaddrinfo(host, service, &hints, &d->list) == 0) {
        return dial_connect(d, d->list->ai_addr);
    }
    hints.ai_flags = 0;
    d->resolve.data = d;
    return uv_getaddrinfo(d->shake.t->shared.loop, &d->resolve, dial_resolved, host, service,
                          &hints) == 0
               ? 0
               : FL_ESYSTEM;
}

int dial_start(struct transport *t, enum stream_kind kind, const struct member *m,
               transport_dial_cb cb, void *ctx)
{
    char host[256];
    uint16_t port;
    if (address_split(m->address, host, &port) != 0) {
        return FL_EINVAL;
    }
    struct dial *d = calloc(1, sizeof *d);
    if (d == NULL) {
        return FL_ENOMEM;
    }
    d->kind = kind;
    d->member = *m;
    d->cb = cb;
    d->ctx = ctx;
    d->shake.check = dial_check;
    d->shake.late = dial_late;
    snprintf(d->why, sizeof d->why, "it has no address");
    shake_init(&d->shake, t);
    int rv = dial_resolve(d, host, port);
    if (rv != 0) {
        dial_free(d);
    }
    return rv;
}

/* ---- the end ---- */

/* The channel is freed, or the resolver returns, from the loop. */
static void forsake(struct dial *d)
{
    transport_dial_cb cb = d->cb;
    d->cb = NULL;
    d->shake.waits = d->shake.due = false;
    if (d->shake.channel == NULL) {
        (void)uv_cancel((uv_req_t *)&d->resolve);
    } else {
        channel_cancel(d->shake.channel);
    }
    cb(d->ctx, FL_ENOCONN, NULL, NULL);
}

void dial_forsake(struct transport *t)
{
    FLI_LIST_FOREACH_SAFE(pos, tmp, &t->shaking)
    {
        struct shake *s = FLI_CONTAINER_OF(pos, struct shake, link);
        struct dial *d = FLI_CONTAINER_OF(s, struct dial, shake);
        if (s->check == dial_check && d->cb != NULL &&
            members_find(&t->members, d->member.id) == NULL) {
            forsake(d);
        }
    }
}
