/* test_events.c: subscriptions and their messages: every frame in both protocols, order, ceilings,
 * subscribers whose buffers are full. Shares of a turn are in test_events_share.c. The events of
 * the last tests come from a real machine. */
#include "../../lib/give_up.h"
#include "events_rig.h"

#include "base/turn.h"

static void refuse(struct fixture *f, struct client *c, enum fli_command_id id, const char *words,
                   const char *want)
{
    struct events_subscriber *before = c->subscriber;
    assert_int_equal(say(f, c, id, words), EVENTS_REFUSED);
    assert_ptr_equal(c->subscriber, before);
    assert_int_equal(fli_buf_append(&c->heard, "", 1), 0);
    assert_non_null(strstr((const char *)c->heard.data, want));
    assert_int_equal(c->heard.data[0], '-');
    fli_buf_clear(&c->heard);
}

static void feed(struct fixture *f, uint8_t type, const char *name, const char *owner,
                 uint64_t token, uint64_t wait, uint8_t reason)
{
    struct machine_event e = {.type = type,
                              .reason = reason,
                              .name = text(name),
                              .owner = text(owner),
                              .token = token,
                              .wait = wait,
                              .clock_ms = 7};
    events_feed(&f->e, &e);
    while (events_publish(&f->e, FLI_TURN_EVENT_STEPS)) {
    }
}

static void turn(struct fixture *f, uint64_t min_live_token, uint64_t clock_ms)
{
    events_min_live(&f->e, min_live_token, clock_ms);
    assert_false(events_publish(&f->e, FLI_TURN_EVENT_STEPS));
}

TEST(test_confirmations)
{
    struct fixture f;
    start(&f);
    struct client *two = &f.client[0];
    struct client *three = &f.client[1];
    OK(&f, two, FLI_CMD_SUBSCRIBE, "lock:a lock:b lock:a");
    assert_heard(two, "*3\r\n$9\r\nsubscribe\r\n$6\r\nlock:a\r\n:1\r\n"
                      "*3\r\n$9\r\nsubscribe\r\n$6\r\nlock:b\r\n:2\r\n"
                      "*3\r\n$9\r\nsubscribe\r\n$6\r\nlock:a\r\n:2\r\n");
    OK(&f, two, FLI_CMD_PSUBSCRIBE, "lock:*");
    assert_heard(two, "*3\r\n$10\r\npsubscribe\r\n$6\r\nlock:*\r\n:3\r\n");
    OK(&f, two, FLI_CMD_UNSUBSCRIBE, "lock:b lock:zz");
    assert_heard(two, "*3\r\n$11\r\nunsubscribe\r\n$6\r\nlock:b\r\n:2\r\n"
                      "*3\r\n$11\r\nunsubscribe\r\n$7\r\nlock:zz\r\n:2\r\n");
    OK(&f, two, FLI_CMD_PUNSUBSCRIBE, "");
    assert_heard(two, "*3\r\n$12\r\npunsubscribe\r\n$6\r\nlock:*\r\n:1\r\n");
    assert_non_null(two->subscriber);
    OK(&f, two, FLI_CMD_UNSUBSCRIBE, "");
    assert_heard(two, "*3\r\n$11\r\nunsubscribe\r\n$6\r\nlock:a\r\n:0\r\n");
    assert_null(two->subscriber);
    OK(&f, two, FLI_CMD_UNSUBSCRIBE, "");
    assert_heard(two, "*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n");

    OK(&f, three, FLI_CMD_SUBSCRIBE, "lock:a");
    assert_heard(three, ">3\r\n$9\r\nsubscribe\r\n$6\r\nlock:a\r\n:1\r\n");
    OK(&f, three, FLI_CMD_PUNSUBSCRIBE, "");
    assert_heard(three, ">3\r\n$12\r\npunsubscribe\r\n_\r\n:1\r\n");
    OK(&f, three, FLI_CMD_UNSUBSCRIBE, "lock:a lock:a");
    assert_heard(three, ">3\r\n$11\r\nunsubscribe\r\n$6\r\nlock:a\r\n:0\r\n"
                        ">3\r\n$11\r\nunsubscribe\r\n$6\r\nlock:a\r\n:0\r\n");
    end(&f);
}

