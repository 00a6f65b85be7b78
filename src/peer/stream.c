/* stream.c: reading and writing of a connection, TLS, frames, and the end. See stream.h, and
 * transport_private.h for its phases.
 *
 * What was read and is not shown yet waits in the buffer of the reader of frames: the handshake
 * first, as long as there is no owner. An idle stream keeps little memory.
 *
 * Each turn of the loop reads for FLI_TURN_PEERS_US. A stream that has more to say waits for the
 * next turn, in which it is read once whatever others have used. A read is whole, and small.
 *
 * A TLS handshake costs a thousand times as much as a message, and any stranger may begin one. So
 * those that others began have a share of their own, TRANSPORT_SHAKE_TURN_MS, and only that. Of
 * them the kernel shows those first that have waited longest. Handshakes that this node began are
 * few and never wait. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/turn.h"
#include "peer/transport_private.h"

#define PIECE ((size_t)256 << 10)  /* plaintext that is encrypted at once */
#define OUT_KEEP ((size_t)2 << 10) /* memory that an empty buffer keeps */
#define NS_PER_US UINT64_C(1000)

/* ---- life ---- */

struct stream *stream_create(struct transport *t, bool dialed)
{
    struct stream *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    s->t = t;
    s->dialed = dialed;
    s->closing = s->released = true; /* there is no socket yet */
    s->tcp.data = s->connect.data = s->write.data = s->resolve.data = s;
    frame_reader_init(&s->in, FRAME_MAX);
    fli_buf_init(&s->gather, SIZE_MAX);
    /* A peer may ask for new keys again and again, and never read the answers. */
    fli_buf_init(&s->cipher, FLI_TLS_CIPHER_MAX(PIECE) + FLI_TLS_HANDSHAKE_MAX);
    fli_buf_init(&s->out, SIZE_MAX);
    fli_list_push(&t->all, &s->all);
    return s;
}

static void stream_free(struct stream *s)
{
    struct transport *t = s->t;
    fli_list_remove(&s->all);
    if (s->list != NULL) {
        uv_freeaddrinfo(s->list);
    }
    fli_tls_destroy(s->tls);
    frame_reader_fini(&s->in);
    fli_buf_fini(&s->gather);
    fli_buf_fini(&s->cipher);
    fli_buf_fini(&s->out);
    free(s);
    transport_maybe_closed(t);
}

void stream_socket(struct stream *s)
{
    FLI_ASSERT(s->released);
    int rv = uv_tcp_init(s->t->loop, &s->tcp);
    FLI_ASSERT(rv == 0); /* it opens nothing */
    s->closing = s->released = false;
    fli_tls_destroy(s->tls); /* of the last address */
    s->tls = NULL;
    fli_buf_clear(&s->in.in);
    fli_buf_clear(&s->gather);
    fli_buf_clear(&s->cipher);
    fli_buf_clear(&s->out);
    s->writing = false;
    s->at = 0;
}

/* These options only help to notice a dead peer earlier, or to make a live one faster, so errors
 * are ignored. With thin linear time-outs, a lost packet is sent again every 0.2 s at first,
 * instead of after pauses that double. */
void stream_tune(struct stream *s)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 1},
        {IPPROTO_TCP, TCP_KEEPINTVL, 1},
        {IPPROTO_TCP, TCP_KEEPCNT, 3},
        {IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1},
    };
    uv_os_fd_t fd;
    (void)uv_tcp_nodelay(&s->tcp, 1);
    if (uv_fileno((uv_handle_t *)&s->tcp, &fd) != 0) {
        return;
    }
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int));
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &s->t->config.unacked_ms,
                     sizeof s->t->config.unacked_ms);
}

/* ---- the end ---- */

void stream_released(struct stream *s)
{
    s->released = true;
    if (s->let_go) {
        stream_free(s);
    } else if (s->phase <= STREAM_CONNECTING) {
        dial_next(s);
    }
}

static void closed_cb(uv_handle_t *handle)
{
    stream_released(handle->data);
}

