/* test_overload.c: requests that cost much, and more requests than there is room for. */
#include "fake.h"

#include "machine/batch.h"
#include "server/dispatch_private.h"
#include "server/info.h"

#define BUSY "-BUSY too many commands are pending; nothing was done, try again in a moment\r\n"

static void answer_list(struct sent *s)
{
    failure(s, FL_EUNCERTAIN); /* any answer does */
}

TEST_WITH(few_listings_are_out_at_a_time, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *a[20];
    for (unsigned i = 0; i < 20; i++) {
        static const char *const lists[] = {
            "LOCKS MATCH *a*b COUNT 9", "SESSION LIST COUNT 9",
            "LOCKS MATCH *a*b COUNT 9", "SHOW n",
            "LOCKS MATCH *a*b COUNT 9", "SESSION SHOW owner-0123456789"};
        a[i] = ask(f, 2, lists[i % 6]);
    }
    assert_int_equal(f->sent_n, DISPATCH_LISTINGS_MAX);
    assert_int_equal(dispatch_next_turn_ms(f->d), f->now_ms + DISPATCH_LISTINGS_WAIT_MS);
    ask(f, 2, "CHECK n 1"); /* nothing else waits behind them */
    assert_int_equal(f->sent_n, DISPATCH_LISTINGS_MAX + 1);
    result(last_sent(f), (struct machine_result){.code = MACHINE_NO});
    answer_list(&f->sent[0]);
    assert_int_equal(f->sent_n, DISPATCH_LISTINGS_MAX + 1); /* not from inside a result */
    assert_int_equal(dispatch_next_turn_ms(f->d), 0);
    dispatch_turn(f->d);
    assert_int_equal(f->sent_n, DISPATCH_LISTINGS_MAX + 2);
    assert_int_equal(last_sent(f)->command.op, MACHINE_OP_LOCKS);
    assert_int_equal(last_sent(f)->command.value.len, 4); /* the pattern is still there */
    dispatch_cancel(f->d, &a[9]->slot);                   /* leaves while in line: never sent */
    for (unsigned i = 1; i < f->sent_n; i++) {
        if (f->sent[i].ticket != NULL) {
            answer_list(&f->sent[i]);
        }
        dispatch_turn(f->d);
    }
    assert_int_equal(f->sent_n, 20); /* 19 listings and the CHECK */
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(a[i]->answered, i != 9);
    }
}

static uint64_t listing_address;

static uint64_t listing_address_of(void *ctx, void *request)
{
    return listing_address;
}

static void ask_show(struct fake *f, struct asked *a, const char *name)
{
    struct fli_slice argv[] = {{(const uint8_t *)"SHOW", 4}, {(const uint8_t *)name, strlen(name)}};
    a->fake = f;
    fli_buf_init(&a->reply, 4096);
    dispatch_request(f->d, a, &a->slot, 2, argv, 2);
}

/* An address that has filled the line gives up its last for another one's first, which is next. */
TEST_WITH(addresses_take_turns_with_listings, fake_setup, fake_teardown)
{
    enum { MANY = DISPATCH_LISTINGS_MAX + DISPATCH_LISTINGS_WAIT_MAX };
    struct fake *f = *state;
    struct asked *many = calloc(MANY + 2, sizeof *many);
    assert_non_null(many);
    f->d->config.address = listing_address_of;
    listing_address = 1;
    for (unsigned i = 0; i <= MANY; i++) {
        assert_int_equal(f->d->listings_shares.taken,
                         i <= DISPATCH_LISTINGS_MAX ? 0 : i - DISPATCH_LISTINGS_MAX);
        ask_show(f, &many[i], "theirs");
    }
    expect(&many[MANY], BUSY);
    listing_address = 2;
    ask_show(f, &many[MANY + 1], "mine");
    expect_nothing(&many[MANY + 1]);
    expect(&many[MANY - 1], BUSY);
    expect_nothing(&many[MANY - 2]);
    answer_list(&f->sent[0]);
    answer_list(&f->sent[1]);
    dispatch_turn(f->d);
    assert_int_equal(f->sent_n, DISPATCH_LISTINGS_MAX + 2);
    assert_memory_equal(last_sent(f)->command.name.data, "mine", 4); /* and one of theirs */
    f->now_ms += DISPATCH_LISTINGS_WAIT_MS;
    dispatch_turn(f->d); /* the time of all in line is over */
    assert_int_equal(f->d->listings_shares.taken, 0);
    for (unsigned i = 2; i < f->sent_n; i++) {
        answer_list(&f->sent[i]);
    }
    for (unsigned i = 0; i < MANY + 2; i++) {
        assert_true(many[i].answered);
        fli_buf_fini(&many[i].reply);
    }
    free(many);
}

