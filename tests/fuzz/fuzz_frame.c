/* fuzz_frame.c: the bytes of a stream of frames. The first byte of the input says how they are cut
 * into pieces and whether the checksums of headers and bodies are put right first, since no fuzzer
 * guesses those. However they are cut, the same frames are shown and the same error is told, what
 * was shown is what arrived, and memory stays within twice of that. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "peer/frame.h"

#define MOST 4096u
#define ROOM 65536u

struct seen {
    struct frame_reader r;
    unsigned n;
    uint32_t crc; /* of types and bodies, with their lengths */
};

static bool show(void *ctx, uint8_t type, struct fli_slice body)
{
    struct seen *s = ctx;
    uint8_t head[5];
    FLI_ASSERT(body.len <= MOST);
    fli_put_u32(head, (uint32_t)body.len);
    head[4] = type;
    s->crc = fli_crc32c(s->crc, head, sizeof head);
    s->crc = body.len == 0 ? s->crc : fli_crc32c(s->crc, body.data, body.len);
    s->n++;
    return true;
}

/* Pieces of at most `most` bytes; NULL, or what the reader complains of. */
static const char *feed(struct seen *s, const uint8_t *data, size_t len, size_t most)
{
    const char *why = NULL;
    memset(s, 0, sizeof *s);
    frame_reader_init(&s->r, MOST);
    for (size_t at = 0; at < len && why == NULL;) {
        size_t n = len - at < most ? len - at : most;
        uint8_t *copy = malloc(n);
        FLI_ASSERT(copy != NULL);
        memcpy(copy, data + at, n);
        why = frame_reader_feed(&s->r, copy, n, show, s);
        free(copy);
        at += n;
        FLI_ASSERT(s->r.in.cap <= 2 * at + 64 || s->r.in.cap <= 4096);
    }
    frame_reader_fini(&s->r);
    return why;
}

/* Walks over the frames and puts their checksums right, as far as they are there. */
static void mend(uint8_t *data, size_t len)
{
    size_t at = 0;
    while (len - at >= FRAME_HEADER_SIZE) {
        size_t body = fli_get_u32(data + at);
        size_t left = len - at - FRAME_HEADER_SIZE;
        memset(data + at + 5, 0, 3);
        if (body <= left) {
            fli_put_u32(data + at + 8, fli_crc32c(0, data + at + FRAME_HEADER_SIZE, body));
        }
        fli_put_u32(data + at + 12, fli_crc32c(0, data + at, 12));
        if (body > left) {
            return;
        }
        at += FRAME_HEADER_SIZE + body;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[ROOM];
    struct seen whole;
    struct seen cut;
    if (size < 1 || size - 1 > sizeof bytes) {
        return 0;
    }
    size_t len = size - 1;
    size_t most = 1u + (data[0] & 0x3f);
    memcpy(bytes, data + 1, len);
    if ((data[0] & 0x40) != 0) {
        mend(bytes, len);
    }
    const char *one = feed(&whole, bytes, len, ROOM);
    const char *two = feed(&cut, bytes, len, most);
    FLI_ASSERT(one == two && whole.n == cut.n && whole.crc == cut.crc);
    return 0;
}