static void shut(struct stream *s)
{
    if (!s->closing) {
        s->closing = true;
        s->ticks = 0;
        uv_close((uv_handle_t *)&s->tcp, closed_cb);
    }
}

void stream_close(struct stream *s)
{
    if (s == NULL) {
        return;
    }
    FLI_ASSERT(!s->let_go);
    s->let_go = true;
    if (s->released) {
        stream_free(s);
    } else if (s->phase == STREAM_RESOLVING) {
        (void)uv_cancel((uv_req_t *)&s->resolve); /* the resolver returns in any case */
    } else {
        shut(s);
    }
}

/* A dial goes on with the next address, once the socket is released. */
void stream_lose(struct stream *s, const char *why)
{
    enum stream_phase was = s->phase;
    if (s->closing) {
        return;
    }
    shut(s);
    if (was >= STREAM_GIVEN) {
        s->phase = STREAM_LOST;
        if (was == STREAM_OPEN) {
            s->cbs.lost(s->cbs.ctx, why);
        }
    } else if (s->dialed) {
        s->phase = STREAM_CONNECTING;
        snprintf(s->why, sizeof s->why, "%s", why);
    } else {
        s->t->turned_away++;
        s->let_go = true;
    }
}

void stream_lose_by(struct stream *s, int error)
{
    s->absent += error == UV_ECONNREFUSED && s->phase == STREAM_CONNECTING;
    stream_lose(s, error == UV_EOF ? "the peer closed it" : uv_strerror(error));
}

void stream_break(struct stream *s, const char *why)
{
    if (s->closing) {
        return;
    }
    if (is_pending(s)) {
        transport_log(s->t, 2, "a connection from %s to the peer port was dropped: %s", s->address,
                      why);
    } else if (!s->dialed) {
        transport_log(s->t, 2, "what node %llu sent is broken: %s", (unsigned long long)s->peer_id,
                      why);
    }
    stream_lose(s, why);
}

void stream_give(struct stream *s, enum stream_kind kind, uint64_t peer_id)
{
    const struct stream_limits *limits = &s->t->config.limits[kind];
    FLI_ASSERT(limits->frame_max > 0 && limits->frame_max <= FRAME_MAX);
    FLI_ASSERT(limits->out_max >= limits->frame_max + FRAME_HEADER_SIZE);
    FLI_ASSERT(limits->out_max <= STREAM_OUT_MAX);
    stream_read_stop(s);
    s->phase = STREAM_GIVEN;
    s->ticks = 0;
    s->kind = kind;
    s->peer_id = peer_id;
    s->heard_ms = fli_clock_ms();
    s->appended = s->gather.len - s->at;
    fli_buf_shrink(&s->gather);
    s->in.frame_max = limits->frame_max;
    fli_buf_consume(&s->in.in, HANDSHAKE_SIZE);
    fli_buf_shrink(&s->in.in);
}

/* ---- shares ---- */

static bool shakes(const struct stream *s)
{
    return s->tls != NULL && fli_tls_state(s->tls) == FLI_TLS_SHAKING;
}

/* Whether the peer began a TLS handshake that is not over. */
static bool is_shaken(const struct stream *s)
{
    return shakes(s) && !s->dialed;
}

static bool has_share(const struct stream *s)
{
    struct transport *t = s->t;
    uint64_t turn = uv_now(t->loop);
    if (turn != t->turn) {
        t->turn = turn;
        t->read_ns = t->shake_ns = 0;
    }
    return is_shaken(s) ? t->shake_ns < TRANSPORT_SHAKE_TURN_MS * 1000 * NS_PER_US
                        : t->read_ns < FLI_TURN_PEERS_US * NS_PER_US;
}

/* ---- bytes ---- */

static bool show(void *ctx, uint8_t type, struct fli_slice body)
{
    struct stream *s = ctx;
    s->cbs.frame(s->cbs.ctx, type, body);
    return !s->closing;
}

