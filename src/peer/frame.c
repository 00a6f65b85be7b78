/* frame.c: see frame.h. */
#include "peer/frame.h"

#include "base/bytes.h"

#define KEEP_CAP ((size_t)4 << 10) /* memory that is kept between frames */

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

/* Checks what is there of the frame that begins here; its header is. NULL, and its size; or why it
 * is none. */
static const char *check(const struct frame_reader *r, const uint8_t *frame, size_t have,
                         size_t *ret_size)
{
    if (fli_get_u32(frame + 12) != fli_crc32c(0, frame, 12)) {
        return "a frame whose header is damaged";
    }
    if (frame[5] != 0 || frame[6] != 0 || frame[7] != 0) {
        return "a frame of an unknown form";
    }
    size_t len = fli_get_u32(frame);
    if (len > r->frame_max) {
        return "a frame that is larger than this kind of stream may carry";
    }
    *ret_size = FRAME_HEADER_SIZE + len;
    if (have >= *ret_size &&
        fli_crc32c(0, frame + FRAME_HEADER_SIZE, len) != fli_get_u32(frame + 8)) {
        return "a frame whose body is damaged";
    }
    return NULL;
}

void frame_reader_init(struct frame_reader *r, size_t frame_max)
{
    FLI_ASSERT(frame_max > 0 && frame_max <= FRAME_MAX);
    r->frame_max = frame_max;
    fli_buf_init(&r->in, SIZE_MAX); /* a read, and less than a frame */
}

void frame_reader_fini(struct frame_reader *r)
{
    fli_buf_fini(&r->in);
}

const char *frame_reader_feed(struct frame_reader *r, const uint8_t *data, size_t len,
                              bool (*show)(void *ctx, uint8_t type, struct fli_slice body),
                              void *ctx)
{
    size_t at = 0;
    size_t size;
    if (fli_buf_append(&r->in, data, len) != 0) {
        return "out of memory for a frame";
    }
    for (bool more = true; more && r->in.len - at >= FRAME_HEADER_SIZE; at += size) {
        const uint8_t *frame = r->in.data + at;
        const char *why = check(r, frame, r->in.len - at, &size);
        if (why != NULL) {
            return why;
        }
        if (r->in.len - at < size) {
            break;
        }
        more = show(ctx, frame[4],
                    (struct fli_slice){frame + FRAME_HEADER_SIZE, size - FRAME_HEADER_SIZE});
    }
    fli_buf_consume(&r->in, at);
    if (r->in.len == 0 && r->in.cap > KEEP_CAP) {
        fli_buf_shrink(&r->in);
    }
    return NULL;
}
