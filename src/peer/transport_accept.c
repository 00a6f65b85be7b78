/* transport_accept.c: connections until their handshake is checked, and the accepted streams of
 * each member.
 *
 * An accepted connection is `pending` until its handshake is complete. The steps: accept, read
 * HANDSHAKE_SIZE bytes, check them, write the answer, hand the stream on. Between check and answer
 * it may wait for this node's disk. A pending connection is
 * dropped at end of stream, at its deadline, when there are too many, after a bad handshake, or
 * when the transport closes.
 *
 * The answer is written at once: a new socket has room for it, and a connection that has none is
 * dropped. The dialer sends nothing between its handshake and the answer. So closing after a
 * refusal leaves no unread bytes behind, and the reason arrives. */
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
    struct fli_list link;
    struct transport *t;
    struct channel *channel;
    struct deadline deadline;
    struct origin origin;
    char address[64]; /* for the log */
    struct undecided undecided;
    size_t got;
    uint8_t buf[HANDSHAKE_SIZE];
};

static struct pending *pending_of(struct fli_list *pos)
{
    return FLI_CONTAINER_OF(pos, struct pending, link);
}

/* Frees it, but not its channel. */
static void pending_free(struct pending *p)
{
    fli_list_remove(&p->link);
    FLI_ASSERT(p->t->pending_n > 0);
    p->t->pending_n--;
    free(p);
}

static void pending_drop(struct pending *p)
{
    struct channel *c = p->channel;
    pending_free(p);
    channel_close(c);
}

/* ---- accepted streams ---- */

static bool is_unused(const struct transport *t, const struct accepted_peer *p)
{
    unsigned n = 0;
    for (unsigned kind = 0; kind < STREAM_KINDS; kind++) {
        n += p->kinds[kind].n;
    }
    return n == 0 && members_find(&t->members, p->id) == NULL;
}

/* There is always a place: one for each member, and those of former members become free. */
static struct accepted *accepted_of(struct transport *t, uint64_t peer_id, enum stream_kind kind)
{
    struct accepted_peer *found = NULL;
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        struct accepted_peer *p = &t->accepted[i];
        if (p->id == peer_id) {
            return &p->kinds[kind - 1];
        }
        found = found == NULL && is_unused(t, p) ? p : found;
    }
    FLI_ASSERT(found != NULL);
    found->id = peer_id;
    return &found->kinds[kind - 1];
}

static void lose_all(struct accepted *a)
{
    while (a->n > 0) {
        unsigned before = a->n;
        stream_lose(stream_of_place(a->streams.next), CHANNEL_BROKEN,
                    "the node is a member no more");
        FLI_ASSERT(a->n < before);
    }
}

void accept_lose_former_members(struct transport *t)
{
    for (unsigned i = 0; i < KNOWN_MEMBERS_MAX; i++) {
        struct accepted_peer *p = &t->accepted[i];
        for (unsigned kind = 0; kind < STREAM_KINDS && members_find(&t->members, p->id) == NULL;
             kind++) {
            lose_all(&p->kinds[kind]);
        }
    }
}

static void log_broken(const struct stream_place *place, const char *why)
{
    if (members_find(&place->transport->members, place->peer_id) != NULL) {
        transport_log(place->transport, 2, "what node %llu sent is broken: %s",
                      (unsigned long long)place->peer_id, why);
    }
}

static void hand_on(struct transport *t, struct channel *c, const struct handshake *h,
                    struct fli_slice leftover)
{
    struct stream *s;
    struct accepted *a = accepted_of(t, h->from.node_id, h->kind);
    if (stream_create(c, &t->limits[h->kind], leftover, &t->streams, &s) != 0) {
        t->dropped++;
        transport_log(t, 2, "out of memory for a stream from node %llu",
                      (unsigned long long)h->from.node_id);
        return;
    }
    struct stream_place *place = stream_place(s);
    *place = (struct stream_place){
        .count = &a->n, .broken = log_broken, .transport = t, .peer_id = h->from.node_id};
    fli_list_init(&place->link);
    fli_list_push(&a->streams, &place->link);
    a->n++;
    t->accepted_ever++;
    if (a->n > TRANSPORT_ACCEPTED_MAX) {
        t->replaced++;
        stream_lose(stream_of_place(a->streams.next), CHANNEL_REPLACED,
                    "a newer stream of the same node took its place");
        FLI_ASSERT(a->n <= TRANSPORT_ACCEPTED_MAX);
    }
    t->cbs.accepted(t->cbs.ctx, h->kind, &h->from, s);
}

/* ---- the answer ---- */

/* False: the connection is lost, and p is freed. */
static bool send_answer(struct pending *p, const struct handshake *answer)
{
    uint8_t bytes[HANDSHAKE_SIZE];
    handshake_encode(answer, &p->t->formats, bytes);
    return channel_write_handshake(p->channel, bytes, sizeof bytes);
}

