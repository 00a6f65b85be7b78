/* transport_accept.c: connections that others open, and their streams.
 *
 * An accepted connection is `pending` until its handshake is complete. The steps: accept, read
 * HANDSHAKE_SIZE bytes, check them, write the answer, hand the stream on. Between check and answer
 * it may wait for this node's disk. A pending connection is
 * dropped at end of stream, at its deadline, when there are too many, after a bad handshake, or
 * when the transport closes.
 *
 * The answer leaves at once, since a new socket has room for it. The dialer sends nothing between
 * its handshake and the answer. So closing after a refusal leaves no unread bytes behind, and the
 * reason arrives. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "peer/transport_private.h"

#define ACCEPT_RETRY_MS 100u

/* The origin of a connection: an IPv4 address, or the network part of an IPv6 one. */
struct origin {
    uint8_t bytes[8];
};

struct pending {
    struct shake shake;
    struct origin origin;
    char address[64]; /* for the log */
};

static void check_pending(struct shake *s, struct fli_slice leftover);

/* NULL: this node has dialed it. */
static struct pending *pending_of(struct fli_list *pos)
{
    struct shake *s = FLI_CONTAINER_OF(pos, struct shake, link);
    return s->check == check_pending ? FLI_CONTAINER_OF(s, struct pending, shake) : NULL;
}

/* Frees it, but not its channel. */
static void pending_free(struct pending *p)
{
    shake_fini(&p->shake);
    FLI_ASSERT(p->shake.t->pending_n > 0);
    p->shake.t->pending_n--;
    free(p);
}

static void pending_drop(struct pending *p)
{
    struct channel *c = p->shake.channel;
    pending_free(p);
    channel_close(c);
}

static void pending_turn_away(struct pending *p)
{
    p->shake.t->turned_away++;
    pending_drop(p);
}

/* ---- accepted streams ---- */

static struct stream *stream_of(struct fli_list *pos)
{
    return FLI_CONTAINER_OF(pos, struct stream, accepted);
}

static bool is_of(const struct transport *t, const struct stream *s, uint64_t peer_id)
{
    return peer_id != 0 ? s->peer_id == peer_id : members_find(&t->members, s->peer_id) == NULL;
}

/* The owner of a stream may close others, so the list is read anew after each. */
void accept_lose(struct transport *t, uint64_t peer_id, enum channel_end end, const char *why)
{
    struct fli_list *pos = t->accepted.next;
    while (pos != &t->accepted) {
        if (is_of(t, stream_of(pos), peer_id)) {
            channel_lose(stream_of(pos)->channel, end, why);
            pos = t->accepted.next;
        } else {
            pos = pos->next;
        }
    }
}

/* Loses the oldest stream of a node and kind, when there is one too many. */
static void make_place(struct transport *t, uint64_t peer_id, enum stream_kind kind)
{
    struct stream *oldest = NULL;
    unsigned n = 0;
    FLI_LIST_FOREACH(pos, &t->accepted)
    {
        if (stream_of(pos)->peer_id == peer_id && stream_of(pos)->kind == kind) {
            oldest = n++ == 0 ? stream_of(pos) : oldest;
        }
    }
    if (n > TRANSPORT_ACCEPTED_MAX) {
        channel_lose(oldest->channel, CHANNEL_REPLACED,
                     "a newer stream of the same node took its place");
    }
}

void accept_broken(const struct stream *s, const char *why)
{
    if (members_find(&s->transport->members, s->peer_id) != NULL) {
        transport_log(s->transport, 2, "what node %llu sent is broken: %s",
                      (unsigned long long)s->peer_id, why);
    }
}

static void hand_on(struct transport *t, struct channel *c, const struct handshake *h,
                    struct fli_slice leftover)
{
    struct stream *s;
    if (stream_create(c, &t->limits[h->kind], leftover, &s) != 0) {
        t->turned_away++;
        transport_log(t, 2, "out of memory for a stream from node %llu",
                      (unsigned long long)h->from.node_id);
        return;
    }
    s->transport = t;
    s->kind = h->kind;
    s->peer_id = h->from.node_id;
    fli_list_push(&t->accepted, &s->accepted);
    make_place(t, h->from.node_id, h->kind);
    t->cbs.accepted(t->cbs.ctx, h->kind, &h->from, s);
}

