/* test_many_waits.c: many waits that end at one moment: each turn has its share of them. And what
 * may happen to a request meanwhile. Each answer exactly once (the sink of fake.c checks that). */
#include "waits.h"

#include "server/dispatch_private.h"

/* --- many waits that end at one moment --- */

#define MANY (2 * DISPATCH_DUE_MAX + 1)

/* As many requests, parked on `waits` waits by turns. The caller frees them. */
static struct asked *park_many_on(struct fake *f, const char *owner, unsigned waits)
{
    struct asked *many = calloc(MANY, sizeof *many);
    const char *words[] = {"ACQUIRE", "n", "WAIT", "3000", "OWNER", owner};
    struct fli_slice argv[6];
    unsigned argc = owner == NULL ? 4 : 6;
    for (unsigned i = 0; i < argc; i++) {
        argv[i] = (struct fli_slice){(const uint8_t *)words[i], strlen(words[i])};
    }
    for (unsigned i = 0; i < MANY; i++) {
        struct machine_result r = queued;
        r.wait = WAIT + i % waits;
        many[i].fake = f;
        fli_buf_init(&many[i].reply, 4096);
        dispatch_request(f->d, &many[i], &many[i].slot, 2, argv, argc);
        result(last_sent(f), r);
        f->sent_n = 0;
    }
    assert_int_equal(parked(f), MANY);
    return many;
}

/* Each on a wait of its own. */
static struct asked *park_many(struct fake *f, const char *owner)
{
    return park_many_on(f, owner, MANY);
}

static void expect_answered(const struct asked *many, unsigned n)
{
    unsigned answered = 0;
    for (unsigned i = 0; i < MANY; i++) {
        answered += many[i].answered;
    }
    assert_int_equal(answered, n);
}

static void free_many(struct asked *many)
{
    for (unsigned i = 0; i < MANY; i++) {
        fli_buf_fini(&many[i].reply);
    }
    free(many);
}

TEST_WITH(many_that_are_due_end_in_parts, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *many = park_many(f, OWNER);
    f->now_ms += 3000 + DISPATCH_SLACK_DEFAULT_MS;
    for (unsigned turns = 1; turns <= 3; turns++) {
        assert_true(dispatch_next_turn_ms(f->d) <= f->now_ms);
        dispatch_turn(f->d);
        expect_answered(many, turns < 3 ? turns * DISPATCH_DUE_MAX : MANY);
    }
    assert_int_equal(dispatch_next_turn_ms(f->d), UINT64_MAX);
    free_many(many);
}

TEST_WITH(many_that_a_snapshot_ended_end_in_parts, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *many = park_many(f, OWNER);
    f->machine = machine_with_a_wait(); /* nobody's here */
    dispatch_restored(f->d);
    expect_answered(many, 0);
    apply_event(f, GRANTED, WAIT + MANY - 1, 9, 0); /* the last one is heard of in time */
    expect_answered(many, 0);
    for (unsigned turns = 1; turns <= 2; turns++) {
        assert_int_equal(dispatch_next_turn_ms(f->d), 0);
        dispatch_turn(f->d);
        expect_answered(many, 1 + turns * DISPATCH_DUE_MAX);
    }
    assert_int_equal(dispatch_next_turn_ms(f->d), UINT64_MAX);
    free_many(many);
    machine_destroy(f->machine);
    f->machine = NULL;
}

/* The memory of some thousands is kept for others, and not that of all there ever were. */
TEST_WITH(the_pools_are_bounded, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *many = park_many(f, OWNER);
    assert_int_equal(f->d->calls, MANY);
    assert_int_equal(f->d->parked.waits.len, MANY);
    assert_int_equal(f->d->spare_n, 0);
    for (unsigned i = 0; i < MANY; i++) {
        apply_event(f, GRANTED, WAIT + i, 9, 0);
    }
    while (dispatch_next_turn_ms(f->d) == 0) {
        dispatch_turn(f->d);
    }
    expect_answered(many, MANY);
    assert_int_equal(f->d->calls, 0);
    assert_int_equal(f->d->spare_n, DISPATCH_SPARE_MAX);
    assert_int_equal(f->d->parked.spare_n, PARKED_SPARE_MAX);
    free_many(many);
    many = park_many(f, OWNER); /* from the pools, and then anew */
    assert_int_equal(f->d->spare_n, 0);
    assert_int_equal(f->d->parked.spare_n, 0);
    dispatch_stop(f->d);
    expect_answered(many, MANY);
    free_many(many);
}

