/* Frames as bytes: damaged at each bit, cut at each byte, of every length. */
#include "../../lib/rng.h"
#include "base/bytes.h"
#include "peer/frame.h"

#define MAX ((size_t)100000)

struct seen {
    struct frame_reader r;
    unsigned n;
    unsigned stop_at; /* no more after so many; 0: never */
    uint8_t type;
    struct fli_buf all; /* bodies, one behind the other */
};

static bool show(void *ctx, uint8_t type, struct fli_slice body)
{
    struct seen *s = ctx;
    s->n++;
    s->type = type;
    assert_int_equal(fli_buf_append(&s->all, body.data, body.len), 0);
    return s->n != s->stop_at;
}

static void seen_init(struct seen *s, size_t max)
{
    memset(s, 0, sizeof *s);
    frame_reader_init(&s->r, max);
    fli_buf_init(&s->all, SIZE_MAX);
}

static void seen_fini(struct seen *s)
{
    frame_reader_fini(&s->r);
    fli_buf_fini(&s->all);
}

static const char *feed(struct seen *s, const uint8_t *data, size_t len)
{
    return frame_reader_feed(&s->r, data, len, show, s);
}

static void add_frame(struct fli_buf *out, uint8_t type, const void *body, size_t len)
{
    uint8_t header[FRAME_HEADER_SIZE];
    struct fli_slice part = {body, len};
    frame_header_encode(type, &part, 1, header);
    assert_int_equal(fli_buf_append(out, header, sizeof header), 0);
    assert_int_equal(fli_buf_append(out, body, len), 0);
}

static void fill(uint8_t *p, size_t len, unsigned from)
{
    for (size_t i = 0; i < len; i++) {
        p[i] = (uint8_t)(from + i * 7);
    }
}

/* Bodies of 0, 1, 15, 16, 300 and again 0 bytes. */
static void three_frames(struct fli_buf *out, struct fli_buf *bodies)
{
    static const size_t SIZES[] = {0, 1, 15, 16, 300, 0};
    uint8_t body[300];
    fli_buf_init(out, SIZE_MAX);
    fli_buf_init(bodies, SIZE_MAX);
    for (unsigned i = 0; i < 6; i++) {
        fill(body, SIZES[i], i);
        add_frame(out, (uint8_t)(i + 250), body, SIZES[i]);
        assert_int_equal(fli_buf_append(bodies, body, SIZES[i]), 0);
    }
}

/* In two pieces cut at each byte, and byte by byte. */
TEST(test_cut_at_each_byte)
{
    struct fli_buf bytes;
    struct fli_buf bodies;
    three_frames(&bytes, &bodies);
    for (size_t cut = 0; cut <= bytes.len; cut++) {
        struct seen s;
        seen_init(&s, 300);
        assert_null(feed(&s, bytes.data, cut));
        assert_null(feed(&s, bytes.data + cut, bytes.len - cut));
        assert_int_equal(s.n, 6);
        assert_int_equal(s.type, 255);
        assert_int_equal(s.all.len, bodies.len);
        assert_memory_equal(s.all.data, bodies.data, bodies.len);
        seen_fini(&s);
    }
    struct seen s;
    seen_init(&s, 300);
    for (size_t i = 0; i < bytes.len; i++) {
        assert_null(feed(&s, bytes.data + i, 1));
    }
    assert_int_equal(s.n, 6);
    seen_fini(&s);
    fli_buf_fini(&bytes);
    fli_buf_fini(&bodies);
}

/* Each bit of header and body, fed at once and byte by byte: never shown, always told. */
TEST(test_each_bit)
{
    uint8_t body[40];
    struct fli_buf bytes;
    fill(body, sizeof body, 1);
    fli_buf_init(&bytes, SIZE_MAX);
    add_frame(&bytes, 9, body, sizeof body);
    for (unsigned bit = 0; bit < 16 * bytes.len; bit++) {
        struct seen s;
        size_t at = bit / 2 / 8;
        const char *why = NULL;
        seen_init(&s, 64);
        bytes.data[at] ^= (uint8_t)(1u << bit / 2 % 8);
        if (bit % 2 == 0) {
            why = feed(&s, bytes.data, bytes.len);
        }
        for (size_t i = 0; bit % 2 == 1 && i < bytes.len && why == NULL; i++) {
            why = feed(&s, bytes.data + i, 1);
        }
        assert_non_null(why);
        assert_non_null(strstr(why, at < FRAME_HEADER_SIZE ? "header" : "body"));
        assert_int_equal(s.n, 0);
        bytes.data[at] ^= (uint8_t)(1u << bit / 2 % 8);
        seen_fini(&s);
    }
    fli_buf_fini(&bytes);
}

static const char *feed_header(uint32_t length, size_t max, size_t *ret_cap)
{
    uint8_t h[FRAME_HEADER_SIZE] = {0};
    struct seen s;
    fli_put_u32(h, length);
    h[4] = 1;
    fli_put_u32(h + 12, fli_crc32c(0, h, 12));
    seen_init(&s, max);
    const char *why = feed(&s, h, sizeof h);
    *ret_cap = s.r.in.cap;
    seen_fini(&s);
    return why;
}

