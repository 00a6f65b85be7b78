/* stream.c: frames, writing, and the end of a connection. See stream.h, and transport_private.h for
 * its phases. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "peer/transport_private.h"

#define KEEPALIVE_S 1
#define KEEPALIVE_PROBES 3
#define PIECE ((size_t)256 << 10) /* plaintext that is encrypted at once */

/* The memory that an empty buffer keeps, and for how many turns, so that turns need not
 * allocate. */
#define OUT_KEEP ((size_t)256 << 10)
#define OUT_KEEP_TURNS 256u

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
    s->deadline.at_ms = UINT64_MAX;
    s->read_max = STREAM_READ_FIRST;
    s->tcp.data = s->connect.data = s->write.data = s->resolve.data = s;
    fli_list_init(&s->paused);
    fli_buf_init(&s->greeting, HANDSHAKE_SIZE + FLI_TLS_PLAIN_MAX(STREAM_READ_SIZE));
    fli_buf_init(&s->gather, HANDSHAKE_SIZE);
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
    fli_buf_fini(&s->greeting);
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
    fli_buf_clear(&s->greeting);
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
    int on = 1;
    int second = KEEPALIVE_S;
    int probes = KEEPALIVE_PROBES;
    uv_os_fd_t fd;
    (void)uv_tcp_nodelay(&s->tcp, 1);
    if (uv_fileno((uv_handle_t *)&s->tcp, &fd) == 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &second, sizeof second);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &second, sizeof second);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof on);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &s->t->unacked_ms,
                         sizeof s->t->unacked_ms);
    }
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

void stream_shut(struct stream *s)
{
    if (!s->closing) {
        s->closing = true;
        s->deadline.at_ms = UINT64_MAX;
        fli_list_remove(&s->paused);
        uv_close((uv_handle_t *)&s->tcp, closed_cb);
    }
}

void stream_let_go(struct stream *s)
{
    FLI_ASSERT(!s->let_go);
    s->let_go = true;
    if (s->released) {
        stream_free(s);
    } else if (s->phase == STREAM_RESOLVING) {
        (void)uv_cancel((uv_req_t *)&s->resolve); /* the resolver returns in any case */
    } else {
        stream_shut(s);
    }
}

void stream_lose(struct stream *s, const char *why)
{
    if (s->closing) {
        return;
    }
    stream_shut(s);
    if (s->phase >= STREAM_GIVEN) {
        bool open = s->phase == STREAM_OPEN;
        s->phase = STREAM_LOST;
        if (open) {
            s->cbs.lost(s->cbs.ctx, why);
        }
    } else if (s->dialed) {
        dial_failed(s, why);
    } else {
        accept_turn_away(s);
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

void stream_close(struct stream *s)
{
    if (s != NULL) {
        stream_let_go(s);
    }
}

/* ---- reading ---- */

void stream_give(struct stream *s, enum stream_kind kind, uint64_t peer_id)
{
    const struct stream_limits *limits = &s->t->limits[kind];
    FLI_ASSERT(limits->frame_max > 0 && limits->frame_max <= FRAME_MAX);
    FLI_ASSERT(limits->out_max >= limits->frame_max + FRAME_HEADER_SIZE);
    FLI_ASSERT(limits->out_max <= STREAM_OUT_MAX);
    stream_read_stop(s);
    s->phase = STREAM_GIVEN;
    s->deadline.at_ms = UINT64_MAX;
    s->kind = kind;
    s->peer_id = peer_id;
    s->limits = *limits;
    s->heard_ms = fli_clock_ms();
    s->appended = s->gather.len - s->at;
    fli_buf_shrink(&s->gather);
    s->gather.max = 2 * limits->out_max; /* less than half of it is encrypted already */
    frame_reader_init(&s->in, limits->frame_max);
}

static bool show(void *ctx, uint8_t type, struct fli_slice body)
{
    struct stream *s = ctx;
    s->cbs.frame(s->cbs.ctx, type, body);
    return !s->closing;
}

void stream_feed(struct stream *s, const uint8_t *data, size_t len)
{
    const char *why = frame_reader_feed(&s->in, data, len, show, s);
    if (why != NULL) {
        stream_break(s, why);
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
    stream_feed(s, s->greeting.data + HANDSHAKE_SIZE, s->greeting.len - HANDSHAKE_SIZE);
    fli_buf_clear(&s->greeting);
    fli_buf_shrink(&s->greeting);
    stream_read_start(s);
    return !s->closing;
}

uint64_t stream_heard_ms(const struct stream *s)
{
    return s->heard_ms;
}

/* ---- writing ---- */

/* Exchanges the contents of two buffers, but not their limits. */
static void swap(struct fli_buf *a, struct fli_buf *b)
{
    struct fli_buf was = *a;
    *a = (struct fli_buf){b->data, b->len, b->cap, a->max};
    *b = (struct fli_buf){was.data, was.len, was.cap, b->max};
}

static void write_cb(uv_write_t *write, int status)
{
    struct stream *s = write->data;
    s->writing = false;
    fli_buf_clear(&s->out);
    fli_buf_shrink(&s->out);
    if (status == 0) {
        stream_push(s);
    } else if (!s->closing) {
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
    swap(&s->out, from);
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

void stream_push(struct stream *s)
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
        fli_buf_shrink(&s->gather); /* what was large once must not stay so */
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
    FLI_ASSERT(!s->let_go && n <= STREAM_PARTS_MAX);
    for (unsigned i = 0; i < n; i++) {
        if (parts[i].len > s->limits.frame_max - length) {
            return FL_EINVAL;
        }
        length += parts[i].len;
    }
    size_t size = FRAME_HEADER_SIZE + length;
    if (s->phase == STREAM_LOST) {
        return FL_ENOCONN;
    }
    if (unsent > s->limits.out_max || size > s->limits.out_max - unsent) {
        return FL_ELIMIT;
    }
    int rv = fli_buf_reserve(&s->gather, size);
    if (rv != 0) {
        return rv;
    }
    frame_header_encode(type, parts, n, header);
    rv = fli_buf_append(&s->gather, header, sizeof header);
    for (unsigned i = 0; i < n && rv == 0; i++) {
        rv = fli_buf_append(&s->gather, parts[i].data, parts[i].len);
    }
    FLI_ASSERT(rv == 0); /* there is room */
    s->appended += size;
    return 0;
}

void stream_flush(struct stream *s)
{
    FLI_ASSERT(!s->let_go);
    if (s->gather.len > 0) {
        s->quiet_turns = 0;
        stream_push(s);
    } else if (++s->quiet_turns == OUT_KEEP_TURNS) {
        fli_buf_shrink(&s->gather);
    }
}

uint64_t stream_appended(const struct stream *s)
{
    return s->appended;
}

uint64_t stream_handed(const struct stream *s)
{
    return s->appended - (s->gather.len - s->at);
}

bool stream_idle(const struct stream *s)
{
    return s->phase == STREAM_LOST || stream_unsent(s) == 0;
}
