/* transport_dial.c: calling another node.
 *
 *   resolving --> connecting --> greeting --> done (the stream is handed on)
 *                     |  ^           |
 *                     v  | next      v
 *                    closing ------> finished (status)
 *
 * A numeric address skips resolving. Each address that the name resolved to gets its own deadline;
 * connecting to one that fails goes on with the next, but a peer that answered and refused ends the
 * attempt. The callback always comes from the loop, never from within dial_start. When the
 * transport closes, an attempt that waits for the resolver ends when the resolver returns, since
 * that cannot be interrupted once it has begun. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "consensus/transport_private.h"

/* A handle that outlives its dial: it is raft's, or the relay's, and is freed as a uv_tcp_t. */
struct dialed {
    uv_tcp_t tcp;
    struct transport *t;
    uint64_t peer_id;
};

enum dial_state { DIAL_RESOLVING, DIAL_CONNECTING, DIAL_GREETING, DIAL_CLOSING };

struct dial {
    struct fli_list link;
    struct transport *t;
    uint8_t kind;
    enum dial_state state;
    bool final; /* closing: no further address is tried */
    uint64_t peer_id;
    struct raft_uv_connect *req; /* raft's, or */
    transport_link_cb link_cb;   /* ours */
    void *link_ctx;
    uv_getaddrinfo_t resolve;
    struct addrinfo *list; /* from the resolver; NULL when numeric */
    struct addrinfo *next;
    unsigned tried, refused; /* addresses */
    struct dialed *tcp;      /* live handle while connecting, greeting, closing */
    uv_connect_t connect;
    uint64_t deadline_ms;
    size_t nread;
    uint8_t buf[HELLO_SIZE];
};

/* ---- a stream that raft writes to ---- */

/* No room, so that libuv calls back without having read: had it read an error itself, it would
 * refuse to write from then on, and raft, which takes that for a lost message and no more, would
 * keep the dead stream for ever. */
static void watch_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    *buf = uv_buf_init(NULL, 0);
}

/* Nothing is ever said on it, so whatever there is to read is its end. */
static void watch_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    struct dialed *s = FLI_CONTAINER_OF((uv_tcp_t *)stream, struct dialed, tcp);
    struct transport *t = s->t;
    uv_os_fd_t fd;
    char byte;
    if (uv_fileno((uv_handle_t *)stream, &fd) != 0 ||
        (recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR))) {
        return;
    }
    uv_read_stop(stream);
    (void)shutdown(fd, SHUT_RDWR);
    if (!t->closing) {
        t->cbs.hung_up(t->cbs.ctx, s->peer_id);
    }
}

static void watch_start(struct transport *t, uv_stream_t *stream)
{
    if (t->cbs.hung_up != NULL && !t->closing) {
        /* Should it fail, a dead peer is noticed later. */
        (void)uv_read_start(stream, watch_alloc, watch_read);
    }
}

/* ---- the attempt ---- */

/* Ends the attempt: with a stream when `peer` is given. */
static void dial_finish(struct dial *d, const struct transport_identity *peer)
{
    struct transport *t = d->t;
    uv_stream_t *stream = peer == NULL ? NULL : (uv_stream_t *)&d->tcp->tcp;
    struct dial done = *d;
    FLI_ASSERT(peer != NULL || d->tcp == NULL);
    fli_list_remove(&d->link);
    if (d->list != NULL) {
        uv_freeaddrinfo(d->list);
    }
    free(d);
    if (stream != NULL) {
        stream->data = NULL;
    }
    if (done.req != NULL) {
        int status = stream != NULL ? 0 : t->closing ? RAFT_CANCELED : RAFT_NOCONNECTION;
        if (stream != NULL) {
            watch_start(t, stream);
        }
        done.req->cb(done.req, stream, status);
    } else {
        done.link_cb(done.link_ctx, stream != NULL ? 0 : FL_ENOCONN, peer, stream);
    }
    if (stream == NULL && done.tried > 0 && done.refused == done.tried && !t->closing &&
        t->cbs.absent != NULL) {
        t->cbs.absent(t->cbs.ctx, done.peer_id);
    }
    transport_maybe_closed(t);
}

static void dial_next(struct dial *d);