/* Headers that are whole, of any length: what is too long is told before memory is taken, and what
 * is not takes none before it has arrived. */
TEST(test_lengths)
{
    static const uint32_t BAD[] = {MAX + 1,    FRAME_MAX,  FRAME_MAX + 1, 0x7fffffff,
                                   0x80000000, 0xfffffff0, 0xffffffff};
    size_t cap;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        const char *why = feed_header(BAD[i], MAX, &cap);
        assert_non_null(why);
        assert_non_null(strstr(why, "larger"));
        assert_true(cap <= 64);
    }
    assert_null(feed_header(MAX, MAX, &cap));
    assert_true(cap <= 64);
    assert_null(feed_header(FRAME_MAX, FRAME_MAX, &cap));
    assert_true(cap <= 64);
    assert_null(feed_header(0, 1, &cap));
}

TEST(test_unknown_form)
{
    for (unsigned i = 5; i < 8; i++) {
        uint8_t h[FRAME_HEADER_SIZE] = {0};
        struct seen s;
        h[i] = 1;
        fli_put_u32(h + 12, fli_crc32c(0, h, 12));
        seen_init(&s, 1);
        assert_non_null(feed(&s, h, sizeof h));
        seen_fini(&s);
    }
}

/* The largest is read whole, one more is not; an idle reader keeps little. */
TEST(test_largest)
{
    uint8_t *body = test_malloc(MAX + 1);
    fill(body, MAX + 1, 3);
    for (unsigned more = 0; more < 2; more++) {
        struct fli_buf bytes;
        struct seen s;
        fli_buf_init(&bytes, SIZE_MAX);
        add_frame(&bytes, 7, body, MAX + more);
        seen_init(&s, MAX);
        const char *why = NULL;
        for (size_t at = 0; at < bytes.len && why == NULL; at += 1000) {
            size_t n = bytes.len - at < 1000 ? bytes.len - at : 1000;
            why = feed(&s, bytes.data + at, n);
            assert_true(s.r.in.cap <= 2 * (at + 1000));
        }
        assert_int_equal(why == NULL, more == 0);
        assert_int_equal(s.n, 1 - more);
        assert_true(s.r.in.cap <= 4096);
        seen_fini(&s);
        fli_buf_fini(&bytes);
    }
    test_free(body);
}

/* The owner has had enough: what is behind that frame is not shown. */
TEST(test_stop)
{
    struct fli_buf bytes;
    struct fli_buf bodies;
    three_frames(&bytes, &bodies);
    for (unsigned whole = 0; whole < 2; whole++) {
        struct seen s;
        seen_init(&s, 300);
        s.stop_at = 2;
        if (whole == 0) {
            assert_null(feed(&s, bytes.data, 20)); /* the second is gathered */
            assert_null(feed(&s, bytes.data + 20, bytes.len - 20));
        } else {
            assert_null(feed(&s, bytes.data, bytes.len));
        }
        assert_int_equal(s.n, 2);
        seen_fini(&s);
    }
    fli_buf_fini(&bytes);
    fli_buf_fini(&bodies);
}

/* Checksums of parts are those of the whole. */
TEST(test_parts)
{
    uint8_t body[100];
    uint8_t whole[FRAME_HEADER_SIZE];
    uint8_t pieces[FRAME_HEADER_SIZE];
    fill(body, sizeof body, 5);
    struct fli_slice one = {body, sizeof body};
    struct fli_slice parts[4] = {{body, 1}, {NULL, 0}, {body + 1, 98}, {body + 99, 1}};
    frame_header_encode(3, &one, 1, whole);
    frame_header_encode(3, parts, 4, pieces);
    assert_memory_equal(whole, pieces, sizeof whole);
}

/* Any frames in any pieces. */
TEST(test_random)
{
    uint64_t rng;
    uint8_t body[5000];
    rng = rng_seed();
    for (unsigned round = 0; round < 200; round++) {
        struct fli_buf bytes;
        struct fli_buf bodies;
        struct seen s;
        unsigned n = 1 + (unsigned)rng_below(&rng, 20);
        fli_buf_init(&bytes, SIZE_MAX);
        fli_buf_init(&bodies, SIZE_MAX);
        seen_init(&s, sizeof body);
        for (unsigned i = 0; i < n; i++) {
            size_t len = rng_below(&rng, rng_below(&rng, 2) == 0 ? 20 : sizeof body + 1);
            fill(body, len, (unsigned)rng_next(&rng));
            add_frame(&bytes, (uint8_t)i, body, len);
            assert_int_equal(fli_buf_append(&bodies, body, len), 0);
        }
        for (size_t at = 0; at < bytes.len;) {
            size_t len = 1 + rng_below(&rng, 3000);
            len = len < bytes.len - at ? len : bytes.len - at;
            assert_null(feed(&s, bytes.data + at, len));
            at += len;
        }
        assert_int_equal(s.n, n);
        assert_int_equal(s.all.len, bodies.len);
        if (bodies.len > 0) {
            assert_memory_equal(s.all.data, bodies.data, bodies.len);
        }
        seen_fini(&s);
        fli_buf_fini(&bytes);
        fli_buf_fini(&bodies);
    }
}
