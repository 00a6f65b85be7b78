/* transport_dial.c: dials another node.
 *
 * A numeric address skips resolving. Each address that the name resolved to gets its own deadlines.
 * When one fails, the next is tried once its socket is closed; but a peer that answered with a
 * refusal ends the dial. The callback never comes from within dial_start().
 *
 * When the node is a member no more, or the transport closes, the callback comes at once. What is
 * left of the dial is nobody's then, and its memory goes when its socket is closed, or the resolver
 * returns, since resolving cannot be interrupted. */
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "peer/transport_private.h"

void dial_end(struct stream *s, int status)
{
    struct transport *t = s->t;
    const struct member *m = members_find(&t->members, s->peer_id);
    uint64_t id = s->peer_id;
    transport_dial_cb cb = s->dialed_cb;
    void *ctx = s->dialed_ctx;
    bool failed = status == FL_ENOCONN && m != NULL;
    bool absent = failed && s->tried > 0 && s->absent == s->tried;
    if (failed) {
        transport_log(t, 3, "node %llu at %s cannot be reached: %s", (unsigned long long)id,
                      m->address, s->why);
    }
    stream_let_go(s);
    cb(ctx, status, NULL, NULL);
    if (absent) {
        t->cbs.absent(t->cbs.ctx, id);
    }
}

void dial_failed(struct stream *s, const char *why)
{
    snprintf(s->why, sizeof s->why, "%s", why);
    s->phase = STREAM_CONNECTING; /* stream_released() tries the next address */
    stream_shut(s);
}

static void connect_cb(uv_connect_t *connect, int status)
{
    struct stream *s = connect->data;
    struct transport *t = s->t;
    if (s->closing) {
        return;
    }
    if (status != 0) {
        stream_lose_by(s, status);
        return;
    }
    stream_tune(s);
    s->phase = STREAM_SHAKING;
    stream_read_start(s);
    if (t->security == NULL) {
        shake_ask(s);
    } else if (security_call(t->security, s->peer_id, &s->tls) != 0) {
        dial_failed(s, "out of memory");
    } else {
        deadline_set(t, &s->deadline, t->answer_ms);
        stream_secure_begin(s);
    }
}

void dial_next(struct stream *s)
{
    struct transport *t = s->t;
    struct addrinfo *a = s->next;
    if (a == NULL) {
        dial_end(s, FL_ENOCONN);
        return;
    }
    s->next = a->ai_next;
    s->tried++;
    s->phase = STREAM_CONNECTING;
    stream_socket(s);
    deadline_set(t, &s->deadline, t->connect_ms);
    int rv = uv_tcp_connect(&s->connect, &s->tcp, a->ai_addr, connect_cb);
    if (rv != 0) {
        dial_failed(s, uv_strerror(rv));
    }
}

static void dial_resolved(uv_getaddrinfo_t *resolve, int status, struct addrinfo *list)
{
    struct stream *s = resolve->data;
    s->list = s->next = list;
    if (status != 0) {
        snprintf(s->why, sizeof s->why, "its name cannot be resolved: %s", uv_strerror(status));
    }
    stream_released(s);
}

static int dial_resolve(struct stream *s, const char *host, uint16_t port)
{
    char service[6];
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    snprintf(service, sizeof service, "%u", port);
    if (getaddrinfo(host, service, &hints, &s->list) == 0) {
        s->next = s->list;
        dial_next(s);
        return 0;
    }
    hints.ai_flags = 0;
    int rv = uv_getaddrinfo(s->t->loop, &s->resolve, dial_resolved, host, service, &hints);
    s->released = rv != 0;
    return rv == 0 ? 0 : FL_ESYSTEM;
}

int dial_start(struct transport *t, enum stream_kind kind, const struct member *m,
               transport_dial_cb cb, void *ctx)
{
    char host[256];
    uint16_t port;
    if (address_split(m->address, host, &port) != 0) {
        return FL_EINVAL;
    }
    struct stream *s = stream_create(t, true);
    if (s == NULL) {
        return FL_ENOMEM;
    }
    s->kind = kind;
    s->peer_id = m->id;
    s->dialed_cb = cb;
    s->dialed_ctx = ctx;
    snprintf(s->why, sizeof s->why, "it has no address");
    int rv = dial_resolve(s, host, port);
    if (rv != 0) {
        stream_let_go(s);
    }
    return rv;
}