TEST(test_every_event)
{
    struct fixture f;
    start(&f);
    struct client *c = &f.client[1];
    feed(&f, MACHINE_EVENT_GRANTED, "n", "o", 5, 0, 0);
    assert_heard(c, "");
    OK(&f, c, FLI_CMD_SUBSCRIBE, "lock:n");
    fli_buf_clear(&c->heard);
    static const struct {
        uint8_t type, reason;
        uint64_t token, wait;
        const char *text;
    } rows[] = {
        {MACHINE_EVENT_GRANTED, 0, 5, 0, "event=granted token=5 owner=o clock=7"},
        {MACHINE_EVENT_GRANTED, 0, 5, 9, "event=granted token=5 owner=o clock=7 wait=9"},
        {MACHINE_EVENT_QUEUED, 0, 0, 9, "event=queued owner=o clock=7 wait=9"},
        {MACHINE_EVENT_RELEASED, MACHINE_REASON_RELEASE, 5, 0,
         "event=released token=5 owner=o clock=7"},
        {MACHINE_EVENT_EXPIRED, MACHINE_REASON_DEADLINE, 5, 0,
         "event=expired token=5 owner=o clock=7"},
        {MACHINE_EVENT_BROKEN, MACHINE_REASON_BREAK, 5, 0, "event=broken token=5 owner=o clock=7"},
        {MACHINE_EVENT_WAIT_ENDED, MACHINE_REASON_DEADLINE, 0, 9,
         "event=left owner=o clock=7 wait=9 reason=deadline"},
        {MACHINE_EVENT_WAIT_ENDED, MACHINE_REASON_CANCEL, 0, 9,
         "event=left owner=o clock=7 wait=9 reason=cancel"},
        {MACHINE_EVENT_WAIT_ENDED, MACHINE_REASON_SESSION, 0, 9,
         "event=left owner=o clock=7 wait=9 reason=session"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char want[256];
        feed(&f, rows[i].type, "n", "o", rows[i].token, rows[i].wait, rows[i].reason);
        (void)snprintf(want, sizeof want, ">3\r\n$7\r\nmessage\r\n$6\r\nlock:n\r\n$%zu\r\n%s\r\n",
                       strlen(rows[i].text), rows[i].text);
        assert_heard(c, want);
    }
    feed(&f, MACHINE_EVENT_SESSION_OPENED, "", "o", 0, 0, 0);
    feed(&f, MACHINE_EVENT_SESSION_ENDED, "", "o", 0, 0, MACHINE_REASON_CLOSE);
    feed(&f, MACHINE_EVENT_GRANTED, "m", "o", 6, 0, 0);
    assert_heard(c, "");
    end(&f);
}

TEST(test_bytes_of_owners)
{
    struct fixture f;
    start(&f);
    struct client *c = &f.client[0];
    OK(&f, c, FLI_CMD_SUBSCRIBE, "lock:n");
    fli_buf_clear(&c->heard);
    feed(&f, MACHINE_EVENT_GRANTED, "n", "a b%\x01\xff\r\n=", 1, 0, 0);
    assert_heard(c, "*3\r\n$7\r\nmessage\r\n$6\r\nlock:n\r\n$57\r\n"
                    "event=granted token=1 owner=a%20b%25%01%FF%0D%0A= clock=7\r\n");
    end(&f);
}

/* The longest name and owner there can be, all of it to be escaped. */
TEST(test_largest)
{
    struct fixture f;
    start(&f);
    struct client *c = &f.client[0];
    char name[FL_NAME_MAX + 1];
    char owner[FL_OWNER_MAX + 1];
    char channel[EVENTS_TOPIC_MAX + 2];
    memset(name, 'n', sizeof name - 1);
    memset(owner, 0xff, sizeof owner - 1);
    name[FL_NAME_MAX] = owner[FL_OWNER_MAX] = '\0';
    (void)snprintf(channel, sizeof channel, "lock:%s", name);
    OK(&f, c, FLI_CMD_SUBSCRIBE, channel);
    OK(&f, c, FLI_CMD_PSUBSCRIBE, channel); /* a pattern of the same length */
    fli_buf_clear(&c->heard);
    feed(&f, MACHINE_EVENT_WAIT_ENDED, name, owner, UINT64_MAX, UINT64_MAX,
         MACHINE_REASON_DEADLINE);
    size_t escaped = 3 * (size_t)FL_OWNER_MAX;
    assert_true(c->heard.len > 2 * escaped + 3 * strlen(channel));
    fli_buf_clear(&c->heard);
    channel[EVENTS_GLOB_MAX] = 'n';
    channel[EVENTS_GLOB_MAX + 1] = '\0';
    refuse(&f, c, FLI_CMD_SUBSCRIBE, channel, "-ERR SUBSCRIBE: the channels are");
    refuse(&f, c, FLI_CMD_PSUBSCRIBE, channel, "-ERR PSUBSCRIBE: a pattern has");
    end(&f);
}

/* What Redisson's threads wait for: a zero for each end of a hold, and when events were skipped. */
TEST(test_wake)
{
    struct fixture f;
    start(&f);
    struct client *c = &f.client[0];
    struct client *p = &f.client[2];
    OK(&f, c, FLI_CMD_SUBSCRIBE, EVENTS_WAKE_PREFIX "{a} " EVENTS_WAKE_PREFIX "x{b}y");
    OK(&f, p, FLI_CMD_PSUBSCRIBE, EVENTS_WAKE_PREFIX "*");
    fli_buf_clear(&c->heard);
    fli_buf_clear(&p->heard);
    feed(&f, MACHINE_EVENT_GRANTED, "a", "ann", 1, 0, 0);
    feed(&f, MACHINE_EVENT_QUEUED, "a", "bob", 0, 1, 0);
    feed(&f, MACHINE_EVENT_RELEASED, "b", "ann", 1, 0, MACHINE_REASON_RELEASE);
    assert_heard(c, "");
    assert_heard(p, "*4\r\n$8\r\npmessage\r\n$24\r\nredisson_lock__channel:*\r\n"
                    "$26\r\nredisson_lock__channel:{b}\r\n$1\r\n0\r\n");
    static const struct {
        uint8_t type;
        const char *name, *want;
    } ends[] = {
        {MACHINE_EVENT_RELEASED, "a", "$26\r\nredisson_lock__channel:{a}\r\n$1\r\n0\r\n"},
        {MACHINE_EVENT_EXPIRED, "a", "$26\r\nredisson_lock__channel:{a}\r\n$1\r\n0\r\n"},
        {MACHINE_EVENT_BROKEN, "x{b}y", "$28\r\nredisson_lock__channel:x{b}y\r\n$1\r\n0\r\n"},
    };
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char want[128];
        feed(&f, ends[i].type, ends[i].name, "ann", 1, 0, 0);
        (void)snprintf(want, sizeof want, "*3\r\n$7\r\nmessage\r\n%s", ends[i].want);
        assert_heard(c, want);
        (void)snprintf(want, sizeof want,
                       "*4\r\n$8\r\npmessage\r\n$24\r\nredisson_lock__channel:*\r\n%s",
                       ends[i].want);
        assert_heard(p, want);
    }
    OK(&f, c, FLI_CMD_UNSUBSCRIBE, EVENTS_WAKE_PREFIX "x{b}y");
    fli_buf_clear(&c->heard);
    events_resync(&f.e, 7);
    assert_false(events_publish(&f.e, FLI_TURN_EVENT_STEPS));
    assert_heard(c, "*3\r\n$7\r\nmessage\r\n$26\r\nredisson_lock__channel:{a}\r\n$1\r\n0\r\n");
    refuse(&f, c, FLI_CMD_SUBSCRIBE, EVENTS_WAKE_PREFIX, "-ERR");
    char longest[EVENTS_TOPIC_MAX + 2];
    memset(longest, 'n', sizeof longest);
    memcpy(longest, EVENTS_WAKE_PREFIX "{", sizeof EVENTS_WAKE_PREFIX);
    longest[EVENTS_TOPIC_MAX - 1] = '}';
    longest[EVENTS_TOPIC_MAX] = '\0';
    OK(&f, c, FLI_CMD_SUBSCRIBE, longest);
    longest[EVENTS_TOPIC_MAX] = '}';
    longest[EVENTS_TOPIC_MAX + 1] = '\0';
    fli_buf_clear(&c->heard);
    refuse(&f, c, FLI_CMD_SUBSCRIBE, longest, "-ERR SUBSCRIBE: the channels are");
    end(&f);
    assert_int_equal(f.e.wake_subs, 0);
}