static void dial_tcp_closed(uv_handle_t *handle)
{
    struct dial *d = handle->data;
    raft_free(d->tcp);
    d->tcp = NULL;
    if (d->final || d->t->closing) {
        dial_finish(d, NULL);
    } else {
        dial_next(d);
    }
}

static void dial_close_tcp(struct dial *d, bool final)
{
    d->final = d->final || final;
    if (d->state == DIAL_CLOSING) {
        return;
    }
    FLI_ASSERT(d->state != DIAL_RESOLVING);
    d->state = DIAL_CLOSING;
    uv_close((uv_handle_t *)&d->tcp->tcp, dial_tcp_closed);
}

static void dial_judge(struct dial *d)
{
    struct transport *t = d->t;
    struct hello h;
    char reason[TRANSPORT_REASON_MAX] = {0};
    unsigned long long peer_id = d->peer_id;
    int rv = hello_decode(d->buf, &h);
    if (rv == FL_EVERSION) {
        hello_explain_version(d->buf, reason, sizeof reason);
        transport_say_once(t, 2, "node %llu is of another version: %s", peer_id, reason);
        dial_close_tcp(d, true);
        return;
    }
    if (rv != 0 || h.verdict == 0) {
        transport_say_once(t, 2, "node %llu gave an answer that is not understood (%s)", peer_id,
                           fl_strerror(rv == 0 ? FL_EPROTO : rv));
        dial_close_tcp(d, true);
        return;
    }
    if (h.verdict != TRANSPORT_WELCOME) {
        transport_say_once(t, 2, "node %llu refused this node: %s", peer_id, h.reason);
        dial_close_tcp(d, true);
        t->cbs.answered(t->cbs.ctx, d->peer_id, (enum transport_verdict)h.verdict, h.reason);
        return;
    }
    enum transport_verdict verdict = TRANSPORT_STRANGER;
    if (h.from.node_id == d->peer_id && h.kind == d->kind) {
        verdict = transport_judge(t, &h, reason);
    } else {
        snprintf(reason, sizeof reason, "node %llu answered where node %llu was called",
                 (unsigned long long)h.from.node_id, peer_id);
    }
    if (verdict != TRANSPORT_WELCOME) {
        transport_say_once(t, 2, "hung up on node %llu: %s", peer_id, reason);
        dial_close_tcp(d, true);
        return;
    }
    uint64_t id = d->peer_id;
    dial_finish(d, &h.from);
    t->cbs.answered(t->cbs.ctx, id, TRANSPORT_WELCOME, "");
}

static void dial_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct dial *d = handle->data;
    FLI_ASSERT(d->nread < HELLO_SIZE);
    *buf = uv_buf_init((char *)d->buf + d->nread, (unsigned)(HELLO_SIZE - d->nread));
}

static void dial_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    struct dial *d = stream->data;
    if (nread < 0) {
        dial_close_tcp(d, false);
        return;
    }
    d->nread += (size_t)nread;
    FLI_ASSERT(d->nread <= HELLO_SIZE);
    if (d->nread == HELLO_SIZE) {
        uv_read_stop(stream);
        dial_judge(d);
    }
}

static void dial_connected(uv_connect_t *connect, int status)
{
    struct dial *d = connect->data;
    if (d->state == DIAL_CLOSING) {
        return; /* by deadline or by close; the close callback goes on */
    }
    struct hello ask;
    uint8_t bytes[HELLO_SIZE];
    memset(&ask, 0, sizeof ask);
    ask.kind = d->kind;
    ask.target = d->peer_id;
    ask.from = d->t->self;
    hello_encode(&ask, bytes);
    uv_buf_t buf = uv_buf_init((char *)bytes, sizeof bytes);
    if (status != 0) {
        d->refused += status == UV_ECONNREFUSED;
        dial_close_tcp(d, false);
        return;
    }
    d->state = DIAL_GREETING;
    transport_tune(&d->tcp->tcp);
    if (uv_try_write((uv_stream_t *)&d->tcp->tcp, &buf, 1) != (int)sizeof bytes ||
        uv_read_start((uv_stream_t *)&d->tcp->tcp, dial_alloc, dial_read) != 0) {
        dial_close_tcp(d, false);
    }
}

