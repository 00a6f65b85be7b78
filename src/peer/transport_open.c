/* transport_open.c: how a connection begins: dialed, or accepted; then the handshake.
 *
 * Dialing. A numeric address skips resolving. Each address that the name resolved to gets its own
 * time limits. When one fails, the next is tried once its socket is closed; but a peer that
 * answered with a refusal ends the dial. The callback never comes from within transport_dial().
 * When the node is a member no more, or the transport closes, the callback comes at once. What is
 * left of the dial is nobody's then, and its memory goes when its socket is closed, or the resolver
 * returns, since resolving cannot be interrupted.
 *
 * Accepting. Until its handshake is complete, a connection is `pending`: it is dropped at end of
 * stream, at its time limit, when there are too many, after a bad handshake, or when the transport
 * closes.
 *
 * Handshakes. The side that dialed says its handshake first; the other one checks it and answers,
 * and the first checks the answer. Between check and answer, and behind the answer, a connection
 * may wait for this node's disk: then transport_check_again() checks it anew. The answer leaves at
 * once, since a new socket has room for it. The dialer sends nothing between its handshake and the
 * answer. So closing after a refusal leaves no unread bytes behind, and the reason arrives. */
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/listen.h"
#include "peer/transport_private.h"

static const char *address_of(const struct stream *s)
{
    const struct member *m = members_find(&s->t->config.members, s->peer_id);
    return m == NULL ? "" : m->address;
}

/* ---- what this node says ---- */

/* A refusal tells nothing about this node (handshake.h). False: the connection is lost. */
static bool say(struct stream *s, enum stream_kind kind, enum handshake_verdict verdict,
                uint64_t target, const char *reason)
{
    struct handshake h;
    uint8_t bytes[HANDSHAKE_SIZE];
    memset(&h, 0, sizeof h);
    h.kind = kind;
    h.verdict = (uint8_t)verdict;
    h.target = target;
    snprintf(h.reason, sizeof h.reason, "%s", reason);
    if (s->dialed || verdict == HANDSHAKE_WELCOME) {
        h.from = s->t->config.self;
    }
    handshake_encode(&h, &s->t->config.formats, bytes);
    if (fli_buf_append(&s->gather, bytes, sizeof bytes) != 0) {
        stream_lose(s, "out of memory");
    }
    stream_flush(s);
    return !s->closing;
}

static void ask(struct stream *s)
{
    stream_expect(s, s->t->config.answer_ms);
    (void)say(s, s->kind, 0, s->peer_id, "");
}

/* ---- dialing ---- */

void dial_end(struct stream *s, int status)
{
    transport_dial_cb cb = s->dialed_cb;
    void *ctx = s->dialed_ctx;
    stream_close(s);
    cb(ctx, status, NULL, NULL);
}

static void connect_cb(uv_connect_t *connect, int status)
{
    struct stream *s = connect->data;
    struct transport *t = s->t;
    if (status != 0) {
        stream_lose_by(s, status);
        return;
    }
    stream_tune(s);
    s->phase = STREAM_SHAKING;
    stream_read_start(s);
    if (security_session(&t->security, s->peer_id, &s->tls) != 0) {
        stream_lose(s, "out of memory");
    } else if (s->tls == NULL) {
        ask(s);
    } else {
        stream_expect(s, t->config.answer_ms);
        stream_secure(s);
    }
}

/* Each address has failed. */
static void dial_failed(struct stream *s)
{
    struct transport *t = s->t;
    uint64_t id = s->peer_id;
    bool absent = s->tried > 0 && s->absent == s->tried;
    transport_log(t, 3, "node %" PRIu64 " at %s cannot be reached: %s", id, address_of(s), s->why);
    dial_end(s, FL_ENOCONN);
    if (absent) {
        t->cbs.absent(t->cbs.ctx, id);
    }
}