TEST(test_refusals_change_nothing)
{
    struct fixture f;
    start(&f);
    struct client *c = &f.client[1];
    refuse(&f, c, FLI_CMD_SUBSCRIBE, "lock:a nonsense", "-ERR");
    refuse(&f, c, FLI_CMD_SUBSCRIBE, "lock:", "-ERR");
    refuse(&f, c, FLI_CMD_SUBSCRIBE, "fencelock:resync", "-ERR");
    refuse(&f, c, FLI_CMD_SUBSCRIBE, "LOCK:a", "-ERR");
    assert_false(events_wanted(&f.e));
    OK(&f, c, FLI_CMD_PSUBSCRIBE, "nonsense");
    end(&f);
}

static void fill(struct fixture *f, struct client *c, enum fli_command_id id, const char *stem,
                 unsigned from, unsigned n)
{
    for (unsigned i = from; i < from + n; i++) {
        char word[64];
        (void)snprintf(word, sizeof word, "%s%u", stem, i);
        assert_int_equal(say(f, c, id, word), EVENTS_CONFIRMED);
        fli_buf_clear(&c->heard);
    }
}

TEST(test_ceilings_of_a_connection)
{
    struct fixture f;
    start(&f);
    struct client *c = &f.client[0];
    fill(&f, c, FLI_CMD_SUBSCRIBE, "lock:", 0, EVENTS_CHANNELS_MAX - 1);
    refuse(&f, c, FLI_CMD_SUBSCRIBE, "lock:x lock:y", "-LIMIT SUBSCRIBE");
    OK(&f, c, FLI_CMD_SUBSCRIBE, "lock:x lock:0"); /* one of them is there already */
    fli_buf_clear(&c->heard);
    refuse(&f, c, FLI_CMD_SUBSCRIBE, "lock:y", "-LIMIT SUBSCRIBE");
    OK(&f, c, FLI_CMD_SUBSCRIBE, "lock:x");
    fill(&f, c, FLI_CMD_PSUBSCRIBE, "p", 0, EVENTS_PATTERNS_MAX);
    refuse(&f, c, FLI_CMD_PSUBSCRIBE, "q", "-LIMIT PSUBSCRIBE");
    OK(&f, c, FLI_CMD_PUNSUBSCRIBE, "p0");
    OK(&f, c, FLI_CMD_PSUBSCRIBE, "q");
    end(&f);
}

