/* frame.h: frames as bytes, and their reader. Pure.
 *
 *   offset size   little endian
 *   0      4      length of the body
 *   4      1      type: the owner's
 *   5      3      zeros
 *   8      4      CRC-32C of the body
 *   12     4      CRC-32C of bytes 0 to 11
 *   16     ...    body
 *
 * The header is checked before its length is used, and the body before it is shown. Memory for a
 * body grows as its bytes arrive. */
#ifndef PEER_FRAME_H
#define PEER_FRAME_H

#include "base/buf.h"

#define FRAME_HEADER_SIZE 16u
#define FRAME_MAX ((size_t)64 << 20) /* bytes of a body, on any kind of stream */

/* The parts make up the body; together they have at most FRAME_MAX bytes. */
void frame_header_encode(uint8_t type, const struct fli_slice *parts, unsigned n,
                         uint8_t out[FRAME_HEADER_SIZE]);

struct frame_reader {
    size_t frame_max;  /* bytes of a body; 1 to FRAME_MAX */
    struct fli_buf in; /* what has arrived and was not shown; its owner may append to it, too */
};

void frame_reader_init(struct frame_reader *r, size_t frame_max);
void frame_reader_fini(struct frame_reader *r);

/* Shows, in order, each frame that is whole with these bytes. When `show` returns false, it gets no
 * more of them in this call. Returns NULL; or why the bytes are not frames, and then the reader
 * must not be fed again. */
const char *frame_reader_feed(struct frame_reader *r, const uint8_t *data, size_t len,
                              bool (*show)(void *ctx, uint8_t type, struct fli_slice body),
                              void *ctx) FLI_MUST_USE;

#endif
