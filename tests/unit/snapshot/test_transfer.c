/* test_transfer.c: a snapshot on its way from node 1 to node 2: cut connections, damage,
 * full disks, and whoever stops. */
#include "transfer.h"

#include "base/clock.h"
#include "../../lib/break_connections.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "states.h"

TEST_WITH(it_arrives, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    assert_true(f->file.len > 3 * SNAPSHOT_WINDOW);
    assert_false(snapshot_send_busy(f->send));
    assert_int_equal(snapshot_send_index(f->send), 0);
    start_send(f, 70);
    assert_true(snapshot_send_busy(f->send));
    assert_int_equal(snapshot_send_index(f->send), 70);
    start_send(f, 80); /* one is under way */
    assert_int_equal(snapshot_send_index(f->send), 70);
    UNTIL(f, f->readies > 0);
    assert_int_equal(f->index, 70);
    expect_installed(f);
    assert_int_equal(f->send->failures, 0);
    assert_int_equal(f->install->failures, 0);
    assert_int_equal(f->r->b.accepted, 1);
    assert_int_equal(snapshot_send_index(f->send), 0);
}

/* A newer one is taken while it is sent: the file that was begun with goes on. */
TEST_WITH(a_newer_one_does_not_disturb, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    struct snapshot_error error;
    start_send(f, 70);
    UNTIL(f, f->install->state != INSTALL_IDLE);
    states_add(f->machine, LOCKS, LOCKS + 1);
    write_snapshot(f, 80);
    assert_int_equal(snapshot_clean(sim_device_base(f->from), 0, &error), 0);
    UNTIL(f, f->readies > 0);
    assert_int_equal(f->index, 70);
    assert_true(f->hash != machine_hash(f->machine));
}

static const struct log_device_ops *watched_ops;
static pthread_t loop_thread;
static struct log_device_ops watching_ops;
static unsigned calls_on_the_loop;
static atomic_uint reads, opens, closes, removes;

static void count_call(atomic_uint *calls)
{
    (*calls)++;
    calls_on_the_loop += pthread_equal(pthread_self(), loop_thread) != 0;
}

static int64_t watched_read(struct log_device *d, struct log_file *file, void *data, size_t len,
                            uint64_t offset)
{
    count_call(&reads);
    return watched_ops->read(d, file, data, len, offset);
}

static int watched_open(struct log_device *d, const char *name, unsigned flags,
                        struct log_file **ret)
{
    count_call(&opens);
    return watched_ops->open(d, name, flags, ret);
}

static void watched_close(struct log_device *d, struct log_file *file)
{
    count_call(&closes);
    watched_ops->close(d, file);
}

static _Atomic(uv_sem_t *) remove_waits; /* NULL: it does not */

static int watched_remove(struct log_device *d, const char *name)
{
    count_call(&removes);
    uv_sem_t *go = remove_waits;
    if (go != NULL) {
        uv_sem_wait(go);
    }
    return watched_ops->remove(d, name);
}

static void watch(struct log_device *d)
{
    watched_ops = d->ops;
    watching_ops = *d->ops;
    watching_ops.read = watched_read;
    watching_ops.open = watched_open;
    watching_ops.close = watched_close;
    watching_ops.remove = watched_remove;
    loop_thread = pthread_self();
    reads = opens = closes = removes = calls_on_the_loop = 0;
    d->ops = &watching_ops;
}

/* The leader's disk may take seconds for a read, and for the blocks of a file that is closed as the
 * last. Its loop must go on meanwhile. */
TEST_WITH(the_loop_reads_nothing, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    struct log_device *d = sim_device_base(f->from);
    watch(d);
    send_until_it_is_there(f);
    d->ops = watched_ops;
    assert_true(reads > 3);
    assert_int_equal(calls_on_the_loop, 0);
}

/* A follower's loop does not wait for its disk either: not to make the file, and not to remove what
 * has come of one whose connection breaks. */
TEST_WITH(the_loop_removes_nothing, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    struct log_device *d = sim_device_base(f->to);
    watch(d);
    first_piece_is_taken(f);
    (void)break_connections(&f->r->loop);
    expect_nothing_left(f);
    assert_int_equal(f->install->failures, 1);
    assert_int_equal(opens, 1);
    assert_int_equal(closes, 1);
    assert_int_equal(removes, 2); /* what an earlier one may have left comes first */
    assert_int_equal(calls_on_the_loop, 0);
    send_until_it_is_there(f);
    assert_int_equal(calls_on_the_loop, 0);
    d->ops = watched_ops;
}

/* While the half-written file of one that was given up is still being removed, the next one that
 * calls has to call again. A child must not write a file of that name: it would be removed in the
 * midst. */