TEST(test_ceilings_of_a_node)
{
    struct fixture f;
    start(&f);
    static struct client many[EVENTS_SUBS_MAX / EVENTS_CHANNELS_MAX];
    unsigned clients = sizeof many / sizeof many[0];
    for (unsigned i = 0; i < clients; i++) {
        many[i] = (struct client){.proto = 2};
        fli_buf_init(&many[i].heard, OUT_MAX);
    }
    /* Different patterns: as many as there may be, then no new one, but an old one for anybody. */
    for (unsigned i = 0; i < EVENTS_GLOBS_MAX / EVENTS_PATTERNS_MAX; i++) {
        fill(&f, &many[i], FLI_CMD_PSUBSCRIBE, "p", i * EVENTS_PATTERNS_MAX, EVENTS_PATTERNS_MAX);
    }
    refuse(&f, &many[20], FLI_CMD_PSUBSCRIBE, "new", "different patterns");
    OK(&f, &many[20], FLI_CMD_PSUBSCRIBE, "p17");
    for (unsigned i = 0; i < clients; i++) {
        events_drop(&f.e, many[i].subscriber);
        many[i].subscriber = NULL;
    }
    for (unsigned i = 0; i < clients; i++) {
        fill(&f, &many[i], FLI_CMD_SUBSCRIBE, "lock:", i, EVENTS_CHANNELS_MAX);
    }
    refuse(&f, &f.client[0], FLI_CMD_SUBSCRIBE, "lock:0", "as many subscriptions");
    refuse(&f, &f.client[0], FLI_CMD_PSUBSCRIBE, "*", "as many subscriptions");
    for (unsigned i = 0; i < clients; i++) {
        events_drop(&f.e, many[i].subscriber);
        fli_buf_fini(&many[i].heard);
    }
    end(&f);
}

static uint64_t address_of(void *ctx, void *to)
{
    return ((const struct client *)to)->address;
}

/* One address leaves a quarter of all patterns, and of all subscriptions, to the others. */
TEST(test_addresses_have_a_share)
{
    enum { SHARE = EVENTS_ADDRESS_MAX(EVENTS_GLOBS_MAX) };
    struct fixture f;
    static struct client many[EVENTS_ADDRESS_MAX(EVENTS_SUBS_MAX) / EVENTS_CHANNELS_MAX + 1];
    unsigned clients = sizeof many / sizeof many[0];
    start(&f);
    f.e.sink.address = address_of;
    for (unsigned i = 0; i < clients; i++) {
        many[i] = (struct client){.proto = 2, .address = 1};
        fli_buf_init(&many[i].heard, OUT_MAX);
    }
    f.client[0].address = 2;
    for (unsigned i = 0; i < SHARE / EVENTS_PATTERNS_MAX; i++) {
        fill(&f, &many[i], FLI_CMD_PSUBSCRIBE, "p", i * EVENTS_PATTERNS_MAX, EVENTS_PATTERNS_MAX);
    }
    refuse(&f, &many[SHARE / EVENTS_PATTERNS_MAX], FLI_CMD_PSUBSCRIBE, "new", "one address");
    OK(&f, &many[SHARE / EVENTS_PATTERNS_MAX], FLI_CMD_PSUBSCRIBE, "p17");
    OK(&f, &f.client[0], FLI_CMD_PSUBSCRIBE, "new");
    for (unsigned i = 0; i < clients; i++) {
        events_drop(&f.e, many[i].subscriber);
        many[i].subscriber = NULL;
    }
    for (unsigned i = 0; i + 1 < clients; i++) {
        fill(&f, &many[i], FLI_CMD_SUBSCRIBE, "lock:", i, EVENTS_CHANNELS_MAX);
    }
    refuse(&f, &many[clients - 1], FLI_CMD_SUBSCRIBE, "lock:0", "one address");
    OK(&f, &f.client[0], FLI_CMD_SUBSCRIBE, "lock:0");
    for (unsigned i = 0; i < clients; i++) {
        events_drop(&f.e, many[i].subscriber);
        fli_buf_fini(&many[i].heard);
    }
    end(&f);
}