static bool answer_welcome(struct pending *p, const struct handshake *asked)
{
    struct handshake answer;
    memset(&answer, 0, sizeof answer);
    answer.kind = asked->kind;
    answer.verdict = HANDSHAKE_WELCOME;
    answer.target = asked->from.node_id;
    answer.from = p->t->self;
    return send_answer(p, &answer);
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
    p->t->refused++;
    if (send_answer(p, &answer)) {
        pending_drop(p);
    }
}

/* The peer is no member, or claims to be another node than it has proved: it gets no answer. */
static void cut_off(struct pending *p, const char *why)
{
    struct transport *t = p->t;
    t->refused++;
    transport_log(t, 2, "a connection from %s to the peer port was refused: %s", p->address, why);
    pending_drop(p);
}

static void drop_no_node(struct pending *p)
{
    p->t->dropped++;
    transport_log(p->t, 2, "a connection from %s to the peer port was dropped: not a node",
                  p->address);
    pending_drop(p);
}

static void check_pending(struct pending *p, struct fli_slice leftover)
{
    struct transport *t = p->t;
    struct handshake h;
    char reason[HANDSHAKE_REASON_MAX] = {0};
    bool alike;
    int rv = handshake_decode(p->buf, &t->formats, &h);
    if (rv == FL_EVERSION) {
        handshake_explain_version(p->buf, &t->formats, reason, sizeof reason);
        transport_log(t, 2, "a node of another version at %s was refused: %s", p->address, reason);
        answer_refusal(p, STREAM_RAFT, 0, HANDSHAKE_OTHER_VERSION, "");
        return;
    }
    if (rv != 0 || h.verdict != 0) {
        drop_no_node(p);
        return;
    }
    if (t->security != NULL && !security_is(t->security, channel_tls(p->channel), h.from.node_id)) {
        (void)snprintf(reason, sizeof reason,
                       "it says that it is node %llu, and has proved to be another",
                       (unsigned long long)h.from.node_id);
        cut_off(p, reason);
        return;
    }
    h.from.waited = p->undecided.waits;
    enum handshake_verdict verdict = transport_check(t, &h, &alike, reason);
    p->undecided.waits = verdict == HANDSHAKE_UNDECIDED;
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
    struct channel *c = p->channel;
    pending_free(p);
    hand_on(t, c, &h, leftover);
}

static struct pending *first_due(struct transport *t)
{
    FLI_LIST_FOREACH(pos, &t->pending)
    {
        if (pending_of(pos)->undecided.due) {
            return pending_of(pos);
        }
    }
    return NULL;
}

/* The owner of a stream may do anything, so the list is read anew after each. */
void accept_check_again(struct transport *t)
{
    struct pending *p;
    FLI_LIST_FOREACH(pos, &t->pending)
    {
        pending_of(pos)->undecided.due = pending_of(pos)->undecided.waits;
    }
    while ((p = first_due(t)) != NULL) {
        p->undecided.due = false;
        check_pending(p, (struct fli_slice){NULL, 0});
    }
}

/* ---- strangers ---- */

static void pending_bytes(void *ctx, const uint8_t *data, size_t len)
{
    struct pending *p = ctx;
    struct transport *t = p->t;
    size_t n = HANDSHAKE_SIZE - p->got < len ? HANDSHAKE_SIZE - p->got : len;
    if (p->undecided.waits) {
        drop_no_node(p);
        return;
    }
    memcpy(p->buf + p->got, data, n);
    p->got += n;
    if (p->got == HANDSHAKE_SIZE) {
        check_pending(p, (struct fli_slice){data + n, len - n});
        deadlines_changed(t);
    }
}

static void pending_lost(void *ctx, enum channel_end end, const char *why)
{
    struct pending *p = ctx;
    struct transport *t = p->t;
    t->dropped++;
    if (end == CHANNEL_BROKEN) {
        transport_log(t, 2, "a connection from %s to the peer port was dropped: %s", p->address,
                      why);
    }
    pending_drop(p);
}

static void pending_shaken(void *ctx)
{
    struct pending *p = ctx;
    char why[FLI_TLS_ERRMSG_SIZE];
    if (!security_is_member(p->t->security, channel_tls(p->channel), why, sizeof why)) {
        cut_off(p, why);
    }
}