/* Bytes of the other side are in the buffer. */
static void take(struct stream *s)
{
    if (s->phase != STREAM_OPEN) {
        shake_bytes(s);
        return;
    }
    s->heard_ms = fli_clock_ms();
    const char *why = frame_reader_feed(&s->in, NULL, 0, show, s);
    if (why != NULL) {
        stream_break(s, why);
    }
}

static void decrypt(struct stream *s, const uint8_t *data, size_t len)
{
    struct transport *t = s->t;
    bool shaking = shakes(s);
    size_t before = s->in.in.len;
    int rv = fli_tls_read(s->tls, data, len, &s->in.in, &s->cipher);
    t->shake_failed += rv != 0 && shaking;
    stream_flush(s); /* when TLS has failed, the final alert tells the peer the reason */
    if (rv != 0) {
        stream_break(s, fli_tls_error(s->tls));
    } else if (!s->closing && shaking && !shakes(s)) {
        t->shaken++;
        shake_secured(s);
    }
    if (!s->closing && s->in.in.len > before) {
        take(s);
    }
    if (!s->closing && fli_tls_state(s->tls) == FLI_TLS_ENDED) {
        stream_lose(s, "the peer closed it");
    }
}

void stream_secure(struct stream *s)
{
    decrypt(s, (const uint8_t *)"", 0);
}

static void take_read(struct stream *s, const uint8_t *data, size_t len)
{
    struct transport *t = s->t;
    uint64_t began_ns = fli_clock_ns();
    bool shaking = shakes(s);
    if (s->tls != NULL) {
        decrypt(s, data, len);
    } else if (fli_buf_append(&s->in.in, data, len) == 0) {
        take(s);
    } else {
        stream_lose(s, "out of memory");
    }
    uint64_t ns = fli_clock_ns() - began_ns;
    if (!shaking) {
        t->read_ns += ns;
    } else if (!s->dialed) {
        t->shake_ns += ns;
    }
}

/* ---- the socket ---- */

/* No room means that it is not read now: read_cb() is told UV_ENOBUFS. The kernel keeps the bytes,
 * and the next turn comes at once and asks again. */
static void alloc_cb(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct stream *s = handle->data;
    bool may_read = has_share(s) || s->owed;
    s->owed = !may_read && !is_shaken(s);
    s->t->shake_deferred += !may_read && is_shaken(s);
    *buf = uv_buf_init((char *)s->t->read_buf, may_read ? STREAM_READ_SIZE : 0);
}

static void read_cb(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    struct stream *s = stream->data;
    if (nread > 0) {
        take_read(s, (const uint8_t *)buf->base, (size_t)nread);
    } else if (nread < 0 && nread != UV_ENOBUFS) {
        stream_lose_by(s, (int)nread);
    }
}

void stream_read_start(struct stream *s)
{
    if (!s->closing && uv_read_start((uv_stream_t *)&s->tcp, alloc_cb, read_cb) != 0) {
        stream_lose(s, "it cannot be read");
    }
}

void stream_read_stop(struct stream *s)
{
    if (!s->closing) {
        uv_read_stop((uv_stream_t *)&s->tcp);
    }
}

bool stream_start(struct stream *s, const struct stream_callbacks *cbs)
{
    FLI_ASSERT((s->phase == STREAM_GIVEN || s->phase == STREAM_LOST) && !s->let_go);
    FLI_ASSERT(cbs->frame != NULL && cbs->lost != NULL);
    s->cbs = *cbs;
    if (s->phase == STREAM_LOST) { /* its socket may be released already, and it may go now */
        s->cbs.lost(s->cbs.ctx, "it was replaced before it was used");
        return false;
    }
    s->phase = STREAM_OPEN;
    take(s); /* what came behind the handshake */
    stream_read_start(s);
    return !s->closing;
}

uint64_t stream_heard_ms(const struct stream *s)
{
    return s->heard_ms;
}

/* ---- writing ---- */

static void write_cb(uv_write_t *write, int status)
{
    struct stream *s = write->data;
    s->writing = false;
    fli_buf_clear(&s->out);
    fli_buf_shrink(&s->out);
    if (status == 0) {
        stream_flush(s);
    } else {
        stream_lose_by(s, status);
    }
}

