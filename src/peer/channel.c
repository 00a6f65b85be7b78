/* channel.c: see channel.h.
 *
 *   created --> connecting --> open --> lost (descriptor closed, reported) --> closed by the owner
 *
 * The handle is closed when the connection is lost or when the owner closes, whichever is first;
 * the memory is freed when both have happened and the loop has let go of the handle. */
#include "peer/channel_private.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/turn.h"

#define KEEPALIVE_S 1
#define KEEPALIVE_PROBES 3

int channel_shared_init(struct channel_shared *shared)
{
    fli_list_init(&shared->paused);
    fli_buf_init(&shared->plain, FLI_TLS_PLAIN_MAX(CHANNEL_READ_SIZE));
    shared->turn.data = shared;
    return uv_idle_init(shared->loop, &shared->turn) == 0 ? 0 : FL_ESYSTEM;
}

void channel_shared_fini(struct channel_shared *shared)
{
    fli_buf_fini(&shared->plain);
}

static void channel_free(struct channel *c)
{
    struct channel_shared *shared = c->shared;
    if (c->cbs.freed != NULL) {
        c->cbs.freed(c->cbs.ctx);
    }
    fli_buf_fini(&c->out);
    secure_free(c);
    free(c);
    shared->gone(shared->gone_ctx);
}

static enum channel_end end_of(int error)
{
    switch (error) {
    case UV_EOF:
    case UV_ECONNRESET:
    case UV_EPIPE:
        return CHANNEL_HUNG_UP;
    case UV_ECONNREFUSED:
        return CHANNEL_REFUSED;
    default:
        return CHANNEL_FAILED;
    }
}

static void closed_cb(uv_handle_t *handle)
{
    struct channel *c = handle->data;
    c->closed = true;
    if (c->let_go) {
        channel_free(c);
    } else if (c->later != 0) {
        int error = c->later;
        c->later = 0;
        c->cbs.lost(c->cbs.ctx, end_of(error), uv_strerror(error));
    }
}

static void unpause(struct channel *c)
{
    if (fli_list_linked(&c->paused)) {
        fli_list_remove(&c->paused);
    }
}

static void close_handle(struct channel *c)
{
    c->closing = true;
    unpause(c);
    uv_close((uv_handle_t *)&c->tcp, closed_cb);
}

void channel_lose(struct channel *c, enum channel_end end, const char *why)
{
    if (c->closing) {
        return;
    }
    close_handle(c);
    c->cbs.lost(c->cbs.ctx, end, why);
}

static void lose_by(struct channel *c, int error)
{
    channel_lose(c, end_of(error), error == UV_EOF ? "the peer closed it" : uv_strerror(error));
}

static void lose_later(struct channel *c, int error)
{
    if (!c->closing) {
        c->later = error;
        close_handle(c);
    }
}

void channel_cancel(struct channel *c)
{
    lose_later(c, UV_ECANCELED);
}

int channel_create(struct channel_shared *shared, struct channel **ret)
{
    struct channel *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return FL_ENOMEM;
    }
    if (uv_tcp_init(shared->loop, &c->tcp) != 0) {
        free(c);
        return FL_ESYSTEM;
    }
    c->shared = shared;
    c->tcp.data = c;
    c->connect.data = c;
    c->write.data = c;
    c->read_max = CHANNEL_READ_FIRST;
    fli_list_init(&c->paused);
    fli_buf_init(&c->out, SIZE_MAX);
    *ret = c;
    return 0;
}

uv_tcp_t *channel_tcp(struct channel *c)
{
    return &c->tcp;
}

void channel_own(struct channel *c, const struct channel_callbacks *cbs)
{
    FLI_ASSERT(cbs->bytes != NULL && cbs->lost != NULL);
    c->cbs = *cbs;
}

/* These options only help to notice a dead peer earlier, or to make a live one faster, so errors
 * are ignored. With thin linear time-outs, a lost packet is sent again every 0.2 s at first,
 * instead of after pauses that double. */
static void tune(struct channel *c)
{
    int on = 1;
    int second = KEEPALIVE_S;
    int probes = KEEPALIVE_PROBES;
    uv_os_fd_t fd;
    (void)uv_tcp_nodelay(&c->tcp, 1);
    if (uv_fileno((uv_handle_t *)&c->tcp, &fd) == 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &second, sizeof second);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &second, sizeof second);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof on);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &c->shared->unacked_ms,
                         sizeof c->shared->unacked_ms);
    }
}

