/* test_snapshot_transfer.c: a snapshot on its way from node 1 to node 2, over loopback, between two
 * simulated disks: cut connections, damage, full disks, senders that begin again or break the
 * rules. Two functions are wrapped, for a clock that runs ahead and memory that is short. */
#include "../../lib/break_connections.h"
#include "../peer/rig.h"

#include <errno.h>
#include <pthread.h>

#include "../log/sim_device.h"
#include "base/bytes.h"
#include "consensus/snapshot_install.h"
#include "consensus/snapshot_send.h"
#include "states.h"

#define LOCKS 3000u

struct fixture {
    struct rig *r;
    struct sim_device *from, *to;
    const struct log_device_ops *from_ops;
    struct machine *machine;
    struct snapshot_send *send;
    struct snapshot_install *install;
    unsigned accepted; /* streams given to `install` */
    unsigned readies, idles, damaged;
    unsigned busies; /* sends whose worker may read */
    int take;        /* what `ready` does: 0 installs it, FL_EBUSY leaves it, else refuses */
    uint64_t hash, index;
    char log[512]; /* the last line; and that of each */
    char sent_log[512], install_log[512];
    struct fli_buf file; /* of the snapshot */
};

static struct fixture fixture;

/* ---- what is wrapped ---- */

uint64_t __real_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop);
int __real_stream_send(struct stream *s, uint8_t type, const struct fli_slice *parts, unsigned n);
int __wrap_stream_send(struct stream *s, uint8_t type, const struct fli_slice *parts, unsigned n);

static uint64_t ahead_ms;  /* of the loop's clock, for all who ask it */
static unsigned done_lost; /* frames DONE for which there is no memory */
static unsigned taken_sent;

uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    return __real_uv_now(loop) + ahead_ms;
}

int __wrap_stream_send(struct stream *s, uint8_t type, const struct fli_slice *parts, unsigned n)
{
    if (type == SNAPSHOT_DONE && done_lost > 0) {
        done_lost--;
        return FL_ENOMEM;
    }
    taken_sent += type == SNAPSHOT_TAKEN;
    return __real_stream_send(s, type, parts, n);
}

/* ---- node 1 ---- */

static int sink(void *ctx, const void *bytes, size_t len)
{
    struct snapshot_error error;
    return snapshot_writer_write(ctx, bytes, len, &error);
}

static void write_snapshot(struct fixture *f, uint64_t index)
{
    struct snapshot_meta meta = {.index = index, .term = 3, .conf_index = 1, .conf_len = 4};
    struct snapshot_writer *w;
    struct snapshot_error error;
    memcpy(meta.conf, "conf", 4);
    assert_int_equal(snapshot_writer_open(sim_device_base(f->from), &meta, &w, &error), 0);
    assert_int_equal(machine_snapshot_write(f->machine, sink, w), 0);
    assert_int_equal(snapshot_writer_finish(w, &error), 0);
}

static void read_file(struct fixture *f)
{
    struct snapshot_reader *reader;
    struct snapshot_error error;
    uint8_t piece[65536];
    size_t len = 1;
    fli_buf_init(&f->file, (size_t)64 << 20);
    assert_int_equal(snapshot_reader_open(sim_device_base(f->from), 0, &reader, &error), 0);
    while (len > 0) {
        assert_int_equal(
            snapshot_reader_raw(reader, f->file.len, piece, sizeof piece, &len, &error), 0);
        assert_int_equal(fli_buf_append(&f->file, piece, len), 0);
    }
    assert_int_equal(f->file.len, snapshot_reader_file_size(reader));
    snapshot_reader_close(reader);
}

/* ---- node 2 ---- */

static void ready_cb(void *ctx, const struct snapshot_meta *meta, struct machine *fresh)
{
    struct fixture *f = ctx;
    f->readies++;
    f->hash = machine_hash(fresh);
    f->index = meta->index;
    if (f->take != FL_EBUSY) {
        snapshot_install_taken(f->install, f->take, fresh);
    }
}

static void log_cb(void *ctx, int level, const char *message)
{
    struct fixture *f = ctx;
    snprintf(f->log, sizeof f->log, "%s", message);
    snprintf(f->install_log, sizeof f->install_log, "%s", message);
}