void dial_next(struct stream *s)
{
    struct addrinfo *a = s->next;
    if (a == NULL) {
        dial_failed(s);
        return;
    }
    s->next = a->ai_next;
    s->tried++;
    s->phase = STREAM_CONNECTING;
    stream_socket(s);
    stream_expect(s, s->t->config.connect_ms);
    int rv = uv_tcp_connect(&s->connect, &s->tcp, a->ai_addr, connect_cb);
    if (rv != 0) {
        stream_lose(s, uv_strerror(rv));
    }
}

static void resolve_cb(uv_getaddrinfo_t *resolve, int status, struct addrinfo *list)
{
    struct stream *s = resolve->data;
    s->list = s->next = list;
    if (status != 0) {
        snprintf(s->why, sizeof s->why, "its name cannot be resolved: %s", uv_strerror(status));
    }
    stream_released(s);
}

static int resolve(struct stream *s, const char *host, uint16_t port)
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
    int rv = uv_getaddrinfo(s->t->loop, &s->resolve, resolve_cb, host, service, &hints);
    s->released = rv != 0;
    return rv == 0 ? 0 : FL_ESYSTEM;
}

int transport_dial(struct transport *t, uint64_t peer_id, enum stream_kind kind,
                   transport_dial_cb cb, void *ctx)
{
    const struct member *m = members_find(&t->config.members, peer_id);
    char host[256];
    uint16_t port;
    FLI_ASSERT(kind >= 1 && (unsigned)kind <= STREAM_KINDS && cb != NULL);
    if (m == NULL || peer_id == t->config.self.node_id ||
        address_split(m->address, host, &port) != 0) {
        return FL_EINVAL;
    }
    if (t->closing || !t->started) {
        return FL_ENOCONN;
    }
    struct stream *s = stream_create(t, true);
    if (s == NULL) {
        return FL_ENOMEM;
    }
    s->kind = kind;
    s->peer_id = peer_id;
    s->dialed_cb = cb;
    s->dialed_ctx = ctx;
    snprintf(s->why, sizeof s->why, "it has no address");
    int rv = resolve(s, host, port);
    if (rv != 0) {
        stream_close(s);
    }
    return rv;
}

/* ---- accepting ---- */

static unsigned count_of(const struct transport *t, const struct origin *o)
{
    unsigned n = 0;
    FLI_LIST_FOREACH(pos, &t->all)
    {
        n += is_pending(stream_of(pos)) && memcmp(&stream_of(pos)->origin, o, sizeof *o) == 0;
    }
    return n;
}

/* A real peer sends its handshake at once, so of the origin with the most pending connections the
 * oldest is the least likely to be one. */
static void make_room(struct transport *t)
{
    struct stream *victim = NULL;
    unsigned all = 0;
    unsigned most = 0;
    FLI_LIST_FOREACH(pos, &t->all)
    {
        struct stream *s = stream_of(pos);
        unsigned n = is_pending(s) ? count_of(t, &s->origin) : 0;
        all += n > 0;
        if (n > most) {
            most = n;
            victim = s;
        }
    }
    if (most > TRANSPORT_PENDING_ADDRESS_MAX || all > TRANSPORT_PENDING_MAX) {
        transport_log(t, 2,
                      "too many connections to the peer port say nothing: one of %s is dropped",
                      victim->address);
        stream_lose(victim, "");
    }
}

static void note_origin(struct stream *s, const struct sockaddr_storage *from)
{
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)from;
    if (from->ss_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)from;
        memcpy(s->origin.bytes, &four->sin_addr, 4);
        (void)uv_ip4_name(four, s->address, sizeof s->address);
        return;
    }
    (void)uv_ip6_name(six, s->address, sizeof s->address);
    if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
        memcpy(s->origin.bytes, six->sin6_addr.s6_addr + 12, 4);
    } else {
        memcpy(s->origin.bytes, six->sin6_addr.s6_addr, sizeof s->origin.bytes);
    }
}