/* ---- the answer ---- */

/* False: the connection is lost, and p is freed. */
static bool answer_welcome(struct pending *p, const struct handshake *asked)
{
    struct handshake answer;
    memset(&answer, 0, sizeof answer);
    answer.kind = asked->kind;
    answer.verdict = HANDSHAKE_WELCOME;
    answer.target = asked->from.node_id;
    answer.from = p->shake.t->self;
    return shake_send(&p->shake, &answer);
}

/* Answers with a refusal, which tells nothing about this node (handshake.h), and drops the
 * connection. */
static void answer_refusal(struct pending *p, enum stream_kind kind, uint64_t target,
                           enum handshake_verdict verdict, const char *reason)
{
    struct handshake answer;
    memset(&answer, 0, sizeof answer);
    answer.kind = kind;
    answer.verdict = (uint8_t)verdict;
    answer.target = target;
    snprintf(answer.reason, sizeof answer.reason, "%s", reason);
    if (shake_send(&p->shake, &answer)) {
        pending_turn_away(p);
    }
}

/* The peer is no member, or claims to be another node than it has proved: it gets no answer. */
static void cut_off(struct pending *p, const char *why)
{
    transport_log(p->shake.t, 2, "a connection from %s to the peer port was refused: %s",
                  p->address, why);
    pending_turn_away(p);
}

static void drop_no_node(struct pending *p)
{
    transport_log(p->shake.t, 2, "a connection from %s to the peer port was dropped: not a node",
                  p->address);
    pending_turn_away(p);
}

static void check_pending(struct shake *s, struct fli_slice leftover)
{
    struct pending *p = FLI_CONTAINER_OF(s, struct pending, shake);
    struct transport *t = s->t;
    struct handshake h;
    char reason[HANDSHAKE_REASON_MAX] = {0};
    bool alike;
    int rv = handshake_decode(s->buf, &t->formats, &h);
    if (rv == FL_EVERSION) {
        handshake_explain_version(s->buf, &t->formats, reason, sizeof reason);
        transport_log(t, 2, "a node of another version at %s was refused: %s", p->address, reason);
        answer_refusal(p, STREAM_RAFT, 0, HANDSHAKE_OTHER_VERSION, "");
        return;
    }
    if (rv != 0 || h.verdict != 0) {
        drop_no_node(p);
        return;
    }
    if (t->security != NULL && !security_is(t->security, channel_tls(s->channel), h.from.node_id)) {
        (void)snprintf(reason, sizeof reason,
                       "it says that it is node %llu, and has proved to be another",
                       (unsigned long long)h.from.node_id);
        cut_off(p, reason);
        return;
    }
    h.from.waited = s->waits;
    enum handshake_verdict verdict = transport_check(t, &h, &alike, reason);
    s->waits = verdict == HANDSHAKE_UNDECIDED;
    if (verdict == HANDSHAKE_UNDECIDED && leftover.len > 0) {
        drop_no_node(p); /* a node waits for the answer */
        return;
    }
    if (verdict == HANDSHAKE_UNDECIDED) {
        return;
    }
    if (verdict != HANDSHAKE_WELCOME) {
        transport_log(t, 2, "refused node %llu at %s: %s", (unsigned long long)h.from.node_id,
                      p->address, reason);
        answer_refusal(p, h.kind, h.from.node_id, verdict, alike ? reason : "");
        return;
    }
    if (!answer_welcome(p, &h)) {
        return;
    }
    struct channel *c = s->channel;
    pending_free(p);
    hand_on(t, c, &h, leftover);
}

/* ---- strangers ---- */

static void pending_bytes(void *ctx, const uint8_t *data, size_t len)
{
    struct pending *p = ctx;
    if (p->shake.waits) {
        drop_no_node(p);
    } else {
        shake_bytes(&p->shake, data, len);
    }
}