static void sent_log_cb(void *ctx, int level, const char *message)
{
    struct fixture *f = ctx;
    snprintf(f->log, sizeof f->log, "%s", message);
    snprintf(f->sent_log, sizeof f->sent_log, "%s", message);
}

static void busy_cb(void *ctx)
{
    struct fixture *f = ctx;
    f->busies++;
}

static void not_busy_cb(void *ctx)
{
    struct fixture *f = ctx;
    assert_true(f->busies > 0);
    f->busies--;
}

static void damaged_cb(void *ctx)
{
    struct fixture *f = ctx;
    f->damaged++;
}

static void idle_cb(void *ctx)
{
    struct fixture *f = ctx;
    f->idles++;
}

static void set_now(struct fixture *f, uint64_t now_ms)
{
    ahead_ms = now_ms - __real_uv_now(&f->r->loop);
}

/* One turn of the loop, and what has called goes to the part that is for it. */
static bool turn(struct fixture *f, uint64_t deadline_ms)
{
    bool in_time = rig_turn(f->r, deadline_ms);
    while (f->accepted < f->r->b.accepted) {
        struct held_stream *h = &f->r->b.streams[f->accepted++ % RIG_STREAMS];
        struct stream *s = h->s;
        h->s = NULL;
        snapshot_install_accept(f->install, 1, s);
    }
    snapshot_install_tick(f->install);
    snapshot_send_tick(f->send);
    return in_time;
}