/* A pattern counts for who holds it: when those that came first have left, for the next. */
TEST(test_who_left_is_charged_no_more)
{
    enum { SHARE = EVENTS_ADDRESS_MAX(EVENTS_GLOBS_MAX), EACH = SHARE / EVENTS_PATTERNS_MAX };
    struct fixture f;
    start_many(&f, 2 * EACH + 2);
    f.e.sink.address = address_of;
    struct client *first = f.client;
    struct client *second = f.client + EACH;
    struct client *of_first = f.client + 2 * EACH;
    struct client *of_second = of_first + 1;
    of_first->address = 1;
    of_second->address = 2;
    for (unsigned i = 0; i < EACH; i++) {
        unsigned from = i * EVENTS_PATTERNS_MAX;
        first[i].address = 1;
        second[i].address = 2;
        fill(&f, &first[i], FLI_CMD_PSUBSCRIBE, "p", from, EVENTS_PATTERNS_MAX);
        fill(&f, &second[i], FLI_CMD_PSUBSCRIBE, "p", from, EVENTS_PATTERNS_MAX);
    }
    fill(&f, of_second, FLI_CMD_PSUBSCRIBE, "second's", 0, 1);
    refuse(&f, of_first, FLI_CMD_PSUBSCRIBE, "first's", "one address");
    OK(&f, &first[0], FLI_CMD_PUNSUBSCRIBE, "p0"); /* one that the second holds */
    fill(&f, of_first, FLI_CMD_PSUBSCRIBE, "first's", 0, 1);
    refuse(&f, of_first, FLI_CMD_PSUBSCRIBE, "first's too", "one address");
    for (unsigned i = 0; i < EACH; i++) {
        events_drop(&f.e, first[i].subscriber);
        first[i].subscriber = NULL;
    }
    fill(&f, of_first, FLI_CMD_PSUBSCRIBE, "first's", 1, 1);
    refuse(&f, of_second, FLI_CMD_PSUBSCRIBE, "second's too", "one address");
    OK(&f, &second[0], FLI_CMD_PUNSUBSCRIBE, "p0 p1"); /* it had one more than its share */
    fill(&f, of_second, FLI_CMD_PSUBSCRIBE, "second's", 1, 1);
    end(&f);
}

TEST(test_channel_and_pattern_both_hear)
{
    struct fixture f;
    start(&f);
    struct client *c = &f.client[0];
    OK(&f, c, FLI_CMD_PSUBSCRIBE, "lock:[a-c]? lock:??");
    OK(&f, c, FLI_CMD_SUBSCRIBE, "lock:aa");
    fli_buf_clear(&c->heard);
    feed(&f, MACHINE_EVENT_GRANTED, "aa", "o", 1, 0, 0);
    const char *t = "$37\r\nevent=granted token=1 owner=o clock=7\r\n";
    char want[1024];
    (void)snprintf(want, sizeof want,
                   "*3\r\n$7\r\nmessage\r\n$7\r\nlock:aa\r\n%s"
                   "*4\r\n$8\r\npmessage\r\n$11\r\nlock:[a-c]?\r\n$7\r\nlock:aa\r\n%s"
                   "*4\r\n$8\r\npmessage\r\n$7\r\nlock:??\r\n$7\r\nlock:aa\r\n%s",
                   t, t, t);
    assert_heard(c, want);
    feed(&f, MACHINE_EVENT_GRANTED, "abc", "o", 1, 0, 0);
    assert_heard(c, "");
    end(&f);
}

/* The buffer of one subscriber is full; the others hear everything, and each is told once. */
TEST(test_a_full_subscriber_is_dropped)
{
    struct fixture f;
    start(&f);
    for (unsigned i = 0; i < CLIENTS; i++) {
        OK(&f, &f.client[i], FLI_CMD_SUBSCRIBE, "lock:n");
        OK(&f, &f.client[i], FLI_CMD_PSUBSCRIBE, i == 1 ? "lock:n lock:* *" : "lock:*");
        fli_buf_clear(&f.client[i].heard);
    }
    f.client[1].full = true;
    feed(&f, MACHINE_EVENT_GRANTED, "n", "o", 1, 0, 0);
    feed(&f, MACHINE_EVENT_RELEASED, "n", "o", 1, 0, 0);
    assert_int_equal(f.client[1].dropped, 1);
    assert_int_equal(f.client[1].heard.len, 0);
    assert_int_equal(f.client[0].heard.len, f.client[2].heard.len);
    assert_int_equal(f.client[0].heard.len, f.client[3].heard.len);
    struct events_counts counts;
    events_get_counts(&f.e, &counts);
    assert_int_equal(counts.messages, 3 * 2 * 2);
    assert_int_equal(counts.dropped, 1);
    assert_int_equal(counts.subscribers, 3);
    /* Subscribers become full in the middle of a resync, and of a turn. */
    OK(&f, &f.client[0], FLI_CMD_PSUBSCRIBE, "*");
    f.client[0].full = f.client[2].full = true;
    events_resync(&f.e, 9);
    assert_false(events_publish(&f.e, FLI_TURN_EVENT_STEPS));
    assert_int_equal(f.client[0].dropped + f.client[2].dropped, 2);
    OK(&f, &f.client[3], FLI_CMD_PSUBSCRIBE, "*");
    f.client[3].full = true;
    turn(&f, 1, 1);
    assert_int_equal(f.client[3].dropped, 1);
    assert_false(events_wanted(&f.e));
    end(&f);
}

