/* test_raft_guard_put.c: a snapshot whose bytes come later: the guard keeps raft's write until they
 * are there. Raft and the backend are only played. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "consensus/raft_guard.h"

struct rig {
    struct raft raft;
    struct raft_io inner;
    struct raft_guard guard;
    struct raft_io_snapshot_put put; /* raft's request */
    struct raft_io_snapshot_put *inner_put;
    raft_io_recv_cb recv;
    raft_io_close_cb close_cb;
    int next_rv; /* what the backend answers */
    unsigned trailing, messages, closes, fatals;
    int status; /* what raft was told of its write; 1: nothing yet */
};

static struct rig *rig_of(struct raft_io *inner)
{
    return FLI_CONTAINER_OF(inner, struct rig, inner);
}

static int fake_init(struct raft_io *io, raft_id id, const char *address)
{
    return 0;
}

static int fake_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick,
                      raft_io_recv_cb recv)
{
    rig_of(io)->recv = recv;
    return 0;
}

static int fake_put(struct raft_io *io, unsigned trailing, struct raft_io_snapshot_put *req,
                    const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb cb)
{
    struct rig *r = rig_of(io);
    req->cb = cb;
    r->inner_put = r->next_rv == 0 ? req : NULL;
    r->trailing = trailing;
    return r->next_rv;
}

static void fake_close(struct raft_io *io, raft_io_close_cb cb)
{
    rig_of(io)->close_cb = cb;
}

static void raft_tick(struct raft_io *io)
{
    fail_msg("nothing ticks here");
}

static void raft_recv(struct raft_io *io, struct raft_message *message)
{
    FLI_CONTAINER_OF(io, struct rig, guard.outer)->messages++;
}

static void raft_closed(struct raft_io *io)
{
    FLI_CONTAINER_OF(io, struct rig, guard.outer)->closes++;
}

static void raft_put_done(struct raft_io_snapshot_put *req, int status)
{
    FLI_CONTAINER_OF(req, struct rig, put)->status = status;
}

static void on_fatal(void *ctx, int error, const char *message)
{
    struct rig *r = ctx;
    r->fatals++;
}

static struct rig rig;

static int set_up(void **state)
{
    struct rig *r = &rig;
    memset(r, 0, sizeof *r);
    r->inner = (struct raft_io){.version = 2,
                                .init = fake_init,
                                .start = fake_start,
                                .close = fake_close,
                                .snapshot_put = fake_put};
    r->status = 1;
    raft_guard_init(&r->guard, &r->inner, on_fatal, r);
    r->raft.io = &r->guard.outer;
    r->guard.outer.data = &r->raft;
    assert_int_equal(r->guard.outer.init(&r->guard.outer, 1, "1"), 0);
    assert_int_equal(r->guard.outer.start(&r->guard.outer, 100, raft_tick, raft_recv), 0);
    *state = r;
    return 0;
}

static void put(struct rig *r, unsigned trailing)
{
    struct raft_io *io = &r->guard.outer;
    assert_int_equal(io->snapshot_put(io, trailing, &r->put, NULL, raft_put_done), 0);
}

static void close_and_end(struct rig *r)
{
    r->guard.outer.close(&r->guard.outer, raft_closed);
    assert_int_equal(r->status, RAFT_CANCELED);
    r->close_cb(&r->inner);
    assert_int_equal(r->closes, 1);
}

static void it_waits_for_its_bytes(void **state)
{
    struct rig *r = *state;
    raft_guard_hold_put(&r->guard);
    put(r, 9);
    assert_null(r->inner_put);
    /* A snapshot of the leader is held off as long, and what it owns is freed. */
    struct raft_message m = {.type = RAFT_INSTALL_SNAPSHOT};
    raft_configuration_init(&m.install_snapshot.conf);
    m.install_snapshot.data.base = raft_malloc(16);
    r->recv(&r->inner, &m);
    assert_int_equal(r->messages, 0);
    raft_guard_put_ready(&r->guard);
    assert_non_null(r->inner_put);
    assert_int_equal(r->trailing, 9);
    assert_int_equal(r->status, 1);
    r->inner_put->cb(r->inner_put, 0);
    assert_int_equal(r->status, 0);
}

static void the_next_one_does_not_wait(void **state)
{
    struct rig *r = *state;
    it_waits_for_its_bytes(state);
    put(r, 8);
    assert_int_equal(r->trailing, 8);
    r->inner_put->cb(r->inner_put, 0);
}

static void it_ends_with_the_close(void **state)
{
    struct rig *r = *state;
    raft_guard_hold_put(&r->guard);
    put(r, 9);
    close_and_end(r);
    assert_int_equal(r->fatals, 0);
}

static void a_refusal_after_the_wait_is_fatal(void **state)
{
    struct rig *r = *state;
    raft_guard_hold_put(&r->guard);
    put(r, 9);
    r->next_rv = RAFT_NOMEM;
    raft_guard_put_ready(&r->guard);
    assert_int_equal(r->fatals, 1);
    assert_int_equal(r->status, 1);
    raft_guard_put_ready(&r->guard); /* changes nothing any more */
    assert_int_equal(r->fatals, 1);
    close_and_end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(it_waits_for_its_bytes, set_up),
        cmocka_unit_test_setup(the_next_one_does_not_wait, set_up),
        cmocka_unit_test_setup(it_ends_with_the_close, set_up),
        cmocka_unit_test_setup(a_refusal_after_the_wait_is_fatal, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
