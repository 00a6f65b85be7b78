/* test_events_share.c: sending has a share of each turn, whatever it is that is sent, and a turn
 * may end behind any subscription: counted in steps, never in time. What everybody hears then is
 * compared with a plain model, while subscriptions come and go between the turns. */
#include "events_rig.h"

#include "../../lib/rng.h"
#include "base/turn.h"
#include "machine/glob.h"

/* The most that one subscription takes here: a pattern, a message of its own, and giving it. */
#define ONE_SUBSCRIPTION 600u

static void feed(struct fixture *f, uint8_t type, const char *name, uint64_t token)
{
    struct machine_event e = {
        .type = type, .name = text(name), .owner = text("o"), .token = token, .clock_ms = 7};
    events_feed(&f->e, &e);
}

/* One turn; returns whether something is left. */
static bool turn(struct fixture *f, uint64_t share)
{
    uint64_t before = f->e.counts.steps;
    bool more = events_publish(&f->e, share);
    uint64_t took = f->e.counts.steps - before;
    if (took > share + ONE_SUBSCRIPTION) {
        fail_msg("a turn took %llu steps of %llu", (unsigned long long)took,
                 (unsigned long long)share);
    }
    return more;
}

static void forget_all(struct fixture *f)
{
    for (unsigned i = 0; i < f->clients; i++) {
        fli_buf_clear(&f->client[i].heard);
    }
}

/* --- as many subscriptions as there may be --- */

#define MANY (EVENTS_SUBS_MAX / 17)

/* Each has a channel and sixteen patterns that match its name: the name with a `?` in it. */
static void subscribe_many(struct fixture *f, const char *channel, unsigned from)
{
    start_many(f, MANY);
    for (unsigned i = 0; i < f->clients; i++) {
        char pattern[EVENTS_TOPIC_MAX];
        OK(f, &f->client[i], FLI_CMD_SUBSCRIBE, channel);
        for (unsigned k = 0; k < EVENTS_PATTERNS_MAX; k++) {
            (void)snprintf(pattern, sizeof pattern, "%s", channel);
            pattern[from + k] = '?';
            OK(f, &f->client[i], FLI_CMD_PSUBSCRIBE, pattern);
        }
    }
    forget_all(f);
}

static void one_event_to_all(bool costly)
{
    struct fixture f;
    subscribe_many(&f, "lock:mmmmmmmmmmmmmmmmmmmmmmmm", 5);
    for (unsigned i = 0; costly && i < f.clients; i++) {
        OK(&f, &f.client[i], FLI_CMD_PUNSUBSCRIBE, "lock:?mmmmmmmmmmmmmmmmmmmmmmm");
        OK(&f, &f.client[i], FLI_CMD_PSUBSCRIBE, "lock*mmmmmmmmmmmmmmmmmmmmmmmm");
    }
    forget_all(&f);
    feed(&f, MACHINE_EVENT_GRANTED, "mmmmmmmmmmmmmmmmmmmmmmmm", 1);
    unsigned turns = 1;
    while (turn(&f, FLI_TURN_EVENT_STEPS)) {
        turns++;
    }
    assert_true(turns >= EVENTS_SUBS_MAX * 20 / FLI_TURN_EVENT_STEPS);
    assert_int_equal(f.e.counts.messages, 17 * MANY);
    for (unsigned i = 0; i < f.clients; i++) {
        assert_int_equal(count_heard(&f.client[i], "event=granted"), 17);
    }
    end(&f);
}

TEST(test_one_event_for_all)
{
    one_event_to_all(false);
}

TEST(test_one_event_for_all_costly)
{
    one_event_to_all(true);
}

