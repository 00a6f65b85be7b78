/* test_oom.c: the log and snapshot files when memory runs out: the same life is lived again and
 * again, and each time another allocation fails, until none is left to fail. Nothing may crash,
 * leak, or be lost that was durable.
 *
 * malloc() and its kin are replaced, so this does not go together with sanitizers. */
#include "../../lib/unit.h"

#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <unistd.h>

#include "log/log.h"
#include "snapshot/file.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *p);

/* Seen by shared libraries as well. */
#define SEEN __attribute__((visibility("default")))
SEEN void *malloc(size_t size);
SEEN void *calloc(size_t n, size_t size);
SEEN void *realloc(void *p, size_t size);
SEEN void *aligned_alloc(size_t align, size_t size);
SEEN void free(void *p);

static _Thread_local bool counting;
static _Thread_local long allocations;
static _Thread_local long fail_at; /* 0: none */
static _Atomic bool tracking;      /* all threads */
static _Atomic long live;

static bool fails(void)
{
    bool fail = counting && ++allocations == fail_at;
    errno = fail ? ENOMEM : errno;
    return fail;
}

static void *counted(void *p)
{
    live += tracking && p != NULL ? 1 : 0;
    return p;
}

void *malloc(size_t size)
{
    return fails() ? NULL : counted(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : counted(__libc_calloc(n, size));
}

void *aligned_alloc(size_t align, size_t size)
{
    return fails() ? NULL : counted(__libc_memalign(align, size));
}

void *realloc(void *p, size_t size)
{
    if (p == NULL) {
        return malloc(size);
    }
    return fails() ? NULL : __libc_realloc(p, size);
}

void free(void *p)
{
    live -= tracking && p != NULL ? 1 : 0;
    __libc_free(p);
}

struct life {
    char dir[256];
    struct log_device *device;
    struct log *log;
    bool closed;
    uint64_t durable_index; /* what must be found again */
    uint64_t snapshot;      /* likewise; 0: none */
    bool short_of_memory;
};

static void on_durable(void *ctx)
{
    struct life *life = ctx;
    life->durable_index = log_durable_index(life->log);
}

static void on_failed(void *ctx, int error, const char *message)
{
    fail_msg("%s", message);
}

static void on_closed(void *ctx)
{
    struct life *life = ctx;
    life->closed = true;
}

static void turn(struct life *life)
{
    assert_true(log_device_wait(life->device, 60000));
}

/* Whether it went well; otherwise memory was short, and nothing else. */
static bool well(struct life *life, int rv)
{
    if (rv != 0) {
        life->short_of_memory = true;
        if (rv != FL_ENOMEM && rv != FL_ESYSTEM) {
            fail_msg("%s", fl_err_name(rv));
        }
    }
    return rv == 0;
}

static void make_dir(struct life *life)
{
    const char *base = getenv("TMPDIR");
    snprintf(life->dir, sizeof life->dir, "%s/fencelock-oom-XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(life->dir));
}

static bool open_with(struct life *life, uint64_t segment_bytes)
{
    char errmsg[512];
    if (!well(life,
              log_files_create(life->dir, LOG_ENGINE_BEST, &life->device, errmsg, sizeof errmsg))) {
        return false;
    }
    struct log_config config = {.device = life->device,
                                .cache_bytes = 4000,
                                .segment_bytes = segment_bytes,
                                .ctx = life,
                                .durable = on_durable,
                                .failed = on_failed};
    if (!well(life, log_open(&config, &life->log, errmsg, sizeof errmsg))) {
        log_files_destroy(life->device);
        return false;
    }
    return true;
}

static bool open_all(struct life *life)
{
    return open_with(life, LOG_SEGMENT_MIN);
}

static void close_all(struct life *life)
{
    life->closed = false;
    log_close(life->log, on_closed, life);
    while (!life->closed) {
        turn(life);
    }
    log_destroy(life->log);
    log_files_destroy(life->device);
}

static void flush(struct life *life)
{
    log_flush(life->log);
    while (log_durable(life->log) < log_position(life->log)) {
        turn(life);
    }
    assert_int_equal(life->durable_index, log_durable_index(life->log));
}

static void append(struct life *life, uint64_t term, uint32_t len)
{
    static uint8_t data[16000];
    uint64_t last = log_last_index(life->log);
    memset(data, (int)(last + 1) & 0xff, len);
    struct log_entry e = {.index = last + 1, .term = term, .kind = 1, .len = len, .data = data};
    bool taken = log_append(life->log, &e) != 0;
    assert_int_equal(log_last_index(life->log), last + taken);
    life->short_of_memory |= !taken;
}

static void read_all(struct life *life)
{
    for (uint64_t i = log_first_index(life->log); i <= log_last_index(life->log); i++) {
        struct log_entry e;
        unsigned n = 0;
        if (well(life, log_read_some(life->log, i, SIZE_MAX, &e, 1, &n))) {
            assert_true(e.len == 0 || e.data[e.len - 1] == (i & 0xff));
        }
    }
}

static void copy_snapshot(struct life *life)
{
    struct snapshot_error e = {0};
    struct snapshot_reader *r = NULL;
    struct snapshot_part part;
    if (!well(life, snapshot_reader_open(life->device, 0, &r, &e))) {
        return;
    }
    if (well(life, snapshot_part_open(&part, life->device, 7, 1, &e))) {
        struct fli_slice whole = {.len = 1};
        struct fli_slice data;
        while (whole.len > 0) {
            assert_int_equal(snapshot_reader_next(r, &whole, &data, &e), 0);
            assert_int_equal(snapshot_part_write(&part, whole.data, whole.len, &e), 0);
        }
        assert_int_equal(snapshot_part_finish(&part, &e), 0);
    }
    snapshot_reader_close(r);
}

static void make_snapshot(struct life *life)
{
    struct snapshot_error e = {0};
    struct snapshot_meta meta = {.index = 7, .term = 1};
    struct snapshot_writer *w = NULL;
    if (well(life, snapshot_writer_open(life->device, &meta, &w, &e))) {
        assert_int_equal(snapshot_writer_write(w, "abc", 3), 0);
        assert_int_equal(snapshot_writer_end(w, 0), 0);
        life->snapshot = 7;
        copy_snapshot(life);
    }
    (void)well(life, snapshot_clean(life->device, UINT64_MAX, &e));
}

static void live_once(struct life *life)
{
    if (!open_all(life)) {
        return;
    }
    for (uint32_t i = 0; i < 30; i++) {
        append(life, 1, i * 150);
        if (i % 3 == 0) {
            flush(life);
        }
    }
    append(life, 1, 15000);
    struct log_hard_state hs = {.term = 2, .vote = 1};
    life->short_of_memory |= log_set_hard_state(life->log, &hs) == 0;
    uint64_t last = log_last_index(life->log);
    if (last > 2) {
        life->short_of_memory |= log_truncate(life->log, last - 1) == 0;
    }
    append(life, 2, 100);
    flush(life);
    read_all(life);
    log_compact(life->log, log_last_index(life->log) / 2);
    make_snapshot(life);
    for (uint32_t i = 0; i < 10; i++) {
        append(life, 3, 3000);
        flush(life);
    }
    life->short_of_memory |= log_reset(life->log, 1000, 3) == 0;
    flush(life);
    close_all(life);
    if (open_all(life)) {
        close_all(life);
    }
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return remove(path);
}

/* What the life that failed left behind is as far as it said, or further. */
static void check_rest(struct life *life)
{
    struct snapshot_error e = {0};
    struct snapshot_reader *r = NULL;
    assert_true(open_all(life));
    assert_true(log_last_index(life->log) >= life->durable_index);
    read_all(life);
    assert_int_equal(snapshot_reader_open(life->device, 0, &r, &e),
                     life->snapshot == 0 ? FL_ENOTFOUND : 0);
    if (r != NULL) {
        snapshot_reader_close(r);
    }
    close_all(life);
}

/* The C library keeps what it takes for threads, for the next ones. */
static void warm_up(void)
{
    struct log_device *d = NULL;
    char errmsg[256];
    assert_int_equal(log_files_create(".", LOG_ENGINE_THREAD, &d, errmsg, sizeof errmsg), 0);
    log_files_destroy(d);
}

/* An append that has failed leaves nothing that is written: no position goes back. */
TEST(an_append_that_fails)
{
    static uint8_t large[2 << 20];
    for (long n = 1; n <= 6; n++) {
        struct life life = {.log = NULL};
        struct log_entry e = {.index = 1, .term = 1, .kind = 1, .len = sizeof large, .data = large};
        make_dir(&life);
        assert_true(open_with(&life, UINT64_C(8) << 20));
        append(&life, 1, 10);
        flush(&life);
        allocations = 0;
        fail_at = n;
        counting = true;
        append(&life, 1, 10);
        counting = false;
        e.index = log_last_index(life.log) + 1;
        assert_int_not_equal(log_append(life.log, &e), 0);
        append(&life, 1, 10);
        log_flush(life.log);
        for (uint64_t last = log_durable(life.log);
             log_durable(life.log) < log_position(life.log);) {
            turn(&life);
            assert_true(log_durable(life.log) >= last);
            last = log_durable(life.log);
        }
        close_all(&life);
        assert_int_equal(nftw(life.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    }
}

TEST(each_allocation)
{
    warm_up();
    for (long n = 1;; n++) {
        struct life life = {.log = NULL};
        make_dir(&life);
        allocations = 0;
        live = 0;
        fail_at = n;
        counting = true;
        tracking = true;
        live_once(&life);
        counting = false;
        tracking = false;
        bool done = allocations < n;
        assert_int_equal(live, 0);
        assert_true(!done || !life.short_of_memory);
        check_rest(&life);
        assert_int_equal(nftw(life.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
        if (done) {
            print_message("%ld allocations\n", n - 1);
            assert_true(n > 60);
            return;
        }
    }
}