#define MIN_TEXT(token) "$37\r\nevent=min_live_token token=" token " clock=5\r\n"

TEST(test_min_live_token)
{
    struct fixture f;
    start(&f);
    struct client *a = &f.client[0];
    struct client *b = &f.client[1];
    turn(&f, 41, 5);
    OK(&f, a, FLI_CMD_SUBSCRIBE, "lock:n " EVENTS_MIN_LIVE_CHANNEL);
    fli_buf_clear(&a->heard);
    turn(&f, 42, 5);
    assert_heard(a, "*3\r\n$7\r\nmessage\r\n$24\r\nfencelock:min_live_token\r\n" MIN_TEXT("42"));
    turn(&f, 42, 6);
    assert_heard(a, "");
    /* A subscriber that comes later is told at once, and alone. */
    OK(&f, b, FLI_CMD_PSUBSCRIBE, "fence*");
    fli_buf_clear(&b->heard);
    turn(&f, 42, 5);
    assert_heard(a, "");
    assert_heard(
        b, ">4\r\n$8\r\npmessage\r\n$6\r\nfence*\r\n$24\r\nfencelock:min_live_token\r\n" MIN_TEXT(
               "42"));
    turn(&f, 43, 5);
    assert_true(a->heard.len > 0 && b->heard.len > 0);
    fli_buf_clear(&a->heard);
    fli_buf_clear(&b->heard);
    turn(&f, 43, 5);
    assert_heard(a, "");
    assert_heard(b, "");
    end(&f);
}

TEST(test_resync)
{
    struct fixture f;
    start(&f);
    struct client *c = &f.client[1];
    struct machine_event granted = {
        .type = MACHINE_EVENT_GRANTED, .name = text("n"), .owner = text("o"), .token = 5};
    events_resync(&f.e, 9);
    OK(&f, c, FLI_CMD_SUBSCRIBE, "lock:n");
    OK(&f, c, FLI_CMD_SUBSCRIBE, "lock:m");
    OK(&f, c, FLI_CMD_PSUBSCRIBE, "lock:*");
    fli_buf_clear(&c->heard);
    events_resync(&f.e, 9);
    assert_heard(c, ""); /* sending has a share of each turn: here one message */
    assert_true(events_publish(&f.e, 1));
    assert_heard(c, ">3\r\n$7\r\nmessage\r\n$6\r\nlock:n\r\n$20\r\nevent=resync clock=9\r\n");
    events_feed(&f.e, &granted); /* waits behind the rest */
    OK(&f, &f.client[0], FLI_CMD_SUBSCRIBE, "lock:n");
    fli_buf_clear(&f.client[0].heard);
    OK(&f, c, FLI_CMD_UNSUBSCRIBE, "lock:m"); /* is not told any more */
    fli_buf_clear(&c->heard);
    assert_true(events_publish(&f.e, 1));
    assert_heard(c, ">4\r\n$8\r\npmessage\r\n$6\r\nlock:*\r\n$16\r\nfencelock:resync\r\n"
                    "$20\r\nevent=resync clock=9\r\n");
    assert_false(events_publish(&f.e, FLI_TURN_EVENT_STEPS));
    assert_int_equal(count_heard(c, "event=granted"), 2);
    assert_heard(&f.client[0], ""); /* came later */
    struct events_counts counts;
    events_get_counts(&f.e, &counts);
    assert_int_equal(counts.resyncs, 1);
    end(&f);
}

/* A pattern that takes 7,000 steps for a name: fifty sets, each of half of all bytes. */
#define TEN_SETS "[@-\xbf][@-\xbf][@-\xbf][@-\xbf][@-\xbf][@-\xbf][@-\xbf][@-\xbf][@-\xbf][@-\xbf]"
static const char costly[] = "*" TEN_SETS TEN_SETS TEN_SETS TEN_SETS TEN_SETS "b";

static void queue_up(struct fixture *f, uint64_t token)
{
    char name[201];
    memset(name, 'a', 200);
    name[200] = 0;
    struct machine_event e = {.type = MACHINE_EVENT_GRANTED,
                              .name = text(name),
                              .owner = text("o"),
                              .token = token,
                              .clock_ms = 7};
    events_feed(&f->e, &e);
}

/* Matching takes a share of a turn. A subscriber with a costly pattern is served after the others,
 * and each hears everything once and in order. */