/* Offers all of `from` to the kernel. What it does not take waits in `out`. */
static void put(struct stream *s, struct fli_buf *from)
{
    uv_buf_t buf = uv_buf_init((char *)from->data, (unsigned)from->len);
    int sent = uv_try_write((uv_stream_t *)&s->tcp, &buf, 1);
    if (sent == (int)from->len) {
        fli_buf_clear(from);
        return;
    }
    if (sent < 0 && sent != UV_EAGAIN) {
        stream_lose_by(s, sent);
        return;
    }
    size_t done = sent < 0 ? 0 : (size_t)sent;
    struct fli_buf empty = s->out;
    s->out = *from;
    *from = empty;
    from->max = s->out.max; /* a ceiling stays with its place */
    buf = uv_buf_init((char *)s->out.data + done, (unsigned)(s->out.len - done));
    int rv = uv_write(&s->write, (uv_stream_t *)&s->tcp, &buf, 1, write_cb);
    s->writing = rv == 0;
    if (rv != 0) {
        stream_lose_by(s, rv);
    }
}

static void encrypt_piece(struct stream *s)
{
    size_t left = s->gather.len - s->at;
    size_t n = left < PIECE ? left : PIECE;
    /* A session that has failed sends its alert, and nothing behind it. */
    if (fli_tls_state(s->tls) == FLI_TLS_FAILED ||
        fli_tls_write(s->tls, s->gather.data + s->at, n, &s->cipher) != 0) {
        stream_break(s, fli_tls_error(s->tls));
        return;
    }
    s->at += n;
}

void stream_flush(struct stream *s)
{
    struct fli_buf *from = s->tls == NULL ? &s->gather : &s->cipher;
    while (!s->closing && !s->writing && (s->cipher.len > 0 || s->gather.len > s->at)) {
        if (from->len > 0) {
            put(s, from);
        } else {
            encrypt_piece(s);
        }
    }
    if (s->at >= s->gather.len - s->at) { /* so each byte moves once, on average, or never */
        fli_buf_consume(&s->gather, s->at);
        s->at = 0;
    }
    if (s->cipher.len == 0) {
        fli_buf_shrink(&s->cipher);
    }
    if (s->gather.len == 0 && s->gather.cap > OUT_KEEP) {
        fli_buf_shrink(&s->gather);
    }
}

size_t stream_unsent(const struct stream *s)
{
    return s->gather.len - s->at + s->cipher.len + s->out.len;
}

int stream_send(struct stream *s, uint8_t type, const struct fli_slice *parts, unsigned n)
{
    uint8_t header[FRAME_HEADER_SIZE];
    size_t length = 0;
    size_t unsent = stream_unsent(s);
    const struct stream_limits *limits = &s->t->config.limits[s->kind];
    FLI_ASSERT(!s->let_go && n <= STREAM_PARTS_MAX);
    for (unsigned i = 0; i < n; i++) {
        if (parts[i].len > limits->frame_max - length) {
            return FL_EINVAL;
        }
        length += parts[i].len;
    }
    size_t size = FRAME_HEADER_SIZE + length;
    if (s->phase == STREAM_LOST) {
        return FL_ENOCONN;
    }
    if (unsent > limits->out_max || size > limits->out_max - unsent) {
        return FL_ELIMIT;
    }
    frame_header_encode(type, parts, n, header);
    size_t before = s->gather.len;
    int rv = fli_buf_append(&s->gather, header, sizeof header);
    for (unsigned i = 0; i < n && rv == 0; i++) {
        rv = fli_buf_append(&s->gather, parts[i].data, parts[i].len);
    }
    if (rv != 0) {
        s->gather.len = before;
        return rv;
    }
    s->appended += size;
    return 0;
}

uint64_t stream_appended(const struct stream *s)
{
    return s->appended;
}

uint64_t stream_handed(const struct stream *s)
{
    return s->appended - (s->gather.len - s->at);
}
