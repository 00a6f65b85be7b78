/* test_audit.c: the lines of the audit log, byte by byte; and what waits for a disk that takes
 * nothing. That disk is a pipe, which the test reads when it likes to. */
#include "../../lib/unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/audit.h"
#include "server/audit_record.h"

static const uint8_t address4[] = {10, 0, 0, 7, 0x12, 0x67};

static struct fli_slice slice(const char *text)
{
    return (struct fli_slice){(const uint8_t *)text, strlen(text)};
}

/* The line of a note of it. */
static void expect_line(const struct audit_record *r, const char *want)
{
    struct fli_buf notes;
    struct fli_buf line;
    struct audit_record read;
    fli_buf_init(&notes, AUDIT_RECORD_MAX);
    fli_buf_init(&line, AUDIT_LINE_MAX);
    assert_int_equal(audit_record_note(&notes, r), 0);
    assert_int_equal(notes.len, audit_record_size(r));
    assert_int_equal(audit_record_read(notes.data, &read), notes.len);
    assert_int_equal(audit_record_line(&line, 3, &read), 0);
    assert_int_equal(fli_buf_append(&line, "", 1), 0);
    assert_string_equal((const char *)line.data, want);
    fli_buf_fini(&notes);
    fli_buf_fini(&line);
}

#define HEAD(event) "{\"time\":\"2026-11-22T20:46:01.123Z\",\"node\":3,\"event\":\"" event "\""
#define AT_MS UINT64_C(1795380361123)

TEST(lines_of_events)
{
    struct audit_record r = {.word = AUDIT_GRANTED,
                             .wall_ms = AT_MS,
                             .clock_ms = 123456,
                             .number = 7,
                             .texts = {[AUDIT_NAME] = {(const uint8_t *)"a\"\\\n\x7f\xff ~\0b", 10},
                                       [AUDIT_OWNER] = slice("owner"),
                                       [AUDIT_USER] = slice("ann"),
                                       [AUDIT_ADDRESS] = {address4, sizeof address4}}};
    expect_line(&r, HEAD("granted") ",\"lock\":\"a\\\"\\\\\\u000a\\u007f\\u00ff ~\\u0000b\","
                                    "\"token\":7,\"user\":\"ann\",\"address\":\"10.0.0.7:4711\","
                                    "\"owner\":\"owner\",\"clock\":123456}\n");
    r = (struct audit_record){.word = AUDIT_BROKEN,
                              .wall_ms = AT_MS,
                              .number = UINT64_MAX,
                              .again = true,
                              .texts = {[AUDIT_NAME] = slice("a"),
                                        [AUDIT_OWNER] = slice("o"),
                                        [AUDIT_BY] = slice("boss"),
                                        [AUDIT_BY_ADDRESS] = {address4, sizeof address4}}};
    expect_line(&r, HEAD("broken") ",\"lock\":\"a\",\"token\":18446744073709551615,"
                                   "\"user\":\"default\",\"owner\":\"o\",\"by\":\"boss\","
                                   "\"by_address\":\"10.0.0.7:4711\",\"clock\":0,"
                                   "\"again\":true}\n");
    r.word = AUDIT_DENIED;
    r.number = 0;
    r.again = false;
    expect_line(&r, HEAD("denied") ",\"lock\":\"a\",\"user\":\"default\",\"owner\":\"o\","
                                   "\"clock\":0}\n");
    r.word = AUDIT_USER_DELETED;
    expect_line(&r, HEAD("user_deleted") ",\"changed\":\"o\",\"by\":\"boss\","
                                         "\"by_address\":\"10.0.0.7:4711\",\"clock\":0}\n");
}

TEST(other_lines)
{
    struct audit_record r = {.word = AUDIT_REFUSED,
                             .wall_ms = AT_MS,
                             .texts = {[AUDIT_NAME] = slice("ACQUIRE"),
                                       [AUDIT_OWNER] = slice("NOPERM"),
                                       [AUDIT_USER] = slice("ann"),
                                       [AUDIT_ADDRESS] = {address4, sizeof address4}}};
    expect_line(&r, HEAD("refused") ",\"command\":\"ACQUIRE\",\"why\":\"NOPERM\",\"user\":\"ann\","
                                    "\"address\":\"10.0.0.7:4711\"}\n");
    r = (struct audit_record){.word = AUDIT_DROPPED, .wall_ms = AT_MS, .number = 12};
    expect_line(&r, HEAD("dropped") ",\"lines\":12}\n");
}

/* The longest texts of the worst bytes: the note takes each byte once, and the line has room. */
TEST(longest_texts)
{
    uint8_t bytes[AUDIT_TEXT_MAX + 1];
    struct audit_record r = {.word = AUDIT_BROKEN, .number = UINT64_MAX, .clock_ms = UINT64_MAX};
    struct fli_buf b;
    memset(bytes, 0xff, sizeof bytes);
    for (unsigned i = 0; i < AUDIT_TEXTS; i++) {
        r.texts[i] = (struct fli_slice){bytes, AUDIT_TEXT_MAX};
    }
    fli_buf_init(&b, AUDIT_LINE_MAX);
    assert_int_equal(audit_record_note(&b, &r), 0);
    assert_int_equal(b.len, AUDIT_RECORD_MAX);
    fli_buf_clear(&b);
    assert_int_equal(audit_record_line(&b, UINT64_MAX, &r), 0);
    fli_buf_clear(&b);
    r.texts[AUDIT_NAME].len++;
    assert_int_equal(audit_record_note(&b, &r), FL_EINVAL);
    assert_int_equal(b.len, 0);
    fli_buf_fini(&b);
}