TEST(test_costly_patterns_wait)
{
    struct fixture f;
    start(&f);
    OK(&f, &f.client[0], FLI_CMD_PSUBSCRIBE, "lock:*");
    OK(&f, &f.client[1], FLI_CMD_PSUBSCRIBE, "lock:*");
    for (uint64_t i = 1; i <= 5; i++) {
        queue_up(&f, i);
    }
    (void)events_publish(&f.e, 400); /* one event, to both */
    OK(&f, &f.client[1], FLI_CMD_PSUBSCRIBE, costly);
    fli_buf_clear(&f.client[2].heard);
    OK(&f, &f.client[2], FLI_CMD_PSUBSCRIBE, costly);
    unsigned turns = 1;
    bool more = events_publish(&f.e, 4000);
    assert_true(more);
    assert_int_equal(count_heard(&f.client[0], "event=granted"), 5);
    assert_true(count_heard(&f.client[1], "event=granted") < 5);
    for (; more; turns++) {
        uint64_t before = f.e.counts.steps;
        more = events_publish(&f.e, 2000);
        assert_true(f.e.counts.steps - before <= 2000 + 8192); /* one match more */
    }
    print_message("%u turns\n", turns);
    assert_int_equal(count_heard(&f.client[1], "event=granted"), 5);
    for (uint64_t i = 1; i <= 5; i++) {
        char token[32];
        (void)snprintf(token, sizeof token, "token=%u ", (unsigned)i);
        assert_int_equal(count_heard(&f.client[1], token), 1);
    }
    assert_int_equal(count_heard(&f.client[2], "event="), 0); /* came later, and matches nothing */
    end(&f);
}

/* When the queue of events is full, subscribers are told that they missed something: first those
 * with costly patterns alone, then all. */
TEST(test_full_queue)
{
    struct fixture f;
    start(&f);
    OK(&f, &f.client[0], FLI_CMD_PSUBSCRIBE, "lock:*");
    OK(&f, &f.client[1], FLI_CMD_PSUBSCRIBE, "lock:*");
    OK(&f, &f.client[1], FLI_CMD_PSUBSCRIBE, costly);
    unsigned fed = 0;
    for (; f.e.counts.resyncs == 0; fed++) {
        for (unsigned i = 0; i < 10; i++) {
            queue_up(&f, 1);
        }
        fli_buf_clear(&f.client[0].heard);
        fli_buf_clear(&f.client[1].heard);
        (void)events_publish(&f.e, 10000); /* enough for the cheap patterns */
        assert_true(events_queued_bytes(&f.e) <= EVENTS_QUEUE_MAX);
    }
    assert_true(10 * fed > EVENTS_QUEUE_MAX / 400);
    assert_int_equal(count_heard(&f.client[0], "event=resync"), 0);
    fli_buf_clear(&f.client[0].heard);
    for (fed = 0; f.e.counts.resyncs == 1; fed++) {
        fli_buf_clear(&f.client[1].heard);
        queue_up(&f, 1);
    }
    assert_true(fed >= EVENTS_QUEUE_MAX / 400);
    assert_int_equal(count_heard(&f.client[0], "event="), 0); /* nothing is sent in an apply */
    while (events_publish(&f.e, FLI_TURN_EVENT_STEPS)) {
    }
    assert_int_equal(count_heard(&f.client[0], "event=resync"), 1);
    assert_int_equal(count_heard(&f.client[1], "event=resync"), 2); /* of both patterns */
    assert_int_equal(count_heard(&f.client[0], "event=granted"), 1);
    end(&f);
    assert_int_equal(events_queued_bytes(&f.e), 0);
}

/* Patterns come and go while the lane of costly patterns stands in the middle of an event. */
TEST(test_patterns_go_meanwhile)
{
    struct fixture f;
    start(&f);
    for (unsigned i = 0; i < 3; i++) {
        OK(&f, &f.client[i], FLI_CMD_PSUBSCRIBE, costly);
    }
    OK(&f, &f.client[0], FLI_CMD_PSUBSCRIBE, "lock:a*");
    for (unsigned i = 0; i < 14; i++) {
        char pattern[300];
        (void)snprintf(pattern, sizeof pattern, "*%c%s", 'c' + (int)i, costly);
        OK(&f, &f.client[1], FLI_CMD_PSUBSCRIBE, pattern);
    }
    queue_up(&f, 1);
    assert_true(events_publish(&f.e, 200)); /* in the middle */
    OK(&f, &f.client[1], FLI_CMD_PUNSUBSCRIBE, "");
    assert_null(f.client[1].subscriber);
    OK(&f, &f.client[1], FLI_CMD_PSUBSCRIBE, "lock:*");
    while (events_publish(&f.e, 100)) {
    }
    assert_int_equal(count_heard(&f.client[0], "event=granted"), 1);
    assert_int_equal(count_heard(&f.client[1], "event=granted"), 0);
    end(&f);
}

TEST(test_answer_that_does_not_fit)
{
    struct fixture f;
    start(&f);
    struct fli_buf small;
    fli_buf_init(&small, 40);
    struct fli_slice args[2] = {text("lock:a"), text("lock:b")};
    struct client *c = &f.client[0];
    assert_int_equal(events_command(&f.e, &c->subscriber, c, FLI_CMD_SUBSCRIBE, 2, args, 2, &small),
                     EVENTS_FAILED);
    fli_buf_fini(&small);
    end(&f);
}