/* It moves in each turn, so most subscriptions hear of the last value only. */
TEST(test_min_live_for_all)
{
    struct fixture f;
    uint64_t token = 1;
    subscribe_many(&f, EVENTS_MIN_LIVE_CHANNEL, 8);
    for (; token <= 10; token++) {
        events_min_live(&f.e, token, token);
        assert_true(turn(&f, FLI_TURN_EVENT_STEPS));
        assert_true(f.e.counts.messages >= token * (FLI_TURN_EVENT_STEPS / ONE_SUBSCRIPTION));
    }
    while (turn(&f, FLI_TURN_EVENT_STEPS)) {
    }
    for (unsigned i = 0; i < f.clients; i++) {
        assert_int_equal(count_heard(&f.client[i], "token=10 "), 17);
    }
    /* Who subscribes now is told alone, and the others cost nothing. */
    forget_all(&f);
    OK(&f, &f.client[0], FLI_CMD_UNSUBSCRIBE, EVENTS_MIN_LIVE_CHANNEL);
    OK(&f, &f.client[0], FLI_CMD_SUBSCRIBE, EVENTS_MIN_LIVE_CHANNEL);
    uint64_t before = f.e.counts.steps;
    assert_false(turn(&f, FLI_TURN_EVENT_STEPS));
    assert_int_equal(count_heard(&f.client[0], "token=10 "), 1);
    assert_true(f.e.counts.steps - before <= ONE_SUBSCRIPTION);
    end(&f);
}

/* A lane that is always behind its events still tells of min_live_token. */
TEST(test_min_live_behind_endless_events)
{
    struct fixture f;
    start(&f);
    for (unsigned i = 0; i < CLIENTS; i++) {
        OK(&f, &f.client[i], FLI_CMD_PSUBSCRIBE, i % 2 == 0 ? "*" : "* lock*mmmmmmmmmmmmmmmmmmmm");
    }
    forget_all(&f);
    for (unsigned i = 0; i < 300; i++) {
        for (unsigned k = 0; k < 10; k++) {
            feed(&f, MACHINE_EVENT_GRANTED, "n", i);
        }
        events_min_live(&f.e, i, 7);
        assert_true(turn(&f, 4 * ONE_SUBSCRIPTION));
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        assert_true(count_heard(&f.client[i], "event=min_live_token") >= 2);
        assert_true(count_heard(&f.client[i], "event=granted") < 3000);
    }
    end(&f);
}

/* And a part of the share is for that, however much the events want. */
TEST(test_min_live_beside_many_events)
{
    struct fixture f;
    start_many(&f, 64);
    for (unsigned i = 0; i < f.clients; i++) {
        OK(&f, &f.client[i], FLI_CMD_PSUBSCRIBE, "*");
    }
    forget_all(&f);
    for (unsigned i = 1; i <= 30; i++) {
        feed(&f, MACHINE_EVENT_GRANTED, "n", i);
        feed(&f, MACHINE_EVENT_GRANTED, "n", i);
        events_min_live(&f.e, i, 7);
        assert_true(turn(&f, 20 * ONE_SUBSCRIPTION));
    }
    unsigned told = 0;
    for (unsigned i = 0; i < f.clients; i++) {
        told += count_heard(&f.client[i], "event=min_live_token");
    }
    assert_true(told > 60);
    end(&f);
}

/* --- rights --- */

static unsigned times_asked;
static bool nobody;

/* Costs as much as the patterns of a user may; user 9 sees nothing. */
static bool sink_may_see(void *ctx, void *to, struct fli_slice lock, uint64_t *steps)
{
    times_asked++;
    *steps += 100000;
    return !nobody && ((struct client *)to)->user != 9;
}

static uint64_t sink_user(void *ctx, void *to)
{
    return ((struct client *)to)->user;
}

static void start_with_rights(struct fixture *f)
{
    start(f);
    f->e.sink.may_see = sink_may_see;
    f->e.sink.user = sink_user;
    times_asked = 0;
    nobody = false;
    for (unsigned i = 0; i < CLIENTS; i++) {
        f->client[i].user = i == 3 ? 9 : 41; /* 9 and 41 are remembered at the same place */
        OK(f, &f->client[i], FLI_CMD_PSUBSCRIBE, "lock:*");
    }
    forget_all(f);
}

/* The rights of a user are found out once for a message, also if it takes several turns, and count
 * as steps of the turn. */
