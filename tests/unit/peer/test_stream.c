/* Streams between two transports: what arrives, what surely never left, ceilings, ends. */
#include "rig.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/bytes.h"
#include "peer/transport_private.h"

static int set_up(void **state)
{
    *state = rig_open(NULL);
    return 0;
}

static int tear_down(void **state)
{
    rig_close(*state);
    return 0;
}

static int send_text(struct stream *s, const char *text)
{
    struct fli_slice part = {(const uint8_t *)text, strlen(text)};
    return stream_send(s, 5, &part, 1);
}

static struct held_stream *theirs(struct rig *r)
{
    return &r->b.streams[0];
}

/* Sending alone lets nothing leave; a flush does, and says so. */
TEST_WITH(test_flush, set_up, tear_down)
{
    struct rig *r = *state;
    rig_pair(r, STREAM_RELAY);
    struct stream *s = r->mine.s;
    assert_int_equal(stream_unsent(s), 0);
    assert_int_equal(send_text(s, "one"), 0);
    assert_int_equal(send_text(s, ""), 0);
    assert_int_equal(stream_send(s, 6, NULL, 0), 0);
    assert_int_equal(stream_appended(s), 3 * FRAME_HEADER_SIZE + 3);
    assert_int_equal(stream_handed(s), 0);
    assert_int_equal(stream_unsent(s), stream_appended(s));
    stream_flush(s);
    assert_int_equal(stream_handed(s), stream_appended(s));
    assert_int_equal(stream_unsent(s), 0);
    RUN_UNTIL(r, theirs(r)->frames == 3);
    assert_int_equal(theirs(r)->type, 6);
    assert_int_equal(theirs(r)->kind, STREAM_RELAY);
    assert_int_equal(theirs(r)->peer.node_id, 1);
    assert_int_equal(r->mine.peer.node_id, 2);
    assert_true(stream_heard_ms(theirs(r)->s) <= fli_clock_ms());
}

/* Both ways, of all sizes around the limits of the reader and of a direct write. */
TEST_WITH(test_sizes, set_up, tear_down)
{
    struct rig *r = *state;
    static const size_t SIZES[] = {1, 4096, 65519, 65520, 300000, (size_t)1 << 20};
    uint8_t *body = test_malloc((size_t)1 << 20);
    rig_pair(r, STREAM_RELAY);
    theirs(r)->answer = true;
    for (unsigned i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++) {
        size_t size = SIZES[i];
        size_t third = size / 3;
        struct fli_slice parts[3] = {{body, third}, {NULL, 0}, {body + third, size - third}};
        memset(body, (int)i + 1, size);
        assert_int_equal(stream_send(r->mine.s, (uint8_t)i, parts, 3), 0);
        stream_flush(r->mine.s);
        RUN_UNTIL(r, r->mine.frames == i + 1);
        assert_int_equal(r->mine.type, i);
        assert_int_equal(r->mine.body.len, size);
        assert_memory_equal(r->mine.body.data, body, size);
    }
    test_free(body);
}

/* The kernel takes part of a large frame: the rest follows, in order. */
TEST_WITH(test_large_in_part, set_up, tear_down)
{
    struct rig *r = *state;
    size_t size = RIG_LIMITS.frame_max;
    uint8_t *body = test_malloc(size);
    for (size_t i = 0; i < size; i++) {
        body[i] = (uint8_t)(i >> 4);
    }
    r->b.unstarted = true;
    rig_pair(r, STREAM_SNAPSHOT);
    struct stream *s = r->mine.s;
    struct fli_slice part = {body, size};
    unsigned n = 0;
    while (stream_send(s, 1, &part, 1) == 0) {
        stream_flush(s);
        if (n++ == 0) {
            assert_int_equal(stream_handed(s), stream_appended(s)); /* it may have left */
        }
        assert_true(n < 20);
    }
    assert_true(n >= 3);
    assert_int_equal(stream_send(s, 1, &part, 1), FL_ELIMIT);
    assert_true(stream_unsent(s) > 0 && stream_unsent(s) <= RIG_LIMITS.out_max);
    assert_true(stream_handed(s) <= stream_appended(s));
    held_start(theirs(r));
    RUN_UNTIL(r, theirs(r)->frames == n && stream_unsent(s) == 0);
    assert_memory_equal(theirs(r)->body.data, body, size);
    assert_int_equal(stream_handed(s), stream_appended(s));
    test_free(body);
}

