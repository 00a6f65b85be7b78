/* test_signals.c: BLPOP of python-redis-lock, which waits until a lock is let go. */
#include "fake.h"

#include <stdio.h>

#include "server/dispatch_private.h"

static int setup_frontdoor(void **state)
{
    static const struct frontdoor_context frontdoor = {.pattern = NULL};
    int rc = fake_setup(state);
    ((struct fake *)*state)->d->config.frontdoor = &frontdoor;
    return rc;
}

/* A lock that is let go often, in one entry, while many BLPOPs ask about it: each of them is passed
 * once, and answered with its query. */
TEST_WITH(fired_signals_are_passed_once, setup_frontdoor, fake_teardown)
{
    enum { N = 8 };
    struct fake *f = *state;
    struct asked *a[N];
    struct machine_event released = {.type = MACHINE_EVENT_RELEASED,
                                     .name = {(const uint8_t *)"lock:x", 6}};
    for (unsigned i = 0; i < N; i++) {
        a[i] = ask(f, 2, "BLPOP lock-signal:x 60");
    }
    dispatch_event(f->d, &released);
    assert_true(fli_list_empty(&f->d->signals.waiting));
    assert_int_equal(f->d->signals.names.len, 0);
    dispatch_event(f->d, &released);
    assert_int_equal(f->d->signals.n, N);
    for (unsigned i = 0; i < N; i++) {
        expect_nothing(a[i]);
        result(&f->sent[i], (struct machine_result){.code = MACHINE_HELD});
        expect(a[i], "*2\r\n$13\r\nlock-signal:x\r\n$1\r\n1\r\n");
    }
    assert_int_equal(f->d->signals.n, 0);
}

static void release(struct fake *f, const char *name)
{
    struct machine_event e = {.type = MACHINE_EVENT_RELEASED,
                              .name = {(const uint8_t *)name, strlen(name)}};
    dispatch_event(f->d, &e);
    dispatch_turn(f->d);
}

static void count_calls(void *ctx, struct fli_map_node *node)
{
    unsigned n = 0;
    FLI_LIST_FOREACH(link, &FLI_CONTAINER_OF(node, struct signal_name, node)->waiters)
    {
        n++;
    }
    assert_int_equal(n, 2);
    ++*(unsigned *)ctx;
}

/* The end of a hold inspects those who wait for its lock, and nobody who waits for another one,
 * whatever its name. Each name that is waited for has an entry of its own, as long as that lasts.
 */
TEST_WITH(signals_are_found_by_their_lock, setup_frontdoor, fake_teardown)
{
    enum { NAMES = 20 };
    struct fake *f = *state;
    struct asked *a[2 * NAMES];
    char text[64];
    for (unsigned i = 0; i < 2 * NAMES; i++) {
        (void)snprintf(text, sizeof text, "BLPOP lock-signal:x%u 60", i % NAMES);
        a[i] = ask(f, 2, text);
        result(last_sent(f), (struct machine_result){.code = MACHINE_HELD});
    }
    unsigned names = 0;
    fli_map_each(&f->d->signals.names, count_calls, &names);
    assert_int_equal(names, NAMES);
    release(f, "lock:x");
    release(f, "lock:x7");
    assert_int_equal(f->d->signals.names.len, NAMES - 1);
    for (unsigned i = 0; i < 2 * NAMES; i++) {
        assert_int_equal(a[i]->answered, i % NAMES == 7);
    }
    expect(a[7], "*2\r\n$14\r\nlock-signal:x7\r\n$1\r\n1\r\n");
    dispatch_cancel(f->d, &a[8]->slot);
    assert_int_equal(f->d->signals.names.len, NAMES - 1);
    dispatch_cancel(f->d, &a[8 + NAMES]->slot);
    assert_int_equal(f->d->signals.names.len, NAMES - 2);
    f->now_ms += 60000; /* the time of all others is over */
    dispatch_turn(f->d);
    expect(a[9], "*-1\r\n");
    assert_int_equal(f->d->signals.names.len, 0);
    assert_int_equal(f->d->signals.n, 0);
    struct asked *again = ask(f, 2, "BLPOP lock-signal:x7 60");
    release(f, "lock:x7");
    result(last_sent(f), (struct machine_result){.code = MACHINE_HELD});
    expect(again, "*2\r\n$14\r\nlock-signal:x7\r\n$1\r\n1\r\n");
}