TEST(test_rights_have_a_cost)
{
    struct fixture f;
    start_with_rights(&f);
    feed(&f, MACHINE_EVENT_GRANTED, "n", 1);
    feed(&f, MACHINE_EVENT_GRANTED, "n", 2);
    assert_true(events_publish(&f.e, 100000)); /* no second subscription fits */
    assert_int_equal(times_asked, 1);
    assert_int_equal(count_heard(&f.client[0], "event=granted"), 1);
    assert_int_equal(count_heard(&f.client[1], "event=granted"), 0);
    while (events_publish(&f.e, FLI_TURN_EVENT_STEPS)) {
    }
    assert_int_equal(times_asked, 4);
    for (unsigned i = 0; i < CLIENTS; i++) {
        assert_int_equal(count_heard(&f.client[i], "event=granted"), i == 3 ? 0 : 2);
    }
    end(&f);
}

/* A right that was taken away holds for the rest of an event as well. */
TEST(test_rights_change_within_an_event)
{
    struct fixture f;
    start_with_rights(&f);
    feed(&f, MACHINE_EVENT_GRANTED, "n", 1);
    assert_true(events_publish(&f.e, 100000));
    nobody = true;
    events_rights(&f.e, 2);
    while (events_publish(&f.e, FLI_TURN_EVENT_STEPS)) {
    }
    assert_int_equal(times_asked, 3);
    assert_int_equal(count_heard(&f.client[0], "event=granted"), 1);
    assert_int_equal(count_heard(&f.client[1], "event=granted"), 0);
    end(&f);
}

/* --- a model --- */

#define MODEL_CLIENTS 12u
#define ROUNDS 4000u
#define LONG_NAME "aaaaaaaaaaaaaaaaaaaaaaaa"

static const char *const names[] = {"a", "b", LONG_NAME};

/* What there is to subscribe to; the last pattern is costly, and one of them comes and goes. */
static const struct {
    const char *name;
    bool is_glob;
} topics[] = {
    {"lock:a", false},
    {"lock:" LONG_NAME, false},
    {"lock:b", false},
    {EVENTS_MIN_LIVE_CHANNEL, false},
    {"lock:*", true},
    {EVENTS_WAKE_PREFIX "{a}", false},
    {"*", true},
    {EVENTS_WAKE_PREFIX "*", true},
    {"fence*", true},
    {"lock:a*", true},
    {"lock:[ab]", true},
    {"*_token", true},
    {"*aaaaaaaaaaaaaaaaaaaa", true},
};
#define TOPICS (sizeof topics / sizeof topics[0])
#define COSTLY (TOPICS - 1)

/* Something that a subscription is to hear, in this place among all that happened. */
struct due {
    unsigned at;
    char text[64];
};

struct model_sub {
    bool is;
    uint64_t min_live; /* as last heard */
    unsigned n, cap;
    struct due *due;
};

struct model {
    struct fixture f;
    uint64_t rng;
    unsigned at; /* events so far */
    uint64_t min_live;
    unsigned min_live_at[1 << 16]; /* events so far when it was first this */
    struct model_sub sub[MODEL_CLIENTS][TOPICS];
};

static unsigned below(struct model *m, unsigned n)
{
    return (unsigned)rng_below(&m->rng, n);
}

static void expect(struct model_sub *s, unsigned at, const char *what)
{
    if (s->n == s->cap) {
        s->cap = s->cap == 0 ? 16 : 2 * s->cap;
        s->due = realloc(s->due, s->cap * sizeof *s->due);
        assert_non_null(s->due);
    }
    s->due[s->n].at = at;
    (void)snprintf(s->due[s->n++].text, sizeof s->due[0].text, "%s", what);
}

static void sub_ends(struct model_sub *s)
{
    s->is = false;
    s->n = 0;
}

static bool matches(size_t topic, const char *channel)
{
    uint64_t steps = 0;
    return topics[topic].is_glob
               ? machine_glob_match(text(topics[topic].name), text(channel), &steps)
               : strcmp(topics[topic].name, channel) == 0;
}