/* What a stream holds while it has nothing to do, before and after it had much. */
TEST_WITH(test_memory, set_up, tear_down)
{
    struct rig *r = *state;
    uint8_t *body = test_calloc(1, RIG_LIMITS.frame_max);
    struct fli_slice small = {body, 10000};
    struct fli_slice large = {body, RIG_LIMITS.frame_max};
    rig_pair(r, STREAM_RELAY);
    struct stream *s = r->mine.s;
    theirs(r)->answer = true;
    assert_true(rig_memory(s) < 2048);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(stream_send(s, 1, &small, 1), 0);
    }
    assert_int_equal(stream_send(s, 1, &large, 1), 0);
    stream_flush(s);
    RUN_UNTIL(r, r->mine.frames == 21 && stream_unsent(s) == 0 && stream_unsent(theirs(r)->s) == 0);
    for (unsigned i = 0; i < 1000; i++) {
        stream_flush(s);
        stream_flush(theirs(r)->s);
    }
    printf("an idle stream: %zu and %zu bytes\n", rig_memory(s), rig_memory(theirs(r)->s));
    assert_true(rig_memory(s) < 8192);
    assert_true(rig_memory(theirs(r)->s) < 8192);
    test_free(body);
}

TEST_WITH(test_ceilings, set_up, tear_down)
{
    struct rig *r = *state;
    uint8_t *body = test_calloc(1, RIG_LIMITS.frame_max + 1);
    struct fli_slice most = {body, RIG_LIMITS.frame_max};
    struct fli_slice more = {body, RIG_LIMITS.frame_max + 1};
    struct fli_slice parts[2] = {most, {body, 1}};
    struct fli_slice many[STREAM_PARTS_MAX];
    rig_pair(r, STREAM_RELAY);
    struct stream *s = r->mine.s;
    assert_int_equal(stream_send(s, 1, &more, 1), FL_EINVAL);
    assert_int_equal(stream_send(s, 1, parts, 2), FL_EINVAL);
    assert_int_equal(stream_appended(s), 0);
    for (unsigned i = 0; i < STREAM_PARTS_MAX; i++) {
        many[i] = (struct fli_slice){body, 1};
    }
    assert_int_equal(stream_send(s, 1, many, STREAM_PARTS_MAX), 0);
    /* Exactly out_max bytes wait, and not one frame more. */
    struct fli_slice first = {body, 1000};
    size_t left = RIG_LIMITS.out_max - stream_unsent(s);
    while (left > 1000 + 2 * FRAME_HEADER_SIZE) {
        assert_int_equal(stream_send(s, 1, &first, 1), 0);
        left -= 1000 + FRAME_HEADER_SIZE;
    }
    struct fli_slice rest = {body, left - FRAME_HEADER_SIZE + 1};
    assert_int_equal(stream_send(s, 1, &rest, 1), FL_ELIMIT);
    rest.len--;
    assert_int_equal(stream_send(s, 1, &rest, 1), 0);
    assert_int_equal(stream_unsent(s), RIG_LIMITS.out_max);
    assert_int_equal(stream_send(s, 1, NULL, 0), FL_ELIMIT);
    stream_flush(s);
    RUN_UNTIL(r, stream_unsent(s) == 0 && theirs(r)->body.len == rest.len);
    assert_int_equal(stream_send(s, 1, NULL, 0), 0);
    test_free(body);
}

/* Closed inside the callback of a frame, with more behind it. */
TEST_WITH(test_close_inside, set_up, tear_down)
{
    struct rig *r = *state;
    rig_pair(r, STREAM_RELAY);
    theirs(r)->close_after = 2;
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(send_text(r->mine.s, "x"), 0);
    }
    stream_flush(r->mine.s);
    RUN_UNTIL(r, r->mine.lost == 1);
    assert_int_equal(theirs(r)->frames, 2);
    assert_int_equal(theirs(r)->lost, 0);
    assert_null(theirs(r)->s);
}

