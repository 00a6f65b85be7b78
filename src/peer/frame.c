/* frame.c: see frame.h. */
#include "peer/frame.h"

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

/* The size of the frame that begins here, as far as `have` bytes of it tell: that of its header,
 * until that is whole. NULL; or a sentence about the error. */
static const char *frame_size(const struct frame_reader *r, const uint8_t *frame, size_t have,
                              size_t *ret)
{
    *ret = FRAME_HEADER_SIZE;
    if (have < FRAME_HEADER_SIZE) {
        return NULL;
    }
    if (fli_get_u32(frame + 12) != fli_crc32c(0, frame, 12)) {
        return DAMAGED_HEADER;
    }
    if (frame[5] != 0 || frame[6] != 0 || frame[7] != 0) {
        return UNKNOWN_FORM;
    }
    if (fli_get_u32(frame) > r->frame_max) {
        return TOO_LARGE;
    }
    *ret += fli_get_u32(frame);
    return NULL;
}

static bool body_is_whole(const uint8_t *frame, size_t size)
{
    return fli_crc32c(0, frame + FRAME_HEADER_SIZE, size - FRAME_HEADER_SIZE) ==
           fli_get_u32(frame + 8);
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

static void forget_gathered(struct frame_reader *r)
{
    fli_buf_clear(&r->in);
    if (r->in.cap > KEEP_CAP) {
        fli_buf_shrink(&r->in);
    }
}

/* Each round shows a frame that is whole, where it is, or gathers more of one that is not. */
const char *frame_reader_feed(struct frame_reader *r, const uint8_t *data, size_t len,
                              bool (*show)(void *ctx, uint8_t type, struct fli_slice body),
                              void *ctx)
{
    for (bool more = true; more;) {
        bool gathered = r->in.len > 0;
        const uint8_t *frame = gathered ? r->in.data : data;
        size_t have = gathered ? r->in.len : len;
        size_t size;
        const char *why = frame_size(r, frame, have, &size);
        if (why != NULL) {
            return why;
        }
        if (have < size) {
            size_t n = size - r->in.len < len ? size - r->in.len : len;
            if (fli_buf_append(&r->in, data, n) != 0) {
                return NO_MEMORY;
            }
            more = n > 0;
            data += n;
            len -= n;
            continue;
        }
        if (!body_is_whole(frame, size)) {
            return DAMAGED_BODY;
        }
        more = show(ctx, frame[4],
                    (struct fli_slice){frame + FRAME_HEADER_SIZE, size - FRAME_HEADER_SIZE});
        if (gathered) {
            forget_gathered(r);
        } else {
            data += size;
            len -= size;
        }
    }
    return NULL;
}
