/* test_resp_read.c: the request parser. Every table row is fed whole, cut at every place, and byte
 * by byte; each limit at its edge; random requests against what was encoded; random bytes. */
#include "feed.h"

#define ARG_MAX 100u
#define REQUEST_MAX 400u

struct row {
    const char *in;
    size_t len;
    const char *want;
};

#define S(text) text, sizeof(text) - 1

static const char broken_array[] = "Protocol error: invalid multibulk length";
static const char broken_arg[] = "Protocol error: expected '$'";
static const char broken_end[] = "Protocol error: an argument is not followed by CR LF";
static const char broken_http[] = "Protocol error: this is not a web server";
static const char broken_text[] = "Protocol error: a request begins with '*'";

/* A trace may be followed by the rest of its last message. */
static void assert_trace(const char *got, const char *want)
{
    if (strncmp(got, want, strlen(want)) != 0 || (strchr(want, 'X') == NULL && strcmp(got, want))) {
        fail_msg("got %s, want %s", got, want);
    }
}

static void run_cut(const struct row *row, const char *want, size_t cut)
{
    struct feed f;
    feed_init(&f, ARG_MAX, REQUEST_MAX);
    feed_bytes(&f, row->in, cut);
    feed_bytes(&f, row->in + cut, row->len - cut);
    assert_trace(feed_text(&f), want);
    feed_fini(&f);
}

static void run_row(const struct row *row, const char *want)
{
    for (size_t cut = 0; cut <= row->len; cut++) {
        run_cut(row, want, cut);
    }
    struct feed f;
    feed_init(&f, ARG_MAX, REQUEST_MAX);
    for (size_t i = 0; i < row->len; i++) {
        feed_bytes(&f, row->in + i, 1);
    }
    assert_trace(feed_text(&f), want);
    feed_fini(&f);
}