TEST_WITH(one_that_is_removed_is_still_received, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    struct log_device *d = sim_device_base(f->to);
    uv_sem_t go;
    assert_int_equal(uv_sem_init(&go, 0), 0);
    watch(d);
    first_piece_is_taken(f);
    assert_true(snapshot_install_receives(f->install) == 70);
    remove_waits = &go;
    (void)break_connections(&f->r->loop);
    UNTIL(f, removes == 2);
    call(f);
    for (unsigned i = 0; i < 10; i++) {
        assert_true(turn(f, rig_deadline(f->r)));
    }
    bool is_there = f->install->state != INSTALL_IDLE && snapshot_install_receives(f->install) == 0;
    remove_waits = NULL;
    uv_sem_post(&go);
    assert_true(is_there);
    UNTIL(f, f->r->mine.lost > 0 && f->install->state == INSTALL_IDLE);
    call(f);
    say_begin(f, 90, 3, f->file.len);
    UNTIL(f, snapshot_install_receives(f->install) == 90);
    d->ops = watched_ops;
    (void)break_connections(&f->r->loop);
    expect_nothing_left(f);
    uv_sem_destroy(&go);
}

static int watched_tear_down(void **state)
{
    int rv = transfer_tear_down(state);
    assert_int_equal(removes, 2);
    assert_int_equal(calls_on_the_loop, 0);
    return rv;
}

/* So too when the node stops. */
TEST_WITH(stopped_in_the_middle, transfer_set_up, watched_tear_down)
{
    struct fixture *f = *state;
    watch(sim_device_base(f->to));
    first_piece_is_taken(f);
}

static uv_sem_t open_waits;

static int slow_open(struct log_device *d, const char *name, unsigned flags, struct log_file **ret)
{
    uv_sem_wait(&open_waits);
    uv_sem_post(&open_waits);
    return watched_ops->open(d, name, flags, ret);
}

/* The disk hangs, and the sender hears that the node is alive. Pieces wait when the connection
 * breaks: they are no part of what comes next. */
TEST_WITH(pieces_that_wait_when_it_breaks, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    struct log_device *d = sim_device_base(f->to);
    assert_int_equal(uv_sem_init(&open_waits, 0), 0);
    watch(d);
    watching_ops.open = slow_open;
    start_send(f, 70);
    UNTIL(f, snapshot_install_receives(f->install) == 70);
    for (unsigned i = 0; i < 10; i++) {
        ahead_ms += SNAPSHOT_SILENCE_MS / 4;
        assert_true(turn(f, rig_deadline(f->r)));
    }
    assert_int_equal(sim_device_files(f->to), 0);
    assert_true(snapshot_send_busy(f->send));
    (void)break_connections(&f->r->loop);
    UNTIL(f, f->install->failures == 1);
    uv_sem_post(&open_waits);
    UNTIL(f, !snapshot_send_busy(f->send));
    send_until_it_is_there(f);
    d->ops = watched_ops;
    uv_sem_destroy(&open_waits);
    assert_int_equal(f->install->failures, 1);
    assert_int_equal(f->send->failures, 1);
}

/* The connection breaks after so many turns, from the first to the last. */
TEST_WITH(connections_that_break, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    unsigned cuts = 0;
    for (unsigned turns = 0; turns < 40; turns += turns < 6 ? 1 : 5) {
        unsigned before = f->readies;
        uint64_t failures = f->send->failures;
        UNTIL(f, (start_send(f, 70), snapshot_send_busy(f->send)));
        for (unsigned i = 0; i < turns && f->readies == before; i++) {
            assert_true(turn(f, rig_deadline(f->r)));
        }
        (void)break_connections(&f->r->loop);
        UNTIL(f, !snapshot_send_busy(f->send) && f->install->state == INSTALL_IDLE);
        assert_true(f->readies > before || f->send->failures > failures);
        cuts += f->readies == before;
        if (f->readies == before) {
            assert_int_equal(whole(f), sim_device_files(f->to));
        }
    }
    assert_true(cuts > 2);
    send_until_it_is_there(f);
}

TEST_WITH(a_disk_that_is_full, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    uint64_t began_ms = fli_clock_ms();
    sim_device_capacity(f->to, 1000000);
    start_send(f, 70);
    UNTIL(f, !snapshot_send_busy(f->send));
    assert_int_equal(f->send->failures, 1);
    assert_int_equal(f->install->failures, 1);
    expect_nothing_left(f);
    /* It is left alone for a moment, which is not over as the clock stood before. */
    set_now(f, began_ms);
    start_send(f, 70);
    assert_false(snapshot_send_busy(f->send));
    ahead_ms = 0;
    sim_device_capacity(f->to, UINT64_MAX);
    send_until_it_is_there(f);
}