int channel_accept(struct channel *c, uv_stream_t *listener)
{
    if (uv_accept(listener, (uv_stream_t *)&c->tcp) != 0) {
        return FL_ESYSTEM;
    }
    tune(c);
    return 0;
}

static void connect_cb(uv_connect_t *connect, int status)
{
    struct channel *c = connect->data;
    if (c->closing) {
        return;
    }
    if (status != 0) {
        lose_by(c, status);
        return;
    }
    tune(c);
    c->connected(c->cbs.ctx);
}

void channel_connect(struct channel *c, const struct sockaddr *to, void (*connected)(void *ctx))
{
    FLI_ASSERT(!c->closing && c->connected == NULL);
    c->connected = connected;
    int rv = uv_tcp_connect(&c->connect, &c->tcp, to, connect_cb);
    if (rv != 0) {
        lose_later(c, rv);
    }
}

/* ---- reading ---- */

/* Turns that begin in the same millisecond have one share together. */
static uint64_t used_ns(const struct channel_shared *shared, const struct channel_share *share)
{
    return share->turn == channel_turn(shared) ? share->ns : 0;
}

static void charge(const struct channel_shared *shared, struct channel_share *share, uint64_t ns)
{
    share->ns = used_ns(shared, share) + ns;
    share->turn = channel_turn(shared);
}

/* Whether the peer began a TLS handshake that is not over. */
static bool is_shaken(const struct channel *c)
{
    return secure_shakes(c) && !c->secure->ours;
}

static bool has_share(const struct channel *c)
{
    const struct channel_shared *shared = c->shared;
    if (is_shaken(c) &&
        used_ns(shared, &shared->shake) >= CHANNEL_SHAKE_TURN_MS * UINT64_C(1000000)) {
        return false;
    }
    return used_ns(shared, &shared->read) < FLI_TURN_PEERS_US * UINT64_C(1000) &&
           used_ns(shared, &c->visit) < FLI_TURN_PEERS_VISIT_US * UINT64_C(1000);
}

/* What the next read may cost is unknown, but it resembles the last one. */
static void fit_read(struct channel *c, size_t len, uint64_t ns)
{
    if (ns > FLI_TURN_PEERS_VISIT_US * UINT64_C(1000)) {
        c->read_max = c->read_max > CHANNEL_READ_LEAST ? c->read_max / 2 : CHANNEL_READ_LEAST;
    } else if (len == c->read_max && ns < FLI_TURN_PEERS_VISIT_US * UINT64_C(1000) / 4) {
        c->read_max = c->read_max < CHANNEL_READ_SIZE ? 2 * c->read_max : CHANNEL_READ_SIZE;
    }
}

/* No room means that it is not read now: read_cb() is told UV_ENOBUFS. */
static void alloc_cb(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct channel *c = handle->data;
    bool may_read = c->owed || has_share(c);
    c->owed = false;
    *buf = uv_buf_init((char *)c->shared->read_buf, may_read ? (unsigned)c->read_max : 0);
}

static void socket_stop(struct channel *c)
{
    unpause(c);
    if (!c->closing) {
        uv_read_stop((uv_stream_t *)&c->tcp);
    }
}

static void turn_cb(uv_idle_t *turn);

/* Until a later turn, which comes at once. */
static void pause_reading(struct channel *c)
{
    struct channel_shared *shared = c->shared;
    socket_stop(c);
    shared->shake_deferred += is_shaken(c);
    fli_list_push(&shared->paused, &c->paused);
    int rv = uv_idle_start(&shared->turn, turn_cb);
    FLI_ASSERT(rv == 0);
}

static void take(struct channel *c, const uint8_t *data, size_t len)
{
    struct channel_shared *shared = c->shared;
    uint64_t began_ns = fli_clock_ns();
    bool shakes = secure_shakes(c);
    if (c->secure != NULL) {
        secure_read(c, data, len);
    } else {
        c->cbs.bytes(c->cbs.ctx, data, len);
    }
    uint64_t ns = fli_clock_ns() - began_ns;
    if (!shakes) {
        charge(shared, &shared->read, ns);
        charge(shared, &c->visit, ns);
        fit_read(c, len, ns);
    } else if (!c->secure->ours) {
        charge(shared, &shared->shake, ns);
    }
}

static void read_cb(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    struct channel *c = stream->data;
    if (nread == UV_ENOBUFS) {
        pause_reading(c);
    } else if (nread < 0) {
        lose_by(c, (int)nread);
    } else if (nread > 0) {
        take(c, (const uint8_t *)buf->base, (size_t)nread);
    }
}

