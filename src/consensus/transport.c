/* transport.c: listening, the acceptor's half of the greeting, closing.
 *
 * A connection that was accepted is an `incoming` until its hello is whole and judged. The happy
 * path: accept, read exactly HELLO_SIZE bytes, judge, write the answer, hand the stream on. It ends
 * early by end of stream, by its deadline, when it is the oldest of too many, by a bad hello, or
 * when the transport closes; in all these cases the handle is closed and both are freed in the
 * close callback.
 *
 * The answer is written with uv_try_write: a fresh socket takes 512 bytes at once, and one that
 * does not is dropped. The dialer sends nothing between its hello and our answer, so closing after
 * a refusal leaves no unread bytes behind, and the reason arrives. */
#include "consensus/transport.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "consensus/transport_private.h"

#define SWEEP_MS 100u
#define BACKLOG 64

struct incoming {
    struct fli_list link;
    struct transport *t;
    uv_tcp_t *tcp;
    uint64_t deadline_ms;
    size_t nread;
    uint8_t buf[HELLO_SIZE];
};

static void say_list(struct transport *t, int level, const char *fmt, va_list args, bool once)
    __attribute__((format(printf, 3, 0)));

/* Whether this text was said a short while ago; notes it when not. */
static bool said_lately(struct transport *t, const char *text)
{
    uint32_t crc = fli_crc32c(0, text, strlen(text));
    uint64_t now_ms = fli_clock_ms();
    for (unsigned i = 0; i < TRANSPORT_SAID_MAX; i++) {
        if (t->said[i].crc == crc && t->said[i].at_ms != 0 &&
            now_ms - t->said[i].at_ms < TRANSPORT_SAID_MS) {
            return true;
        }
    }
    t->said[t->said_next].crc = crc;
    t->said[t->said_next].at_ms = now_ms;
    t->said_next = (t->said_next + 1) % TRANSPORT_SAID_MAX;
    return false;
}

static void say_list(struct transport *t, int level, const char *fmt, va_list args, bool once)
{
    char text[TRANSPORT_REASON_MAX + 64];
    vsnprintf(text, sizeof text, fmt, args);
    if (once && said_lately(t, text)) {
        return;
    }
    if (t->cbs.log != NULL) {
        t->cbs.log(t->cbs.ctx, level, text);
    }
}

void transport_say(struct transport *t, int level, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say_list(t, level, fmt, args, false);
    va_end(args);
}

void transport_say_once(struct transport *t, int level, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say_list(t, level, fmt, args, true);
    va_end(args);
}

void transport_tune(uv_tcp_t *tcp)
{
    /* All of these only make a dead peer noticed earlier or a live one faster: an error changes
     * nothing that matters. A peer whose host vanished is noticed after ten seconds. */
    int idle_s = 3;
    int every_s = 2;
    int probes = 3;
    unsigned unacked_ms = 10000;
    uv_os_fd_t fd;
    (void)uv_tcp_nodelay(tcp, 1);
    if (uv_fileno((uv_handle_t *)tcp, &fd) == 0) {
        int on = 1;
        (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked_ms, sizeof unacked_ms);
    }
}

enum transport_verdict transport_judge(struct transport *t, const struct hello *h,
                                       char reason[TRANSPORT_REASON_MAX])
{
    const struct transport_identity *peer = &h->from;
    unsigned long long peer_id = peer->node_id;
    unsigned long long self_id = t->self.node_id;
    if (peer->members_crc != t->self.members_crc) {
        snprintf(reason, TRANSPORT_REASON_MAX,
                 "nodes %llu and %llu are configured with different members: give all nodes the "
                 "same",
                 self_id, peer_id);
        return TRANSPORT_OTHER_MEMBERS;
    }
    if (peer->cluster_id != 0 && t->self.cluster_id != 0 &&
        peer->cluster_id != t->self.cluster_id) {
        snprintf(reason, TRANSPORT_REASON_MAX,
                 "node %llu belongs to cluster %016llx, node %llu to cluster %016llx", self_id,
                 (unsigned long long)t->self.cluster_id, peer_id,
                 (unsigned long long)peer->cluster_id);
        return TRANSPORT_OTHER_CLUSTER;
    }
    if (h->target != t->self.node_id) {
        snprintf(reason, TRANSPORT_REASON_MAX, "node %llu was called, but this is node %llu",
                 (unsigned long long)h->target, self_id);
        return TRANSPORT_STRANGER;
    }
    if (peer->node_id == t->self.node_id || members_find(&t->members, peer->node_id) == NULL) {
        snprintf(reason, TRANSPORT_REASON_MAX, "node %llu is not another member for node %llu",
                 peer_id, self_id);
        return TRANSPORT_STRANGER;
    }
    return t->cbs.judge(t->cbs.ctx, peer, reason);
}