static bool everybody_is_behind(void *request)
{
    return true;
}

static unsigned many_in_flight(void *ctx, void *request)
{
    return DISPATCH_FEW + 1;
}

static unsigned few_in_flight(void *ctx, void *request)
{
    return DISPATCH_FEW;
}

/* Connections that have much in flight leave a quarter of the places to the others. */
TEST(places_are_kept_for_who_asks_little)
{
    enum { PLACES = 8, OF_MANY = 6 };
    struct fake f;
    fake_start_with(&f, PLACES);
    f.d->config.in_flight = many_in_flight;
    for (unsigned i = 0; i < OF_MANY; i++) {
        expect_nothing(ask(&f, 2, "CHECK n 1"));
    }
    expect(ask(&f, 2, "CHECK n 1"), BUSY);
    f.d->config.in_flight = few_in_flight;
    for (unsigned i = OF_MANY; i < PLACES; i++) {
        expect_nothing(ask(&f, 2, "RENEW n 7"));
    }
    expect(ask(&f, 2, "RENEW n 7"), BUSY);
    for (unsigned i = 0; i < PLACES; i++) {
        failure(&f.sent[i], FL_EUNCERTAIN);
    }
    fake_end(&f);
}

/* Lists for a client that has not read the last ones wait until it has, or their time is up. */
TEST_WITH(who_is_behind_waits, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    f->d->config.sink.behind = everybody_is_behind;
    struct asked *a = ask(f, 2, "SHOW n");
    struct asked *b = ask(f, 2, "SHOW n");
    dispatch_turn(f->d);
    assert_int_equal(f->sent_n, 0);
    assert_int_equal(dispatch_next_turn_ms(f->d), f->now_ms + DISPATCH_LISTINGS_POLL_MS);
    f->d->config.sink.behind = NULL;
    dispatch_turn(f->d);
    assert_int_equal(f->sent_n, 2);
    f->d->config.sink.behind = everybody_is_behind;
    struct asked *c = ask(f, 2, "SHOW n");
    f->now_ms += DISPATCH_LISTINGS_WAIT_MS;
    dispatch_turn(f->d);
    expect(c, BUSY);
    answer_list(&f->sent[0]);
    answer_list(&f->sent[1]);
    assert_true(a->answered && b->answered);
}

static const struct asked *slow; /* the first of many */
static unsigned slow_n, looked_at;

static bool the_slow_are_behind(void *request)
{
    const struct asked *a = request;
    looked_at++;
    return slow <= a && a < slow + slow_n;
}

/* Fills the line with requests of clients that do not read. Whether another one's is served? */
static void look_behind(struct fake *f, unsigned n, uint64_t address, bool served)
{
    struct asked *many = calloc(n + 1, sizeof *many);
    assert_non_null(many);
    f->d->config.address = listing_address_of;
    f->d->config.sink.behind = the_slow_are_behind;
    slow = many;
    slow_n = n;
    listing_address = 1;
    for (unsigned i = 0; i < n; i++) {
        ask_show(f, &many[i], "theirs");
    }
    listing_address = address;
    ask_show(f, &many[n], "mine");
    assert_int_equal(f->d->listings_shares.taken, n + 1);
    f->sent_n = 0;
    looked_at = 0;
    dispatch_turn(f->d);
    assert_int_equal(f->sent_n, served);
    assert_true(looked_at <= DISPATCH_LISTINGS_PASSED_MAX + 2);
    slow_n = 0;
    f->now_ms += DISPATCH_LISTINGS_WAIT_MS;
    dispatch_turn(f->d);
    assert_int_equal(f->d->listings_shares.taken, 0);
    if (served) {
        answer_list(&f->sent[0]);
    }
    for (unsigned i = 0; i <= n; i++) {
        assert_true(many[i].answered);
        fli_buf_fini(&many[i].reply);
    }
    free(many);
}

