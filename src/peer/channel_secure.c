/* channel_secure.c: TLS on a channel, between the socket's bytes and the owner's.
 *
 *   channel_secure --> shaking --> open (`opened`, then `bytes`) --> lost */
#include <stdlib.h>

#include "peer/channel_private.h"

#define PIECE ((size_t)256 << 10) /* plaintext that is encrypted at once */

int channel_secure(struct channel *c, struct fli_tls *tls, bool ours, void (*opened)(void *ctx))
{
    struct channel_secure *sec = calloc(1, sizeof *sec);
    FLI_ASSERT(c->secure == NULL && opened != NULL);
    if (sec == NULL) {
        fli_tls_destroy(tls);
        return FL_ENOMEM;
    }
    sec->tls = tls;
    sec->opened = opened;
    sec->ours = ours;
    fli_buf_init(&sec->waiting, SIZE_MAX);
    fli_buf_init(&sec->cipher, FLI_TLS_CIPHER_MAX(PIECE) + FLI_TLS_HANDSHAKE_MAX);
    c->secure = sec;
    return 0;
}

const struct fli_tls *channel_tls(const struct channel *c)
{
    return c->secure == NULL ? NULL : c->secure->tls;
}

void secure_free(struct channel *c)
{
    struct channel_secure *sec = c->secure;
    if (sec == NULL) {
        return;
    }
    fli_tls_destroy(sec->tls);
    fli_buf_fini(&sec->waiting);
    fli_buf_fini(&sec->cipher);
    free(sec);
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

bool secure_write(struct channel *c, struct fli_buf *from)
{
    struct channel_secure *sec = c->secure;
    FLI_ASSERT(sec->waiting.len == 0 && sec->at == 0);
    FLI_ASSERT(fli_tls_state(sec->tls) != FLI_TLS_SHAKING);
    channel_swap(&sec->waiting, from);
    if (!flush(c)) {
        return false;
    }
    if (sec->waiting.len == 0) {
        channel_swap(&sec->waiting, from); /* the memory remains the owner's */
    }
    return true;
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

void secure_read(struct channel *c, const uint8_t *data, size_t len)
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

void channel_secure_begin(struct channel *c)
{
    FLI_ASSERT(c->secure->ours);
    secure_read(c, (const uint8_t *)"", 0);
}
