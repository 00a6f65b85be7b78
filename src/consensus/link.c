/* link.c: see link.h. */
#include "consensus/link.h"

#include <raft.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define HEADER_SIZE 5u
#define OUT_KEEP                                                                                   \
    ((size_t)256 << 10) /* memory an empty buffer keeps, so that turns do not allocate */
#define IN_SIZE (LINK_FRAME_MAX + ((size_t)32 << 10))

struct link {
    uv_stream_t *stream;
    struct link_callbacks cbs;
    bool closing;
    bool lost;
    bool writing; /* the kernel has not taken all of `out` */
    uv_write_t write;
    struct fli_buf gather; /* appended, not handed over */
    struct fli_buf out;    /* being written */
    uint64_t appended;
    uint64_t handed;
    uint64_t heard_ms;
    size_t in_len;
    uint8_t in[IN_SIZE];
};

static void lose(struct link *l, const char *why)
{
    if (l->closing || l->lost) {
        return;
    }
    l->lost = true;
    uv_read_stop(l->stream);
    l->cbs.lost(l->cbs.ctx, why);
}

/* Calls the owner for each whole frame. False when the link is not to be read any more. */
static bool take_frames(struct link *l)
{
    size_t at = 0;
    while (l->in_len - at >= 4) {
        uint32_t length = fli_get_u32(l->in + at);
        if (length < 1 || length > LINK_FRAME_MAX) {
            lose(l, "a frame of impossible length");
            return false;
        }
        if (l->in_len - at - 4 < length) {
            break;
        }
        struct fli_slice body = {l->in + at + HEADER_SIZE, length - 1};
        l->cbs.frame(l->cbs.ctx, l->in[at + 4], body);
        if (l->closing || l->lost) {
            return false;
        }
        at += 4 + length;
    }
    memmove(l->in, l->in + at, l->in_len - at);
    l->in_len -= at;
    return true;
}

static void alloc_cb(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct link *l = handle->data;
    FLI_ASSERT(l->in_len < IN_SIZE);
    *buf = uv_buf_init((char *)l->in + l->in_len, (unsigned)(IN_SIZE - l->in_len));
}

static void read_cb(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    struct link *l = stream->data;
    if (nread < 0) {
        lose(l, nread == UV_EOF ? "the peer closed it" : uv_strerror((int)nread));
        return;
    }
    if (nread > 0) {
        l->heard_ms = uv_now(stream->loop);
        l->in_len += (size_t)nread;
        (void)take_frames(l);
    }
}

int link_create(uv_stream_t *stream, const struct link_callbacks *cbs, struct link **ret)
{
    FLI_ASSERT(cbs->frame != NULL && cbs->lost != NULL && cbs->gone != NULL);
    struct link *l = calloc(1, sizeof *l);
    if (l == NULL) {
        /* Without memory for the link there is nobody to wait for the handle: `gone` comes now. */
        uv_close((uv_handle_t *)stream, (uv_close_cb)raft_free);
        cbs->gone(cbs->gone_ctx);
        return FL_ENOMEM;
    }
    l->stream = stream;
    l->cbs = *cbs;
    l->heard_ms = uv_now(stream->loop);
    l->write.data = l;
    stream->data = l;
    fli_buf_init(&l->gather, LINK_OUT_MAX);
    fli_buf_init(&l->out, LINK_OUT_MAX);
    if (uv_read_start(stream, alloc_cb, read_cb) != 0) {
        link_close(l);
        return FL_ESYSTEM;
    }
    *ret = l;
    return 0;
}

int link_send(struct link *l, uint8_t type, const struct fli_slice *parts, unsigned n)
{
    uint8_t header[HEADER_SIZE];
    size_t length = 1;
    FLI_ASSERT(!l->closing);
    for (unsigned i = 0; i < n; i++) {
        length += parts[i].len;
    }
    FLI_ASSERT(length <= LINK_FRAME_MAX);
    int rv = fli_buf_reserve(&l->gather, 4 + length);
    if (rv != 0) {
        return rv;
    }
    fli_put_u32(header, (uint32_t)length);
    header[4] = type;
    rv = fli_buf_append(&l->gather, header, sizeof header);
    for (unsigned i = 0; i < n && rv == 0; i++) {
        rv = fli_buf_append(&l->gather, parts[i].data, parts[i].len);
    }
    FLI_ASSERT(rv == 0); /* room was made above */
    l->appended += 4 + length;
    return 0;
}

static void write_cb(uv_write_t *write, int status)
{
    struct link *l = write->data;
    l->writing = false;
    if (l->closing) {
        return;
    }
    fli_buf_clear(&l->out);
    if (status != 0) {
        lose(l, uv_strerror(status));
        return;
    }
    link_flush(l);
}

void link_flush(struct link *l)
{
    if (l->closing || l->lost || l->writing || l->gather.len == 0) {
        return;
    }
    FLI_ASSERT(l->out.len == 0);
    struct fli_buf taken = l->gather;
    l->gather = l->out;
    l->out = taken;
    l->handed = l->appended;
    uv_buf_t buf = uv_buf_init((char *)l->out.data, (unsigned)l->out.len);
    int sent = uv_try_write(l->stream, &buf, 1);
    if (sent < 0 && sent != UV_EAGAIN) {
        fli_buf_clear(&l->out);
        lose(l, uv_strerror(sent));
        return;
    }
    size_t done = sent < 0 ? 0 : (size_t)sent;
    if (done == l->out.len) {
        fli_buf_clear(&l->out);
        if (l->out.cap > OUT_KEEP) {
            fli_buf_shrink(&l->out);
        }
        return;
    }
    buf = uv_buf_init((char *)l->out.data + done, (unsigned)(l->out.len - done));
    l->writing = true;
    int rv = uv_write(&l->write, l->stream, &buf, 1, write_cb);
    if (rv != 0) {
        l->writing = false;
        fli_buf_clear(&l->out);
        lose(l, uv_strerror(rv));
    }
}

uint64_t link_appended(const struct link *l)
{
    return l->appended;
}

uint64_t link_handed(const struct link *l)
{
    return l->handed;
}

bool link_idle(const struct link *l)
{
    return l->lost || (!l->writing && l->gather.len == 0);
}

uint64_t link_heard_ms(const struct link *l)
{
    return l->heard_ms;
}

static void closed_cb(uv_handle_t *handle)
{
    struct link *l = handle->data;
    struct link_callbacks cbs = l->cbs;
    raft_free(l->stream);
    fli_buf_fini(&l->gather);
    fli_buf_fini(&l->out);
    free(l);
    cbs.gone(cbs.gone_ctx);
}

void link_close(struct link *l)
{
    if (l == NULL) {
        return;
    }
    FLI_ASSERT(!l->closing);
    l->closing = true;
    uv_close((uv_handle_t *)l->stream, closed_cb);
}
