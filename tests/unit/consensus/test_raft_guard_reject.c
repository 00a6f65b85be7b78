/* test_raft_guard_reject.c: rejections that were overtaken, and those that were not; and peers that
 * raft must not talk to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "consensus/raft_guard.h"
#include "consensus/raft_guard_reject.h"

static void judge(raft_index match, raft_index rejected, raft_index last, enum guard_reject verdict,
                  raft_index last_after)
{
    struct raft_append_entries_result m = {.term = 3, .rejected = rejected, .last_log_index = last};
    assert_int_equal(guard_judge_reject(match, &m), verdict);
    assert_int_equal(m.rejected, rejected);
    assert_int_equal(m.last_log_index, last_after);
}

static void what_is_no_rejection_stays(void **state)
{
    judge(10, 0, 3, GUARD_REJECT_KEEP, 3);
    judge(0, 0, 0, GUARD_REJECT_KEEP, 0);
}

static void what_was_confirmed_cannot_be_rejected(void **state)
{
    judge(10, 1, 0, GUARD_REJECT_DROP, 0);
    judge(10, 10, 9, GUARD_REJECT_DROP, 9);
    judge(10, 11, 10, GUARD_REJECT_KEEP, 10);
    judge(0, 1, 0, GUARD_REJECT_KEEP, 0);
}

/* It sends the leader back no further than to what was confirmed. */
static void what_was_confirmed_is_there(void **state)
{
    judge(10, 12, 9, GUARD_REJECT_CORRECT, 10);
    judge(10, 12, 10, GUARD_REJECT_KEEP, 10);
    judge(10, 12, 11, GUARD_REJECT_KEEP, 11);
    judge(UINT64_MAX - 1, UINT64_MAX, 0, GUARD_REJECT_CORRECT, UINT64_MAX - 1);
}

/* ---- strangers: raft and its backend are only played ---- */

struct rig {
    struct raft raft;
    struct raft_io inner;
    struct raft_guard guard;
    raft_io_recv_cb recv;
    unsigned heard, sent, lost;
};

static int fake_init(struct raft_io *io, raft_id id, const char *address)
{
    return 0;
}

static int fake_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick,
                      raft_io_recv_cb recv)
{
    FLI_CONTAINER_OF(io, struct rig, inner)->recv = recv;
    return 0;
}

static int fake_send(struct raft_io *io, struct raft_io_send *req,
                     const struct raft_message *message, raft_io_send_cb cb)
{
    FLI_CONTAINER_OF(io, struct rig, inner)->sent++;
    return 0;
}

static void raft_tick(struct raft_io *io)
{
}

static void raft_recv(struct raft_io *io, struct raft_message *message)
{
    FLI_CONTAINER_OF((struct raft *)io->data, struct rig, raft)->heard++;
}

static void raft_lost(struct raft_io_send *req, int status)
{
    struct rig *r = req->data;
    assert_int_not_equal(status, 0);
    r->lost++;
}

static bool two_is_a_stranger(void *ctx, raft_id id)
{
    assert_non_null(ctx);
    return id == 2;
}

static void a_stranger_neither_hears_nor_is_heard(void **state)
{
    struct rig r = {0};
    r.inner =
        (struct raft_io){.version = 2, .init = fake_init, .start = fake_start, .send = fake_send};
    raft_guard_init(&r.guard, &r.inner, NULL, &r);
    struct raft_io *io = &r.guard.outer;
    r.raft.io = io;
    io->data = &r.raft;
    assert_int_equal(io->init(io, 1, "1"), 0);
    assert_int_equal(io->start(io, 100, raft_tick, raft_recv), 0);
    raft_guard_set_stranger(&r.guard, two_is_a_stranger);
    for (raft_id id = 2; id <= 3; id++) {
        struct raft_message m = {.type = RAFT_REQUEST_VOTE, .server_id = id};
        struct raft_io_send req = {.data = &r};
        r.recv(&r.inner, &m);
        assert_int_equal(io->send(io, &req, &m, raft_lost), 0);
    }
    assert_int_equal(r.heard, 1);
    assert_int_equal(r.sent, 1);
    assert_int_equal(r.lost, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_rejection_stays),
        cmocka_unit_test(what_was_confirmed_cannot_be_rejected),
        cmocka_unit_test(what_was_confirmed_is_there),
        cmocka_unit_test(a_stranger_neither_hears_nor_is_heard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