TEST(test_requests)
{
    static const struct row rows[] = {
        {S(""), ""},
        {S("*1\r\n$4\r\nPING\r\n"), "(PING)"},
        {S("*3\r\n$7\r\nACQUIRE\r\n$1\r\na\r\n$0\r\n\r\n"), "(ACQUIRE,a,)"},
        {S("*2\r\n$1\r\n\0\r\n$4\r\n\r\n\r\n\r\n"), "(%00,%0d%0a%0d%0a)"},
        {S("*1\r\n$1\r\na\r\n*1\r\n$1\r\nb\r\n*1\r\n$1\r\nc\r\n"), "(a)(b)(c)"},
        {S("*01\r\n$0001\r\na\r\n"), "(a)"},
        {S("*0\r\n*1\r\n$1\r\na\r\n"), "(a)"},
        {S("*-1\r\n*-7\r\n*1\r\n$1\r\na\r\n"), "(a)"},
        {S("*1\r\n$4\r\nPIN"), ""},
        {S("*1\r\n$4\r\nPING\r"), ""},
        {S("*1\r"), ""},
        /* inline */
        {S("PING\r\n"), "(PING)"},
        {S("PING\n"), "(PING)"},
        {S("  acquire \t a  TTL\t5000 \r\n"), "(acquire,a,TTL,5000)"},
        {S("\r\n\n \r\n\t\nPING\r\n"), "(PING)"},
        {S("a\rb\r\n"), "(a%0db)"},
        {S("a b\nc\r\n*1\r\n$1\r\nd\r\ne\n"), "(a,b)(c)(d)(e)"},
        {S("PING"), ""},
        {S("*"), ""},
        {S("a$b *c\n"), "(a$b,*c)"},
        {S("caf\xc3\xa9\n"), "(caf%c3%a9)"},
        {S("GET a\nhostess: b\nHost\n"), "(GET,a)(hostess:,b)(Host)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        run_row(&rows[i], rows[i].want);
    }
}

TEST(test_broken)
{
    static const struct row rows[] = {
        {S("*x\r\n"), broken_array},
        {S("*\r\n"), broken_array},
        {S("*-\r\n"), broken_array},
        {S("*--1\r\n"), broken_array},
        {S("*1\n"), broken_array},
        {S("*1\rx"), broken_array},
        {S("* 1\r\n"), broken_array},
        {S("*+1\r\n"), broken_array},
        {S("*1x\r\n"), broken_array},
        {S("*1048577\r\n"), broken_array},
        {S("*9999999999999999999999999"), broken_array},
        {S("*18446744073709551617\r\n"), broken_array},
        {S("*1\r\n:1\r\n"), broken_arg},
        {S("*1\r\n*1\r\n"), broken_arg},
        {S("*1\r\n$-1\r\n"), broken_arg},
        {S("*1\r\n$\r\n"), broken_arg},
        {S("*1\r\n$1\n"), broken_arg},
        {S("*1\r\n$1a\r\n"), broken_arg},
        {S("*1\r\n$536870913\r\n"), broken_arg},
        {S("*1\r\n$99999999999999999999"), broken_arg},
        {S("*1\r\n$18446744073709551615\r\n"), broken_arg},
        {S("*1\r\n$1\r\nab\r\n"), broken_end},
        {S("*1\r\n$3\r\na\r\n*1"), broken_end},
        {S("*1\r\n$1\r\na\rx"), broken_end},
        {S("GET / HTTP/1.1\r\n"), broken_http},
        {S("POST /x HTTP/1.0\n"), broken_http},
        {S("Host: x\r\n"), broken_http},
        {S("host:\r\n"), broken_http},
        {S("PRI * HTTP/2.0\r\n"), broken_http},
        {S("\x16\x03\x01"), broken_text},
        {S("\0"), broken_text},
        {S("\x7f"), broken_text},
        {S("\xff"), broken_text},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char want[200];
        snprintf(want, sizeof want, "X %s", rows[i].want);
        run_row(&rows[i], want);
        /* and the same behind a good request */
        char in[200] = "*1\r\n$1\r\na\r\n";
        size_t len = strlen(in);
        memcpy(in + len, rows[i].in, rows[i].len);
        struct row behind = {in, len + rows[i].len, NULL};
        snprintf(want, sizeof want, "(a)X %s", rows[i].want);
        run_row(&behind, want);
    }
}

/* Appends a request of n arguments of len bytes each. */
static void put_request(struct fli_buf *b, size_t n, size_t len)
{
    assert_int_equal(fli_buf_printf(b, "*%zu\r\n", n), 0);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(fli_buf_printf(b, "$%zu\r\n", len), 0);
        for (size_t j = 0; j < len; j++) {
            assert_int_equal(fli_buf_append(b, "x", 1), 0);
        }
        assert_int_equal(fli_buf_append(b, "\r\n", 2), 0);
    }
}

/* What comes out for a buffer followed by PING, cut in pieces of a size. */
static const char *trace_of(struct feed *f, struct fli_buf *b, size_t piece, size_t arg_max,
                            size_t request_max)
{
    feed_init(f, arg_max, request_max);
    assert_int_equal(fli_buf_append(b, "PING\r\n", 6), 0);
    for (size_t at = 0; at < b->len; at += piece) {
        feed_bytes(f, b->data + at, b->len - at < piece ? b->len - at : piece);
    }
    b->len -= 6;
    if (!f->broken) {
        assert_int_equal(f->consumed, b->len + 6);
    }
    return feed_text(f);
}

static void check_limit(struct fli_buf *b, size_t arg_max, size_t request_max, const char *error)
{
    for (size_t piece = 1; piece <= b->len + 6; piece = piece * 2 + 1) {
        struct feed f;
        const char *trace = trace_of(&f, b, piece, arg_max, request_max);
        if (error == NULL) {
            assert_int_equal(trace[0], '(');
        } else {
            assert_int_equal(trace[0], '!');
            assert_non_null(strstr(trace, error));
        }
        assert_string_equal(trace + strlen(trace) - 6, "(PING)");
        feed_fini(&f);
    }
}

