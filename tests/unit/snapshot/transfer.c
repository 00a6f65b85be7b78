/* transfer.c: see transfer.h. */
#include "transfer.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "consensus/configuration.h"
#include "consensus/replica.h"
#include "states.h"

static struct fixture fixture;

/* ---- what is wrapped ---- */

uint64_t __real_fli_clock_ms(void);
uint64_t __wrap_fli_clock_ms(void);
int __real_stream_send(struct stream *s, uint8_t type, const struct fli_slice *parts, unsigned n);
int __wrap_stream_send(struct stream *s, uint8_t type, const struct fli_slice *parts, unsigned n);

uint64_t ahead_ms;
static uint64_t stopped_ms; /* 0: it goes on */
unsigned done_lost;
unsigned taken_sent;

uint64_t __wrap_fli_clock_ms(void)
{
    return stopped_ms != 0 ? stopped_ms : __real_fli_clock_ms() + ahead_ms;
}

void stop_clock(uint64_t at_ms)
{
    stopped_ms = at_ms;
}

void start_clock(void)
{
    ahead_ms = stopped_ms != 0 ? stopped_ms - __real_fli_clock_ms() : ahead_ms;
    stopped_ms = 0;
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

static struct snapshot_writer *begin_snapshot(struct fixture *f, uint64_t index, bool members)
{
    struct snapshot_meta meta = {.index = index, .term = 3, .conf_index = 1, .conf_len = 4};
    struct configuration conf = {0};
    static struct snapshot_error error;
    struct snapshot_writer *w;
    memcpy(meta.conf, "conf", 4);
    if (members) {
        assert_int_equal(configuration_add(&conf, 1, 1, "127.0.0.1:1", CONFIGURATION_VOTER), 0);
        meta.conf_len = (uint32_t)configuration_encode(&conf, meta.conf);
    }
    assert_int_equal(snapshot_writer_open(sim_device_base(f->from), &meta, &w, &error), 0);
    return w;
}

void write_snapshot(struct fixture *f, uint64_t index)
{
    struct snapshot_writer *w = begin_snapshot(f, index, true);
    int rv = machine_snapshot_write(f->machine, snapshot_writer_write, w);
    assert_int_equal(snapshot_writer_end(w, rv), 0);
}

void write_snapshot_without_state(struct fixture *f, uint64_t index)
{
    struct snapshot_writer *w = begin_snapshot(f, index, true);
    assert_int_equal(snapshot_writer_end(w, snapshot_writer_write(w, "no state", 8)), 0);
}

void write_snapshot_without_members(struct fixture *f, uint64_t index)
{
    struct snapshot_writer *w = begin_snapshot(f, index, false);
    int rv = machine_snapshot_write(f->machine, snapshot_writer_write, w);
    assert_int_equal(snapshot_writer_end(w, rv), 0);
}

static void read_file(struct fixture *f)
{
    struct snapshot_reader *reader;
    struct snapshot_error error;
    struct fli_slice whole = {.len = 1};
    struct fli_slice piece;
    fli_buf_init(&f->file, (size_t)64 << 20);
    assert_int_equal(snapshot_reader_open(sim_device_base(f->from), 0, &reader, &error), 0);
    while (whole.len > 0) {
        assert_int_equal(snapshot_reader_next(reader, &whole, &piece, &error), 0);
        assert_int_equal(fli_buf_append(&f->file, whole.data, whole.len), 0);
    }
    assert_int_equal(f->file.len, snapshot_reader_meta(reader)->file_size);
    snapshot_reader_close(reader);
}

/* ---- node 2 ---- */

void install_turn(struct fixture *f)
{
    struct snapshot_install *s = f->install;
    if (snapshot_install_turn(s, f->applied, f->own)) {
        f->readies++;
        f->hash = machine_hash(s->machine);
        f->index = s->meta.index;
        if (f->take != FL_EBUSY) {
            snapshot_install_taken(s, f->take, s->machine);
        }
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

static void hold_cb(void *ctx)
{
    struct fixture *f = ctx;
    f->holds++;
}

static void release_cb(void *ctx)
{
    struct fixture *f = ctx;
    assert_true(f->holds > 0);
    f->holds--;
}

void start_send(struct fixture *f, uint64_t index)
{
    snapshot_send_start(f->send, &f->sending, 2, index);
}

void send_turn(struct fixture *f)
{
    f->damaged += snapshot_send_turn(f->send) != 0;
}

void set_now(struct fixture *f, uint64_t now_ms)
{
    ahead_ms = now_ms - __real_fli_clock_ms();
}

bool turn(struct fixture *f, uint64_t deadline_ms)
{
    bool in_time = rig_turn(f->r, deadline_ms);
    while (f->accepted < f->r->b.accepted) {
        struct held_stream *h = &f->r->b.streams[f->accepted++ % RIG_STREAMS];
        struct stream *s = h->s;
        h->s = NULL;
        snapshot_install_accept(f->install, 1, s);
    }
    install_turn(f);
    send_turn(f);
    return in_time;
}

int transfer_set_up(void **state)
{
    struct fixture *f = &fixture;
    memset(f, 0, sizeof *f);
    ahead_ms = 0;
    stopped_ms = 0;
    done_lost = 0;
    f->r = rig_open(NULL);
    f->r->b.unstarted = true;
    f->from = sim_device_create(1);
    f->to = sim_device_create(2);
    f->machine = states_make(LOCKS);
    write_snapshot(f, 70);
    read_file(f);
    f->host = (struct host){
        .loop = &f->r->loop, .ctx = f, .log = log_cb, .hold = hold_cb, .release = release_cb};
    f->send_host = f->host;
    f->send_host.log = sent_log_cb;
    f->sending = (struct snapshot_send_config){
        .host = &f->send_host, .transport = f->r->a.t, .device = sim_device_base(f->from)};
    f->install->host = &f->host;
    f->install->device = sim_device_base(f->to);
    f->install->is_sound = replica_snapshot_is_sound;
    *state = f;
    return 0;
}

int transfer_tear_down(void **state)
{
    struct fixture *f = *state;
    snapshot_send_stop(f->send);
    snapshot_install_stop(f->install);
    RUN_UNTIL(f->r, !snapshot_send_busy(f->send) && f->holds == 0);
    rig_close(f->r);
    assert_int_equal(f->holds, 0);
    assert_true(f->install->state == INSTALL_IDLE && !f->install->work.busy);
    machine_destroy(f->machine);
    sim_device_destroy(f->from);
    sim_device_destroy(f->to);
    fli_buf_fini(&f->file);
    return 0;
}

unsigned whole(struct fixture *f)
{
    unsigned n = 0;
    for (size_t i = 0; i < sim_device_files(f->to); i++) {
        n += strstr(sim_device_name(f->to, i), ".part") == NULL;
    }
    return n;
}

void expect_nothing_left(struct fixture *f)
{
    UNTIL(f, f->install->state == INSTALL_IDLE);
    assert_int_equal(sim_device_files(f->to), 0);
}

void expect_installed(struct fixture *f)
{
    UNTIL(f, !snapshot_send_busy(f->send) && f->install->state == INSTALL_IDLE);
    assert_true(f->hash == machine_hash(f->machine));
    assert_int_equal(whole(f), 1);
    assert_int_equal(sim_device_files(f->to), 1);
    size_t len = 0;
    const uint8_t *data = sim_device_data(f->to, sim_device_name(f->to, 0), &len);
    assert_int_equal(len, f->file.len);
    assert_memory_equal(data, f->file.data, len);
}

void send_until_it_is_there(struct fixture *f)
{
    unsigned before = f->readies;
    /* As the core asks for it again and again. */
    UNTIL(f, (start_send(f, 70), f->readies > before));
    expect_installed(f);
}

void call(struct fixture *f)
{
    if (f->r->mine.s != NULL) {
        held_close(&f->r->mine);
    }
    rig_dial(f->r, 2, STREAM_SNAPSHOT);
    assert_int_equal(f->r->status, 0);
    held_start(&f->r->mine);
    UNTIL(f, f->accepted == f->r->b.accepted && f->accepted > 0);
}

void say(struct fixture *f, uint8_t type, const void *a, size_t a_len, const void *b, size_t b_len)
{
    struct fli_slice parts[2] = {{a, a_len}, {b, b_len}};
    assert_int_equal(stream_send(f->r->mine.s, type, parts, 2), 0);
    stream_flush(f->r->mine.s);
}

void say_begin(struct fixture *f, uint64_t index, uint64_t term, uint64_t size)
{
    uint8_t head[24];
    fli_put_u64(head, index);
    fli_put_u64(head + 8, term);
    fli_put_u64(head + 16, size);
    say(f, SNAPSHOT_BEGIN, head, sizeof head, NULL, 0);
}

void say_data(struct fixture *f, uint64_t offset, const void *data, size_t len)
{
    uint8_t head[8];
    fli_put_u64(head, offset);
    say(f, SNAPSHOT_DATA, head, sizeof head, data, len);
}

void expect_refused(struct fixture *f, int error)
{
    struct held_stream *m = &f->r->mine;
    UNTIL(f, m->frames > 0 && m->type == SNAPSHOT_DONE);
    assert_true(m->body.len >= 4);
    assert_int_equal(fli_get_u32(m->body.data), -error);
    expect_nothing_left(f);
}

void first_piece_is_taken(struct fixture *f)
{
    call(f);
    say_begin(f, 70, 3, f->file.len);
    say_data(f, 0, f->file.data, 60000);
    UNTIL(f, f->r->mine.frames > 0 && f->r->mine.type == SNAPSHOT_TAKEN &&
                 fli_get_u64(f->r->mine.body.data) == 60000);
}
