/* test_watch_event.c: messages of events are parsed, and printed for people, for pipes and as
 * JSON. */
#include "cli/watch_event.h"
#include "client/event.h"
#include "rng.h"

static struct fl_event event;
static struct fli_event_room room;

#define CAME_MS UINT64_C(1795837757005)
#define TIME " time=2026-11-28T03:49:17.005Z"
#define JSON_TIME "\"time\":\"2026-11-28T03:49:17.005Z\""

static bool parse(const char *channel, const char *text)
{
    return fli_event_parse(fl_str(channel), fl_str(text), &room, &event);
}

static void expect_text(struct fl_bytes b, const char *text)
{
    assert_int_equal(b.len, strlen(text));
    assert_memory_equal(b.data, text, b.len);
}

enum format { PEOPLE, PLAIN, JSON };

/* Prints the last event in this format, and compares. */
static void expect_shown(enum format way, const char *expected)
{
    char *text = NULL;
    size_t len = 0;
    size_t width = 4;
    FILE *f = open_memstream(&text, &len);
    assert_non_null(f);
    struct cli_out o = cli_out_begin(f, way == JSON, false);
    o.terminal = way == PEOPLE;
    watch_event_print(&event, CAME_MS, &o, &width);
    cli_out_end(&o);
    fclose(f);
    assert_string_equal(text, expected);
    free(text);
}

TEST(test_a_grant)
{
    assert_true(parse("lock:a/b", "event=granted token=17 owner=me%20%C3%A9 clock=88123 wait=5"));
    assert_string_equal(event.word, "granted");
    assert_int_equal(event.kind, FL_EVENT_GRANTED);
    expect_text(event.name, "a/b");
    expect_text(event.owner, "me \xc3\xa9");
    assert_int_equal(event.token, 17);
    assert_int_equal(event.clock_ms, 88123);
    assert_int_equal(event.wait, 5);
    expect_shown(PEOPLE, "2026-11-28T03:49:17.005Z  granted   a/b   token 17  owner me \xc3\xa9\n");
    expect_shown(PLAIN,
                 "event=granted lock=a/b token=17 owner=me%20%C3%A9 clock=88123 wait=5" TIME "\n");
    expect_shown(JSON, "{\"event\":\"granted\",\"lock\":\"a/b\",\"token\":17,"
                       "\"owner\":\"me \xc3\xa9\",\"wait\":5,\"clock_ms\":88123," JSON_TIME "}\n");
}

TEST(test_an_owner_that_says_who_it_is)
{
    assert_true(parse("lock:x", "event=granted token=1 clock=1 owner=kite@web1/42/a%20b/"
                                "0123456789abcdef0123456789abcdef"));
    expect_shown(PEOPLE, "2026-11-28T03:49:17.005Z  granted   x     token 1  owner kite@web1 42, "
                         "a b\n");
}

TEST(test_left_resync_and_unknown)
{
    assert_true(parse("lock:x", "event=left owner=o clock=1000 wait=7 reason=deadline"));
    expect_shown(PEOPLE, "2026-11-28T03:49:17.005Z  left      x     owner o  because: deadline\n");
    expect_shown(JSON, "{\"event\":\"left\",\"lock\":\"x\",\"owner\":\"o\",\"wait\":7,"
                       "\"reason\":\"deadline\",\"clock_ms\":1000," JSON_TIME "}\n");
    assert_true(parse("fencelock:resync", "event=resync clock=5"));
    assert_int_equal(event.kind, FL_EVENT_MISSED);
    assert_int_equal(event.name.len, 0);
    expect_shown(PEOPLE,
                 "2026-11-28T03:49:17.005Z  resync    -  events were missed: see fencelock show\n");
    expect_shown(PLAIN, "event=resync clock=5" TIME "\n");
    /* Words of a later version. */
    assert_true(parse("lock:x", "event=moved to=y clock=5"));
    assert_int_equal(event.kind, FL_EVENT_OTHER);
    expect_shown(PLAIN, "event=moved lock=x to=y clock=5" TIME "\n");
}

TEST(test_what_cannot_be_an_event)
{
    static const char *const texts[] = {"",
                                        "x",
                                        "clock=5",
                                        "event= clock=5",
                                        "event=a  clock=5",
                                        "event=a clock=x",
                                        "event=a token=-1",
                                        "event=a owner=%",
                                        "event=a owner=%1",
                                        "event=a owner=%zz",
                                        "event=aaaaaaaaaaaaaaaaaaaaaaaa",
                                        "event=a token=18446744073709551616"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_false(parse("lock:x", texts[i]));
    }
    assert_true(parse("lock:x", "event=a owner=%c3"));
    assert_true(parse("lock:x", "event=aaaaaaaaaaaaaaaaaaaaaaa"));
    assert_true(parse("lock:x", "event=a owner=%0A"));
    assert_true(parse("lock:x", "event=a "));
}

TEST(test_nothing_drives_a_terminal)
{
    assert_true(parse("lock:\x1b[2J x\n", "event=granted\x1b token=1 owner=%1B[2J%0A clock=1"));
    expect_shown(
        PEOPLE,
        "2026-11-28T03:49:17.005Z  granted\\x1b  \\x1b[2J x\\x0a  token 1  owner \\x1b[2J\\x0a\n");
    expect_shown(PLAIN,
                 "event=granted? lock=%1B[2J%20x%0A token=1 owner=%1B[2J%0A clock=1" TIME "\n");
}

TEST(test_the_longest_name)
{
    char channel[sizeof "lock:" + FL_NAME_MAX + 1] = "lock:";
    memset(channel + 5, 'n', FL_NAME_MAX);
    assert_true(parse(channel, "event=released"));
    assert_int_equal(event.name.len, FL_NAME_MAX);
    channel[5 + FL_NAME_MAX] = 'n';
    assert_false(parse(channel, "event=released"));
}

TEST(test_nothing_is_cut_at_a_zero_byte)
{
    static const char text[] = "event=granted\0by-nobody token=1 clock=1";
    assert_false(
        fli_event_parse(fl_str("lock:x"), (struct fl_bytes){text, sizeof text - 1}, &room, &event));
}

TEST(test_the_largest)
{
    static char text[FLI_EVENT_TEXT_MAX + 2];
    memset(text, 'o', sizeof text - 1);
    memcpy(text, "event=a owner=", 14);
    assert_false(parse("lock:x", text));
    text[FLI_EVENT_TEXT_MAX] = '\0';
    assert_true(parse("lock:x", text));
    assert_int_equal(event.owner.len, FLI_EVENT_TEXT_MAX - 14);
}

TEST(test_random_bytes)
{
    static const char bytes[] = "event=granted token=17 owner=%20 clock=1%\x1b\xff ==";
    uint64_t r = rng_seed();
    for (int round = 0; round < 20000; round++) {
        char text[64];
        size_t len = (size_t)rng_below(&r, sizeof text);
        for (size_t i = 0; i < len; i++) {
            text[i] = bytes[rng_below(&r, sizeof bytes - 1)];
        }
        memcpy(text, "event=a ", len < 8 ? len : 8);
        (void)!fli_event_parse(fl_str("lock:x"), (struct fl_bytes){text, len}, &room, &event);
    }
}