/* ---- accepting ---- */

static void incoming_closed(uv_handle_t *handle)
{
    struct incoming *in = handle->data;
    struct transport *t = in->t;
    raft_free(in->tcp);
    free(in);
    FLI_ASSERT(t->handles > 0);
    t->handles--;
    transport_maybe_closed(t);
}

static void incoming_detach(struct incoming *in)
{
    fli_list_remove(&in->link);
    FLI_ASSERT(in->t->accepting_count > 0);
    in->t->accepting_count--;
}

static void incoming_drop(struct incoming *in)
{
    incoming_detach(in);
    uv_close((uv_handle_t *)in->tcp, incoming_closed);
}

static bool incoming_answer(struct incoming *in, uint8_t kind, enum transport_verdict verdict,
                            uint64_t target, const char *reason)
{
    struct hello answer;
    uint8_t bytes[HELLO_SIZE];
    memset(&answer, 0, sizeof answer);
    answer.kind = kind;
    answer.verdict = (uint8_t)verdict;
    answer.target = target;
    answer.from = in->t->self;
    snprintf(answer.reason, sizeof answer.reason, "%s", reason);
    hello_encode(&answer, bytes);
    uv_buf_t buf = uv_buf_init((char *)bytes, sizeof bytes);
    return uv_try_write((uv_stream_t *)in->tcp, &buf, 1) == (int)sizeof bytes;
}

static void incoming_hand_on(struct incoming *in, const struct hello *h)
{
    struct transport *t = in->t;
    uv_stream_t *stream = (uv_stream_t *)in->tcp;
    incoming_detach(in);
    FLI_ASSERT(t->handles > 0);
    t->handles--;
    free(in);
    stream->data = NULL;
    if (h->kind == HELLO_LINK) {
        t->cbs.link(t->cbs.ctx, &h->from, stream);
        return;
    }
    /* The address must be the very text of raft's configuration: raft sends its answers to it, and
     * another spelling would make it tear down its own connection to that node. */
    const struct member *m = members_find(&t->members, h->from.node_id);
    FLI_ASSERT(m != NULL);
    t->accept_cb(&t->raft, h->from.node_id, m->address, stream);
}

static void incoming_judge(struct incoming *in)
{
    struct transport *t = in->t;
    struct hello h;
    char reason[TRANSPORT_REASON_MAX] = {0};
    int rv = hello_decode(in->buf, &h);
    if (rv == FL_EVERSION) {
        hello_explain_version(in->buf, reason, sizeof reason);
        (void)incoming_answer(in, HELLO_RAFT, TRANSPORT_OTHER_VERSION, 0, reason);
        transport_say_once(t, 2, "a node of another version was refused: %s", reason);
    } else if (rv != 0) {
        transport_say_once(t, 2, "a connection to the peer port was dropped: not a node");
    }
    if (rv != 0) {
        incoming_drop(in);
        return;
    }
    enum transport_verdict verdict = transport_judge(t, &h, reason);
    bool answered = incoming_answer(in, h.kind, verdict, h.from.node_id, reason);
    if (verdict != TRANSPORT_WELCOME) {
        transport_say_once(t, 2, "refused node %llu: %s", (unsigned long long)h.from.node_id,
                           reason);
    }
    if (verdict != TRANSPORT_WELCOME || !answered) {
        incoming_drop(in);
        return;
    }
    incoming_hand_on(in, &h);
}

static void incoming_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct incoming *in = handle->data;
    FLI_ASSERT(in->nread < HELLO_SIZE);
    *buf = uv_buf_init((char *)in->buf + in->nread, (unsigned)(HELLO_SIZE - in->nread));
}

static void incoming_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    struct incoming *in = stream->data;
    if (nread < 0) {
        incoming_drop(in);
        return;
    }
    in->nread += (size_t)nread;
    FLI_ASSERT(in->nread <= HELLO_SIZE);
    if (in->nread == HELLO_SIZE) {
        uv_read_stop(stream);
        incoming_judge(in);
    }
}