/* Waits whose owner this node made are cancelled, in parts as well; so are second attempts. */
TEST_WITH(cleanups_come_in_parts, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *many = park_many(f, NULL);
    for (unsigned i = 0; i < MANY; i++) {
        dispatch_cancel(f->d, &many[i].slot);
    }
    f->submit_rc = FL_EBUSY;
    for (unsigned turns = 1; turns <= 3; turns++) {
        assert_int_equal(dispatch_next_turn_ms(f->d), 0);
        dispatch_turn(f->d);
    }
    assert_int_equal(dispatch_next_turn_ms(f->d), f->now_ms + DISPATCH_CLEANUP_AGAIN_MS);
    f->now_ms += DISPATCH_CLEANUP_AGAIN_MS;
    for (unsigned turns = 1; turns <= 3; turns++) {
        assert_true(dispatch_next_turn_ms(f->d) <= f->now_ms);
        dispatch_turn(f->d);
    }
    assert_int_equal(dispatch_next_turn_ms(f->d), f->now_ms + DISPATCH_CLEANUP_AGAIN_MS);
    free_many(many);
}

static void leave_all(struct fake *f, struct asked *many)
{
    for (unsigned i = 0; i < MANY; i++) {
        dispatch_cancel(f->d, &many[i].slot);
    }
}

/* However much is left to clean up, little of it is with the node at a time; and it is told apart
 * from what clients ask. */
TEST_WITH(cleanups_have_a_budget, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *many = park_many(f, NULL);
    f->sent_n = 0;
    leave_all(f, many);
    for (unsigned turns = 0; turns < 3; turns++) {
        dispatch_turn(f->d);
        assert_int_equal(f->sent_n, DISPATCH_CLEANUP_MAX);
    }
    assert_true(dispatch_next_turn_ms(f->d) > f->now_ms); /* an answer wakes the loop */
    unsigned done = 0;
    while (f->sent_n > 0) {
        for (unsigned i = 0; i < f->sent_n; i++, done++) {
            assert_true(f->sent[i].ticket->source == NODE_SOURCE_CLEANUP);
            result(&f->sent[i], (struct machine_result){.code = MACHINE_DONE});
        }
        f->sent_n = 0;
        dispatch_turn(f->d);
        assert_true(f->sent_n <= DISPATCH_CLEANUP_MAX);
    }
    assert_int_equal(done, MANY);
    free_many(many);
}

/* --- many requests that one event answers --- */

/* An event comes from inside apply: it answers nobody, and each turn answers some. Until then they
 * count as parked. */
TEST_WITH(one_event_answers_many_in_parts, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *many = park_many_on(f, OWNER, 1);
    apply_event(f, GRANTED, WAIT, 9, 0);
    apply_event(f, GRANTED, WAIT, 9, 0); /* from the leader, and from the log */
    expect_answered(many, 0);
    for (unsigned told = 0; told < MANY;) {
        assert_int_equal(dispatch_next_turn_ms(f->d), 0);
        assert_int_equal(parked(f), MANY - told);
        dispatch_turn(f->d);
        told = told + DISPATCH_TOLD_MAX < MANY ? told + DISPATCH_TOLD_MAX : MANY;
        expect_answered(many, told);
    }
    expect(&many[0], ":9\r\n");
    expect(&many[MANY - 1], ":9\r\n");
    assert_int_equal(dispatch_next_turn_ms(f->d), UINT64_MAX);
    assert_int_equal(parked(f), 0);
    free_many(many);
}