/* --- events of a real machine --- */

static void on_event(void *ctx, const struct machine_event *event)
{
    events_feed(ctx, event);
    (void)events_publish(ctx, UINT32_MAX);
}

struct log {
    struct machine *m;
    uint64_t sequence, timestamp_ms;
};

static void run(struct log *l, const struct machine_command *c)
{
    struct fli_buf b;
    static const uint8_t zeros[MACHINE_BATCH_HEADER_SIZE];
    fli_buf_init(&b, 65536);
    assert_int_equal(fli_buf_append(&b, zeros, sizeof zeros), 0);
    if (c != NULL) {
        assert_int_equal(machine_command_encode(c, &b), 0);
    }
    uint32_t ends = give_up_leases(l->m, l->timestamp_ms, &b, UINT32_MAX);
    assert_int_equal(fli_buf_reserve(&b, 8), 0);
    struct machine_batch_header h = {.count = (c != NULL) + ends,
                                     .timestamp_ms = l->timestamp_ms,
                                     .term = 1,
                                     .sequence = ++l->sequence,
                                     .length = (uint32_t)b.len};
    size_t size = machine_batch_seal(b.data, &h);
    assert_int_equal(machine_apply(l->m, b.data, size, NULL), 0);
    fli_buf_fini(&b);
}

static struct machine_command acquire(const char *owner, uint64_t ttl_ms, uint64_t wait_ms)
{
    return (struct machine_command){.op = MACHINE_OP_ACQUIRE,
                                    .flags = wait_ms > 0 ? MACHINE_ACQUIRE_WAIT : 0,
                                    .n_names = 1,
                                    .permits = 1,
                                    .name = text("n"),
                                    .owner = text(owner),
                                    .ttl_ms = ttl_ms,
                                    .wait_ms = wait_ms};
}

/* The texts heard, one a line. */
static void hear_texts(struct client *c, const char *want)
{
    struct fli_buf got;
    fli_buf_init(&got, OUT_MAX);
    assert_int_equal(fli_buf_append(&c->heard, "", 1), 0);
    for (const char *p = (const char *)c->heard.data; (p = strstr(p, "\r\nevent=")) != NULL;) {
        p += 2;
        const char *stop = strstr(p, "\r\n");
        assert_non_null(stop);
        assert_int_equal(fli_buf_printf(&got, "%.*s\n", (int)(stop - p), p), 0);
        p = stop;
    }
    assert_int_equal(fli_buf_append(&got, "", 1), 0);
    assert_string_equal((const char *)got.data, want);
    fli_buf_fini(&got);
    fli_buf_clear(&c->heard);
}

TEST(test_events_of_a_machine)
{
    struct fixture f;
    start(&f);
    static const uint64_t seed[2] = {3, 4};
    struct log l = {.m = machine_create(seed), .timestamp_ms = 100};
    machine_set_event_cb(l.m, on_event, &f.e);
    struct client *c = &f.client[1];
    OK(&f, c, FLI_CMD_SUBSCRIBE, "lock:n");
    fli_buf_clear(&c->heard);
    struct machine_command a = acquire("owner-a-0123456789", 50, 0);
    struct machine_command b = acquire("owner-b-0123456789", 1000, 5000);
    struct machine_command d = acquire("owner-d-0123456789", 1000, 5000);
    struct machine_command e = acquire("owner-e-0123456789", 1000, 500);
    run(&l, &a);
    run(&l, &b);
    run(&l, &d);
    run(&l, &e);
    l.timestamp_ms = 151;
    run(&l, NULL);
    struct machine_command release = {
        .op = MACHINE_OP_RELEASE, .name = text("n"), .token = machine_last_token(l.m)};
    run(&l, &release);
    struct machine_command broken = {.op = MACHINE_OP_BREAK, .name = text("n")};
    l.timestamp_ms = 700;
    run(&l, &broken);
    hear_texts(c, "event=granted token=1 owner=owner-a-0123456789 clock=100\n"
                  "event=queued owner=owner-b-0123456789 clock=100 wait=1\n"
                  "event=queued owner=owner-d-0123456789 clock=100 wait=2\n"
                  "event=queued owner=owner-e-0123456789 clock=100 wait=3\n"
                  "event=expired token=1 owner=owner-a-0123456789 clock=151\n"
                  "event=granted token=2 owner=owner-b-0123456789 clock=151 wait=1\n"
                  "event=released token=2 owner=owner-b-0123456789 clock=151\n"
                  "event=granted token=3 owner=owner-d-0123456789 clock=151 wait=2\n"
                  "event=left owner=owner-e-0123456789 clock=700 wait=3 reason=deadline\n"
                  "event=broken token=3 owner=owner-d-0123456789 clock=700\n");
    machine_destroy(l.m);
    end(&f);
}