TEST_WITH(test_hung_up, set_up, tear_down)
{
    struct rig *r = *state;
    rig_pair(r, STREAM_RELAY);
    assert_int_equal(send_text(r->mine.s, "never"), 0);
    uint64_t handed = stream_handed(r->mine.s);
    held_close(theirs(r));
    RUN_UNTIL(r, r->mine.lost == 1);
    assert_true(held_is_hung_up(&r->mine));
    assert_int_equal(r->mine.s->phase, STREAM_LOST);
    assert_int_equal(stream_handed(r->mine.s), handed); /* it surely never left */
    assert_int_equal(send_text(r->mine.s, "x"), FL_ENOCONN);
    stream_flush(r->mine.s);
    assert_int_equal(r->mine.lost, 1);
}

/* Writing finds it as well, before anything is read. */
TEST_WITH(test_hung_up_found_by_writing, set_up, tear_down)
{
    struct rig *r = *state;
    rig_pair(r, STREAM_RELAY);
    held_close(theirs(r));
    uint64_t deadline_ms = rig_deadline(r);
    while (r->mine.lost == 0) {
        assert_int_equal(send_text(r->mine.s, "x"), 0);
        stream_flush(r->mine.s); /* without the loop, which would read */
        uv_update_time(&r->loop);
        assert_true(uv_now(&r->loop) < deadline_ms);
    }
    assert_true(held_is_hung_up(&r->mine));
}

/* A lost stream has no descriptor any more, whether its owner has closed it or not. */
TEST_WITH(test_lost_costs_no_descriptor, set_up, tear_down)
{
    struct rig *r = *state;
    unsigned before = descriptors();
    rig_pair(r, STREAM_RELAY);
    assert_int_equal(descriptors(), before + 2);
    held_close(theirs(r));
    RUN_UNTIL(r, r->mine.lost == 1);
    assert_int_equal(descriptors(), before);
}

/* ---- a peer that breaks the framing ---- */

static int welcomed(struct rig *r)
{
    struct handshake h = rig_handshake(r);
    uint8_t answer[HANDSHAKE_SIZE];
    int fd = plain_connect(r->ports[1]);
    unsigned before = r->b.accepted;
    h.kind = STREAM_RELAY;
    plain_say(fd, &h);
    plain_read_answer(r, fd, answer);
    RUN_UNTIL(r, r->b.accepted == before + 1);
    return fd;
}

TEST_WITH(test_broken, set_up, tear_down)
{
    struct rig *r = *state;
    struct fli_slice body = {(const uint8_t *)"hello", 5};
    for (unsigned i = 0; i < 8; i++) {
        uint8_t bytes[FRAME_HEADER_SIZE + 5];
        struct held_stream *h = &r->b.streams[i];
        int fd = welcomed(r);
        frame_header_encode(1, &body, 1, bytes);
        memcpy(bytes + FRAME_HEADER_SIZE, "hello", 5);
        plain_send(fd, bytes, sizeof bytes);
        RUN_UNTIL(r, h->frames == 1);
        if (i < 6) {
            bytes[i * 4] ^= 0x10; /* length, type, both checksums, the body */
        } else {
            uint32_t length = i == 6 ? (uint32_t)RIG_LIMITS.frame_max + 1 : UINT32_MAX;
            fli_put_u32(bytes, length);
            fli_put_u32(bytes + 12, fli_crc32c(0, bytes, 12));
        }
        plain_send(fd, bytes, sizeof bytes);
        RUN_UNTIL(r, h->lost == 1);
        assert_non_null(strstr(h->why, i >= 6 ? "larger" : "damaged"));
        assert_int_equal(h->frames, 1);
        assert_non_null(strstr(r->b.log, "what node 1 sent is broken: "));
        assert_non_null(strstr(r->b.log, h->why));
        RUN_UNTIL(r, plain_peek(fd) < 0);
        close(fd);
    }
}

