/* test_waiting.c: requests that wait, and clients that leave: each race, each answer exactly once
 * (the sink of fake.c checks that). */
#include "waits.h"

#include "server/dispatch_private.h"
#include "server/parked.h"

/* A request whose client is gone before its wait ends: it is cancelled. */
static struct asked *ask_and_drop_unnamed(struct fake *f)
{
    struct asked *a = ask_and_queue(f, UNNAMED, 1);
    dispatch_cancel(f->d, &a->slot);
    expect_cancel(f, 1, 1);
    return a;
}

/* --- the event --- */

TEST_WITH(granted_after_queued, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *a = ask_and_queue(f, NAMED, 1);
    expect_nothing(a);
    assert_int_equal(parked(f), 1);
    event(f, GRANTED, WAIT + 1, 8, 0); /* somebody else's */
    event(f, MACHINE_EVENT_QUEUED, WAIT, 0, 0);
    event(f, MACHINE_EVENT_RELEASED, 0, 8, 0);
    expect_nothing(a);
    event(f, GRANTED, WAIT, 9, 0);
    expect(a, ":9\r\n");
    assert_int_equal(parked(f), 0);
    event(f, GRANTED, WAIT, 9, 0); /* the log brings what the leader told before */
    expect_no_cleanup(f, 1);
}