static int socket_start(struct channel *c)
{
    if (c->closing) {
        return FL_ESYSTEM;
    }
    if (fli_list_linked(&c->paused)) {
        return 0; /* its turn will come */
    }
    int rv = uv_read_start((uv_stream_t *)&c->tcp, alloc_cb, read_cb);
    return rv == 0 || rv == UV_EALREADY ? 0 : FL_ESYSTEM;
}

/* Whether the peer has closed the connection while it waited: then its handshake is dropped. */
static bool has_gone(const struct channel *c)
{
    struct pollfd p = {.events = POLLRDHUP};
    return uv_fileno((const uv_handle_t *)&c->tcp, &p.fd) == 0 && poll(&p, 1, 0) > 0;
}

/* Runs once in each turn of the loop, while channels wait: the first of them are read again. Those
 * that cannot be keep their order, and keep nobody behind them waiting. */
static void turn_cb(uv_idle_t *turn)
{
    struct channel_shared *shared = turn->data;
    struct fli_list line;
    struct fli_list *pos;
    unsigned resumed = 0;
    unsigned shaken = 0;
    fli_list_init(&line);
    fli_list_splice(&line, &shared->paused);
    while ((pos = fli_list_pop(&line)) != NULL) {
        struct channel *c = FLI_CONTAINER_OF(pos, struct channel, paused);
        bool shakes = is_shaken(c);
        if (resumed == CHANNEL_RESUMED_MAX || (shakes && shaken == CHANNEL_RESHAKEN_MAX)) {
            fli_list_push(&shared->paused, &c->paused);
            continue;
        }
        if (shakes && has_gone(c)) {
            lose_by(c, UV_EOF);
            continue;
        }
        shaken += shakes;
        resumed++;
        c->owed = true;
        if (socket_start(c) != 0) {
            channel_lose(c, CHANNEL_FAILED, "it cannot be read");
        }
    }
    if (fli_list_empty(&shared->paused)) {
        (void)uv_idle_stop(turn);
    }
}

int channel_read_start(struct channel *c)
{
    if (c->reading) {
        return 0;
    }
    int rv = socket_start(c);
    c->reading = rv == 0;
    return rv;
}

void channel_read_stop(struct channel *c)
{
    if (c->reading) {
        socket_stop(c);
    }
    c->reading = false;
}

/* ---- writing ---- */

bool channel_busy(const struct channel *c)
{
    return c->writing || secure_waits(c);
}

static void write_cb(uv_write_t *write, int status)
{
    struct channel *c = write->data;
    c->writing = false;
    fli_buf_clear(&c->out);
    fli_buf_shrink(&c->out);
    if (c->closing) {
        return;
    }
    if (status != 0) {
        lose_by(c, status);
        return;
    }
    if (c->secure != NULL && !secure_go_on(c)) {
        return;
    }
    if (c->cbs.drained != NULL) {
        c->cbs.drained(c->cbs.ctx);
    }
}

bool channel_put(struct channel *c, struct fli_buf *from)
{
    FLI_ASSERT(!c->writing && c->out.len == 0);
    if (c->closing) {
        return false;
    }
    uv_buf_t buf = uv_buf_init((char *)from->data, (unsigned)from->len);
    int sent = uv_try_write((uv_stream_t *)&c->tcp, &buf, 1);
    if (sent == (int)from->len) {
        fli_buf_clear(from);
        return true;
    }
    if (sent < 0 && sent != UV_EAGAIN) {
        lose_by(c, sent);
        return false;
    }
    size_t done = sent < 0 ? 0 : (size_t)sent;
    channel_swap(&c->out, from);
    buf = uv_buf_init((char *)c->out.data + done, (unsigned)(c->out.len - done));
    c->writing = true;
    int rv = uv_write(&c->write, (uv_stream_t *)&c->tcp, &buf, 1, write_cb);
    if (rv != 0) {
        c->writing = false;
        fli_buf_clear(&c->out);
        lose_by(c, rv);
        return false;
    }
    return true;
}

bool channel_write(struct channel *c, struct fli_buf *from)
{
    if (c->closing) {
        return false;
    }
    return c->secure != NULL ? secure_write(c, from) : channel_put(c, from);
}

void channel_close(struct channel *c)
{
    if (c == NULL) {
        return;
    }
    FLI_ASSERT(!c->let_go);
    c->let_go = true;
    if (c->closed) {
        channel_free(c);
    } else if (!c->closing) {
        close_handle(c);
    }
}