/* A turn passes over so many that one slow connection hides nobody of its address, and not over
 * all; those of other addresses have their turn in between. */
TEST_WITH(a_turn_passes_over_some, fake_setup, fake_teardown)
{
    look_behind(*state, DISPATCH_LISTINGS_PASSED_MAX - 1, 1, true);
    look_behind(*state, DISPATCH_LISTINGS_PASSED_MAX, 1, false);
    look_behind(*state, DISPATCH_LISTINGS_WAIT_MAX - 1, 1, false);
    look_behind(*state, DISPATCH_LISTINGS_WAIT_MAX - 1, 2, true);
}

TEST_WITH(who_stands_in_line_is_answered, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *a[DISPATCH_LISTINGS_MAX + 2];
    for (unsigned i = 0; i < DISPATCH_LISTINGS_MAX + 2; i++) {
        a[i] = ask(f, 2, "LOCKS");
    }
    f->now_ms += DISPATCH_LISTINGS_WAIT_MS - 1;
    dispatch_turn(f->d);
    expect_nothing(a[DISPATCH_LISTINGS_MAX]);
    f->now_ms++;
    dispatch_turn(f->d);
    expect(a[DISPATCH_LISTINGS_MAX], BUSY);
    expect(a[DISPATCH_LISTINGS_MAX + 1], BUSY);
    struct asked *last = ask(f, 2, "LOCKS"); /* the node stops meanwhile */
    f->submit_rc = FL_ENOLEADER;
    dispatch_stop(f->d);
    assert_true(last->answered);
    assert_memory_equal(last->reply.data, "-NOLEADER", 9);
    assert_int_equal(dispatch_next_turn_ms(f->d), UINT64_MAX);
    for (unsigned i = 0; i < DISPATCH_LISTINGS_MAX; i++) {
        answer_list(&f->sent[i]);
    }
}

TEST_WITH(the_line_has_an_end, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    static struct dispatch_slot slots[DISPATCH_LISTINGS_MAX + DISPATCH_LISTINGS_WAIT_MAX];
    const struct fli_slice word = {(const uint8_t *)"LOCKS", 5};
    for (unsigned i = 0; i < DISPATCH_LISTINGS_MAX + DISPATCH_LISTINGS_WAIT_MAX; i++) {
        struct asked unused = {.fake = f};
        dispatch_request(f->d, &unused, &slots[i], 2, &word, 1);
        assert_false(unused.answered);
        dispatch_cancel(f->d, &slots[i]);
    }
    expect(ask(f, 2, "LOCKS"), BUSY);
    for (unsigned i = 0; i < DISPATCH_LISTINGS_MAX; i++) {
        answer_list(&f->sent[i]);
    }
    dispatch_turn(f->d); /* nobody is left who wants to know */
    assert_int_equal(f->sent_n, DISPATCH_LISTINGS_MAX);
}

/* Requests that wait under one owner share one wait, so waits-max does not limit them. */
TEST(requests_are_limited)
{
    struct fake f;
    fake_start_with(&f, 3);
    struct asked *a[3];
    for (unsigned i = 0; i < 3; i++) {
        a[i] = ask(&f, 2, "ACQUIRE n WAIT 500 OWNER owner-0123456789");
        result(last_sent(&f), (struct machine_result){
                                  .code = MACHINE_QUEUED, .number = 1, .token = i + 1, .wait = 7});
    }
    expect(ask(&f, 2, "ACQUIRE n WAIT 500 OWNER owner-0123456789"), BUSY);
    expect(ask(&f, 2, "CHECK n 1"), BUSY);
    assert_int_equal(f.sent_n, 3);
    struct info_counts counts;
    dispatch_get_counts(f.d, &counts);
    assert_int_equal(counts.busy, 2);
    event(&f, MACHINE_EVENT_GRANTED, 7, 21, 0);
    for (unsigned i = 0; i < 3; i++) {
        expect(a[i], ":21\r\n");
    }
    ask(&f, 2, "CHECK n 1");
    assert_int_equal(f.sent_n, 4);
    result(last_sent(&f), (struct machine_result){.code = MACHINE_NO});
    fake_end(&f);
}

