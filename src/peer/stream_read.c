/* stream_read.c: reading, and TLS between the socket's bytes and the stream's.
 *
 * All streams share one buffer of their transport, so an idle stream keeps none. Bytes are shown
 * once, when they arrive.
 *
 * Each turn of the loop reads for FLI_TURN_PEERS_US, one stream for FLI_TURN_PEERS_VISIT_US. Who
 * has more to say waits for the next turn, first come, first served. A read is whole: after one
 * that took long the stream's next is smaller.
 *
 * A TLS handshake costs a thousand times as much as a message, and any stranger may begin one. So
 * those that others began have a share of their own, TRANSPORT_SHAKE_TURN_MS, and wait in the same
 * line, where others pass them. Handshakes that this node began are few and never wait. */
#include <poll.h>

#include "base/clock.h"
#include "base/turn.h"
#include "peer/transport_private.h"

#define NS_PER_US UINT64_C(1000)

/* ---- shares ---- */

/* Turns that begin in the same millisecond have one share together. */
static uint64_t used_ns(const struct transport *t, const struct turn_share *share)
{
    return share->turn == transport_turn(t) ? share->ns : 0;
}

static void charge(const struct transport *t, struct turn_share *share, uint64_t ns)
{
    share->ns = used_ns(t, share) + ns;
    share->turn = transport_turn(t);
}

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
    const struct transport *t = s->t;
    if (is_shaken(s) && used_ns(t, &t->shake) >= TRANSPORT_SHAKE_TURN_MS * 1000 * NS_PER_US) {
        return false;
    }
    return used_ns(t, &t->read) < FLI_TURN_PEERS_US * NS_PER_US &&
           used_ns(t, &s->visit) < FLI_TURN_PEERS_VISIT_US * NS_PER_US;
}

/* What the next read may cost is unknown, but it resembles the last one. */
static void fit_read(struct stream *s, size_t len, uint64_t ns)
{
    if (ns > FLI_TURN_PEERS_VISIT_US * NS_PER_US) {
        s->read_max = s->read_max > STREAM_READ_LEAST ? s->read_max / 2 : STREAM_READ_LEAST;
    } else if (len == s->read_max && ns < FLI_TURN_PEERS_VISIT_US * NS_PER_US / 4) {
        s->read_max = s->read_max < STREAM_READ_SIZE ? 2 * s->read_max : STREAM_READ_SIZE;
    }
}

/* ---- bytes ---- */

static void take_plain(struct stream *s, const uint8_t *data, size_t len)
{
    if (s->phase == STREAM_OPEN) {
        s->heard_ms = fli_clock_ms();
        stream_feed(s, data, len);
    } else {
        shake_bytes(s, data, len);
    }
}

static void decrypt(struct stream *s, const uint8_t *data, size_t len)
{
    struct transport *t = s->t;
    bool shaking = shakes(s);
    fli_buf_clear(&t->plain);
    int rv = fli_tls_read(s->tls, data, len, &t->plain, &s->cipher);
    t->shake_failed += rv != 0 && shaking;
    stream_push(s); /* when TLS has failed, the final alert tells the peer the reason */
    if (rv != 0) {
        stream_break(s, fli_tls_error(s->tls));
    } else if (!s->closing && shaking && !shakes(s)) {
        t->shaken++;
        shake_secured(s);
    }
    if (!s->closing && t->plain.len > 0) {
        take_plain(s, t->plain.data, t->plain.len);
    }
    if (!s->closing && fli_tls_state(s->tls) == FLI_TLS_ENDED) {
        stream_lose(s, "the peer closed it");
    }
}

void stream_secure_begin(struct stream *s)
{
    decrypt(s, (const uint8_t *)"", 0);
}

static void take(struct stream *s, const uint8_t *data, size_t len)
{
    struct transport *t = s->t;
    uint64_t began_ns = fli_clock_ns();
    bool shaking = shakes(s);
    if (s->tls != NULL) {
        decrypt(s, data, len);
    } else {
        take_plain(s, data, len);
    }
    uint64_t ns = fli_clock_ns() - began_ns;
    if (!shaking) {
        charge(t, &t->read, ns);
        charge(t, &s->visit, ns);
        fit_read(s, len, ns);
    } else if (!s->dialed) {
        charge(t, &t->shake, ns);
    }
}

/* ---- the socket ---- */

/* No room means that it is not read now: read_cb() is told UV_ENOBUFS. */
static void alloc_cb(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct stream *s = handle->data;
    bool may_read = s->owed || has_share(s);
    s->owed = false;
    *buf = uv_buf_init((char *)s->t->read_buf, may_read ? (unsigned)s->read_max : 0);
}

/* Whether the peer has closed the connection while it waited: then its handshake is dropped. */
static bool has_gone(const struct stream *s)
{
    struct pollfd p = {.events = POLLRDHUP};
    return uv_fileno((const uv_handle_t *)&s->tcp, &p.fd) == 0 && poll(&p, 1, 0) > 0;
}

/* Runs once in each turn of the loop, while streams wait: the first of them are read again. Those
 * that cannot be keep their order, and keep nobody behind them waiting. */
static void turn_cb(uv_idle_t *turn)
{
    struct transport *t = turn->data;
    struct fli_list line;
    struct fli_list *pos;
    unsigned resumed = 0;
    unsigned shaken = 0;
    fli_list_init(&line);
    fli_list_splice(&line, &t->paused);
    while ((pos = fli_list_pop(&line)) != NULL) {
        struct stream *s = FLI_CONTAINER_OF(pos, struct stream, paused);
        bool waits = is_shaken(s);
        if (resumed == TRANSPORT_RESUMED_MAX || (waits && shaken == TRANSPORT_RESHAKEN_MAX)) {
            fli_list_push(&t->paused, &s->paused);
            continue;
        }
        if (waits && has_gone(s)) {
            stream_lose_by(s, UV_EOF);
            continue;
        }
        shaken += waits;
        resumed++;
        s->owed = true;
        stream_read_start(s);
    }
    if (fli_list_empty(&t->paused)) {
        (void)uv_idle_stop(turn);
    }
}

/* Until a later turn, which comes at once. */
static void pause_reading(struct stream *s)
{
    struct transport *t = s->t;
    stream_read_stop(s);
    t->shake_deferred += is_shaken(s);
    fli_list_push(&t->paused, &s->paused);
    int rv = uv_idle_start(&t->turn, turn_cb);
    FLI_ASSERT(rv == 0);
}

static void read_cb(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    struct stream *s = stream->data;
    if (nread == UV_ENOBUFS) {
        pause_reading(s);
    } else if (nread < 0) {
        stream_lose_by(s, (int)nread);
    } else if (nread > 0) {
        take(s, (const uint8_t *)buf->base, (size_t)nread);
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
    fli_list_remove(&s->paused);
    if (!s->closing) {
        uv_read_stop((uv_stream_t *)&s->tcp);
    }
}
