/* test_signals.c: BLPOP of python-redis-lock, which waits until a lock is let go. */
#include "fake.h"

#include <stdio.h>

#include "server/dispatch_private.h"

static int setup_face(void **state)
{
    static const struct dispatch_face face = {.pattern = NULL};
    int rc = fake_setup(state);
    ((struct fake *)*state)->d->config.face = &face;
    return rc;
}

/* A lock that is let go often, in one entry, while many BLPOPs ask about it: each of them is passed
 * once, and answered with its query. */
TEST_WITH(fired_signals_are_passed_once, setup_face, fake_teardown)
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
}

static void count_calls(void *ctx, struct fli_map_node *node)
{
    unsigned n = 0;
    FLI_LIST_FOREACH(link, &FLI_CONTAINER_OF(node, struct signal_name, node)->calls)
    {
        n++;
    }
    assert_int_equal(n, 2);
    ++*(unsigned *)ctx;
}

/* The end of a hold inspects those who wait for its lock, and nobody who waits for another one,
 * whatever its name. Each name that is waited for has an entry of its own, as long as that lasts.
 */
TEST_WITH(signals_are_found_by_their_lock, setup_face, fake_teardown)
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