/* Each call of the receiver's disk fails once. */
TEST_WITH(a_disk_that_fails, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    static const enum sim_call CALLS[] = {SIM_OPEN,   SIM_WRITE,    SIM_SYNC,
                                          SIM_RENAME, SIM_SYNC_DIR, SIM_READ};
    for (size_t i = 0; i < sizeof CALLS / sizeof CALLS[0]; i++) {
        uint64_t failures = f->install->failures;
        unsigned before = f->readies;
        sim_device_fail(f->to, CALLS[i], 1, 1, -EIO);
        UNTIL(f, (start_send(f, 70), snapshot_send_busy(f->send)));
        UNTIL(f, !snapshot_send_busy(f->send) && f->install->state == INSTALL_IDLE);
        assert_int_equal(f->install->failures, failures + 1);
        assert_int_equal(f->readies, before);
    }
    send_until_it_is_there(f);
}

/* The receiver gives up, or has it in place, and has no memory to say so: it hangs up, so that the
 * sender need not wait until it takes this for silence. */
TEST_WITH(a_receiver_that_cannot_answer, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    sim_device_fail(f->to, SIM_SYNC, 1, 1, -EIO);
    done_lost = 1;
    start_send(f, 70);
    UNTIL(f, !snapshot_send_busy(f->send));
    assert_int_equal(done_lost, 0);
    assert_int_equal(f->send->failures, 1);
    assert_null(strstr(f->sent_log, "silence"));
    assert_non_null(strstr(f->install_log, "cannot sync"));
    expect_nothing_left(f);
    done_lost = 1;
    UNTIL(f, (start_send(f, 70), f->readies == 1));
    UNTIL(f, !snapshot_send_busy(f->send));
    assert_int_equal(done_lost, 0);
    assert_int_equal(f->send->failures, 2);
    send_until_it_is_there(f);
}

static void begin_unheard(struct fixture *f)
{
    unsigned before = f->r->b.accepted;
    start_clock();
    start_send(f, 70);
    RUN_UNTIL(f->r, (send_turn(f), f->r->b.accepted > before) &&
                        strstr(f->sent_log, "is sent to node 2") != NULL);
    f->accepted = f->r->b.accepted;
}

/* Returns when it was given up; the clock stands there. */
static uint64_t expect_silence(struct fixture *f, unsigned pause_ms)
{
    char text[64];
    uint64_t failures = f->send->failures;
    begin_unheard(f);
    uint64_t at_ms = fli_clock_ms() + 30001;
    stop_clock(at_ms);
    send_turn(f);
    assert_int_equal(f->send->failures, failures + 1);
    RUN_UNTIL(f->r, !snapshot_send_busy(f->send));
    snprintf(text, sizeof text, "silence; next attempt in %u ms", pause_ms);
    assert_non_null(strstr(f->sent_log, text));
    held_close(&f->r->b.streams[f->accepted - 1]);
    return at_ms;
}

/* Nobody at the receiver reads or answers. The sender gives that up and calls again, after pauses
 * that double up to five seconds. One that succeeds ends them. */
TEST_WITH(a_receiver_that_is_silent, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    static const unsigned PAUSES_MS[] = {100, 200, 400, 800, 1600, 3200, 5000, 5000};
    for (unsigned i = 0; i < sizeof PAUSES_MS / sizeof PAUSES_MS[0]; i++) {
        uint64_t at_ms = expect_silence(f, PAUSES_MS[i]);
        stop_clock(at_ms + PAUSES_MS[i] - 1);
        start_send(f, 70);
        assert_false(snapshot_send_busy(f->send));
        stop_clock(at_ms + PAUSES_MS[i]);
    }
    start_clock();
    send_until_it_is_there(f);
    (void)expect_silence(f, PAUSES_MS[0]);
}

/* The sender's own disk: nothing is sent, and it is told. */
TEST_WITH(a_sender_that_cannot_read, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    sim_device_fail(f->from, SIM_READ, 1, 1, -EIO);
    start_send(f, 70);
    UNTIL(f, !snapshot_send_busy(f->send));
    assert_int_equal(f->send->failures, 1);
    sim_device_fail(f->from, SIM_READ, 6, 1, -EIO);
    UNTIL(f, (start_send(f, 70), f->send->failures == 2));
    UNTIL(f, !snapshot_send_busy(f->send));
    send_until_it_is_there(f);
}

/* Of a file that has changed on disk nothing leaves behind the damage; the owner hears of it, and
 * the log which byte of which file it is. Another one of the same entry takes its place. */