static void pending_late(struct shake *s)
{
    pending_turn_away(FLI_CONTAINER_OF(s, struct pending, shake));
}

static void pending_lost(void *ctx, enum channel_end end, const char *why)
{
    struct pending *p = ctx;
    if (end == CHANNEL_BROKEN) {
        transport_log(p->shake.t, 2, "a connection from %s to the peer port was dropped: %s",
                      p->address, why);
    }
    pending_turn_away(p);
}

static void pending_shaken(void *ctx)
{
    struct pending *p = ctx;
    char why[FLI_TLS_ERRMSG_SIZE];
    if (!security_is_member(p->shake.t->security, channel_tls(p->shake.channel), why, sizeof why)) {
        cut_off(p, why);
    }
}

static int pending_secure(struct pending *p)
{
    struct fli_tls *tls;
    struct security *security = p->shake.t->security;
    int rv = security == NULL ? 0 : security_answer(security, &tls);
    if (rv != 0 || security == NULL) {
        return rv;
    }
    return channel_secure(p->shake.channel, tls, false, pending_shaken);
}

static void find_origin(struct channel *c, struct pending *p)
{
    struct sockaddr_storage from;
    int len = sizeof from;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&from;
    memset(&from, 0, sizeof from);
    snprintf(p->address, sizeof p->address, "an unknown address");
    if (uv_tcp_getpeername(channel_tcp(c), (struct sockaddr *)&from, &len) != 0) {
        return;
    }
    if (from.ss_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)&from;
        memcpy(p->origin.bytes, &four->sin_addr, 4);
        (void)uv_ip4_name(four, p->address, sizeof p->address);
        return;
    }
    (void)uv_ip6_name(six, p->address, sizeof p->address);
    if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
        memcpy(p->origin.bytes, six->sin6_addr.s6_addr + 12, 4);
    } else {
        memcpy(p->origin.bytes, six->sin6_addr.s6_addr, sizeof p->origin.bytes);
    }
}

static bool is_from(struct fli_list *pos, const struct origin *o)
{
    const struct pending *p = pending_of(pos);
    return p != NULL && memcmp(&p->origin, o, sizeof *o) == 0;
}

/* How many connections of an origin are pending, and the oldest of them. */
static unsigned count_of(const struct transport *t, const struct origin *o,
                         struct pending **ret_oldest)
{
    unsigned n = 0;
    FLI_LIST_FOREACH(pos, &t->shaking)
    {
        if (is_from(pos, o)) {
            *ret_oldest = n++ == 0 ? pending_of(pos) : *ret_oldest;
        }
    }
    return n;
}

/* The oldest pending connection of the origin with the most of them. */
static struct pending *least_likely(struct transport *t)
{
    struct pending *found = NULL;
    unsigned most = 0;
    FLI_LIST_FOREACH(pos, &t->shaking)
    {
        struct pending *p = pending_of(pos);
        unsigned n = p == NULL ? 0 : count_of(t, &p->origin, &p);
        if (n > most) {
            most = n;
            found = p;
        }
    }
    return found;
}

/* A real peer sends its handshake at once, so the oldest pending connection is the least likely to
 * be one. */
static void make_room(struct transport *t, const struct origin *o)
{
    struct pending *victim = NULL;
    bool many = count_of(t, o, &victim) >= TRANSPORT_PENDING_ADDRESS_MAX;
    if (!many && t->pending_n < TRANSPORT_PENDING_MAX) {
        return;
    }
    victim = many ? victim : least_likely(t);
    transport_log(t, 2, "too many connections to the peer port say nothing: one of %s is dropped",
                  victim->address);
    pending_turn_away(victim);
}

static void count_accept(struct transport *t)
{
    uint64_t turn = channel_turn(&t->shared);
    t->accepts = t->accepts_turn == turn ? t->accepts + 1 : 1;
    t->accepts_turn = turn;
}