TEST(test_limits)
{
    struct fli_buf b;
    fli_buf_init(&b, 1 << 20);
    put_request(&b, FLI_RESP_ARGS_MAX, 1);
    check_limit(&b, 10, 10000, NULL);
    fli_buf_clear(&b);
    put_request(&b, FLI_RESP_ARGS_MAX + 1, 1);
    check_limit(&b, 10, 10000, "too many arguments");
    fli_buf_clear(&b);
    put_request(&b, 2, 100);
    check_limit(&b, 100, 10000, NULL);
    check_limit(&b, 99, 10000, "argument is longer");
    check_limit(&b, 100, b.len, NULL);
    check_limit(&b, 100, b.len - 1, "request is longer");
    fli_buf_clear(&b);
    put_request(&b, 1, 0);
    check_limit(&b, 4, b.len, NULL);
    fli_buf_fini(&b);
}

static void put_words(struct fli_buf *b, size_t n, const char *word)
{
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(fli_buf_printf(b, "%s%s", i == 0 ? "" : " ", word), 0);
    }
    assert_int_equal(fli_buf_append(b, "\n", 1), 0);
}

TEST(test_inline_limits)
{
    struct fli_buf b;
    fli_buf_init(&b, 1 << 20);
    put_words(&b, FLI_RESP_ARGS_MAX, "w");
    check_limit(&b, 10, 10000, NULL);
    fli_buf_clear(&b);
    put_words(&b, FLI_RESP_ARGS_MAX + 1, "w");
    check_limit(&b, 10, 10000, "too many arguments");
    fli_buf_clear(&b);
    put_words(&b, 2, "tenletters");
    check_limit(&b, 10, 10000, NULL);
    check_limit(&b, 9, 10000, "argument is longer");

    char line[FLI_RESP_INLINE_MAX + 4];
    memset(line, 'a', sizeof line);
    static const char *const ends[] = {"\n", "\r\n"};
    for (int i = 0; i < 2; i++) {
        for (size_t piece = 1; piece < 5000; piece = piece * 3 + 1) {
            struct feed f;
            fli_buf_clear(&b);
            assert_int_equal(fli_buf_append(&b, line, FLI_RESP_INLINE_MAX), 0);
            assert_int_equal(fli_buf_append(&b, ends[i], strlen(ends[i])), 0);
            assert_int_equal(trace_of(&f, &b, piece, 5000, 10000)[0], '(');
            feed_fini(&f);
            fli_buf_clear(&b);
            assert_int_equal(fli_buf_append(&b, line, FLI_RESP_INLINE_MAX + 1), 0);
            assert_int_equal(fli_buf_append(&b, ends[i], strlen(ends[i])), 0);
            assert_non_null(
                strstr(trace_of(&f, &b, piece, 5000, 10000), "X Protocol error: too big"));
            feed_fini(&f);
        }
    }
    /* A line without an end is not waited for. */
    struct feed f;
    feed_init(&f, 5000, 10000);
    feed_bytes(&f, line, FLI_RESP_INLINE_MAX);
    assert_false(f.broken);
    feed_bytes(&f, line, 1);
    assert_true(f.broken);
    feed_fini(&f);
    fli_buf_fini(&b);
}

