/* channel_secure.c: TLS on a channel, between the socket's bytes and the owner's.
 *
 *   channel_secure --> shaking --> open (`opened`, then `bytes`) --> lost
 *
 * A TLS handshake costs a thousand times as much as a message, and any stranger may begin one. So
 * each turn of the loop spends at most CHANNEL_SHAKE_TURN_MS on handshakes that others began. The
 * rest wait, first come, first served, and their sockets are not read meanwhile. Handshakes that
 * this node began are few and never wait. */
#include <stdlib.h>
#include <sys/socket.h>

#include "peer/channel_private.h"

#include "base/clock.h"

#define PIECE ((size_t)256 << 10) /* plaintext that is encrypted at once */

int channel_shared_init(struct channel_shared *shared)
{
    fli_list_init(&shared->deferred);
    fli_list_init(&shared->paused);
    fli_buf_init(&shared->plain, FLI_TLS_PLAIN_MAX(CHANNEL_READ_SIZE));
    shared->turn.data = shared;
    return uv_idle_init(shared->loop, &shared->turn) == 0 ? 0 : FL_ESYSTEM;
}

void channel_shared_fini(struct channel_shared *shared)
{
    fli_buf_fini(&shared->plain);
}

int channel_secure(struct channel *c, struct fli_tls *tls, bool ours, void (*opened)(void *ctx))
{
    struct channel_secure *sec = calloc(1, sizeof *sec);
    FLI_ASSERT(c->secure == NULL && opened != NULL);
    if (sec == NULL) {
        fli_tls_destroy(tls);
        return FL_ENOMEM;
    }
    sec->channel = c;
    sec->tls = tls;
    sec->opened = opened;
    sec->ours = ours;
    fli_list_init(&sec->deferred);
    fli_buf_init(&sec->waiting, SIZE_MAX);
    fli_buf_init(&sec->cipher, FLI_TLS_CIPHER_MAX(PIECE) + FLI_TLS_HANDSHAKE_MAX);
    fli_buf_init(&sec->held, CHANNEL_READ_SIZE);
    c->secure = sec;
    return 0;
}

const struct fli_tls *channel_tls(const struct channel *c)
{
    return c->secure == NULL ? NULL : c->secure->tls;
}

void secure_closing(struct channel *c)
{
    if (c->secure != NULL && fli_list_linked(&c->secure->deferred)) {
        fli_list_remove(&c->secure->deferred);
    }
}

void secure_free(struct channel *c)
{
    struct channel_secure *sec = c->secure;
    if (sec == NULL) {
        return;
    }
    FLI_ASSERT(!fli_list_linked(&sec->deferred));
    fli_tls_destroy(sec->tls);
    fli_buf_fini(&sec->waiting);
    fli_buf_fini(&sec->cipher);
    fli_buf_fini(&sec->held);
    free(sec);
}

size_t secure_memory(const struct channel *c)
{
    const struct channel_secure *sec = c->secure;
    return sec == NULL ? 0 : sizeof *sec + sec->waiting.cap + sec->cipher.cap + sec->held.cap;
}

/* ---- writing --------------------------------------------------------------------------------- */

bool secure_waits(const struct channel *c)
{
    return c->secure != NULL && c->secure->waiting.len > 0;
}

bool secure_shakes(const struct channel *c)
{
    return c->secure != NULL && fli_tls_state(c->secure->tls) == FLI_TLS_SHAKING;
}

static bool broken(struct channel *c)
{
    channel_lose(c, CHANNEL_BROKEN, fli_tls_error(c->secure->tls));
    return false;
}

static bool encrypt_piece(struct channel *c)
{
    struct channel_secure *sec = c->secure;
    size_t left = sec->waiting.len - sec->at;
    size_t n = left < PIECE ? left : PIECE;
    if (fli_tls_write(sec->tls, sec->waiting.data + sec->at, n, &sec->cipher) != 0) {
        return broken(c);
    }
    sec->at += n;
    if (sec->at == sec->waiting.len) {
        fli_buf_clear(&sec->waiting);
        sec->at = 0;
    }
    return true;
}

/* Continues with what waits to be encrypted or sent. False: the connection is lost. */
static bool flush(struct channel *c)
{
    struct channel_secure *sec = c->secure;
    while (!c->closing && !c->writing && (sec->cipher.len > 0 || sec->waiting.len > 0)) {
        if (sec->cipher.len == 0 && !encrypt_piece(c)) {
            return false;
        }
        if (!channel_put(c, &sec->cipher)) {
            return false;
        }
    }
    if (sec->cipher.len == 0) {
        fli_buf_shrink(&sec->cipher);
    }
    return !c->closing;
}

bool secure_go_on(struct channel *c)
{
    if (!flush(c) || c->writing) {
        return false;
    }
    fli_buf_shrink(&c->secure->waiting); /* what was large once must not stay so */
    return true;
}

/* Exchanges the contents of two buffers, but not their limits. */
static void swap(struct fli_buf *a, struct fli_buf *b)
{
    struct fli_buf was = *a;
    size_t a_max = a->max;
    size_t b_max = b->max;
    *a = *b;
    *b = was;
    a->max = a_max;
    b->max = b_max;
}