/* Takes the descriptor over. */
static void begin(struct transport *t, int fd, const struct sockaddr_storage *from)
{
    struct stream *s = stream_create(t, false);
    if (s == NULL) {
        (void)close(fd);
        return;
    }
    s->phase = STREAM_SHAKING;
    note_origin(s, from);
    stream_socket(s);
    if (uv_tcp_open(&s->tcp, fd) != 0) {
        (void)close(fd);
        stream_lose(s, "");
        return;
    }
    stream_tune(s);
    make_room(t);
    stream_expect(s, t->pending_ms);
    if (security_session(&t->security, 0, &s->tls) != 0) {
        stream_lose(s, "out of memory");
    }
    stream_read_start(s);
}

/* Accepts until none waits, or the turn has had its share. A system without descriptors says so as
 * long as a connection waits, so after an error the next tick goes on. */
static void listener_cb(uv_poll_t *listener, int status, int events)
{
    struct transport *t = listener->data;
    int error = status;
    for (unsigned n = 0; n < TRANSPORT_ACCEPTS_TURN_MAX && error == 0; n++) {
        struct sockaddr_storage from = {.ss_family = AF_INET};
        socklen_t len = sizeof from;
        int fd = accept4(t->fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        error = fd < 0 ? uv_translate_sys_error(errno) : 0;
        if (fd >= 0) {
            begin(t, fd, &from);
        }
    }
    if (error == 0 || error == UV_EAGAIN || error == UV_EINTR || error == UV_ECONNABORTED) {
        return;
    }
    transport_log(t, 2, "a connection to the peer port cannot be accepted: %s%s",
                  uv_strerror(error), fli_files_remedy(uv_strerror(error)));
    (void)uv_poll_stop(&t->listener);
    transport_tick_soon(t);
}

int accept_start(struct transport *t)
{
    return uv_poll_start(&t->listener, UV_READABLE, listener_cb);
}

/* ---- the stream ---- */

/* Loses the oldest stream of a node and kind, when there is one too many. */
static void make_place(const struct stream *newest)
{
    struct stream *oldest = NULL;
    unsigned n = 0;
    FLI_LIST_FOREACH(pos, &newest->t->all)
    {
        struct stream *s = stream_of(pos);
        if (!s->closing && is_accepted(s) && s->peer_id == newest->peer_id &&
            s->kind == newest->kind) {
            oldest = n++ == 0 ? s : oldest;
        }
    }
    if (n > TRANSPORT_ACCEPTED_MAX) {
        stream_lose(oldest, "a newer stream of the same node took its place");
    }
}

static void welcome_call(struct stream *s, const struct handshake *h)
{
    struct transport *t = s->t;
    if (say(s, h->kind, HANDSHAKE_WELCOME, h->from.node_id, "")) {
        stream_give(s, h->kind, h->from.node_id);
        make_place(s);
        t->cbs.accepted(t->cbs.ctx, h->kind, &h->from, s);
    }
}

static void welcome_answer(struct stream *s, const struct handshake *h)
{
    struct transport *t = s->t;
    uint64_t id = s->peer_id;
    stream_give(s, s->kind, id);
    s->dialed_cb(s->dialed_ctx, 0, &h->from, s);
    t->cbs.answered(t->cbs.ctx, id, HANDSHAKE_WELCOME, "");
}

/* ---- handshakes ---- */

/* Whether two nodes can belong to one cluster, by the members and the state that each began with. A
 * formed cluster knows its nodes by their incarnations. A node that joins it begins empty, not with
 * a restored state. */
static bool began_alike(const struct transport *t, const struct peer_identity *peer)
{
    bool self_formed = t->config.self.cluster_id != 0;
    bool peer_formed = peer->cluster_id != 0;
    if (peer->members_crc == t->config.self.members_crc || peer->members_crc == 0 ||
        t->config.self.members_crc == 0) {
        return true;
    }
    return (self_formed && peer->members_crc == t->config.members_crc) ||
           (peer_formed && t->config.self.members_crc == t->config.members_crc);
}

/* The verdict of this node about the other one, which names itself in h. `alike`: that one is
 * configured with the same members and is of no other cluster. */
static int check(struct stream *s, struct handshake *h, bool *alike,
                 char reason[HANDSHAKE_REASON_MAX])
{
    struct transport *t = s->t;
    struct peer_identity *peer = &h->from;
    uint64_t peer_id = peer->node_id;
    uint64_t self_id = t->config.self.node_id;
    peer->welcomes = s->dialed;
    peer->waited = s->phase == STREAM_UNDECIDED;
    *alike = false;
    if (!began_alike(t, peer)) {
        return fli_refuse(reason, HANDSHAKE_REASON_MAX, HANDSHAKE_OTHER_MEMBERS,
                          "nodes %" PRIu64 " and %" PRIu64
                          " began with different members, or from different "
                          "backups: give all nodes the same, or join with --join",
                          self_id, peer_id);
    }
    if (peer->cluster_id != 0 && t->config.self.cluster_id != 0 &&
        peer->cluster_id != t->config.self.cluster_id) {
        return fli_refuse(reason, HANDSHAKE_REASON_MAX, HANDSHAKE_OTHER_CLUSTER,
                          "node %" PRIu64 " belongs to cluster %016" PRIx64 ", node %" PRIu64
                          " to cluster %016" PRIx64,
                          self_id, t->config.self.cluster_id, peer_id, peer->cluster_id);
    }
    *alike = true;
    if (h->target != t->config.self.node_id) {
        return fli_refuse(reason, HANDSHAKE_REASON_MAX, HANDSHAKE_STRANGER,
                          "node %" PRIu64 " was called, but this is node %" PRIu64, h->target,
                          self_id);
    }
    bool is_self = peer_id == self_id;
    enum handshake_verdict verdict = HANDSHAKE_WELCOME;
    if (!is_self) {
        verdict = t->cbs.check(t->cbs.ctx, peer, reason);
    }
    if (verdict == HANDSHAKE_WELCOME &&
        (is_self || members_find(&t->config.members, peer_id) == NULL)) {
        return fli_refuse(reason, HANDSHAKE_REASON_MAX, HANDSHAKE_STRANGER,
                          "node %" PRIu64 " is not another member for node %" PRIu64, peer_id,
                          self_id);
    }
    return (int)verdict;
}

/* Tells the caller a verdict, and drops the connection. */
static void refuse_call(struct stream *s, enum stream_kind kind, uint64_t target,
                        enum handshake_verdict verdict, const char *reason)
{
    if (say(s, kind, verdict, target, reason)) {
        stream_lose(s, "");
    }
}

/* A caller that waits for this node's disk is read on, since it may hang up. */
static void check_call(struct stream *s, int rv, struct handshake *h)
{
    struct transport *t = s->t;
    char reason[HANDSHAKE_REASON_MAX] = {0};
    bool alike;
    if (rv == FL_EVERSION) {
        handshake_explain_version(s->in.in.data, &t->config.formats, reason, sizeof reason);
        transport_log(t, 2, "a node of another version at %s was refused: %s", s->address, reason);
        refuse_call(s, STREAM_RAFT, 0, HANDSHAKE_OTHER_VERSION, "");
        return;
    }
    if (rv != 0 || h->verdict != 0) {
        stream_break(s, "not a node");
        return;
    }
    if (!security_is(&t->security, s->tls, h->from.node_id)) {
        snprintf(reason, sizeof reason,
                 "it says that it is node %" PRIu64 ", and has proved to be another",
                 h->from.node_id);
        stream_break(s, reason);
        return;
    }
    enum handshake_verdict verdict = (enum handshake_verdict)check(s, h, &alike, reason);
    if (s->closing) {
        return; /* the check has ended it */
    }
    if (verdict == HANDSHAKE_WELCOME) {
        welcome_call(s, h);
    } else if (verdict != HANDSHAKE_UNDECIDED) {
        transport_log(t, 2, "refused node %" PRIu64 " at %s: %s", h->from.node_id, s->address,
                      reason);
        refuse_call(s, h->kind, h->from.node_id, verdict, alike ? reason : "");
    } else if (s->in.in.len > HANDSHAKE_SIZE) {
        stream_break(s, "not a node"); /* it would wait for the answer */
    } else {
        s->phase = STREAM_UNDECIDED;
    }
}

/* The dial ends: by the verdict of the called node; or by this one, with UNDECIDED. */
static void hang_up(struct stream *s, enum handshake_verdict verdict, const char *reason)
{
    struct transport *t = s->t;
    uint64_t id = s->peer_id;
    if (verdict == HANDSHAKE_UNDECIDED) {
        transport_log(t, 2, "hung up on node %" PRIu64 " at %s: %s", id, address_of(s), reason);
        dial_end(s, FL_EDENIED);
        return;
    }
    transport_log(t, 2, "node %" PRIu64 " at %s refused this node: %s", id, address_of(s), reason);
    dial_end(s, FL_EDENIED);
    t->cbs.answered(t->cbs.ctx, id, verdict, reason);
}

/* A welcome waits unread for this node's disk: the called node may send as soon as it has
 * answered. */
static void check_welcome(struct stream *s, struct handshake *h)
{
    char reason[HANDSHAKE_REASON_MAX] = {0};
    bool alike;
    if (h->from.node_id != s->peer_id || h->kind != s->kind) {
        snprintf(reason, sizeof reason,
                 "node %" PRIu64 " answered where node %" PRIu64 " was called", h->from.node_id,
                 s->peer_id);
        hang_up(s, HANDSHAKE_UNDECIDED, reason);
        return;
    }
    enum handshake_verdict verdict = (enum handshake_verdict)check(s, h, &alike, reason);
    if (s->closing) {
        return; /* the check has ended it */
    }
    if (verdict == HANDSHAKE_WELCOME) {
        welcome_answer(s, h);
    } else if (verdict != HANDSHAKE_UNDECIDED) {
        hang_up(s, HANDSHAKE_UNDECIDED, reason);
    } else {
        s->phase = STREAM_UNDECIDED;
        stream_read_stop(s);
        stream_expect(s, s->t->config.answer_ms);
    }
}

static void check_answer(struct stream *s, int rv, struct handshake *h)
{
    enum handshake_verdict verdict = (enum handshake_verdict)h->verdict;
    char reason[HANDSHAKE_REASON_MAX];
    if (rv == FL_EVERSION) {
        handshake_explain_version(s->in.in.data, &s->t->config.formats, reason, sizeof reason);
        hang_up(s, HANDSHAKE_OTHER_VERSION, reason);
    } else if (rv != 0 || verdict == HANDSHAKE_UNDECIDED) {
        hang_up(s, HANDSHAKE_UNDECIDED, "its answer is not one of a node");
    } else if (verdict == HANDSHAKE_WELCOME) {
        check_welcome(s, h);
    } else {
        hang_up(s, verdict, h->reason[0] != '\0' ? h->reason : handshake_verdict_text(verdict));
    }
}

static void shake_check(struct stream *s)
{
    struct handshake h = {.verdict = 0};
    int rv = handshake_decode(s->in.in.data, &s->t->config.formats, &h);
    (s->dialed ? check_answer : check_call)(s, rv, &h);
}

void shake_secured(struct stream *s)
{
    char why[FLI_TLS_ERRMSG_SIZE];
    if (s->dialed) {
        ask(s);
    } else if (!security_is_member(&s->t->security, s->tls, why, sizeof why)) {
        stream_break(s, why);
    }
}

void shake_bytes(struct stream *s)
{
    if (s->phase == STREAM_UNDECIDED) {
        stream_break(s, "not a node");
    } else if (s->in.in.len >= HANDSHAKE_SIZE) {
        shake_check(s);
    }
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
