/* test_raft_guard_append.c: a write of entries that the backend would repeat with the wrong timer:
 * the guard ends it before; and writes that wait until messages have left. Raft and the backend are
 * only played. */
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
    int status;        /* what raft was told of its write; 1: nothing yet */
    char calls[16];    /* of the backend, in order: append, truncate, send, close */
    unsigned n;        /* entries of the last append */
    unsigned canceled; /* writes */
    int append_rv;
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

static void note(struct rig *r, char call)
{
    size_t len = strlen(r->calls);
    assert_true(len + 1 < sizeof r->calls);
    r->calls[len] = call;
}

static int fake_append(struct raft_io *io, struct raft_io_append *req,
                       const struct raft_entry entries[], unsigned n, raft_io_append_cb cb)
{
    struct rig *r = rig_of(io);
    note(r, 'a');
    r->n = n;
    if (r->append_rv == 0) {
        r->inner_req = req;
        r->inner_cb = cb;
    }
    return r->append_rv;
}

static int fake_truncate(struct raft_io *io, raft_index index)
{
    note(rig_of(io), 't');
    return 0;
}

static int fake_send(struct raft_io *io, struct raft_io_send *req,
                     const struct raft_message *message, raft_io_send_cb cb)
{
    note(rig_of(io), 's');
    return 0;
}

static void fake_close(struct raft_io *io, raft_io_close_cb cb)
{
    note(rig_of(io), 'c');
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
                                .truncate = fake_truncate,
                                .send = fake_send,
                                .close = fake_close,
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

static void message_lost(struct raft_io_send *req, int status)
{
    assert_int_not_equal(status, 0);
}

/* What raft does for an entry: it truncates nothing, appends, and sends to two followers. */
static void propose(struct rig *r, struct raft_io_append *req, unsigned n, raft_io_append_cb cb)
{
    struct raft_io *io = &r->guard.outer;
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES};
    static struct raft_io_send sends[2];
    assert_int_equal(io->truncate(io, 7), 0);
    assert_int_equal(io->append(io, req, NULL, n, cb), 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(io->send(io, &sends[i], &m, message_lost), 0);
    }
}

static void write_canceled(struct raft_io_append *req, int status)
{
    assert_int_equal(status, RAFT_CANCELED);
    rig.canceled++;
}

static void another_gets_entries_before_the_disk(void **state)
{
    struct rig *r = *state;
    propose(r, &r->req, 1, raft_append_done);
    assert_string_equal(r->calls, "tass");
    r->inner_cb(r->inner_req, 0);

    memset(r->calls, 0, sizeof r->calls);
    r->status = 1;
    raft_guard_delay_appends(&r->guard);
    propose(r, &r->req, 3, raft_append_done);
    assert_string_equal(r->calls, "tsas");
    assert_int_equal(r->n, 3);
    raft_guard_append_now(&r->guard);
    assert_string_equal(r->calls, "tsas");
    assert_int_equal(r->status, 1);
    r->inner_cb(r->inner_req, 0);
    assert_int_equal(r->status, 0);

    memset(r->calls, 0, sizeof r->calls);
    propose(r, &r->req, 1, raft_append_done);
    assert_string_equal(r->calls, "tass");
    r->inner_cb(r->inner_req, 0);
}

/* There is nobody to send to, or only what says nothing of entries. */
static void a_write_waits_no_longer_than_the_turn(void **state)
{
    struct rig *r = *state;
    struct raft_io *io = &r->guard.outer;
    struct raft_message vote = {.type = RAFT_REQUEST_VOTE_RESULT};
    struct raft_io_send send;
    raft_guard_delay_appends(&r->guard);
    append(r);
    assert_int_equal(io->send(io, &send, &vote, message_lost), 0);
    assert_string_equal(r->calls, "s");
    raft_guard_append_now(&r->guard);
    assert_string_equal(r->calls, "sa");
    r->inner_cb(r->inner_req, 0);
    assert_int_equal(r->status, 0);
    append(r); /* in no such turn */
    assert_string_equal(r->calls, "saa");
    r->inner_cb(r->inner_req, 0);
}