/* 40 MB of one argument pass through a buffer that never holds more than one piece. */
TEST(test_oversized_needs_no_memory)
{
    enum { PIECE = 4096, BIG = 40 << 20 };
    static uint8_t bytes[PIECE];
    memset(bytes, 'z', sizeof bytes);
    struct feed f;
    feed_init(&f, 1000, 2000);
    char head[64];
    int n = snprintf(head, sizeof head, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n", BIG);
    feed_bytes(&f, head, (size_t)n);
    for (size_t left = BIG; left > 0;) {
        size_t len = left < PIECE ? left : PIECE;
        feed_bytes(&f, bytes, len);
        assert_true(f.input.len == 0);
        left -= len;
    }
    feed_bytes(&f, "\r\nPING\r\n", 8);
    assert_true(f.input_peak <= PIECE);
    assert_string_equal(feed_text(&f), "!an argument is longer than this server accepts;(PING)");
    feed_fini(&f);
}

/* The largest array that is skipped, and one more. */
TEST(test_skip_ceilings)
{
    struct feed f;
    feed_init(&f, 1000, 2000);
    feed_bytes(&f, "*1048576\r\n", 10);
    for (size_t i = 0; i < FLI_RESP_SKIP_ARGS_MAX; i += 256) {
        static const char arg[] = "$1\r\na\r\n$0\r\n\r\n";
        char many[128 * (sizeof arg - 1)];
        for (size_t k = 0; k < 128; k++) {
            memcpy(many + k * (sizeof arg - 1), arg, sizeof arg - 1);
        }
        feed_bytes(&f, many, sizeof many);
    }
    feed_bytes(&f, "*1\r\n$1\r\nb\r\n", 11);
    assert_string_equal(feed_text(&f), "!too many arguments: a request may have 256;(b)");
    feed_fini(&f);

    feed_init(&f, 1000, 2000);
    feed_bytes(&f, "*1\r\n$536870912\r\n", 16);
    assert_false(f.broken);
    assert_int_equal(feed_text(&f)[0], '!');
    feed_fini(&f);
}

/* What is thrown away must still be framed. */
TEST(test_broken_while_skipping)
{
    static const struct row rows[] = {
        {S("*257\r\n$1\r\na\r\nx"), broken_arg},   {S("*257\r\n$1\r\nab\r\n"), broken_end},
        {S("*257\r\n$1\r\na\rb"), broken_end},     {S("*257\r\n$-1\r\n"), broken_arg},
        {S("*257\r\n$536870913\r\n"), broken_arg},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char want[200];
        snprintf(want, sizeof want, "!too many arguments: a request may have 256;X %s",
                 rows[i].want);
        run_row(&rows[i], want);
    }
}

/* Linear cost, shown without a watch: bytes behind the parser's place are spoilt after each call,
 * except the very first one, and it must not notice. */
TEST(test_nothing_is_looked_at_twice)
{
    static const char request[] = "*3\r\n$7\r\nACQUIRE\r\n$5\r\nhello\r\n$12\r\nabcdefghijkl\r\n";
    static const char line[] = "acquire hello abcdefghijkl\r\n";
    static const char *const inputs[] = {request, line};
    for (int k = 0; k < 2; k++) {
        size_t len = strlen(inputs[k]);
        uint8_t data[100];
        struct fli_resp_parser p;
        fli_resp_parser_init(&p, (struct fli_resp_limits){100, 400});
        enum fli_resp_status status = FLI_RESP_MORE;
        for (size_t n = 1; n <= len; n++) {
            assert_int_equal(status, FLI_RESP_MORE);
            memcpy(data, inputs[k], n);
            memset(data + 1, '#', p.pos > 1 ? p.pos - 1 : 0);
            assert_true(n - p.pos <= 22); /* a header, and an argument as short as these */
            status = fli_resp_next(&p, data, n);
        }
        assert_int_equal(status, FLI_RESP_REQUEST);
        if (k == 0) {
            assert_int_equal(p.argc, 3);
            assert_ptr_equal(p.argv[2].data, data + len - 14);
            assert_int_equal(p.argv[2].len, 12);
        }
        assert_int_equal(fli_resp_consume(&p), len);
    }
}

static void put_random_arg(uint64_t *rng, struct fli_buf *b, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        uint8_t c = (uint8_t)rng_next(rng);
        static const uint8_t nasty[] = "\r\n$*:-0123456789";
        if (rng_below(rng, 3) == 0) {
            c = nasty[rng_below(rng, sizeof nasty - 1)];
        }
        assert_int_equal(fli_buf_append(b, &c, 1), 0);
    }
}