/* A stream that ends in the middle of a frame: nothing of it is shown. */
TEST_WITH(test_cut, set_up, tear_down)
{
    struct rig *r = *state;
    struct fli_slice body = {(const uint8_t *)"hello", 5};
    uint8_t bytes[FRAME_HEADER_SIZE + 5];
    frame_header_encode(1, &body, 1, bytes);
    memcpy(bytes + FRAME_HEADER_SIZE, "hello", 5);
    for (unsigned i = 0; i < sizeof bytes; i++) {
        struct held_stream *h = &r->b.streams[i % RIG_STREAMS];
        held_close(h);
        int fd = welcomed(r);
        if (i > 0) {
            plain_send(fd, bytes, i);
        }
        close(fd);
        RUN_UNTIL(r, h->lost == 1);
        assert_int_equal(h->frames, 0);
        assert_true(held_is_hung_up(h));
    }
}

/* Frames that came in one piece with the handshake, and before the owner began to read. */
TEST_WITH(test_early_frames, set_up, tear_down)
{
    struct rig *r = *state;
    struct handshake h = rig_handshake(r);
    uint8_t bytes[HANDSHAKE_SIZE + 2 * FRAME_HEADER_SIZE];
    r->b.unstarted = true;
    handshake_encode(&h, &RIG_FORMATS, bytes);
    frame_header_encode(1, NULL, 0, bytes + HANDSHAKE_SIZE);
    frame_header_encode(2, NULL, 0, bytes + HANDSHAKE_SIZE + FRAME_HEADER_SIZE);
    int fd = plain_connect(r->ports[1]);
    plain_send(fd, bytes, sizeof bytes - 5);
    RUN_UNTIL(r, r->b.accepted == 1);
    plain_send(fd, bytes + sizeof bytes - 5, 5);
    assert_int_equal(theirs(r)->frames, 0);
    held_start(theirs(r));
    RUN_UNTIL(r, theirs(r)->frames == 2);
    assert_int_equal(theirs(r)->type, 2);
    close(fd);
}

/* The same, closed by the first of them. */
TEST_WITH(test_early_close, set_up, tear_down)
{
    struct rig *r = *state;
    struct handshake h = rig_handshake(r);
    uint8_t bytes[HANDSHAKE_SIZE + 2 * FRAME_HEADER_SIZE];
    theirs(r)->close_after = 1;
    handshake_encode(&h, &RIG_FORMATS, bytes);
    frame_header_encode(1, NULL, 0, bytes + HANDSHAKE_SIZE);
    frame_header_encode(2, NULL, 0, bytes + HANDSHAKE_SIZE + FRAME_HEADER_SIZE);
    int fd = plain_connect(r->ports[1]);
    plain_send(fd, bytes, sizeof bytes);
    RUN_UNTIL(r, r->b.accepted == 1 && plain_peek(fd) != 0);
    assert_int_equal(theirs(r)->frames, 1);
    assert_null(theirs(r)->s);
    close(fd);
}

/* A peer that takes nothing: sending ends at the ceiling, the stream after unacked_ms. */
TEST_WITH(test_never_reads, set_up, tear_down)
{
    struct rig *r = *state;
    struct transport_config config;
    side_stop(&r->b);
    side_config(r, &r->b, &config);
    config.unacked_ms = 5000;
    side_start(r, &r->b, &config);
    uint8_t *body = test_calloc(1, 100000);
    struct fli_slice part = {body, 100000};
    int fd = welcomed(r);
    unsigned n = 0;
    while (stream_send(theirs(r)->s, 1, &part, 1) == 0 && n < 10000) {
        n++;
        stream_flush(theirs(r)->s);
        uv_run(&r->loop, UV_RUN_NOWAIT);
    }
    assert_true(n < 10000);
    assert_true(stream_unsent(theirs(r)->s) <= RIG_LIMITS.out_max);
    RUN_UNTIL(r, theirs(r)->lost == 1);
    assert_string_equal(theirs(r)->why, uv_strerror(UV_ETIMEDOUT));
    close(fd);
    test_free(body);
}
