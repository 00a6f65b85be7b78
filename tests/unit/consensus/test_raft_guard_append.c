/* test_raft_guard_append.c: a write of entries that the backend would repeat with the wrong timer:
 * the guard ends it before. Raft and the backend are only played. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "consensus/raft_guard.h"

struct rig {
    struct raft raft;
    struct raft_io inner;
    struct raft_guard guard;
    struct raft_io_append req; /* raft's request */
    struct raft_io_append *inner_req;
    raft_io_append_cb inner_cb;
    raft_io_tick_cb tick;
    raft_time now;
    unsigned ticks, fatals;
    int status; /* what raft was told of its write; 1: nothing yet */
    char message[1024];
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
    rig_of(io)->tick = tick;
    return 0;
}

static raft_time fake_time(struct raft_io *io)
{
    return rig_of(io)->now;
}

static int fake_append(struct raft_io *io, struct raft_io_append *req,
                       const struct raft_entry entries[], unsigned n, raft_io_append_cb cb)
{
    rig_of(io)->inner_req = req;
    rig_of(io)->inner_cb = cb;
    return 0;
}

static void raft_tick(struct raft_io *io)
{
    FLI_CONTAINER_OF(io, struct rig, guard.outer)->ticks++;
}

static void raft_recv(struct raft_io *io, struct raft_message *message)
{
    fail_msg("nobody sends here");
}

static void raft_append_done(struct raft_io_append *req, int status)
{
    FLI_CONTAINER_OF(req, struct rig, req)->status = status;
}

static void on_fatal(void *ctx, int error, const char *message)
{
    struct rig *r = ctx;
    assert_int_equal(error, FL_EIO);
    r->fatals++;
    snprintf(r->message, sizeof r->message, "%s", message);
}

static struct rig rig;

static int set_up(void **state)
{
    struct rig *r = &rig;
    memset(r, 0, sizeof *r);
    r->inner = (struct raft_io){.version = 2,
                                .init = fake_init,
                                .start = fake_start,
                                .append = fake_append,
                                .time = fake_time};
    r->status = 1;
    raft_guard_init(&r->guard, &r->inner, on_fatal, r);
    raft_guard_set_path(&r->guard, "the/directory");
    r->raft.io = &r->guard.outer;
    r->guard.outer.data = &r->raft;
    assert_int_equal(r->guard.outer.init(&r->guard.outer, 1, "1"), 0);
    assert_int_equal(r->guard.outer.start(&r->guard.outer, 100, raft_tick, raft_recv), 0);
    *state = r;
    return 0;
}

static void append(struct rig *r)
{
    struct raft_io *io = &r->guard.outer;
    assert_int_equal(io->append(io, &r->req, NULL, 1, raft_append_done), 0);
}

static void say(struct rig *r, const char *text)
{
    snprintf(r->inner.errmsg, sizeof r->inner.errmsg, "%s", text);
}

static void let_time_pass(struct rig *r)
{
    r->now += 10;
    r->tick(&r->inner);
}

static void ends_in_order(struct rig *r, const char *said)
{
    append(r);
    let_time_pass(r);
    assert_int_equal(r->ticks, 1);
    assert_int_equal(r->fatals, 0);
    say(r, said);
    let_time_pass(r);
    let_time_pass(r);
    assert_int_equal(r->ticks, 1);
    assert_int_equal(r->fatals, 1);
    assert_non_null(strstr(r->message, "cannot write log entries to disk in the/directory"));
    assert_non_null(strstr(r->message, said));
    assert_int_equal(r->status, 1);
    r->inner_cb(r->inner_req, RAFT_CANCELED); /* by the close */
    assert_int_equal(r->status, RAFT_CANCELED);
    assert_int_equal(r->fatals, 1);
}

static void a_write_to_be_repeated_is_fatal(void **state)
{
    struct rig *r = *state;
    ends_in_order(r, "write failed: -5");
    assert_non_null(strstr(r->message, "(Input/output error)"));
}

static void a_short_write_is_fatal(void **state)
{
    ends_in_order(*state, "short write: 512 bytes instead of 4096");
}

/* A full disk, where the file of a segment cannot be made, is waited for; and a message is only
 * about a write when there is one. */
static void other_messages_are_not(void **state)
{
    struct rig *r = *state;
    say(r, "write failed: -5");
    let_time_pass(r);
    say(r, "create open-7: no space");
    append(r);
    let_time_pass(r);
    assert_int_equal(r->ticks, 2);
    assert_int_equal(r->fatals, 0);
    r->inner_cb(r->inner_req, 0);
    assert_int_equal(r->status, 0);
    say(r, "write failed: -5");
    let_time_pass(r);
    assert_int_equal(r->fatals, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_write_to_be_repeated_is_fatal, set_up),
        cmocka_unit_test_setup(a_short_write_is_fatal, set_up),
        cmocka_unit_test_setup(other_messages_are_not, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