/* --- BLPOPs that wait --- */

static uint64_t asks_as[2]; /* the connection and the address of the next request */
static unsigned waiting_of[2 * SIGNALS_MAX];

static unsigned in_flight_of(void *ctx, void *request)
{
    return waiting_of[asks_as[0]] + 1;
}

static uint64_t address_of(void *ctx, void *request)
{
    return asks_as[1];
}

/* Whether a BLPOP gets a place. */
static bool waits(struct fake *f, struct dispatch_slot *slot)
{
    static const struct fli_slice words[] = {{(const uint8_t *)"BLPOP", 5},
                                             {(const uint8_t *)"lock-signal:x", 13},
                                             {(const uint8_t *)"0", 1}};
    struct asked unused = {.fake = f};
    fli_buf_init(&unused.reply, 4096);
    dispatch_request(f->d, &unused, slot, 2, words, 3);
    if (unused.answered) {
        expect(&unused, BUSY);
    } else {
        result(last_sent(f), (struct machine_result){.code = MACHINE_HELD});
        f->sent_n = 0;
        waiting_of[asks_as[0]]++;
    }
    fli_buf_fini(&unused.reply);
    return !unused.answered;
}

/* Fills what one address may have, with as many for each connection as it may have. */
static void fill_address(struct fake *f, struct dispatch_slot *slots)
{
    for (unsigned i = 0; i < SIGNALS_ADDRESS_MAX; i++) {
        asks_as[0] = 1 + i / SIGNALS_CONNECTION_MAX;
        assert_true(waits(f, &slots[i]));
        if ((i + 1) % SIGNALS_CONNECTION_MAX == 0) {
            assert_false(waits(f, &slots[SIGNALS_MAX])); /* the connection has enough */
        }
    }
}

TEST_WITH(who_waits_leaves_places_to_others, fake_setup, fake_teardown)
{
    static const struct frontdoor_context frontdoor = {.pattern = NULL};
    static struct dispatch_slot slots[SIGNALS_MAX + 1];
    struct fake *f = *state;
    f->d->config.frontdoor = &frontdoor;
    f->d->config.in_flight = in_flight_of;
    f->d->config.address = address_of;
    asks_as[1] = 1;
    fill_address(f, slots);
    asks_as[0] = SIGNALS_MAX;
    assert_false(waits(f, &slots[SIGNALS_MAX]));
    asks_as[1] = 2;
    for (unsigned i = SIGNALS_ADDRESS_MAX; i < SIGNALS_MAX; i++) {
        asks_as[0]++;
        assert_true(waits(f, &slots[i]));
    }
    asks_as[1] = 3;
    assert_false(waits(f, &slots[SIGNALS_MAX])); /* of all clients together */
    asks_as[0] = 1;
    asks_as[1] = 1;
    dispatch_cancel(f->d, &slots[0]);
    waiting_of[1]--;
    assert_true(waits(f, &slots[0])); /* its place is free again, and no other one */
    assert_false(waits(f, &slots[SIGNALS_MAX]));
    for (unsigned i = 0; i < SIGNALS_MAX; i++) {
        asks_as[1] = i < SIGNALS_ADDRESS_MAX ? 1 : 2;
        dispatch_cancel(f->d, &slots[i]);
    }
    for (unsigned i = 0; i < SIGNALS_ADDRESSES; i++) {
        assert_int_equal(f->d->signals.of_address[i], 0);
    }
}