/* Accepts the next connection. False when there is no memory. */
static bool accept_one(struct transport *t)
{
    struct channel *c;
    struct pending *p = calloc(1, sizeof *p);
    if (p == NULL || transport_channel(t, &c) != 0) {
        free(p);
        return false;
    }
    struct channel_callbacks cbs = {.ctx = p, .bytes = pending_bytes, .lost = pending_lost};
    channel_own(c, &cbs);
    count_accept(t);
    if (channel_accept(c, (uv_stream_t *)&t->listener) != 0) {
        free(p);
        channel_close(c);
        return true;
    }
    find_origin(c, p);
    make_room(t, &p->origin);
    shake_init(&p->shake, t);
    p->shake.channel = c;
    p->shake.check = check_pending;
    p->shake.late = pending_late;
    t->pending_n++;
    deadline_set(&p->shake.deadline, t->pending_ms);
    if (pending_secure(p) != 0 || channel_read_start(c) != 0) {
        pending_turn_away(p);
    }
    return true;
}

/* libuv accepts as long as connections wait, without leaving its loop; and it has a spare
 * descriptor to turn them away with, but when even that is used up, it tries again for ever.
 * Closing the listener ends both. The socket still listens, under t->fd, so the connections
 * wait. */
static void pause_accepting(struct transport *t, unsigned ms)
{
    accept_stop(t);
    t->accept_paused = true;
    deadline_set(&t->accept_retry, ms);
}

static void listener_cb(uv_stream_t *listener, int status)
{
    struct transport *t = listener->data;
    if (t->closing) {
        return;
    }
    if (status != 0) {
        transport_log(t, 2, "a connection to the peer port cannot be accepted: %s%s",
                      uv_strerror(status), fli_files_remedy(uv_strerror(status)));
    }
    if (status == UV_EMFILE || status == UV_ENFILE || (status == 0 && !accept_one(t))) {
        pause_accepting(t, ACCEPT_RETRY_MS);
    } else if (status == 0 && t->accepts >= TRANSPORT_ACCEPTS_TURN_MAX) {
        pause_accepting(t, 1); /* until the next turn */
        t->accept_retry.late = true;
    }
    deadlines_changed(t);
}

static void listener_closed(uv_handle_t *handle)
{
    struct transport *t = handle->data;
    t->listening = false;
    transport_maybe_closed(t);
}

void accept_stop(struct transport *t)
{
    if (t->listening && !uv_is_closing((uv_handle_t *)&t->listener)) {
        uv_close((uv_handle_t *)&t->listener, listener_closed);
    }
}

/* The listener gets a copy of the socket's descriptor, which it owns. */
static int listen_with_copy(struct transport *t)
{
    int fd = fcntl(t->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
        return uv_translate_sys_error(errno);
    }
    int rv = uv_tcp_init(t->shared.loop, &t->listener);
    if (rv != 0) {
        (void)close(fd);
        return rv;
    }
    t->listener.data = t;
    t->listening = true;
    rv = uv_tcp_open(&t->listener, fd);
    if (rv != 0) {
        (void)close(fd);
    }
    rv = rv != 0 ? rv : uv_listen((uv_stream_t *)&t->listener, TRANSPORT_BACKLOG, listener_cb);
    if (rv != 0) {
        accept_stop(t);
    }
    return rv;
}

int accept_start(struct transport *t, char *errmsg, size_t errmsg_size)
{
    int rv = listen_with_copy(t);
    if (rv != 0) {
        snprintf(errmsg, errmsg_size, "cannot listen on the peer port: %s", uv_strerror(rv));
        return FL_ESYSTEM;
    }
    return 0;
}

void accept_sweep(struct transport *t)
{
    if (t->accept_paused && deadline_over(&t->accept_retry)) {
        t->accept_paused = t->listening || listen_with_copy(t) != 0;
        deadline_set(&t->accept_retry, ACCEPT_RETRY_MS);
    }
}

void accept_drop_all(struct transport *t)
{
    FLI_LIST_FOREACH_SAFE(pos, tmp, &t->shaking)
    {
        if (pending_of(pos) != NULL) {
            pending_drop(pending_of(pos));
        }
    }
}