static void expect_on(struct model *m, const char *channel, bool wake, const char *what)
{
    for (size_t i = 0; i < MODEL_CLIENTS * TOPICS; i++) {
        struct model_sub *s = &m->sub[i / TOPICS][i % TOPICS];
        /* Only topics of Redisson's hear its messages. */
        bool is_wake =
            strncmp(topics[i % TOPICS].name, EVENTS_WAKE_PREFIX, strlen(EVENTS_WAKE_PREFIX)) == 0;
        if (s->is && is_wake == wake && matches(i % TOPICS, channel)) {
            expect(s, m->at, what);
        }
    }
}

static void model_event(struct model *m)
{
    const char *name = names[below(m, 3)];
    bool ends = below(m, 2) == 0;
    char channel[64];
    char what[64];
    m->at++;
    feed(&m->f, ends ? MACHINE_EVENT_RELEASED : MACHINE_EVENT_GRANTED, name, m->at);
    (void)snprintf(channel, sizeof channel, "lock:%s", name);
    (void)snprintf(what, sizeof what, "event=%s token=%u owner=o clock=7",
                   ends ? "released" : "granted", m->at);
    expect_on(m, channel, false, what);
    (void)snprintf(channel, sizeof channel, EVENTS_WAKE_PREFIX "{%s}", name);
    if (ends) {
        expect_on(m, channel, true, "0");
    }
}

static void model_resync(struct model *m)
{
    events_resync(&m->f.e, 7);
    for (size_t i = 0; i < MODEL_CLIENTS * TOPICS; i++) {
        struct model_sub *s = &m->sub[i / TOPICS][i % TOPICS];
        bool zero = strcmp(topics[i % TOPICS].name, EVENTS_WAKE_PREFIX "{a}") == 0;
        s->n = 0;
        if (s->is) {
            expect(s, m->at, zero ? "0" : "event=resync clock=7");
        }
    }
}

static void model_change(struct model *m, unsigned client, size_t topic)
{
    struct model_sub *s = &m->sub[client][topic];
    struct client *c = &m->f.client[client];
    bool glob = topics[topic].is_glob;
    size_t before = c->heard.len;
    if (s->is) {
        OK(&m->f, c, glob ? FLI_CMD_PUNSUBSCRIBE : FLI_CMD_UNSUBSCRIBE, topics[topic].name);
        sub_ends(s);
    } else {
        OK(&m->f, c, glob ? FLI_CMD_PSUBSCRIBE : FLI_CMD_SUBSCRIBE, topics[topic].name);
        s->is = true;
        s->min_live = 0;
    }
    c->heard.len = before; /* the confirmation */
}

static void client_ends(struct model *m, unsigned client)
{
    struct client *c = &m->f.client[client];
    events_drop(&m->f.e, c->subscriber);
    c->subscriber = NULL;
    c->full = false;
    c->dropped = 0;
    for (size_t i = 0; i < TOPICS; i++) {
        sub_ends(&m->sub[client][i]);
    }
}

/* --- what was heard, against it --- */

/* The next word of a frame: a bulk string. */
static struct fli_slice word(const uint8_t **p)
{
    char *end = NULL;
    assert_int_equal(**p, '$');
    size_t len = (size_t)strtoul((const char *)*p + 1, &end, 10);
    struct fli_slice w = {(const uint8_t *)end + 2, len};
    *p = w.data + len + 2;
    return w;
}

static void hear_min_live(struct model *m, unsigned client, struct model_sub *s, const char *what)
{
    uint64_t token = strtoull(what + strlen("event=min_live_token token="), NULL, 10);
    assert_true(token > s->min_live && token <= m->min_live);
    s->min_live = token;
    /* The events before were heard before. */
    for (size_t i = 0; i < TOPICS; i++) {
        const struct model_sub *other = &m->sub[client][i];
        assert_true(other->n == 0 || other->due[0].at > m->min_live_at[token]);
    }
}

static void hear_due(struct model *m, unsigned client, struct model_sub *s, const char *what)
{
    assert_true(s->is && s->n > 0);
    assert_string_equal(s->due[0].text, what);
    unsigned at = s->due[0].at;
    memmove(s->due, s->due + 1, --s->n * sizeof *s->due);
    for (size_t i = 0; i < TOPICS; i++) {
        const struct model_sub *other = &m->sub[client][i];
        assert_true(other->n == 0 || other->due[0].at >= at);
    }
}