/* Appends one random request to wire, and what must come out of it to want. */
static void put_random_request(uint64_t *rng, struct fli_buf *wire, struct feed *want)
{
    size_t n = (size_t)rng_below(rng, rng_below(rng, 20) == 0 ? 300 : 8);
    size_t arg_max = rng_below(rng, 5) == 0 ? ARG_MAX + 20 : 40;
    size_t start = wire->len;
    size_t mark = want->trace.len;
    const char *error =
        n > FLI_RESP_ARGS_MAX ? "!too many arguments: a request may have 256;" : NULL;
    assert_int_equal(fli_buf_printf(wire, "*%zu\r\n", n), 0);
    feed_note(want, "(", 1);
    for (size_t i = 0; i < n; i++) {
        size_t len = (size_t)rng_below(rng, arg_max + 1);
        assert_int_equal(fli_buf_printf(wire, "$%zu\r\n", len), 0);
        size_t at = wire->len;
        put_random_arg(rng, wire, len);
        assert_int_equal(fli_buf_append(wire, "\r\n", 2), 0);
        feed_note(want, ",", i == 0 ? 0 : 1);
        feed_note_arg(want, wire->data + at, len);
        if (error == NULL && len > ARG_MAX) {
            error = "!an argument is longer than this server accepts;";
        } else if (error == NULL && wire->len - start > REQUEST_MAX) {
            error = "!the request is longer than this server accepts;";
        }
    }
    feed_note(want, ")", 1);
    if (error != NULL || n == 0) {
        want->trace.len = mark;
        feed_note(want, error, error == NULL ? 0 : strlen(error));
    }
}

static void feed_in_random_pieces(uint64_t *rng, struct feed *f, const struct fli_buf *wire)
{
    uint64_t piece_max = 1 + rng_below(rng, rng_below(rng, 2) == 0 ? 10 : 3000);
    for (size_t at = 0; at < wire->len;) {
        size_t n = (size_t)(1 + rng_below(rng, piece_max));
        n = n < wire->len - at ? n : wire->len - at;
        feed_bytes(f, wire->data + at, n);
        at += n;
    }
}

TEST(test_model)
{
    uint64_t rng = rng_seed();
    for (int round = 0; round < 300; round++) {
        struct fli_buf wire;
        struct feed want;
        struct feed got;
        fli_buf_init(&wire, SIZE_MAX);
        feed_init(&want, ARG_MAX, REQUEST_MAX);
        feed_init(&got, ARG_MAX, REQUEST_MAX);
        for (uint64_t n = rng_below(&rng, 30); n > 0; n--) {
            put_random_request(&rng, &wire, &want);
        }
        feed_in_random_pieces(&rng, &got, &wire);
        assert_string_equal(feed_text(&got), feed_text(&want));
        assert_int_equal(got.consumed, wire.len);
        fli_buf_fini(&wire);
        feed_fini(&want);
        feed_fini(&got);
    }
}

/* Any bytes at all: no crash, and the same outcome however they are cut. */
TEST(test_random_bytes)
{
    uint64_t rng = rng_seed();
    for (int round = 0; round < 3000; round++) {
        struct fli_buf wire;
        fli_buf_init(&wire, SIZE_MAX);
        size_t len = (size_t)rng_below(&rng, 200);
        static const uint8_t likely[] = "**$$1123 \r\n\r\n\r\nab";
        for (size_t i = 0; i < len; i++) {
            uint8_t c = rng_below(&rng, 8) == 0 ? (uint8_t)rng_next(&rng)
                                                : likely[rng_below(&rng, sizeof likely - 1)];
            assert_int_equal(fli_buf_append(&wire, &c, 1), 0);
        }
        struct feed whole;
        struct feed cut;
        feed_init(&whole, 20, 60);
        feed_init(&cut, 20, 60);
        feed_bytes(&whole, wire.data, wire.len);
        feed_in_random_pieces(&rng, &cut, &wire);
        assert_string_equal(feed_text(&whole), feed_text(&cut));
        assert_int_equal(whole.broken, cut.broken);
        feed_fini(&whole);
        feed_fini(&cut);
        fli_buf_fini(&wire);
    }
}