static int pending_secure(struct pending *p)
{
    struct fli_tls *tls;
    int rv = p->t->security == NULL ? 0 : security_answer(p->t->security, &tls);
    if (rv != 0 || p->t->security == NULL) {
        return rv;
    }
    return channel_secure(p->channel, tls, false, pending_shaken);
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

static unsigned count_of(const struct transport *t, const struct origin *o)
{
    unsigned n = 0;
    FLI_LIST_FOREACH(pos, &t->pending)
    {
        n += memcmp(&pending_of(pos)->origin, o, sizeof *o) == 0;
    }
    return n;
}

/* The oldest pending connection of the origin with the most of them. */
static struct pending *least_likely(struct transport *t)
{
    struct pending *found = NULL;
    unsigned most = 0;
    FLI_LIST_FOREACH(pos, &t->pending)
    {
        unsigned n = count_of(t, &pending_of(pos)->origin);
        if (n > most) {
            most = n;
            found = pending_of(pos);
        }
    }
    return found;
}

static struct pending *oldest_of(struct transport *t, const struct origin *o)
{
    FLI_LIST_FOREACH(pos, &t->pending)
    {
        if (memcmp(&pending_of(pos)->origin, o, sizeof *o) == 0) {
            return pending_of(pos);
        }
    }
    return NULL;
}

/* A real peer sends its handshake at once, so the oldest pending connection is the least likely to
 * be one. */
static void make_room(struct transport *t, const struct origin *o)
{
    struct pending *victim = NULL;
    if (count_of(t, o) >= TRANSPORT_PENDING_ADDRESS_MAX) {
        victim = oldest_of(t, o);
    } else if (t->pending_n >= TRANSPORT_PENDING_MAX) {
        victim = least_likely(t);
    }
    if (victim != NULL) {
        t->dropped++;
        transport_log(t, 2,
                      "too many connections to the peer port say nothing: one of %s is dropped",
                      victim->address);
        pending_drop(victim);
    }
}

/* libuv accepts as long as connections wait, without leaving its loop. One that is not taken from
 * it ends that, until it is taken. The timer takes it, before the loop reads the clock again, so
 * one of the turn's may not be counted. */
static bool has_accepts(const struct transport *t)
{
    return t->accepts_turn != channel_turn(&t->shared) ||
           t->accepts < TRANSPORT_ACCEPTS_TURN_MAX - 1;
}

static void count_accept(struct transport *t)
{
    uint64_t turn = channel_turn(&t->shared);
    t->accepts = t->accepts_turn == turn ? t->accepts + 1 : 1;
    t->accepts_turn = turn;
}

/* Accepts the next connection. False when there is no memory: that connection and all behind it
 * wait. */
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
    p->t = t;
    p->channel = c;
    count_accept(t);
    if (channel_accept(c, (uv_stream_t *)&t->listener) != 0) {
        free(p);
        channel_close(c);
        return true;
    }
    find_origin(c, p);
    make_room(t, &p->origin);
    fli_list_init(&p->link);
    fli_list_push(&t->pending, &p->link);
    t->pending_n++;
    deadline_set(t, &p->deadline, t->pending_ms);
    if (pending_secure(p) != 0 || channel_read_start(c) != 0) {
        t->dropped++;
        pending_drop(p);
    }
    return true;
}

/* libuv has a spare descriptor to turn connections away with. When even that is used up, it would
 * try again for ever without leaving its loop. Closing the listener ends that. The socket still
 * listens, under t->fd, so the connections wait. */
static void pause_accepting(struct transport *t)
{
    accept_stop(t);
    t->accept_waits = false;
    t->accept_paused = true;
    deadline_set(t, &t->accept_retry, ACCEPT_RETRY_MS);
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
        if (status == UV_EMFILE || status == UV_ENFILE) {
            pause_accepting(t);
            deadlines_changed(t);
        }
        return;
    }
    bool later = !has_accepts(t);
    if (later || !accept_one(t)) {
        t->accept_waits = true;
        deadline_set(t, &t->accept_retry, later ? 1 : ACCEPT_RETRY_MS);
        t->accept_retry.late = later; /* then it is over in the next turn */
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
    FLI_LIST_FOREACH_SAFE(pos, tmp, &t->pending)
    {
        struct pending *p = pending_of(pos);
        if (deadline_over(t, &p->deadline)) {
            t->dropped++;
            pending_drop(p);
        }
    }
    if (t->accept_waits && deadline_over(t, &t->accept_retry)) {
        t->accept_waits = !accept_one(t);
        deadline_set(t, &t->accept_retry, ACCEPT_RETRY_MS);
    }
    if (t->accept_paused && deadline_over(t, &t->accept_retry)) {
        t->accept_paused = t->listening || listen_with_copy(t) != 0;
        deadline_set(t, &t->accept_retry, ACCEPT_RETRY_MS);
    }
}

void accept_earliest(const struct transport *t, uint64_t *at_ms)
{
    if (t->accept_waits || t->accept_paused) {
        *at_ms = t->accept_retry.at_ms < *at_ms ? t->accept_retry.at_ms : *at_ms;
    }
    FLI_LIST_FOREACH(pos, &t->pending)
    {
        uint64_t mine_ms = pending_of(pos)->deadline.at_ms;
        *at_ms = mine_ms < *at_ms ? mine_ms : *at_ms;
    }
}

void accept_drop_all(struct transport *t)
{
    FLI_LIST_FOREACH_SAFE(pos, tmp, &t->pending)
    {
        pending_drop(pending_of(pos));
    }
}