static void hear_frame(struct model *m, unsigned client, const uint8_t **p)
{
    bool glob = (*p)[1] == '4';
    *p += 4;
    (void)word(p);
    struct fli_slice topic = word(p);
    if (glob) {
        (void)word(p);
    }
    struct fli_slice w = word(p);
    char what[128];
    (void)snprintf(what, sizeof what, "%.*s", (int)w.len, (const char *)w.data);
    size_t i = 0;
    while (topics[i].is_glob != glob || strlen(topics[i].name) != topic.len ||
           memcmp(topics[i].name, topic.data, topic.len) != 0) {
        assert_true(++i < TOPICS);
    }
    struct model_sub *s = &m->sub[client][i];
    if (strncmp(what, "event=min_live_token ", 21) == 0) {
        assert_true(s->is);
        hear_min_live(m, client, s, what);
    } else {
        hear_due(m, client, s, what);
    }
}

static void hear_all(struct model *m)
{
    for (unsigned i = 0; i < MODEL_CLIENTS; i++) {
        struct client *c = &m->f.client[i];
        assert_int_equal(fli_buf_append(&c->heard, "", 1), 0);
        const uint8_t *p = c->heard.data;
        while (p < c->heard.data + c->heard.len - 1) {
            hear_frame(m, i, &p);
        }
        fli_buf_clear(&c->heard);
        if (c->dropped > 0) {
            client_ends(m, i);
        }
    }
}

/* --- playing it --- */

static void model_turn(struct model *m)
{
    static const uint64_t shares[] = {1, 150, 400, 10 * ONE_SUBSCRIPTION};
    uint64_t share = shares[below(m, 4)];
    events_min_live(&m->f.e, m->min_live, 7);
    if (share < 10 * ONE_SUBSCRIPTION) { /* then each lane may end it with more than fits */
        (void)events_publish(&m->f.e, share);
    } else {
        (void)turn(&m->f, share);
    }
    hear_all(m);
}

static void model_step(struct model *m)
{
    unsigned client = below(m, MODEL_CLIENTS);
    switch (below(m, 100)) {
    case 0:
        client_ends(m, client);
        break;
    case 1:
        m->f.client[client].full = m->f.client[client].subscriber != NULL;
        break;
    case 2:
        if (below(m, 4) == 0) {
            model_resync(m);
        }
        break;
    default:
        if (below(m, 3) == 0) {
            size_t topic = below(m, TOPICS);
            model_change(m, client, topic == COSTLY && below(m, 4) > 0 ? 0 : topic);
        }
        if (below(m, 3) == 0) {
            model_event(m);
        }
        if (below(m, 8) == 0) {
            m->min_live_at[++m->min_live] = m->at;
        }
    }
}

static void nothing_is_left(struct model *m)
{
    events_min_live(&m->f.e, m->min_live, 7);
    while (turn(&m->f, 10 * ONE_SUBSCRIPTION)) {
    }
    hear_all(m);
    for (size_t i = 0; i < MODEL_CLIENTS * TOPICS; i++) {
        const struct model_sub *s = &m->sub[i / TOPICS][i % TOPICS];
        assert_int_equal(s->n, 0);
        if (s->is && matches(i % TOPICS, EVENTS_MIN_LIVE_CHANNEL)) {
            assert_int_equal(s->min_live, m->min_live);
        }
    }
}

TEST(test_everybody_hears_everything)
{
    static struct model m;
    m.rng = rng_seed();
    start_many(&m.f, MODEL_CLIENTS);
    m.min_live = 1;
    for (unsigned i = 1; i <= ROUNDS; i++) {
        model_step(&m);
        if (below(&m, 2) == 0) {
            model_turn(&m);
        }
        if (below(&m, 50) == 0) {
            nothing_is_left(&m);
        }
    }
    nothing_is_left(&m);
    print_message("%u events, %llu messages\n", m.at, (unsigned long long)m.f.e.counts.messages);
    end(&m.f);
    for (size_t i = 0; i < MODEL_CLIENTS * TOPICS; i++) {
        free(m.sub[i / TOPICS][i % TOPICS].due);
    }
}