bool secure_write(struct channel *c, struct fli_buf *from)
{
    struct channel_secure *sec = c->secure;
    FLI_ASSERT(sec->waiting.len == 0 && sec->at == 0);
    FLI_ASSERT(fli_tls_state(sec->tls) != FLI_TLS_SHAKING);
    swap(&sec->waiting, from);
    if (!flush(c)) {
        return false;
    }
    if (sec->waiting.len == 0) {
        swap(&sec->waiting, from); /* the memory remains the owner's */
    }
    return true;
}

bool secure_write_handshake(struct channel *c, const void *data, size_t len)
{
    struct channel_secure *sec = c->secure;
    FLI_ASSERT(sec->waiting.len == 0);
    if (fli_tls_write(sec->tls, data, len, &sec->cipher) != 0) {
        return broken(c);
    }
    return flush(c);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void failed(struct channel *c, bool shaking)
{
    c->shared->shake_failed += shaking;
    (void)flush(c); /* the final alert tells the peer the reason */
    if (!c->closing) {
        (void)broken(c);
    }
}

static void decrypt(struct channel *c, const uint8_t *data, size_t len)
{
    struct channel_shared *shared = c->shared;
    struct channel_secure *sec = c->secure;
    bool shaking = fli_tls_state(sec->tls) == FLI_TLS_SHAKING;
    fli_buf_clear(&shared->plain);
    if (fli_tls_read(sec->tls, data, len, &shared->plain, &sec->cipher) != 0) {
        failed(c, shaking);
        return;
    }
    if (sec->cipher.len > 0 && !flush(c)) {
        return;
    }
    if (shaking && fli_tls_state(sec->tls) != FLI_TLS_SHAKING) {
        shared->shaken++;
        sec->opened(c->cbs.ctx);
    }
    if (!c->closing && shared->plain.len > 0) {
        c->cbs.bytes(c->cbs.ctx, shared->plain.data, shared->plain.len);
    }
    if (!c->closing && fli_tls_state(sec->tls) == FLI_TLS_ENDED) {
        channel_lose(c, CHANNEL_HUNG_UP, "the peer closed it");
    }
}

/* ---- handshakes, turn by turn ---------------------------------------------------------------- */

static bool turn_is_over(const struct channel_shared *shared)
{
    return shared->shake_ns >= (uint64_t)CHANNEL_SHAKE_TURN_MS * 1000000;
}

static void shake(struct channel *c, const uint8_t *data, size_t len)
{
    struct channel_shared *shared = c->shared;
    uint64_t began_ns = fli_clock_ns();
    decrypt(c, data, len);
    if (!c->secure->ours) {
        shared->shake_ns += fli_clock_ns() - began_ns;
    }
}

/* Whether the peer has closed the connection while it waited: then its handshake is dropped. */
static bool has_gone(const struct channel *c)
{
    char byte;
    uv_os_fd_t fd = -1;
    return uv_fileno((const uv_handle_t *)&c->tcp, &fd) == 0 &&
           recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void continue_handshake(struct channel *c)
{
    struct channel_secure *sec = c->secure;
    fli_list_remove(&sec->deferred);
    if (has_gone(c)) {
        channel_lose_by(c, UV_EOF);
        return;
    }
    struct fli_buf held = sec->held;
    fli_buf_init(&sec->held, CHANNEL_READ_SIZE);
    shake(c, held.data, held.len);
    fli_buf_fini(&held);
    if (!c->closing && c->reading && channel_socket_start(c) != 0) {
        channel_lose(c, CHANNEL_FAILED, "it cannot be read");
    }
}

/* Runs once in each turn of the loop, while handshakes or channels wait. */
static void turn_cb(uv_idle_t *turn)
{
    struct channel_shared *shared = turn->data;
    shared->shake_ns = 0;
    while (!fli_list_empty(&shared->deferred) && !turn_is_over(shared)) {
        continue_handshake(
            FLI_CONTAINER_OF(shared->deferred.next, struct channel_secure, deferred)->channel);
    }
    channel_resume_some(shared);
    if (fli_list_empty(&shared->deferred) && fli_list_empty(&shared->paused)) {
        (void)uv_idle_stop(turn);
    }
}

void channel_stay_awake(struct channel_shared *shared)
{
    int rv = uv_idle_start(&shared->turn, turn_cb);
    FLI_ASSERT(rv == 0);
}

static void defer(struct channel *c, const uint8_t *data, size_t len)
{
    struct channel_secure *sec = c->secure;
    if (fli_buf_append(&sec->held, data, len) != 0) {
        channel_lose(c, CHANNEL_FAILED, "out of memory");
        return;
    }
    channel_socket_stop(c);
    c->shared->shake_deferred++;
    fli_list_push(&c->shared->deferred, &sec->deferred);
}

void secure_read(struct channel *c, const uint8_t *data, size_t len)
{
    struct channel_secure *sec = c->secure;
    FLI_ASSERT(!fli_list_linked(&sec->deferred)); /* its socket is not read meanwhile */
    if (fli_tls_state(sec->tls) != FLI_TLS_SHAKING) {
        decrypt(c, data, len);
        return;
    }
    channel_stay_awake(c->shared);
    if (!sec->ours && turn_is_over(c->shared)) {
        defer(c, data, len);
    } else {
        shake(c, data, len);
    }
}

void channel_secure_begin(struct channel *c)
{
    FLI_ASSERT(c->secure->ours);
    decrypt(c, (const uint8_t *)"", 0);
}