/* The backend takes one that it does not know of for nothing to truncate. */
static void a_waiting_write_goes_before_a_truncation(void **state)
{
    struct rig *r = *state;
    struct raft_io *io = &r->guard.outer;
    raft_guard_delay_appends(&r->guard);
    append(r);
    assert_string_equal(r->calls, "");
    assert_int_equal(io->truncate(io, 7), 0);
    assert_string_equal(r->calls, "at");
    raft_guard_append_now(&r->guard);
    assert_string_equal(r->calls, "at");
    r->inner_cb(r->inner_req, 0);
    assert_int_equal(r->status, 0);
}

static void a_waiting_write_that_is_refused_is_fatal(void **state)
{
    struct rig *r = *state;
    struct raft_io *io = &r->guard.outer;
    raft_guard_delay_appends(&r->guard);
    r->append_rv = RAFT_IOERR;
    propose(r, &r->req, 1, write_canceled);
    assert_int_equal(r->fatals, 1);
    assert_non_null(strstr(r->message, "cannot write log entries to disk"));
    assert_int_equal(r->canceled, 0);
    raft_guard_append_now(&r->guard);
    assert_string_equal(r->calls, "tsa"); /* deaf and dumb from here on */
    struct raft_io_append later;
    raft_guard_delay_appends(&r->guard);
    propose(r, &later, 1, write_canceled);
    raft_guard_append_now(&r->guard);
    assert_string_equal(r->calls, "tsa");
    assert_int_equal(r->canceled, 0);
    io->close(io, NULL);
    assert_int_equal(r->canceled, 2);
    assert_string_equal(r->calls, "tsac");
}

static void a_waiting_write_ends_with_the_close(void **state)
{
    struct rig *r = *state;
    struct raft_io *io = &r->guard.outer;
    struct raft_io_append second;
    raft_guard_delay_appends(&r->guard);
    r->append_rv = RAFT_CANCELED; /* the backend is closing */
    propose(r, &second, 1, write_canceled);
    assert_int_equal(r->fatals, 0);
    assert_int_equal(io->append(io, &r->req, NULL, 1, write_canceled), 0);
    io->close(io, NULL);
    assert_int_equal(r->canceled, 2);
    raft_guard_append_now(&r->guard);
    assert_string_equal(r->calls, "tsasc");
}

/* Raft truncates before each write; what has nothing behind it is no cut, and costs nothing. A cut
 * that cannot be noted (there is no such directory) does not reach the disk. */
static void a_cut_is_noted_first(void **state)
{
    struct rig *r = *state;
    struct raft_io *io = &r->guard.outer;
    assert_int_equal(io->append(io, &r->req, NULL, 10, raft_append_done), 0);
    r->inner_cb(r->inner_req, 0);
    assert_int_equal(io->truncate(io, 10), 0);
    assert_string_equal(r->calls, "at");
    assert_int_equal(r->fatals, 0);
    assert_int_equal(io->truncate(io, 9), 0);
    assert_string_equal(r->calls, "at");
    assert_int_equal(r->fatals, 1);
    assert_non_null(strstr(r->message, "cannot cut the log off"));
    assert_non_null(strstr(r->message, "the/directory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_write_to_be_repeated_is_fatal, set_up),
        cmocka_unit_test_setup(a_short_write_is_fatal, set_up),
        cmocka_unit_test_setup(other_messages_are_not, set_up),
        cmocka_unit_test_setup(a_cut_is_noted_first, set_up),
        cmocka_unit_test_setup(another_gets_entries_before_the_disk, set_up),
        cmocka_unit_test_setup(a_write_waits_no_longer_than_the_turn, set_up),
        cmocka_unit_test_setup(a_waiting_write_goes_before_a_truncation, set_up),
        cmocka_unit_test_setup(a_waiting_write_that_is_refused_is_fatal, set_up),
        cmocka_unit_test_setup(a_waiting_write_ends_with_the_close, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