/* ---- what waits ------------------------------------------------------------------------------ */

struct rig {
    uv_loop_t loop;
    uv_timer_t timer; /* the loop has something to wait for */
    struct audit *audit;
    char dir[256], path[300];
    int reader;
    struct fli_buf heard;
    size_t lines; /* of them */
    bool closed;
};

static void on_timer(uv_timer_t *timer)
{
}

static void rig_start(struct rig *g)
{
    char errmsg[256];
    memset(g, 0, sizeof *g);
    const char *base = getenv("TMPDIR");
    (void)snprintf(g->dir, sizeof g->dir, "%s/fencelock-test-XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(g->dir));
    (void)snprintf(g->path, sizeof g->path, "%s/audit", g->dir);
    assert_int_equal(mkfifo(g->path, 0600), 0);
    g->reader = open(g->path, O_RDONLY | O_NONBLOCK);
    assert_true(g->reader >= 0);
    fli_buf_init(&g->heard, (size_t)256 << 20);
    assert_int_equal(uv_loop_init(&g->loop), 0);
    assert_int_equal(uv_timer_init(&g->loop, &g->timer), 0);
    assert_int_equal(uv_timer_start(&g->timer, on_timer, 1, 1), 0);
    assert_int_equal(audit_create(&g->loop, g->path, 3, &g->audit, errmsg, sizeof errmsg), 0);
}

static void on_closed(void *ctx)
{
    ((struct rig *)ctx)->closed = true;
}

static void hear(struct rig *g)
{
    char bytes[65536];
    ssize_t n = 0;
    while ((n = read(g->reader, bytes, sizeof bytes)) > 0) {
        assert_int_equal(fli_buf_append(&g->heard, bytes, (size_t)n), 0);
        for (ssize_t i = 0; i < n; i++) {
            g->lines += bytes[i] == '\n';
        }
    }
}

static void hear_all(struct rig *g, size_t lines)
{
    while (g->lines < lines) {
        hear(g);
        (void)uv_run(&g->loop, UV_RUN_ONCE);
    }
    assert_int_equal(g->lines, lines);
}

/* Returns the lines that were written by then. */
static size_t rig_end(struct rig *g)
{
    uv_close((uv_handle_t *)&g->timer, NULL);
    audit_close(g->audit, on_closed, g);
    while (!g->closed) {
        (void)uv_run(&g->loop, UV_RUN_ONCE);
    }
    hear(g);
    (void)uv_run(&g->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&g->loop), 0);
    fli_buf_fini(&g->heard);
    assert_int_equal(close(g->reader), 0);
    assert_int_equal(unlink(g->path), 0);
    assert_int_equal(rmdir(g->dir), 0);
    return g->lines;
}

static void grant(struct rig *g, uint64_t token, struct fli_slice text)
{
    audit_event(g->audit,
                &(struct machine_event){
                    .type = MACHINE_EVENT_GRANTED, .token = token, .name = text, .owner = text},
                false);
}

static uint64_t dropped(const struct rig *g)
{
    struct audit_counts counts;
    audit_get_counts(g->audit, &counts);
    return counts.dropped;
}

/* The next line has this text. It moves *at behind that line. It looks at no byte of the others:
 * strstr() of the sanitizers measures all that follows, which took minutes for all lines. */
static void expect_next(const struct rig *g, size_t *at, const char *what)
{
    const uint8_t *line = g->heard.data + *at;
    const uint8_t *end = memchr(line, '\n', g->heard.len - *at);
    assert_non_null(end);
    size_t size = (size_t)(end - line);
    assert_non_null(memmem(line, size, what, strlen(what)));
    *at += size + 1;
}

/* What waits are copies: names of bytes that a line writes with six characters each take one each,
 * so a pipe that takes nothing holds up thousands of events, and no line of them is made. When it
 * is read, all lines come, in order, and one says how many are missing. */
TEST(what_waits_is_not_written_out_yet)
{
    struct rig g;
    uint8_t bytes[255];
    char what[64];
    uint64_t n = 0;
    memset(bytes, 0xff, sizeof bytes);
    rig_start(&g);
    while (dropped(&g) == 0) {
        grant(&g, ++n, (struct fli_slice){bytes, sizeof bytes});
    }
    assert_true(n - 1 >= AUDIT_ROOM / (AUDIT_RECORD_SIZE + 2 * sizeof bytes));
    grant(&g, n, (struct fli_slice){bytes, sizeof bytes});
    assert_int_equal(dropped(&g), 2);
    hear_all(&g, n - 1);
    grant(&g, n, slice("after"));
    hear_all(&g, n + 1);
    size_t at = 0;
    for (uint64_t i = 1; i < n; i++) {
        (void)snprintf(what, sizeof what, "\\u00ff\",\"token\":%llu,", (unsigned long long)i);
        expect_next(&g, &at, what);
    }
    expect_next(&g, &at, "\"event\":\"dropped\",\"lines\":2}");
    expect_next(&g, &at, "\"lock\":\"after\"");
    assert_int_equal(at, g.heard.len);
    assert_int_equal(rig_end(&g), n + 1);
}

/* At the end all that waits is written. */
TEST(closing_writes_what_waits)
{
    struct rig g;
    enum { N = 60 }; /* their lines fit into the pipe */
    rig_start(&g);
    for (uint64_t i = 1; i <= N; i++) {
        grant(&g, i, slice("x"));
    }
    assert_int_equal(rig_end(&g), N);
}