static void listener_cb(uv_stream_t *listener, int status)
{
    struct transport *t = listener->data;
    if (status != 0 || t->closing) {
        return;
    }
    struct incoming *in = calloc(1, sizeof *in);
    uv_tcp_t *tcp = raft_malloc(sizeof *tcp);
    if (in == NULL || tcp == NULL || uv_tcp_init(t->loop, tcp) != 0) {
        free(in);
        raft_free(tcp);
        return;
    }
    in->t = t;
    in->tcp = tcp;
    tcp->data = in;
    in->deadline_ms = uv_now(t->loop) + TRANSPORT_HELLO_MS;
    fli_list_init(&in->link);
    if (t->accepting_count == TRANSPORT_PENDING_MAX) {
        /* A real peer says hello at once, so the oldest is the one least likely to be one. */
        incoming_drop(FLI_CONTAINER_OF(t->accepting.next, struct incoming, link));
    }
    fli_list_push(&t->accepting, &in->link);
    t->accepting_count++;
    t->handles++;
    if (uv_accept(listener, (uv_stream_t *)tcp) != 0 ||
        uv_read_start((uv_stream_t *)tcp, incoming_alloc, incoming_read) != 0) {
        incoming_drop(in);
        return;
    }
    transport_tune(tcp);
    transport_sweep_soon(t);
}

/* ---- deadlines ---- */

static void sweep_cb(uv_timer_t *timer)
{
    struct transport *t = timer->data;
    uint64_t now_ms = uv_now(t->loop);
    FLI_LIST_FOREACH_SAFE(pos, tmp, &t->accepting)
    {
        struct incoming *in = FLI_CONTAINER_OF(pos, struct incoming, link);
        if (now_ms >= in->deadline_ms) {
            incoming_drop(in);
        }
    }
    dial_sweep(t, now_ms);
    if (fli_list_empty(&t->accepting) && fli_list_empty(&t->dialing)) {
        uv_timer_stop(timer);
    }
}

void transport_sweep_soon(struct transport *t)
{
    FLI_ASSERT(t->inited);
    if (!t->closing && !uv_is_active((uv_handle_t *)&t->sweeper)) {
        int rv = uv_timer_start(&t->sweeper, sweep_cb, SWEEP_MS, SWEEP_MS);
        FLI_ASSERT(rv == 0);
    }
}

/* ---- the interface that raft calls ---- */

static int raft_side_init(struct raft_uv_transport *raft, raft_id id, const char *address)
{
    struct transport *t = raft->impl;
    FLI_ASSERT(id == t->self.node_id && address != NULL);
    int rv = uv_timer_init(t->loop, &t->sweeper);
    FLI_ASSERT(rv == 0);
    t->sweeper.data = t;
    t->inited = true;
    t->handles++;
    return 0;
}

static int raft_side_listen(struct raft_uv_transport *raft, raft_uv_accept_cb cb)
{
    struct transport *t = raft->impl;
    FLI_ASSERT(!t->listening && t->fd >= 0);
    t->accept_cb = cb;
    if (uv_tcp_init(t->loop, &t->listener) != 0) {
        return RAFT_IOERR;
    }
    t->listener.data = t;
    t->listening = true;
    t->handles++;
    int rv = uv_tcp_open(&t->listener, t->fd);
    if (rv == 0) {
        t->fd = -1;
        rv = uv_listen((uv_stream_t *)&t->listener, BACKLOG, listener_cb);
    }
    if (rv != 0) {
        snprintf(raft->errmsg, sizeof raft->errmsg, "cannot listen on the peer port: %s",
                 uv_strerror(rv));
        return RAFT_IOERR;
    }
    return 0;
}

static int raft_side_connect(struct raft_uv_transport *raft, struct raft_uv_connect *req,
                             raft_id id, const char *address, raft_uv_connect_cb cb)
{
    struct transport *t = raft->impl;
    FLI_ASSERT(!t->closing);
    req->cb = cb;
    return dial_start(t, HELLO_RAFT, id, address, req, NULL, NULL) == 0 ? 0 : RAFT_NOCONNECTION;
}

static void handle_closed(uv_handle_t *handle)
{
    struct transport *t = handle->data;
    FLI_ASSERT(t->handles > 0);
    t->handles--;
    transport_maybe_closed(t);
}

void transport_maybe_closed(struct transport *t)
{
    if (t->closing && t->handles == 0 && fli_list_empty(&t->dialing) && t->close_cb != NULL) {
        raft_uv_transport_close_cb cb = t->close_cb;
        t->close_cb = NULL;
        cb(&t->raft);
    }
}

static void raft_side_close(struct raft_uv_transport *raft, raft_uv_transport_close_cb cb)
{
    struct transport *t = raft->impl;
    FLI_ASSERT(!t->closing && t->inited);
    t->closing = true;
    t->close_cb = cb;
    FLI_LIST_FOREACH_SAFE(pos, tmp, &t->accepting)
    {
        incoming_drop(FLI_CONTAINER_OF(pos, struct incoming, link));
    }
    if (t->listening) {
        uv_close((uv_handle_t *)&t->listener, handle_closed);
    }
    uv_close((uv_handle_t *)&t->sweeper, handle_closed);
    dial_cancel_all(t);
}

/* ---- life ---- */

