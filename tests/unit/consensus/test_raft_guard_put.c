/* test_raft_guard_put.c: a snapshot whose bytes come later: the guard keeps raft's write until they
 * are there; and the configuration that a snapshot is given. Raft and the backend are only
 * played. */
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
    raft_index label; /* of what the backend was given */
    unsigned servers;
    raft_index notes;  /* a change that raft takes in with a message; 0: none */
    raft_index commit; /* of the last message that raft had */
    int status;        /* what raft was told of its write; 1: nothing yet */
    struct raft_io_snapshot_get *inner_get;
    raft_time now_ms;
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
    r->label = snapshot == NULL ? 0 : snapshot->configuration_index;
    r->servers = snapshot == NULL ? 0 : snapshot->configuration.n;
    return r->next_rv;
}

static int fake_get(struct raft_io *io, struct raft_io_snapshot_get *req,
                    raft_io_snapshot_get_cb cb)
{
    struct rig *r = rig_of(io);
    req->cb = cb;
    r->inner_get = r->next_rv == 0 ? req : NULL;
    return r->next_rv;
}

static int fake_send(struct raft_io *io, struct raft_io_send *req,
                     const struct raft_message *message, raft_io_send_cb cb)
{
    return 0;
}

static raft_time fake_time(struct raft_io *io)
{
    return rig_of(io)->now_ms;
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
    struct rig *r = FLI_CONTAINER_OF(io, struct rig, guard.outer);
    r->messages++;
    r->commit = message->append_entries.leader_commit;
    if (r->notes != 0) {
        r->raft.configuration_uncommitted_index = r->notes;
        r->raft.follower_state.match =
            message->append_entries.prev_log_index + message->append_entries.n_entries;
    }
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
                                .send = fake_send,
                                .time = fake_time,
                                .snapshot_get = fake_get,
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

/* A change that the next one overtakes before raft has seen that it is committed. */
static void a_change_before_another_is_committed(void **state)
{
    struct rig *r = *state;
    struct raft_entry entry = {.type = RAFT_CHANGE};
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES};
    r->raft.state = RAFT_FOLLOWER;
    m.append_entries.prev_log_index = 90;
    m.append_entries.entries = &entry;
    m.append_entries.n_entries = 1;
    m.append_entries.leader_commit = 90;
    raft_configuration_init(&r->raft.configuration);
    raft_configuration_init(&r->raft.configuration_committed);
    assert_int_equal(raft_configuration_add(&r->raft.configuration, 7, "7", RAFT_SPARE), 0);
    r->raft.configuration_committed_index = 1;
    r->raft.configuration_uncommitted_index = 85;
    r->raft.commit_index = 80;
    /* Raft refuses it. */
    r->recv(&r->inner, &m);
    assert_int_equal(r->commit, 0);
    assert_int_equal(r->raft.configuration_committed_index, 1);
    /* It cuts the former one off. */
    r->notes = 85;
    m.append_entries.prev_log_index = 84;
    r->recv(&r->inner, &m);
    assert_int_equal(r->raft.configuration_committed_index, 1);
    /* It comes behind the former one. */
    r->notes = 91;
    m.append_entries.prev_log_index = 90;
    r->recv(&r->inner, &m);
    assert_int_equal(r->raft.configuration_committed_index, 85);
    assert_int_equal(r->raft.configuration_committed.n, 1);
    assert_int_equal(r->raft.configuration_committed.servers[0].id, 7);
    raft_configuration_close(&r->raft.configuration);
    raft_configuration_close(&r->raft.configuration_committed);
}

/* Our own log has a change at 162 and more behind it; a message of a leader that is over, or of one
 * whose log is another before it, has one at 167. */
static void a_change_that_raft_did_not_take_in_is_not_noted(void **state)
{
    struct rig *r = *state;
    struct raft_entry entries[3] = {
        {.type = RAFT_COMMAND}, {.type = RAFT_CHANGE}, {.type = RAFT_COMMAND}};
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES};
    m.append_entries.prev_log_index = 165;
    m.append_entries.entries = entries;
    m.append_entries.n_entries = 3;
    r->raft.configuration_uncommitted_index = 162;
    r->raft.commit_index = 160;
    r->raft.current_term = 9;
    for (unsigned i = 0; i < 3; i++) {
        r->raft.state = i == 0 ? RAFT_LEADER : RAFT_FOLLOWER;
        m.append_entries.term = i == 1 ? 8 : 9;
        r->raft.follower_state.match = i == 1 ? 170 : 0;
        r->recv(&r->inner, &m);
        assert_int_equal(r->raft.configuration_uncommitted_index, 162);
    }
    r->raft.follower_state.match = 168;
    r->recv(&r->inner, &m);
    assert_int_equal(r->raft.configuration_uncommitted_index, 167);
}