TEST(ended_after_queued)
{
    static const struct {
        int proto;
        uint8_t reason;
        const char *reply;
    } rows[] = {
        {2, MACHINE_REASON_DEADLINE, "$-1\r\n"},
        {3, MACHINE_REASON_DEADLINE, "_\r\n"},
        {2, MACHINE_REASON_CANCEL, "$-1\r\n"},
        {2, MACHINE_REASON_SESSION,
         "-NOSESSION there is no such session: it was closed, has expired, or was never opened; "
         "open one with SESSION OPEN\r\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fake f;
        fake_start(&f);
        struct asked *a = ask(&f, rows[i].proto, NAMED);
        result(last_sent(&f), queued);
        event(&f, ENDED, WAIT, 0, rows[i].reason);
        expect(a, rows[i].reply);
        fake_end(&f);
    }
}

TEST(event_before_queued)
{
    for (int granted = 0; granted <= 1; granted++) {
        struct fake f;
        fake_start(&f);
        struct asked *a = ask(&f, 2, NAMED);
        event(&f, granted ? GRANTED : ENDED, WAIT, granted ? 9 : 0, MACHINE_REASON_DEADLINE);
        expect_nothing(a);
        result(last_sent(&f), queued);
        expect(a, granted ? ":9\r\n" : "$-1\r\n");
        assert_int_equal(parked(&f), 0);
        fake_end(&f);
    }
}

/* The event answers the request that is parked, and also the one whose QUEUED is under way. */
TEST(event_between_two_queued)
{
    for (int granted = 0; granted <= 1; granted++) {
        struct fake f;
        fake_start(&f);
        struct machine_result second = queued;
        second.token = 2;
        struct asked *a = ask_and_queue(&f, NAMED, 1);
        struct asked *again = ask(&f, 2, NAMED);
        event(&f, granted ? GRANTED : ENDED, WAIT, granted ? 9 : 0, MACHINE_REASON_DEADLINE);
        expect(a, granted ? ":9\r\n" : "$-1\r\n");
        expect_nothing(again);
        result(last_sent(&f), second);
        expect(again, granted ? ":9\r\n" : "$-1\r\n");
        assert_int_equal(parked(&f), 0);
        expect_no_cleanup(&f, 2);
        fake_end(&f);
    }
}

/* What happened before the request was sent cannot be about it. */
TEST_WITH(old_events_do_not_answer, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    event(f, GRANTED, WAIT, 9, 0); /* nobody asks: not remembered at all */
    struct asked *other = ask(f, 2, NAMED);
    struct sent *other_sent = last_sent(f);
    event(f, GRANTED, WAIT, 9, 0); /* remembered for the other */
    struct asked *a = ask_and_queue(f, NAMED, 1);
    expect_nothing(a);
    result(other_sent, (struct machine_result){.code = MACHINE_HELD});
    expect(other, "$-1\r\n");
    event(f, GRANTED, WAIT, 10, 0);
    expect(a, ":10\r\n");
}

TEST(the_ring_is_bounded)
{
    for (unsigned more = 0; more <= 1; more++) {
        struct fake f;
        fake_start(&f);
        struct asked *a = ask(&f, 2, NAMED);
        event(&f, GRANTED, WAIT, 9, 0);
        for (unsigned i = 0; i < PARKED_RING - 1 + more; i++) {
            event(&f, GRANTED, 1000 + i, 100 + i, 0);
        }
        result(last_sent(&f), queued);
        if (more == 0) {
            expect(a, ":9\r\n");
        } else { /* overwritten: nobody knows how the wait has ended, and its client is told so */
            assert_memory_equal(a->reply.data, "-UNCERTAIN ", 11);
        }
        fake_end(&f);
    }
}

/* How the wait has ended by what the ring has: its newest event, if that is not before `since`. */
static struct parked_news search(const struct parked_news *events, uint64_t n, uint64_t wait,
                                 uint64_t since)
{
    for (uint64_t i = n; i > since && i + PARKED_RING > n; i--) {
        if (events[i - 1].wait == wait) {
            return events[i - 1];
        }
    }
    return (struct parked_news){.end = PARKED_WAITING, .wait = wait};
}

/* Each QUEUED asks the ring, most of them inside apply. It is asked by the wait's id, and answers
 * what a search through it finds. */
TEST(the_ring_is_asked_by_wait)
{
    enum { EVENTS = 5 * PARKED_RING, WAITS = 3 * PARKED_RING / 2 };
    static struct parked_news events[EVENTS];
    const uint64_t seed[2] = {1, 2};
    struct parked *p = malloc(sizeof *p);
    uint64_t random = 1;
    unsigned found = 0;
    parked_init(p, seed);
    (void)parked_request_sent(p);
    for (uint64_t n = 0; n < EVENTS; n++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t since = n - (random >> 33) % (n + 1 < 2 * PARKED_RING ? n + 1 : 2 * PARKED_RING);
        uint64_t wait = 1 + (random >> 20) % WAITS;
        struct parked_request r;
        struct parked_news expected = search(events, n, wait, since);
        struct parked_news news = parked_add(p, &r, wait, 1, since, 1);
        assert_int_equal(news.end, expected.end);
        assert_int_equal(news.token, expected.token);
        if (news.end == PARKED_WAITING) {
            (void)parked_remove(p, &r);
        }
        found += news.end != PARKED_WAITING;
        events[n] =
            (struct parked_news){.end = PARKED_GRANTED, .wait = 1 + random % WAITS, .token = n + 1};
        parked_end(p, &events[n]);
        assert_in_range(p->recent.len, 1, PARKED_RING);
    }
    assert_in_range(found, EVENTS / 8, EVENTS - EVENTS / 8);
    parked_request_answered(p);
    parked_fini(p);
    free(p);
}

TEST_WITH(several_requests_on_one_wait, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *a = ask_and_queue(f, NAMED, 1);
    struct asked *b = ask_and_queue(f, NAMED, 2);
    assert_int_equal(parked(f), 2);
    event(f, GRANTED, WAIT, 9, 0);
    expect(a, ":9\r\n");
    expect(b, ":9\r\n");
}

/* --- nothing comes --- */

TEST_WITH(deadline_at_its_edge, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *a = ask_and_queue(f, NAMED, 1);
    uint64_t due = 1000 + 3000 + DISPATCH_SLACK_DEFAULT_MS;
    assert_int_equal(dispatch_next_turn_ms(f->d), due);
    f->now_ms = due - 1;
    dispatch_turn(f->d);
    expect_nothing(a);
    f->now_ms = due;
    dispatch_turn(f->d);
    assert_true(a->answered);
    assert_memory_equal(a->reply.data, "-UNCERTAIN ", 11);
    assert_int_equal(dispatch_next_turn_ms(f->d), UINT64_MAX);
    event(f, GRANTED, WAIT, 9, 0); /* too late, and harmless */
    expect_no_cleanup(f, 1);       /* asking again with the same owner finds it */
}

TEST_WITH(deadline_without_owner_cancels, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *a = ask_and_queue(f, UNNAMED, 1);
    f->now_ms += 3000 + DISPATCH_SLACK_DEFAULT_MS;
    expect_cancel(f, 1, 1);
    assert_memory_equal(a->reply.data, "-UNCERTAIN ", 11);
    result(last_sent(f), (struct machine_result){.code = MACHINE_DONE});
}

TEST_WITH(deadlines_in_order, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *a[3];
    static const char *const lines[] = {"ACQUIRE n OWNER " OWNER " WAIT 3000",
                                        "ACQUIRE n OWNER " OWNER " WAIT 1000",
                                        "ACQUIRE n OWNER " OWNER " WAIT 2000"};
    for (unsigned i = 0; i < 3; i++) {
        a[i] = ask(f, 2, lines[i]);
        struct machine_result r = queued;
        r.wait = WAIT + i;
        result(last_sent(f), r);
    }
    f->now_ms += 2000 + DISPATCH_SLACK_DEFAULT_MS;
    dispatch_turn(f->d);
    assert_true(a[1]->answered && a[2]->answered && !a[0]->answered);
    event(f, GRANTED, WAIT, 9, 0);
    expect(a[0], ":9\r\n");
}

/* --- the client leaves --- */

TEST_WITH(dropped_while_parked, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *a = ask_and_queue(f, NAMED, 3);
    dispatch_cancel(f->d, &a->slot);
    assert_int_equal(parked(f), 0);
    expect_cancel(f, 1, 3);
    result(last_sent(f), (struct machine_result){.code = MACHINE_DONE});
    event(f, ENDED, WAIT, 0, MACHINE_REASON_CANCEL);
    expect_nothing(a);
    struct info_counts counts;
    dispatch_get_counts(f->d, &counts);
    assert_int_equal(counts.cleaned_up, 1);
}

TEST_WITH(dropped_while_another_is_parked_on_the_wait, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *a = ask_and_queue(f, NAMED, 1);
    struct asked *b = ask_and_queue(f, NAMED, 2);
    dispatch_cancel(f->d, &b->slot);
    expect_no_cleanup(f, 2);
    assert_int_equal(parked(f), 1);
    /* When the last one leaves, the cancel names the highest asking, or it would be taken for an
     * old one and the place be kept for nobody. */
    dispatch_cancel(f->d, &a->slot);
    expect_cancel(f, 2, 2);
    result(last_sent(f), (struct machine_result){.code = MACHINE_DONE});
}

TEST_WITH(dropped_while_parked_then_granted_named, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *a = ask_and_queue(f, NAMED, 1);
    dispatch_cancel(f->d, &a->slot);
    event(f, GRANTED, WAIT, 9, 0); /* the cancel comes too late: the owner may come back */
    expect_cancel(f, 1, 1);
    result(last_sent(f), (struct machine_result){.code = MACHINE_NO});
    expect_no_cleanup(f, 2);
}

TEST_WITH(dropped_while_parked_then_granted_unnamed, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *a = ask_and_drop_unnamed(f);
    struct sent *cancel = last_sent(f);
    assert_int_equal(parked(f), 1); /* a ghost */
    event(f, GRANTED, WAIT, 9, 0);
    result(cancel, (struct machine_result){.code = MACHINE_NO});
    expect_release(f, 2, 9); /* nobody else can know the owner */
    event(f, GRANTED, WAIT, 9, 0);
    result(last_sent(f), (struct machine_result){.code = MACHINE_DONE});
    expect_no_cleanup(f, 3);
    expect_nothing(a);
}

TEST_WITH(dropped_while_parked_then_ended_unnamed, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    (void)ask_and_drop_unnamed(f);
    result(last_sent(f), (struct machine_result){.code = MACHINE_DONE});
    event(f, ENDED, WAIT, 0, MACHINE_REASON_CANCEL);
    assert_int_equal(parked(f), 0);
    expect_no_cleanup(f, 2);
}

TEST_WITH(ghosts_do_not_live_for_ever, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    (void)ask_and_drop_unnamed(f);
    result(last_sent(f), (struct machine_result){.code = MACHINE_DONE});
    f->now_ms += 3000 + DISPATCH_SLACK_DEFAULT_MS;
    expect_cancel(f, 2, 1);
    result(last_sent(f), (struct machine_result){.code = MACHINE_NO});
    assert_int_equal(parked(f), 0);
}

struct orphan {
    const char *ask;
    struct machine_result result;
    int status;
    uint8_t cleanup; /* 0, MACHINE_OP_CANCEL or MACHINE_OP_RELEASE */
};

TEST(dropped_in_flight)
{
    static const struct orphan rows[] = {
        {NAMED, {.code = MACHINE_QUEUED, .wait = WAIT, .token = 1}, 0, MACHINE_OP_CANCEL},
        {UNNAMED, {.code = MACHINE_QUEUED, .wait = WAIT, .token = 1}, 0, MACHINE_OP_CANCEL},
        {"ACQUIRE n SESSION s WAIT 5",
         {.code = MACHINE_QUEUED, .wait = WAIT, .token = 1},
         0,
         MACHINE_OP_CANCEL},
        /* The owner has asked at another node too, where its client may be waiting. */
        {NAMED, {.code = MACHINE_QUEUED, .wait = WAIT, .token = 2}, 0, 0},
        {"ACQUIRE n SESSION s WAIT 5", {.code = MACHINE_QUEUED, .wait = WAIT, .token = 2}, 0, 0},
        {NAMED, {.code = MACHINE_GRANTED, .token = 9}, 0, 0},
        {UNNAMED, {.code = MACHINE_GRANTED, .token = 9}, 0, MACHINE_OP_RELEASE},
        {"ACQUIRE n", {.code = MACHINE_GRANTED, .token = 9}, 0, MACHINE_OP_RELEASE},
        {"ACQUIRE n SESSION s", {.code = MACHINE_GRANTED, .token = 9}, 0, 0},
        {"ACQUIRE n", {.code = MACHINE_HELD}, 0, 0},
        {"TOKEN n", {.code = MACHINE_DONE, .token = 9}, 0, 0},
        {"RELEASE n 9", {.code = MACHINE_DONE}, 0, 0},
        {UNNAMED, {0}, FL_EUNCERTAIN, 0},
        {NAMED, {0}, FL_ENOLEADER, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fake f;
        fake_start(&f);
        struct asked *a = ask(&f, 2, rows[i].ask);
        dispatch_cancel(f.d, &a->slot);
        memset(a, 0xee, sizeof *a); /* its memory may be gone */
        f.asked_n = 0;
        struct sent *s = last_sent(&f);
        if (rows[i].status != 0) {
            failure(s, rows[i].status);
        } else {
            result(s, rows[i].result);
        }
        if (rows[i].cleanup == MACHINE_OP_CANCEL) {
            expect_cancel(&f, 1, 1);
        } else if (rows[i].cleanup == MACHINE_OP_RELEASE) {
            expect_release(&f, 1, 9);
        } else {
            expect_no_cleanup(&f, 1);
        }
        if (rows[i].cleanup != 0) {
            result(last_sent(&f), (struct machine_result){.code = MACHINE_DONE});
        }
        event(&f, ENDED, WAIT, 0, MACHINE_REASON_CANCEL);
        fake_end(&f);
    }
}

TEST(dropped_in_flight_and_already_granted)
{
    for (int named = 0; named <= 1; named++) {
        struct fake f;
        fake_start(&f);
        struct asked *a = ask(&f, 2, named ? NAMED : UNNAMED);
        dispatch_cancel(f.d, &a->slot);
        event(&f, GRANTED, WAIT, 9, 0);
        result(last_sent(&f), queued);
        if (named) {
            expect_no_cleanup(&f, 1);
        } else {
            expect_release(&f, 1, 9);
            result(last_sent(&f), (struct machine_result){.code = MACHINE_DONE});
        }
        fake_end(&f);
    }
}

/* It has been asked more than once. Only who says which attempt is which is known to have asked
 * last; another's place is kept. */
TEST(dropped_in_flight_and_asked_again)
{
    for (int counted = 0; counted <= 1; counted++) {
        struct fake f;
        fake_start(&f);
        struct asked *a = ask(&f, 2, counted ? NAMED " ATTEMPT 2" : NAMED);
        assert_int_equal(last_sent(&f)->command.number, counted ? 2 : 0);
        dispatch_cancel(f.d, &a->slot);
        struct machine_result r = queued;
        r.token = 2;
        result(last_sent(&f), r);
        if (counted) {
            expect_cancel(&f, 1, 2);
            result(last_sent(&f), (struct machine_result){.code = MACHINE_DONE});
        } else {
            expect_no_cleanup(&f, 1);
        }
        fake_end(&f);
    }
}

TEST_WITH(late_attempts_are_told, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *a = ask(f, 2, NAMED);
    result(last_sent(f), (struct machine_result){.code = MACHINE_LATE, .token = 3});
    assert_true(a->answered);
    assert_memory_equal(a->reply.data, "-LATE attempt 3 ", 16);
}

/* --- the client hangs up, and may still listen --- */

TEST(hangup_cancels_and_answers)
{
    for (int in_flight = 0; in_flight <= 1; in_flight++) {
        struct fake f;
        fake_start(&f);
        struct asked *a = ask(&f, 2, NAMED);
        if (in_flight) {
            dispatch_hangup(f.d, &a->slot);
            result(last_sent(&f), queued);
        } else {
            result(last_sent(&f), queued);
            dispatch_hangup(f.d, &a->slot);
        }
        dispatch_hangup(f.d, &a->slot); /* may be told twice */
        expect_cancel(&f, 1, 1);
        expect_nothing(a);
        result(last_sent(&f), (struct machine_result){.code = MACHINE_DONE});
        event(&f, ENDED, WAIT, 0, MACHINE_REASON_CANCEL);
        expect(a, "$-1\r\n");
        dispatch_hangup(f.d, &a->slot); /* answered: nothing to do */
        fake_end(&f);
    }
}

TEST(hangup_then_granted)
{
    for (int named = 0; named <= 1; named++) {
        struct fake f;
        fake_start(&f);
        struct asked *a = ask_and_queue(&f, named ? NAMED : UNNAMED, 1);
        dispatch_hangup(f.d, &a->slot);
        expect_cancel(&f, 1, 1);
        struct sent *cancel = last_sent(&f);
        event(&f, GRANTED, WAIT, 9, 0);
        result(cancel, (struct machine_result){.code = MACHINE_NO});
        expect(a, named ? ":9\r\n" : "$-1\r\n");
        if (named) {
            expect_no_cleanup(&f, 2);
        } else {
            expect_release(&f, 2, 9);
            result(last_sent(&f), (struct machine_result){.code = MACHINE_DONE});
        }
        fake_end(&f);
    }
}

TEST_WITH(hangup_then_drop, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *a = ask_and_queue(f, NAMED, 1);
    dispatch_hangup(f->d, &a->slot);
    dispatch_cancel(f->d, &a->slot);
    expect_cancel(f, 1, 1); /* once */
    result(last_sent(f), (struct machine_result){.code = MACHINE_DONE});
    assert_int_equal(parked(f), 0);
}

TEST_WITH(hangup_of_one_of_two, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *a = ask_and_queue(f, NAMED, 1);
    struct asked *b = ask_and_queue(f, NAMED, 2);
    dispatch_hangup(f->d, &a->slot);
    expect_no_cleanup(f, 2);
    dispatch_hangup(f->d, &b->slot);
    expect_cancel(f, 2, 2);
    result(last_sent(f), (struct machine_result){.code = MACHINE_DONE});
    event(f, ENDED, WAIT, 0, MACHINE_REASON_CANCEL);
    expect(a, "$-1\r\n");
    expect(b, "$-1\r\n");
}

/* --- taking back is tried again --- */

TEST_WITH(cleanup_is_tried_again, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *a = ask_and_queue(f, NAMED, 1);
    dispatch_cancel(f->d, &a->slot);
    expect_cancel(f, 1, 1);
    failure(last_sent(f), FL_EUNCERTAIN);
    expect_no_cleanup(f, 2);
    assert_int_equal(dispatch_next_turn_ms(f->d), f->now_ms + DISPATCH_CLEANUP_AGAIN_MS);
    f->now_ms += DISPATCH_CLEANUP_AGAIN_MS;
    expect_cancel(f, 2, 1);
    failure(last_sent(f), FL_ENOLEADER);
    f->submit_rc = FL_EBUSY;
    f->now_ms += DISPATCH_CLEANUP_AGAIN_MS;
    expect_no_cleanup(f, 3);
    f->submit_rc = 0;
    f->now_ms += DISPATCH_CLEANUP_AGAIN_MS;
    expect_cancel(f, 3, 1);
    result(last_sent(f), (struct machine_result){.code = MACHINE_DONE});
    assert_int_equal(dispatch_next_turn_ms(f->d), UINT64_MAX);
}

TEST_WITH(cleanup_is_not_tried_for_ever, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *a = ask_and_queue(f, NAMED, 1);
    dispatch_cancel(f->d, &a->slot);
    f->submit_rc = FL_ENOLEADER;
    unsigned tries = 0;
    while (dispatch_next_turn_ms(f->d) != UINT64_MAX) {
        tries++;
        dispatch_turn(f->d);
        f->now_ms += DISPATCH_CLEANUP_AGAIN_MS;
        assert_true(tries <= DISPATCH_CLEANUP_TRIES);
    }
    assert_int_equal(tries, DISPATCH_CLEANUP_TRIES);
}

/* --- a call that is parked cleans up with itself --- */

enum cancel_is { LISTED, SENT, AGAIN, CANCELS };

/* Leaves, and brings the cancel so far; returns it when it is with the node. */
static struct sent *leave_and_cancel(struct fake *f, struct asked *a, bool closes,
                                     enum cancel_is how)
{
    if (closes) {
        dispatch_cancel(f->d, &a->slot);
    } else {
        dispatch_hangup(f->d, &a->slot);
    }
    if (how == LISTED) {
        return NULL;
    }
    expect_cancel(f, 1, 1);
    struct sent *cancel = last_sent(f);
    if (how == AGAIN) {
        failure(cancel, FL_EUNCERTAIN);
        return NULL;
    }
    return cancel;
}

/* The end of the wait comes while its cancel is to be sent, is under way, or is to be sent again.
 * Then there is nothing to cancel any more, but a grant to an owner of this node's is given back,
 * once and after the cancel that is under way. Who named the owner and is gone is not parked, so
 * its cancel goes on. The call is freed in each case. */
TEST(an_end_comes_beside_the_cancel)
{
    for (unsigned row = 0; row < CANCELS * 8; row++) {
        bool named = (row & 1) != 0;
        bool granted = (row & 2) != 0;
        bool closes = (row & 4) != 0;
        enum cancel_is how = row / 8;
        struct fake f;
        fake_start(&f);
        struct asked *a = ask_and_queue(&f, named ? NAMED : UNNAMED, 1);
        struct sent *cancel = leave_and_cancel(&f, a, closes, how);
        unsigned sent = f.sent_n;
        event(&f, granted ? GRANTED : ENDED, WAIT, granted ? 9 : 0, MACHINE_REASON_CANCEL);
        if (how == SENT) {
            assert_int_equal(f.sent_n, sent);
            result(cancel, (struct machine_result){.code = MACHINE_NO});
        }
        if (granted && !named) {
            expect_release(&f, sent, 9);
            result(last_sent(&f), (struct machine_result){.code = MACHINE_DONE});
        } else if (named && closes && how != SENT) {
            f.now_ms += how == AGAIN ? DISPATCH_CLEANUP_AGAIN_MS : 0;
            expect_cancel(&f, sent, 1);
            result(last_sent(&f), (struct machine_result){.code = MACHINE_NO});
        } else {
            expect_no_cleanup(&f, sent);
        }
        if (!closes) {
            expect(a, granted && named ? ":9\r\n" : "$-1\r\n");
        }
        assert_int_equal(f.d->calls, 0);
        assert_int_equal(dispatch_next_turn_ms(f.d), UINT64_MAX);
        fake_end(&f);
    }
}

/* Clients that leave make no calls beyond the limit. Those of clients that are gone count for it
 * until what they asked for is taken back. */
TEST(who_leaves_takes_no_call)
{
    enum { N = 20 };
    struct fake f;
    struct asked *a[N];
    fake_start_with(&f, N);
    for (unsigned i = 0; i < N; i++) {
        a[i] = ask(&f, 2, i % 2 == 0 ? NAMED : UNNAMED);
        struct machine_result r = queued;
        r.wait = WAIT + i;
        result(last_sent(&f), r);
    }
    for (unsigned i = 0; i < N; i++) {
        dispatch_hangup(f.d, &a[i]->slot);
        assert_int_equal(f.d->calls, N);
    }
    dispatch_turn(f.d);
    assert_int_equal(f.sent_n, 2 * N);
    for (unsigned i = 0; i < N; i++) {
        dispatch_cancel(f.d, &a[i]->slot);
    }
    assert_int_equal(f.d->calls, N);
    assert_int_equal(parked(&f), N / 2); /* ghosts */
    struct asked *busy = ask(&f, 2, "CHECK n 1");
    assert_memory_equal(busy->reply.data, "-BUSY ", 6);
    for (unsigned i = 0; i < N; i++) {
        result(&f.sent[N + i], (struct machine_result){.code = MACHINE_DONE});
    }
    assert_int_equal(f.d->calls, N / 2);
    for (unsigned i = 0; i < N; i++) {
        event(&f, ENDED, WAIT + i, 0, MACHINE_REASON_CANCEL);
    }
    assert_int_equal(f.d->calls, 0);
    fake_end(&f);
}

/* --- the end --- */

TEST_WITH(stopping_answers_those_who_wait, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *named = ask_and_queue(f, NAMED, 1);
    struct asked *unnamed = ask(f, 2, UNNAMED);
    struct machine_result r = queued;
    r.wait = WAIT + 1;
    result(last_sent(f), r);
    struct asked *late = ask(f, 2, NAMED);
    struct sent *late_sent = last_sent(f);
    dispatch_stop(f->d);
    assert_memory_equal(named->reply.data, "-UNCERTAIN ", 11);
    assert_memory_equal(unnamed->reply.data, "-UNCERTAIN ", 11);
    assert_int_equal(last_sent(f)->command.op, MACHINE_OP_CANCEL);
    assert_int_equal(last_sent(f)->command.number, WAIT + 1);
    failure(last_sent(f), FL_ENOLEADER); /* not tried again */
    expect_nothing(late);
    result(late_sent, queued);
    assert_memory_equal(late->reply.data, "-UNCERTAIN ", 11);
    assert_int_equal(dispatch_next_turn_ms(f->d), UINT64_MAX);
}

TEST(destroyed_with_things_to_clean_up)
{
    struct fake f;
    fake_start(&f);
    struct asked *a = ask_and_queue(&f, UNNAMED, 1);
    dispatch_cancel(f.d, &a->slot);
    assert_int_equal(parked(&f), 1);
    fake_end(&f); /* a ghost and a cancel: neither may leak */
}

/* --- a snapshot that jumps over events --- */

TEST_WITH(a_snapshot_ends_waits_that_it_jumped_over, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    f->machine = machine_with_a_wait();
    struct asked *gone = ask_and_queue(f, NAMED, 1);
    struct asked *unnamed = ask(f, 2, UNNAMED);
    struct machine_result r = queued;
    r.wait = WAIT + 1;
    result(last_sent(f), r);
    struct asked *goes_on = ask(f, 2, NAMED);
    r.wait = 1;
    result(last_sent(f), r);
    struct asked *again = ask(f, 2, NAMED);
    struct sent *late = last_sent(f);
    dispatch_restored(f->d);
    expect_nothing(gone); /* not from inside a callback of the node */
    assert_int_equal(dispatch_next_turn_ms(f->d), 0);
    dispatch_turn(f->d);
    assert_memory_equal(gone->reply.data, "-UNCERTAIN", 10);
    assert_memory_equal(unnamed->reply.data, "-UNCERTAIN", 10);
    assert_int_equal(last_sent(f)->command.op, MACHINE_OP_CANCEL);
    assert_int_equal(last_sent(f)->command.number, WAIT + 1);
    result(last_sent(f), (struct machine_result){.code = MACHINE_NO});
    expect_nothing(goes_on);
    /* Its wait may have ended before the snapshot, whatever the local state says. */
    r.wait = 1;
    result(late, r);
    assert_memory_equal(again->reply.data, "-UNCERTAIN", 10);
    event(f, GRANTED, 1, 9, 0);
    expect(goes_on, ":9\r\n");
    machine_destroy(f->machine);
    f->machine = NULL;
}
