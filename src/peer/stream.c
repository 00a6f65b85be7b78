/* stream.c: see stream.h. */
#include "peer/stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "peer/stream_private.h"

/* The memory that an empty buffer keeps, and for how many turns, so that turns need not
 * allocate. */
#define OUT_KEEP ((size_t)256 << 10)
#define OUT_KEEP_TURNS 256u

/* Its memory is kept for as long as that of its channel, so each callback may close the stream. */
static void freed_cb(void *ctx)
{
    struct stream *s = ctx;
    frame_reader_fini(&s->in);
    fli_buf_fini(&s->gather);
    fli_buf_fini(&s->leftover);
    free(s);
}

static void lost_cb(void *ctx, enum channel_end end, const char *why)
{
    struct stream *s = ctx;
    if (s->lost || s->closed) {
        return;
    }
    s->lost = true;
    if (fli_list_linked(&s->accepted)) {
        fli_list_remove(&s->accepted);
        if (end == CHANNEL_BROKEN) {
            accept_broken(s, why);
        }
    }
    fli_buf_clear(&s->gather);
    fli_buf_shrink(&s->gather);
    s->writing = 0;
    if (s->started) {
        s->cbs.lost(s->cbs.ctx, end, why);
    }
}

/* ---- reading ---- */

static bool show(void *ctx, uint8_t type, struct fli_slice body)
{
    struct stream *s = ctx;
    s->cbs.frame(s->cbs.ctx, type, body);
    return !s->closed && !s->lost;
}

static void feed(struct stream *s, const uint8_t *data, size_t len)
{
    const char *why = frame_reader_feed(&s->in, data, len, show, s);
    if (why != NULL && !s->closed) {
        channel_lose(s->channel, CHANNEL_BROKEN, why);
    }
}

static void bytes_cb(void *ctx, const uint8_t *data, size_t len)
{
    struct stream *s = ctx;
    s->heard_ms = fli_clock_ms();
    feed(s, data, len);
}

static void drained_cb(void *ctx)
{
    struct stream *s = ctx;
    s->writing = 0;
    stream_flush(s);
}

int stream_create(struct channel *c, const struct stream_limits *limits, struct fli_slice leftover,
                  struct stream **ret)
{
    struct stream *s = calloc(1, sizeof *s);
    FLI_ASSERT(limits->frame_max > 0 && limits->frame_max <= FRAME_MAX);
    FLI_ASSERT(limits->out_max >= limits->frame_max + FRAME_HEADER_SIZE);
    FLI_ASSERT(limits->out_max <= STREAM_OUT_MAX);
    if (s != NULL) {
        fli_buf_init(&s->leftover, CHANNEL_READ_SIZE);
    }
    if (s == NULL || fli_buf_append(&s->leftover, leftover.data, leftover.len) != 0) {
        free(s);
        channel_close(c);
        return FL_ENOMEM;
    }
    struct channel_callbacks cbs = {
        .ctx = s, .bytes = bytes_cb, .drained = drained_cb, .lost = lost_cb, .freed = freed_cb};
    s->channel = c;
    s->limits = *limits;
    s->heard_ms = fli_clock_ms();
    fli_list_init(&s->accepted);
    frame_reader_init(&s->in, limits->frame_max);
    fli_buf_init(&s->gather, limits->out_max);
    channel_own(c, &cbs);
    channel_read_stop(c);
    *ret = s;
    return 0;
}

bool stream_start(struct stream *s, const struct stream_callbacks *cbs)
{
    FLI_ASSERT(!s->started && !s->closed && cbs->frame != NULL && cbs->lost != NULL);
    s->cbs = *cbs;
    s->started = true;
    if (s->lost) { /* the channel may be released already, and go with the stream */
        s->cbs.lost(s->cbs.ctx, CHANNEL_REPLACED, "it was replaced before it was used");
        return false;
    }
    if (s->leftover.len > 0) {
        struct fli_buf leftover = s->leftover;
        fli_buf_init(&s->leftover, 0);
        feed(s, leftover.data, leftover.len);
        fli_buf_fini(&leftover);
    }
    if (!s->lost && !s->closed && channel_read_start(s->channel) != 0) {
        channel_lose(s->channel, CHANNEL_FAILED, "it cannot be read");
    }
    return !s->lost && !s->closed;
}

/* ---- writing ---- */

size_t stream_unsent(const struct stream *s)
{
    return s->gather.len + s->writing;
}

int stream_send(struct stream *s, uint8_t type, const struct fli_slice *parts, unsigned n)
{
    uint8_t header[FRAME_HEADER_SIZE];
    size_t length = 0;
    FLI_ASSERT(!s->closed && n <= STREAM_PARTS_MAX);
    for (unsigned i = 0; i < n; i++) {
        if (parts[i].len > s->limits.frame_max - length) {
            return FL_EINVAL;
        }
        length += parts[i].len;
    }
    size_t size = FRAME_HEADER_SIZE + length;
    if (s->lost) {
        return FL_ENOCONN;
    }
    if (size > s->limits.out_max - stream_unsent(s)) {
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
    FLI_ASSERT(!s->closed);
    if (s->lost) {
        return;
    }
    if (s->gather.len == 0) {
        if (++s->quiet_turns == OUT_KEEP_TURNS) {
            fli_buf_shrink(&s->gather);
        }
        return;
    }
    s->quiet_turns = 0;
    if (channel_busy(s->channel)) {
        return;
    }
    size_t len = s->gather.len;
    s->handed = s->appended;
    if (channel_write(s->channel, &s->gather) && !s->lost && !s->closed) {
        s->writing = channel_busy(s->channel) ? len : 0;
        if (s->gather.cap > OUT_KEEP) {
            fli_buf_shrink(&s->gather);
        }
    }
}

uint64_t stream_appended(const struct stream *s)
{
    return s->appended;
}

uint64_t stream_handed(const struct stream *s)
{
    return s->handed;
}

bool stream_idle(const struct stream *s)
{
    return s->lost || stream_unsent(s) == 0;
}

uint64_t stream_heard_ms(const struct stream *s)
{
    return s->heard_ms;
}

void stream_close(struct stream *s)
{
    if (s == NULL) {
        return;
    }
    FLI_ASSERT(!s->closed);
    s->closed = true;
    if (fli_list_linked(&s->accepted)) {
        fli_list_remove(&s->accepted);
    }
    channel_close(s->channel);
}