static void a_snapshot_has_the_configuration_of_its_last_change(void **state)
{
    struct rig *r = *state;
    struct raft_io *io = &r->guard.outer;
    struct raft_snapshot snapshot = {.index = 85, .configuration_index = 1};
    struct raft_guard_stats stats;
    raft_configuration_init(&r->raft.configuration);
    assert_int_equal(raft_configuration_add(&r->raft.configuration, 7, "7", RAFT_SPARE), 0);
    for (raft_index noted = 85; noted <= 86; noted++) {
        r->raft.configuration_uncommitted_index = noted;
        assert_int_equal(io->snapshot_put(io, 4, &r->put, &snapshot, raft_put_done), 0);
        assert_int_equal(r->label, noted == 85 ? 85 : 1);
        assert_int_equal(r->servers, noted == 85 ? 1 : 0);
        r->inner_put->cb(r->inner_put, 0);
    }
    raft_guard_get_stats(&r->guard, &stats);
    assert_int_equal(stats.labels_corrected, 1);
    raft_configuration_close(&r->raft.configuration);
}

static void raft_get_done(struct raft_io_snapshot_get *req, struct raft_snapshot *snapshot,
                          int status)
{
}

/* Whether raft hears of a follower that refuses what comes behind this index. */
static bool hears(struct rig *r, raft_index rejected)
{
    unsigned before = r->messages;
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES_RESULT,
                             .append_entries_result = {.rejected = rejected}};
    r->recv(&r->inner, &m);
    return r->messages > before;
}

/* While it is read nothing is refused, and for three seconds after it was sent not its index; what
 * is no refusal is heard at any time. */
static void a_snapshot_under_way_is_not_sent_again(void **state)
{
    struct rig *r = *state;
    struct raft_io *io = &r->guard.outer;
    struct raft_io_snapshot_get get;
    struct raft_io_send send;
    struct raft_snapshot snapshot = {.index = 85, .term = 2};
    struct raft_message m = {.type = RAFT_INSTALL_SNAPSHOT, .install_snapshot = {.last_index = 85}};
    struct raft_guard_stats stats;
    r->now_ms = 10000;
    assert_true(hears(r, 85));
    r->next_rv = RAFT_NOMEM;
    assert_int_equal(io->snapshot_get(io, &get, raft_get_done), RAFT_NOMEM);
    r->next_rv = 0;
    assert_true(hears(r, 85));
    assert_int_equal(io->snapshot_get(io, &get, raft_get_done), 0);
    assert_false(hears(r, 85));
    assert_false(hears(r, 7));
    assert_true(hears(r, 0));
    r->inner_get->cb(r->inner_get, &snapshot, 0);
    assert_true(hears(r, 85));
    assert_int_equal(io->send(io, &send, &m, NULL), 0);
    assert_true(hears(r, 84));
    r->now_ms += 2999;
    assert_false(hears(r, 85));
    assert_true(hears(r, 0));
    r->now_ms += 1;
    assert_true(hears(r, 85));
    raft_guard_get_stats(&r->guard, &stats);
    assert_int_equal(stats.refusals_dropped, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(it_waits_for_its_bytes, set_up),
        cmocka_unit_test_setup(the_next_one_does_not_wait, set_up),
        cmocka_unit_test_setup(it_ends_with_the_close, set_up),
        cmocka_unit_test_setup(a_refusal_after_the_wait_is_fatal, set_up),
        cmocka_unit_test_setup(a_change_before_another_is_committed, set_up),
        cmocka_unit_test_setup(a_change_that_raft_did_not_take_in_is_not_noted, set_up),
        cmocka_unit_test_setup(a_snapshot_has_the_configuration_of_its_last_change, set_up),
        cmocka_unit_test_setup(a_snapshot_under_way_is_not_sent_again, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
