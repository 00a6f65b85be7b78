/* frame.c: see frame.h. */
#include "peer/frame.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define KEEP_CAP ((size_t)4 << 10) /* memory that is kept between frames */

static const char DAMAGED_HEADER[] = "a frame whose header is damaged";
static const char DAMAGED_BODY[] = "a frame whose body is damaged";
static const char UNKNOWN_FORM[] = "a frame of an unknown form";
static const char TOO_LARGE[] = "a frame that is larger than this kind of stream may carry";
static const char NO_MEMORY[] = "out of memory for a frame";

void frame_header_encode(uint8_t type, const struct fli_slice *parts, unsigned n,
                         uint8_t out[FRAME_HEADER_SIZE])
{
    size_t len = 0;
    uint32_t crc = 0;
    for (unsigned i = 0; i < n; i++) {
        FLI_ASSERT(parts[i].len <= FRAME_MAX - len);
        len += parts[i].len;
        crc = parts[i].len == 0 ? crc : fli_crc32c(crc, parts[i].data, parts[i].len);
    }
    fli_put_u32(out, (uint32_t)len);
    fli_put_u32(out + 4, type);
    fli_put_u32(out + 8, crc);
    fli_put_u32(out + 12, fli_crc32c(0, out, 12));
}

/* NULL, and the length of the body; or a sentence about the error. */
static const char *check_header(const struct frame_reader *r, const uint8_t *h, size_t *ret_len)
{
    if (fli_get_u32(h + 12) != fli_crc32c(0, h, 12)) {
        return DAMAGED_HEADER;
    }
    if (h[5] != 0 || h[6] != 0 || h[7] != 0) {
        return UNKNOWN_FORM;
    }
    if (fli_get_u32(h) > r->frame_max) {
        return TOO_LARGE;
    }
    *ret_len = fli_get_u32(h);
    return NULL;
}

static bool body_is_whole(const uint8_t *frame, size_t len)
{
    return fli_crc32c(0, frame + FRAME_HEADER_SIZE, len) == fli_get_u32(frame + 8);
}

void frame_reader_init(struct frame_reader *r, size_t frame_max)
{
    FLI_ASSERT(frame_max > 0 && frame_max <= FRAME_MAX);
    memset(r, 0, sizeof *r);
    r->frame_max = frame_max;
    fli_buf_init(&r->in, FRAME_HEADER_SIZE + frame_max);
}

void frame_reader_fini(struct frame_reader *r)
{
    fli_buf_fini(&r->in);
}

/* The result of one step of the reader. */
struct step {
    size_t taken;
    bool stop; /* `show` wants no more frames */
    const char *why;
};

/* Shows the frame at `data` if it is complete there; else `taken` is 0. */
static struct step show_in_place(const struct frame_reader *r, const uint8_t *data, size_t len,
                                 bool (*show)(void *, uint8_t, struct fli_slice), void *ctx)
{
    size_t body_len;
    if (len < FRAME_HEADER_SIZE) {
        return (struct step){0};
    }
    const char *why = check_header(r, data, &body_len);
    if (why != NULL) {
        return (struct step){.why = why};
    }
    if (len - FRAME_HEADER_SIZE < body_len) {
        return (struct step){0};
    }
    if (!body_is_whole(data, body_len)) {
        return (struct step){.why = DAMAGED_BODY};
    }
    struct fli_slice body = {data + FRAME_HEADER_SIZE, body_len};
    bool more = show(ctx, data[4], body);
    return (struct step){.taken = FRAME_HEADER_SIZE + body_len, .stop = !more};
}

static bool gather(struct frame_reader *r, size_t want, const uint8_t *data, size_t len,
                   struct step *s)
{
    size_t n = want - r->in.len < len ? want - r->in.len : len;
    if (fli_buf_append(&r->in, data, n) != 0) {
        s->why = NO_MEMORY;
        return false;
    }
    s->taken += n;
    return r->in.len == want;
}

/* Continues a frame that has arrived in part. */
static struct step show_gathered(struct frame_reader *r, const uint8_t *data, size_t len,
                                 bool (*show)(void *, uint8_t, struct fli_slice), void *ctx)
{
    struct step s = {0};
    size_t body_len;
    if (r->in.len < FRAME_HEADER_SIZE && !gather(r, FRAME_HEADER_SIZE, data, len, &s)) {
        return s;
    }
    s.why = check_header(r, r->in.data, &body_len);
    if (s.why != NULL ||
        !gather(r, FRAME_HEADER_SIZE + body_len, data + s.taken, len - s.taken, &s)) {
        return s;
    }
    if (!body_is_whole(r->in.data, body_len)) {
        s.why = DAMAGED_BODY;
        return s;
    }
    r->shown_in = true;
    s.stop =
        !show(ctx, r->in.data[4], (struct fli_slice){r->in.data + FRAME_HEADER_SIZE, body_len});
    r->shown_in = false;
    fli_buf_clear(&r->in);
    if (r->in.cap > KEEP_CAP) {
        fli_buf_shrink(&r->in);
    }
    return s;
}

const char *frame_reader_feed(struct frame_reader *r, const uint8_t *data, size_t len,
                              bool (*show)(void *ctx, uint8_t type, struct fli_slice body),
                              void *ctx)
{
    while (len > 0) {
        struct step s = {0};
        if (r->in.len == 0) {
            s = show_in_place(r, data, len, show, ctx);
        }
        if (s.taken == 0 && s.why == NULL) {
            s = show_gathered(r, data, len, show, ctx);
        }
        if (s.why != NULL || s.stop) {
            return s.why;
        }
        FLI_ASSERT(s.taken > 0 && s.taken <= len);
        data += s.taken;
        len -= s.taken;
    }
    return NULL;
}

/* Shrinks the block: after growing by doubling, it has up to twice the room that it needs. */
static void *keep_gathered(struct frame_reader *r, struct fli_slice *body)
{
    size_t size = FRAME_HEADER_SIZE + body->len;
    uint8_t *block = r->in.data;
    if (r->in.cap - size > size / 8) {
        uint8_t *less = realloc(block, size);
        block = less == NULL ? block : less;
    }
    fli_buf_init(&r->in, r->in.max);
    r->shown_in = false;
    body->data = block + FRAME_HEADER_SIZE;
    return block;
}

void *frame_reader_keep(struct frame_reader *r, struct fli_slice *body)
{
    if (r->shown_in) {
        return keep_gathered(r, body);
    }
    uint8_t *block = malloc(body->len == 0 ? 1 : body->len);
    if (block == NULL) {
        return NULL;
    }
    if (body->len > 0) {
        memcpy(block, body->data, body->len);
    }
    body->data = block;
    return block;
}