/* Connects to one address. 0: the rest comes from the loop; else nothing was begun. */
static int dial_connect(struct dial *d, const struct sockaddr *to)
{
    struct transport *t = d->t;
    struct dialed *tcp = raft_malloc(sizeof *tcp);
    if (tcp == NULL || uv_tcp_init(t->loop, &tcp->tcp) != 0) {
        raft_free(tcp);
        return FL_ENOMEM;
    }
    tcp->t = t;
    tcp->peer_id = d->peer_id;
    tcp->tcp.data = d;
    d->tcp = tcp;
    d->tried++;
    d->connect.data = d;
    d->nread = 0;
    d->state = DIAL_CONNECTING;
    d->deadline_ms = uv_now(t->loop) + TRANSPORT_CONNECT_MS;
    if (uv_tcp_connect(&d->connect, &tcp->tcp, to, dial_connected) != 0) {
        dial_close_tcp(d, false);
    } else {
        transport_sweep_soon(t);
    }
    return 0;
}

/* Goes on with the next address, or ends the attempt when there is none. */
static void dial_next(struct dial *d)
{
    struct addrinfo *a = d->next;
    if (a != NULL) {
        d->next = a->ai_next;
    }
    if (a == NULL || dial_connect(d, a->ai_addr) != 0) {
        dial_finish(d, NULL);
    }
}

static void dial_resolved(uv_getaddrinfo_t *resolve, int status, struct addrinfo *list)
{
    struct dial *d = resolve->data;
    struct transport *t = d->t;
    d->list = list;
    d->next = list;
    if (status != 0 || t->closing) {
        if (!t->closing) {
            transport_say_once(t, 2, "the name of node %llu cannot be resolved: %s",
                               (unsigned long long)d->peer_id, uv_strerror(status));
        }
        dial_finish(d, NULL);
        return;
    }
    dial_next(d);
}

static bool numeric_address(const char *host, uint16_t port, struct sockaddr_storage *ret)
{
    memset(ret, 0, sizeof *ret);
    return uv_ip4_addr(host, port, (struct sockaddr_in *)ret) == 0 ||
           uv_ip6_addr(host, port, (struct sockaddr_in6 *)ret) == 0;
}

int dial_start(struct transport *t, uint8_t kind, uint64_t peer_id, const char *address,
               struct raft_uv_connect *req, transport_link_cb link_cb, void *link_ctx)
{
    char host[256];
    uint16_t port;
    FLI_ASSERT((req != NULL) != (link_cb != NULL));
    if (address_split(address, host, &port) != 0) {
        return FL_EINVAL;
    }
    struct dial *d = calloc(1, sizeof *d);
    if (d == NULL) {
        return FL_ENOMEM;
    }
    d->t = t;
    d->kind = kind;
    d->peer_id = peer_id;
    d->req = req;
    d->link_cb = link_cb;
    d->link_ctx = link_ctx;
    d->resolve.data = d;
    fli_list_init(&d->link);
    fli_list_push(&t->dialing, &d->link);
    struct sockaddr_storage numeric;
    int rv;
    if (numeric_address(host, port, &numeric)) {
        rv = dial_connect(d, (const struct sockaddr *)&numeric);
    } else {
        char service[6];
        struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
        snprintf(service, sizeof service, "%u", port);
        d->state = DIAL_RESOLVING;
        rv = uv_getaddrinfo(t->loop, &d->resolve, dial_resolved, host, service, &hints) == 0
                 ? 0
                 : FL_ESYSTEM;
    }
    if (rv != 0) {
        fli_list_remove(&d->link);
        free(d);
    }
    return rv;
}

void dial_sweep(struct transport *t, uint64_t now_ms)
{
    FLI_LIST_FOREACH(pos, &t->dialing)
    {
        struct dial *d = FLI_CONTAINER_OF(pos, struct dial, link);
        if (d->state != DIAL_RESOLVING && now_ms >= d->deadline_ms) {
            dial_close_tcp(d, false);
        }
    }
}

void dial_cancel_all(struct transport *t)
{
    FLI_LIST_FOREACH(pos, &t->dialing)
    {
        struct dial *d = FLI_CONTAINER_OF(pos, struct dial, link);
        if (d->state == DIAL_RESOLVING) {
            (void)uv_cancel((uv_req_t *)&d->resolve);
        } else {
            dial_close_tcp(d, true);
        }
    }
}