/* Waits take turns: who waits alone does not stand behind all who wait together. */
TEST_WITH(who_waits_alone_is_told_with_the_first, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *many = park_many_on(f, OWNER, 1);
    struct machine_result r = queued;
    r.wait = WAIT + 1;
    struct asked *alone = ask(f, 2, NAMED);
    result(last_sent(f), r);
    apply_event(f, GRANTED, WAIT, 9, 0);
    apply_event(f, ENDED, WAIT + 1, 0, MACHINE_REASON_DEADLINE);
    dispatch_turn(f->d);
    expect(alone, "$-1\r\n");
    expect_answered(many, DISPATCH_TOLD_MAX - 1);
    dispatch_stop(f->d);
    expect_answered(many, MANY);
    expect(&many[MANY - 1], ":9\r\n");
    free_many(many);
}

/* --- what happens between an event and the answer --- */

enum between { NOTHING, DEADLINE, RESTORED, STOPS, HANGUP, DROP };

static void happen(struct fake *f, struct asked *a, enum between what)
{
    if (what == DEADLINE) {
        f->now_ms += 3000 + DISPATCH_SLACK_DEFAULT_MS;
    } else if (what == RESTORED) {
        dispatch_restored(f->d);
    } else if (what == STOPS) {
        dispatch_stop(f->d);
    } else if (what == HANGUP) {
        dispatch_hangup(f->d, &a->slot);
    } else if (what == DROP) {
        dispatch_cancel(f->d, &a->slot);
    }
}

/* The request is answered once, with what was true. Nothing is cancelled, since the wait has ended;
 * a token that nobody can have read, and nobody can ask for again, is given back. */
TEST(between_an_event_and_its_answer)
{
    for (unsigned row = 0; row <= DROP * 4 + 3; row++) {
        bool named = (row & 1) != 0;
        bool granted = (row & 2) != 0;
        enum between what = row / 4;
        struct fake f;
        fake_start(&f);
        f.machine = machine_with_a_wait(); /* another one */
        struct asked *a = ask_and_queue(&f, named ? NAMED : UNNAMED, 1);
        apply_event(&f, granted ? GRANTED : ENDED, WAIT, granted ? 9 : 0, MACHINE_REASON_DEADLINE);
        happen(&f, a, what);
        if (what == DROP) {
            expect_nothing(a);
        }
        bool gone = what == HANGUP || what == DROP;
        if (granted && !named && gone) {
            expect_release(&f, 1, 9);
            result(last_sent(&f), (struct machine_result){.code = MACHINE_DONE});
        } else {
            expect_no_cleanup(&f, 1);
        }
        if (what != DROP) {
            expect(a, granted && (named || !gone) ? ":9\r\n" : "$-1\r\n");
        }
        assert_int_equal(parked(&f), 0);
        assert_int_equal(dispatch_next_turn_ms(f.d), UINT64_MAX);
        struct info_counts counts;
        dispatch_get_counts(f.d, &counts);
        assert_int_equal(counts.timeouts, 0);
        fake_end(&f);
        machine_destroy(f.machine);
    }
}

/* The event was before the request that comes now, and does not answer it, although others still
 * stand in line for their answers to it. */
TEST_WITH(asked_again_while_others_are_told, fake_setup, fake_teardown)
{
    struct fake *f = *state;
    struct asked *a = ask_and_queue(f, NAMED, 1);
    struct asked *under_way = ask(f, 2, NAMED);
    struct sent *sent = last_sent(f);
    apply_event(f, GRANTED, WAIT, 9, 0);
    result(sent, queued); /* the ring has it: at once */
    expect(under_way, ":9\r\n");
    expect_nothing(a);
    struct asked *late = ask_and_queue(f, NAMED, 2);
    dispatch_turn(f->d);
    expect(a, ":9\r\n");
    expect_nothing(late);
    event(f, GRANTED, WAIT, 9, 0);
    expect(late, ":9\r\n");
}