#define UNTIL(f, condition)                                                                        \
    do {                                                                                           \
        uint64_t deadline_ = rig_deadline((f)->r);                                                 \
        while (!(condition)) {                                                                     \
            if (!turn(f, deadline_)) {                                                             \
                fail_msg("never came: %s (%s)", #condition, (f)->log);                             \
            }                                                                                      \
        }                                                                                          \
    } while (0)

static int set_up(void **state)
{
    struct fixture *f = &fixture;
    memset(f, 0, sizeof *f);
    ahead_ms = 0;
    done_lost = 0;
    f->r = rig_open(NULL);
    f->r->b.unstarted = true;
    f->from = sim_device_create(1);
    f->to = sim_device_create(2);
    f->machine = states_make(LOCKS);
    write_snapshot(f, 70);
    read_file(f);
    struct snapshot_send_config sc = {.loop = &f->r->loop,
                                      .transport = f->r->a.t,
                                      .device = sim_device_base(f->from),
                                      .peer_id = 2,
                                      .ctx = f,
                                      .log = sent_log_cb,
                                      .damaged = damaged_cb,
                                      .busy = busy_cb,
                                      .idle = not_busy_cb};
    struct snapshot_install_config ic = {.loop = &f->r->loop,
                                         .device = sim_device_base(f->to),
                                         .ctx = f,
                                         .ready = ready_cb,
                                         .log = log_cb,
                                         .idle = idle_cb};
    assert_int_equal(snapshot_send_create(&sc, &f->send), 0);
    assert_int_equal(snapshot_install_create(&ic, &f->install), 0);
    *state = f;
    return 0;
}

/* From whatever state they are in. */
static int tear_down(void **state)
{
    struct fixture *f = *state;
    snapshot_send_stop(f->send);
    unsigned idles = snapshot_install_stop(f->install) ? 0 : 1;
    assert_int_equal(f->idles, 0);
    RUN_UNTIL(f->r, f->idles == idles);
    RUN_UNTIL(f->r, !snapshot_send_busy(f->send));
    rig_close(f->r);
    assert_int_equal(f->busies, 0);
    assert_int_equal(f->idles, idles);
    snapshot_send_destroy(f->send);
    snapshot_install_destroy(f->install);
    machine_destroy(f->machine);
    sim_device_destroy(f->from);
    sim_device_destroy(f->to);
    fli_buf_fini(&f->file);
    return 0;
}

/* Files of the receiver: whole ones, or all. */
static unsigned whole(struct fixture *f)
{
    struct snapshot_info info;
    struct snapshot_error error;
    size_t n = 0;
    assert_int_equal(snapshot_list(sim_device_base(f->to), &info, 1, &n, &error), 0);
    return (unsigned)n;
}

static void expect_nothing_left(struct fixture *f)
{
    UNTIL(f, !snapshot_install_busy(f->install));
    assert_int_equal(sim_device_files(f->to), 0);
}

static void expect_installed(struct fixture *f)
{
    UNTIL(f, !snapshot_send_busy(f->send) && !snapshot_install_busy(f->install));
    assert_true(f->hash == machine_hash(f->machine));
    assert_int_equal(whole(f), 1);
    assert_int_equal(sim_device_files(f->to), 1);
    size_t len = 0;
    const uint8_t *data = sim_device_data(f->to, sim_device_name(f->to, 0), &len);
    assert_int_equal(len, f->file.len);
    assert_memory_equal(data, f->file.data, len);
}

static void send_until_it_is_there(struct fixture *f)
{
    unsigned before = f->readies;
    /* As the core asks for it again and again. */
    UNTIL(f, (snapshot_send_start(f->send, 70), f->readies > before));
    expect_installed(f);
}

/* ---- tests ---- */

TEST_WITH(it_arrives, set_up, tear_down)
{
    struct fixture *f = *state;
    assert_true(f->file.len > 3 * SNAPSHOT_WINDOW);
    assert_false(snapshot_send_busy(f->send));
    assert_int_equal(snapshot_send_index(f->send), 0);
    snapshot_send_start(f->send, 60);
    assert_true(snapshot_send_busy(f->send));
    assert_int_equal(snapshot_send_index(f->send), 60); /* at least, as long as it is not open */
    UNTIL(f, snapshot_send_index(f->send) == 70);
    snapshot_send_start(f->send, 70); /* it is under way */
    UNTIL(f, f->readies > 0);
    assert_int_equal(f->index, 70);
    expect_installed(f);
    assert_int_equal(snapshot_send_failures(f->send), 0);
    assert_int_equal(snapshot_install_failures(f->install), 0);
    assert_int_equal(f->r->b.accepted, 1);
    assert_int_equal(snapshot_send_index(f->send), 0);
}

/* A newer one is taken while it is sent: the file that was begun with goes on. */
TEST_WITH(a_newer_one_does_not_disturb, set_up, tear_down)
{
    struct fixture *f = *state;
    struct snapshot_error error;
    snapshot_send_start(f->send, 70);
    UNTIL(f, snapshot_install_busy(f->install));
    states_add(f->machine, LOCKS, LOCKS + 1);
    write_snapshot(f, 80);
    assert_int_equal(snapshot_clean(sim_device_base(f->from), 1, false, &error), 0);
    UNTIL(f, f->readies > 0);
    assert_int_equal(f->index, 70);
    assert_true(f->hash != machine_hash(f->machine));
}

static pthread_t loop_thread;
static unsigned reads_on_the_loop;
static unsigned reads;

static int64_t watched_read(struct log_device *d, struct log_file *file, void *data, size_t len,
                            uint64_t offset)
{
    reads++;
    reads_on_the_loop += pthread_equal(pthread_self(), loop_thread) != 0;
    return fixture.from_ops->read(d, file, data, len, offset);
}

static void watched_close(struct log_device *d, struct log_file *file)
{
    reads_on_the_loop += pthread_equal(pthread_self(), loop_thread) != 0;
    fixture.from_ops->close(d, file);
}

/* The leader's disk may take seconds for a read, and for the blocks of a file that is closed as the
 * last. Its loop must go on meanwhile. */
TEST_WITH(the_loop_reads_nothing, set_up, tear_down)
{
    struct fixture *f = *state;
    struct log_device *d = sim_device_base(f->from);
    f->from_ops = d->ops;
    struct log_device_ops watched = *d->ops;
    watched.read = watched_read;
    watched.close = watched_close;
    loop_thread = pthread_self();
    reads = reads_on_the_loop = 0;
    d->ops = &watched;
    send_until_it_is_there(f);
    d->ops = f->from_ops;
    assert_true(reads > 3);
    assert_int_equal(reads_on_the_loop, 0);
}

/* The connection breaks after so many turns, from the first to the last. */
TEST_WITH(connections_that_break, set_up, tear_down)
{
    struct fixture *f = *state;
    unsigned cuts = 0;
    for (unsigned turns = 0; turns < 40; turns += turns < 6 ? 1 : 5) {
        unsigned before = f->readies;
        uint64_t failures = snapshot_send_failures(f->send);
        UNTIL(f, (snapshot_send_start(f->send, 70), snapshot_send_busy(f->send)));
        for (unsigned i = 0; i < turns && f->readies == before; i++) {
            assert_true(turn(f, rig_deadline(f->r)));
        }
        (void)break_connections(&f->r->loop);
        UNTIL(f, !snapshot_send_busy(f->send) && !snapshot_install_busy(f->install));
        assert_true(f->readies > before || snapshot_send_failures(f->send) > failures);
        cuts += f->readies == before;
        if (f->readies == before) {
            assert_int_equal(whole(f), sim_device_files(f->to));
        }
    }
    assert_true(cuts > 2);
    send_until_it_is_there(f);
}

TEST_WITH(a_disk_that_is_full, set_up, tear_down)
{
    struct fixture *f = *state;
    uint64_t began_ms = uv_now(&f->r->loop);
    sim_device_capacity(f->to, 1000000);
    snapshot_send_start(f->send, 70);
    UNTIL(f, !snapshot_send_busy(f->send));
    assert_int_equal(snapshot_send_failures(f->send), 1);
    assert_int_equal(snapshot_install_failures(f->install), 1);
    expect_nothing_left(f);
    /* It is left alone for a moment, which is not over as the clock stood before. */
    set_now(f, began_ms);
    snapshot_send_start(f->send, 70);
    assert_false(snapshot_send_busy(f->send));
    ahead_ms = 0;
    sim_device_capacity(f->to, UINT64_MAX);
    send_until_it_is_there(f);
}

/* Each call of the receiver's disk fails once. */
TEST_WITH(a_disk_that_fails, set_up, tear_down)
{
    struct fixture *f = *state;
    static const enum sim_call CALLS[] = {SIM_OPEN,   SIM_WRITE,    SIM_SYNC,
                                          SIM_RENAME, SIM_SYNC_DIR, SIM_READ};
    for (size_t i = 0; i < sizeof CALLS / sizeof CALLS[0]; i++) {
        uint64_t failures = snapshot_install_failures(f->install);
        unsigned before = f->readies;
        sim_device_fail(f->to, CALLS[i], 1, 1, -EIO);
        UNTIL(f, (snapshot_send_start(f->send, 70), snapshot_send_busy(f->send)));
        UNTIL(f, !snapshot_send_busy(f->send) && !snapshot_install_busy(f->install));
        assert_int_equal(snapshot_install_failures(f->install), failures + 1);
        assert_int_equal(f->readies, before);
    }
    send_until_it_is_there(f);
}

/* The receiver gives up, or has it in place, and has no memory to say so: it hangs up, so that the
 * sender need not wait until it takes this for silence. */
TEST_WITH(a_receiver_that_cannot_answer, set_up, tear_down)
{
    struct fixture *f = *state;
    sim_device_fail(f->to, SIM_SYNC, 1, 1, -EIO);
    done_lost = 1;
    snapshot_send_start(f->send, 70);
    UNTIL(f, !snapshot_send_busy(f->send));
    assert_int_equal(done_lost, 0);
    assert_int_equal(snapshot_send_failures(f->send), 1);
    assert_null(strstr(f->sent_log, "silence"));
    assert_non_null(strstr(f->install_log, "cannot sync"));
    expect_nothing_left(f);
    done_lost = 1;
    UNTIL(f, (snapshot_send_start(f->send, 70), f->readies == 1));
    UNTIL(f, !snapshot_send_busy(f->send));
    assert_int_equal(done_lost, 0);
    assert_int_equal(snapshot_send_failures(f->send), 2);
    send_until_it_is_there(f);
}

static void begin_unheard(struct fixture *f)
{
    unsigned before = f->r->b.accepted;
    snapshot_send_start(f->send, 70);
    RUN_UNTIL(f->r, f->r->b.accepted > before && strstr(f->sent_log, "is sent to node 2") != NULL);
    f->accepted = f->r->b.accepted;
}

/* Returns when it was given up. */
static uint64_t expect_silence(struct fixture *f, unsigned pause_ms)
{
    char text[64];
    uint64_t failures = snapshot_send_failures(f->send);
    begin_unheard(f);
    ahead_ms += 30001;
    snapshot_send_tick(f->send);
    uint64_t at_ms = uv_now(&f->r->loop);
    assert_int_equal(snapshot_send_failures(f->send), failures + 1);
    RUN_UNTIL(f->r, !snapshot_send_busy(f->send));
    snprintf(text, sizeof text, "silence; next attempt in %u ms", pause_ms);
    assert_non_null(strstr(f->sent_log, text));
    held_close(&f->r->b.streams[f->accepted - 1]);
    return at_ms;
}

/* Nobody at the receiver reads or answers. The sender gives that up and calls again, after pauses
 * that double up to five seconds. One that succeeds ends them. */
TEST_WITH(a_receiver_that_is_silent, set_up, tear_down)
{
    struct fixture *f = *state;
    static const unsigned PAUSES_MS[] = {100, 200, 400, 800, 1600, 3200, 5000, 5000};
    for (unsigned i = 0; i < sizeof PAUSES_MS / sizeof PAUSES_MS[0]; i++) {
        uint64_t at_ms = expect_silence(f, PAUSES_MS[i]);
        set_now(f, at_ms + PAUSES_MS[i] - 1);
        snapshot_send_start(f->send, 70);
        assert_false(snapshot_send_busy(f->send));
        set_now(f, at_ms + PAUSES_MS[i]);
    }
    send_until_it_is_there(f);
    (void)expect_silence(f, PAUSES_MS[0]);
}

/* The sender's own disk: nothing is sent, and it is told. */
TEST_WITH(a_sender_that_cannot_read, set_up, tear_down)
{
    struct fixture *f = *state;
    sim_device_fail(f->from, SIM_READ, 1, 1, -EIO);
    snapshot_send_start(f->send, 70);
    UNTIL(f, !snapshot_send_busy(f->send));
    assert_int_equal(snapshot_send_failures(f->send), 1);
    sim_device_fail(f->from, SIM_READ, 6, 1, -EIO);
    UNTIL(f, (snapshot_send_start(f->send, 70), snapshot_send_failures(f->send) == 2));
    UNTIL(f, !snapshot_send_busy(f->send));
    send_until_it_is_there(f);
}

/* Of a file that has changed on disk nothing leaves behind the damage; the owner hears of it, and
 * the log which byte of which file it is. Another one of the same entry takes its place. */
TEST_WITH(a_file_that_has_changed, set_up, tear_down)
{
    struct fixture *f = *state;
    char name[LOG_NAME_MAX + 1];
    snprintf(name, sizeof name, "%s", sim_device_name(f->from, 0));
    const uint64_t at[] = {20, SNAPSHOT_PIECE + 5000, 3 * SNAPSHOT_PIECE, f->file.len - 1};
    for (unsigned i = 0; i < sizeof at / sizeof at[0]; i++) {
        uint64_t refused = snapshot_install_failures(f->install);
        sim_device_flip(f->from, name, at[i], 3);
        UNTIL(f, (snapshot_send_start(f->send, 70), f->damaged == i + 1));
        assert_int_equal(snapshot_send_failures(f->send), i + 1);
        UNTIL(f, !snapshot_send_busy(f->send));
        assert_non_null(strstr(f->sent_log, name));
        assert_non_null(strstr(f->sent_log, "byte"));
        UNTIL(f, !snapshot_install_busy(f->install));
        assert_int_equal(f->readies, 0);
        /* What it has got was right, so it is the stream's end that it hears of. */
        assert_true(snapshot_install_failures(f->install) <= refused + 1);
        assert_null(strstr(f->install_log, "checksum"));
        write_snapshot(f, 70);
    }
    send_until_it_is_there(f);
}

/* Its state is not taken at once: it is offered again at each tick, and the sender waits. */
TEST_WITH(it_may_have_to_wait, set_up, tear_down)
{
    struct fixture *f = *state;
    f->take = FL_EBUSY;
    snapshot_send_start(f->send, 70);
    UNTIL(f, f->readies > 3);
    assert_true(snapshot_send_busy(f->send));
    f->take = 0;
    UNTIL(f, !snapshot_send_busy(f->send));
    expect_installed(f);
    assert_int_equal(snapshot_send_failures(f->send), 0);
}

TEST_WITH(one_that_is_of_no_use, set_up, tear_down)
{
    struct fixture *f = *state;
    f->take = FL_EINVAL;
    snapshot_send_start(f->send, 70);
    UNTIL(f, f->readies > 0);
    UNTIL(f, !snapshot_send_busy(f->send));
    assert_int_equal(snapshot_send_failures(f->send), 1);
    UNTIL(f, !snapshot_install_busy(f->install));
}

/* ---- a sender of our own, which breaks the rules ---- */

static void call(struct fixture *f)
{
    if (f->r->mine.s != NULL) {
        held_close(&f->r->mine);
    }
    rig_dial(f->r, 2, STREAM_SNAPSHOT);
    assert_int_equal(f->r->status, 0);
    held_start(&f->r->mine);
    UNTIL(f, f->accepted == f->r->b.accepted && f->accepted > 0);
}

static void say(struct fixture *f, uint8_t type, const void *a, size_t a_len, const void *b,
                size_t b_len)
{
    struct fli_slice parts[2] = {{a, a_len}, {b, b_len}};
    assert_int_equal(stream_send(f->r->mine.s, type, parts, 2), 0);
    stream_flush(f->r->mine.s);
}

static void say_begin(struct fixture *f, uint64_t index, uint64_t term, uint64_t size)
{
    uint8_t head[24];
    fli_put_u64(head, index);
    fli_put_u64(head + 8, term);
    fli_put_u64(head + 16, size);
    say(f, SNAPSHOT_BEGIN, head, sizeof head, NULL, 0);
}

static void say_data(struct fixture *f, uint64_t offset, const void *data, size_t len)
{
    uint8_t head[8];
    fli_put_u64(head, offset);
    say(f, SNAPSHOT_DATA, head, sizeof head, data, len);
}

/* It is told that this was wrong, with this code, and nothing stays. */
static void expect_refused(struct fixture *f, int error)
{
    struct held_stream *m = &f->r->mine;
    UNTIL(f, m->frames > 0 && m->type == SNAPSHOT_DONE);
    assert_true(m->body.len >= 4);
    assert_int_equal(fli_get_u32(m->body.data), -error);
    expect_nothing_left(f);
}

TEST_WITH(a_piece_that_is_damaged, set_up, tear_down)
{
    struct fixture *f = *state;
    static const size_t AT[] = {3, 50, 5000, 300000};
    for (size_t i = 0; i < sizeof AT / sizeof AT[0]; i++) {
        uint8_t *copy = malloc(f->file.len);
        assert_non_null(copy);
        memcpy(copy, f->file.data, f->file.len);
        copy[AT[i]] ^= 4;
        call(f);
        say_begin(f, 70, 3, f->file.len);
        for (size_t at = 0; at < 600000; at += 60000) {
            say_data(f, at, copy + at, 60000);
        }
        expect_refused(f, FL_ECORRUPT);
        free(copy);
    }
    assert_int_equal(f->readies, 0);
}

TEST_WITH(another_one_than_was_announced, set_up, tear_down)
{
    struct fixture *f = *state;
    static const struct {
        uint64_t index, term;
    } ROWS[] = {{71, 3}, {70, 4}};
    for (size_t i = 0; i < 2; i++) {
        call(f);
        say_begin(f, ROWS[i].index, ROWS[i].term, f->file.len);
        for (size_t at = 0; at < 600000; at += 60000) {
            say_data(f, at, f->file.data + at, 60000);
        }
        expect_refused(f, FL_ECORRUPT);
    }
}

TEST_WITH(one_that_ends_too_soon, set_up, tear_down)
{
    struct fixture *f = *state;
    call(f);
    say_begin(f, 70, 3, 60000); /* its size is said wrong */
    say_data(f, 0, f->file.data, 60000);
    expect_refused(f, FL_ECORRUPT);
}

TEST_WITH(pieces_out_of_order, set_up, tear_down)
{
    struct fixture *f = *state;
    const uint8_t *data = f->file.data;
    call(f);
    say_begin(f, 70, 3, f->file.len);
    say_data(f, 1, data, 1000);
    expect_refused(f, FL_EPROTO);
    call(f);
    say_begin(f, 70, 3, f->file.len);
    say_data(f, 0, data, 1000);
    say_data(f, 0, data, 1000);
    expect_refused(f, FL_EPROTO);
    call(f);
    say_begin(f, 70, 3, f->file.len);
    say_data(f, 0, data, 0); /* nothing */
    expect_refused(f, FL_EPROTO);
    call(f);
    say_begin(f, 70, 3, 1000);
    say_data(f, 0, data, 1001); /* more than was announced */
    expect_refused(f, FL_EPROTO);
}

/* Each piece costs memory of its own, a hundred bytes beside its one: the window alone would let
 * its sender have a hundred MiB. */
TEST_WITH(pieces_of_one_byte, set_up, tear_down)
{
    struct fixture *f = *state;
    call(f);
    say_begin(f, 70, 3, f->file.len);
    for (size_t at = 0; at < 4000; at++) {
        uint8_t head[8];
        struct fli_slice parts[2] = {{head, sizeof head}, {f->file.data + at, 1}};
        fli_put_u64(head, at);
        assert_int_equal(stream_send(f->r->mine.s, SNAPSHOT_DATA, parts, 2), 0);
    }
    stream_flush(f->r->mine.s);
    expect_refused(f, FL_EPROTO);
}

TEST_WITH(frames_that_mean_nothing, set_up, tear_down)
{
    struct fixture *f = *state;
    uint8_t bytes[64] = {0};
    call(f);
    say_data(f, 0, bytes, sizeof bytes); /* of nothing: passed over */
    say(f, SNAPSHOT_TAKEN, bytes, 8, NULL, 0);
    say(f, SNAPSHOT_DONE, bytes, 4, NULL, 0);
    say(f, 99, bytes, 64, NULL, 0);
    say(f, SNAPSHOT_BEGIN, bytes, 23, NULL, 0);
    expect_refused(f, FL_EBUSY);
    assert_int_equal(f->readies, 0);
    /* An index and a term of 0, and a size beyond all disks. */
    call(f);
    say_begin(f, 0, 0, UINT64_MAX);
    say_data(f, 0, f->file.data, 60000);
    UNTIL(f, f->r->mine.frames > 0);
    held_close(&f->r->mine);
    expect_nothing_left(f);
    send_until_it_is_there(f);
}

static void first_piece_is_taken(struct fixture *f)
{
    call(f);
    say_begin(f, 70, 3, f->file.len);
    say_data(f, 0, f->file.data, 60000);
    UNTIL(f, f->r->mine.frames > 0 && f->r->mine.type == SNAPSHOT_TAKEN &&
                 fli_get_u64(f->r->mine.body.data) == 60000);
}

/* The one that was begun is given up, and the second attempt of its sender counts. */
TEST_WITH(a_sender_that_begins_again, set_up, tear_down)
{
    struct fixture *f = *state;
    first_piece_is_taken(f);
    send_until_it_is_there(f);
    assert_int_equal(snapshot_install_failures(f->install), 1);
    assert_true(stream_lost(f->r->mine.s));
}

static unsigned taken_sent_in_seconds(struct fixture *f)
{
    unsigned before = taken_sent;
    for (unsigned i = 0; i < 8; i++) {
        ahead_ms += 501;
        snapshot_install_tick(f->install);
    }
    return taken_sent - before;
}

/* It says that it is alive while it has something to do, and not while it waits for a piece: when
 * that is lost, both would wait for ever. */
TEST_WITH(a_piece_that_never_comes, set_up, tear_down)
{
    struct fixture *f = *state;
    first_piece_is_taken(f);
    assert_int_equal(taken_sent_in_seconds(f), 0);
    f->take = FL_EBUSY;
    UNTIL(f, (snapshot_send_start(f->send, 70), f->readies > 0));
    assert_int_equal(taken_sent_in_seconds(f), 8);
}

/* It is stopped at any moment: see tear_down(). */
TEST_WITH(stopped_early, set_up, tear_down)
{
    struct fixture *f = *state;
    snapshot_send_start(f->send, 70);
    UNTIL(f, snapshot_install_busy(f->install));
}

TEST_WITH(stopped_late, set_up, tear_down)
{
    struct fixture *f = *state;
    f->take = FL_EBUSY;
    snapshot_send_start(f->send, 70);
    UNTIL(f, f->readies > 0);
}

TEST_WITH(stopped_while_calling, set_up, tear_down)
{
    struct fixture *f = *state;
    snapshot_send_start(f->send, 70);
    snapshot_send_stop(f->send);
    assert_true(snapshot_send_busy(f->send));
    UNTIL(f, !snapshot_send_busy(f->send));
    assert_int_equal(snapshot_send_failures(f->send), 0);
}