#define MANY (2 * DISPATCH_TOLD_MAX + 1)

static uint64_t next_address(void *ctx, void *request)
{
    static uint64_t requests;
    return requests++ / SIGNALS_CONNECTION_MAX;
}

/* As many BLPOPs of one lock, each of them parked. Their addresses are many.
 * The caller frees them. */
static struct asked *park_many(struct fake *f)
{
    static const char *const words[] = {"BLPOP", "lock-signal:x", "60"};
    struct asked *many = calloc(MANY, sizeof *many);
    struct fli_slice argv[3];
    f->d->config.address = next_address;
    for (unsigned i = 0; i < 3; i++) {
        argv[i] = (struct fli_slice){(const uint8_t *)words[i], strlen(words[i])};
    }
    for (unsigned i = 0; i < MANY; i++) {
        many[i].fake = f;
        fli_buf_init(&many[i].reply, 64);
        dispatch_request(f->d, &many[i], &many[i].slot, 2, argv, 3);
        result(last_sent(f), (struct machine_result){.code = MACHINE_HELD});
        f->sent_n = 0;
    }
    assert_int_equal(f->d->signals.n, MANY);
    return many;
}

static unsigned answered(const struct asked *many)
{
    unsigned n = 0;
    for (unsigned i = 0; i < MANY; i++) {
        n += many[i].answered;
    }
    return n;
}

static void free_many(struct asked *many)
{
    for (unsigned i = 0; i < MANY; i++) {
        fli_buf_fini(&many[i].reply);
    }
    free(many);
}

/* How the waits of many end at one moment. */
enum ending { RELEASED, USERS_CHANGED, TIMED_OUT, STOPPED };

static void end_all(struct fake *f, enum ending how)
{
    struct machine_event e = {.type = how == RELEASED ? MACHINE_EVENT_RELEASED
                                                      : MACHINE_EVENT_USER_CHANGED,
                              .name = {(const uint8_t *)"lock:x", 6}};
    if (how == TIMED_OUT) {
        f->now_ms += 60000;
    } else if (how == STOPPED) {
        dispatch_stop(f->d);
    } else {
        dispatch_event(f->d, &e);
    }
}

/* An event comes from inside apply: it answers nobody, and each turn answers some. */
TEST(signals_end_in_parts)
{
    for (enum ending how = RELEASED; how <= TIMED_OUT; how++) {
        struct fake *f = NULL;
        assert_int_equal(setup_frontdoor((void **)&f), 0);
        struct asked *many = park_many(f);
        end_all(f, how);
        assert_int_equal(answered(many), 0);
        for (unsigned turns = 1; turns <= 3; turns++) {
            assert_true(dispatch_next_turn_ms(f->d) <= f->now_ms);
            assert_int_equal(f->d->signals.n, MANY - answered(many));
            dispatch_turn(f->d);
            assert_int_equal(answered(many), turns < 3 ? turns * DISPATCH_TOLD_MAX : MANY);
        }
        expect(&many[MANY - 1],
               how == TIMED_OUT ? "*-1\r\n" : "*2\r\n$13\r\nlock-signal:x\r\n$1\r\n1\r\n");
        assert_int_equal(dispatch_next_turn_ms(f->d), UINT64_MAX);
        free_many(many);
        fake_teardown((void **)&f);
    }
}

/* Whoever leaves while it stands in line for its answer hears what was true, or nothing. */
TEST_WITH(signals_that_leave_in_line, setup_frontdoor, fake_teardown)
{
    struct fake *f = *state;
    struct asked *many = park_many(f);
    end_all(f, RELEASED);
    dispatch_hangup(f->d, &many[0].slot);
    dispatch_cancel(f->d, &many[1].slot);
    expect(&many[0], "*2\r\n$13\r\nlock-signal:x\r\n$1\r\n1\r\n");
    end_all(f, RELEASED); /* nobody's any more */
    end_all(f, STOPPED);  /* answers the others at once */
    expect_nothing(&many[1]);
    assert_int_equal(answered(many), MANY - 1);
    assert_int_equal(f->d->signals.n, 0);
    free_many(many);
}