static int bind_first(const struct addrinfo *list, uint16_t *ret_port)
{
    int saved = EADDRNOTAVAIL;
    for (const struct addrinfo *a = list; a != NULL; a = a->ai_next) {
        struct sockaddr_storage bound;
        socklen_t len = sizeof bound;
        int on = 1;
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0) {
            saved = errno;
            continue;
        }
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        /* Listening already here makes "address in use" an error now, not after the log was read.
         * Nobody is accepted before raft has started. */
        if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0 &&
            getsockname(fd, (struct sockaddr *)&bound, &len) == 0) {
            *ret_port =
                ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                  : ((struct sockaddr_in *)&bound)->sin_port);
            return fd;
        }
        saved = errno;
        close(fd);
    }
    errno = saved;
    return -1;
}

/* As address_split, but port 0 is allowed and means any. */
static int split_bind(const char *address, char host[256], char service[6])
{
    uint16_t port = 0;
    char copy[MEMBER_ADDRESS_MAX];
    size_t len = strlen(address);
    if (len > 2 && len < sizeof copy - 1 && strcmp(address + len - 2, ":0") == 0) {
        snprintf(copy, sizeof copy, "%.*s:1", (int)len - 2, address);
        int rv = address_split(copy, host, &port);
        port = 0;
        snprintf(service, 6, "%u", port);
        return rv;
    }
    int rv = address_split(address, host, &port);
    snprintf(service, 6, "%u", port);
    return rv;
}

static int transport_bind(struct transport *t, const char *address, char *errmsg,
                          size_t errmsg_size)
{
    char host[256];
    char service[6];
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    if (split_bind(address, host, service) != 0) {
        snprintf(errmsg, errmsg_size,
                 "peer address '%.200s' is not HOST:PORT (write [ADDRESS]:PORT for IPv6)", address);
        return FL_EINVAL;
    }
    int rv = getaddrinfo(host, service, &hints, &list);
    if (rv != 0) {
        snprintf(errmsg, errmsg_size, "peer address %s: %s", address, gai_strerror(rv));
        return FL_ESYSTEM;
    }
    t->fd = bind_first(list, &t->port);
    freeaddrinfo(list);
    if (t->fd < 0) {
        snprintf(errmsg, errmsg_size, "cannot listen for peers on %s: %s", address,
                 strerror(errno));
        return FL_ESYSTEM;
    }
    return 0;
}

int transport_create(uv_loop_t *loop, const char *bind_address, const struct members *members,
                     const struct transport_identity *self, const struct transport_callbacks *cbs,
                     struct transport **ret, char *errmsg, size_t errmsg_size)
{
    FLI_ASSERT(cbs->judge != NULL && cbs->link != NULL && cbs->answered != NULL);
    FLI_ASSERT(self->node_id != 0 && self->incarnation != 0);
    struct transport *t = calloc(1, sizeof *t);
    if (t == NULL) {
        snprintf(errmsg, errmsg_size, "out of memory");
        return FL_ENOMEM;
    }
    t->loop = loop;
    t->members = *members;
    t->self = *self;
    t->cbs = *cbs;
    t->fd = -1;
    fli_list_init(&t->accepting);
    fli_list_init(&t->dialing);
    t->raft.version = 1;
    t->raft.impl = t;
    t->raft.init = raft_side_init;
    t->raft.listen = raft_side_listen;
    t->raft.connect = raft_side_connect;
    t->raft.close = raft_side_close;
    int rv = transport_bind(t, bind_address, errmsg, errmsg_size);
    if (rv != 0) {
        free(t);
        return rv;
    }
    *ret = t;
    return 0;
}

struct raft_uv_transport *transport_raft(struct transport *t)
{
    return &t->raft;
}

uint16_t transport_port(const struct transport *t)
{
    return t->port;
}

void transport_set_cluster(struct transport *t, uint64_t cluster_id, uint64_t admitted_index)
{
    t->self.cluster_id = cluster_id;
    t->self.admitted_index = admitted_index;
}

int transport_link(struct transport *t, uint64_t peer_id, transport_link_cb cb, void *ctx)
{
    const struct member *m = members_find(&t->members, peer_id);
    if (m == NULL || peer_id == t->self.node_id) {
        return FL_EINVAL;
    }
    if (t->closing || !t->inited) {
        return FL_ENOCONN;
    }
    return dial_start(t, HELLO_LINK, peer_id, m->address, NULL, cb, ctx);
}

unsigned transport_pending(const struct transport *t)
{
    return t->accepting_count;
}

void transport_destroy(struct transport *t)
{
    if (t == NULL) {
        return;
    }
    FLI_ASSERT(t->handles == 0 && fli_list_empty(&t->dialing));
    if (t->fd >= 0) {
        close(t->fd);
    }
    free(t);
}