TEST_WITH(a_file_that_has_changed, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    char name[LOG_NAME_MAX + 1];
    snprintf(name, sizeof name, "%s", sim_device_name(f->from, 0));
    const uint64_t at[] = {20, SNAPSHOT_PIECE + 5000, 3 * SNAPSHOT_PIECE, f->file.len - 1};
    for (unsigned i = 0; i < sizeof at / sizeof at[0]; i++) {
        uint64_t refused = f->install->failures;
        sim_device_flip(f->from, name, at[i], 3);
        UNTIL(f, (start_send(f, 70), f->damaged == i + 1));
        assert_int_equal(f->send->failures, i + 1);
        UNTIL(f, !snapshot_send_busy(f->send));
        assert_non_null(strstr(f->sent_log, name));
        assert_non_null(strstr(f->sent_log, "byte"));
        UNTIL(f, f->install->state == INSTALL_IDLE);
        assert_int_equal(f->readies, 0);
        /* What it has got was right, so it is the stream's end that it hears of. */
        assert_true(f->install->failures <= refused + 1);
        assert_null(strstr(f->install_log, "checksum"));
        write_snapshot(f, 70);
    }
    send_until_it_is_there(f);
}

/* Under its name it would be the newest, from which this node starts next. */
TEST_WITH(a_refused_state_leaves_nothing, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    void (*const write[])(struct fixture *, uint64_t) = {write_snapshot_without_state,
                                                         write_snapshot_without_members};
    for (unsigned i = 0; i < 2; i++) {
        write[i](f, 80 + i);
        UNTIL(f, (start_send(f, 80 + i), f->install->failures > i));
        expect_nothing_left(f);
        UNTIL(f, !snapshot_send_busy(f->send));
        assert_int_equal(f->readies, 0);
    }
}

/* Its state is not taken at once: it is offered again at each tick, and the sender waits. */
TEST_WITH(it_may_have_to_wait, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    f->take = FL_EBUSY;
    start_send(f, 70);
    UNTIL(f, f->readies > 3);
    assert_true(snapshot_send_busy(f->send));
    f->take = 0;
    UNTIL(f, !snapshot_send_busy(f->send));
    expect_installed(f);
    assert_int_equal(f->send->failures, 0);
}

/* It has come while this node writes a snapshot of its own, of an earlier entry: it is not the
 * newest before that one is, and the sender hears that the node is alive. */
TEST_WITH(it_waits_for_the_own_one, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    f->own = true;
    start_send(f, 70);
    UNTIL(f, f->install->taken == f->file.len);
    for (unsigned i = 0; i < 10; i++) {
        ahead_ms += SNAPSHOT_SILENCE_MS / 4;
        assert_true(turn(f, rig_deadline(f->r)));
    }
    assert_int_equal(snapshot_install_receives(f->install), 70);
    assert_int_equal(whole(f), 0);
    f->own = false;
    UNTIL(f, f->readies > 0);
    expect_installed(f);
    assert_int_equal(f->send->failures, 0);
}

/* It is whole, and another node calls: that one would take what is said of it for answers to what
 * it is about to send. */
TEST_WITH(what_is_said_of_it_is_for_its_sender, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    f->take = FL_EBUSY;
    start_send(f, 70);
    UNTIL(f, f->readies > 0);
    call(f);
    f->take = 0;
    expect_installed(f);
    assert_int_equal(f->send->failures, 0);
    assert_int_equal(f->r->mine.frames, 0);
}

TEST_WITH(one_that_is_of_no_use, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    f->take = FL_EINVAL;
    start_send(f, 70);
    UNTIL(f, f->readies > 0);
    UNTIL(f, !snapshot_send_busy(f->send));
    assert_int_equal(f->send->failures, 1);
    UNTIL(f, f->install->state == INSTALL_IDLE);
}

/* It is stopped at any moment: see tear_down(). */
TEST_WITH(stopped_early, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    start_send(f, 70);
    UNTIL(f, f->install->state != INSTALL_IDLE);
}

TEST_WITH(stopped_late, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    f->take = FL_EBUSY;
    start_send(f, 70);
    UNTIL(f, f->readies > 0);
}

TEST_WITH(stopped_while_calling, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    start_send(f, 70);
    snapshot_send_stop(f->send);
    assert_int_equal(f->holds, 1);
    UNTIL(f, !snapshot_send_busy(f->send) && f->holds == 0);
    assert_int_equal(f->send->failures, 0);
}

/* The answer comes when nothing is sent any more: then the next transfer may call. */
TEST_WITH(stopped_before_the_answer, transfer_set_up, transfer_tear_down)
{
    struct fixture *f = *state;
    start_send(f, 70);
    UNTIL(f, f->send->dialing);
    snapshot_send_stop(f->send);
    assert_true(snapshot_send_busy(f->send));
    start_send(f, 70);
    assert_int_equal(snapshot_send_index(f->send), 0);
    UNTIL(f, !snapshot_send_busy(f->send));
    assert_int_equal(f->send->failures, 0);
    send_until_it_is_there(f);
}
