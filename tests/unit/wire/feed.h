/* feed.h: feeds bytes to the request parser in given pieces, as a connection would, and writes down
 * what came out as one line of text, so that two ways of cutting the same bytes can be compared.
 *
 * Each call of the parser sees a fresh copy of exactly the unconsumed bytes: slices that point into
 * an old copy, or a read one byte too far, are then errors that ASan sees. */
#ifndef TEST_FEED_H
#define TEST_FEED_H

#include "../../lib/rng.h"

#include "base/buf.h"
#include "wire/resp.h"

#define TRACE_MAX (1u << 22)

struct feed {
    struct fli_resp_parser parser;
    struct fli_buf input; /* unconsumed */
    struct fli_buf trace; /* "(PING)" a request, "!text;" TOOBIG, "X text" BROKEN */
    size_t input_peak;
    size_t consumed;
    bool broken;
};

static inline void feed_init(struct feed *f, size_t arg_max, size_t request_max)
{
    memset(f, 0, sizeof *f);
    fli_resp_parser_init(&f->parser, (struct fli_resp_limits){arg_max, request_max});
    fli_buf_init(&f->input, SIZE_MAX);
    fli_buf_init(&f->trace, TRACE_MAX);
}

static inline void feed_fini(struct feed *f)
{
    fli_buf_fini(&f->input);
    fli_buf_fini(&f->trace);
}

static inline void feed_note(struct feed *f, const void *data, size_t len)
{
    assert_int_equal(fli_buf_append(&f->trace, data, len), 0);
}

/* Notes one argument: printable bytes as they are, the rest in hexadecimal. */
static inline void feed_note_arg(struct feed *f, const uint8_t *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (data[i] > ' ' && data[i] < 0x7f && strchr("(),%", data[i]) == NULL) {
            feed_note(f, &data[i], 1);
        } else {
            assert_int_equal(fli_buf_printf(&f->trace, "%%%02x", data[i]), 0);
        }
    }
}

static inline void feed_note_request(struct feed *f, const uint8_t *copy)
{
    const struct fli_resp_parser *p = &f->parser;
    assert_true(p->argc >= 1);
    assert_true(p->argc <= FLI_RESP_ARGS_MAX);
    feed_note(f, "(", 1);
    for (unsigned i = 0; i < p->argc; i++) {
        assert_true(p->argv[i].data >= copy);
        assert_true(p->argv[i].len <= p->limits.arg_max);
        assert_true(p->argv[i].data + p->argv[i].len <= copy + f->input.len);
        feed_note(f, ",", i == 0 ? 0 : 1);
        feed_note_arg(f, p->argv[i].data, p->argv[i].len);
    }
    feed_note(f, ")", 1);
}

/* One call of the parser. False when it wants more or is broken. */
static inline bool feed_step(struct feed *f)
{
    struct fli_resp_parser *p = &f->parser;
    uint8_t *copy = malloc(f->input.len == 0 ? 1 : f->input.len);
    assert_non_null(copy);
    if (f->input.len > 0) {
        memcpy(copy, f->input.data, f->input.len);
    }
    enum fli_resp_status status = fli_resp_next(p, copy, f->input.len);
    bool more = false;
    switch (status) {
    case FLI_RESP_MORE:
        break;
    case FLI_RESP_REQUEST:
        feed_note_request(f, copy);
        assert_true(p->size <= p->limits.request_max + FLI_RESP_INLINE_MAX);
        more = true;
        break;
    case FLI_RESP_EMPTY:
        more = true;
        break;
    case FLI_RESP_TOOBIG:
        feed_note(f, "!", 1);
        feed_note(f, p->error, strlen(p->error));
        feed_note(f, ";", 1);
        more = true;
        break;
    case FLI_RESP_BROKEN:
        feed_note(f, "X ", 2);
        feed_note(f, p->error, strlen(p->error));
        assert_int_equal(fli_resp_next(p, copy, f->input.len), FLI_RESP_BROKEN);
        f->broken = true;
        break;
    default:
        fail();
    }
    free(copy);
    if (more) {
        size_t size = fli_resp_consume(p);
        assert_true(size > 0);
        assert_true(size <= f->input.len);
        fli_buf_consume(&f->input, size);
        f->consumed += size;
    }
    return more;
}

static inline void feed_bytes(struct feed *f, const void *data, size_t len)
{
    if (f->broken) {
        return;
    }
    assert_int_equal(fli_buf_append(&f->input, data, len), 0);
    f->input_peak = f->input.len > f->input_peak ? f->input.len : f->input_peak;
    while (feed_step(f)) {
    }
}

/* The trace as a C string, valid until fini. */
static inline const char *feed_text(struct feed *f)
{
    if (f->trace.len == 0 || f->trace.data[f->trace.len - 1] != '\0') {
        feed_note(f, "", 1);
    }
    return (const char *)f->trace.data;
}

#endif
